//! Which shapes ended the waits of operations, for the rows of windows.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::blockers::{BlockedWait, Blockers, MAX_PENDING_BLOCKS};
use super::rows::MAX_SPLIT_ROWS;
use super::{JoinedOperation, WaitTotal, WireOperation};
use crate::held::{list_bytes, table_bytes};
use crate::{Class, Endpoint, Role, ShapeId, ShapeInfo, Timestamp};

/// So many operations without room, and holders that have not been seen by then are given up.
const MAX_WITHOUT_ROOM: usize = 10 * MAX_SPLIT_ROWS;

/// Rows that nothing waits for are looked for only after so many new ones.
const SWEPT_AFTER: usize = MAX_SPLIT_ROWS / 2;

/// Identifies the row of an operation, by the start of its window.
type BlockedRowKey = (Timestamp, Endpoint, Role, Class, ShapeId, ShapeId);

/// Waits of a row of one window that operations of one shape ended.
#[derive(Clone, Debug)]
pub struct EndedWaits {
    /// The last operation of the row that waited in this window.
    pub waited: WireOperation,
    /// The shape of those that ended the waits.
    pub by: Arc<ShapeInfo>,
    /// The waits.
    pub waits: WaitTotal,
}

/// Finds out which shapes ended the waits of operations. An operation that holds something may go on for as long as it
/// likes: its shape is known when it ends. What waited for it until then stays in the windows in which it ended.
#[derive(Debug)]
pub struct RowBlockers {
    /// The width of a window in nanoseconds.
    width_ns: u64,
    blockers: Blockers,
    /// The last operation that waited, of each row, by the number of the row.
    rows: HashMap<usize, WireOperation, RandomState>,
    by: HashMap<BlockedRowKey, usize, RandomState>,
    /// The number of the next row.
    next: usize,
    /// The number of the next row at which rows that nothing waits for are looked for.
    swept_at: usize,
    /// Operations that had no room since there was some.
    without_room: usize,
}

impl RowBlockers {
    /// For rows of windows of this width in nanoseconds.
    pub fn new(width_ns: u64) -> Self {
        Self {
            width_ns,
            blockers: Blockers::default(),
            rows: HashMap::default(),
            by: HashMap::default(),
            next: 0,
            swept_at: 0,
            without_room: 0,
        }
    }

    /// Adds an operation, which may have waited for others, and ended waits of others.
    pub fn add(&mut self, operation: &JoinedOperation) {
        if operation.thread.wakers.iter().any(|waker| waker.operation_start.is_some())
            && let Some(row) = self.row(&operation.wire)
        {
            for waker in operation.thread.wakers.iter().filter(|waker| waker.operation_start.is_some()) {
                self.blockers.wait(BlockedWait::of_row(row, waker));
            }
        }
        self.blockers.executed(operation);
    }

    /// The number of the row of an operation; `None` if there are too many.
    fn row(&mut self, wire: &WireOperation) -> Option<usize> {
        let window = wire.end.floor_to(self.width_ns);
        let key = (window, wire.server, wire.role, wire.class, wire.shape.id, wire.ordered_id);
        if let Some(number) = self.by.get(&key)
            && let Some(row) = self.rows.get_mut(number)
        {
            row.end = row.end.max(wire.end);
            return Some(*number);
        }
        let number = self.next;
        self.next += 1;
        if self.rows.len() >= MAX_SPLIT_ROWS && number >= self.swept_at {
            self.swept_at = number + SWEPT_AFTER;
            self.sweep();
        }
        if self.rows.len() >= MAX_SPLIT_ROWS {
            self.without_room += 1;
            if self.without_room >= MAX_WITHOUT_ROOM {
                self.blockers.give_up();
            }
            return None;
        }
        self.without_room = 0;
        self.rows.insert(number, wire.clone());
        self.by.insert(key, number);
        Some(number)
    }

    /// Forgets the rows that nothing waits for.
    fn sweep(&mut self) {
        let waiting: HashSet<usize, RandomState> = self.blockers.rows().collect();
        self.rows.retain(|number, _| waiting.contains(number));
        self.by.retain(|_, number| waiting.contains(number));
    }

    /// The most bytes, with what one call of [`take`](Self::take) gives out.
    pub const MAX_MEMORY: usize = Blockers::MAX_MEMORY
        + list_bytes(MAX_PENDING_BLOCKS, size_of::<EndedWaits>())
        + table_bytes(MAX_SPLIT_ROWS, size_of::<(usize, WireOperation)>())
        + table_bytes(MAX_SPLIT_ROWS, size_of::<(BlockedRowKey, usize)>());

    /// The bytes that it has allocated. Shapes and applications are shared with others, and do not count.
    pub fn memory(&self) -> usize {
        self.blockers.memory() + self.rows.allocation_size() + self.by.allocation_size()
    }

