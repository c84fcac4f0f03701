//! Reads one line by itself. [`LogReader`](super::LogReader) adds what depends on earlier lines, so lines can be read
//! on several threads.

use sonar_core::ShapeInfo;

use super::line::{LineHead, LineKind, LinePart, LogSettings, ParsedLine, decimal};
use super::parts::RuntimeLine;
use super::{envelope, json, syslog, text, unwrap};
use crate::entry::{Entry, ParsedEntry};
use crate::shape::{Rendered, Text};

/// Reads lines, each by itself.
pub struct LineReader<T: Text = ()> {
    settings: LogSettings,
    entry: Box<Entry<T>>,
}

impl LineReader {
    /// Reads one line, without its line feed. If it describes an operation, `entry` takes that.
    pub fn read(&mut self, line: &[u8], entry: &mut ParsedEntry) -> ParsedLine {
        let parsed = self.parse(line);
        if parsed.kind == LineKind::Operation {
            entry.take(&mut self.entry);
        }
        parsed
    }
}

impl LineReader<Rendered> {
    /// The shape of the operation that a line describes, with its text.
    pub(super) fn shape(mut self, line: &[u8]) -> ShapeInfo {
        self.parse(line);
        self.entry.into_shape()
    }
}

impl<T: Text> LineReader<T> {
    /// A reader with these settings.
    pub fn new(settings: LogSettings) -> Self {
        Self { settings, entry: Box::default() }
    }

    /// Reads one line; `entry` then has the operation that it describes.
    fn parse(&mut self, line: &[u8]) -> ParsedLine {
        let mut parsed = ParsedLine::default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        parsed.kind = match envelope::may_be_coloured(line) {
            true => {
                let kind = self.outer_line(&envelope::without_colours(line), &mut parsed);
                parsed.is_unwrapped |= !matches!(kind, LineKind::Unknown | LineKind::Empty);
                parsed.prefix = 0;
                kind
            }
            false => self.outer_line(line, &mut parsed),
        };
        parsed
    }

    fn outer_line(&mut self, line: &[u8], parsed: &mut ParsedLine) -> LineKind {
        match line.first() {
            Some(b'{') if line.len() == 1 => LineKind::ObjectBegin,
            Some(b'{') => match (self.json_line(line, 0, parsed), envelope::behind_marker(line)) {
                (LineKind::Unknown | LineKind::Malformed, Some(marked)) => self.unwrapped(marked, 0, parsed),
                (kind, _) => kind,
            },
            Some(b'0'..=b'9' | b'A'..=b'Z') => self.text_line(line, 0, parsed),
            _ => match line.strip_prefix(envelope::BYTE_ORDER_MARK).unwrap_or(line).trim_ascii() {
                [] => LineKind::Empty,
                line => self.inner_line(line, 0, parsed),
            },
        }
    }

    /// A line, or the content of another program's line.
    fn inner_line(&mut self, line: &[u8], depth: u8, parsed: &mut ParsedLine) -> LineKind {
        match line.first() {
            Some(b'{') => self.json_line(line, depth, parsed),
            Some(b'"' | b'\'') if depth < envelope::MAX_DEPTH => match envelope::quoted(line) {
                Some(text) => self.unwrapped(&text, depth, parsed),
                None => self.text_line(line, depth, parsed),
            },
            _ => self.text_line(line, depth, parsed),
        }
    }

    fn json_line(&mut self, line: &[u8], depth: u8, parsed: &mut ParsedLine) -> LineKind {
        let unknown = if envelope::looks_like_json(line) { LineKind::Malformed } else { LineKind::Unknown };
        let Ok(top) = json::top(line) else { return unknown };
        if let Some(head) = top.head() {
            return match self.is_wanted(&head, parsed) {
                true => top.message(line, &head, &mut self.entry, parsed),
                false => LineKind::Outside,
            };
        }
        // It may contain a log line.
        if depth >= envelope::MAX_DEPTH {
            return unknown;
        }
        if let Some(entry) = syslog::JournalEntry::of(line)
            && let Some((head, message)) = entry.head()
        {
            parsed.is_unwrapped = true;
            return match self.is_wanted(&head, parsed) {
                true => text::message(&head, message, &mut self.entry, parsed),
                false => LineKind::Outside,
            };
        }
        let mut unescaped = Vec::new();
        let kind = match top.inner(line, &mut unescaped) {
            Some(inner) => match top.runtime_line(inner) {
                Some(part) => self.part(&part, depth, parsed),
                None => self.unwrapped(inner, depth, parsed),
            },
            None => LineKind::Unknown,
        };
        if !matches!(kind, LineKind::Unknown | LineKind::Malformed) {
            return kind;
        }
        // It may stand deeper, or under another name, or its time stands apart.
        match unwrap::line_in(line, self.settings.reference_ms) {
            Some(inner) => self.unwrapped(&inner, depth, parsed),
            None if kind == LineKind::Malformed => kind,
            None => unknown,
        }
    }

