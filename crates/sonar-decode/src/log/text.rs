//! Lines of 4.2 and earlier.
//!
//! `<time> <severity> <COMPONENT> [<context>] <verb> <ns> … NNNms`, the severity and component since 3.0, the time as
//! ctime before 2.6. An operation is described by `key:value` and `key: { document }`; strings in documents are not
//! escaped, see [`shell`].

use memchr::memmem;
use sonar_core::{Identity, Timestamp};

use super::events;
use super::line::{LineHead, LineKind, LogEvent, ParsedLine, decimal};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::entry::{CommandHint, Completeness, Entry, Op, endpoint};
use crate::message::ClientDocument;
use crate::names;
use crate::shape::Text;
use crate::syntax::shell::{self, ShellError};
use crate::syntax::time;

/// Marks where a server cut out the middle of a line.
const CUT: &[u8] = b" .......... ";
/// Begins a line that was cut.
const CUT_WARNING: &[u8] = b"warning: log line attempted (";

/// What a message says: an operation is read into `entry`, an event into `parsed`.
pub(super) fn message<T: Text>(
    head: &LineHead<'_>,
    message: &[u8],
    entry: &mut Entry<T>,
    parsed: &mut ParsedLine,
) -> LineKind {
    let cut =
        message.strip_prefix(CUT_WARNING).and_then(|rest| Some(&rest[memmem::find(rest, b" ... ")? + 5..]));
    let message = cut.unwrap_or(message);
    match TextEntry::of(message, cut.is_some()) {
        Some(operation) => {
            entry.reset();
            operation.read(entry);
            LineKind::Operation
        }
        None => {
            parsed.begins_operation = cut.is_none() && begins_operation(message);
            event(head, message, parsed)
        }
    }
}

/// The event that a message describes, which is not an operation.
fn event(head: &LineHead<'_>, message: &[u8], parsed: &mut ParsedLine) -> LineKind {
    parsed.happened = events::of_text(message, parsed.thread).map(Box::new);
    let after = |prefixes: &[&[u8]]| prefixes.iter().find_map(|prefix| message.strip_prefix(*prefix));
    let event = if let Some(rest) = after(&[b"connection accepted from "]) {
        // `127.0.0.1:52486 #1 (1 connection now open)`, or `anonymous unix socket` for the address.
        let (rest, open) = before_last(rest, b'(');
        let (address, number) = before_last(rest, b'#');
        let address = std::str::from_utf8(address.trim_ascii_end()).ok().and_then(endpoint);
        LogEvent::Accepted { open, client: number.zip(address) }
    } else if message.starts_with(b"end connection ") {
        LogEvent::Ended
    } else if let Some(rest) = after(&[b"Successfully authenticated as principal "]) {
        // `alice on admin`, later with `from client …` behind it.
        let mut words = rest.split(|byte| *byte == b' ');
        let (user, on, database) = (words.next(), words.next(), words.next());
        match (user.unwrap_or_default(), on, database) {
            (user @ [_, ..], Some(b"on"), Some(database)) => {
                let text =
                    |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(255)]).into_owned();
                LogEvent::Authenticated(format!("{}@{}", text(user), text(database)).into())
            }
            _ => return LineKind::Other,
        }
    } else if message.starts_with(b"received client metadata from ") {
        let Some(at) = memchr::memchr(b'{', message) else { return LineKind::Malformed };
        let mut reader = ClientDocument::default();
        // Servers write their machine's name with quotes in it; the part before that is enough.
        let _ = shell::walk(message, at, &mut reader);
        LogEvent::Client((&reader).into())
    } else if let Some(rest) = after(&[b"MongoDB starting : ", b"MongoS starting : ", b"mongos starting : "])
    {
        let field = |name: &[u8]| {
            let from = memmem::find(rest, name)? + name.len();
            rest[from..].split(|byte| *byte == b' ').next()
        };
        let host = field(b"host=").unwrap_or_default();
        LogEvent::Started {
            pid: field(b"pid=").and_then(decimal).and_then(|pid| u32::try_from(pid).ok()),
            port: field(b"port=").and_then(decimal).and_then(|port| u16::try_from(port).ok()),
            host: String::from_utf8_lossy(&host[..host.len().min(255)]).into(),
        }
    } else if let Some(version) =
        after(&[b"db version v", b"mongos version v", b"mongos version ", b"MongoS version "])
    {
        head.version(version.split(|byte| matches!(byte, b' ' | b',')).next().unwrap_or_default())
    } else {
        match head.message(None, message) {
            Some(event) if !message.is_empty() => event,
            _ => return LineKind::Other,
        }
    };
    parsed.with(event)
}

