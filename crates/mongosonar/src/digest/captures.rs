//! Reads captures into a digest.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::time::NS_PER_S;
use sonar_core::{Coverage, Operation, Outcome, Packet, Record, Role, Timestamp};
use sonar_decode::{Decoder, Settings, Shared, Sink};

use super::collect::Collector;
use crate::input;
use crate::queries::applications;
use crate::queries::packets::{self, CaptureEnd, PacketSink};

/// What was read of captures.
pub struct Captured {
    /// The operations that were served.
    pub collect: Collector,
    /// What was captured, and what was lost.
    pub coverage: Coverage,
    /// A file is cut or damaged; everything before that is included.
    pub damaged: bool,
    /// Files that were not read to their end because the command was stopped.
    pub stopped: Vec<String>,
}

/// Takes operations that were served, and counts the others.
struct Served(Collector);

impl Sink for Served {
    fn operation(&mut self, op: &Operation<'_>) {
        match (op.role, op.outcome) {
            (_, Outcome::InFlight) => {}
            (Role::Served, _) => self.0.record(&Record::wire(op)),
            (Role::Issued, _) => self.0.leave_out_issued(op),
        }
    }
}

/// A capture file that is being read.
struct CaptureReading<'a> {
    decoder: Decoder,
    shared: Arc<Shared>,
    served: Served,
    logs: &'a [PathBuf],
    stop: &'a Arc<AtomicBool>,
    last: Timestamp,
}

impl PacketSink for CaptureReading<'_> {
    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>> {
        if self.last == Timestamp::default() {
            applications::read_logs(self.logs, packet.time, &self.shared, self.stop)?;
        }
        if packet.time.unix_ns() / NS_PER_S > self.last.unix_ns() / NS_PER_S {
            self.decoder.tick(packet.time, &mut self.served);
        }
        self.last = self.last.max(packet.time);
        self.decoder.packet(packet, &mut self.served);
        Ok(ControlFlow::Continue(()))
    }
}

/// Reads the operations of these captures, each by itself. `logs` identify the clients of connections that were open
/// when a capture began.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read(
    files: &[PathBuf],
    logs: &[PathBuf],
    collect: Collector,
    stop: &Arc<AtomicBool>,
) -> Result<Captured> {
    let mut captured =
        Captured { collect, coverage: Coverage::default(), damaged: false, stopped: Vec::new() };
    for path in files {
        let shared = Arc::new(Shared::default());
        let decoder = Decoder::new(Settings::default(), shared.clone());
        let served = Served(captured.collect);
        let mut capture = CaptureReading { decoder, shared, served, logs, stop, last: Timestamp::default() };
        let end = packets::read(path, stop, &mut capture)?;
        let CaptureReading { mut decoder, mut served, last, .. } = capture;
        // Operations in flight at the end of the file are taken before the decoder abandons them.
        let in_flight = decoder.in_flight(last);
        decoder.finish(last, &mut served);
        captured.collect = served.0;
        in_flight.iter().for_each(|waiting| captured.collect.add_in_flight(waiting));
        captured.coverage.add(&decoder.coverage());
        let name = input::name(path);
        match end {
            CaptureEnd::Complete => {}
            CaptureEnd::Damaged(what) => {
                captured.damaged = true;
                captured.coverage.files_damaged += 1;
                eprintln!("mongosonar: {name}: {what}; all before it has been read");
            }
            CaptureEnd::Stopped(what) => {
                captured.coverage.files_stopped += 1;
                captured.stopped.push(format!("{name}: {what}"));
            }
        }
    }
    captured.coverage.shapes_folded += captured.collect.digest.folded;
    Ok(captured)
}
