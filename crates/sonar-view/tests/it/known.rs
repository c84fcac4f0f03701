//! Each rate of each source is its count by the time in which that source was observed, and what a source does not show is
//! unknown, never 0.

use crate::synthetic::{app, operation, shape};
use proptest::prelude::*;
use serde_json::Value;
use sonar_core::changes::{ChangeInput, ChangeKind, ComparisonKind, ServerMeasure, find};
use sonar_core::history::{CollectorKind, HistoryWindow, Resolution, Span};
use sonar_core::operation::ErrorCodes;
use sonar_core::{
    Coverage, DigestSettings, Execution, HistoryDigester, Identity, Operation, Outcome, Record, Source,
    Timestamp,
};
use sonar_view::compare::{ComparedSide, DigestComparison};
use sonar_view::kit::{Count, UNKNOWN, Zone};
use sonar_view::queries::json::{self, ObjectKind};
use sonar_view::queries::{Rates, Selection, WindowReport, csv, text};
use sonar_view::timeline::TimelineBuilder;

const WIDTH_S: u64 = 10;
const NS_PER_S: u64 = 1_000_000_000;
const FAILED: Outcome<'static> = Outcome::Failed(ErrorCodes { codes: &[(11_000, 1)] });

/// What a source saw in one window: calls, how many of them failed, and for how many seconds it was observed.
#[derive(Copy, Clone, Debug, Default)]
struct Load {
    calls: u64,
    failed: u64,
    seconds: u64,
}

/// What both sources saw in one window.
#[derive(Copy, Clone, Debug, Default)]
struct Loads {
    wire: Load,
    log: Load,
}

/// Which directions of the wire were captured.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Directions {
    Both,
    Requests,
}

fn start(number: usize) -> Timestamp {
    Timestamp::from_unix(1_700_000_000 + number as u64 * WIDTH_S, 0)
}

fn window(number: usize, loads: Loads, directions: Directions) -> HistoryWindow {
    let mut window = HistoryWindow::new(start(number), Resolution::TenSeconds);
    window.observe(CollectorKind::Queries, loads.wire.seconds * NS_PER_S);
    window.observe(CollectorKind::Log, loads.log.seconds * NS_PER_S);
    window.observe(CollectorKind::Machine, WIDTH_S * NS_PER_S);
    let app = app("api", "rust", "3");
    let [find, update] =
        [(1, "find"), (2, "update")].map(|(id, name)| shape(id, name, "shop.orders", "{}", "{}"));
    for at in 0..loads.wire.calls {
        let operation = operation(&find, &app, window.window.start.plus_ns(at * 1_000_000));
        let outcome = if at < loads.wire.failed { FAILED } else { Outcome::Ok };
        let request = Operation {
            latency_ns: Some(3_000_000),
            request_bytes: 100,
            response_bytes: 200,
            outcome,
            ..operation
        };
        window.window.record(&match directions {
            Directions::Both => request,
            Directions::Requests => Operation {
                latency_ns: None,
                transfer_ns: None,
                response_bytes: 0,
                docs_returned: None,
                outcome: Outcome::Unknown,
                ..request
            },
        });
    }
    for at in 0..loads.log.calls {
        let operation = operation(&update, &app, window.window.start.plus_ns(at * 1_000_000));
        let line = Operation {
            latency_ns: Some(200_000_000),
            transfer_ns: None,
            request_bytes: 0,
            response_bytes: 0,
            outcome: if at < loads.log.failed { FAILED } else { Outcome::Ok },
            ..operation
        };
        let execution = Execution::default();
        window
            .window
            .record_server(&Record::server(Source::Log, &line, &execution).read_as(Identity::Exact, 1));
    }
    window.state_observed();
    window
}

fn merged(all: &[Loads], directions: Directions) -> HistoryWindow {
    let mut windows = all.iter().enumerate().map(|(number, loads)| window(number, *loads, directions));
    let mut merged = windows.next().unwrap();
    windows.for_each(|next| merged.merge(&next));
    merged
}

