//! The fuzz targets, and what several of them share: an input read piece by piece, and what a decoder says of packets.

pub mod mutate;
pub mod targets;

use std::sync::Arc;

use sonar_core::{Operation, Timestamp};
use sonar_decode::testing::OwnedPacket;
use sonar_decode::{Decoder, Settings, Shared, Sink, TlsSource};

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
    let mut checked = CheckedDecoder::new(TlsSource::None);
    for packet in packets {
        checked.take(packet.time, |decoder, operations| decoder.packet(&packet.as_packet(), operations));
    }
    checked.finish()
}

/// A decoder whose counters must balance after each step.
pub struct CheckedDecoder {
    decoder: Decoder,
    operations: Operations,
    last: Timestamp,
}

impl CheckedDecoder {
    /// One that shows values.
    pub fn new(tls: TlsSource) -> Self {
        Self::with(Settings { tls, ..Settings::default() })
    }

    /// One with these settings that shows values.
    pub fn with(settings: Settings) -> Self {
        let settings = Settings { show_values: true, ..settings };
        let decoder = Decoder::new(settings, Arc::new(Shared::default()));
        Self { decoder, operations: Operations::default(), last: Timestamp::default() }
    }

    /// Takes what came at this time.
    pub fn take(&mut self, time: Timestamp, step: impl FnOnce(&mut Decoder, &mut Operations)) {
        if time.since(self.last) > 1_000_000_000 {
            self.decoder.tick(time, &mut self.operations);
        }
        self.last = self.last.max(time);
        step(&mut self.decoder, &mut self.operations);
        balanced(&self.decoder);
    }

    /// Ends, and returns the operations.
    pub fn finish(mut self) -> Vec<Seen> {
        self.decoder.finish(self.last, &mut self.operations);
        balanced(&self.decoder);
        let left = self.decoder.in_progress();
        assert_eq!(left, Default::default(), "something goes on after the end");
        self.operations.0
    }
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

/// Finds of one client (0), or the server's answers to them (1).
pub fn conversation(side: usize) -> Vec<u8> {
    let find = b"\x23\0\0\0\x02find\0\x02\0\0\0c\0\x02$db\0\x02\0\0\0d\0\x10limit\0\x05\0\0\0\0";
    let reply = b"\x11\0\0\0\x01ok\0\0\0\0\0\0\0\xf0\x3f\0";
    let document = |body: &[u8]| {
        // The length is set here, so that the literals need not be counted.
        let mut body = body.to_vec();
        let len = (body.len() as u32).to_le_bytes();
        body[..4].copy_from_slice(&len);
        [&[0; 5][..], &body].concat()
    };
    (1..40_u32)
        .flat_map(|n| match side {
            0 => message(n, 0, 2013, &document(find)),
            _ => message(1_000 + n, n, 2013, &document(reply)),
        })
        .collect()
}
