//! Assembles operations: turns each entry of a profile or log into an [`Operation`] and its [`Execution`], with
//! the shape that the wire would give it, and joins the statements of a write to the command that held them.

mod join;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;
use sonar_core::operation::{ErrorCodes, Opcode};
use sonar_core::{
    Application, Class, Endpoint, Execution, Identity, Operation, Outcome, Reading, Role, ShapeId, ShapeInfo,
    Statement, Timestamp,
};

use self::join::{StatementQueue, WaitingStatement};
use super::{FieldTable, ParsedEntry, TextField};
use crate::identity::{Applications, CursorOrigin, Cursors, ShapeTable, other_shape};
use crate::shape::CommandKind;

/// The most statements that wait for their command, over all connections.
pub const MAX_WAITING: usize = 100_000;
const NS_PER_MS: u64 = 1_000_000;

/// What is known of an operation beside its entry.
#[derive(Copy, Clone, Debug, Default)]
pub struct EntryContext<'a> {
    /// The client, if it is known from its connection.
    pub app: Option<&'a Arc<Application>>,
    /// The client is a server.
    pub from_server: bool,
    /// No client's connection sent it.
    pub internal: bool,
    /// When it ended, for entries that do not contain it.
    pub end: Option<Timestamp>,
    /// The connection or thread: statements are joined to its next command. `None`: the source has no commands around
    /// statements, and each is an operation of its own.
    pub thread: Option<u64>,
    /// How many operations the entry stands for, multiplied by its own `rateLimit`.
    pub weight: u32,
}

/// Receives operations.
pub trait EntrySink {
    /// Takes an operation that ended, and the number of entries that describe it.
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64);
}

/// Takes operations and does nothing with them.
impl EntrySink for () {
    fn operation(&mut self, _: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {}
}

type Map<K, V> = HashMap<K, V, RandomState>;

/// Makes operations of entries, which it takes in order. It knows the shapes and applications seen so far.
pub struct OperationAssembler {
    /// What was read. The caller counts entries, files and lines.
    pub reading: Reading,
    /// Each entry counts once whatever its `rateLimit`: Percona Server 4.4 before 4.4.8-9 writes it but
    /// profiles every operation (<https://perconadev.atlassian.net/browse/PSMDB-876>).
    pub ignores_rate_limit: bool,
    shapes: ShapeTable,
    apps: Applications,
    other_shape: Arc<ShapeInfo>,
    cursors: Cursors<CursorKey>,
    waiting: Map<u64, StatementQueue>,
    waiting_count: usize,
    /// The threads in the order in which their statements began to wait; some of them no longer wait.
    waiting_order: VecDeque<(u64, u64)>,
    /// The number of the last place in that order.
    places: u64,
    /// [`MAX_WAITING`], or less in tests.
    max_waiting: usize,
}

impl Default for OperationAssembler {
    fn default() -> Self {
        Self {
            reading: Reading::default(),
            ignores_rate_limit: false,
            shapes: ShapeTable::default(),
            apps: Applications::default(),
            other_shape: Arc::new(other_shape()),
            cursors: Cursors::default(),
            waiting: Map::default(),
            waiting_count: 0,
            waiting_order: VecDeque::new(),
            places: 0,
            max_waiting: MAX_WAITING,
        }
    }
}

/// The shape and class of an operation.
#[derive(Clone, Debug)]
struct Resolved {
    shape: Arc<ShapeInfo>,
    ordered: ShapeId,
    identity: Identity,
    statements: Arc<[Statement]>,
    statement_count: u32,
    class: Class,
    kind: CommandKind,
    /// The name of the command, where it is not that of the shape.
    command: Option<&'static str>,
}

/// Who issued an operation, when it ended, and how many operations and entries it stands for.
#[derive(Clone, Debug)]
struct Circumstances {
    app: Arc<Application>,
    end: Timestamp,
    weight: u32,
    entries: u64,
    /// The cursor that its command named.
    cursor: Option<i64>,
}

impl OperationAssembler {
    /// Adds the next entry and emits the operations that it ends. `text` reads the entry once more to get the text of
    /// its shape; it is called where the shape is new.
    pub fn add(
        &mut self,
        entry: &ParsedEntry,
        context: &EntryContext<'_>,
        text: impl FnOnce() -> ShapeInfo,
        sink: &mut impl EntrySink,
    ) {
        let mut resolved = self.resolve(entry, entry.class(context), text);
        let circumstances = Circumstances {
            app: self.app(&entry.fields, context),
            end: end_of(&entry.fields, context),
            weight: self.weight_of(&entry.fields, context),
            entries: 1,
            cursor: entry.cursor,
        };
        if let Some(thread) = context.thread {
            if entry.is_statement {
                let waiting = WaitingStatement { resolved, fields: entry.fields.clone(), circumstances };
                return self.wait(thread, waiting, sink);
            }
            if self.waiting_count > 0 && self.waiting.contains_key(&thread) {
                if entry.kind.has_statements() || entry.kind == CommandKind::Insert {
                    let command = WaitingStatement { resolved, fields: entry.fields.clone(), circumstances };
                    return self.join(thread, command, entry, sink);
                }
                self.release(thread, sink);
            }
        }
        if !entry.is_statement && entry.lacks_statements() && resolved.identity == Identity::Exact {
            self.reading.statements_unsaid += 1;
            resolved.identity = Identity::Unsaid;
        }
        self.emit(&resolved, &entry.fields, &circumstances, sink);
    }

