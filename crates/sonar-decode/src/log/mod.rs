//! Log lines of mongod and mongos, 2.4 to 8.x: text and JSON, distinguished line by line.
//!
//! Formats: <https://www.mongodb.com/docs/manual/reference/log-messages/> for 4.4 and later, the servers'
//! sources and recorded logs for what came before. A line that describes an operation goes to the
//! [`Assembler`]; connections, clients, starts, errors and warnings to [`Notices`]; what cannot be read is
//! counted by reason.

mod envelope;
mod json;
mod layout;
mod parts;
mod remotes;
mod text;

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;
use sonar_core::notices::{MAX_MESSAGE, Message, Severity};
use sonar_core::{Application, Notices, Reading, Timestamp};

pub(crate) use self::json::Document as JsonDocument;
use self::layout::Layouts;
use self::parts::{Joined, Part, Unfinished};
pub use self::remotes::Remotes;
use crate::entry::{Assembler, Extra, Sink};
use crate::identity::{Applications, is_server};
use crate::syntax::json::Scratch;

/// The most connections that are known at once.
pub const MAX_CONNECTIONS: usize = 100_000;

/// The largest object over several lines, in bytes.
const MAX_SPREAD: usize = 1 << 20;

/// An end of the time that is asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// A point in time.
    At(Timestamp),
    /// What the log's own clock shows, in milliseconds since it showed 1970-01-01T00:00:00.
    Clock(i64),
}

impl Bound {
    /// Whether a line comes before it.
    fn is_after(self, head: &Head<'_>) -> bool {
        match self {
            Self::At(at) => head.at < at,
            Self::Clock(ms) => {
                let utc_ms = i64::try_from(head.at.unix_ns() / 1_000_000).unwrap_or(i64::MAX);
                utc_ms.saturating_add(i64::from(head.offset.unwrap_or(0)) * 60_000) < ms
            }
        }
    }
}

/// What is asked of a log.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Lines before this are skipped.
    pub from: Option<Bound>,
    /// Lines at this time or later are skipped.
    pub to: Option<Bound>,
    /// Milliseconds since the Unix epoch: dates without a year lie before a day after this.
    pub reference_ms: i64,
}

/// Who is on a connection.
#[derive(Clone, Debug)]
struct Connection {
    app: Arc<Application>,
    is_server: bool,
}

/// Reads the lines of a log, one after another.
#[derive(Default)]
pub struct Log {
    settings: Settings,
    assembler: Assembler,
    reading: Reading,
    notices: Notices,
    connections: HashMap<u64, Connection, RandomState>,
    apps: Applications,
    /// Counts servers, so that connections of several are kept apart.
    server: u64,
    /// The lines so far of an object that takes several.
    spread: Vec<u8>,
    spread_lines: u64,
    /// The parts so far of lines that a container runtime cut, of standard output and standard error.
    parts: [Unfinished; 2],
    /// The current line was inside a line of another program.
    is_unwrapped: bool,
    /// The time of the last line that had one.
    last: Option<Timestamp>,
    scratch: Scratch,
    layouts: Layouts,
}

/// What a line turned out to be.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Line {
    Operation,
    Event,
    Other,
    Outside,
    Unknown,
    Malformed,
    TooLong,
}

/// What stands before the message.
#[derive(Copy, Clone, Debug)]
struct Head<'a> {
    at: Timestamp,
    severity: u8,
    component: &'a [u8],
    context: &'a [u8],
    /// Minutes east of UTC that its time is written with.
    offset: Option<i16>,
}

impl Head<'_> {
    /// Whether a starting server wrote the line: it has no connections yet.
    fn is_startup(&self) -> bool {
        matches!(self.context, b"initandlisten" | b"main" | b"mongosMain" | b"thread1" | b"-")
    }
}

impl Log {
    /// Ready for the first line.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The next lines are from another server, or from one about which nothing is known.
    pub fn next_server(&mut self) {
        self.abandon_unfinished();
        self.server += 1;
        self.connections.clear();
    }

