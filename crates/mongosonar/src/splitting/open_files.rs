//! Names of the files of traced processes, by device and inode.
//!
//! It takes privileges to see the files of another user's process, so a helper process reads them once this process
//! has dropped its own.

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
    helper: Option<Helper>,
}

impl OpenFiles {
    /// Prepares a helper where privileges are to be dropped. Call it before any thread is started.
    pub fn new(confined: bool) -> Self {
        Self { helper: if confined { helper() } else { None } }
    }

    /// Files that these processes have open now, with their paths.
    pub fn read(&self, processes: &[u32]) -> HashMap<FileId, String> {
        let answer = self.helper.as_ref().map(|helper| {
            let mut socket = helper.socket()?;
            ask(&mut socket, processes)?;
            receive(&mut socket)
        });
        match answer {
            Some(Ok(files)) => files,
            Some(Err(error)) => {
                eprintln!("mongosonar: the names of files cannot be found: {error}");
                HashMap::new()
            }
            None => find(processes).into_iter().map(|(id, path)| (id, lossy(&path))).collect(),
        }
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

fn ask(socket: &mut UnixStream, processes: &[u32]) -> io::Result<()> {
    let processes = &processes[..processes.len().min(MAX_PROCESSES)];
    let mut bytes = (processes.len() as u32).to_le_bytes().to_vec();
    processes.iter().for_each(|process| bytes.extend(process.to_le_bytes()));
    socket.write_all(&bytes)
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
    let count = u32::from_le_bytes(array(socket)?);
    let mut files = HashMap::new();
    for _ in 0..count {
        let device = u32::from_le_bytes(array(socket)?);
        let inode = u64::from_le_bytes(array(socket)?);
        let mut path = vec![0; usize::from(u16::from_le_bytes(array(socket)?))];
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
        ask(&mut ours, &[3, 4]).unwrap();
        assert_eq!(asked(&mut theirs).unwrap(), [3, 4]);
        let found = find(&[std::process::id()]);
        let sender = std::thread::spawn(move || send(&mut theirs, &found));
        assert_eq!(receive(&mut ours).unwrap()[&id], files[&id]);
        sender.join().unwrap().unwrap();
        fs::remove_file(&path).unwrap();
    }
}
