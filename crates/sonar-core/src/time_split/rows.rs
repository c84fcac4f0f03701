//! Where the time of operations went, by query shape.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::blockers::{BlockedWait, BlockerKey, Blockers};
use super::{
    Blocker, ClassifiedWait, FileReads, JoinedOperation, OTHER, ServerEvidence, TimePart, TimeSplit,
    WaitTotal,
};
use crate::{Class, Histogram, Role, ShapeId, ShapeInfo};

/// Rows of a table; further shapes are added up in one row.
pub const MAX_SPLIT_ROWS: usize = 2_000;
/// Files, blockers and applications of a row.
const MAX_PER_ROW: usize = 64;

/// What says which shape operations have.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum ShapeOrigin {
    /// Their requests, as captured.
    #[default]
    Wire,
    /// The server's log: they were not captured.
    Log,
    /// The server's profiler: they were not captured.
    Profile,
    /// Nothing: only the names of their threads are known.
    ThreadName,
}

impl ShapeOrigin {
    /// The stable name in machine output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Log => "log",
            Self::Profile => "profile",
            Self::ThreadName => "thread_name",
        }
    }
}

/// Identifies a row of a [`SplitTable`].
pub type SplitRowKey = (ShapeOrigin, Role, Class, ShapeId);

/// Operations of one shape.
#[derive(Clone, Debug)]
pub struct ShapeSplit {
    /// What says that they have this shape.
    pub origin: ShapeOrigin,
    /// What the server's log or profiler says of them.
    pub server: ServerEvidence,
    /// The shape.
    pub shape: Arc<ShapeInfo>,
    /// Who sent them.
    pub role: Role,
    /// Their purpose.
    pub class: Class,
    /// From the arrival of the request until the reply was sent.
    pub total: Histogram,
    /// Time from the arrival of the request until the thread had received it.
    pub unread: Histogram,
    /// Where the time went.
    pub split: TimeSplit,
    /// The time of each part in each operation that had any.
    pub parts: [Option<Box<Histogram>>; TimePart::ALL.len()],
    /// Time that no part explains, in nanoseconds: events were lost.
    pub unexplained_ns: u64,
    /// Reads of files, from the page cache or not.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub write_bytes: u64,
    /// Bytes that were read from devices.
    pub device_bytes: u64,
    /// Page faults that read from a device.
    pub faults: u64,
    /// How often an operation blocked or lost the processor.
    pub switches: u64,
    /// Operations without a reply.
    pub unacknowledged: u64,
    /// Files that they waited for, by device and inode.
    pub files: HashMap<(u32, u64), FileReads>,
    /// Waits for files that `files` does not have.
    pub has_other_files: bool,
    /// Some of their waits were ended by more threads than are known.
    pub has_other_blockers: bool,
    /// Long waits by part and class, as far as their stacks were taken; for [`TimePart::Cpu`], samples by what they
    /// computed. Those beyond the bound are in the class [`OTHER`].
    pub waits: HashMap<(TimePart, Arc<str>), WaitTotal>,
    /// Names of applications, with operations.
    pub apps: HashMap<String, u64, RandomState>,
    blockers: HashMap<BlockerKey, (Blocker, WaitTotal)>,
}

impl ShapeSplit {
    /// Without operations.
    pub fn new(shape: Arc<ShapeInfo>, role: Role, class: Class) -> Self {
        Self {
            origin: ShapeOrigin::Wire,
            server: ServerEvidence::default(),
            shape,
            role,
            class,
            total: Histogram::new(),
            unread: Histogram::default(),
            split: TimeSplit::default(),
            parts: Default::default(),
            unexplained_ns: 0,
            reads: 0,
            read_bytes: 0,
            write_bytes: 0,
            device_bytes: 0,
            faults: 0,
            switches: 0,
            unacknowledged: 0,
            files: HashMap::new(),
            has_other_files: false,
            has_other_blockers: false,
            waits: HashMap::new(),
            apps: HashMap::default(),
            blockers: HashMap::new(),
        }
    }