    /// The shape of an entry: for a getMore or killCursors that of the command that opened the cursor, if that came
    /// before; else its own.
    fn resolve(&mut self, entry: &ParsedEntry, class: Class, text: impl FnOnce() -> ShapeInfo) -> Resolved {
        let kind = entry.kind;
        let uses_cursor = matches!(kind, CommandKind::GetMore | CommandKind::KillCursors);
        if uses_cursor
            && entry.follows.is_none()
            && let Some(opener) = entry.cursor.or(entry.used_cursor).and_then(|id| {
                let exact = self.cursors.origin(&CursorKey::Exact(id));
                exact.or_else(|| self.cursors.origin(&CursorKey::rounded(id)))
            })
        {
            let CursorOrigin { shape, ordered_id: ordered, identity, .. } = opener.clone();
            let command = Some(if kind == CommandKind::GetMore { "getMore" } else { "killCursors" });
            let statements = Arc::default();
            return Resolved {
                shape,
                ordered,
                identity,
                statements,
                statement_count: 1,
                class,
                kind,
                command,
            };
        }
        self.reading.shapes_over_cap += u64::from(entry.is_over_cap);
        let shape = self.shape(entry, text);
        let (ordered, identity) = (entry.ordered, entry.identity);
        if !uses_cursor && let Some(key) = CursorKey::of(&entry.fields, entry.used_cursor) {
            let origin = CursorOrigin { shape: shape.clone(), ordered_id: ordered, identity, waits: false };
            self.cursors.open(key, origin);
        }
        Resolved {
            shape,
            ordered,
            identity,
            statements: entry.statements.clone(),
            statement_count: entry.statement_count.max(1),
            class,
            kind,
            command: entry.follows,
        }
    }

    /// The shape of an entry; made where it is not known.
    fn shape(&mut self, entry: &ParsedEntry, text: impl FnOnce() -> ShapeInfo) -> Arc<ShapeInfo> {
        if let Some(info) = self.shapes.get(entry.shape) {
            return info.clone();
        }
        if self.shapes.is_full() {
            self.reading.shapes_folded += 1;
            return self.other_shape.clone();
        }
        let mut info = entry.cut.as_deref().cloned().unwrap_or_else(text);
        info.id = entry.shape;
        if entry.identity > Identity::Partial {
            (info.typed, info.plain) = (Box::default(), Box::default());
        }
        self.keep(info)
    }

    fn keep(&mut self, info: ShapeInfo) -> Arc<ShapeInfo> {
        let info = self.shapes.add(info);
        self.reading.shapes_text_cut += u64::from(info.cut);
        info
    }

    /// The most statements that wait for their command, for tests of the cap.
    #[cfg(test)]
    pub(crate) fn set_max_waiting(&mut self, most: usize) {
        self.max_waiting = most;
    }

    /// The client: from its connection, or only the name that is in the entry.
    fn app(&mut self, fields: &FieldTable, context: &EntryContext<'_>) -> Arc<Application> {
        let name = fields.app.bytes();
        if let Some(app) = context.app
            && (name.is_empty() || app.name.as_bytes() == name)
        {
            return app.clone();
        }
        self.apps.named(fields.app.text()).unwrap_or_else(|| {
            self.reading.apps_folded += 1;
            self.apps.other.clone()
        })
    }

