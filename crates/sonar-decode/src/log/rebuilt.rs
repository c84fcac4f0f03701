//! Rebuilds log lines that another program has split: it keeps the time in a field of its entry, and the rest as a text
//! without a time or as an object without `t`. Google Cloud (`timestamp` beside `textPayload` or `jsonPayload`), Elastic
//! (`@timestamp` beside `mongodb.log`) and Splunk (`_time`) do so.
//!
//! Sources: the entries that Google's agent makes, <https://github.com/GoogleCloudPlatform/ops-agent>
//! (`confgenerator/testdata/valid/linux/logging-receiver_mongodb`), and the fields of Elastic's integration,
//! <https://github.com/elastic/integrations/tree/main/packages/mongodb>.

use sonar_core::Timestamp;

use super::line::decimal;
use super::text;
use crate::syntax::{json, time};
use crate::top_level::text_field;

/// The deepest nesting that is searched.
const MAX_DEPTH: usize = 8;
/// The longest time.
const MAX_TIME: usize = 64;
/// The names of an entry's time, the most exact one first.
const TIMES: [&str; 9] = [
    "timestamp",
    "@timestamp",
    "__REALTIME_TIMESTAMP",
    "_time",
    "time",
    "date",
    "TimeGenerated",
    "receiveTimestamp",
    "ingestionTime",
];

/// Passes each line in a document, made whole, to `take`. Returns how many.
pub(super) fn lines(document: &[u8], take: &mut impl FnMut(&[u8])) -> usize {
    // Most documents of other programs have neither attributes nor the context of a line.
    let has = |what: &[u8]| memchr::memmem::find(document, what).is_some();
    if !has(b"\"attr") && !has(b"] ") {
        return 0;
    }
    let mut found = 0;
    let mut count = |line: &[u8]| {
        found += 1;
        take(line);
    };
    // What comes before the damage counts.
    let _ = EntryParts::default().value(document, 0, &mut count);
    found
}

/// The line in an object; `None` if it has none, or several.
pub(super) fn line(object: &[u8]) -> Option<Vec<u8>> {
    let mut line = None;
    let count = lines(object, &mut |found| line = Some(found.to_vec()));
    line.filter(|_| count == 1)
}

/// What the objects around a value say.
#[derive(Clone, Default)]
struct EntryParts<'a> {
    time: Option<EntryTime>,
    /// The value of the field with the message.
    message: Option<&'a [u8]>,
}

impl<'a> EntryParts<'a> {
    /// Searches the value at the beginning of `bytes`; returns where it ends, and whether it holds a line.
    fn value(&self, bytes: &'a [u8], depth: usize, take: &mut impl FnMut(&[u8])) -> Option<(usize, bool)> {
        let end = json::skip(bytes, 0).ok()?;
        let value = &bytes[..end];
        let found = match value.first()? {
            b'"' => self.text(value).map(|line| take(&line)).is_some(),
            b'{' if depth < MAX_DEPTH => self.inside(value).object(value, depth, take)?,
            b'[' if depth < MAX_DEPTH => self.members(value, depth, take)?,
            _ => false,
        };
        Some((end, found))
    }

    /// What an object and those around it say.
    fn inside(&self, object: &'a [u8]) -> Self {
        let time = TIMES.iter().find_map(|name| EntryTime::of(text_field(object, name)?));
        let message = text_field(object, "msg").or_else(|| text_field(object, "message"));
        Self { time: time.or_else(|| self.time.clone()), message: message.or(self.message) }
    }

    fn object(&self, object: &'a [u8], depth: usize, take: &mut impl FnMut(&[u8])) -> Option<bool> {
        match self.parsed(object) {
            Some(line) => {
                take(&line);
                Some(true)
            }
            None => self.members(object, depth, take),
        }
    }

    /// Searches the members of an object up to the first that holds a line, or all elements of a list.
    fn members(&self, outer: &'a [u8], depth: usize, take: &mut impl FnMut(&[u8])) -> Option<bool> {
        let is_object = outer[0] == b'{';
        let (mut at, mut found) = (json::space(outer, 1), false);
        while !matches!(outer.get(at)?, b'}' | b']') {
            if is_object {
                at = json::space(outer, json::skip(outer, at).ok()?);
                if outer.get(at) != Some(&b':') {
                    return None;
                }
                at = json::space(outer, at + 1);
            }
            let (length, is_found) = self.value(outer.get(at..)?, depth + 1, take)?;
            found |= is_found;
            if found && is_object {
                return Some(true);
            }
            at = json::space(outer, at + length);
            if outer.get(at) == Some(&b',') {
                at = json::space(outer, at + 1);
            }
        }
        Some(found)
    }

