//! Log lines of mongod and mongos, 2.4 to 8.x: text and JSON, recognised line by line.
//!
//! Formats: <https://www.mongodb.com/docs/manual/reference/log-messages/> for 4.4 and later; the servers' sources and
//! recorded logs for earlier versions. A [`LineReader`] reads each line by itself. A [`LogReader`] takes the lines in
//! order: operations go to the [`OperationAssembler`]; connections, clients, starts, errors and warnings to
//! [`LogNotices`]; unreadable lines are counted by reason. If asked to, it also collects what happened as [`Event`]s.

mod envelope;
mod event_log;
mod events;
mod json;
mod line;
mod memory;
mod parts;
mod reader;
mod rebuilt;
mod remotes;
mod server_port;
mod syslog;
mod text;
mod unwrap;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::quality::RandomState;
use sonar_core::history::{ApplicationWatch, Event};
use sonar_core::{Application, Endpoint, LogNotices, Reading, Timestamp};

use self::event_log::EventLog;
pub(crate) use self::json::read_document;
use self::line::LinePart;
pub use self::line::{Bound, LineKind, LogEvent, LogSettings, ParsedLine};
use self::parts::{JoinedLine, OutputStream, UnfinishedLine};
pub use self::reader::LineReader;
pub use self::remotes::{LogEnd, MAX_CONNECTIONS, Remotes, ended_client};
pub use self::server_port::server_port;
pub use self::unwrap::{holds_lines, lines_of};
use crate::entry::{EntryContext, EntrySink, OperationAssembler, ParsedEntry};
use crate::identity::{Applications, is_server};

/// The most lines of one operation.
const MAX_TORN: u64 = 10_000;

/// The client of a connection.
#[derive(Clone, Debug, Default)]
struct LogConnection {
    /// Its application; `None` before it said that.
    app: Option<Arc<Application>>,
    is_server: bool,
    /// The user, after it was authenticated.
    user: Option<Arc<str>>,
    /// Its address, in logs that state it only where the connection is accepted.
    client: Option<Endpoint>,
}

/// A log: takes its lines in order.
#[derive(Default)]
pub struct LogReader {
    settings: LogSettings,
    assembler: OperationAssembler,
    reading: Reading,
    notices: LogNotices,
    connections: HashMap<u64, LogConnection, RandomState>,
    apps: Applications,
    /// Counts servers, to distinguish their connections.
    server: u64,
    /// The lines so far of an object over several lines, as `jq` writes it.
    spread: UnfinishedLine,
    /// The parts so far of lines that a container runtime cut, of standard output and standard error.
    parts: [UnfinishedLine; 2],
    /// The lines so far of an operation in a text log, of which a value has line feeds.
    torn: UnfinishedLine,
    /// What stands before each line of that operation.
    torn_behind: TornPlace,
    /// The time of the first line that had one.
    first: Option<Timestamp>,
    /// The time of the last line that had one.
    last: Option<Timestamp>,
    /// Collects events, if asked to.
    events: Option<EventLog>,
}

/// What stands before each line of an operation over several lines.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum TornPlace {
    /// Nothing.
    #[default]
    Bare,
    /// The prefix of another program.
    Prefix(Vec<u8>),
    /// Each is a line of a container runtime.
    Runtime(OutputStream),
}

impl TornPlace {
    /// Where the first line stands; `None` in other envelopes.
    fn of(line: &[u8], parsed: &ParsedLine) -> Option<Self> {
        match &parsed.part {
            Some(part) => part.is_last.then_some(Self::Runtime(part.stream)),
            None if !parsed.is_unwrapped => Some(Self::Bare),
            None if parsed.prefix > 0 => {
                Some(Self::Prefix(bare(line).get(..usize::from(parsed.prefix))?.to_vec()))
            }
            None => None,
        }
    }

    /// The text of a line that stands in the same place.
    fn text<'a>(&self, line: &'a [u8], parsed: &'a ParsedLine) -> Option<&'a [u8]> {
        match (self, &parsed.part) {
            (Self::Runtime(stream), Some(part)) if part.stream == *stream && part.is_last => {
                Some(part.text.strip_suffix(b"\n").unwrap_or(&part.text))
            }
            (Self::Bare, None) => Some(line),
            (Self::Prefix(prefix), None) => envelope::behind_like(prefix, bare(line)),
            _ => None,
        }
    }
}

