//! In what some operations of a history in memory differ from the rest.

use std::sync::Arc;

use crate::synthetic::{app, operation, shape};
use sonar_core::history::{CollectorKind, HistoryWindow, Resolution, Span};
use sonar_core::operation::ErrorCodes;
use sonar_core::testing::{MemoryHistory, thread_operation, wire_operation};
use sonar_core::time_split::{JoinedOperation, TimePart, WireOperation};
use sonar_core::{
    Endpoint, Execution, Identity, Operation, Outcome, Record, ShapeId, ShapeInfo, Source, Timestamp,
};
use sonar_view::kit::Zone;
use sonar_view::past::different::{
    AskedDifference, DifferentReport, DimensionJson, DimensionValueJson, report,
};
use sonar_view::past::{HistoryView, PastError};

/// 2023-11-14T22:00:00Z.
const START: u64 = 1_699_999_200;
const MS: u64 = 1_000_000;
const SPAN: Span = Span { from: Timestamp::from_unix(START, 0), to: Timestamp::from_unix(START + 600, 0) };

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(START + second, 0)
}

/// Operations of one application from one client.
#[derive(Copy, Clone)]
struct Load {
    app: &'static str,
    client: u8,
    calls: u64,
    latency_ms: u64,
    code: Option<i32>,
}

const SHOP: Load = Load { app: "shop", client: 1, calls: 45, latency_ms: 3, code: None };
/// The same queries, but slow.
const ETL: Load = Load { app: "etl", client: 2, calls: 5, latency_ms: 200, code: None };

fn query() -> Arc<ShapeInfo> {
    shape(7, "find", "shop.orders", "{filter: {city: ?string}}", "{}")
}

fn window(second: u64, loads: &[Load]) -> HistoryWindow {
    let mut window = HistoryWindow::new(at(second), Resolution::TenSeconds);
    window.observe(CollectorKind::Queries, 10_000 * MS);
    for load in loads {
        let (shape, app) = (query(), app(load.app, "rust", "3"));
        let codes = [(load.code.unwrap_or_default(), 1)];
        for number in 0..load.calls {
            let done = operation(&shape, &app, at(second).plus_ns(number * MS));
            window.window.record(&Operation {
                latency_ns: Some(load.latency_ms * MS),
                client: Endpoint::v4([10, 0, 0, load.client], 50_000),
                outcome: match load.code {
                    Some(_) => Outcome::Failed(ErrorCodes { codes: &codes }),
                    None => Outcome::Ok,
                },
                ..done
            });
        }
    }
    window
}

/// Ten minutes in windows of ten seconds.
fn history(loads: impl Fn(u64) -> Vec<Load>) -> MemoryHistory {
    let windows = (0..600).step_by(10).map(|second| window(second, &loads(second)));
    MemoryHistory { windows: windows.collect(), ..MemoryHistory::default() }
}

fn different(history: &MemoryHistory, asked: &AskedDifference) -> Result<DifferentReport, PastError> {
    let view = HistoryView::new(history, "memory", at(600))?;
    report(&view, SPAN, asked, &Zone::utc())
}

fn dimension<'a>(report: &'a DifferentReport, name: &str) -> &'a DimensionJson {
    report.dimensions.iter().find(|one| one.dimension == name).unwrap_or_else(|| panic!("{name}: {report:?}"))
}

fn value<'a>(dimension: &'a DimensionJson, name: &str) -> &'a DimensionValueJson {
    let mut values = dimension.values.iter();
    values.find(|one| one.name.as_deref() == Some(name)).unwrap_or_else(|| panic!("{name}: {dimension:?}"))
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 0.03
}