    fn add(&mut self, operation: &JoinedOperation) {
        let thread = &operation.thread;
        self.total.record(operation.total_ns());
        self.unread.record(operation.unread_ns());
        self.split.add(&thread.split);
        for (part, ns) in thread.split.parts().filter(|(_, ns)| *ns > 0) {
            self.parts[part as usize].get_or_insert_default().record(ns);
        }
        self.unexplained_ns += thread.duration_ns.saturating_sub(thread.split.total_ns());
        self.reads += u64::from(thread.reads);
        self.read_bytes = self.read_bytes.saturating_add(thread.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(thread.write_bytes);
        self.device_bytes = self.device_bytes.saturating_add(thread.device_bytes);
        self.faults += u64::from(thread.faults);
        self.switches = self.switches.saturating_add(thread.switches);
        self.unacknowledged += u64::from(thread.is_unacknowledged);
        self.has_other_files |= !thread.has_all_files;
        self.has_other_blockers |= !thread.has_all_wakers;
        for file in &thread.files {
            let key = (file.device, file.inode);
            if self.files.len() >= MAX_PER_ROW && !self.files.contains_key(&key) {
                self.has_other_files = true;
                continue;
            }
            self.files.entry(key).or_default().add(file.into());
        }
        let app = &*operation.wire.app.name;
        if let Some(count) = self.apps.get_mut(app) {
            *count += 1;
        } else if self.apps.len() < MAX_PER_ROW {
            self.apps.insert(app.to_owned(), 1);
        }
    }

    fn waited(&mut self, wait: ClassifiedWait) {
        let ClassifiedWait { part, mut class, wait_ns } = wait;
        if self.waits.len() >= MAX_PER_ROW && !self.waits.contains_key(&(part, class.clone())) {
            class = OTHER.into();
        }
        self.waits.entry((part, class)).or_default().add(WaitTotal { waits: 1, wait_ns });
    }

    fn blocked(&mut self, wait: &BlockedWait, blocker: Blocker) {
        let key = BlockerKey::from(&blocker);
        if self.blockers.len() >= MAX_PER_ROW && !self.blockers.contains_key(&key) {
            self.has_other_blockers = true;
            return;
        }
        let thread = blocker.thread;
        let (known, total) = self.blockers.entry(key).or_insert((blocker, WaitTotal::default()));
        known.has_others |= known.thread != thread;
        total.add(wait.total());
    }

    /// Operations.
    pub fn count(&self) -> u64 {
        self.total.count()
    }

    /// Who ended waits of these operations: how many, and how long they had waited in nanoseconds; the longest first.
    pub fn blockers(&self) -> Vec<(&Blocker, u64, u64)> {
        let mut blockers: Vec<_> =
            self.blockers.values().map(|(blocker, total)| (blocker, total.waits, total.wait_ns)).collect();
        blockers.sort_by_key(|(blocker, _, ns)| (std::cmp::Reverse(*ns), blocker.thread));
        blockers
    }
}

/// Where time went, by origin, role, class and shape.
#[derive(Default, Debug)]
pub struct SplitTable {
    rows: Vec<ShapeSplit>,
    by: HashMap<SplitRowKey, usize, RandomState>,
    blockers: Blockers,
}

/// What a [`SplitTable`] has at its end.
#[derive(Debug)]
pub struct SplitResult {
    /// The rows, those with the most time first.
    pub rows: Vec<ShapeSplit>,
    /// Waits that were given up before the shape of their blocker was known.
    pub blockers_turned_away: u64,
}

impl SplitTable {
    /// Notes an operation that is not to be counted: it may have ended waits of others.
    pub fn pass(&mut self, operation: &JoinedOperation) {
        self.blockers.executed(operation);
    }

    /// Adds a captured operation with its long waits.
    pub fn add(&mut self, operation: &JoinedOperation, waits: Vec<ClassifiedWait>) {
        self.add_from(ShapeOrigin::Wire, operation, waits);
    }

    /// Adds an operation with its long waits; returns its row.
    pub fn add_from(
        &mut self,
        origin: ShapeOrigin,
        operation: &JoinedOperation,
        waits: Vec<ClassifiedWait>,
    ) -> SplitRowKey {
        let wire = &operation.wire;
        let mut key = (origin, wire.role, wire.class, wire.shape.id);
        let is_full = self.rows.len() >= MAX_SPLIT_ROWS && !self.by.contains_key(&key);
        if is_full {
            key.3 = ShapeInfo::other().id;
        }
        let rows = &mut self.rows;
        let number = *self.by.entry(key).or_insert_with(|| {
            let shape = if is_full { Arc::new(ShapeInfo::other()) } else { Arc::clone(&wire.shape) };
            rows.push(ShapeSplit { origin, ..ShapeSplit::new(shape, wire.role, wire.class) });
            rows.len() - 1
        });
        let row = &mut self.rows[number];
        row.add(operation);
        waits.into_iter().for_each(|wait| row.waited(wait));
        for waker in &operation.thread.wakers {
            self.blockers.wait(BlockedWait::of_row(number, waker));
        }
        self.blockers.executed(operation);
        key
    }

