//! The commands that look back, on the history of four minutes in which known things were done to a server.
//!
//! `fixtures/README.md` lists what was done and when. The names below are of what was done, not of what is printed.

use std::process::Output;

use crate::support::*;
use serde_json::Value;

fn run(words: &[&str]) -> Output {
    let store = fixture("history");
    let (command, rest) = words.split_first().unwrap();
    let store = ["--store", store.to_str().unwrap(), "--utc"];
    program([*command].iter().chain(&store).chain(rest)).output().unwrap()
}

fn json(words: &[&str]) -> Value {
    let output = run(&[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {output:?}"))
}

/// What comes first at a time: its kind, its sentence, and everything that it has below it.
fn first_at(time: &str) -> (String, String) {
    let report = json(&["what-changed", "--at", &format!("2026-11-21T{time}")]);
    let first = &report["moments"][0]["changes"][0];
    let effects = first["effects"].as_array().unwrap().iter();
    let effects: Vec<_> = effects.map(|effect| effect["sentence"].as_str().unwrap()).collect();
    (first["sentence"].as_str().unwrap_or_default().to_owned(), effects.join("\n"))
}

#[test]
fn what_was_done_is_named_first() {
    for (time, named, effect) in [
        ("21:24:02", "index user_1 was dropped on shop.carts", "find shop.carts"),
        ("21:24:22", "build of index user_1 began on shop.carts", ""),
        ("21:24:37", "find shop.orders {filter: {status:", ""),
        ("21:24:52", "find shop.orders {filter: {status:", ""),
        ("21:25:02", "writes were locked by fsyncLock", "shop.orders"),
        ("21:25:06", "writes were locked by fsyncLock", "stalled"),
        ("21:25:17", "a setting was changed", "shop.orders"),
        ("21:25:37", "a setting was changed", ""),
        ("21:25:47", "errors 11000 (DuplicateKey) on shop.users began", ""),
        ("21:25:59", "errors 11000 (DuplicateKey) on shop.users ended", ""),
        ("21:26:07", "the application pricing is new", "aggregate shop.orders"),
        ("21:26:22", "the application analyst is new", "aggregate shop.users"),
        ("21:26:26", "the application analyst is new", "aggregate shop.users"),
        ("21:26:37", "many connections were opened", ""),
        ("21:26:44", "many connections were opened", ""),
        ("21:26:49", "the log was rotated", ""),
        ("21:26:54", "the profiler was set", ""),
        ("21:27:04", "the profiler was set", ""),
    ] {
        let (sentence, effects) = first_at(time);
        assert!(sentence.starts_with(named), "{time}: {sentence}");
        assert!(effects.contains(effect), "{time}: {effect:?} in {effects}");
    }
}

#[test]
fn nothing_is_said_of_steady_times_and_the_exit_code_says_so() {
    // Before the index was dropped.
    let words = ["--from", "2026-11-21T21:23:40", "--to", "21:24:00", "--against", "2026-11-21T21:23:10+30s"];
    let output = run(&[&["what-changed"][..], &words].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Nothing changed beyond chance."), "{text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
    let steady = run(&["what-changed", "--at", "2026-11-21T21:23:50"]);
    let text = String::from_utf8_lossy(&steady.stdout).into_owned();
    // Its three windows reach until the drop of the index.
    assert_eq!(text.matches("\n1. ").count(), 1, "{text}");
    assert_eq!(steady.status.code(), Some(4));
}

#[test]
fn a_span_that_was_not_observed_is_a_failure_with_a_sentence() {
    for words in [
        ["--from", "2026-11-21T20:00:00", "--to", "20:30:00"],
        ["--from", "2026-11-22T10:00:00", "--to", "10:30:00"],
    ] {
        let output = run(&[&["what-changed"][..], &words].concat());
        let (text, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{words:?} {text}");
        assert!(error.contains("nothing was observed between"), "{error}");
        assert!(!text.contains("Nothing changed"), "{text}");
    }
}

#[test]
fn rates_of_a_compared_span_are_its_calls_by_its_seconds() {
    // Both were observed all the time.
    let report = json(&["compare", "2026-11-21T21:23:20+20s", "2026-11-21T21:23:40+20s"]);
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() > 5);
    for row in rows {
        for (at, seconds) in [(0, 20.0), (1, 20.0)] {
            let (calls, rate) =
                (row["calls"][at].as_f64().unwrap(), row["calls_per_s"][at].as_f64().unwrap());
            assert!((rate - calls / seconds).abs() < 0.05 * calls / seconds + 1e-9, "{row}");
        }
    }
}

#[test]
fn a_scan_finds_what_was_done_in_its_order() {
    let report = json(&["what-changed", "--from", "2026-11-21T21:23:40", "--to", "21:27:20"]);
    let moments = report["moments"].as_array().unwrap();
    let all: Vec<&str> = moments
        .iter()
        .flat_map(|moment| moment["changes"].as_array().unwrap())
        .map(|change| change["sentence"].as_str().unwrap())
        .collect();
    let all = all.join("\n");
    let mut from = 0;
    for named in [
        "index user_1 was dropped on shop.carts",
        "find shop.orders {filter: {status:",
        "writes were locked by fsyncLock",
        "errors 11000",
        "the application analyst is new",
        "many connections were opened",
    ] {
        let found = all[from..].find(named);
        assert!(found.is_some(), "{named} in {all}");
        from += found.unwrap();
    }
}

#[test]
fn queries_of_a_span_are_those_of_its_windows() {
    let calls = |words: &[&str]| {
        let output = run(&[&["queries"][..], words, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let last = text.lines().last().unwrap_or_else(|| panic!("{words:?}"));
        let summary: Value = serde_json::from_str(last).unwrap();
        (text.lines().count() - 1, summary["totals"]["calls"].as_u64().unwrap(), summary)
    };
    let (_, whole, summary) = calls(&["--from", "2026-11-21T21:24:00", "--to", "21:25:00"]);
    assert_eq!(summary["end_ns"].as_u64().unwrap() - summary["start_ns"].as_u64().unwrap(), 60_000_000_000);
    let parts: u64 = (0..6).map(|at| calls(&["--at", &format!("2026-11-21T21:24:{at}0")]).1).sum();
    assert_eq!(whole, parts);
    let (intervals, again, _) =
        calls(&["--from", "2026-11-21T21:24:00", "--to", "21:25:00", "--interval", "20s"]);
    assert_eq!((intervals, again), (3, whole));
    assert_eq!(calls(&["--at", "2026-11-21T21:24"]).1, whole, "a minute");
    let (.., filtered) = calls(&["--from", "2026-11-21T21:24:00", "--to", "21:25:00", "--filter", "carts"]);
    let rows = filtered["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["collection"] == "carts"));
}

#[test]
fn a_time_without_a_history_is_explained() {
    for (words, said) in [
        (&["queries", "--at", "2020-01-01T10:00"][..], "the history in"),
        (&["what-changed", "--at", "2020-01-01T10:00"], "the history covers 2026-11-21T21:22:40Z"),
        (&["what-changed", "--from", "2026-11-21T22:00", "--to", "21:00+5m"], "is no time"),
        (&["timeline", "--from", "2026-11-22T10:00"], "the history covers"),
        (&["queries", "--at", "14:00", "--read", "x.pcap"], "cannot be used with"),
        (&["queries", "--from", "2026-11-21T21:24", "--to", "21:25", "--by", "order"], "no rows by order"),
    ] {
        let output = run(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{words:?}: {output:?}");
        assert!(text.contains(said), "{words:?}: {text}");
    }
    let none = program(["what-changed", "--store", "/nonexistent"]).output().unwrap();
    assert!(String::from_utf8_lossy(&none.stderr).contains("mongosonar agent"));
}

#[test]
fn spans_are_compared_as_files_are() {
    let store = fixture("history");
    let store = ["--store", store.to_str().unwrap(), "--utc", "--json"];
    let words = ["compare", "2026-11-21T21:23:40+20s", "2026-11-21T21:24:00+20s"];
    let output = program(words.iter().chain(&store)).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(output.status.code(), Some(4), "the index was dropped");
    let text = report.to_string();
    assert!(text.contains("carts"));
    let same = ["compare", "2026-11-21T21:23:30+20s", "2026-11-21T21:23:30+20s"];
    assert_eq!(program(same.iter().chain(&store)).output().unwrap().status.code(), Some(0));
}

#[test]
fn a_baseline_of_the_history_marks_what_is_slower() {
    let words =
        ["--from", "2026-11-21T21:24:03", "--to", "21:24:20", "--baseline", "2026-11-21T21:23:20+40s"];
    let summary = json(&[&["queries"][..], &words].concat());
    let rows = summary["rows"].as_array().unwrap();
    let carts = rows.iter().find(|row| row["collection"] == "carts" && row["command"] == "find").unwrap();
    assert_eq!(carts["baseline"]["since"], "slower", "{carts}");
}

#[test]
fn the_timeline_and_the_report_cover_the_same_time() {
    let span = ["--from", "2026-11-21T21:23:40", "--to", "21:27:20"];
    let timeline = json(&[&["timeline"][..], &span].concat());
    let lanes = timeline["lanes"].as_array().unwrap();
    let parts = timeline["parts"].as_u64().unwrap() as usize;
    assert!(lanes.iter().all(|lane| lane["values"].as_array().unwrap().len() == parts));
    let groups: Vec<_> = lanes.iter().map(|lane| lane["group"].as_str().unwrap()).collect();
    for group in ["queries", "internals", "machine"] {
        assert!(groups.contains(&group), "{group}");
    }
    let folder = Folder::new("incident");
    let page = folder.path("incident.html");
    let output = run(&[&["report"][..], &span, &["--html", page.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["WHAT CHANGED", "TIMELINE", "QUERIES", "index user_1 was dropped"] {
        assert!(text.contains(part), "{part}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("\"kind\":\"incident\""));
}

#[test]
fn a_server_that_the_history_does_not_know_is_refused() {
    for command in ["what-changed", "timeline"] {
        let output = run(&[command, "--port", "27999"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("has no server at port 27999; it knows "), "{command}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_comparison_says_which_windows_it_compares() {
    let output = run(&["compare", "2026-11-21T21:24:37Z+15s", "2026-11-21T21:26:00Z+30s"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let windows = "compared are the windows of the history from 2026-11-21T21:24:30Z to 2026-11-21T21:25:00Z";
    assert!(said.contains(windows), "{said}");
    assert_eq!(said.matches("compared are the windows").count(), 1, "{said}");
}
