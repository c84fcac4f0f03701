//! Which shapes ended the waits of operations, for the rows of windows.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::blockers::{BlockedWait, Blockers};
use super::rows::MAX_SPLIT_ROWS;
use super::{JoinedOperation, WaitTotal, WireOperation};
use crate::{Class, Endpoint, Role, ShapeId, ShapeInfo};

/// So many operations without room, and holders that have not been seen by then are given up.
const MAX_WITHOUT_ROOM: usize = 10 * MAX_SPLIT_ROWS;

/// Identifies the row of an operation.
type BlockedRowKey = (Endpoint, Role, Class, ShapeId, ShapeId);

/// Waits of a row that operations of one shape ended.
#[derive(Clone, Debug)]
pub struct EndedWaits {
    /// The last operation of the row that waited.
    pub waited: WireOperation,
    /// The shape of those that ended the waits.
    pub by: Arc<ShapeInfo>,
    /// The waits.
    pub waits: WaitTotal,
}

/// Finds out which shapes ended the waits of operations. An operation that holds something may go on for as long as it
/// likes: its shape is known when it ends.
#[derive(Debug, Default)]
pub struct RowBlockers {
    blockers: Blockers,
    /// The last operation that waited, of each row.
    rows: Vec<WireOperation>,
    by: HashMap<BlockedRowKey, usize, RandomState>,
    /// Operations that had no room since there was some.
    without_room: usize,
}

impl RowBlockers {
    /// Adds an operation, which may have waited for others, and ended waits of others.
    pub fn add(&mut self, operation: &JoinedOperation) {
        if operation.thread.wakers.iter().any(|waker| waker.operation_start.is_some())
            && let Some(row) = self.row(&operation.wire)
        {
            for waker in operation.thread.wakers.iter().filter(|waker| waker.operation_start.is_some()) {
                self.blockers.wait(BlockedWait {
                    row,
                    thread: waker.thread,
                    operation_start: waker.operation_start,
                    count: waker.count,
                    wait_ns: waker.wait_ns,
                });
            }
        }
        self.blockers.executed(operation);
    }

    /// The number of the row of an operation; `None` if there are too many.
    fn row(&mut self, wire: &WireOperation) -> Option<usize> {
        if self.rows.len() >= MAX_SPLIT_ROWS && self.blockers.is_idle() {
            self.rows.clear();
            self.by.clear();
            self.without_room = 0;
        }
        let key = (wire.server, wire.role, wire.class, wire.shape.id, wire.ordered_id);
        if let Some(row) = self.by.get(&key) {
            self.rows[*row].end = self.rows[*row].end.max(wire.end);
            return Some(*row);
        }
        if self.rows.len() >= MAX_SPLIT_ROWS {
            self.without_room += 1;
            if self.without_room >= MAX_WITHOUT_ROOM {
                self.blockers.give_up();
            }
            return None;
        }
        self.rows.push(wire.clone());
        self.by.insert(key, self.rows.len() - 1);
        Some(self.rows.len() - 1)
    }

    /// The waits whose end is explained since the last call.
    pub fn take(&mut self) -> Vec<EndedWaits> {
        let decided = self.blockers.take().into_iter();
        let known = decided.filter_map(|(wait, blocker)| {
            let waits = WaitTotal { waits: u64::from(wait.count), wait_ns: wait.wait_ns };
            Some(EndedWaits { waited: self.rows.get(wait.row)?.clone(), by: blocker.shape?, waits })
        });
        known.collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Waker;
    use super::super::join::tests::{thread, wire};
    use super::*;
    use crate::Timestamp;

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
        let mut blockers = RowBlockers::default();
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
    fn rows_are_bounded() {
        let mut blockers = RowBlockers::default();
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
        let mut blockers = RowBlockers::default();
        for shape in 0..(MAX_SPLIT_ROWS + MAX_WITHOUT_ROOM) as u64 {
            blockers.add(&waits(shape, 500, 100));
        }
        assert_eq!(blockers.take().len(), 0, "their holder is not known");
        blockers.add(&waits(90_000, 500, 100));
        assert_eq!(blockers.rows.len(), 1);
    }
}
