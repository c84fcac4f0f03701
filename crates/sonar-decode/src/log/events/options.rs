//! The settings that a server logs when it starts, and at the beginning of each log after it was rotated.

use std::collections::BTreeMap;

use sonar_core::history::{MAX_SETTINGS, shown_setting};

use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::shape::{integer, number};
use crate::syntax::json;

/// The document with all settings.
const ROOT: &str = "options.";
/// The most documents inside each other.
const MAX_DEPTH: usize = 8;
/// The most bytes of a name with its sections, and of a value.
const MAX_BYTES: usize = 256;

/// The settings in the attributes of a line, which begin at `at`, as `section.name` with their values; none if the line is
/// damaged, as settings that are missing would seem to be no longer set.
pub(super) fn of_attributes(line: &[u8], at: usize) -> BTreeMap<String, String> {
    let mut found = SettingsReader::default();
    match json::walk(line, at, &mut found) {
        Ok(_) => found.settings,
        Err(_) => BTreeMap::new(),
    }
}

#[derive(Default)]
struct SettingsReader {
    settings: BTreeMap<String, String>,
    /// Keys of the open documents, each with a dot behind it.
    path: String,
    /// Lengths of the path outside of each open document.
    outer: Vec<usize>,
}

impl Visitor for SettingsReader {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let (Some(section), BsonValue::Bytes(bytes)) = (self.path.strip_prefix(ROOT), value) else {
            return ElementStep::Next;
        };
        let value = match kind {
            ElementKind::String => String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_BYTES)]).into_owned(),
            ElementKind::Boolean => bytes.first().is_some_and(|byte| *byte != 0).to_string(),
            ElementKind::Double => number(kind, bytes).map_or_else(String::new, |number| number.to_string()),
            _ => integer(kind, bytes).map_or_else(String::new, |number| number.to_string()),
        };
        let name = format!("{section}{}", String::from_utf8_lossy(key.bytes));
        if name.len() <= MAX_BYTES && self.settings.len() < MAX_SETTINGS {
            let value = shown_setting(&name, &value);
            self.settings.entry(name).or_insert(value);
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let Ok(name) = std::str::from_utf8(key.bytes) else { return Opened::Skip };
        let is_root = !self.outer.is_empty() || name == ROOT.trim_end_matches('.');
        if array || !is_root || self.outer.len() >= MAX_DEPTH || self.path.len() + name.len() > MAX_BYTES {
            return Opened::Skip;
        }
        self.outer.push(self.path.len());
        self.path.push_str(name);
        self.path.push('.');
        Opened::Enter
    }

    fn close(&mut self) {
        self.path.truncate(self.outer.pop().unwrap_or(0));
    }
}
