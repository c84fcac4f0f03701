//! Where the time of operations went, by query shape.

use std::collections::HashMap;
use std::sync::Arc;

use super::blockers::{BlockedWait, BlockerKey, Blockers};
use super::{Blocker, JoinedOperation, TimePart, TimeSplit};
use crate::{Class, Histogram, Role, ShapeId, ShapeInfo, Timestamp};

/// Rows of a table; further shapes are added up in one row.
pub const MAX_SPLIT_ROWS: usize = 2_000;
/// Files, blockers and applications of a row.
const MAX_PER_ROW: usize = 64;

/// What operations of a shape waited for in a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FileTotal {
    /// Reads that waited.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time blocked in them, in nanoseconds.
    pub wait_ns: u64,
}

/// Operations of one shape.
#[derive(Clone, Debug)]
pub struct ShapeSplit {
    /// The shape.
    pub shape: Arc<ShapeInfo>,
    /// Who sent them.
    pub role: Role,
    /// Their purpose.
    pub class: Class,
    /// From the arrival of the request until the reply was sent.
    pub total: Histogram,
    /// Time until the thread had received the request after it had arrived, in nanoseconds.
    pub unread_ns: u64,
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
    pub files: HashMap<(u32, u64), FileTotal>,
    /// Waits for files that `files` does not have.
    pub has_other_files: bool,
    /// Names of applications, with operations.
    pub apps: HashMap<String, u64>,
    blockers: HashMap<BlockerKey, (Blocker, FileTotal)>,
}

impl ShapeSplit {
    fn new(shape: Arc<ShapeInfo>, role: Role, class: Class) -> Self {
        Self {
            shape,
            role,
            class,
            total: Histogram::new(),
            unread_ns: 0,
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
            apps: HashMap::new(),
            blockers: HashMap::new(),
        }
    }

    fn add(&mut self, operation: &JoinedOperation) {
        let thread = &operation.thread;
        self.total.record(operation.total_ns());
        self.unread_ns = self.unread_ns.saturating_add(operation.unread_ns());
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
        for file in &thread.files {
            let key = (file.device, file.inode);
            if self.files.len() >= MAX_PER_ROW && !self.files.contains_key(&key) {
                self.has_other_files = true;
                continue;
            }
            let total = self.files.entry(key).or_default();
            total.reads += u64::from(file.reads);
            total.bytes = total.bytes.saturating_add(file.bytes);
            total.wait_ns = total.wait_ns.saturating_add(file.wait_ns);
        }
        let app = &*operation.wire.app.name;
        if let Some(count) = self.apps.get_mut(app) {
            *count += 1;
        } else if self.apps.len() < MAX_PER_ROW {
            self.apps.insert(app.to_owned(), 1);
        }
    }

    fn blocked(&mut self, wait: &BlockedWait, blocker: Blocker) {
        let key = BlockerKey::from(&blocker);
        if self.blockers.len() >= MAX_PER_ROW && !self.blockers.contains_key(&key) {
            return;
        }
        let (_, total) = self.blockers.entry(key).or_insert((blocker, FileTotal::default()));
        total.reads += u64::from(wait.count);
        total.wait_ns = total.wait_ns.saturating_add(wait.wait_ns);
    }

    /// Operations.
    pub fn count(&self) -> u64 {
        self.total.count()
    }

    /// Who ended waits of these operations: how many, and how long they had waited in nanoseconds; the longest first.
    pub fn blockers(&self) -> Vec<(&Blocker, u64, u64)> {
        let mut blockers: Vec<_> =
            self.blockers.values().map(|(blocker, total)| (blocker, total.reads, total.wait_ns)).collect();
        blockers.sort_by_key(|(blocker, _, ns)| (std::cmp::Reverse(*ns), blocker.thread));
        blockers
    }
}

/// Where time went, by role, class and shape.
#[derive(Default, Debug)]
pub struct SplitTable {
    rows: Vec<ShapeSplit>,
    by: HashMap<(Role, Class, ShapeId), usize>,
    blockers: Blockers,
}

impl SplitTable {
    /// Adds an operation.
    pub fn add(&mut self, operation: &JoinedOperation) {
        let wire = &operation.wire;
        let mut key = (wire.role, wire.class, wire.shape.id);
        let mut shape = &wire.shape;
        let other = Arc::new(ShapeInfo::other());
        if self.rows.len() >= MAX_SPLIT_ROWS && !self.by.contains_key(&key) {
            shape = &other;
            key.2 = other.id;
        }
        let rows = &mut self.rows;
        let number = *self.by.entry(key).or_insert_with(|| {
            rows.push(ShapeSplit::new(Arc::clone(shape), wire.role, wire.class));
            rows.len() - 1
        });
        self.rows[number].add(operation);
        for waker in &operation.thread.wakers {
            self.blockers.wait(BlockedWait {
                row: number,
                thread: waker.thread,
                count: waker.count,
                wait_ns: waker.wait_ns,
                from: operation.thread.start,
                to: operation.thread.end,
            });
        }
        self.blockers.executed(operation);
    }

