//! Where the time of a row's operations went.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClassifiedWait, FileReads, FileTotal, JoinedOperation, OTHER, TimePart, TimeSplit, WaitTotal};
use crate::held::tree_bytes;
use crate::{ShapeId, ShapeInfo};

/// The most wait classes of a row; a class in two parts counts twice. Further ones are counted in the class [`OTHER`].
/// The smallest by part and name stay, so that the result does not depend on the order of additions.
pub const MAX_ROW_WAITS: usize = 16;
/// The most files of a row. Further ones are counted in the file [`OTHER`]. The smallest names stay.
pub const MAX_ROW_FILES: usize = 8;

/// The most shapes of a row whose operations ended its waits. Further ones are counted under
/// [`other`](ShapeInfo::other). The smallest ids stay.
pub const MAX_ROW_BLOCKERS: usize = 8;

/// Waits that operations of one shape ended: they held what was waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowBlocker {
    /// The shape.
    pub shape: Arc<ShapeInfo>,
    /// The waits.
    pub waits: WaitTotal,
}

/// Where the time of a row's operations went, as far as the server's threads were traced. It covers only operations
/// that were seen both on the wire and at a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RowSplit {
    /// Operations.
    pub operations: u64,
    /// From the arrival of the request until the thread had received it, in nanoseconds.
    pub unread_ns: u64,
    /// From then until the reply was sent, in nanoseconds. Time that is in no part of `split` is unexplained.
    pub duration_ns: u64,
    /// Where `duration_ns` went.
    pub split: TimeSplit,
    /// Bytes read from devices.
    pub device_bytes: u64,
    /// Long waits by part and class, as far as stacks were taken; at most [`MAX_ROW_WAITS`], and those of [`OTHER`].
    pub waits: BTreeMap<(TimePart, Arc<str>), WaitTotal>,
    /// Files that they waited for, by name; at most [`MAX_ROW_FILES`], and [`OTHER`].
    pub files: BTreeMap<Arc<str>, FileTotal>,
    /// Which shapes ended waits of these operations, by id, as far as both operations were traced; at most
    /// [`MAX_ROW_BLOCKERS`], and `other`.
    pub blockers: BTreeMap<ShapeId, RowBlocker>,
}

impl RowSplit {
    /// Adds an operation with its long waits. `file_name` finds the name of a file by device and inode.
    pub fn record(
        &mut self,
        operation: &JoinedOperation,
        waits: &[ClassifiedWait],
        file_name: &mut dyn FnMut(u32, u64) -> Arc<str>,
    ) {
        let thread = &operation.thread;
        self.operations += 1;
        self.unread_ns = self.unread_ns.saturating_add(operation.unread_ns());
        self.duration_ns = self.duration_ns.saturating_add(thread.duration_ns);
        self.split.add(&thread.split);
        self.device_bytes = self.device_bytes.saturating_add(thread.device_bytes);
        // What was computed would leave no room for what was waited for.
        for wait in waits.iter().filter(|wait| wait.part != TimePart::Cpu) {
            self.add_wait(wait.part, &wait.class, WaitTotal { waits: 1, wait_ns: wait.wait_ns });
        }
        for file in &thread.files {
            self.add_file(&file_name(file.device, file.inode), FileReads::from(file).total);
        }
    }

    /// Adds waits of a class.
    pub fn add_wait(&mut self, part: TimePart, class: &Arc<str>, waits: WaitTotal) {
        self.waits.entry((part, class.clone())).or_default().add(waits);
        let beyond = beyond(&mut self.waits, MAX_ROW_WAITS, |(_, class)| **class == *OTHER);
        if let Some(((part, _), total)) = beyond {
            self.waits.entry((part, OTHER.into())).or_default().add(total);
        }
    }

    /// Adds reads of a file.
    pub fn add_file(&mut self, name: &Arc<str>, reads: FileTotal) {
        self.files.entry(name.clone()).or_default().add(reads);
        if let Some((_, total)) = beyond(&mut self.files, MAX_ROW_FILES, |name| **name == *OTHER) {
            self.files.entry(OTHER.into()).or_default().add(total);
        }
    }

    /// Adds waits that operations of this shape ended.
    pub fn add_blocker(&mut self, shape: &Arc<ShapeInfo>, waits: WaitTotal) {
        let new = |shape| RowBlocker { shape, waits: WaitTotal::default() };
        self.blockers.entry(shape.id).or_insert_with(|| new(Arc::clone(shape))).waits.add(waits);
        let other = ShapeInfo::other();
        if let Some((_, last)) = beyond(&mut self.blockers, MAX_ROW_BLOCKERS, |id| *id == other.id) {
            self.blockers.entry(other.id).or_insert_with(|| new(Arc::new(other))).waits.add(last.waits);
        }
    }

    /// Adds all operations of another row.
    pub fn merge(&mut self, other: &Self) {
        self.operations = self.operations.saturating_add(other.operations);
        self.unread_ns = self.unread_ns.saturating_add(other.unread_ns);
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
        self.split.add(&other.split);
        self.device_bytes = self.device_bytes.saturating_add(other.device_bytes);
        for ((part, class), waits) in &other.waits {
            self.add_wait(*part, class, *waits);
        }
        for (name, reads) in &other.files {
            self.add_file(name, *reads);
        }
        for blocker in other.blockers.values() {
            self.add_blocker(&blocker.shape, blocker.waits);
        }
    }

    /// Heap memory in bytes, without that of shapes and names, which are shared.
    pub fn heap_bytes(&self) -> usize {
        tree_bytes(self.waits.len(), size_of::<((TimePart, Arc<str>), WaitTotal)>())
            + tree_bytes(self.files.len(), size_of::<(Arc<str>, FileTotal)>())
            + tree_bytes(self.blockers.len(), size_of::<(ShapeId, RowBlocker)>())
    }

