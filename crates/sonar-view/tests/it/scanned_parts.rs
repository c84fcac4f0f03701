//! A long span is scanned in parts, and what was found in them is kept.

use std::cell::Cell;

use crate::synthetic::{app, operation, shape};
use sonar_core::history::{
    CollectorKind, Event, EventKind, HistoryError, HistoryReader, HistoryWindow, ObservedSpan, Resolution,
    Span,
};
use sonar_core::testing::MemoryHistory;
use sonar_core::{Endpoint, Operation, Timestamp};
use sonar_view::kit::Zone;
use sonar_view::past::what_changed::{AskedChanges, AskedTime, prepare, report};
use sonar_view::past::{HistoryView, ScannedParts};

/// 2023-11-14T22:00:00Z: the start of an hour, and of a part.
const START: u64 = 1_699_999_200;
const MS: u64 = 1_000_000;
/// The length of the history in seconds: 1,000 windows in 17 parts.
const LENGTH: u64 = 10_000;

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(START + second, 0)
}

fn span(from: u64, to: u64) -> Span {
    Span { from: at(from), to: at(to) }
}

/// Runs a query `calls` times in the window at `second`.
fn run(window: &mut HistoryWindow, second: u64, number: u64, calls: u64) {
    let namespace = format!("shop.orders{number}");
    let (shape, app) = (shape(number, "find", &namespace, "{}", "{}"), app("api", "rust", "3"));
    for call in 0..calls {
        let latency_ns = Some((3_000 + call % 7 * 100) * 1_000);
        let operation = operation(&shape, &app, at(second).plus_ns(call * MS));
        window.window.record(&Operation { latency_ns, ..operation });
    }
}

/// A query that always runs, one that begins in the last window of a part, one that begins in the first window of another,
/// and nothing in between that was not observed.
fn history() -> MemoryHistory {
    let windows = (0..LENGTH).step_by(10).filter(|second| !(7_000..7_100).contains(second)).map(|second| {
        let mut window = HistoryWindow::new(at(second), Resolution::TenSeconds);
        window.observe(CollectorKind::Queries, 10_000 * MS);
        run(&mut window, second, 1, 50);
        if (2_990..3_600).contains(&second) {
            run(&mut window, second, 2, 200);
        }
        if (5_400..5_500).contains(&second) {
            run(&mut window, second, 3, 300);
        }
        window
    });
    MemoryHistory { windows: windows.collect(), ..MemoryHistory::default() }
}

/// Counts the windows that are read with all that is in them.
struct CountingHistory<'a> {
    history: &'a MemoryHistory,
    read: Cell<usize>,
}

impl HistoryReader for CountingHistory<'_> {
    fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), HistoryError> {
        self.history.windows(span, resolution, &mut |window| {
            self.read.set(self.read.get() + 1);
            visit(window);
        })
    }

    fn observed(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(ObservedSpan),
    ) -> Result<(), HistoryError> {
        self.history.observed(span, resolution, visit)
    }

    fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError> {
        self.history.events(span)
    }

    fn extent(&self) -> Result<Option<Span>, HistoryError> {
        self.history.extent()
    }
}

/// What changed in a span, and how many windows were read for it.
struct Answer {
    document: serde_json::Value,
    read: usize,
}

fn changes(history: &MemoryHistory, span: Span, parts: Option<&ScannedParts>) -> Answer {
    let reader = CountingHistory { history, read: Cell::new(0) };
    let view = HistoryView::new(&reader, "memory", at(LENGTH)).unwrap();
    let view = match parts {
        Some(parts) => view.with_scanned_parts(parts),
        None => view,
    };
    let asked = AskedChanges { when: AskedTime::Span(span), against: None };
    let document = serde_json::to_value(report(&view, &asked, &Zone::utc()).unwrap()).unwrap();
    Answer { document, read: reader.read.get() }
}

#[test]
fn what_is_kept_answers_like_the_history_and_reads_less_of_it() {
    let (history, parts) = (history(), ScannedParts::default());
    for (from, to) in [(0, LENGTH), (0, LENGTH), (1_230, LENGTH), (10, 5_000), (600, 9_000)] {
        let (known, new) =
            (changes(&history, span(from, to), Some(&parts)), changes(&history, span(from, to), None));
        assert_eq!(known.document, new.document, "{from} to {to}");
        let moments = new.document["moments"].to_string();
        assert!(moments.contains("shop.orders2"), "{from} to {to}: {moments}");
        assert_eq!(moments.contains("shop.orders3"), to > 5_400, "{from} to {to}: {moments}");
    }
    let whole = span(0, LENGTH);
    let (known, new) = (changes(&history, whole, Some(&parts)).read, changes(&history, whole, None).read);
    assert!(10 * known < new, "{known} of {new} windows");
}

#[test]
fn a_part_is_scanned_again_when_the_history_says_more_of_its_time() {
    let (mut history, parts) = (history(), ScannedParts::default());
    let whole = span(0, LENGTH);
    let before = changes(&history, whole, Some(&parts));
    // An event that the log had, which was read later.
    let drop = Event::new(at(2_985), EventKind::IndexDrop, Endpoint::v4([10, 0, 0, 1], 27_017), "");
    history.events.push(drop.about("shop.orders2 a_1"));
    let after = changes(&history, whole, Some(&parts));
    assert_ne!(after.document, before.document);
    assert_eq!(after.document, changes(&history, whole, None).document);
    // Windows that were stored later.
    let place = history.windows.iter().position(|window| window.window.start > at(7_000)).unwrap();
    let mut late = HistoryWindow::new(at(7_050), Resolution::TenSeconds);
    late.observe(CollectorKind::Queries, 10_000 * MS);
    run(&mut late, 7_050, 4, 900);
    history.windows.insert(place, late);
    assert_eq!(changes(&history, whole, Some(&parts)).document, changes(&history, whole, None).document);
}

#[test]
fn parts_are_prepared_before_anybody_asks() {
    let (history, parts) = (history(), ScannedParts::default());
    let view = HistoryView::new(&history, "memory", at(LENGTH)).unwrap().with_scanned_parts(&parts);
    let prepared = std::iter::from_fn(|| prepare(&view).unwrap().then_some(())).take(100).count();
    // Those of ten seconds and of minutes that nothing can be added to.
    assert_eq!(prepared, 16 + 2);
    let whole = span(0, LENGTH);
    let (known, new) = (changes(&history, whole, Some(&parts)), changes(&history, whole, None));
    assert_eq!(known.document, new.document);
    assert!(10 * known.read < new.read, "{} of {} windows", known.read, new.read);
    // Without a place to keep them, there is nothing to prepare.
    assert!(!prepare(&HistoryView::new(&history, "memory", at(LENGTH)).unwrap()).unwrap());
}
