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

use super::{Completeness, Entry, Fields, Op, TextField};
use crate::class::{Classes, Facts};
use crate::identity::{
    Applications, CursorOrigin, Cursors, Shapes, base_of, id_in_part, ids_of, info_of, other_shape,
};
use crate::shape::{CommandKind, Rendered, Text};

/// The most statements that wait for their command, over all connections.
pub const MAX_WAITING: usize = 100_000;
const NS_PER_MS: u64 = 1_000_000;

/// Something that an [`Entry`] can be read from, any number of times.
pub trait EntrySource {
    /// What is wrong with it, if something is.
    type Error;
    /// Walks it.
    ///
    /// # Errors
    /// It contradicts itself.
    fn read<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), Self::Error>;
    /// The beginning of a command that was cut, in the shell's syntax. Called after `read`.
    fn cut_command(&self) -> Option<&[u8]> {
        None
    }
    /// Why the entry is incomplete or uncertain, if it is. Called after `read`.
    fn doubt(&self) -> Option<Identity> {
        None
    }
}

/// What is known of an operation beside its entry.
#[derive(Copy, Clone, Debug, Default)]
pub struct Extra<'a> {
    /// Who the client is, where its connection said so.
    pub app: Option<&'a Arc<Application>>,
    /// The client is a server.
    pub from_server: bool,
    /// It came on no client's connection.
    pub internal: bool,
    /// When it ended, where the entry itself does not say.
    pub end: Option<Timestamp>,
    /// Which connection or thread: statements are joined to the next command of the same one. `None`: the
    /// source has no commands around statements, and each is an operation of its own.
    pub thread: Option<u64>,
    /// How many operations the entry stands for, beside what it says itself.
    pub weight: u32,
}

/// Receives operations.
pub trait Sink {
    /// One operation has ended; it was put together from so many `entries`.
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64);
}

use self::join::Queue;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Makes operations of entries; knows the shapes and applications it has met.
pub struct Assembler {
    /// What was read; the counters of entries, files and lines are the caller's.
    pub reading: Reading,
    /// Entries count once whatever their `rateLimit` says: Percona Server 4.4 before 4.4.8-9 writes it and
    /// profiles every operation (<https://perconadev.atlassian.net/browse/PSMDB-876>).
    pub ignores_rate_limit: bool,
    /// Away while an entry is read.
    entry: Option<Box<Entry<()>>>,
    shapes: Shapes,
    apps: Applications,
    other_shape: Arc<ShapeInfo>,
    cursors: Cursors<CursorKey>,
    waiting: Map<u64, Queue>,
    waiting_count: usize,
    /// Places of threads in the order in which their statements began to wait; some wait no more.
    waiting_order: VecDeque<(u64, u64)>,
    /// How many places there have been.
    places: u64,
    /// [`MAX_WAITING`], or less in tests.
    max_waiting: usize,
    /// Whether what the next entry comes to is to be remembered.
    remembers: bool,
    remembered: Option<Known>,
}

impl Default for Assembler {
    fn default() -> Self {
        Self {
            reading: Reading::default(),
            ignores_rate_limit: false,
            entry: None,
            shapes: Shapes::default(),
            apps: Applications::default(),
            other_shape: Arc::new(other_shape()),
            cursors: Cursors::default(),
            waiting: Map::default(),
            waiting_count: 0,
            waiting_order: VecDeque::new(),
            places: 0,
            max_waiting: MAX_WAITING,
            remembers: false,
            remembered: None,
        }
    }
}

/// What entries of one layout come to.
#[derive(Clone, Debug)]
pub struct Known {
    /// Figures and texts of the entry.
    pub fields: Fields,
    resolved: Resolved,
    is_statement: bool,
    over_cap: bool,
    unsaid: bool,
}

/// What an entry comes to, before it is emitted.
#[derive(Clone, Debug)]
struct Resolved {
    shape: Arc<ShapeInfo>,
    ordered: ShapeId,
    identity: Identity,
    statements: Arc<[Statement]>,
    statement_count: u32,
    class: Class,
    kind: CommandKind,
    command: &'static str,
}

impl Resolved {
    fn origin(&self) -> CursorOrigin {
        CursorOrigin {
            shape: self.shape.clone(),
            ordered_id: self.ordered,
            identity: self.identity,
            waits: false,
        }
    }
}

