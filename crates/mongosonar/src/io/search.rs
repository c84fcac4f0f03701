//! Finds the processes called mongod, and those of them that use the wanted folder.
//!
//! It takes privileges to see the files of another user's process. After this process has dropped them, a helper process
//! searches that was started before.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use sonar_sys::Host;
use sonar_sys::ebpf::MAX_PROCESSES;
use sonar_sys::privileges::Duty;

use super::paths::Folder;
use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{self, HelperChannel};
use crate::confinement::privileges::{self, HelperTask};
use crate::servers;

/// The most open files of a mongod to check for its folder; its locks are among the first.
const MOST_OPEN: usize = 1_024;
/// The most bytes of the paths of their folders.
const MAX_FOLDER_BYTES: usize = 512 << 10;
/// The most processes in one answer of the helper.
const MAX_ANSWER: usize = 65_536;
/// Asks the helper for all processes; no process has this id.
const ALL: u32 = 0;

/// Finds processes called mongod.
pub struct ServerSearch {
    local: Local,
    /// The helper that searches.
    remote: Option<HelperChannel>,
}

impl ServerSearch {
    /// On this host.
    pub fn new(host: Host) -> Self {
        Self { local: Local { host, by_folder: false, by_path: false }, remote: None }
    }

    /// A search that recognises the folder by its path.
    #[cfg(test)]
    pub fn by_path(host: Host) -> Self {
        let local = Local { host, by_folder: true, by_path: true };
        Self { local, remote: None }
    }

    /// Moves the search into a helper, as this process is to give up its privileges. Call it before any thread is
    /// started.
    pub fn move_to_helper(&mut self, folder: Option<&Folder>) {
        let local = &self.local;
        self.remote = HelperChannel::start(
            HelperTask {
                name: "sonar-folders",
                what: "looking into the folders of a mongod that starts later",
                memory: privileges::HELPER_BYTES,
                keep: INSPECTING,
                duty: Duty::Reading,
            },
            |socket| serve(local, folder, socket),
        );
    }

    /// Every running mongod; where there are more than can be traced, those that get a place first.
    pub fn all(&mut self) -> Vec<u32> {
        self.remote(ALL).unwrap_or_else(|| self.local.all())
    }

    /// The processes that use the folder, if any; else all. Later ones are chosen by the same rule. Call it before the
    /// search moves.
    pub fn choose(&mut self, found: &[u32], folder: &Folder) -> Vec<u32> {
        self.local.choose(found, folder)
    }

    /// Whether a process counts: it uses the folder, or no process does.
    pub fn is_chosen(&mut self, process: u32, folder: &Folder) -> bool {
        match self.remote(process) {
            Some(chosen) => !chosen.is_empty(),
            None => self.local.is_chosen(process, folder),
        }
    }

    /// The helper's answer; `None` without a helper, or if it does not answer now: then this process finds what it can.
    fn remote(&mut self, process: u32) -> Option<Vec<u32>> {
        ask(self.remote.as_ref()?, process).ok()
    }
}

/// All processes; or, for one process, itself if it is chosen and nothing otherwise.
fn ask(helper: &HelperChannel, process: u32) -> io::Result<Vec<u32>> {
    let (mut found, _): (Vec<u32>, _) = helper.ask(&process)?;
    found.truncate(MAX_ANSWER);
    Ok(found)
}

/// In the helper: answers each question.
fn serve(search: &Local, folder: Option<&Folder>, socket: UnixStream) -> io::Result<()> {
    helper_channel::serve(socket, |process: u32| {
        let mut found = match process {
            ALL => search.all(),
            process if folder.is_none_or(|folder| search.is_chosen(process, folder)) => vec![process],
            _ => Vec::new(),
        };
        found.truncate(MAX_ANSWER);
        helper_channel::answer(Ok(found))
    })
}

/// Looks through `/proc`, with the capabilities that this process has.
struct Local {
    host: Host,
    /// Only processes that use the wanted folder.
    by_folder: bool,
    /// Whether the folder is recognised by its path alone.
    by_path: bool,
}

