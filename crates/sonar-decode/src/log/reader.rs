//! Reads one line by itself: whatever depends on lines before it is left to [`LogReader`](super::LogReader). So lines can be read
//! on several threads.

use sonar_core::notices::{MAX_MESSAGE, Message, Severity};
use sonar_core::{Application, ShapeInfo, Timestamp};

use super::parts::{OutputStream, RuntimeLine};
use super::{LogSettings, decimal, envelope};
use crate::entry::{Entry, ParsedEntry};
use crate::shape::{Rendered, Text};

/// What a line is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum LineKind {
    /// It describes an operation.
    Operation,
    /// It describes something else that is shown: a [`LogEvent`].
    Event,
    /// It is about something that is not shown.
    #[default]
    Other,
    /// It is outside of the time asked for.
    Outside,
    /// It is empty.
    Empty,
    /// It is not a line of a MongoDB log of any version.
    Unknown,
    /// It looks like a line of a MongoDB log but cannot be parsed.
    Malformed,
    /// It is longer than is read.
    TooLong,
    /// `{` alone: what follows is an object over several lines, as `jq` writes it.
    ObjectBegin,
}

/// What a line says that describes no operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogEvent {
    /// A connection was accepted; how many were open then.
    Accepted(Option<u64>),
    /// The connection of this line ended.
    Ended,
    /// The client of this line's connection identified itself.
    Client(Application),
    /// A server started.
    Started {
        /// Its process id.
        pid: Option<u32>,
        /// Its port.
        port: Option<u16>,
        /// The name of its machine; empty where the line does not say.
        host: Box<str>,
    },
    /// A server stated its version.
    Version {
        /// The version.
        version: Box<str>,
        /// It is starting: it has no connections yet.
        is_startup: bool,
    },
    /// An operation that has not ended is slow.
    InProgress,
    /// An error or a warning.
    Message(Message),
}

/// One line as it reads by itself. An operation that it describes is a [`ParsedEntry`] beside it.
#[derive(Clone, Debug, Default)]
pub struct ParsedLine {
    /// What it is.
    pub kind: LineKind,
    /// Its time; `None` where it has none.
    pub(super) at: Option<Timestamp>,
    /// Minutes east of UTC that its time is written with.
    pub(super) offset: Option<i16>,
    /// A number for the thread of the server that wrote it.
    pub(super) thread: u64,
    /// The number of the connection that this thread serves, if it serves one.
    pub(super) connection: Option<u64>,
    /// It was inside a line of another program.
    pub(super) is_unwrapped: bool,
    /// The event that it describes.
    pub(super) event: Option<Box<LogEvent>>,
    /// What a container runtime wrote in this line, which may be a part of a line of the server.
    pub(super) part: Option<Box<LinePart>>,
}

impl ParsedLine {
    /// The line describes this event.
    pub(super) fn with(&mut self, event: LogEvent) -> LineKind {
        self.event = Some(Box::new(event));
        LineKind::Event
    }
}

/// A part of a line, or all of it.
#[derive(Clone, Debug)]
pub(super) struct LinePart {
    pub stream: OutputStream,
    pub is_last: bool,
    pub text: Vec<u8>,
}

/// What stands before the message of a line.
#[derive(Copy, Clone, Debug)]
pub(super) struct LineHead<'a> {
    pub at: Timestamp,
    pub severity: u8,
    pub component: &'a [u8],
    pub context: &'a [u8],
    /// Minutes east of UTC that its time is written with.
    pub offset: Option<i16>,
}