/// A line without what a file may begin with.
fn bare(line: &[u8]) -> &[u8] {
    line.strip_prefix(envelope::BYTE_ORDER_MARK).unwrap_or(line).trim_ascii_start()
}

impl LogReader {
    /// Ready for the first line.
    pub fn new(settings: LogSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The settings for reading its lines.
    pub fn settings(&self) -> LogSettings {
        self.settings
    }

    /// A reader of the lines of this log.
    pub fn reader(&self) -> LineReader {
        LineReader::new(self.settings)
    }

    /// The next lines come from another server, or from an unknown one.
    pub fn next_server(&mut self) {
        self.abandon_unfinished();
        self.server += 1;
        self.connections.clear();
    }

    /// From now on, collects what happens as events of `server`. An application is new if `applications` does not
    /// know it.
    pub fn collect_events(&mut self, server: Endpoint, applications: ApplicationWatch) {
        self.events = Some(EventLog::new(server, applications));
    }

    /// The events since the last call, nearly in order, and how many were left out because they were too many.
    pub fn take_events(&mut self) -> (Vec<Event>, u64) {
        self.events.as_mut().map(EventLog::take).unwrap_or_default()
    }

    /// The settings with which the server last started, as far as its log has them; empty if it has not, and without
    /// [`collect_events`](Self::collect_events).
    pub fn server_settings(&self) -> BTreeMap<String, String> {
        self.events.as_ref().map(|events| events.settings().clone()).unwrap_or_default()
    }

    /// The server last started with these settings, as an earlier reader of the same log knows.
    pub fn knows_server_settings(&mut self, settings: BTreeMap<String, String>) {
        if let Some(events) = &mut self.events {
            events.knows_settings(settings);
        }
    }

    /// The version that the server named since the last call, and when it did.
    pub fn take_version(&mut self) -> Option<(Timestamp, Box<str>)> {
        self.events.as_mut().and_then(EventLog::take_version)
    }

    /// When the server began to shut down, if it has logged that since the last call: it closes its port then, and logs
    /// its end last. Known only while events are collected.
    pub fn take_shutdown(&mut self) -> Option<Timestamp> {
        self.events.as_mut().and_then(EventLog::take_shutdown)
    }

    /// From now on, passes on the users and comments of operations, which clients chose.
    pub fn show_values(&mut self) {
        self.assembler.shows_values = true;
    }

    /// The most statements that wait for their command, for tests of the cap.
    #[cfg(test)]
    pub(crate) fn set_max_waiting(&mut self, most: usize) {
        self.assembler.set_max_waiting(most);
    }

    /// Dates without a year are at most a day later than this.
    pub fn set_reference(&mut self, reference_ms: i64) {
        self.settings.reference_ms = reference_ms;
    }

    /// The time of the last line that had one.
    pub fn last_time(&self) -> Option<Timestamp> {
        self.last
    }

    /// The times of the first and the last line that had one, also outside of the time range.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        self.first.zip(self.last)
    }

    /// The counters of what was read and what was not.
    pub fn reading(&self) -> Reading {
        let mut reading = self.assembler.reading;
        reading.add(&self.reading);
        reading
    }

    /// Everything that is not an operation: connections, starts, errors and warnings.
    pub fn notices(&self) -> &LogNotices {
        &self.notices
    }

    /// The counters that belong to the caller: files, bytes.
    pub fn reading_mut(&mut self) -> &mut Reading {
        &mut self.reading
    }

    /// Reads and adds one line, without its line feed. To read many, keep a [`reader`](Self::reader).
    pub fn line(&mut self, line: &[u8], sink: &mut impl EntrySink) {
        let mut entry = ParsedEntry::default();
        let parsed = self.reader().read(line, &mut entry);
        self.add(line, &parsed, &entry, sink);
    }

    /// Adds the next line, as read by a [`reader`](Self::reader) of this log.
    pub fn add(&mut self, line: &[u8], parsed: &ParsedLine, entry: &ParsedEntry, sink: &mut impl EntrySink) {
        let kind = self.apply(line, parsed, entry, sink);
        *self.counter(kind) += 1;
    }

