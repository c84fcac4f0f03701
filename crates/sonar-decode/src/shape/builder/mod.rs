//! The shape builder: takes elements, and returns ids, and text if it is wanted.
//!
//! Theory of operation. Each open container is a [`Frame`]. A leaf or a closed container is a [`Node`] of two hashes,
//! one without and one with the order sent. A node goes to its frame's *collector*: the frame itself, or, if a
//! container only groups (`$and`, `{a: {$gt: …, $lt: …}}`), the filter around it. So a filter is a flat set of
//! conditions (path, operator, operand), and the explicit and the implicit forms of a query become the same without
//! any rewriting.
//!
//! A *set* keeps the hashes of its distinct children, at most [`MAX_CHILDREN`], and is hashed sorted; a
//! *sequence* keeps a running hash only. Nothing here grows with text or with the number of children.

mod closing;
mod leaf;
mod node;
mod read;
mod server_form;
mod statement;

use self::node::{
    Afterwards, BorrowedLabel, EMPTY_SEQUENCE, EMPTY_SET, Frame, Hashes, MIXED_STATEMENTS, NO_LABEL, Node,
    Opening, Operands, PRESENT, TOO_MANY, Types,
};
pub use self::node::{CommandBody, StatementBody};
use super::hash::{self, mix};
use super::rules::{self, ContainerMode, Field};
use super::text::{MESSAGE_BUDGET, Style, Text, TextElement};
use super::value::placeholder;
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::commands::CommandKind;
use sonar_core::operation::WriteType;

/// The most distinct children of one set. A set with more has the hash of "too many".
pub const MAX_CHILDREN: usize = 1_024;
/// The most open containers.
pub const MAX_DEPTH: usize = 128;
/// The most distinct statements of one command.
pub const MAX_STATEMENTS: usize = 256;
/// What a label costs of the budget for texts, in bytes.
const LABEL_COST: usize = 64;
/// The most unsorted children of a set behind the sorted ones.
const UNSORTED: usize = 32;

/// Builds the shape of one command after another; keeps its buffers.
pub struct Builder<T: Text> {
    frames: Vec<Frame>,
    elements: Vec<TextElement<T>>,
    /// For each frame: the path (or key) and the operator before it; only if text is wanted.
    labels: Vec<(Vec<u8>, Vec<u8>)>,
    statements: Vec<StatementBody<T>>,
    /// Fields of the command that were inside its filter: `$orderby` and the like.
    deferred: Vec<(&'static str, u8, Node<T>)>,
    command: CommandKind,
    text_left: usize,
    /// Namespace index and action of the bulkWrite statement that is open.
    bulk: Option<(WriteType, i64)>,
    /// Whether a cap was reached: too deep, or too many distinct children.
    pub over_cap: bool,
    /// Whether a `$changeStream` stage was seen.
    pub change_stream: bool,
    /// All statements, equal ones included.
    pub statement_count: u32,
}

impl<T: Text> Default for Builder<T> {
    fn default() -> Self {
        let mut builder = Self {
            frames: Vec::with_capacity(16),
            elements: Vec::with_capacity(64),
            labels: Vec::new(),
            statements: Vec::new(),
            deferred: Vec::new(),
            command: CommandKind::Other,
            text_left: MESSAGE_BUDGET,
            bulk: None,
            over_cap: false,
            change_stream: false,
            statement_count: 0,
        };
        builder.reset();
        builder
    }
}

impl<T: Text> Builder<T> {
    /// Forgets everything; ready for a command.
    pub fn reset(&mut self) {
        self.frames.clear();
        self.elements.clear();
        self.labels.clear();
        self.statements.clear();
        self.deferred.clear();
        self.command = CommandKind::Other;
        self.text_left = MESSAGE_BUDGET;
        self.bulk = None;
        self.over_cap = false;
        self.change_stream = false;
        self.statement_count = 0;
        self.push(Opening::new(ContainerMode::Command, 0, NO_LABEL));
    }

    /// Sets the command.
    pub fn set_command(&mut self, command: CommandKind) {
        self.command = command;
    }

    /// Open containers, the command itself included.
    #[inline]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Whether a field of the command is open: further events belong to the builder.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.frames.len() > 1
    }