    /// The most statements that wait for their command, for tests of the cap.
    #[cfg(test)]
    pub(crate) fn set_max_waiting(&mut self, most: usize) {
        self.assembler.set_max_waiting(most);
    }

    /// Dates without a year lie before a day after this.
    pub fn set_reference(&mut self, reference_ms: i64) {
        self.settings.reference_ms = reference_ms;
    }

    /// Skips lines before `from`, and those at `to` or later.
    pub fn set_range(&mut self, from: Option<Bound>, to: Option<Bound>) {
        (self.settings.from, self.settings.to) = (from, to);
    }

    /// The time of the last line that had one.
    pub fn last_time(&self) -> Option<Timestamp> {
        self.last
    }

    /// The counters of what was read and what was not.
    pub fn reading(&self) -> Reading {
        let mut reading = self.assembler.reading;
        reading.add(&self.reading);
        reading
    }

    /// Everything that is not an operation: connections, starts, errors and warnings.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The counters that belong to the caller: files, bytes, lines that are too long.
    pub fn reading_mut(&mut self) -> &mut Reading {
        &mut self.reading
    }

    /// Reads one line, without its line feed.
    #[inline]
    pub fn line(&mut self, line: &[u8], sink: &mut impl Sink) {
        if let Some(what) = self.read_line(line, sink) {
            *self.counter(what) += 1;
        }
    }

    /// Reads one line, without counting it as what it is; `None`: it is empty, and counted so.
    #[inline]
    fn read_line(&mut self, line: &[u8], sink: &mut impl Sink) -> Option<Line> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.reading.lines += 1;
        let what = match line.first() {
            _ if !self.spread.is_empty() => self.spread_line(line, sink),
            Some(b'{') if line.len() == 1 => self.begin_spread(),
            Some(b'{') => self.json_line(line, 0, sink),
            Some(b'0'..=b'9' | b'A'..=b'Z') => self.text_line(line, 0, sink),
            _ => {
                let line = line.strip_prefix(envelope::BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
                if line.is_empty() {
                    self.reading.lines_empty += 1;
                    return None;
                }
                self.inner_line(line, 0, sink)
            }
        };
        self.reading.lines_unwrapped += u64::from(std::mem::take(&mut self.is_unwrapped));
        self.reading.entries_outside += u64::from(what == Line::Outside);
        Some(what)
    }

    /// The counter of such lines.
    fn counter(&mut self, what: Line) -> &mut u64 {
        match what {
            Line::Operation => &mut self.reading.lines_operation,
            Line::Event => &mut self.reading.lines_event,
            Line::Other | Line::Outside => &mut self.reading.lines_other,
            Line::Unknown => &mut self.reading.lines_unknown,
            Line::Malformed => &mut self.reading.lines_malformed,
            Line::TooLong => &mut self.reading.lines_too_long,
        }
    }

    /// `{` alone: what follows is an object over several lines, as `jq` writes it.
    fn begin_spread(&mut self) -> Line {
        self.spread.push(b'{');
        self.spread_lines = 1;
        Line::Other
    }

    /// A line of an object over several lines: indented, but for the last.
    fn spread_line(&mut self, line: &[u8], sink: &mut impl Sink) -> Line {
        let is_end = matches!(line.trim_ascii_end(), b"}" | b"},");
        let is_inside = line.first().is_none_or(|byte| matches!(byte, b' ' | b'\t'));
        if !(is_end || is_inside) || self.spread.len() + line.len() > MAX_SPREAD {
            self.abandon_spread();
            return self.inner_line(line, 0, sink);
        }
        self.spread.push(b'\n');
        self.spread.extend_from_slice(line);
        if !is_end {
            self.spread_lines += 1;
            return Line::Other;
        }
        let mut object = std::mem::take(&mut self.spread);
        let what = self.json_line(&object, 0, sink);
        if matches!(what, Line::Unknown | Line::Malformed) {
            self.spread = object;
            self.abandon_spread();
        } else {
            self.is_unwrapped = true;
            object.clear();
            self.spread = object;
        }
        what
    }

