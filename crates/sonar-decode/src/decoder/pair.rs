//! Which reply answers which request? Keeps the requests that wait, pairs replies with them, also replies
//! that come first, follows chains of replies and the getLastError behind a write, gives up what is never
//! answered, and reports the operation.
//!
//! What stands in a request or a reply has been read before.
//!
//! A server answers the requests of one connection in order. So once a later request is answered, or a gap
//! lies where a reply should be, the requests before are no longer in flight: they are *passed*. Their
//! replies were lost, unless the server, or a proxy, answers out of order. So a passed request can still
//! be answered for [`PASSED_NS`], and then ends with an unknown outcome.

use std::sync::Arc;

use sonar_core::operation::{Compressor, ErrorCodes, Opcode};
use sonar_core::{Class, Endpoint, Identity, Operation, Outcome, ShapeId, ShapeInfo, Statement, Timestamp};

use super::connection::Connection;
use super::request::ReadRequest;
use super::{Core, Handler, Sink, role_of};
use crate::identity::CursorOrigin;
use crate::message::{Header, Reply};
use crate::shape::CommandKind;
use crate::tcp::{Flow, Side};

/// How long a request waits for its answer before it counts as never answered.
pub const UNANSWERED_NS: u64 = 3_600_000_000_000;

/// How long the reply to a request that was passed may still come.
pub const PASSED_NS: u64 = 1_000_000_000;

/// The most requests of one connection that wait for an answer; beyond it the oldest is given up.
pub const MAX_PENDING: usize = 1_024;
/// Memory of all requests, over all connections, that wait for an answer, in bytes: some 300,000 requests.
pub const PENDING_BUDGET: usize = 64 << 20;

/// The most replies of one connection that wait for their request; beyond it the oldest is given up.
pub const MAX_EARLY: usize = 8;
/// The most replies, over all connections, that wait for their request.
pub const MAX_ALL_EARLY: usize = 16_384;

/// How long a reply waits for its request.
pub const EARLY_NS: u64 = 200_000_000;

/// What a message says, without its bytes.
#[derive(Debug)]
pub struct Pending {
    /// In the order of arrival, wrapping; 0 until it waits.
    pub number: u32,
    /// What the reply's `responseTo` will be.
    pub request_id: u32,
    /// The id that the client gave; differs from the above in an exhaust chain.
    pub own_id: u32,
    /// Last byte of the request.
    pub start: Timestamp,
    pub shape: Arc<ShapeInfo>,
    pub ordered_id: ShapeId,
    pub statements: Arc<[Statement]>,
    pub statement_count: u32,
    pub class: Class,
    pub kind: CommandKind,
    /// The command as sent, where it differs from the shape's.
    pub command: Option<&'static str>,
    pub opcode: Opcode,
    pub compressor: Option<Compressor>,
    pub cursor: Option<i64>,
    pub bytes: u32,
    /// An OP_QUERY that is a find, whose reply has the documents themselves.
    pub legacy_find: bool,
    /// The cursor it opens, if it does, waits on purpose.
    pub opens_waiting: bool,
    /// Found while looking for a header: believed once it is answered.
    pub provisional: bool,
    /// A further reply of an exhaust chain.
    pub follows: bool,
    /// Sent before the capture began: how long it took is not known.
    pub joined_late: bool,
    /// When it became known that its reply should have come before.
    pub passed: Option<Timestamp>,
    /// Wants a chain of replies (legacy exhaust).
    pub exhaust: bool,
    /// Is a getLastError: the legacy write that its reply answers too.
    pub answers: Option<Box<Pending>>,
    pub values: Option<Box<str>>,
}

/// A reply that came before its request.
#[derive(Debug)]
pub struct Early {
    /// In the order of arrival, wrapping.
    pub number: u32,
    pub header: Header,
    pub reply: Box<Reply>,
    pub arrival: Arrival,
    /// Its request may have been sent before the capture began.
    pub joined_late: bool,
}

impl Early {
    /// Whether `next` is the reply that follows this one in an exhaust chain.
    fn is_answered_by(&self, next: &Self) -> bool {
        let legacy = self.reply.is_legacy() && self.reply.cursor.is_some_and(|id| id != 0);
        let continues = !self.arrival.whole || self.reply.more_to_come || legacy;
        continues && self.header.request_id == next.header.response_to
    }
}