/// What stands before the last `mark`, and the number behind it.
fn before_last(text: &[u8], mark: u8) -> (&[u8], Option<u64>) {
    let Some(at) = memchr::memrchr(mark, text) else { return (text, None) };
    (&text[..at], text[at + 1..].split(|byte| *byte == b' ').next().and_then(decimal))
}

/// Whether a text begins as a log line does.
pub(super) fn begins_line(text: &[u8], reference_ms: i64) -> bool {
    head(text, reference_ms).is_some()
}

/// Whether a message describes an operation, or begins as that of one does.
pub(super) fn is_operation(message: &[u8]) -> bool {
    TextEntry::of(message, false).is_some() || begins_operation(message)
}

/// Whether a line that describes no operation is visibly the beginning of one, or of a message: only an operation
/// has a known end, and brackets come in pairs.
pub(super) fn is_cut(line: &[u8], reference_ms: i64) -> bool {
    let Some((_, message)) = head(line, reference_ms) else { return false };
    let message = message.trim_ascii_end();
    let open = |open: u8, close: u8| {
        let (mut depth, mut quoted) = (0i64, false);
        for byte in message {
            match *byte {
                b'"' => quoted = !quoted,
                byte if byte == open && !quoted => depth += 1,
                byte if byte == close && !quoted => depth -= 1,
                _ => {}
            }
        }
        depth > 0
    };
    message.is_empty()
        || message.starts_with(CUT_WARNING)
        || begins_operation(message)
        || [(b'(', b')'), (b'{', b'}'), (b'[', b']')].iter().any(|(a, b)| open(*a, *b))
}

/// Whether a message begins as that of an operation does.
fn begins_operation(message: &[u8]) -> bool {
    let verb = &message[..memchr::memchr(b' ', &message[..message.len().min(16)]).unwrap_or(0)];
    verb_of(verb).is_some() && message.get(verb.len() + 1..).is_some_and(is_subject)
}

/// Whether a text begins as what follows the verb of an operation does: with a namespace or a key.
fn is_subject(text: &[u8]) -> bool {
    let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    word.iter().any(|byte| matches!(byte, b'.' | b':'))
}

/// What a line describes that begins with this verb; `None` for a word that begins another message.
fn verb_of(word: &[u8]) -> Option<Op> {
    Some(match word {
        b"command" => Op::Command,
        b"query" => Op::Query,
        b"getmore" => Op::GetMore,
        b"insert" => Op::Insert,
        b"update" => Op::Update,
        b"remove" => Op::Remove,
        b"killcursors" => Op::KillCursors,
        b"none" => Op::Internal,
        b"applied" => Op::Applied,
        b"transaction" => Op::Transaction,
        _ => return None,
    })
}

/// The head of a line, and its message.
pub(super) fn head(line: &[u8], reference_ms: i64) -> Option<(LineHead<'_>, &[u8])> {
    let (ms, offset, rest) = match line.first()? {
        b'0'..=b'9' => {
            let end = memchr::memchr(b' ', line.get(..40.min(line.len()))?)?;
            let (ms, offset) = time::iso_with_offset(&line[..end])?;
            (ms, offset, &line[end + 1..])
        }
        _ => {
            let (ms, length) = time::ctime(line, reference_ms)?;
            (ms, None, line.get(length..)?.strip_prefix(b" ")?)
        }
    };
    let (severity, component, rest) = match rest {
        [b'[', ..] => (b'I', &rest[..0], rest),
        [severity @ (b'F' | b'E' | b'W' | b'I'), b' ', rest @ ..] => (*severity, component(rest)?, rest),
        [b'D', b' ', rest @ ..] | [b'D', b'1'..=b'5', b' ', rest @ ..] => (b'D', component(rest)?, rest),
        _ => return None,
    };
    // The context is in brackets after the padding of the component.
    let open = memchr::memchr(b'[', rest.get(..32.min(rest.len()))?)?;
    let close = open + memchr::memchr(b']', &rest[open..])?;
    let message = rest.get(close + 1..)?;
    let message = message.strip_prefix(b" ").unwrap_or(message);
    let context = &rest[open + 1..close];
    Some((LineHead { at: Timestamp::from_unix_ms(ms), severity, component, context, offset }, message))
}