    /// Adds what the server says of an operation of this row.
    pub fn evidence(&mut self, row: SplitRowKey, evidence: &ServerEvidence) {
        if let Some(number) = self.by.get(&row) {
            self.rows[*number].server.merge(evidence);
        }
    }

    /// Counts who ended waits, as far as it is known. Call it now and then.
    pub fn resolve(&mut self) {
        for (wait, blocker) in self.blockers.take() {
            self.rows[wait.row].blocked(&wait, blocker);
        }
    }

    /// The rows, and what was not kept.
    pub fn finish(mut self) -> SplitResult {
        self.blockers.give_up();
        self.resolve();
        self.rows.sort_by(|a, b| b.total.sum_ns().cmp(&a.total.sum_ns()).then(a.shape.id.cmp(&b.shape.id)));
        SplitResult { rows: self.rows, blockers_turned_away: self.blockers.turned_away }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{FileTotal, FileWait, ThreadOperation, Waker, WireOperation};
    use super::*;
    use crate::Timestamp;
    use crate::testing::{thread_operation as thread, wire_operation as wire};

    fn shape(id: u64) -> Arc<ShapeInfo> {
        Arc::new(ShapeInfo { id: ShapeId(id), command: "find".into(), ..ShapeInfo::default() })
    }

    fn joined(id: u64, start_ns: u64, change: impl FnOnce(&mut ThreadOperation)) -> JoinedOperation {
        let mut thread = thread(1, start_ns + 100);
        thread.split[TimePart::Cpu] = 600;
        thread.split[TimePart::Read] = 300;
        change(&mut thread);
        JoinedOperation { wire: WireOperation { shape: shape(id), ..wire(1, start_ns) }, thread }
    }

    #[test]
    fn parts_unread_and_unexplained_add_up_to_the_whole() {
        let mut table = SplitTable::default();
        table.add(&joined(1, 0, |_| {}), Vec::new());
        let with_files = joined(1, 5_000, |thread| {
            let file = FileWait { inode: 7, device: 8, reads: 2, in_order: 1, bytes: 8192, wait_ns: 250 };
            thread.files = vec![file, FileWait { inode: 9, ..file }];
        });
        table.add(&with_files, Vec::new());
        let SplitResult { rows, blockers_turned_away: lost, .. } = table.finish();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.count(), lost), (2, 0));
        assert_eq!((row.unread.sum_ns() as u64, row.split.total_ns(), row.unexplained_ns), (200, 1_800, 200));
        assert_eq!(row.total.sum_ns(), 2_200);
        assert_eq!(row.parts[TimePart::Read as usize].as_ref().unwrap().count(), 2);
        assert!(row.parts[TimePart::Futex as usize].is_none());
        let total = FileTotal { reads: 2, bytes: 8192, wait_ns: 250 };
        assert_eq!(row.files[&(8, 7)], FileReads { total, in_order: 1 });
        assert_eq!(row.files.len(), 2);
    }

    /// A thread that executed an operation from `start_ns` on when it ended a wait of 500 ns.
    fn waker(thread: u32, start_ns: Option<u64>) -> Waker {
        let operation_start = start_ns.map(Timestamp::from_unix_ns);
        Waker { thread, operation_start, count: 1, wait_ns: 500 }
    }

    /// What thread 41 executed from `start_ns` on.
    fn executed_by_41(id: u64, start_ns: u64) -> JoinedOperation {
        joined(id, start_ns, |op| {
            op.thread = 41;
            op.thread_name = "conn41".into();
            op.start = Timestamp::from_unix_ns(start_ns);
            op.woke_others = true;
        })
    }