    /// A scalar field of the command itself.
    pub fn command_element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        self.field_element(rules::field(self.command, &key), key, kind, value)
    }

    /// A document or array that is a field of the command itself. [`Opened::Enter`] if it belongs to the shape: then
    /// the events inside come to this builder until it is closed.
    pub fn command_open(&mut self, key: Key<'_>, array: bool) -> Opened {
        self.field_open(rules::field(self.command, &key), key, array)
    }

    /// Opens a part of the command that no field of this message names: in legacy messages, and for statements of
    /// kind-1 sections. [`Visitor::close`] closes it.
    pub fn open_part(&mut self, rank: u8, name: &'static str, mode: ContainerMode) {
        self.push(Opening::new(mode, hash::bytes(name.as_bytes()), (rank, name.as_bytes(), &[])));
    }

    /// Opens one statement (a document of a kind-1 section, or a legacy write).
    pub fn open_statement(&mut self) {
        self.bulk = None;
        self.push(Opening::new(ContainerMode::Statement, 0, NO_LABEL));
    }

    /// Adds a flag (`multi`, `upsert` …) or presence (`limit`) that a legacy message states by a bit or
    /// a number.
    pub fn add_mark(&mut self, rank: u8, name: &'static str, field: Field) {
        let mark = match field {
            Field::Flag => self.kept(b"true", false),
            _ => self.placeholder(ElementKind::Int32),
        };
        let mark =
            if field == Field::Flag { mark } else { Node { unordered: PRESENT, ordered: PRESENT, ..mark } };
        self.attach(
            self.frames.len() - 1,
            hash::bytes(name.as_bytes()),
            mark,
            T::label(rank, name.as_bytes(), &[]),
        );
    }

    /// The distinct statements, in the order in which they first came.
    pub fn statements(&mut self) -> &mut Vec<StatementBody<T>> {
        &mut self.statements
    }

    /// The body of the command without statements.
    pub fn finish(&mut self) -> CommandBody<T> {
        while self.frames.len() > 1 {
            self.close();
        }
        let query = if T::WANTED && self.command == CommandKind::Find {
            Some(T::as_query(&self.elements))
        } else {
            None
        };
        let mut node = self.fold(0, Style::Document);
        if let Some(query) = query {
            node.text = node.text.with_plain(query);
        }
        CommandBody { unordered: node.unordered, ordered: node.ordered, text: node.text }
    }

    /// Hash of a command of several statements, from the shape ids of its statements.
    pub fn mixed(ids: impl Iterator<Item = u64>) -> u64 {
        ids.fold(MIXED_STATEMENTS, mix)
    }

    fn push(&mut self, opening: Opening<'_>) {
        let Opening { mode, edge, path, collector, label: (rank, name, operator) } = opening;
        let own = self.frames.len();
        let opaque = self.frames.last().is_some_and(|frame| frame.opaque);
        self.frames.push(Frame {
            mode,
            collector: collector.unwrap_or(own) as u32,
            start: self.elements.len() as u32,
            sorted: 0,
            edge,
            path,
            ordered: EMPTY_SET,
            sequence: EMPTY_SEQUENCE,
            count: 0,
            types: Types::None,
            structural: false,
            too_many: false,
            opaque,
            rank,
            belongs_to_command: None,
            constant: None,
            includes_id: false,
            afterwards: Afterwards::Nothing,
            operands: Operands::Other,
            last: Hashes { unordered: 0, ordered: 0 },
        });
        if T::WANTED {
            self.labels.push((name.to_vec(), operator.to_vec()));
        }
    }

    /// Opens a container below the current one, or answers that it is too deep.
    #[inline]
    fn enter(&mut self, mode: ContainerMode, edge: u64, label: BorrowedLabel<'_>) -> Opened {
        self.enter_at(Opening::new(mode, edge, label))
    }

    /// Opens a field of the command inside its filter, where legacy queries have them.
    fn enter_for_command(&mut self, mode: ContainerMode, name: &'static str, rank: u8) -> Opened {
        let opened = self.enter(mode, 0, (rank, name.as_bytes(), &[]));
        if let (Opened::Enter, Some(frame)) = (opened, self.frames.last_mut()) {
            frame.belongs_to_command = Some(name);
        }
        opened
    }

    /// Opens a container that only groups: its children go to `collector`.
    fn enter_group(&mut self, mode: ContainerMode, collector: usize) -> Opened {
        self.enter_at(Opening { collector: Some(collector), ..Opening::new(mode, 0, NO_LABEL) })
    }

    fn enter_at(&mut self, opening: Opening<'_>) -> Opened {
        if self.frames.len() >= MAX_DEPTH {
            self.over_cap = true;
            let node = Node { unordered: TOO_MANY, ordered: TOO_MANY, text: T::cut() };
            let to = self.frames[self.frames.len() - 1].collector as usize;
            let (rank, name, operator) = opening.label;
            self.attach(to, opening.edge, node, T::label(rank, name, operator));
            return Opened::Skip;
        }
        self.push(opening);
        Opened::Enter
    }

    /// Adds a child to a frame.
    #[inline]
    fn attach(&mut self, to: usize, edge: u64, node: Node<T>, label: T::Label) {
        let hash = mix(edge, node.unordered);
        let sequence = is_sequence(self.frames[to].mode);
        let frame = &mut self.frames[to];
        frame.count = frame.count.saturating_add(1);
        frame.last = node.hashes();
        if sequence {
            frame.sequence = mix(frame.sequence, hash);
            frame.ordered = mix(frame.ordered, mix(edge, node.ordered));
            if T::WANTED && self.elements.len() - (frame.start as usize) < MAX_CHILDREN {
                self.add_element(hash, label, node.text);
            }
            return;
        }
        let (start, sorted) = (frame.start as usize, frame.sorted as usize);
        // The children of a collector are all behind its start: the containers that it groups have none of their own.
        let children = &self.elements[start..];
        let (head, tail) = children.split_at(sorted);
        if tail.iter().any(|child| child.hash == hash)
            || (sorted > 0 && head.binary_search_by_key(&hash, |child| child.hash).is_ok())
        {
            return;
        }
        if children.len() >= MAX_CHILDREN {
            frame.too_many = true;
            self.over_cap = true;
            return;
        }
        frame.ordered = mix(frame.ordered, mix(edge, node.ordered));
        if tail.len() >= UNSORTED {
            self.elements[start..].sort_unstable_by_key(|child| child.hash);
            self.frames[to].sorted = (self.elements.len() - start) as u32;
        }
        self.add_element(hash, label, node.text);
    }

    #[inline]
    fn add_element(&mut self, hash: u64, label: T::Label, text: T) {
        let text = if T::WANTED {
            let text = if text.bytes() + LABEL_COST > self.text_left { T::cut() } else { text };
            self.text_left = self.text_left.saturating_sub(text.bytes() + LABEL_COST);
            text
        } else {
            text
        };
        self.elements.push(TextElement { hash, label, text });
    }

    /// Drops the elements from `start` on, and returns their text to the budget.
    fn drop_elements(&mut self, start: usize) {
        if T::WANTED {
            self.text_left +=
                self.elements[start..].iter().map(|child| child.text.bytes() + LABEL_COST).sum::<usize>();
        }
        self.elements.truncate(start);
    }

    /// Makes a node of the children of frame `at`.
    fn fold(&mut self, at: usize, style: Style) -> Node<T> {
        let frame = &self.frames[at];
        let start = frame.start as usize;
        let (unordered, ordered) = if frame.too_many {
            (TOO_MANY, TOO_MANY)
        } else if is_sequence(frame.mode) {
            (frame.sequence, frame.ordered)
        } else {
            let ordered = frame.ordered;
            let children = &mut self.elements[start..];
            sort(children);
            (children.iter().fold(EMPTY_SET, |hash, child| mix(hash, child.hash)), ordered)
        };
        let text = if T::WANTED { T::container(style, &mut self.elements[start..]) } else { T::default() };
        self.drop_elements(start);
        Node { unordered, ordered, text }
    }

    /// Adds a child under its own key to the frame on top.
    #[inline]
    fn add_keyed(&mut self, key: &Key<'_>, node: Node<T>) {
        let top = self.frames.len() - 1;
        let edge = hash::path(key);
        let label = self.path_label(0, key, &[]);
        self.attach(top, edge, node, label);
    }

    #[inline]
    fn path_label(&self, rank: u8, path: &Key<'_>, operator: &[u8]) -> T::Label {
        if T::WANTED { T::label(rank, &hash::normalised(path.bytes), operator) } else { T::Label::default() }
    }

    /// Closes a frame that turned out to be a literal sub-document: one placeholder.
    fn close_as_object(&mut self) {
        let top = self.frames.len() - 1;
        let frame = &self.frames[top];
        let (edge, start) = (frame.edge, frame.start as usize);
        let masked = frame.mode == ContainerMode::Masked;
        let plain = if T::WANTED && masked {
            T::container(Style::Sequence, &mut self.elements[start..])
        } else {
            T::default()
        };
        if masked {
            self.drop_elements(start);
        }
        let mut node = self.placeholder(ElementKind::Document);
        if T::WANTED && masked {
            node.text = node.text.with_plain(plain);
        }
        let label = self.pop_label();
        self.frames.pop();
        self.give(edge, node, label, Some(ElementKind::Document));
    }

    /// Adds a closed container to the one around it.
    fn give(&mut self, edge: u64, node: Node<T>, label: T::Label, literal: Option<ElementKind>) {
        let parent = self.frames.len() - 1;
        match (self.frames[parent].mode, literal) {
            (ContainerMode::Expression | ContainerMode::Projection, Some(kind)) if is_constant(edge) => {
                self.frames[parent].constant = Some((node.hashes(), kind));
            }
            (ContainerMode::Literals | ContainerMode::ExpressionList, Some(kind)) => {
                self.see_type(parent, kind)
            }
            (ContainerMode::Literals | ContainerMode::ExpressionList, None) => {
                self.frames[parent].structural = true
            }
            _ => {}
        }
        if self.frames[parent].mode == ContainerMode::Literals && literal.is_some() {
            return;
        }
        let to = self.frames[parent].collector as usize;
        self.attach(to, edge, node, label);
    }

    fn pop_label(&mut self) -> T::Label {
        if !T::WANTED {
            return T::Label::default();
        }
        let rank = self.frames.last().map_or(0, |frame| frame.rank);
        let (name, operator) = self.labels.pop().unwrap_or_default();
        T::label(rank, &name, &operator)
    }

    fn see_type(&mut self, at: usize, kind: ElementKind) {
        let number = placeholder(kind).0;
        let frame = &mut self.frames[at];
        frame.types = match frame.types {
            Types::None => Types::One(number),
            Types::One(same) if same == number => frame.types,
            _ => Types::Mixed,
        };
    }
}

