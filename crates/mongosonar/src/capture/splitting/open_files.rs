//! Names of the files of traced processes, by device and inode.
//!
//! It takes privileges to see the files of another user's process, so a helper process reads them once this process
//! has dropped its own.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

use sonar_core::words::plural;
use sonar_sys::Host;
use sonar_sys::ebpf::FileKey;
use sonar_sys::host::regular::CachedStat;
use sonar_sys::privileges::Duty;
use sonar_sys::questions::{HelperAnswer, answer_all};

use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{HelperChannel, array};
use crate::confinement::privileges::{self, HelperTask};

/// The most processes of a question.
const MAX_PROCESSES: usize = 64;
/// The longest path of an answer, in bytes; the end of a longer one is kept.
const MAX_PATH: usize = 4_096;
/// The bytes of a file of an answer, beside its path: device, inode, and the length of the path.
const ENTRY_BYTES: usize = 14;
/// The bytes of an answer before its files: how many processes have more.
const CUT_BYTES: usize = 2;

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
    helper: Option<HelperChannel>,
    /// The last answer could not be used, which was said.
    is_told: Cell<bool>,
    /// The most processes with files for which there was no room, which was said.
    cut_told: Cell<u16>,
    room: OpenFilesRoom,
}

/// The open files of processes, as far as there is room for them.
#[derive(Debug, Default, PartialEq, Eq)]
struct FoundFiles<F> {
    files: F,
    /// How many processes have more files than there is room for.
    cut: u16,
}

impl OpenFiles {
    /// Prepares a helper where privileges are to be dropped. Call it before any thread is started.
    pub fn new(confined: bool, room: OpenFilesRoom) -> Self {
        let helper = if confined { helper(room) } else { None };
        Self { helper, is_told: Cell::new(false), cut_told: Cell::new(0), room }
    }

    /// Files that these processes have open now, with their paths. None while the helper stands still.
    pub fn read(&self, processes: &[u32]) -> HashMap<FileId, String> {
        let Some(helper) = &self.helper else {
            let FoundFiles { files, cut } = find(processes, self.room);
            self.tell_cut(cut);
            return files.into_iter().map(|(id, path)| (id, lossy(&path))).collect();
        };
        let found = ask(helper, processes, self.room);
        let is_told = self.is_told.replace(found.is_err());
        let FoundFiles { files, cut } = found.unwrap_or_else(|error| {
            // It is said once: the agent asks again and again.
            if !is_told {
                eprintln!("mongosonar: the names of files cannot be found: {error}");
            }
            FoundFiles::default()
        });
        self.tell_cut(cut);
        files
    }

    /// Says of how many processes names of files are missing, when there are more than before.
    fn tell_cut(&self, cut: u16) {
        if cut > self.cut_told.get() {
            self.cut_told.set(cut);
            let servers = plural(u64::from(cut), "server");
            eprintln!("mongosonar: names of files of {servers} are missing: there are too many open files");
        }
    }
}

fn ask(
    helper: &HelperChannel,
    processes: &[u32],
    room: OpenFilesRoom,
) -> io::Result<FoundFiles<HashMap<FileId, String>>> {
    let answer = helper.ask_bytes(&question(processes))?;
    files(&mut answer.bytes.as_slice(), room)
}