    /// Adds the last line of a file, which has no line feed: the server may still be writing it.
    pub fn add_last(
        &mut self,
        line: &[u8],
        parsed: &ParsedLine,
        entry: &ParsedEntry,
        sink: &mut impl EntrySink,
    ) {
        // Earlier lines that it may have ended are counted as what they are.
        let kind = self.apply(line, parsed, entry, sink);
        let is_cut = match kind {
            LineKind::Unknown | LineKind::Malformed => true,
            LineKind::Operation | LineKind::Outside | LineKind::Empty => false,
            // JSON that could be parsed is complete.
            _ => text::is_cut(line, self.settings.reference_ms),
        };
        *(if is_cut { &mut self.reading.lines_unfinished } else { self.counter(kind) }) += 1;
    }

    /// Counts a line that is too long to be read.
    pub fn add_too_long(&mut self) {
        self.reading.lines += 1;
        self.reading.lines_too_long += 1;
    }

    /// The counter of lines of a kind.
    fn counter(&mut self, kind: LineKind) -> &mut u64 {
        match kind {
            LineKind::Operation => &mut self.reading.lines_operation,
            LineKind::Event => &mut self.reading.lines_event,
            LineKind::Other | LineKind::ObjectBegin => &mut self.reading.lines_other,
            LineKind::Outside => &mut self.reading.lines_outside,
            LineKind::Empty => &mut self.reading.lines_empty,
            LineKind::Unknown => &mut self.reading.lines_unknown,
            LineKind::Malformed => &mut self.reading.lines_malformed,
            LineKind::TooLong => &mut self.reading.lines_too_long,
        }
    }

    /// Adds a line, unless it is part of something over several lines. Returns its kind.
    fn apply(
        &mut self,
        line: &[u8],
        parsed: &ParsedLine,
        entry: &ParsedEntry,
        sink: &mut impl EntrySink,
    ) -> LineKind {
        self.reading.lines += 1;
        if !self.spread.is_empty() {
            let plain = envelope::uncoloured(line);
            let line = plain.strip_suffix(b"\r").unwrap_or(&plain);
            if let Some(kind) = self.spread_line(line, sink) {
                return kind;
            }
        }
        if !self.torn.is_empty() {
            let is_next = parsed.at.is_none() && self.torn.lines() < MAX_TORN;
            match self.torn_behind.text(line, parsed) {
                Some(line) if is_next => return self.join_torn(line, sink),
                // A line of another program, between those of the operation.
                None if is_next => {}
                _ => self.abandon_torn(),
            }
        }
        if parsed.begins_operation
            && self.torn.is_empty()
            && let Some(place) = TornPlace::of(line, parsed)
        {
            self.torn_behind = place;
            if let Some(text) = self.torn_behind.text(line, parsed) {
                self.torn.add(false, text);
                return self.apply_whole(line, parsed, entry, sink);
            }
        }
        match &parsed.part {
            Some(part) if !self.is_whole(part) => {
                let joined = self.parts[part.stream as usize].add(part.is_last, &part.text);
                self.apply_joined(&joined, sink)
            }
            _ if parsed.kind == LineKind::ObjectBegin => self.join_spread(false, b"{", sink),
            _ => self.apply_whole(line, parsed, entry, sink),
        }
    }

    /// A line after one of an object over several lines; `None`: it is not part of that object.
    fn spread_line(&mut self, line: &[u8], sink: &mut impl EntrySink) -> Option<LineKind> {
        let is_end = matches!(line.trim_ascii_end(), b"}" | b"},");
        let is_inside = line.first().is_none_or(|byte| matches!(byte, b' ' | b'\t'));
        if !(is_end || is_inside) {
            self.abandon_spread();
            return None;
        }
        Some(self.join_spread(is_end, line, sink))
    }

    /// Adds a line of an object over several lines.
    fn join_spread(&mut self, is_last: bool, line: &[u8], sink: &mut impl EntrySink) -> LineKind {
        let lines = self.spread.lines();
        let joined = self.spread.add(is_last, line);
        let kind = self.apply_joined(&joined, sink);
        if let (JoinedLine::Line(text), LineKind::Unknown | LineKind::Malformed) = (&joined, kind) {
            self.recount(lines, envelope::looks_like_json(text));
        }
        kind
    }

