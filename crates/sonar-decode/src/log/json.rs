//! Lines of 4.4 and later: one JSON object each.

use sonar_core::{Identity, Timestamp};

use super::line::{LineHead, LineKind, LogEvent, ParsedLine, decimal};
use super::parts::{OutputStream, RuntimeLine};
use super::{envelope, events};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::entry::{Completeness, Entry, HintFinder, Op};
use crate::message::ClientDocument;
use crate::shape::Text;
use crate::syntax::json::{self, JsonError};
use crate::syntax::time;

const SLOW_QUERY: u32 = 51_803;
const APPLIED_OP: u32 = 51_801;
const TRANSACTION: u32 = 51_802;
const SLOW_IN_PROGRESS: u32 = 1_794_200;
const CLIENT_METADATA: u32 = 51_800;
const ACCEPTED: u32 = 22_943;
const ENDED: u32 = 22_944;
const STARTING: u32 = 4_615_611;
const BUILD_INFO: u32 = 23_403;
/// 4.4 and 5.0, then later versions.
const AUTHENTICATED: [u32; 2] = [20_250, 5_286_306];
/// 6.3 and later, if sending took longer than `slowms`.
const SLOW_REPLY: u32 = 6_983_000;

/// Finds what must be known before an object is read, unless it begins with `first`, as servers write it.
fn foresee<T: Text>(line: &[u8], at: usize, first: &[u8], entry: &mut Entry<T>) -> Result<(), JsonError> {
    if line[at..].starts_with(first) {
        return Ok(());
    }
    let mut finder = HintFinder::default();
    json::walk(line, at, &mut finder)?;
    let (op, fields, hint) = finder.into_parts();
    if op != Op::None {
        entry.fields.op = op;
    }
    entry.fields.namespace = fields.namespace;
    entry.set_hint(hint);
    Ok(())
}

/// Reads the attributes of a line, which begin at `at`.
fn read_attributes<T: Text>(
    line: &[u8],
    at: usize,
    top: &Top<'_>,
    entry: &mut Entry<T>,
) -> Result<(), JsonError> {
    entry.reset();
    entry.fields.op = match top.id {
        APPLIED_OP => Op::Applied,
        TRANSACTION => Op::Transaction,
        _ => Op::Internal,
    };
    if entry.fields.op == Op::Internal {
        foresee(line, at, b"{\"type\":\"", entry)?;
    }
    entry.no_lock_waits = memchr::memmem::find(&line[at..], b"timeAcquiringMicros").is_none();
    let end = json::walk(line, at, entry)?;
    // `truncated` follows the attributes if the server left some of them out.
    let rest = &line[end..];
    let is_truncated = rest.len() > 2 && memchr::memmem::find(rest, b"\"truncated\"").is_some();
    entry.doubt = (top.is_truncated || is_truncated).then_some(Identity::Partial);
    Ok(())
}

/// Reads one JSON document of a profile.
pub(crate) fn read_document<T: Text>(document: &[u8], entry: &mut Entry<T>) -> Result<(), JsonError> {
    const MARK: &[u8] = b"\"$truncated\":";
    let at = json::space(document, 0);
    if document.get(at) != Some(&b'{') {
        return Err(JsonError::Unexpected(at));
    }
    foresee(document, at, b"{\"op\":\"", entry)?;
    let end = json::walk(document, at, entry)?;
    if entry.completeness == Completeness::Cut
        && let Some(found) = memchr::memmem::find(&document[at..end], MARK)
    {
        let from = json::space(document, at + found + MARK.len());
        let mut unescaped = Vec::new();
        if document.get(from) == Some(&b'"')
            && let Ok((text, _)) = json::text(document, from, &mut unescaped)
        {
            entry.cut_command = Some(text.to_vec());
        }
    }
    Ok(())
}

/// Everything in a line except its attributes.
#[derive(Default)]
pub(super) struct Top<'a> {
    ms: Option<i64>,
    offset: Option<i16>,
    severity: u8,
    component: &'a [u8],
    id: u32,
    context: &'a [u8],
    message: &'a [u8],
    /// Where the attributes begin.
    attributes: Option<usize>,
    /// Attributes were left out.
    is_truncated: bool,
    /// The output of a container that the line comes from.
    pub(super) stream: Option<OutputStream>,
    /// It comes from a container.
    is_of_container: bool,
    /// A field says of each part of a line that it is one: without that field it is a whole line, or the last part.
    names_parts: bool,
    /// It is a part of a line that goes on in a later object, by a field that says so.
    is_partial: bool,
    /// It is the last of those parts.
    is_last_part: bool,
    /// The value that may contain the log line, if another program wrote this one.
    inner: Option<(usize, usize)>,
}

