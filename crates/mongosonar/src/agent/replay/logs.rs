//! Slow operations and events of logs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::history::{ApplicationWatch, CollectorKind};
use sonar_core::observation::{WIDTH_NS, WindowCutter};
use sonar_core::{Endpoint, Execution, Identity, Operation, Reading, Timestamp};
use sonar_decode::entry::EntrySink;
use sonar_decode::log::{LogReader, ParsedLine};

use super::source_end::SourceEnd;
use crate::agent::log_operations::LogOperations;
use crate::agent::servers::local;
use crate::digest::TimeRange;
use crate::digest::log_files::{self, LogSink, LogsRead};

/// Sorts the operations of a server's log into windows by the time of their end.
struct LogCutter<'a> {
    windows: &'a mut WindowCutter,
    server: Endpoint,
    /// The time of the last line that had one.
    last: Option<Timestamp>,
    /// What has been counted in windows.
    counted: Reading,
}

impl LogCutter<'_> {
    fn take_events(&mut self, log: &mut LogReader) {
        let (events, left_out) = log.take_events();
        // Every event comes from a line with a time.
        if let Some(last) = self.last.filter(|_| left_out > 0) {
            self.windows.at(last).events_left_out += left_out;
        }
        events.into_iter().for_each(|event| self.windows.event(event));
    }

    fn count(&mut self, reading: &Reading) {
        // A log without any time has no window to count in.
        let Some(last) = self.last else { return };
        self.windows.at(last).window.reading.add(&reading.since(&self.counted));
        self.counted = *reading;
    }
}

impl EntrySink for LogCutter<'_> {
    #[inline]
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        let mut operations = LogOperations { windows: self.windows, server: self.server };
        operations.operation(op, identity, execution, entries);
    }
}

impl LogSink for LogCutter<'_> {
    fn begin(&mut self, log: &mut LogReader) {
        log.collect_events(self.server, ApplicationWatch::default());
    }

    fn line(&mut self, parsed: &ParsedLine, log: &mut LogReader) {
        let Some(at) = parsed.at() else { return };
        if let Some(last) = self.last.filter(|last| *last < at) {
            // Adding up the counters takes as long as reading a line. So the first line of a window counts in the one
            // before it.
            if last.floor_to(WIDTH_NS) < at.floor_to(WIDTH_NS) {
                self.count(&log.reading());
            }
            self.windows.observe(CollectorKind::Log, last, at);
        }
        // Lines of other threads may be a little earlier.
        self.last = self.last.max(Some(at));
        self.take_events(log);
        self.windows.advance(at);
    }

    fn end(&mut self, log: &mut LogReader) {
        self.take_events(log);
    }
}

/// Reads the logs of a server.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read(
    files: &[PathBuf],
    port: u16,
    windows: &mut WindowCutter,
    stop: &Arc<AtomicBool>,
) -> Result<SourceEnd> {
    let cutter = LogCutter { windows, server: local(port), last: None, counted: Reading::default() };
    let LogsRead { mut sink, reading, stopped, .. } =
        log_files::read_into(files, &TimeRange::default(), stop, cutter)?;
    sink.count(&reading);
    sink.windows.finish();
    // Each damaged file has been named already.
    Ok(SourceEnd { is_cut: reading.files_damaged > 0, stopped, ..SourceEnd::default() })
}
