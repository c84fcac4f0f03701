//! Which operation ended the wait of another one.
//!
//! The kernel names the thread that ended a wait, and when the operation began that this thread executed then. The
//! shape of that operation is known when it ends, before or after the one that waited.

use std::sync::Arc;

use super::{JoinedOperation, OperationKey, WaitTotal, Waker};
use crate::held::list_bytes;
use crate::{OldestFirst, ShapeId, ShapeInfo, Timestamp};

/// Waits that may wait for the shape of their blocker.
pub const MAX_PENDING_BLOCKS: usize = 28_000;
/// Operations that are remembered because they ended a wait.
const MAX_REMEMBERED: usize = 28_000;

/// Bytes of the name of a thread, as the kernel keeps it.
const NAME: usize = 16;

/// Who ended waits.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// The id of the thread.
    pub thread: u32,
    /// Its name, if the operation was seen.
    pub thread_name: Option<String>,
    /// Other threads that executed the same shape ended waits, too.
    pub has_others: bool,
    /// What it executed; `None` if that is unknown, or if it executed nothing for a client.
    pub shape: Option<Arc<ShapeInfo>>,
}

/// A wait whose end another thread caused.
#[derive(Clone, Debug)]
pub(super) struct BlockedWait {
    /// The row of the operation that waited.
    pub row: usize,
    pub thread: u32,
    /// The start of the operation of that thread.
    pub operation_start: Option<Timestamp>,
    pub count: u32,
    pub wait_ns: u64,
}

impl BlockedWait {
    /// What an operation of this row waited for until this thread ended it.
    pub fn of_row(row: usize, waker: &Waker) -> Self {
        let Waker { thread, operation_start, count, wait_ns } = *waker;
        Self { row, thread, operation_start, count, wait_ns }
    }

    pub fn total(&self) -> WaitTotal {
        WaitTotal { waits: self.count.into(), wait_ns: self.wait_ns }
    }
}

/// The name of a thread, and the shape of the operation that it executed.
type SeenBlocker = (String, Arc<ShapeInfo>);

/// Waits whose blocker is not known yet, and operations that ended waits. A blocker may go on for as long as it likes:
/// waits for it cost nothing until it ends.
#[derive(Default, Debug)]
pub(super) struct Blockers {
    pending: OldestFirst<OperationKey, Vec<BlockedWait>>,
    pending_count: usize,
    seen: OldestFirst<OperationKey, SeenBlocker>,
    /// Waits with their blockers, as far as they are known, that nobody took yet.
    ready: Vec<(BlockedWait, Blocker)>,
    /// Waits that were given up before their blocker was known.
    pub turned_away: u64,
}

impl Blockers {
    pub fn wait(&mut self, wait: BlockedWait) {
        let key = wait.operation_start.map(|start| (wait.thread, start));
        let Some(key) = key.filter(|key| !self.seen.contains_key(key)) else {
            self.decide(wait);
            return;
        };
        let waits = self.pending.entry(key);
        if let Some(same) = waits.iter_mut().find(|same| same.row == wait.row) {
            same.count = same.count.saturating_add(wait.count);
            same.wait_ns = same.wait_ns.saturating_add(wait.wait_ns);
            return;
        }
        waits.push(wait);
        self.pending_count += 1;
        while self.pending_count > MAX_PENDING_BLOCKS
            && let Some((_, oldest)) = self.pending.pop_oldest()
        {
            self.pending_count -= oldest.len();
            for wait in oldest {
                self.turned_away += u64::from(wait.count);
                self.decide(wait);
            }
        }
    }

    /// Remembers an operation that ended a wait.
    pub fn executed(&mut self, operation: &JoinedOperation) {
        let thread = &operation.thread;
        if !thread.woke_others {
            return;
        }
        let key = thread.key();
        let known = (thread.thread_name.clone(), Arc::clone(&operation.wire.shape));
        self.seen.insert(key, known);
        let waits = self.pending.remove(&key).unwrap_or_default();
        self.pending_count -= waits.len();
        waits.into_iter().for_each(|wait| self.decide(wait));
        if self.seen.count() > MAX_REMEMBERED {
            self.seen.pop_oldest();
        }
    }

    /// Names the blocker of a wait, as far as it is known now.
    fn decide(&mut self, wait: BlockedWait) {
        let known = wait.operation_start.and_then(|start| self.seen.get(&(wait.thread, start)));
        let blocker = Blocker {
            thread: wait.thread,
            thread_name: known.map(|(name, _)| name.clone()),
            has_others: false,
            shape: known.map(|(_, shape)| Arc::clone(shape)),
        };
        self.ready.push((wait, blocker));
    }