    /// The waits whose end is explained since the last call.
    pub fn take(&mut self) -> Vec<EndedWaits> {
        let decided = self.blockers.take();
        if !decided.is_empty() {
            // There is room again.
            self.swept_at = self.next;
        }
        let known = decided.into_iter().filter_map(|(wait, blocker)| {
            let waited = self.rows.get(&wait.row)?.clone();
            Some(EndedWaits { waited, by: blocker.shape?, waits: wait.total() })
        });
        known.collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Waker;
    use super::*;
    use crate::testing::{thread_operation as thread, wire_operation as wire};

    const WIDTH_NS: u64 = 10_000_000_000;

    fn operation(shape: u64, start_ns: u64) -> JoinedOperation {
        let shape = Arc::new(ShapeInfo { id: ShapeId(shape), ..ShapeInfo::default() });
        JoinedOperation { wire: WireOperation { shape, ..wire(1, start_ns) }, thread: thread(1, start_ns) }
    }

    fn waits(shape: u64, start_ns: u64, holder_start_ns: u64) -> JoinedOperation {
        let mut operation = operation(shape, start_ns);
        let holder = Timestamp::from_unix_ns(holder_start_ns);
        operation.thread.wakers =
            vec![Waker { thread: 2, operation_start: Some(holder), count: 2, wait_ns: 70 }];
        operation
    }

    #[test]
    fn a_row_knows_the_shape_that_ended_its_waits() {
        let mut blockers = RowBlockers::new(WIDTH_NS);
        blockers.add(&waits(7, 500, 100));
        blockers.add(&waits(7, 600, 100));
        assert_eq!(blockers.take().len(), 0, "the holder goes on");
        let mut holder = operation(9, 100);
        holder.thread.woke_others = true;
        blockers.add(&holder);
        let [ended] = blockers.take().try_into().unwrap();
        assert_eq!((ended.waited.shape.id, ended.by.id), (ShapeId(7), ShapeId(9)));
        assert_eq!(ended.waits, WaitTotal { waits: 4, wait_ns: 140 });
        assert_eq!(blockers.take().len(), 0);
    }

    #[test]
    fn waits_belong_to_the_windows_in_which_they_were() {
        let mut blockers = RowBlockers::new(WIDTH_NS);
        let starts = [100, 200, 3 * WIDTH_NS, 5 * WIDTH_NS];
        starts.iter().for_each(|start| blockers.add(&waits(7, *start, 50)));
        let mut holder = operation(9, 50);
        holder.thread.woke_others = true;
        blockers.add(&holder);
        // A wait that is known only later.
        blockers.add(&waits(7, 3 * WIDTH_NS + 1, 50));
        let mut found = blockers.take();
        found.sort_by_key(|ended| ended.waited.end);
        let windows = found.iter().map(|one| {
            let window = one.waited.end.unix_ns() / WIDTH_NS;
            (window, one.waits.waits, one.waits.wait_ns)
        });
        let all: Vec<_> = windows.collect();
        let of = |window| {
            let own = all.iter().filter(|one| one.0 == window);
            own.fold((0, 0), |sum, one| (sum.0 + one.1, sum.1 + one.2))
        };
        assert_eq!([of(0), of(3), of(5)], [(4, 140), (4, 140), (2, 70)]);
    }

    #[test]
    fn a_holder_that_goes_on_does_not_keep_the_room_of_other_rows() {
        let mut blockers = RowBlockers::new(WIDTH_NS);
        blockers.add(&waits(7, 500, 50));
        let mut holder = operation(9, 100);
        holder.thread.woke_others = true;
        blockers.add(&holder);
        let mut ended = 0;
        for window in 0..4 * MAX_SPLIT_ROWS as u64 {
            blockers.add(&waits(8, 500 + window * WIDTH_NS, 100));
            ended += blockers.take().len();
        }
        assert!(blockers.rows.len() <= MAX_SPLIT_ROWS && blockers.by.len() <= MAX_SPLIT_ROWS);
        assert_eq!(ended, 4 * MAX_SPLIT_ROWS);
        let mut holder = operation(9, 50);
        holder.thread.woke_others = true;
        blockers.add(&holder);
        assert_eq!(blockers.take()[0].waited.shape.id, ShapeId(7), "it still waits");
    }

    #[test]
    fn rows_are_bounded() {
        let mut blockers = RowBlockers::new(WIDTH_NS);
        let mut holder = operation(9, 100);
        holder.thread.woke_others = true;
        for shape in 0..3 * MAX_SPLIT_ROWS as u64 {
            blockers.add(&waits(shape, 500, 100));
        }
        assert_eq!(blockers.rows.len(), MAX_SPLIT_ROWS);
        blockers.add(&holder);
        assert_eq!(blockers.take().len(), MAX_SPLIT_ROWS);
        // With nothing left that waits, there is room again.
        blockers.add(&waits(90_000, 500, 100));
        assert_eq!((blockers.rows.len(), blockers.take().len()), (1, 1));
    }

    #[test]
    fn holders_that_never_come_do_not_keep_the_room() {
        let mut blockers = RowBlockers::new(WIDTH_NS);
        for shape in 0..(MAX_SPLIT_ROWS + MAX_WITHOUT_ROOM) as u64 {
            blockers.add(&waits(shape, 500, 100));
        }
        assert_eq!(blockers.take().len(), 0, "their holder is not known");
        blockers.add(&waits(90_000, 500, 100));
        assert_eq!(blockers.rows.len(), 1);
    }
}
