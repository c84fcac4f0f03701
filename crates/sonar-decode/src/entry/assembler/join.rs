//! Joins statements with the command that held them: logs write the statements of a write one by one, and then the
//! command, and all of them are one operation.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use sonar_core::{Identity, PlanFlags, ShapeInfo, Statement};

use super::{Circumstances, EntrySink, NS_PER_MS, OperationAssembler, Resolved};
use crate::entry::{FieldTable, ParsedEntry};
use crate::identity::{join_texts, mixed};
use crate::shape::{CommandKind, Rendered};

/// A statement that waits for the command that held it, or that command.
#[derive(Clone, Debug)]
pub(super) struct WaitingStatement {
    pub resolved: Resolved,
    pub fields: FieldTable,
    pub circumstances: Circumstances,
}

/// The statements that wait on one thread.
#[derive(Default)]
pub(super) struct StatementQueue {
    /// Its place among the threads; a thread that waits again has a new one.
    place: u64,
    statements: Vec<WaitingStatement>,
}

impl OperationAssembler {
    /// Takes away what waits on a thread.
    fn take_waiting(&mut self, thread: u64) -> Vec<WaitingStatement> {
        let all = self.waiting.remove(&thread).map(|queue| queue.statements).unwrap_or_default();
        self.waiting_count -= all.len();
        all
    }

    /// Whether a thread waits, since it took this place.
    fn holds_place(waiting: &HashMap<u64, StatementQueue, RandomState>, (place, thread): (u64, u64)) -> bool {
        waiting.get(&thread).is_some_and(|queue| queue.place == place)
    }

    /// A statement waits for the command that held it.
    pub(super) fn wait(&mut self, thread: u64, statement: WaitingStatement, sink: &mut impl EntrySink) {
        let (kind, namespace) = (statement.resolved.kind, &statement.fields.namespace);
        let is_of_other =
            |last: &WaitingStatement| last.resolved.kind != kind || last.fields.namespace != *namespace;
        // The command of the statements before was not logged.
        if self.waiting.get(&thread).and_then(|queue| queue.statements.last()).is_some_and(is_of_other) {
            self.release(thread, sink);
        }
        while self.waiting_count >= self.max_waiting {
            // The command of those that have waited longest is the least likely to come.
            let Some(oldest) = self.waiting_order.pop_front() else { break };
            if Self::holds_place(&self.waiting, oldest) {
                let queue = self.waiting.get(&oldest.1);
                self.reading.statements_unjoined += queue.map_or(0, |queue| queue.statements.len() as u64);
                self.release(oldest.1, sink);
            }
        }
        let own = self.waiting.entry(thread).or_default();
        if own.statements.is_empty() {
            self.places += 1;
            own.place = self.places;
            self.waiting_order.push_back((own.place, thread));
        }
        own.statements.push(statement);
        self.waiting_count += 1;
        if self.waiting_order.len() > 2 * self.waiting.len() + 64 {
            let waiting = &self.waiting;
            self.waiting_order.retain(|place| Self::holds_place(waiting, *place));
        }
    }

    /// Makes one operation of a command, `entry`, and the statements that wait for it.
    pub(super) fn join(
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
            let is_statement = one.resolved.kind == resolved.kind && shape.collection == wanted.collection;
            // An insert into a time series updates its buckets.
            let buckets = shape.collection.strip_prefix("system.buckets.");
            let is_bucket = is_insert && buckets == Some(&*wanted.collection);
            one.circumstances.end.unix_ns() >= begin
                && shape.database == wanted.database
                && (is_statement || is_bucket)
        };
        let (own, others): (Vec<_>, Vec<_>) = self.take_waiting(thread).into_iter().partition(is_own);
        for one in &others {
            self.emit_alone(one, sink);
        }
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
        // An insert is its namespace, whatever it did to the buckets below.
        match own.as_slice() {
            [] if entry.lacks_statements() => {
                self.reading.statements_unsaid += 1;
                resolved.identity = resolved.identity.max(Identity::Unsaid);
            }
            [_, ..] if entry.lacks_statements() => self.put_together(&mut resolved, &own, entry.base),
            _ => {}
        }
        self.reading.statements_joined += own.len() as u64;
        circumstances.entries += own.len() as u64;
        circumstances.cursor = None;
        self.emit(&resolved, &fields, &circumstances, sink);
    }

    /// The shape of a command whose statements were logged one by one: as on the wire.
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
            return;
        }
        let statements =
            distinct.iter().map(|(one, count)| Statement { shape: one.resolved.shape.id, count: *count });
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

    /// Emits the statements that wait on a thread: no command of theirs came.
    pub(super) fn release(&mut self, thread: u64, sink: &mut impl EntrySink) {
        for one in self.take_waiting(thread) {
            self.emit_alone(&one, sink);
        }
    }

    fn emit_alone(&mut self, one: &WaitingStatement, sink: &mut impl EntrySink) {
        self.emit(&one.resolved, &one.fields, &one.circumstances, sink);
    }

    /// Emits all that waits: the source has ended.
    pub fn finish(&mut self, sink: &mut impl EntrySink) {
        let mut threads: Vec<_> = self.waiting.keys().copied().collect();
        threads.sort_unstable();
        for thread in threads {
            self.release(thread, sink);
        }
    }

    /// Emits what waits on a connection, which has ended.
    pub fn end_thread(&mut self, thread: u64, sink: &mut impl EntrySink) {
        if self.waiting_count > 0 {
            self.release(thread, sink);
        }
    }
}