    fn emit(
        &mut self,
        resolved: &Resolved,
        fields: &FieldTable,
        circumstances: &Circumstances,
        sink: &mut impl EntrySink,
    ) {
        let Circumstances { app, end, weight, entries, cursor } = circumstances;
        match resolved.identity {
            Identity::Exact => self.reading.operations_exact += 1,
            Identity::Partial => self.reading.operations_partial += 1,
            Identity::Ambiguous => self.reading.operations_ambiguous += 1,
            Identity::Unsaid => self.reading.operations_unsaid += 1,
        }
        let latency_ns = match (fields.micros, fields.millis) {
            (Some(micros), _) => Some(micros.saturating_mul(1_000)),
            (None, Some(millis)) => Some(millis.saturating_mul(NS_PER_MS)),
            (None, None) => {
                self.reading.operations_untimed += 1;
                None
            }
        };
        let start = Timestamp::from_unix_ns(end.unix_ns().saturating_sub(latency_ns.unwrap_or(0)));
        let code = [(fields.error_code.unwrap_or(0), 1)];
        let affected = match (fields.inserted, fields.deleted, fields.modified) {
            (None, None, None) => fields.upserted,
            (a, b, c) => Some(
                a.unwrap_or(0)
                    .saturating_add(b.unwrap_or(0))
                    .saturating_add(c.unwrap_or(0))
                    .saturating_add(fields.upserted.unwrap_or(0)),
            ),
        };
        let matched = fields
            .matched
            .map(|n| n.saturating_add(fields.upserted.unwrap_or(0)))
            .or(fields.inserted)
            .or(fields.deleted);
        let op = Operation {
            start,
            end: *end,
            latency_ns,
            transfer_ns: None,
            client: endpoint(fields.client.text()).unwrap_or_default(),
            server: Endpoint::default(),
            role: Role::Served,
            class: resolved.class,
            command: resolved.command.unwrap_or(&resolved.shape.command),
            shape: &resolved.shape,
            ordered_id: resolved.ordered,
            statements: &resolved.statements,
            statement_count: resolved.statement_count,
            app,
            opcode: match fields.protocol.bytes() {
                b"op_query" => Opcode::Query,
                b"op_command" => Opcode::Command,
                _ => Opcode::Msg,
            },
            compressor: None,
            request_id: 0,
            cursor_id: cursor.or(fields.cursor).filter(|id| *id != 0),
            request_bytes: 0,
            response_bytes: fields.response_bytes.unwrap_or(0),
            docs_returned: fields.returned,
            docs_matched: matched,
            docs_affected: affected,
            outcome: if fields.failed { Outcome::Failed(ErrorCodes { codes: &code }) } else { Outcome::Ok },
            values: None,
        };
        let other_plans: Vec<&str> = fields.other_plans.iter().map(TextField::text).collect();
        let execution = Execution {
            keys_examined: fields.keys_examined,
            docs_examined: fields.docs_examined,
            plan: fields.plan.text(),
            flags: fields.flags,
            yields: fields.yields,
            write_conflicts: fields.write_conflicts,
            lock_wait_us: fields.lock_wait_us,
            storage_read_bytes: fields.storage_read_bytes,
            storage_read_us: fields.storage_read_us,
            storage_written_bytes: fields.storage_written_bytes,
            storage_write_us: fields.storage_write_us,
            storage_wait_us: fields.storage_wait_us,
            cpu_ns: fields.cpu_ns,
            planning_us: fields.planning_us,
            queued_us: fields.queued_us,
            working_ms: fields.working_ms,
            prepare_read_conflicts: fields.prepare_read_conflicts,
            flow_control_us: fields.flow_control_us,
            remote_wait_us: fields.remote_wait_ms.map(|ms| ms.saturating_mul(1_000)),
            write_concern_us: fields.write_concern_ms.map(|ms| ms.saturating_mul(1_000)),
            spills: fields.spills,
            spilled_bytes: fields.spilled_bytes,
            other_plans: &other_plans,
            query_hash: fields.query_hash.text(),
            query_shape_hash: fields.query_shape_hash.text(),
            weight: *weight,
        };
        sink.operation(&op, resolved.identity, &execution, *entries);
    }

    /// How many operations an entry stands for.
    fn weight_of(&mut self, fields: &FieldTable, context: &EntryContext<'_>) -> u32 {
        let limit = u32::try_from(fields.rate_limit.unwrap_or(1)).unwrap_or(u32::MAX).clamp(1, 1_000_000);
        let own = if self.ignores_rate_limit { 1 } else { limit };
        self.reading.entries_weighted += u64::from(own > 1);
        context.weight.max(1).saturating_mul(own)
    }
}

/// When an entry's operation ended.
fn end_of(fields: &FieldTable, context: &EntryContext<'_>) -> Timestamp {
    match fields.end_ms {
        Some(ms) => Timestamp::from_unix_ns((ms.max(0) as u64).saturating_mul(NS_PER_MS)),
        None => context.end.unwrap_or_default(),
    }
}

/// The id of a cursor for look-ups. Profiles of 3.2 to 4.4 hold it as a double, which loses the last digits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum CursorKey {
    /// The id.
    Exact(i64),
    /// The bits of the double nearest to it.
    Rounded(u64),
}

impl CursorKey {
    fn of(fields: &FieldTable, named: Option<i64>) -> Option<Self> {
        match (fields.cursor, named) {
            (Some(0), _) | (None, Some(0) | None) => None,
            (Some(id), _) if fields.cursor_is_rounded => Some(Self::rounded(id)),
            (Some(id), _) | (None, Some(id)) => Some(Self::Exact(id)),
        }
    }

    fn rounded(id: i64) -> Self {
        Self::Rounded((id as f64).to_bits())
    }
}

/// `10.0.0.9`, `10.0.0.9:51234`, `[::1]:51234` or `::1`; port 0 where there is none.
pub(crate) fn endpoint(text: &str) -> Option<Endpoint> {
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.into());
    }
    if let Ok(ip) = text.parse::<std::net::IpAddr>() {
        return Some(std::net::SocketAddr::new(ip, 0).into());
    }
    // Old servers write IPv6 addresses without brackets.
    let (ip, port) = text.rsplit_once(':')?;
    Some(std::net::SocketAddr::new(ip.parse().ok()?, port.parse().ok()?).into())
}
