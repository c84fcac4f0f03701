//! Finding the processes called mongod, and which of them use the folder that was asked for.
//!
//! Where another user's process has its files takes privileges to see. Once they are given up a helper process looks
//! there, which was started before.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use sonar_sys::helper::Helper;
use sonar_sys::privileges::Duty;

use super::finder::{INSPECTING, array};
use super::paths::Folder;
use crate::privileges;

/// Name of the processes that are followed.
pub const SERVER: &str = "mongod";
/// Open files of a mongod that are checked to find which folder is its own; its locks are among the first.
const MOST_OPEN: usize = 1_024;
/// Processes that one answer of the helper names at most.
const MAX_ANSWER: usize = 65_536;
/// Asks the helper for all processes; no process has this id.
const ALL: u32 = 0;

/// Finds processes called mongod.
pub struct Search {
    local: Local,
    remote: Option<Remote>,
}

/// The helper that searches.
struct Remote {
    /// Kept, so that it ends with us.
    _helper: Helper,
    socket: UnixStream,
}

impl Search {
    /// In this `/proc`.
    pub fn new(proc_root: impl Into<PathBuf>) -> Self {
        Self { local: Local::new(proc_root), remote: None }
    }

    /// One that recognises the folder by its path.
    #[cfg(test)]
    pub fn by_path(proc_root: impl Into<PathBuf>) -> Self {
        let local = Local { proc_root: proc_root.into(), by_folder: true, by_path: true };
        Self { local, remote: None }
    }

    /// Moves the search into a helper, as this process is to give up its privileges. Call it before any thread is
    /// started.
    pub fn move_to_helper(&mut self, folder: Option<&Folder>) {
        let local = &self.local;
        let helper = privileges::helper(
            "looking into the folders of a mongod that starts later",
            INSPECTING,
            Duty::Reading,
            |socket| serve(local, folder, socket),
        );
        self.remote =
            helper.and_then(|helper| Some(Remote { socket: helper.socket().ok()?, _helper: helper }));
    }

    /// Every mongod that is there now, the lowest number first.
    pub fn all(&mut self) -> Vec<u32> {
        self.remote(ALL).unwrap_or_else(|| self.local.all())
    }

    /// Those of the processes that use the folder, if any does; else all. Later ones are chosen likewise. Call it
    /// before the search moves.
    pub fn choose(&mut self, found: &[u32], folder: &Folder) -> Vec<u32> {
        self.local.choose(found, folder)
    }

    /// Whether a process uses the folder, as far as that matters.
    pub fn is_chosen(&mut self, process: u32, folder: &Folder) -> bool {
        match self.remote(process) {
            Some(chosen) => !chosen.is_empty(),
            None => self.local.is_chosen(process, folder),
        }
    }

    /// The helper's answer; `None` where there is none, and this process finds what it can.
    fn remote(&mut self, process: u32) -> Option<Vec<u32>> {
        let answer = ask(&mut self.remote.as_mut()?.socket, process);
        if answer.is_err() {
            // What comes late must not be taken for the answer to a later question.
            self.remote = None;
        }
        answer.ok()
    }
}

/// All that are there, or whether this one is chosen: itself, or none.
fn ask(socket: &mut UnixStream, process: u32) -> io::Result<Vec<u32>> {
    socket.write_all(&process.to_ne_bytes())?;
    let count = u32::from_ne_bytes(array(socket)?) as usize;
    if count > MAX_ANSWER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    (0..count).map(|_| Ok(u32::from_ne_bytes(array(socket)?))).collect()
}

/// In the helper: answers each question.
fn serve(search: &Local, folder: Option<&Folder>, mut socket: UnixStream) -> io::Result<()> {
    loop {
        let found = match u32::from_ne_bytes(array(&mut socket)?) {
            ALL => search.all(),
            process if folder.is_none_or(|folder| search.is_chosen(process, folder)) => vec![process],
            _ => Vec::new(),
        };
        let count = found.len().min(MAX_ANSWER);
        let mut answer = (count as u32).to_ne_bytes().to_vec();
        answer.extend(found[..count].iter().flat_map(|process| process.to_ne_bytes()));
        socket.write_all(&answer)?;
    }
}

/// Looks through `/proc`, with the capabilities that this process has.
struct Local {
    proc_root: PathBuf,
    /// Only those that use the folder that was asked for.
    by_folder: bool,
    /// Whether the folder is recognised by its path alone.
    by_path: bool,
}

impl Local {
    fn new(proc_root: impl Into<PathBuf>) -> Self {
        Self { proc_root: proc_root.into(), by_folder: false, by_path: false }
    }

    /// Every mongod that is there now, the lowest number first.
    fn all(&self) -> Vec<u32> {
        let listed = fs::read_dir(&self.proc_root).into_iter().flatten().flatten();
        let mut found: Vec<u32> = listed
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|process| is_server(&self.proc_root, *process))
            .collect();
        found.sort_unstable();
        found
    }

    /// Those of the processes that use the folder, if any does; else all. Later ones are chosen likewise.
    fn choose(&mut self, found: &[u32], folder: &Folder) -> Vec<u32> {
        let of = |by_path| -> Vec<u32> {
            found.iter().copied().filter(|process| self.uses(*process, folder, by_path)).collect()
        };
        let (itself, by_path) = (of(false), of(true));
        self.by_path = itself.is_empty();
        let chosen = if self.by_path { by_path } else { itself };
        self.by_folder = !chosen.is_empty();
        if chosen.is_empty() { found.to_vec() } else { chosen }
    }

    fn is_chosen(&self, process: u32, folder: &Folder) -> bool {
        !self.by_folder || self.uses(process, folder, self.by_path)
    }

    /// Whether the folder is what the process was given as its dbpath, or it has files open in it.
    fn uses(&self, process: u32, folder: &Folder, by_path: bool) -> bool {
        let holds = |path: &Path| match by_path {
            true => folder.holds_by_path(path),
            false => folder.holds_itself(process, path),
        };
        let own = self.proc_root.join(process.to_string());
        let arguments = fs::read(own.join("cmdline")).unwrap_or_default();
        if dbpath(&arguments).is_some_and(|path| {
            let at = fs::read_link(own.join("cwd")).unwrap_or_default();
            holds(&at.join(path))
        }) {
            return true;
        }
        let open = fs::read_dir(own.join("fd")).into_iter().flatten().flatten().take(MOST_OPEN);
        let files = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        // Pipes and sockets have no path.
        let folders: HashSet<PathBuf> =
            files.filter(|path| path.is_absolute()).filter_map(|path| Some(path.parent()?.into())).collect();
        folders.iter().any(|path| holds(path))
    }
}

