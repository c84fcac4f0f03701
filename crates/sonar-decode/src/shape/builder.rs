//! The shape builder: elements in, ids (and text, where wanted) out.
//!
//! Theory of operation. Each open container is a [`Frame`]. A leaf or a closed container is a [`Node`]
//! of two hashes, one without and one with the order as sent. A node goes to its frame's *collector*:
//! the frame itself, or, where a container only groups (`$and`, `{a: {$gt: …, $lt: …}}`), the filter
//! around it. So a filter is a flat set of conditions (path, operator, operand), and the explicit and
//! the implicit forms of one query meet without any rewriting.
//!
//! A *set* keeps the hashes of its distinct children, at most [`MAX_CHILDREN`], and is hashed sorted; a
//! *sequence* keeps a running hash only. Nothing here grows with text or with the number of children.

use super::hash::{self, mix, tag};
use super::rules::{self, CommandKind, Field, Mode, stage, statement_field};
use super::text::{EQUALITY, Element, MESSAGE_BUDGET, Style, Text};
use crate::bson::{Key, Kind, Opened, Step, Use, Value, Visitor};

/// The most distinct children of one set. A set with more has the hash of "too many".
pub const MAX_CHILDREN: usize = 1_024;
/// The most open containers.
pub const MAX_DEPTH: usize = 128;
/// The most distinct statements of one command.
pub const MAX_STATEMENTS: usize = 256;
/// What a label counts for in the budget of texts, in bytes.
const LABEL_COST: usize = 64;
/// The children of a set that may stand unsorted behind the sorted ones.
const UNSORTED: usize = 32;

const EMPTY_SET: u64 = tag(1);
const EMPTY_SEQUENCE: u64 = tag(2);
const TOO_MANY: u64 = tag(3);
const EMPTY_ARRAY: u64 = tag(4);
const TYPED_ARRAY: u64 = tag(5);
const MIXED_ARRAY: u64 = tag(6);
const REPLACEMENT: u64 = tag(7);
const PRESENT: u64 = tag(8);
const KEPT: u64 = tag(9);
const FIELD_PATH: u64 = tag(10);
const MIXED_STATEMENTS: u64 = tag(11);
const REGEX_LITERAL: u64 = tag(12);
const PLACEHOLDER: u64 = tag(64);

/// A leaf or a closed container.
struct Node<T> {
    unordered: u64,
    ordered: u64,
    text: T,
}

/// The types of the elements of an array of literals.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Types {
    None,
    One(u8),
    Mixed,
}

/// An open container.
struct Frame {
    mode: Mode,
    /// Index of the frame that collects this one's children.
    collector: u32,
    /// Where this frame's children begin.
    start: u32,
    /// How many of them are sorted and distinct.
    sorted: u32,
    /// The edge by which the container hangs on its collector: key, path, operator.
    edge: u64,
    /// Hash of the path that conditions stand under.
    path: u64,
    /// Running hash of the children in the order as sent.
    ordered: u64,
    /// Running hash of the children of a sequence, their own order taken out.
    sequence: u64,
    /// Children seen, equal ones included.
    count: u32,
    types: Types,
    /// An array of literals or an expression list holds more than literals.
    structural: bool,
    too_many: bool,
    /// Where the label of this container begins in the stack of labels.
    rank: u8,
    /// The field of the command that this container is, though it stands inside another one.
    belongs_to_command: Option<&'static str>,
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
    /// How many of them.
    pub count: u32,
    /// Its text.
    pub text: T,
}

/// The body of a command: what its fields come to.
#[derive(Debug)]
pub struct Body<T> {
    /// Hash without order.
    pub unordered: u64,
    /// Hash with the order as sent.
    pub ordered: u64,
    /// Its text.
    pub text: T,
}

/// Builds the shape of one command after another; keeps its buffers.
pub struct Builder<T: Text> {
    frames: Vec<Frame>,
    elements: Vec<Element<T>>,
    /// For each frame: path (or key) and operator that it stands under; only where text is wanted.
    labels: Vec<(Vec<u8>, Vec<u8>)>,
    statements: Vec<StatementBody<T>>,
    /// Fields of the command that stood inside its filter: `$orderby` and its like.
    deferred: Vec<(&'static str, u8, Node<T>)>,
    command: CommandKind,
    text_left: usize,
    /// Namespace index and action of the bulkWrite statement that is open.
    bulk: Option<(u64, i64, &'static str)>,
    /// Whether a cap was met: too deep, or too many distinct children.
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
    /// Forgets all; ready for a command.
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
        self.push(Mode::Command, 0, 0, None, 0, &[], &[]);
    }

    /// Tells which command it is.
    pub fn set_command(&mut self, command: CommandKind) {
        self.command = command;
    }

    /// Open containers, the command itself included.
    #[inline]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Whether a field of the command is open: events belong to the builder.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.frames.len() > 1
    }