    /// The rows of the waits that are not taken yet; some come several times.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let pending = self.pending.values().flatten().map(|wait| wait.row);
        pending.chain(self.ready.iter().map(|(wait, _)| wait.row))
    }

    /// The waits that were decided since.
    pub fn take(&mut self) -> Vec<(BlockedWait, Blocker)> {
        std::mem::take(&mut self.ready)
    }

    /// The most bytes, while as many waits are decided at once as there may be.
    pub const MAX_MEMORY: usize =
        OldestFirst::<OperationKey, Vec<BlockedWait>>::max_memory(MAX_PENDING_BLOCKS + 1)
            + MAX_PENDING_BLOCKS * list_bytes(1, size_of::<BlockedWait>())
            + OldestFirst::<OperationKey, SeenBlocker>::max_memory(MAX_REMEMBERED + 1)
            + MAX_REMEMBERED * NAME
            + list_bytes(MAX_PENDING_BLOCKS, size_of::<(BlockedWait, Blocker)>() + NAME);

    /// The bytes that it has allocated. Shapes are shared, and do not count.
    pub fn memory(&self) -> usize {
        let waits: usize = self.pending.values().map(Vec::capacity).sum();
        let seen: usize = self.seen.values().map(|(name, _)| name.capacity()).sum();
        let ready = self.ready.iter().filter_map(|(_, blocker)| blocker.thread_name.as_ref());
        self.pending.memory()
            + waits * size_of::<BlockedWait>()
            + self.seen.memory()
            + seen
            + self.ready.capacity() * size_of::<(BlockedWait, Blocker)>()
            + ready.map(String::capacity).sum::<usize>()
    }

    /// Gives up waiting for blockers: those that are not known yet were not seen.
    pub fn give_up(&mut self) {
        let waits = std::mem::take(&mut self.pending).into_values().flatten();
        waits.for_each(|wait| self.decide(wait));
        self.pending_count = 0;
    }
}

/// What tells blockers of a row apart: the shape, or the thread where that is unknown.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum BlockerKey {
    Shape(ShapeId),
    Thread(u32),
}

impl From<&Blocker> for BlockerKey {
    fn from(blocker: &Blocker) -> Self {
        blocker.shape.as_ref().map_or(Self::Thread(blocker.thread), |shape| Self::Shape(shape.id))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::{thread_operation as thread, wire_operation as wire};

    fn wait(row: usize, thread: u32, start_ns: u64) -> BlockedWait {
        let operation_start = Some(Timestamp::from_unix_ns(start_ns));
        BlockedWait { row, thread, operation_start, count: 1, wait_ns: 10 }
    }

    fn executed(start_ns: u64) -> JoinedOperation {
        let mut thread = thread(1, start_ns);
        thread.woke_others = true;
        JoinedOperation { wire: wire(1, start_ns), thread }
    }

    #[test]
    fn waits_for_blockers_that_are_never_seen_are_bounded() {
        let mut blockers = Blockers::default();
        let most = MAX_PENDING_BLOCKS as u64;
        for start in 0..most + 3 {
            blockers.wait(wait(0, 2, start));
        }
        let given_up = blockers.take();
        assert_eq!((given_up.len(), blockers.turned_away), (3, 3), "the oldest make room");
        assert!(given_up.iter().all(|(_, blocker)| blocker.thread == 2 && blocker.shape.is_none()));
        blockers.executed(&executed(0));
        assert!(blockers.take().is_empty(), "it was given up");
        blockers.executed(&executed(3));
        assert!(blockers.take()[0].1.shape.is_some());
        blockers.give_up();
        assert_eq!(blockers.take().len(), MAX_PENDING_BLOCKS - 1);
        assert_eq!(blockers.pending_count, 0);
    }

    #[test]
    fn a_blocker_that_goes_on_is_named_when_it_ends() {
        let mut blockers = Blockers::default();
        for _ in 0..3 * MAX_PENDING_BLOCKS {
            blockers.wait(wait(0, 2, 7));
            blockers.wait(wait(1, 2, 7));
        }
        assert!(blockers.take().is_empty());
        blockers.executed(&executed(7));
        let found = blockers.take();
        let counts: Vec<_> = found.iter().map(|(wait, _)| (wait.row, wait.count, wait.wait_ns)).collect();
        let count = 3 * MAX_PENDING_BLOCKS as u32;
        assert_eq!(counts, [(0, count, u64::from(count) * 10), (1, count, u64::from(count) * 10)]);
        assert!(found.iter().all(|(_, blocker)| blocker.shape.is_some()));
        assert_eq!(blockers.turned_away, 0);
        // Who waits after that finds it at once.
        blockers.wait(wait(4, 2, 7));
        assert!(blockers.take()[0].1.shape.is_some());
    }

    #[test]
    fn keys_of_waits_that_were_decided_do_not_pile_up() {
        let mut blockers = Blockers::default();
        for start in 0..4 * MAX_PENDING_BLOCKS as u64 {
            blockers.wait(wait(0, 2, start));
            blockers.executed(&executed(start));
            assert_eq!(blockers.take().len(), 1);
        }
        assert_eq!(blockers.pending.count(), 0);
        assert!(blockers.pending.memory() <= OldestFirst::<OperationKey, Vec<BlockedWait>>::max_memory(1));
    }
}