impl Assembler {
    /// Reads one entry and emits the operations that it ends; whether it describes any at all.
    ///
    /// # Errors
    /// Those of `source`; then nothing has been emitted.
    pub fn take<C: EntrySource>(
        &mut self,
        source: &C,
        extra: &Extra<'_>,
        sink: &mut impl Sink,
    ) -> Result<bool, C::Error> {
        let mut entry = self.entry.take().unwrap_or_default();
        entry.reset();
        let walked = source.read(&mut entry);
        let is_told = walked.is_ok() && entry.fields.op.is_some();
        if is_told {
            entry.finish();
            self.taken(source, &mut entry, extra, sink);
        }
        self.entry = Some(entry);
        walked.map(|()| is_told)
    }

    /// As [`take`](Self::take), and what the entry comes to is given back, where any entry of its layout
    /// would come to the same.
    ///
    /// # Errors
    /// Those of `source`; then nothing has been emitted.
    pub fn take_and_remember<C: EntrySource>(
        &mut self,
        source: &C,
        extra: &Extra<'_>,
        sink: &mut impl Sink,
    ) -> Result<(bool, Option<Known>), C::Error> {
        self.remembers = true;
        let resolved = self.take(source, extra, sink);
        self.remembers = false;
        let known = self.remembered.take();
        resolved.map(|resolved| (resolved, known))
    }

    /// Tells of an operation whose entry was recognised. Whether it could be: where it may belong to
    /// statements that were emitted before, use [`Self::take`] instead.
    #[inline]
    pub fn take_known(&mut self, known: &Known, extra: &Extra<'_>, sink: &mut impl Sink) -> bool {
        let Known { fields, resolved, is_statement, over_cap, unsaid } = known;
        if let Some(thread) = extra.thread
            && !is_statement
            && self.waiting_count > 0
            && self.waiting.contains_key(&thread)
        {
            return false;
        }
        let app = self.app(fields, extra);
        let (end, weight) = (end_of(fields, extra), self.weight_of(fields, extra));
        self.reading.shapes_over_cap += u64::from(*over_cap);
        if let Some(key) = CursorKey::of(fields, None) {
            self.cursors.open(key, resolved.origin());
        }
        if *is_statement && let Some(thread) = extra.thread {
            self.wait(thread, resolved, fields, app, end, weight, sink);
            return true;
        }
        self.reading.statements_unsaid += u64::from(*unsaid);
        self.emit(resolved, fields, &app, end, weight, 1, None, sink);
        true
    }

    /// What any entry of the layout of this one comes to; `None` where there is more to it.
    fn known(
        &self,
        entry: &Entry<()>,
        resolved: &Resolved,
        unsaid: bool,
        cursor_named: bool,
    ) -> Option<Known> {
        let is_plain = matches!(resolved.identity, Identity::Exact) || unsaid;
        let is_whole = entry.completeness == Completeness::Whole || resolved.kind == CommandKind::Insert;
        let is_cursors = matches!(resolved.kind, CommandKind::GetMore | CommandKind::KillCursors);
        let is_other = Arc::ptr_eq(&resolved.shape, &self.other_shape);
        (is_plain && is_whole && entry.follows.is_none() && !is_cursors && !is_other && !cursor_named).then(
            || Known {
                fields: entry.fields.clone(),
                resolved: resolved.clone(),
                is_statement: entry.is_statement,
                over_cap: entry.request.builder.over_cap,
                unsaid,
            },
        )
    }

