//! Lines of 4.2 and earlier.
//!
//! `<time> <severity> <COMPONENT> [<context>] <verb> <ns> … NNNms`, the severity and component from 3.0
//! on, the time as ctime before 2.6. What an operation says of itself is a row of `key:value` and
//! `key: { document }`; strings in documents are not escaped, see [`shell`].

use std::cell::Cell;
use std::convert::Infallible;

use memchr::memmem;
use sonar_core::Identity;

use super::client::ClientReader;
use super::{Head, Line, Log, decimal, timestamp};
use crate::bson::{Key, Kind, Opened, Step, Value, Visitor};
use crate::entry::{Cause, Entry, Held, Op, Sink};
use crate::shape::Text;
use crate::syntax::shell::{self, Wrong};
use crate::syntax::time;

/// What stands where a server cut the middle of a line out.
const CUT: &[u8] = b" .......... ";
/// What stands before a line that was cut.
const CUT_WARNING: &[u8] = b"warning: log line attempted (";

impl Log {
    pub(super) fn text_line(&mut self, line: &[u8], sink: &mut impl Sink) -> Line {
        let Some((head, message)) = head(line, self.settings.reference_ms) else {
            // Stack traces and options go on over several lines.
            let is_text = self.in_text && line.iter().all(|byte| *byte >= b' ' || *byte == b'\t');
            return if is_text && std::str::from_utf8(line).is_ok() { Line::Other } else { Line::Unknown };
        };
        self.in_text = true;
        self.last = Some(head.at);
        if self.is_outside(head.at) {
            return Line::Outside;
        }
        let (message, was_cut) = match message.strip_prefix(CUT_WARNING) {
            Some(rest) => match memmem::find(rest, b" ... ") {
                Some(at) => (&rest[at + 5..], true),
                None => (message, false),
            },
            None => (message, false),
        };
        if let Some(said) = Said::of(message, was_cut) {
            let thread = self.thread(head.context);
            let extra = Self::extra(&self.connections, head.at, thread);
            return match self.teller.take(&said, &extra, sink) {
                Ok(true) => Line::Operation,
                Ok(false) => Line::Other,
                Err(never) => match never {},
            };
        }
        self.text_message(&head, message, sink)
    }

    fn text_message(&mut self, head: &Head<'_>, message: &[u8], sink: &mut impl Sink) -> Line {
        if let Some(rest) = message.strip_prefix(b"connection accepted from ") {
            // `127.0.0.1:52486 #1 (1 connection now open)`
            let open = memchr::memchr(b'(', rest).map(|at| &rest[at + 1..]);
            let open = open.and_then(|open| decimal(open.split(|byte| *byte == b' ').next()?));
            self.accepted(head.at, open);
            return Line::Event;
        }
        if message.starts_with(b"end connection ") {
            self.ended(head.context, sink);
            return Line::Event;
        }
        if message.starts_with(b"received client metadata from ") {
            let Some(at) = memchr::memchr(b'{', message) else { return Line::Malformed };
            let mut reader = ClientReader::default();
            // Servers name their machine with quotes in it: what stands before that is enough.
            let _ = shell::walk(message, at, &mut reader);
            self.met(head.context, reader.into_application());
            return Line::Event;
        }
        if let Some(rest) = message.strip_prefix(b"MongoDB starting : ").or_else(|| {
            message.strip_prefix(b"MongoS starting : ").or(message.strip_prefix(b"mongos starting : "))
        }) {
            let field = |name: &[u8]| {
                let from = memmem::find(rest, name)? + name.len();
                rest[from..].split(|byte| *byte == b' ').next()
            };
            let start = self.notices.start(head.at);
            start.pid = field(b"pid=").and_then(decimal).and_then(|pid| u32::try_from(pid).ok());
            start.port = field(b"port=").and_then(decimal).and_then(|port| u16::try_from(port).ok());
            if let Some(host) = field(b"host=") {
                start.host = String::from_utf8_lossy(&host[..host.len().min(255)]).into();
            }
            self.connections.clear();
            return Line::Event;
        }
        let version = [b"db version v".as_slice(), b"mongos version v", b"mongos version "]
            .into_iter()
            .find_map(|words| message.strip_prefix(words))
            .or_else(|| {
                let rest = message.strip_prefix(b"MongoS version ")?;
                rest.split(|byte| *byte == b' ').next()
            });
        if let Some(version) = version {
            let version = version.split(|byte| matches!(byte, b' ' | b',')).next().unwrap_or_default();
            self.notices.start(head.at).version =
                String::from_utf8_lossy(&version[..version.len().min(64)]).into();
            return Line::Event;
        }
        if !message.is_empty() && self.grave(head, None, message) { Line::Event } else { Line::Other }
    }
}

