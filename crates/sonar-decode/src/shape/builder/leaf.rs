//! Leaves: the nodes of a scalar, a kept literal or an array of literals, and how much of a value affects the shape.

use super::Builder;
use super::node::{EMPTY_ARRAY, FIELD_PATH, KEPT, MIXED_ARRAY, Node, PLACEHOLDER, TYPED_ARRAY, Types};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key};
use crate::names;
use crate::shape::hash::{self, mix};
use crate::shape::text::Text;
use crate::shape::value::{PLACEHOLDERS, TYPE, decimal, expression_of, literal_of, number, placeholder};

impl<T: Text> Builder<T> {
    pub(super) fn placeholder(&self, kind: ElementKind) -> Node<T> {
        let (number, typed) = placeholder(kind);
        let id = PLACEHOLDER.wrapping_add(u64::from(number));
        Node { unordered: id, ordered: id, text: if T::WANTED { T::leaf(typed, "?") } else { T::default() } }
    }

    /// A literal that is kept; `masked` in the plain form or not.
    pub(super) fn kept(&self, text: &[u8], masked: bool) -> Node<T> {
        let id = mix(KEPT, hash::bytes(text));
        Node {
            unordered: id,
            ordered: id,
            text: if T::WANTED { T::literal(text, masked) } else { T::default() },
        }
    }

    pub(super) fn leaf(id: u64, typed: &str, plain: &str) -> Node<T> {
        Node {
            unordered: id,
            ordered: id,
            text: if T::WANTED { T::leaf(typed, plain) } else { T::default() },
        }
    }

    /// A literal: kept if it is short, else its type.
    pub(super) fn literal(&self, kind: ElementKind, value: BsonValue<'_>) -> Node<T> {
        let BsonValue::Bytes(bytes) = value else { return self.placeholder(kind) };
        match kind {
            ElementKind::String | ElementKind::Symbol => {
                let id = mix(KEPT, hash::bytes(bytes));
                let text = if T::WANTED {
                    let quoted = [b"'".as_slice(), bytes, b"'"].concat();
                    T::literal(&quoted, true)
                } else {
                    T::default()
                };
                Node { unordered: id, ordered: id, text }
            }
            _ => match number(kind, bytes) {
                Some(number) => self.kept(decimal(number).as_bytes(), true),
                None => self.placeholder(kind),
            },
        }
    }

    /// A literal where a name is expected: kept unless it is a string that is not provably a name, then a
    /// placeholder. Also returns what was used of the value.
    pub(super) fn name(
        &self,
        kind: ElementKind,
        value: BsonValue<'_>,
        is_name: impl FnOnce(&[u8]) -> bool,
    ) -> (Node<T>, ElementStep) {
        let is_kept = match (kind, value) {
            (ElementKind::String | ElementKind::Symbol, BsonValue::Bytes(bytes)) => is_name(bytes),
            _ => true,
        };
        // Whether a string is a name depends on all of it.
        let node = if is_kept { self.literal(kind, value) } else { self.placeholder(kind) };
        (node, literal_of(kind))
    }

    /// A string or scalar in an aggregation expression: paths and variables are kept, literals are not.
    /// Also returns what was used of the value, and whether it is a path.
    pub(super) fn expression_leaf(
        &self,
        key: &Key<'_>,
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> (Node<T>, ElementStep, bool) {
        let is_literal = matches!(key.bytes, b"$literal" | b"$const")
            || self.frames.last().is_some_and(|frame| frame.opaque);
        if is_literal {
            return (self.placeholder(kind), TYPE, false);
        }
        if let (ElementKind::String, BsonValue::Bytes(bytes @ [b'$', ..])) = (kind, value) {
            let id = mix(FIELD_PATH, hash::path(&Key::new(bytes)));
            let text = if T::WANTED {
                let path = hash::normalised(bytes);
                let is_plain = names::is_plain_path(bytes);
                let quoted = [b"'".as_slice(), if is_plain { &path } else { b"$?" }, b"'"].concat();
                T::literal(&quoted, false)
            } else {
                T::default()
            };
            return (Node { unordered: id, ordered: id, text }, expression_of(kind, true), true);
        }
        (self.placeholder(kind), expression_of(kind, false), false)
    }

    /// The node of an array of literals.
    pub(super) fn typed_array(types: Types) -> Node<T> {
        match types {
            Types::None => Self::leaf(EMPTY_ARRAY, "[]", "?"),
            Types::Mixed => Self::leaf(MIXED_ARRAY, "?array<>", "?"),
            Types::One(number) => {
                let id = mix(TYPED_ARRAY, u64::from(number));
                if !T::WANTED {
                    return Self::leaf(id, "", "");
                }
                Self::leaf(id, &format!("?array<{}>", PLACEHOLDERS[usize::from(number)]), "?")
            }
        }
    }
}