    /// The lines were not one object after all: counts them anew.
    fn abandon_spread(&mut self) {
        let lines = std::mem::take(&mut self.spread_lines);
        self.reading.lines_other -= lines.min(self.reading.lines_other);
        if envelope::looks_like_json(&self.spread) {
            self.reading.lines_malformed += lines;
        } else {
            self.reading.lines_unknown += lines;
        }
        self.spread.clear();
    }

    /// A line of a container runtime, which may be a part of a line of the server.
    fn part(&mut self, part: &Part<'_>, depth: u8, sink: &mut impl Sink) -> Line {
        if !self.parts[part.stream as usize].is_empty() && self.begins_line(part.text) {
            // The server was ended within the line before.
            self.abandon_part(part.stream as usize);
        }
        let waiting = &mut self.parts[part.stream as usize];
        if waiting.is_empty() && part.is_last {
            return self.unwrapped(part.text, depth, sink);
        }
        match waiting.add(part) {
            Joined::Pending => Line::Other,
            Joined::Line(line) => self.unwrapped(&line, depth, sink),
            Joined::TooLong(lines) => {
                self.reading.lines_other -= lines.min(self.reading.lines_other);
                self.reading.lines_too_long += lines;
                Line::TooLong
            }
        }
    }

    /// Whether a text begins as a log line does.
    fn begins_line(&self, text: &[u8]) -> bool {
        text.starts_with(b"{\"t\":{\"$date\"") || text::begins_line(text, self.settings.reference_ms)
    }

    /// The rest of a line that was cut into parts never came: they are not what they were counted as.
    fn abandon_part(&mut self, at: usize) {
        let lines = self.parts[at].abandon();
        self.reading.lines_other -= lines.min(self.reading.lines_other);
        self.reading.lines_malformed += lines;
    }

    /// What is spread over several lines does not go on.
    fn abandon_unfinished(&mut self) {
        if !self.spread.is_empty() {
            self.abandon_spread();
        }
        (0..self.parts.len()).for_each(|at| self.abandon_part(at));
    }

    /// A line, or what was inside the line of another program.
    fn inner_line(&mut self, line: &[u8], depth: u8, sink: &mut impl Sink) -> Line {
        match line.first() {
            Some(b'{') => self.json_line(line, depth, sink),
            _ => self.text_line(line, depth, sink),
        }
    }

    /// A line inside the line of another program.
    fn unwrapped(&mut self, line: &[u8], depth: u8, sink: &mut impl Sink) -> Line {
        let what = self.inner_line(line.trim_ascii(), depth + 1, sink);
        self.is_unwrapped |= what != Line::Unknown;
        what
    }

    /// Records the time of a line; returns whether it is inside the time range.
    fn noted(&mut self, head: &Head<'_>) -> bool {
        self.last = Some(head.at);
        if self.is_outside(head) {
            return false;
        }
        if let Some(minutes) = head.offset {
            self.notices.offsets.record(head.at, minutes);
        }
        true
    }

    /// A server stated its version, when it started or because its log was rotated.
    fn stated_version(&mut self, head: &Head<'_>, version: &str) {
        if let Some(start) = self.notices.recent_start(head.at) {
            start.version = version.into();
        } else if head.is_startup() {
            self.notices.start(head.at).version = version.into();
        } else {
            self.notices.running_version(version);
        }
    }

    /// Reads the last line of a file without a line feed: the server may still be writing it.
    pub fn last_line(&mut self, line: &[u8], sink: &mut impl Sink) {
        match self.read_line(line, sink) {
            // Not what lines before it were counted as, which it may have ended.
            Some(Line::Unknown | Line::Malformed) => self.reading.lines_unfinished += 1,
            Some(what) => *self.counter(what) += 1,
            None => {}
        }
    }