    /// A scalar field of the command itself.
    pub fn command_element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        let (rank, field) = rules::field(self.command, &key);
        self.field_element(rank, field, key, kind, value)
    }

    /// A document or array that is a field of the command itself; [`Opened::Enter`] when it belongs to
    /// the shape: then the events inside come to this builder until it is closed.
    pub fn command_open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let (rank, field) = rules::field(self.command, &key);
        self.field_open(rank, field, key, array)
    }

    /// Opens a part of the command that no field of this message names: legacy messages, and the
    /// statements of kind-1 sections. It is closed by [`Visitor::close`].
    pub fn open_part(&mut self, rank: u8, name: &'static str, mode: Mode) {
        self.push(mode, hash::bytes(name.as_bytes()), 0, None, rank, name.as_bytes(), &[]);
    }

    /// Opens one statement (a document of a kind-1 section, or a legacy write).
    pub fn open_statement(&mut self) {
        self.bulk = None;
        self.push(Mode::Statement, 0, 0, None, 0, &[], &[]);
    }

    /// Adds a flag (`multi`, `upsert` …) or presence (`limit`) that a legacy message tells by a bit or
    /// a number.
    pub fn add_mark(&mut self, rank: u8, name: &'static str, field: Field) {
        let mark = match field {
            Field::Flag => self.kept(b"true", false),
            _ => self.placeholder(Kind::Int32),
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

    /// The distinct statements, in the order in which they were first seen.
    pub fn statements(&mut self) -> &mut Vec<StatementBody<T>> {
        &mut self.statements
    }

    /// The body of the command without statements.
    pub fn finish(&mut self) -> Body<T> {
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
        Body { unordered: node.unordered, ordered: node.ordered, text: node.text }
    }

    /// Hash of a command of several statements, from the shape ids of its statements.
    pub fn mixed(ids: impl Iterator<Item = u64>) -> u64 {
        ids.fold(MIXED_STATEMENTS, mix)
    }

    #[allow(clippy::too_many_arguments)]
    fn push(
        &mut self,
        mode: Mode,
        edge: u64,
        path: u64,
        collector: Option<usize>,
        rank: u8,
        name: &[u8],
        op: &[u8],
    ) {
        let own = self.frames.len();
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
            rank,
            belongs_to_command: None,
        });
        if T::WANTED {
            self.labels.push((name.to_vec(), op.to_vec()));
        }
    }

    /// Opens a container below the current one, or answers that it is too deep.
    fn enter(&mut self, mode: Mode, edge: u64, label: (u8, &[u8], &[u8])) -> Opened {
        self.enter_at(mode, edge, 0, None, label)
    }

    /// Opens a field of the command from inside its filter, where legacy queries have them.
    fn enter_for_command(&mut self, mode: Mode, name: &'static str, rank: u8) -> Opened {
        let opened = self.enter(mode, 0, (rank, name.as_bytes(), &[]));
        if let (Opened::Enter, Some(frame)) = (opened, self.frames.last_mut()) {
            frame.belongs_to_command = Some(name);
        }
        opened
    }

    fn enter_at(
        &mut self,
        mode: Mode,
        edge: u64,
        path: u64,
        collector: Option<usize>,
        label: (u8, &[u8], &[u8]),
    ) -> Opened {
        if self.frames.len() >= MAX_DEPTH {
            self.over_cap = true;
            let node = Node { unordered: TOO_MANY, ordered: TOO_MANY, text: T::cut() };
            let to = self.frames[self.frames.len() - 1].collector as usize;
            self.attach(to, edge, node, T::label(label.0, label.1, label.2));
            return Opened::Skip;
        }
        self.push(mode, edge, path, collector, label.0, label.1, label.2);
        Opened::Enter
    }

    /// Adds a child to a frame.
    #[inline]
    fn attach(&mut self, to: usize, edge: u64, node: Node<T>, label: T::Label) {
        let hash = mix(edge, node.unordered);
        let sequence = is_sequence(self.frames[to].mode);
        let frame = &mut self.frames[to];
        frame.count = frame.count.saturating_add(1);
        if sequence {
            frame.sequence = mix(frame.sequence, hash);
            frame.ordered = mix(frame.ordered, mix(edge, node.ordered));
            if T::WANTED && self.elements.len() - (frame.start as usize) < MAX_CHILDREN {
                self.add_element(hash, label, node.text);
            }
            return;
        }
        let (start, sorted) = (frame.start as usize, frame.sorted as usize);
        // A collector's children are all that stand behind its start: what it groups has none of its own.
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
        self.elements.push(Element { hash, label, text });
    }

    /// Drops the elements from `start` on, and gives their text back to the budget.
    fn drop_elements(&mut self, start: usize) {
        if T::WANTED {
            self.text_left +=
                self.elements[start..].iter().map(|child| child.text.bytes() + LABEL_COST).sum::<usize>();
        }
        self.elements.truncate(start);
    }

    /// Takes the children of frame `at` out and makes a node of them.
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

    fn placeholder(&self, kind: Kind) -> Node<T> {
        let (number, typed) = placeholder(kind);
        let id = PLACEHOLDER.wrapping_add(u64::from(number));
        Node { unordered: id, ordered: id, text: if T::WANTED { T::leaf(typed, "?") } else { T::default() } }
    }

    /// A literal that is kept; `masked` in the plain form or not.
    fn kept(&self, text: &[u8], masked: bool) -> Node<T> {
        let id = mix(KEPT, hash::bytes(text));
        Node {
            unordered: id,
            ordered: id,
            text: if T::WANTED { T::literal(text, masked) } else { T::default() },
        }
    }

    fn leaf(id: u64, typed: &str, plain: &str) -> Node<T> {
        Node {
            unordered: id,
            ordered: id,
            text: if T::WANTED { T::leaf(typed, plain) } else { T::default() },
        }
    }

    /// A literal kept by its value where it is short, by its type otherwise.
    fn literal(&self, kind: Kind, value: Value<'_>) -> Node<T> {
        let Value::Bytes(bytes) = value else { return self.placeholder(kind) };
        match kind {
            Kind::String | Kind::Symbol => {
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

    /// A string or scalar in an aggregation expression: paths and variables are kept.
    fn expression_leaf(&self, kind: Kind, value: Value<'_>) -> (Node<T>, bool) {
        if let (Kind::String, Value::Bytes(bytes @ [b'$', ..])) = (kind, value) {
            let id = mix(FIELD_PATH, hash::path(&Key::new(bytes)));
            let text = if T::WANTED {
                let quoted = [b"'".as_slice(), &hash::normalised(bytes), b"'"].concat();
                T::literal(&quoted, false)
            } else {
                T::default()
            };
            return (Node { unordered: id, ordered: id, text }, true);
        }
        (self.placeholder(kind), false)
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

    fn field_element(&mut self, rank: u8, field: Field, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        let truth = match value {
            Value::Bytes(bytes) => number(kind, bytes).is_some_and(|number| number != 0.0),
            Value::Long => false,
        };
        let step = match field {
            Field::Ignore => return TYPE,
            Field::Presence | Field::Flag => truth_of(kind),
            Field::Literal => literal_of(kind),
            Field::Masked | Field::Part(_) => TYPE,
        };
        let node = match field {
            Field::Ignore => return step,
            Field::Presence | Field::Flag if !truth => return step,
            Field::Presence => {
                Node { unordered: PRESENT, ordered: PRESENT, text: self.placeholder(Kind::Int32).text }
            }
            Field::Flag => self.kept(b"true", false),
            Field::Literal => self.literal(kind, value),
            Field::Masked | Field::Part(_) => self.placeholder(kind),
        };
        let label = T::label(rank, key.bytes, &[]);
        self.attach(self.frames.len() - 1, hash::key(&key), node, label);
        step
    }

    fn field_open(&mut self, rank: u8, field: Field, key: Key<'_>, array: bool) -> Opened {
        let mode = match field {
            Field::Ignore | Field::Presence | Field::Flag | Field::Masked => return Opened::Skip,
            Field::Part(Mode::Update) if array => Mode::Pipeline,
            Field::Part(mode) => mode,
            Field::Literal if key.bytes == b"hint" => Mode::Sort,
            Field::Literal => Mode::Literal,
        };
        self.enter(mode, hash::key(&key), (rank, key.bytes, &[]))
    }

    /// Closes a frame that turned out to be a literal sub-document: one placeholder.
    fn close_as_object(&mut self) {
        let top = self.frames.len() - 1;
        let frame = &self.frames[top];
        let (edge, start) = (frame.edge, frame.start as usize);
        let masked = frame.mode == Mode::Masked;
        let plain = if T::WANTED && masked {
            T::container(Style::Sequence, &mut self.elements[start..])
        } else {
            T::default()
        };
        if masked {
            self.drop_elements(start);
        }
        let mut node = self.placeholder(Kind::Document);
        if T::WANTED && masked {
            node.text = node.text.with_plain(plain);
        }
        let label = self.pop_label();
        self.frames.pop();
        self.give(edge, node, label, Some(Kind::Document));
    }

    /// Gives a closed container to what is around it.
    fn give(&mut self, edge: u64, node: Node<T>, label: T::Label, literal: Option<Kind>) {
        let parent = self.frames.len() - 1;
        match (self.frames[parent].mode, literal) {
            (Mode::Literals | Mode::ExpressionList, Some(kind)) => self.see_type(parent, kind),
            (Mode::Literals | Mode::ExpressionList, None) => self.frames[parent].structural = true,
            _ => {}
        }
        if self.frames[parent].mode == Mode::Literals && literal.is_some() {
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

    fn see_type(&mut self, at: usize, kind: Kind) {
        let number = placeholder(kind).0;
        let frame = &mut self.frames[at];
        frame.types = match frame.types {
            Types::None => Types::One(number),
            Types::One(same) if same == number => frame.types,
            _ => Types::Mixed,
        };
    }

    /// The node of an array of literals.
    fn typed_array(types: Types) -> Node<T> {
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

    /// Opens the literal (or undecided) value of a path under a filter.
    fn open_literal(
        &mut self,
        array: bool,
        undecided: Mode,
        edge: u64,
        path: u64,
        label: (u8, &[u8], &[u8]),
    ) -> Opened {
        let mode = if array { Mode::Literals } else { undecided };
        let path_frame = match mode {
            // The conditions of an undecided document go to whoever collects for the frame on top.
            Mode::Undecided => Some(self.frames[self.frames.len() - 1].collector as usize),
            _ => None,
        };
        self.enter_at(mode, edge, path, path_frame, label)
    }

    /// Whether the top frame's document is decided by this, its first key.
    fn decide(&mut self, key: &Key<'_>) -> Option<Step> {
        let top = self.frames.len() - 1;
        let operator = key.is_operator() && !rules::is_reference(key);
        let mode = match self.frames[top].mode {
            Mode::Undecided if operator => Mode::Conditions,
            Mode::LiteralOrOperators | Mode::UpdateValue if operator => Mode::Operators,
            Mode::ElemMatch if operator && !matches!(key.bytes, b"$and" | b"$or" | b"$nor" | b"$expr") => {
                Mode::Operators
            }
            Mode::ElemMatch => Mode::Filter,
            Mode::Update if operator => {
                self.frames[top].structural = true;
                return None;
            }
            Mode::Update if self.frames[top].structural => return None,
            Mode::Update => {
                let edge = self.frames[top].edge;
                let label = self.pop_label();
                self.frames.pop();
                let node = Self::leaf(REPLACEMENT, "?replacement", "?replacement");
                self.give(edge, node, label, None);
                return Some(Step::Leave);
            }
            Mode::Undecided | Mode::LiteralOrOperators | Mode::UpdateValue => {
                if T::WANTED {
                    // The plain form goes into sub-documents, so their keys are wanted.
                    let frame = &mut self.frames[top];
                    frame.collector = top as u32;
                    Mode::Masked
                } else {
                    self.close_as_object();
                    return Some(Step::Leave);
                }
            }
            _ => return None,
        };
        self.frames[top].mode = mode;
        None
    }

    /// A scalar, the frame on top being decided. What had a say of its value is answered.
    fn place_element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        let top = self.frames.len() - 1;
        let mode = self.frames[top].mode;
        match mode {
            Mode::Filter => {
                if key.is_operator() {
                    self.filter_operator(key, kind);
                } else {
                    let operator = if kind == Kind::Regex { REGEX_LITERAL } else { EQUAL };
                    let edge = mix(hash::path(&key), operator);
                    let label =
                        self.path_label(1, &key, if kind == Kind::Regex { b"$regex" } else { EQUALITY });
                    let node = self.placeholder(kind);
                    let to = self.frames[top].collector as usize;
                    self.attach(to, edge, node, label);
                }
            }
            Mode::Conditions => {
                let to = self.frames[top].collector as usize;
                let edge = mix(self.frames[top].path, operator(&key));
                let (node, step) = self.operand(&key, kind, value);
                let label = self.condition_label(key.bytes);
                self.attach(to, edge, node, label);
                return step;
            }
            Mode::Operators => {
                let (node, step) = self.operand(&key, kind, value);
                self.add_keyed(&key, node);
                return step;
            }
            Mode::Literals => {
                self.see_type(top, kind);
                return Step::Using(Use::Member);
            }
            Mode::Expression | Mode::WindowFields => {
                let (node, path) = self.expression_leaf(kind, value);
                self.add_keyed(&key, node);
                return expression_of(kind, path);
            }
            Mode::ExpressionList => {
                let (node, path) = self.expression_leaf(kind, value);
                if path {
                    self.frames[top].structural = true;
                } else {
                    self.see_type(top, kind);
                }
                self.attach(top, 0, node, T::Label::default());
                return expression_of(kind, path);
            }
            Mode::Stage => {
                let (node, step) = match key.bytes {
                    b"$unionWith" | b"$out" | b"$unwind" | b"$unset" | b"$count" => {
                        (self.literal(kind, value), literal_of(kind))
                    }
                    _ => {
                        let (node, path) = self.expression_leaf(kind, value);
                        (node, expression_of(kind, path))
                    }
                };
                self.add_keyed(&key, node);
                return step;
            }
            Mode::Sort | Mode::Literal | Mode::Kept | Mode::Index => {
                if mode == Mode::Index && matches!(key.bytes, b"name" | b"v" | b"ns" | b"background") {
                    return TYPE;
                }
                let node = self.literal(kind, value);
                self.add_keyed(&key, node);
                return literal_of(kind);
            }
            Mode::Projection => {
                let (node, step) = match number(kind, bytes_of(value)) {
                    Some(number) => {
                        (self.kept(if number == 0.0 { b"0" } else { b"1" }, true), truth_of(kind))
                    }
                    None => {
                        let (node, path) = self.expression_leaf(kind, value);
                        (node, expression_of(kind, path))
                    }
                };
                self.add_keyed(&key, node);
                return step;
            }
            Mode::Statement => return self.statement_element(key, kind, value),
            Mode::Command
            | Mode::Bounds
            | Mode::UpdateFields
            | Mode::Pull
            | Mode::GeoNear
            | Mode::Facet
            | Mode::Masked
            | Mode::Update => {
                let node = self.placeholder(kind);
                self.add_keyed(&key, node);
            }
            // Scalars where only documents can be: nothing that a server would accept.
            Mode::And
            | Mode::Branches
            | Mode::Pipeline
            | Mode::ArrayFilters
            | Mode::Statements
            | Mode::Indexes
            | Mode::Undecided
            | Mode::LiteralOrOperators
            | Mode::ElemMatch
            | Mode::UpdateValue => {}
        }
        TYPE
    }

    /// A `$` key with a scalar in a filter.
    fn filter_operator(&mut self, key: Key<'_>, kind: Kind) {
        if key.bytes == b"$comment" {
            return;
        }
        let kind = if key.bytes == b"$where" { Kind::JavaScript } else { kind };
        let to = self.frames[self.frames.len() - 1].collector as usize;
        let label = self.path_label(1, &key, &[]);
        let node = self.placeholder(kind);
        self.attach(to, hash::key(&key), node, label);
    }

    /// The scalar operand of an operator.
    fn operand(&self, key: &Key<'_>, kind: Kind, value: Value<'_>) -> (Node<T>, Step) {
        match key.bytes {
            b"$exists" => {
                let exists = number(kind, bytes_of(value)).is_none_or(|number| number != 0.0);
                (self.kept(if exists { b"true" } else { b"false" }, true), truth_of(kind))
            }
            b"$regex" => (self.placeholder(Kind::String), TYPE),
            b"$meta" => (self.literal(kind, value), literal_of(kind)),
            _ => (self.placeholder(kind), TYPE),
        }
    }

    /// The label of a condition: the path of the frame on top, and the operator.
    fn condition_label(&self, operator: &[u8]) -> T::Label {
        if !T::WANTED {
            return T::Label::default();
        }
        let path: &[u8] = self.labels.last().map_or(&[], |(path, _)| path);
        T::label(1, path, if operator == b"$eq" { EQUALITY } else { operator })
    }

    fn statement_element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        if self.command == CommandKind::BulkWrite {
            let action = match key.bytes {
                b"insert" => "insert",
                b"update" => "update",
                b"delete" => "delete",
                _ => "",
            };
            if !action.is_empty() {
                let index = number(kind, bytes_of(value)).map_or(-1, |number| number as i64);
                self.bulk = Some((hash::bytes(action.as_bytes()), index, action));
                return Step::Next;
            }
        }
        let (rank, field) = statement_field(&key);
        self.field_element(rank, field, key, kind, value)
    }

    /// A document or array, the frame on top being decided.
    fn place_open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let top = self.frames.len() - 1;
        let mode = self.frames[top].mode;
        match mode {
            Mode::Filter => self.open_in_filter(key, array),
            Mode::Conditions => {
                let edge = mix(self.frames[top].path, operator(&key));
                let path = if T::WANTED {
                    self.labels.last().map(|(path, _)| path.clone()).unwrap_or_default()
                } else {
                    Vec::new()
                };
                let operator = if key.bytes == b"$eq" { EQUALITY } else { key.bytes };
                self.open_operand(key, array, edge, (1, &path, operator))
            }
            Mode::Operators => self.open_operand(key, array, hash::key(&key), (0, key.bytes, &[])),
            Mode::And => {
                let collector = self.frames[top].collector as usize;
                self.enter_at(Mode::Filter, 0, 0, Some(collector), (0, &[], &[]))
            }
            Mode::Branches | Mode::ArrayFilters => self.enter(Mode::Filter, 0, (0, &[], &[])),
            Mode::Literals => {
                if array {
                    self.see_type(top, Kind::Array);
                    Opened::Skip
                } else {
                    self.enter(Mode::LiteralOrOperators, 0, (0, &[], &[]))
                }
            }
            Mode::Expression | Mode::ExpressionList | Mode::WindowFields => {
                let listed = mode == Mode::ExpressionList;
                let edge = if listed { 0 } else { hash::path(&key) };
                let inner = match key.bytes {
                    b"$literal" | b"$const" if !listed && array => Mode::Literals,
                    b"$literal" | b"$const" if !listed => Mode::LiteralOrOperators,
                    b"sortBy" if mode == Mode::WindowFields => Mode::Sort,
                    _ if array => Mode::ExpressionList,
                    _ => Mode::Expression,
                };
                let normal = self.normal(&key);
                self.enter(inner, edge, (0, if listed { &[] } else { &normal }, &[]))
            }
            Mode::Pipeline => self.enter(Mode::Stage, 0, (0, &[], &[])),
            Mode::Stage => {
                self.change_stream |= key.bytes == b"$changeStream";
                let inner = match stage(key.bytes) {
                    Mode::Expression if array => Mode::ExpressionList,
                    mode => mode,
                };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            Mode::Facet => self.enter(Mode::Pipeline, hash::path(&key), (0, key.bytes, &[])),
            Mode::Kept => {
                let inner = match key.bytes {
                    b"pipeline" | b"whenMatched" if array => Mode::Pipeline,
                    b"restrictSearchWithMatch" => Mode::Filter,
                    b"let" => return Opened::Skip,
                    b"startWith" if array => Mode::ExpressionList,
                    b"startWith" => Mode::Expression,
                    _ => Mode::Kept,
                };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            Mode::GeoNear => {
                let inner = match key.bytes {
                    b"query" => Mode::Filter,
                    _ if array => Mode::Literals,
                    _ => Mode::LiteralOrOperators,
                };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            Mode::Sort | Mode::Literal => {
                let normal = self.normal(&key);
                self.enter(Mode::Literal, hash::path(&key), (0, &normal, &[]))
            }
            Mode::Projection => {
                let inner = match key.bytes {
                    b"$elemMatch" => Mode::ElemMatch,
                    b"$meta" => Mode::Literal,
                    b"$slice" if array => Mode::Literals,
                    _ if array => Mode::ExpressionList,
                    _ => Mode::Projection,
                };
                let normal = self.normal(&key);
                self.enter(inner, hash::path(&key), (0, &normal, &[]))
            }
            Mode::Update => {
                let inner = if key.bytes == b"$pull" { Mode::Pull } else { Mode::UpdateFields };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            Mode::UpdateFields | Mode::Bounds | Mode::Masked => {
                let normal = self.normal(&key);
                let inner = match (array, mode) {
                    (true, _) => Mode::Literals,
                    (false, Mode::Masked) => Mode::Masked,
                    (false, _) => Mode::UpdateValue,
                };
                self.enter(inner, hash::path(&key), (0, &normal, &[]))
            }
            Mode::Pull => {
                let normal = self.normal(&key);
                let inner = if array { Mode::Literals } else { Mode::ElemMatch };
                self.enter(inner, hash::path(&key), (0, &normal, &[]))
            }
            Mode::Statements => {
                self.open_statement();
                Opened::Enter
            }
            Mode::Statement => {
                let (rank, field) = statement_field(&key);
                self.field_open(rank, field, key, array)
            }
            Mode::Indexes => self.enter(Mode::Index, 0, (0, &[], &[])),
            Mode::Index => {
                let inner = match key.bytes {
                    b"key" => Mode::Sort,
                    b"partialFilterExpression" => Mode::Filter,
                    _ => Mode::Literal,
                };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            Mode::Command
            | Mode::Undecided
            | Mode::LiteralOrOperators
            | Mode::ElemMatch
            | Mode::UpdateValue => Opened::Skip,
        }
    }

    fn normal(&self, key: &Key<'_>) -> Vec<u8> {
        if T::WANTED { hash::normalised(key.bytes) } else { Vec::new() }
    }

    fn open_in_filter(&mut self, key: Key<'_>, array: bool) -> Opened {
        let top = self.frames.len() - 1;
        let collector = self.frames[top].collector as usize;
        if key.is_operator() {
            let edge = hash::key(&key);
            return match key.bytes {
                b"$and" if array => self.enter_at(Mode::And, 0, 0, Some(collector), (0, &[], &[])),
                b"$or" | b"$nor" if array => self.enter(Mode::Branches, edge, (1, key.bytes, &[])),
                b"$expr" if array => self.enter(Mode::ExpressionList, edge, (1, key.bytes, &[])),
                b"$expr" => self.enter(Mode::Expression, edge, (1, key.bytes, &[])),
                // The wrapper of legacy queries.
                b"$query" if !array => self.enter_at(Mode::Filter, 0, 0, Some(collector), (0, &[], &[])),
                b"$orderby" if !array => self.enter_for_command(Mode::Sort, "sort", 3),
                b"$hint" if !array => self.enter_for_command(Mode::Sort, "hint", 7),
                b"$min" if !array => self.enter_for_command(Mode::Bounds, "min", 6),
                b"$max" if !array => self.enter_for_command(Mode::Bounds, "max", 6),
                b"$comment" | b"$readPreference" => Opened::Skip,
                b"$jsonSchema" => {
                    let node = self.placeholder(Kind::Document);
                    let label = self.path_label(1, &key, &[]);
                    self.attach(collector, edge, node, label);
                    Opened::Skip
                }
                _ => self.open_operand(key, array, edge, (1, key.bytes, &[])),
            };
        }
        let path = hash::path(&key);
        let normal = self.normal(&key);
        self.open_literal(array, Mode::Undecided, mix(path, EQUAL), path, (1, &normal, EQUALITY))
    }

    /// Opens the operand of an operator.
    fn open_operand(&mut self, key: Key<'_>, array: bool, edge: u64, label: (u8, &[u8], &[u8])) -> Opened {
        let mode = match (key.bytes, array) {
            (b"$elemMatch", false) => Mode::ElemMatch,
            (b"$not", false) => Mode::Operators,
            (b"$and", true) => Mode::Branches,
            (b"$or" | b"$nor", true) => Mode::Branches,
            (_, true) => Mode::Literals,
            (_, false) => Mode::LiteralOrOperators,
        };
        self.enter(mode, edge, label)
    }
}

impl<T: Text> Visitor for Builder<T> {
    #[inline]
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
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
        let top = self.frames.len() - 1;
        if top == 0 {
            return;
        }
        let (mode, edge, collector) = {
            let frame = &self.frames[top];
            (frame.mode, frame.edge, frame.collector as usize)
        };
        match mode {
            // An empty document: a literal.
            Mode::Undecided | Mode::LiteralOrOperators | Mode::UpdateValue | Mode::Masked => {
                return self.close_as_object();
            }
            Mode::Update if self.frames[top].count == 0 => {
                let label = self.pop_label();
                self.frames.pop();
                let node = Self::leaf(REPLACEMENT, "?replacement", "?replacement");
                return self.give(edge, node, label, None);
            }
            Mode::Statements => {
                self.pop_label();
                self.frames.pop();
                return;
            }
            Mode::Statement => return self.close_statement(),
            _ => {}
        }
        if collector != top {
            // It only grouped; its children are where they belong.
            self.pop_label();
            self.frames.pop();
            return;
        }
        let frame = &self.frames[top];
        if frame.count == 0 && self.frames[top - 1].mode == Mode::Command {
            // `filter: {}` is no filter.
            self.pop_label();
            self.frames.pop();
            return self.attach_deferred();
        }
        let literals = matches!(mode, Mode::Literals | Mode::ExpressionList) && !frame.structural;
        if literals {
            let start = frame.start as usize;
            let types = frame.types;
            self.drop_elements(start);
            let node = Self::typed_array(types);
            let label = self.pop_label();
            self.frames.pop();
            return self.give(edge, node, label, Some(Kind::Array));
        }
        let types = frame.types;
        let style = match mode {
            Mode::Sort | Mode::Bounds => Style::Sequence,
            Mode::Pipeline | Mode::ExpressionList | Mode::ArrayFilters | Mode::Indexes => Style::List,
            Mode::Branches | Mode::Literals => Style::Set,
            _ => Style::Document,
        };
        let mut node = self.fold(top, style);
        if mode == Mode::Literals {
            let types = match types {
                Types::None => 0,
                Types::One(number) => 1 + u64::from(number),
                Types::Mixed => u64::MAX,
            };
            node.unordered = mix(node.unordered, types);
            node.ordered = mix(node.ordered, types);
        }
        let (rank, deferred) = (self.frames[top].rank, self.frames[top].belongs_to_command);
        let label = self.pop_label();
        self.frames.pop();
        match deferred {
            Some(name) => self.deferred.push((name, rank, node)),
            None => self.give(edge, node, label, None),
        }
        self.attach_deferred();
    }
}

impl<T: Text> Builder<T> {
    /// Once the filter is closed, gives the command what stood inside it.
    fn attach_deferred(&mut self) {
        if self.frames.len() > 1 {
            return;
        }
        while let Some((name, rank, node)) = self.deferred.pop() {
            self.attach(0, hash::bytes(name.as_bytes()), node, T::label(rank, name.as_bytes(), &[]));
        }
    }

    fn close_statement(&mut self) {
        let top = self.frames.len() - 1;
        let node = self.fold(top, Style::Document);
        self.pop_label();
        self.frames.pop();
        let (mut unordered, mut ordered, namespace, text) = (node.unordered, node.ordered, None, node.text);
        let mut text = text;
        if let Some((action, index, name)) = self.bulk.take() {
            unordered = mix(action, unordered);
            ordered = mix(action, ordered);
            if T::WANTED {
                text = text.named(name);
            }
            return self.add_statement(StatementBody {
                unordered,
                ordered,
                namespace: Some(index),
                count: 1,
                text,
            });
        }
        self.add_statement(StatementBody { unordered, ordered, namespace, count: 1, text });
    }

    fn add_statement(&mut self, statement: StatementBody<T>) {
        self.statement_count = self.statement_count.saturating_add(1);
        let same = |known: &&mut StatementBody<T>| {
            (known.unordered, known.namespace) == (statement.unordered, statement.namespace)
        };
        if let Some(known) = self.statements.iter_mut().rev().find(same) {
            known.count = known.count.saturating_add(1);
            return;
        }
        if self.statements.len() < MAX_STATEMENTS {
            self.statements.push(statement);
        } else {
            self.over_cap = true;
        }
    }
}

/// The hash that stands for `$eq`, written or not.
const EQUAL: u64 = tag(13);

/// Hash of an operator of a condition.
#[inline]
fn operator(key: &Key<'_>) -> u64 {
    if key.bytes == b"$eq" { EQUAL } else { hash::key(key) }
}

/// Whether the order of the children has a meaning.
const fn is_sequence(mode: Mode) -> bool {
    matches!(
        mode,
        Mode::Sort
            | Mode::Bounds
            | Mode::Pipeline
            | Mode::ExpressionList
            | Mode::ArrayFilters
            | Mode::Indexes
            | Mode::Masked
    )
}

/// Sorts by hash: by insertion where there are few, as there mostly are.
fn sort<T: Text>(children: &mut [Element<T>]) {
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

/// Of the value, its type had a say and nothing else.
const TYPE: Step = Step::Using(Use::Type);

/// What has a say of a value that is looked at for whether it is zero.
const fn truth_of(kind: Kind) -> Step {
    match kind {
        Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Boolean => Step::Using(Use::Truth),
        _ => TYPE,
    }
}

/// What has a say of a literal that is kept where it is short.
const fn literal_of(kind: Kind) -> Step {
    match kind {
        Kind::String | Kind::Symbol | Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Boolean => Step::Next,
        _ => TYPE,
    }
}

/// What has a say of a leaf of an expression, which was a path or not.
const fn expression_of(kind: Kind, path: bool) -> Step {
    match kind {
        Kind::String if path => Step::Next,
        Kind::String => Step::Using(Use::Plain),
        _ => TYPE,
    }
}

fn bytes_of(value: Value<'_>) -> &[u8] {
    match value {
        Value::Bytes(bytes) => bytes,
        Value::Long => &[],
    }
}

/// The number that a scalar is; a boolean is 0 or 1. Decimal128 is not worked out.
pub(crate) fn number(kind: Kind, bytes: &[u8]) -> Option<f64> {
    Some(match kind {
        Kind::Double => f64::from_le_bytes(*bytes.first_chunk()?),
        Kind::Int32 => f64::from(i32::from_le_bytes(*bytes.first_chunk()?)),
        Kind::Int64 => i64::from_le_bytes(*bytes.first_chunk()?) as f64,
        Kind::Boolean => f64::from(u8::from(*bytes.first()? != 0)),
        _ => return None,
    })
}

/// A number as it is kept: whole ones without a point, so that 1, 1.0 and true are one.
fn decimal(number: f64) -> String {
    format!("{number}")
}

/// Placeholders by number; the numbers are part of the rules.
const PLACEHOLDERS: [&str; 17] = [
    "?number",
    "?string",
    "?object",
    "?array",
    "?binData",
    "?undefined",
    "?objectId",
    "?bool",
    "?date",
    "?null",
    "?regex",
    "?dbPointer",
    "?javascript",
    "?javascriptWithScope",
    "?timestamp",
    "?minKey",
    "?maxKey",
];

/// Number and text of a value's placeholder.
#[inline]
pub(crate) fn placeholder(kind: Kind) -> (u8, &'static str) {
    let number = match kind {
        Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Decimal128 => 0,
        Kind::String | Kind::Symbol => 1,
        Kind::Document => 2,
        Kind::Array => 3,
        Kind::Binary => 4,
        Kind::Undefined => 5,
        Kind::ObjectId => 6,
        Kind::Boolean => 7,
        Kind::DateTime => 8,
        Kind::Null => 9,
        Kind::Regex => 10,
        Kind::DbPointer => 11,
        Kind::JavaScript => 12,
        Kind::JavaScriptWithScope => 13,
        Kind::Timestamp => 14,
        Kind::MinKey => 15,
        Kind::MaxKey => 16,
    };
    (number, PLACEHOLDERS[number as usize])
}
