//! Much memory for a moment: one thread at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::locking::lock;

/// The most bytes that one thread of the agent holds for a moment while it has [`LARGE`].
pub const LARGE_BYTES: usize = 36 << 20;

/// The memory of the one thread of the agent that reads a chunk of `diagnostic.data` or a file of symbols.
pub static LARGE: LargeMemory = LargeMemory::new();

/// Memory that one thread has at a time. It may have it for long: the file system of a file of symbols may not answer. So
/// the others wait for a while only.
#[derive(Debug)]
pub struct LargeMemory {
    is_taken: Mutex<bool>,
    given_back: Condvar,
}

/// Gives the memory back when it is dropped.
#[derive(Debug)]
pub struct TakenMemory<'a>(&'a LargeMemory);

/// Another thread has the memory.
#[derive(Copy, Clone, Debug)]
pub struct MemoryInUse;

impl std::fmt::Display for MemoryInUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the memory for it is in use: another large file is being read, or its file system does not answer")
    }
}

impl std::error::Error for MemoryInUse {}

impl LargeMemory {
    /// Nobody has it.
    pub const fn new() -> Self {
        Self { is_taken: Mutex::new(false), given_back: Condvar::new() }
    }

    /// Waits for it, at most this long; `None` if another thread still has it then.
    pub fn take(&self, wait: Duration) -> Option<TakenMemory<'_>> {
        let waited = self.given_back.wait_timeout_while(self.state(), wait, |is_taken| *is_taken);
        let (mut is_taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut *is_taken, true)).then(|| TakenMemory(self))
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        lock(&self.is_taken)
    }
}

impl Drop for TakenMemory<'_> {
    fn drop(&mut self) {
        *self.0.state() = false;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_has_it_and_the_others_do_not_wait_for_good() {
        let memory = LargeMemory::new();
        let taken = memory.take(Duration::ZERO).unwrap();
        assert!(memory.take(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| memory.take(Duration::from_secs(600)).is_some());
            drop(taken);
            assert!(waits.join().unwrap());
        });
        assert!(memory.take(Duration::ZERO).is_some());
    }
}
