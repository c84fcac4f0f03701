//! Where the time of operations goes inside the servers, from their threads and the wire.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_core::observation::WIDTH_NS;
use sonar_core::time_split::{
    ClassifiedWait, ConnectionSample, EndedWaits, JoinedOperation, OTHER, RowBlockers,
};
use sonar_sys::Host;
use sonar_sys::split::MAX_PROCESSES;

use super::board::{CollectorProblem, RESTART};
use super::clock_reading::ClockReading;
use super::runner::{Collector, CollectorPlan, NotOpened, Observation};
use crate::agent::memory::Holder;
use crate::agent::servers::LocalServers;
use crate::capture::OperationListener;
use crate::capture::splitting::{
    ClosedFiles, FileLabels, OperationMatcher, SplitHelpers, SplitPlan, SplitSink, SplitTrace, WireSide,
};
use crate::locking::lock;
use crate::servers;

/// Operations that both sides saw and that wait until they are added up, ten times a second; further ones are lost.
const MAX_QUEUED: usize = 8_192;
/// The most long waits of all of them. An operation with more than there is room for is lost, too.
const MAX_QUEUED_WAITS: usize = 32_768;
/// Operations that are taken at once.
const TAKEN_AT_ONCE: usize = 1_024;
/// Operations of one side that wait for the other one.
const ROOM: usize = 14_000;
/// How often servers that start and end are followed, and the state is reported.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// How often the open files of the servers are read, if there are some without a label.
const LABELS_EVERY: Duration = Duration::from_secs(5);

/// Operations that both sides saw, and that are not added up yet.
#[derive(Default)]
pub struct JoinedQueue {
    operations: VecDeque<QueuedOperation>,
    /// Waits of all of them.
    waits: usize,
    /// Operations that had no room.
    turned_away: u64,
}

/// An operation with its long waits.
type QueuedOperation = (JoinedOperation, Vec<ClassifiedWait>);

impl SplitSink for JoinedQueue {
    fn joined(&mut self, operation: &JoinedOperation, waits: Vec<ClassifiedWait>) {
        if self.operations.len() < MAX_QUEUED && self.waits + waits.len() <= MAX_QUEUED_WAITS {
            self.waits += waits.len();
            self.operations.push_back((operation.clone(), waits));
        } else {
            self.turned_away += 1;
        }
    }
}

impl JoinedQueue {
    /// The most bytes, including the operations that are being taken; [`Holder::SplitQueue`] has room for them. A list of
    /// waits has room for up to twice as many as it has, and for four at least.
    #[cfg(test)]
    const MAX_MEMORY: usize = sonar_core::held::list_bytes(MAX_QUEUED, size_of::<QueuedOperation>())
        + sonar_core::held::list_bytes(TAKEN_AT_ONCE, size_of::<QueuedOperation>())
        + (MAX_QUEUED + TAKEN_AT_ONCE) * sonar_core::time_split::ThreadOperation::MAX_HEAP
        + (4 * MAX_QUEUED + 2 * MAX_QUEUED_WAITS) * size_of::<ClassifiedWait>();

    /// Takes the oldest, not too many at once.
    fn take(&mut self) -> Vec<QueuedOperation> {
        let taken: Vec<_> = self.operations.drain(..self.operations.len().min(TAKEN_AT_ONCE)).collect();
        self.waits -= taken.iter().map(|(_, waits)| waits.len()).sum::<usize>();
        taken
    }

    /// The bytes that it has allocated. Shapes, applications and names of classes are shared, and do not count.
    fn memory(&self) -> usize {
        let bytes = |(operation, waits): &QueuedOperation| {
            operation.thread.heap_bytes() + waits.capacity() * size_of::<ClassifiedWait>()
        };
        self.operations.capacity() * size_of::<QueuedOperation>()
            + self.operations.iter().map(bytes).sum::<usize>()
    }
}

/// What needs its privileges before any thread is started, and what the capture passes operations to.
pub struct SplitSetup {
    helpers: SplitHelpers,
    matcher: Arc<Mutex<OperationMatcher<JoinedQueue>>>,
    connections: ConnectionSample,
}

impl SplitSetup {
    /// For every mongod and mongos of this host that proves to be one, and these connections.
    ///
    /// # Errors
    /// A helper process cannot be started. The kernel, or a missing privilege.
    pub fn new(connections: ConnectionSample, plan: SplitPlan) -> anyhow::Result<Self> {
        let host = Host::live();
        let processes = servers::in_order_of_places(servers::proven_or_hidden(&host), MAX_PROCESSES);
        let processes = servers::proven_again(&host, &processes);
        let helpers = SplitHelpers::start(&processes, None, connections, plan)?;
        let matcher = Arc::new(Mutex::new(OperationMatcher::new(JoinedQueue::default()).with_room(ROOM)));
        Ok(Self { helpers, matcher, connections })
    }

    /// Receives the operations of the wire.
    pub fn listener(&self) -> Arc<Mutex<dyn OperationListener>> {
        Arc::new(Mutex::new(WireSide::new(self.matcher.clone(), self.connections)))
    }
}

