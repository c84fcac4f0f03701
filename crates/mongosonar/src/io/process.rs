//! Decides whose accesses are traced: the named processes, or each mongod of this machine, also one that starts later.
//!
//! The kernel reports processes that start and exit, and follows a new mongod before it makes its first access.
//! `/proc` is listed once when tracing begins, and again only where such a report was lost.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sonar_sys::Host;
use sonar_sys::ebpf::{MAX_PROCESSES, ProcessChange, TraceError, Tracer};

use super::paths::Folder;
use super::search::ServerSearch;
use crate::args::connection::{AddressArgs, ServerArgs};
use crate::servers::MONGOD;
use crate::servers::tracing::remedy;

/// How often to check mongods that do not use the folder yet.
const EVERY: Duration = Duration::from_secs(1);
/// How long a new mongod is followed before it has to use the folder: it may take its dbpath from a configuration file.
const TRIAL: Duration = Duration::from_secs(10);
/// The most processes to list by number.
const MAX_LISTED: usize = 256;

/// The processes that options name: by their numbers, or the mongod of this host at the port alone of the server that is
/// asked for names. None if they name none, or a mongos or a server of another host.
///
/// # Errors
/// Nothing listens on the port, or several servers do.
pub fn named(pids: &[u32], server: &ServerArgs) -> Result<Vec<u32>> {
    let (AddressArgs { uri: None, host: None }, Some(port)) = (&server.address, server.port) else {
        return Ok(pids.to_vec());
    };
    if !pids.is_empty() {
        return Ok(pids.to_vec());
    }
    let found = crate::servers::listeners(&Host::live())?;
    let process = crate::servers::at_port::process_at_port(&found, port)?;
    let is_mongod = found.listeners.iter().any(|one| one.pid == process && one.name == MONGOD);
    Ok(is_mongod.then_some(process).into_iter().collect())
}

/// The processes that are traced.
pub struct TracedProcesses {
    running: Vec<ProcessKey>,
    /// Also those that have ended.
    every: Vec<u32>,
    search: Option<ServerSearch>,
    /// Mongods that were not seen to use the folder so far.
    candidates: Vec<Candidate>,
    /// Those that the kernel's table has no room for.
    refused: Vec<u32>,
    /// One was refused, or has ended, since places were last given to those that were refused.
    is_crowded: bool,
    folder: Option<Folder>,
    next: Instant,
    /// Records that the kernel could not hand on, when `/proc` was listed last; `None` before that.
    lost: Option<u64>,
}

/// A mongod that was not seen to use the folder so far.
#[derive(Copy, Clone, Debug)]
struct Candidate {
    id: u32,
    since: Instant,
    /// When to check it again.
    next: Instant,
    followed: bool,
}

/// The kernel's table of processes.
trait ProcessTable {
    fn follow(&mut self, process: u32) -> Result<(), TraceError>;
    fn leave(&mut self, process: u32);
    /// Records that were lost.
    fn lost(&self) -> u64;
}

impl ProcessTable for &Tracer {
    fn follow(&mut self, process: u32) -> Result<(), TraceError> {
        Tracer::follow(self, process)
    }

    fn leave(&mut self, process: u32) {
        // If this fails the table has one place less.
        drop(Tracer::leave(self, process));
    }

    fn lost(&self) -> u64 {
        self.losses().ring_full
    }
}

/// A process, distinguished from a later one of its number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct ProcessKey {
    id: u32,
    started: u64,
}

