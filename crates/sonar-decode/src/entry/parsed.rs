//! What one entry says by itself. The [`OperationAssembler`](super::OperationAssembler) adds what depends on earlier
//! entries, so entries can be read on several threads.

use std::sync::Arc;

use sonar_core::{Application, Class, Endpoint, Identity, ShapeId, ShapeInfo, Statement, Timestamp};

use super::{Completeness, Entry, FieldTable, Op};
use crate::class::{ClassFacts, CommandClass};
use crate::identity::{base_of, id_in_part, ids_of, info_of};
use crate::shape::{CommandKind, Rendered};
use crate::syntax::shell;

/// What is known of an operation beyond its entry.
#[derive(Copy, Clone, Debug, Default)]
pub struct EntryContext<'a> {
    /// The client, if it is known from its connection.
    pub app: Option<&'a Arc<Application>>,
    /// The client's address, if it is known from its connection.
    pub client: Option<Endpoint>,
    /// The user, if it is known from its connection.
    pub user: Option<&'a Arc<str>>,
    /// The client is a server.
    pub from_server: bool,
    /// It came from no client's connection.
    pub internal: bool,
    /// When it ended, for entries that do not contain it.
    pub end: Option<Timestamp>,
    /// The connection or thread: statements are joined to its next command. `None`: the source has no commands around
    /// statements, and each is an operation of its own.
    pub thread: Option<u64>,
    /// How many operations the entry stands for, multiplied by its own `rateLimit`.
    pub weight: u32,
}

/// What one entry says; its buffers are reused.
#[derive(Clone, Debug)]
pub struct ParsedEntry {
    /// Figures, names and texts.
    pub fields: FieldTable,
    /// The shape's id.
    pub(super) shape: ShapeId,
    /// The id with every order as sent; 0 if the shape is not known in full.
    pub(super) ordered: ShapeId,
    /// How much of the shape the entry has.
    pub(super) identity: Identity,
    /// What ids of its command in its namespace begin with.
    pub(super) base: u64,
    /// The statements of a bulk of several shapes.
    pub(super) statements: Arc<[Statement]>,
    /// Statements in the entry; 0 if it leaves them out.
    pub(super) statement_count: u32,
    /// The shape has more distinct children, or is deeper, than the caps.
    pub(super) is_over_cap: bool,
    /// The text of the beginning of a command that was cut.
    pub(super) cut: Option<Box<ShapeInfo>>,
    pub(super) kind: CommandKind,
    /// Name of the command that the entry describes, if the shape is that of another one.
    pub(super) follows: Option<&'static str>,
    /// It is a statement of an update or remove, not the command around it.
    pub(super) is_statement: bool,
    /// The cursor that the command names.
    pub(super) cursor: Option<i64>,
    /// The cursor of a getMore, if the entry describes the command that opened it.
    pub(super) used_cursor: Option<i64>,
    classes: CommandClass,
    waits: bool,
    pub(super) is_from_server: bool,
    is_internal: bool,
}

impl Default for ParsedEntry {
    fn default() -> Self {
        let nothing = ClassFacts { kind: CommandKind::Other, command: b"", database: b"", collection: b"" };
        Self {
            fields: FieldTable::default(),
            shape: ShapeId(0),
            ordered: ShapeId(0),
            identity: Identity::default(),
            base: 0,
            statements: Arc::default(),
            statement_count: 0,
            is_over_cap: false,
            cut: None,
            kind: CommandKind::Other,
            follows: None,
            is_statement: false,
            cursor: None,
            used_cursor: None,
            classes: CommandClass::of(&nothing),
            waits: false,
            is_from_server: false,
            is_internal: false,
        }
    }
}

