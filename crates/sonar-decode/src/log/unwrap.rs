//! Finds log lines in documents of other programs, wherever they keep them: the `log` of `getLog`, arrays of lines,
//! hits of Elasticsearch (`_source.message`, `fields.message`), streams of Loki, events of CloudWatch, entries of
//! Google Cloud (`textPayload`, `jsonPayload`), objects of Filebeat.

use std::cell::Cell;

use super::{envelope, json as log_json, rebuilt, syslog, text};
use crate::syntax::{json, printed};

/// The deepest nesting that is searched.
const MAX_DEPTH: usize = 16;
/// Shorter texts are no log lines.
const MIN_LINE: usize = 24;
/// Stands before each line, so that the reader knows that it comes from another program.
pub(super) const MARK: &[u8] = b"| ";

/// Appends the log lines in a document, each with a line feed, to `out`: of an object one line, or all that a list in it
/// holds; of a list those of each element. Returns how many. `reference_ms`: see
/// [`LogSettings::reference_ms`](super::LogSettings::reference_ms).
pub fn lines_of(document: &[u8], reference_ms: i64, out: &mut Vec<u8>) -> usize {
    let mut converted = Vec::new();
    if printed::to_json(document, &mut converted).is_err() {
        return 0;
    }
    let found = Cell::new(0);
    let mut take = |line: &[u8]| {
        for line in line.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            out.extend_from_slice(MARK);
            out.extend_from_slice(line);
            out.push(b'\n');
            found.set(found.get() + 1);
        }
    };
    // What comes before the damage counts.
    // The document itself may be a log line: an element of an array of them.
    let _ = Search { bytes: &converted, reference_ms }.value(0, 1, &mut take);
    if found.get() == 0 {
        rebuilt::lines(&converted, &mut take);
    }
    found.get()
}

/// Whether the beginning of a text holds a log line in quotes, or as an object: then the text may be a document that
/// holds lines.
pub fn holds_lines(head: &[u8], reference_ms: i64) -> bool {
    /// The most places that are tried.
    const MAX_PLACES: usize = 10_000;
    let places = memchr::memchr3_iter(b'"', b'\'', b'{', head).take(MAX_PLACES);
    let search = Search { bytes: head, reference_ms };
    places.into_iter().any(|at| {
        let rest = if head[at] == b'{' { &head[at..] } else { until(&head[at + 1..], head[at]) };
        let rest = &rest[..rest.len().min(4_096)];
        let is_object = begins_line_object(rest);
        if head[at] == b'{' || is_object { is_object } else { rest.len() >= MIN_LINE && search.is_line(rest) }
    })
}

/// Whether a text begins with `{"t":`, perhaps formatted, or with escaped quotes.
fn begins_line_object(text: &[u8]) -> bool {
    let inside = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start).unwrap_or_default();
    let behind = inside.strip_prefix(b"\"t\"").or(inside.strip_prefix(b"\\\"t\\\""));
    behind.is_some_and(|rest| rest.trim_ascii_start().starts_with(b":"))
}

/// The text up to the quote that ends it, as far as it is searched.
fn until(text: &[u8], quote: u8) -> &[u8] {
    let mut is_escaped = false;
    let end = text.iter().take(4_096).position(|byte| {
        let is_end = *byte == quote && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    &text[..end.unwrap_or(text.len())]
}

/// The log line inside an object of another program, as JSON; `None` if it holds none, or several. If its time stands
/// apart, it is put together.
pub(super) fn line_in(object: &[u8], reference_ms: i64) -> Option<Vec<u8>> {
    let (mut line, mut count) = (None, 0);
    let mut take = |found: &[u8]| {
        count += 1;
        line = Some(found.to_vec());
    };
    Search { bytes: object, reference_ms }.value(0, 0, &mut take)?;
    if count == 0 { rebuilt::line(object) } else { line.filter(|_| count == 1) }
}

struct Search<'a> {
    bytes: &'a [u8],
    reference_ms: i64,
}

impl Search<'_> {
    /// Searches the value at `at`; returns where it ends, and whether it holds a line. `None`: it is damaged.
    fn value(&self, at: usize, depth: usize, take: &mut impl FnMut(&[u8])) -> Option<(usize, bool)> {
        let at = json::space(self.bytes, at);
        let end = json::skip(self.bytes, at).ok()?;
        let value = &self.bytes[at..end];
        let found = match value.first()? {
            b'"' if value.len() >= MIN_LINE => {
                let mut unescaped = Vec::new();
                let (text, _) = json::text(self.bytes, at, &mut unescaped).ok()?;
                let is_line = self.is_line(text);
                if is_line {
                    take(text);
                }
                is_line
            }
            b'{' if depth > 0 && self.is_log_object(value) => {
                take(value);
                true
            }
            b'[' if let Some(text) =
                envelope::byte_text(value).filter(|text| text.len() >= MIN_LINE && self.is_line(text)) =>
            {
                take(&text);
                true
            }
            b'{' | b'[' if depth < MAX_DEPTH => self.members(at, depth, take)?,
            _ => false,
        };
        Some((end, found))
    }

    /// Searches the members of an object up to the first that holds lines: programs keep a line under several names. Of
    /// a list all elements are searched.
    fn members(&self, at: usize, depth: usize, take: &mut impl FnMut(&[u8])) -> Option<bool> {
        let is_object = self.bytes[at] == b'{';
        let mut at = json::space(self.bytes, at + 1);
        let mut found = false;
        while !matches!(self.bytes.get(at)?, b'}' | b']') {
            if is_object {
                at = json::space(self.bytes, json::skip(self.bytes, at).ok()?);
                if self.bytes.get(at) != Some(&b':') {
                    return None;
                }
                at += 1;
            }
            let (end, is_found) = self.value(at, depth + 1, take)?;
            found |= is_found;
            if found && is_object {
                return Some(true);
            }
            at = json::space(self.bytes, end);
            if self.bytes.get(at) == Some(&b',') {
                at = json::space(self.bytes, at + 1);
            }
        }
        Some(found)
    }

    /// Whether an object is a log line of 4.4 or later.
    fn is_log_object(&self, object: &[u8]) -> bool {
        envelope::looks_like_json(object) && log_json::top(object).is_ok_and(|top| top.head().is_some())
    }

    /// Whether a text begins with a log line, perhaps behind the prefix of another program.
    fn is_line(&self, text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        let is_head = |rest: &[u8]| text::begins_line(rest, self.reference_ms);
        match text.first() {
            Some(b'{') => envelope::looks_like_json(text),
            _ => {
                is_head(text)
                    || envelope::behind_prefix(text, is_head).is_some()
                    || syslog::head(text, self.reference_ms).is_some()
            }
        }
    }
}
