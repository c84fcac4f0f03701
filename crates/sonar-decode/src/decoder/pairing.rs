//! Which reply answers which request? Keeps the requests that wait and pairs replies with them, including replies
//! that come first. Follows chains of replies and the getLastError after a write, and gives up what is never
//! answered.
//!
//! A server answers the requests of one connection in order. So once a later request is answered, or a gap is where a
//! reply should be, the earlier requests are no longer in flight: they are *passed*. Their replies were lost, unless
//! the server or a proxy answers out of order. So a passed request can still be answered for [`PASSED_NS`], and then
//! ends with an unknown outcome.

use sonar_core::{Class, Coverage, Outcome, Timestamp};

use super::caps::Arrivals;
use super::exchange::{Answer, Early, EndedOperation, Exchange, Pending, ReplyFacts, ReplyPath};
use super::request::SentRequest;
use crate::shape::CommandKind;

/// How long a request waits for its answer before it counts as never answered.
pub const UNANSWERED_NS: u64 = 3_600_000_000_000;

/// How long the reply to a request that was passed may still come.
pub const PASSED_NS: u64 = 1_000_000_000;

/// How long a legacy write waits for its getLastError.
pub const LEGACY_WRITE_NS: u64 = 1_000_000_000;

/// The most requests of one connection that wait for an answer; beyond it the oldest is given up.
pub const MAX_PENDING: usize = 1_024;
/// Memory of all requests, over all connections, that wait for an answer, in bytes: some 400,000 requests.
pub const PENDING_BUDGET: usize = 64 << 20;

/// The most replies of one connection that wait for their request; beyond it the oldest is given up.
pub const MAX_EARLY: usize = 8;
/// The most replies, over all connections, that wait for their request.
pub const MAX_ALL_EARLY: usize = 16_384;

/// How long a reply waits for its request.
pub const EARLY_NS: u64 = 200_000_000;

/// Why a request is no longer waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// Its connection ended, or it waited for too long.
    Unanswered,
    /// The capture ended.
    InFlight,
    /// Too many were waiting.
    Evicted,
}

/// Pairs replies with requests. Operations that end are appended to the `ended` that each call takes.
#[derive(Default)]
pub struct Pairing {
    /// Counters of requests and replies.
    pub coverage: Coverage,
    /// Memory of all requests that wait for an answer, in bytes.
    pub(super) pending_bytes: usize,
    /// Replies that wait for their request.
    pub(super) early: usize,
    /// Numbers the requests and replies that wait.
    pub(super) arrivals: Arrivals,
}

impl Pairing {
    /// Other stages follow a connection from now on on which this waits.
    pub fn hand_over(&mut self, exchange: &Exchange) {
        self.pending_bytes -= exchange.pending.iter().map(Pending::bytes_held).sum::<usize>();
        self.early -= exchange.early.len();
    }

    /// Follows a connection from now on on which this waits.
    pub fn take_over(&mut self, exchange: &Exchange) {
        self.pending_bytes += exchange.pending.iter().map(Pending::bytes_held).sum::<usize>();
        self.early += exchange.early.len();
    }

    /// Takes a request. Returns whether its reply had come before.
    pub fn ask(
        &mut self,
        exchange: &mut Exchange,
        mut asked: SentRequest,
        ended: &mut Vec<EndedOperation>,
    ) -> bool {
        self.coverage.requests += 1;
        let SentRequest { unacknowledged, legacy_write, get_last_error, ref mut request } = asked;
        let (time, id) = (request.start, request.request_id);
        if exchange.assumes_chain && !request.provisional {
            self.end_chains(exchange);
        }
        if get_last_error && !request.provisional && !unacknowledged {
            request.answers = exchange.legacy_write.take();
        }
        if request.may_be_last_error {
            self.lose_legacy_write(exchange, time, ended);
        } else if exchange.legacy_write.is_some() {
            self.end_legacy_write(exchange, time, ended);
        }
        if legacy_write && !request.provisional {
            exchange.legacy_write = Some(Box::new(asked.request));
            return false;
        }
        if unacknowledged {
            if request.provisional {
                self.coverage.requests_discarded += 1;
            } else {
                self.coverage.requests_unacknowledged += 1;
                let facts = Outcome::Unacknowledged.into();
                ended.push(EndedOperation { request: asked.request, end: time, facts });
            }
            return false;
        }
        if exchange.pending.len() >= MAX_PENDING {
            ended.extend(self.give_up_at(exchange, 0, time, GivenUp::Evicted));
        }
        if let Some(before) = exchange.pending.back_mut().filter(|before| before.request_id == id) {
            // A client that uses one id for all its requests waits for each reply before it sends the next.
            before.passed.get_or_insert(time);
        }
        if exchange.unheard || exchange.replies == ReplyPath::Unseen {
            request.passed = Some(time);
        }
        request.number = self.arrivals.next();
        self.pending_bytes += request.bytes_held();
        exchange.pending.push_back(asked.request);
        let Some(at) = exchange.early.iter().position(|early| early.header.response_to == id) else {
            return false;
        };
        let early = self.take_early(exchange, at);
        self.answer(exchange, &early.answer(), ended).is_none()
    }

