//! Reading: what an element means where it stands, by the mode of the container around it.

use super::Builder;
use super::node::{EQUAL, Label, NO_LABEL, Node, Opening, PRESENT, REGEX_LITERAL, REPLACEMENT};
use crate::bson::{Key, Kind, Opened, Step, Use, Value};
use crate::names;
use crate::shape::hash::{self, mix};
use crate::shape::rules::{self, CommandKind, Field, Mode, stage, statement_field};
use crate::shape::text::{EQUALITY, Text};
use crate::shape::value::{TYPE, bytes_of, literal_of, number, truth_of};

impl<T: Text> Builder<T> {
    pub(super) fn field_element(
        &mut self,
        (rank, field): (u8, Field),
        key: Key<'_>,
        kind: Kind,
        value: Value<'_>,
    ) -> Step {
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
            // A collation is a document.
            Field::Literal if key.bytes == b"collation" => self.name(kind, value, |_| false).0,
            Field::Literal => self.literal(kind, value),
            Field::Masked | Field::Part(_) => self.placeholder(kind),
        };
        let label = T::label(rank, key.bytes, &[]);
        self.attach(self.frames.len() - 1, hash::key(&key), node, label);
        step
    }

    pub(super) fn field_open(&mut self, rank: u8, field: Field, key: Key<'_>, array: bool) -> Opened {
        let mode = match field {
            Field::Ignore | Field::Presence | Field::Flag | Field::Masked => return Opened::Skip,
            Field::Part(Mode::Update) if array => Mode::Pipeline,
            Field::Part(mode) => mode,
            Field::Literal if key.bytes == b"hint" => Mode::Sort,
            Field::Literal => Mode::Literal,
        };
        self.enter(mode, hash::key(&key), (rank, key.bytes, &[]))
    }

    /// Whether the top frame's document is decided by this, its first key.
    pub(super) fn decide(&mut self, key: &Key<'_>) -> Option<Step> {
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

    /// A scalar, the frame on top being decided. Returns what was used of its value.
    pub(super) fn place_element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
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
                let (node, step, _) = self.expression_leaf(&key, kind, value);
                self.add_keyed(&key, node);
                return step;
            }
            Mode::ExpressionList => {
                let (node, step, path) = self.expression_leaf(&key, kind, value);
                if path {
                    self.frames[top].structural = true;
                } else {
                    self.see_type(top, kind);
                }
                self.attach(top, 0, node, T::Label::default());
                return step;
            }
            Mode::Stage => {
                let (node, step) = match key.bytes {
                    b"$unionWith" | b"$out" | b"$unset" | b"$count" => self.name(kind, value, |_| true),
                    b"$unwind" => self.name(kind, value, |text| text.first() == Some(&b'$')),
                    stage if !names::holds_expressions(stage) => (self.placeholder(kind), TYPE),
                    _ => {
                        let (node, step, _) = self.expression_leaf(&key, kind, value);
                        (node, step)
                    }
                };
                self.add_keyed(&key, node);
                return step;
            }
            Mode::Sort | Mode::Literal | Mode::Kept | Mode::Index => {
                if mode == Mode::Index && matches!(key.bytes, b"name" | b"v" | b"ns" | b"background") {
                    return TYPE;
                }
                let (node, step) = self.kept_field(mode, &key, kind, value);
                self.add_keyed(&key, node);
                return step;
            }
            Mode::Projection => {
                let (node, step) = match number(kind, bytes_of(value)) {
                    Some(number) => {
                        (self.kept(if number == 0.0 { b"0" } else { b"1" }, true), truth_of(kind))
                    }
                    None => {
                        let (node, step, _) = self.expression_leaf(&key, kind, value);
                        (node, step)
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

    /// A scalar in a part that keeps its literals. A string is kept only if it is a name there.
    fn kept_field(&self, mode: Mode, key: &Key<'_>, kind: Kind, value: Value<'_>) -> (Node<T>, Step) {
        match (mode, key.bytes) {
            (Mode::Kept, b"startWith") => {
                let (node, step, _) = self.expression_leaf(key, kind, value);
                (node, step)
            }
            // Members of `$unset` and `on`, the only arrays that are kept.
            (Mode::Kept, key) if key.iter().all(u8::is_ascii_digit) => self.name(kind, value, |_| true),
            (Mode::Kept, key) => self.name(kind, value, |text| names::is_name_field(key, text)),
            (Mode::Sort, _) => self.name(kind, value, names::is_index_type),
            (Mode::Literal, b"$meta") => self.name(kind, value, names::is_meta),
            // `out` of mapReduce.
            (Mode::Literal, b"replace" | b"merge" | b"reduce" | b"db") => self.name(kind, value, |_| true),
            (Mode::Literal, key) => self.name(kind, value, |text| names::is_collation_setting(key, text)),
            _ => self.name(kind, value, |_| false),
        }
    }

    /// A `$` key with a scalar in a filter.
    pub(super) fn filter_operator(&mut self, key: Key<'_>, kind: Kind) {
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
    pub(super) fn operand(&self, key: &Key<'_>, kind: Kind, value: Value<'_>) -> (Node<T>, Step) {
        match key.bytes {
            b"$exists" => {
                let exists = number(kind, bytes_of(value)).is_none_or(|number| number != 0.0);
                (self.kept(if exists { b"true" } else { b"false" }, true), truth_of(kind))
            }
            b"$regex" => (self.placeholder(Kind::String), TYPE),
            b"$meta" => self.name(kind, value, names::is_meta),
            _ => (self.placeholder(kind), TYPE),
        }
    }

    /// The label of a condition: the path of the frame on top, and the operator.
    pub(super) fn condition_label(&self, operator: &[u8]) -> T::Label {
        if !T::WANTED {
            return T::Label::default();
        }
        let path: &[u8] = self.labels.last().map_or(&[], |(path, _)| path);
        T::label(1, path, if operator == b"$eq" { EQUALITY } else { operator })
    }

    pub(super) fn statement_element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
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
        self.field_element(statement_field(&key), key, kind, value)
    }

    /// A document or array, the frame on top being decided.
    pub(super) fn place_open(&mut self, key: Key<'_>, array: bool) -> Opened {
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
                self.enter_group(Mode::Filter, collector)
            }
            Mode::Branches | Mode::ArrayFilters => self.enter(Mode::Filter, 0, NO_LABEL),
            Mode::Literals => {
                if array {
                    self.see_type(top, Kind::Array);
                    Opened::Skip
                } else {
                    self.enter(Mode::LiteralOrOperators, 0, NO_LABEL)
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
            Mode::Pipeline => self.enter(Mode::Stage, 0, NO_LABEL),
            Mode::Stage => {
                self.change_stream |= key.bytes == b"$changeStream";
                let inner = match stage(key.bytes) {
                    Mode::Expression if array => Mode::ExpressionList,
                    mode => mode,
                };
                let opened = self.enter(inner, hash::key(&key), (0, key.bytes, &[]));
                if opened == Opened::Enter && !names::holds_expressions(key.bytes) {
                    self.frames[top + 1].opaque = true;
                }
                opened
            }
            Mode::Facet => self.enter(Mode::Pipeline, hash::path(&key), (0, key.bytes, &[])),
            Mode::Kept => {
                let inner = match key.bytes {
                    b"pipeline" | b"whenMatched" if array => Mode::Pipeline,
                    b"restrictSearchWithMatch" => Mode::Filter,
                    b"let" => return Opened::Skip,
                    b"startWith" if array => Mode::ExpressionList,
                    b"startWith" => Mode::Expression,
                    b"on" => Mode::Kept,
                    _ if array => Mode::Literals,
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
            Mode::Indexes => self.enter(Mode::Index, 0, NO_LABEL),
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

    pub(super) fn normal(&self, key: &Key<'_>) -> Vec<u8> {
        if T::WANTED { hash::normalised(key.bytes) } else { Vec::new() }
    }

    pub(super) fn open_in_filter(&mut self, key: Key<'_>, array: bool) -> Opened {
        let top = self.frames.len() - 1;
        let collector = self.frames[top].collector as usize;
        if key.is_operator() {
            let edge = hash::key(&key);
            return match key.bytes {
                b"$and" if array => self.enter_group(Mode::And, collector),
                b"$or" | b"$nor" if array => self.enter(Mode::Branches, edge, (1, key.bytes, &[])),
                b"$expr" if array => self.enter(Mode::ExpressionList, edge, (1, key.bytes, &[])),
                b"$expr" => self.enter(Mode::Expression, edge, (1, key.bytes, &[])),
                // The wrapper of legacy queries.
                b"$query" if !array => self.enter_group(Mode::Filter, collector),
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
        let label = (1, &*normal, EQUALITY);
        let (mode, collector) = match array {
            true => (Mode::Literals, None),
            // The conditions of an undecided document go to whoever collects for the frame on top.
            false => (Mode::Undecided, Some(collector)),
        };
        self.enter_at(Opening { path, collector, ..Opening::new(mode, mix(path, EQUAL), label) })
    }

    /// Opens the operand of an operator.
    pub(super) fn open_operand(&mut self, key: Key<'_>, array: bool, edge: u64, label: Label<'_>) -> Opened {
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

/// Hash of an operator of a condition.
#[inline]
fn operator(key: &Key<'_>) -> u64 {
    if key.bytes == b"$eq" { EQUAL } else { hash::key(key) }
}