    /// Adds a line without a head after the beginning of an operation.
    fn join_torn(&mut self, line: &[u8], sink: &mut impl EntrySink) -> LineKind {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A value may end in "items".
        let is_last = line.strip_suffix(b"ms").is_some_and(|rest| {
            let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            digits > 0 && rest[..rest.len() - digits].ends_with(b" ")
        });
        let before = self.torn.lines();
        match self.torn.add(is_last, &[b"\n", line].concat()) {
            JoinedLine::Line(text) => {
                let mut entry = ParsedEntry::default();
                let mut parsed = self.reader().read(&text, &mut entry);
                if parsed.kind == LineKind::Operation {
                    parsed.is_unwrapped = !matches!(self.torn_behind, TornPlace::Bare);
                    return self.apply_whole(&text, &parsed, &entry, sink);
                }
                self.recount(before - 1, false);
                LineKind::Unknown
            }
            JoinedLine::TooLong(_) => {
                self.recount(before - 1, false);
                LineKind::Unknown
            }
            JoinedLine::Pending => LineKind::Other,
        }
    }

    /// The lines after the beginning of an operation do not end it.
    fn abandon_torn(&mut self) {
        let (lines, _) = self.torn.abandon();
        self.recount(lines.saturating_sub(1), false);
    }

    /// Whether the part of a line is the whole line.
    fn is_whole(&mut self, part: &LinePart) -> bool {
        let at = part.stream as usize;
        if !self.parts[at].is_empty() && self.begins_line(&part.text) {
            // The server ended within the line before.
            let (lines, _) = self.parts[at].abandon();
            self.recount(lines, true);
        }
        part.is_last && self.parts[at].is_empty()
    }

    /// Adds the line that several parts make up.
    fn apply_joined(&mut self, joined: &JoinedLine, sink: &mut impl EntrySink) -> LineKind {
        match joined {
            JoinedLine::Pending => LineKind::Other,
            JoinedLine::Line(line) => {
                let (line, mut entry) = (line.trim_ascii(), ParsedEntry::default());
                let mut parsed = self.reader().read(line, &mut entry);
                parsed.is_unwrapped |= parsed.kind != LineKind::Unknown;
                self.apply_whole(line, &parsed, &entry, sink)
            }
            JoinedLine::TooLong(lines) => {
                self.reading.lines_too_long += self.take_from_other(*lines);
                LineKind::TooLong
            }
        }
    }

    /// Whether a text begins as a log line does.
    fn begins_line(&self, text: &[u8]) -> bool {
        text.starts_with(b"{\"t\":{\"$date\"") || text::begins_line(text, self.settings.reference_ms)
    }

    /// Takes back lines that were counted as others because more was to come.
    fn take_from_other(&mut self, lines: u64) -> u64 {
        self.reading.lines_other -= lines.min(self.reading.lines_other);
        lines
    }

    /// Lines that were counted as others could not be read after all.
    fn recount(&mut self, lines: u64, is_of_server: bool) {
        let lines = self.take_from_other(lines);
        if is_of_server {
            self.reading.lines_malformed += lines;
        } else {
            self.reading.lines_unknown += lines;
        }
    }

    /// The lines of an object over several lines make up no object.
    fn abandon_spread(&mut self) {
        let (lines, text) = self.spread.abandon();
        self.recount(lines, envelope::looks_like_json(&text));
    }

    /// Nothing follows what began on the lines before.
    fn abandon_unfinished(&mut self) {
        self.abandon_spread();
        self.abandon_torn();
        for at in 0..self.parts.len() {
            let (lines, _) = self.parts[at].abandon();
            self.recount(lines, true);
        }
    }