impl LineHead<'_> {
    /// The event of a server that states its version.
    pub fn version(&self, version: &[u8]) -> LogEvent {
        let version = String::from_utf8_lossy(&version[..version.len().min(64)]).into();
        let is_startup =
            matches!(self.context, b"initandlisten" | b"main" | b"mongosMain" | b"thread1" | b"-");
        LogEvent::Version { version, is_startup }
    }

    /// An error or warning, if the line is one.
    pub fn message(&self, id: Option<u32>, text: &[u8]) -> Option<LogEvent> {
        let severity = Severity::of(self.severity)?;
        // Since 4.4 a message is constant, and its variable parts are attributes.
        let text = if id.is_some_and(|id| id != 0) { lossy(text) } else { masked(text) };
        Some(LogEvent::Message(Message {
            severity,
            component: lossy(self.component).into(),
            id,
            text: text.chars().take(MAX_MESSAGE).collect::<String>().into(),
        }))
    }
}

/// Reads lines, each by itself.
pub struct LineReader<T: Text = ()> {
    pub(super) settings: LogSettings,
    pub(super) entry: Box<Entry<T>>,
}

impl LineReader {
    /// Reads one line, without its line feed; the operation that it describes, if it does, into `entry`.
    pub fn read(&mut self, line: &[u8], entry: &mut ParsedEntry) -> ParsedLine {
        let parsed = self.parse(line);
        if parsed.kind == LineKind::Operation {
            entry.take(&mut self.entry);
        }
        parsed
    }
}

impl LineReader<Rendered> {
    /// The shape of the operation that a line describes, with its text.
    pub(super) fn shape(mut self, line: &[u8]) -> ShapeInfo {
        self.parse(line);
        self.entry.into_shape()
    }
}

impl<T: Text> LineReader<T> {
    /// A reader with these settings.
    pub fn new(settings: LogSettings) -> Self {
        Self { settings, entry: Box::default() }
    }

    /// Reads one line; the operation that it describes is in `entry` then.
    fn parse(&mut self, line: &[u8]) -> ParsedLine {
        let mut parsed = ParsedLine::default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        parsed.kind = match line.first() {
            Some(b'{') if line.len() == 1 => LineKind::ObjectBegin,
            Some(b'{') => self.json_line(line, 0, &mut parsed),
            Some(b'0'..=b'9' | b'A'..=b'Z') => self.text_line(line, 0, &mut parsed),
            _ => match line.strip_prefix(envelope::BYTE_ORDER_MARK).unwrap_or(line).trim_ascii() {
                [] => LineKind::Empty,
                line => self.inner_line(line, 0, &mut parsed),
            },
        };
        parsed
    }

    /// A line, or what was inside the line of another program.
    fn inner_line(&mut self, line: &[u8], depth: u8, parsed: &mut ParsedLine) -> LineKind {
        match line.first() {
            Some(b'{') => self.json_line(line, depth, parsed),
            _ => self.text_line(line, depth, parsed),
        }
    }

    /// A line inside the line of another program.
    pub(super) fn unwrapped(&mut self, line: &[u8], depth: u8, parsed: &mut ParsedLine) -> LineKind {
        let kind = self.inner_line(line.trim_ascii(), depth + 1, parsed);
        parsed.is_unwrapped |= kind != LineKind::Unknown;
        kind
    }

    /// A line of a container runtime: its text is read as if it were whole.
    pub(super) fn part(&mut self, part: &RuntimeLine<'_>, depth: u8, parsed: &mut ParsedLine) -> LineKind {
        let RuntimeLine { stream, is_last, text } = *part;
        parsed.part = Some(Box::new(LinePart { stream, is_last, text: text.to_vec() }));
        if is_last { self.unwrapped(text, depth, parsed) } else { LineKind::Other }
    }

    /// Notes the head of a line; whether it is inside the time asked for.
    pub(super) fn is_wanted(&self, head: &LineHead<'_>, parsed: &mut ParsedLine) -> bool {
        (parsed.at, parsed.offset) = (Some(head.at), head.offset);
        parsed.connection = head.context.strip_prefix(b"conn").and_then(decimal);
        parsed.thread =
            parsed.connection.unwrap_or_else(|| crate::shape::hash::bytes(head.context) | 1 << 63);
        let LogSettings { from, to, .. } = self.settings;
        !from.is_some_and(|from| from.is_after(head)) && to.is_none_or(|to| to.is_after(head))
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