/// When and how a reply came.
#[derive(Copy, Clone, Debug)]
pub struct Arrival {
    /// First byte.
    pub first: Timestamp,
    /// Last byte.
    pub last: Timestamp,
    pub compressor: Option<Compressor>,
    /// All of it could be read.
    pub whole: bool,
}

impl Pending {
    /// Memory that it takes, in bytes, with the write that it answers.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.statements)
            + self.values.as_ref().map_or(0, |values| values.len())
            + self.answers.as_ref().map_or(0, |write| write.bytes_held())
    }
}

/// Why a request is no longer waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Its connection ended, or it waited for too long.
    Unanswered,
    /// The capture ended.
    InFlight,
    /// Too many were waiting.
    Evicted,
}

impl<S: Sink> Handler<'_, S> {
    /// A request has been read.
    pub(super) fn ask(&mut self, flow: &Flow, conn: &mut Connection, asked: ReadRequest, time: Timestamp) {
        self.core.coverage.requests += 1;
        let ReadRequest { mut pending, unacknowledged, legacy_write, get_last_error } = asked;
        if conn.assumes_chain && !pending.provisional {
            self.end_chains(conn);
        }
        if get_last_error && !pending.provisional && !unacknowledged {
            pending.answers = conn.legacy_write.take();
        }
        self.end_legacy_write(flow, conn, time);
        if legacy_write && !pending.provisional {
            conn.legacy_write = Some(Box::new(pending));
            return;
        }
        if unacknowledged {
            if pending.provisional {
                self.core.coverage.requests_discarded += 1;
            } else {
                self.core.coverage.requests_unacknowledged += 1;
                let outcome = Outcome::Unacknowledged;
                self.emit(flow, conn, &pending, time, ReplyFacts { outcome, ..ReplyFacts::default() });
            }
            return;
        }
        if conn.pending.len() >= MAX_PENDING {
            self.evict(flow, conn, 0, time);
        }
        let id = pending.request_id;
        if let Some(before) = conn.pending.back_mut().filter(|before| before.request_id == id) {
            // A client that uses one id for all its requests waits for each reply before it sends the next.
            before.passed.get_or_insert(time);
        }
        pending.number = self.core.next_arrival();
        self.core.pending_bytes += pending.bytes_held();
        conn.pending.push_back(pending);
        if let Some(at) = conn.early.iter().position(|early| early.header.response_to == id) {
            let mut early = conn.early.remove(at);
            self.core.early -= 1;
            self.answer(flow, conn, early.header, &mut early.reply, early.arrival);
        }
    }

    /// A reply has come; `reply` says what could be read of it.
    pub(super) fn answer(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        header: Header,
        reply: &mut Reply,
        arrival: Arrival,
    ) {
        let Some(mut at) = conn.waiting_for(header.response_to) else {
            let joined_late = conn.joined_late && !conn.paired;
            let (number, reply) = (self.core.next_arrival(), Box::new(reply.clone()));
            let early = Early { number, header, reply, arrival, joined_late };
            return self.unmatched(flow, conn, early);
        };
        if at > 0 {
            at = self.pass(flow, conn, at, arrival.first);
        }
        let Some(pending) = conn.pending.remove(at) else { return };
        self.core.pending_bytes -= pending.bytes_held();
        conn.give_back_room();
        for half in &mut conn.halves {
            half.provisional = false;
        }
        conn.paired |= !pending.follows;
        if conn.request_gap.is_some_and(|gap| gap <= pending.start) {
            conn.request_gap = None;
        }
        if let Some(next) = self.complete(flow, conn, pending, (header, reply, arrival)) {
            self.core.pending_bytes += next.bytes_held();
            conn.pending.insert(at, next);
        }
    }

    /// Ends an operation with its reply. Returns what waits for the next reply, where one follows.
    pub(super) fn complete(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        mut pending: Pending,
        (header, reply, arrival): (Header, &Reply, Arrival),
    ) -> Option<Pending> {
        pending.provisional = false;
        let server = conn.server.unwrap_or(Side::Low);
        let server_end = flow.ends[server.index()];
        if pending.follows {
            self.core.coverage.replies_exhaust += 1;
        } else {
            self.core.coverage.replies_paired += 1;
            if pending.answers.is_some() {
                self.core.coverage.requests_folded += 1;
            } else {
                self.core.coverage.requests_answered += 1;
            }
        }
        let mut codes: Vec<(i32, u32)> = Vec::new();
        let facts = self.core.facts_of(&pending, reply, &arrival, &mut codes);
        let known = !pending.joined_late && arrival.first >= pending.start;
        let facts = ReplyFacts {
            latency: known.then(|| arrival.first.since(pending.start)),
            transfer: Some(arrival.last.since(arrival.first)),
            response_bytes: u64::from(header.length),
            compressor: arrival.compressor,
            outcome: if codes.is_empty() {
                facts.outcome
            } else {
                Outcome::Failed(ErrorCodes { codes: &codes })
            },
            ..facts
        };
        self.core.coverage.documents_unknown += u64::from(!arrival.whole);
        self.core.note_cursor(server_end, &pending, reply, &arrival);
        if let Some(write) = &pending.answers {
            self.core.coverage.requests_answered += 1;
            // The `n` of getLastError is 0 after an insert, however many were inserted.
            let n = if write.kind == CommandKind::Insert { None } else { reply.n };
            // The server is at work from the write on, not from the getLastError on.
            let latency = (arrival.first >= write.start).then(|| arrival.first.since(write.start));
            let facts = ReplyFacts { affected: n, matched: n, latency, ..facts };
            self.emit(flow, conn, write, arrival.first, facts);
        } else {
            self.emit(flow, conn, &pending, arrival.first, facts);
        }
        let chain = if arrival.whole {
            reply.more_to_come || (pending.exhaust && reply.cursor.is_some_and(|id| id != 0))
        } else {
            // It does not say. If none follows, nothing is lost by waiting for it.
            let may_chain =
                pending.follows || matches!(pending.kind, CommandKind::GetMore | CommandKind::Hello);
            // No client that waits for a chain sends requests meanwhile.
            may_chain && !conn.pending.iter().any(|other| !other.follows && other.passed.is_none())
        };
        conn.assumes_chain = chain && !arrival.whole;
        chain.then(|| Pending {
            number: self.core.next_arrival(),
            request_id: header.request_id,
            start: arrival.last,
            class: if pending.class == Class::Replication { Class::Replication } else { Class::Waiting },
            follows: true,
            joined_late: false,
            passed: None,
            answers: None,
            bytes: 0,
            cursor: pending.cursor.or(reply.cursor),
            ..pending
        })
    }

    /// A reply whose request is not known. It may come yet; or the reply is one of a chain that began
    /// before the capture.
    fn unmatched(&mut self, flow: &Flow, conn: &mut Connection, reply: Early) {
        let before = conn.early.iter().position(|before| before.is_answered_by(&reply));
        if let Some(at) = before {
            let before = conn.early.remove(at);
            self.core.early -= 1;
            self.adopt(flow, conn, before);
            let mut reply = reply;
            if conn.waiting_for(reply.header.response_to).is_some() {
                self.answer(flow, conn, reply.header, &mut reply.reply, reply.arrival);
            } else {
                // The one before was the last of its chain.
                self.give_up_reply(flow, conn, reply);
            }
            return;
        }
        if conn.early.len() >= MAX_EARLY {
            let oldest = conn.early.remove(0);
            self.core.early -= 1;
            self.give_up_reply(flow, conn, oldest);
        }
        self.core.early += 1;
        conn.early.push(reply);
    }

    /// The request of this reply will not come any more. The reply has left the table.
    pub(super) fn give_up_reply(&mut self, flow: &Flow, conn: &mut Connection, reply: Early) {
        if reply.arrival.whole && reply.reply.more_to_come {
            self.adopt(flow, conn, reply);
        } else if reply.joined_late {
            self.core.coverage.replies_joined_late += 1;
        } else {
            self.core.coverage.replies_orphan += 1;
        }
    }

    /// The request at `at` is answered: those before it are passed, and given up where they were passed
    /// before this one was sent. Returns where the request is then.
    #[cold]
    fn pass(&mut self, flow: &Flow, conn: &mut Connection, at: usize, time: Timestamp) -> usize {
        let Some(sent) = conn.pending.get(at).map(|pending| pending.start) else { return at };
        let mut kept = 0;
        for _ in 0..at {
            let before = &mut conn.pending[kept];
            if before.passed.is_some_and(|passed| passed < sent) {
                if let Some(lost) = conn.pending.remove(kept) {
                    self.core.pending_bytes -= lost.bytes_held();
                    self.give_up(flow, conn, lost, (time, Ending::Unanswered));
                }
            } else {
                before.passed.get_or_insert(time);
                kept += 1;
            }
        }
        kept
    }

    /// Bytes of the server that were not captured began a reply, and the other end had them at `time`: the
    /// oldest request has been answered, if it was sent before, and not before `from`.
    pub(super) fn reply_in_gap(&mut self, conn: &mut Connection, from: Timestamp, time: Timestamp) {
        // A request that was not captured either may be the one that was answered.
        if conn.request_gap.is_some() {
            return;
        }
        let is_assumed = |pending: &Pending| pending.follows && conn.assumes_chain;
        let oldest = conn.pending.iter_mut().find(|of| of.passed.is_none() && !is_assumed(of));
        if let Some(oldest) = oldest.filter(|oldest| !oldest.follows && (from..time).contains(&oldest.start))
        {
            oldest.passed = Some(time);
        }
    }

    /// What is waited for as the next reply of a chain is waited for no longer.
    pub(super) fn end_chains(&mut self, conn: &mut Connection) {
        conn.assumes_chain = false;
        conn.pending.retain(|pending| {
            self.core.pending_bytes -= if pending.follows { pending.bytes_held() } else { 0 };
            !pending.follows
        });
    }

    /// Makes room on a connection: the request at `at` goes.
    pub(super) fn evict(&mut self, flow: &Flow, conn: &mut Connection, at: usize, time: Timestamp) {
        if let Some(evicted) = conn.pending.remove(at) {
            self.core.pending_bytes -= evicted.bytes_held();
            self.give_up(flow, conn, evicted, (time, Ending::Evicted));
        }
    }

    /// A request that has left the table and of which no answer will be seen.
    pub(super) fn give_up(
        &mut self,
        flow: &Flow,
        conn: &Connection,
        pending: Pending,
        (time, ending): (Timestamp, Ending),
    ) {
        if pending.follows {
            return;
        }
        if pending.provisional && (ending != Ending::InFlight || pending.passed.is_some()) {
            self.core.coverage.requests_discarded += 1;
            return;
        }
        // Of a write and its getLastError it is the write that counts.
        self.core.coverage.requests_folded += u64::from(pending.answers.is_some());
        let coverage = &mut self.core.coverage;
        let (counter, outcome) = match ending {
            _ if pending.passed.is_some() => (&mut coverage.requests_reply_lost, Outcome::Unknown),
            Ending::Evicted => (&mut coverage.requests_evicted, Outcome::Unknown),
            Ending::InFlight => (&mut coverage.requests_in_flight, Outcome::InFlight),
            Ending::Unanswered => (&mut coverage.requests_unanswered, Outcome::Unanswered),
        };
        *counter += 1;
        let waited = pending.answers.as_deref().unwrap_or(&pending);
        self.emit(flow, conn, waited, time, ReplyFacts { outcome, ..ReplyFacts::default() });
    }

    /// Gives up what has waited too long on one connection.
    pub(super) fn expire(&mut self, flow: &Flow, conn: &mut Connection, now: Timestamp) {
        while conn.early.first().is_some_and(|early| now.since(early.arrival.first) >= EARLY_NS) {
            let early = conn.early.remove(0);
            self.core.early -= 1;
            self.give_up_reply(flow, conn, early);
        }
        let is_over = |pending: &Pending| match pending.passed {
            Some(passed) => now.since(passed) >= PASSED_NS,
            None => now.since(pending.start) > UNANSWERED_NS,
        };
        let mut at = 0;
        while let Some(pending) = conn.pending.get(at) {
            if !is_over(pending) {
                at += 1;
            } else if let Some(pending) = conn.pending.remove(at) {
                self.core.pending_bytes -= pending.bytes_held();
                self.give_up(flow, conn, pending, (now, Ending::Unanswered));
            }
        }
        if conn.legacy_write.as_ref().is_some_and(|write| now.since(write.start) > 1_000_000_000) {
            self.end_legacy_write(flow, conn, now);
        }
    }

    /// A legacy write that no getLastError followed.
    pub(super) fn end_legacy_write(&mut self, flow: &Flow, conn: &mut Connection, time: Timestamp) {
        if let Some(pending) = conn.legacy_write.take() {
            self.core.coverage.requests_unacknowledged += 1;
            let facts = ReplyFacts { outcome: Outcome::Unacknowledged, ..ReplyFacts::default() };
            self.emit(flow, conn, &pending, time.max(pending.start), facts);
        }
    }

    fn emit(
        &mut self,
        flow: &Flow,
        conn: &Connection,
        pending: &Pending,
        end: Timestamp,
        facts: ReplyFacts<'_>,
    ) {
        let server = conn.server.unwrap_or(Side::Low);
        self.core.coverage.apps_folded += u64::from(Arc::ptr_eq(&conn.app, &self.core.apps.other));
        let op = Operation {
            start: pending.start,
            end: end.max(pending.start),
            latency_ns: facts.latency,
            transfer_ns: facts.transfer,
            client: flow.ends[server.other().index()],
            server: flow.ends[server.index()],
            role: role_of(conn),
            class: pending.class,
            command: pending.command.unwrap_or(&pending.shape.command),
            shape: &pending.shape,
            ordered_id: pending.ordered_id,
            statements: &pending.statements,
            statement_count: pending.statement_count,
            app: &conn.app,
            opcode: pending.opcode,
            compressor: pending.compressor.or(facts.compressor),
            request_id: pending.own_id,
            cursor_id: pending.cursor.or(facts.cursor),
            request_bytes: u64::from(pending.bytes),
            response_bytes: facts.response_bytes,
            docs_returned: facts.returned,
            docs_matched: facts.matched,
            docs_affected: facts.affected,
            outcome: facts.outcome,
            values: pending.values.as_deref(),
        };
        self.sink.operation(&op);
    }
}

