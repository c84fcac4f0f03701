//! Lines that servers of 4.2 and earlier sent to syslog: these have neither a date nor a severity of their own. Later
//! servers send whole lines, which [`envelope`](super::envelope) finds.
//!
//! Formats: RFC 3164 (also with the date of RFC 3339, as rsyslog writes it) and RFC 5424.

use super::envelope;
use super::line::{LineHead, timestamp};
use crate::syntax::time;

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
    let message = rest.strip_prefix(b" ")?;
    let message = message.strip_prefix(envelope::BYTE_ORDER_MARK).unwrap_or(message).strip_prefix(b"[")?;
    let close = memchr::memchr(b']', message.get(..64.min(message.len()))?)?;
    let context = &message[..close];
    let rest = &message[close + 1..];
    let head = LineHead { at: timestamp(ms), severity: b'I', component: b"", context, offset };
    Some((head, rest.strip_prefix(b" ").unwrap_or(rest)))
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
        return Some((ms, None, line.get(length..)?.strip_prefix(b" ")?));
    }
    let (date, rest) = word(line)?;
    let (ms, offset) = time::iso_with_offset(date)?;
    Some((ms, offset, rest))
}

/// The text up to the next space, and what follows that.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b' ', text)?;
    Some((&text[..end], &text[end + 1..]))
}

/// Whether a name is that of a server: `mongod.27017[1234]`.
fn is_server(program: &[u8]) -> bool {
    program.starts_with(b"mongod") || program.starts_with(b"mongos")
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