fn helper(room: OpenFilesRoom) -> Option<HelperChannel> {
    let what = "finding the names of files";
    let memory = room.helper_bytes;
    let task = HelperTask { name: "sonar-files", what, memory, keep: INSPECTING, duty: Duty::Reading };
    let channel = HelperChannel::start(task, |socket| {
        answer_all(socket, |question| {
            let bytes = answer(&find(&asked(question), room));
            Ok(HelperAnswer { bytes, ..HelperAnswer::default() })
        })
    });
    Some(channel?.with_max_answer(room.answer_bytes))
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
fn find(processes: &[u32], room: OpenFilesRoom) -> FoundFiles<Vec<(FileId, Vec<u8>)>> {
    let file = |entry: fs::DirEntry| {
        let path = fs::read_link(entry.path()).ok()?;
        // Its file system is not asked: it may never answer.
        let known = CachedStat::at(&entry.path()).ok().filter(|known| known.is_regular)?;
        let device = u32::try_from(FileKey::device_of_stat(known.device)).ok()?;
        let path = path.as_os_str().as_bytes();
        Some(((device, known.inode), path[path.len().saturating_sub(MAX_PATH)..].to_vec()))
    };
    let folders = processes.iter().map(|process| Host::live().path(&format!("proc/{process}/fd")));
    let of_processes = folders.filter_map(|folder| fs::read_dir(folder).ok());
    fitting(of_processes.map(|entries| entries.flatten().filter_map(file)).collect(), room)
}

/// As many files of each process as an answer has room for. The next one is always of the process that has got least, so
/// that a process with many files, or with long paths, takes no room that another one needs.
fn fitting<F: Iterator<Item = (FileId, Vec<u8>)>>(
    of_processes: Vec<F>,
    room: OpenFilesRoom,
) -> FoundFiles<Vec<(FileId, Vec<u8>)>> {
    // A short path takes the place of a file all the same.
    let least_cost = room.answer_bytes / room.files.max(1);
    let mut open: Vec<(usize, F)> = of_processes.into_iter().map(|files| (0, files)).collect();
    let mut found = FoundFiles::<Vec<_>>::default();
    let mut bytes = CUT_BYTES;
    while let Some(at) = (0..open.len()).min_by_key(|at| open[*at].0) {
        let (cost, files) = &mut open[at];
        let Some((id, path)) = files.next() else {
            open.swap_remove(at);
            continue;
        };
        let length = ENTRY_BYTES + path.len();
        if found.files.len() == room.files || bytes + length > room.answer_bytes {
            found.cut += 1;
            open.swap_remove(at);
            continue;
        }
        *cost += length.max(least_cost);
        bytes += length;
        found.files.push((id, path));
    }
    found
}

fn answer(found: &FoundFiles<Vec<(FileId, Vec<u8>)>>) -> Vec<u8> {
    let length: usize = found.files.iter().map(|(_, path)| ENTRY_BYTES + path.len()).sum();
    let mut bytes = Vec::with_capacity(CUT_BYTES + length);
    bytes.extend(found.cut.to_le_bytes());
    for ((device, inode), path) in &found.files {
        bytes.extend(device.to_le_bytes());
        bytes.extend(inode.to_le_bytes());
        bytes.extend(u16::try_from(path.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(path);
    }
    bytes
}

/// The files of an answer.
fn files(answer: &mut &[u8], room: OpenFilesRoom) -> io::Result<FoundFiles<HashMap<FileId, String>>> {
    let too_much = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let cut = u16::from_le_bytes(array(answer)?);
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
    Ok(FoundFiles { files, cut })
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::MetadataExt;
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
        assert_eq!(super::files(&mut found.as_slice(), ROOM).unwrap().files[&id], files[&id]);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_answer_that_makes_no_sense_gives_no_names() {
        let entry = |length: u16| [&[7; 12][..], &length.to_le_bytes()].concat();
        let many = (0..=65_536u64).flat_map(|inode| [&[0; 4][..], &inode.to_le_bytes(), &[0; 2]].concat());
        for (answer, why) in [
            (entry(5_000), "a path that is too long"),
            (entry(5), "failed to fill whole buffer"),
            (many.collect::<Vec<_>>(), "too many files"),
        ] {
            let answer = [&[0; CUT_BYTES][..], &answer].concat();
            assert_eq!(files(&mut answer.as_slice(), ROOM).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn a_command_has_room_for_the_files_of_a_server_with_many_collections() {
        let found: Vec<(FileId, Vec<u8>)> =
            (0..60_000).map(|inode| ((1, inode), format!("/data/collection-{inode}.wt").into())).collect();
        let count = found.len();
        let bytes = answer(&FoundFiles { files: found, cut: 0 });
        assert_eq!(files(&mut bytes.as_slice(), OpenFilesRoom::COMMAND).unwrap().files.len(), count);
        assert!(files(&mut bytes.as_slice(), OpenFilesRoom::AGENT).is_err());
    }

    /// The files of a process: so many of the device, with paths of so many bytes.
    fn open_files(device: u32, count: u64, path_bytes: usize) -> impl Iterator<Item = (FileId, Vec<u8>)> {
        (0..count).map(move |inode| ((device, inode), vec![b'a'; path_bytes]))
    }

    #[test]
    fn an_answer_has_as_many_files_as_there_is_room_for() {
        let room = OpenFilesRoom { answer_bytes: CUT_BYTES + 3 * (ENTRY_BYTES + 7) + 1, ..ROOM };
        for (room, count, cut) in [
            (room, 3, 1),
            (OpenFilesRoom { files: 2, ..room }, 2, 1),
            (OpenFilesRoom { files: 9, ..ROOM }, 9, 0),
        ] {
            let fits = fitting(vec![open_files(1, 9, 7)], room);
            assert_eq!((fits.files.len(), fits.cut), (count, cut), "{room:?}");
            let bytes = answer(&fits);
            assert!(bytes.len() <= room.answer_bytes);
            let read = files(&mut bytes.as_slice(), room).unwrap();
            assert_eq!((read.files.len(), read.cut), (count, cut));
        }
    }

    #[test]
    fn a_process_with_many_files_or_long_paths_leaves_room_for_those_of_others() {
        let of = |fits: &FoundFiles<Vec<(FileId, Vec<u8>)>>, device: u32| {
            fits.files.iter().filter(|((of, _), _)| *of == device).count()
        };
        let many = vec![open_files(1, 1_000_000, 7), open_files(2, 400, 7), open_files(3, 300, 7)];
        let fits = fitting(many, OpenFilesRoom { files: 1_000, ..ROOM });
        assert_eq!([1, 2, 3].map(|device| of(&fits, device)), [350, 350, 300]);
        assert_eq!(fits.cut, 2);
        let long = vec![open_files(1, 1_000_000, MAX_PATH), open_files(2, 400, 7), open_files(3, 300, 7)];
        let fits = fitting(long, OpenFilesRoom { answer_bytes: 128 << 10, files: 8_192, ..ROOM });
        assert_eq!([2, 3].map(|device| of(&fits, device)), [400, 300]);
        assert!(of(&fits, 1) > 0);
        assert_eq!(fits.cut, 1);
    }

    #[test]
    fn names_are_found_again_after_a_helper_has_stood_still() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let helper = HelperChannel::patient(ours).with_max_answer(ROOM.answer_bytes);
        let open =
            OpenFiles { helper: Some(helper), is_told: Cell::new(false), cut_told: Cell::new(0), room: ROOM };
        let found = |inode| answer(&FoundFiles { files: vec![((1, inode), b"/a".to_vec())], cut: 1 });
        let serving = std::thread::spawn(move || {
            let mut asked = 0;
            answer_all(theirs, |_| {
                asked += 1;
                // The first answer makes no sense.
                let bytes = if asked == 1 { vec![7; 3] } else { found(asked) };
                Ok(HelperAnswer { bytes, ..HelperAnswer::default() })
            })
        });
        assert!(open.read(&[1]).is_empty());
        assert!(open.is_told.get());
        assert_eq!(open.read(&[1])[&(1, 2)], "/a");
        assert!(!open.is_told.get());
        assert_eq!(open.cut_told.get(), 1);
        drop(open);
        assert!(serving.join().unwrap().is_err());
    }
}
