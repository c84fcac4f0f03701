//! What waits on one connection: requests for their replies, replies for their requests. And what is known of an
//! operation when it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use sonar_core::operation::{Compressor, ErrorCodes, Opcode};
use sonar_core::{Class, Outcome, ShapeId, ShapeInfo, Statement, Timestamp};

use crate::message::{Header, Reply};
use crate::shape::CommandKind;

/// A request that waits for its reply.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Number in the order of arrival, which wraps; 0 until it waits.
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
    pub opcode: Opcode,
    pub compressor: Option<Compressor>,
    pub cursor: Option<i64>,
    pub bytes: u32,
    /// An OP_QUERY that is a find, whose reply has the documents themselves.
    pub legacy_find: bool,
    /// What it asks was not captured, and a getLastError would look like this: its reply may be about a write.
    pub may_be_last_error: bool,
    /// The cursor that it opens, if any, waits on purpose.
    pub opens_waiting: bool,
    /// Found by a search: it counts once it is answered.
    pub provisional: bool,
    /// A further reply of an exhaust chain.
    pub follows: bool,
    /// Sent before the capture began: how long it took is not known.
    pub joined_late: bool,
    /// When its reply became overdue.
    pub passed: Option<Timestamp>,
    /// Wants a chain of replies (legacy exhaust).
    pub exhaust: bool,
    /// Is a getLastError: the legacy write that its reply answers too.
    pub answers: Option<Box<Pending>>,
    pub values: Option<Box<str>>,
}

/// The collection in the namespace of the cursor with the results of a bulkWrite.
const RESULTS: &str = "$cmd.bulkWrite";

impl Pending {
    /// Whether the documents in its reply are results of the statements of a bulkWrite, not documents of a collection.
    #[inline]
    pub fn returns_results(&self) -> bool {
        match self.kind {
            CommandKind::BulkWrite => true,
            CommandKind::GetMore => &*self.shape.collection == RESULTS,
            _ => false,
        }
    }

    /// Memory that it takes, in bytes, with the write that it answers.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.statements)
            + self.values.as_ref().map_or(0, |values| values.len())
            + self.answers.as_ref().map_or(0, |write| write.bytes_held())
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

/// A reply that has come.
#[derive(Copy, Clone)]
pub struct Answer<'a> {
    pub header: Header,
    /// What could be read of it.
    pub reply: &'a Reply,
    pub arrival: Arrival,
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
    pub fn answer(&self) -> Answer<'_> {
        Answer { header: self.header, reply: &self.reply, arrival: self.arrival }
    }

    /// Whether it says that more replies follow it.
    pub fn begins_chain(&self) -> bool {
        self.arrival.whole && self.reply.more_to_come
    }

    /// Whether `next` is the reply that follows this one in an exhaust chain.
    pub fn is_answered_by(&self, next: &Self) -> bool {
        let legacy = self.reply.is_legacy() && self.reply.cursor.is_some_and(|id| id != 0);
        let continues = !self.arrival.whole || self.reply.more_to_come || legacy;
        continues && self.header.request_id == next.header.response_to
    }
}

/// Whether replies can still be seen on a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReplyPath {
    /// They can.
    Open,
    /// They cannot be decrypted.
    Unseen,
    /// The client has closed its side, at this time.
    Closing(Timestamp),
    /// The server has closed its side, at this time.
    Ended(Timestamp),
}

/// What waits on one connection.
pub struct Exchange {
    pub replies: ReplyPath,
    /// Nothing of the server is captured, so no reply can be seen.
    pub unheard: bool,
    /// Something of the server had been captured before the first bytes came.
    pub saw_server: bool,
    /// When the server refused another connection of the same client, until it replies on this one.
    pub refused: Option<Timestamp>,
    pub pending: VecDeque<Pending>,
    pub early: Vec<Early>,
    /// The connection was open before the capture began.
    pub joined_late: bool,
    /// A reply has been paired with its request: from now on, a reply to nothing means a loss.
    pub paired: bool,
    /// When the client's stream had a gap, until a request after it is answered: the next replies may answer requests
    /// in the gap.
    pub request_gap: Option<Timestamp>,
    /// An incomplete reply may have announced more, so one more is awaited. A client sends nothing while replies
    /// come: its next request shows that none will.
    pub assumes_chain: bool,
    /// A legacy write that a getLastError may follow.
    pub legacy_write: Option<Box<Pending>>,
}

impl Exchange {
    pub fn new(joined_late: bool) -> Self {
        Self {
            replies: ReplyPath::Open,
            unheard: false,
            saw_server: false,
            refused: None,
            pending: VecDeque::new(),
            early: Vec::new(),
            joined_late,
            paired: false,
            request_gap: None,
            assumes_chain: false,
            legacy_write: None,
        }
    }

    /// Position of the request that a reply to `id` answers. Of several, it prefers one that is not passed, and a
    /// sent request to what follows in a chain: a server chooses the ids of its replies without regard to those of
    /// its clients.
    #[inline]
    pub fn waiting_for(&self, id: u32) -> Option<usize> {
        let position = |is_meant: fn(&Pending) -> bool| {
            self.pending.iter().position(|pending| pending.request_id == id && is_meant(pending))
        };
        let sent = position(|pending| !pending.follows && pending.passed.is_none());
        sent.or_else(|| position(|pending| pending.passed.is_none())).or_else(|| position(|_| true))
    }

    /// What a search found are requests.
    pub fn confirm(&mut self) {
        self.pending.iter_mut().for_each(|request| request.provisional = false);
    }