impl FieldTable {
    /// Adds what a statement did to what its command did: time is the command's.
    fn add(&mut self, statement: &Self) {
        let pairs = [
            (&mut self.keys_examined, statement.keys_examined),
            (&mut self.docs_examined, statement.docs_examined),
            (&mut self.inserted, statement.inserted),
            (&mut self.deleted, statement.deleted),
            (&mut self.matched, statement.matched),
            (&mut self.modified, statement.modified),
            (&mut self.upserted, statement.upserted),
            (&mut self.yields, statement.yields),
            (&mut self.write_conflicts, statement.write_conflicts),
            (&mut self.storage_read_bytes, statement.storage_read_bytes),
            (&mut self.storage_read_us, statement.storage_read_us),
            (&mut self.storage_written_bytes, statement.storage_written_bytes),
            (&mut self.storage_write_us, statement.storage_write_us),
            (&mut self.storage_wait_us, statement.storage_wait_us),
            (&mut self.prepare_read_conflicts, statement.prepare_read_conflicts),
            (&mut self.spills, statement.spills),
            (&mut self.spilled_bytes, statement.spilled_bytes),
        ];
        for (sum, more) in pairs {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
        // Locks are counted over the whole command where it mentions them at all.
        self.lock_wait_us = self.lock_wait_us.max(statement.lock_wait_us);
        if self.plan.is_empty() {
            self.plan.set(statement.plan.bytes());
        } else if !statement.plan.is_empty()
            && self.plan != statement.plan
            && !self.other_plans.contains(&statement.plan)
            && self.other_plans.len() < sonar_core::figures::MAX_PLANS
        {
            self.other_plans.push(statement.plan.clone());
        }
        if self.query_hash.is_empty() {
            self.query_hash.set(statement.query_hash.bytes());
        }
        let (mine, theirs) = (self.flags, statement.flags);
        self.flags = PlanFlags {
            collection_scan: mine.collection_scan | theirs.collection_scan,
            memory_sort: mine.memory_sort | theirs.memory_sort,
            used_disk: mine.used_disk | theirs.used_disk,
            multi_planner: mine.multi_planner | theirs.multi_planner,
            replanned: mine.replanned | theirs.replanned,
        };
        if statement.failed {
            self.failed = true;
            self.error_code = self.error_code.or(statement.error_code);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sonar_core::{Class, Execution, Operation, ShapeId, Timestamp};

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

    /// The client of a connection has gone.
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
    fn at_the_cap_the_oldest_statements_stop_waiting_and_none_becomes_a_command() {
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
    fn a_thread_that_waits_again_has_waited_no_longer_than_the_others() {
        let text = "{q: {_id: ?number}, u: {$set: {a: ?number}}}";
        for ends in [command(1), disconnect(1)] {
            let lines = [statement(1, 1), ends, statement(2, 2), statement(3, 3), statement(1, 4)];
            let lines: Vec<String> = lines.into_iter().chain([statement(4, 5), command(1)]).collect();
            let (seen, log) = read(&lines);
            // The third that is reported is the one that gave way, or the second where the first was joined.
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

    #[test]
    fn the_order_of_threads_does_not_grow() {
        let mut assembler = OperationAssembler::default();
        let resolved = Resolved {
            shape: Arc::default(),
            ordered: ShapeId::default(),
            identity: Identity::Exact,
            statements: Arc::default(),
            statement_count: 1,
            class: Class::User,
            kind: CommandKind::Update,
            command: None,
        };
        let circumstances = Circumstances {
            app: Arc::default(),
            end: Timestamp::default(),
            weight: 1,
            entries: 1,
            cursor: None,
        };
        let statement = WaitingStatement { resolved, fields: FieldTable::default(), circumstances };
        for thread in 0..10_000 {
            assembler.wait(thread, statement.clone(), &mut SeenTexts::default());
            assembler.end_thread(thread, &mut SeenTexts::default());
        }
        assert!(assembler.waiting_order.len() <= 66, "{}", assembler.waiting_order.len());
    }
}
