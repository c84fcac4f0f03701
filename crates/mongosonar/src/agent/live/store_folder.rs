//! The folder of the store, which may be deleted while the agent runs.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder as it was at the start.
#[derive(Debug)]
pub struct StoreFolder {
    path: PathBuf,
    /// Device and inode.
    identity: Option<(u64, u64)>,
}

impl StoreFolder {
    /// The present one at this path.
    pub fn at(path: &Path) -> Self {
        let identity = fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        Self { path: path.to_path_buf(), identity }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was deleted, also if there is another one by now. A thread that may write below the first one only can
    /// neither make it again nor use another one.
    pub fn is_gone(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) => self.identity.is_some_and(|identity| identity != (found.dev(), found.ino())),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_deleted_is_gone_also_if_another_one_is_there() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("store");
        fs::create_dir(&path).unwrap();
        let folder = StoreFolder::at(&path);
        fs::write(path.join("lock"), "").unwrap();
        assert!(!folder.is_gone());
        // Its inode stays in use, so that the next one has another.
        let kept = fs::File::open(&path).unwrap();
        fs::remove_dir_all(&path).unwrap();
        assert!(folder.is_gone());
        fs::create_dir(&path).unwrap();
        assert!(folder.is_gone() && !StoreFolder::at(&path).is_gone());
        drop(kept);
    }
}
