//! Operations by the six types of command that `mongostat` and the server's `opcounters` use.

use crate::operation::WriteType;
use crate::shape::UNKNOWN;
use crate::{Class, Operation, Outcome, Role};

/// The type of a command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CommandType {
    /// `insert`: documents.
    Insert,
    /// `find`: queries.
    Query,
    /// `update`: statements.
    Update,
    /// `delete`: statements.
    Delete,
    /// `getMore`: batches after the first.
    GetMore,
    /// Every other command, including `aggregate`, `count` and `findAndModify`.
    Command,
}

impl CommandType {
    /// All types, in the order of `mongostat`.
    pub const ALL: [Self; 6] =
        [Self::Insert, Self::Query, Self::Update, Self::Delete, Self::GetMore, Self::Command];

    /// The name in `mongostat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Query => "query",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::GetMore => "getmore",
            Self::Command => "command",
        }
    }

    /// The type of a command.
    pub fn of(command: &str) -> Self {
        match command {
            "insert" => Self::Insert,
            "find" => Self::Query,
            "update" => Self::Update,
            "delete" => Self::Delete,
            "getMore" => Self::GetMore,
            _ => Self::Command,
        }
    }
}

/// The number of each type, in the order of [`CommandType::ALL`].
pub type TypeCounts = [u64; CommandType::ALL.len()];

/// Counts by type for each role and class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandTypes {
    counts: [[TypeCounts; Class::ALL.len()]; 2],
}

impl CommandTypes {
    /// Adds one operation, unless it is in flight or its command is unknown. As in the server's `opcounters`, an insert
    /// counts its documents, an update or delete its statements, a `bulkWrite` its statements by what they do, and every
    /// other command counts once.
    #[inline]
    pub(crate) fn record(&mut self, op: &Operation<'_>) {
        if op.outcome == Outcome::InFlight || op.command == UNKNOWN {
            return;
        }
        let kind = CommandType::of(op.command);
        if kind == CommandType::Command && !op.statements.is_empty() {
            return self.record_statements(op);
        }
        let statements = u64::from(op.statement_count);
        let operations = match kind {
            CommandType::Insert => op.docs_matched.or(op.docs_affected).unwrap_or(0).max(statements),
            CommandType::Update | CommandType::Delete => statements,
            _ => 1,
        };
        let count = &mut self.counts[op.role as usize][op.class as usize][kind as usize];
        *count = count.saturating_add(operations);
    }

    /// Adds the statements of a `bulkWrite`.
    fn record_statements(&mut self, op: &Operation<'_>) {
        for statement in op.statements {
            let kind = match statement.write {
                Some(WriteType::Insert) => CommandType::Insert,
                Some(WriteType::Update) => CommandType::Update,
                Some(WriteType::Delete) => CommandType::Delete,
                None => continue,
            };
            let count = &mut self.counts[op.role as usize][op.class as usize][kind as usize];
            *count = count.saturating_add(u64::from(statement.count));
        }
    }

    /// The counts of one role and class.
    pub fn get(&self, role: Role, class: Class) -> TypeCounts {
        self.counts[role as usize][class as usize]
    }

    /// Adds counts of one role and class.
    pub fn add(&mut self, role: Role, class: Class, counts: TypeCounts) {
        for (mine, count) in self.counts[role as usize][class as usize].iter_mut().zip(counts) {
            *mine = mine.saturating_add(count);
        }
    }

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: &Self) {
        let mine = self.counts.iter_mut().flatten().flatten();
        for (mine, theirs) in mine.zip(other.counts.iter().flatten().flatten()) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// The sum of the counts of all roles and classes that `wants` selects.
    pub fn totals(&self, wants: impl Fn(Role, Class) -> bool) -> TypeCounts {
        let mut totals = TypeCounts::default();
        for (role, classes) in Role::ALL.into_iter().zip(&self.counts) {
            for (class, counts) in Class::ALL.into_iter().zip(classes) {
                if wants(role, class) {
                    for (total, count) in totals.iter_mut().zip(counts) {
                        *total = total.saturating_add(*count);
                    }
                }
            }
        }
        totals
    }
}