fn component(rest: &[u8]) -> Option<&[u8]> {
    // 4.2 pads the severity, because those of debugging have two characters.
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let end = memchr::memchr(b' ', rest)?;
    let name = &rest[..end];
    (end <= 16 && name.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')))
        .then_some(name)
}

/// A line of 4.2 or earlier that describes an operation.
struct TextEntry<'a> {
    op: Op,
    /// After the verb.
    rest: &'a [u8],
    millis: u64,
    was_cut: bool,
}

impl<'a> TextEntry<'a> {
    /// `None` if the message describes no operation that has ended.
    #[inline]
    fn of(message: &'a [u8], was_cut: bool) -> Option<Self> {
        let before = message.strip_suffix(b"ms")?;
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let millis = decimal(&before[before.len() - digits..])?;
        let space = memchr::memchr(b' ', &message[..message.len().min(16)])?;
        let op = verb_of(&message[..space])?;
        match op {
            Op::Applied if !message[space..].starts_with(b" op: ") => return None,
            Op::Transaction if !message[space..].starts_with(b" parameters:{") => return None,
            _ => {}
        }
        let rest = message.get(space + 1..before.len() - digits)?;
        Some(Self { op, rest, millis, was_cut })
    }

    /// Where the figures begin after a document that cannot be read.
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

    /// Reads the document at `at` as the element `key`. Returns where it ends.
    fn document<T: Text>(&self, at: usize, key: &'static [u8], entry: &mut Entry<T>) -> usize {
        if key == b"locks" {
            // Most operations waited for no lock.
            let Some(end) = shell::end_of_plain(self.rest, at + 1) else { return self.resume(at) };
            if memmem::find(&self.rest[at..end], b"timeAcquiringMicros").is_none() {
                return end;
            }
        }
        if entry.open(Key::new(key), false) != Opened::Enter {
            return match shell::walk(self.rest, at, &mut Skipper) {
                Ok(end) => end,
                Err(_) => self.resume(at),
            };
        }
        match shell::walk(self.rest, at, entry) {
            Ok(end) if matches!(self.rest.get(end), None | Some(b' ')) => {
                entry.close();
                end
            }
            Ok(_) | Err(ShellError::Ambiguous(_)) if !self.was_cut => {
                entry.doubt = Some(Identity::Ambiguous);
                entry.abandon();
                self.resume(at)
            }
            // The line was cut by its server, or its end is missing.
            _ => {
                entry.abandon();
                entry.completeness = Completeness::Cut;
                if entry.cut_command.is_none() {
                    let text = &self.rest[at..];
                    let end = memmem::find(text, CUT).unwrap_or(text.len());
                    entry.cut_command = Some(text[..end].to_vec());
                }
                self.resume(at)
            }
        }
    }

    /// Reads the entry.
    fn read<T: Text>(&self, entry: &mut Entry<T>) {
        entry.fields.op = self.op;
        entry.fields.millis = Some(self.millis);
        // An empty query is left out.
        entry.leaves_out_empty = matches!(self.op, Op::Query | Op::Remove);
        let rest = self.rest;
        let mut at = match self.op {
            // `op: CRUD { … }, took `
            Op::Applied => {
                let Some(open) = memchr::memchr(b'{', rest) else { return };
                self.document(open, b"CRUD", entry);
                return;
            }
            // `parameters:{ … }, readTimestamp:… `: they contain no strings but the read concern.
            Op::Transaction => shell::end_of_plain(rest, b"parameters:{".len()).unwrap_or(rest.len()),
            _ => {
                let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
                entry.fields.set_namespace(&rest[..end]);
                end
            }
        };
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
                    // `errMsg:"…"`: the text may contain anything.
                    let text = &rest[after + 2..];
                    entry.fields.scalar(key, ElementKind::String, BsonValue::Bytes(b""));
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
    }

