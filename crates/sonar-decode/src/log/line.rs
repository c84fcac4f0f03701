//! What a line of a log says, whatever its format.

use sonar_core::log_notices::{MAX_MESSAGE, Message, Severity};
use sonar_core::{Application, Endpoint, Timestamp};

use super::events::LineEvent;
use super::parts::OutputStream;

/// One end of a time range.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// A point in time.
    At(Timestamp),
    /// What the log's own clock shows, in milliseconds since it showed 1970-01-01T00:00:00.
    Clock(i64),
}

impl Bound {
    /// Whether a line comes before it.
    pub(super) fn is_after(self, head: &LineHead<'_>) -> bool {
        match self {
            Self::At(at) => head.at < at,
            Self::Clock(ms) => {
                head.at.unix_ms().saturating_add(i64::from(head.offset.unwrap_or(0)) * 60_000) < ms
            }
        }
    }
}

/// Which lines of a log to read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LogSettings {
    /// Lines before this are skipped.
    pub from: Option<Bound>,
    /// Lines at this time or later are skipped.
    pub to: Option<Bound>,
    /// Milliseconds since the Unix epoch: dates without a year are at most a day later than this. 0: not known.
    pub reference_ms: i64,
}

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
    /// It is outside of the time range.
    Outside,
    /// It is empty.
    Empty,
    /// It is not a line of a MongoDB log of any version.
    Unknown,
    /// It looks like a line of a MongoDB log but cannot be parsed.
    Malformed,
    /// It is too long to be read.
    TooLong,
    /// `{` alone: an object over several lines follows, as `jq` writes it.
    ObjectBegin,
}

/// What a line says, if it describes no operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogEvent {
    /// A connection was accepted.
    Accepted {
        /// How many connections are open.
        open: Option<u64>,
        /// Its number, and the client's address. Only of 4.2 and earlier, which state the address nowhere else.
        client: Option<(u64, Endpoint)>,
    },
    /// The connection of this line ended.
    Ended,
    /// The client of this line's connection identified itself.
    Client(Application),
    /// A user was authenticated on this line's connection.
    Authenticated(Box<str>),
    /// Sending a reply took this many milliseconds.
    SlowReply(u64),
    /// A server started.
    Started {
        /// Its process id.
        pid: Option<u32>,
        /// Its port.
        port: Option<u16>,
        /// The name of its host; empty if the line does not state it.
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

/// What one line says by itself. If it describes an operation, a [`ParsedEntry`](crate::entry::ParsedEntry) beside it has that.
#[derive(Clone, Debug, Default)]
pub struct ParsedLine {
    /// What it is.
    pub kind: LineKind,
    /// Its time, if it has one.
    pub(super) at: Option<Timestamp>,
    /// Offset of its time from UTC, in minutes east.
    pub(super) offset: Option<i16>,
    /// A number for the thread of the server that wrote it.
    pub(super) thread: u64,
    /// The number of the connection that this thread serves, if it serves one.
    pub(super) connection: Option<u64>,
    /// It was inside a line of another program.
    pub(super) is_unwrapped: bool,
    /// Bytes of the prefix of another program, where it stood behind one.
    pub(super) prefix: u16,
    /// It is the beginning of an operation in a text log that goes on in the next line.
    pub(super) begins_operation: bool,
    /// The event that it describes.
    pub(super) event: Option<Box<LogEvent>>,
    /// What it says has happened.
    pub(super) happened: Option<Box<LineEvent>>,
    /// What a container runtime wrote into this line: a part of a line of the server, or all of it.
    pub(super) part: Option<Box<LinePart>>,
}

impl ParsedLine {
    /// Its time, if it has one.
    pub fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// The number of the connection whose thread wrote it, if it serves one.
    pub fn connection(&self) -> Option<u64> {
        self.connection
    }

    /// The event that it describes, if it describes one.
    pub fn event(&self) -> Option<&LogEvent> {
        self.event.as_deref()
    }

    /// Adds the event that the line describes.
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

/// What comes before the message of a line.
#[derive(Copy, Clone, Debug)]
pub(super) struct LineHead<'a> {
    pub at: Timestamp,
    pub severity: u8,
    pub component: &'a [u8],
    pub context: &'a [u8],
    /// Offset of its time from UTC, in minutes east.
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

/// A number in decimal, all of `bytes`.
pub(super) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 19 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(bytes.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_MESSAGE)]).into_owned()
}

/// A message without its variable parts: numbers, addresses, and everything from the first quoted text or document
/// on. What comes after that is not provably the server's own text.
fn masked(text: &[u8]) -> String {
    let text = lossy(text);
    let mut out = String::with_capacity(text.len().min(MAX_MESSAGE));
    for c in text.chars() {
        let begins_value = match c {
            '"' | '{' | '`' => true,
            // `doesn't` is not a quotation.
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
