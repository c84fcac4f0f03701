//! Every page that the program writes, as a browser lays it out on a phone, a laptop and a 4K screen.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

/// The widths of the screens. Charts of a 4K screen take as long as those of the other two.
fn widths() -> &'static [u32] {
    const ALL: [u32; 3] = [420, 1_400, 3_840];
    if is_long() { &ALL } else { &ALL[..2] }
}

/// Measures the page that it stands in and sends the figures to the frame's parent.
const MEASURE: &str = r##"<script>
const report = found => parent.postMessage(found, "*");
const all = s => [...document.querySelectorAll(s)];
// As many colours as tell that something is drawn.
const colours = c => {
  const seen = new Set();
  for (const pixel of new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer)) {
    if (seen.add(pixel).size > 3) break;
  }
  return seen.size;
};
const drawn = () => ({
  charts: all(".plot").map(e => ({ x: e.dataset.x, y: e.dataset.y, colours: colours(e.querySelector("canvas")) })),
  paper: getComputedStyle(document.body).backgroundColor,
});
const measure = () => {
  const page = document.documentElement;
  // What scrolls by itself does so on purpose.
  const scrolls = e => { for (; e && e !== document.body; e = e.parentElement) if (getComputedStyle(e).overflowX !== "visible") return true; return false; };
  const name = e => e.tagName + "." + e.className + "#" + e.id;
  const wide = all("body *").filter(e => e.getBoundingClientRect().right > page.clientWidth + 1 && !scrolls(e.parentElement));
  const small = all("td, p").filter(e => e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 11);
  const inside = e => { const box = e.getBoundingClientRect(); return box.width > 60 && box.left >= 0 && box.right <= page.clientWidth + 1; };
  return {
    width: page.clientWidth, scroll: page.scrollWidth, wide: wide.slice(0, 5).map(name), small: small.length,
    facts: Object.fromEntries(all(".facts > div").map(e => [e.children[0].textContent, e.children[1].textContent])),
    mainHidden: all("td.main").filter(e => !inside(e)).map(name), cells: all("td").length,
    ...drawn(),
  };
};
const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const settle = () => new Promise(done => setTimeout(done, 300));
addEventListener("load", async () => {
  await settle();
  const found = measure();
  // Colours change with a key, and so do the charts.
  const shades = {};
  for (let n = 0; n < 2; n++) {
    press(document.body, "t");
    await settle();
    shades[document.documentElement.dataset.theme] = drawn();
  }
  found.shades = shades;
  // Rows are sorted by a click on a heading, which the keyboard reaches, and chosen with the keyboard.
  const body = () => [...document.querySelector("table").tBodies];
  const calls = () => [...document.querySelectorAll("table td[data-name=calls]")].map(e => e.textContent);
  const heading = [...document.querySelectorAll("th button")].find(e => e.textContent === "calls");
  if (heading && body().length > 1) {
    heading.focus();
    // Later another frame may have the focus.
    const focused = document.activeElement.tagName;
    heading.click();
    await settle();
    found.sorted = [focused, heading.closest("th").getAttribute("aria-sort"), calls()];
    heading.click();
    await settle();
    found.reversed = [heading.closest("th").getAttribute("aria-sort"), calls()];
    body()[0].focus();
    press(document.activeElement, "ArrowDown");
    found.moved = document.activeElement === body()[1];
    press(document.activeElement, "Enter");
    await settle();
    found.chosen = [body()[1].getAttribute("aria-current"), document.querySelector("td.detail")?.textContent ?? ""];
    press(document.body, "/");
    found.filtering = document.activeElement.type;
  }
  // A chart is zoomed with the keyboard: other ticks, and a button that shows all again.
  const plot = document.querySelector(".plot");
  if (plot) {
    const before = plot.dataset.x;
    const all = plot.closest("figure").querySelector("button:disabled");
    press(plot, "+"); press(plot, "+");
    await settle();
    found.zoomed = [before, plot.dataset.x, all !== null && !all.disabled];
    press(plot, "0");
    await settle();
    found.unzoomed = plot.dataset.x;
  }
  // Moves, zooms and searches in a flame graph with the keyboard.
  const flame = document.querySelector(".flame");
  if (flame) {
    const here = () => flame.querySelector("[tabindex='0']");
    const boxes = () => Number(flame.dataset.boxes);
    here().focus();
    const way = [here().textContent];
    const go = async key => {
      press(here(), key);
      await settle();
      way.push(here().textContent);
    };
    for (const key of ["ArrowDown", "ArrowRight", "ArrowLeft"]) await go(key);
    const all = boxes();
    await go("Enter");
    const zoomed = [boxes(), here().style.width];
    await go("0");
    const search = document.querySelector(".chart .filter");
    search.value = "RECVMSG";
    search.dispatchEvent(new Event("input", { bubbles: true }));
    await settle();
    const hits = [...flame.querySelectorAll(".hit")].map(e => e.textContent);
    found.flame = { way, all, zoomed, back: boxes(), hits, misses: flame.querySelectorAll(".miss").length,
      share: document.querySelector(".chart [role=status]")?.textContent ?? "" };
  }
  report(found);
});
</script></body>"##;

