//! The log of a server that is followed: each line counts in the window of its time, with its operation and its events.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use sonar_core::history::{Event, EventKind};
use sonar_core::observation::{LinePlace, LogStart, WIDTH_NS, WindowCutter, add_line};
use sonar_core::{Endpoint, Reading, Timestamp};
use sonar_decode::entry::ParsedEntry;
use sonar_decode::log::{LineKind, LineReader, LogEvent, LogReader, ParsedLine, ended_client};

use super::client_ends::ClientEnds;
use crate::agent::log_operations::LogOperations;
use crate::input::follow::{FileFollower, FollowNotice, FollowedPlace, LineSink};

/// What a log says of the end of its server, and of the ends of connections to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedEnds {
    /// When the server began to shut down.
    pub began: Option<Timestamp>,
    /// Its ends.
    pub events: Vec<Event>,
    /// Ends of connections since the agent started.
    pub clients: ClientEnds,
}

/// A log that is followed.
pub struct FollowedLog<P> {
    follower: FileFollower<P>,
    lines: LogLines,
}

impl<P: FollowedPlace> FollowedLog<P> {
    /// `follower` gives the lines to `reader`.
    pub fn new(follower: FileFollower<P>, reader: LogReader, following: LogFollowing) -> Self {
        let line_reader = reader.reader();
        let LogFollowing { server, start, now, begun, knows_settings } = following;
        let lines = LogLines {
            server,
            read_before: start.as_ref().map_or(0, |start| start.place.read),
            start,
            window: now.floor_to(WIDTH_NS),
            counted: reader.reading(),
            reader,
            line_reader,
            entry: ParsedEntry::default(),
            place: None,
            is_stored: false,
            was_truncated: false,
            knows_settings,
            lost: 0,
            ends: Vec::new(),
            begun,
            clients: ClientEnds::default(),
        };
        Self { follower, lines }
    }

