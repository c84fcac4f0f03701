//! Crashes, restarts and gaps, in histories that are made up here.

use std::process::Output;

use crate::support::*;
use serde_json::Value;
use sonar_core::history::{CollectorKind, Event, EventKind, HistoryWindow, Resolution, Span};
use sonar_core::{Endpoint, HistoryWriter, Timestamp};
use sonar_store::{SqliteHistory, StoreSettings};

const S: u64 = 1_000_000_000;
const PORT: u16 = 27_017;

/// So many seconds after 2026-11-21 21:20:00.
fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(1_795_296_000 + second, 0)
}

fn event(second: u64, kind: EventKind, text: &str) -> Event {
    Event::new(at(second), kind, Endpoint::v4([0; 4], PORT), text)
}

/// A history of six minutes.
struct MadeHistory(Folder);

impl MadeHistory {
    /// With these events; `observe` says what was observed of each window, by its number.
    fn new(name: &str, events: &[Event], observe: impl Fn(u64, &mut HistoryWindow)) -> Self {
        let made = Self(Folder::new(name));
        let mut history = SqliteHistory::create(&made.0.path("history"), StoreSettings::default()).unwrap();
        for number in 0..36_u64 {
            let mut window = HistoryWindow::new(at(10 * number), Resolution::TenSeconds);
            window.observe(CollectorKind::Queries, 10 * S);
            observe(number, &mut window);
            let span = Span { from: window.window.start, to: window.window.end };
            let own: Vec<Event> = events.iter().filter(|event| span.contains(event.at)).cloned().collect();
            history.append(&window, &own).unwrap();
        }
        made
    }

    fn run(&self, words: &[&str]) -> Output {
        let store = self.0.path("history");
        let store = ["--store", store.to_str().unwrap(), "--utc"];
        program(words.iter().chain(&store)).output().unwrap()
    }

    fn text(&self, words: &[&str]) -> String {
        String::from_utf8(self.run(words).stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.run(&[words, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {output:?}"))
    }
}

/// What a process, its log and its samples tell of a crash at `end` and a restart at `start`, in seconds.
fn crash(end: u64, start: u64) -> Vec<Event> {
    let seconds = start - end;
    let started = format!("process 105 (mongod), {seconds} seconds after process 6 had ended");
    vec![
        event(end, EventKind::ServerCrash, "process 6 (mongod), killed by signal 9 (SIGKILL)"),
        event(start, EventKind::ServerStart, &started),
        event(start, EventKind::ServerStart, "started, process 105, version 4.4.6"),
        Event::settings_of_start(at(start), Endpoint::v4([0; 4], PORT), "cacheSizeGB 1, was 2"),
        event(start + 1, EventKind::ServerStop, Event::UNCLEAN),
        event(start + 4, EventKind::ServerStart, "the server was started, 8.0s after the last sample"),
    ]
}

#[test]
fn a_crash_and_its_restart_are_one_answer_whichever_of_their_times_is_asked_for() {
    for (end, start) in [(111, 114), (118, 121), (118, 161)] {
        let history = MadeHistory::new("restart", &crash(end, start), |_, _| {});
        let time = |second: u64| format!("2026-11-21T21:{:02}:{:02}", 20 + second / 60, second % 60);
        let minute = |second: u64| time(second)[..16].to_owned();
        let asked = [time(end), time(start), time(start + 15), minute(end), minute(start)];
        let asked: Vec<Vec<&str>> = asked.iter().map(|at| vec!["what-changed", "--at", at]).collect();
        let whole = vec!["what-changed"];
        for words in asked.iter().chain([&whole]) {
            let report = history.json(words);
            let moments = report["moments"].as_array().unwrap();
            let [moment] = moments.as_slice() else { panic!("{words:?}: {report}") };
            let changes = moment["changes"].as_array().unwrap();
            let [change] = changes.as_slice() else { panic!("{words:?}: {report}") };
            let expected = format!(
                "the server ended without shutting down: process 6 (mongod), killed by signal 9 (SIGKILL); restarted after \
                 {} seconds as process 105 (mongod); other settings: cacheSizeGB 1, was 2",
                start - end
            );
            assert_eq!(change["sentence"], expected, "{words:?}");
            assert_eq!(change["since_ns"], at(end).unix_ns());
            let evidence = change["evidence"].as_array().unwrap();
            assert!(evidence.iter().all(|line| !line.as_str().unwrap().contains("server")), "{evidence:?}");
        }
        let timeline = history.text(&["timeline"]);
        for (once, count) in [("the server started", 1), ("cleanly", 0), ("SIGKILL", 1)] {
            assert_eq!(timeline.matches(once).count(), count, "{once}: {timeline}");
        }
    }
}

#[test]
fn the_answer_comes_before_the_gaps_which_one_line_sums_up() {
    let mut events = crash(201, 204);
    events.insert(0, event(100, EventKind::LogRotation, "the log was rotated"));
    let history = MadeHistory::new("gaps", &events, |number, window| {
        window.observe(CollectorKind::Log, if number % 3 == 0 { 5 * S } else { 10 * S });
    });
    let text = history.text(&["what-changed", "--from", "2026-11-21T21:20:00Z"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("2 changes; above all: the server ended without shutting down"), "{text}");
    assert_eq!(lines[2], "Not observed, in 12 gaps: logs for 1m00s.", "{text}");
    let place = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
    assert!(place("1. ") < place("logs were observed for only"), "{text}");
    assert!(text.ends_with("… and 2 more (see --json)\n"), "{text}");
    assert_eq!(
        history.json(&["what-changed", "--from", "2026-11-21T21:20:00Z"])["gaps"].as_array().unwrap().len(),
        12
    );
    // What the wire showed all the time is not compared with less because of the log.
    let spans = ["2026-11-21T21:20:00Z+1m", "2026-11-21T21:21:00Z+1m"];
    let output = history.run(&["compare", spans[0], spans[1]]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("GAP"), "{output:?}");
}

#[test]
fn a_comparison_names_the_gaps_of_what_it_compares() {
    let history = MadeHistory::new("gaps-compared", &[], |number, window| {
        window.observe(CollectorKind::Log, 10 * S);
        if number % 3 == 0 {
            window.observed_ns[CollectorKind::Queries as usize] = 5 * S;
        }
    });
    let output = history.run(&["compare", "2026-11-21T21:20:00Z+1m", "2026-11-21T21:21:00Z+1m"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("GAP: Not observed, in 2 gaps: queries for 10.0s.").count(), 2, "{said}");
}

#[test]
fn a_timeline_keeps_what_matters_and_what_is_new() {
    let mut events =
        vec![event(5, EventKind::ServerCrash, "process 6 (mongod), killed by signal 9 (SIGKILL)")];
    let noise = |second: u64| event(second, EventKind::CollectorFailed, &format!("attempt {second}"));
    events.extend((6..340).map(noise));
    events.push(event(345, EventKind::LogError, "the newest"));
    let history = MadeHistory::new("events", &events, |_, _| {});
    let text = history.text(&["timeline"]);
    for shown in ["SIGKILL", "the newest", "attempt 339"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(!text.contains("attempt 6\n"), "{text}");
    assert!(
        text.contains("… and 301 more events, less important or older (301 collector failed): see"),
        "{text}"
    );
}