/// What stands before the message, and the message.
fn head(line: &[u8], reference_ms: i64) -> Option<(Head<'_>, &[u8])> {
    let (ms, rest) = match line.first()? {
        b'0'..=b'9' => {
            let end = memchr::memchr(b' ', line.get(..40.min(line.len()))?)?;
            (time::iso(&line[..end])?, &line[end + 1..])
        }
        _ => {
            let (ms, length) = time::ctime(line, reference_ms)?;
            (ms, line.get(length..)?.strip_prefix(b" ")?)
        }
    };
    let (severity, component, rest) = match rest {
        [b'[', ..] => (b'I', &rest[..0], rest),
        [severity @ (b'F' | b'E' | b'W' | b'I'), b' ', rest @ ..] => (*severity, component(rest)?, rest),
        [b'D', b' ', rest @ ..] | [b'D', b'1'..=b'5', b' ', rest @ ..] => (b'D', component(rest)?, rest),
        _ => return None,
    };
    // The context stands in brackets behind the padding of the component.
    let open = memchr::memchr(b'[', rest.get(..32.min(rest.len()))?)?;
    let close = open + memchr::memchr(b']', &rest[open..])?;
    let message = rest.get(close + 1..)?;
    let message = message.strip_prefix(b" ").unwrap_or(message);
    Some((Head { at: timestamp(ms), severity, component, context: &rest[open + 1..close] }, message))
}

fn component(rest: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b' ', rest)?;
    let name = &rest[..end];
    (end <= 16 && name.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')))
        .then_some(name)
}

/// What a line says of an operation.
struct Said<'a> {
    op: Op,
    /// Behind the verb.
    rest: &'a [u8],
    millis: u64,
    was_cut: bool,
    doubt: Cell<Option<Identity>>,
    /// Where the command begins that was cut.
    cut_at: Cell<Option<usize>>,
}

impl<'a> Said<'a> {
    /// `None` when the message tells of no operation that has ended.
    #[inline]
    fn of(message: &'a [u8], was_cut: bool) -> Option<Self> {
        let before = message.strip_suffix(b"ms")?;
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let millis = decimal(&before[before.len() - digits..])?;
        let space = memchr::memchr(b' ', &message[..message.len().min(16)])?;
        let op = match &message[..space] {
            b"command" => Op::Command,
            b"query" => Op::Query,
            b"getmore" => Op::GetMore,
            b"insert" => Op::Insert,
            b"update" => Op::Update,
            b"remove" => Op::Remove,
            b"killcursors" => Op::KillCursors,
            _ => return None,
        };
        let rest = message.get(space + 1..before.len() - digits)?;
        Some(Self { op, rest, millis, was_cut, doubt: Cell::new(None), cut_at: Cell::new(None) })
    }

