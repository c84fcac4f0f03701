//! Which operation ended the wait of another one.
//!
//! The kernel names the thread that woke a waiting one. What that thread executed is known when its operation ends,
//! which may be much later, so each wait stays pending until an operation of that thread covers its end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{JoinedOperation, ThreadOperation};
use crate::{ShapeId, ShapeInfo, Timestamp};

/// Waits that may be pending.
pub const MAX_PENDING_BLOCKS: usize = 65_536;
/// Operations that are remembered.
const MAX_RECENT: usize = 65_536;
/// How long an operation is remembered after its end, in nanoseconds.
const REMEMBERED_NS: u64 = 5_000_000_000;

/// Who ended waits.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// The id of the thread.
    pub thread: u32,
    /// Its name, if one of its operations was seen.
    pub thread_name: Option<String>,
    /// What it executed at that time; `None` if that is unknown, or if it serves no connection.
    pub shape: Option<Arc<ShapeInfo>>,
}

/// A wait whose end another thread caused.
#[derive(Clone, Debug)]
pub(super) struct BlockedWait {
    /// The row of the operation that waited.
    pub row: usize,
    pub thread: u32,
    pub count: u32,
    pub wait_ns: u64,
    /// The operation that waited.
    pub from: Timestamp,
    pub to: Timestamp,
}

#[derive(Debug)]
struct RecentOperation {
    from: Timestamp,
    to: Timestamp,
    name: String,
    shape: Arc<ShapeInfo>,
}

/// Waits that are pending, and what threads executed recently.
#[derive(Default, Debug)]
pub(super) struct Blockers {
    pending: VecDeque<BlockedWait>,
    recent: HashMap<u32, VecDeque<RecentOperation>>,
    remembered: usize,
    /// Waits that were not kept.
    pub turned_away: u64,
}

impl Blockers {
    pub fn wait(&mut self, wait: BlockedWait) {
        if self.pending.len() >= MAX_PENDING_BLOCKS {
            self.turned_away += u64::from(wait.count);
        } else {
            self.pending.push_back(wait);
        }
    }

    pub fn executed(&mut self, operation: &JoinedOperation) {
        if self.remembered >= MAX_RECENT {
            return;
        }
        let ThreadOperation { thread, thread_name, start, end, .. } = &operation.thread;
        self.remembered += 1;
        self.recent.entry(*thread).or_default().push_back(RecentOperation {
            from: *start,
            to: *end,
            name: thread_name.clone(),
            shape: Arc::clone(&operation.wire.shape),
        });
    }

    /// Gives the waits whose blocker is known; with `all`, also the others.
    pub fn resolve(&mut self, now: Timestamp, all: bool) -> Vec<(BlockedWait, Blocker)> {
        let mut resolved = Vec::new();
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|wait| {
            let recent = self.recent.get(&wait.thread);
            let holder = recent.and_then(|recent| {
                recent.iter().rev().find(|other| other.from <= wait.to && other.to >= wait.from)
            });
            if holder.is_none() && !all {
                return true;
            }
            let name = holder.or_else(|| recent.and_then(|recent| recent.back()));
            let blocker = Blocker {
                thread: wait.thread,
                thread_name: name.map(|other| other.name.clone()),
                shape: holder.map(|other| Arc::clone(&other.shape)),
            };
            resolved.push((wait.clone(), blocker));
            false
        });
        self.pending = pending;
        for recent in self.recent.values_mut() {
            let before = recent.len();
            recent.retain(|operation| now.since(operation.to) < REMEMBERED_NS);
            self.remembered -= before - recent.len();
        }
        self.recent.retain(|_, recent| !recent.is_empty());
        resolved
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
