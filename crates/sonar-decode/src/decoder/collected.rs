//! Collects what a decoder emits, for the tests of its modules.

use std::sync::Arc;

use bson::Document;
use sonar_core::{Coverage, Operation, Timestamp, Window, window::WindowSettings};

use super::{Decoder, Settings, Sink};
use crate::Shared;
use crate::testing::{OwnedPacket, op_msg};

/// An OP_MSG of one document.
pub fn message(id: u32, response_to: u32, document: &Document) -> Vec<u8> {
    op_msg(id, response_to, &document.to_vec().unwrap())
}

/// All operations, and their window.
pub struct Collected {
    /// Request id, command and outcome.
    pub operations: Vec<(u32, String, &'static str)>,
    pub window: Window,
    pub coverage: Coverage,
}

impl Default for Collected {
    fn default() -> Self {
        let settings = WindowSettings { sample: 1, split_by_order: false, ..WindowSettings::default() };
        let window = Window::new(Timestamp::default(), settings);
        Self { operations: Vec::new(), window, coverage: Coverage::default() }
    }
}

impl Sink for Collected {
    fn operation(&mut self, op: &Operation<'_>) {
        self.operations.push((op.request_id, op.command.into(), op.outcome.name()));
        self.window.record(op);
    }
}

/// Decodes these packets; the capture ends a second after the last.
pub fn collect<'a>(packets: impl IntoIterator<Item = &'a OwnedPacket>) -> Collected {
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let mut seen = Collected::default();
    let mut last = Timestamp::default();
    for packet in packets {
        decoder.packet(&packet.as_packet(), &mut seen);
        last = packet.time;
    }
    assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    decoder.finish(last.plus_ns(1_000_000_000), &mut seen);
    seen.coverage = decoder.coverage();
    assert_eq!(seen.coverage.imbalances(decoder.in_progress()), []);
    seen
}
