//! Much memory for a moment: one thread at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most bytes that one thread of the agent holds for a moment while it has [`large`].
pub const LARGE_BYTES: usize = 40 << 20;

/// Held by the one thread that reads a chunk of `diagnostic.data` or a file of symbols, which may take up to [`LARGE_BYTES`]
/// for a moment. The others wait, which takes a second or two at most.
pub fn large() -> MutexGuard<'static, ()> {
    static LARGE: Mutex<()> = Mutex::new(());
    LARGE.lock().unwrap_or_else(PoisonError::into_inner)
}
