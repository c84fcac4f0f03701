//! Closing: what a container becomes when it ends.

use super::node::{Afterwards, Hashes, KEPT, Node, REPLACEMENT, StatementBody, Types};
use super::{Builder, MAX_STATEMENTS};
use crate::bson::{ElementKind, Key};
use crate::commands::CommandKind;
use crate::shape::hash::{self, mix};
use crate::shape::rules::ContainerMode;
use crate::shape::text::{Style, Text};

impl<T: Text> Builder<T> {
    /// Closes the container on top, and what the server's form of it has opened beside it.
    pub(super) fn close_as_sent(&mut self) {
        let afterwards = self.frames.last().map_or(Afterwards::Nothing, |frame| frame.afterwards);
        self.close_container();
        match afterwards {
            Afterwards::Nothing => {}
            Afterwards::CloseParent => self.close_container(),
            Afterwards::CountAndSort => self.count_and_sort(),
        }
    }

    /// Closes the container on top.
    fn close_container(&mut self) {
        let top = self.frames.len() - 1;
        if top == 0 {
            return;
        }
        if self.frames[top].includes_id && self.frames[top].count == 0 {
            // It is the only field that stays.
            let node = self.kept(b"1", true);
            self.add_keyed(&Key::new(b"_id"), node);
        }
        let (mode, edge, collector) = {
            let frame = &self.frames[top];
            (frame.mode, frame.edge, frame.collector as usize)
        };
        match mode {
            // An empty document: a literal.
            ContainerMode::Undecided
            | ContainerMode::LiteralOrOperators
            | ContainerMode::UpdateValue
            | ContainerMode::Masked => {
                return self.close_as_object();
            }
            ContainerMode::Update if self.frames[top].count == 0 => {
                let label = self.pop_label();
                self.frames.pop();
                let node = Self::leaf(REPLACEMENT, "?replacement", "?replacement");
                return self.give(edge, node, label, None);
            }
            ContainerMode::Statements => {
                self.pop_label();
                self.frames.pop();
                return;
            }
            ContainerMode::Statement => return self.close_statement(),
            _ => {}
        }
        if collector != top {
            // It only grouped; its children are with their collector.
            self.pop_label();
            self.frames.pop();
            return;
        }
        let frame = &self.frames[top];
        if self.is_nothing(top) {
            self.drop_elements(frame.start as usize);
            self.pop_label();
            self.frames.pop();
            return self.attach_deferred();
        }
        if let (ContainerMode::Expression | ContainerMode::Projection, 1, Some((only, kind))) =
            (mode, frame.count, frame.constant)
        {
            // A router writes the constants of an expression so.
            return self.close_as_child(only, Some(kind));
        }
        if let Some(only) = self.single_operand(top) {
            return self.close_as_child(only, None);
        }
        let frame = &self.frames[top];
        let literals =
            matches!(mode, ContainerMode::Literals | ContainerMode::ExpressionList) && !frame.structural;
        if literals {
            let start = frame.start as usize;
            let types = frame.types;
            self.drop_elements(start);
            let node = Self::typed_array(types);
            let label = self.pop_label();
            self.frames.pop();
            return self.give(edge, node, label, Some(ElementKind::Array));
        }
        let types = frame.types;
        let style = match mode {
            ContainerMode::Sort | ContainerMode::Bounds => Style::Sequence,
            ContainerMode::Pipeline
            | ContainerMode::ExpressionList
            | ContainerMode::ArrayFilters
            | ContainerMode::Indexes => Style::List,
            ContainerMode::Branches | ContainerMode::Literals => Style::Set,
            _ => Style::Document,
        };
        let mut node = self.fold(top, style);
        if mode == ContainerMode::Literals {
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

    /// Closes a container that its only child, of these hashes, stands for.
    fn close_as_child(&mut self, hashes: Hashes, literal: Option<ElementKind>) {
        let (start, edge) = self.frames.last().map_or((0, 0), |frame| (frame.start as usize, frame.edge));
        let text = self.elements.get_mut(start).map(|child| std::mem::take(&mut child.text));
        let text = text.unwrap_or_default();
        if T::WANTED {
            self.text_left += text.bytes();
        }
        self.drop_elements(start);
        let label = self.pop_label();
        self.frames.pop();
        self.give(edge, Node { unordered: hashes.unordered, ordered: hashes.ordered, text }, label, literal);
    }

    /// Whether the container `top`, which ends, says nothing: `filter: {}` is no filter, and a router sends `hint: {}`
    /// in statements without a hint. Without a collation, the one of the collection counts, and that is the simple one
    /// unless it was created with another; a router sends this one in pipelines. But the profiler can be told to take
    /// everything.
    fn is_nothing(&self, top: usize) -> bool {
        let (frame, parent) = (&self.frames[top], self.frames[top - 1].mode);
        let is_collation = frame.mode == ContainerMode::Literal && frame.edge == hash::bytes(b"collation");
        match frame.count {
            0 => {
                (parent == ContainerMode::Command && self.command != CommandKind::Profile)
                    || (parent == ContainerMode::Statement
                        && (is_collation
                            || matches!(frame.mode, ContainerMode::Sort | ContainerMode::ArrayFilters)))
            }
            1 if is_collation && matches!(parent, ContainerMode::Command | ContainerMode::Statement) => {
                let locale = hash::path(&Key::new(b"locale"));
                let simple = mix(locale, mix(KEPT, hash::bytes(b"simple")));
                self.elements.get(frame.start as usize).is_some_and(|child| child.hash == simple)
            }
            _ => false,
        }
    }

    /// Gives the command the fields that were inside its filter, which is closed.
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
        let Node { mut unordered, mut ordered, mut text } = node;
        let bulk = self.bulk.take();
        let (namespace, write) = (bulk.map(|(_, index)| index), bulk.map(|(write, _)| write));
        if let Some(write) = write {
            let action = hash::bytes(write.name().as_bytes());
            (unordered, ordered) = (mix(action, unordered), mix(action, ordered));
            if T::WANTED {
                text = text.named(write.name());
            }
        }
        self.add_statement(StatementBody { unordered, ordered, namespace, write, count: 1, text });
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