impl TracedProcesses {
    /// The processes that were named; or each mongod of this machine: those whose folder this is, where one is
    /// given and any of them has it.
    pub fn new(named: &[u32], dbpath: Option<&Path>) -> Result<Self> {
        if let Some(none) = named.iter().find(|process| Host::live().stat(**process).is_none()) {
            bail!("there is no process {none}");
        }
        let mut search = named.is_empty().then(|| ServerSearch::new(Host::live()));
        let found = search.as_mut().map_or_else(|| named.to_vec(), ServerSearch::all);
        if found.is_empty() {
            bail!("no mongod runs here: name a process with --pid");
        }
        let folder = dbpath.map(|path| Folder::new(path, &found)).transpose()?;
        let chosen = match (&mut search, &folder) {
            (Some(search), Some(folder)) => search.choose(&found, folder),
            _ => found.clone(),
        };
        let mut watch = Self::of(search, folder);
        for process in found {
            if chosen.contains(&process) {
                watch.add(process);
            } else {
                watch.candidate(process, Instant::now(), false);
            }
        }
        Ok(watch)
    }

    /// Each mongod of this machine, and those that start later; there may be none now.
    pub fn all() -> Self {
        let mut search = ServerSearch::new(Host::live());
        let found = search.all();
        let mut watch = Self::of(Some(search), None);
        found.into_iter().for_each(|process| watch.add(process));
        watch
    }

    fn of(search: Option<ServerSearch>, folder: Option<Folder>) -> Self {
        Self {
            running: Vec::new(),
            every: Vec::new(),
            search,
            candidates: Vec::new(),
            refused: Vec::new(),
            is_crowded: false,
            folder,
            next: Instant::now(),
            lost: None,
        }
    }

    /// Moves the search into a helper, as this process gives up its privileges. Call it before any thread is started.
    pub fn search_in_helper(&mut self) {
        if let Some(search) = &mut self.search {
            search.move_to_helper(self.folder.as_ref());
        }
    }

