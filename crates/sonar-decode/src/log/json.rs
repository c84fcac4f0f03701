//! Lines of 4.4 and later: one JSON object each.

use std::cell::{Cell, RefCell};

use sonar_core::Identity;

use super::client::ClientReader;
use super::{Head, Line, Log, decimal, timestamp};
use crate::bson::{Key, Kind, Opened, Step, Value, Visitor};
use crate::entry::{Cause, Entry, Sink};
use crate::shape::Text;
use crate::syntax::json::{self, Scratch, Wrong};
use crate::syntax::time;

const SLOW_QUERY: u32 = 51_803;
const SLOW_IN_PROGRESS: u32 = 1_794_200;
const CLIENT_METADATA: u32 = 51_800;
const ACCEPTED: u32 = 22_943;
const ENDED: u32 = 22_944;
const STARTING: u32 = 4_615_611;
const BUILD_INFO: u32 = 23_403;

/// The attributes of a line.
struct Attributes<'a> {
    line: &'a [u8],
    /// Where their object begins.
    at: usize,
    /// Where it ends, once it was told.
    end: Cell<usize>,
    scratch: &'a RefCell<Scratch>,
}

impl Cause for Attributes<'_> {
    type Error = Wrong;

    fn tell<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), Wrong> {
        entry.no_lock_waits = memchr::memmem::find(&self.line[self.at..], b"timeAcquiringMicros").is_none();
        let end = json::walk(self.line, self.at, &mut self.scratch.borrow_mut(), entry)?;
        self.end.set(end);
        Ok(())
    }

    fn doubt(&self) -> Option<Identity> {
        // Behind the attributes stands `truncated` where something of them was left out.
        let rest = &self.line[self.end.get().min(self.line.len())..];
        (rest.len() > 2 && memchr::memmem::find(rest, b"\"truncated\"").is_some())
            .then_some(Identity::Partial)
    }
}

/// One JSON document of a profile.
pub(crate) struct Document<'a> {
    pub line: &'a [u8],
    pub scratch: &'a RefCell<Scratch>,
    pub cut: Cell<Option<(usize, usize)>>,
}

impl Cause for Document<'_> {
    type Error = Wrong;

    fn tell<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), Wrong> {
        let at = json::space(self.line, 0);
        if self.line.get(at) != Some(&b'{') {
            return Err(Wrong::Unexpected(at));
        }
        let end = json::walk(self.line, at, &mut self.scratch.borrow_mut(), entry)?;
        const MARK: &[u8] = b"\"$truncated\":\"";
        if let Some(found) = memchr::memmem::find(&self.line[at..end], MARK) {
            self.cut.set(Some((at + found + MARK.len(), end)));
        }
        Ok(())
    }

    fn cut_command(&self) -> Option<&[u8]> {
        let (from, to) = self.cut.get()?;
        self.line.get(from..to)
    }
}

/// What is read of a line before its attributes.
#[derive(Default)]
struct Top<'a> {
    ms: Option<i64>,
    severity: u8,
    component: &'a [u8],
    id: u32,
    context: &'a [u8],
    message: &'a [u8],
    /// Where the attributes begin.
    attributes: Option<usize>,
}

impl Log {
    pub(super) fn json_line(&mut self, line: &[u8], sink: &mut impl Sink) -> Line {
        let top = match top(line) {
            Ok(top) => top,
            Err(Wrong::Cut) => return Line::Malformed,
            Err(Wrong::Unexpected(_)) => return Line::Unknown,
        };
        let Some(ms) = top.ms else { return Line::Unknown };
        let at = timestamp(ms);
        self.in_text = false;
        self.last = Some(at);
        if self.is_outside(at) {
            return Line::Outside;
        }
        let head = Head { at, severity: top.severity, component: top.component, context: top.context };
        let scratch = RefCell::new(std::mem::take(&mut self.scratch));
        let what = self.json_message(line, &top, &head, &scratch, sink);
        self.scratch = scratch.into_inner();
        what
    }

