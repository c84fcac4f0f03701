//! Reads captures into a digest.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::{Coverage, Operation, Outcome, Record, Role};
use sonar_decode::{Settings, Sink};

use super::collect::OperationCollector;
use crate::capture_reading::{self, CapturePlan, CaptureRead, CaptureSink};
use crate::input;
use crate::queries::packets::CaptureEnd;

/// What was read of captures.
pub struct Captured {
    /// The operations that were served.
    pub collect: OperationCollector,
    /// What was captured, and what was lost.
    pub coverage: Coverage,
    /// A file is cut or damaged; everything before that is included.
    pub damaged: bool,
    /// Files that were not read to their end because the command was stopped.
    pub stopped: Vec<String>,
}

/// Takes operations that were served, and counts the others.
struct Served(OperationCollector);

impl Sink for Served {
    fn operation(&mut self, op: &Operation<'_>) {
        match (op.role, op.outcome) {
            (_, Outcome::InFlight) => {}
            (Role::Served, _) => self.0.record(&Record::wire(op)),
            (Role::Issued, _) => self.0.leave_out_issued(op),
        }
    }
}

impl CaptureSink for Served {}

/// Reads the operations of these captures, each by itself. `logs` identify the clients of connections that were open
/// when a capture began.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read(
    files: &[PathBuf],
    logs: &[PathBuf],
    collect: OperationCollector,
    stop: &Arc<AtomicBool>,
) -> Result<Captured> {
    let mut captured =
        Captured { collect, coverage: Coverage::default(), damaged: false, stopped: Vec::new() };
    let plan = CapturePlan {
        settings: Settings::default(),
        logs,
        interval: None,
        duration: None,
        threads: None,
        stop,
    };
    for path in files {
        let mut served = Served(captured.collect);
        let CaptureRead { end, coverage, in_flight, .. } = capture_reading::read(path, &plan, &mut served)?;
        captured.collect = served.0;
        in_flight.iter().for_each(|waiting| captured.collect.add_in_flight(waiting));
        captured.coverage.add(&coverage);
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
