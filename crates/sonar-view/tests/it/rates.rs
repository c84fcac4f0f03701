//! Each rate that a view shows is a count divided by the time in which its source was observed.

use crate::synthetic::{app, operation, shape};
use proptest::prelude::*;
use serde_json::Value;
use sonar_core::changes::{ChangeInput, ChangeKind, ComparisonKind, ServerMeasure, find};
use sonar_core::history::{CollectorKind, HistoryWindow, Resolution, Span};
use sonar_core::{DigestSettings, Endpoint, HistoryDigester, Operation, Timestamp};
use sonar_view::agent::AgentSummary;
use sonar_view::changes::{ChangesReport, ComparedSpans};
use sonar_view::compare::{ComparedSide, DigestComparison};
use sonar_view::digest::Source;
use sonar_view::incident::{IncidentParts, IncidentReport};
use sonar_view::kit::{Fitting, Zone};
use sonar_view::queries::json::{self, ObjectKind};
use sonar_view::queries::{Selection, WindowReport};
use sonar_view::timeline::TimelineBuilder;

const WIDTH_S: u64 = 10;

/// What one window has: calls, and how many seconds of its ten the wire was observed.
#[derive(Copy, Clone, Debug)]
struct Observation {
    calls: u64,
    seconds: u64,
}

fn window(number: u64, observation: Observation) -> HistoryWindow {
    let start = Timestamp::from_unix(1_700_000_000 + number * WIDTH_S, 0);
    let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
    window.observe(CollectorKind::Queries, observation.seconds * 1_000_000_000);
    // Another collector observes all the time: its time is no divisor of what the wire shows.
    window.observe(CollectorKind::Machine, WIDTH_S * 1_000_000_000);
    let (shape, app) = (shape(1, "find", "shop.orders", "{}", "{}"), app("api", "rust", "3"));
    for number in 0..observation.calls {
        let latency_ns = Some(3_000_000);
        let operation = operation(&shape, &app, start.plus_ns(number * 1_000_000));
        window.window.record(&Operation { latency_ns, ..operation });
    }
    window.state_observed();
    window
}

/// Windows of which some are missing; a window in which the wire was not observed has no calls.
fn windows() -> impl Strategy<Value = Vec<(u64, Observation)>> {
    let one = (0u64..5, 0u64..60, 0u64..=WIDTH_S).prop_map(|(skip, calls, seconds)| {
        (skip / 4, Observation { calls: if seconds == 0 { 0 } else { calls }, seconds })
    });
    proptest::collection::vec(one, 1..40).prop_map(|all| {
        let mut at = 0;
        let number = |(skip, observation)| {
            at += 1 + skip;
            (at, observation)
        };
        all.into_iter().map(number).collect()
    })
}

#[test]
fn a_fast_server_that_starts_does_not_hide_the_p99_of_a_slow_one() {
    let start = |number: u64| Timestamp::from_unix(1_700_000_000 + number * WIDTH_S, 0);
    let span = Span { from: start(0), to: start(6) };
    let mut builder = TimelineBuilder::new(span, 6, WIDTH_S * 1_000_000_000);
    let (shape, app) = (shape(1, "find", "shop.orders", "{}", "{}"), app("api", "rust", "3"));
    for number in 0..6 {
        let mut window = window(number, Observation { calls: 0, seconds: WIDTH_S });
        // The fast one starts after 30 seconds, and has a hundred times as many calls.
        let loads = [(27_117, 10, 50_000_000), (27_118, if number < 3 { 0 } else { 2_000 }, 1_000_000)];
        for (port, calls, latency_ns) in loads {
            for at in 0..calls {
                let operation = operation(&shape, &app, start(number).plus_ns(at * 1_000_000));
                let server = Endpoint::v4([0; 4], port);
                window.window.record(&Operation { server, latency_ns: Some(latency_ns), ..operation });
            }
        }
        window.state_observed();
        builder.add(&window);
    }
    let report = builder.finish(&[], &[], "history", &Zone::utc());
    let p99 = |port| -> Vec<Option<f64>> {
        let lane = report.lanes.iter().find(|lane| lane.id == "p99" && lane.server == Some(port)).unwrap();
        lane.values.clone()
    };
    // A bucket of the histogram is 2.2 % wide.
    let is_near = |value: &Option<f64>, ms: f64| value.is_some_and(|value| (value / ms - 1.0).abs() < 0.03);
    assert!(p99(27_117).iter().all(|value| is_near(value, 50.0)), "{:?}", p99(27_117));
    let fast = p99(27_118);
    assert_eq!(fast[..3], [None; 3]);
    assert!(fast[3..].iter().all(|value| is_near(value, 1.0)), "{fast:?}");
    // Nobody asked for the internals, which is no praise.
    let mut text = Vec::new();
    report.text(&mut Fitting::new(&mut text, None), &Zone::utc()).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("\nINTERNALS: nothing observed\n"));
}