    /// Where the figures begin behind a document that cannot be read.
    fn resume(&self, at: usize) -> usize {
        const BEGINS: [&[u8]; 9] = [
            b" planSummary: ",
            b" keysExamined:",
            b" nscanned:",
            b" ntoreturn:",
            b" ninserted:",
            b" keyUpdates:",
            b" nShards:",
            b" cursorid:",
            b" numYields:",
        ];
        let rest = &self.rest[at.min(self.rest.len())..];
        BEGINS
            .iter()
            .filter_map(|word| memmem::rfind(rest, word))
            .min()
            .map_or(self.rest.len(), |found| at + found)
    }

    /// Tells of the document at `at` as the element `key`; where it ends.
    fn document<T: Text>(&self, at: usize, key: &'static [u8], entry: &mut Entry<T>) -> usize {
        if key == b"locks" {
            // Most lines have waited for none.
            let Some(end) = shell::end_of_plain(self.rest, at + 1) else { return self.resume(at) };
            if memmem::find(&self.rest[at..end], b"timeAcquiringMicros").is_none() {
                return end;
            }
        }
        if entry.open(Key::new(key), false) != Opened::Enter {
            return match shell::walk(self.rest, at, &mut Nobody) {
                Ok(end) => end,
                Err(_) => self.resume(at),
            };
        }
        match shell::walk(self.rest, at, entry) {
            Ok(end) if matches!(self.rest.get(end), None | Some(b' ')) => {
                entry.close();
                end
            }
            Ok(_) | Err(Wrong::Ambiguous(_)) if !self.was_cut => {
                self.doubt.set(Some(Identity::Ambiguous));
                entry.abandon();
                self.resume(at)
            }
            // The line was cut by its server, or its end is missing.
            _ => {
                entry.abandon();
                entry.held = Held::Cut;
                self.cut_at.set(self.cut_at.get().or(Some(at)));
                self.resume(at)
            }
        }
    }
}

impl Cause for Said<'_> {
    type Error = Infallible;

    fn tell<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), Infallible> {
        entry.fields.op = self.op;
        entry.fields.millis = Some(self.millis);
        let rest = self.rest;
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        entry.fields.namespace.set(&rest[..end]);
        let mut at = end;
        while at < rest.len() {
            if rest[at] == b' ' {
                at += 1;
                continue;
            }
            let token = &rest[at..];
            let word =
                token.iter().position(|byte| matches!(byte, b':' | b' ' | b'(')).unwrap_or(token.len());
            let key = &token[..word];
            let after = at + word;
            match (rest.get(after), rest.get(after + 1)) {
                (Some(b':'), Some(b' ')) => at = self.spaced(key, after + 2, entry),
                (Some(b':'), Some(b'{')) => at = self.document(after + 1, known(key), entry),
                (Some(b':'), Some(b'"')) => {
                    // `errMsg:"…"`: the text may hold anything.
                    let text = &rest[after + 2..];
                    entry.fields.scalar(key, Kind::String, Value::Bytes(b""));
                    let end = memmem::find(text, b"\" err").or_else(|| memmem::find(text, b"\" numYields:"));
                    at = end.map_or(rest.len(), |end| after + 2 + end + 1);
                }
                (Some(b':'), _) => {
                    let value = &rest[after + 1..];
                    let length = memchr::memchr(b' ', value).unwrap_or(value.len());
                    scalar(entry, key, &value[..length]);
                    at = after + 1 + length;
                }
                // `locks(micros) w:288`: held, not waited for.
                (Some(b'('), _) => {
                    at = memchr::memchr(b' ', token).map_or(rest.len(), |space| at + space);
                }
                _ => at = after.max(at + 1),
            }
        }
        Ok(())
    }

    fn cut_command(&self) -> Option<&[u8]> {
        let from = self.cut_at.get()?;
        let to = memmem::find(&self.rest[from..], CUT).map_or(self.rest.len(), |found| from + found);
        self.rest.get(from..to)
    }

    fn doubt(&self) -> Option<Identity> {
        self.doubt.get()
    }
}

