//! Lines of 4.4 and later: one JSON object each.

use std::cell::{Cell, OnceCell, RefCell};

use sonar_core::Identity;

use super::layout::{self, Found};
use super::parts::{Part, Stream};
use super::{Head, Line, Log, decimal, envelope, timestamp};
use crate::bson::{Key, Kind, Opened, Step, Value, Visitor};
use crate::entry::{Entry, EntrySource, Finder, Op, Sink};
use crate::message::ClientDocument;
use crate::shape::Text;
use crate::syntax::json::{self, Scratch, Wrong};
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

/// The attributes of a line.
struct Attributes<'a> {
    line: &'a [u8],
    /// Where their object begins.
    at: usize,
    /// Where it ends, once it was read.
    end: Cell<usize>,
    /// What they describe, if they do not say.
    op: Op,
    /// The line says before them that something of them was left out.
    is_truncated: bool,
    scratch: &'a RefCell<Scratch>,
}

impl<'a> Attributes<'a> {
    fn of(line: &'a [u8], at: usize, top: &Top<'_>, scratch: &'a RefCell<Scratch>) -> Self {
        let op = match top.id {
            APPLIED_OP => Op::Applied,
            TRANSACTION => Op::Transaction,
            _ => Op::Internal,
        };
        Self { line, at, end: Cell::new(line.len()), op, is_truncated: top.is_truncated, scratch }
    }
}

/// Finds what has to be known before an object is read, unless it begins with `first`, as servers write it.
fn foresee<T: Text>(
    line: &[u8],
    at: usize,
    first: &[u8],
    (scratch, entry): (&RefCell<Scratch>, &mut Entry<T>),
) -> Result<(), Wrong> {
    if line[at..].starts_with(first) {
        return Ok(());
    }
    let mut finder = Finder::default();
    json::walk(line, at, &mut scratch.borrow_mut(), &mut finder)?;
    let (op, fields, hint) = finder.into_parts();
    if op != Op::None {
        entry.fields.op = op;
    }
    entry.fields.namespace = fields.namespace;
    entry.set_hint(hint);
    Ok(())
}

impl EntrySource for Attributes<'_> {
    type Error = Wrong;

    fn read<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), Wrong> {
        entry.fields.op = self.op;
        if self.op == Op::Internal {
            foresee(self.line, self.at, b"{\"type\":\"", (self.scratch, entry))?;
        }
        entry.no_lock_waits = memchr::memmem::find(&self.line[self.at..], b"timeAcquiringMicros").is_none();
        let end = json::walk(self.line, self.at, &mut self.scratch.borrow_mut(), entry)?;
        self.end.set(end);
        Ok(())
    }

    fn doubt(&self) -> Option<Identity> {
        // Behind the attributes stands `truncated` where something of them was left out.
        let rest = &self.line[self.end.get().min(self.line.len())..];
        let is_truncated =
            self.is_truncated || (rest.len() > 2 && memchr::memmem::find(rest, b"\"truncated\"").is_some());
        is_truncated.then_some(Identity::Partial)
    }
}

/// One JSON document of a profile.
pub(crate) struct Document<'a> {
    pub line: &'a [u8],
    pub scratch: &'a RefCell<Scratch>,
    pub cut: OnceCell<Vec<u8>>,
}

impl EntrySource for Document<'_> {
    type Error = Wrong;

    fn read<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), Wrong> {
        let at = json::space(self.line, 0);
        if self.line.get(at) != Some(&b'{') {
            return Err(Wrong::Unexpected(at));
        }
        foresee(self.line, at, b"{\"op\":\"", (self.scratch, entry))?;
        let end = json::walk(self.line, at, &mut self.scratch.borrow_mut(), entry)?;
        const MARK: &[u8] = b"\"$truncated\":";
        if self.cut.get().is_none()
            && let Some(found) = memchr::memmem::find(&self.line[at..end], MARK)
        {
            let from = json::space(self.line, at + found + MARK.len());
            let mut unescaped = Vec::new();
            if self.line.get(from) == Some(&b'"')
                && let Ok((text, _)) = json::text(self.line, from, &mut unescaped)
            {
                let _ = self.cut.set(text.to_vec());
            }
        }
        Ok(())
    }

    fn cut_command(&self) -> Option<&[u8]> {
        self.cut.get().map(Vec::as_slice)
    }
}

/// Everything in a line except its attributes.
#[derive(Default)]
struct Top<'a> {
    ms: Option<i64>,
    offset: Option<i16>,
    severity: u8,
    component: &'a [u8],
    id: u32,
    context: &'a [u8],
    message: &'a [u8],
    /// Where the attributes begin.
    attributes: Option<usize>,
    /// Something of the attributes was left out.
    is_truncated: bool,
    /// The attributes stand behind all else, as servers write them.
    is_usual: bool,
    /// The output of a container that the line comes from.
    stream: Option<Stream>,
    /// The value that may contain the line, if this is the line of another program.
    inner: Option<(usize, usize)>,
}

impl Log {
    pub(super) fn json_line(&mut self, line: &[u8], depth: u8, sink: &mut impl Sink) -> Line {
        let top = match top(line) {
            Ok(top) => top,
            Err(_) if envelope::looks_like_json(line) => return Line::Malformed,
            Err(_) => return Line::Unknown,
        };
        let Some(ms) = top.ms else { return self.enveloped(line, &top, depth, sink) };
        let at = timestamp(ms);
        let head = Head {
            at,
            severity: top.severity,
            component: top.component,
            context: top.context,
            offset: top.offset,
        };
        if !self.noted(&head) {
            return Line::Outside;
        }
        let scratch = RefCell::new(std::mem::take(&mut self.scratch));
        let what = self.json_message(line, &top, &head, &scratch, sink);
        self.scratch = scratch.into_inner();
        what
    }

