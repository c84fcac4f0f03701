//! Where a followed file is.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sonar_core::observation::FileIdentity;

use super::file::FileThread;

/// The most files beside a followed one that are looked at.
pub const MAX_COPIES: usize = 4;

/// The file that these are of.
pub fn file_identity(found: &Metadata) -> FileIdentity {
    FileIdentity { device: found.dev(), inode: found.ino() }
}

/// How a [`FileIdentity`] is passed from one process to another.
#[derive(Serialize, Deserialize)]
#[serde(remote = "FileIdentity")]
pub struct PassedIdentity {
    device: u64,
    inode: u64,
}

/// A [`FileIdentity`] that is passed from one process to another.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SentIdentity(#[serde(with = "PassedIdentity")] pub FileIdentity);

/// The place of a followed file. A process that may not open files itself lets a helper do it.
pub trait FollowedPlace {
    /// Which file is there now; `None` if there is none.
    ///
    /// # Errors
    /// The place cannot be looked at.
    fn identity(&mut self) -> io::Result<Option<FileIdentity>>;

    /// Opens the file that is there now.
    ///
    /// # Errors
    /// There is none, it is not a regular file, or it may not be opened.
    fn open(&mut self) -> io::Result<File>;

    /// Opens files that may be older versions of the one that is there, the newest first. At most a few.
    fn copies(&mut self) -> Vec<File>;

    /// The thread that reads these files; `None` if whoever follows them may wait for their file system.
    fn thread(&self) -> Option<Arc<FileThread>> {
        None
    }
}

/// Of the files of a folder, with the times of their last change, those whose names begin with `name`, the newest first.
/// Not the file itself, and not compressed ones. At most `most`.
pub fn newest_copies(
    name: &OsStr,
    files: impl Iterator<Item = (SystemTime, OsString)>,
    most: usize,
) -> Vec<OsString> {
    let is_packed = |end: &OsStr| matches!(end.as_bytes(), b"gz" | b"bz2" | b"xz" | b"zst");
    let is_copy = |other: &OsStr| {
        other != name
            && other.as_bytes().starts_with(name.as_bytes())
            && !Path::new(other).extension().is_some_and(is_packed)
    };
    let mut found: Vec<_> = files.filter(|(_, other)| is_copy(other)).collect();
    found.sort();
    found.into_iter().rev().take(most).map(|(_, name)| name).collect()
}
