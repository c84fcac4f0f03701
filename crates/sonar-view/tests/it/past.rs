//! What a history says about a span, with a history in memory.

use std::fmt;

use crate::synthetic::{app, operation, shape};
use sonar_core::changes::ALPHA;
use sonar_core::history::{
    CollectorKind, Event, EventKind, HistoryWindow, Resolution, SeriesSubject, Span, metrics,
};
use sonar_core::testing::MemoryHistory;
use sonar_core::{Endpoint, GroupBy, Operation, Source, Timestamp};
use sonar_view::compare::Change;
use sonar_view::kit::{Fitting, Zone};
use sonar_view::past::baseline::{BaselineInput, NotedBaseline, around};
use sonar_view::past::compare::{LoadedSpan, compared, source_note};
use sonar_view::past::queries::{IntervalWidth, intervals, named_windows, whole};
use sonar_view::past::what_changed::{AskedChanges, AskedTime, report};
use sonar_view::past::{
    ComparedTime, DigestRows, HistoryDigest, HistoryStep, HistoryView, PastError, PastIncident, series,
    timeline, what_changed,
};
use sonar_view::queries::{ClassSet, PastWindow, Selection};
use sonar_view::series::{DISKS, SeriesChoice};

/// 2023-11-14T22:00:00Z: the start of an hour.
const START: u64 = 1_699_999_200;
const WIDTH_S: u64 = 10;
const MS: u64 = 1_000_000;

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(START + second, 0)
}

fn span(from: u64, to: u64) -> Span {
    Span { from: at(from), to: at(to) }
}

/// What these tests do with a history.
trait TestedHistory {
    /// Adds operations in each window of these seconds.
    fn with(self, seconds: std::ops::Range<u64>, load: Load) -> Self;

    fn view(&self) -> HistoryView<'_>;
}

impl TestedHistory for MemoryHistory {
    fn with(mut self, seconds: std::ops::Range<u64>, load: Load) -> Self {
        self.windows.extend(seconds.step_by(WIDTH_S as usize).map(|second| window(second, load)));
        self
    }

    fn view(&self) -> HistoryView<'_> {
        HistoryView::new(self, "memory", at(3_600)).unwrap()
    }
}

/// What runs in a window.
#[derive(Copy, Clone)]
struct Load {
    /// The shape of its operations, by number.
    shape: u64,
    calls: u64,
    latency_ms: u64,
}

const USUAL: Load = Load { shape: 1, calls: 50, latency_ms: 3 };
/// Another shape.
const OTHER: Load = Load { shape: 2, calls: 80, latency_ms: 40 };

fn window(second: u64, load: Load) -> HistoryWindow {
    window_of(second, &[(load, "api")])
}

/// A window in which applications run loads.
fn window_of(second: u64, loads: &[(Load, &str)]) -> HistoryWindow {
    let mut window = HistoryWindow::new(at(second), Resolution::TenSeconds);
    window.observe(CollectorKind::Queries, WIDTH_S * 1_000 * MS);
    for (load, name) in loads {
        let namespace = format!("shop.orders{}", load.shape);
        let (shape, app) = (shape(load.shape, "find", &namespace, "{}", "{}"), app(name, "rust", "3"));
        for number in 0..load.calls {
            // Not all take the same time.
            let latency_ns = Some((load.latency_ms * 1_000 + number % 7 * 100) * 1_000);
            let operation = operation(&shape, &app, at(second).plus_ns(number * MS));
            window.window.record(&Operation { latency_ns, ..operation });
        }
    }
    window
}

fn changes(
    history: &MemoryHistory,
    when: Span,
    against: Option<Span>,
) -> Result<serde_json::Value, PastError> {
    let asked = AskedChanges { when: AskedTime::Span(when), against: against.map(ComparedTime::Span) };
    let report = report(&history.view(), &asked, &Zone::utc())?;
    Ok(serde_json::to_value(&report).unwrap())
}

/// The messages of an error and of its causes.
fn messages(error: &PastError) -> Vec<String> {
    let mut messages = vec![error.to_string()];
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        messages.push(one.to_string());
        cause = one.source();
    }
    messages
}

