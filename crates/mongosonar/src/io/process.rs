//! Whose accesses are traced: the processes that were named, or each mongod of this machine, also one that
//! starts later.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use sonar_sys::capabilities::grant_line;
use sonar_sys::io::{TraceError, Tracer};

use super::paths::Folder;

/// Name of the processes that are looked for.
const SERVER: &str = "mongod";
/// How often is looked for processes that have ended, and for new ones.
const EVERY: Duration = Duration::from_secs(1);
/// Where so many processes and threads or fewer were made since the last look, each is looked at; where it
/// were more, all processes are listed.
const MAX_EACH: u32 = 512;
/// In a second, of what `/proc` counts in: 100 on every architecture that this runs on (`USER_HZ`).
const TICKS: u64 = 100;
/// Open files of a mongod that are looked at to tell which folder is its own; its locks are among the first.
const MOST_OPEN: usize = 1_024;
/// Processes that are told of by number.
const MAX_LISTED: usize = 256;

/// Why nothing can be traced, with the command that helps: what the programs need, and what the paths of
/// another user's files do.
pub fn refused(error: TraceError) -> anyhow::Error {
    match error {
        TraceError::Permission(why) => anyhow!("no permission to trace ({why}): {}", remedy()),
        other => other.into(),
    }
}

fn remedy() -> String {
    format!("run as root, or grant it once: {}", grant_line())
}

/// The processes that are traced.
pub struct Watch {
    running: Vec<Process>,
    /// Also those that have ended.
    every: Vec<u32>,
    search: Option<Search>,
    /// Those that the kernel's table has no room for.
    refused: Vec<u32>,
    folder: Option<Folder>,
    next: Instant,
}

/// A process, which is told apart from a later one of its number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Process {
    id: u32,
    started: u64,
}

/// What of `/proc/PID/stat` tells whether it runs.
struct Stat {
    state: u8,
    threads: u64,
    started: u64,
}

impl Watch {
    /// The processes that were named; or each mongod of this machine: those whose folder this is, where one is
    /// given and any of them has it.
    pub fn new(named: &[u32], dbpath: Option<&Path>) -> Result<Self> {
        if let Some(none) = named.iter().find(|process| stat(Path::new("/proc"), **process).is_none()) {
            bail!("there is no process {none}");
        }
        let mut search = named.is_empty().then(|| Search::new("/proc"));
        let found = match &mut search {
            Some(search) => search.look(),
            None => named.to_vec(),
        };
        if found.is_empty() {
            bail!("no mongod runs here: name a process with --pid");
        }
        let folder = dbpath.map(|path| Folder::new(path, &found)).transpose()?;
        let chosen = match (&mut search, &folder) {
            (Some(search), Some(folder)) => search.choose(&found, folder),
            _ => found,
        };
        let mut watch = Self {
            running: Vec::new(),
            every: Vec::new(),
            search,
            refused: Vec::new(),
            folder,
            next: Instant::now() + EVERY,
        };
        chosen.into_iter().for_each(|process| watch.add(process));
        Ok(watch)
    }