/// The browser that is installed.
pub fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Runs the browser on a file.
fn browse(browser: &str, folder: &Folder, page: &Path, arguments: &[&str]) -> String {
    browse_address(browser, folder, &format!("file://{}", page.display()), arguments)
}

/// Runs the browser on an address, with what it keeps in a folder.
pub fn browse_address(browser: &str, folder: &Folder, address: &str, arguments: &[&str]) -> String {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", folder.path("browser").display()))
        .args(arguments)
        .arg(address)
        .output()
        .unwrap();
    text(&output.stdout).to_owned()
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
    let history = fixture("history");
    let stacks = ["before", "after"].map(|name| fixture(&format!("stacks-{name}.json")));
    let (current, explained) = (fixture("kept/current-op.json"), fixture("explain/sharded-5.0.json"));
    let commands: [(&'static str, &str, Vec<&Path>); 12] = [
        ("logs", "logs report", vec![&log]),
        ("by-app", "logs report --by app", vec![&log]),
        ("profile", "profiler report --class all", vec![&dump]),
        ("queries", "queries --read", vec![&capture]),
        ("current", "report", vec![&current]),
        ("explain", "report", vec![&explained]),
        ("compare", "compare", vec![&log, &slower]),
        ("compare-stacks", "stacks compare", vec![&stacks[0], &stacks[1]]),
        ("io", "io report", vec![&accesses]),
        ("disk", "disk bench --compare", vec![&bench, &bench]),
        ("timeline", "timeline --utc --from 2026-11-21T21:23:40 --to 21:27:20 --store", vec![&history]),
        ("incident", "report --utc --from 2026-11-21T21:23:40 --to 21:27:20 --store", vec![&history]),
    ];
    let mut pages: Vec<_> = commands
        .into_iter()
        .map(|(name, words, files)| {
            let page = folder.path(&format!("{name}.html"));
            let mut command = program(words.split_whitespace());
            let output = command.args(files).arg("--html").arg(&page).output().unwrap();
            let done = output.status.code();
            assert!(matches!(done, Some(0 | 4)), "{name}: {done:?} {}", text(&output.stderr));
            (name, page)
        })
        .collect();
    // Pages of commands that need a disk or a server: the same page around a document of them.
    let app = std::fs::read_to_string(&pages[0].1).unwrap();
    let (before, rest) = app.split_once(r#"<script id="data" type="application/json">"#).unwrap();
    let (_, after) = rest.split_once("</script>").unwrap();
    for (name, document) in [
        ("bench", bench_document(&bench)),
        ("impact", include_str!("support/impact.json").to_owned()),
        ("impact-long", include_str!("support/impact-long.json").to_owned()),
        ("shape", include_str!("support/shape.json").to_owned()),
        ("why", std::fs::read_to_string(fixture("why.json")).unwrap()),
        ("stacks", std::fs::read_to_string(&stacks[1]).unwrap()),
    ] {
        let page = format!(r#"{before}<script id="data" type="application/json">{document}</script>{after}"#);
        pages.push((name, folder.file(&format!("{name}.html"), page.as_bytes())));
    }
    pages
}

/// What `disk bench --html` puts into its page, of a run that `--json` wrote.
fn bench_document(bench: &Path) -> String {
    let mut run: Value = serde_json::from_slice(&std::fs::read(bench).unwrap()).unwrap();
    let started = run["started_ns"].as_u64().unwrap();
    run["about"] = serde_json::json!({
        "tool": "mongosonar", "version": run["version"], "host": "db1.example.net", "sources": [run["place"]["dir"]],
        "start_ns": started, "end_ns": started + 10_000_000_000,
    });
    run.to_string()
}

/// A page without its security policy, which would not let a script measure it, and with that script.
fn measured(html: &str) -> String {
    let begin = html.find("<meta http-equiv=\"Content-Security-Policy\"").unwrap();
    let end = begin + html[begin..].find('>').unwrap() + 1;
    let html = format!("{}{}", &html[..begin], &html[end..]);
    let (head, tail) = html.rsplit_once("</body>").unwrap();
    format!("{head}{MEASURE}{tail}")
}

/// What a browser finds of each page in frames of all widths at once. It starts once: a start takes longer than a page.
fn found(browser: &str, folder: &Folder, pages: &[(&str, PathBuf)]) -> Vec<Vec<Value>> {
    let pages: Vec<String> =
        pages.iter().map(|(_, page)| measured(&std::fs::read_to_string(page).unwrap())).collect();
    // Chromium makes no window narrower than 500 pixels; a frame may be.
    let inside = serde_json::to_string(&pages).unwrap().replace('<', "\\u003c");
    let widths = widths();
    let around = format!(
        "<!doctype html><body><script>
         const pages = {inside}, widths = {widths:?}, found = [];
         const inFrame = (html, width) => new Promise(done => {{
           const frame = document.createElement('iframe');
           frame.style.cssText = `width:${{width}}px;height:900px;border:0`;
           frame.srcdoc = html;
           document.body.append(frame);
           addEventListener('message', event => {{
             if (event.source === frame.contentWindow) done(event.data);
           }});
         }});
         const result = document.createElement('pre');
         result.id = 'found';
         (async () => {{
           for (const html of pages) {{
             found.push(await Promise.all(widths.map(width => inFrame(html, width))));
             result.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(found))));
             document.body.replaceChildren(result);
           }}
         }})();
         </script>"
    );
    let page = folder.file("framed.html", around.as_bytes());
    let drawn = browse(
        browser,
        folder,
        &page,
        &["--window-size=4000,1000", "--virtual-time-budget=100000", "--dump-dom"],
    );
    let result = drawn.split_once("<pre id=\"found\">").unwrap_or_else(|| panic!("{drawn:.500}")).1;
    let (result, _) = result.split_once('<').unwrap();
    serde_json::from_slice(&BASE64_STANDARD.decode(result).unwrap()).unwrap()
}

