//! How to read a capture file, who receives its operations, and how the reading ended.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use sonar_core::{Coverage, InFlightOperations, Timestamp, TlsSuite};
use sonar_decode::{Settings, Sink};

use super::capture_file::CaptureEnd;
use crate::capture::applications::{CaptureLog, ReadLogs};

/// How to read a capture file.
pub struct CapturePlan<'a> {
    /// What to decode.
    pub settings: Settings,
    /// Logs that say who was on a connection when the capture began, and which connections end.
    pub logs: &'a [CaptureLog],
    /// The width of intervals, if there are any.
    pub interval: Option<Duration>,
    /// How much of the capture to read, by the time of its packets; `None` for all.
    pub duration: Option<Duration>,
    /// Threads that decode; `None` for as many as the file and the machine are good for. Input that can be read only
    /// once is read on one thread.
    pub threads: Option<usize>,
    /// Ends the reading early.
    pub stop: &'a Arc<AtomicBool>,
}

/// The end of an interval.
pub struct IntervalEnd {
    /// Its end.
    pub end: Timestamp,
    /// When the next one begins.
    pub next: Timestamp,
    /// The counters since the beginning of the file.
    pub coverage: Coverage,
    /// Operations in flight.
    pub in_flight: Vec<InFlightOperations>,
}

/// Receives what a capture file holds, in the order of its packets.
pub trait CaptureSink: Sink {
    /// The first interval begins.
    fn begin(&mut self, _: Timestamp) {}

    /// An interval ends.
    fn interval(&mut self, _: IntervalEnd) -> Result<()> {
        Ok(())
    }

    /// Fails once the sink can take no more.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called before each read of the input, which may wait long for a pipe.
    fn waiting(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A capture file that has been read.
pub struct CaptureRead {
    /// How the reading ended.
    pub end: CaptureEnd,
    /// The times of the first and the latest packet.
    pub span: (Timestamp, Timestamp),
    /// The logs of the plan.
    pub logs: ReadLogs,
    /// Whether they named a client of the capture.
    pub named_client: bool,
    /// The versions and cipher suites of TLS that a key log was of no use for, and how many connections have each.
    pub undecrypted: Vec<(TlsSuite, u64)>,
    /// The number of the first link type that is not decoded, if the file has packets of one.
    pub unknown_link: Option<u16>,
    /// The counters.
    pub coverage: Coverage,
    /// Operations in flight at the end of the file.
    pub in_flight: Vec<InFlightOperations>,
}