    /// Takes a reply. Returns it if no request waits for it.
    #[inline]
    pub fn answer(
        &mut self,
        exchange: &mut Exchange,
        answer: &Answer<'_>,
        ended: &mut Vec<EndedOperation>,
    ) -> Option<Early> {
        if exchange.replies == ReplyPath::Unseen {
            exchange.replies = ReplyPath::Open;
        }
        exchange.refused = None;
        let Some(mut at) = exchange.waiting_for(answer.header.response_to) else {
            return Some(Early {
                number: self.arrivals.next(),
                header: answer.header,
                reply: Box::new(answer.reply.clone()),
                arrival: answer.arrival,
                joined_late: exchange.joined_late && !exchange.paired,
            });
        };
        if at > 0 {
            at = self.pass(exchange, at, answer.arrival.first, ended);
        }
        let pending = exchange.pending.remove(at)?;
        self.pending_bytes -= pending.bytes_held();
        exchange.give_back_room();
        exchange.paired |= !pending.follows;
        if exchange.request_gap.is_some_and(|gap| gap <= pending.start) {
            exchange.request_gap = None;
        }
        if let Some(next) = self.complete(exchange, pending, answer, ended) {
            self.pending_bytes += next.bytes_held();
            exchange.pending.insert(at, next);
        }
        None
    }

    /// Ends an operation with its reply. Returns what waits for the next reply, if one follows.
    #[inline]
    fn complete(
        &mut self,
        exchange: &mut Exchange,
        mut pending: Pending,
        answer: &Answer<'_>,
        ended: &mut Vec<EndedOperation>,
    ) -> Option<Pending> {
        let Answer { header, reply, arrival } = answer;
        if pending.follows {
            self.coverage.replies_exhaust += 1;
        } else {
            self.coverage.replies_paired += 1;
            self.coverage.requests_answered += 1;
        }
        self.coverage.documents_unknown += u64::from(!arrival.whole);
        let chain = if arrival.whole {
            reply.more_to_come || (pending.exhaust && reply.cursor.is_some_and(|id| id != 0))
        } else {
            // Unknown. If none follows, waiting for it loses nothing.
            let may_chain =
                pending.follows || matches!(pending.kind, CommandKind::GetMore | CommandKind::Hello);
            // A client that waits for a chain sends no requests meanwhile.
            may_chain && !exchange.pending.iter().any(|other| !other.follows && other.passed.is_none())
        };
        exchange.assumes_chain = chain && !arrival.whole;
        let mut facts = ReplyFacts::of(&pending, answer);
        let next = chain.then(|| Pending {
            number: self.arrivals.next(),
            request_id: header.request_id,
            start: arrival.last,
            class: if pending.class == Class::Replication { Class::Replication } else { Class::Waiting },
            provisional: false,
            follows: true,
            joined_late: false,
            passed: None,
            answers: None,
            bytes: 0,
            cursor: pending.cursor.or(reply.cursor),
            ..pending.clone()
        });
        if let Some(write) = pending.answers.take() {
            self.coverage.requests_folded += 1;
            // The `n` of getLastError is 0 after an insert, however many were inserted.
            let n = if write.kind == CommandKind::Insert { None } else { reply.n };
            (facts.affected, facts.matched) = (n, n);
            // The server works from the write on, not from the getLastError on.
            facts.latency_ns = (arrival.first >= write.start).then(|| arrival.first.since(write.start));
            pending = *write;
        }
        ended.push(EndedOperation { request: pending, end: arrival.first, facts });
        next
    }

