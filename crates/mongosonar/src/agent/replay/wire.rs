//! Operations of captures.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use sonar_core::history::CollectorKind;
use sonar_core::observation::{WIDTH_NS, WindowCutter};
use sonar_core::{Coverage, InFlightOperations, Operation, Outcome, Timestamp};
use sonar_decode::{Settings, Sink};

use super::inputs::ReplayInputs;
use super::source_end::SourceEnd;
use crate::agent::servers::LocalServers;
use crate::capture::applications::CaptureLog;
use crate::capture_reading::capture_file::CaptureEnd;
use crate::capture_reading::key_log;
use crate::capture_reading::{self, CapturePlan, CaptureRead, CaptureSink, IntervalEnd};
use crate::input;

/// Sorts operations into windows by the time of their end.
struct OperationCutter<'a> {
    windows: &'a mut WindowCutter,
    servers: &'a LocalServers,
    /// What has been counted in windows.
    counted: Coverage,
    /// Until when the capture has been observed: at first the time of its first packet.
    observed: Timestamp,
}

impl OperationCutter<'_> {
    /// Adds what was counted until `end`, and what was in flight then.
    fn count(&mut self, end: Timestamp, coverage: &Coverage, in_flight: Vec<InFlightOperations>) {
        let in_flight = self.servers.named_in_flight(in_flight);
        // A window ends where the next one begins.
        let at = end.minus_ns(1);
        let window = &mut self.windows.at(at).window.window;
        window.coverage.add(&coverage.since(&self.counted));
        window.in_flight = in_flight;
        self.counted = *coverage;
        self.windows.observe(CollectorKind::Queries, self.observed, end);
        self.observed = end;
    }
}

impl Sink for OperationCutter<'_> {
    #[inline]
    fn operation(&mut self, op: &Operation<'_>) {
        if op.outcome != Outcome::InFlight {
            self.windows.at(op.end).window.window.record(&self.servers.named(op));
        }
    }
}

impl CaptureSink for OperationCutter<'_> {
    fn interval(&mut self, interval: IntervalEnd) -> Result<()> {
        let IntervalEnd { end, next, coverage, in_flight } = interval;
        self.count(end, &coverage, in_flight);
        self.windows.advance(next);
        Ok(())
    }
}

/// Reads captures, each with the time of its first packet, one after another. `logs` name the clients of connections that
/// were open when a capture began, and say which connections end.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read(
    inputs: &ReplayInputs,
    logs: &[CaptureLog],
    windows: &mut WindowCutter,
    stop: &Arc<AtomicBool>,
) -> Result<SourceEnd> {
    let mut end = SourceEnd::default();
    let plan = CapturePlan {
        settings: Settings::default(),
        logs,
        interval: Some(Duration::from_nanos(WIDTH_NS)),
        duration: None,
        threads: None,
        stop,
    };
    for (first, path) in &inputs.captures {
        let (servers, counted) = (&inputs.servers, Coverage::default());
        let mut cutter = OperationCutter { windows, servers, counted, observed: *first };
        let CaptureRead { end: how, span: (_, last), mut coverage, in_flight, undecrypted, .. } =
            capture_reading::read(path, &plan, &mut cutter)?;
        let note = key_log::undecrypted_note(&undecrypted);
        end.notes.extend(note.map(|note| format!("{}: {note}", input::name(path))));
        match how {
            CaptureEnd::Complete => {}
            CaptureEnd::Damaged(what) => {
                coverage.files_damaged += 1;
                end.damaged.push(format!("{}: {what}; all before it has been read", input::name(path)));
            }
            CaptureEnd::Stopped(what) => {
                coverage.files_stopped += 1;
                end.stopped.push(format!("{}: {what}", input::name(path)));
            }
        }
        // Without a packet there is no time either.
        if last > Timestamp::default() {
            cutter.count(last.plus_ns(1), &coverage, in_flight);
        }
        windows.finish();
    }
    Ok(end)
}
