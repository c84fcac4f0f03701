//! A flow table, what it delivers, and the segments that a test sends into it.

use std::collections::HashMap;

use sonar_core::coverage::InProgress;
use sonar_core::{Coverage, Endpoint, Timestamp};
use sonar_decode::frame::{Segment, TcpFlags};
use sonar_decode::tcp::{
    Chunk, Close, Flow, FlowLimits, FlowTable, Gap, Lost, Side, StreamHandler, Twins, Verdict,
};

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Open(Option<Side>),
    Data(Side, u64, Vec<u8>),
    Gap(Side, Lost),
    Close(Close),
}

#[derive(Default)]
pub struct Log {
    pub events: Vec<Event>,
    /// Connections by port of the client.
    pub ports: HashMap<u16, Vec<Event>>,
    pub ignore_after: Option<usize>,
    pub open: usize,
    pub most_open: usize,
}

impl Log {
    pub fn add(&mut self, flow: &Flow, event: Event) {
        self.ports.entry(flow.ends[0].port.max(flow.ends[1].port)).or_default().push(event.clone());
        self.events.push(event);
    }

    pub fn bytes(&self, side: Side) -> Vec<u8> {
        let of_side = self.events.iter().filter_map(|event| match event {
            Event::Data(at, _, bytes) if *at == side => Some(bytes.as_slice()),
            _ => None,
        });
        of_side.collect::<Vec<_>>().concat()
    }

    pub fn gaps(&self) -> Vec<(Side, Lost)> {
        let gaps = self.events.iter().filter_map(|event| match event {
            Event::Gap(side, lost) => Some((*side, *lost)),
            _ => None,
        });
        gaps.collect()
    }

    pub fn closes(&self) -> Vec<Close> {
        let closes = self.events.iter().filter_map(|event| match event {
            Event::Close(how) => Some(*how),
            _ => None,
        });
        closes.collect()
    }
}

impl StreamHandler for Log {
    type Connection = usize;

    fn open(&mut self, flow: &Flow) -> usize {
        self.add(flow, Event::Open(flow.opener));
        self.open += 1;
        self.most_open = self.most_open.max(self.open);
        0
    }

    fn data(&mut self, flow: &Flow, conn: &mut usize, chunk: Chunk<'_>) -> Verdict {
        let Chunk { side, time, bytes } = chunk;
        assert!(!bytes.is_empty());
        self.add(flow, Event::Data(side, time.unix_ns(), bytes.to_vec()));
        *conn += 1;
        if self.ignore_after.is_some_and(|after| *conn >= after) {
            Verdict::Ignore
        } else {
            Verdict::Continue
        }
    }

    fn gap(&mut self, flow: &Flow, _: &mut usize, gap: Gap) {
        assert_ne!(gap.lost, Lost::Bytes(0));
        self.add(flow, Event::Gap(gap.side, gap.lost));
    }

    fn fin(&mut self, _: &Flow, _: &mut usize, _: Side, _: Timestamp) {}

    fn close(&mut self, flow: &Flow, _: usize, _: Timestamp, how: Close) {
        self.open -= 1;
        self.add(flow, Event::Close(how));
    }
}

/// A table with its counters, and the clock of the segments.
pub struct Bench {
    pub table: FlowTable<usize>,
    pub log: Log,
    pub coverage: Coverage,
    pub frames: u64,
    pub now: u64,
}

/// The changes of a test to a segment.
#[derive(Clone, Copy)]
pub struct Send<'a> {
    pub client: u16,
    pub server: u8,
    pub place: u64,
    pub flags: u8,
    pub missing: u32,
    pub bytes: &'a [u8],
}

/// A segment with usual fields.
pub const PLAIN: Send<'static> =
    Send { client: 50_000, server: 1, place: 1, flags: ACK, missing: 0, bytes: &[] };
/// The client has the higher address.
pub const CLIENT: Side = Side::High;
pub const SERVER: Side = Side::Low;

impl Bench {
    pub fn new() -> Self {
        Self::with(FlowLimits::default(), Twins::default())
    }

    pub fn with(limits: FlowLimits, twins: Twins) -> Self {
        let (log, coverage) = (Log::default(), Coverage::default());
        Self { table: FlowTable::new(limits, twins), log, coverage, frames: 0, now: 1_000 * S }
    }

    pub fn send(&mut self, from: Side, seq: u32, ack: u32, send: Send<'_>) {
        self.now += 1_000;
        let client = Endpoint::v4([10, 0, 9, 9], send.client);
        let server = Endpoint::v4([10, 0, 0, send.server], 27017);
        let (source, destination) = if from == CLIENT { (client, server) } else { (server, client) };
        let segment = Segment {
            time: Timestamp::from_unix_ns(self.now),
            place: send.place,
            source,
            destination,
            seq,
            ack,
            flags: TcpFlags::from_byte(send.flags),
            payload: send.bytes,
            missing: send.missing,
        };
        self.frames += 1;
        self.coverage.frames += 1;
        self.table.segment(&segment, &mut self.coverage, &mut self.log);
        self.balance();
    }

    pub fn data(&mut self, from: Side, seq: u32, bytes: &[u8]) {
        self.send(from, seq, 0, Send { bytes, flags: 0, ..PLAIN });
    }

    pub fn flags(&mut self, from: Side, seq: u32, ack: u32, flags: u8) {
        self.send(from, seq, ack, Send { flags, ..PLAIN });
    }

    /// Client at 1001, server at 5001 afterwards.
    pub fn handshake(&mut self) {
        self.flags(CLIENT, 1_000, 0, SYN);
        self.flags(SERVER, 5_000, 1_001, SYN | ACK);
        self.flags(CLIENT, 1_001, 5_001, ACK);
    }

    pub fn tick(&mut self) {
        self.table.tick(Timestamp::from_unix_ns(self.now), &mut self.coverage, &mut self.log);
        self.balance();
    }

    pub fn finish(&mut self) {
        self.table.finish(Timestamp::from_unix_ns(self.now), &mut self.coverage, &mut self.log);
        self.balance();
        assert_eq!(self.table.in_progress_segments(), 0);
        assert_eq!(self.log.open, 0);
        assert!(self.table.is_empty());
    }

    pub fn balance(&self) {
        let progress = InProgress { segments: self.table.in_progress_segments(), ..Default::default() };
        assert_eq!(self.coverage.imbalances(progress), vec![], "after frame {}", self.frames);
    }
}
