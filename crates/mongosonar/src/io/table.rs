//! Files by the number that the eBPF programs gave them, few enough that the programs never run out of numbers.
//!
//! A server makes new files for as long as it runs: WiredTiger replaces `WiredTiger.turtle` at each checkpoint.
//! If the table is full, the files that were idle longest give their numbers back.

use std::collections::{HashMap, VecDeque};

use sonar_sys::ebpf::{FileKey, FirstSeenFile, MAX_FILES, TotalsRoom, Tracer};

/// A file, and its number if it has one.
type Released = (FileKey, Option<u32>);

/// Files by their number.
pub struct FileTable<T> {
    files: HashMap<u32, TableFile<T>>,
    /// Ignored files, the oldest first.
    ignored: VecDeque<FileKey>,
    most: usize,
    /// Files that were added so far.
    added: u64,
}

struct TableFile<T> {
    key: FileKey,
    /// When it was last used, on the caller's clock.
    used: u64,
    /// How many were added before it.
    order: u64,
    value: T,
}

impl<T> FileTable<T> {
    /// For accesses that are added up. A quarter of the room stays free for files that appear within an interval.
    pub fn of_totals(room: TotalsRoom) -> Self {
        Self::new(room.files as usize / 4 * 3)
    }

    /// For accesses that are reported one by one.
    pub fn of_each() -> Self {
        Self::new(MAX_FILES / 2)
    }

    fn new(most: usize) -> Self {
        Self { files: HashMap::new(), ignored: VecDeque::new(), most, added: 0 }
    }

    /// Adds a file with this number, which another file may have had before.
    pub fn insert(&mut self, number: u32, key: FileKey, used: u64, value: T) {
        self.files.insert(number, TableFile { key, used, order: self.added, value });
        self.added += 1;
    }

    /// Leaves a file out from now on, in the kernel too.
    pub fn leave_out(&mut self, tracer: &Tracer, new: &FirstSeenFile<'_>) {
        self.ignore(new.key);
        // If this fails its accesses are still left out here.
        let _ = tracer.ignore(new.key, new.file);
    }

    /// Adds an ignored file.
    fn ignore(&mut self, key: FileKey) {
        self.ignored.push_back(key);
    }

    /// The entry of the file with this number.
    pub fn of(&mut self, number: u32, key: FileKey) -> Option<&mut T> {
        self.files.get_mut(&number).filter(|entry| entry.key == key).map(|entry| &mut entry.value)
    }

    /// The entry of the file with this number, and notes its use.
    pub fn used(&mut self, number: u32, now: u64) -> Option<&mut T> {
        let entry = self.files.get_mut(&number)?;
        entry.used = entry.used.max(now);
        Some(&mut entry.value)
    }

