//! Waits, series and events of a history in memory.

use std::sync::Arc;

use sonar_core::history::{
    CollectorKind, Event, EventKind, HistoryWindow, Resolution, SeriesSubject, Span, metrics,
};
use sonar_core::testing::{MemoryHistory, thread_operation, wire_operation};
use sonar_core::time_split::{ClassifiedWait, JoinedOperation, TimePart, WaitTotal};
use sonar_core::{Endpoint, ShapeId, ShapeInfo, Timestamp};
use sonar_view::kit::Zone;
use sonar_view::past::all_series::{self, SeriesFilter};
use sonar_view::past::events::{self, EventFilter};
use sonar_view::past::{HistoryView, waits};

/// 2023-11-14T22:00:00Z.
const START: u64 = 1_699_999_200;
const SECOND: u64 = 1_000_000_000;

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(START + second, 0)
}

/// A window of ten seconds in which `operations` operations computed for 3 s and waited for a ticket for 5 s.
fn window(second: u64, operations: u32) -> HistoryWindow {
    let mut window = HistoryWindow::new(at(second), Resolution::TenSeconds);
    window.observe(CollectorKind::Split, 10 * SECOND);
    window.observe(CollectorKind::Machine, 10 * SECOND);
    window.sample(&metrics::CPU_COUNT.key(Endpoint::default(), ""), at(second + 5), 2.0, 10.0);
    window.sample(&metrics::CPU_BUSY.key(Endpoint::default(), ""), at(second + 5), second as f64, 10.0);
    window.sample(&metrics::DISK_READS.key(Endpoint::default(), "sda"), at(second + 5), 7.0, 10.0);
    for number in 1..=operations {
        let mut thread = thread_operation(number, 1_000);
        thread.duration_ns = 8 * SECOND;
        thread.split = Default::default();
        thread.split[TimePart::Cpu] = 3 * SECOND;
        thread.split[TimePart::Futex] = 5 * SECOND;
        let operation = JoinedOperation { wire: wire_operation(number, 1_000), thread };
        let wait =
            ClassifiedWait { part: TimePart::Futex, class: "execution ticket".into(), wait_ns: 4 * SECOND };
        let (split, _) = window.window.shapes.split_of(&operation.wire).unwrap();
        split.record(&operation, &[wait], &mut |_, _| "shop.orders".into());
        let blocker = ShapeInfo { id: ShapeId(9), command: "update".into(), ..ShapeInfo::default() };
        split.add_blocker(&Arc::new(blocker), WaitTotal { waits: 1, wait_ns: SECOND });
    }
    window
}

/// Two operations a window; a minute in its middle was not observed.
fn history() -> MemoryHistory {
    let windows = (0..600).step_by(10).filter(|second| !(240..300).contains(second));
    let events = [
        (100, EventKind::ServerStart, "version 7.0.5"),
        (200, EventKind::AgentStart, "version 1.0.0"),
        (300, EventKind::AgentStart, "version 1.0.1"),
    ];
    MemoryHistory {
        windows: windows.map(|second| window(second, 2)).collect(),
        events: events
            .map(|(second, kind, detail)| Event::new(at(second), kind, Endpoint::default(), detail))
            .to_vec(),
        ..MemoryHistory::default()
    }
}

fn view(history: &MemoryHistory) -> HistoryView<'_> {
    HistoryView::new(history, "memory", at(600)).unwrap()
}

const SPAN: Span = Span { from: Timestamp::from_unix(START, 0), to: Timestamp::from_unix(START + 600, 0) };

#[test]
fn waits_are_operations_at_once_and_what_was_not_observed_is_unknown() {
    let history = history();
    let report = waits::report(&view(&history), SPAN, &Zone::utc()).unwrap();
    assert_eq!((report.operations, report.processors, report.gaps.len()), (108, Some(2.0), 1));
    let lane = |name: &str| report.lanes.iter().find(|lane| lane.part.name() == name).unwrap();
    assert_eq!(report.lanes[0].part.name(), "futex", "the largest is first");
    assert_eq!(lane("futex").ns, 108 * 5 * SECOND);
    // Two operations that compute for 3 s each in 10 s.
    assert_eq!((lane("cpu").values[0], lane("futex").values[0]), (Some(0.6), Some(1.0)));
    assert_eq!(lane("cpu").values.len(), 60);
    assert!(lane("cpu").values[24..30].iter().all(Option::is_none));
    let [class] = &report.classes[..] else { panic!("{:?}", report.classes) };
    assert_eq!((class.class.as_deref(), class.waits), (Some("execution ticket"), 108));
    assert_eq!(class.values[0], Some(0.8));
    let [blocker] = &report.blockers[..] else { panic!("{:?}", report.blockers) };
    assert_eq!((&*blocker.command, blocker.waits, blocker.wait_ns), ("update", 108, 108 * SECOND));
}

#[test]
fn series_are_found_by_what_they_are_about_and_by_words() {
    let history = history();
    let all = |subject, text: &str, limit| {
        let filter = SeriesFilter { subject, text: text.to_owned(), limit };
        all_series::report(&view(&history), SPAN, &filter, &Zone::utc()).unwrap()
    };
    let names = |report: &all_series::AllSeriesReport| {
        report.series.iter().map(|one| one.metric.clone()).collect::<Vec<_>>()
    };
    assert_eq!(all(None, "", 100).series.len(), 3);
    assert_eq!(names(&all(Some(SeriesSubject::Device), "", 100)), [metrics::DISK_READS.name]);
    let found = all(None, "SDA disk", 100);
    assert_eq!(names(&found), [metrics::DISK_READS.name]);
    assert_eq!(found.subjects.into_iter().collect::<Vec<_>>(), ["device", "machine"], "all can be chosen");
    let busy = all(None, "cpu.busy", 100);
    assert_eq!(names(&busy), [metrics::CPU_BUSY.name]);
    let series = &busy.series[0];
    assert_eq!((series.min, series.max, series.values[1]), (0.0, 590.0, Some(10.0)));
    assert!(series.values[24..30].iter().all(Option::is_none) && series.values.len() == 60);
    assert!(!series.meaning.is_empty());
    let first = all(None, "", 1);
    assert_eq!((first.series.len(), first.left_out), (1, 2));
}

#[test]
fn events_are_found_by_kind_and_by_words_and_the_latest_stay() {
    let history = history();
    let found = |kind, text: &str, limit| {
        let filter = EventFilter { kind, text: text.to_owned(), limit };
        events::report(&view(&history), SPAN, &filter, &Zone::utc()).unwrap()
    };
    let times = |report: &events::EventsReport| {
        report.events.iter().map(|event| event.time_ns / SECOND - START).collect::<Vec<_>>()
    };
    let all = found(None, "", 10);
    assert_eq!(times(&all), [100, 200, 300]);
    assert_eq!(all.kinds[EventKind::AgentStart.name()], 2);
    let of_kind = found(Some(EventKind::AgentStart), "", 10);
    assert_eq!((times(&of_kind), of_kind.kinds.len()), (vec![200, 300], 2), "all kinds can be chosen");
    assert_eq!(times(&found(None, "VERSION 1.0.1", 10)), [300]);
    let latest = found(None, "", 1);
    assert_eq!((times(&latest), latest.left_out), (vec![300], 2));
}