    fn taken<C: EntrySource>(
        &mut self,
        source: &C,
        entry: &mut Entry<()>,
        extra: &Extra<'_>,
        sink: &mut impl Sink,
    ) {
        let resolved = self.resolve(source, entry, extra);
        let app = self.app(&entry.fields, extra);
        let (end, weight) = (end_of(&entry.fields, extra), self.weight_of(&entry.fields, extra));
        let unsaid = !entry.is_statement
            && resolved.kind.has_statements()
            && resolved.identity == Identity::Exact
            && entry.request.builder.statement_count == 0;
        if self.remembers {
            let mut resolved = resolved.clone();
            if unsaid {
                resolved.identity = Identity::Unsaid;
            }
            let cursor_named = entry.used_cursor.is_some() || entry.request.cursor.is_some();
            self.remembered = self.known(entry, &resolved, unsaid, cursor_named);
        }
        if let Some(thread) = extra.thread {
            if entry.is_statement {
                return self.wait(thread, &resolved, &entry.fields, app, end, weight, sink);
            }
            if self.waiting_count > 0 && self.waiting.contains_key(&thread) {
                if matches!(
                    resolved.kind,
                    CommandKind::Update | CommandKind::Delete | CommandKind::BulkWrite | CommandKind::Insert
                ) {
                    return self.join(thread, entry, resolved, &app, end, weight, sink);
                }
                self.release(thread, sink);
            }
        }
        let mut resolved = resolved;
        if unsaid {
            self.reading.statements_unsaid += 1;
            resolved.identity = Identity::Unsaid;
        }
        self.emit(&resolved, &entry.fields, &app, end, weight, 1, entry.request.cursor, sink);
    }

    /// What an entry comes to: shape, ids, class.
    fn resolve<C: EntrySource>(&mut self, source: &C, entry: &mut Entry<()>, extra: &Extra<'_>) -> Resolved {
        let from_server = entry.request.from_server || entry.by_server || extra.from_server;
        let (kind, follows) = (entry.request.kind, entry.follows);
        let is_legacy_internal = entry.request.is_get_last_error();
        // The time of a transaction is that of its operations, which are logged one by one, and of the client.
        let is_of_server = matches!(entry.fields.op, Op::Internal | Op::Transaction);
        let class = {
            let request = &entry.request;
            let facts = Facts {
                kind,
                command: request.command.bytes(),
                database: request.database.bytes(),
                collection: request.collection.bytes(),
            };
            let waits = match (follows, kind) {
                (Some(_), _) => entry.waits || request.opens_waiting_cursor(),
                (None, CommandKind::GetMore) => request.max_time,
                (None, CommandKind::Hello) => request.awaits_topology,
                _ => false,
            };
            match Classes::of(&facts).class(from_server, waits) {
                _ if entry.fields.op == Op::Applied => Class::Replication,
                Class::User if extra.internal || is_legacy_internal || is_of_server => Class::Internal,
                class => class,
            }
        };
        let mut identity = match entry.completeness {
            Completeness::Whole => Identity::Exact,
            Completeness::Most | Completeness::Cut => Identity::Partial,
            Completeness::Nothing if kind == CommandKind::Insert && !entry.withheld => Identity::Exact,
            Completeness::Nothing => Identity::Unsaid,
        };
        if let Some(worse) = source.doubt() {
            // Of these the body has no say in the shape, so it may read as it will.
            let by_name = matches!(kind, CommandKind::Other | CommandKind::Hello | CommandKind::Insert);
            let is_unsaid = entry.fields.op == Op::Applied && entry.fields.namespace.is_empty();
            if !by_name || is_unsaid || entry.request.command.bytes().is_empty() {
                identity = identity.max(worse);
            }
        }
        // A getMore or killCursors whose opener was emitted earlier.
        if matches!(kind, CommandKind::GetMore | CommandKind::KillCursors)
            && follows.is_none()
            && let Some(opener) = entry.request.cursor.or(entry.used_cursor).and_then(|id| {
                let exact = self.cursors.origin(&CursorKey::Exact(id));
                exact.or_else(|| self.cursors.origin(&CursorKey::rounded(id)))
            })
        {
            let CursorOrigin { shape, ordered_id: ordered, identity, .. } = opener.clone();
            let command = if kind == CommandKind::GetMore { "getMore" } else { "killCursors" };
            return Resolved {
                shape,
                ordered,
                identity,
                statements: Arc::default(),
                statement_count: 1,
                class,
                kind,
                command,
            };
        }
        let mut cut = None;
        if entry.completeness == Completeness::Cut
            && let Some(text) = source.cut_command()
        {
            cut = self.read_cut(text, entry);
        }
        let over_cap = entry.request.builder.over_cap;
        self.reading.shapes_over_cap += u64::from(over_cap);
        let statement_count = entry.request.builder.statement_count.max(1);
        let base = base_of(&entry.request);
        let (ids, ()) = ids_of(&mut entry.request);
        let readable = cut.as_ref().map_or(ids.shape, |info| info.id);
        let id = id_in_part(identity, base, readable, entry.fields.query_hash.bytes());
        let ordered = if identity == Identity::Exact { ids.ordered } else { ShapeId(0) };
        let resolved = Resolved {
            shape: self.shape(id, identity, source, cut),
            ordered,
            identity,
            statements: ids.statements,
            statement_count,
            class,
            kind,
            command: follows.unwrap_or(""),
        };
        let opens = !matches!(kind, CommandKind::GetMore | CommandKind::KillCursors);
        if opens && let Some(key) = CursorKey::of(&entry.fields, entry.used_cursor) {
            self.cursors.open(key, resolved.origin());
        }
        resolved
    }