    fn text_line(&mut self, line: &[u8], depth: u8, parsed: &mut ParsedLine) -> LineKind {
        let Some((head, message)) = text::head(line, self.settings.reference_ms) else {
            return self.line_without_head(line, depth, parsed);
        };
        // Another program may write a head of the same form.
        if depth < envelope::MAX_DEPTH && self.is_line(message) {
            return self.unwrapped(message, depth, parsed);
        }
        match self.is_wanted(&head, parsed) {
            true => text::message(&head, message, &mut self.entry, parsed),
            false => LineKind::Outside,
        }
    }

    /// Whether a message is a line itself.
    fn is_line(&self, message: &[u8]) -> bool {
        match message.first() {
            Some(b'{') => message.starts_with(b"{\"t\":{\"$date\""),
            Some(b'1' | b'2') => text::begins_line(message, self.settings.reference_ms),
            _ => false,
        }
    }

    /// A line without the head of a log line. It may contain a log line.
    fn line_without_head(&mut self, line: &[u8], depth: u8, parsed: &mut ParsedLine) -> LineKind {
        // First: a value in its message may look like the object of another program.
        let sent = line.strip_prefix(unwrap::MARK).unwrap_or(line);
        if let Some((head, message)) = syslog::head(sent, self.settings.reference_ms) {
            parsed.is_unwrapped = true;
            return match self.is_wanted(&head, parsed) {
                true => text::message(&head, message, &mut self.entry, parsed),
                false => LineKind::Outside,
            };
        }
        if depth < envelope::MAX_DEPTH {
            if let Some(part) = RuntimeLine::of_cri(line) {
                return self.part(&part, depth, parsed);
            }
            let is_head = |rest: &[u8]| text::begins_line(rest, self.settings.reference_ms);
            if let Some(inner) = envelope::behind_prefix(line, is_head) {
                if depth == 0 {
                    parsed.prefix = (line.len() - inner.len()) as u16;
                }
                return self.unwrapped(inner, depth, parsed);
            }
        }
        if envelope::is_journal_field(line) {
            return LineKind::Other;
        }
        if envelope::looks_like_text(line) { LineKind::Malformed } else { LineKind::Unknown }
    }

    /// A line inside the line of another program.
    fn unwrapped(&mut self, line: &[u8], depth: u8, parsed: &mut ParsedLine) -> LineKind {
        let line = line.trim_ascii();
        let kind = match envelope::may_be_coloured(line) {
            true => self.inner_line(envelope::without_colours(line).trim_ascii(), depth + 1, parsed),
            false => self.inner_line(line, depth + 1, parsed),
        };
        parsed.is_unwrapped |= kind != LineKind::Unknown;
        kind
    }

    /// A line of a container runtime; its text is read as if it were complete.
    fn part(&mut self, part: &RuntimeLine<'_>, depth: u8, parsed: &mut ParsedLine) -> LineKind {
        let RuntimeLine { stream, is_last, text } = *part;
        parsed.part = Some(Box::new(LinePart { stream, is_last, text: text.to_vec() }));
        if is_last { self.unwrapped(text, depth, parsed) } else { LineKind::Other }
    }

    /// Notes the head of a line. Returns whether it is inside the time range.
    fn is_wanted(&self, head: &LineHead<'_>, parsed: &mut ParsedLine) -> bool {
        (parsed.at, parsed.offset) = (Some(head.at), head.offset);
        parsed.connection = head.context.strip_prefix(b"conn").and_then(decimal);
        parsed.thread =
            parsed.connection.unwrap_or_else(|| crate::shape::hash::bytes(head.context) | 1 << 63);
        let LogSettings { from, to, .. } = self.settings;
        !from.is_some_and(|from| from.is_after(head)) && to.is_none_or(|to| to.is_after(head))
    }
}
