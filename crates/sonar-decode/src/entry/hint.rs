//! Finds the kind, the namespace and the command of an entry, which must be known before the rest is read.
//!
//! Servers write these first, but programs that forward log lines may sort the keys.

use super::{CommandHint, FieldTable, Op, is_known_first};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};

/// Finds them and skips everything else.
#[derive(Default)]
pub(crate) struct HintFinder {
    fields: FieldTable,
    hint: Option<CommandHint>,
    in_command: bool,
}

impl HintFinder {
    /// What was found: the kind, the namespace and the command.
    pub fn into_parts(self) -> (Op, FieldTable, Option<CommandHint>) {
        (self.fields.op, self.fields, self.hint)
    }

    /// Takes a key of the command's document if it names the command: the first one with a fitting value does.
    fn command_key(&mut self, key: &Key<'_>, kind: ElementKind, value: BsonValue<'_>) {
        let BsonValue::Bytes(bytes) = value else { return };
        if self.hint.is_some() || !is_known_first(key.bytes) {
            return;
        }
        let number = crate::shape::integer(kind, bytes);
        let text = (kind == ElementKind::String).then(|| bytes.to_vec());
        // `limit: 5` and `sort: 1` name no command; `aggregate: 1` does.
        if text.is_some() || number.is_some() {
            let cursor = number.filter(|_| key.bytes == b"getMore");
            self.hint = Some(CommandHint { command: key.bytes.to_vec(), collection: text, cursor });
        }
    }
}

impl Visitor for HintFinder {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        if self.in_command {
            self.command_key(&key, kind, value);
        } else if matches!(key.bytes, b"op" | b"type" | b"ns") {
            self.fields.scalar(key.bytes, kind, value);
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        if !self.in_command && !array && matches!(key.bytes, b"command" | b"query") {
            self.in_command = true;
            return Opened::Enter;
        }
        Opened::Skip
    }

    fn close(&mut self) {
        self.in_command = false;
    }
}
