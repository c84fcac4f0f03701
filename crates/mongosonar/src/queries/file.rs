//! Reads a capture file. Time is that of the packets.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::time::NS_PER_S;
use sonar_core::{Coverage, Operation, Timestamp, Window, WindowClock};
use sonar_decode::{Decoder, Settings, Shared, Sink};
use sonar_view::kit::Zone;
use sonar_view::queries::{PacketOrigin, Selection};

use super::applications::{self, ReadLogs};
use super::args::QueriesArgs;
use super::output::QueriesOutput;
use super::packets::{self, CaptureEnd, PacketSink};
use crate::exit::{self, OK, TRUNCATED};
use crate::stop;

/// Records operations in the open window, or writes them.
struct WindowCollector {
    window: Window,
    output: QueriesOutput,
    error: Option<io::Error>,
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

/// One pass over a file.
struct FilePass {
    decoder: Decoder,
    shared: Arc<Shared>,
    /// Logs that say who was on a connection when the capture began.
    logs: Vec<PathBuf>,
    read_logs: ReadLogs,
    zone: Zone,
    stop: Arc<AtomicBool>,
    collect: WindowCollector,
    clock: Option<WindowClock>,
    total: Option<Window>,
    counted: Coverage,
    settings: sonar_core::window::WindowSettings,
    second: u64,
    first: Option<Timestamp>,
    last: Timestamp,
    end_ns: Option<u64>,
}

/// Reads `path`, shows its operations, and returns the exit code.
pub fn run(args: &QueriesArgs, selection: &Selection, path: &Path) -> Result<u8> {
    let name = crate::input::name(path);
    let settings = Settings {
        ports: args.decoder_ports(),
        snap_replies: None,
        verify_checksums: args.verify_checksums,
        show_values: args.show_values,
        sample: args.sample.unwrap_or(0),
    };
    let window_settings = args.window_settings();
    let stop = stop::flag()?;
    let shared = Arc::new(Shared::default());
    let mut run = FilePass {
        decoder: Decoder::new(settings, shared.clone()),
        shared,
        logs: args.log.clone(),
        read_logs: ReadLogs::default(),
        zone: selection.zone.clone(),
        stop: stop.clone(),
        collect: WindowCollector {
            window: Window::new(Timestamp::default(), window_settings),
            output: QueriesOutput::new(args, selection, PacketOrigin::File)?,
            error: None,
        },
        clock: args.interval.map(|interval| WindowClock::new(interval.as_nanos() as u64)),
        total: None,
        counted: Coverage::default(),
        settings: window_settings,
        second: 0,
        first: None,
        last: Timestamp::default(),
        end_ns: args.duration.map(|duration| duration.as_nanos() as u64),
    };
    let end = packets::read(path, &stop, &mut run)?;
    run.finish(&end)?;
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

impl PacketSink for FilePass {
    fn packet(&mut self, packet: &sonar_core::Packet<'_>) -> Result<ControlFlow<()>> {
        let time = packet.time;
        let first = *self.first.get_or_insert(time);
        if self.end_ns.is_some_and(|ns| time.since(first) >= ns) {
            return Ok(ControlFlow::Break(()));
        }
        if self.collect.window.start == Timestamp::default() {
            self.read_logs = applications::read_logs(&self.logs, time, &self.shared, &self.stop)?;
            let width = self.clock.as_mut().map(|clock| {
                clock.advance(time);
                clock.start()
            });
            let start = width.flatten().unwrap_or(time);
            self.collect.window.start = start;
            self.collect.window.end = start;
        } else if let Some(clock) = &mut self.clock
            && let Some((_, end)) = clock.advance(time)
        {
            let next = clock.start().unwrap_or(end);
            self.rotate(end, next)?;
        }
        self.last = self.last.max(time);
        if time.unix_ns() / NS_PER_S > self.second {
            self.second = time.unix_ns() / NS_PER_S;
            self.decoder.tick(time, &mut self.collect);
        }
        self.decoder.packet(packet, &mut self.collect);
        match self.collect.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    fn waiting(&mut self) -> Result<()> {
        if self.collect.output.wants_each() {
            self.collect.output.flush()?;
        }
        Ok(())
    }
}

impl FilePass {
    /// Closes the open window at `end` and opens the next one.
    fn rotate(&mut self, end: Timestamp, next: Timestamp) -> Result<()> {
        let mut window = std::mem::replace(&mut self.collect.window, Window::new(next, self.settings));
        self.close(&mut window, end);
        self.collect.output.interval(&window)?;
        self.add(window);
        Ok(())
    }

    fn close(&mut self, window: &mut Window, end: Timestamp) {
        window.end = end.max(window.start);
        window.in_flight = self.decoder.in_flight(end);
        let coverage = self.decoder.coverage();
        window.coverage.add(&coverage.since(&self.counted));
        self.counted = coverage;
    }

    fn add(&mut self, window: Window) {
        match &mut self.total {
            Some(total) => total.merge(&window),
            None => self.total = Some(window),
        }
    }

    fn finish(&mut self, end: &CaptureEnd) -> Result<()> {
        match end {
            CaptureEnd::Complete => {}
            CaptureEnd::Damaged(what) => {
                self.collect.window.coverage.files_damaged += 1;
                self.collect.output.note(format!("NOT IN FULL: {what}"));
            }
            CaptureEnd::Stopped(what) => {
                self.collect.window.coverage.files_stopped += 1;
                self.collect.output.note(format!("NOT IN FULL: {what}"));
            }
        }
        // Operations are in flight at the end of the file until the decoder gives them up.
        let in_flight = self.decoder.in_flight(self.last);
        self.decoder.finish(self.last, &mut self.collect);
        let mut window = std::mem::replace(&mut self.collect.window, Window::new(self.last, self.settings));
        self.close(&mut window, self.last);
        window.in_flight = in_flight;
        // Without a packet there is no interval.
        if self.clock.is_some() && self.last != Timestamp::default() {
            self.collect.output.interval(&window)?;
        }
        self.add(window);
        if let Some(total) = &self.total {
            let span = (self.first.unwrap_or_default(), self.last);
            let (is_used, late) = (self.shared.has_named_clients(), total.coverage.streams_joined_late);
            for note in self.read_logs.notes(is_used, late, span, &self.zone) {
                self.collect.output.note(note);
            }
            self.collect.output.summary(total)?;
        }
        match self.collect.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}
