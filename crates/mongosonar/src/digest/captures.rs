//! Reads captures into a digest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::words::plural;
use sonar_core::{Coverage, Operation, Outcome, Record, Role};
use sonar_decode::{Settings, Sink};
use sonar_view::kit::Grouped;
use sonar_view::queries::cut_get_mores;

use super::collect::OperationCollector;
use crate::capture::applications::CaptureLog;
use crate::capture_reading::capture_file::CaptureEnd;
use crate::capture_reading::key_log::{self, KeyLogFile};
use crate::capture_reading::{self, CapturePlan, CaptureRead, CaptureSink};
use crate::input;

/// Captures, and what helps to read them.
pub struct CaptureInputs<'a> {
    /// The captures.
    pub files: &'a [PathBuf],
    /// Logs that identify the clients of connections that were open when a capture began, and say which connections end.
    pub logs: &'a [PathBuf],
    /// The key log that decrypts TLS.
    pub key_log: Option<&'a Path>,
}

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
    /// What a reader must know of them.
    pub notes: Vec<String>,
}

/// What of its messages a capture lacks, as it stands behind the name of the capture; nothing if it has both directions
/// and no snap length cut it.
pub fn in_part(coverage: &Coverage) -> Vec<String> {
    let mut notes = Vec::new();
    if coverage.messages_partial > 0 {
        let (cut, all) = (Grouped(coverage.messages_partial), plural(Grouped(coverage.messages), "message"));
        notes.push(format!(
            "was cut by a snap length ({cut} of {all}): what is behind the cut is unknown, also of shapes and errors"
        ));
    }
    match (coverage.requests, coverage.replies) {
        (1.., 0) => notes.push(
            "has requests only, no reply: latencies, errors and what cursors read are unknown".to_owned(),
        ),
        (0, 1..) => notes.push("has replies only, no request: their operations are unknown".to_owned()),
        _ => {}
    }
    notes
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

/// Reads the operations of these captures, each by itself.
///
/// # Errors
/// A file cannot be opened, or holds something else; or the key log cannot be read.
pub fn read(
    inputs: &CaptureInputs<'_>,
    collect: OperationCollector,
    stop: &Arc<AtomicBool>,
) -> Result<Captured> {
    let mut captured = Captured {
        collect,
        coverage: Coverage::default(),
        damaged: false,
        stopped: Vec::new(),
        notes: Vec::new(),
    };
    let key_log = inputs.key_log.map(|path| KeyLogFile::open(path, false)).transpose()?;
    let logs = CaptureLog::named(inputs.logs);
    let plan = CapturePlan {
        settings: Settings { keys: key_log.as_ref().map(KeyLogFile::keys), ..Settings::default() },
        logs: &logs,
        interval: None,
        duration: None,
        threads: None,
        stop,
    };
    let mut undecrypted = Vec::new();
    for path in inputs.files {
        let mut served = Served(captured.collect);
        let read = capture_reading::read(path, &plan, &mut served)?;
        let CaptureRead { end, coverage, in_flight, .. } = read;
        key_log::add_suites(&mut undecrypted, &read.undecrypted);
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
    if let Some(key_log) = key_log {
        key_log.finish(&mut captured.coverage);
    }
    captured.notes.extend(key_log::undecrypted_note(&undecrypted));
    captured.notes.extend(cut_get_mores(captured.collect.digest.rows()));
    captured.coverage.shapes_folded += captured.collect.digest.folded;
    Ok(captured)
}