    /// The folder whose files are asked for.
    pub fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref()
    }

    /// Ids of those that run.
    pub fn running(&self) -> Vec<u32> {
        self.running.iter().map(|process| process.id).collect()
    }

    /// Ids of all that were traced, in the order in which they were found, for people: `712, 4711`.
    pub fn list(&self) -> String {
        list(&self.every)
    }

    /// Ids of those that run, for people.
    pub fn list_running(&self) -> String {
        list(&self.running())
    }

    /// What stands in the way of seeing which files they use, in a line, where something does.
    pub fn obstacle(&self) -> Option<String> {
        let hidden = |id: &u32| {
            let open = fs::read_dir(format!("/proc/{id}/fd"));
            open.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        };
        let hidden: Vec<u32> = self.running().into_iter().filter(hidden).collect();
        if hidden.is_empty() {
            return None;
        }
        let without = if self.folder.is_some() { "are left out" } else { "have a name but no folder" };
        Some(format!(
            "what process {} has open may not be looked at, so that files {without}: {}",
            list(&hidden),
            remedy()
        ))
    }

    /// Whether all have ended, and no others are looked for.
    pub fn is_over(&self) -> bool {
        let is_gone = |process: &Process| !Path::new(&format!("/proc/{}", process.id)).exists();
        self.search.is_none() && self.running.iter().all(is_gone)
    }

    /// Looks, once a second, which have ended, and follows what has started; gives what there is to say
    /// about it, a line each.
    pub fn look(&mut self, tracer: &Tracer) -> Vec<String> {
        // Where the kernel's table keeps one that has ended, it only has a place less.
        let leave = |process| drop(tracer.leave(process));
        self.look_at(Instant::now(), |process| tracer.follow(process), leave)
    }

    fn look_at(
        &mut self,
        now: Instant,
        follow: impl Fn(u32) -> Result<(), TraceError>,
        leave: impl Fn(u32),
    ) -> Vec<String> {
        if now < self.next {
            return Vec::new();
        }
        self.next = now + EVERY;
        let mut said = Vec::new();
        let ended: Vec<u32> = self.running.extract_if(.., |process| !process.runs()).map(|p| p.id).collect();
        ended.iter().copied().for_each(leave);
        let Some(search) = &mut self.search else { return said };
        let found = search.look();
        self.refused.retain(|process| found.contains(process));
        let known = |process: &u32| {
            self.refused.contains(process) || self.running.iter().any(|running| running.id == *process)
        };
        let new: Vec<u32> = found.into_iter().filter(|process| !known(process)).collect();
        let new: Vec<u32> = match &self.folder {
            Some(folder) => new.into_iter().filter(|new| search.is_chosen(*new, folder)).collect(),
            None => new,
        };
        let waits = self.running.is_empty() && new.is_empty();
        for process in ended {
            let more = if waits { "; waiting for the next mongod" } else { "" };
            said.push(format!("process {process} has ended{more}"));
        }
        for process in new {
            match follow(process) {
                Ok(()) => {
                    self.add(process);
                    said.push(format!("process {process} is a mongod that has started: it is followed"));
                }
                Err(error) => {
                    self.refused.push(process);
                    said.push(format!("process {process} cannot be followed: {error}"));
                }
            }
        }
        said
    }

    fn add(&mut self, id: u32) {
        // One that has ended by now is seen to have at the next look.
        let started = stat(Path::new("/proc"), id).map_or(0, |stat| stat.started);
        self.running.push(Process { id, started });
        self.every.push(id);
    }
}

fn list(processes: &[u32]) -> String {
    let numbers: Vec<_> = processes.iter().take(MAX_LISTED).map(u32::to_string).collect();
    let more = processes.len() - numbers.len();
    if more > 0 { format!("{} and {more} more", numbers.join(", ")) } else { numbers.join(", ") }
}

impl Process {
    /// Whether it is there and runs: what only waits to be collected by its parent does not.
    fn runs(self) -> bool {
        stat(Path::new("/proc"), self.id).is_some_and(|stat| {
            // Of a process whose first thread has ended the others may run on.
            stat.started == self.started && (!matches!(stat.state, b'Z' | b'X') || stat.threads > 1)
        })
    }
}

fn stat(proc_root: &Path, process: u32) -> Option<Stat> {
    let text = fs::read(proc_root.join(process.to_string()).join("stat")).ok()?;
    // The name, in brackets, may hold anything.
    let after = text.iter().rposition(|byte| *byte == b')')? + 1;
    let fields: Vec<&str> = std::str::from_utf8(text.get(after..)?).ok()?.split_ascii_whitespace().collect();
    // Fields 3, 20 and 22 of proc_pid_stat(5).
    let number = |at: usize| fields.get(at - 3)?.parse().ok();
    Some(Stat { state: *fields.first()?.as_bytes().first()?, threads: number(20)?, started: number(22)? })
}

/// Looks for processes called mongod.
///
/// A look costs next to nothing: the kernel tells the last number that it gave (`/proc/loadavg`), and only
/// what came since is looked at. A process may become a mongod later (a shell that ends in `exec mongod`),
/// so each is looked at again when it is twice as old.
struct Search {
    proc_root: PathBuf,
    last: Option<u32>,
    /// Seconds that the machine had been up at the first look.
    up: Option<u64>,
    looks: u64,
    others: HashMap<u32, Other>,
    servers: Vec<u32>,
    /// Of those the ones that do not use the folder so far.
    elsewhere: HashMap<u32, Other>,
    /// Only those that use the folder that was asked for.
    by_folder: bool,
    /// Whether the folder is recognised by its path alone.
    by_path: bool,
}

