//! Stages and expressions that the server writes in another way when it reads a pipeline. A shard gets them in the
//! server's form, since a router reads the pipeline first; so this form is the shape of both.
//!
//! `{$count: 'n'}` is a `$group` and a `$project`, `$sortByCount` a `$group` and a `$sort`, `$unset` a `$project`,
//! `$replaceWith` a `$replaceRoot`; `{$unwind: '$a'}` is `{$unwind: {path: '$a'}}`, `{$merge: 'c'}` is
//! `{$merge: {into: 'c'}}`, and `_id: 1` beside other fields of a `$project` says what holds without it. The operands
//! of an operator are a list, which a single operand need not be; `$cond` is a list or a document, and so is the date
//! of an operator on dates.
//!
//! Source: `createFromBson` and `serialize` of the classes `DocumentSourceCount`, `DocumentSourceSortByCount`,
//! `DocumentSourceProject`, `DocumentSourceReplaceRoot`, `DocumentSourceUnwind`, `DocumentSourceMerge`,
//! `ExpressionNary`, `ExpressionCond` and `DateExpressionAcceptingTimeZone` in <https://github.com/mongodb/mongo>, the
//! same in all versions that have them.

use super::node::{Afterwards, Hashes, NO_LABEL, Node, Opening, Operands};
use super::{Builder, MAX_DEPTH};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::shape::hash::{self, mix};
use crate::shape::rules::{self, ContainerMode};
use crate::shape::text::Text;
use crate::shape::value::literal_of;

/// The most containers that this module opens for one that was sent.
const DEEPEST: usize = 3;

