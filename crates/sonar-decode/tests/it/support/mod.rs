//! Recordings of a real server, and the operations that a decoder finds in packets.

use std::sync::Arc;

use sonar_core::{Class, Coverage, LinkType, Operation, Outcome, Packet, Role, Timestamp};
use sonar_decode::testing::fixtures::inflated;
use sonar_decode::{Decoder, Settings, Shared, Sink};

/// A packet of a recording.
#[derive(Clone)]
pub struct Recorded {
    pub time: Timestamp,
    pub data: Vec<u8>,
    /// Bytes that the capture cut off.
    pub cut: u32,
}

/// The packets of a recording, which is a little-endian pcap file with microseconds.
pub fn packets(recording: &str) -> Vec<Recorded> {
    let file = inflated(&format!("{recording}/wire.pcap.gz"));
    assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let length = word(at + 8) as usize;
        packets.push(Recorded {
            time: Timestamp::from_unix(u64::from(word(at)), word(at + 4) * 1_000),
            data: file[at + 16..at + 16 + length].to_vec(),
            cut: 0,
        });
        at += 16 + length;
    }
    packets
}

impl Recorded {
    /// As a decoder takes it.
    pub fn as_packet(&self) -> Packet<'_> {
        Packet {
            time: self.time,
            link: LinkType::Ethernet,
            interface: 0,
            direction: Default::default(),
            loopback: false,
            vlan_tci: None,
            wire_len: self.data.len() as u32 + self.cut,
            data: &self.data,
        }
    }
}

/// What is kept of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub command: String,
    pub shape_command: String,
    pub namespace: String,
    pub shape: u64,
    pub ordered: u64,
    pub outcome: &'static str,
    pub codes: Vec<(i32, u32)>,
    pub latency_ns: Option<u64>,
    pub returned: Option<u64>,
    pub matched: Option<u64>,
    pub affected: Option<u64>,
    pub cursor: Option<i64>,
    pub app: String,
    pub class: Class,
    pub role: Role,
    pub port: u16,
    pub client: u16,
    pub statements: u32,
    pub bytes: [u64; 2],
    pub request_id: u32,
    pub typed: String,
}

#[derive(Default)]
struct All(Vec<Seen>);

impl Sink for All {
    fn operation(&mut self, op: &Operation<'_>) {
        self.0.push(Seen {
            command: op.command.into(),
            shape_command: op.shape.command.to_string(),
            namespace: op.shape.namespace(),
            shape: op.shape.id.0,
            ordered: op.ordered_id.0,
            outcome: op.outcome.name(),
            codes: match op.outcome {
                Outcome::Failed(errors) => errors.codes.to_vec(),
                _ => Vec::new(),
            },
            latency_ns: op.latency_ns,
            returned: op.docs_returned,
            matched: op.docs_matched,
            affected: op.docs_affected,
            cursor: op.cursor_id,
            app: op.app.label(),
            class: op.class,
            role: op.role,
            port: op.server.port,
            client: op.client.port,
            statements: op.statement_count,
            bytes: [op.request_bytes, op.response_bytes],
            request_id: op.request_id,
            typed: op.shape.typed.to_string(),
        });
    }
}

pub fn operations(packets: &[Recorded]) -> (Vec<Seen>, Coverage) {
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let mut all = All::default();
    let mut second = 0;
    let mut last = Timestamp::default();
    for packet in packets {
        last = packet.time;
        if last.unix_ns() / 1_000_000_000 > second {
            second = last.unix_ns() / 1_000_000_000;
            decoder.tick(last, &mut all);
        }
        decoder.packet(&packet.as_packet(), &mut all);
    }
    let before = decoder.coverage().imbalances(decoder.in_progress());
    assert!(before.is_empty(), "while it runs: {before:?}");
    decoder.finish(last, &mut all);
    let coverage = decoder.coverage();
    let after = coverage.imbalances(decoder.in_progress());
    assert!(after.is_empty(), "at the end: {after:?}");
    (all.0, coverage)
}
