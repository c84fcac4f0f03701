//! How much room there is, and how much of it the store takes.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;

use crate::{StoreError, StoreSettings};

/// The most that stays free by default, in bytes.
const MIN_FREE: u64 = 1_000_000_000;
/// By default, one in this many bytes of the file system stays free, if that is less.
const FREE_SHARE: u64 = 20;

/// Whether the file system of this folder has room for a window.
pub(crate) fn has_room(dir: &Path, settings: &StoreSettings) -> Result<(), StoreError> {
    let system = statvfs(dir).map_err(|errno| StoreError::of_io("read", dir)(errno.into()))?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let size = system.f_blocks.saturating_mul(system.f_frsize);
    let floor = settings.min_free_bytes.unwrap_or(MIN_FREE.min(size / FREE_SHARE));
    if free < floor { Err(StoreError::NoRoom { dir: dir.to_owned(), free, floor }) } else { Ok(()) }
}

/// The size of all files of a store in bytes, with logs and damaged files.
pub(crate) fn total_bytes(dir: &Path) -> Result<u64, StoreError> {
    let mut total = 0;
    for entry in fs::read_dir(dir).map_err(StoreError::of_io("read", dir))? {
        // A file that vanishes meanwhile takes no room.
        if let Ok(file) = entry.and_then(|entry| entry.metadata()) {
            total += file.len();
        }
    }
    Ok(total)
}