/// The folder that a command line names.
fn dbpath(arguments: &[u8]) -> Option<&Path> {
    use std::os::unix::ffi::OsStrExt;
    let mut words = arguments.split(|byte| *byte == 0);
    while let Some(word) = words.next() {
        let value = match word.strip_prefix(b"--dbpath") {
            Some([]) => words.next(),
            Some(rest) => rest.strip_prefix(b"="),
            None => None,
        };
        if let Some(value) = value {
            return Some(Path::new(OsStr::from_bytes(value)));
        }
    }
    None
}

/// Whether a process is called mongod, or its program is, and it runs.
fn is_server(proc_root: &Path, process: u32) -> bool {
    let own = proc_root.join(process.to_string());
    let name = fs::read(own.join("comm")).unwrap_or_default();
    let is = name.trim_ascii_end() == SERVER.as_bytes() || {
        let program = fs::read_link(own.join("exe")).unwrap_or_default();
        let last = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // It may have been replaced by a newer one.
        last.strip_suffix(" (deleted)").unwrap_or(last) == SERVER
    };
    let status = if is { fs::read_to_string(own.join("status")).unwrap_or_default() } else { String::new() };
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).map(str::trim_start);
    // What has ended is listed until its parent has collected it.
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// A `/proc` of our own.
    pub struct Proc(pub PathBuf);

    impl Proc {
        pub fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("mongosonar-proc-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        pub fn process(&self, id: u32, name: &str, program: &str) {
            let own = self.0.join(id.to_string());
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("comm"), format!("{name}\n")).unwrap();
            self.state(id, "S (sleeping)");
            let _ = fs::remove_file(own.join("exe"));
            std::os::unix::fs::symlink(program, own.join("exe")).unwrap();
        }

        pub fn state(&self, id: u32, state: &str) {
            let status = format!("Name:\tx\nState:\t{state}\nTgid:\t{id}\nPid:\t{id}\n");
            fs::write(self.0.join(format!("{id}/status")), status).unwrap();
        }

        pub fn ends(&self, id: u32) {
            fs::remove_dir_all(self.0.join(id.to_string())).unwrap();
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Proc;
    use super::*;

    #[test]
    fn every_mongod_that_runs_is_listed() {
        let proc = Proc::new("listed");
        proc.process(100, "mongod", "/usr/bin/mongod");
        proc.process(101, "bash", "/bin/bash");
        proc.process(102, "worker", "/opt/bin/mongod (deleted)");
        proc.process(103, "mongodump", "/usr/bin/mongodump");
        proc.process(104, "mongod", "/usr/bin/mongod");
        let mut search = Search::new(&proc.0);
        assert_eq!(search.all(), [100, 102, 104]);
        // It has ended, and is not collected yet.
        proc.state(104, "Z (zombie)");
        proc.ends(100);
        assert_eq!(search.all(), [102]);
    }

    #[test]
    fn the_helper_finds_what_is_found_here() {
        let proc = Proc::new("helper");
        let (db, other) = (proc.0.join("db"), proc.0.join("other"));
        for (id, folder) in [(7, &db), (8, &other)] {
            fs::create_dir_all(folder).unwrap();
            proc.process(id, "mongod", "/usr/bin/mongod");
            let line = format!("mongod\0--dbpath\0{}\0", folder.display());
            fs::write(proc.0.join(format!("{id}/cmdline")), line).unwrap();
        }
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let root = proc.0.clone();
        let worker = std::thread::spawn(move || {
            let folder = Folder::new(&db, &[]).unwrap();
            let search = Local { proc_root: root, by_folder: true, by_path: true };
            serve(&search, Some(&folder), theirs)
        });
        assert_eq!(ask(&mut ours, ALL).unwrap(), [7, 8]);
        assert_eq!(ask(&mut ours, 7).unwrap(), [7]);
        assert!(ask(&mut ours, 8).unwrap().is_empty());
        proc.ends(7);
        assert_eq!(ask(&mut ours, ALL).unwrap(), [8]);
        drop(ours);
        assert_eq!(worker.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_folder_of_a_command_line_is_found() {
        let of = |line: &[u8]| dbpath(line).map(|path| path.display().to_string());
        assert_eq!(of(b"mongod\0--port\x0027017\0--dbpath\0/data\0"), Some("/data".into()));
        assert_eq!(of(b"mongod\0--dbpath=/data/db\0"), Some("/data/db".into()));
        assert_eq!(of(b"mongod\0--dbpathx\0/data\0-f\0/etc/mongod.conf\0"), None);
        assert_eq!(of(b"mongod\0--dbpath\0"), Some(String::new()), "what follows its last zero");
        assert_eq!(of(b""), None);
    }
}