    fn json_message(
        &mut self,
        line: &[u8],
        top: &Top<'_>,
        head: &Head<'_>,
        scratch: &RefCell<Scratch>,
        sink: &mut impl Sink,
    ) -> Line {
        let attributes = |visitor: &mut AttributesOf| {
            let at = top.attributes?;
            json::walk(line, at, &mut scratch.borrow_mut(), visitor).ok()
        };
        match (top.id, top.attributes) {
            (SLOW_QUERY, Some(at)) => {
                let cause = Attributes { line, at, end: Cell::new(line.len()), scratch };
                let thread = self.thread(head.context);
                let extra = Self::extra(&self.connections, head.at, thread);
                match self.teller.take(&cause, &extra, sink) {
                    Ok(true) => Line::Operation,
                    Ok(false) => Line::Other,
                    Err(_) => Line::Malformed,
                }
            }
            (SLOW_IN_PROGRESS, _) => {
                self.reading.operations_in_progress += 1;
                Line::Event
            }
            (CLIENT_METADATA, Some(at)) => {
                let mut reader = ClientReader::default();
                match json::walk(line, at, &mut scratch.borrow_mut(), &mut reader) {
                    Ok(_) => {
                        self.met(head.context, reader.into_application());
                        Line::Event
                    }
                    Err(_) => Line::Malformed,
                }
            }
            (ACCEPTED, _) => {
                let mut wanted = AttributesOf::default();
                let _ = attributes(&mut wanted);
                self.accepted(head.at, wanted.open);
                Line::Event
            }
            (ENDED, _) => {
                self.ended(head.context, sink);
                Line::Event
            }
            (STARTING | BUILD_INFO, _) => {
                let mut wanted = AttributesOf::default();
                let _ = attributes(&mut wanted);
                let start = self.notices.start(head.at);
                start.pid = start.pid.or(wanted.pid.and_then(|pid| u32::try_from(pid).ok()));
                start.port = start.port.or(wanted.port.and_then(|port| u16::try_from(port).ok()));
                if !wanted.host.is_empty() {
                    start.host = wanted.host.into();
                }
                if !wanted.version.is_empty() {
                    start.version = wanted.version.into();
                }
                if top.id == STARTING {
                    self.connections.clear();
                }
                Line::Event
            }
            _ if self.grave(head, Some(top.id), top.message) => Line::Event,
            _ => Line::Other,
        }
    }
}

/// What is wanted of the attributes of lines that tell of no operation.
#[derive(Default)]
struct AttributesOf {
    open: Option<u64>,
    pid: Option<u64>,
    port: Option<u64>,
    host: String,
    version: String,
}

impl Visitor for AttributesOf {
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        let Value::Bytes(bytes) = value else { return Step::Next };
        let number =
            || crate::shape::number(kind, bytes).filter(|number| *number >= 0.0).map(|number| number as u64);
        let text = || String::from_utf8_lossy(&bytes[..bytes.len().min(255)]).into_owned();
        match (key.bytes, kind) {
            (b"connectionCount", _) => self.open = number(),
            (b"pid", _) => self.pid = number(),
            (b"port", _) => self.port = number(),
            (b"host", Kind::String) => self.host = text(),
            (b"version", Kind::String) => self.version = text(),
            _ => {}
        }
        Step::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        if !array && key.bytes == b"buildInfo" { Opened::Enter } else { Opened::Skip }
    }

    fn close(&mut self) {}
}

/// Reads a line up to its attributes, which stand last but for what says that they were cut.
fn top(line: &[u8]) -> Result<Top<'_>, Wrong> {
    let mut top = Top::default();
    let mut at = json::space(line, 1);
    loop {
        if line.get(at) != Some(&b'"') {
            return match line.get(at) {
                Some(b'}') if top.ms.is_some() => Ok(top),
                None => Err(Wrong::Cut),
                _ => Err(Wrong::Unexpected(at)),
            };
        }
        let (key, end) = plain(line, at)?;
        at = json::space(line, end);
        if line.get(at) != Some(&b':') {
            return Err(if at >= line.len() { Wrong::Cut } else { Wrong::Unexpected(at) });
        }
        at = json::space(line, at + 1);
        let from = at;
        match key {
            b"attr" if line.get(at) == Some(&b'{') => {
                top.attributes = Some(at);
                return Ok(top);
            }
            b"t" => {
                at = json::skip(line, at)?;
                // `{"$date":"…"}`
                let value = &line[from..at];
                let text = value.strip_prefix(b"{\"$date\":\"").and_then(|rest| rest.strip_suffix(b"\"}"));
                top.ms = text.and_then(time::iso);
                if top.ms.is_none() {
                    return Err(Wrong::Unexpected(from));
                }
            }
            b"id" => {
                at = json::skip(line, at)?;
                top.id = decimal(&line[from..at]).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
            }
            b"s" | b"c" | b"ctx" | b"msg" if line.get(at) == Some(&b'"') => {
                let (value, end) = plain(line, at)?;
                at = end;
                match key {
                    b"s" => top.severity = value.first().copied().unwrap_or(0),
                    b"c" => top.component = value,
                    b"ctx" => top.context = value,
                    _ => top.message = value,
                }
            }
            _ => at = json::skip(line, at)?,
        }
        at = json::space(line, at);
        match line.get(at) {
            Some(b',') => at = json::space(line, at + 1),
            Some(b'}') => return if top.ms.is_some() { Ok(top) } else { Err(Wrong::Unexpected(at)) },
            None => return Err(Wrong::Cut),
            Some(_) => return Err(Wrong::Unexpected(at)),
        }
    }
}

/// A string as it stands, its escapes left as they are.
#[inline]
fn plain(line: &[u8], at: usize) -> Result<(&[u8], usize), Wrong> {
    let end = json::skip(line, at)?;
    Ok((&line[at + 1..end - 1], end))
}