    /// `key: value`, where the value is a document, a name with a document, a text or a plan.
    fn spaced<T: Text>(&self, key: &[u8], at: usize, entry: &mut Entry<T>) -> usize {
        let rest = self.rest;
        let value = &rest[at..];
        match (key, value.first()) {
            (b"planSummary", _) => {
                let end = at + plan_length(value);
                let plan = &rest[at..end];
                // After an ambiguous document, patterns may be part of one of its strings.
                let is_certain = entry.doubt.is_none();
                let shown =
                    if is_certain { plan.len() } else { memchr::memchr(b'{', plan).unwrap_or(plan.len()) };
                entry.fields.scalar(b"planSummary", ElementKind::String, BsonValue::Bytes(&plan[..shown]));
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
                if key == b"appName" {
                    entry.fields.scalar(key, ElementKind::String, BsonValue::Bytes(&text[..end]));
                }
                at + 1 + end + 1
            }
            // `command: find { find: … }`
            (b"command", Some(_)) => {
                let name = memchr::memchr(b' ', value).unwrap_or(value.len());
                if value[name..].starts_with(b" { $msg: ") && names::is_command_like(&value[..name]) {
                    let command = value[..name].to_vec();
                    entry.set_hint(Some(CommandHint { command, ..CommandHint::default() }));
                }
                match value.get(name + 1) {
                    Some(b'{') => self.document(at + name + 1, b"command", entry),
                    _ => at + name,
                }
            }
            _ => at,
        }
    }
}

/// The names under which an entry has documents.
fn known(key: &[u8]) -> &'static [u8] {
    match key {
        b"command" => b"command",
        b"query" => b"query",
        b"update" | b"updateobj" => b"update",
        b"originatingCommand" => b"originatingCommand",
        b"locks" => b"locks",
        b"storage" => b"storage",
        b"flowControl" => b"flowControl",
        _ => b"",
    }
}

fn scalar<T: Text>(entry: &mut Entry<T>, key: &[u8], value: &[u8]) {
    // Text lines have no such keys, but strings in their documents may contain them.
    if matches!(key, b"op" | b"type" | b"ns" | b"ts" | b"appName" | b"client" | b"remote") {
        return;
    }
    let number = match value {
        [b'0'..=b'9' | b'-', ..] => std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok()),
        _ => None,
    };
    match number {
        Some(number) => entry.fields.scalar(key, ElementKind::Int64, BsonValue::Bytes(&number.to_le_bytes())),
        None => entry.fields.scalar(key, ElementKind::String, BsonValue::Bytes(value)),
    };
}

/// Length of a plan summary: names in capitals, each with its key pattern if it has one, separated by commas.
fn plan_length(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += text[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'0'..=b'9'))
            .count();
        if text[at..].starts_with(b" { ") {
            // Mostly a pattern of directions, without documents and strings.
            let inside = &text[at + 3..];
            let near = memchr::memchr3(b'}', b'{', b'"', inside);
            match near {
                Some(found) if inside[found] == b'}' && is_directions(&inside[..found]) => {
                    at += 3 + found + 1
                }
                _ => match shell::walk(text, at + 1, &mut Skipper) {
                    Ok(end) => at = end,
                    Err(_) => return at,
                },
            }
        }
        match text[at..].strip_prefix(b", ") {
            Some([b'A'..=b'Z', ..]) => at += 2,
            _ => return at,
        }
    }
}

/// Whether a key pattern contains only names with plain numbers: `a: 1, b: -1 `.
fn is_directions(inside: &[u8]) -> bool {
    let Some(inside) = inside.strip_suffix(b" ") else { return false };
    inside.split(|byte| *byte == b',').enumerate().all(|(at, field)| {
        let field = if at > 0 { field.strip_prefix(b" ") } else { Some(field) };
        let Some((name, value)) = field.and_then(|field| {
            let colon = memchr::memchr(b':', field)?;
            Some((&field[..colon], field[colon + 1..].strip_prefix(b" ")?))
        }) else {
            return false;
        };
        let digits = value.strip_prefix(b"-").unwrap_or(value);
        !name.contains(&b' ')
            && !digits.is_empty()
            && digits.len() <= 9
            && digits.iter().all(u8::is_ascii_digit)
    })
}

/// Skips everything.
struct Skipper;

impl Visitor for Skipper {
    fn element(&mut self, _: Key<'_>, _: ElementKind, _: BsonValue<'_>) -> ElementStep {
        ElementStep::Next
    }

    fn open(&mut self, _: Key<'_>, _: bool) -> Opened {
        Opened::Skip
    }

    fn close(&mut self) {}
}
