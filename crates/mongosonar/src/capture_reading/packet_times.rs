//! What the time of a packet means: the beginning, the end of an interval, a second that has passed, or the end.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Result;
use sonar_core::time::NS_PER_S;
use sonar_core::{Coverage, LinkType, Packet, Timestamp, WindowClock};
use sonar_decode::{EndedClient, KeyLog, KeyLogReader, Shared};

use super::capture_file::{CaptureEnd, PacketSink};
use super::plan::{CapturePlan, CaptureRead};
use crate::capture::applications::{self, ReadLogs};

/// Receives packets, and what their times mean.
pub trait PacketTarget {
    fn begin(&mut self, start: Timestamp) -> Result<()>;
    fn interval(&mut self, end: Timestamp, next: Timestamp) -> Result<()>;
    /// The logs say that these connections end.
    fn clients_ended(&mut self, clients: Vec<EndedClient>);
    fn tick(&mut self, now: Timestamp);
    /// Takes a packet; `Break` ends the reading.
    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>>;
    fn waiting(&mut self) -> Result<()>;
}

/// What a reading has in common with those who decode.
pub struct ReadingShare {
    pub shared: Arc<Shared>,
    pub keys: Arc<KeyLog>,
}

/// Packets on their way from a file to a target.
pub struct PacketReading<'a, T> {
    target: T,
    plan: &'a CapturePlan<'a>,
    share: ReadingShare,
    /// What is of no use of the secrets that the file brings with it.
    key_counts: Coverage,
    clock: Option<WindowClock>,
    second: u64,
    first: Option<Timestamp>,
    last: Timestamp,
    logs: ReadLogs,
    unknown_link: Option<u16>,
}

impl<'a, T> PacketReading<'a, T> {
    pub fn new(plan: &'a CapturePlan<'a>, share: ReadingShare, target: T) -> Self {
        let clock = plan.interval.map(|interval| WindowClock::new(interval.as_nanos() as u64));
        let (last, logs) = (Timestamp::default(), ReadLogs::default());
        let key_counts = Coverage::default();
        Self {
            target,
            plan,
            share,
            key_counts,
            clock,
            second: 0,
            first: None,
            last,
            logs,
            unknown_link: None,
        }
    }

    /// What is known of the file that has been read, but for its operations, and for what decoding them tells; and the
    /// target. The counters are those of its secrets alone.
    pub fn split(self, end: CaptureEnd) -> (CaptureRead, T) {
        let span = (self.first.unwrap_or_default(), self.last);
        let Self { target, share, key_counts: coverage, logs, unknown_link, .. } = self;
        let named_client = share.shared.has_named_clients();
        let (undecrypted, in_flight) = (Vec::new(), Vec::new());
        let read =
            CaptureRead { end, span, logs, named_client, undecrypted, unknown_link, coverage, in_flight };
        (read, target)
    }
}

impl<T: PacketTarget> PacketSink for PacketReading<'_, T> {
    fn secrets(&mut self, key_log: &[u8]) {
        let (mut reader, keys) = (KeyLogReader::default(), &self.share.keys);
        // Those of other connections may follow.
        keys.set_growing();
        reader.read(key_log, keys);
        reader.finish(keys);
        self.key_counts.add(&reader.coverage);
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>> {
        let time = packet.time;
        if let LinkType::Other(number) = packet.link {
            self.unknown_link.get_or_insert(number);
        }
        match self.first {
            None => {
                self.first = Some(time);
                self.logs =
                    applications::read_logs(self.plan.logs, time, &self.share.shared, self.plan.stop)?;
                self.target.clients_ended(self.logs.take_ended());
                let start = self.clock.as_mut().and_then(|clock| {
                    clock.advance(time);
                    clock.start()
                });
                self.target.begin(start.unwrap_or(time))?;
            }
            Some(first) => {
                let most_ns = self.plan.duration.map(|duration| duration.as_nanos() as u64);
                if most_ns.is_some_and(|ns| time.since(first) >= ns) {
                    return Ok(ControlFlow::Break(()));
                }
                if let Some(clock) = &mut self.clock
                    && let Some((_, end)) = clock.advance(time)
                {
                    let next = clock.start().unwrap_or(end);
                    self.target.interval(end, next)?;
                }
            }
        }
        self.last = self.last.max(time);
        if time.unix_ns() / NS_PER_S > self.second {
            self.second = time.unix_ns() / NS_PER_S;
            self.target.tick(time);
        }
        self.target.packet(packet)
    }

    fn waiting(&mut self) -> Result<()> {
        self.target.waiting()
    }
}