    /// The program whose processes are followed as soon as they start; `None` if only named processes are.
    pub fn program(&self) -> Option<&'static str> {
        self.search.as_ref().map(|_| MONGOD)
    }

    /// The folder whose files are wanted.
    pub fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref()
    }

    /// Ids of the running processes.
    pub fn running(&self) -> Vec<u32> {
        self.running.iter().map(|process| process.id).collect()
    }

    /// Ids of all traced processes, in the order of discovery, as text: `712, 4711`.
    pub fn list(&self) -> String {
        list(&self.every)
    }

    /// Ids of the running processes, as text.
    pub fn list_running(&self) -> String {
        list(&self.running())
    }

    /// Why it cannot be seen which files they use, in a line; `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        let hidden = |id: &u32| {
            let open = fs::read_dir(Host::live().path(&format!("proc/{id}/fd")));
            open.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        };
        let hidden: Vec<u32> = self.running().into_iter().filter(hidden).collect();
        if hidden.is_empty() {
            return None;
        }
        let without = if self.folder.is_some() { "are left out" } else { "have a name but no folder" };
        Some(format!(
            "the open files of process {} are not readable, so files {without}: {}",
            list(&hidden),
            remedy()
        ))
    }

    /// Whether all have ended and no others are expected.
    pub fn is_over(&self) -> bool {
        self.search.is_none() && self.running.is_empty()
    }

    /// Notes those that there was no room for when tracing began; returns messages, a line each.
    pub fn note_refused(&mut self, refused: &[u32]) -> Vec<String> {
        self.running.retain(|process| !refused.contains(&process.id));
        self.every.retain(|process| !refused.contains(process));
        refused.iter().flat_map(|process| self.event(*process, ProcessChange::Refused)).collect()
    }

    /// How many processes of the search are not traced, because there is no room for them.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Handles a report of the kernel about a process; returns messages, a line each.
    pub fn event(&mut self, process: u32, change: ProcessChange) -> Vec<String> {
        match change {
            ProcessChange::Started => self.started(process, Instant::now()),
            ProcessChange::Ended => self.ended(process),
            ProcessChange::Refused => self.refuse(process, "too many processes are followed"),
        }
    }

    /// Checks once a second what the kernel does not report: whether a mongod uses the wanted folder. Returns messages,
    /// a line each.
    pub fn look(&mut self, tracer: &Tracer) -> Vec<String> {
        self.look_at(Instant::now(), &mut { tracer })
    }

    fn look_at(&mut self, now: Instant, table: &mut impl ProcessTable) -> Vec<String> {
        if now < self.next {
            return Vec::new();
        }
        self.next = now + EVERY;
        let lost = Some(table.lost());
        let mut lines = Vec::new();
        if self.lost != lost {
            self.lost = lost;
            lines = self.list_again(now, table);
        }
        lines.extend(self.check(now, table));
        lines.extend(self.give_places(now, table));
        lines
    }

    /// Follows those that were refused and get a place: servers whose program file says so come first, and each user has as
    /// many as any other. Others give way.
    fn give_places(&mut self, now: Instant, table: &mut impl ProcessTable) -> Vec<String> {
        let Some(search) = &mut self.search else { return Vec::new() };
        if !std::mem::take(&mut self.is_crowded) || self.refused.is_empty() {
            return Vec::new();
        }
        let mut placed = search.all();
        self.refused.retain(|process| placed.contains(process));
        placed.truncate(MAX_PROCESSES);
        let has_place = |process: &u32| placed.contains(process);
        let followed = self.candidates.iter().filter(|one| one.followed).map(|one| one.id);
        let followed = followed.chain(self.running.iter().map(|one| one.id));
        let mut giving_way: Vec<u32> = followed.filter(|process| !has_place(process)).collect();
        let mut lines = Vec::new();
        for process in self.refused.iter().copied().filter(has_place).collect::<Vec<_>>() {
            if table.follow(process).is_err() {
                let Some(gone) = giving_way.pop() else { break };
                table.leave(gone);
                lines.push(format!(
                    "process {gone} is not followed any more: process {process} has its place"
                ));
                self.give_way(gone);
                if table.follow(process).is_err() {
                    // The kernel has given it to another one meanwhile.
                    self.is_crowded = true;
                    continue;
                }
            }
            self.refused.retain(|other| *other != process);
            if !self.started(process, now).is_empty() {
                lines.push(format!("process {process} is followed now"));
            }
        }
        lines
    }

    /// Notes that a process has lost its place.
    fn give_way(&mut self, process: u32) {
        match self.candidates.iter_mut().find(|candidate| candidate.id == process) {
            Some(candidate) => candidate.followed = false,
            None => {
                self.running.retain(|running| running.id != process);
                self.refused.push(process);
            }
        }
    }

    /// Compares the known processes with `/proc`.
    fn list_again(&mut self, now: Instant, table: &mut impl ProcessTable) -> Vec<String> {
        let gone: Vec<u32> = self.running.iter().filter(|process| !process.runs()).map(|p| p.id).collect();
        let mut lines: Vec<String> = gone.into_iter().flat_map(|process| self.ended(process)).collect();
        let found = self.search.as_mut().map(ServerSearch::all).unwrap_or_default();
        self.refused.retain(|process| found.contains(process));
        if self.search.is_some() {
            self.candidates.retain(|candidate| found.contains(&candidate.id));
        }
        for process in found.into_iter().filter(|process| !self.is_known(*process)).collect::<Vec<_>>() {
            lines.extend(match table.follow(process) {
                Ok(()) => self.started(process, now),
                Err(error) => self.refuse(process, &error.to_string()),
            });
        }
        lines
    }

    fn is_known(&self, process: u32) -> bool {
        self.refused.contains(&process)
            || self.running.iter().any(|running| running.id == process)
            || self.candidates.iter().any(|candidate| candidate.id == process)
    }

    /// Checks the candidates whose time has come.
    fn check(&mut self, now: Instant, table: &mut impl ProcessTable) -> Vec<String> {
        let mut lines = Vec::new();
        let due: Vec<Candidate> = self.candidates.extract_if(.., |candidate| candidate.next <= now).collect();
        for mut candidate in due {
            let id = candidate.id;
            if self.uses_folder(id) {
                let followed = if candidate.followed { Ok(()) } else { table.follow(id) };
                lines.extend(match followed {
                    Ok(()) => self.follow(id),
                    Err(error) => self.refuse(id, &error.to_string()),
                });
                continue;
            }
            let age = now - candidate.since;
            if candidate.followed && age >= TRIAL {
                table.leave(id);
                candidate.followed = false;
            }
            // The older it is, the less likely it is to use the folder.
            candidate.next = now + if candidate.followed { EVERY } else { age.max(EVERY) };
            self.candidates.push(candidate);
        }
        lines
    }

    fn uses_folder(&mut self, process: u32) -> bool {
        let Some((search, folder)) = self.search.as_mut().zip(self.folder.as_ref()) else { return true };
        search.is_chosen(process, folder)
    }

    fn started(&mut self, process: u32, now: Instant) -> Vec<String> {
        // A candidate may have run another program since, with a command line that names the folder.
        let was_followed = |candidate: &Candidate| candidate.id == process && candidate.followed;
        if let Some(at) = self.candidates.iter().position(was_followed) {
            if self.uses_folder(process) {
                self.candidates.swap_remove(at);
                return self.follow(process);
            }
            return Vec::new();
        }
        if self.is_known(process) {
            return Vec::new();
        }
        if self.uses_folder(process) {
            return self.follow(process);
        }
        self.candidate(process, now, true);
        Vec::new()
    }

    fn candidate(&mut self, id: u32, now: Instant, followed: bool) {
        self.candidates.push(Candidate { id, since: now, next: now + EVERY, followed });
    }

    fn follow(&mut self, process: u32) -> Vec<String> {
        self.add(process);
        vec![format!("process {process} is a mongod that has started: it is followed")]
    }

    fn refuse(&mut self, process: u32, why: &str) -> Vec<String> {
        if self.is_known(process) {
            return Vec::new();
        }
        self.refused.push(process);
        self.is_crowded = true;
        vec![format!("process {process} cannot be followed: {why}")]
    }

    fn ended(&mut self, process: u32) -> Vec<String> {
        self.candidates.retain(|candidate| candidate.id != process);
        self.refused.retain(|refused| *refused != process);
        self.is_crowded = true;
        let before = self.running.len();
        self.running.retain(|running| running.id != process);
        if self.running.len() == before || self.search.is_none() {
            return Vec::new();
        }
        let more = if self.running.is_empty() { "; waiting for the next mongod" } else { "" };
        vec![format!("process {process} has ended{more}")]
    }

    fn add(&mut self, id: u32) {
        // If it has ended by now, the next check notices.
        let started = Host::live().stat(id).map_or(0, |stat| stat.started);
        self.running.push(ProcessKey { id, started });
        // It may have got its place back.
        if !self.every.contains(&id) {
            self.every.push(id);
        }
    }
}

