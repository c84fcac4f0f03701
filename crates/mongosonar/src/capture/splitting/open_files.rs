//! Names of the files of traced processes, by device and inode.
//!
//! It takes privileges to see the files of another user's process, so a helper process reads them once this process
//! has dropped its own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use sonar_sys::Host;
use sonar_sys::ebpf::FileKey;
use sonar_sys::helper::Helper;
use sonar_sys::privileges::Duty;
use sonar_sys::questions::{HelperAnswer, answer_all};

use crate::confinement::privileges::{self, HelperTask};
use crate::io::finder::{INSPECTING, array};
use crate::stacks::helper_socket::HelperSocket;

/// The most processes of a question.
const MAX_PROCESSES: usize = 64;
/// The longest path of an answer, in bytes; the end of a longer one is kept.
const MAX_PATH: usize = 4_096;
/// The bytes of a file of an answer, beside its path: device, inode, and the length of the path.
const ENTRY_BYTES: usize = 14;

/// How much room there is for the names of files.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OpenFilesRoom {
    /// The most files of an answer.
    files: usize,
    /// The longest answer, in bytes.
    answer_bytes: usize,
    /// The most bytes of memory of the helper: an answer twice, and what is known of each file.
    helper_bytes: usize,
}

impl OpenFilesRoom {
    /// That of a command.
    pub const COMMAND: Self = Self { files: 65_536, answer_bytes: 64 << 20, helper_bytes: 256 << 20 };
    /// That of the agent, which stays within the memory of its service.
    pub const AGENT: Self =
        Self { files: 16_384, answer_bytes: 2 << 20, helper_bytes: privileges::HELPER_BYTES };

    /// The most bytes that names take while they are read: an answer, the same as a table, and the same with names that are
    /// shared, with their counts of references.
    #[cfg(test)]
    pub const fn max_memory(self) -> usize {
        self.answer_bytes
            + sonar_core::held::table_bytes(self.files / 2, size_of::<(FileId, String)>())
            + self.answer_bytes
            + sonar_core::held::table_bytes(self.files / 2, size_of::<(FileId, std::sync::Arc<str>)>())
            + self.files * 2 * size_of::<usize>()
            + self.answer_bytes
    }
}

/// Device in the kernel's own encoding, inode.
pub type FileId = (u32, u64);

/// Reads the open files of processes.
pub struct OpenFiles {
    /// `None` if this process reads them itself.
    helper: Option<RefCell<HelperSocket>>,
    /// The last answer could not be used, which was said.
    is_told: Cell<bool>,
    room: OpenFilesRoom,
}

impl OpenFiles {
    /// Prepares a helper where privileges are to be dropped. Call it before any thread is started.
    pub fn new(confined: bool, room: OpenFilesRoom) -> Self {
        let helper = if confined { helper(room) } else { None };
        let helper = helper.and_then(|helper| HelperSocket::to(helper, room.answer_bytes).ok());
        Self { helper: helper.map(RefCell::new), is_told: Cell::new(false), room }
    }

    /// Files that these processes have open now, with their paths. None while the helper stands still.
    pub fn read(&self, processes: &[u32]) -> HashMap<FileId, String> {
        let Some(helper) = &self.helper else {
            return find(processes, self.room).into_iter().map(|(id, path)| (id, lossy(&path))).collect();
        };
        let found = ask(&mut helper.borrow_mut(), processes, self.room);
        let is_told = self.is_told.replace(found.is_err());
        found.unwrap_or_else(|error| {
            // It is said once: the agent asks again and again.
            if !is_told {
                eprintln!("mongosonar: the names of files cannot be found: {error:#}");
            }
            HashMap::new()
        })
    }
}

fn ask(helper: &mut HelperSocket, processes: &[u32], room: OpenFilesRoom) -> Result<HashMap<FileId, String>> {
    let answer = helper.ask(&question(processes))?;
    Ok(files(&mut answer.bytes.as_slice(), room)?)
}

fn helper(room: OpenFilesRoom) -> Option<Helper> {
    let what = "finding the names of files";
    let memory = room.helper_bytes;
    let task = HelperTask { name: "sonar-files", what, memory, keep: INSPECTING, duty: Duty::Reading };
    privileges::helper(task, |socket| {
        answer_all(socket, |question| {
            let bytes = answer(&find(&asked(question), room));
            Ok(HelperAnswer { bytes, ..HelperAnswer::default() })
        })
    })
}

fn question(processes: &[u32]) -> Vec<u8> {
    let processes = &processes[..processes.len().min(MAX_PROCESSES)];
    processes.iter().flat_map(|process| process.to_le_bytes()).collect()
}

fn asked(question: &[u8]) -> Vec<u32> {
    let (processes, _) = question.as_chunks();
    processes.iter().take(MAX_PROCESSES).map(|process| u32::from_le_bytes(*process)).collect()
}

/// The regular files that these processes have open, as many as an answer has room for, each with the end of its path.
fn find(processes: &[u32], room: OpenFilesRoom) -> Vec<(FileId, Vec<u8>)> {
    let folders = processes.iter().map(|process| Host::live().path(&format!("proc/{process}/fd")));
    let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let file = |entry: fs::DirEntry| {
        let path = fs::read_link(entry.path()).ok()?;
        let known = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file)?;
        let device = u32::try_from(FileKey::device_of_stat(known.dev())).ok()?;
        let path = path.as_os_str().as_bytes();
        Some(((device, known.ino()), path[path.len().saturating_sub(MAX_PATH)..].to_vec()))
    };
    fitting(entries.filter_map(file), room)
}

