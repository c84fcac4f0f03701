//! Reads a capture file, on one thread or on all cores, with the same outcome. Time is that of the packets.
//!
//! `by_flow` divides the connections of a large file among threads. Where its outcome could depend on which thread
//! comes first, because a table is full, the file is read again on one thread, and what the sink has already is left
//! out.

mod by_flow;
pub mod capture_file;
pub mod key_log;
mod packet_times;
mod plan;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use sonar_core::{Operation, Packet, Timestamp};
use sonar_decode::{Decoder, EndedClient, Settings, Shared, Sink};

use self::capture_file::read as read_packets;
use self::packet_times::{PacketReading, PacketTarget, ReadingShare};
pub use self::plan::{CapturePlan, CaptureRead, CaptureSink, IntervalEnd};
use crate::in_order;
use crate::input;

/// Smaller files are read on one thread: starting others takes longer than they save.
const MIN_BYTES: u64 = 4 << 20;

/// Reads a capture file.
///
/// # Errors
/// The file cannot be opened, holds something else, or `sink` fails.
pub fn read<S: CaptureSink>(path: &Path, plan: &CapturePlan<'_>, sink: &mut S) -> Result<CaptureRead> {
    let threads = match plan.threads {
        _ if !input::is_rereadable(path) => 1,
        Some(threads) => threads,
        None if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() < MIN_BYTES) => 1,
        None => in_order::threads(),
    };
    if threads <= 1 {
        return on_one_thread(path, plan, sink);
    }
    let mut sink = ResumedSink { sink, skip: SinkProgress::default(), seen: SinkProgress::default() };
    if let Some(read) = by_flow::read(path, plan, &mut sink, threads)? {
        return Ok(read);
    }
    (sink.skip, sink.seen) = (sink.seen, SinkProgress::default());
    on_one_thread(path, plan, &mut sink)
}

fn on_one_thread<S: CaptureSink>(path: &Path, plan: &CapturePlan<'_>, sink: &mut S) -> Result<CaptureRead> {
    let shared = Arc::new(Shared::default());
    let keys = plan.settings.keys.clone().unwrap_or_default();
    let settings = Settings { keys: Some(keys.clone()), ..plan.settings.clone() };
    let decoder = Decoder::new(settings, shared.clone());
    let target = OneThreadTarget { decoder, sink };
    let mut reading = PacketReading::new(plan, ReadingShare { shared: shared.clone(), keys }, target);
    let end = read_packets(path, plan.stop, &mut reading)?;
    let (about, OneThreadTarget { mut decoder, sink }) = reading.split(end);
    let last = about.span.1;
    let in_flight = decoder.finish(last, sink);
    sink.check()?;
    let mut coverage = decoder.coverage();
    coverage.add(&about.coverage);
    Ok(CaptureRead { coverage, in_flight, undecrypted: shared.undecrypted(), ..about })
}

/// Decodes on the thread that reads.
struct OneThreadTarget<'a, S> {
    decoder: Decoder,
    sink: &'a mut S,
}

impl<S: CaptureSink> PacketTarget for OneThreadTarget<'_, S> {
    fn begin(&mut self, start: Timestamp) -> Result<()> {
        self.sink.begin(start);
        Ok(())
    }

    fn interval(&mut self, end: Timestamp, next: Timestamp) -> Result<()> {
        let (coverage, in_flight) = (self.decoder.coverage(), self.decoder.in_flight(end));
        self.sink.interval(IntervalEnd { end, next, coverage, in_flight })
    }

    fn clients_ended(&mut self, clients: Vec<EndedClient>) {
        self.decoder.clients_ended(clients);
    }

    fn tick(&mut self, now: Timestamp) {
        self.decoder.tick(now, self.sink);
    }

    #[inline]
    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>> {
        self.decoder.packet(packet, self.sink);
        self.sink.check()?;
        Ok(ControlFlow::Continue(()))
    }

    fn waiting(&mut self) -> Result<()> {
        self.sink.waiting()
    }
}

/// How much a sink has received.
#[derive(Copy, Clone, Default)]
struct SinkProgress {
    begun: bool,
    operations: u64,
    intervals: u64,
}

/// A sink that has received a part already.
struct ResumedSink<'a, S> {
    sink: &'a mut S,
    /// That part.
    skip: SinkProgress,
    seen: SinkProgress,
}

impl<S: Sink> Sink for ResumedSink<'_, S> {
    fn operation(&mut self, op: &Operation<'_>) {
        self.seen.operations += 1;
        if self.seen.operations > self.skip.operations {
            self.sink.operation(op);
        }
    }
}

impl<S: CaptureSink> CaptureSink for ResumedSink<'_, S> {
    fn begin(&mut self, start: Timestamp) {
        self.seen.begun = true;
        if !self.skip.begun {
            self.sink.begin(start);
        }
    }

    fn interval(&mut self, interval: IntervalEnd) -> Result<()> {
        self.seen.intervals += 1;
        if self.seen.intervals > self.skip.intervals { self.sink.interval(interval) } else { Ok(()) }
    }

    fn check(&mut self) -> Result<()> {
        self.sink.check()
    }

    fn waiting(&mut self) -> Result<()> {
        self.sink.waiting()
    }
}