/// What is not what is looked for, so far.
#[derive(Copy, Clone)]
struct Other {
    /// At which look it was first seen, and how many looks it was old.
    first: u64,
    age: u64,
    /// When it is looked at again.
    next: u64,
}

impl Other {
    fn new(look: u64, age: u64) -> Self {
        Self { first: look, age, next: look }
    }

    /// Whether it is to be looked at; then again when it is twice as old. Those that were there when the search
    /// began are not all looked at again at once.
    fn is_due(&mut self, look: u64, process: u32) -> bool {
        let due = self.next <= look;
        if due {
            let age = self.age + look - self.first;
            let spread = look == self.first && age > 1;
            self.next = look + if spread { 1 + u64::from(process) % age } else { age.max(1) };
        }
        due
    }
}

impl Search {
    fn new(proc_root: impl Into<PathBuf>) -> Self {
        Self {
            proc_root: proc_root.into(),
            last: None,
            up: None,
            looks: 0,
            others: HashMap::new(),
            servers: Vec::new(),
            elsewhere: HashMap::new(),
            by_folder: false,
            by_path: false,
        }
    }

    /// Every mongod that is there now, the lowest number first.
    fn look(&mut self) -> Vec<u32> {
        let last = self.last_number();
        let before = self.last;
        self.looks += 1;
        let new = |process: u32| match (before, last) {
            // Numbers begin anew after the highest.
            (Some(before), Some(last)) if before <= last => process > before && process <= last,
            (Some(before), Some(last)) => process > before || process <= last,
            _ => true,
        };
        let (from, to) = (before.unwrap_or(0), last.unwrap_or(0));
        if before.is_some() && from <= to && to - from <= MAX_EACH {
            (from + 1..=to).for_each(|process| self.look_at(process, true));
        } else {
            let listed: Vec<u32> = fs::read_dir(&self.proc_root)
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .collect();
            for process in listed {
                let is_new = new(process) || !self.others.contains_key(&process);
                self.look_at(process, is_new);
            }
        }
        let due: Vec<u32> =
            self.others.iter().filter(|(_, other)| other.next <= self.looks).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|process| self.look_at(process, false));
        self.last = last;
        let root = &self.proc_root;
        self.servers.retain(|process| is_server(root, *process) == Some(true));
        self.servers.sort_unstable();
        self.elsewhere.retain(|process, _| self.servers.contains(process));
        self.servers.clone()
    }

    fn look_at(&mut self, process: u32, new: bool) {
        let look = self.looks;
        if new {
            let age = if self.last.is_none() { self.age(process) } else { 0 };
            self.others.insert(process, Other::new(look, age));
        }
        if !self.others.get_mut(&process).is_some_and(|other| other.is_due(look, process)) {
            return;
        }
        match is_server(&self.proc_root, process) {
            Some(false) => {}
            found => {
                self.others.remove(&process);
                if found == Some(true) && !self.servers.contains(&process) {
                    self.servers.push(process);
                }
            }
        }
    }

    /// How many looks ago a process would have been seen first.
    fn age(&mut self, process: u32) -> u64 {
        let up = *self.up.get_or_insert_with(|| {
            let up = fs::read_to_string(self.proc_root.join("uptime")).unwrap_or_default();
            up.split('.').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
        });
        let started = stat(&self.proc_root, process).map_or(up, |stat| stat.started / TICKS);
        up.saturating_sub(started) / EVERY.as_secs()
    }

    /// The last number that was given to a process or thread.
    fn last_number(&self) -> Option<u32> {
        let text = fs::read_to_string(self.proc_root.join("loadavg")).ok()?;
        text.split_ascii_whitespace().nth(4)?.parse().ok()
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

    fn is_chosen(&mut self, process: u32, folder: &Folder) -> bool {
        let look = self.looks;
        let mut due = || self.elsewhere.entry(process).or_insert(Other::new(look, 0)).is_due(look, process);
        !self.by_folder || due() && self.uses(process, folder, self.by_path)
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

/// Whether a process is called mongod, or its program is; `None` where it is gone, or a thread of another
/// one.
fn is_server(proc_root: &Path, process: u32) -> Option<bool> {
    let own = proc_root.join(process.to_string());
    let name = fs::read(own.join("comm")).ok()?;
    let named = name.trim_ascii_end() == SERVER.as_bytes();
    let is = named || {
        let program = fs::read_link(own.join("exe")).unwrap_or_default();
        let last = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // It may have been replaced by a newer one.
        last.strip_suffix(" (deleted)").unwrap_or(last) == SERVER
    };
    if !is {
        return Some(false);
    }
    // A thread is found by its number too, though it is not listed; and what has ended until it is collected.
    let status = fs::read_to_string(own.join("status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let ended = field("State:")?.starts_with(['Z', 'X']);
    (!ended && field("Tgid:")?.parse() == Ok(process)).then_some(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A `/proc` of our own.
    struct Proc(PathBuf);

    impl Proc {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("mongosonar-proc-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        /// The kernel gave numbers up to this one.
        fn last(&self, last: u32) {
            fs::write(self.0.join("loadavg"), format!("0.10 0.20 0.30 1/500 {last}\n")).unwrap();
        }

        fn process(&self, id: u32, group: u32, name: &str, program: &str) {
            let own = self.0.join(id.to_string());
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("comm"), format!("{name}\n")).unwrap();
            self.state(id, group, "S (sleeping)");
            let _ = fs::remove_file(own.join("exe"));
            std::os::unix::fs::symlink(program, own.join("exe")).unwrap();
        }

        fn state(&self, id: u32, group: u32, state: &str) {
            let status = format!("Name:\tx\nState:\t{state}\nTgid:\t{group}\nPid:\t{id}\n");
            fs::write(self.0.join(format!("{id}/status")), status).unwrap();
        }

        fn ends(&self, id: u32) {
            fs::remove_dir_all(self.0.join(id.to_string())).unwrap();
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_has_started_since_is_found_by_its_number() {
        let proc = Proc::new("started");
        proc.process(100, 100, "mongod", "/usr/bin/mongod");
        proc.process(101, 101, "bash", "/bin/bash");
        proc.process(102, 102, "worker", "/opt/bin/mongod (deleted)");
        proc.process(103, 103, "mongodump", "/usr/bin/mongodump");
        proc.last(103);
        let mut search = Search::new(&proc.0);
        assert_eq!(search.look(), [100, 102]);
        assert_eq!(search.look(), [100, 102], "nothing has changed");
        // One of its threads has its name, and a number.
        proc.process(104, 100, "mongod", "/usr/bin/mongod");
        proc.process(105, 105, "mongod", "/usr/bin/mongod");
        proc.last(105);
        assert_eq!(search.look(), [100, 102, 105]);
        proc.ends(100);
        assert_eq!(search.look(), [102, 105]);
        // It has ended, and is not collected yet: no new one.
        proc.process(106, 106, "mongod", "/usr/bin/mongod");
        proc.last(106);
        assert_eq!(search.look(), [102, 105, 106]);
        proc.state(106, 106, "Z (zombie)");
        assert_eq!(search.look(), [102, 105]);
        // More than can be tried one by one.
        proc.process(5_000, 5_000, "mongod", "/usr/bin/mongod");
        proc.last(5_001);
        assert_eq!(search.look(), [102, 105, 5_000]);
        // Numbers begin anew.
        proc.process(50, 50, "mongod", "/usr/bin/mongod");
        proc.last(60);
        assert_eq!(search.look(), [50, 102, 105, 5_000]);
    }

    #[test]
    fn a_number_that_is_given_again_is_looked_at_again() {
        let proc = Proc::new("again");
        proc.process(100, 100, "bash", "/bin/bash");
        proc.last(100);
        let mut search = Search::new(&proc.0);
        (0..40).for_each(|_| assert!(search.look().is_empty()));
        proc.process(100, 100, "mongod", "/usr/bin/mongod");
        proc.last(4_000_000);
        assert!(search.look().is_empty(), "an old process is seldom looked at");
        proc.last(120);
        assert_eq!(search.look(), [100], "a new one of its number at once");
    }

    #[test]
    fn a_process_that_becomes_a_mongod_is_found_before_it_is_twice_as_old() {
        for age in [1, 2, 7, 30, 100] {
            let proc = Proc::new(&format!("becomes-{age}"));
            proc.last(7);
            let mut search = Search::new(&proc.0);
            assert!(search.look().is_empty());
            proc.process(8, 8, "docker-entrypoi", "/bin/bash");
            proc.last(8);
            (0..age).for_each(|_| assert!(search.look().is_empty()));
            proc.process(8, 8, "mongod", "/usr/bin/mongod");
            let found = (1..).find(|_| search.look() == [8]).unwrap();
            assert!(found <= age + 1, "{age}: after {found}");
        }
    }

    #[test]
    fn what_is_old_already_is_seldom_looked_at_and_not_all_at_once() {
        let proc = Proc::new("old");
        fs::write(proc.0.join("uptime"), "1000.55 2000.00\n").unwrap();
        for id in 1..=100 {
            proc.process(id, id, "bash", "/bin/bash");
            // Started 900 s after the machine.
            let zeros = "0 ".repeat(16);
            fs::write(proc.0.join(format!("{id}/stat")), format!("{id} (a) b) S {zeros}1 0 90000 0\n"))
                .unwrap();
        }
        proc.last(100);
        let mut search = Search::new(&proc.0);
        assert!(search.look().is_empty());
        (1..=100).for_each(|id| proc.process(id, id, "mongod", "/usr/bin/mongod"));
        let mut before = 0;
        for _ in 0..100 {
            let found = search.look().len();
            assert!(found - before <= 2, "{before} {found}");
            before = found;
        }
        assert_eq!(before, 100, "before they were twice as old");
    }

    #[test]
    fn a_machine_that_does_not_tell_its_last_number_is_listed() {
        let proc = Proc::new("listed");
        let mut search = Search::new(&proc.0);
        assert!(search.look().is_empty());
        proc.process(17, 17, "mongod", "/usr/bin/mongod");
        assert_eq!(search.look(), [17]);
        proc.process(18, 18, "mongod", "/usr/bin/mongod");
        assert_eq!(search.look(), [17, 18]);
    }

    #[test]
    fn what_starts_and_ends_is_said_once() {
        let proc = Proc::new("said");
        proc.last(1);
        let mut watch = Watch {
            running: Vec::new(),
            every: Vec::new(),
            search: Some(Search::new(&proc.0)),
            refused: Vec::new(),
            folder: None,
            next: Instant::now(),
        };
        let left = std::cell::RefCell::new(Vec::new());
        let mut seconds = 0;
        let mut look = |watch: &mut Watch, room: bool| {
            seconds += 1;
            let now = Instant::now() + EVERY * seconds;
            let follow = |_| if room { Ok(()) } else { Err(TraceError::Load("no room".into())) };
            watch.look_at(now, follow, |process| left.borrow_mut().push(process))
        };
        assert!(look(&mut watch, true).is_empty() && !watch.is_over());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = child.id();
        proc.process(id, id, "mongod", "/usr/bin/mongod");
        proc.last(id);
        assert_eq!(
            look(&mut watch, true),
            [format!("process {id} is a mongod that has started: it is followed")]
        );
        proc.process(id + 1, id + 1, "mongod", "/usr/bin/mongod");
        proc.last(id + 1);
        let refused = look(&mut watch, false);
        assert!(refused.len() == 1 && refused[0].contains("cannot be followed"), "{refused:?}");
        assert!(look(&mut watch, true).is_empty(), "it is not tried again");
        assert_eq!((watch.list(), watch.running()), (id.to_string(), vec![id]));
        child.kill().unwrap();
        child.wait().unwrap();
        proc.ends(id);
        proc.ends(id + 1);
        assert_eq!(look(&mut watch, true), [format!("process {id} has ended; waiting for the next mongod")]);
        assert!(look(&mut watch, true).is_empty());
        assert_eq!((watch.list(), watch.list_running()), (id.to_string(), String::new()));
        assert_eq!(*left.borrow(), [id], "the kernel's side has its place back");
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

    #[test]
    fn what_only_waits_to_be_collected_does_not_run() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let started = stat(Path::new("/proc"), child.id()).unwrap().started;
        let process = Process { id: child.id(), started };
        assert!(process.runs());
        assert!(!Process { started: started + 1, ..process }.runs(), "a later one of this number");
        drop(child.stdin.take());
        while process.runs() {
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "it has not been collected");
        child.wait().unwrap();
        assert!(!process.runs());
    }
}