/// Ticks on both axes of every chart, none of them twice, and something drawn.
fn charts(name: &str, charts: &Value) -> usize {
    let charts = charts.as_array().unwrap();
    for chart in charts {
        for axis in ["x", "y"] {
            let labels: Vec<_> = chart[axis].as_str().unwrap_or_default().split('|').collect();
            assert!(labels.len() >= 2, "{name}: ticks of {axis}: {labels:?}");
            let mut known = labels.clone();
            known.sort_unstable();
            known.dedup();
            assert_eq!(known.len(), labels.len(), "{name}: equal ticks: {labels:?}");
        }
        assert!(chart["colours"].as_u64().unwrap() > 3, "{name}: nothing is drawn: {chart}");
    }
    charts.len()
}

#[test]
fn every_page_fits_every_screen_and_works_by_keyboard() {
    let folder = Folder::new("pages");
    let pages = pages(&folder);
    let Some(browser) = browser() else {
        println!("skipped: pages are laid out by chromium, which is not installed");
        return;
    };
    let found = found(browser, &folder, &pages);
    let names: Vec<&str> = pages.iter().map(|(name, _)| *name).collect();
    assert_eq!(found.len(), pages.len(), "the one that did not answer comes after the last: {names:?}");
    for ((name, page), found) in pages.into_iter().zip(found) {
        let html = std::fs::read_to_string(&page).unwrap();
        assert!(html.contains("name=\"viewport\""), "{name}: a phone would lay it out as wide as a desk");
        for (&width, found) in widths().iter().zip(found) {
            let name = format!("{name} at {width}");
            assert_eq!(found["width"], width, "{name}: the frame");
            assert!(
                found["scroll"].as_u64() <= Some(u64::from(width)),
                "{name} is too wide: {}",
                found["wide"]
            );
            assert_eq!(found["small"], 0, "{name}: cells with letters smaller than 11 pixels");
            assert_eq!(
                found["mainHidden"],
                serde_json::json!([]),
                "{name}: the main column is off the screen"
            );
            let is_table = !name.starts_with("impact-long") && !name.starts_with("shape");
            assert!(found["cells"].as_u64() > Some(0) || !is_table, "{name}: no rows");
            // Where from, when, by what.
            let facts = found["facts"].as_object().unwrap();
            let version = format!("mongosonar {}", env!("CARGO_PKG_VERSION"));
            assert_eq!(facts["version"], version.as_str(), "{name}");
            let sides = ["A", "B"].map(|side| facts.get(side)).iter().flatten().count();
            let own = ["host", "source", "time"].map(|fact| facts.get(fact)).iter().flatten().count();
            // The output of explain does not say when.
            let is_named = sides == 2 || own == 3 || name.starts_with("explain") && own == 2;
            assert!(is_named, "{name}: {facts:?}");
            let drawn = charts(&name, &found["charts"]);
            let has_none = ["compare", "stacks", "current", "explain"];
            assert!(drawn > 0 || has_none.iter().any(|start| name.starts_with(start)), "{name}: no chart");
            // Dark and light.
            let shades = &found["shades"];
            assert_ne!(shades["dark"]["paper"], shades["light"]["paper"], "{name}");
            assert_eq!(charts(&name, &shades["dark"]["charts"]), drawn);
            if drawn > 0 {
                let zoomed = found["zoomed"].as_array().unwrap();
                assert_ne!(zoomed[0], zoomed[1], "{name}: + on a chart changes its ticks");
                assert_eq!(zoomed[2], true, "{name}: there is a way back");
                assert_eq!(found["unzoomed"], zoomed[0], "{name}: 0 shows all");
            }
            if name.starts_with("stacks") {
                flame(&name, &found["flame"]);
            }
            if name.starts_with("logs") {
                sorting(&name, &found);
            }
        }
    }
}