/// As many of the files as an answer has room for.
fn fitting(found: impl Iterator<Item = (FileId, Vec<u8>)>, room: OpenFilesRoom) -> Vec<(FileId, Vec<u8>)> {
    let mut bytes = 0;
    let has_room = |(_, path): &(FileId, Vec<u8>)| {
        bytes += ENTRY_BYTES + path.len();
        bytes <= room.answer_bytes
    };
    found.take(room.files).take_while(has_room).collect()
}

fn answer(files: &[(FileId, Vec<u8>)]) -> Vec<u8> {
    let length = files.iter().map(|(_, path)| ENTRY_BYTES + path.len()).sum();
    let mut bytes = Vec::with_capacity(length);
    for ((device, inode), path) in files {
        bytes.extend(device.to_le_bytes());
        bytes.extend(inode.to_le_bytes());
        bytes.extend(u16::try_from(path.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(path);
    }
    bytes
}

/// The files of an answer.
fn files(answer: &mut &[u8], room: OpenFilesRoom) -> io::Result<HashMap<FileId, String>> {
    let too_much = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mut files = HashMap::new();
    while !answer.is_empty() {
        let device = u32::from_le_bytes(array(answer)?);
        let inode = u64::from_le_bytes(array(answer)?);
        let length = usize::from(u16::from_le_bytes(array(answer)?));
        if length > MAX_PATH {
            return too_much("a path that is too long");
        }
        if files.len() >= room.files {
            return too_much("too many files");
        }
        let mut path = vec![0; length];
        answer.read_exact(&mut path)?;
        files.insert((device, inode), lossy(&path));
    }
    Ok(files)
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const ROOM: OpenFilesRoom = OpenFilesRoom::COMMAND;

    #[test]
    fn an_open_file_has_its_name_here_and_across_a_socket() {
        let path = std::env::temp_dir().join(format!("mongosonar-open-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let known = file.metadata().unwrap();
        let id = (FileKey::device_of_stat(known.dev()) as u32, known.ino());
        let files = OpenFiles::new(false, ROOM).read(&[std::process::id()]);
        assert_eq!(files[&id], path.to_str().unwrap());
        assert_eq!(asked(&question(&[3, 4])), [3, 4]);
        let found = answer(&find(&[std::process::id()], ROOM));
        assert_eq!(super::files(&mut found.as_slice(), ROOM).unwrap()[&id], files[&id]);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_answer_that_makes_no_sense_gives_no_names() {
        let entry = |length: u16| [&[7; 12][..], &length.to_le_bytes()].concat();
        let many = (0..=65_536u64).flat_map(|inode| [&[0; 4][..], &inode.to_le_bytes(), &[0; 2]].concat());
        for (answer, why) in [
            (entry(5_000), "a path that is too long"),
            (entry(5), "failed to fill whole buffer"),
            (many.collect(), "too many files"),
        ] {
            assert_eq!(files(&mut answer.as_slice(), ROOM).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn a_command_has_room_for_the_files_of_a_server_with_many_collections() {
        let found: Vec<(FileId, Vec<u8>)> =
            (0..60_000).map(|inode| ((1, inode), format!("/data/collection-{inode}.wt").into())).collect();
        let bytes = answer(&found);
        assert_eq!(files(&mut bytes.as_slice(), OpenFilesRoom::COMMAND).unwrap().len(), found.len());
        assert!(files(&mut bytes.as_slice(), OpenFilesRoom::AGENT).is_err());
    }

    #[test]
    fn an_answer_has_as_many_files_as_there_is_room_for() {
        let found = || (0..9).map(|inode| ((1, inode), b"/data/a".to_vec()));
        let room = OpenFilesRoom { answer_bytes: 3 * (ENTRY_BYTES + 7) + 1, ..ROOM };
        let fits = fitting(found(), room);
        assert_eq!((fits.len(), answer(&fits).len()), (3, room.answer_bytes - 1));
        assert_eq!(fitting(found(), OpenFilesRoom { files: 2, ..room }).len(), 2);
        assert_eq!(fitting(found(), ROOM).len(), 9);
    }

    #[test]
    fn names_are_found_again_after_a_helper_has_stood_still() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let helper = RefCell::new(HelperSocket::new(ours, ROOM.answer_bytes));
        let open = OpenFiles { helper: Some(helper), is_told: Cell::new(false), room: ROOM };
        let serving = std::thread::spawn(move || {
            let mut asked = 0;
            answer_all(theirs, |_| {
                asked += 1;
                // The first answer makes no sense.
                let bytes = if asked == 1 { vec![7; 3] } else { answer(&[((1, asked), b"/a".to_vec())]) };
                Ok(HelperAnswer { bytes, ..HelperAnswer::default() })
            })
        });
        assert!(open.read(&[1]).is_empty());
        assert!(open.is_told.get());
        assert_eq!(open.read(&[1])[&(1, 2)], "/a");
        assert!(!open.is_told.get());
        drop(open);
        assert!(serving.join().unwrap().is_err());
    }
}