#[test]
fn a_history_that_is_empty_or_cannot_be_read_says_so() {
    let now = at(0);
    let empty = HistoryView::new(&MemoryHistory::default(), "memory", now).err().unwrap();
    assert!(matches!(empty, PastError::NothingStored(_)));
    assert!(empty.to_string().starts_with("the history in memory is empty"), "{empty}");
    let broken = MemoryHistory { is_broken: true, ..MemoryHistory::default() };
    let error = HistoryView::new(&broken, "memory", now).err().unwrap();
    assert_eq!(messages(&error), ["cannot read the history in memory", &fmt::Error.to_string()]);
    assert!(!error.is_wrong_question());
}

#[test]
fn of_an_empty_span_nothing_is_said() {
    let history = MemoryHistory::default().with(0..600, USUAL);
    let view = history.view();
    let nothing = span(1_200, 1_500);
    // Nobody looked.
    let report = changes(&history, nothing, None).unwrap();
    assert_eq!(report["moments"].as_array().unwrap().len(), 0);
    let notes = report["notes"].to_string();
    assert!(notes.contains("nothing was observed between 2023-11-14T22:20:00Z and"), "{notes}");
    // There is nothing to compare.
    let error = changes(&history, nothing, Some(span(0, 300))).unwrap_err();
    let covers = "the history covers 2023-11-14T22:00:00Z to 2023-11-14T22:10:00Z";
    assert_eq!(error.to_string(), format!("nothing is stored from 2023-11-14T22:20:00Z on; {covers}"));
    let rows = DigestRows { by: GroupBy::Shape, classes: ClassSet::ALL };
    let error = HistoryDigest::of(&view, nothing, rows).err().unwrap();
    assert!(error.to_string().starts_with("nothing is stored between 2023-11-14T22:20:00Z and"), "{error}");
    assert!(matches!(error, PastError::NothingStored(_)));
    // Times are those of the zone that was asked for.
    let zone = Zone::fixed(7_200);
    let local = "2023-11-15T00:20:00+02:00";
    let against = Some(ComparedTime::Span(span(0, 300)));
    let asked = AskedChanges { when: AskedTime::Span(nothing), against };
    let error = what_changed::report(&view, &asked, &zone).err().unwrap().to_string();
    let covers = "the history covers 2023-11-15T00:00:00+02:00 to 2023-11-15T00:10:00+02:00";
    assert_eq!(error, format!("nothing is stored from {local} on; {covers}"));
    let error = HistoryDigest::of(&view.in_zone(&zone), nothing, rows).err().unwrap().to_string();
    assert!(error.starts_with(&format!("nothing is stored between {local} and")), "{error}");
    let error = LoadedSpan::of(&view, nothing, rows, &zone).err().unwrap().to_string();
    assert!(error.starts_with(&format!("nothing is stored between {local} and")), "{error}");
    let error = BaselineInput::of(&view, nothing, ClassSet::USER, &zone).err().unwrap().to_string();
    assert!(error.starts_with(&format!("nothing is stored between {local} and")), "{error}");
    // It is still to come.
    let error = view.asked(span(4_000, 5_000), &Zone::utc()).unwrap_err();
    assert!(error.is_wrong_question(), "{error}");
    assert_eq!(view.asked(span(500, 5_000), &Zone::utc()).unwrap(), span(500, 3_600));
    assert!(HistoryStep::Before(at(0)).window(&view).is_err());
}