/// Moves from the root to a role, to its neighbour and back, zooms in and out, then searches.
fn flame(name: &str, found: &Value) {
    let way = ["all", "other threads", "client connection", "other threads", "other threads", "all"];
    assert_eq!(found["way"], serde_json::json!(way), "{name}");
    assert_eq!(found["zoomed"][1], "100%", "{name}");
    assert_eq!(found["back"], found["all"], "{name}: 0 shows all");
    let hits = found["hits"].as_array().unwrap();
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit == "recvmsg"), "{name}: {hits:?}");
    assert!(found["misses"].as_u64() > Some(5), "{name}: {found}");
    assert!(found["share"].as_str().unwrap().ends_with("% of samples"), "{name}: {found}");
}

/// By a click on a heading, then with the keyboard into the details of a row.
fn sorting(name: &str, found: &Value) {
    let numbers = |cells: &Value| -> Vec<f64> {
        let number = |text: &str| match text.strip_suffix('k') {
            Some(thousands) => thousands.parse::<f64>().unwrap() * 1_000.0,
            None => text.parse().unwrap(),
        };
        cells.as_array().unwrap().iter().map(|cell| number(cell.as_str().unwrap())).collect()
    };
    let (down, up) = (&found["sorted"], &found["reversed"]);
    assert_eq!(
        (&down[0], &down[1], &up[0]),
        (&"BUTTON".into(), &"descending".into(), &"ascending".into()),
        "{name}"
    );
    let (down, up) = (numbers(&down[2]), numbers(&up[1]));
    assert!(down.len() > 20 && down.is_sorted_by(|a, b| a >= b), "{name}: {down:?}");
    assert!(up.is_sorted() && up.len() == down.len(), "{name}: {up:?}");
    assert_eq!((&found["moved"], &found["chosen"][0]), (&true.into(), &"true".into()), "{name}");
    assert!(found["chosen"][1].as_str().unwrap().contains("shape id"), "{name}: {}", found["chosen"]);
    assert_eq!(found["filtering"], "search", "{name}: / filters");
}

#[test]
fn a_hostile_name_is_text_and_nothing_else() {
    let Some(browser) = browser() else {
        println!("skipped: pages are drawn by chromium, which is not installed");
        return;
    };
    let folder = Folder::new("hostile");
    let evil =
        r#"</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"#;
    let line = format!(
        r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{{"type":"command","ns":"a.{evil}","appName":"{evil}","planSummary":"COLLSCAN","command":{{"find":"{evil}","filter":{{"{evil}":1,"b\u202ec":2}},"$db":"a"}},"durationMillis":7}}}}"#
    );
    let log = folder.file("evil.log", line.as_bytes());
    for by in ["shape", "namespace", "app"] {
        let page = folder.path(&format!("{by}.html"));
        let output =
            program(["logs", "report", "--by", by]).arg(&log).arg("--html").arg(&page).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        // As a person opens it, its policy included.
        let drawn = browse(browser, &folder, &page, &["--virtual-time-budget=3000", "--dump-dom"]);
        assert!(drawn.contains("data-ready=\"yes\""), "{by}: {drawn:.500}");
        let body = drawn.split_once("<div id=\"app\">").unwrap().1.split_once("<script").unwrap().0;
        assert!(!body.contains("<img") && body.contains("&lt;img src=x"), "{by}");
        assert!(!drawn.contains("<title>owned"), "{by}");
        assert!(!body.contains('\u{202e}'), "{by}: a mark that reorders text is spelt out");
    }
}

#[test]
fn a_page_prints() {
    let Some(browser) = browser() else {
        println!("skipped: pages are printed by chromium, which is not installed");
        return;
    };
    let folder = Folder::new("print");
    let page = folder.path("page.html");
    let log = fixture("mongod-4.0-mixed/mongod.log.gz");
    let output = program(["logs", "report"]).arg(log).arg("--html").arg(&page).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let paper = folder.path("page.pdf");
    let argument = format!("--print-to-pdf={}", paper.display());
    browse(browser, &folder, &page, &["--virtual-time-budget=3000", &argument]);
    let pdf = std::fs::read(&paper).unwrap();
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 20_000, "{} bytes", pdf.len());
}
