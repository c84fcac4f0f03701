//! A small file whose content is replaced again and again, even while the disk is full.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::trust;

/// The size of a file is a multiple of this, in bytes.
const BLOCK: usize = 16 << 10;
/// The least free bytes in a file that got a new size, so that its content can grow while the disk is full.
const SPARE: usize = 4 << 10;

/// A text file, padded with spaces. A second file of the same size, `NAME.new`, lies beside it: the next content is
/// written there, then the two change places. So a write needs no free space where the file system writes in place
/// (ext4, XFS, tmpfs), and a reader sees either the old content or the new one.
#[derive(Clone, Debug)]
pub struct KeptFile {
    path: PathBuf,
    new: PathBuf,
}

impl KeptFile {
    /// The file `name` in a folder.
    pub fn new(folder: &Path, name: &str) -> Self {
        Self { path: folder.join(name), new: folder.join(format!("{name}.new")) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text with spaces after it; `None` if there is no such file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> io::Result<Option<String>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut text = String::new();
        match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened?.read_to_string(&mut text).map(|_| Some(text)),
        }
    }

    /// Replaces the text. Only its owner can read it.
    ///
    /// # Errors
    /// The file cannot be written. The old content stays.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let mut file = trust::open_own(&self.new)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let fitting = (text.len() + SPARE).next_multiple_of(BLOCK);
        let size = if (text.len()..=fitting).contains(&size) { size } else { fitting };
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(size, b' ');
        file.write_all(&bytes)?;
        file.set_len(size as u64)?;
        match renameat_with(CWD, &self.new, CWD, &self.path, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            // The first write has nothing to change places with, and not every file system can exchange files.
            Err(_) => fs::rename(&self.new, &self.path),
        }
    }

    /// Removes it.
    pub fn remove(&self) {
        for path in [&self.path, &self.new] {
            // If it stays, that does no harm: readers check its content.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("mongosonar-kept-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_text_that_grows_a_little_takes_no_more_room() {
        let folder = folder("room");
        let file = KeptFile::new(&folder, "state");
        assert_eq!(file.read().unwrap(), None);
        let mut inodes = std::collections::BTreeSet::new();
        for length in [10, 50, SPARE, 20] {
            file.write(&"x".repeat(length)).unwrap();
            let found = fs::metadata(file.path()).unwrap();
            assert_eq!(file.read().unwrap().unwrap().trim_end(), "x".repeat(length));
            assert_eq!((found.len(), found.permissions().mode() & 0o777), (BLOCK as u64, 0o600));
            inodes.insert(found.ino());
        }
        assert_eq!(inodes.len(), 2, "two files take turns");
        file.write(&"x".repeat(BLOCK + 1)).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().len(), 2 * BLOCK as u64);
        file.remove();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_of_others_are_neither_read_nor_written() {
        let folder = folder("links");
        let (file, target) = (KeptFile::new(&folder, "state"), folder.join("target"));
        fs::write(&target, "secret").unwrap();
        std::os::unix::fs::symlink(&target, folder.join("state")).unwrap();
        assert!(file.read().is_err());
        std::os::unix::fs::symlink(&target, folder.join("state.new")).unwrap();
        file.write("new").unwrap();
        assert_eq!(file.read().unwrap().unwrap().trim_end(), "new");
        assert_eq!(fs::read_to_string(&target).unwrap(), "secret");
        file.write("newer").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "secret");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failed_write_keeps_the_old_text() {
        let folder = folder("failed");
        let file = KeptFile::new(&folder, "state");
        file.write("old").unwrap();
        fs::create_dir(folder.join("state.new")).unwrap();
        file.write("new").unwrap_err();
        assert_eq!(file.read().unwrap().unwrap().trim_end(), "old");
        fs::remove_dir_all(&folder).unwrap();
    }
}