impl ParsedEntry {
    /// Takes what `entry` says, which has been read to its end; reset the entry after that.
    pub fn take(&mut self, entry: &mut Entry<()>) {
        entry.finish();
        let request = &mut entry.request;
        (self.kind, self.follows) = (request.kind, entry.follows);
        self.classes = CommandClass::of(&ClassFacts {
            kind: request.kind,
            command: request.command.bytes(),
            database: request.database.bytes(),
            collection: request.collection.bytes(),
        });
        self.waits = match (entry.follows, request.kind) {
            (Some(_), _) => entry.waits || request.opens_waiting_cursor(),
            (None, CommandKind::GetMore) => request.max_time,
            (None, CommandKind::Hello) => request.awaits_topology,
            _ => false,
        };
        self.is_from_server = request.from_server || entry.by_server;
        // The time of a transaction is that of its operations, which are logged one by one, and that of the client.
        let is_of_server = matches!(entry.fields.op, Op::Internal | Op::Transaction);
        self.is_internal = is_of_server || request.is_get_last_error();
        self.is_statement = entry.is_statement;
        (self.cursor, self.used_cursor) = (request.cursor, entry.used_cursor);
        self.statement_count = request.builder.statement_count;
        self.is_over_cap = request.builder.over_cap;
        let is_known = request.is_known;
        self.base = base_of(request);
        self.identity = identity_of(entry);
        self.cut = match entry.completeness {
            Completeness::Cut => read_cut(entry).map(Box::new),
            _ => None,
        };
        let (ids, ()) = ids_of(&mut entry.request);
        self.statements = ids.statements;
        let readable = self.cut.as_ref().map_or(ids.shape, |info| info.id);
        self.shape = match self.identity {
            // Its id says so already.
            Identity::Partial if !is_known => readable,
            identity => id_in_part(identity, self.base, readable, entry.fields.query_hash.bytes()),
        };
        self.ordered = if self.identity == Identity::Exact { ids.ordered } else { ShapeId(0) };
        std::mem::swap(&mut self.fields, &mut entry.fields);
    }

    /// The purpose of the operation.
    pub(super) fn class(&self, context: &EntryContext<'_>) -> Class {
        match self.classes.class(self.is_from_server || context.from_server, self.waits) {
            _ if self.fields.op == Op::Applied => Class::Replication,
            Class::User if context.internal || self.is_internal => Class::Internal,
            class => class,
        }
    }

    /// Whether it is a command whose statements are unknown.
    pub(super) fn lacks_statements(&self) -> bool {
        self.kind.has_statements() && self.statement_count == 0
    }
}

/// How much of its shape an entry has.
fn identity_of(entry: &Entry<()>) -> Identity {
    let kind = entry.request.kind;
    let identity = match entry.completeness {
        Completeness::Whole if !entry.request.is_known => Identity::Partial,
        Completeness::Whole => Identity::Exact,
        Completeness::Most | Completeness::Cut => Identity::Partial,
        Completeness::Nothing if kind == CommandKind::Insert && !entry.withheld => Identity::Exact,
        Completeness::Nothing => Identity::Unknown,
    };
    let types = entry.fields.types_lost.then_some(Identity::Partial);
    let Some(worse) = entry.doubt.max(types) else { return identity };
    // The body of these does not affect the shape, so it may be ambiguous.
    let by_name = matches!(kind, CommandKind::Other | CommandKind::Hello | CommandKind::Insert);
    let is_unsaid = entry.fields.op == Op::Applied && entry.fields.namespace.is_empty();
    if !by_name || is_unsaid || entry.request.command.bytes().is_empty() {
        identity.max(worse)
    } else {
        identity
    }
}

/// Reads the beginning of a command that was cut.
fn read_cut(entry: &Entry<()>) -> Option<ShapeInfo> {
    let mut again = Entry::<Rendered>::default();
    again.fields.op = entry.fields.op;
    again.fields.namespace = entry.fields.namespace.clone();
    shell::beginning(entry.cut_command.as_deref()?, &mut again);
    again.finish();
    if again.request.command.bytes().is_empty() {
        return None;
    }
    Some(ShapeInfo { cut: true, ..info_of(&mut again.request) })
}

impl Entry<Rendered> {
    /// The shape, with its text, of an entry that has been read to its end.
    pub fn into_shape(mut self) -> ShapeInfo {
        self.finish();
        info_of(&mut self.request)
    }
}