    /// Takes a reply of a chain whose beginning was not captured; `pending` is what it answers. Waits for the reply
    /// after it.
    pub fn adopt(
        &mut self,
        exchange: &mut Exchange,
        pending: Pending,
        answer: &Answer<'_>,
        ended: &mut Vec<EndedOperation>,
    ) {
        // If a gap broke a chain, this is how it goes on.
        self.end_chains(exchange);
        if let Some(next) = self.complete(exchange, pending, answer, ended) {
            self.pending_bytes += next.bytes_held();
            exchange.pending.push_front(next);
        }
    }

    /// Removes the early reply that `reply` follows in a chain that began before the capture, if there is one.
    pub fn predecessor(&mut self, exchange: &mut Exchange, reply: &Early) -> Option<Early> {
        let at = exchange.early.iter().position(|before| before.is_answered_by(reply))?;
        Some(self.take_early(exchange, at))
    }

    /// Keeps a reply whose request may still come. Returns the oldest one if there are too many.
    pub fn keep_early(&mut self, exchange: &mut Exchange, reply: Early) -> Option<Early> {
        let is_full = exchange.early.len() >= MAX_EARLY;
        let oldest = is_full.then(|| self.take_early(exchange, 0));
        self.early += 1;
        exchange.early.push(reply);
        oldest
    }

    fn take_early(&mut self, exchange: &mut Exchange, at: usize) -> Early {
        self.early -= 1;
        exchange.early.remove(at)
    }

    /// Takes out the oldest early reply, if it `is_over`.
    pub fn take_oldest_early(
        &mut self,
        exchange: &mut Exchange,
        is_over: impl FnOnce(&Early) -> bool,
    ) -> Option<Early> {
        exchange.early.first().is_some_and(is_over).then(|| self.take_early(exchange, 0))
    }

    /// Counts a reply whose request will not come any more.
    pub fn count_unmatched(&mut self, reply: &Early) {
        let coverage = &mut self.coverage;
        let late = reply.joined_late;
        *(if late { &mut coverage.replies_joined_late } else { &mut coverage.replies_orphan }) += 1;
    }

    /// The request at `at` is answered: those before it are passed, or given up if they were passed before it was
    /// sent. Returns its new position.
    #[cold]
    fn pass(
        &mut self,
        exchange: &mut Exchange,
        at: usize,
        time: Timestamp,
        ended: &mut Vec<EndedOperation>,
    ) -> usize {
        let Some(sent) = exchange.pending.get(at).map(|pending| pending.start) else { return at };
        let mut kept = 0;
        for _ in 0..at {
            let before = &mut exchange.pending[kept];
            if before.passed.is_some_and(|passed| passed < sent) {
                ended.extend(self.give_up_at(exchange, kept, time, GivenUp::Unanswered));
            } else {
                before.passed.get_or_insert(time);
                kept += 1;
            }
        }
        kept
    }

    /// A reply began in bytes of the server that were not captured, and the other end had it by `time`: the oldest
    /// request has been answered, if it was sent before then and not before `from`.
    pub fn reply_in_gap(&mut self, exchange: &mut Exchange, from: Timestamp, time: Timestamp) {
        // Unless it answered a request that was not captured either.
        if exchange.request_gap.is_some() {
            return;
        }
        let is_assumed = |pending: &Pending| pending.follows && exchange.assumes_chain;
        let oldest = exchange.pending.iter_mut().find(|of| of.passed.is_none() && !is_assumed(of));
        if let Some(oldest) = oldest.filter(|oldest| !oldest.follows && (from..time).contains(&oldest.start))
        {
            oldest.passed = Some(time);
        }
    }

    /// Stops waiting for the next reply of a chain.
    fn end_chains(&mut self, exchange: &mut Exchange) {
        exchange.assumes_chain = false;
        exchange.pending.retain(|pending| {
            self.pending_bytes -= if pending.follows { pending.bytes_held() } else { 0 };
            !pending.follows
        });
    }

