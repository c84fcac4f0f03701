//! The place of a followed file as a path, for tests.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sonar_core::observation::FileIdentity;
use sonar_sys::host::regular;

use super::{FollowedPlace, MAX_COPIES, file_identity, newest_copies};

/// A path that may be opened.
#[derive(Clone, Debug)]
pub struct FollowedPath(pub PathBuf);

impl FollowedPlace for FollowedPath {
    fn identity(&mut self) -> io::Result<Option<FileIdentity>> {
        match fs::metadata(&self.0) {
            Ok(found) => Ok(Some(file_identity(&found))),
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

/// Files beside `path` whose names begin with its name, as those of rotated logs do, the newest first.
fn copies_of(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let changed =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.file_name())));
    newest_copies(name, changed, MAX_COPIES).into_iter().map(|name| folder.join(name)).collect()
}
