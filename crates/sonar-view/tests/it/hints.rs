//! Which indexes a report suggests, and how its text fits a terminal.

use crate::synthetic::{app, operation, shape};
use sonar_core::{Digest, Execution, Operation, Reading, Record, Timestamp};
use sonar_view::kit::Fitting;
use sonar_view::logs::{self, DigestView, Source, ViewOptions, hint};

/// Ten calls of each (shape, plan, milliseconds), each examining 500 documents and returning one.
fn digest(calls: &[(&str, &str, u64)]) -> Digest {
    let mut digest = Digest::default();
    let app = app("api", "rust", "3");
    for (typed, plan, ms) in calls {
        let number = calls.iter().position(|call| call.0 == *typed).unwrap();
        let shape = shape(number as u64 + 1, "find", "shop.people", typed, typed);
        for call in 0..10 {
            let op = Operation {
                latency_ns: Some(ms * 1_000_000),
                docs_returned: Some(1),
                ..operation(&shape, &app, Timestamp::from_unix(1_000 + call, 0))
            };
            let execution = Execution {
                plan,
                keys_examined: Some(500),
                docs_examined: Some(500),
                ..Execution::default()
            };
            digest.record(&Record::server(Source::Log, &op, &execution));
        }
    }
    digest
}

fn view(digest: &Digest) -> DigestView<'_> {
    DigestView::new(digest, Source::Log, &ViewOptions::default())
}

fn suggested(digest: &Digest) -> Vec<(String, usize)> {
    hint::all(&view(digest)).into_iter().map(|one| (one.hint.index, one.rows.len())).collect()
}

const CITY: &str = "{filter: {city: ?string}}";

#[test]
fn a_plan_that_uses_the_index_gives_no_hint_whatever_its_stage() {
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 10)])), [("{city: 1}".to_owned(), 1)]);
    for plan in [
        "IXSCAN { city: 1 }",
        "IXSCAN { city: -1, age: 1 }",
        "COUNT_SCAN { city: 1 }",
        "DISTINCT_SCAN { city: 1 }",
        "EXPRESS_IXSCAN { city: 1 },EXPRESS_FETCH",
        "IXSCAN { age: 1 }, IXSCAN { city: 1 }",
    ] {
        assert_eq!(suggested(&digest(&[(CITY, plan, 10)])), [], "{plan}");
    }
    let by_id = "{filter: {_id: ?objectId}}";
    for plan in ["IDHACK", "EXPRESS_CLUSTERED_IXSCAN", "EXPRESS_IXSCAN { _id: 1 }"] {
        assert_eq!(suggested(&digest(&[(by_id, plan, 10)])), [], "{plan}");
    }
    // An index that another plan of the same shape used exists too.
    let both = digest(&[(CITY, "COLLSCAN", 10), (CITY, "IXSCAN { city: 1 }", 10)]);
    assert_eq!(suggested(&both), []);
}

#[test]
fn below_one_percent_of_the_time_nothing_is_suggested() {
    let busy = "{filter: {_id: ?objectId}}";
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 1), (busy, "IDHACK", 200)])), []);
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 3), (busy, "IDHACK", 200)])).len(), 1);
    // Nothing took a millisecond: there is nothing to win.
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 0)])), []);
}

#[test]
fn an_index_is_suggested_once_with_all_shapes_that_want_it() {
    let all = digest(&[
        (CITY, "COLLSCAN", 10),
        ("{filter: {city: ?string}, limit: ?number}", "COLLSCAN", 20),
        ("{filter: {age: ?number}}", "COLLSCAN", 5),
    ]);
    assert_eq!(suggested(&all), [("{city: 1}".to_owned(), 2), ("{age: 1}".to_owned(), 1)]);
    let mut out = Vec::new();
    logs::text(&view(&all), &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches("shop.people {city: 1}: 85.7% of the time").count(), 1, "{text}");
    assert!(
        text.contains(
            "57.1%, 500 examined for each returned, COLLSCAN: find {filter: {city: ?string}, limit"
        )
    );
    let mut out = Vec::new();
    logs::json(&view(&all), &mut out).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["index_hints"][0]["shapes"].as_array().unwrap().len(), 2);
    assert_eq!(value["rows"][0]["index_hint"], "{city: 1}");
}

#[test]
fn what_took_less_than_a_millisecond_is_said_so() {
    let mut out = Vec::new();
    logs::text(&view(&digest(&[(CITY, "COLLSCAN", 0)])), &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("time <10.0ms  mean <1ms  p50 <1ms"), "{text}");
    assert!(!text.contains("0ns"), "{text}");
}

#[test]
fn what_could_not_be_parsed_stands_first() {
    let digest = digest(&[(CITY, "COLLSCAN", 10)]);
    let reading = Reading { lines: 1_000, lines_empty: 100, lines_malformed: 90, ..Reading::default() };
    let mut out = Vec::new();
    let view = DigestView::new(&digest, Source::Log, &ViewOptions::default()).with_reading(Some(&reading));
    logs::text(&view, &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("NOTE: 90 of 900 lines look like MongoDB's but could not be parsed (10.0%)"),
        "{text}"
    );
    let assumed = logs::assumed_weights(&Reading { entries_weighted: 3, ..Reading::default() }).unwrap();
    assert!(assumed.contains("assumed") && assumed.contains("4.4.8-9"), "{assumed}");
    assert_eq!(logs::assumed_weights(&Reading::default()), None);
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let long = format!("{{filter: {{{}: ?string}}}}", "very_long_name".repeat(20));
    let digest = digest(&[(CITY, "IXSCAN { country: 1, city: 1, age: 1 }", 10), (&long, "COLLSCAN", 99_999)]);
    for width in [60, 80, 120, 200] {
        let mut out = Vec::new();
        logs::text(&view(&digest), &mut Fitting::new(&mut out, Some(width))).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in text.lines() {
            assert!(sonar_view::kit::width(line) <= width, "{width}: {line}");
        }
        let head = text.lines().find(|line| line.starts_with("calls")).unwrap();
        assert!(["time", "namespace", "shape"].iter().all(|name| head.contains(name)), "{width}: {head}");
    }
}