impl<'a> Top<'a> {
    /// What stands before the message; `None` if this is no log line.
    pub(super) fn head(&self) -> Option<LineHead<'a>> {
        Some(LineHead {
            at: Timestamp::from_unix_ms(self.ms?),
            severity: self.severity,
            component: self.component,
            context: self.context,
            offset: self.offset,
        })
    }

    /// Notes a field that only the objects of a container runtime have: docker's drivers json-file, `fluentd` and `journald`
    /// (<https://docs.docker.com/engine/logging/drivers/>), also without the name of the stream.
    fn note_container(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"stream" | b"source" => {
                self.stream = value.get(1..value.len() - 1).and_then(OutputStream::of).or(self.stream);
            }
            b"log" => self.is_of_container |= value.first() == Some(&b'"'),
            b"CONTAINER_PARTIAL_MESSAGE" | b"partial_message" => self.is_partial |= value == b"\"true\"",
            b"partial_last" => self.is_last_part = value == b"\"true\"",
            _ if key.starts_with(b"CONTAINER_") => (self.is_of_container, self.names_parts) = (true, true),
            _ => {}
        }
    }

    /// The line of a container runtime with this text; `None` if it is another program's.
    pub(super) fn runtime_line<'b>(&self, text: &'b [u8]) -> Option<RuntimeLine<'b>> {
        if self.stream.is_none() && !self.is_of_container && !self.is_partial {
            return None;
        }
        let line = RuntimeLine::of_docker(text, self.stream.unwrap_or(OutputStream::Stdout));
        let is_last = if self.is_partial { self.is_last_part } else { self.names_parts || line.is_last };
        Some(RuntimeLine { is_last, ..line })
    }

    /// The value that may contain a log line; `unescaped` takes its text if it has escapes.
    pub(super) fn inner<'b>(&self, line: &'b [u8], unescaped: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let (from, to) = self.inner?;
        match line.get(from) {
            Some(b'"') => Some(json::text(line, from, unescaped).ok()?.0),
            _ => Some(&line[from..to]),
        }
    }

    /// What the line with this top says: an operation is read into `entry`, an event into `parsed`.
    pub(super) fn message<T: Text>(
        &self,
        line: &[u8],
        head: &LineHead<'_>,
        entry: &mut Entry<T>,
        parsed: &mut ParsedLine,
    ) -> LineKind {
        if self.id != SLOW_QUERY {
            parsed.happened = events::of_json(self.id, line, self.attributes).map(Box::new);
        }
        let event = match (self.id, self.attributes) {
            (SLOW_QUERY | APPLIED_OP | TRANSACTION, Some(at)) => {
                return match read_attributes(line, at, self, entry) {
                    Ok(()) => LineKind::Operation,
                    Err(_) => LineKind::Malformed,
                };
            }
            (SLOW_IN_PROGRESS, _) => LogEvent::InProgress,
            (CLIENT_METADATA, Some(at)) => {
                let mut reader = ClientDocument::default();
                if json::walk(line, at, &mut reader).is_err() {
                    return LineKind::Malformed;
                }
                LogEvent::Client((&reader).into())
            }
            (ACCEPTED, _) => LogEvent::Accepted { open: Attributes::of(line, self).open, client: None },
            (ENDED, _) => LogEvent::Ended,
            (SLOW_REPLY, _) => match Attributes::of(line, self).send_ms {
                Some(ms) => LogEvent::SlowReply(ms),
                None => return LineKind::Other,
            },
            (id, _) if AUTHENTICATED.contains(&id) => match Attributes::of(line, self).account() {
                Some(user) => LogEvent::Authenticated(user),
                None => return LineKind::Other,
            },
            (STARTING, _) => {
                let Attributes { pid, port, host, .. } = Attributes::of(line, self);
                LogEvent::Started {
                    pid: pid.and_then(|pid| u32::try_from(pid).ok()),
                    port: port.and_then(|port| u16::try_from(port).ok()),
                    host: host.into(),
                }
            }
            (BUILD_INFO, _) => head.version(Attributes::of(line, self).version.as_bytes()),
            _ => match head.message(Some(self.id), self.message) {
                Some(message) => message,
                None => return LineKind::Other,
            },
        };
        parsed.with(event)
    }
}

/// What is read of the attributes of lines that describe no operation.
#[derive(Default)]
struct Attributes {
    open: Option<u64>,
    pid: Option<u64>,
    port: Option<u64>,
    host: String,
    version: String,
    send_ms: Option<u64>,
    user: String,
    /// The database of the user.
    database: String,
}

impl Attributes {
    /// `user@database`; `None` if the line names no user, as for the server's own one.
    fn account(&self) -> Option<Box<str>> {
        let (user, database) = (&self.user, &self.database);
        (!user.is_empty()).then(|| match database.is_empty() {
            true => user.as_str().into(),
            false => format!("{user}@{database}").into(),
        })
    }

    fn of(line: &[u8], top: &Top<'_>) -> Self {
        let mut attributes = Self::default();
        if let Some(at) = top.attributes {
            // Those before the damage count.
            let _ = json::walk(line, at, &mut attributes);
        }
        attributes
    }
}