/// What a reply says about its operation.
#[derive(Copy, Clone)]
struct ReplyFacts<'a> {
    outcome: Outcome<'a>,
    latency: Option<u64>,
    transfer: Option<u64>,
    response_bytes: u64,
    compressor: Option<Compressor>,
    cursor: Option<i64>,
    returned: Option<u64>,
    matched: Option<u64>,
    affected: Option<u64>,
}

impl Default for ReplyFacts<'_> {
    fn default() -> Self {
        Self {
            outcome: Outcome::Unknown,
            latency: None,
            transfer: None,
            response_bytes: 0,
            compressor: None,
            cursor: None,
            returned: None,
            matched: None,
            affected: None,
        }
    }
}

impl Core {
    /// Reads outcome, documents and cursor out of a reply.
    fn facts_of<'a>(
        &self,
        pending: &Pending,
        reply: &Reply,
        arrival: &Arrival,
        codes: &mut Vec<(i32, u32)>,
    ) -> ReplyFacts<'a> {
        let mut facts = ReplyFacts { outcome: Outcome::Ok, ..ReplyFacts::default() };
        if !arrival.whole {
            facts.outcome = Outcome::Unknown;
            return facts;
        }
        if pending.legacy_find {
            if reply.cursor_not_found {
                codes.push((43, 1));
            } else if reply.query_failure {
                codes.push((reply.code.unwrap_or(0), 1));
            } else {
                facts.returned = reply.returned;
            }
            facts.cursor = reply.cursor.filter(|id| *id != 0);
            return facts;
        }
        codes.extend_from_slice(&reply.codes);
        if reply.ok == Some(false) || (reply.has_err && (pending.answers.is_some() || reply.ok != Some(true)))
        {
            codes.push((reply.code.unwrap_or(0), 1));
        }
        if reply.ok.is_none() && codes.is_empty() {
            facts.outcome = Outcome::Unknown;
        }
        facts.cursor = reply.cursor.filter(|id| *id != 0);
        facts.returned = match pending.kind {
            CommandKind::FindAndModify => reply.value.map(u64::from),
            _ => reply.documents,
        };
        facts.matched = reply.n;
        facts.affected = match pending.kind {
            CommandKind::Update => reply.modified.map(|n| n.saturating_add(reply.upserted)).or(reply.n),
            CommandKind::Insert | CommandKind::Delete => reply.n,
            CommandKind::FindAndModify => reply.last_error_n,
            CommandKind::BulkWrite => reply.bulk,
            _ => None,
        };
        facts
    }

    /// Remembers or forgets the cursor that a reply speaks of.
    fn note_cursor(&mut self, server: Endpoint, pending: &Pending, reply: &Reply, arrival: &Arrival) {
        if !arrival.whole {
            return;
        }
        match (pending.kind, reply.cursor, pending.cursor) {
            (CommandKind::GetMore, Some(0), Some(id)) => self.shared.close_cursor(server, id),
            (CommandKind::GetMore, ..) | (_, None | Some(0), _) => {}
            (_, Some(id), _) => {
                let origin = CursorOrigin {
                    shape: pending.shape.clone(),
                    ordered_id: pending.ordered_id,
                    identity: Identity::Exact,
                    waits: pending.opens_waiting,
                };
                self.coverage.cursors_evicted += self.shared.open_cursor(server, id, origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use crate::decoder::collected::{collect, message};
    use crate::testing::{Conversation, End};

    /// 466,000 of them fit into the budget.
    #[test]
    fn a_waiting_request_is_small() {
        assert!(size_of::<super::Pending>() <= 144, "{}", size_of::<super::Pending>());
    }

    fn find(collection: &str) -> Document {
        doc! {"find": collection, "filter": {"a": 1}, "$db": "shop"}
    }

    fn talk(client: &str) -> Conversation {
        let mut talk = Conversation::new(client, "10.0.0.1:27017");
        talk.handshake();
        talk
    }

    /// Two requests, of which the second is not answered.
    fn half_answered(client: &str) -> Conversation {
        let mut talk = talk(client);
        talk.send(End::Client, &message(1, 0, &find("quick")))
            .send(End::Client, &message(2, 0, &find("slow")))
            .send(End::Server, &message(100, 1, &doc! {"ok": 1.0}));
        talk
    }

    #[test]
    fn what_the_end_of_the_capture_finds_open_is_in_flight_and_not_unanswered() {
        let seen = collect(&half_answered("10.0.0.2:40000").packets);
        assert_eq!(
            seen.operations,
            [(1, "find".into(), "ok"), (2, "find".into(), "in_flight")],
            "it is reported, so that it can be seen"
        );
        let coverage = seen.coverage;
        assert_eq!(
            (coverage.requests, coverage.requests_answered, coverage.requests_in_flight),
            (2, 1, 1),
            "{coverage:?}"
        );
        assert_eq!(coverage.requests_unanswered, 0);
        let totals = seen.window.totals(&sonar_core::Class::ALL);
        assert_eq!((totals.calls, totals.unanswered), (1, 0), "no call: it has not ended");
    }

    #[test]
    fn what_the_end_of_its_connection_finds_open_is_unanswered() {
        for reset in [false, true] {
            let mut talk = half_answered("10.0.0.2:40000");
            let _ = if reset { talk.reset(End::Server) } else { talk.close() };
            let seen = collect(&talk.packets);
            assert_eq!(seen.operations[1], (2, "find".into(), "unanswered"));
            assert_eq!((seen.coverage.requests_unanswered, seen.coverage.requests_in_flight), (1, 0));
            assert_eq!(seen.window.totals(&sonar_core::Class::ALL).unanswered, 1);
        }
    }

    #[test]
    fn a_reply_answers_its_request_in_any_order_and_also_when_it_is_seen_first() {
        let mut talk = talk("10.0.0.2:40000");
        let before = talk.packets.len();
        talk.send(End::Client, &message(1, 0, &find("a"))).send(End::Client, &message(2, 0, &find("b")));
        talk.send(End::Server, &message(100, 2, &doc! {"ok": 1.0}));
        talk.send(End::Server, &message(101, 1, &doc! {"ok": 0.0, "code": 50}));
        let seen = collect(&talk.packets);
        assert_eq!(seen.operations, [(2, "find".into(), "ok"), (1, "find".into(), "failed")]);
        // The two directions are captured by two queues, and the reply's is read first.
        talk.packets[before..].rotate_right(2);
        let seen = collect(&talk.packets);
        let mut told = seen.operations;
        told.sort();
        assert_eq!(told, [(1, "find".into(), "failed"), (2, "find".into(), "ok")]);
        assert_eq!((seen.coverage.replies_paired, seen.coverage.replies_orphan), (2, 0));
    }
}
