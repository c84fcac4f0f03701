//! What several fuzz targets share: an input read piece by piece, and what a decoder hears of packets.

use std::sync::Arc;

use sonar_core::{Operation, Timestamp};
use sonar_decode::testing::OwnedPacket;
use sonar_decode::{Decoder, Settings, Shared, Sink};

/// An input that is read piece by piece; past its end it gives zeros.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next two bytes as a number.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next `len` bytes, or what is left.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What must not depend on how a message was cut into packets.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of the shape.
    pub shape_id: u64,
    /// With every order as sent.
    pub ordered_id: u64,
    /// Everything else that does not depend on time.
    pub rest: String,
}

/// All operations.
#[derive(Default)]
pub struct Operations(pub Vec<Seen>);

impl Sink for Operations {
    fn operation(&mut self, op: &Operation<'_>) {
        assert!(op.end >= op.start || op.latency_ns.is_none(), "ended before it began");
        self.0.push(Seen {
            shape_id: op.shape.id.0,
            ordered_id: op.ordered_id.0,
            rest: format!(
                "{} {:?} {:?} {:?} {} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {:?}",
                op.command,
                op.shape,
                op.class,
                op.statements,
                op.statement_count,
                op.opcode,
                op.compressor,
                op.request_id,
                op.cursor_id,
                (op.request_bytes, op.response_bytes),
                (op.docs_returned, op.docs_matched, op.docs_affected),
                op.outcome,
                op.values,
                op.app,
            ),
        });
    }
}

/// Decodes the packets, checks after each that the counters balance, and returns the operations.
pub fn decode(packets: &[OwnedPacket]) -> Vec<Seen> {
    let settings = Settings { show_values: true, ..Settings::default() };
    let mut decoder = Decoder::new(settings, Arc::new(Shared::default()));
    let mut operations = Operations::default();
    let mut last = Timestamp::default();
    for packet in packets {
        if packet.time.since(last) > 1_000_000_000 {
            decoder.tick(packet.time, &mut operations);
        }
        last = last.max(packet.time);
        decoder.packet(&packet.as_packet(), &mut operations);
        balanced(&decoder);
    }
    decoder.finish(last, &mut operations);
    balanced(&decoder);
    let left = decoder.in_progress();
    assert_eq!(left, Default::default(), "something goes on after the end");
    operations.0
}

fn balanced(decoder: &Decoder) {
    let imbalances = decoder.coverage().imbalances(decoder.in_progress());
    assert!(imbalances.is_empty(), "{imbalances:?}\n{:#?}\n{:?}", decoder.coverage(), decoder.in_progress());
}

/// A message with a true length.
pub fn message(request_id: u32, response_to: u32, opcode: i32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + body.len());
    out.extend((16 + body.len() as u32).to_le_bytes());
    out.extend(request_id.to_le_bytes());
    out.extend(response_to.to_le_bytes());
    out.extend(opcode.to_le_bytes());
    out.extend(body);
    out
}
