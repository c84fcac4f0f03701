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

use crate::files::finder::{INSPECTING, array};
use crate::privileges::{self, HelperTask};
use crate::stacks::helper_socket::HelperSocket;

/// The most files of an answer.
const MAX_FILES: usize = 16_384;
/// The most processes of a question.
const MAX_PROCESSES: usize = 64;
/// The longest path of an answer, in bytes; the end of a longer one is kept.
const MAX_PATH: usize = 4_096;

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 2 << 20;

/// Device in the kernel's own encoding, inode.
pub type FileId = (u32, u64);

/// Reads the open files of processes.
pub struct OpenFiles {
    /// `None` if this process reads them itself.
    helper: Option<RefCell<HelperSocket>>,
    /// The last answer could not be used, which was said.
    is_told: Cell<bool>,
}

impl OpenFiles {
    /// The most bytes that names take while they are read: an answer, the same as a table, and the same with names that are
    /// shared, with their counts of references.
    #[cfg(test)]
    pub const MAX_MEMORY: usize = MAX_ANSWER
        + sonar_core::held::table_bytes(MAX_FILES / 2, size_of::<(FileId, String)>())
        + MAX_ANSWER
        + sonar_core::held::table_bytes(MAX_FILES / 2, size_of::<(FileId, std::sync::Arc<str>)>())
        + MAX_FILES * 2 * size_of::<usize>()
        + MAX_ANSWER;

    /// Prepares a helper where privileges are to be dropped. Call it before any thread is started.
    pub fn new(confined: bool) -> Self {
        let helper = if confined { helper() } else { None };
        let helper = helper.and_then(|helper| HelperSocket::to(helper, MAX_ANSWER).ok());
        Self { helper: helper.map(RefCell::new), is_told: Cell::new(false) }
    }

    /// Files that these processes have open now, with their paths. None while the helper stands still.
    pub fn read(&self, processes: &[u32]) -> HashMap<FileId, String> {
        let Some(helper) = &self.helper else {
            return find(processes).into_iter().map(|(id, path)| (id, lossy(&path))).collect();
        };
        let found = ask(&mut helper.borrow_mut(), processes);
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

fn ask(helper: &mut HelperSocket, processes: &[u32]) -> Result<HashMap<FileId, String>> {
    let answer = helper.ask(&question(processes))?;
    Ok(files(&mut answer.bytes.as_slice())?)
}

fn helper() -> Option<Helper> {
    let what = "finding the names of files";
    let memory = privileges::HELPER_BYTES;
    let task = HelperTask { name: "sonar-files", what, memory, keep: INSPECTING, duty: Duty::Reading };
    privileges::helper(task, |socket| {
        answer_all(socket, |question| {
            let bytes = answer(&find(&asked(question)));
            Ok(HelperAnswer { bytes, files: Vec::new() })
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

/// The regular files that these processes have open.
fn find(processes: &[u32]) -> Vec<(FileId, Vec<u8>)> {
    let folders = processes.iter().map(|process| Host::live().path(&format!("proc/{process}/fd")));
    let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let file = |entry: fs::DirEntry| {
        let path = fs::read_link(entry.path()).ok()?;
        let known = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file)?;
        let device = u32::try_from(FileKey::device_of_stat(known.dev())).ok()?;
        Some(((device, known.ino()), path.as_os_str().as_bytes().to_vec()))
    };
    entries.filter_map(file).take(MAX_FILES).collect()
}

fn answer(files: &[(FileId, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for ((device, inode), path) in files {
        let path = &path[path.len().saturating_sub(MAX_PATH)..];
        if bytes.len() + 14 + path.len() > MAX_ANSWER {
            break;
        }
        bytes.extend(device.to_le_bytes());
        bytes.extend(inode.to_le_bytes());
        bytes.extend(u16::try_from(path.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(path);
    }
    bytes
}

/// The files of an answer.
fn files(answer: &mut &[u8]) -> io::Result<HashMap<FileId, String>> {
    let too_much = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mut files = HashMap::new();
    while !answer.is_empty() {
        let device = u32::from_le_bytes(array(answer)?);
        let inode = u64::from_le_bytes(array(answer)?);
        let length = usize::from(u16::from_le_bytes(array(answer)?));
        if length > MAX_PATH {
            return too_much("a path that is too long");
        }
        if files.len() >= MAX_FILES {
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

    #[test]
    fn an_open_file_has_its_name_here_and_across_a_socket() {
        let path = std::env::temp_dir().join(format!("mongosonar-open-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let known = file.metadata().unwrap();
        let id = (FileKey::device_of_stat(known.dev()) as u32, known.ino());
        let files = OpenFiles::new(false).read(&[std::process::id()]);
        assert_eq!(files[&id], path.to_str().unwrap());
        assert_eq!(asked(&question(&[3, 4])), [3, 4]);
        let found = answer(&find(&[std::process::id()]));
        assert_eq!(super::files(&mut found.as_slice()).unwrap()[&id], files[&id]);
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
            assert_eq!(files(&mut answer.as_slice()).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn names_are_found_again_after_a_helper_has_stood_still() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let helper = RefCell::new(HelperSocket::new(ours, MAX_ANSWER));
        let open = OpenFiles { helper: Some(helper), is_told: Cell::new(false) };
        let serving = std::thread::spawn(move || {
            let mut asked = 0;
            answer_all(theirs, |_| {
                asked += 1;
                // The first answer makes no sense.
                let bytes = if asked == 1 { vec![7; 3] } else { answer(&[((1, asked), b"/a".to_vec())]) };
                Ok(HelperAnswer { bytes, files: Vec::new() })
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
