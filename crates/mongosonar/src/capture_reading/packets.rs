//! What the time of a packet means: the beginning, the end of an interval, a second that has passed, or the end.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Result;
use sonar_core::time::NS_PER_S;
use sonar_core::{Coverage, Packet, Timestamp, WindowClock};
use sonar_decode::Shared;

use super::plan::{CapturePlan, CaptureRead};
use crate::queries::applications::{self, ReadLogs};
use crate::queries::packets::{CaptureEnd, PacketSink};

/// Receives packets, and what their times mean.
pub trait PacketTarget {
    fn begin(&mut self, start: Timestamp) -> Result<()>;
    fn interval(&mut self, end: Timestamp, next: Timestamp) -> Result<()>;
    fn tick(&mut self, now: Timestamp);
    /// Takes a packet; `Break` ends the reading.
    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>>;
    fn waiting(&mut self) -> Result<()>;
}

/// Packets on their way from a file to a target.
pub struct PacketReading<'a, T> {
    target: T,
    plan: &'a CapturePlan<'a>,
    shared: Arc<Shared>,
    clock: Option<WindowClock>,
    second: u64,
    first: Option<Timestamp>,
    last: Timestamp,
    logs: ReadLogs,
}

impl<'a, T> PacketReading<'a, T> {
    pub fn new(plan: &'a CapturePlan<'a>, shared: Arc<Shared>, target: T) -> Self {
        let clock = plan.interval.map(|interval| WindowClock::new(interval.as_nanos() as u64));
        let (last, logs) = (Timestamp::default(), ReadLogs::default());
        Self { target, plan, shared, clock, second: 0, first: None, last, logs }
    }

    /// What is known of the file that has been read, but for its operations; and the target.
    pub fn split(self, end: CaptureEnd) -> (CaptureRead, T) {
        let span = (self.first.unwrap_or_default(), self.last);
        let (logs, named_client) = (self.logs, self.shared.has_named_clients());
        let (coverage, in_flight) = (Coverage::default(), Vec::new());
        (CaptureRead { end, span, logs, named_client, coverage, in_flight }, self.target)
    }
}

impl<T: PacketTarget> PacketSink for PacketReading<'_, T> {
    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>> {
        let time = packet.time;
        match self.first {
            None => {
                self.first = Some(time);
                self.logs = applications::read_logs(self.plan.logs, time, &self.shared, self.plan.stop)?;
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