    /// Reads the beginning of a command that was cut, as far as it goes.
    fn read_cut(&mut self, text: &[u8], entry: &Entry<()>) -> Option<ShapeInfo> {
        let mut again = Entry::<Rendered>::default();
        again.fields.op = entry.fields.op;
        again.fields.namespace = entry.fields.namespace.clone();
        crate::syntax::shell::beginning(text, &mut again);
        again.finish();
        if again.request.command.bytes().is_empty() {
            return None;
        }
        let mut info = info_of(&mut again.request);
        info.cut = true;
        Some(info)
    }

    /// The shape of this id; made where it is not known.
    fn shape<C: EntrySource>(
        &mut self,
        id: ShapeId,
        identity: Identity,
        source: &C,
        cut: Option<ShapeInfo>,
    ) -> Arc<ShapeInfo> {
        if let Some(info) = self.shapes.get(id) {
            return info.clone();
        }
        if self.shapes.is_full() {
            self.reading.shapes_folded += 1;
            return self.other_shape.clone();
        }
        let mut info = cut.unwrap_or_else(|| {
            let mut again = Entry::<Rendered>::default();
            let _ = source.read(&mut again);
            again.finish();
            info_of(&mut again.request)
        });
        info.id = id;
        if identity > Identity::Partial {
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

    /// Who the client is: as its connection said, or by the name in the entry alone.
    fn app(&mut self, fields: &Fields, extra: &Extra<'_>) -> Arc<Application> {
        let name = fields.app.bytes();
        if let Some(app) = extra.app
            && (name.is_empty() || app.name.as_bytes() == name)
        {
            return app.clone();
        }
        self.apps.named(fields.app.text()).unwrap_or_else(|| {
            self.reading.apps_folded += 1;
            self.apps.other.clone()
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn emit(
        &mut self,
        resolved: &Resolved,
        fields: &Fields,
        app: &Arc<Application>,
        end: Timestamp,
        weight: u32,
        entries: u64,
        cursor: Option<i64>,
        sink: &mut impl Sink,
    ) {
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
            end,
            latency_ns,
            transfer_ns: None,
            client: endpoint(fields.client.text()).unwrap_or_default(),
            server: Endpoint::default(),
            role: Role::Served,
            class: resolved.class,
            command: if resolved.command.is_empty() { &resolved.shape.command } else { resolved.command },
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
            weight,
        };
        sink.operation(&op, resolved.identity, &execution, entries);
    }

    /// How many operations an entry stands for.
    fn weight_of(&mut self, fields: &Fields, extra: &Extra<'_>) -> u32 {
        let limit = u32::try_from(fields.rate_limit.unwrap_or(1)).unwrap_or(u32::MAX).clamp(1, 1_000_000);
        let own = if self.ignores_rate_limit { 1 } else { limit };
        self.reading.entries_weighted += u64::from(own > 1);
        extra.weight.max(1).saturating_mul(own)
    }
}

/// When an entry's operation ended.
fn end_of(fields: &Fields, extra: &Extra<'_>) -> Timestamp {
    match fields.end_ms {
        Some(ms) => Timestamp::from_unix_ns((ms.max(0) as u64).saturating_mul(NS_PER_MS)),
        None => extra.end.unwrap_or_default(),
    }
}

/// Cursors as they are looked up. 3.2 to 4.4 write them as doubles in profiles, whose last digits are lost.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum CursorKey {
    /// The id.
    Exact(i64),
    /// The bits of the double nearest to it.
    Rounded(u64),
}

impl CursorKey {
    fn of(fields: &Fields, named: Option<i64>) -> Option<Self> {
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

impl Op {
    /// Whether the entry describes an operation at all.
    pub const fn is_some(self) -> bool {
        !matches!(self, Self::None)
    }
}