impl CollectorPlan for SplitSetup {
    fn open(self: Box<Self>) -> Result<Box<dyn Collector>, NotOpened> {
        let Self { helpers, matcher, connections } = *self;
        Ok(Box::new(SplitCollector { trace: helpers.trace(), matcher, connections }))
    }
}

/// Traces the threads of the servers.
struct SplitCollector {
    trace: SplitTrace,
    matcher: Arc<Mutex<OperationMatcher<JoinedQueue>>>,
    connections: ConnectionSample,
}

impl Collector for SplitCollector {
    fn drop_privileges(&self) {
        self.trace.drop_privileges();
    }

    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem> {
        let Self { trace, matcher, connections } = &*self;
        // Any user may have built the program of a server.
        trace.load_symbols();
        let mut local = LocalServers::default();
        into.servers().add_to(&mut local);
        let splitting = RefCell::new(Splitting {
            labels: FileLabels::new(ClosedFiles::Forgotten, LABELS_EVERY),
            observed: ClockReading::now(),
            followed: None,
            divided: 0,
            lost: 0,
            connections: *connections,
            blockers: RowBlockers::new(WIDTH_NS),
            local,
            listed: None,
            into,
        });
        let ended = trace.skip().and_then(|()| {
            lock(matcher).begin();
            trace.run(matcher, || {
                let mut splitting = splitting.borrow_mut();
                splitting.tick(trace, matcher);
                splitting.into.goes_on()
            })
        });
        let mut splitting = splitting.into_inner();
        splitting.tick(trace, matcher);
        splitting.state(trace, matcher);
        // It needs privileges to trace again.
        ended.map_err(|error| CollectorProblem::permanent(format!("{error:#}"), Some(RESTART.to_owned())))
    }
}

/// State that outlives a window.
struct Splitting<'a> {
    labels: FileLabels,
    /// Until when the threads were observed.
    observed: ClockReading,
    /// When the servers were looked at.
    followed: Option<Instant>,
    /// Operations so far.
    divided: u64,
    /// Events, records and operations that were lost so far.
    lost: u64,
    connections: ConnectionSample,
    /// Which operations ended the waits of others.
    blockers: RowBlockers,
    /// Also servers that have ended, and the addresses of this host.
    local: LocalServers,
    /// When the threads were last listed for somebody who looks.
    listed: Option<Instant>,
    into: &'a mut Observation,
}