#[test]
fn the_slowest_operations_are_those_of_one_application() {
    let history = history(|_| vec![SHOP, ETL]);
    let report = different(&history, &AskedDifference::default()).unwrap();
    assert_eq!((report.these, report.rest, report.source), (60 * 5, 60 * 45, "wire"));
    let selected = &report.selected;
    assert!(selected.is_default && selected.high_ns.is_none());
    assert!(selected.low_ns.is_some_and(|low| low < 200 * MS && low > 190 * MS), "{selected:?}");
    assert_eq!((selected.start_ns, selected.end_ns), (SPAN.from.unix_ns(), SPAN.to.unix_ns()));
    let first = &report.dimensions[0];
    assert_eq!((first.dimension, first.difference, first.estimated), ("application", 1.0, 0.0));
    assert_eq!(first.basis, None, "rows by application have histograms of their own");
    let etl = value(first, "etl");
    assert_eq!((etl.these, etl.these_share, etl.rest_share, etl.differs), (300.0, 1.0, 0.0, true));
    assert_eq!(value(dimension(&report, "client"), "10.0.0.1").these, 0.0);
    let same = dimension(&report, "shape");
    assert_eq!((same.difference, same.values.len()), (0.0, 1));
    assert_eq!(same.values[0].shape_id.as_deref(), Some("0000000000000007"));
    assert_eq!(same.values[0].name.as_deref(), Some("find shop.orders"));
    assert_eq!(value(dimension(&report, "server"), "10.0.0.1:27017").rest_share, 1.0);
    assert_eq!(dimension(&report, "time").difference, 0.0, "they are evenly distributed");
    assert!(
        report.notes[0].starts_with("Counted from 60 windows of at least ten seconds"),
        "{:?}",
        report.notes
    );
    // The heat map has all of them.
    let counted: u64 = report.latencies.iter().flatten().map(|cell| cell[1]).sum();
    assert_eq!((counted, report.bounds_ns.len(), report.latencies.len()), (60 * 50, 2, 60));
}

#[test]
fn within_a_shape_the_means_of_applications_tell_which_are_slow() {
    let history = history(|_| vec![SHOP, ETL, Load { latency_ms: 3, client: 3, ..ETL }]);
    let asked = AskedDifference {
        low_ns: Some(100 * MS),
        shape: Some(ShapeId(7)),
        namespace: Some("shop.orders".to_owned()),
        ..AskedDifference::default()
    };
    let report = different(&history, &asked).unwrap();
    assert_eq!((report.these, report.rest), (60 * 5, 60 * 50));
    assert_eq!(report.shape.as_ref().map(|shape| &*shape.typed), Some("{filter: {city: ?string}}"));
    let applications = dimension(&report, "application");
    assert!(applications.estimated > 299.0 && applications.basis.is_some(), "{applications:?}");
    // Half of its operations are slow, and no other ones.
    let etl = value(applications, "etl");
    assert!(close(etl.these_share, 1.0) && close(etl.rest_share, 0.1) && etl.differs, "{etl:?}");
    assert!(close(value(dimension(&report, "client"), "10.0.0.2").these_share, 1.0));
    let elsewhere = AskedDifference { namespace: Some("shop.carts".to_owned()), ..asked };
    let error = different(&history, &elsewhere).unwrap_err();
    assert!(error.to_string().contains("no operation of the shape 0000000000000007"), "{error}");
}

#[test]
fn outcomes_are_divided_in_each_window() {
    // Operations fail in windows in which they are slow.
    let history = history(|second| match second {
        300..360 => vec![Load { latency_ms: 300, code: Some(50), ..SHOP }],
        _ => vec![SHOP],
    });
    let asked = AskedDifference { low_ns: Some(100 * MS), ..AskedDifference::default() };
    let report = different(&history, &asked).unwrap();
    assert_eq!((report.these, report.rest), (6 * 45, 54 * 45));
    let outcomes = dimension(&report, "outcome");
    let failed = value(outcomes, "error 50");
    assert_eq!((failed.these, failed.rest, failed.differs, outcomes.estimated), (270.0, 0.0, true, 0.0));
    // Each of the six windows of that minute has a sixth of the selected operations, and no others.
    let times = dimension(&report, "time");
    assert!((times.difference - 1.0 / 6.0).abs() < 1e-9, "{times:?}");
    let slow = value(times, "2023-11-14T22:05:00Z");
    assert_eq!((slow.these, slow.rest, slow.start_ns), (45.0, 0.0, Some(at(300).unix_ns())));
}

