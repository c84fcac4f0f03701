//! One writer at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::StoreError;

/// The lock of a store; the kernel frees it when the process ends.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
}

impl StoreLock {
    /// Locks the store in this folder, and writes there who has it.
    pub fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = path(dir);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Not a file elsewhere that somebody else has linked here.
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .map_err(StoreError::of_io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(StoreError::Locked { dir: dir.to_owned(), holder: holder(&mut file) });
            }
            Err(errno) => return Err(StoreError::of_io("lock", &path)(errno.into())),
        }
        // The process id only helps to find the process: a full disk does not stop the store here.
        let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        Ok(Self { file })
    }

    /// Whether this is the lock of the store in this folder: the folder may have been deleted, or another one may be at
    /// its path.
    pub fn is_of(&self, dir: &Path) -> bool {
        let key = |found: fs::Metadata| (found.dev(), found.ino());
        let mine = self.file.metadata().map(key).ok();
        mine.is_some() && mine == fs::symlink_metadata(path(dir)).map(key).ok()
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// The process that has the lock.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let pid = file.take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
    let Some(pid) = pid else { return "another process".to_owned() };
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    }
}