#[test]
fn a_gap_is_named_and_passed() {
    let history = MemoryHistory::default().with(0..300, USUAL).with(420..900, USUAL);
    let view = history.view();
    let report = changes(&history, span(200, 600), None).unwrap();
    let gaps = report["gaps"].as_array().unwrap();
    let [gap] = gaps.as_slice() else { panic!("{gaps:?}") };
    let second = |end: &str| gap[end].as_u64().unwrap() / 1_000_000_000 - START;
    assert_eq!([second("start_ns"), second("end_ns")], [300, 420]);
    assert_eq!(gap["what"], "agent");
    // Of the other times it is known that nothing changed.
    assert_eq!(report["moments"], serde_json::json!([]));
    assert_eq!(report["notes"], serde_json::json!([]));
    let note = view.gap_note(CollectorKind::Queries, span(200, 600), &Zone::utc()).unwrap();
    assert_eq!(note.as_deref(), Some("GAP: 22:05:00 to 22:07:00: nothing was observed."));
    // Its share is of what is stored, not of what was asked for.
    let note = |from, to| view.gap_note(CollectorKind::Queries, span(from, to), &Zone::utc()).unwrap();
    assert_eq!(note(600, 1_200).as_deref(), Some("GAP: Nothing is stored after 22:15:00."));
    let step = |step: HistoryStep| step.window(&view).unwrap().window.start;
    assert_eq!(step(HistoryStep::From(at(300))), at(420));
    assert_eq!(step(HistoryStep::Before(at(420))), at(290));
}