    /// Finds out who ended the waits so far.
    pub fn resolve(&mut self, now: Timestamp) {
        self.resolve_blockers(now, false);
    }

    fn resolve_blockers(&mut self, now: Timestamp, all: bool) {
        for (wait, blocker) in self.blockers.resolve(now, all) {
            self.rows[wait.row].blocked(&wait, blocker);
        }
    }

    /// The rows, those with the most time first, and waits whose blocker was not kept.
    pub fn finish(mut self, now: Timestamp) -> (Vec<ShapeSplit>, u64) {
        self.resolve_blockers(now, true);
        self.rows.sort_by(|a, b| b.total.sum_ns().cmp(&a.total.sum_ns()).then(a.shape.id.cmp(&b.shape.id)));
        (self.rows, self.blockers.turned_away)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::join::tests::{thread, wire};
    use super::super::{FileWait, ThreadOperation, Waker, WireOperation};
    use super::*;

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
        table.add(&joined(1, 0, |_| {}));
        table.add(&joined(1, 5_000, |thread| {
            let file = FileWait { inode: 7, device: 8, reads: 2, bytes: 8192, wait_ns: 250 };
            thread.files = vec![file, FileWait { inode: 9, ..file }];
        }));
        let (rows, lost) = table.finish(Timestamp::from_unix_ns(10_000));
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.count(), lost), (2, 0));
        assert_eq!((row.unread_ns, row.split.total_ns(), row.unexplained_ns), (200, 1_800, 200));
        assert_eq!(row.total.sum_ns(), 2_200);
        assert_eq!(row.parts[TimePart::Read as usize].as_ref().unwrap().count(), 2);
        assert!(row.parts[TimePart::Futex as usize].is_none());
        assert_eq!(row.files[&(8, 7)], FileTotal { reads: 2, bytes: 8192, wait_ns: 250 });
        assert_eq!(row.files.len(), 2);
    }

    #[test]
    fn a_blocker_is_the_operation_that_its_thread_executed_meanwhile() {
        let mut table = SplitTable::default();
        let waker = |thread| Waker { thread, count: 1, wait_ns: 500 };
        // Thread 2 waits for thread 41, which executes shape 5 from before until long after.
        table.add(&joined(1, 10_000, |op| op.wakers = vec![waker(41), waker(99)]));
        table.resolve(Timestamp::from_unix_ns(20_000));
        table.add(&joined(5, 2_000, |op| {
            op.thread = 41;
            op.thread_name = "conn41".into();
            op.end = Timestamp::from_unix_ns(90_000);
        }));
        let (rows, _) = table.finish(Timestamp::from_unix_ns(100_000));
        let row = rows.iter().find(|row| row.shape.id == ShapeId(1)).unwrap();
        let blockers = row.blockers();
        let known = blockers.iter().find(|(blocker, ..)| blocker.thread == 41).unwrap();
        assert_eq!(known.0.thread_name.as_deref(), Some("conn41"));
        assert_eq!(known.0.shape.as_ref().unwrap().id, ShapeId(5));
        assert_eq!((known.1, known.2), (1, 500));
        let unknown = blockers.iter().find(|(blocker, ..)| blocker.thread == 99).unwrap();
        assert!(unknown.0.shape.is_none() && unknown.0.thread_name.is_none());
    }

    #[test]
    fn an_operation_of_another_time_is_no_blocker() {
        let mut table = SplitTable::default();
        table.add(&joined(5, 0, |op| op.thread = 41));
        table.add(&joined(1, 50_000, |op| op.wakers = vec![Waker { thread: 41, count: 1, wait_ns: 9 }]));
        let (rows, _) = table.finish(Timestamp::from_unix_ns(100_000));
        let row = rows.iter().find(|row| row.shape.id == ShapeId(1)).unwrap();
        assert!(row.blockers()[0].0.shape.is_none());
    }

    #[test]
    fn shapes_beyond_the_table_are_added_up() {
        let mut table = SplitTable::default();
        for id in 0..MAX_SPLIT_ROWS as u64 + 5 {
            table.add(&joined(id + 1, id, |_| {}));
        }
        let (rows, _) = table.finish(Timestamp::from_unix_ns(1));
        assert_eq!(rows.len(), MAX_SPLIT_ROWS + 1);
        assert_eq!(rows.iter().map(ShapeSplit::count).sum::<u64>(), MAX_SPLIT_ROWS as u64 + 5);
    }
}
