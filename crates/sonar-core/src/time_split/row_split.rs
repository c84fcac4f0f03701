//! Where the time of the operations of a row went.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClassifiedWait, FileTotal, JoinedOperation, TimePart, TimeSplit, WaitTotal};

/// Wait classes of a row; further ones are counted in the class [`REST`].
pub const MAX_ROW_WAITS: usize = 16;
/// Files of a row; further ones are counted in the file [`REST`].
pub const MAX_ROW_FILES: usize = 8;
/// Stands for all classes, or all files, that have no entry of their own.
pub const REST: &str = "";

/// Where the time of the operations of a row went, as far as the server's threads were traced. It covers only those
/// operations that both the wire and a thread saw.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RowSplit {
    /// Operations.
    pub operations: u64,
    /// From the arrival of the request until the thread had received it, in nanoseconds.
    pub unread_ns: u64,
    /// From then until the reply was sent, in nanoseconds. What the parts of `split` lack of it is unexplained.
    pub duration_ns: u64,
    /// Where `duration_ns` went.
    pub split: TimeSplit,
    /// Bytes read from devices.
    pub device_bytes: u64,
    /// Long waits by what they were blocked in and their class, as far as stacks were taken; at most
    /// [`MAX_ROW_WAITS`] and those of [`REST`].
    pub waits: BTreeMap<(TimePart, Arc<str>), WaitTotal>,
    /// Files that they waited for, by name; at most [`MAX_ROW_FILES`] and [`REST`].
    pub files: BTreeMap<Arc<str>, FileTotal>,
}

impl RowSplit {
    /// Adds an operation with its long waits. `file_name` gives the name of a file by device and inode.
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
        for wait in waits {
            self.add_wait((wait.part, &wait.class), WaitTotal { waits: 1, wait_ns: wait.wait_ns });
        }
        for file in &thread.files {
            let total = FileTotal { reads: file.reads.into(), bytes: file.bytes, wait_ns: file.wait_ns };
            self.add_file(&file_name(file.device, file.inode), total);
        }
    }

    /// Adds waits of a class.
    pub fn add_wait(&mut self, (part, class): (TimePart, &Arc<str>), waits: WaitTotal) {
        let mut key = (part, class.clone());
        if self.waits.len() >= MAX_ROW_WAITS && !self.waits.contains_key(&key) {
            key.1 = REST.into();
        }
        let total = self.waits.entry(key).or_default();
        total.waits = total.waits.saturating_add(waits.waits);
        total.wait_ns = total.wait_ns.saturating_add(waits.wait_ns);
    }

    /// Adds reads of a file.
    pub fn add_file(&mut self, name: &Arc<str>, reads: FileTotal) {
        let is_full = self.files.len() >= MAX_ROW_FILES && !self.files.contains_key(name);
        let name = if is_full { REST.into() } else { name.clone() };
        let total = self.files.entry(name).or_default();
        total.reads = total.reads.saturating_add(reads.reads);
        total.bytes = total.bytes.saturating_add(reads.bytes);
        total.wait_ns = total.wait_ns.saturating_add(reads.wait_ns);
    }

    /// Adds all operations of another row.
    pub fn merge(&mut self, other: &Self) {
        self.operations = self.operations.saturating_add(other.operations);
        self.unread_ns = self.unread_ns.saturating_add(other.unread_ns);
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
        self.split.add(&other.split);
        self.device_bytes = self.device_bytes.saturating_add(other.device_bytes);
        for ((part, class), waits) in &other.waits {
            self.add_wait((*part, class), *waits);
        }
        for (name, reads) in &other.files {
            self.add_file(name, *reads);
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::join::tests::{thread, wire};
    use super::super::{FileWait, ThreadOperation};
    use super::*;
    use crate::table::{GroupBy, Table};

    fn name(device: u32, inode: u64) -> Arc<str> {
        format!("{device}:{inode}").into()
    }

    #[test]
    fn parts_unread_and_unexplained_add_up_to_the_whole() {
        let mut thread = ThreadOperation {
            files: vec![FileWait { inode: 7, device: 8, reads: 2, bytes: 8192, wait_ns: 250 }],
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

    #[test]
    fn classes_and_files_beyond_the_bound_are_added_up() {
        let mut row = RowSplit::default();
        for number in 0..100_u64 {
            let waits = WaitTotal { waits: 1, wait_ns: number };
            row.add_wait((TimePart::Futex, &number.to_string().into()), waits);
            row.add_file(&name(1, number), FileTotal { reads: 1, bytes: number, wait_ns: 1 });
        }
        assert_eq!((row.waits.len(), row.files.len()), (MAX_ROW_WAITS + 1, MAX_ROW_FILES + 1));
        assert_eq!(row.waits.values().map(|total| total.wait_ns).sum::<u64>(), 4_950);
        assert_eq!(row.files[REST].reads, 100 - MAX_ROW_FILES as u64);
    }
}
