//! Any bytes as a stored window: no panic, bounded needs; what can be read can be written and read again.

use std::sync::Arc;

use sonar_core::history::{SeriesKey, SeriesSubject, Span};
use sonar_core::operation::Application;
use sonar_core::{Endpoint, ShapeId, ShapeInfo, Timestamp};
use sonar_store::StoredWindow;
use sonar_store::format::{Layout, NumberLookup, Numbering, blob_of, decode, encode};

/// Takes an input.
pub fn run(input: &[u8]) {
    let from = Timestamp::from_unix(1_795_219_200, 0);
    let span = Span { from, to: from.plus_ns(10_000_000_000) };
    let mut part = StoredWindow::spanning(span);
    let _ = decode(input, span, &EveryNumber, &mut part);
    // Hardly any input has the right checksum.
    let mut part = StoredWindow::spanning(span);
    if decode(&blob_of(input), span, &EveryNumber, &mut part).is_ok() {
        let blob = encode(&part, &mut EveryNumber, 1).expect("no larger than what was read");
        let mut again = StoredWindow::spanning(span);
        let _ = decode(&blob, span, &EveryNumber, &mut again);
        assert!(again.window.window.shapes.len() <= part.window.window.shapes.len());
        // Into a window that has everything already.
        let _ = decode(&blob, span, &EveryNumber, &mut part);
    }
}

/// Everything has a number, and every number stands for something.
struct EveryNumber;

impl NumberLookup for EveryNumber {
    fn shape(&self, number: u32) -> Option<Arc<ShapeInfo>> {
        Some(Arc::new(ShapeInfo { id: ShapeId(number.into()), ..ShapeInfo::default() }))
    }

    fn order(&self, number: u32) -> Option<ShapeId> {
        Some(ShapeId(number.into()))
    }

    fn application(&self, number: u32) -> Option<Arc<Application>> {
        Some(Arc::new(Application { name: number.to_string().into(), ..Application::default() }))
    }

    fn text(&self, number: u32) -> Option<Arc<str>> {
        Some(number.to_string().into())
    }

    fn series(&self, number: u32) -> Option<Arc<SeriesKey>> {
        let (subject, server) = (SeriesSubject::Machine, Endpoint::default());
        Some(Arc::new(SeriesKey { subject, server, name: "".into(), metric: number.to_string().into() }))
    }

    fn layout(&self, _: u32) -> Option<Arc<Layout>> {
        Some(Arc::new(Layout::parse(&Layout::current())))
    }
}

impl Numbering for EveryNumber {
    fn shape(&mut self, shape: &Arc<ShapeInfo>) -> Option<u32> {
        u32::try_from(shape.id.0).ok()
    }

    fn order(&mut self, order: ShapeId) -> Option<u32> {
        u32::try_from(order.0).ok()
    }

    fn application(&mut self, application: &Arc<Application>) -> Option<u32> {
        application.name.parse().ok()
    }

    fn text(&mut self, text: &str) -> Option<u32> {
        text.parse().ok()
    }

    fn series(&mut self, key: &SeriesKey) -> Option<u32> {
        key.metric.parse().ok()
    }

    fn layout(&self) -> u32 {
        1
    }
}
