//! Windows keep to their bytes, and lose nothing but names.

use std::sync::Arc;

use sonar_core::history::{Resolution, SeriesKey, SeriesSubject};
use sonar_core::testing::operation;
use sonar_core::time::NS_PER_S;
use sonar_core::window::WindowSettings;
use sonar_core::{
    Application, Class, Endpoint, HistoryWindow, InFlightOperations, Operation, Role, ShapeId, ShapeInfo,
    Timestamp, Window,
};

const MIB: usize = 1 << 20;

/// Records operations, of which each has the shape, the application and the client with its number, and a latency that no
/// other one has.
fn record(window: &mut Window, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let shape = Arc::new(ShapeInfo { id: ShapeId(number + 1), ..ShapeInfo::default() });
        let app = Arc::new(Application { name: format!("app {number}").into(), ..Application::default() });
        let latency_ns = 1_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (100 * NS_PER_S);
        let start = window.start.plus_ns(NS_PER_S);
        window.record(&Operation {
            start,
            end: start.plus_ns(latency_ns),
            latency_ns: Some(latency_ns),
            client: Endpoint::v4([10, (number >> 16) as u8, (number >> 8) as u8, number as u8], 40_000),
            ..operation(&shape, &app)
        });
    }
}

fn window(max_bytes: usize) -> Window {
    let settings = WindowSettings { max_bytes, ..WindowSettings::default() };
    Window::new(Timestamp::from_unix(1_000, 0), settings)
}

/// Operations in all rows, and in those of shapes with a name.
fn calls(window: &Window) -> (u64, u64) {
    let of = |named: bool| {
        let rows = window.shapes.iter().filter(|row| !named || row.shape().id != ShapeId(0));
        rows.map(|row| row.figures().calls).sum()
    };
    (of(false), of(true))
}

#[test]
fn a_window_keeps_to_its_bytes_while_it_is_recorded_and_loses_no_operation() {
    let mut bounded = window(2 * MIB);
    let mut most = 0;
    for first in (0..30_000).step_by(100) {
        record(&mut bounded, first..first + 100);
        most = most.max(bounded.memory());
    }
    assert!(most < 2 * MIB + MIB / 2, "{most} bytes");
    let (all, named) = calls(&bounded);
    assert_eq!(all, 30_000);
    assert_eq!(bounded.coverage.shapes_folded, all - named, "what is under `other` is counted");
    assert!(named > 500, "{named}");
    let groups: u64 = bounded.apps.iter().map(|row| row.figures().calls).sum();
    assert_eq!(groups, 30_000);
    // Without a bound there are as many as the tables take.
    let mut unbounded = window(usize::MAX);
    record(&mut unbounded, 0..30_000);
    assert_eq!(calls(&unbounded), (30_000, sonar_core::table::MAX_ROWS as u64));
    assert!(unbounded.memory() > 4 * most);
}

#[test]
fn rows_with_the_fewest_operations_give_way() {
    let mut window = window(usize::MAX);
    record(&mut window, 0..4_000);
    for _ in 0..5 {
        record(&mut window, 3_900..4_000);
    }
    let before = window.totals(&Class::ALL);
    window.limit(MIB);
    assert!(window.memory() <= MIB, "{}", window.memory());
    assert_eq!(window.totals(&Class::ALL).calls, before.calls);
    assert_eq!(window.totals(&Class::ALL).latency, before.latency, "the distribution is the same");
    let kept: Vec<u64> =
        window.shapes.iter().filter(|row| row.figures().calls == 6).map(|row| row.shape().id.0).collect();
    assert_eq!(kept.len(), 100, "each of the frequent ones");
    // What is new from now on is `other`, and what is known goes on.
    record(&mut window, (0..100).chain(3_999..4_000));
    assert!(window.shapes.iter().any(|row| row.shape().id == ShapeId(4_000) && row.figures().calls == 7));
    let (all, named) = calls(&window);
    assert_eq!((all, window.coverage.shapes_folded), (4_601, all - named));
    // Nothing is done to what fits.
    let (rows, folded) = (window.shapes.len(), window.coverage.shapes_folded);
    window.limit(MIB);
    assert_eq!((window.shapes.len(), window.coverage.shapes_folded), (rows, folded));
}

#[test]
fn operations_in_flight_give_way_to_others() {
    let mut window = window(usize::MAX);
    window.in_flight = (1..=5_000)
        .map(|number| InFlightOperations {
            server: Endpoint::default(),
            role: Role::Served,
            class: Class::User,
            shape: Arc::new(ShapeInfo { id: ShapeId(number), ..ShapeInfo::default() }),
            count: number,
            oldest_ns: 10 * number,
            oldest: Vec::new(),
        })
        .collect();
    let count = |window: &Window| window.in_flight.iter().map(|one| one.count).sum::<u64>();
    let before = count(&window);
    window.limit(64 << 10);
    assert!(window.memory() <= 64 << 10);
    assert_eq!(count(&window), before);
    assert!(window.in_flight.iter().any(|one| one.shape.id == ShapeId(5_000)));
    let other = window.in_flight.iter().find(|one| one.shape.id == ShapeId(0)).unwrap();
    assert!(other.oldest_ns > 40_000);
}

#[test]
fn series_of_single_files_give_way_first_and_what_is_left_out_is_counted() {
    let mut window = HistoryWindow::new(Timestamp::from_unix(1_000, 0), Resolution::TenSeconds);
    let server = Endpoint::v4([10, 0, 0, 1], 27_017);
    for number in 0..2_000 {
        for subject in [SeriesSubject::Server, SeriesSubject::File] {
            let name = format!("collection-{number}.wt").into();
            let key = SeriesKey { subject, server, name, metric: "read.bytes".into() };
            window.sample(&key, window.window.start, 1.0, 1.0);
        }
    }
    record(&mut window.window, 0..3_000);
    window.limit(2 * MIB);
    assert!(window.memory() <= 2 * MIB, "{}", window.memory());
    let of = |subject| window.series.keys().filter(|key| key.subject == subject).count() as u64;
    assert_eq!(of(SeriesSubject::Server), 2_000);
    assert_eq!((of(SeriesSubject::File) + window.series_left_out), 2_000);
    assert!(window.series_left_out > 0);
    assert_eq!(calls(&window.window).0, 3_000);
}
