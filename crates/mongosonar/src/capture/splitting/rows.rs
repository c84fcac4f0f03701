//! Where the time of operations went, by window and by row.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sonar_core::Timestamp;
use sonar_core::running::RequestKey;
use sonar_core::table::{GroupBy, Table};
use sonar_core::time_split::{ClassifiedWait, JoinedOperation, ThreadActivity};
use sonar_core::window::Window;
use sonar_sys::split::SplitLosses;

use super::file_labels::{ClosedFiles, FileLabels};
use super::in_progress::ThreadsNow;
use super::operation_matcher::SplitSink;

/// Windows that are kept until they are taken; what comes for further ones is added to the last.
const MAX_WINDOWS: usize = 64;
/// How often the open files of the servers are read, if there are some without a label.
const LABELS_EVERY: Duration = Duration::from_secs(1);

/// Splits of operations, which wait for the window in which their operations ended.
pub struct WindowSplits {
    interval_ns: u64,
    by: GroupBy,
    /// By the beginning of their window.
    tables: BTreeMap<Timestamp, Table>,
    /// The end of the last window that was taken.
    taken: Timestamp,
    /// Labels of files.
    pub labels: FileLabels,
    /// Operations that the kernel did not report.
    lost: u64,
    /// Until when records were read.
    read_until: Timestamp,
    /// What the threads of long operations did when they were last looked at.
    activities: HashMap<RequestKey, ThreadActivity>,
}

impl WindowSplits {
    /// For windows of this length, with rows by this.
    pub fn new(interval_ns: u64, by: GroupBy) -> Self {
        Self {
            interval_ns: interval_ns.max(1),
            by,
            tables: BTreeMap::new(),
            taken: Timestamp::default(),
            labels: FileLabels::new(ClosedFiles::Kept, LABELS_EVERY),
            lost: 0,
            read_until: Timestamp::default(),
            activities: HashMap::new(),
        }
    }

    /// Records were read until then.
    pub fn note_read_until(&mut self, time: Timestamp) {
        self.read_until = time;
    }

    /// Whether records were read until then.
    pub fn is_read_until(&self, time: Timestamp) -> bool {
        self.read_until >= time
    }

    /// Keeps what threads do now, for the operations in flight of the next windows; `None` if no operation is long.
    pub fn note_activities(&mut self, now: Option<&ThreadsNow>) {
        self.activities = now.map_or_else(HashMap::new, |now| now.activities(|file| self.labels.of(file)));
    }

    /// Counts what the kernel lost.
    pub fn lost(&mut self, losses: &SplitLosses) {
        let SplitLosses { ring_full, threads_full, unreadable, programs_skipped, .. } = *losses;
        self.lost += ring_full + threads_full + unreadable + programs_skipped;
    }

    /// Adds to a window the splits of the operations that ended in it, and those that came too late for theirs; to its
    /// operations in flight, what their threads did when they were last looked at.
    pub fn complete(&mut self, window: &mut Window) {
        let later = self.tables.split_off(&window.end);
        for table in std::mem::replace(&mut self.tables, later).values() {
            window.shapes.merge(table);
        }
        self.taken = window.end;
        for in_flight in &mut window.in_flight {
            for one in &mut in_flight.oldest {
                let key = (in_flight.server, one.client, one.request_id);
                one.now = self.activities.get(&key).cloned().map(Box::new);
            }
        }
        window.coverage.splits_lost += std::mem::take(&mut self.lost);
    }

    /// The beginning of the table that has room for what ended then.
    fn table_start(&self, end: Timestamp) -> Timestamp {
        match self.tables.last_key_value() {
            Some((last, _)) if self.tables.len() >= MAX_WINDOWS => *last,
            _ => end.floor_to(self.interval_ns).max(self.taken),
        }
    }
}