    /// Reads what was written since the last call. That may be days of lines, so `stop` ends it early.
    ///
    /// # Errors
    /// The log cannot be read. What was read before counts.
    pub fn poll(&mut self, windows: &mut WindowCutter, stop: &AtomicBool) -> io::Result<()> {
        let mut sink = LineTaker { lines: &mut self.lines, windows };
        let result = loop {
            match self.follower.poll(&mut sink) {
                Ok(true) if !stop.load(Ordering::Relaxed) => {}
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.lines.flush(windows);
        self.note_read(windows);
        result
    }

    /// All lines before its place are in windows.
    fn note_read(&mut self, windows: &mut WindowCutter) {
        if let Some(place) = self.place() {
            self.lines.note_read(place, windows);
        }
    }

    /// The server has ended, or writes another log: the rest of the last line counts, too. Whoever goes on in the same file
    /// must begin at [`place`](Self::place), which is then after that rest.
    pub fn finish(&mut self, windows: &mut WindowCutter) {
        self.follower.finish(&mut LineTaker { lines: &mut self.lines, windows });
        self.end(windows);
        self.note_read(windows);
    }

    /// The agent ends; the rest of the last line is read by the next one.
    pub fn end(&mut self, windows: &mut WindowCutter) {
        self.lines.reader.finish(&mut LogOperations { windows, server: self.lines.server });
        self.lines.flush(windows);
    }

    /// The bytes that it holds of the lines so far, and of the one that is not complete yet.
    pub fn memory(&self) -> usize {
        self.lines.reader.memory() + self.follower.memory()
    }

    /// Forgets what lines so far said of shapes and connections, and a long line that is not complete yet; counts what
    /// waits.
    pub fn forget(&mut self, windows: &mut WindowCutter) {
        self.follower.forget_long();
        self.lines.reader.forget(&mut LogOperations { windows, server: self.lines.server });
        self.lines.flush(windows);
    }

    /// Where the first line begins that was not read; `None` if no file was found yet.
    pub fn place(&self) -> Option<LinePlace> {
        self.follower.place().map(|place| self.lines.of_all(place))
    }

    /// Whether no file is at its place. The one that was there is still read.
    pub fn is_missing(&self) -> bool {
        self.follower.is_missing()
    }

    /// The reader of its lines.
    pub fn reader(&mut self) -> &mut LogReader {
        &mut self.lines.reader
    }

    /// Lines so far.
    pub fn lines(&self) -> u64 {
        self.lines.counted.lines
    }

    /// Lines so far that could not be read.
    pub fn lost(&self) -> u64 {
        self.lines.lost
    }

    /// What it says of the end of its server, and of connections to it, since the last call.
    pub fn take_ends(&mut self) -> LoggedEnds {
        LoggedEnds {
            began: self.lines.reader.take_shutdown(),
            events: std::mem::take(&mut self.lines.ends),
            clients: self.lines.clients.take(),
        }
    }
}

/// How a log begins to be followed.
#[derive(Clone, Debug)]
pub struct LogFollowing {
    /// Its server.
    pub server: Endpoint,
    /// Where an earlier run of the agent, or an earlier follower, stopped.
    pub start: Option<LogStart>,
    /// The time. Lines before the first one with a time count in its window.
    pub now: Timestamp,
    /// When the agent started. It has nothing in flight of connections that ended before.
    pub begun: Timestamp,
    /// Whether the settings of the process are known: they are compared then, and not those in the log.
    pub knows_settings: bool,
}

/// Reads the lines.
struct LogLines {
    server: Endpoint,
    reader: LogReader,
    line_reader: LineReader,
    entry: ParsedEntry,
    start: Option<LogStart>,
    /// Bytes that earlier followers have read.
    read_before: u64,
    /// What has been counted in windows.
    counted: Reading,
    /// Lines that could not be read.
    lost: u64,
    /// Where the present line begins.
    place: Option<LinePlace>,
    /// The window of the last line with a time.
    window: Timestamp,
    /// Whether the last line is stored already.
    is_stored: bool,
    /// What was before the next line is in no file any more.
    was_truncated: bool,
    /// Whether the settings of the process are known.
    knows_settings: bool,
    /// Ends of the server that wait to be taken.
    ends: Vec<Event>,
    /// When the agent started.
    begun: Timestamp,
    /// Ends of connections that wait to be taken.
    clients: ClientEnds,
}

impl LogLines {
    /// A place that the follower knows, with the bytes of earlier followers.
    fn of_all(&self, place: LinePlace) -> LinePlace {
        LinePlace { read: self.read_before + place.read, ..place }
    }

    /// All lines before `place` are in windows.
    fn note_read(&mut self, place: LinePlace, windows: &mut WindowCutter) {
        if std::mem::take(&mut self.was_truncated) {
            windows.note_truncated(self.server, place);
        }
        windows.note_read(self.server, place);
    }

    /// Takes a line; `is_last` if it has no line feed.
    fn take(&mut self, line: &[u8], is_last: bool, windows: &mut WindowCutter) {
        let parsed = self.line_reader.read(line, &mut self.entry);
        self.note_client(line, &parsed);
        // What is older than what is asked for counts where it is read.
        let at = parsed.at().filter(|_| parsed.kind != LineKind::Outside);
        let window = at.map_or(self.window, |at| at.floor_to(WIDTH_NS));
        self.begin(window, windows);
        if self.is_stored {
            // It still says what later lines are about: which application a connection has.
            return self.reader.add(line, &parsed, &self.entry, &mut ());
        }
        let mut sink = LogOperations { windows, server: self.server };
        match is_last {
            true => self.reader.add_last(line, &parsed, &self.entry, &mut sink),
            false => self.reader.add(line, &parsed, &self.entry, &mut sink),
        }
    }

    /// Notes the connection that has ended, if a line says that.
    fn note_client(&mut self, line: &[u8], parsed: &ParsedLine) {
        if parsed.event() == Some(&LogEvent::Ended)
            && let Some(at) = parsed.at().filter(|at| *at >= self.begun)
            && let Some(client) = ended_client(line, at)
        {
            self.clients.add(client);
        }
    }

    /// A line that is too long was left out. It says no time, so it counts with the one before.
    fn take_too_long(&mut self, windows: &mut WindowCutter) {
        self.begin(self.window, windows);
        self.reader.add_too_long();
    }

    /// The present line is one of this window, unless it is stored already.
    fn begin(&mut self, window: Timestamp, windows: &mut WindowCutter) {
        let is_stored =
            self.place.is_some_and(|place| self.start.as_ref().is_some_and(|start| start.has(place, window)));
        if (window, is_stored) != (self.window, self.is_stored) {
            self.flush(windows);
            (self.window, self.is_stored) = (window, is_stored);
        }
        if let Some(place) = self.place.filter(|_| !is_stored) {
            add_line(&mut windows.at(window).logs, self.server, place);
        }
    }

    /// Counts the lines since the last call in their window, with their events.
    fn flush(&mut self, windows: &mut WindowCutter) {
        let reading = self.reader.reading();
        let news = reading.since(&self.counted);
        self.counted = reading;
        let (events, left_out) = self.reader.take_events();
        if self.is_stored || (news == Reading::default() && events.is_empty() && left_out == 0) {
            return;
        }
        self.lost += news.lines_too_long + news.lines_malformed + news.lines_unfinished;
        self.ends.extend(events.iter().filter(|event| event.kind == EventKind::ServerStop).cloned());
        let part = windows.at(self.window);
        part.window.reading.add(&news);
        part.events_left_out += left_out;
        // Also those that began earlier: they are known by lines of this window.
        let events = events.into_iter().filter(|event| !self.knows_settings || !event.is_setting_of_start());
        events.for_each(|event| part.event(event));
    }
}

/// Takes the lines of a followed log.
struct LineTaker<'a> {
    lines: &'a mut LogLines,
    windows: &'a mut WindowCutter,
}

impl LineSink for LineTaker<'_> {
    const WANTS_PLACES: bool = true;

    fn begins(&mut self, place: LinePlace) {
        let place = self.lines.of_all(place);
        self.lines.place = Some(place);
        self.lines.note_read(place, self.windows);
    }

    fn line(&mut self, line: &[u8]) {
        self.lines.take(line, false, self.windows);
    }

    fn unfinished(&mut self, line: &[u8]) {
        self.lines.take(line, true, self.windows);
    }

    fn too_long(&mut self) {
        self.lines.take_too_long(self.windows);
    }

    fn notice(&mut self, notice: FollowNotice) {
        match notice {
            FollowNotice::TruncatedWithoutCopy => {
                self.lines.reader.reading_mut().lines_unfinished += 1;
                self.lines.reader.reading_mut().lines += 1;
                self.lines.was_truncated = true;
            }
            // The lines of these windows are in no file any more, and those of this file are others.
            FollowNotice::StartLost => self.lines.start = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
