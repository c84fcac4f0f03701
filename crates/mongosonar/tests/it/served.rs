//! The page of `serve`, as a browser shows it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Stdio};

use crate::pages::{browse_address, browser};
use crate::support::*;

/// Long enough to ask the server and to draw what it answers.
const DRAWN: [&str; 2] = ["--virtual-time-budget=10000", "--dump-dom"];

/// A `serve` that runs until this is dropped.
struct Serving {
    child: Child,
    /// Open as long as it may write messages.
    _messages: BufReader<ChildStderr>,
    folder: Folder,
    address: String,
}

impl Serving {
    /// Serves a copy of the recorded history at a port that is free.
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let store = folder.path("store");
        fs::create_dir(&store).unwrap();
        for file in fs::read_dir(fixture("history")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), store.join(file.file_name())).unwrap();
        }
        // A folder that others can write to gets no token.
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
        let mut serve = program(["serve", "--listen", "127.0.0.1:0", "--store"]);
        let mut child = serve.arg(&store).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        messages.read_line(&mut line).unwrap();
        let address = line.split_once("http://").unwrap().1.trim_end().trim_end_matches('/').to_owned();
        Self { child, _messages: messages, folder, address }
    }

    /// A link that opens the page once, with these parameters.
    fn link(&self, parameters: &str) -> String {
        let mut open = program(["open", "--listen", &self.address, "--store"]);
        let output = open.arg(self.folder.path("store")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).trim().replace("/#", &format!("/{parameters}#"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        signal(&self.child, "INT");
        let ended = self.child.wait();
        assert!(std::thread::panicking() || ended.unwrap().success(), "it ends without an error");
    }
}

#[test]
fn a_link_opens_the_view_that_its_address_names() {
    let Some(browser) = browser() else {
        println!("skipped: pages are drawn by chromium, which is not installed");
        return;
    };
    let (serving, folder, other) =
        (Serving::new("served-views"), Folder::new("served-browser"), Folder::new("served-other"));
    let span = "from=2026-11-21T21:22:40Z&to=2026-11-21T21:27:40Z&zone=UTC";
    let mut used = String::new();
    for (view, words) in [
        ("incident", ["Overview</a>", "writes were locked by fsyncLock", "shop.carts"]),
        ("what-changed", ["What changed</h1>", "writes were locked by fsyncLock", "2026-11-21 21:22:40"]),
        ("queries&by=namespace", ["Queries</h1>", "shop.carts</div></td>", "rows by"]),
        ("timeline", ["Timeline</h1>", "election", "2026-11-21 21:22:40"]),
    ] {
        let link = serving.link(&format!("?view={view}&{span}"));
        let html = browse_address(browser, &folder, &link, &DRAWN);
        for word in words {
            assert!(html.contains(word), "{view}: {word}: {html}");
        }
        assert!(html.contains(r#"aria-current="page""#), "{view}");
        used = link;
    }
    // It is of no use in the history of the browser, and opens nothing again.
    let again = browse_address(browser, &other, &used, &DRAWN);
    assert!(again.contains("this link has been used") && !again.contains("fsyncLock"), "{again}");
}

#[test]
fn a_range_of_which_nothing_is_stored_leads_to_one_of_which_something_is() {
    let Some(browser) = browser() else {
        println!("skipped: pages are drawn by chromium, which is not installed");
        return;
    };
    let (serving, folder) = (Serving::new("served-empty"), Folder::new("served-empty-browser"));
    let html = browse_address(browser, &folder, &serving.link(""), &DRAWN);
    assert!(
        html.contains("nothing is stored after") && html.contains("Show the last hour that is stored"),
        "{html}"
    );
    assert!(html.contains("from=2026-11-21T20%3A27%3A40Z&amp;to=2026-11-21T21%3A27%3A40Z"), "{html}");
}
