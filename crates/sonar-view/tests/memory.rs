//! What the live view holds with two thousand shapes, counted by the allocator.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../examples/synthetic/mod.rs"]
mod synthetic;

use std::sync::Arc;

use peak_alloc::PeakAlloc;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sonar_core::window::WindowSettings;
use sonar_core::{Operation, Timestamp, Window};
use sonar_view::queries::live::{App, LiveSettings};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

#[test]
fn two_thousand_shapes_stay_below_25_mib() {
    let apps: Vec<_> = (0..8).map(|n| synthetic::app(&format!("app-{n}"), "PyMongo", "4.7.3")).collect();
    let shapes: Vec<_> = (1..=2_000u64)
        .map(|id| {
            let typed = format!("{{filter: {{field_{id}: ?number, status: {{$in: ?array<?string>}}}}}}");
            synthetic::shape(id, "find", &format!("shop.collection_{}", id % 300), &typed, &typed)
        })
        .collect();
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let mut app = App::new(LiveSettings::default());
    let mut terminal = Terminal::new(TestBackend::new(200, 50)).unwrap();
    for second in 0..13u64 {
        let start = Timestamp::from_unix(1_777_629_600 + second, 0);
        let mut window = Window::new(start, WindowSettings::default());
        for (at, shape) in shapes.iter().enumerate() {
            let at = at as u64;
            let op = operation(shape, &apps[(at % 8) as usize], start);
            // From 100 µs to some 300 ms, another one each second: a broad histogram for each shape.
            let latency_ns = Some(100_000 << ((at + second) % 12));
            window.record(&Operation { latency_ns, ..op });
            window.record(&Operation { latency_ns: latency_ns.map(|ns| ns * 5 / 4), ..op });
        }
        window.end = start.plus_ns(1_000_000_000);
        app.window(window);
        if second % 4 == 0 {
            terminal.draw(|frame| app.draw(frame)).unwrap();
        }
    }
    let (held, most) = (ALLOCATOR.current_usage() - before, ALLOCATOR.peak_usage() - before);
    eprintln!("held {} KiB, at most {} KiB", held / 1_024, most / 1_024);
    assert!(most < 25 << 20, "held {held}, at most {most}");
    assert!(held > 1 << 20, "the view holds its rows: {held}");
}

fn operation<'a>(
    shape: &'a Arc<sonar_core::ShapeInfo>,
    app: &'a Arc<sonar_core::Application>,
    start: Timestamp,
) -> Operation<'a> {
    synthetic::operation(shape, app, start.plus_ns(500_000_000))
}