    /// Gives up the request at `at`. Returns its operation, if it is one.
    pub fn give_up_at(
        &mut self,
        exchange: &mut Exchange,
        at: usize,
        time: Timestamp,
        why: GivenUp,
    ) -> Option<EndedOperation> {
        let mut pending = exchange.pending.remove(at)?;
        self.pending_bytes -= pending.bytes_held();
        if pending.follows {
            return None;
        }
        let coverage = &mut self.coverage;
        if pending.provisional && (why != GivenUp::InFlight || pending.passed.is_some()) {
            coverage.requests_discarded += 1;
            return None;
        }
        // Of a write and its getLastError, the write counts.
        coverage.requests_folded += u64::from(pending.answers.is_some());
        let (counter, outcome) = match why {
            _ if pending.passed.is_some() => (&mut coverage.requests_reply_lost, Outcome::Unknown),
            // Nothing of the server is captured, so no reply would have come, however many requests may wait.
            GivenUp::Evicted if !exchange.has_captured_server() => {
                (&mut coverage.requests_reply_lost, Outcome::Unknown)
            }
            GivenUp::Evicted => (&mut coverage.requests_evicted, Outcome::Unknown),
            GivenUp::InFlight => (&mut coverage.requests_in_flight, Outcome::InFlight),
            GivenUp::Unanswered => (&mut coverage.requests_unanswered, Outcome::Unanswered),
        };
        *counter += 1;
        let request = pending.answers.take().map_or(pending, |write| *write);
        Some(EndedOperation { request, end: time, facts: outcome.into() })
    }

    /// Gives up the requests of one connection that have waited too long at `now`.
    pub fn expire(&mut self, exchange: &mut Exchange, now: Timestamp, ended: &mut Vec<EndedOperation>) {
        let closed = match exchange.replies {
            ReplyPath::Closing(time) | ReplyPath::Ended(time) => Some(time),
            ReplyPath::Open | ReplyPath::Unseen => None,
        };
        let is_over = |pending: &Pending| match pending.passed.or(closed.map(|time| time.max(pending.start)))
        {
            Some(passed) => now.since(passed) >= PASSED_NS,
            None => now.since(pending.start) > UNANSWERED_NS,
        };
        let mut at = 0;
        while let Some(pending) = exchange.pending.get(at) {
            if is_over(pending) {
                ended.extend(self.give_up_at(exchange, at, now, GivenUp::Unanswered));
            } else {
                at += 1;
            }
        }
        if exchange.legacy_write.as_ref().is_some_and(|write| now.since(write.start) > LEGACY_WRITE_NS) {
            self.end_legacy_write(exchange, now, ended);
        }
    }

    /// Ends a legacy write that perhaps a getLastError followed, of which too little was captured: whether somebody asked for
    /// its outcome is not known.
    #[cold]
    fn lose_legacy_write(
        &mut self,
        exchange: &mut Exchange,
        time: Timestamp,
        ended: &mut Vec<EndedOperation>,
    ) {
        if let Some(write) = exchange.legacy_write.take() {
            self.coverage.requests_reply_lost += 1;
            let end = time.max(write.start);
            ended.push(EndedOperation { request: *write, end, facts: Outcome::Unknown.into() });
        }
    }

    /// Ends a legacy write that no getLastError followed.
    pub fn end_legacy_write(
        &mut self,
        exchange: &mut Exchange,
        time: Timestamp,
        ended: &mut Vec<EndedOperation>,
    ) {
        if let Some(write) = exchange.legacy_write.take() {
            self.coverage.requests_unacknowledged += 1;
            let end = time.max(write.start);
            ended.push(EndedOperation { request: *write, end, facts: Outcome::Unacknowledged.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use crate::decoder::collected::{collect, message};
    use crate::testing::{Conversation, ConversationEnd};

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
        talk.send(ConversationEnd::Client, &message(1, 0, &find("quick")))
            .send(ConversationEnd::Client, &message(2, 0, &find("slow")))
            .send(ConversationEnd::Server, &message(100, 1, &doc! {"ok": 1.0}));
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
            let _ = if reset { talk.reset(ConversationEnd::Server) } else { talk.close() };
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
        talk.send(ConversationEnd::Client, &message(1, 0, &find("a")))
            .send(ConversationEnd::Client, &message(2, 0, &find("b")));
        talk.send(ConversationEnd::Server, &message(100, 2, &doc! {"ok": 1.0}));
        talk.send(ConversationEnd::Server, &message(101, 1, &doc! {"ok": 0.0, "code": 50}));
        let seen = collect(&talk.packets);
        assert_eq!(seen.operations, [(2, "find".into(), "ok"), (1, "find".into(), "failed")]);
        // The two directions are captured by two queues, and the reply's is read first.
        talk.packets[before..].rotate_right(2);
        let seen = collect(&talk.packets);
        let mut found = seen.operations;
        found.sort();
        assert_eq!(found, [(1, "find".into(), "failed"), (2, "find".into(), "ok")]);
        assert_eq!((seen.coverage.replies_paired, seen.coverage.replies_orphan), (2, 0));
    }
}