impl Said<'_> {
    /// `key: value`, where the value is a document, a name with a document, a text or a plan.
    fn spaced<T: Text>(&self, key: &[u8], at: usize, entry: &mut Entry<T>) -> usize {
        let rest = self.rest;
        let value = &rest[at..];
        match (key, value.first()) {
            (b"planSummary", _) => {
                let end = at + plan_length(value);
                entry.fields.scalar(b"planSummary", Kind::String, Value::Bytes(&rest[at..end]));
                end
            }
            (b"exception", _) => {
                entry.fields.failed = true;
                let end = memmem::rfind(value, b" code:").or_else(|| memmem::rfind(value, b" numYields:"));
                end.map_or(rest.len(), |end| at + end)
            }
            (_, Some(b'{')) => self.document(at, known(key), entry),
            (_, Some(b'"')) => {
                // `appName: "…"`, which its client chose: it ends before the next key that can follow.
                let text = &value[1..];
                let nexts: [&[u8]; 7] = [
                    b"\" command: ",
                    b"\" query: ",
                    b"\" originatingCommand: ",
                    b"\" planSummary: ",
                    b"\" numYields:",
                    b"\" ninserted:",
                    b"\" keysInserted:",
                ];
                // Mostly the first quote ends it.
                let near = memchr::memchr(b'"', text);
                let end = match near {
                    Some(quote) if nexts.iter().any(|next| text[quote..].starts_with(next)) => near,
                    _ => nexts.iter().filter_map(|next| memmem::find(text, next)).min().or(near),
                };
                let Some(end) = end else { return rest.len() };
                entry.fields.scalar(key, Kind::String, Value::Bytes(&text[..end]));
                at + 1 + end + 1
            }
            // `command: find { find: … }`
            (b"command", Some(_)) => {
                let name = memchr::memchr(b' ', value).unwrap_or(value.len());
                match value.get(name + 1) {
                    Some(b'{') => self.document(at + name + 1, b"command", entry),
                    _ => at + name,
                }
            }
            _ => at,
        }
    }
}

/// The names under which an entry is told of documents.
fn known(key: &[u8]) -> &'static [u8] {
    match key {
        b"command" => b"command",
        b"query" => b"query",
        b"update" | b"updateobj" => b"update",
        b"originatingCommand" => b"originatingCommand",
        b"locks" => b"locks",
        b"storage" => b"storage",
        _ => b"",
    }
}

fn scalar<T: Text>(entry: &mut Entry<T>, key: &[u8], value: &[u8]) {
    if let Some(number) = decimal(value).and_then(|number| i64::try_from(number).ok()) {
        entry.fields.scalar(key, Kind::Int64, Value::Bytes(&number.to_le_bytes()));
    } else if let Some(number) = value.strip_prefix(b"-").and_then(decimal) {
        let number = -i64::try_from(number).unwrap_or(i64::MAX);
        entry.fields.scalar(key, Kind::Int64, Value::Bytes(&number.to_le_bytes()));
    } else {
        entry.fields.scalar(key, Kind::String, Value::Bytes(value));
    }
}

/// Length of a plan summary: names in capitals, each with its key pattern where it has one, joined by
/// commas.
fn plan_length(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += text[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'0'..=b'9'))
            .count();
        if text[at..].starts_with(b" { ") {
            match shell::walk(text, at + 1, &mut Nobody) {
                Ok(end) => at = end,
                Err(_) => return at,
            }
        }
        match text[at..].strip_prefix(b", ") {
            Some([b'A'..=b'Z', ..]) => at += 2,
            _ => return at,
        }
    }
}

/// Wants nothing.
struct Nobody;

impl Visitor for Nobody {
    fn element(&mut self, _: Key<'_>, _: Kind, _: Value<'_>) -> Step {
        Step::Next
    }

    fn open(&mut self, _: Key<'_>, _: bool) -> Opened {
        Opened::Skip
    }

    fn close(&mut self) {}
}
