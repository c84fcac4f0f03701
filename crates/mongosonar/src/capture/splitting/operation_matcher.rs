//! Where the operations of the wire and of the threads meet.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use sonar_core::running::RequestKey;
use sonar_core::time_split::{
    ClassifiedWait, ConnectionSample, JoinCounts, JoinedOperation, OperationKey, PendingWaits, SplitJoiner,
    ThreadOperation, TimePart, WireOperation,
};
use sonar_core::{Operation, Outcome, Timestamp};

use crate::args::when::now;
use crate::capture::pipeline::OperationListener;
use crate::locking::lock;

/// The most requests without a reply that are kept.
const MAX_REQUESTS: usize = 65_536;

/// The most operations of the wire that are passed on at once.
const MAX_BATCH: usize = 4_096;

/// Receives operations.
pub trait SplitSink: Send {
    /// An operation that both sides saw has ended, with its long waits.
    fn joined(&mut self, operation: &JoinedOperation, waits: Vec<ClassifiedWait>);

    /// An operation of a thread that the wire does not have, with its long waits.
    fn alone(&mut self, _operation: ThreadOperation, _waits: Vec<ClassifiedWait>) {}

    /// Called ten times a second.
    fn tick(&mut self) {}
}

/// Both sides meet here.
pub struct OperationMatcher<S> {
    /// Receives what has met.
    pub sink: S,
    joiner: SplitJoiner,
    waits: PendingWaits,
    waits_seen: u64,
    ended: Option<Timestamp>,
    unanswered: UnansweredRequests,
}

impl<S: SplitSink> OperationMatcher<S> {
    /// With threads that are traced from now on.
    pub fn new(sink: S) -> Self {
        Self {
            sink,
            joiner: SplitJoiner::since(now()),
            waits: PendingWaits::default(),
            waits_seen: 0,
            ended: None,
            unanswered: UnansweredRequests::default(),
        }
    }

    /// The same, but at most `room` operations of one side wait for the other one.
    #[must_use]
    pub fn with_room(self, room: usize) -> Self {
        Self { joiner: self.joiner.with_room(room), ..self }
    }

    /// The most bytes with this room, without the sink, and without requests that are kept after the end.
    #[cfg(test)]
    pub const fn max_memory(room: usize) -> usize {
        let batches = 2 * sonar_core::held::list_bytes(MAX_BATCH, size_of::<WireOperation>());
        SplitJoiner::max_memory(room) + PendingWaits::MAX_MEMORY + batches
    }

    /// The bytes that it has allocated, without those of the sink. Shapes and applications are shared with others, and do
    /// not count.
    pub fn memory(&self) -> usize {
        let unanswered = self.unanswered.0.capacity() * size_of::<(RequestKey, WireOperation)>();
        self.joiner.memory() + self.waits.memory() + unanswered
    }

    /// The records of the threads are read only from now on.
    pub fn begin(&mut self) {
        self.joiner.traced_since(now());
    }

    /// The threads are not traced any more. Operations of the wire may still come; requests that had no reply at `time`
    /// are kept.
    pub fn end(&mut self, time: Timestamp) {
        self.joiner.traced_until(time);
        self.ended = Some(time);
    }

    fn wire(&mut self, operation: WireOperation) {
        if self.ended.is_some_and(|ended| operation.end > ended) {
            self.unanswered.add(operation);
            return;
        }
        let joined = self.joiner.wire(operation);
        self.joined(joined);
    }

    /// A thread has ended an operation.
    pub fn thread(&mut self, operation: ThreadOperation) {
        let joined = self.joiner.thread(operation);
        self.joined(joined);
    }

    fn joined(&mut self, operation: Option<JoinedOperation>) {
        if let Some(operation) = operation {
            let waits = self.waits.take(operation.thread.key());
            self.sink.joined(&operation, waits);
        }
        self.pass_alone();
    }

    fn pass_alone(&mut self) {
        for operation in self.joiner.take_alone() {
            let waits = self.waits.take(operation.key());
            self.sink.alone(operation, waits);
        }
        for operation in self.joiner.take_dropped() {
            self.waits.take(operation);
        }
    }

    /// Nothing more comes from either side.
    pub fn close(&mut self) {
        self.joiner.close();
        self.pass_alone();
    }

    /// A long wait of an operation has ended; the operation has not.
    pub fn waited(&mut self, operation: OperationKey, wait: ClassifiedWait) {
        self.waits_seen += u64::from(wait.part != TimePart::Cpu);
        self.waits.add(operation, wait);
    }

    /// The request of an operation that is still in progress.
    pub fn request_of(&self, operation: &ThreadOperation) -> Option<WireOperation> {
        self.unanswered.of(operation).or_else(|| self.joiner.pending(operation)).cloned()
    }

