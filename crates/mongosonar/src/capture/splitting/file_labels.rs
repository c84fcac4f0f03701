//! Labels of the files that operations wait for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sonar_core::time_split::JoinedOperation;

use super::open_files::FileId;

/// Inodes are used again for other files, so labels are read again after this time.
const VALID_FOR: Duration = Duration::from_secs(60);
/// Labels that are kept. When those of closed files leave no room for those of open ones, all closed files are forgotten.
const MAX_LABELS: usize = 65_536;

/// What becomes of the label of a file when the file is closed. Another file may get its inode, and is then labelled as
/// this one until the labels are read again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ClosedFiles {
    /// It is kept: a table on the screen goes on saying which collection was dropped.
    Kept,
    /// It is forgotten: a history says nothing rather than something wrong.
    Forgotten,
}

/// Labels of the files that the servers have open, as of the last reading.
pub struct FileLabels {
    known: HashMap<FileId, Arc<str>>,
    closed: ClosedFiles,
    /// A file was used that has no label.
    lacks_some: bool,
    /// When they were last read.
    read: Option<Instant>,
    /// The least time between two readings.
    read_every: Duration,
}

impl FileLabels {
    /// Without labels. They are not read again before `read_every` has passed.
    pub fn new(closed: ClosedFiles, read_every: Duration) -> Self {
        Self { known: HashMap::new(), closed, lacks_some: false, read: None, read_every }
    }

    /// Notes the files of an operation that will be asked for.
    pub fn expect(&mut self, operation: &JoinedOperation) {
        let mut files = operation.thread.files.iter();
        self.lacks_some |= files.any(|file| !self.known.contains_key(&(file.device, file.inode)));
    }

    /// Whether labels have to be read at this time: there are none yet, they are old, or a file lacks one.
    pub fn are_due(&self, now: Instant) -> bool {
        self.read.is_none_or(|read| {
            let age = now.saturating_duration_since(read);
            age >= VALID_FOR || self.lacks_some && age >= self.read_every
        })
    }

    /// Labels the files that are open at this time; each may have the inode of an earlier one.
    pub fn set(&mut self, now: Instant, open: impl ExactSizeIterator<Item = (FileId, Arc<str>)>) {
        (self.read, self.lacks_some) = (Some(now), false);
        if self.closed == ClosedFiles::Forgotten || self.known.len() + open.len() > MAX_LABELS {
            // Not both at once.
            self.known = HashMap::new();
        }
        self.known.extend(open.take(MAX_LABELS));
    }

    /// The label of a file, if it is known.
    pub fn of(&self, file: FileId) -> Option<Arc<str>> {
        self.known.get(&file).cloned()
    }

    /// The bytes of all labels.
    pub fn memory(&self) -> usize {
        // With the counts of references.
        let label = |label: &Arc<str>| label.len() + 2 * size_of::<usize>();
        self.known.capacity() * size_of::<(FileId, Arc<str>)>()
            + self.known.values().map(label).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{thread_operation, wire_operation};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn set(labels: &mut FileLabels, now: Instant, all: &[(FileId, &str)]) {
        labels.set(now, all.iter().map(|(id, label)| (*id, Arc::from(*label))));
    }

    #[test]
    fn a_file_has_no_label_of_an_earlier_one_with_its_inode() {
        let (closed, reused) = ((5, 1), (5, 2));
        for (rule, kept) in [(ClosedFiles::Forgotten, None), (ClosedFiles::Kept, Some("old.wt"))] {
            let mut labels = FileLabels::new(rule, SECOND);
            set(&mut labels, Instant::now(), &[(closed, "old.wt"), (reused, "index.wt")]);
            assert_eq!(labels.of(closed).as_deref(), Some("old.wt"));
            assert_eq!(labels.of(reused).as_deref(), Some("index.wt"));
            set(&mut labels, Instant::now(), &[(reused, "collection.wt")]);
            assert_eq!(labels.of(closed).as_deref(), kept);
            assert_eq!(labels.of(reused).as_deref(), Some("collection.wt"));
        }
    }

    #[test]
    fn however_many_files_there_were_those_that_are_open_now_have_labels() {
        let mut labels = FileLabels::new(ClosedFiles::Kept, SECOND);
        for device in 0..3 {
            labels.set(
                Instant::now(),
                (0..MAX_LABELS / 2 + 1).map(|inode| ((device, inode as u64), "x".into())),
            );
            assert_eq!(labels.known.len(), MAX_LABELS / 2 + 1);
            assert!(labels.of((device, 0)).is_some());
        }
        labels.set(Instant::now(), (0..MAX_LABELS + 1).map(|inode| ((9, inode as u64), "x".into())));
        assert_eq!(labels.known.len(), MAX_LABELS);
        assert!(labels.memory() >= MAX_LABELS * size_of::<(FileId, Arc<str>)>());
    }

    #[test]
    fn labels_are_read_at_first_when_they_are_old_and_for_a_file_without_one() {
        let begin = Instant::now();
        let operation = JoinedOperation::new(wire_operation(1), thread_operation(1));
        let mut labels = FileLabels::new(ClosedFiles::Forgotten, 5 * SECOND);
        assert!(labels.are_due(begin));
        set(&mut labels, begin, &[]);
        assert!(!labels.are_due(begin + 59 * SECOND) && labels.are_due(begin + VALID_FOR));
        labels.expect(&operation);
        assert!(!labels.are_due(begin + 4 * SECOND) && labels.are_due(begin + 5 * SECOND));
        // A file that stays without one is asked for again only when it is used again.
        set(&mut labels, begin, &[]);
        assert!(!labels.are_due(begin + 5 * SECOND));
        set(&mut labels, begin, &[((1, 1), "shop.orders")]);
        labels.expect(&operation);
        assert!(!labels.are_due(begin + 5 * SECOND));
    }
}
