//! Joins operations of the wire with those of the server's threads: the same connection and the same request id.

use std::cmp::Ordering;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::{OperationKey, ThreadOperation, TimePart};
use crate::held::{list_bytes, table_bytes};
use crate::{Application, Class, Endpoint, Operation, Outcome, Role, ShapeId, ShapeInfo, Timestamp};

/// Operations of one side that may wait for the other one.
pub const MAX_PENDING: usize = 57_000;
/// One in so many of them may be an operation whose reply is still sent.
const OVERDUE_SHARE: usize = 4;
/// Operations of threads that one call gives up, because they have waited for too long. The next call goes on.
const MAX_EXPIRED: usize = 4_096;
/// How long an operation waits for the other side, in nanoseconds of the time of operations.
const PATIENCE_NS: u64 = 5_000_000_000;
/// How much later than its wire's side an operation of a thread may seem to begin, or earlier to end, in nanoseconds:
/// the clocks are read apart.
const CLOCKS_APART_NS: u64 = 10_000_000;

/// What the wire knows of an operation, as far as it is needed here.
#[derive(Clone, Debug)]
pub struct WireOperation {
    /// The server's end of the connection.
    pub server: Endpoint,
    /// The client's end.
    pub client: Endpoint,
    /// `requestID` of the request.
    pub request_id: u32,
    /// Last byte of the request.
    pub start: Timestamp,
    /// First byte of the reply.
    pub end: Timestamp,
    /// From one to the other, in nanoseconds; `None` if unknown.
    pub latency_ns: Option<u64>,
    /// A reply was seen.
    pub was_answered: bool,
    /// Who sent it.
    pub role: Role,
    /// Its purpose.
    pub class: Class,
    /// Its shape.
    pub shape: Arc<ShapeInfo>,
    /// See [`Operation::ordered_id`].
    pub ordered_id: ShapeId,
    /// The application.
    pub app: Arc<Application>,
}

impl From<&Operation<'_>> for WireOperation {
    fn from(op: &Operation<'_>) -> Self {
        Self {
            server: op.server,
            client: op.client,
            request_id: op.request_id,
            start: op.start,
            end: op.end,
            latency_ns: op.latency_ns,
            was_answered: matches!(op.outcome, Outcome::Ok | Outcome::Failed(_)),
            role: op.role,
            class: op.class,
            shape: Arc::clone(op.shape),
            ordered_id: op.ordered_id,
            app: Arc::clone(op.app),
        }
    }
}

/// An operation that both sides saw.
#[derive(Clone, Debug)]
pub struct JoinedOperation {
    /// On the wire.
    pub wire: WireOperation,
    /// At the server's thread.
    pub thread: ThreadOperation,
}

impl JoinedOperation {
    /// If the request arrived while its thread waited for a processor, that wait belongs to the operation.
    pub fn new(wire: WireOperation, mut thread: ThreadOperation) -> Self {
        if let Some((lost, got)) = thread.preempted {
            let waited = got.min(thread.start).since(lost.max(wire.start));
            thread.queued_before_ns = waited;
            thread.duration_ns = thread.duration_ns.saturating_add(waited);
            thread.split[TimePart::RunQueue] += waited;
        }
        Self { wire, thread }
    }

    /// Time from the request's last byte on the wire until the thread was woken to receive it, in nanoseconds, without
    /// what it waited for a processor in it. The clocks are the same machine's, so it is never negative but for their
    /// resolution.
    pub fn unread_ns(&self) -> u64 {
        self.thread.start.since(self.wire.start).saturating_sub(self.thread.queued_before_ns)
    }

    /// From the request's arrival until the reply had been sent, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.unread_ns().saturating_add(self.thread.duration_ns)
    }
}

/// What was and what was not joined.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct JoinCounts {
    /// Operations that both sides saw.
    pub joined: u64,
    /// Operations of threads that were not on the captured wire.
    pub without_wire: u64,
    /// Operations of the wire that no followed thread executed; without those that one server sent to another, whose
    /// threads may be on another host.
    pub without_thread: u64,
    /// Parts of replies that no request asked for, as a server sends them to a client that waits for news.
    pub continued: u64,
    /// Operations whose request came together with another one, so that their time cannot be divided.
    pub pipelined: u64,
    /// Operations whose reply was sent by another thread than the one that received the request, so that their time
    /// cannot be divided: the server has a pool of threads.
    pub answered_elsewhere: u64,
}

