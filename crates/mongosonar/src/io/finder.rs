//! Finds the paths of files after privileges are dropped: a helper process still inspects other users' processes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sonar_sys::ebpf::{FileKey, FirstSeenFile};
use sonar_sys::privileges::Duty;

use super::paths::{FoundFile, Paths, PseudoPaths};
use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{self, HelperChannel};
use crate::confinement::path_bytes;
use crate::confinement::privileges::{self, HelperTask};

/// The longest path to accept from the helper, in bytes.
const MAX_PATH: usize = 16 * 1024;

/// Finds paths, here or in the helper.
pub enum PathFinder {
    /// In this process, which keeps its privileges.
    Here(Box<Paths>),
    /// In the helper.
    There {
        helper: Box<HelperChannel>,
        unplaced: u64,
        /// Needs no privileges.
        pseudo: PseudoPaths,
    },
}

impl PathFinder {
    /// Moves the search into a helper if this process gives up its privileges (`confined`). Call it before any thread is
    /// started.
    pub fn new(paths: Paths, confined: bool) -> Self {
        if !confined {
            return Self::Here(Box::new(paths));
        }
        let pseudo = paths.pseudo.clone();
        // Without a helper they are still needed here.
        let mut paths = Some(paths);
        let what = "finding the folders of files";
        let memory = privileges::PATHS_HELPER_BYTES;
        let task = HelperTask { name: "sonar-paths", what, memory, keep: INSPECTING, duty: Duty::Reading };
        let helper = HelperChannel::start(task, |socket| {
            paths.take().map_or(Ok(()), |mut paths| serve(&mut paths, socket))
        });
        match helper {
            Some(helper) => Self::There { helper: Box::new(helper), unplaced: 0, pseudo },
            None => Self::Here(Box::new(paths.unwrap_or_else(|| Paths::new(None, &[])))),
        }
    }

    /// As [`Paths::of`]; on a pseudo file system as [`PseudoPaths::of`].
    pub fn find(&mut self, seen: &FirstSeenFile<'_>) -> FoundFile {
        let FirstSeenFile { key, process, fd, name, pseudo, .. } = *seen;
        match (self, pseudo) {
            (Self::Here(paths), Some(folders)) => paths.pseudo.of(key, folders, name),
            (Self::There { pseudo, .. }, Some(folders)) => pseudo.of(key, folders, name),
            (Self::Here(paths), None) => paths.of(key, process, fd, name),
            (Self::There { helper, unplaced, .. }, None) => {
                let opened =
                    OpenedFile { key: key.into(), process, descriptor: fd, name: cut(name).to_vec() };
                ask(helper, unplaced, &opened)
            }
            // It has gone, or stands still: a name is better than nothing.
            .unwrap_or_else(|_| FoundFile { path: OsStr::from_bytes(name).into(), wanted: true }),
        }
    }

    /// As [`Paths::unplaced`].
    pub fn unplaced(&self) -> u64 {
        match self {
            Self::Here(paths) => paths.unplaced(),
            Self::There { unplaced, .. } => *unplaced,
        }
    }
}

/// A file that a process has opened.
#[derive(Debug, Serialize, Deserialize)]
struct OpenedFile {
    key: SentFileKey,
    process: u32,
    descriptor: i32,
    name: Vec<u8>,
}

/// As [`FileKey`].
#[derive(Debug, Serialize, Deserialize)]
struct SentFileKey {
    inode: u64,
    device: u64,
    generation: u32,
}

impl From<FileKey> for SentFileKey {
    fn from(FileKey { inode, device, generation }: FileKey) -> Self {
        Self { inode, device, generation }
    }
}

/// What the helper has found.
#[derive(Debug, Serialize, Deserialize)]
struct PathAnswer {
    #[serde(with = "path_bytes")]
    path: PathBuf,
    wanted: bool,
    /// As [`Paths::unplaced`].
    unplaced: u64,
}

fn ask(helper: &HelperChannel, unplaced: &mut u64, opened: &OpenedFile) -> io::Result<FoundFile> {
    let (found, _): (PathAnswer, _) = helper.ask(opened)?;
    if found.path.as_os_str().len() > MAX_PATH {
        return Err(io::ErrorKind::InvalidData.into());
    }
    *unplaced = found.unplaced;
    Ok(FoundFile { path: found.path, wanted: found.wanted })
}

/// In the helper: answers each question.
fn serve(paths: &mut Paths, socket: UnixStream) -> io::Result<()> {
    helper_channel::serve(socket, |OpenedFile { key, process, descriptor, name }: OpenedFile| {
        let SentFileKey { inode, device, generation } = key;
        let FoundFile { path, wanted } =
            paths.of(FileKey { inode, device, generation }, process, descriptor, cut(&name));
        let bytes = path.as_os_str().as_bytes();
        let path = OsStr::from_bytes(&bytes[..bytes.len().min(MAX_PATH)]).into();
        helper_channel::answer(Ok(PathAnswer { path, wanted, unplaced: paths.unplaced() }))
    })
}

/// The name of a file has at most 255 bytes.
fn cut(name: &[u8]) -> &[u8] {
    &name[..name.len().min(255)]
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_other_side_finds_what_is_found_here() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = HelperChannel::patient(ours);
        let worker = std::thread::spawn(move || serve(&mut Paths::new(None, &[]), theirs));
        let path = std::env::current_exe().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let inode = file.metadata().unwrap().ino();
        let key = FileKey { inode, device: 0, generation: 0 };
        let (process, name) = (std::process::id(), path.file_name().unwrap().as_bytes().to_vec());
        let question = OpenedFile { key: key.into(), process, descriptor: file.as_raw_fd(), name };
        let mut unplaced = 0;
        let found = ask(&ours, &mut unplaced, &question).unwrap();
        assert_eq!((found, unplaced), (FoundFile { path, wanted: true }, 0));
        drop(ours);
        assert_eq!(worker.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