    /// The values of all files with an entry.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.files.values().map(|entry| &entry.value)
    }

    /// The bytes that it has allocated, without those of its values on the heap.
    pub fn memory(&self) -> usize {
        self.files.capacity() * size_of::<(u32, TableFile<T>)>()
            + self.ignored.capacity() * size_of::<FileKey>()
    }

    /// All files with an entry.
    pub fn keys(&self) -> impl Iterator<Item = FileKey> {
        self.files.values().map(|entry| entry.key)
    }

    /// Gives numbers back if there are too many files.
    pub fn release(&mut self, tracer: &Tracer) {
        let surplus = self.surplus();
        if !surplus.is_empty() {
            // If this fails the kernel's table fills up, and counts what it turns away.
            let _ = tracer.release(&surplus);
        }
    }

    /// The files to release if there are too many: a third, those that were idle longest.
    fn surplus(&mut self) -> Vec<Released> {
        let mut released = Vec::new();
        if self.files.len() > self.most {
            // Those that were used at the same time go by age: a new file may have a number that was given back.
            let age = |(number, entry): (&u32, &TableFile<T>)| (entry.used, entry.order, *number);
            let mut by_use: Vec<_> = self.files.iter().map(age).collect();
            by_use.sort_unstable();
            by_use.truncate(self.files.len() - self.most / 3 * 2);
            for (_, _, number) in by_use {
                let entry = self.files.remove(&number);
                released.extend(entry.map(|entry| (entry.key, Some(number))));
            }
        }
        let most_ignored = MAX_FILES / 4;
        if self.ignored.len() > most_ignored {
            let surplus = self.ignored.len() - most_ignored / 3 * 2;
            released.extend(self.ignored.drain(..surplus).map(|key| (key, None)));
        }
        released
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(inode: u64, generation: u32) -> FileKey {
        FileKey { inode, device: 1, generation }
    }

    /// Numbers as the programs give them: those that were given back come first.
    #[derive(Default)]
    struct Numbers {
        next: u32,
        free: Vec<u32>,
    }

    impl Numbers {
        fn next(&mut self) -> u32 {
            self.free.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            })
        }
    }

    /// Six months of checkpoints, one a minute, each with a new turtle file on one of two inodes, beside collections
    /// that are read all the time, and a new log file outside of the folder each day.
    #[test]
    fn six_months_of_turtle_files_need_no_more_numbers_than_there_are() {
        const COLLECTIONS: u32 = 20;
        const DAYS: u32 = 182;
        let mut table = FileTable::of_totals(TotalsRoom::AGENT);
        let mut numbers = Numbers::default();
        for collection in 0..COLLECTIONS {
            table.insert(numbers.next(), key(1_000 + u64::from(collection), 1), 0, ());
        }
        let mut released = 0u32;
        for minute in 1..=60 * 24 * DAYS {
            let time = u64::from(minute);
            for collection in 0..COLLECTIONS {
                assert!(
                    table.used(collection, time).is_some(),
                    "minute {minute}: a file in use was released"
                );
            }
            table.insert(numbers.next(), key(u64::from(minute % 2), minute), time, ());
            if minute % 1_440 == 0 {
                table.ignore(key(9, minute));
            }
            for (key, number) in table.surplus() {
                assert!(key.inode < 2);
                numbers.free.extend(number);
                released += 1;
            }
            assert!(numbers.next <= TotalsRoom::AGENT.files, "minute {minute}: out of numbers");
        }
        assert!(released > 60 * 24 * (DAYS - 12));
    }

    /// Nobody has looked at the figures since they all came, as within a long interval.
    #[test]
    fn a_new_file_with_a_number_that_was_given_back_stays() {
        let mut table = FileTable::of_totals(TotalsRoom::AGENT);
        let most = TotalsRoom::AGENT.files / 4 * 3;
        let mut numbers = Numbers::default();
        let mut released = Vec::new();
        for file in 0..4 * u64::from(most) {
            table.insert(numbers.next(), key(file, 1), 0, ());
            for (key, number) in table.surplus() {
                released.push(key.inode);
                numbers.free.extend(number);
            }
        }
        assert!(released.len() > 2 * most as usize && released.is_sorted(), "the oldest first");
    }

    #[test]
    fn files_that_are_left_out_make_room_oldest_first() {
        let mut table = FileTable::<()>::of_each();
        for file in 0..=(MAX_FILES / 4) as u64 {
            assert!(table.surplus().is_empty());
            table.ignore(key(file, 0));
        }
        let released = table.surplus();
        assert_eq!(released.first(), Some(&(key(0, 0), None)));
        assert!(released.len() > MAX_FILES / 16 && released.len() < MAX_FILES / 4);
    }

    #[test]
    fn a_number_speaks_of_the_file_that_has_it_now() {
        let mut table = FileTable::of_each();
        table.insert(3, key(7, 1), 10, "old");
        table.insert(3, key(7, 2), 20, "new");
        assert_eq!(table.of(3, key(7, 1)), None, "another generation of the inode");
        assert_eq!(table.of(3, key(7, 2)), Some(&mut "new"));
        assert_eq!(table.keys().collect::<Vec<_>>(), [key(7, 2)]);
    }
}