impl Visitor for Attributes {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let BsonValue::Bytes(bytes) = value else { return ElementStep::Next };
        let number = || crate::shape::integer(kind, bytes).and_then(|number| u64::try_from(number).ok());
        let text = || String::from_utf8_lossy(&bytes[..bytes.len().min(255)]).into_owned();
        match (key.bytes, kind) {
            (b"connectionCount", _) => self.open = number(),
            (b"pid", _) => self.pid = number(),
            (b"port", _) => self.port = number(),
            (b"host", ElementKind::String) => self.host = text(),
            (b"version", ElementKind::String) => self.version = text(),
            (b"sendResponseMillis", _) => self.send_ms = number(),
            (b"principalName" | b"user", ElementKind::String) => self.user = text(),
            (b"authenticationDatabase" | b"db", ElementKind::String) => self.database = text(),
            _ => {}
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let is_wanted = matches!(key.bytes, b"buildInfo" | b"elapsed");
        if !array && is_wanted { Opened::Enter } else { Opened::Skip }
    }

    fn close(&mut self) {}
}

/// Reads a line up to its attributes if they come last, as servers write them, else all of it.
pub(super) fn top(line: &[u8]) -> Result<Top<'_>, JsonError> {
    let mut top = Top::default();
    let mut at = json::space(line, 1);
    loop {
        if line.get(at) != Some(&b'"') {
            return match line.get(at) {
                Some(b'}') => Ok(top),
                None => Err(JsonError::Cut),
                _ => Err(JsonError::Unexpected(at)),
            };
        }
        let (key, end) = plain(line, at)?;
        at = json::space(line, end);
        if line.get(at) != Some(&b':') {
            return Err(if at >= line.len() { JsonError::Cut } else { JsonError::Unexpected(at) });
        }
        at = json::space(line, at + 1);
        let from = at;
        match key {
            b"attr" if line.get(at) == Some(&b'{') => {
                top.attributes = Some(at);
                if top.ms.is_some() && top.id != 0 && !top.context.is_empty() && !top.message.is_empty() {
                    return Ok(top);
                }
                at = json::skip(line, at)?;
            }
            b"t" => {
                at = json::skip(line, at)?;
                if let Some((ms, offset)) = time_of(line, from, at) {
                    (top.ms, top.offset) = (Some(ms), offset);
                }
            }
            b"id" => {
                at = json::skip(line, at)?;
                top.id = id_of(&line[from..at]).unwrap_or(0);
            }
            b"s" | b"c" | b"ctx" | b"msg" if line.get(at) == Some(&b'"') => {
                let (value, end) = plain(line, at)?;
                at = end;
                match key {
                    b"s" => top.severity = value.first().copied().unwrap_or(0),
                    b"c" => top.component = value,
                    b"ctx" => top.context = value,
                    _ => {
                        top.message = value;
                        top.inner = top.inner.or(Some((from, end)));
                    }
                }
            }
            _ => {
                at = json::skip(line, at)?;
                top.is_truncated |= key == b"truncated";
                top.note_container(key, &line[from..at]);
                if envelope::is_key(key) && matches!(line[from], b'"' | b'{') {
                    top.inner = Some((from, at));
                }
            }
        }
        at = json::space(line, at);
        match line.get(at) {
            Some(b',') => at = json::space(line, at + 1),
            Some(b'}') => return Ok(top),
            None => return Err(JsonError::Cut),
            Some(_) => return Err(JsonError::Unexpected(at)),
        }
    }
}

/// The time of a line and its offset from UTC: `{"$date":"…"}` as servers write it, or the text alone.
#[inline]
fn time_of(line: &[u8], from: usize, to: usize) -> Option<(i64, Option<i16>)> {
    let value = &line[from..to];
    if let Some(text) = value.strip_prefix(b"{\"$date\":\"").and_then(|rest| rest.strip_suffix(b"\"}")) {
        return time::iso_with_offset(text);
    }
    if let Some(text) = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) {
        return time::iso_with_offset(text);
    }
    let mut date = DateOf(None);
    if value.first() == Some(&b'{') {
        json::walk(line, from, &mut date).ok()?;
    }
    date.0
}

/// What `$date` holds.
struct DateOf(Option<(i64, Option<i16>)>);

impl Visitor for DateOf {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        if let (b"$date", BsonValue::Bytes(bytes)) = (key.bytes, value) {
            self.0 = match kind {
                ElementKind::String => time::iso_with_offset(bytes),
                _ => crate::shape::integer(kind, bytes).map(|ms| (ms, None)),
            };
        }
        ElementStep::Next
    }

    fn open(&mut self, _: Key<'_>, _: bool) -> Opened {
        Opened::Skip
    }

    fn close(&mut self) {}
}

/// The id of a message: a number, the number as a text, or `{"$numberInt":"…"}`.
fn id_of(value: &[u8]) -> Option<u32> {
    let text = match value {
        [b'"' | b'{', ..] => {
            value.rsplit(|byte| *byte == b'"').find(|part| part.first().is_some_and(u8::is_ascii_digit))?
        }
        _ => value.trim_ascii_end(),
    };
    decimal(text).and_then(|id| u32::try_from(id).ok())
}

/// A string with its escapes.
#[inline]
fn plain(line: &[u8], at: usize) -> Result<(&[u8], usize), JsonError> {
    let end = json::skip(line, at)?;
    Ok((&line[at + 1..end - 1], end))
}
