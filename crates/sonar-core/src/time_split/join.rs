//! Joins operations of the wire with those of the server's threads: the same connection and the same request id.

use std::collections::HashMap;
use std::sync::Arc;

use super::ThreadOperation;
use crate::{Application, Class, Endpoint, Operation, Outcome, Role, ShapeId, ShapeInfo, Timestamp};

/// Operations of one side that may wait for the other one.
pub const MAX_PENDING: usize = 131_072;
/// How long an operation waits for the other side, in nanoseconds of the time of operations.
const PATIENCE_NS: u64 = 5_000_000_000;

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
    /// Time from the request's last byte on the wire until the thread had received it, in nanoseconds. The clocks are
    /// the same machine's, so it is never negative but for their resolution.
    pub fn unread_ns(&self) -> u64 {
        self.thread.start.since(self.wire.start)
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
    /// Operations of the wire that no followed thread executed.
    pub without_thread: u64,
    /// Parts of replies that no request asked for: no operation of the wire belongs to them.
    pub continued: u64,
    /// Operations whose request came together with another one, so that their time cannot be divided.
    pub pipelined: u64,
    /// Operations whose reply was sent by another thread than the one that received the request, so that their time
    /// cannot be divided: the server has a pool of threads.
    pub answered_elsewhere: u64,
}

type ConnectionRequest = (Endpoint, Endpoint, u32);

/// Waits for the other side of each operation. Operations count only if they began and ended while the threads were
/// traced.
#[derive(Default, Debug)]
pub struct SplitJoiner {
    traced_from: Timestamp,
    traced_to: Option<Timestamp>,
    wire: HashMap<ConnectionRequest, WireOperation>,
    thread: HashMap<ConnectionRequest, ThreadOperation>,
    counts: JoinCounts,
}

impl SplitJoiner {
    /// For threads that are traced from now on.
    pub fn since(traced_from: Timestamp) -> Self {
        Self { traced_from, ..Self::default() }
    }

    /// The threads are not traced any more; operations of the wire may still come.
    pub fn traced_until(&mut self, to: Timestamp) {
        self.traced_to = Some(to);
        self.wire.retain(|_, operation| operation.end <= to);
    }

    /// An operation of the wire; returns it joined if the thread's side has come.
    pub fn wire(&mut self, operation: WireOperation) -> Option<JoinedOperation> {
        let key = (operation.server, operation.client, operation.request_id);
        if let Some(thread) = self.thread.remove(&key) {
            return self.join(operation, thread);
        }
        if operation.start < self.traced_from || self.traced_to.is_some_and(|to| operation.end > to) {
            return None;
        }
        if self.wire.len() >= MAX_PENDING {
            self.counts.without_thread += 1;
        } else if self.wire.insert(key, operation).is_some() {
            // The client uses a request id again.
            self.counts.without_thread += 1;
        }
        None
    }

    /// An operation of a thread; returns it joined if the wire's side has come.
    pub fn thread(&mut self, operation: ThreadOperation) -> Option<JoinedOperation> {
        if operation.start < self.traced_from {
            return None;
        }
        if operation.is_exhaust {
            self.counts.continued += 1;
            return None;
        }
        if operation.is_pipelined {
            self.counts.pipelined += 1;
            return None;
        }
        let Some((server, client)) = operation.connection else {
            self.counts.without_wire += 1;
            return None;
        };
        let key = (server, client, operation.request_id);
        if let Some(wire) = self.wire.remove(&key) {
            return self.join(wire, operation);
        }
        if self.thread.len() >= MAX_PENDING || self.thread.insert(key, operation).is_some() {
            self.counts.without_wire += 1;
        }
        None
    }

    fn join(&mut self, wire: WireOperation, thread: ThreadOperation) -> Option<JoinedOperation> {
        // To the thread, an operation without a reply ends when it receives the next request.
        if thread.is_unacknowledged && wire.was_answered {
            self.counts.answered_elsewhere += 1;
            return None;
        }
        self.counts.joined += 1;
        Some(JoinedOperation { wire, thread })
    }

    /// The operation of the wire that a thread still executes, or whose reply it still sends.
    pub fn pending(&self, operation: &ThreadOperation) -> Option<&WireOperation> {
        let (server, client) = operation.connection?;
        self.wire.get(&(server, client, operation.request_id))
    }

    /// Gives up waiting for the other side of operations that ended long before `now`.
    pub fn expire(&mut self, now: Timestamp) {
        let (wire, thread) = (self.wire.len(), self.thread.len());
        self.wire.retain(|_, operation| now.since(operation.end) < PATIENCE_NS);
        self.thread.retain(|_, operation| now.since(operation.end) < PATIENCE_NS);
        self.counts.without_thread += (wire - self.wire.len()) as u64;
        self.counts.without_wire += (thread - self.thread.len()) as u64;
    }

    /// The counts, as if nothing more would come.
    pub fn finish(&self) -> JoinCounts {
        let mut counts = self.counts;
        counts.without_thread += self.wire.len() as u64;
        counts.without_wire += self.thread.len() as u64;
        counts
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::time_split::TimeSplit;

    pub fn wire(request_id: u32, start_ns: u64) -> WireOperation {
        WireOperation {
            server: Endpoint::v4([10, 0, 0, 1], 27017),
            client: Endpoint::v4([10, 0, 0, 2], 50000),
            request_id,
            start: Timestamp::from_unix_ns(start_ns),
            end: Timestamp::from_unix_ns(start_ns + 900),
            latency_ns: Some(900),
            was_answered: true,
            role: Role::Served,
            class: Class::User,
            shape: Arc::new(ShapeInfo::default()),
            ordered_id: ShapeId(0),
            app: Arc::default(),
        }
    }

    pub fn thread(request_id: u32, start_ns: u64) -> ThreadOperation {
        ThreadOperation {
            process: 1,
            thread: 2,
            thread_name: "conn3".into(),
            connection: Some((Endpoint::v4([10, 0, 0, 1], 27017), Endpoint::v4([10, 0, 0, 2], 50000))),
            request_id,
            opcode: 2013,
            received_from: Timestamp::from_unix_ns(start_ns),
            start: Timestamp::from_unix_ns(start_ns),
            end: Timestamp::from_unix_ns(start_ns + 1_000),
            duration_ns: 1_000,
            split: TimeSplit::default(),
            switches: 0,
            reads: 0,
            read_bytes: 0,
            write_bytes: 0,
            device_bytes: 0,
            faults: 0,
            request_bytes: 100,
            reply_bytes: 200,
            is_exhaust: false,
            is_unacknowledged: false,
            is_pipelined: false,
            files: Vec::new(),
            has_all_files: true,
            wakers: Vec::new(),
            has_all_wakers: true,
            woke_others: false,
        }
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
        assert!(joiner.wire(wire(9, 0)).is_none(), "its partner was given up");
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
    fn a_clock_that_reads_earlier_gives_no_negative_time() {
        let joined = JoinedOperation { wire: wire(1, 2_000), thread: thread(1, 1_999) };
        assert_eq!(joined.unread_ns(), 0);
    }
}
