//! Every page that the program writes, as a browser lays it out on a phone, a laptop and a wide screen.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::*;

const WIDTHS: [u32; 3] = [420, 1_400, 2_560];

/// Notes how wide the page and the window are, what sticks out of it (but for what scrolls by itself on purpose),
/// and how many cells have letters too small to read.
const MEASURE: &str = r##"<script>
addEventListener("load", () => {
  const page = document.documentElement;
  const scrolls = e => { for (; e && e !== document.body; e = e.parentElement) if (getComputedStyle(e).overflowX !== "visible") return true; return false; };
  const wide = [...document.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > page.clientWidth + 1 && !scrolls(e.parentElement));
  const small = [...document.querySelectorAll("td, p")].filter(e => e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 11);
  const name = e => e.tagName + "." + e.className + "#" + e.id;
  parent.document.documentElement.dataset.measured = ["", page.scrollWidth, page.clientWidth, small.length, wide.slice(0, 5).map(name).join(" "), ""].join("|");
});
</script></body>"##;

fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Every command that writes a page, with the page that it wrote.
fn pages(folder: &Folder) -> Vec<(&'static str, PathBuf)> {
    let log = fixture("mongod-4.0-mixed/mongod.log.gz");
    let slower: String = String::from_utf8(inflated("mongod-4.0-mixed/mongod.log.gz"))
        .unwrap()
        .lines()
        .map(|line| match line.strip_suffix("ms") {
            Some(head) if line.contains(" command: distinct ") => format!("{head}0ms\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let slower = folder.file("slower.log", slower.as_bytes());
    let dump = fixture("mongod-4.0-mixed/profile/shop.bson.gz");
    let capture = recording("mongod-4.0-mixed");
    let accesses = folder.file("reads.msio", &recorded_reads("sortById-hashed"));
    let bench = fixture("disk-bench.json");
    let commands: [(&'static str, &str, Vec<&Path>); 7] = [
        ("logs", "logs report", vec![&log]),
        ("by-app", "logs report --by app", vec![&log]),
        ("profile", "profiler report --class all", vec![&dump]),
        ("queries", "queries --read", vec![&capture]),
        ("compare", "compare", vec![&log, &slower]),
        ("io", "io report", vec![&accesses]),
        ("disk", "disk bench --compare", vec![&bench, &bench]),
    ];
    commands
        .into_iter()
        .map(|(name, words, files)| {
            let page = folder.path(&format!("{name}.html"));
            let mut command = program(words.split_whitespace());
            let output = command.args(files).arg("--html").arg(&page).output().unwrap();
            let done = output.status.code();
            assert!(matches!(done, Some(0 | 4)), "{name}: {done:?} {}", text(&output.stderr));
            (name, page)
        })
        .collect()
}

#[test]
fn no_page_scrolls_sideways_at_any_width() {
    let folder = Folder::new("pages");
    let pages = pages(&folder);
    let Some(browser) = browser() else {
        println!("skipped: pages are laid out by chromium, which is not installed");
        return;
    };
    for (name, page) in pages {
        let html = std::fs::read_to_string(&page).unwrap();
        assert!(html.contains("name=\"viewport\""), "{name}: a phone would lay it out as wide as a desk");
        // A page that allows no script cannot be measured by one.
        let begin = html.find("<meta http-equiv=\"Content-Security-Policy\"").unwrap_or(0);
        let end = if begin > 0 { begin + html[begin..].find('>').unwrap() + 1 } else { 0 };
        let html = format!("{}{}", &html[..begin], &html[end..]);
        let (head, tail) = html.rsplit_once("</body>").unwrap();
        let html = format!("{head}{MEASURE}{tail}");
        for width in WIDTHS {
            // Chromium makes no window narrower than 500 pixels; a frame may be.
            let inside = serde_json::to_string(&html).unwrap().replace('<', "\\u003c");
            let around = format!(
                "<!doctype html><iframe id=f style=\"width:{width}px;height:900px;border:0\"></iframe>\
                 <script>document.getElementById('f').srcdoc = {inside}</script>"
            );
            let page = folder.file(&format!("{name}-{width}.html"), around.as_bytes());
            let drawn = Command::new(browser)
                .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"])
                .arg(format!("--window-size={},1000", width + 100))
                .arg(format!("--user-data-dir={}", folder.path("browser").display()))
                .arg(format!("file://{}", page.display()))
                .output()
                .unwrap();
            let drawn = text(&drawn.stdout);
            let found = drawn
                .split_once("data-measured=\"|")
                .unwrap_or_else(|| panic!("{name} at {width}: {drawn:.500}"))
                .1;
            let mut parts = found.split('|');
            let mut number = || parts.next().unwrap().parse::<u32>().unwrap();
            let (scroll, client, small) = (number(), number(), number());
            let wide = parts.next().unwrap();
            assert_eq!(client, width, "{name}: the frame");
            assert!(scroll <= client, "{name} at {width}: {scroll} is wider than {client}: {wide}");
            assert_eq!(small, 0, "{name} at {width}: cells with letters smaller than 11 pixels");
        }
    }
}