    /// Gives up what will not meet any more.
    pub fn tick(&mut self) {
        self.joiner.expire(now());
        self.pass_alone();
        self.sink.tick();
    }

    /// What did and did not meet, as if nothing more would come.
    pub fn counts(&self) -> JoinCounts {
        self.joiner.finish()
    }

    /// The same for what is decided by now.
    pub fn settled_counts(&self) -> JoinCounts {
        self.joiner.settled()
    }

    /// How many long waits each one with a class stands for, if `others` have none; at least 1.
    pub fn wait_weight(&self, others: u64) -> f64 {
        1.0 + others as f64 / self.waits_seen.max(1) as f64
    }

    /// Long waits that had no room until the end of their operation.
    pub fn waits_turned_away(&self) -> u64 {
        self.waits.turned_away
    }
}

/// Passes the operations of a batch of packets on at once.
pub struct WireSide<S> {
    matcher: Arc<Mutex<OperationMatcher<S>>>,
    /// Connections that are followed.
    sample: ConnectionSample,
    ended: Vec<WireOperation>,
    unanswered: Vec<WireOperation>,
}

impl<S> WireSide<S> {
    /// Of these connections.
    pub fn new(matcher: Arc<Mutex<OperationMatcher<S>>>, sample: ConnectionSample) -> Self {
        Self { matcher, sample, ended: Vec::new(), unanswered: Vec::new() }
    }
}

impl<S: SplitSink> OperationListener for WireSide<S> {
    fn operation(&mut self, op: &Operation<'_>) -> io::Result<()> {
        if self.sample.has(op.client) {
            let operations = match op.outcome {
                Outcome::InFlight => &mut self.unanswered,
                _ => &mut self.ended,
            };
            operations.push(op.into());
            if self.ended.len().max(self.unanswered.len()) >= MAX_BATCH {
                return self.flush();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut matcher = lock(&self.matcher);
        self.ended.drain(..).for_each(|operation| matcher.wire(operation));
        // Nobody asks for them while the threads are traced.
        let is_kept = matcher.ended.is_some();
        self.unanswered.drain(..).filter(|_| is_kept).for_each(|request| matcher.unanswered.add(request));
        Ok(())
    }
}

/// Requests on the wire that had no reply when the trace ended.
#[derive(Default)]
struct UnansweredRequests(HashMap<RequestKey, WireOperation>);

impl UnansweredRequests {
    fn add(&mut self, request: WireOperation) {
        if self.0.len() < MAX_REQUESTS {
            self.0.insert((request.server, request.client, request.request_id), request);
        }
    }

    fn of(&self, operation: &ThreadOperation) -> Option<&WireOperation> {
        let (server, client) = operation.connection?;
        self.0.get(&(server, client, operation.request_id))
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::time_split::{MAX_ALL_WAITS, MAX_PENDING_WAITS};

    use super::super::tests::{thread_operation, wire_operation};
    use super::*;

    struct Deaf;

    impl SplitSink for Deaf {
        fn joined(&mut self, _: &JoinedOperation, _: Vec<ClassifiedWait>) {}
    }

    #[test]
    fn a_full_meeting_has_no_more_than_it_may() {
        const ROOM: usize = 14_000;
        let mut matcher = OperationMatcher::new(Deaf).with_room(ROOM);
        matcher.joiner.traced_since(Timestamp::default());
        for number in 0..ROOM as u64 + 3 {
            matcher.wire(wire_operation(number));
            matcher.thread(thread_operation(number + (1 << 20)));
        }
        assert_eq!(
            matcher.counts().without_thread,
            ROOM as u64 + 3,
            "those without room are counted at once"
        );
        assert_eq!(matcher.settled_counts().without_wire, 3);
        let wait = ClassifiedWait { part: TimePart::Futex, class: "ticket".into(), wait_ns: 5 };
        for number in 0..MAX_PENDING_WAITS as u32 {
            for _ in 0..MAX_ALL_WAITS / MAX_PENDING_WAITS {
                matcher.waited((number, Timestamp::from_unix_ns(1)), wait.clone());
            }
        }
        let (most, bytes) = (OperationMatcher::<Deaf>::max_memory(ROOM), matcher.memory());
        assert!(bytes <= most && bytes > most / 3, "{bytes} of {most}");
        // Requests without a reply are kept only for those who ask after the end.
        let mut wire = WireSide::new(Arc::new(Mutex::new(matcher)), ConnectionSample::default());
        wire.unanswered.push(wire_operation(1));
        wire.flush().unwrap();
        assert_eq!(lock(&wire.matcher).unanswered.0.len(), 0);
        lock(&wire.matcher).end(Timestamp::from_unix_ns(u64::MAX));
        wire.unanswered.push(wire_operation(1));
        wire.flush().unwrap();
        assert_eq!(lock(&wire.matcher).unanswered.0.len(), 1);
    }
}
