//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, whatever happened to the thread that had it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