fn load() -> impl Strategy<Value = Load> {
    (0u64..40, 0u64..5, 0u64..=WIDTH_S, 0u8..4).prop_map(|(calls, failed, seconds, kind)| match kind {
        0 => Load::default(),
        // A source that was observed for an instant only.
        1 => Load { calls, failed: failed.min(calls), seconds: 0 },
        _ => Load { calls, failed: failed.min(calls), seconds },
    })
}

fn windows() -> impl Strategy<Value = Vec<Loads>> {
    proptest::collection::vec((load(), load()).prop_map(|(wire, log)| Loads { wire, log }), 1..30)
}

/// The sums of a source.
fn sum(all: &[Loads], of: fn(&Loads) -> Load) -> Load {
    all.iter().map(of).fold(Load::default(), |sum, one| Load {
        calls: sum.calls + one.calls,
        failed: sum.failed + one.failed,
        seconds: sum.seconds + one.seconds,
    })
}

fn wire(all: &[Loads]) -> Load {
    sum(all, |loads| loads.wire)
}

fn log(all: &[Loads]) -> Load {
    sum(all, |loads| loads.log)
}

/// The rates of the operations of one source.
fn rates(load: Load, source: Source, directions: Directions) -> Rates {
    let rate = |count: f64| (load.seconds > 0).then(|| count / load.seconds as f64);
    let (calls, failed) = (load.calls as f64, load.failed as f64);
    let is_wire = source == Source::Wire;
    let has_replies = !is_wire || directions == Directions::Both || load.calls == 0;
    Rates {
        calls: rate(calls),
        load: rate(calls * if is_wire { 0.003 } else { 0.2 }).filter(|_| has_replies),
        errors: rate(failed).filter(|_| has_replies),
        request_bytes: rate(calls * 100.0).filter(|_| is_wire || load.calls == 0),
        response_bytes: rate(calls * 200.0).filter(|_| is_wire && has_replies || load.calls == 0),
        ..Rates::default()
    }
}

/// The rates of all operations together: the sums of what is known of each source that saw any.
fn total(all: &[Loads], directions: Directions) -> Rates {
    let (of_wire, of_log) = (wire(all), log(all));
    let of = [(of_wire, Source::Wire), (of_log, Source::Log)];
    let [of_wire, of_log] = of.map(|(load, source)| rates(load, source, directions));
    match of.map(|(load, _)| load.calls > 0) {
        [true, false] => of_wire,
        [false, true] => of_log,
        // Nothing happened, as far as somebody watched.
        [false, false] => {
            if of_wire.calls.is_some() {
                of_wire
            } else {
                of_log
            }
        }
        [true, true] => {
            let sum = |figure: fn(&Rates) -> Option<f64>| match (figure(&of_wire), figure(&of_log)) {
                (Some(wire), Some(log)) => Some(wire + log),
                (wire, log) => wire.or(log),
            };
            Rates {
                calls: sum(|one| one.calls),
                load: sum(|one| one.load),
                errors: sum(|one| one.errors),
                request_bytes: sum(|one| one.request_bytes),
                response_bytes: sum(|one| one.response_bytes),
                ..Rates::default()
            }
        }
    }
}

fn figures(rates: &Rates) -> [Option<f64>; 5] {
    [rates.calls, rates.load, rates.errors, rates.request_bytes, rates.response_bytes]
}

fn are_close(mine: Option<f64>, theirs: Option<f64>) -> bool {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => (mine - theirs).abs() <= 1e-9 * theirs.abs().max(1.0),
        (mine, theirs) => mine == theirs,
    }
}

