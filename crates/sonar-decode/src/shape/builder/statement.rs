//! The fields of a statement of an update, a delete or a bulkWrite.

use sonar_core::operation::WriteType;

use super::Builder;
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened};
use crate::commands::CommandKind;
use crate::shape::hash;
use crate::shape::rules::statement_field;
use crate::shape::text::Text;
use crate::shape::value::{bytes_of, number, truth_of};

impl<T: Text> Builder<T> {
    pub(super) fn statement_element(
        &mut self,
        key: Key<'_>,
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> ElementStep {
        if self.command == CommandKind::BulkWrite {
            let write = match key.bytes {
                b"insert" => Some(WriteType::Insert),
                b"update" => Some(WriteType::Update),
                b"delete" => Some(WriteType::Delete),
                _ => None,
            };
            let number = || number(kind, bytes_of(value));
            if let Some(write) = write {
                let index = number().map_or(-1, |number| number as i64);
                self.bulk = Some((write, index));
                return ElementStep::Next;
            }
            if key.bytes == b"limit" {
                self.bulk = Some((WriteType::Delete, 0));
                if number() == Some(0.0) {
                    let node = self.kept(b"true", false);
                    let multi = Key::new(b"multi");
                    self.attach(
                        self.frames.len() - 1,
                        hash::key(&multi),
                        node,
                        T::label(4, multi.bytes, &[]),
                    );
                }
                return truth_of(kind);
            }
        }
        let key = self.statement_key(key);
        self.field_element(statement_field(&key), key, kind, value)
    }

    pub(super) fn statement_open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let key = self.statement_key(key);
        self.field_open(statement_field(&key), key, array)
    }

    /// The key of a field as bulkWrite has it. A profile may have one of its statements in the form of an update or of a
    /// delete, whose `limit` takes the place of `multi`.
    fn statement_key<'k>(&mut self, key: Key<'k>) -> Key<'k> {
        if self.command != CommandKind::BulkWrite {
            return key;
        }
        match key.bytes {
            b"q" => Key::new(b"filter"),
            b"u" => {
                self.bulk = Some((WriteType::Update, 0));
                Key::new(b"updateMods")
            }
            _ => key,
        }
    }
}
