//! Names of the files of traced processes, by device and inode.
//!
//! It takes privileges to see the files of another user's process, so a helper process reads them once this process
//! has dropped its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use sonar_sys::Host;
use sonar_sys::ebpf::FileKey;
use sonar_sys::helper::Helper;
use sonar_sys::privileges::Duty;

use crate::files::finder::{INSPECTING, array};
use crate::privileges;
use crate::stacks::helper_socket::HelperSocket;

/// The most files of an answer.
const MAX_FILES: usize = 65_536;
/// The most processes of a question.
const MAX_PROCESSES: usize = 64;
/// The longest path of an answer, in bytes; the end of a longer one is kept.
const MAX_PATH: usize = 4_096;

/// Device in the kernel's own encoding, inode.
pub type FileId = (u32, u64);

/// Reads the open files of processes.
pub struct OpenFiles {
    /// `None` if this process reads them itself.
    helper: Option<RefCell<HelperSocket>>,
}

impl OpenFiles {
    /// Prepares a helper where privileges are to be dropped. Call it before any thread is started.
    pub fn new(confined: bool) -> Self {
        let helper = if confined { helper() } else { None };
        Self { helper: helper.and_then(|helper| HelperSocket::to(helper).ok()).map(RefCell::new) }
    }

    /// Files that these processes have open now, with their paths.
    pub fn read(&self, processes: &[u32]) -> HashMap<FileId, String> {
        let Some(helper) = &self.helper else {
            return find(processes).into_iter().map(|(id, path)| (id, lossy(&path))).collect();
        };
        let mut helper = helper.borrow_mut();
        let has_ended = helper.is_closed();
        helper.ask(&question(processes), receive).unwrap_or_else(|error| {
            // It is said once: the agent asks again and again.
            if !has_ended {
                eprintln!("mongosonar: the names of files cannot be found: {error:#}");
            }
            HashMap::new()
        })
    }
}

fn helper() -> Option<Helper> {
    privileges::helper("finding the names of files", INSPECTING, Duty::Reading, move |mut socket| {
        loop {
            let processes = asked(&mut socket)?;
            send(&mut socket, &find(&processes))?;
        }
    })
}

fn question(processes: &[u32]) -> Vec<u8> {
    let processes = &processes[..processes.len().min(MAX_PROCESSES)];
    let mut bytes = (processes.len() as u32).to_le_bytes().to_vec();
    processes.iter().for_each(|process| bytes.extend(process.to_le_bytes()));
    bytes
}

fn asked(socket: &mut UnixStream) -> io::Result<Vec<u32>> {
    let count = u32::from_le_bytes(array(socket)?).min(MAX_PROCESSES as u32);
    (0..count).map(|_| Ok(u32::from_le_bytes(array(socket)?))).collect()
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

fn send(socket: &mut UnixStream, files: &[(FileId, Vec<u8>)]) -> io::Result<()> {
    let mut bytes = u32::try_from(files.len()).unwrap_or(0).to_le_bytes().to_vec();
    for ((device, inode), path) in files {
        let path = &path[path.len().saturating_sub(MAX_PATH)..];
        bytes.extend(device.to_le_bytes());
        bytes.extend(inode.to_le_bytes());
        bytes.extend(u16::try_from(path.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(path);
    }
    socket.write_all(&bytes)
}

fn receive(socket: &mut UnixStream) -> io::Result<HashMap<FileId, String>> {
    let too_much = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let count = u32::from_le_bytes(array(socket)?);
    if count as usize > MAX_FILES {
        return too_much("too many files");
    }
    let mut files = HashMap::new();
    for _ in 0..count {
        let device = u32::from_le_bytes(array(socket)?);
        let inode = u64::from_le_bytes(array(socket)?);
        let length = usize::from(u16::from_le_bytes(array(socket)?));
        if length > MAX_PATH {
            return too_much("a path that is too long");
        }
        let mut path = vec![0; length];
        socket.read_exact(&mut path)?;
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
    use super::*;

    #[test]
    fn an_open_file_has_its_name_here_and_across_a_socket() {
        let path = std::env::temp_dir().join(format!("mongosonar-open-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let known = file.metadata().unwrap();
        let id = (FileKey::device_of_stat(known.dev()) as u32, known.ino());
        let files = OpenFiles::new(false).read(&[std::process::id()]);
        assert_eq!(files[&id], path.to_str().unwrap());
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.write_all(&question(&[3, 4])).unwrap();
        assert_eq!(asked(&mut theirs).unwrap(), [3, 4]);
        let found = find(&[std::process::id()]);
        let sender = std::thread::spawn(move || send(&mut theirs, &found));
        assert_eq!(receive(&mut ours).unwrap()[&id], files[&id]);
        sender.join().unwrap().unwrap();
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn after_an_answer_that_makes_no_sense_there_are_no_names() {
        let file = [7u32.to_le_bytes().as_slice(), &9u64.to_le_bytes(), &5_000u16.to_le_bytes()].concat();
        let long_path = [1u32.to_le_bytes().as_slice(), &file].concat();
        for (answer, why) in
            [(long_path, "a path that is too long"), (65_537u32.to_le_bytes().to_vec(), "too many files")]
        {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&answer).unwrap();
            let mut socket = ours.try_clone().unwrap();
            let error = receive(&mut socket).unwrap_err();
            assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::InvalidData, why.to_owned()));
            theirs.write_all(&answer).unwrap();
            let files = OpenFiles { helper: Some(RefCell::new(HelperSocket::new(ours))) };
            assert!(files.read(&[1]).is_empty());
            // A good answer comes too late.
            let _ = theirs.write_all(&0u32.to_le_bytes());
            assert!(files.read(&[1]).is_empty());
            assert!(files.helper.unwrap().borrow().is_closed());
        }
    }
}
