//! How JSON is written.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::ser::Formatter;
use ts_rs::{Config, TS};

use super::escape::is_safe;

/// Writes `value` and a line feed. Characters that a terminal could take as commands are written as
/// `\u` escapes, which JSON reads back as they were.
///
/// # Errors
/// Those of `out`, and of `value`.
pub fn line(value: &impl Serialize, mut out: impl Write) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Safe))?;
    out.write_all(b"\n")
}

/// Compact JSON with every unsafe character escaped; serde_json itself escapes the C0 controls.
struct Safe;

impl Formatter for Safe {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if fragment.is_ascii() && !fragment.contains('\x7f') {
            return out.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(|c| !is_safe(c)) {
            let (before, from) = rest.split_at(at);
            out.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            if let Some(c) = chars.next() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

/// Serialises what can be displayed as a string, without building it.
pub(crate) struct Shown<T>(pub T);

impl<T: fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T> TS for Shown<T> {
    type WithoutGenerics = Self;
    type OptionInnerType = Self;

    fn name(_: &Config) -> String {
        "string".to_owned()
    }

    fn inline(config: &Config) -> String {
        Self::name(config)
    }
}

/// Counts by name, in the order in which they were given. Each name must be given once.
#[derive(Clone, Debug, Default, TS)]
#[ts(type = "{ [name in string]: number }")]
pub(crate) struct NamedCounts(Vec<(Cow<'static, str>, u64)>);

impl<K: Into<Cow<'static, str>>> FromIterator<(K, u64)> for NamedCounts {
    fn from_iter<I: IntoIterator<Item = (K, u64)>>(counts: I) -> Self {
        Self(counts.into_iter().map(|(name, count)| (name.into(), count)).collect())
    }
}

impl Serialize for NamedCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, count)| (name, count)))
    }
}

/// `None` for an empty name.
pub(crate) fn name(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
