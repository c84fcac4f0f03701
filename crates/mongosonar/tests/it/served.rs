//! The page of `serve`, as a browser shows it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use crate::pages::{browse_address, browser};
use crate::support::*;

/// Long enough to ask the server and to draw what it answers.
const DRAWN: [&str; 2] = ["--virtual-time-budget=10000", "--dump-dom"];

/// A `serve` that runs until this is dropped.
struct Serving {
    child: Child,
    /// Open as long as it may write messages.
    _messages: BufReader<ChildStderr>,
    store: PathBuf,
    address: String,
    /// What the addresses of the page begin with.
    url: String,
    _folder: Folder,
}

impl Serving {
    /// Serves a copy of the recorded history at a port that is free.
    fn new(name: &str) -> Self {
        Self::with(name, &[])
    }

    /// The same with more arguments.
    fn with(name: &str, arguments: &[&Path]) -> Self {
        let folder = Folder::new(name);
        let store = folder.path("store");
        fs::create_dir(&store).unwrap();
        for file in fs::read_dir(fixture("history")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), store.join(file.file_name())).unwrap();
        }
        // A folder that others can write to gets no token.
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
        let mut all: Vec<&Path> = vec!["--store".as_ref(), &store];
        all.extend(arguments);
        Self::start(folder, &all)
    }

    /// Serves what these arguments name.
    fn start(folder: Folder, arguments: &[&Path]) -> Self {
        let mut serve = program(["serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains(" at http") {
            assert_ne!(messages.read_line(&mut said).unwrap(), 0, "{said}");
        }
        let (before, url) = said.split_once(" at http").unwrap();
        let store = before.rsplit_once("serving the history in ").unwrap().1.into();
        let url = format!("http{}", url.trim_end());
        let address = url.split('/').nth(2).unwrap().to_owned();
        Self { child, _messages: messages, store, address, url, _folder: folder }
    }

    /// A link that opens the page once, with these parameters.
    fn link(&self, parameters: &str) -> String {
        let mut open = program(["open", "--listen", &self.address, "--url", &self.url, "--store"]);
        let output = open.arg(&self.store).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).trim().replace("/#", &format!("/{parameters}#"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
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
    let shape = serving.link(&format!("?view=shape&id=20f6eeba3263c824&{span}"));
    let html = browse_address(browser, &folder, &shape, &DRAWN);
    for word in ["update shop.carts</h1>", "Latency</h3>", "Operations per second</h3>", "p99"] {
        assert!(html.contains(word), "{word}: {html}");
    }
    // It is of no use in the history of the browser, and opens nothing again.
    let again = browse_address(browser, &other, &used, &DRAWN);
    assert!(again.contains("this link has been used") && !again.contains("fsyncLock"), "{again}");
}

#[test]
fn a_page_below_a_path_is_drawn_there() {
    let Some(browser) = browser() else {
        println!("skipped: pages are drawn by chromium, which is not installed");
        return;
    };
    let serving = Serving::with("served-path", &["--path".as_ref(), "/db1/mongosonar/".as_ref()]);
    assert_eq!(serving.url, format!("http://{}/db1/mongosonar/", serving.address));
    let folder = Folder::new("served-path-browser");
    let link = serving.link("?view=queries&from=2026-11-21T21:22:40Z&to=2026-11-21T21:27:40Z&zone=UTC");
    let html = browse_address(browser, &folder, &link, &DRAWN);
    assert!(html.contains("Queries</h1>") && html.contains("shop.carts"), "{html}");
    // Who leaves out the end of the path gets there, too.
    let link = serving.link("?view=events").replace("/mongosonar/?", "/mongosonar?");
    let html = browse_address(browser, &folder, &link, &DRAWN);
    assert!(html.contains("Events</a>"), "{html}");
}

#[test]
fn links_behind_a_reverse_proxy_begin_with_what_a_browser_asks_for() {
    let url = "https://db1.example/mongosonar/";
    let options = ["--path", "/mongosonar", "--url", url].map(Path::new);
    let serving = Serving::with("served-proxied", &options);
    let mut open = program(["open", "--listen", &serving.address, "--url", url, "--store"]);
    let opened = open.arg(&serving.store).output().unwrap();
    assert!(text(&opened.stdout).starts_with(&format!("{url}#")), "{opened:?}");
    for (path, url, word) in [
        ("/mongosonar", "https://db1.example/", "like https://db1.example/mongosonar/"),
        ("/mongosonar", "db1.example", "like https://db1.example/mongosonar/"),
        ("mongosonar", url, "like /mongosonar"),
    ] {
        let refused = program(["serve", "--path", path, "--url", url]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = text(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(word), "{said}");
    }
}

/// The certificate of the tests and a key, in a folder.
fn tls_files(folder: &Folder, key: &str) -> [PathBuf; 2] {
    ["certificate.pem", key].map(|name| {
        let path = folder.file(name, &fs::read(fixture("page-tls").join(name)).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    })
}

#[test]
fn a_script_gets_a_link_and_no_browser() {
    let serving = Serving::new("served-script");
    let folder = Folder::new("served-script-programs");
    let (opener, opened) = (folder.path("xdg-open"), folder.path("opened"));
    fs::write(&opener, format!("#!/bin/sh\ntouch {}\n", opened.display())).unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path("").display(), std::env::var("PATH").unwrap());
    for options in [&["--print"][..], &[]] {
        let mut open = program(["open", "--listen", &serving.address, "--store"]);
        open.arg(&serving.store).args(options).env("PATH", &path).env("DISPLAY", ":0");
        let output = open.output().unwrap();
        assert!(text(&output.stdout).starts_with(&format!("{}#", serving.url)), "{output:?}");
        assert_eq!(text(&output.stderr), "", "nothing is opened");
    }
    assert!(!opened.exists());
}

#[test]
fn a_page_is_served_by_tls_and_by_nothing_else() {
    let files = Folder::new("served-tls-files");
    let [certificate, key] = tls_files(&files, "key.pem");
    let options = [Path::new("--tls-certificate"), &certificate, Path::new("--tls-key"), &key];
    let serving = Serving::with("served-tls", &options);
    assert_eq!(serving.url, format!("https://{}/", serving.address));
    let mut plain = TcpStream::connect(&serving.address).unwrap();
    write!(plain, "GET / HTTP/1.1\r\nHost: {}\r\n\r\n", serving.address).unwrap();
    let mut answer = Vec::new();
    // It may be reset.
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1 200"));
    let Some(browser) = browser() else {
        println!("skipped: pages are drawn by chromium, which is not installed");
        return;
    };
    let folder = Folder::new("served-tls-browser");
    let link = serving.link("?view=queries&from=2026-11-21T21:22:40Z&to=2026-11-21T21:27:40Z&zone=UTC");
    // Nobody has signed the certificate.
    let options = [&["--ignore-certificate-errors"][..], &DRAWN].concat();
    let html = browse_address(browser, &folder, &link, &options);
    assert!(html.contains("Queries</h1>") && html.contains("shop.carts"), "{html}");
}

#[test]
fn what_is_wrong_with_tls_is_said_before_anything_is_served() {
    let folder = Folder::new("served-tls-wrong");
    let [certificate, key] = tls_files(&folder, "other-key.pem");
    let refused = |options: &[&Path]| {
        let output = program(["serve", "--listen", "127.0.0.1:0"]).args(options).output().unwrap();
        assert!(!text(&output.stderr).contains("serving"), "{output:?}");
        (output.status.code(), text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let both = || [Path::new("--tls-certificate"), &certificate, Path::new("--tls-key"), &key];
    let (code, said) = refused(&both());
    assert!(code == Some(1) && said.contains("its key is not that of the first certificate"), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o604)).unwrap();
    let (code, said) = refused(&both());
    assert!(code == Some(1) && said.contains(&format!("fix: chmod o= {}", key.display())), "{said}");
    let (code, said) = refused(&both()[..2]);
    assert!(code == Some(2) && said.contains("--tls-key <FILE>"), "{said}");
    let everywhere = program(["serve", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(everywhere.status.code(), Some(2));
    assert!(text(&everywhere.stderr).contains("other machines"), "{everywhere:?}");
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

/// Waits until this is so.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        // span: between two looks
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waiting for {what}");
}

#[test]
fn files_are_served_without_an_agent_and_leave_nothing() {
    let (capture, log) = (recording("mongod-4.0-mixed"), fixture("mongod-4.0-mixed/mongod.log.gz"));
    let mut serving = Serving::start(Folder::new("served-files"), &[&capture, &log]);
    let store = serving.store.clone();
    let mode = fs::metadata(&store).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut queries = program(["report", "--utc", "--from", "2000-01-01", "--json", "--store"]);
    let output = queries.arg(&store).output().unwrap();
    assert!(text(&output.stdout).contains("shop"), "{output:?}");
    // The link shows the time of the files.
    let mut link = String::new();
    BufReader::new(serving.child.stdout.as_mut().unwrap()).read_line(&mut link).unwrap();
    assert!(link.contains("/?from=2026-11-21T00:39:30Z&to=2026-11-21T00:39:50Z#"), "{link}");
    if let Some(browser) = browser() {
        let folder = Folder::new("served-files-browser");
        let html = browse_address(browser, &folder, link.trim(), &DRAWN);
        assert!(html.contains("Overview</a>") && html.contains("shop.people"), "{html}");
    }
    drop(serving);
    // Another process removes it.
    wait_for("an end of the replay", || !store.exists());
}

#[test]
fn files_that_are_served_are_removed_also_if_it_is_killed() {
    let log = fixture("mongod-4.0-mixed/mongod.log.gz");
    let mut serving = Serving::start(Folder::new("served-killed"), &[&log]);
    signal(&serving.child, "KILL");
    serving.child.wait().unwrap();
    wait_for("an end of the replay", || !serving.store.exists());
}

#[test]
fn files_that_hold_nothing_are_said_and_nothing_is_served() {
    let folder = Folder::new("served-nothing");
    let file = folder.file("notes.txt", b"nothing of a server\n");
    let mut serve = program(["serve", "--listen", "127.0.0.1:0"]);
    let output = serve.arg(&file).env("TMPDIR", folder.path("")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("notes.txt") && said.contains("nothing of these files can be shown"), "{said}");
    let left = fs::read_dir(folder.path("")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != "notes.txt").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_replay_that_is_stopped_leaves_nothing() {
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        let folder = Folder::new(&format!("served-stopped-{name}"));
        // It waits for who writes into it.
        let fifo = folder.path("capture");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut serve = program(["serve", "--listen", "127.0.0.1:0"]);
        let mut child =
            serve.arg(&fifo).env("TMPDIR", folder.path("")).stderr(Stdio::piped()).spawn().unwrap();
        let replays = |entry: fs::DirEntry| entry.path().join("lock").exists();
        let entries = || fs::read_dir(folder.path("")).unwrap().flatten();
        wait_for("a replay", || entries().any(replays));
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        wait_for("an empty folder", || entries().count() == 1);
    }
}
