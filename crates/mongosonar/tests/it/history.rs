//! The commands that look back, on the history of four minutes in which known things were done to a server.
//!
//! `fixtures/README.md` lists what was done and when. The names below are of what was done, not of what is printed.

use std::process::Output;

use crate::support::*;
use serde_json::Value;
use sonar_core::history::{CollectorKind, Event, EventKind, HistoryWindow, Resolution, Span, metrics};
use sonar_core::{
    Application, Class, Endpoint, HistoryWriter, Identity, Row, ShapeId, ShapeInfo, Source, Subject,
    Timestamp,
};
use sonar_store::{SqliteHistory, StoreSettings};

fn run(words: &[&str]) -> Output {
    let store = fixture("history");
    let (command, rest) = words.split_first().unwrap();
    let store = ["--store", store.to_str().unwrap(), "--utc"];
    program([*command].iter().chain(&store).chain(rest)).output().unwrap()
}

/// The document of a command about that history.
pub fn json(words: &[&str]) -> Value {
    let output = run(&[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {output:?}"))
}

/// The changes of a time: each with its sentence, what it cost, and everything that it has below it.
fn changes_at(time: &str) -> Vec<(String, u64, String)> {
    let report = json(&["what-changed", "--at", &format!("2026-11-21T{time}")]);
    let of = |change: &Value| {
        let effects = change["effects"].as_array().unwrap().iter();
        let effects: Vec<_> = effects.map(|effect| effect["sentence"].as_str().unwrap()).collect();
        let cost = change["cost_ns"].as_i64().unwrap().unsigned_abs();
        (change["sentence"].as_str().unwrap().to_owned(), cost, effects.join("\n"))
    };
    let [moment] = report["moments"].as_array().unwrap().as_slice() else { panic!("{time}: {report}") };
    moment["changes"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn what_was_done_is_named_and_what_cost_most_comes_first() {
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
        let changes = changes_at(time);
        let found = changes.iter().find(|(sentence, ..)| sentence.starts_with(named));
        let Some((.., effects)) = found else { panic!("{time}: {named} in {changes:#?}") };
        assert!(effects.contains(effect), "{time}: {effect:?} in {effects}");
        let costs: Vec<u64> = changes.iter().map(|(_, cost, _)| *cost).collect();
        assert!(costs.is_sorted_by(|one, next| one >= next), "{time}: {changes:#?}");
    }
}

/// The cost and the effects of the change that has this in its sentence.
fn judged(words: &[&str], named: &str) -> (i64, Vec<String>) {
    let report = json(&[&["what-changed"][..], words].concat());
    let moments = report["moments"].as_array().unwrap().iter();
    let mut changes = moments.flat_map(|moment| moment["changes"].as_array().unwrap());
    let found = changes.find(|change| change["sentence"].as_str().unwrap().contains(named));
    let found = found.unwrap_or_else(|| panic!("{words:?}: {report}"));
    let effects = found["effects"].as_array().unwrap().iter();
    let sentence = |effect: &Value| effect["sentence"].as_str().unwrap().to_owned();
    (found["cost_ns"].as_i64().unwrap(), effects.map(sentence).collect())
}

#[test]
fn a_change_is_judged_in_the_same_way_however_its_time_is_asked_for() {
    let span = ["--from", "2026-11-21T21:23:40", "--to", "21:27:20"];
    for (named, times) in [
        // In its second, shortly before and after it, and in its minute.
        ("index user_1 was dropped", ["21:24:02", "21:23:51", "21:24:11", "21:24"]),
        ("writes were locked", ["21:25:02", "21:24:45", "21:25:12", "21:25"]),
    ] {
        let expected = judged(&span, named);
        assert!(expected.0 > 1_000_000_000 && expected.1.len() > 1, "{named}: {expected:?}");
        for time in times {
            assert_eq!(judged(&["--at", &format!("2026-11-21T{time}")], named), expected, "{named} {time}");
        }
    }
}

#[test]
fn a_moment_is_compared_with_as_many_windows_before_it() {
    let second = |time: &str| 1_795_296_000 + time.parse::<u64>().unwrap();
    {
        let (at, before, from, to) = ("21:25:02", "270", "300", "330");
        let report = json(&["what-changed", "--at", &format!("2026-11-21T{at}")]);
        let [compared, usual, about] =
            [&report["compared_with"], &report["usual"], &report["about"]].map(|span| {
                [&span["start_ns"], &span["end_ns"]].map(|end| end.as_u64().unwrap() / 1_000_000_000)
            });
        assert_eq!(about, [second(from), second(to)], "{at}");
        assert_eq!(compared, [second(before), second(from)], "{at}");
        assert_eq!(usual, [second("160"), second(from)], "{at}: since the beginning of the history");
    }
    // A minute is searched for moments, each compared with the time before it.
    let report = json(&["what-changed", "--at", "2026-11-21T21:25"]);
    let [start, end] =
        ["start_ns", "end_ns"].map(|end| report["about"][end].as_u64().unwrap() / 1_000_000_000);
    assert_eq!([start, end], [second("300"), second("360")]);
    assert!(report["compared_with"].is_null() && report["usual"].is_null());
    let output = run(&["what-changed", "--at", "2026-11-21T21:25:02"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = "compared with 2026-11-21T21:24:30Z to 2026-11-21T21:25:00Z; the time from 2026-11-21T21:22:40Z on shows";
    assert!(text.lines().nth(1).unwrap().contains(line), "{text}");
    // Two spans that were asked for are what they are.
    let words = ["--from", "2026-11-21T21:24:00", "--to", "21:25:00", "--against", "2026-11-21T21:23:00+1m"];
    let report = json(&[&["what-changed"][..], &words].concat());
    assert!(report["usual"].is_null() && report["compared_with"].is_object());
    // If the other one ends where the span begins, the figures are those of its end; else of all of it.
    for (from, against, compared, usual) in [
        ("21:24:30", "21:23:00+90s", ["210", "270"], Some(["180", "270"])),
        ("21:25:00", "21:23:00+90s", ["180", "270"], None),
    ] {
        let from = format!("2026-11-21T{from}");
        let words = ["--from", &from, "--to", "21:25:30", "--against", &format!("2026-11-21T{against}")];
        let report = json(&[&["what-changed"][..], &words].concat());
        let ends = |span: &Value| {
            [&span["start_ns"], &span["end_ns"]].map(|end| end.as_u64().map(|ns| ns / 1_000_000_000))
        };
        let seconds = |span: [&str; 2]| span.map(|time| Some(second(time)));
        assert_eq!(ends(&report["compared_with"]), seconds(compared), "{from}");
        assert_eq!(ends(&report["usual"]), usual.map_or([None; 2], seconds), "{from}");
    }
}

#[test]
fn a_moment_with_too_little_before_it_has_its_events() {
    let at = ["what-changed", "--at", "2026-11-21T21:22:45"];
    let output = run(&at);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let note = "- Only events are listed: too little is stored from 2026-11-21T21:22:40Z on to compare figures with;";
    assert!(text.contains(note) && text.contains("the server started: process 12309"), "{text}");
    assert!(text.lines().nth(1).unwrap().ends_with("(30.0s), compared with nothing"), "{text}");
    let report = json(&at);
    assert!(report["compared_with"].is_null());
    let changes = report["moments"][0]["changes"].as_array().unwrap();
    assert!(!changes.is_empty() && changes.iter().all(|change| change["kind"] == "event"), "{changes:?}");
}

#[test]
fn every_view_of_a_moment_has_the_same_events_and_tells_the_new_application() {
    // Its connections are a storm; it ran nothing.
    const AGAINST: &str = "2026-11-21T21:23:10+30s";
    let span = ["--from", "2026-11-21T21:26:30", "--to", "21:27:00"];
    let events = |words: &[&str]| -> std::collections::BTreeSet<String> {
        let report = json(&[&["what-changed"][..], words].concat());
        let changes = report["moments"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|moment| moment["changes"].as_array().unwrap());
        let events = changes.filter(|change| change["kind"] == "event");
        events.map(|change| change["sentence"].as_str().unwrap().to_owned()).collect()
    };
    let scan = events(&span);
    assert!(scan.iter().any(|sentence| sentence.ends_with("; the application storm is new")), "{scan:?}");
    assert_eq!(events(&["--at", "2026-11-21T21:26:37"]), scan);
    // Compared with that time, another application is new, too, and has the connections.
    let spans = events(&[&span[..], &["--against", AGAINST]].concat());
    assert!(spans.iter().any(|sentence| sentence.contains("storm: first connection")), "{spans:?}");
}

#[test]
fn no_view_reaches_beyond_now_or_what_is_stored() {
    let ends = ["--from", "2026-11-21T21:23:40", "--to", "2099-01-01"];
    for command in ["timeline", "what-changed"] {
        let report = json(&[&[command][..], &ends].concat());
        let gaps = report["gaps"].as_array().unwrap().iter().map(|gap| &gap["end_ns"]);
        for end in gaps.chain([&report["about"]["end_ns"]]) {
            // 2099 begins 4,070,908,800 s after 1970.
            assert!(end.as_u64().unwrap() < 4_070_908_800_000_000_000, "{command} {end}");
        }
    }
    let output = run(&["timeline", "--from", "2099-01-01", "--to", "2099-01-02"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nothing is stored after 2099-01-01T00:00:00Z yet"), "{said}");
    assert_eq!(output.status.code(), Some(2));
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
    for command in ["what-changed", "timeline", "queries"] {
        let from: &[&str] = if command == "queries" { &["--from", "2026-11-21T21:24:00"] } else { &[] };
        let output = run(&[&[command, "--port", "27999"], from].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("has no server at port 27999; it knows "), "{command}: {said}");
        assert!(output.stdout.is_empty());
    }
}

/// A row of operations that a source saw.
fn row(subject: Subject, server: Endpoint, (source, calls): (Source, u64)) -> Row {
    let mut row = Row::new(subject, Class::User);
    row.server = server;
    row.observed_by_mut(source).figures.calls = calls;
    row
}

/// The last line of a command about the history in a folder.
fn summary(store: &std::path::Path, words: &[&str]) -> Value {
    let words = [words, &["--json", "--store", store.to_str().unwrap()]].concat();
    let output = program(&words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(text.lines().last().unwrap_or_else(|| panic!("{words:?}: {output:?}"))).unwrap()
}

#[test]
fn an_application_is_one_row_though_the_log_does_not_know_its_driver() {
    let folder = Folder::new("one-application");
    let store = folder.path("history");
    let mut history = SqliteHistory::create(&store, StoreSettings::default()).unwrap();
    // The log names the application alone, also in a window without it on the wire.
    for (number, seen) in [&[(Source::Wire, 5), (Source::Log, 2)][..], &[(Source::Log, 3)]].iter().enumerate()
    {
        let start = Timestamp::from_unix(1_795_296_000 + 10 * number as u64, 0);
        let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
        window.observe(CollectorKind::Queries, 10_000_000_000);
        window.observe(CollectorKind::Log, 10_000_000_000);
        for (source, calls) in *seen {
            let driver = if *source == Source::Wire { "PyMongo" } else { "" };
            let app = Application { name: "shop".into(), driver: driver.into(), ..Application::default() };
            let subject = Subject::App(std::sync::Arc::new(app));
            window.window.apps.add_owned(row(subject, Endpoint::default(), (*source, *calls)));
        }
        history.append(&window, &[]).unwrap();
    }
    drop(history);
    let report = summary(&store, &["queries", "--from", "2026-11-21T21:20:00Z", "--by", "app"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["app"], &rows[0]["driver"]), (&"shop".into(), &"PyMongo".into()));
    assert_eq!(rows[0]["calls"], 5, "those of the wire; the log has some of them again");
    // The second window has it in the log only.
    let span = |from: &str| format!("2026-11-21T21:20:{from}Z+10s");
    let compared = summary(&store, &["compare", &span("00"), &span("10"), "--by", "app"]);
    assert_eq!(compared["rows"].as_array().unwrap().len(), 1, "{compared}");
}

#[test]
fn queries_of_one_server_of_several_are_shown_alone() {
    let folder = Folder::new("one-server");
    let store = folder.path("history");
    let mut history = SqliteHistory::create(&store, StoreSettings::default()).unwrap();
    let mut window = HistoryWindow::new(Timestamp::from_unix(1_795_296_000, 0), Resolution::TenSeconds);
    window.observe(CollectorKind::Queries, 10_000_000_000);
    for (port, calls) in [(27_601, 5), (27_602, 7)] {
        let shape = ShapeInfo { id: ShapeId(9), command: "find".into(), ..ShapeInfo::default() };
        let (identity, order) = (Identity::Exact, ShapeId(0));
        let subject = Subject::Shape { identity, shape: std::sync::Arc::new(shape), order };
        let server = Endpoint::v4([0; 4], port);
        window.window.shapes.add_owned(row(subject, server, (Source::Wire, calls)));
    }
    history.append(&window, &[]).unwrap();
    drop(history);
    let from = ["queries", "--from", "2026-11-21T21:20:00Z"];
    let all = summary(&store, &from);
    assert_eq!((&all["totals"]["calls"], all["by_type"].is_object()), (&12.into(), true));
    let one = summary(&store, &[&from[..], &["--port", "27602"]].concat());
    assert_eq!((&one["totals"]["calls"], one["rows"].as_array().unwrap().len()), (&7.into(), 1));
    assert!(one["by_type"].is_null(), "it is counted for all servers together");
    assert!(one["notes"][0].as_str().unwrap().starts_with("only the server at port 27602"), "{one}");
    let queries = |words: &[&str]| {
        let timeline = summary(&store, &[&["timeline"], &from[1..], words].concat());
        let lane = timeline["lanes"].as_array().unwrap().iter().find(|lane| lane["id"] == "calls").cloned();
        let values = lane.unwrap()["values"].as_array().unwrap().clone();
        values.iter().filter_map(Value::as_f64).fold(0.0, f64::max)
    };
    assert!((queries(&[]) - 1.2).abs() < 1e-9, "{}", queries(&[]));
    assert!((queries(&["--port", "27602"]) - 0.7).abs() < 1e-9, "{}", queries(&["--port", "27602"]));
    let store = ["--store", store.to_str().unwrap()];
    for (words, said) in [
        (&["--port", "27602", "--by", "app"][..], "for all servers together"),
        (&["--port", "27601-27602"], "give a single port"),
    ] {
        let output = program([&from[..], words, &store].concat()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(said), "{words:?}: {told}");
    }
    // A server of this host listens on all addresses: its port is its name.
    let text = program([&from[..], &store].concat()).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("27601") && !text.contains("0.0.0.0"), "{text}");
}

#[test]
fn the_past_has_the_state_of_the_servers_at_its_end() {
    let folder = Folder::new("server-states");
    let store = folder.path("history");
    let mut history = SqliteHistory::create(&store, StoreSettings::default()).unwrap();
    let start = |number: u64| Timestamp::from_unix(1_795_296_000 + 10 * number, 0);
    // Earlier versions stored no queues.
    for (number, connections, queued) in [(0, 20.0, None), (1, 214.0, Some([3.0, 0.0]))] {
        let mut window = HistoryWindow::new(start(number), Resolution::TenSeconds);
        for collector in [CollectorKind::Queries, CollectorKind::Internals, CollectorKind::Machine] {
            window.observe(collector, 10_000_000_000);
        }
        let own = Endpoint::v4([0; 4], 27_017);
        let metric = |name: &str| metrics::find(name).unwrap();
        for (name, server, value) in [
            ("connections.open", own, connections),
            ("cache.used", own, 78.2),
            ("cache.dirty", own, 4.1),
            ("replication.lag", own, 1_200.0),
            ("process.memory_bytes", own, 3_440_000_000.0),
            // Of another host, which a login gave.
            ("connections.open", Endpoint::v4([10, 0, 0, 9], 27_017), 7.0),
        ] {
            let at = start(number).plus_ns(9_000_000_000);
            window.sample(&metric(name).key(server, ""), at, value, 10.0);
        }
        for (name, value) in
            ["queues.readers", "queues.writers"].into_iter().zip(queued.into_iter().flatten())
        {
            let at = start(number).plus_ns(9_000_000_000);
            window.sample(&metric(name).key(own, ""), at, value, 10.0);
        }
        history.append(&window, &[]).unwrap();
    }
    drop(history);
    let state = |second: u64, connections: u64, queued: Option<[u64; 2]>| {
        serde_json::json!([{
            "program": null, "port": 27_017, "sampled_ns": (1_795_296_000 + second) * 1_000_000_000,
            "connections": connections, "queued_reads": queued.map(|[reads, _]| reads),
            "queued_writes": queued.map(|[_, writes]| writes),
            "cache_used_percent": 78.2, "cache_dirty_percent": 4.1, "resident_bytes": 3_440_000_000_u64,
            "lag_ms": 1_200
        }])
    };
    let words = ["queries", "--from", "2026-11-21T21:20:00Z", "--to", "2026-11-21T21:20:20Z"];
    assert_eq!(summary(&store, &words)["servers"], state(19, 214, Some([3, 0])));
    assert_eq!(summary(&store, &["queries", "--at", "2026-11-21T21:20:05Z"])["servers"], state(9, 20, None));
    let incident = summary(&store, &[&["report"][..], &words[1..]].concat());
    assert_eq!(incident["queries"]["servers"], state(19, 214, Some([3, 0])));
    let store = ["--store", store.to_str().unwrap(), "--utc"];
    let shown = |words: &[&str]| {
        let output = program([words, &store].concat()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let line = |figures: &str| {
        format!("\n  server 27017  {figures}  cache 78% used  4.1% dirty  resident 3.44GB  lag 1.20s\n")
    };
    let (first, last) = (line("connections 20"), line("connections 214  queued 3 read 0 write"));
    let text = shown(&[&words[..], &["--interval", "10s"]].concat());
    assert_eq!((text.matches(&first).count(), text.matches(&last).count()), (1, 2), "{text}");
    assert!(shown(&[&["report"][..], &words[1..]].concat()).contains(&last));
}

#[test]
fn a_comparison_says_which_windows_it_compares() {
    let output = run(&["compare", "2026-11-21T21:24:37Z+15s", "2026-11-21T21:26:00Z+30s"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let windows = "compared are the windows of the history from 2026-11-21T21:24:30Z to 2026-11-21T21:25:00Z";
    assert!(said.contains(windows), "{said}");
    assert_eq!(said.matches("compared are the windows").count(), 1, "{said}");
}

#[test]
fn a_comparison_begins_with_its_answer() {
    let output = run(&["compare", "2026-11-21T21:23:40Z+20s", "2026-11-21T21:24:00Z+20s"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains(" changed; ") && lines[0].contains(" unchanged; "), "{text}");
    assert!(lines[1].starts_with("A: ") && lines[2].starts_with("B: "), "{text}");
    assert!(lines[3].starts_with("slower "), "{text}");
    assert_eq!(text.matches(" unchanged; ").count(), 1, "{text}");
}

#[test]
fn a_comparison_says_that_a_log_could_not_be_read() {
    const S: u64 = 1_000_000_000;
    let folder = Folder::new("unread");
    let store = folder.path("history");
    let mut history = SqliteHistory::create(&store, StoreSettings::default()).unwrap();
    for number in 0..12_u64 {
        let start = Timestamp::from_unix(1_795_296_000 + 10 * number, 0);
        let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
        window.observe(CollectorKind::Log, 10 * S);
        if number == 7 {
            window.miss_log(Endpoint::v4([0; 4], 27_017), 4 * S);
        }
        history.append(&window, &[]).unwrap();
    }
    drop(history);
    let spans = ["2026-11-21T21:20:00Z+1m", "2026-11-21T21:21:00Z+1m"];
    let output =
        program(["compare", spans[0], spans[1], "--store", store.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let unread = format!(
        "{}: The log of the server on port 27017 could not be read for 4.00s of this time: nothing is known of its \
         queries then.",
        spans[1]
    );
    assert!(said.contains(&unread), "{said}");
    assert_eq!(said.matches("could not be read").count(), 1, "{said}");
}

#[test]
fn what_stopped_or_killed_a_server_is_told_once_and_of_that_server_only() {
    let folder = Folder::new("stopped");
    let store = folder.path("history");
    let mut history = SqliteHistory::create(&store, StoreSettings::default()).unwrap();
    let event = |second: u64, kind, (port, text): (u16, &str)| {
        let at = Timestamp::from_unix(1_795_296_000 + second, 0);
        Event::new(at, kind, Endpoint::v4([0; 4], port), text)
    };
    let silent = |second, length| {
        let text = format!("the server wrote no sample for {length}: it stalled, or the machine slept");
        event(second, EventKind::Gap, (27_018, &text))
    };
    let killed =
        "process 7 (mongod); the kernel says: Memory cgroup out of memory: Killed process 7 (mongod)";
    let java = "process 9 (java) in a control group that had run out of memory";
    let events = [
        // The window in which the count is stored is not that of the end of the server.
        event(89, EventKind::ServerCrash, (27_017, killed)),
        event(91, EventKind::OutOfMemory, (0, "")),
        silent(92, "4.67s"),
        event(95, EventKind::ServerUnreachable, (27_018, "process 8 (mongod) was stopped")),
        silent(101, "10.9s"),
        event(121, EventKind::OutOfMemory, (0, java)),
        event(150, EventKind::OutOfMemory, (0, "")),
        // They are usual by now.
        silent(170, "5.00s"),
    ];
    for number in 0..24_u64 {
        let start = Timestamp::from_unix(1_795_296_000 + 10 * number, 0);
        let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
        window.observe(CollectorKind::Internals, 10_000_000_000);
        let span = Span { from: start, to: window.window.end };
        let own: Vec<Event> = events.iter().filter(|event| span.contains(event.at)).cloned().collect();
        history.append(&window, &own).unwrap();
    }
    drop(history);
    let told = |port: &str| {
        let words =
            ["what-changed", "--from", "2026-11-21T21:21:30Z", "--to", "2026-11-21T21:24:00Z", "--json"];
        let store = ["--store", store.to_str().unwrap(), "--port", port];
        let output = program(words.iter().chain(&store)).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let moments = report["moments"].as_array().unwrap().iter();
        let changes = moments.flat_map(|moment| moment["changes"].as_array().unwrap());
        let words = |change: &Value| change["sentence"].as_str().unwrap().to_owned();
        let all =
            changes.map(|one| (words(one), one["effects"].as_array().unwrap().iter().map(words).collect()));
        all.collect::<Vec<(String, Vec<String>)>>()
    };
    let unknown = "the kernel killed a process for lack of memory (which one is unknown)";
    let stopped = "the server cannot be reached: process 8 (mongod) was stopped";
    let silence = "the server wrote no sample for 10.9s: it stalled, or the machine slept";
    let expected = [(stopped.to_owned(), vec![silence.to_owned()]), (unknown.to_owned(), Vec::new())];
    assert_eq!(told("27018"), expected);
    let is_kill = |(sentence, _): &(String, Vec<String>)| sentence.starts_with("the kernel killed");
    let kills: Vec<_> = told("27017").into_iter().filter(is_kill).collect();
    assert_eq!(kills, expected[1..]);
}