    /// The line of an object that has the parts of a line of 4.4 or later, except its time.
    fn parsed(&self, object: &[u8]) -> Option<Vec<u8>> {
        let time = self.time.as_ref()?;
        let of = |names: &[&str]| {
            names.iter().find_map(|name| {
                let value = text_field(object, name)?;
                Some(&value[..json::skip(value, 0).ok()?])
            })
        };
        let attributes = of(&["attr", "attributes"]).filter(|value| value.starts_with(b"{"))?;
        let context = of(&["ctx", "context"]).filter(|value| value.starts_with(b"\""))?;
        let message = self.message.and_then(|value| value.get(..json::skip(value, 0).ok()?));
        let message = message.filter(|value| value.starts_with(b"\"")).unwrap_or(b"\"\"");
        let id = match of(&["id"]) {
            Some(id) => id,
            None if message == b"\"Slow query\"" => b"51803",
            None => return None,
        };
        let text = |names: &[&str]| of(names).filter(|value| value.starts_with(b"\"")).unwrap_or(b"\"\"");
        let (severity, component) = (text(&["s", "severity"]), text(&["c", "component"]));
        Some(
            [
                b"{\"t\":{\"$date\":\"",
                time.iso.as_bytes(),
                b"\"},\"s\":",
                severity,
                b",\"c\":",
                component,
                b",\"id\":",
                id,
                b",\"ctx\":",
                context,
                b",\"msg\":",
                message,
                b",\"attr\":",
                attributes,
                b"}",
            ]
            .concat(),
        )
    }

    /// The line of a text that is one of 4.2 or earlier, except its time.
    fn text(&self, value: &[u8]) -> Option<Vec<u8>> {
        let time = self.time.as_ref()?;
        let mut unescaped = Vec::new();
        let (text, _) = json::text(value, 0, &mut unescaped).ok()?;
        let line = [time.iso.as_bytes(), b" ", text.trim_ascii()].concat();
        let (head, message) = text::head(&line, 0)?;
        let is_connection = head.context.strip_prefix(b"conn").and_then(decimal).is_some();
        // Other programs write brackets, too.
        let is_line = is_connection || !head.component.is_empty() || text::is_operation(message);
        is_line.then_some(line)
    }
}

/// The time of an entry.
#[derive(Clone)]
struct EntryTime {
    /// As lines have it.
    iso: String,
}

impl EntryTime {
    /// Of a value in JSON: a date as text, `{"$date": …}`, `{"seconds": …}`, or time since the Unix epoch.
    fn of(value: &[u8]) -> Option<Self> {
        let mut unescaped = Vec::new();
        let text = match value.first()? {
            b'"' => json::text(value, 0, &mut unescaped).ok()?.0,
            b'{' => {
                let inner = text_field(value, "$date").or_else(|| text_field(value, "seconds"))?;
                // Once: a hostile line may nest them a million times.
                return if inner.starts_with(b"{") { None } else { Self::of(inner) };
            }
            _ => &value[..json::skip(value, 0).ok()?],
        };
        let text = text.trim_ascii();
        if text.len() > MAX_TIME {
            return None;
        }
        if time::iso_with_offset(text).is_some() {
            return Some(Self { iso: String::from_utf8_lossy(text).replacen(' ', "T", 1) });
        }
        let (whole, decimals) = match memchr::memchr(b'.', text) {
            Some(point) => (&text[..point], &text[point + 1..]),
            None => (text, &[][..]),
        };
        let milliseconds = decimals.iter().chain(b"000").take(3);
        let fraction = milliseconds.fold(0, |ms, digit| ms * 10 + i64::from(digit.wrapping_sub(b'0').min(9)));
        let whole = i64::try_from(decimal(whole)?).ok()?;
        // Seconds of 2001 to 2286, or as many milliseconds, microseconds, nanoseconds.
        let ms = match whole {
            1_000_000_000..10_000_000_000 => whole * 1_000 + fraction,
            1_000_000_000_000..10_000_000_000_000 => whole,
            1_000_000_000_000_000..10_000_000_000_000_000 => whole / 1_000,
            1_000_000_000_000_000_000.. => whole / 1_000_000,
            _ => return None,
        };
        Some(Self { iso: Timestamp::from_unix_ms(ms).to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_unit_are_the_same() {
        for value in [
            "\"2026-05-01T10:00:00.120Z\"",
            "{\"$date\": \"2026-05-01T10:00:00.120000000Z\"}",
            "1777629600.120",
            "\"1777629600.1204\"",
            "1777629600120",
            "\"1777629600120000\"",
            "1777629600120000000",
        ] {
            let time = EntryTime::of(format!("{value},").as_bytes()).unwrap();
            assert_eq!(time::iso(time.iso.as_bytes()), Some(1_777_629_600_120), "{value}");
        }
        for value in ["17", "\"noon\"", "[]", "", "{\"$date\": 1}", "null", "\"1777629600.x\"x"] {
            let time = EntryTime::of(value.as_bytes());
            assert!(time.is_none_or(|time| time::iso(time.iso.as_bytes()).is_some()), "{value}");
        }
    }

    #[test]
    fn dates_inside_dates_cost_no_stack() {
        // A frame of 64 bytes for each would not fit onto the stack of a test.
        let depth = 100_000;
        let date = "{\"$date\":".repeat(depth) + "1" + &"}".repeat(depth);
        assert!(EntryTime::of(date.as_bytes()).is_none());
        assert!(line(format!("{{\"attr\":1,\"timestamp\":{date}}}").as_bytes()).is_none());
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[{]([\"{}:,0-9\\[\\]. ]|\"attr\":|\"ctx\":|\"time\":|\"timestamp\":|\"id\":){0,20}") {
            let _ = line(text.as_bytes());
        }
    }
}