    #[test]
    fn a_blocker_is_the_operation_that_its_thread_executed_then() {
        let mut table = SplitTable::default();
        // It ends after the one that it blocked; the next operation of its thread began before that one ended, too.
        table.add(
            &joined(1, 10_000, |op| op.wakers = vec![waker(41, Some(2_000)), waker(99, None)]),
            Vec::new(),
        );
        table.resolve();
        table.pass(&executed_by_41(5, 2_000));
        table.pass(&executed_by_41(6, 10_500));
        table.resolve();
        let rows = table.finish().rows;
        let [row] = &rows[..] else { panic!("others are passed only: {rows:?}") };
        let blockers = row.blockers();
        let known = blockers.iter().find(|(blocker, ..)| blocker.thread == 41).unwrap();
        assert_eq!(known.0.thread_name.as_deref(), Some("conn41"));
        assert_eq!(known.0.shape.as_ref().unwrap().id, ShapeId(5));
        assert_eq!((known.1, known.2), (1, 500));
        let background = blockers.iter().find(|(blocker, ..)| blocker.thread == 99).unwrap();
        assert!(background.0.shape.is_none() && background.0.thread_name.is_none());
    }

    #[test]
    fn a_blocker_that_was_not_seen_has_no_shape() {
        let mut table = SplitTable::default();
        table.pass(&executed_by_41(5, 0));
        table.add(&joined(1, 50_000, |op| op.wakers = vec![waker(41, Some(40_000))]), Vec::new());
        let SplitResult { rows, blockers_turned_away: turned_away, .. } = table.finish();
        assert!(rows[0].blockers()[0].0.shape.is_none());
        assert_eq!(turned_away, 0);
    }

    #[test]
    fn a_wait_with_a_stack_is_counted_with_its_operation() {
        let mut table = SplitTable::default();
        let operation = joined(1, 10_000, |_| {});
        let wait =
            |class: &str, wait_ns| ClassifiedWait { part: TimePart::Futex, class: class.into(), wait_ns };
        let waits = [("execution ticket", 50), ("metadata lock", 20), ("execution ticket", 30)];
        table.add(&operation, waits.map(|(class, wait_ns)| wait(class, wait_ns)).to_vec());
        table.add(&joined(1, 70_000, |_| {}), Vec::new());
        let rows = table.finish().rows;
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(row.waits.len(), 2);
        let total = row.waits[&(TimePart::Futex, "execution ticket".into())];
        assert_eq!(total, WaitTotal { waits: 2, wait_ns: 80 });
    }

    #[test]
    fn classes_beyond_the_bound_are_added_up() {
        let mut table = SplitTable::default();
        let operation = joined(1, 10_000, |_| {});
        let wait = |number: u32| {
            let class = format!("in function{number}").into();
            ClassifiedWait { part: TimePart::Cpu, class, wait_ns: 3 }
        };
        table.add(&operation, (0..200).map(wait).collect());
        let rows = table.finish().rows;
        assert_eq!(rows[0].waits.len(), MAX_PER_ROW + 1);
        assert_eq!(rows[0].waits.values().map(|total| total.wait_ns).sum::<u64>(), 600);
    }

    #[test]
    fn what_the_server_says_belongs_to_the_row_of_its_operation() {
        let mut table = SplitTable::default();
        let row = table.add_from(ShapeOrigin::Wire, &joined(1, 0, |_| {}), Vec::new());
        let of_log = table.add_from(ShapeOrigin::Log, &joined(1, 5_000, |_| {}), Vec::new());
        let evidence = ServerEvidence { operations: 1, ..ServerEvidence::default() };
        for key in [row, row, of_log, (ShapeOrigin::Wire, Role::Served, Class::User, ShapeId(9))] {
            table.evidence(key, &evidence);
        }
        let rows = table.finish().rows;
        let mut found: Vec<_> =
            rows.iter().map(|row| (row.origin.name(), row.count(), row.server.operations)).collect();
        found.sort_unstable();
        assert_eq!(found, [("log", 1, 1), ("wire", 1, 2)]);
    }

    #[test]
    fn shapes_beyond_the_table_are_added_up() {
        let mut table = SplitTable::default();
        for id in 0..MAX_SPLIT_ROWS as u64 + 5 {
            table.add(&joined(id + 1, id, |_| {}), Vec::new());
        }
        let rows = table.finish().rows;
        assert_eq!(rows.len(), MAX_SPLIT_ROWS + 1);
        assert_eq!(rows.iter().map(ShapeSplit::count).sum::<u64>(), MAX_SPLIT_ROWS as u64 + 5);
    }
}