/// Calls divided by the seconds that were observed; `None` if nothing was.
fn expected(all: &[(u64, Observation)]) -> Option<f64> {
    let calls: u64 = all.iter().map(|(_, one)| one.calls).sum();
    let seconds: u64 = all.iter().map(|(_, one)| one.seconds).sum();
    (seconds > 0).then(|| calls as f64 / seconds as f64)
}

fn merged(all: &[(u64, Observation)]) -> HistoryWindow {
    let mut windows = all.iter().map(|(at, one)| window(*at, *one));
    let mut merged = windows.next().unwrap();
    windows.for_each(|next| merged.merge(&next));
    merged
}

fn is_close(rate: f64, expected: f64) -> bool {
    (rate - expected).abs() <= 1e-9 * expected.abs().max(1.0)
}

fn side(name: &str) -> ComparedSide {
    ComparedSide {
        history: None,
        name: name.to_owned(),
        host: None,
        source: Source::Wire,
        zone: Zone::utc(),
        notes: Vec::new(),
    }
}

proptest! {
    #[test]
    fn rates_of_compare_are_calls_by_observed_seconds(a in windows(), b in windows()) {
        let digest = |all: &[(u64, Observation)]| {
            let mut digester = HistoryDigester::new(DigestSettings::default(), WIDTH_S * 1_000_000_000);
            all.iter().for_each(|(at, one)| digester.add(&window(*at, *one), |_| true));
            digester.finish().0
        };
        let (left, right) = (digest(&a), digest(&b));
        let comparison = DigestComparison::new(&left, &right, true, [true; 2]);
        let mut bytes = Vec::new();
        sonar_view::compare::json(&comparison, &[side("a"), side("b")], &mut bytes).unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        for row in document["rows"].as_array().unwrap() {
            for (at, all) in [&a, &b].into_iter().enumerate() {
                match (row["calls_per_s"][at].as_f64(), expected(all)) {
                    (Some(rate), Some(expected)) => prop_assert!(is_close(rate, expected), "{rate} {expected}"),
                    (rate, expected) => prop_assert_eq!(rate, expected),
                }
            }
        }
    }

    #[test]
    fn rates_of_queries_are_calls_by_observed_seconds(all in windows()) {
        let merged = merged(&all);
        let Some(expected) = expected(&all) else { return Ok(()) };
        let selection = Selection::default();
        let report = WindowReport::new(&merged.window, &selection);
        let rate = report.totals.rates.calls.unwrap();
        prop_assert!(is_close(rate, expected), "{rate} {expected}");
        prop_assert!(report.rows.iter().all(|row| is_close(row.stats.rates.calls.unwrap(), expected)));
        let mut bytes = Vec::new();
        json::report(&report, ObjectKind::Summary, &mut bytes).unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let [calls, ns] = [&document["totals"]["calls"], &document["observed_ns"]].map(|one| one.as_u64().unwrap());
        prop_assert!(is_close(calls as f64 * 1e9 / ns as f64, expected));
    }

    #[test]
    fn rates_of_the_timeline_are_calls_by_observed_seconds(all in windows(), columns in 1usize..50) {
        let start = |number: u64| Timestamp::from_unix(1_700_000_000 + number * WIDTH_S, 0);
        let span = Span { from: start(all[0].0), to: start(all.last().unwrap().0 + 1) };
        let mut builder = TimelineBuilder::new(span, columns, WIDTH_S * 1_000_000_000);
        all.iter().for_each(|(at, one)| builder.add(&window(*at, *one)));
        let report = builder.finish(&[], &[], "history", &Zone::utc());
        let parts = report.parts as u64;
        let part = |number: u64| {
            let middle = number * WIDTH_S - all[0].0 * WIDTH_S + WIDTH_S / 2;
            (middle * parts / (span.length_ns() / 1_000_000_000)).min(parts - 1)
        };
        let Some(lane) = report.lanes.iter().find(|lane| lane.id == "calls") else {
            prop_assert_eq!(expected(&all), None);
            return Ok(());
        };
        for (at, value) in lane.values.iter().enumerate() {
            let own: Vec<_> = all.iter().copied().filter(|(number, _)| part(*number) == at as u64).collect();
            match (value, expected(&own)) {
                (Some(rate), Some(expected)) => prop_assert!(is_close(*rate, expected), "{rate} {expected}"),
                (rate, expected) => prop_assert_eq!(*rate, expected),
            }
        }
    }

    #[test]
    fn rates_of_a_report_of_the_history_are_calls_by_observed_seconds(all in windows()) {
        let merged = merged(&all);
        let Some(expected) = expected(&all) else { return Ok(()) };
        let start = |number: u64| Timestamp::from_unix(1_700_000_000 + number * WIDTH_S, 0);
        let span = Span { from: start(all[0].0), to: start(all.last().unwrap().0 + 1) };
        let spans = ComparedSpans { span, against: None, usual: None, source: "history".to_owned(), zone: Zone::utc() };
        let builder = TimelineBuilder::new(span, 10, WIDTH_S * 1_000_000_000);
        let selection = Selection::default();
        let parts = IncidentParts {
            changes: ChangesReport::new(&spans, &[], Vec::new()),
            timeline: builder.finish(&[], &[], "history", &Zone::utc()),
            window: &merged,
            selection: &selection,
        };
        let report = IncidentReport::new(span, parts, &Zone::utc()).unwrap();
        let of = |object: &Value, name: &str| object[name].as_f64().unwrap();
        let observed_s = of(&report.queries, "observed_ns") / 1e9;
        prop_assert!(is_close(of(&report.queries["totals"], "calls") / observed_s, expected));
        // Each operation takes 3 ms.
        for row in report.queries["rows"].as_array().unwrap() {
            prop_assert!(is_close(of(row, "calls") / observed_s, expected));
            let load = of(&row["latency_ns"], "sum") / 1e9 / observed_s;
            prop_assert!(is_close(load, expected * 0.003), "{load} {expected}");
        }
    }

    #[test]
    fn what_an_agent_says_of_itself_is_calls_and_observed_seconds(all in windows()) {
        let mut summary = AgentSummary::new("store".to_owned());
        all.iter().for_each(|(at, one)| summary.add(&window(*at, *one)));
        let mut bytes = Vec::new();
        summary.json(&mut bytes).unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let collectors = document["collectors"].as_array().unwrap();
        let queries = collectors.iter().find(|one| one["name"] == "queries");
        let rate = queries.map(|queries| {
            let [calls, ns] = [&queries["operations"], &queries["observed_ns"]].map(|one| one.as_u64().unwrap());
            calls as f64 * 1e9 / ns as f64
        });
        match (rate, expected(&all)) {
            (Some(rate), Some(expected)) => prop_assert!(is_close(rate, expected), "{rate} {expected}"),
            (rate, expected) => prop_assert_eq!(rate, expected),
        }
    }

    #[test]
    fn rates_of_servers_that_changed_are_calls_by_observed_seconds(before in windows(), after in windows()) {
        let first: Vec<_> = before.iter().map(|(at, one)| window(*at, *one)).collect();
        let later = before.last().unwrap().0 + 10_000;
        let more = |one: Observation| Observation { calls: one.calls * 20, ..one };
        let after: Vec<_> = after.into_iter().map(|(at, one)| (later + at, more(one))).collect();
        let last: Vec<_> = after.iter().map(|(at, one)| window(*at, *one)).collect();
        let input = ChangeInput { before: &first, after: &last, later: &[], events: &[], alpha: 1.0 };
        for change in find(&input, ComparisonKind::Block).changes {
            let ChangeKind::Server(server) = &change.what else { continue };
            for level in server.levels.iter().filter(|level| level.measure == ServerMeasure::Queries) {
                let expected = expected(&after).unwrap();
                prop_assert!(is_close(level.after, expected), "{} {expected}", level.after);
            }
        }
    }

    #[test]
    fn rates_of_what_changed_are_calls_by_observed_seconds(before in windows(), after in windows()) {
        let first: Vec<_> = before.iter().map(|(at, one)| window(*at, *one)).collect();
        let later = before.last().unwrap().0 + 10_000;
        let last: Vec<_> = after.iter().map(|(at, one)| window(later + *at, *one)).collect();
        let (before_windows, after_windows) = (&first, &last);
        let input =
            ChangeInput { before: before_windows, after: after_windows, later: &[], events: &[], alpha: 1.0 };
        for change in find(&input, ComparisonKind::Block).changes {
            let ChangeKind::Shape(shape) = &change.what else { continue };
            for (figures, all) in [(&shape.before, &before), (&shape.after, &after)] {
                if let Some(expected) = expected(all) {
                    prop_assert!(is_close(figures.rate(), expected), "{} {expected}", figures.rate());
                }
            }
        }
    }
}
