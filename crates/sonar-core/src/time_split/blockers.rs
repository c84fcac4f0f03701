//! Which operation ended the wait of another one.
//!
//! The kernel names the thread that ended a wait, and when the operation began that this thread executed then. The
//! shape of that operation is known when it ends, before or after the one that waited.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{JoinedOperation, OperationKey};
use crate::{ShapeId, ShapeInfo, Timestamp};

/// Waits that may wait for the shape of their blocker.
pub const MAX_PENDING_BLOCKS: usize = 65_536;
/// Operations that are remembered because they ended a wait.
const MAX_REMEMBERED: usize = 65_536;

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

/// Waits whose blocker is not known yet, and operations that ended waits.
#[derive(Default, Debug)]
pub(super) struct Blockers {
    pending: Vec<BlockedWait>,
    seen: HashMap<OperationKey, (String, Arc<ShapeInfo>)>,
    /// The same, the oldest first.
    order: VecDeque<OperationKey>,
    /// Waits that were not kept.
    pub turned_away: u64,
}

impl Blockers {
    pub fn wait(&mut self, wait: BlockedWait) {
        if self.pending.len() >= MAX_PENDING_BLOCKS {
            self.turned_away += u64::from(wait.count);
        } else {
            self.pending.push(wait);
        }
    }

    /// Remembers an operation that ended a wait.
    pub fn executed(&mut self, operation: &JoinedOperation) {
        let thread = &operation.thread;
        if !thread.woke_others {
            return;
        }
        let key = (thread.thread, thread.start);
        let known = (thread.thread_name.clone(), Arc::clone(&operation.wire.shape));
        if self.seen.insert(key, known).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }

    /// Gives the waits whose blocker is known; with `all`, also the others.
    pub fn resolve(&mut self, all: bool) -> Vec<(BlockedWait, Blocker)> {
        let mut resolved = Vec::new();
        let seen = &self.seen;
        self.pending.retain(|wait| {
            let known = wait.operation_start.and_then(|start| seen.get(&(wait.thread, start)));
            if known.is_none() && wait.operation_start.is_some() && !all {
                return true;
            }
            let blocker = Blocker {
                thread: wait.thread,
                thread_name: known.map(|(name, _)| name.clone()),
                has_others: false,
                shape: known.map(|(_, shape)| Arc::clone(shape)),
            };
            resolved.push((wait.clone(), blocker));
            false
        });
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