fn document(report: &WindowReport<'_>) -> Value {
    let mut bytes = Vec::new();
    json::report(report, ObjectKind::Summary, &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn summary(report: &WindowReport<'_>) -> String {
    let mut bytes = Vec::new();
    text::summary(report, None, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn directions() -> impl Strategy<Value = Directions> {
    prop_oneof![Just(Directions::Both), Just(Directions::Requests)]
}

proptest! {
    #[test]
    fn rates_of_queries_are_those_of_each_source(all in windows(), directions in directions()) {
        let merged = merged(&all, directions);
        let selection = Selection::default();
        let report = WindowReport::new(&merged.window, &selection);
        let expected = total(&all, directions);
        for (mine, theirs) in figures(&report.totals.rates).into_iter().zip(figures(&expected)) {
            prop_assert!(are_close(mine, theirs), "{:?} {expected:?}", report.totals.rates);
        }
        let document = document(&report);
        for (row, object) in report.rows.iter().zip(document["rows"].as_array().unwrap()) {
            let (load, source) = match row.command() {
                Some("find") => (wire(&all), Source::Wire),
                _ => (log(&all), Source::Log),
            };
            let expected = rates(load, source, directions);
            for (mine, theirs) in figures(&row.stats.rates).into_iter().zip(figures(&expected)) {
                prop_assert!(are_close(mine, theirs), "{:?} {expected:?}", row.stats.rates);
            }
            prop_assert!(are_close(object["calls_per_s"].as_f64(), expected.calls));
            prop_assert!(are_close(object["load"].as_f64(), expected.load));
            // Counts are there wherever the source shows them, however long it was observed.
            let has = rates(Load { seconds: 1, ..load }, source, directions);
            let [sum, time_share] = [&object["latency_ns"]["sum"], &object["time_share"]];
            prop_assert_eq!([sum.is_u64(), time_share.is_f64()], [has.load.is_some(); 2]);
            prop_assert_eq!(object["errors"].is_object(), has.errors.is_some());
            prop_assert_eq!(object["failed"].is_u64(), has.errors.is_some());
            for caller in ["apps", "clients"].iter().flat_map(|name| object[name].as_array().unwrap()) {
                prop_assert_eq!(caller["failed"].is_u64(), has.errors.is_some());
                prop_assert_eq!(caller["latency_ns"].is_u64(), has.load.is_some());
            }
            prop_assert_eq!(object["request_bytes"].is_u64(), has.request_bytes.is_some());
            prop_assert_eq!(object["response_bytes"].is_u64(), has.response_bytes.is_some());
        }
        // Types are those of the wire.
        let of_wire = wire(&all);
        let types = (of_wire.seconds > 0).then_some(of_wire.calls);
        prop_assert_eq!(document["by_type"]["query"].as_u64(), types);
        let shown = |rate: Option<f64>, unit: &str| {
            rate.map_or(UNKNOWN.to_owned(), |rate| format!("{}{unit}", Count(rate)))
        };
        let rates = report.totals.rates;
        let (text, [calls, load]) = (summary(&report), [rates.calls, rates.load].map(|rate| shown(rate, "")));
        let line = format!("user: {calls} queries per second  load {load}  p99 ");
        prop_assert!(text.contains(&line), "{line} {text}");
        let [errors, bytes_in, bytes_out] =
            [(rates.errors, "/s"), (rates.request_bytes, "B/s"), (rates.response_bytes, "B/s")]
                .map(|(rate, unit)| shown(rate, unit));
        let line = format!("  errors {errors}  in {bytes_in}  out {bytes_out}\n");
        prop_assert!(text.contains(&line), "{line} {text}");
        let of_type = types.map(|calls| format!("  query {}/s", Count(calls as f64 * (1.0 / of_wire.seconds as f64))));
        prop_assert_eq!(text.contains("  query "), of_type.is_some());
        prop_assert!(of_type.is_none_or(|line| text.contains(&line)));
    }

    #[test]
    fn lanes_of_a_timeline_are_those_of_its_source(all in windows(), directions in directions()) {
        let span = Span { from: start(0), to: start(all.len()) };
        let mut builder = TimelineBuilder::new(span, all.len(), WIDTH_S * NS_PER_S);
        all.iter().enumerate().for_each(|(number, loads)| builder.add(&window(number, *loads, directions)));
        let report = builder.finish(&[], &[], "history", &Zone::utc());
        let source = match (wire(&all).seconds, log(&all).seconds) {
            (0, 0) => None,
            (0, _) => Some(Source::Log),
            _ => Some(Source::Wire),
        };
        let lane = |id: &str| report.lanes.iter().find(|lane| lane.id == id);
        prop_assert_eq!(lane("calls").is_some(), source.is_some());
        let Some(source) = source else { return Ok(()) };
        for (at, loads) in all.iter().enumerate() {
            let load = if source == Source::Wire { loads.wire } else { loads.log };
            let expected = rates(load, source, directions);
            for (id, expected) in [("calls", expected.calls), ("load", expected.load), ("errors", expected.errors)] {
                let value = lane(id).unwrap().values[at];
                prop_assert!(are_close(value, expected), "{id} {value:?} {expected:?}");
            }
        }
    }

    #[test]
    fn rates_of_compared_logs_are_lines_by_observed_seconds(a in windows(), b in windows()) {
        let logs_alone = |all: &[Loads]| -> Vec<Loads> {
            all.iter().map(|one| Loads { log: one.log, ..Loads::default() }).collect()
        };
        let digest = |all: &[Loads]| {
            let mut digester = HistoryDigester::new(DigestSettings::default(), WIDTH_S * NS_PER_S);
            let windows = all.iter().enumerate();
            windows.for_each(|(number, loads)| digester.add(&window(number, *loads, Directions::Both), |_| true));
            digester.finish().0
        };
        let sides = [logs_alone(&a), logs_alone(&b)];
        let [left, right] = [digest(&sides[0]), digest(&sides[1])];
        let comparison = DigestComparison::new(&left, &right, true, [true; 2]);
        let side = |name: &str| ComparedSide { history: None,
            name: name.to_owned(),
            host: None,
            source: sonar_view::digest::Source::Log,
            zone: Zone::utc(), notes: Vec::new(),
        };
        let mut bytes = Vec::new();
        sonar_view::compare::json(&comparison, &[side("a"), side("b")], &mut bytes).unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        for row in document["rows"].as_array().unwrap() {
            for (at, all) in sides.iter().enumerate() {
                let expected = rates(log(all), Source::Log, Directions::Both);
                prop_assert!(are_close(row["calls_per_s"][at].as_f64(), expected.calls), "{row}");
            }
        }
    }

    #[test]
    fn levels_of_servers_are_those_of_the_source_that_shows_them(
        loads in [load(), load()],
        of_log in any::<bool>(),
        directions in directions(),
    ) {
        let side = |from: usize, times: u64, load: Load| -> Vec<HistoryWindow> {
            let calls = (load.calls + 3) * times;
            let load = Load { calls, failed: calls / 2, seconds: WIDTH_S };
            let loads = match of_log {
                true => Loads { log: load, ..Loads::default() },
                false => Loads { wire: load, ..Loads::default() },
            };
            (from..from + 12).map(|number| window(number, loads, directions)).collect()
        };
        let (before, after) = (side(0, 1, loads[0]), side(12, 40, loads[1]));
        let calls = (loads[1].calls + 3) * 40;
        let source = if of_log { Source::Log } else { Source::Wire };
        let expected = rates(Load { calls, failed: calls / 2, seconds: WIDTH_S }, source, directions);
        let input = ChangeInput { before: &before, after: &after, later: &[], events: &[], alpha: 1.0 };
        for change in find(&input, ComparisonKind::Block).changes {
            let ChangeKind::Server(server) = &change.what else { continue };
            for level in &server.levels {
                let expected = match level.measure {
                    ServerMeasure::Queries => expected.calls,
                    ServerMeasure::Failed => expected.errors,
                    ServerMeasure::InProgress => expected.load,
                    ServerMeasure::Connections => continue,
                };
                prop_assert!(are_close(Some(level.after), expected), "{level:?} {expected:?}");
            }
        }
    }
}

#[test]
fn rows_of_one_direction_leave_cells_and_fields_empty() {
    let loads = Loads { wire: Load { calls: 5, failed: 0, seconds: WIDTH_S }, ..Loads::default() };
    let window = window(0, loads, Directions::Requests);
    let selection = Selection::default();
    let report = WindowReport::new(&window.window, &selection);
    let mut bytes = Vec::new();
    csv::heading(selection.by, &mut bytes).unwrap();
    csv::rows(&report, ObjectKind::Summary, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let [names, values] = [lines.next(), lines.next()].map(Option::unwrap);
    let of = |name: &str| values[names.iter().position(|one| *one == name).unwrap()];
    for name in ["errors", "failed", "latency_ns_sum", "transfer_ns", "response_bytes", "time_share"] {
        assert_eq!(of(name), "", "{name}");
    }
    assert_eq!([of("calls"), of("request_bytes"), of("outcome_unknown")], ["5", "500", "5"]);
    // Nothing of the row can be read as 0: load, quantiles, bytes of replies, documents, errors, oldest in flight.
    let summary = summary(&report);
    let row = summary.lines().find(|line| line.contains("find ")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(
        cells,
        ["5", "-", "-", "-", "-", "-", "-", "50", "-", "-", "-", "0", "-", "find", "shop.orders", "{}"]
    );
}

const QUIET: &str = "user: 0 queries per second  load 0  p99 -  errors 0/s  in 0B/s  out 0B/s";
const UNREAD: &str = "user: - queries per second  load -  p99 -  errors -  in -  out -";

/// The totals of a window without operations, in text, by these counters since the start.
fn totals_without_operations(since_start: &Coverage) -> String {
    let loads = Loads { wire: Load { seconds: WIDTH_S, ..Load::default() }, ..Loads::default() };
    let window = window(0, loads, Directions::Both);
    let selection = Selection::default();
    let report = WindowReport::new(&window.window, &selection).with_unread(since_start);
    let document = document(&report);
    let is_unknown = report.totals.rates.load.is_none();
    assert_eq!([&document["totals"]["load"], &document["by_type"]].map(Value::is_null), [is_unknown; 2]);
    summary(&report).lines().nth(1).unwrap().trim().to_owned()
}

#[test]
fn operations_that_could_not_be_read_are_not_zero() {
    let line = |change: fn(&mut Coverage)| {
        let mut coverage = Coverage { frames: 100, frames_decoded: 100, ..Coverage::default() };
        change(&mut coverage);
        let shown = totals_without_operations(&coverage);
        // What was read is known, and what was not is a loss.
        coverage.requests = 1;
        assert_eq!(totals_without_operations(&coverage), QUIET);
        shown
    };
    assert_eq!(line(|_| ()), QUIET);
    let unread: [fn(&mut Coverage); 13] = [
        // Replies alone.
        |coverage| coverage.streams_one_way = 2,
        |coverage| coverage.replies = 2,
        // Cut before the messages.
        |coverage| coverage.frames_snapped = 90,
        // Encrypted, without a key log and with one that is of no use.
        |coverage| coverage.streams_tls = 1,
        |coverage| (coverage.streams_tls, coverage.streams_tls_decrypted) = (1, 1),
        |coverage| coverage.streams_tls_no_key = 1,
        |coverage| coverage.streams_tls_joined_late = 1,
        |coverage| coverage.streams_tls_unsupported = 1,
        |coverage| coverage.streams_tls_gap = 1,
        |coverage| coverage.streams_tls_unopened = 1,
        |coverage| coverage.streams_tls_renegotiated = 1,
        |coverage| coverage.streams_tls_evicted = 1,
        // Of connections that were recognised in an earlier window.
        |coverage| coverage.segments_ignored = 5,
    ];
    for change in unread {
        assert_eq!(line(change), UNREAD);
    }
    let read: [fn(&mut Coverage); 5] = [
        |coverage| coverage.streams_tls_decrypted = 1,
        |coverage| (coverage.streams_tls_read, coverage.segments_ignored) = (1, 5),
        |coverage| (coverage.streams_not_mongodb, coverage.segments_ignored) = (1, 5),
        // Of requests that were read in an earlier window.
        |coverage| (coverage.replies, coverage.replies_exhaust) = (2, 2),
        |coverage| (coverage.messages, coverage.segments_ignored) = (1, 5),
    ];
    for change in read {
        assert_eq!(line(change), QUIET);
    }
}

#[test]
fn what_only_a_log_shows_is_known_although_the_wire_cannot_be_read() {
    let loads = Loads { log: Load { seconds: WIDTH_S, ..Load::default() }, ..Loads::default() };
    let window = window(0, loads, Directions::Both);
    let selection = Selection::default();
    let tls = Coverage { streams_tls: 1, ..Coverage::default() };
    let report = WindowReport::new(&window.window, &selection).with_unread(&tls);
    assert_eq!(report.totals.rates.calls, Some(0.0), "the wire was not observed then");
}