impl<T: Text> Visitor for Builder<T> {
    #[inline]
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        if let Some(step) = self.decide(&key) {
            return step;
        }
        self.place_element(key, kind, value)
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        if self.decide(&key).is_some() {
            return Opened::Leave;
        }
        self.place_open(key, array)
    }

    fn close(&mut self) {
        self.close_as_sent();
    }
}

/// Whether a key of an expression says that its value is a constant.
pub(super) fn is_constant(edge: u64) -> bool {
    edge == hash::bytes(b"$const") || edge == hash::bytes(b"$literal")
}

/// Whether the order of the children has a meaning.
const fn is_sequence(mode: ContainerMode) -> bool {
    matches!(
        mode,
        ContainerMode::Sort
            | ContainerMode::Bounds
            | ContainerMode::Pipeline
            | ContainerMode::ExpressionList
            | ContainerMode::ArrayFilters
            | ContainerMode::Indexes
            | ContainerMode::Masked
    )
}

/// Sorts by hash: by insertion if there are few, as is usual.
fn sort<T: Text>(children: &mut [TextElement<T>]) {
    if children.len() > 20 {
        children.sort_unstable_by_key(|child| child.hash);
        return;
    }
    for i in 1..children.len() {
        let mut at = i;
        while at > 0 && children[at - 1].hash > children[at].hash {
            children.swap(at - 1, at);
            at -= 1;
        }
    }
}