fn list(processes: &[u32]) -> String {
    let numbers: Vec<_> = processes.iter().take(MAX_LISTED).map(u32::to_string).collect();
    let more = processes.len() - numbers.len();
    if more > 0 { format!("{} and {more} more", numbers.join(", ")) } else { numbers.join(", ") }
}

impl ProcessKey {
    /// Whether it exists and runs; a zombie does not.
    fn runs(self) -> bool {
        Host::live().stat(self.id).is_some_and(|stat| stat.started == self.started && stat.runs())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::search::testing::Proc;
    use super::*;

    /// The kernel's table, which has this much room.
    #[derive(Default)]
    struct Room {
        free: usize,
        followed: Vec<u32>,
        left: Vec<u32>,
        lost: u64,
    }

    impl ProcessTable for Room {
        fn follow(&mut self, process: u32) -> Result<(), TraceError> {
            self.free = self.free.checked_sub(1).ok_or(TraceError::Load("no room".into()))?;
            self.followed.push(process);
            Ok(())
        }

        fn leave(&mut self, process: u32) {
            self.left.push(process);
            self.free += 1;
        }

        fn lost(&self) -> u64 {
            self.lost
        }
    }

    #[test]
    fn what_the_kernel_reports_is_shown_once() {
        let proc = Proc::new("reports");
        let mut watch = TracedProcesses::of(Some(ServerSearch::new(proc.host())), None);
        let started = [String::from("process 7 is a mongod that has started: it is followed")];
        assert_eq!(watch.event(7, ProcessChange::Started), started);
        assert!(watch.event(7, ProcessChange::Started).is_empty(), "known already");
        assert_eq!((watch.list(), watch.running()), ("7".to_string(), vec![7]));
        let refused = watch.event(9, ProcessChange::Refused);
        assert!(refused.len() == 1 && refused[0].contains("process 9 cannot be followed"), "{refused:?}");
        assert_eq!(
            watch.event(7, ProcessChange::Ended),
            ["process 7 has ended; waiting for the next mongod"]
        );
        assert!(watch.event(7, ProcessChange::Ended).is_empty());
        assert_eq!((watch.list(), watch.list_running()), ("7".to_string(), String::new()));
        assert!(!watch.is_over(), "another mongod may start");
        [11, 12].into_iter().for_each(|process| watch.add(process));
        assert_eq!(watch.note_refused(&[12]).len(), 1);
        assert_eq!((watch.running(), watch.list(), watch.refused()), (vec![11], "7, 11".to_owned(), 2));
        watch.event(11, ProcessChange::Ended);
        // Its number is given to another one.
        assert_eq!(watch.event(7, ProcessChange::Started), started);
    }

    #[test]
    fn processes_are_listed_when_tracing_begins_and_after_a_loss_and_at_no_other_time() {
        let proc = Proc::new("loss");
        let mut watch = TracedProcesses::of(Some(ServerSearch::new(proc.host())), None);
        let mut room = Room { free: 9, ..Room::default() };
        let mut seconds = 0;
        let mut look = |watch: &mut TracedProcesses, room: &mut Room| {
            seconds += 1;
            watch.look_at(Instant::now() + EVERY * seconds, room)
        };
        // Started after the first list was made, and before the kernel reported anything.
        proc.process(5, "mongod", "/usr/bin/mongod");
        assert_eq!(look(&mut watch, &mut room).len(), 1);
        proc.process(6, "mongod", "/usr/bin/mongod");
        assert!(look(&mut watch, &mut room).is_empty(), "nobody lists processes each second");
        room.lost = 1;
        let mut lines = look(&mut watch, &mut room);
        // No process of this machine has this number and started at 0, so it counts as ended.
        lines.retain(|line| !line.contains("has ended"));
        assert!(lines.iter().any(|line| line.contains("process 6 is a mongod")), "{lines:?}");
        proc.process(8, "mongod", "/usr/bin/mongod");
        room.free = 0;
        room.lost = 2;
        assert!(look(&mut watch, &mut room).iter().any(|line| line.contains("process 8 cannot be followed")));
    }

    #[test]
    fn a_server_that_starts_later_gets_the_place_of_a_process_that_is_merely_called_so() {
        let proc = Proc::new("places");
        let mut watch = TracedProcesses::of(Some(ServerSearch::new(proc.host())), None);
        let mut room = Room::default();
        watch.lost = Some(0);
        let mut seconds = 0;
        let mut look = |watch: &mut TracedProcesses, room: &mut Room| {
            seconds += 1;
            watch.look_at(Instant::now() + EVERY * seconds, room)
        };
        let last = MAX_PROCESSES as u32;
        for id in 1..=last {
            proc.process(id, "mongod", "/usr/bin/python3");
            watch.event(id, ProcessChange::Started);
        }
        let (real, more) = (last + 1, last + 2);
        proc.process(real, "mongod", "/usr/bin/mongod");
        proc.process(more, "mongod", "/usr/bin/python3");
        watch.event(real, ProcessChange::Refused);
        watch.event(more, ProcessChange::Refused);
        let lines = look(&mut watch, &mut room);
        assert_eq!((room.left.as_slice(), room.followed.as_slice()), (&[last][..], &[real][..]), "{lines:?}");
        assert!(watch.running().contains(&real) && !watch.running().contains(&last), "{lines:?}");
        let gave_way = format!("process {last} is not followed any more: process {real} has its place");
        assert_eq!(lines, [gave_way, format!("process {real} is followed now")]);
        assert_eq!(watch.refused(), 2);
        assert!(look(&mut watch, &mut room).is_empty(), "nothing has changed");
        // What ends gives way, too.
        fs::remove_dir_all(proc.0.join("1")).unwrap();
        watch.event(1, ProcessChange::Ended);
        room.free += 1;
        assert_eq!(look(&mut watch, &mut room), [format!("process {last} is followed now")]);
        assert_eq!((room.followed.as_slice(), watch.refused()), (&[real, last][..], 1));
        let of_last = watch.every.iter().filter(|process| **process == last);
        assert_eq!(of_last.count(), 1, "it is listed once");
    }

    #[test]
    fn a_mongod_of_another_folder_is_left_after_a_trial_and_followed_when_it_comes_to_use_it() {
        let proc = Proc::new("trial");
        let (db, other) = (proc.0.join("db"), proc.0.join("other"));
        fs::create_dir_all(&db).unwrap();
        fs::create_dir_all(&other).unwrap();
        let folder = Folder::new(&db, &[]).unwrap();
        let search = ServerSearch::by_path(proc.host());
        let mut watch = TracedProcesses::of(Some(search), Some(folder));
        let mut room = Room { free: 9, ..Room::default() };
        watch.lost = Some(0);
        let begun = Instant::now();
        let arguments = |id: u32, dbpath: &Path| {
            proc.process(id, "mongod", "/usr/bin/mongod");
            let line = format!("mongod\0--dbpath\0{}\0", dbpath.display());
            fs::write(proc.0.join(format!("{id}/cmdline")), line).unwrap();
        };
        arguments(7, &db);
        assert_eq!(watch.event(7, ProcessChange::Started).len(), 1, "its command line names the folder");
        // It is reported when it gets its name, and again when it has a command line.
        proc.process(9, "mongod", "/usr/bin/mongod");
        assert!(watch.event(9, ProcessChange::Started).is_empty());
        arguments(9, &db);
        assert_eq!(watch.event(9, ProcessChange::Started).len(), 1);
        assert!(
            watch.event(9, ProcessChange::Started).is_empty()
                && watch.event(9, ProcessChange::Ended).len() == 1
        );
        arguments(8, &other);
        assert!(watch.event(8, ProcessChange::Started).is_empty());
        assert!(watch.look_at(begun + TRIAL / 2, &mut room).is_empty() && room.left.is_empty());
        assert!(watch.look_at(begun + TRIAL * 2, &mut room).is_empty());
        assert_eq!(room.left, [8], "the kernel's table has its place back");
        assert_eq!(watch.running(), [7]);
        arguments(8, &db);
        assert_eq!(watch.look_at(begun + TRIAL * 5, &mut room).len(), 1);
        assert_eq!((watch.running(), room.followed), (vec![7, 8], vec![8]));
    }

    #[test]
    fn a_zombie_does_not_run() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let started = Host::live().stat(child.id()).unwrap().started;
        let process = ProcessKey { id: child.id(), started };
        assert!(process.runs());
        assert!(!ProcessKey { started: started + 1, ..process }.runs(), "a later one of this number");
        drop(child.stdin.take());
        while process.runs() {
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "it has not been collected");
        child.wait().unwrap();
        assert!(!process.runs());
    }
}