type ConnectionRequest = (Endpoint, Endpoint, u32);

/// How the two sides lie in time. A request id may be used again after one side of its operation was lost.
fn compare(wire: &WireOperation, thread: &ThreadOperation) -> Ordering {
    let after = |late: Timestamp, early: Timestamp| late.since(early) > CLOCKS_APART_NS;
    // When a request that wants no reply is read is up to the server.
    if wire.was_answered && after(thread.start, wire.end) {
        Ordering::Less
    } else if after(wire.start, thread.end) {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

/// Waits for the other side of each operation. Operations count only if they began and ended while the threads were
/// traced.
#[derive(Debug)]
pub struct SplitJoiner {
    /// Operations of one side that may wait.
    room: usize,
    traced_from: Timestamp,
    traced_to: Option<Timestamp>,
    wire: HashMap<ConnectionRequest, Box<WireOperation>, RandomState>,
    /// The last operation of a connection, if it waits for long: its reply may still be sent to a slow reader.
    overdue: HashMap<(Endpoint, Endpoint), Box<WireOperation>, RandomState>,
    thread: HashMap<ConnectionRequest, Box<ThreadOperation>, RandomState>,
    counts: JoinCounts,
    /// Counted in `without_wire`, and not taken yet.
    alone: Vec<ThreadOperation>,
    /// Of threads, neither joined nor alone, and not taken yet.
    dropped: Vec<OperationKey>,
}

impl Default for SplitJoiner {
    fn default() -> Self {
        Self {
            room: MAX_PENDING,
            traced_from: Timestamp::default(),
            traced_to: None,
            wire: HashMap::default(),
            overdue: HashMap::default(),
            thread: HashMap::default(),
            counts: JoinCounts::default(),
            alone: Vec::new(),
            dropped: Vec::new(),
        }
    }
}

impl SplitJoiner {
    /// For threads that are traced from now on.
    pub fn since(traced_from: Timestamp) -> Self {
        Self { traced_from, ..Self::default() }
    }

    /// The same, but at most `room` operations of one side wait for the other one.
    #[must_use]
    pub fn with_room(self, room: usize) -> Self {
        Self { room, ..self }
    }

    /// The most bytes of a joiner with this room.
    pub const fn max_memory(room: usize) -> usize {
        let overdue = room / OVERDUE_SHARE;
        let (wire, thread) = (size_of::<WireOperation>(), size_of::<ThreadOperation>());
        table_bytes(room, size_of::<(ConnectionRequest, Box<WireOperation>)>())
            + table_bytes(overdue, size_of::<((Endpoint, Endpoint), Box<WireOperation>)>())
            + table_bytes(room, size_of::<(ConnectionRequest, Box<ThreadOperation>)>())
            + (room + overdue) * wire
            + room * (thread + ThreadOperation::MAX_HEAP)
            // What is given up at once.
            + list_bytes(MAX_EXPIRED, thread + ThreadOperation::MAX_HEAP + size_of::<OperationKey>() + wire)
    }

    /// The bytes that it has allocated. Shapes and applications are shared with others, and do not count.
    pub fn memory(&self) -> usize {
        let threads = self.thread.values().map(|one| size_of::<ThreadOperation>() + one.heap_bytes());
        self.wire.allocation_size()
            + self.overdue.allocation_size()
            + self.thread.allocation_size()
            + (self.wire.len() + self.overdue.len()) * size_of::<WireOperation>()
            + threads.sum::<usize>()
            + self.alone.capacity() * size_of::<ThreadOperation>()
            + self.alone.iter().map(ThreadOperation::heap_bytes).sum::<usize>()
            + self.dropped.capacity() * size_of::<OperationKey>()
    }

    /// The threads are traced only from then on.
    pub fn traced_since(&mut self, from: Timestamp) {
        self.traced_from = from;
    }

    /// The threads are not traced any more from then on; what they and the wire saw before may still come.
    pub fn traced_until(&mut self, to: Timestamp) {
        self.traced_to = Some(to);
        self.wire.retain(|_, operation| operation.end <= to);
        self.overdue.retain(|_, operation| operation.end <= to);
    }

    fn has_ended_in_time(&self, end: Timestamp) -> bool {
        self.traced_to.is_none_or(|to| end <= to)
    }

    fn counts(&self, wire: &WireOperation) -> bool {
        wire.start >= self.traced_from && self.has_ended_in_time(wire.end)
    }

    fn without_thread(&mut self, operation: &WireOperation) {
        self.counts.without_thread += u64::from(operation.role == Role::Served && self.counts(operation));
    }

    fn without_wire(&mut self, operation: ThreadOperation) {
        if self.has_ended_in_time(operation.end) && !self.is_undivided(&operation) {
            self.counts.without_wire += 1;
            self.alone.push(operation);
        } else {
            self.dropped.push(operation.key());
        }
    }

    /// Counts an operation of a thread that is not divided, whatever the wire has of it.
    fn is_undivided(&mut self, operation: &ThreadOperation) -> bool {
        self.counts.pipelined += u64::from(operation.is_pipelined);
        self.counts.continued += u64::from(operation.is_exhaust && !operation.is_pipelined);
        operation.is_pipelined || operation.is_exhaust
    }

    /// The operations of threads that were given up since this was last called: the wire does not have them. Call it
    /// after each other call.
    pub fn take_alone(&mut self) -> Vec<ThreadOperation> {
        std::mem::take(&mut self.alone)
    }

    /// The operations of threads since this was last called that are in no figure but perhaps a count: nobody asks for
    /// their waits. Call it after each other call.
    pub fn take_dropped(&mut self) -> Vec<OperationKey> {
        std::mem::take(&mut self.dropped)
    }

    /// Gives up all operations of threads that still wait: nothing more comes.
    pub fn close(&mut self) {
        let waiting = std::mem::take(&mut self.thread);
        waiting.into_values().for_each(|operation| self.without_wire(*operation));
    }

    /// An operation of the wire; returns it joined if the thread's side has come.
    pub fn wire(&mut self, operation: WireOperation) -> Option<JoinedOperation> {
        if !self.has_ended_in_time(operation.end) {
            return None;
        }
        if let Some(before) = self.overdue.remove(&(operation.server, operation.client)) {
            // The client would not send another request before it has the reply.
            self.without_thread(&before);
        }
        let key = (operation.server, operation.client, operation.request_id);
        if let Some(thread) = self.thread.remove(&key) {
            match compare(&operation, &thread) {
                Ordering::Equal => return self.join(operation, *thread),
                Ordering::Less => {
                    self.without_thread(&operation);
                    self.thread.insert(key, thread);
                    return None;
                }
                Ordering::Greater => self.without_wire(*thread),
            }
        }
        self.keep(key, Box::new(operation));
        None
    }

    /// Keeps an operation of the wire, if there is room.
    fn keep(&mut self, key: ConnectionRequest, operation: Box<WireOperation>) {
        if self.wire.len() >= self.room {
            self.without_thread(&operation);
        } else if let Some(before) = self.wire.insert(key, operation) {
            // The client uses a request id again.
            self.without_thread(&before);
        }
    }

    /// An operation of a thread; returns it joined if the wire's side has come.
    pub fn thread(&mut self, operation: ThreadOperation) -> Option<JoinedOperation> {
        if operation.start < self.traced_from {
            self.dropped.push(operation.key());
            return None;
        }
        let Some((server, client)) = operation.connection else {
            self.without_wire(operation);
            return None;
        };
        let key = (server, client, operation.request_id);
        if let Some(wire) = self.wire.remove(&key).or_else(|| self.take_overdue(key)) {
            match compare(&wire, &operation) {
                Ordering::Equal => return self.join(*wire, operation),
                Ordering::Less => self.without_thread(&wire),
                Ordering::Greater => {
                    self.without_wire(operation);
                    self.keep(key, wire);
                    return None;
                }
            }
        }
        if self.thread.len() >= self.room {
            self.without_wire(operation);
        } else if let Some(before) = self.thread.insert(key, Box::new(operation)) {
            self.without_wire(*before);
        }
        None
    }

    fn take_overdue(
        &mut self,
        (server, client, request_id): ConnectionRequest,
    ) -> Option<Box<WireOperation>> {
        let connection = (server, client);
        let is_same = self.overdue.get(&connection)?.request_id == request_id;
        is_same.then(|| self.overdue.remove(&connection)).flatten()
    }

    fn join(&mut self, wire: WireOperation, thread: ThreadOperation) -> Option<JoinedOperation> {
        // To the thread, an operation without a reply ends when it receives the next request.
        let is_answered_elsewhere = thread.is_unacknowledged && wire.was_answered;
        self.counts.answered_elsewhere += u64::from(is_answered_elsewhere);
        if is_answered_elsewhere || !self.counts(&wire) || self.is_undivided(&thread) {
            self.dropped.push(thread.key());
            return None;
        }
        self.counts.joined += 1;
        Some(JoinedOperation::new(wire, thread))
    }

    /// The operation of the wire that a thread still executes, or whose reply it still sends.
    pub fn pending(&self, operation: &ThreadOperation) -> Option<&WireOperation> {
        let (server, client) = operation.connection?;
        let overdue = || self.overdue.get(&(server, client));
        self.wire
            .get(&(server, client, operation.request_id))
            .or_else(|| overdue().filter(|overdue| overdue.request_id == operation.request_id))
            .map(|operation| &**operation)
    }

    /// Gives up waiting for the other side of operations that ended long before `now`. Where they are many, the next call
    /// goes on.
    pub fn expire(&mut self, now: Timestamp) {
        let is_old = |end: Timestamp| now.since(end) >= PATIENCE_NS;
        let old = self.wire.extract_if(|_, operation| is_old(operation.end)).take(MAX_EXPIRED);
        let old: Vec<_> = old.map(|(_, operation)| operation).collect();
        old.into_iter().for_each(|operation| self.wait_on(operation));
        let old = self.thread.extract_if(|_, operation| is_old(operation.end)).take(MAX_EXPIRED);
        let old: Vec<_> = old.map(|(_, operation)| operation).collect();
        old.into_iter().for_each(|operation| self.without_wire(*operation));
    }

    /// To the wire, an operation ends with the first byte of its reply, and to the thread with the last one. Meanwhile
    /// the client sends no other request.
    fn wait_on(&mut self, operation: Box<WireOperation>) {
        if !operation.was_answered || self.overdue.len() >= self.room / OVERDUE_SHARE {
            self.without_thread(&operation);
            return;
        }
        let connection = (operation.server, operation.client);
        let later = match self.overdue.remove(&connection) {
            Some(other) if other.start > operation.start => {
                self.without_thread(&operation);
                other
            }
            Some(other) => {
                self.without_thread(&other);
                operation
            }
            None => operation,
        };
        self.overdue.insert(connection, later);
    }

    /// The counts, as if nothing more would come.
    pub fn finish(&self) -> JoinCounts {
        let mut counts = self.counts;
        let wire = self.wire.values().chain(self.overdue.values());
        let served = wire.filter(|operation| operation.role == Role::Served && self.counts(operation));
        counts.without_thread += served.count() as u64;
        for operation in self.thread.values().filter(|operation| self.has_ended_in_time(operation.end)) {
            match (operation.is_pipelined, operation.is_exhaust) {
                (true, _) => counts.pipelined += 1,
                (false, true) => counts.continued += 1,
                (false, false) => counts.without_wire += 1,
            }
        }
        counts
    }

    /// The counts of what is decided: operations that still wait for the other side are in none.
    pub fn settled(&self) -> JoinCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{thread_operation as thread, wire_operation as wire};

    #[test]
    fn a_request_that_waits_for_the_processor_of_its_thread_is_in_the_run_queue() {
        let at = Timestamp::from_unix_ns;
        let joined = |lost, got| {
            let thread = ThreadOperation { preempted: Some((at(lost), at(got))), ..thread(1, 5_000) };
            let joined = JoinedOperation::new(wire(1, 2_000), thread);
            assert_eq!(joined.total_ns(), 4_000);
            assert_eq!(joined.thread.split[TimePart::RunQueue], joined.thread.queued_before_ns);
            assert_eq!(joined.thread.key(), (2, at(5_000)));
            (joined.unread_ns(), joined.thread.queued_before_ns)
        };
        // It arrives while the thread waits, before, after.
        assert_eq!(joined(1_000, 4_500), (500, 2_500));
        assert_eq!(joined(3_000, 4_500), (1_500, 1_500));
        assert_eq!(joined(1_000, 1_900), (3_000, 0));
        // Clocks that do not agree.
        assert_eq!(joined(1_000, 9_000), (0, 3_000));
        assert_eq!(JoinedOperation::new(wire(1, 2_000), thread(1, 5_000)).unread_ns(), 3_000);
    }

    #[test]
    fn both_orders_are_joined_once() {
        let mut joiner = SplitJoiner::default();
        assert!(joiner.wire(wire(1, 1_000)).is_none());
        let joined = joiner.thread(thread(1, 1_200)).unwrap();
        assert_eq!((joined.unread_ns(), joined.total_ns()), (200, 1_200));
        assert!(joiner.thread(thread(2, 5_000)).is_none());
        assert!(joiner.wire(wire(2, 4_000)).is_some());
        assert!(joiner.thread(thread(2, 5_000)).is_none(), "it was joined already");
        assert_eq!(joiner.finish(), JoinCounts { joined: 2, without_wire: 1, ..JoinCounts::default() });
    }

    #[test]
    fn what_began_before_the_trace_counts_on_neither_side() {
        let mut joiner = SplitJoiner::default();
        joiner.wire(wire(1, 1_000));
        joiner.traced_since(Timestamp::from_unix_ns(2_000));
        joiner.thread(thread(1, 1_100));
        joiner.wire(wire(2, 1_500));
        joiner.wire(wire(3, 2_500));
        assert_eq!(joiner.finish(), JoinCounts { without_thread: 1, ..JoinCounts::default() });
    }

    #[test]
    fn a_continued_reply_has_a_count_of_its_own_and_operations_of_other_servers_are_joined() {
        let mut joiner = SplitJoiner::default();
        let exhaust = |id, start| ThreadOperation { is_exhaust: true, ..thread(id, start) };
        let issued = |id, start| WireOperation { role: Role::Issued, ..wire(id, start) };
        // Each on both sides, in both orders; then each on one side alone.
        assert!(joiner.wire(wire(1, 0)).is_none() && joiner.thread(exhaust(1, 100)).is_none());
        assert!(joiner.thread(exhaust(2, 100)).is_none() && joiner.wire(wire(2, 0)).is_none());
        assert!(joiner.wire(issued(3, 0)).is_none() && joiner.thread(thread(3, 100)).is_some());
        assert!(joiner.thread(thread(4, 100)).is_none() && joiner.wire(issued(4, 0)).is_some());
        joiner.thread(exhaust(5, 0));
        joiner.wire(issued(6, 0));
        let expected = JoinCounts { joined: 2, continued: 2, ..JoinCounts::default() };
        assert_eq!(joiner.settled(), expected);
        let all = JoinCounts { continued: 3, ..expected };
        assert_eq!(joiner.finish(), all, "a server elsewhere has no thread here");
        joiner.expire(Timestamp::from_unix_ns(PATIENCE_NS * 2));
        joiner.expire(Timestamp::from_unix_ns(PATIENCE_NS * 4));
        assert_eq!(joiner.finish(), all);
    }

    #[test]
    fn what_finds_no_partner_is_counted_by_its_side() {
        let mut joiner = SplitJoiner::default();
        joiner.wire(wire(1, 0));
        joiner.wire(wire(1, 10));
        joiner.thread(thread(9, 0));
        joiner.thread(ThreadOperation { is_exhaust: true, ..thread(4, 0) });
        joiner.thread(ThreadOperation { is_pipelined: true, ..thread(5, 0) });
        joiner.thread(ThreadOperation { connection: None, ..thread(6, 0) });
        joiner.expire(Timestamp::from_unix_ns(PATIENCE_NS * 2));
        let expected = JoinCounts {
            without_wire: 2,
            without_thread: 2,
            continued: 1,
            pipelined: 1,
            ..JoinCounts::default()
        };
        assert_eq!(joiner.finish(), expected);
        let mut alone: Vec<_> = joiner.take_alone().iter().map(|operation| operation.request_id).collect();
        alone.sort_unstable();
        assert_eq!(alone, [6, 9]);
        assert!(joiner.wire(wire(9, 0)).is_none(), "its partner was given up");
    }

    #[test]
    fn a_pipelined_operation_counts_once_whichever_side_comes_first() {
        let pipelined = |id| ThreadOperation { is_pipelined: true, ..thread(id, 1_200) };
        let mut joiner = SplitJoiner::default();
        assert!(joiner.wire(wire(1, 1_000)).is_none() && joiner.thread(pipelined(1)).is_none());
        assert!(joiner.thread(pipelined(2)).is_none());
        let waiting = JoinCounts { pipelined: 2, ..JoinCounts::default() };
        assert_eq!(joiner.finish(), waiting);
        assert!(joiner.wire(wire(2, 1_000)).is_none());
        assert_eq!((joiner.finish(), joiner.settled()), (waiting, waiting));
        assert!(joiner.take_alone().is_empty());
    }

    #[test]
    fn every_operation_of_a_thread_is_joined_or_alone_or_dropped() {
        let at = Timestamp::from_unix_ns;
        let mut joiner = SplitJoiner::since(at(500));
        let mut joined = Vec::new();
        let base = |id| thread(id, 1_000);
        for (operation, has_wire) in [
            (base(1), true),
            (base(2), false),
            (thread(3, 400), false),
            (ThreadOperation { is_exhaust: true, ..base(4) }, true),
            (ThreadOperation { is_exhaust: true, ..base(5) }, false),
            (ThreadOperation { is_pipelined: true, ..base(6) }, true),
            (ThreadOperation { is_pipelined: true, ..base(7) }, false),
            (ThreadOperation { is_unacknowledged: true, ..base(8) }, true),
            (ThreadOperation { end: at(20_000), ..base(9) }, false),
        ] {
            let id = operation.request_id;
            if has_wire {
                joiner.wire(wire(id, 900));
            }
            // Operations of one thread begin one after the other.
            let operation = ThreadOperation { thread: id, ..operation };
            joined.extend(joiner.thread(operation).map(|joined| joined.wire.request_id));
        }
        // Sent before the trace.
        joiner.wire(wire(10, 499));
        joiner.thread(ThreadOperation { thread: 10, ..base(10) });
        joiner.traced_until(at(10_000));
        joiner.close();
        let alone: Vec<_> = joiner.take_alone().iter().map(|operation| operation.thread).collect();
        let mut dropped: Vec<_> = joiner.take_dropped().into_iter().map(|(thread, _)| thread).collect();
        dropped.sort_unstable();
        assert_eq!((joined, alone, dropped), (vec![1], vec![2], vec![3, 4, 5, 6, 7, 8, 9, 10]));
        assert!(joiner.take_dropped().is_empty());
    }

    #[test]
    fn an_operation_that_another_thread_answered_is_not_divided() {
        let mut joiner = SplitJoiner::default();
        let unacknowledged = |id| ThreadOperation { is_unacknowledged: true, ..thread(id, 1_200) };
        joiner.wire(wire(1, 1_000));
        assert!(joiner.thread(unacknowledged(1)).is_none());
        assert!(joiner.thread(unacknowledged(2)).is_none());
        assert!(joiner.wire(wire(2, 1_000)).is_none());
        // The client asked for no reply.
        joiner.wire(WireOperation { was_answered: false, ..wire(3, 1_000) });
        assert!(joiner.thread(unacknowledged(3)).is_some());
        let expected = JoinCounts { joined: 1, answered_elsewhere: 2, ..JoinCounts::default() };
        assert_eq!(joiner.finish(), expected);
    }

    #[test]
    fn operations_outside_the_trace_do_not_count() {
        let mut joiner = SplitJoiner::since(Timestamp::from_unix_ns(1_000));
        joiner.wire(wire(1, 999));
        joiner.wire(wire(2, 1_000));
        joiner.wire(wire(3, 9_500));
        joiner.traced_until(Timestamp::from_unix_ns(10_000));
        joiner.wire(wire(4, 9_101));
        joiner.wire(wire(5, 9_000));
        joiner.thread(thread(6, 999));
        joiner.thread(ThreadOperation { is_exhaust: true, ..thread(7, 999) });
        assert_eq!(joiner.finish(), JoinCounts { without_thread: 2, ..JoinCounts::default() });
    }

    #[test]
    fn both_orders_count_the_same_operations() {
        let at = Timestamp::from_unix_ns;
        // Sent before the trace and read in it; ended in it; answered in it, whose reply was sent after it; after it.
        let operations =
            [(500, 1_200, 2_000), (1_500, 1_700, 9_900), (9_000, 9_050, 10_300), (9_500, 9_600, 10_600)];
        let sides = operations.iter().zip(1..).map(|(&(sent, read, ended), id)| {
            let thread = ThreadOperation { start: at(read), end: at(ended), ..thread(id, read) };
            (wire(id, sent), thread)
        });
        let sides: Vec<_> = sides.collect();
        let expected = JoinCounts { joined: 2, ..JoinCounts::default() };
        for wire_first in [true, false] {
            for end_first in [true, false] {
                let mut joiner = SplitJoiner::since(at(1_000));
                if end_first {
                    joiner.traced_until(at(10_000));
                }
                for (wire, thread) in sides.clone() {
                    if !end_first && thread.end > at(10_000) {
                        joiner.traced_until(at(10_000));
                    }
                    let joined = if wire_first {
                        joiner.wire(wire).or(joiner.thread(thread))
                    } else {
                        joiner.thread(thread).or(joiner.wire(wire))
                    };
                    assert!(joined.is_none_or(|joined| [2, 3].contains(&joined.wire.request_id)));
                }
                assert_eq!(joiner.finish(), expected, "{wire_first} {end_first}");
            }
        }
    }

    #[test]
    fn a_reply_may_take_longer_to_send_than_others_wait() {
        const LATE: u64 = 3 * PATIENCE_NS;
        let sent_late =
            |id, start| ThreadOperation { end: Timestamp::from_unix_ns(LATE), ..thread(id, start) };
        let mut joiner = SplitJoiner::default();
        joiner.wire(wire(1, 1_000));
        joiner.wire(wire(2, 3_000));
        joiner.expire(Timestamp::from_unix_ns(LATE));
        assert!(joiner.pending(&sent_late(2, 3_100)).is_some());
        assert!(joiner.pending(&sent_late(1, 1_100)).is_none(), "the client sent another request since");
        assert!(joiner.thread(sent_late(2, 3_100)).is_some());
        let expected = JoinCounts { joined: 1, without_thread: 1, ..JoinCounts::default() };
        assert_eq!(joiner.finish(), expected);
        // It was lost: the client has its reply, and goes on.
        joiner.wire(wire(3, LATE));
        joiner.expire(Timestamp::from_unix_ns(2 * LATE));
        assert_eq!(joiner.finish(), JoinCounts { without_thread: 2, ..expected });
        joiner.wire(wire(4, 2 * LATE));
        assert!(joiner.thread(thread(4, 2 * LATE)).is_some());
        assert_eq!(joiner.finish(), JoinCounts { joined: 2, without_thread: 2, ..expected });
        assert!(joiner.thread(thread(3, LATE)).is_none(), "it was given up");
    }

    #[test]
    fn a_request_id_that_is_used_again_joins_no_other_operation() {
        const LATER: u64 = 1_000_000_000;
        let mut joiner = SplitJoiner::default();
        // The first operation at the thread was lost, then the second one on the wire.
        joiner.wire(wire(1, 1_000));
        assert!(joiner.thread(thread(1, LATER)).is_none());
        assert!(joiner.wire(wire(1, 2 * LATER)).is_none());
        assert!(joiner.thread(thread(1, 2 * LATER)).is_some());
        // One side comes late.
        joiner.thread(thread(2, LATER));
        assert!(joiner.wire(wire(2, 0)).is_none());
        assert!(joiner.wire(wire(2, LATER)).is_some());
        joiner.wire(wire(3, LATER));
        assert!(joiner.thread(thread(3, 0)).is_none());
        assert!(joiner.thread(thread(3, LATER)).is_some());
        // The server reads a request without a reply when it likes.
        joiner.wire(WireOperation { was_answered: false, ..wire(4, 0) });
        assert!(joiner.thread(ThreadOperation { is_unacknowledged: true, ..thread(4, LATER) }).is_some());
        let expected = JoinCounts { joined: 4, without_thread: 2, without_wire: 2, ..JoinCounts::default() };
        assert_eq!(joiner.finish(), expected);
    }

    #[test]
    fn a_clock_that_reads_earlier_gives_no_negative_time() {
        let joined = JoinedOperation { wire: wire(1, 2_000), thread: thread(1, 1_999) };
        assert_eq!(joined.unread_ns(), 0);
    }
}