impl<T: Text> Builder<T> {
    /// A stage whose content is a scalar, if the server writes it in another way. Returns what was used of the value.
    pub(super) fn server_form(
        &mut self,
        key: &Key<'_>,
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> Option<ElementStep> {
        let name = match value {
            BsonValue::Bytes(bytes) if kind == ElementKind::String => Key::new(bytes),
            _ => return None,
        };
        if self.frames.len() + DEEPEST > MAX_DEPTH {
            return None;
        }
        Some(match key.bytes {
            b"$unwind" => self.stage_of_one(b"$unwind", b"path", kind, value),
            b"$merge" => self.stage_of_one(b"$merge", b"into", kind, value),
            b"$count" => {
                self.open_stage(ContainerMode::Expression, b"$group");
                let null = self.placeholder(ElementKind::Null);
                self.add_keyed(&Key::new(b"_id"), null);
                self.accumulate_one(&name);
                self.close();
                self.next_stage();
                self.open_stage(ContainerMode::Projection, b"$project");
                self.project(&name, b"1");
                self.project(&Key::new(b"_id"), b"0");
                self.close();
                literal_of(kind)
            }
            b"$sortByCount" => {
                self.open_stage(ContainerMode::Expression, b"$group");
                let id = Key::new(b"_id");
                let (node, step, _) = self.expression_leaf(&id, kind, value);
                self.add_keyed(&id, node);
                self.count_and_sort();
                step
            }
            b"$replaceWith" => {
                self.open_stage(ContainerMode::Expression, b"$replaceRoot");
                let root = Key::new(b"newRoot");
                let (node, step, _) = self.expression_leaf(&root, kind, value);
                self.add_keyed(&root, node);
                self.close();
                step
            }
            b"$unset" => {
                self.open_stage(ContainerMode::Projection, b"$project");
                self.project(&name, b"0");
                self.close();
                literal_of(kind)
            }
            _ => return None,
        })
    }

    /// A stage whose content is a document or an array, if the server writes it in another way.
    pub(super) fn open_server_form(&mut self, key: &Key<'_>, array: bool) -> Option<Opened> {
        if self.frames.len() + DEEPEST > MAX_DEPTH {
            return None;
        }
        match (key.bytes, array) {
            (b"$unset", true) => {
                self.open_stage(ContainerMode::Unset, b"$project");
                Some(Opened::Enter)
            }
            (b"$replaceWith", false) => {
                Some(self.open_inside(b"$replaceRoot", b"newRoot", Afterwards::CloseParent))
            }
            (b"$sortByCount", false) => Some(self.open_inside(b"$group", b"_id", Afterwards::CountAndSort)),
            _ => None,
        }
    }

    /// A field of `$unset`.
    pub(super) fn unset_field(&mut self, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        if let BsonValue::Bytes(name) = value {
            self.project(&Key::new(name), b"0");
        }
        literal_of(kind)
    }

    /// The `$group` on top counts its documents, and its results are sorted by their number.
    pub(super) fn count_and_sort(&mut self) {
        let count = Key::new(b"count");
        self.accumulate_one(&count);
        self.close();
        self.next_stage();
        self.open_stage(ContainerMode::Sort, b"$sort");
        let descending = self.kept(b"-1", true);
        self.add_keyed(&count, descending);
        self.close();
    }

    /// Whether `key` is the `_id` of a `$project`.
    pub(super) fn names_the_id(&self, key: &Key<'_>) -> bool {
        let [.., parent, top] = self.frames.as_slice() else { return false };
        key.bytes == b"_id" && parent.mode == ContainerMode::Stage && top.edge == hash::bytes(b"$project")
    }

    /// Notes what the container that `opened` is to the operator `key` before it.
    pub(super) fn mark_operands(&mut self, opened: Opened, key: &Key<'_>, array: bool) {
        if opened != Opened::Enter || !key.is_operator() {
            return;
        }
        let Some(frame) = self.frames.last_mut() else { return };
        frame.operands = match (frame.mode, array) {
            (ContainerMode::Expression, true) => Operands::Condition,
            (ContainerMode::ExpressionList, true) if !rules::is_accumulator(key.bytes) => Operands::List,
            (ContainerMode::Expression, false) if rules::takes_a_date(key.bytes) => Operands::Date,
            _ => Operands::Other,
        };
    }

    /// The name of an operand that was sent by its place.
    pub(super) fn operand_key<'k>(&self, key: Key<'k>) -> Key<'k> {
        match self.frames.last() {
            Some(frame) if frame.operands == Operands::Condition => match frame.count {
                0 => Key::new(b"if"),
                1 => Key::new(b"then"),
                2 => Key::new(b"else"),
                _ => key,
            },
            _ => key,
        }
    }

    /// The operand that the container `at` stands for: `{$floor: ['$a']}` is `{$floor: '$a'}`, and
    /// `{$year: {date: '$a'}}` is `{$year: '$a'}`.
    pub(super) fn single_operand(&self, at: usize) -> Option<Hashes> {
        let frame = &self.frames[at];
        let is_single = frame.count == 1
            && match frame.operands {
                Operands::List => true,
                Operands::Date => {
                    let date = mix(hash::bytes(b"date"), frame.last.unordered);
                    self.elements.get(frame.start as usize).is_some_and(|child| child.hash == date)
                }
                Operands::Other | Operands::Condition => false,
            };
        is_single.then_some(frame.last)
    }

    /// `{stage: {field: value}}`
    fn stage_of_one(
        &mut self,
        stage: &'static [u8],
        field: &'static [u8],
        kind: ElementKind,
        value: BsonValue<'_>,
    ) -> ElementStep {
        self.open_stage(ContainerMode::Kept, stage);
        let field = Key::new(field);
        let (node, step) = self.kept_field(ContainerMode::Kept, &field, kind, value);
        self.add_keyed(&field, node);
        self.close();
        step
    }

    fn open_stage(&mut self, mode: ContainerMode, name: &'static [u8]) {
        self.push(Opening::new(mode, hash::bytes(name), (0, name, &[])));
    }

    /// Opens the stage `name` and in it the expression `field`, whose elements follow.
    fn open_inside(&mut self, name: &'static [u8], field: &'static [u8], afterwards: Afterwards) -> Opened {
        self.open_stage(ContainerMode::Expression, name);
        self.push(Opening::new(ContainerMode::Expression, hash::bytes(field), (0, field, &[])));
        if let Some(frame) = self.frames.last_mut() {
            frame.afterwards = afterwards;
        }
        Opened::Enter
    }

    /// Ends the stage that was sent, and begins another one in its place.
    fn next_stage(&mut self) {
        self.close();
        self.push(Opening::new(ContainerMode::Stage, 0, NO_LABEL));
    }

    /// `name: {$sum: 1}`
    fn accumulate_one(&mut self, name: &Key<'_>) {
        let normal = self.normal(name);
        self.push(Opening::new(ContainerMode::Expression, hash::path(name), (0, &normal, &[])));
        let one = self.placeholder(ElementKind::Int32);
        self.add_keyed(&Key::new(b"$sum"), one);
        self.close();
    }

    fn project(&mut self, name: &Key<'_>, kept: &[u8]) {
        let node: Node<T> = self.kept(kept, true);
        self.add_keyed(name, node);
    }
}
