//! Finds the paths of files after privileges are dropped: a helper process still inspects other users' processes.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use sonar_sys::ebpf::{FileKey, PseudoFolders};
use sonar_sys::helper::Helper;
use sonar_sys::privileges::Duty;
use sonar_sys::questions::{HelperAnswer, QuestionSocket, answer_all};

use super::paths::{FoundFile, Paths, PseudoPaths};
pub use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::privileges::{self, HelperTask};

/// The longest path to accept from the helper, in bytes.
const MAX_PATH: usize = 16 * 1024;

/// Finds paths, here or in the helper.
pub enum PathFinder {
    /// In this process, which keeps its privileges.
    Here(Box<Paths>),
    /// In the helper.
    There {
        /// Kept, so that it ends with us.
        _helper: Helper,
        socket: Box<QuestionSocket>,
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
        let helper = privileges::helper(task, |socket| {
            paths.take().map_or(Ok(()), |mut paths| serve(&mut paths, socket))
        });
        match helper.and_then(|helper| Some((helper.socket().ok()?, helper))) {
            Some((socket, helper)) => {
                let socket = Box::new(QuestionSocket::new(socket));
                Self::There { _helper: helper, socket, unplaced: 0, pseudo }
            }
            None => Self::Here(Box::new(paths.unwrap_or_else(|| Paths::new(None, &[])))),
        }
    }

    /// As [`Paths::of`].
    pub fn of(&mut self, key: FileKey, process: u32, fd: i32, name: &[u8]) -> FoundFile {
        match self {
            Self::Here(paths) => paths.of(key, process, fd, name),
            Self::There { socket, unplaced, .. } => {
                let opened = OpenedFile { key, process, descriptor: fd, name };
                ask(socket, unplaced, opened)
            }
            // It has gone, or stands still: a name is better than nothing.
            .unwrap_or_else(|_| FoundFile { path: OsStr::from_bytes(name).into(), wanted: true }),
        }
    }

    /// As [`PseudoPaths::of`].
    pub fn of_pseudo(&mut self, key: FileKey, folders: PseudoFolders<'_>, name: &[u8]) -> FoundFile {
        match self {
            Self::Here(paths) => paths.pseudo.of(key, folders, name),
            Self::There { pseudo, .. } => pseudo.of(key, folders, name),
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
struct OpenedFile<'a> {
    key: FileKey,
    process: u32,
    descriptor: i32,
    name: &'a [u8],
}

fn ask(socket: &mut QuestionSocket, unplaced: &mut u64, opened: OpenedFile<'_>) -> io::Result<FoundFile> {
    let OpenedFile { key, process, descriptor, name } = opened;
    let name = &name[..name.len().min(255)];
    let mut question = Vec::with_capacity(28 + name.len());
    question.extend(key.inode.to_ne_bytes());
    question.extend(key.device.to_ne_bytes());
    question.extend(key.generation.to_ne_bytes());
    question.extend(process.to_ne_bytes());
    question.extend(descriptor.to_ne_bytes());
    question.extend_from_slice(name);
    let answer = socket.ask(&question)?.bytes;
    let mut answer = answer.as_slice();
    let wanted = array::<1>(&mut answer)? == [1];
    *unplaced = u64::from_ne_bytes(array(&mut answer)?);
    let path = answer[..answer.len().min(MAX_PATH)].to_vec();
    Ok(FoundFile { path: PathBuf::from(std::ffi::OsString::from_vec(path)), wanted })
}

/// In the helper: answers each question.
fn serve(paths: &mut Paths, socket: UnixStream) -> io::Result<()> {
    answer_all(socket, |mut question| {
        let key = FileKey {
            inode: u64::from_ne_bytes(array(&mut question)?),
            device: u64::from_ne_bytes(array(&mut question)?),
            generation: u32::from_ne_bytes(array(&mut question)?),
        };
        let process = u32::from_ne_bytes(array(&mut question)?);
        let fd = i32::from_ne_bytes(array(&mut question)?);
        let FoundFile { path, wanted } = paths.of(key, process, fd, question);
        let mut bytes = vec![u8::from(wanted)];
        bytes.extend(paths.unplaced().to_ne_bytes());
        bytes.extend_from_slice(cut(&path));
        Ok(HelperAnswer { bytes, ..HelperAnswer::default() })
    })
}

fn cut(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    &bytes[..bytes.len().min(MAX_PATH)]
}

/// The next bytes from the other side, or of a question or an answer.
pub fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_other_side_finds_what_is_found_here() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut ours = QuestionSocket::new(ours).with_patience(Duration::from_secs(3_600));
        let worker = std::thread::spawn(move || serve(&mut Paths::new(None, &[]), theirs));
        let path = std::env::current_exe().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let inode = file.metadata().unwrap().ino();
        let key = FileKey { inode, device: 0, generation: 0 };
        let name = path.file_name().unwrap().as_bytes();
        let question = OpenedFile { key, process: std::process::id(), descriptor: file.as_raw_fd(), name };
        let mut unplaced = 0;
        let found = ask(&mut ours, &mut unplaced, question).unwrap();
        assert_eq!((found, unplaced), (FoundFile { path, wanted: true }, 0));
        drop(ours);
        assert_eq!(worker.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