#[test]
fn a_time_is_compared_with_the_rest_of_the_span_in_whole_windows() {
    let history = history(|second| if second < 300 { vec![SHOP] } else { vec![SHOP, ETL] });
    let asked = AskedDifference { start: Some(at(303)), end: Some(at(421)), ..AskedDifference::default() };
    let report = different(&history, &asked).unwrap();
    let selected = &report.selected;
    assert_eq!((selected.start_ns, selected.end_ns), (at(300).unix_ns(), at(430).unix_ns()));
    assert_eq!((selected.low_ns, selected.high_ns, selected.is_default), (None, None, false));
    assert_eq!((report.these, report.rest), (13 * 50, 30 * 45 + 17 * 50));
    let etl = value(dimension(&report, "application"), "etl");
    assert_eq!((etl.these, etl.rest), (13.0 * 5.0, 17.0 * 5.0));
    let times = dimension(&report, "time");
    assert_eq!((times.these, times.rest, times.difference), (650.0, 0.0, 0.0));
}

#[test]
fn plans_are_those_of_logs_and_parts_those_of_threads() {
    let mut history =
        history(|second| if second < 300 { vec![SHOP] } else { vec![Load { latency_ms: 90, ..SHOP }] });
    let (shape, app) = (query(), app("shop", "rust", "3"));
    for (number, stored) in history.windows.iter_mut().enumerate() {
        let is_slow = number >= 30;
        let plan = if is_slow { "COLLSCAN" } else { "IXSCAN { city: 1 }" };
        let execution = Execution { plan, ..Execution::default() };
        let end = stored.window.start.plus_ns(MS);
        let logged = Operation {
            latency_ns: Some(if is_slow { 90 * MS } else { 3 * MS }),
            ..operation(&shape, &app, end)
        };
        for _ in 0..3 {
            let record = Record::server(Source::Log, &logged, &execution).read_as(Identity::Exact, 1);
            stored.window.record_server(&record);
        }
        let mut thread = thread_operation(1, 1_000);
        thread.duration_ns = 90 * MS;
        thread.split[if is_slow { TimePart::Read } else { TimePart::Cpu }] = 90 * MS;
        let wire = WireOperation { shape: Arc::clone(&shape), ..wire_operation(1, 1_000) };
        let joined = JoinedOperation { wire, thread };
        let (split, _) = stored.window.shapes.split_of(&joined.wire).unwrap();
        (0..20).for_each(|_| split.record(&joined, &[], &mut |_, _| "".into()));
    }
    let asked = AskedDifference { low_ns: Some(50 * MS), ..AskedDifference::default() };
    let report = different(&history, &asked).unwrap();
    assert_eq!(report.source, "wire");
    let plans = dimension(&report, "plan");
    let scan = value(plans, "COLLSCAN");
    assert_eq!((scan.these, scan.rest, scan.differs), (90.0, 0.0, true));
    assert!(plans.basis.is_some_and(|basis| basis.contains("whose plan a log has")));
    let parts = dimension(&report, "part");
    assert_eq!(parts.unit, "ns");
    let read = value(parts, "waiting for reads of files");
    assert!(close(read.these_share, 1.0) && close(read.rest_share, 0.0) && read.differs, "{parts:?}");
}

#[test]
fn what_selects_nothing_is_refused() {
    let history = history(|_| vec![SHOP]);
    let none = AskedDifference::default();
    for asked in [
        AskedDifference { low_ns: Some(5), high_ns: Some(5), ..none.clone() },
        AskedDifference { start: Some(at(300)), end: Some(at(300)), ..none.clone() },
        AskedDifference { start: Some(at(9_000)), ..none.clone() },
    ] {
        let error = different(&history, &asked).unwrap_err();
        assert!(error.is_wrong_question(), "{asked:?}: {error}");
    }
    let unknown = AskedDifference { shape: Some(ShapeId(8)), ..none.clone() };
    assert!(matches!(different(&history, &unknown), Err(PastError::NothingStored(_))));
    // Nothing took that long: that is an answer.
    let slow = AskedDifference { low_ns: Some(5_000 * MS), ..none };
    let report = different(&history, &slow).unwrap();
    assert_eq!((report.these, report.rest), (0, 60 * 45));
    assert!(
        report.notes.iter().any(|note| note.starts_with("With fewer than 20 operations")),
        "{:?}",
        report.notes
    );
    assert!(report.dimensions.iter().all(|one| one.difference == 0.0));
}