impl Splitting<'_> {
    /// Adds up what has come.
    fn tick(&mut self, trace: &SplitTrace, matcher: &Mutex<OperationMatcher<JoinedQueue>>) {
        for what in trace.take_notices() {
            eprintln!("mongosonar: {what}");
        }
        // What comes meanwhile is taken the next time.
        let mut left = lock(matcher).sink.operations.len();
        while left > 0 {
            let operations = lock(matcher).sink.take();
            left = left.saturating_sub(operations.len().max(1));
            self.add(operations, trace);
            self.into.windows.limit();
        }
        if self.followed.is_none_or(|followed| followed.elapsed() >= FOLLOW_EVERY) {
            self.state(trace, matcher);
        }
        self.list(trace);
    }

    /// Lists what the threads of long operations do now, if somebody looks.
    fn list(&mut self, trace: &SplitTrace) {
        let now = Instant::now();
        if !self.into.board().running.is_due(now, self.listed) {
            return;
        }
        self.listed = Some(now);
        // That tables of the kernel cannot be read is reported where records are read.
        let Ok(threads) = trace.now_if_long() else { return };
        let seen = threads.map_or_else(HashMap::new, |threads| threads.seen(|file| self.labels.of(file)));
        self.into.board().running.set_threads(now, seen);
    }

    fn add(&mut self, operations: Vec<QueuedOperation>, trace: &SplitTrace) {
        operations.iter().for_each(|(operation, _)| self.labels.expect(operation));
        let reads_files = |(operation, _): &QueuedOperation| !operation.thread.files.is_empty();
        let read = Instant::now();
        if operations.iter().any(reads_files) && self.labels.are_due(read) {
            let (files, servers) = (trace.files().into_iter(), self.into.servers());
            self.labels.set(read, files.map(|(file, path)| (file, servers.in_dbpath(&path).into())));
        }
        for (mut operation, waits) in operations {
            operation.wire.server = self.local.name(operation.wire.server);
            self.blockers.add(&operation);
            let window = &mut self.into.windows.at(operation.wire.end).window.window;
            if let Some((split, is_folded)) = window.shapes.split_of(&operation.wire) {
                split.record(&operation, &waits, &mut |device, inode| {
                    // It is closed already.
                    self.labels.of((device, inode)).unwrap_or_else(|| OTHER.into())
                });
                // The capture counts operations that are folded.
                self.divided += u64::from(!is_folded);
            }
            for EndedWaits { waited, by, waits } in self.blockers.take() {
                let window = &mut self.into.windows.at(waited.end).window.window;
                if let Some((split, _)) = window.shapes.split_of(&waited) {
                    split.add_blocker(&by, waits);
                }
            }
        }
    }

    /// Follows servers that have started, and reports.
    fn state(&mut self, trace: &SplitTrace, matcher: &Mutex<OperationMatcher<JoinedQueue>>) {
        self.followed = Some(Instant::now());
        let servers = self.into.servers().all();
        let processes: Vec<u32> = servers.iter().map(|server| server.pid).collect();
        trace.follow(&processes);
        self.into.servers().add_to(&mut self.local);
        let reading = ClockReading::now();
        let before = std::mem::replace(&mut self.observed, reading);
        let observed = reading.since(&before);
        self.into.windows.observe(CollectorKind::Split, observed.from, reading.time);
        self.into.advance(reading.time);
        let losses = trace.take_losses();
        self.lost += losses.ring_full + losses.threads_full + losses.unreadable + losses.programs_skipped;
        let board = self.into.board();
        let (counts, turned_away) = {
            let matcher = lock(matcher);
            board.held.set(Holder::SplitWaiting, matcher.memory());
            board.held.set(Holder::SplitQueue, matcher.sink.memory());
            (matcher.counts(), matcher.sink.turned_away)
        };
        board.held.set(Holder::SplitBlockers, self.blockers.memory());
        board.held.set(Holder::SplitFiles, self.labels.memory());
        board.held.set(Holder::Symbols, trace.symbol_bytes());
        board.lost(CollectorKind::Split, self.lost + turned_away);
        board.ebpf(CollectorKind::Split, trace.run_time());
        if servers.is_empty() {
            return board.waits(CollectorKind::Split, "no mongod or mongos runs here");
        }
        let mut notes = vec![format!("operations divided: {}", self.divided)];
        if self.connections != ConnectionSample::default() {
            notes.push(format!("one connection in {} is followed", self.connections.every));
        }
        if counts.answered_elsewhere > 0 {
            let count = counts.answered_elsewhere;
            notes.push(format!("operations that cannot be divided, because another thread answers: {count}"));
        }
        notes.extend(trace.refused());
        notes.extend(trace.further_failures());
        board.notes(CollectorKind::Split, notes);
        let event = match self.divided {
            0 => board.works(CollectorKind::Split, reading.time),
            _ => board.data(CollectorKind::Split, reading.time),
        };
        self.into.report(event);
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::time_split::TimePart;

    use super::*;
    use crate::capture::splitting::OpenFilesRoom;
    use crate::capture::splitting::tests::{thread_operation, wire_operation};

    fn joined(number: u64) -> JoinedOperation {
        JoinedOperation::new(wire_operation(number), thread_operation(number))
    }

    fn waits(count: usize) -> Vec<ClassifiedWait> {
        vec![ClassifiedWait { part: TimePart::Futex, class: "ticket".into(), wait_ns: 5 }; count]
    }

    #[test]
    fn a_full_queue_has_no_more_than_its_holder_may_and_what_has_no_room_is_counted() {
        let most = Holder::SplitQueue.facts().bytes;
        assert!(JoinedQueue::MAX_MEMORY <= most, "{} of {most}", JoinedQueue::MAX_MEMORY);
        let mut queue = JoinedQueue::default();
        for number in 0..MAX_QUEUED as u64 + 5 {
            queue.joined(&joined(number), waits(MAX_QUEUED_WAITS / MAX_QUEUED));
        }
        assert_eq!((queue.operations.len(), queue.turned_away), (MAX_QUEUED, 5));
        assert!(queue.memory() <= JoinedQueue::MAX_MEMORY, "{}", queue.memory());
        assert!(queue.memory() > JoinedQueue::MAX_MEMORY / 2, "{}", queue.memory());
        assert_eq!(queue.take().len(), TAKEN_AT_ONCE);
        assert_eq!(
            (queue.operations.len(), queue.waits),
            (MAX_QUEUED - TAKEN_AT_ONCE, MAX_QUEUED_WAITS - 4 * TAKEN_AT_ONCE)
        );
        // One with all the waits that there may be.
        let mut queue = JoinedQueue::default();
        queue.joined(&joined(1), waits(MAX_QUEUED_WAITS));
        queue.joined(&joined(2), waits(1));
        queue.joined(&joined(3), waits(0));
        assert_eq!((queue.operations.len(), queue.turned_away), (2, 1));
    }

    #[test]
    fn what_waits_for_its_other_side_and_for_blockers_has_room_in_its_holders() {
        let (waiting, blockers) = (Holder::SplitWaiting.facts().bytes, Holder::SplitBlockers.facts().bytes);
        let most = OperationMatcher::<JoinedQueue>::max_memory(ROOM);
        assert!(most <= waiting, "{most} of {waiting}");
        assert!(RowBlockers::MAX_MEMORY <= blockers, "{} of {blockers}", RowBlockers::MAX_MEMORY);
    }

    #[test]
    fn names_of_files_have_room_in_their_holder() {
        let most = Holder::SplitFiles.facts().bytes;
        assert!(OpenFilesRoom::AGENT.max_memory() <= most, "{} of {most}", OpenFilesRoom::AGENT.max_memory());
    }
}