    /// An object that is no log line, but may contain one.
    fn enveloped(&mut self, line: &[u8], top: &Top<'_>, depth: u8, sink: &mut impl Sink) -> Line {
        let unknown = if envelope::looks_like_json(line) { Line::Malformed } else { Line::Unknown };
        let Some((from, to)) = top.inner.filter(|_| depth < envelope::MAX_DEPTH) else { return unknown };
        let mut unescaped = Vec::new();
        let inner = match line.get(from) {
            Some(b'"') => match json::text(line, from, &mut unescaped) {
                Ok((text, _)) => text,
                Err(_) => return unknown,
            },
            _ => &line[from..to],
        };
        if let Some(stream) = top.stream {
            return match self.part(&Part::of_docker(inner, stream), depth, sink) {
                Line::Unknown => unknown,
                what => what,
            };
        }
        match self.unwrapped(inner, depth, sink) {
            Line::Unknown => unknown,
            what => what,
        }
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
            (APPLIED_OP | TRANSACTION, Some(at)) => {
                let thread = self.thread(head.context);
                let extra = Self::extra(&self.connections, head.at, thread);
                match self.assembler.take(&Attributes::of(line, at, top, scratch), &extra, sink) {
                    Ok(_) => Line::Operation,
                    Err(_) => Line::Malformed,
                }
            }
            (SLOW_QUERY, Some(at)) if !top.is_usual || !line[at..].starts_with(b"{\"type\":\"") => {
                let thread = self.thread(head.context);
                let extra = Self::extra(&self.connections, head.at, thread);
                match self.assembler.take(&Attributes::of(line, at, top, scratch), &extra, sink) {
                    Ok(_) => Line::Operation,
                    Err(_) => Line::Malformed,
                }
            }
            (SLOW_QUERY, Some(at)) => {
                let thread = self.thread(head.context);
                let extra = Self::extra(&self.connections, head.at, thread);
                // What a line comes to depends on these too.
                let salt = u64::from(extra.from_server) | u64::from(extra.internal) << 1;
                let place = layout::outline(line, at, salt);
                let wanted = match self.layouts.find(place, line, at) {
                    Found::Known(known) if self.assembler.take_known(known, &extra, sink) => {
                        return Line::Operation;
                    }
                    Found::Wanted => true,
                    Found::Known(_) | Found::Unknown => false,
                };
                let source = Attributes::of(line, at, top, scratch);
                let told = if wanted {
                    self.assembler.take_and_remember(&source, &extra, sink).map(|(told, known)| {
                        if let Some(known) = known {
                            self.layouts.add(place, line, at, scratch, known);
                        }
                        told
                    })
                } else {
                    self.assembler.take(&source, &extra, sink)
                };
                match told {
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
                let mut reader = ClientDocument::default();
                match json::walk(line, at, &mut scratch.borrow_mut(), &mut reader) {
                    Ok(_) => {
                        self.met(head.context, (&reader).into());
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
            (STARTING, _) => {
                let mut wanted = AttributesOf::default();
                let _ = attributes(&mut wanted);
                let start = self.notices.start(head.at);
                start.pid = start.pid.or(wanted.pid.and_then(|pid| u32::try_from(pid).ok()));
                start.port = start.port.or(wanted.port.and_then(|port| u16::try_from(port).ok()));
                if !wanted.host.is_empty() {
                    start.host = wanted.host.into();
                }
                self.connections.clear();
                Line::Event
            }
            (BUILD_INFO, _) => {
                let mut wanted = AttributesOf::default();
                let _ = attributes(&mut wanted);
                if !wanted.version.is_empty() {
                    self.stated_version(head, &wanted.version);
                }
                Line::Event
            }
            _ if self.grave(head, Some(top.id), top.message) => Line::Event,
            _ => Line::Other,
        }
    }
}

/// What is wanted of the attributes of lines that describe no operation.
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
        let number = || crate::shape::integer(kind, bytes).and_then(|number| u64::try_from(number).ok());
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

/// Reads a line up to its attributes if these are last, as servers write them, else all of it.
fn top(line: &[u8]) -> Result<Top<'_>, Wrong> {
    let mut top = Top::default();
    let mut at = json::space(line, 1);
    loop {
        if line.get(at) != Some(&b'"') {
            return match line.get(at) {
                Some(b'}') => Ok(top),
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
                if top.ms.is_some() && top.id != 0 && !top.context.is_empty() && !top.message.is_empty() {
                    top.is_usual = true;
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
                if key == b"stream" {
                    top.stream = line.get(from + 1..at - 1).and_then(Stream::of);
                }
                if envelope::is_key(key) && matches!(line[from], b'"' | b'{') {
                    top.inner = Some((from, at));
                }
            }
        }
        at = json::space(line, at);
        match line.get(at) {
            Some(b',') => at = json::space(line, at + 1),
            Some(b'}') => return Ok(top),
            None => return Err(Wrong::Cut),
            Some(_) => return Err(Wrong::Unexpected(at)),
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
        json::walk(line, from, &mut Scratch::default(), &mut date).ok()?;
    }
    date.0
}

/// What `$date` holds.
struct DateOf(Option<(i64, Option<i16>)>);

impl Visitor for DateOf {
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        if let (b"$date", Value::Bytes(bytes)) = (key.bytes, value) {
            self.0 = match kind {
                Kind::String => time::iso_with_offset(bytes),
                _ => crate::shape::integer(kind, bytes).map(|ms| (ms, None)),
            };
        }
        Step::Next
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
fn plain(line: &[u8], at: usize) -> Result<(&[u8], usize), Wrong> {
    let end = json::skip(line, at)?;
    Ok((&line[at + 1..end - 1], end))
}