    /// All that was sent before `time` has been answered by what was not captured.
    pub fn pass_all(&mut self, time: Timestamp) {
        for request in self.pending.iter_mut().filter(|request| !request.follows && request.start < time) {
            request.passed.get_or_insert(time);
        }
    }

    /// Whether anything of the server is known to be captured.
    pub fn has_captured_server(&self) -> bool {
        self.saw_server || self.paired || !self.early.is_empty()
    }

    /// Whether replies can be seen has changed. If they cannot, all that was sent counts as answered at `time`.
    pub fn set_unheard(&mut self, unheard: bool, time: Timestamp) {
        self.unheard = unheard;
        for request in self.pending.iter_mut().filter(|request| !request.follows) {
            request.passed = if unheard { request.passed.or(Some(time)) } else { None };
        }
    }

    /// Whether a request that waits for its reply is in flight.
    pub fn awaits_reply_to(&self, request: &Pending) -> bool {
        matches!(self.replies, ReplyPath::Open | ReplyPath::Unseen)
            && self.refused.is_none_or(|refused| request.start > refused)
    }

    /// Frees the room of a burst of requests that is over.
    #[inline]
    pub fn give_back_room(&mut self) {
        if self.pending.capacity() > 16 && self.pending.len() * 4 < self.pending.capacity() {
            self.pending.shrink_to(self.pending.len() * 2);
        }
    }

    /// Requests in flight, for the balance of the counters.
    pub fn requests_in_progress(&self) -> u64 {
        let in_flight = self.pending.iter().filter(|pending| !pending.follows);
        in_flight.map(|pending| 1 + u64::from(pending.answers.is_some())).sum::<u64>()
            + u64::from(self.legacy_write.is_some())
    }
}

/// An operation that has ended.
#[derive(Debug)]
pub struct EndedOperation {
    pub request: Pending,
    /// Time of the first byte of its reply, or when it was given up.
    pub end: Timestamp,
    pub facts: ReplyFacts,
}

/// What a reply says about its operation.
#[derive(Clone, Debug)]
pub struct ReplyFacts {
    /// The outcome if there are no `codes`.
    pub outcome: Outcome<'static>,
    /// Error codes, and how often each occurred.
    pub codes: Vec<(i32, u32)>,
    pub latency_ns: Option<u64>,
    pub transfer_ns: Option<u64>,
    pub bytes: u64,
    pub compressor: Option<Compressor>,
    /// The cursor that it names; 0: it is closed.
    pub cursor: Option<i64>,
    pub returned: Option<u64>,
    pub matched: Option<u64>,
    pub affected: Option<u64>,
}

impl From<Outcome<'static>> for ReplyFacts {
    /// There was no reply.
    fn from(outcome: Outcome<'static>) -> Self {
        Self {
            outcome,
            codes: Vec::new(),
            latency_ns: None,
            transfer_ns: None,
            bytes: 0,
            compressor: None,
            cursor: None,
            returned: None,
            matched: None,
            affected: None,
        }
    }
}

impl ReplyFacts {
    /// Reads outcome, documents and cursor out of the reply to `request`.
    #[inline]
    pub fn of(request: &Pending, answer: &Answer<'_>) -> Self {
        let Answer { header, reply, arrival } = answer;
        let known = !request.joined_late && arrival.first >= request.start;
        let mut facts = Self {
            latency_ns: known.then(|| arrival.first.since(request.start)),
            transfer_ns: Some(arrival.last.since(arrival.first)),
            bytes: u64::from(header.length),
            compressor: arrival.compressor,
            ..Self::from(if arrival.whole { Outcome::Ok } else { Outcome::Unknown })
        };
        if !arrival.whole {
            return facts;
        }
        facts.cursor = reply.cursor;
        if request.legacy_find {
            if reply.cursor_not_found {
                facts.codes.push((43, 1));
            } else if reply.query_failure {
                facts.codes.push((reply.code.unwrap_or(0), 1));
            } else {
                facts.returned = reply.returned;
            }
            return facts;
        }
        facts.codes.extend_from_slice(&reply.codes);
        let is_about_a_write = request.answers.is_some() || request.may_be_last_error;
        let failed = reply.has_err && (is_about_a_write || reply.ok != Some(true));
        if reply.ok == Some(false) || failed {
            facts.codes.push((reply.code.unwrap_or(0), 1));
        }
        if reply.ok.is_none() {
            facts.outcome = Outcome::Unknown;
        }
        if reply.errors > 0 && facts.codes.is_empty() {
            if reply.cursor.is_some_and(|cursor| cursor != 0) {
                // Each of them comes with a later batch, and counts there.
                facts.outcome = Outcome::Failed(ErrorCodes { codes: &[] });
            } else {
                // Nobody asked for their results.
                facts.codes.push((0, u32::try_from(reply.errors).unwrap_or(u32::MAX)));
            }
        }
        facts.returned = match request.kind {
            _ if request.returns_results() => None,
            CommandKind::FindAndModify => reply.value.map(u64::from),
            _ => reply.documents,
        };
        // After an insert, a getLastError says 0.
        facts.matched = reply.n.filter(|_| !request.may_be_last_error);
        facts.affected = match request.kind {
            CommandKind::Update => reply.modified.map(|n| n.saturating_add(reply.upserted)).or(reply.n),
            CommandKind::Insert | CommandKind::Delete => reply.n,
            CommandKind::FindAndModify => reply.last_error_n,
            CommandKind::BulkWrite => reply.bulk,
            _ => None,
        };
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 466,000 of them fit into the budget.
    #[test]
    fn a_waiting_request_is_small() {
        assert!(size_of::<Pending>() <= 144, "{}", size_of::<Pending>());
    }
}