#[test]
fn two_spans_are_compared() {
    let history = MemoryHistory::default().with(0..600, USUAL).with(600..1_200, OTHER);
    let report = changes(&history, span(600, 1_200), Some(span(0, 600))).unwrap();
    assert_eq!(report["compared_with"]["start_ns"], at(0).unix_ns());
    let [moment] = report["moments"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let shapes: Vec<_> = moment["changes"].as_array().unwrap().iter().collect();
    let ways = |namespace: &str| {
        let found = shapes.iter().find(|change| change["figures"]["namespace"] == namespace);
        found.unwrap_or_else(|| panic!("{namespace}: {moment}"))["figures"]["ways"].clone()
    };
    assert_eq!(ways("shop.orders2"), serde_json::json!(["new"]));
    assert_eq!(ways("shop.orders1"), serde_json::json!(["stopped"]));
    // The same load is no change.
    let same = changes(&history, span(300, 600), Some(span(0, 300))).unwrap();
    assert_eq!(same["moments"], serde_json::json!([]), "at {ALPHA}");
}

#[test]
fn a_moment_is_compared_with_the_time_before_it() {
    let history = MemoryHistory::default().with(0..600, USUAL).with(600..1_200, OTHER);
    let when = AskedTime::Moment { at: at(604), precision_ns: 1 };
    let asked = AskedChanges { when, against: None };
    let report = report(&history.view(), &asked, &Zone::utc()).unwrap();
    assert!(report.has_changes() && report.doubt().is_none());
    assert!(report.summary.contains("shop.orders2"), "{}", report.summary);
    let compared = report.compared_with.unwrap();
    assert_eq!((compared.start_ns, compared.end_ns), (at(570).unix_ns(), at(600).unix_ns()));
}

/// A history in which windows of these seconds have what `loads` says.
fn history_of(
    seconds: std::ops::Range<u64>,
    loads: impl Fn(u64) -> Vec<(Load, &'static str)>,
) -> MemoryHistory {
    let windows = seconds.step_by(WIDTH_S as usize).map(|second| window_of(second, &loads(second)));
    MemoryHistory { windows: windows.collect(), ..MemoryHistory::default() }
}

/// The changes of all moments.
fn all_changes(report: &serde_json::Value) -> Vec<&serde_json::Value> {
    let moments = report["moments"].as_array().unwrap().iter();
    moments.flat_map(|moment| moment["changes"].as_array().unwrap()).collect()
}

#[test]
fn an_application_that_the_history_knows_is_new_again() {
    let runs = |second: u64| (100..400).contains(&second) || (2_400..2_600).contains(&second);
    for name in ["report", "audit"] {
        let history = history_of(0..3_000, |second| match second {
            _ if !runs(second) || (name == "audit" && second < 2_000) => vec![(USUAL, "api")],
            _ => vec![(USUAL, "api"), (OTHER, name)],
        });
        let pause = |report: &serde_json::Value| {
            let changes = all_changes(report);
            let is_new = |one: &&&serde_json::Value| {
                one["figures"]["name"] == name && one["figures"]["has_ended"] == false
            };
            let change = changes.iter().rev().find(is_new).unwrap_or_else(|| panic!("{report}"));
            (change["sentence"].as_str().unwrap().to_owned(), change["figures"]["pause_ns"].as_u64())
        };
        let when = AskedTime::Moment { at: at(2_401), precision_ns: 1 };
        let asked = AskedChanges { when, against: None };
        let moment = report(&history.view(), &asked, &Zone::utc()).unwrap();
        let moment = serde_json::to_value(&moment).unwrap();
        for report in [moment, changes(&history, span(0, 3_000), None).unwrap()] {
            let (sentence, pause) = pause(&report);
            match name {
                "report" => {
                    assert_eq!(pause.map(|ns| ns / 1_000 / MS), Some(2_009), "{report}");
                    assert!(
                        sentence.starts_with("the application report is new again: it was last seen 33m")
                    );
                }
                _ => assert_eq!((sentence.as_str(), pause), ("the application audit is new", None)),
            }
        }
    }
}

#[test]
fn what_began_before_a_span_is_no_change_in_it() {
    let slow = Load { latency_ms: 30, ..USUAL };
    let history = MemoryHistory::default().with(0..600, USUAL).with(600..1_200, slow);
    let began = |when| {
        let report = changes(&history, when, None).unwrap();
        all_changes(&report).iter().map(|one| one["since_ns"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(began(span(500, 900)), [at(600).unix_ns()]);
    for from in [610, 620, 630, 640] {
        assert_eq!(began(span(from, 900)), [0; 0], "from second {from}");
    }
}

#[test]
fn the_figures_of_a_change_begin_with_it_whatever_comes_next() {
    let faster = Load { latency_ms: 1, calls: 120, ..USUAL };
    let slower = Load { latency_ms: 5, ..USUAL };
    let history = MemoryHistory::default().with(0..620, USUAL).with(620..630, faster).with(630..900, slower);
    let report = changes(&history, span(500, 900), None).unwrap();
    let changes = all_changes(&report);
    let is_faster = |one: &&&serde_json::Value| one["sentence"].as_str().unwrap().contains("faster");
    let change = changes.iter().find(is_faster).unwrap_or_else(|| panic!("{report}"));
    assert_eq!([&change["since_ns"], &change["from_ns"]], [at(620).unix_ns(); 2], "{change}");
    assert_eq!(change["figures"]["after"]["calls"], faster.calls, "{change}");
}

#[test]
fn a_change_has_the_same_figures_however_long_the_span_is() {
    // Every second minute another shape comes for three windows.
    let job = |minute| Load { shape: 10 + minute, ..OTHER };
    let history = history_of(0..3_000, |second| match (second / 60, second % 60) {
        (minute @ 18..49, 0..30) if minute % 2 == 0 => vec![(USUAL, "api"), (job(minute), "api")],
        _ => vec![(USUAL, "api")],
    });
    let last = |from| {
        let report = changes(&history, span(from, 3_000), None).unwrap();
        let mut changes = all_changes(&report).into_iter();
        let last = changes.find(|one| one["figures"]["namespace"] == "shop.orders58").cloned();
        last.unwrap_or_else(|| panic!("{report}"))
    };
    let short = last(2_860);
    // Its first operation began right before second 2880.
    assert_eq!(short["from_ns"], at(2_870).unix_ns(), "{short}");
    assert_eq!(last(0), short);
}

#[test]
fn the_digest_of_a_span_has_its_rows() {
    let history = MemoryHistory::default().with(0..600, USUAL).with(600..1_200, OTHER);
    let rows = |by| DigestRows { by, classes: ClassSet::ALL };
    let digest = HistoryDigest::of(&history.view(), span(303, 607), rows(GroupBy::Shape)).unwrap();
    assert_eq!((digest.windows, digest.source, digest.is_whole), (span(300, 610), Source::Wire, true));
    let calls: Vec<u64> = digest.digest.rows().iter().map(|row| row.figures().calls).collect();
    assert_eq!(calls.iter().sum::<u64>(), 30 * USUAL.calls + OTHER.calls);
    let error = HistoryDigest::of(&history.view(), span(0, 600), rows(GroupBy::Plan)).err().unwrap();
    assert!(error.is_wrong_question(), "{error}");
}

#[test]
fn a_timeline_has_no_values_in_a_gap() {
    let history = MemoryHistory::default().with(0..300, USUAL).with(420..900, USUAL);
    let report = timeline::report(&history.view(), span(200, 600), 360, &Zone::utc()).unwrap();
    assert_eq!(report.parts, 40, "none is narrower than a window");
    let rate = report.lanes.iter().find(|lane| lane.group == "queries").unwrap();
    let missing: Vec<usize> = (0..report.parts).filter(|part| rate.values[*part].is_none()).collect();
    assert_eq!(missing, (10..22).collect::<Vec<_>>());
    let [gap] = &*report.gaps else { panic!("{:?}", report.gaps) };
    assert_eq!((gap.span.start_ns, gap.span.end_ns), (at(300).unix_ns(), at(420).unix_ns()));
    // Nothing at all.
    let report = timeline::report(&history.view(), span(1_200, 1_500), 360, &Zone::utc()).unwrap();
    assert!(report.lanes.iter().all(|lane| lane.values.iter().all(Option::is_none)));
    assert_eq!(report.gaps.len(), 1);
}

#[test]
fn a_timeline_tells_two_servers_with_one_port_apart() {
    let mut history = MemoryHistory::default().with(0..300, USUAL);
    let contained = Endpoint::v4([172, 17, 0, 3], 27_017);
    for window in &mut history.windows {
        let (shape, app) = (shape(2, "find", "shop.orders", "{}", "{}"), app("api", "rust", "3"));
        for (server, latency_ms) in [(Endpoint::v4([0; 4], 27_017), 2), (contained, 400)] {
            let operation = operation(&shape, &app, window.window.start);
            window.window.record(&Operation { server, latency_ns: Some(latency_ms * MS), ..operation });
        }
    }
    history.events.push(Event::new(at(100), EventKind::IndexDrop, contained, "user_1"));
    let report = timeline::report(&history.view(), span(0, 300), 360, &Zone::utc()).unwrap();
    let of = |address: Option<&str>| {
        let mut lanes = report.lanes.iter().filter(|lane| lane.id == "p99");
        let lane = lanes.find(|lane| lane.server == Some(27_017) && lane.address.as_deref() == address);
        lane.unwrap().values.iter().flatten().copied().fold(0.0, f64::max)
    };
    assert!(of(None) < 10.0 && of(Some("172.17.0.3:27017")) > 300.0);
    let [event] = &*report.events else { panic!("{:?}", report.events) };
    assert_eq!((event.server, event.address.as_deref()), (Some(27_017), Some("172.17.0.3:27017")));
    let mut text = Vec::new();
    report.text(&mut Fitting::new(&mut text, Some(120)), &Zone::utc()).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("172.17.0.3:27017 p99"), "{text}");
}

#[test]
fn an_incident_joins_changes_timeline_and_queries() {
    let history = MemoryHistory::default().with(0..600, USUAL).with(600..1_200, OTHER);
    let view = history.view();
    let PastIncident { window, report } =
        PastIncident::of(&view, span(300, 900), &Selection::default()).unwrap();
    assert_eq!(Span { from: window.window.start, to: window.window.end }, span(300, 900));
    assert!(report.changes.has_changes());
    assert_eq!(report.timeline.parts, 60);
    assert_eq!(report.queries["rows"].as_array().unwrap().len(), 2);
    let error = PastIncident::of(&view, span(2_400, 3_000), &Selection::default()).err().unwrap();
    let said = "nothing is stored between 2023-11-14T22:40:00Z and 2023-11-14T22:50:00Z; the history in memory covers \
                2023-11-14T22:00:00Z to 2023-11-14T22:20:00Z";
    assert_eq!(error.to_string(), said);
}

#[test]
fn intervals_are_whole_windows_and_none_is_in_a_gap() {
    let history = MemoryHistory::default().with(0..300, USUAL).with(420..900, USUAL);
    let view = history.view();
    let minute = IntervalWidth::new(60_000 * MS).unwrap();
    let mut found = Vec::new();
    intervals(&view, span(180, 600), minute, &mut |PastWindow { window, .. }| {
        found.push((window.start, window.shapes.iter().map(|row| row.figures().calls).sum::<u64>()));
    })
    .unwrap();
    assert_eq!(found, [180, 240, 420, 480, 540].map(|second| (at(second), 6 * USUAL.calls)));
    for ns in [0, 1, 15_000 * MS, 60_000 * MS + 1] {
        assert_eq!(IntervalWidth::new(ns), None, "{ns}");
    }
    let mut none = 0;
    intervals(&view, span(300, 420), minute, &mut |_| none += 1).unwrap();
    assert_eq!(none, 0);
    assert_eq!(named_windows(at(64), 1_000 * MS), span(60, 70));
    assert_eq!(named_windows(at(60), 60_000 * MS), span(60, 120));
    // As a whole: what is there of it, or that there is nothing.
    let all = whole(&view, span(290, 430), &Zone::utc()).unwrap();
    assert_eq!(all.window.shapes.iter().map(|row| row.figures().calls).sum::<u64>(), 2 * USUAL.calls);
    let error = whole(&view, span(300, 420), &Zone::utc()).err().unwrap().to_string();
    let said = "nothing is stored between 2023-11-14T22:05:00Z and 2023-11-14T22:07:00Z; the history in memory covers \
                2023-11-14T22:00:00Z to 2023-11-14T22:15:00Z";
    assert_eq!(error, said);
}

#[test]
fn queries_of_the_past_have_the_state_of_the_servers_at_the_end() {
    let mut history = MemoryHistory::default().with(0..120, USUAL);
    let own = Endpoint::v4([0; 4], crate::synthetic::server().port);
    let remote = Endpoint::v4([10, 0, 0, 9], own.port);
    let connections = metrics::find("connections.open").unwrap();
    for (server, value) in [(own, 1.0), (remote, 1_000.0)] {
        for (number, window) in (0_u32..).zip(&mut history.windows) {
            let end = window.window.end;
            window.sample(&connections.key(server, ""), end, value + f64::from(number), 10.0);
        }
    }
    let view = history.view();
    let state = |past: &PastWindow| {
        let servers = past.servers.iter();
        let known = servers.map(|server| (server.port, server.glance.connections, server.glance.at));
        known.collect::<Vec<_>>()
    };
    let expected = |connections, second| vec![(own.port, Some(connections), at(second))];
    assert_eq!(state(&whole(&view, span(0, 120), &Zone::utc()).unwrap()), expected(12, 120));
    assert_eq!(state(&HistoryStep::Before(at(50)).window(&view).unwrap()), expected(5, 50));
    let mut found = Vec::new();
    let minute = IntervalWidth::new(60_000 * MS).unwrap();
    intervals(&view, span(0, 120), minute, &mut |past| found.push(state(&past))).unwrap();
    assert_eq!(found, [expected(6, 60), expected(12, 120)]);
}

#[test]
fn a_baseline_with_a_gap_is_not_complete() {
    let history = MemoryHistory::default().with(0..300, USUAL).with(420..900, USUAL);
    let view = history.view();
    let of = |from, to| {
        let input = BaselineInput::of(&view, span(from, to), ClassSet::USER, &Zone::utc()).unwrap();
        NotedBaseline::new(&input).unwrap()
    };
    assert_eq!(of(0, 300).notes, [""; 0]);
    assert_eq!(
        of(0, 600).notes,
        [
            "rows were left out of the baseline 2023-11-14T22:00:00Z to 2023-11-14T22:10:00Z, so nothing is marked as new"
        ]
    );
    let error = BaselineInput::of(&view, span(300, 420), ClassSet::USER, &Zone::utc()).err().unwrap();
    assert!(matches!(error, PastError::NothingStored(_)), "{error}");
    assert_eq!(around(at(1_800)), span(0, 3_600));
}

#[test]
fn the_digests_of_two_spans_are_compared() {
    let history = MemoryHistory::default().with(0..600, USUAL).with(600..1_200, OTHER);
    let view = history.view();
    let of = |from, to, by| {
        LoadedSpan::of(&view, span(from, to), DigestRows { by, classes: ClassSet::USER }, &Zone::utc())
            .unwrap()
    };
    let (before, after) = (of(300, 600, GroupBy::Shape), of(600, 900, GroupBy::Shape));
    assert_eq!((before.notes.len(), source_note(&before.loaded, &after.loaded)), (0, None));
    let comparison = compared(&before.loaded, &after.loaded).unwrap();
    let mut verdicts: Vec<Change> = comparison.pairs.iter().map(|pair| pair.verdict).collect();
    verdicts.sort();
    assert_eq!(verdicts, [Change::New, Change::Gone]);
    let steady = of(0, 300, GroupBy::Shape);
    let comparison = compared(&steady.loaded, &before.loaded).unwrap();
    assert!(comparison.pairs.iter().all(|pair| pair.verdict == Change::Same));
    // Windows are not cut.
    let within = of(303, 607, GroupBy::Shape);
    let said = "compared are the windows of the history from 2023-11-14T22:05:00Z to 2023-11-14T22:10:10Z";
    assert_eq!(within.notes, [said]);
    assert_eq!(view.operations_gap_note(span(303, 607), &Zone::utc()).unwrap(), None);
    // What cannot be set side by side.
    let error = compared(&before.loaded, &of(600, 900, GroupBy::Namespace).loaded).err().unwrap();
    assert_eq!(error.to_string(), "rows are by shape in one and by namespace in the other");
    let error = before.loaded.refuse_other_rules("a.json", Some(0)).unwrap_err().to_string();
    assert!(error.starts_with("a.json: its shape ids follow version "), "{error}");
    before.loaded.refuse_other_rules("a.json", after.loaded.shape_rules).unwrap();
}

#[test]
fn series_are_those_of_the_span() {
    let mut history = MemoryHistory::default().with(0..300, USUAL);
    for (second, reads) in [(100, 10.0), (200, 30.0)] {
        let window = &mut history.windows[second / WIDTH_S as usize];
        let key = metrics::DISK_READS.key(Endpoint::default(), "sda");
        window.sample(&key, at(second as u64), reads, 10.0);
    }
    let view = history.view();
    let choice = SeriesChoice { columns: &DISKS, wants: &|name| name == "sda" };
    let mean = |from, to| {
        let table = series::means(&view, span(from, to), &choice, &Zone::utc())?;
        let document = serde_json::to_value(&table).unwrap();
        Ok::<_, PastError>(document["rows"][0]["values"][metrics::DISK_READS.name][0].as_f64())
    };
    assert_eq!(mean(0, 300).unwrap(), Some(20.0));
    assert_eq!(mean(150, 300).unwrap(), Some(30.0));
    let error = mean(210, 300).unwrap_err();
    assert!(error.to_string().starts_with("the history in memory has no series of this kind"), "{error}");
    assert_eq!(series::collector(SeriesSubject::File), CollectorKind::Files);
}

#[test]
fn only_one_server_is_shown_and_only_a_known_one() {
    let mut history = MemoryHistory::default().with(0..600, USUAL);
    let port = crate::synthetic::server().port;
    let other = Endpoint::v4([0; 4], port + 1);
    history.events.push(Event::new(at(5), EventKind::LogRotation, other, ""));
    let started = Event::new(at(9), EventKind::AgentStart, Endpoint::default(), "version 1.0.0");
    history.events.push(started.about("db1"));
    let view = history.view().of_server(Some(port)).unwrap();
    let kinds: Vec<_> = view.events(span(0, 600)).unwrap().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::AgentStart], "the log is of the other server");
    assert_eq!(view.host().unwrap().as_deref(), Some("db1"));
    let quiet = history.view().of_server(Some(port + 1)).unwrap();
    assert!(quiet.read(span(0, 600)).unwrap().unwrap().window.shapes.is_empty());
    let error = history.view().of_server(Some(port + 2)).err().unwrap();
    assert!(error.is_wrong_question());
    let named = format!("has no server at port {}; it knows {}", port + 2, port + 1);
    assert!(error.to_string().contains(&named), "{error}");
}