impl SplitSink for WindowSplits {
    fn joined(&mut self, operation: &JoinedOperation, waits: Vec<ClassifiedWait>) {
        let start = self.table_start(operation.wire.end);
        let table = self.tables.entry(start).or_insert_with(|| Table::of_window(self.by));
        if let Some((split, _)) = table.split_of(&operation.wire) {
            self.labels.expect(operation);
            split.record(operation, &waits, &mut |device, inode| {
                self.labels.of((device, inode)).unwrap_or_else(|| format!("inode {inode}").into())
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use sonar_core::operation::WaitingOperation;
    use sonar_core::testing::{CLIENT, SERVER, thread_operation, wire_operation};
    use sonar_core::time_split::{FileWait, ThreadOperation, TimePart, TimeSplit, WireOperation};
    use sonar_core::window::WindowSettings;
    use sonar_core::{Class, InFlightOperations, Role, ShapeId, ShapeInfo};

    use super::*;

    const SECOND: u64 = sonar_core::time::NS_PER_S;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_000 + second, 0)
    }

    fn operation(end: Timestamp, inode: u64) -> JoinedOperation {
        let mut split = TimeSplit::default();
        split[TimePart::Cpu] = 500;
        let shape = ShapeInfo { id: ShapeId(7), command: "find".into(), ..ShapeInfo::default() };
        let file = FileWait { inode, device: 1, reads: 1, in_order: 0, bytes: 10, wait_ns: 100 };
        JoinedOperation {
            wire: WireOperation { end, shape: Arc::new(shape), ..wire_operation(1, end.unix_ns()) },
            thread: ThreadOperation { end, split, files: vec![file], ..thread_operation(1, end.unix_ns()) },
        }
    }

    /// Operations and files of the window that begins at `second`.
    fn complete(splits: &mut WindowSplits, second: u64) -> (u64, Vec<String>) {
        let mut window = Window::new(at(second), WindowSettings::default());
        window.end = at(second + 1);
        splits.complete(&mut window);
        let found: Vec<_> = window.shapes.iter().filter_map(|row| row.split.as_deref()).collect();
        let files = found.iter().flat_map(|split| split.files.keys().map(ToString::to_string)).collect();
        (found.iter().map(|split| split.operations).sum(), files)
    }

    #[test]
    fn an_operation_counts_in_the_window_in_which_it_ended_or_in_the_next_that_is_taken() {
        let mut splits = WindowSplits::new(SECOND, GroupBy::Shape);
        splits.joined(&operation(at(1).plus_ns(SECOND - 1), 7), Vec::new());
        splits.joined(&operation(at(2), 7), Vec::new());
        assert_eq!(complete(&mut splits, 1).0, 1);
        splits.joined(&operation(at(1).plus_ns(5), 7), Vec::new());
        assert_eq!(complete(&mut splits, 2).0, 2, "one came late");
        assert_eq!(complete(&mut splits, 3).0, 0);
        for second in 0..3 * MAX_WINDOWS as u64 {
            splits.joined(&operation(at(10 + second), 7), Vec::new());
        }
        assert_eq!(splits.tables.len(), MAX_WINDOWS);
        assert_eq!(complete(&mut splits, 500).0, 3 * MAX_WINDOWS as u64);
    }

    #[test]
    fn a_file_has_its_label_as_soon_as_that_is_known() {
        let mut splits = WindowSplits::new(SECOND, GroupBy::Shape);
        let read = Instant::now();
        splits.labels.set(read, [].into_iter());
        assert!(!splits.labels.are_due(read + LABELS_EVERY));
        splits.joined(&operation(at(1), 7), Vec::new());
        assert!(splits.labels.are_due(read + LABELS_EVERY));
        splits.labels.set(read, [((1, 7), "shop.orders".into())].into_iter());
        splits.joined(&operation(at(1), 7), Vec::new());
        assert!(!splits.labels.are_due(read + LABELS_EVERY));
        assert_eq!(complete(&mut splits, 1), (2, vec!["inode 7".to_owned(), "shop.orders".to_owned()]));
        // The collection was dropped, and another one has its inode.
        splits.labels.set(read, [((1, 7), "shop.carts".into())].into_iter());
        splits.joined(&operation(at(2), 7), Vec::new());
        assert_eq!(complete(&mut splits, 2), (1, vec!["shop.carts".to_owned()]));
        // This one is closed, too.
        splits.labels.set(read, [].into_iter());
        splits.joined(&operation(at(3), 7), Vec::new());
        assert_eq!(complete(&mut splits, 3), (1, vec!["shop.carts".to_owned()]));
    }

    #[test]
    fn an_operation_in_flight_has_what_its_own_thread_does() {
        let mut splits = WindowSplits::new(SECOND, GroupBy::Shape);
        let (server, client) = (SERVER, CLIENT);
        let activity = ThreadActivity {
            thread_name: "conn5".to_owned(),
            doing: TimePart::Futex,
            since: at(0),
            doing_ns: SECOND,
            class: None,
            file: None,
            blocker: None,
        };
        splits.activities.insert((server, client, 3), activity);
        let waiting = |request_id| WaitingOperation { client, request_id, age_ns: SECOND, now: None };
        let mut window = Window::new(at(1), WindowSettings::default());
        window.in_flight.push(InFlightOperations {
            server,
            role: Role::Served,
            class: Class::User,
            shape: Arc::default(),
            count: 2,
            oldest_ns: SECOND,
            oldest: vec![waiting(2), waiting(3)],
        });
        splits.complete(&mut window);
        let threads =
            window.in_flight[0].oldest.iter().map(|one| Some(one.now.as_ref()?.thread_name.as_str()));
        assert_eq!(threads.collect::<Vec<_>>(), [None, Some("conn5")]);
        splits.note_activities(None);
        splits.complete(&mut window);
        assert!(window.in_flight[0].oldest.iter().all(|one| one.now.is_none()), "it ended meanwhile");
    }

    #[test]
    fn losses_count_in_the_next_window() {
        let mut splits = WindowSplits::new(SECOND, GroupBy::Shape);
        splits.lost(&SplitLosses { ring_full: 3, unreadable: 1, ..SplitLosses::default() });
        let mut window = Window::new(at(1), WindowSettings::default());
        splits.complete(&mut window);
        assert_eq!(window.coverage.splits_lost, 4);
        splits.complete(&mut window);
        assert_eq!(window.coverage.splits_lost, 4);
    }
}
