//! Lines that servers of 4.2 and earlier sent to syslog: these have neither a date nor a severity of their own. Later
//! servers send whole lines, which [`envelope`](super::envelope) finds.
//!
//! Formats: RFC 3164 (also with the date of RFC 3339, as rsyslog writes it), RFC 5424, and the JSON of a journal.

use super::envelope;
use super::line::{LineHead, decimal, timestamp};
use crate::syntax::{json, time};
use crate::top_level::text_field;

/// The head of a line of a mongod or mongos, and its message; `None` for lines of other programs.
pub(super) fn head(line: &[u8], reference_ms: i64) -> Option<(LineHead<'_>, &[u8])> {
    let line = priority(line);
    let (ms, offset, rest) = match line.strip_prefix(b"1 ") {
        Some(rest) => {
            let (date, rest) = word(rest)?;
            let (ms, offset) = time::iso_with_offset(date)?;
            let (_host, rest) = word(rest)?;
            let (program, rest) = word(rest)?;
            let (_process, rest) = word(rest)?;
            let (_message_id, rest) = word(rest)?;
            is_server(program).then_some((ms, offset, structured_data(rest)?))?
        }
        None => {
            let (ms, offset, rest) = date(line, reference_ms)?;
            let (_host, rest) = word(rest)?;
            let colon = memchr::memchr(b':', rest.get(..64.min(rest.len()))?)?;
            is_server(&rest[..colon]).then_some((ms, offset, &rest[colon + 1..]))?
        }
    };
    with_context((ms, offset), rest.strip_prefix(b" ")?)
}

/// The head of a message that a server sent at this time, and what follows its thread.
fn with_context((ms, offset): (i64, Option<i16>), message: &[u8]) -> Option<(LineHead<'_>, &[u8])> {
    let message = message.strip_prefix(envelope::BYTE_ORDER_MARK).unwrap_or(message).strip_prefix(b"[")?;
    let close = memchr::memchr(b']', message.get(..64.min(message.len()))?)?;
    let context = &message[..close];
    let rest = &message[close + 1..];
    let head = LineHead { at: timestamp(ms), severity: b'I', component: b"", context, offset };
    Some((head, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// An entry of a journal, as `journalctl -o json` writes it, that a mongod or mongos sent to syslog.
pub(super) struct JournalEntry {
    ms: i64,
    message: Vec<u8>,
}

impl JournalEntry {
    /// The entry in this object; `None` if it is another's.
    pub(super) fn of(object: &[u8]) -> Option<Self> {
        const TIME: &str = "__REALTIME_TIMESTAMP";
        memchr::memmem::find(object, TIME.as_bytes())?;
        let string = |name| {
            let value = text_field(object, name).filter(|value| value.starts_with(b"\""))?;
            let mut unescaped = Vec::new();
            json::text(value, 0, &mut unescaped).ok().map(|(text, _)| text.to_vec())
        };
        let program = string("SYSLOG_IDENTIFIER").filter(|program| is_server(program));
        let us = program.and_then(|_| decimal(&string(TIME)?))?;
        Some(Self { ms: i64::try_from(us / 1_000).ok()?, message: string("MESSAGE")? })
    }

    /// The head of its line, and the message; `None` if the line has a head of its own, as those of 4.4 have.
    pub(super) fn head(&self) -> Option<(LineHead<'_>, &[u8])> {
        with_context((self.ms, None), &self.message)
    }
}

/// Without the priority `<14>`.
fn priority(line: &[u8]) -> &[u8] {
    let Some(rest) = line.strip_prefix(b"<") else { return line };
    match memchr::memchr(b'>', &rest[..rest.len().min(4)]) {
        Some(end) if rest[..end].iter().all(u8::is_ascii_digit) => &rest[end + 1..],
        _ => line,
    }
}

/// The date of a line, its offset, and what follows.
fn date(line: &[u8], reference_ms: i64) -> Option<(i64, Option<i16>, &[u8])> {
    if let Some((ms, length)) = time::syslog(line, reference_ms) {
        let (fraction_ms, rest) = fraction(line.get(length..)?);
        return Some((ms + fraction_ms, None, rest.strip_prefix(b" ")?));
    }
    let (date, rest) = word(line)?;
    let (ms, offset) = time::iso_with_offset(date)?;
    Some((ms, offset, rest))
}

/// The milliseconds of the decimals of a second, which `journalctl -o short-precise` writes, and what follows them.
fn fraction(text: &[u8]) -> (i64, &[u8]) {
    let Some(decimals) = text.strip_prefix(b".") else { return (0, text) };
    let length = decimals.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let first = decimals[..length].iter().chain(b"000").take(3);
    (first.fold(0, |ms, digit| ms * 10 + i64::from(digit - b'0')), &decimals[length..])
}

/// The text up to the next space, and what follows that.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b' ', text)?;
    Some((&text[..end], &text[end + 1..]))
}

/// Whether a name is that of a server: `mongod.27017[1234]`.
fn is_server(program: &[u8]) -> bool {
    let name = program.split(|byte| matches!(byte, b'.' | b'[')).next().unwrap_or_default();
    matches!(name, b"mongod" | b"mongos")
}

/// What follows the structured data: `-`, or elements in brackets.
fn structured_data(text: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = text.strip_prefix(b"-") {
        return Some(rest);
    }
    let mut rest = text;
    while let Some(inside) = rest.strip_prefix(b"[") {
        let is_end = |at: &usize| inside[*at] == b']' && (*at == 0 || inside[*at - 1] != b'\\');
        let end = (0..inside.len()).find(is_end)?;
        rest = &inside[end + 1..];
    }
    Some(rest)
}
