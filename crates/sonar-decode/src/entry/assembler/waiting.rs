//! Statements that wait for their command: logs write the statements of a write one by one, and then the command.

use std::sync::Arc;

use sonar_core::{
    Application, Class, Endpoint, Identity, OldestFirst, ShapeId, ShapeInfo, Statement, Timestamp,
};

use crate::entry::FieldTable;
use crate::shape::CommandKind;

/// The shape and class of an operation.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) shape: Arc<ShapeInfo>,
    pub(super) ordered: ShapeId,
    pub(super) identity: Identity,
    pub(super) statements: Arc<[Statement]>,
    pub(super) statement_count: u32,
    pub(super) class: Class,
    pub(super) kind: CommandKind,
    /// The name of the command, if it is not that of the shape.
    pub(super) command: Option<&'static str>,
}

/// Who issued an operation, when it ended, and how many operations and entries it stands for.
#[derive(Clone, Debug)]
pub(super) struct Circumstances {
    pub(super) app: Arc<Application>,
    pub(super) end: Timestamp,
    pub(super) weight: u32,
    pub(super) entries: u64,
    /// The cursor that its command named.
    pub(super) cursor: Option<i64>,
    /// The user of its connection, if the source said it there.
    pub(super) user: Option<Arc<str>>,
    /// The client's address; the default if it is not known.
    pub(super) client: Endpoint,
    /// A server sent it.
    pub(super) is_from_server: bool,
}

/// A statement that waits for its command, or that command.
#[derive(Clone, Debug)]
pub(super) struct WaitingStatement {
    pub(super) resolved: Resolved,
    pub(super) fields: FieldTable,
    pub(super) circumstances: Circumstances,
}

/// The statements that wait, by thread. The caller limits their number.
#[derive(Default)]
pub(super) struct WaitingStatements {
    threads: OldestFirst<u64, Vec<WaitingStatement>>,
    count: usize,
}

impl WaitingStatements {
    /// How many wait, on all threads.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether statements wait on a thread.
    pub(super) fn has(&self, thread: u64) -> bool {
        self.count > 0 && self.threads.contains_key(&thread)
    }

    /// Whether the statements that wait on a thread belong to another command than this one.
    pub(super) fn has_others(&self, thread: u64, statement: &WaitingStatement) -> bool {
        let last = self.threads.get(&thread).and_then(|waiting| waiting.last());
        last.is_some_and(|last| {
            let kind = statement.resolved.kind;
            // Those of a bulkWrite are on several namespaces.
            let is_elsewhere =
                kind != CommandKind::BulkWrite && last.fields.namespace != statement.fields.namespace;
            last.resolved.kind != kind || is_elsewhere
        })
    }

    /// Adds a statement.
    pub(super) fn push(&mut self, thread: u64, statement: WaitingStatement) {
        self.threads.entry(thread).push(statement);
        self.count += 1;
    }

    /// Removes what waits on a thread.
    pub(super) fn take(&mut self, thread: u64) -> Vec<WaitingStatement> {
        let all = self.threads.remove(&thread).unwrap_or_default();
        self.count -= all.len();
        all
    }

    /// Removes what waits on the thread that has waited longest: its command is the least likely to come.
    pub(super) fn take_oldest(&mut self) -> Option<Vec<WaitingStatement>> {
        let (_, all) = self.threads.pop_oldest()?;
        self.count -= all.len();
        Some(all)
    }

    /// The threads on which statements wait, in order.
    pub(super) fn threads(&self) -> Vec<u64> {
        let mut threads: Vec<_> = self.threads.keys().copied().collect();
        threads.sort_unstable();
        threads
    }
}
