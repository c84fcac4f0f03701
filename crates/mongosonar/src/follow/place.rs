//! Where a followed file is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sonar_sys::host::regular;

/// The most files beside a followed one that are looked at.
const MAX_COPIES: usize = 4;
/// The most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Distinguishes files, whatever their names. The number of a file that was deleted may be used again.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device.
    pub device: u64,
    /// The number of the file on it.
    pub inode: u64,
}

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
}

/// A path that may be opened.
#[derive(Clone, Debug)]
pub struct FollowedPath(pub PathBuf);

impl FollowedPlace for FollowedPath {
    fn identity(&mut self) -> io::Result<Option<FileIdentity>> {
        match fs::metadata(&self.0) {
            Ok(found) => Ok(Some(FileIdentity { device: found.dev(), inode: found.ino() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&mut self) -> io::Result<File> {
        regular::open(&self.0)
    }

    fn copies(&mut self) -> Vec<File> {
        copies_of(&self.0).iter().filter_map(|path| regular::open(path).ok()).collect()
    }
}

/// Files beside `path` whose names begin with its name, as those of rotated logs do, the newest first. Not compressed
/// ones.
fn copies_of(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let is_packed = |end: &OsStr| matches!(end.as_bytes(), b"gz" | b"bz2" | b"xz" | b"zst");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut found: Vec<_> = entries
        .filter(|entry| {
            let other = entry.file_name();
            other != name
                && other.as_bytes().starts_with(name.as_bytes())
                && !Path::new(&other).extension().is_some_and(is_packed)
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    found.into_iter().rev().take(MAX_COPIES).map(|(_, path)| path).collect()
}