impl Local {
    /// Every running mongod; where there are more than can be traced, those that get a place first.
    fn all(&self) -> Vec<u32> {
        servers::in_order_of_places(servers::mongods(&self.host), MAX_PROCESSES)
    }

    /// The processes that use the folder, if any; else all. Later ones are chosen by the same rule.
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

    /// Whether the folder is the dbpath of the process, or it has files open in it.
    fn uses(&self, process: u32, folder: &Folder, by_path: bool) -> bool {
        let holds = |path: &Path| match by_path {
            true => folder.holds_by_path(path),
            false => folder.holds_itself(process, path),
        };
        let Some(mongod) = servers::mongod(&self.host, process) else { return false };
        if mongod.option(&["--dbpath"]).is_some_and(|path| {
            let at = fs::read_link(mongod.folder().join("cwd")).unwrap_or_default();
            holds(&at.join(path))
        }) {
            return true;
        }
        // Pipes and sockets have no path.
        let files = mongod.open_files().take(MOST_OPEN).filter(|(_, path)| path.is_absolute());
        let mut bytes = 0;
        let has_room = |path: &PathBuf| {
            bytes += path.as_os_str().len();
            bytes <= MAX_FOLDER_BYTES
        };
        let folders = files.filter_map(|(_, path)| Some(path.parent()?.to_path_buf()));
        let folders: HashSet<PathBuf> = folders.take_while(has_room).collect();
        folders.iter().any(|path| holds(path))
    }
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

        pub fn host(&self) -> Host {
            Host::of_proc(&self.0)
        }

        pub fn process(&self, id: u32, name: &str, program: &str) {
            let own = self.0.join(id.to_string());
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("comm"), format!("{name}\n")).unwrap();
            self.state(id, "S");
            let _ = fs::remove_file(own.join("exe"));
            std::os::unix::fs::symlink(program, own.join("exe")).unwrap();
        }

        pub fn state(&self, id: u32, state: &str) {
            let rest = "1 77 77 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 0 0 0";
            fs::write(self.0.join(format!("{id}/stat")), format!("{id} (x) {state} {rest}")).unwrap();
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
    fn a_mongod_is_among_those_that_are_traced_however_many_others_call_themselves_so() {
        let proc = Proc::new("places");
        let last = MAX_PROCESSES as u32 + 1;
        (1..last).for_each(|process| proc.process(process, "mongod", "/usr/bin/python3"));
        proc.process(last, "mongod", "/usr/bin/mongod");
        let found = ServerSearch::new(proc.host()).all();
        assert_eq!(found.len(), MAX_PROCESSES + 1);
        assert!(found[..MAX_PROCESSES].contains(&last));
    }

    #[test]
    fn every_mongod_that_runs_is_listed() {
        let proc = Proc::new("listed");
        proc.process(100, "mongod", "/usr/bin/mongod");
        proc.process(101, "bash", "/bin/bash");
        proc.process(102, "worker", "/opt/bin/mongod (deleted)");
        proc.process(103, "mongodump", "/usr/bin/mongodump");
        proc.process(104, "mongod", "/usr/bin/mongod");
        let mut search = ServerSearch::new(proc.host());
        assert_eq!(search.all(), [100, 102, 104]);
        // It has ended, and is not collected yet.
        proc.state(104, "Z");
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
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = HelperChannel::patient(ours);
        let host = proc.host();
        let worker = std::thread::spawn(move || {
            let folder = Folder::new(&db, &[]).unwrap();
            let search = Local { host, by_folder: true, by_path: true };
            serve(&search, Some(&folder), theirs)
        });
        assert_eq!(ask(&ours, ALL).unwrap(), [7, 8]);
        assert_eq!(ask(&ours, 7).unwrap(), [7]);
        assert!(ask(&ours, 8).unwrap().is_empty());
        proc.ends(7);
        assert_eq!(ask(&ours, ALL).unwrap(), [8]);
        drop(ours);
        assert_eq!(worker.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