    /// From the arrival of the requests until the replies were sent, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.unread_ns.saturating_add(self.duration_ns)
    }

    /// Time that no part explains, in nanoseconds.
    pub fn unexplained_ns(&self) -> u64 {
        self.duration_ns.saturating_sub(self.split.total_ns())
    }
}

/// Takes out the greatest key where there are more than `most`. Keys that stand for all others do not count, and stay.
fn beyond<K: Ord + Clone, V>(
    map: &mut BTreeMap<K, V>,
    most: usize,
    is_other: impl Fn(&K) -> bool,
) -> Option<(K, V)> {
    if map.len() <= most {
        return None;
    }
    let mut named = map.keys().filter(|key| !is_other(key));
    let last = named.next_back()?.clone();
    if named.count() < most { None } else { map.remove_entry(&last) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::super::{FileWait, ThreadOperation};
    use super::*;
    use crate::table::{GroupBy, Table};
    use crate::testing::{thread_operation as thread, wire_operation as wire};

    fn name(device: u32, inode: u64) -> Arc<str> {
        format!("{device}:{inode}").into()
    }

    #[test]
    fn parts_unread_and_unexplained_add_up_to_the_whole() {
        let mut thread = ThreadOperation {
            files: vec![FileWait { inode: 7, device: 8, reads: 2, in_order: 0, bytes: 8192, wait_ns: 250 }],
            ..thread(1, 300)
        };
        thread.split[TimePart::Cpu] = 600;
        thread.split[TimePart::Read] = 250;
        let operation = JoinedOperation { wire: wire(1, 100), thread };
        let class = ClassifiedWait { part: TimePart::Read, class: "cold read".into(), wait_ns: 250 };
        let mut row = RowSplit::default();
        row.record(&operation, &[class], &mut name);
        let mut twice = row.clone();
        twice.merge(&row);
        assert_eq!((twice.operations, twice.unread_ns, twice.total_ns()), (2, 400, 2_400));
        assert_eq!(twice.unread_ns + twice.split.total_ns() + twice.unexplained_ns(), twice.total_ns());
        assert_eq!(twice.files["8:7"], FileTotal { reads: 4, bytes: 16_384, wait_ns: 500 });
        let key = (TimePart::Read, "cold read".into());
        assert_eq!(twice.waits[&key], WaitTotal { waits: 2, wait_ns: 500 });
    }

    #[test]
    fn a_split_is_that_of_the_row_of_its_operation() {
        let operation = wire(1, 100);
        for by in [GroupBy::Shape, GroupBy::Order] {
            let mut table = Table::of_window(by);
            for _ in 0..2 {
                table.split_of(&operation).unwrap().0.operations += 1;
            }
            let mut sum = table.clone();
            sum.merge(&table);
            let [row] = sum.rows() else { panic!("{sum:?}") };
            assert_eq!(row.split.as_ref().unwrap().operations, 4);
            assert_eq!((row.server, row.shape().id), (operation.server, operation.shape.id));
        }
        assert!(Table::of_window(GroupBy::App).split_of(&operation).is_none());
        assert!(Table::of_digest(GroupBy::Shape).split_of(&operation).is_none());
    }

    proptest! {
        #[test]
        fn merging_in_any_order_equals_recording_all(
            all in proptest::collection::vec((0usize..3, 0u64..30, 0u64..1 << 40), 0..60),
            cut in 0usize..60,
        ) {
            let recorded = |all: &[(usize, u64, u64)]| {
                let mut row = RowSplit::default();
                for &(part, number, ns) in all {
                    let class = if number == 0 { OTHER.into() } else { number.to_string().into() };
                    row.add_wait(TimePart::ALL[part], &class, WaitTotal { waits: 1, wait_ns: ns });
                    row.add_file(&class, FileTotal { reads: 1, bytes: ns, wait_ns: ns });
                    let shape = ShapeInfo { id: ShapeId(number), ..ShapeInfo::other() };
                    row.add_blocker(&Arc::new(shape), WaitTotal { waits: 1, wait_ns: ns });
                }
                row
            };
            let (one, other) = all.split_at(cut.min(all.len()));
            let whole = recorded(&all);
            for (first, second) in [(one, other), (other, one)] {
                let mut merged = recorded(first);
                merged.merge(&recorded(second));
                prop_assert_eq!(&merged, &whole);
            }
        }
    }

    #[test]
    fn classes_and_files_beyond_the_bound_are_added_up() {
        let mut row = RowSplit::default();
        for number in 0..100_u64 {
            let waits = WaitTotal { waits: 1, wait_ns: number };
            row.add_wait(TimePart::Futex, &number.to_string().into(), waits);
            row.add_file(&name(1, number), FileTotal { reads: 1, bytes: number, wait_ns: 1 });
            let shape = ShapeInfo { id: ShapeId(number + 1), ..ShapeInfo::default() };
            row.add_blocker(&Arc::new(shape), WaitTotal { waits: 1, wait_ns: number });
        }
        assert_eq!((row.waits.len(), row.files.len()), (MAX_ROW_WAITS + 1, MAX_ROW_FILES + 1));
        assert_eq!(row.waits.values().map(|total| total.wait_ns).sum::<u64>(), 4_950);
        assert_eq!(row.files[OTHER].reads, 100 - MAX_ROW_FILES as u64);
        assert_eq!(row.blockers.len(), MAX_ROW_BLOCKERS + 1);
        let waited: u64 = row.blockers.values().map(|blocker| blocker.waits.wait_ns).sum();
        assert_eq!(waited, 4_950);
    }
}
