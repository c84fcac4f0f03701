//! Reads the attributes of a line that are needed for events.

use std::collections::BTreeMap;

use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::shape::{integer, number};

/// Paths of the values that are read.
const WANTED: [&str; 30] = [
    "namespace",
    "index",
    "indexes",
    "indexes.0",
    "db",
    "newState",
    "oldState",
    "hostAndPort",
    "parameterName",
    "newValue",
    "oldValue",
    "message",
    "message.msg",
    "exitCode",
    "lockCount",
    "term",
    "error",
    "error.codeName",
    "properties.name",
    "config.version",
    "config.term",
    "from.level",
    "from.slowms",
    "from.sampleRate",
    "to.level",
    "to.slowms",
    "to.sampleRate",
    "version",
    "name",
    "_id",
];
/// The most bytes of a text that are kept.
const MAX_TEXT: usize = 512;

/// The values of wanted attributes, as texts.
#[derive(Default)]
pub(super) struct EventAttributes {
    values: BTreeMap<&'static str, String>,
    /// Keys of the open documents, each with a dot behind it.
    path: String,
    /// Lengths of the path outside of each open document.
    outer: Vec<usize>,
    /// Elements of `members`.
    pub members: u64,
}

impl EventAttributes {
    /// The value at a path; empty if there is none.
    pub fn get(&self, path: &str) -> &str {
        self.values.get(path).map_or("", String::as_str)
    }

    fn at(&self, key: &Key<'_>) -> Option<&'static str> {
        let key = std::str::from_utf8(key.bytes).ok()?;
        WANTED
            .into_iter()
            .find(|wanted| wanted.strip_prefix(self.path.as_str()).is_some_and(|rest| rest == key))
    }
}

impl Visitor for EventAttributes {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let (Some(path), BsonValue::Bytes(bytes)) = (self.at(&key), value) else { return ElementStep::Next };
        let text = match kind {
            ElementKind::String => {
                Some(String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into_owned())
            }
            ElementKind::Boolean => bytes.first().map(|byte| (*byte != 0).to_string()),
            ElementKind::Double => number(kind, bytes).map(|number| number.to_string()),
            _ => integer(kind, bytes).map(|number| number.to_string()),
        };
        if let Some(text) = text {
            // The first counts: later ones of the same name are not the server's.
            self.values.entry(path).or_insert(text);
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        if self.path.ends_with("members.") && !array {
            self.members += 1;
            return Opened::Skip;
        }
        let Ok(name) = std::str::from_utf8(key.bytes) else { return Opened::Skip };
        let length = self.path.len();
        self.path.push_str(name);
        self.path.push('.');
        let is_wanted = WANTED.iter().any(|wanted| wanted.starts_with(self.path.as_str()));
        let is_members = array && matches!(self.path.as_str(), "members." | "config.members.");
        if is_wanted || is_members {
            self.outer.push(length);
            return Opened::Enter;
        }
        self.path.truncate(length);
        Opened::Skip
    }

    fn close(&mut self) {
        self.path.truncate(self.outer.pop().unwrap_or(0));
    }
}
