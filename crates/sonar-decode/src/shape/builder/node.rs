//! The parts of a shape: nodes, the open containers, and the words that hashes begin with.

use sonar_core::operation::WriteType;

use crate::bson::ElementKind;
use crate::shape::hash::tag;
use crate::shape::rules::ContainerMode;

// The beginnings of hashes beside the words of the command; each has its own number, which is part of the rules.
pub(super) const EMPTY_SET: u64 = tag(1);
pub(super) const EMPTY_SEQUENCE: u64 = tag(2);
pub(super) const TOO_MANY: u64 = tag(3);
pub(super) const EMPTY_ARRAY: u64 = tag(4);
pub(super) const TYPED_ARRAY: u64 = tag(5);
pub(super) const MIXED_ARRAY: u64 = tag(6);
pub(super) const REPLACEMENT: u64 = tag(7);
pub(super) const PRESENT: u64 = tag(8);
pub(super) const KEPT: u64 = tag(9);
pub(super) const FIELD_PATH: u64 = tag(10);
pub(super) const MIXED_STATEMENTS: u64 = tag(11);
pub(super) const REGEX_LITERAL: u64 = tag(12);
/// `$eq`, written or not.
pub(super) const EQUAL: u64 = tag(13);
/// The first of the placeholders; the others follow by their number.
pub(super) const PLACEHOLDER: u64 = tag(64);

/// A leaf or a closed container.
pub(super) struct Node<T> {
    pub(super) unordered: u64,
    pub(super) ordered: u64,
    pub(super) text: T,
}

/// Those of a [`Node`].
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Hashes {
    pub(super) unordered: u64,
    pub(super) ordered: u64,
}

impl<T> Node<T> {
    pub(super) fn hashes(&self) -> Hashes {
        Hashes { unordered: self.unordered, ordered: self.ordered }
    }
}

/// The types of the elements of an array of literals.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Types {
    None,
    One(u8),
    Mixed,
}

/// What follows when a container is closed: of a stage that the server writes in another way, more is open than was sent.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Afterwards {
    Nothing,
    /// The container around it is closed, too.
    CloseParent,
    /// It was the `_id` of the `$group` that `$sortByCount` is.
    CountAndSort,
}

/// What a container is to the operator of an expression that it follows.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Operands {
    /// Nothing that the server writes in another way.
    Other,
    /// A list; a single operand stands for itself.
    List,
    /// The document of an operator on dates; a date alone stands for itself.
    Date,
    /// The list of `$cond`: `if`, `then` and `else`.
    Condition,
}

/// The label before the text of a container: its rank, its path or key, and its operator.
pub(super) type BorrowedLabel<'a> = (u8, &'a [u8], &'a [u8]);
pub(super) const NO_LABEL: BorrowedLabel<'static> = (0, &[], &[]);

/// A container that is about to be opened.
#[derive(Copy, Clone)]
pub(super) struct Opening<'a> {
    pub(super) mode: ContainerMode,
    /// Its edge to the collector: key, path, operator.
    pub(super) edge: u64,
    /// Hash of the path of its conditions.
    pub(super) path: u64,
    /// The frame that collects its children; `None`: the container itself.
    pub(super) collector: Option<usize>,
    pub(super) label: BorrowedLabel<'a>,
}

impl<'a> Opening<'a> {
    pub(super) fn new(mode: ContainerMode, edge: u64, label: BorrowedLabel<'a>) -> Self {
        Self { mode, edge, path: 0, collector: None, label }
    }
}

/// An open container.
pub(super) struct Frame {
    pub(super) mode: ContainerMode,
    /// Index of the frame that collects this one's children.
    pub(super) collector: u32,
    /// Where this frame's children begin.
    pub(super) start: u32,
    /// How many of them are sorted and distinct.
    pub(super) sorted: u32,
    /// The edge to the collector: key, path, operator.
    pub(super) edge: u64,
    /// Hash of the path of its conditions.
    pub(super) path: u64,
    /// Running hash of the children in the order as sent.
    pub(super) ordered: u64,
    /// Running hash of the children of a sequence, without their own order.
    pub(super) sequence: u64,
    /// Children seen, equal ones included.
    pub(super) count: u32,
    pub(super) types: Types,
    /// An array of literals or an expression list holds more than literals.
    pub(super) structural: bool,
    pub(super) too_many: bool,
    /// Inside a stage that holds no expressions: strings that begin with `$` are literals.
    pub(super) opaque: bool,
    /// Where the label of this container begins in the stack of labels.
    pub(super) rank: u8,
    /// The field of the command that this container is, though it is inside another one.
    pub(super) belongs_to_command: Option<&'static str>,
    /// The constant in `{$const: …}` or `{$literal: …}`, which stands for it, and its type.
    pub(super) constant: Option<(Hashes, ElementKind)>,
    /// `$project` names `_id` among the fields that stay.
    pub(super) includes_id: bool,
    pub(super) afterwards: Afterwards,
    pub(super) operands: Operands,
    /// The last child.
    pub(super) last: Hashes,
}

/// One distinct statement of a command.
#[derive(Debug)]
pub struct StatementBody<T> {
    /// Hash without order.
    pub unordered: u64,
    /// Hash with the order as sent.
    pub ordered: u64,
    /// Index into `nsInfo` for bulkWrite; `None` for the command's own namespace.
    pub namespace: Option<i64>,
    /// What it does, if the command does not say so.
    pub write: Option<WriteType>,
    /// Their number.
    pub count: u32,
    /// Its text.
    pub text: T,
}

/// The body of a command: all its fields.
#[derive(Debug)]
pub struct CommandBody<T> {
    /// Hash without order.
    pub unordered: u64,
    /// Hash with the order as sent.
    pub ordered: u64,
    /// Its text.
    pub text: T,
}