    /// Emits what waits: the source has ended.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        self.abandon_unfinished();
        self.assembler.finish(sink);
    }

    fn is_outside(&self, head: &Head<'_>) -> bool {
        self.settings.from.is_some_and(|from| from.is_after(head))
            || self.settings.to.is_some_and(|to| !to.is_after(head))
    }

    /// A number for a thread of the server from its name in the log, and the number of its connection if it serves a
    /// client.
    fn thread(&self, context: &[u8]) -> (u64, Option<u64>) {
        let number = context.strip_prefix(b"conn").and_then(decimal);
        let key = match number {
            Some(number) => number,
            None => crate::shape::hash::bytes(context) | 1 << 63,
        };
        (key ^ self.server.rotate_right(16), number)
    }

    /// What the place in the log says about an operation.
    fn extra<'a>(
        connections: &'a HashMap<u64, Connection, RandomState>,
        at: Timestamp,
        (thread, number): (u64, Option<u64>),
    ) -> Extra<'a> {
        let connection = number.and_then(|number| connections.get(&number));
        Extra {
            app: connection.map(|connection| &connection.app),
            from_server: connection.is_some_and(|connection| connection.is_server),
            internal: number.is_none(),
            end: Some(at),
            thread: Some(thread),
            weight: 1,
        }
    }

    fn accepted(&mut self, at: Timestamp, open: Option<u64>) {
        self.notices.accept(at, open);
    }

    fn ended(&mut self, context: &[u8], sink: &mut impl Sink) {
        self.notices.ended += 1;
        let (thread, number) = self.thread(context);
        self.assembler.end_thread(thread, sink);
        if let Some(number) = number {
            self.connections.remove(&number);
        }
    }

    /// A client has identified itself.
    fn met(&mut self, context: &[u8], app: Application) {
        let is_server = is_server(&app, None);
        let app = self.apps.shared(app).unwrap_or_else(|| {
            self.reading.apps_folded += 1;
            self.apps.other.clone()
        });
        self.notices.client(&app);
        if let (_, Some(number)) = self.thread(context) {
            if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&number) {
                self.reading.connections_forgotten += 1;
                return;
            }
            self.connections.insert(number, Connection { app, is_server });
        }
    }

    /// Records an error or warning; returns whether it is one.
    fn grave(&mut self, head: &Head<'_>, id: Option<u32>, text: &[u8]) -> bool {
        let Some(severity) = Severity::of(head.severity) else { return false };
        // Since 4.4 a message is constant, and what differs stands in its attributes.
        let text = if id.is_some_and(|id| id != 0) { lossy(text) } else { masked(text) };
        let message = Message {
            severity,
            component: lossy(head.component).into(),
            id,
            text: text.chars().take(MAX_MESSAGE).collect::<String>().into(),
        };
        self.notices.message(head.at, message);
        true
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_MESSAGE)]).into_owned()
}

/// A message without its variable parts: numbers, addresses, and everything from the first quoted text or document
/// on. Nothing behind these is provably the server's own text.
fn masked(text: &[u8]) -> String {
    let text = lossy(text);
    let mut out = String::with_capacity(text.len().min(MAX_MESSAGE));
    for c in text.chars() {
        let begins_value = match c {
            '"' | '{' | '`' => true,
            // `doesn't` is no quote.
            '\'' | '/' => !out.ends_with(char::is_alphanumeric),
            _ => false,
        };
        if begins_value {
            out.push('#');
            break;
        }
        if c.is_ascii_digit() {
            if !out.ends_with('#') {
                out.push('#');
            }
        } else {
            out.push(c);
        }
        if out.len() > MAX_MESSAGE {
            break;
        }
    }
    out.trim().to_owned()
}

/// A number in decimal, all of `bytes`.
fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 19 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(bytes.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_unix_ns((ms.max(0) as u64).saturating_mul(1_000_000))
}
