//! Assembles operations: turns each entry of a profile or log into an [`Operation`] and its [`Execution`], with the
//! same shape as on the wire, and joins the statements of a write to their command.

mod memory;
mod waiting;

use std::sync::Arc;

use sonar_core::operation::{ErrorCodes, Opcode};
use sonar_core::time::NS_PER_MS;
use sonar_core::{
    Application, Class, Endpoint, Execution, Identity, Operation, Outcome, Reading, Role, ShapeInfo,
    Statement, Timestamp,
};

use self::waiting::{Circumstances, Resolved, WaitingStatement, WaitingStatements};
use super::{EntryContext, FieldTable, ParsedEntry, TextField};
use crate::identity::{Applications, CursorOrigin, Cursors, ShapeTable, join_texts, mixed, other_shape};
use crate::shape::{CommandKind, Rendered};

/// The most statements that wait for their command, over all connections.
pub const MAX_WAITING: usize = 100_000;

/// Receives operations.
pub trait EntrySink {
    /// Takes an operation that ended, and the number of entries that describe it.
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64);
}

/// Drops operations.
impl EntrySink for () {
    fn operation(&mut self, _: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {}
}

/// Turns entries, in order, into operations. Knows the shapes and applications seen so far.
pub struct OperationAssembler {
    /// What was read. The caller counts entries, files and lines.
    pub reading: Reading,
    /// Each entry counts once whatever its `rateLimit`: Percona Server 4.4 before 4.4.8-9 writes it but profiles
    /// every operation (<https://perconadev.atlassian.net/browse/PSMDB-876>).
    pub ignores_rate_limit: bool,
    /// Users and comments are passed on, which clients chose.
    pub shows_values: bool,
    shapes: ShapeTable,
    apps: Applications,
    other_shape: Arc<ShapeInfo>,
    cursors: Cursors<CursorKey>,
    waiting: WaitingStatements,
    /// [`MAX_WAITING`], or less in tests.
    max_waiting: usize,
}

impl Default for OperationAssembler {
    fn default() -> Self {
        Self {
            reading: Reading::default(),
            ignores_rate_limit: false,
            shows_values: false,
            shapes: ShapeTable::default(),
            apps: Applications::default(),
            other_shape: Arc::new(other_shape()),
            cursors: Cursors::default(),
            waiting: WaitingStatements::default(),
            max_waiting: MAX_WAITING,
        }
    }
}

impl OperationAssembler {
    /// Adds the next entry and emits the operations that it ends. `text` reads the entry once more to get the text of
    /// its shape; it is called for new shapes.
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
            user: context.user.cloned(),
            client: endpoint(entry.fields.client.text()).or(context.client).unwrap_or_default(),
            is_from_server: entry.is_from_server || context.from_server,
        };
        if let Some(thread) = context.thread {
            if entry.is_statement {
                let waiting = WaitingStatement { resolved, fields: entry.fields.clone(), circumstances };
                return self.wait(thread, waiting, sink);
            }
            if self.waiting.has(thread) {
                if entry.kind.has_statements() || entry.kind == CommandKind::Insert {
                    let command = WaitingStatement { resolved, fields: entry.fields.clone(), circumstances };
                    return self.join(thread, command, entry, sink);
                }
                self.release(thread, sink);
            }
        }
        if !entry.is_statement && entry.lacks_statements() && resolved.identity == Identity::Exact {
            self.reading.statements_unsaid += 1;
            resolved.identity = Identity::Unknown;
        }
        self.emit(&resolved, &entry.fields, &circumstances, sink);
    }

    /// The shape of an entry: for a getMore or killCursors, that of the command that opened the cursor if it came
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

    /// The shape of an entry; adds it if it is unknown.
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

    /// The client: from its connection, or only the name in the entry.
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

    /// Makes one operation of a command, `entry`, and the statements that wait for it.
    fn join(
        &mut self,
        thread: u64,
        command: WaitingStatement,
        entry: &ParsedEntry,
        sink: &mut impl EntrySink,
    ) {
        let WaitingStatement { mut resolved, mut fields, mut circumstances } = command;
        // Statements that ended before the command began belong to another one, which was not logged.
        let length_ms = fields.millis.unwrap_or(0).saturating_add(1);
        let begin = circumstances.end.unix_ns().saturating_sub(length_ms.saturating_mul(NS_PER_MS));
        let is_insert = resolved.kind == CommandKind::Insert;
        let is_own = |one: &WaitingStatement| {
            let (shape, wanted) = (&one.resolved.shape, &resolved.shape);
            let is_kind = one.resolved.kind == resolved.kind;
            // Statements of a bulkWrite are on several namespaces.
            let is_bulk = is_kind && resolved.kind == CommandKind::BulkWrite;
            let is_statement = is_kind && shape.collection == wanted.collection;
            // An insert into a time series updates its buckets.
            let buckets = shape.collection.strip_prefix("system.buckets.");
            let is_bucket = is_insert && buckets == Some(&*wanted.collection);
            one.circumstances.end.unix_ns() >= begin
                && (is_bulk || shape.database == wanted.database && (is_statement || is_bucket))
        };
        let (own, others): (Vec<_>, Vec<_>) = self.waiting.take(thread).into_iter().partition(is_own);
        self.emit_alone(&others, sink);
        for one in &own {
            if is_insert {
                // The documents are those of the insert, not the buckets that hold them.
                let buckets =
                    FieldTable { matched: None, modified: None, upserted: None, ..one.fields.clone() };
                fields.add(&buckets);
            } else {
                fields.add(&one.fields);
            }
        }
        // The shape of an insert is its namespace, whatever it did to the buckets below.
        match own.as_slice() {
            [] if entry.lacks_statements() => {
                self.reading.statements_unsaid += 1;
                resolved.identity = resolved.identity.max(Identity::Unknown);
            }
            [_, ..] if entry.lacks_statements() => self.put_together(&mut resolved, &own, entry.base),
            _ => {}
        }
        self.reading.statements_joined += own.len() as u64;
        circumstances.entries += own.len() as u64;
        circumstances.cursor = None;
        self.emit(&resolved, &fields, &circumstances, sink);
    }

    /// The shape of a command whose statements were logged one by one, as on the wire.
    fn put_together(&mut self, resolved: &mut Resolved, own: &[WaitingStatement], base: u64) {
        let mut distinct: Vec<(&WaitingStatement, u32)> = Vec::new();
        for one in own {
            match distinct.iter_mut().find(|(known, _)| known.resolved.shape.id == one.resolved.shape.id) {
                Some((_, count)) => *count += 1,
                None => distinct.push((one, 1)),
            }
        }
        resolved.statement_count = own.len() as u32;
        resolved.identity = own.iter().map(|one| one.resolved.identity).max().unwrap_or_default();
        if let [(one, _)] = distinct.as_slice() {
            (resolved.shape, resolved.ordered) = (one.resolved.shape.clone(), one.resolved.ordered);
            let of_all = |kept: &Statement| Statement { count: resolved.statement_count, ..*kept };
            resolved.statements = one.resolved.statements.iter().map(of_all).collect();
            return;
        }
        let statements = distinct.iter().map(|(one, count)| Statement {
            shape: one.resolved.shape.id,
            count: *count,
            // Only the statements of a bulkWrite say it.
            write: one.resolved.statements.first().and_then(|own| own.write),
        });
        let ordered = distinct.iter().map(|(one, _)| one.resolved.ordered.0);
        let ids = mixed(base, statements.collect(), ordered);
        resolved.ordered = ids.ordered;
        resolved.shape = match self.shapes.get(ids.shape) {
            Some(info) => info.clone(),
            None if self.shapes.is_full() => {
                self.reading.shapes_folded += 1;
                self.other_shape.clone()
            }
            None => {
                let rendered = |one: &WaitingStatement| Rendered {
                    typed: one.resolved.shape.typed.to_string(),
                    plain: one.resolved.shape.plain.to_string(),
                    cut: one.resolved.shape.cut,
                };
                let text = join_texts(distinct.iter().map(|(one, _)| rendered(one)).collect());
                let info = ShapeInfo {
                    id: ids.shape,
                    command: resolved.shape.command.clone(),
                    database: resolved.shape.database.clone(),
                    collection: resolved.shape.collection.clone(),
                    typed: text.typed.into(),
                    plain: text.plain.into(),
                    cut: text.cut,
                    statements: ids.statements.iter().map(|one| one.shape).collect(),
                };
                self.keep(info)
            }
        };
        resolved.statements = ids.statements;
    }

    /// Lets a statement wait for its command.
    fn wait(&mut self, thread: u64, statement: WaitingStatement, sink: &mut impl EntrySink) {
        if self.waiting.has_others(thread, &statement) {
            // Their command was not logged.
            self.release(thread, sink);
        }
        while self.waiting.count() >= self.max_waiting {
            let Some(oldest) = self.waiting.take_oldest() else { break };
            self.reading.statements_unjoined += oldest.len() as u64;
            self.emit_alone(&oldest, sink);
        }
        self.waiting.push(thread, statement);
    }

    /// Emits the statements that wait on a thread, each alone: their command did not come.
    fn release(&mut self, thread: u64, sink: &mut impl EntrySink) {
        let waiting = self.waiting.take(thread);
        self.emit_alone(&waiting, sink);
    }

    fn emit_alone(&mut self, statements: &[WaitingStatement], sink: &mut impl EntrySink) {
        for one in statements {
            self.emit(&one.resolved, &one.fields, &one.circumstances, sink);
        }
    }

    /// Emits all that waits: the source has ended.
    pub fn finish(&mut self, sink: &mut impl EntrySink) {
        for thread in self.waiting.threads() {
            self.release(thread, sink);
        }
    }

    /// Emits what waits on a connection, which has ended.
    pub fn end_thread(&mut self, thread: u64, sink: &mut impl EntrySink) {
        if self.waiting.has(thread) {
            self.release(thread, sink);
        }
    }

    fn emit(
        &mut self,
        resolved: &Resolved,
        fields: &FieldTable,
        circumstances: &Circumstances,
        sink: &mut impl EntrySink,
    ) {
        let Circumstances { app, end, weight, entries, cursor, client, .. } = circumstances;
        match resolved.identity {
            Identity::Exact => self.reading.operations_exact += 1,
            Identity::Partial => self.reading.operations_partial += 1,
            Identity::Ambiguous => self.reading.operations_ambiguous += 1,
            Identity::Unknown => self.reading.operations_unsaid += 1,
        }
        let latency_ns = match (fields.micros, fields.millis) {
            (Some(micros), _) => Some(micros.saturating_mul(1_000)),
            (None, Some(millis)) => Some(millis.saturating_mul(NS_PER_MS)),
            (None, None) => {
                self.reading.operations_untimed += 1;
                None
            }
        };
        self.reading.operations_undated += u64::from(!end.is_known());
        let start = end.minus_ns(latency_ns.unwrap_or(0));
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
            client: *client,
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
            tls: None,
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
        let shows_values = self.shows_values;
        let shown = |text| if shows_values { text } else { "" };
        let other_plans: Vec<&str> = fields.other_plans.iter().map(TextField::text).collect();
        let execution = Execution {
            keys_examined: fields.keys_examined,
            docs_examined: fields.docs_examined,
            plan: fields.plan.text(),
            view_of: fields.view_of.text(),
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
            user: shown(circumstances.user.as_deref().unwrap_or(fields.user.text())),
            comment: shown(fields.comment.text()),
            shards: fields.shards,
            is_from_server: circumstances.is_from_server,
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
    fields.end_ms.map(Timestamp::from_unix_ms).or(context.end).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use sonar_core::{Execution, Operation};

    use super::*;
    use crate::log::{LogReader, LogSettings};

    #[derive(Debug, Default)]
    struct SeenTexts(Vec<(String, u64)>);

    impl EntrySink for SeenTexts {
        fn operation(&mut self, op: &Operation<'_>, _: Identity, _: &Execution<'_>, entries: u64) {
            self.0.push((format!("{} {}", op.shape.typed, op.latency_ns.unwrap_or(0) / NS_PER_MS), entries));
        }
    }

    fn statement(connection: u32, ms: u32) -> String {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.100+00:00"}},"s":"I","c":"WRITE","id":51803,"ctx":"conn{connection}","msg":"Slow query","attr":{{"type":"update","ns":"t.d","command":{{"q":{{"_id":1}},"u":{{"$set":{{"a":1}}}},"multi":false,"upsert":false}},"durationMillis":{ms}}}}}"#
        )
    }

    fn command(connection: u32) -> String {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.101+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn{connection}","msg":"Slow query","attr":{{"type":"command","ns":"t.$cmd","command":{{"update":"d","ordered":true,"$db":"t"}},"durationMillis":50}}}}"#
        )
    }

    /// The client of a connection disconnects.
    fn disconnect(connection: u32) -> String {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.101+00:00"}},"s":"I","c":"NETWORK","id":22944,"ctx":"conn{connection}","msg":"Connection ended","attr":{{"remote":"10.0.0.2:40000","connectionId":{connection},"connectionCount":1}}}}"#
        )
    }

    /// Reads lines with a cap of three waiting statements.
    fn read(lines: &[String]) -> (SeenTexts, LogReader) {
        let (mut log, mut seen) = (LogReader::new(LogSettings::default()), SeenTexts::default());
        log.set_max_waiting(3);
        for line in lines {
            log.line(line.as_bytes(), &mut seen);
        }
        log.finish(&mut seen);
        (seen, log)
    }

    #[test]
    fn at_the_cap_the_oldest_statements_stop_waiting_and_each_is_an_operation() {
        let text = "{q: {_id: ?number}, u: {$set: {a: ?number}}}";
        let lines = [
            statement(1, 1),
            statement(2, 2),
            statement(3, 3),
            statement(4, 4),
            command(4),
            command(2),
            command(3),
        ];
        let (seen, log) = read(&lines);
        let expected = [
            (format!("{text} 1"), 1),
            (format!("{text} 50"), 2),
            (format!("{text} 50"), 2),
            (format!("{text} 50"), 2),
        ];
        assert_eq!(seen.0, expected);
        assert_eq!((log.reading().statements_unjoined, log.reading().statements_joined), (1, 3));
    }

    #[test]
    fn a_thread_that_waits_again_goes_to_the_end_of_the_order() {
        let text = "{q: {_id: ?number}, u: {$set: {a: ?number}}}";
        for ends in [command(1), disconnect(1)] {
            let lines = [statement(1, 1), ends, statement(2, 2), statement(3, 3), statement(1, 4)];
            let lines: Vec<String> = lines.into_iter().chain([statement(4, 5), command(1)]).collect();
            let (seen, log) = read(&lines);
            // The third statement emitted is the one that was dropped, or the second if the first was joined.
            let at = seen.0.iter().position(|seen| *seen == (format!("{text} 2"), 1));
            assert_eq!(at, Some(1), "{seen:?}");
            assert_eq!(log.reading().statements_unjoined, 1);
        }
    }

    #[test]
    fn a_bulk_of_more_statements_than_can_wait_is_still_one_command() {
        let mut lines: Vec<String> = (1..=5).map(|ms| statement(1, ms)).collect();
        lines.push(command(1));
        let (seen, log) = read(&lines);
        let entries: Vec<u64> = seen.0.iter().map(|(_, entries)| *entries).collect();
        assert_eq!(entries, [1, 1, 1, 3]);
        assert_eq!((log.reading().statements_unjoined, log.reading().statements_joined), (3, 2));
    }
}
