//! Shows what a capture file holds.

use std::io;
use std::path::Path;

use anyhow::Result;
use sonar_core::window::WindowSettings;
use sonar_core::{Coverage, InFlightOperations, Operation, Timestamp, Window};
use sonar_decode::{Settings, Sink};
use sonar_view::kit::Zone;
use sonar_view::queries::{PacketOrigin, Selection};

use super::args::QueriesArgs;
use super::output::QueriesOutput;
use super::server_names::ServerNames;
use crate::capture::OperationListener;
use crate::capture::applications::CaptureLog;
use crate::capture_reading::capture_file::CaptureEnd;
use crate::capture_reading::key_log::{self, KeyLogFile};
use crate::capture_reading::{self, CapturePlan, CaptureRead, CaptureSink, IntervalEnd};
use crate::confinement::start_gate::StartGate;
use crate::exit::{self, OK, TRUNCATED};
use crate::input;
use crate::stop;

/// Records operations in the open window, or writes them.
struct WindowCollector {
    window: Window,
    settings: WindowSettings,
    output: QueriesOutput,
    error: Option<io::Error>,
    /// Of the windows that were closed.
    total: Option<Window>,
    counted: Coverage,
    servers: ServerNames,
}

/// Reads `path`, shows its operations, and returns the exit code.
pub fn run(args: &QueriesArgs, selection: &Selection, path: &Path) -> Result<u8> {
    let name = crate::input::name(path);
    let window_settings = args.window_settings();
    let stop = stop::flag()?;
    // Another program may write both.
    let open = |log: &Path| match input::is_rereadable(path) {
        true => KeyLogFile::open(log, false),
        false => KeyLogFile::open(log, true)?.following(false, &StartGate::opened()),
    };
    let key_log = args.tls_keylog.as_deref().map(open).transpose()?;
    let keys = key_log.as_ref().map(KeyLogFile::keys);
    let logs = CaptureLog::named(&args.log);
    let plan = CapturePlan {
        settings: Settings { keys, ..args.file_settings() },
        logs: &logs,
        interval: args.interval,
        duration: args.duration,
        threads: args.threads.map(usize::from),
        stop: &stop,
    };
    let mut collect = WindowCollector {
        window: Window::new(Timestamp::default(), window_settings),
        settings: window_settings,
        output: QueriesOutput::new(args, selection, PacketOrigin::File)?,
        error: None,
        total: None,
        counted: Coverage::default(),
        servers: ServerNames::default(),
    };
    let mut read = capture_reading::read(path, &plan, &mut collect)?;
    if let Some(key_log) = key_log {
        key_log.finish(&mut read.coverage);
    }
    let end = read.end.clone();
    collect.finish(read, args.interval.is_some(), &selection.zone)?;
    let (what, code) = match end {
        CaptureEnd::Complete => return Ok(OK),
        // The reader of the output has gone, as in `| head`: it has all that it wanted.
        CaptureEnd::Stopped(_) if stop::is_abandoned() => return Ok(OK),
        CaptureEnd::Damaged(what) => (what, TRUNCATED),
        CaptureEnd::Stopped(what) => (what, exit::stopped().map_or(OK, |(_, code)| code)),
    };
    eprintln!("mongosonar: {name}: {what}; all before it has been read and shown");
    Ok(code)
}

impl Sink for WindowCollector {
    fn operation(&mut self, op: &Operation<'_>) {
        self.window.record(op);
        if self.output.wants_each()
            && self.error.is_none()
            && let Err(error) = self.output.operation(op)
        {
            self.error = Some(error);
        }
    }
}

impl CaptureSink for WindowCollector {
    fn begin(&mut self, start: Timestamp) {
        (self.window.start, self.window.end) = (start, start);
    }

    fn interval(&mut self, interval: IntervalEnd) -> Result<()> {
        let IntervalEnd { end, next, coverage, in_flight } = interval;
        let window = self.close(end, next, &coverage, in_flight);
        self.output.interval(&window)?;
        self.add(window);
        Ok(())
    }

    #[inline]
    fn check(&mut self) -> Result<()> {
        match self.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn waiting(&mut self) -> Result<()> {
        if self.output.wants_each() {
            self.output.flush()?;
        }
        Ok(())
    }
}

impl WindowCollector {
    /// Closes the open window at `end` and opens the one that begins at `next`.
    fn close(
        &mut self,
        end: Timestamp,
        next: Timestamp,
        coverage: &Coverage,
        in_flight: Vec<InFlightOperations>,
    ) -> Window {
        let mut window = std::mem::replace(&mut self.window, Window::new(next, self.settings));
        window.end = end.max(window.start);
        window.in_flight = in_flight;
        window.coverage.add(&coverage.since(&self.counted));
        self.counted = *coverage;
        self.servers.apply(&mut window);
        window
    }

    fn add(&mut self, window: Window) {
        match &mut self.total {
            Some(total) => total.merge(&window),
            None => self.total = Some(window),
        }
    }

    /// Writes the last interval, where there are any, and the summary.
    fn finish(&mut self, read: CaptureRead, has_intervals: bool, zone: &Zone) -> Result<()> {
        let CaptureRead { end, span, logs, named_client, undecrypted, unknown_link, coverage, in_flight } =
            read;
        let (_, last) = span;
        match end {
            CaptureEnd::Complete => {}
            CaptureEnd::Damaged(what) => {
                self.window.coverage.files_damaged += 1;
                self.output.note(format!("NOT IN FULL: {what}"));
            }
            CaptureEnd::Stopped(what) => {
                self.window.coverage.files_stopped += 1;
                self.output.note(format!("NOT IN FULL: {what}"));
            }
        }
        let window = self.close(last, last, &coverage, in_flight);
        // Without a packet there is no interval.
        if has_intervals && last != Timestamp::default() {
            self.output.interval(&window)?;
        }
        self.add(window);
        if let Some(total) = &self.total {
            let late = total.coverage.streams_joined_late;
            let notes = logs.notes(named_client, late, span, zone);
            let undecrypted = key_log::undecrypted_note(&undecrypted);
            let unknown_link =
                unknown_link.map(|number| format!("packets of link type {number} are not decoded"));
            notes.into_iter().chain(undecrypted).chain(unknown_link).for_each(|note| self.output.note(note));
            self.output.summary(total)?;
        }
        Ok(())
    }
}