    /// Adds what a whole line says.
    fn apply_whole(
        &mut self,
        line: &[u8],
        parsed: &ParsedLine,
        entry: &ParsedEntry,
        sink: &mut impl EntrySink,
    ) -> LineKind {
        self.reading.lines_unwrapped += u64::from(parsed.is_unwrapped);
        self.last = parsed.at.or(self.last);
        self.first = self.first.or(parsed.at);
        if parsed.kind != LineKind::Outside
            && let (Some(at), Some(minutes)) = (parsed.at, parsed.offset)
        {
            self.notices.offsets.record(at, minutes);
        }
        if let (Some(events), Some(at)) = (&mut self.events, parsed.at)
            && parsed.kind != LineKind::Outside
        {
            events.advance(at);
            if let Some(happened) = &parsed.happened {
                events.line(at, happened);
            }
        }
        let thread = parsed.thread ^ self.server.rotate_right(16);
        if parsed.kind == LineKind::Operation {
            let connection = parsed.connection.and_then(|number| self.connections.get(&number));
            let context = EntryContext {
                app: connection.and_then(|connection| connection.app.as_ref()),
                user: connection.and_then(|connection| connection.user.as_ref()),
                client: connection.and_then(|connection| connection.client),
                from_server: connection.is_some_and(|connection| connection.is_server),
                internal: parsed.connection.is_none(),
                end: parsed.at,
                thread: Some(thread),
                weight: 1,
            };
            let text = || LineReader::new(self.settings).shape(line);
            self.assembler.add(entry, &context, text, sink);
        }
        if let Some(event) = &parsed.event {
            if **event == LogEvent::Ended {
                self.assembler.end_thread(thread, sink);
            }
            let at = parsed.at.unwrap_or_default();
            if let Some(events) = &mut self.events {
                note_event(events, at, event);
            }
            self.note(at, parsed.connection, event);
        }
        parsed.kind
    }

    /// Notes an event at `at`, written by the thread of this connection.
    fn note(&mut self, at: Timestamp, connection: Option<u64>, event: &LogEvent) {
        match event {
            LogEvent::Accepted { open, client } => {
                self.notices.accept(at, *open);
                if let Some((number, address)) = client
                    && let Some(connection) = self.connection(Some(*number))
                {
                    connection.client = Some(*address);
                }
            }
            LogEvent::Client(app) => self.identify(connection, app),
            LogEvent::Started { pid, port, host } => {
                let start = self.notices.start(at);
                start.pid = start.pid.or(*pid);
                start.port = start.port.or(*port);
                if !host.is_empty() {
                    start.host = host.clone();
                }
                self.connections.clear();
            }
            LogEvent::Version { version, is_startup } => {
                if let Some(start) = self.notices.recent_start(at) {
                    start.version = version.clone();
                } else if *is_startup {
                    self.notices.start(at).version = version.clone();
                } else {
                    self.notices.running_version(version);
                }
            }
            LogEvent::InProgress => self.reading.operations_in_progress += 1,
            LogEvent::Authenticated(user) => {
                if let Some(connection) = self.connection(connection) {
                    connection.user = Some(user.as_ref().into());
                }
            }
            LogEvent::SlowReply(ms) => self.notices.slow_reply(at, *ms),
            LogEvent::Message(message) => self.notices.message(at, message.clone()),
            LogEvent::Ended => {
                self.notices.ended += 1;
                if let Some(number) = connection {
                    self.connections.remove(&number);
                }
            }
        }
    }

    /// A client has identified itself on a connection.
    fn identify(&mut self, connection: Option<u64>, app: &Application) {
        let is_server = is_server(app, None);
        let app = self.apps.shared(app.clone()).unwrap_or_else(|| {
            self.reading.apps_folded += 1;
            self.apps.other.clone()
        });
        self.notices.client(&app);
        if let Some(connection) = self.connection(connection) {
            (connection.app, connection.is_server) = (Some(app), is_server);
        }
    }

    /// What is known of a connection; `None` if too many are.
    fn connection(&mut self, number: Option<u64>) -> Option<&mut LogConnection> {
        let number = number?;
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&number) {
            self.reading.connections_forgotten += 1;
            return None;
        }
        Some(self.connections.entry(number).or_default())
    }

    /// Emits what waits: the source has ended.
    pub fn finish(&mut self, sink: &mut impl EntrySink) {
        self.abandon_unfinished();
        self.assembler.finish(sink);
        if let Some(events) = &mut self.events {
            events.finish();
        }
    }
}

/// Notes what a line says besides operations as an event.
fn note_event(events: &mut EventLog, at: Timestamp, event: &LogEvent) {
    match event {
        LogEvent::Accepted { .. } => events.accepted(at),
        LogEvent::Client(app) if !is_server(app, None) => events.client(at, app),
        LogEvent::Started { pid, .. } => events.started(at, *pid, ""),
        LogEvent::Version { version, is_startup } => {
            events.version(at, version);
            if *is_startup {
                events.started(at, None, version);
            }
        }
        LogEvent::Message(message) => events.message(at, message),
        _ => {}
    }
}
