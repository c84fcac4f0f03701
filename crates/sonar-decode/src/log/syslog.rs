//! Lines that servers of 4.2 and earlier sent to syslog: these have neither a date nor a severity of their own. Later
//! servers send whole lines, which [`envelope`](super::envelope) finds.
//!
//! Formats: RFC 3164 (also with a year, and with the date of RFC 3339, as rsyslog writes it), RFC 5424, and the JSON of
//! a journal. Facility and severity may stand before the date (`<30>`, `daemon.info`) or before the program, as busybox
//! writes them.

use sonar_core::Timestamp;

use super::envelope;
use super::envelope::byte_text;
use super::line::{LineHead, decimal};
use crate::syntax::{json, time};
use crate::top_level::text_field;

/// The most words between the date and the program: the zone, the host, facility and severity.
const MAX_WORDS: usize = 5;

/// The head of a line of a mongod or mongos, and its message; `None` for lines of other programs.
pub(super) fn head(line: &[u8], reference_ms: i64) -> Option<(LineHead<'_>, &[u8])> {
    let line = selector(priority(counted(line)));
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
            (ms, offset, behind_program(rest)?)
        }
    };
    with_context(ms, offset, rest.strip_prefix(b" ")?)
}

/// What follows the name of a server and its colon.
fn behind_program(mut rest: &[u8]) -> Option<&[u8]> {
    for _ in 0..MAX_WORDS {
        let (word, behind) = word(rest)?;
        if let Some(program) = word.strip_suffix(b":") {
            return is_server(program).then_some(&rest[word.len()..]);
        }
        rest = behind;
    }
    None
}

/// Without the length that stands before each message in a stream (RFC 6587): `123 <30>1 …`.
fn counted(line: &[u8]) -> &[u8] {
    match line.iter().take(6).position(|byte| !byte.is_ascii_digit()) {
        Some(end @ 1..) if line[end..].starts_with(b" <") => &line[end + 1..],
        _ => line,
    }
}

/// Without facility and severity as words: `daemon.info `.
fn selector(line: &[u8]) -> &[u8] {
    const SEVERITIES: [&[u8]; 10] =
        [b"emerg", b"alert", b"crit", b"err", b"error", b"warning", b"warn", b"notice", b"info", b"debug"];
    let Some(space) = memchr::memchr(b' ', &line[..line.len().min(24)]) else { return line };
    let (facility, severity) = match memchr::memchr(b'.', &line[..space]) {
        Some(dot) => (&line[..dot], &line[dot + 1..space]),
        None => return line,
    };
    let is_facility = facility.first().is_some_and(u8::is_ascii_lowercase)
        && facility.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if is_facility && SEVERITIES.contains(&severity) { line[space + 1..].trim_ascii_start() } else { line }
}

/// The head of a message that a server sent at this time, and what follows its thread.
fn with_context(ms: i64, offset: Option<i16>, message: &[u8]) -> Option<(LineHead<'_>, &[u8])> {
    let message = message.strip_prefix(envelope::BYTE_ORDER_MARK).unwrap_or(message).strip_prefix(b"[")?;
    let close = memchr::memchr(b']', message.get(..64.min(message.len()))?)?;
    let context = &message[..close];
    let rest = &message[close + 1..];
    let head = LineHead { at: Timestamp::from_unix_ms(ms), severity: b'I', component: b"", context, offset };
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
            let value = text_field(object, name)?;
            if value.starts_with(b"[") {
                // A text that is not plain: an array of its bytes.
                return byte_text(&value[..json::skip(value, 0).ok()?]);
            }
            let mut unescaped = Vec::new();
            value
                .starts_with(b"\"")
                .then(|| json::text(value, 0, &mut unescaped).ok())?
                .map(|(text, _)| text.to_vec())
        };
        let program = string("SYSLOG_IDENTIFIER").filter(|program| is_server(program));
        let us = program.and_then(|_| decimal(&string(TIME)?))?;
        Some(Self { ms: i64::try_from(us / 1_000).ok()?, message: string("MESSAGE")? })
    }

    /// The head of its line, and the message; `None` if the line has a head of its own, as those of 4.4 have.
    pub(super) fn head(&self) -> Option<(LineHead<'_>, &[u8])> {
        with_context(self.ms, None, &self.message)
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
    // The weekday of `journalctl -o short-full` says nothing more.
    let line = match line.split_at_checked(4) {
        Some((day, rest)) if day.ends_with(b" ") && rest.get(4) == Some(&b'-') => rest,
        _ => line,
    };
    if let Some((ms, rest)) = dated_by_month(line, reference_ms) {
        let (fraction_ms, rest) = fraction(rest);
        return Some((ms + fraction_ms, None, rest.strip_prefix(b" ")?));
    }
    if let Some(found) = unix_date(line) {
        return Some(found);
    }
    // `2026-05-01T10:00:01`, or with a space between date and time.
    let (date, rest) = word(line)?;
    let length = if date.len() == 10 { 11 + word(rest)?.0.len() } else { date.len() };
    let (ms, offset) = time::iso_with_offset(&line[..length])?;
    Some((ms, offset, line.get(length..)?.strip_prefix(b" ")?))
}

/// A date with the name of a month, and what follows: `May  1 10:00:01`, with a year before it, in it (`May  1 2026
/// 10:00:01`) or behind it.
fn dated_by_month(line: &[u8], reference_ms: i64) -> Option<(i64, &[u8])> {
    const DATE: usize = 7;
    const TIME: usize = 8;
    if let Some((year, rest)) = year(line) {
        return Some((time::syslog(rest, time::end_of_year(year))?.0, rest.get(DATE + TIME..)?));
    }
    if let Some((year, rest)) = line.get(DATE..).and_then(year) {
        let text = [&line[..DATE], rest.get(..TIME)?].concat();
        return Some((time::syslog(&text, time::end_of_year(year))?.0, &rest[TIME..]));
    }
    let (ms, length) = time::syslog(line, reference_ms)?;
    let rest = line.get(length..)?;
    Some(match rest.strip_prefix(b" ").and_then(year) {
        // If the host follows instead, it is not a year.
        Some((year, _)) => (time::syslog(line, time::end_of_year(year))?.0, &rest[5..]),
        None => (ms, rest),
    })
}

/// A year of four digits and the space behind it.
fn year(text: &[u8]) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let year = decimal(digits).and_then(|year| i64::try_from(year).ok());
    Some((year.filter(|year| (1970..2200).contains(year))?, rest.strip_prefix(b" ")?))
}

/// Seconds since the Unix epoch, as `journalctl -o short-unix` writes them.
fn unix_date(line: &[u8]) -> Option<(i64, Option<i16>, &[u8])> {
    let (date, rest) = word(line)?;
    let point = memchr::memchr(b'.', date)?;
    let seconds =
        decimal(&date[..point]).filter(|seconds| (100_000_000..10_000_000_000).contains(seconds))?;
    let (fraction_ms, behind) = fraction(&date[point..]);
    behind.is_empty().then_some((seconds as i64 * 1_000 + fraction_ms, Some(0), rest))
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
