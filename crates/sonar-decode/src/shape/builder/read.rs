//! Reading: what an element means in its place, by the mode of the container around it.

use super::Builder;
use super::node::{BorrowedLabel, EQUAL, NO_LABEL, Node, Opening, PRESENT, REGEX_LITERAL, REPLACEMENT};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Use};
use crate::names;
use crate::shape::hash::{self, mix};
use crate::shape::rules::{self, ContainerMode, Field, RankedField, stage};
use crate::shape::text::{EQUALITY, Text};
use crate::shape::value::{TYPE, bytes_of, literal_of, number, truth_of};

impl<T: Text> Builder<T> {
    pub(super) fn field_element(
        &mut self,
        ranked: RankedField,
        key: Key<'_>,
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> ElementStep {
        let RankedField { rank, field } = ranked;
        let number = number(kind, bytes_of(value));
        let truth = number.is_some_and(|number| number != 0.0);
        let step = match field {
            Field::Ignore => return TYPE,
            Field::Presence | Field::Flag => truth_of(kind),
            Field::Literal | Field::Level => literal_of(kind),
            Field::Masked | Field::Part(_) => TYPE,
        };
        let node = match field {
            Field::Ignore => return step,
            Field::Presence | Field::Flag if !truth => return step,
            Field::Level if number.is_none_or(|number| number > 0.0) => return step,
            Field::Presence => {
                Node { unordered: PRESENT, ordered: PRESENT, text: self.placeholder(ElementKind::Int32).text }
            }
            Field::Flag => self.kept(b"true", false),
            Field::Level => self.kept(if truth { b"-1" } else { b"0" }, false),
            // A router gives each call a collection of its own.
            Field::Literal if key.bytes == b"out" && bytes_of(value).starts_with(b"tmp.mrs.") => {
                return literal_of(kind);
            }
            // A collation is a document.
            Field::Literal if key.bytes == b"collation" => self.name(kind, value, |_| false).0,
            Field::Literal => self.literal(kind, value),
            Field::Masked | Field::Part(_) => self.placeholder(kind),
        };
        let label = T::label(rank, key.bytes, &[]);
        self.attach(self.frames.len() - 1, hash::key(&key), node, label);
        step
    }

    pub(super) fn field_open(&mut self, ranked: RankedField, key: Key<'_>, array: bool) -> Opened {
        let RankedField { rank, field } = ranked;
        let mode = match field {
            Field::Ignore | Field::Presence | Field::Flag | Field::Level | Field::Masked => {
                return Opened::Skip;
            }
            Field::Part(ContainerMode::Update) if array => ContainerMode::Pipeline,
            Field::Part(mode) => mode,
            Field::Literal if key.bytes == b"hint" => ContainerMode::Sort,
            Field::Literal => ContainerMode::Literal,
        };
        self.enter(mode, hash::key(&key), (rank, key.bytes, &[]))
    }

    /// Whether this key, the first one, decides the mode of the top frame.
    pub(super) fn decide(&mut self, key: &Key<'_>) -> Option<ElementStep> {
        let top = self.frames.len() - 1;
        let operator = key.is_operator() && !rules::is_reference(key);
        let mode = match self.frames[top].mode {
            ContainerMode::Undecided if operator => ContainerMode::Conditions,
            ContainerMode::LiteralOrOperators | ContainerMode::UpdateValue if operator => {
                ContainerMode::Operators
            }
            ContainerMode::ElemMatch
                if operator && !matches!(key.bytes, b"$and" | b"$or" | b"$nor" | b"$expr") =>
            {
                ContainerMode::Operators
            }
            ContainerMode::ElemMatch => ContainerMode::Filter,
            ContainerMode::Update if operator => {
                self.frames[top].structural = true;
                return None;
            }
            ContainerMode::Update if self.frames[top].structural => return None,
            ContainerMode::Update => {
                let edge = self.frames[top].edge;
                let label = self.pop_label();
                self.frames.pop();
                let node = Self::leaf(REPLACEMENT, "?replacement", "?replacement");
                self.give(edge, node, label, None);
                return Some(ElementStep::Leave);
            }
            ContainerMode::Undecided | ContainerMode::LiteralOrOperators | ContainerMode::UpdateValue => {
                if T::WANTED {
                    // The plain form enters sub-documents, so their keys are needed.
                    let frame = &mut self.frames[top];
                    frame.collector = top as u32;
                    ContainerMode::Masked
                } else {
                    self.close_as_object();
                    return Some(ElementStep::Leave);
                }
            }
            _ => return None,
        };
        self.frames[top].mode = mode;
        None
    }

    /// A scalar, when the mode of the top frame is decided. Returns what was used of its value.
    pub(super) fn place_element(
        &mut self,
        key: Key<'_>,
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> ElementStep {
        let top = self.frames.len() - 1;
        let mode = self.frames[top].mode;
        match mode {
            ContainerMode::Filter => {
                if key.is_operator() {
                    self.filter_operator(key, kind);
                } else {
                    let operator = if kind == ElementKind::Regex { REGEX_LITERAL } else { EQUAL };
                    let edge = mix(hash::path(&key), operator);
                    let label = self.path_label(
                        1,
                        &key,
                        if kind == ElementKind::Regex { b"$regex" } else { EQUALITY },
                    );
                    let node = self.placeholder(kind);
                    let to = self.frames[top].collector as usize;
                    self.attach(to, edge, node, label);
                }
            }
            ContainerMode::Conditions => {
                let to = self.frames[top].collector as usize;
                let edge = mix(self.frames[top].path, operator(&key));
                let (node, step) = self.operand(&key, kind, value);
                let label = self.condition_label(key.bytes);
                self.attach(to, edge, node, label);
                return step;
            }
            ContainerMode::Operators => {
                let (node, step) = self.operand(&key, kind, value);
                self.add_keyed(&key, node);
                return step;
            }
            ContainerMode::Literals => {
                self.see_type(top, kind);
                return ElementStep::Using(Use::Member);
            }
            _ if rules::is_added_by_a_router(mode, key.bytes) => {}
            ContainerMode::Expression | ContainerMode::WindowFields => {
                let key = self.operand_key(key);
                let (node, step, _) = self.expression_leaf(&key, kind, value);
                if matches!(key.bytes, b"$const" | b"$literal") {
                    self.frames[top].constant = Some((node.hashes(), kind));
                }
                self.add_keyed(&key, node);
                return step;
            }
            ContainerMode::ExpressionList => {
                let (node, step, path) = self.expression_leaf(&key, kind, value);
                if path {
                    self.frames[top].structural = true;
                } else {
                    self.see_type(top, kind);
                }
                self.attach(top, 0, node, T::Label::default());
                return step;
            }
            ContainerMode::Stage => {
                if let Some(step) = self.server_form(&key, kind, value) {
                    return step;
                }
                let (node, step) = match key.bytes {
                    b"$unionWith" | b"$out" | b"$unset" | b"$count" => self.name(kind, value, |_| true),
                    stage if !names::holds_expressions(stage) => (self.placeholder(kind), TYPE),
                    _ => {
                        let (node, step, _) = self.expression_leaf(&key, kind, value);
                        (node, step)
                    }
                };
                self.add_keyed(&key, node);
                return step;
            }
            ContainerMode::Sort | ContainerMode::Literal | ContainerMode::Kept | ContainerMode::Index => {
                if mode == ContainerMode::Index && matches!(key.bytes, b"name" | b"v" | b"ns" | b"background")
                {
                    return TYPE;
                }
                if mode == ContainerMode::Kept
                    && key.bytes == b"preserveNullAndEmptyArrays"
                    && number(kind, bytes_of(value)) == Some(0.0)
                {
                    return truth_of(kind);
                }
                let (node, step) = self.kept_field(mode, &key, kind, value);
                self.add_keyed(&key, node);
                return step;
            }
            ContainerMode::Projection => {
                let key = literal_key(key);
                if key.bytes == b"$literal" {
                    let node = self.placeholder(kind);
                    self.frames[top].constant = Some((node.hashes(), kind));
                    self.add_keyed(&key, node);
                    return TYPE;
                }
                let (node, step) = match number(kind, bytes_of(value)) {
                    Some(number) if number != 0.0 && self.names_the_id(&key) => {
                        self.frames[top].includes_id = true;
                        return truth_of(kind);
                    }
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
            ContainerMode::Unset => return self.unset_field(kind, value),
            ContainerMode::Statement => return self.statement_element(key, kind, value),
            ContainerMode::Command
            | ContainerMode::Bounds
            | ContainerMode::UpdateFields
            | ContainerMode::Pull
            | ContainerMode::GeoNear
            | ContainerMode::Facet
            | ContainerMode::Masked
            | ContainerMode::Update => {
                let node = self.placeholder(kind);
                self.add_keyed(&key, node);
            }
            // Scalars where only documents can be: no server would accept this.
            ContainerMode::And
            | ContainerMode::Branches
            | ContainerMode::Pipeline
            | ContainerMode::ArrayFilters
            | ContainerMode::Statements
            | ContainerMode::Indexes
            | ContainerMode::Undecided
            | ContainerMode::LiteralOrOperators
            | ContainerMode::ElemMatch
            | ContainerMode::UpdateValue => {}
        }
        TYPE
    }

    /// A scalar in a part that keeps its literals. A string is kept only if it is a name there.
    pub(super) fn kept_field(
        &self,
        mode: ContainerMode,
        key: &Key<'_>,
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> (Node<T>, ElementStep) {
        match (mode, key.bytes) {
            (ContainerMode::Kept, b"startWith") => {
                let (node, step, _) = self.expression_leaf(key, kind, value);
                (node, step)
            }
            // Elements of `on`, the only array that is kept.
            (ContainerMode::Kept, key) if key.iter().all(u8::is_ascii_digit) => {
                self.name(kind, value, |_| true)
            }
            (ContainerMode::Kept, key) => self.name(kind, value, |text| names::is_name_field(key, text)),
            (ContainerMode::Sort, _) => self.name(kind, value, names::is_index_type),
            (ContainerMode::Literal, b"$meta") => self.name(kind, value, names::is_meta),
            // `out` of mapReduce.
            (ContainerMode::Literal, b"replace" | b"merge" | b"reduce" | b"db") => {
                self.name(kind, value, |_| true)
            }
            (ContainerMode::Literal, key) => {
                self.name(kind, value, |text| names::is_collation_setting(key, text))
            }
            _ => self.name(kind, value, |_| false),
        }
    }

    /// A `$` key with a scalar in a filter.
    pub(super) fn filter_operator(&mut self, key: Key<'_>, kind: ElementKind) {
        if key.bytes == b"$comment" {
            return;
        }
        let kind = if key.bytes == b"$where" { ElementKind::JavaScript } else { kind };
        let to = self.frames[self.frames.len() - 1].collector as usize;
        let label = self.path_label(1, &key, &[]);
        let node = self.placeholder(kind);
        self.attach(to, hash::key(&key), node, label);
    }

    /// The scalar operand of an operator.
    pub(super) fn operand(
        &self,
        key: &Key<'_>,
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> (Node<T>, ElementStep) {
        match key.bytes {
            b"$exists" => {
                let exists = number(kind, bytes_of(value)).is_none_or(|number| number != 0.0);
                (self.kept(if exists { b"true" } else { b"false" }, true), truth_of(kind))
            }
            b"$regex" => (self.placeholder(ElementKind::String), TYPE),
            b"$meta" => self.name(kind, value, names::is_meta),
            _ => (self.placeholder(kind), TYPE),
        }
    }

    /// The label of a condition: the path of the top frame, and the operator.
    pub(super) fn condition_label(&self, operator: &[u8]) -> T::Label {
        if !T::WANTED {
            return T::Label::default();
        }
        let path: &[u8] = self.labels.last().map_or(&[], |(path, _)| path);
        T::label(1, path, if operator == b"$eq" { EQUALITY } else { operator })
    }

    /// A document or array, when the mode of the top frame is decided.
    pub(super) fn place_open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let top = self.frames.len() - 1;
        let mode = self.frames[top].mode;
        match mode {
            ContainerMode::Filter => self.open_in_filter(key, array),
            ContainerMode::Conditions => {
                let edge = mix(self.frames[top].path, operator(&key));
                let path = if T::WANTED {
                    self.labels.last().map(|(path, _)| path.clone()).unwrap_or_default()
                } else {
                    Vec::new()
                };
                let operator = if key.bytes == b"$eq" { EQUALITY } else { key.bytes };
                self.open_operand(key, array, edge, (1, &path, operator))
            }
            ContainerMode::Operators => self.open_operand(key, array, hash::key(&key), (0, key.bytes, &[])),
            ContainerMode::And => {
                let collector = self.frames[top].collector as usize;
                self.enter_group(ContainerMode::Filter, collector)
            }
            ContainerMode::Branches | ContainerMode::ArrayFilters => {
                self.enter(ContainerMode::Filter, 0, NO_LABEL)
            }
            ContainerMode::Literals => {
                if array {
                    self.see_type(top, ElementKind::Array);
                    Opened::Skip
                } else {
                    self.enter(ContainerMode::LiteralOrOperators, 0, NO_LABEL)
                }
            }
            ContainerMode::Expression | ContainerMode::ExpressionList | ContainerMode::WindowFields => {
                let listed = mode == ContainerMode::ExpressionList;
                let key = self.operand_key(key);
                let edge = if listed { 0 } else { hash::path(&key) };
                let inner = match key.bytes {
                    b"$cond" if !listed => ContainerMode::Expression,
                    b"$literal" | b"$const" if !listed && array => ContainerMode::Literals,
                    b"$literal" | b"$const" if !listed => ContainerMode::LiteralOrOperators,
                    b"sortBy" if mode == ContainerMode::WindowFields => ContainerMode::Sort,
                    _ if array => ContainerMode::ExpressionList,
                    _ => ContainerMode::Expression,
                };
                let normal = self.normal(&key);
                let opened = self.enter(inner, edge, (0, if listed { &[] } else { &normal }, &[]));
                self.mark_operands(opened, &key, array && !listed);
                opened
            }
            ContainerMode::Pipeline => self.enter(ContainerMode::Stage, 0, NO_LABEL),
            ContainerMode::Stage => {
                self.change_stream |= key.bytes == b"$changeStream";
                if let Some(opened) = self.open_server_form(&key, array) {
                    return opened;
                }
                let inner = match stage(key.bytes) {
                    ContainerMode::Expression if array => ContainerMode::ExpressionList,
                    mode => mode,
                };
                let opened = self.enter(inner, hash::key(&key), (0, key.bytes, &[]));
                if opened == Opened::Enter && !names::holds_expressions(key.bytes) {
                    self.frames[top + 1].opaque = true;
                }
                opened
            }
            ContainerMode::Facet => {
                self.enter(ContainerMode::Pipeline, hash::path(&key), (0, key.bytes, &[]))
            }
            ContainerMode::Kept => {
                let inner = match key.bytes {
                    b"pipeline" | b"whenMatched" if array => ContainerMode::Pipeline,
                    b"restrictSearchWithMatch" => ContainerMode::Filter,
                    b"let" => return Opened::Skip,
                    b"startWith" if array => ContainerMode::ExpressionList,
                    b"startWith" => ContainerMode::Expression,
                    b"on" => ContainerMode::Kept,
                    _ if array => ContainerMode::Literals,
                    _ => ContainerMode::Kept,
                };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            ContainerMode::GeoNear => {
                let inner = match key.bytes {
                    b"query" => ContainerMode::Filter,
                    _ if array => ContainerMode::Literals,
                    _ => ContainerMode::LiteralOrOperators,
                };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            ContainerMode::Sort | ContainerMode::Literal => {
                let normal = self.normal(&key);
                self.enter(ContainerMode::Literal, hash::path(&key), (0, &normal, &[]))
            }
            ContainerMode::Projection => {
                // A router asks its shards for the keys of the sort.
                if key.bytes == b"$sortKey" {
                    return Opened::Skip;
                }
                let key = literal_key(key);
                let inner = match key.bytes {
                    b"$elemMatch" => ContainerMode::ElemMatch,
                    b"$meta" => ContainerMode::Literal,
                    b"$slice" if array => ContainerMode::Literals,
                    b"$cond" => ContainerMode::Expression,
                    b"$literal" if array => ContainerMode::Literals,
                    b"$literal" => ContainerMode::LiteralOrOperators,
                    _ if array => ContainerMode::ExpressionList,
                    _ if key.is_operator() => ContainerMode::Expression,
                    _ => ContainerMode::Projection,
                };
                let normal = self.normal(&key);
                let opened = self.enter(inner, hash::path(&key), (0, &normal, &[]));
                self.mark_operands(opened, &key, array);
                opened
            }
            ContainerMode::Update => {
                let inner =
                    if key.bytes == b"$pull" { ContainerMode::Pull } else { ContainerMode::UpdateFields };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            ContainerMode::UpdateFields | ContainerMode::Bounds | ContainerMode::Masked => {
                let normal = self.normal(&key);
                let inner = match (array, mode) {
                    (true, _) => ContainerMode::Literals,
                    (false, ContainerMode::Masked) => ContainerMode::Masked,
                    (false, _) => ContainerMode::UpdateValue,
                };
                self.enter(inner, hash::path(&key), (0, &normal, &[]))
            }
            ContainerMode::Pull => {
                let normal = self.normal(&key);
                let inner = if array { ContainerMode::Literals } else { ContainerMode::ElemMatch };
                self.enter(inner, hash::path(&key), (0, &normal, &[]))
            }
            ContainerMode::Statements => {
                self.open_statement();
                Opened::Enter
            }
            ContainerMode::Statement => self.statement_open(key, array),
            ContainerMode::Indexes => self.enter(ContainerMode::Index, 0, NO_LABEL),
            ContainerMode::Index => {
                let inner = match key.bytes {
                    b"key" => ContainerMode::Sort,
                    b"partialFilterExpression" => ContainerMode::Filter,
                    _ => ContainerMode::Literal,
                };
                self.enter(inner, hash::key(&key), (0, key.bytes, &[]))
            }
            ContainerMode::Command
            | ContainerMode::Undecided
            | ContainerMode::LiteralOrOperators
            | ContainerMode::ElemMatch
            | ContainerMode::Unset
            | ContainerMode::UpdateValue => Opened::Skip,
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
                b"$and" if array => self.enter_group(ContainerMode::And, collector),
                b"$or" | b"$nor" if array => self.enter(ContainerMode::Branches, edge, (1, key.bytes, &[])),
                b"$expr" if array => self.enter(ContainerMode::ExpressionList, edge, (1, key.bytes, &[])),
                b"$expr" => self.enter(ContainerMode::Expression, edge, (1, key.bytes, &[])),
                // The wrapper of legacy queries.
                b"$query" if !array => self.enter_group(ContainerMode::Filter, collector),
                b"$orderby" if !array => self.enter_for_command(ContainerMode::Sort, "sort", 3),
                b"$hint" if !array => self.enter_for_command(ContainerMode::Sort, "hint", 7),
                b"$min" if !array => self.enter_for_command(ContainerMode::Bounds, "min", 6),
                b"$max" if !array => self.enter_for_command(ContainerMode::Bounds, "max", 6),
                b"$comment" | b"$readPreference" | b"$queryOptions" => Opened::Skip,
                b"$jsonSchema" => {
                    let node = self.placeholder(ElementKind::Document);
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
            true => (ContainerMode::Literals, None),
            // The conditions of an undecided document go to the collector of the top frame.
            false => (ContainerMode::Undecided, Some(collector)),
        };
        self.enter_at(Opening { path, collector, ..Opening::new(mode, mix(path, EQUAL), label) })
    }

    /// Opens the operand of an operator.
    pub(super) fn open_operand(
        &mut self,
        key: Key<'_>,
        array: bool,
        edge: u64,
        label: BorrowedLabel<'_>,
    ) -> Opened {
        let mode = match (key.bytes, array) {
            (b"$elemMatch", false) => ContainerMode::ElemMatch,
            (b"$not", false) => ContainerMode::Operators,
            (b"$and", true) => ContainerMode::Branches,
            (b"$or" | b"$nor", true) => ContainerMode::Branches,
            (_, true) => ContainerMode::Literals,
            (_, false) => ContainerMode::LiteralOrOperators,
        };
        self.enter(mode, edge, label)
    }
}

/// `$const` is the server's own name of `$literal`.
fn literal_key(key: Key<'_>) -> Key<'_> {
    if key.bytes == b"$const" { Key::new(b"$literal") } else { key }
}

/// Hash of an operator of a condition.
#[inline]
fn operator(key: &Key<'_>) -> u64 {
    if key.bytes == b"$eq" { EQUAL } else { hash::key(key) }
}
