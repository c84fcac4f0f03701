//! The helper process that attaches to servers; if its task says so, also to those that start later.
//!
//! It keeps the privileges that attaching takes after the rest of mongosonar has dropped them, and accepts one message
//! only: [`watch_sockets_on_use`]. The probes end with it, and it ends with mongosonar.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_sys::Host;
use sonar_sys::helper::{Helper, InheritedDescriptors, OpenDescriptors};
use sonar_sys::privileges::{Duty, capability};
use sonar_sys::tls::{MAX_PROCESSES, PlaintextSource, TlsRoom, TlsTracer};

use super::library::TlsLibrary;
use super::process_searches::{ProcessSearches, SearchResult};
use super::withheld_memory::{WithheldMemory, may_attach, watched};
use crate::args::values::PortRange;
use crate::capture::ports::CapturedPorts;
use crate::confinement::helper_capabilities::READING_TLS;
use crate::confinement::helper_channel::array;
use crate::confinement::privileges::{TLS_HELPER_BYTES, confine_helper, start_helper};
use crate::servers;

/// How often to look for processes.
const PERIOD: Duration = Duration::from_secs(2);
/// How long each look is at all processes that are not read; after that one look in `RARELY`.
const YOUNG: Duration = Duration::from_secs(60);
const RARELY: u32 = 5;
/// How long to wait for the first use of a TLS library.
const UNUSED: Duration = Duration::from_secs(1);
/// How often to look for it after that.
const USE_PERIOD: Duration = Duration::from_millis(20);
/// How long to wait for what processes have mapped, all of them together: a large program takes seconds on a busy disk.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same at the first look, if others follow, which take what comes later; and at those.
const FIRST_PATIENCE: Duration = Duration::from_secs(8);
const LATER_PATIENCE: Duration = Duration::from_secs(1);
/// The longest note, in bytes.
const MAX_NOTE: usize = 4096;

const NOTE: u8 = b'N';
const ATTACHED: u8 = b'A';
const LOOKED: u8 = b'L';
/// The message to the helper, see [`watch_sockets_on_use`].
const ON_USE: u8 = b'U';

/// What the helper reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttacherNews {
    /// What is read, or what cannot be, for people.
    Note(String),
    /// Encrypted connections of one more process are read.
    Attached,
    /// It has looked at all processes once.
    Looked,
}

/// Which processes to read, and how.
#[derive(Clone, Debug)]
pub struct AttacherTask {
    /// The ports that were named; if none, those of each server, whose program file says that it is one.
    pub ports: Vec<PortRange>,
    /// The only processes to attach to; if none, all that listen on the named ports, or, if no port is named, all servers.
    pub processes: Vec<u32>,
    /// Attach also where a probe costs ten times as much.
    pub any_cost: bool,
    /// Drop privileges.
    pub confined: bool,
    /// Attach also to processes that start later.
    pub follows_later: bool,
    /// Room in the kernel.
    pub room: TlsRoom,
}

impl AttacherTask {
    /// Whether it may attach to this process, if it listens on one of the ports.
    fn wants(&self, process: u32) -> bool {
        self.processes.is_empty() || self.processes.contains(&process)
    }
}

/// Starts the helper, which attaches these programs; `before` are the descriptors that were open before they were loaded.
/// Call it before starting any thread.
///
/// # Errors
/// No process can be created.
pub fn start(
    tracer: &mut TlsTracer,
    before: OpenDescriptors,
    source: PlaintextSource,
    task: AttacherTask,
) -> Result<Helper> {
    Ok(start_helper("sonar-tls", &InheritedDescriptors::OpenedSince(before), |socket| {
        // It ends when the other side does.
        let _ = serve(tracer, source, task, socket);
    })?)
}

/// Receives what the helper tells next.
///
/// # Errors
/// It has ended, or has told nothing for as long as the socket waits.
pub fn receive(socket: &mut UnixStream) -> io::Result<AttacherNews> {
    match array(socket)? {
        [ATTACHED] => Ok(AttacherNews::Attached),
        [LOOKED] => Ok(AttacherNews::Looked),
        _ => {
            let length = usize::from(u16::from_ne_bytes(array(socket)?)).min(MAX_NOTE);
            let mut text = vec![0; length];
            socket.read_exact(&mut text)?;
            Ok(AttacherNews::Note(String::from_utf8_lossy(&text).into_owned()))
        }
    }
}

/// Tells the helper to stop watching sockets if no server calls its TLS library within a second, until one does. Then
/// servers without encrypted connections lose no time. Of connections that are used in the first moments after that, the
/// cipher suite may stay unknown, and operations may be lost. Has no effect on a helper that reads sockets instead of a
/// library.
///
/// # Errors
/// It has ended.
pub fn watch_sockets_on_use(mut socket: &UnixStream) -> io::Result<()> {
    socket.write_all(&[ON_USE])
}

/// In the helper: tells the other side.
///
/// # Errors
/// It has gone.
pub fn send(socket: &mut UnixStream, news: &AttacherNews) -> io::Result<()> {
    match news {
        AttacherNews::Attached => socket.write_all(&[ATTACHED]),
        AttacherNews::Looked => socket.write_all(&[LOOKED]),
        AttacherNews::Note(text) => {
            let text = &text.as_bytes()[..text.len().min(MAX_NOTE)];
            let mut message = vec![NOTE];
            message.extend((text.len() as u16).to_ne_bytes());
            message.extend(text);
            socket.write_all(&message)
        }
    }
}

/// In the helper: looks for processes until the other side ends.
fn serve(
    tracer: &mut TlsTracer,
    source: PlaintextSource,
    task: AttacherTask,
    mut socket: UnixStream,
) -> io::Result<()> {
    if task.confined {
        // Not Landlock: it forbids inspecting processes that are not confined in the same way.
        let mut kept = READING_TLS.to_vec();
        if tracer.may_need_sys_admin() {
            kept.push(capability::SYS_ADMIN);
        }
        confine_helper(TLS_HELPER_BYTES, &kept, Duty::Attaching)?;
    }
    let host = Host::live();
    let mut listened = CapturedPorts::of(&task.ports, servers::proven_ports(&host));
    let mut attacher = Attacher {
        tracer,
        source,
        task,
        sockets: SocketWatch::Always,
        use_period: USE_PERIOD,
        has_probes: false,
        seen: SeenProcesses::default(),
        searches: ProcessSearches::new(TlsLibrary::of),
        memory: WithheldMemory::of(Host::live()),
        withheld: HashSet::new(),
        notes: socket.try_clone()?,
    };
    for look in 0u32.. {
        if listened.follows() && look % RARELY == RARELY - 1 {
            listened.add(&servers::proven_ports(&host));
        }
        let patience = match look {
            0 if attacher.task.follows_later => FIRST_PATIENCE,
            0 => PATIENCE,
            _ => LATER_PATIENCE,
        };
        let ports = ServedPorts { host: &host, listened: &listened };
        let mut tell = |news| send(&mut socket, &news);
        let placed = attacher.look(&ports, look % RARELY == 0, &mut tell)?;
        while let Some(result) = attacher.searches.next(patience) {
            attacher.found(result, &ports, &placed).into_iter().try_for_each(&mut tell)?;
        }
        for process in attacher.searches.silent(patience.max(FIRST_PATIENCE)) {
            attacher.seen.note(process, SeenProcess::Later);
            let note = format!(
                "process {process} is not read: it does not say what it has mapped, or its files do not answer"
            );
            tell(AttacherNews::Note(note))?;
        }
        if look == 0 {
            send(&mut socket, &AttacherNews::Looked)?;
        }
        if !attacher.wait(&mut socket)? {
            break;
        }
    }
    Ok(())
}

/// When sockets are watched, which finds the connection of a TLS session.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum SocketWatch {
    Always,
    /// Until then, if no TLS library is used.
    Until(Instant),
    /// Not before a TLS library is used.
    OnUse,
}

/// A process that was seen.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum SeenProcess {
    /// It was seen first at this time, and did not serve the ports when it was looked at.
    Since(Instant),
    /// It serves the ports, and could not be read: there was no room for it, or nobody could say what it has mapped.
    Later,
    /// It is read, or cannot be, or has no TLS library.
    Done,
}

#[derive(Default)]
struct SeenProcesses(HashMap<u32, SeenProcess>);

impl SeenProcesses {
    /// Of all processes, those to look at; `at_all`: also old ones.
    fn candidates(&mut self, all: Vec<u32>, now: Instant, at_all: bool) -> Vec<u32> {
        let state = |process| self.0.get(&process).copied().unwrap_or(SeenProcess::Since(now));
        self.0 = all.into_iter().map(|process| (process, state(process))).collect();
        let wanted = |(process, state): (&u32, &SeenProcess)| match state {
            SeenProcess::Since(first) => (at_all || now - *first < YOUNG).then_some(*process),
            SeenProcess::Later => at_all.then_some(*process),
            SeenProcess::Done => None,
        };
        self.0.iter().filter_map(wanted).collect()
    }

    /// Notes what has become of a process; returns whether that is new.
    fn note(&mut self, process: u32, now: SeenProcess) -> bool {
        self.0.insert(process, now) != Some(now)
    }
}

struct Attacher<'a> {
    tracer: &'a mut TlsTracer,
    source: PlaintextSource,
    task: AttacherTask,
    sockets: SocketWatch,
    /// How often it looks for the use of a library that has probes.
    use_period: Duration,
    has_probes: bool,
    seen: SeenProcesses,
    /// Look for the libraries of processes.
    searches: ProcessSearches<Option<TlsLibrary>>,
    /// Finds out which processes attaching would wait for.
    memory: WithheldMemory,
    /// Processes that were reported as not read because another one withholds its memory.
    withheld: HashSet<u32>,
    /// Where a note goes while attaching does not end.
    notes: UnixStream,
}

/// The ports, and who serves them.
struct ServedPorts<'a> {
    host: &'a Host,
    listened: &'a CapturedPorts,
}

impl Attacher<'_> {
    /// Waits until the next look is due; returns `false` if the other side has ended.
    fn wait(&mut self, socket: &mut UnixStream) -> io::Result<bool> {
        let look = self.task.follows_later.then(|| Instant::now() + PERIOD);
        loop {
            let check = match self.sockets {
                SocketWatch::Until(end) => Some(end),
                SocketWatch::OnUse if self.has_probes => Some(Instant::now() + self.use_period),
                SocketWatch::Always | SocketWatch::OnUse => None,
            };
            let until = look.into_iter().chain(check).min();
            // No time at all would be an error.
            let time = |until: Instant| (until - Instant::now()).max(Duration::from_millis(1));
            socket.set_read_timeout(until.map(time))?;
            let mut message = [0];
            match socket.read(&mut message) {
                Ok(1) if message == [ON_USE] => {
                    if self.source == PlaintextSource::Library && self.sockets == SocketWatch::Always {
                        self.sockets = SocketWatch::Until(Instant::now() + UNUSED);
                    }
                }
                // A process that was stopped, or traced, comes back with an interrupted call.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) => {}
                _ => return Ok(false),
            }
            match self.watch_sockets_if_used() {
                Ok(()) => self.use_period = USE_PERIOD,
                Err(error) => {
                    // It is said once.
                    if self.use_period == USE_PERIOD {
                        let note = format!("encrypted connections cannot be read: {error:#}");
                        send(socket, &AttacherNews::Note(note))?;
                    }
                    self.use_period = PERIOD;
                }
            }
            if look.is_some_and(|look| Instant::now() >= look) {
                return Ok(true);
            }
        }
    }

    fn watch_sockets_if_used(&mut self) -> Result<()> {
        match self.sockets {
            SocketWatch::Until(end) if Instant::now() >= end => {
                if self.tracer.is_used() {
                    self.sockets = SocketWatch::Always;
                } else {
                    self.tracer.detach_sockets();
                    self.sockets = SocketWatch::OnUse;
                }
            }
            SocketWatch::OnUse if self.tracer.is_used() => {
                self.tracer.attach_sockets()?;
                self.sockets = SocketWatch::Always;
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks for processes that may have become servers; `at_all` also for old ones. Attaches to their sockets, or begins to
    /// look for their libraries. Returns those that have a place.
    fn look(
        &mut self,
        ports: &ServedPorts<'_>,
        at_all: bool,
        tell: &mut impl FnMut(AttacherNews) -> io::Result<()>,
    ) -> io::Result<Vec<u32>> {
        let ServedPorts { host, listened } = *ports;
        let all = host.process_ids().unwrap_or_default();
        // If that fails, it is tried again at the next look.
        if !all.is_empty() {
            self.tracer.leave_all_but(&all).ok();
            self.searches.keep(&all);
            self.withheld.retain(|process| all.contains(process));
        }
        let mut candidates = self.seen.candidates(all, Instant::now(), at_all);
        candidates.retain(|process| self.task.wants(*process));
        let serving = serving(host, &candidates, listened);
        let mut placed: Vec<u32> = self.tracer.followed();
        placed.extend(serving.iter().copied().chain(self.searches.sought()));
        placed.sort_unstable();
        placed.dedup();
        if placed.len() > MAX_PROCESSES {
            placed = servers::with_places(host, placed, MAX_PROCESSES);
        }
        for process in serving {
            if !self.tracer.has_room() && !placed.contains(&process) {
                self.turn_away(process).map_or(Ok(()), &mut *tell)?;
                continue;
            }
            match self.source {
                PlaintextSource::Library => self.searches.seek(process, host.user(process)),
                PlaintextSource::Sockets => {
                    self.seen.note(process, SeenProcess::Done);
                    self.make_room(process, &placed).map_or(Ok(()), &mut *tell)?;
                    tell(AttacherNews::Note(match self.attach_sockets(process, ports) {
                        Ok(true) => format!("reading the sockets of process {process}"),
                        Ok(false) => continue,
                        Err(error) => format!("the sockets of process {process} cannot be read: {error:#}"),
                    }))?;
                }
            }
        }
        Ok(placed)
    }

    /// Attaches to the library that was found in a process.
    fn found(
        &mut self,
        result: SearchResult<Option<TlsLibrary>>,
        ports: &ServedPorts<'_>,
        placed: &[u32],
    ) -> Vec<AttacherNews> {
        let SearchResult { process, found, place } = result;
        self.seen.note(process, SeenProcess::Done);
        let Some(mut library) = found else { return Vec::new() };
        // Closing it may take for ever, too.
        library.set_closer(place.closer());
        if !self.tracer.has_room() && !placed.contains(&process) {
            return self.turn_away(process).into_iter().collect();
        }
        let has_probes = library.file().is_ok_and(|file| self.tracer.is_attached(file));
        let user = ports.host.user(process);
        let may_wait = |memory: &mut WithheldMemory| {
            may_attach(&memory.look().context("cannot list the processes")?, user)
        };
        if !has_probes && let Err(why) = may_wait(&mut self.memory) {
            // It is tried again, and reported once.
            self.seen.note(process, SeenProcess::Later);
            let name = library.name();
            let note =
                || format!("encrypted connections of process {process} are not read in {name} now: {why:#}");
            return self.withheld.insert(process).then(|| AttacherNews::Note(note())).into_iter().collect();
        }
        let mut news: Vec<AttacherNews> = self.make_room(process, placed).into_iter().collect();
        let note = match self.attach(process, &library, ports) {
            Ok(true) => {
                news.push(AttacherNews::Attached);
                format!("reading encrypted connections of process {process} in {}", library.name())
            }
            Ok(false) => return news,
            Err(error) => format!(
                "encrypted connections of process {process} cannot be read in {}: {error:#}",
                library.path
            ),
        };
        news.push(AttacherNews::Note(note));
        news
    }

    /// There is no room for a process.
    fn turn_away(&mut self, process: u32) -> Option<AttacherNews> {
        let note =
            || AttacherNews::Note(format!("process {process} is not read: {MAX_PROCESSES} others are"));
        self.seen.note(process, SeenProcess::Later).then(note)
    }

    /// Leaves a process without a place where there is no room for one that has a place.
    fn make_room(&mut self, process: u32, placed: &[u32]) -> Option<AttacherNews> {
        if self.tracer.has_room() {
            return None;
        }
        let (gone, others) = giving_way(self.tracer.followed(), placed)?;
        // If that fails, following the other one does, too.
        self.tracer.leave_all_but(&others).ok();
        self.seen.note(gone, SeenProcess::Later);
        Some(AttacherNews::Note(format!(
            "process {gone} is not read any more: process {process} has its place"
        )))
    }

    /// Returns whether the process is followed now.
    fn attach_sockets(&mut self, process: u32, ports: &ServedPorts<'_>) -> Result<bool> {
        self.tracer.attach_sockets()?;
        self.follow(process, ports)
    }

    /// Returns whether the process is followed now.
    fn attach(&mut self, process: u32, library: &TlsLibrary, ports: &ServedPorts<'_>) -> Result<bool> {
        let (file, sites) = (library.file()?, library.sites(self.task.any_cost)?);
        // The note arrives while attaching waits. If it cannot be sent, neither can the next answer, which reports that.
        let say = |note| drop(send(&mut self.notes, &AttacherNews::Note(note)));
        watched(library.name(), say, || self.tracer.attach(process, file, &sites))?;
        self.has_probes = true;
        if self.sockets != SocketWatch::OnUse {
            self.tracer.attach_sockets()?;
        }
        self.follow(process, ports)
    }

    fn follow(&mut self, process: u32, ports: &ServedPorts<'_>) -> Result<bool> {
        let is_followed = follow(self.tracer, process, |process| ports.is_served_by(process))?;
        if !is_followed {
            // What it has become is looked at as if it had just started.
            self.seen.note(process, SeenProcess::Since(Instant::now()));
        }
        Ok(is_followed)
    }
}

impl ServedPorts<'_> {
    /// Whether a process serves them now.
    fn is_served_by(&self, process: u32) -> bool {
        !serving(self.host, &[process], self.listened).is_empty()
    }
}

/// Follows a process if it still is a server then. It may have become another program since it was looked at, for which it
/// has had as long as it wanted; from now on the kernel takes care of that. Returns whether it is followed.
fn follow(tracer: &mut TlsTracer, process: u32, is_server: impl Fn(u32) -> bool) -> Result<bool> {
    tracer.follow(process)?;
    let is_still = is_server(process);
    if !is_still {
        let mut others = tracer.followed();
        others.retain(|other| *other != process);
        tracer.leave_all_but(&others)?;
    }
    Ok(is_still)
}

/// Of these processes one that has no place, and the others; `None` if all of them have one.
fn giving_way(mut followed: Vec<u32>, placed: &[u32]) -> Option<(u32, Vec<u32>)> {
    let at = followed.iter().position(|process| !placed.contains(process))?;
    Some((followed.swap_remove(at), followed))
}

/// Those of the processes that serve the ports. Ports that were found are those of servers, and in another network namespace
/// any other program may have the same one. Servers that get a place come first.
fn serving(host: &Host, processes: &[u32], listened: &CapturedPorts) -> Vec<u32> {
    // Of servers any port counts: there may be more of them than are captured.
    let is_asked = |port| listened.follows() || listened.has(port);
    let serving = |processes: &[u32]| host.serving(processes, &is_asked);
    if !listened.follows() {
        return serving(processes);
    }
    let servers = processes.iter().filter_map(|process| servers::proven_to_serve(host, *process));
    serving(&servers::in_order_of_places(servers.collect(), MAX_PROCESSES))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_servers_are_read_unless_a_port_is_named() {
        let proc = tempfile::tempdir().unwrap();
        // Name, program, network namespace and port.
        let process = |pid: u32, [name, program, namespace, port]: [&str; 4]| {
            let folder = proc.path().join(pid.to_string());
            for part in ["fd", "net", "ns"] {
                fs::create_dir_all(folder.join(part)).unwrap();
            }
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("cmdline"), format!("{name}\0")).unwrap();
            symlink(program, folder.join("exe")).unwrap();
            symlink(namespace, folder.join("ns/net")).unwrap();
            symlink(format!("socket:[{pid}]"), folder.join("fd/3")).unwrap();
            let row = format!("0: 00000000:{port} 00000000:0000 0A 0:0 00:0 0 0 0 {pid} 1");
            fs::write(folder.join("net/tcp"), format!("heading\n{row}\n")).unwrap();
        };
        process(5, ["mongod", "/usr/bin/python3", "net:[2]", "027C"]);
        process(6, ["slapd", "/usr/sbin/slapd", "net:[4]", "027C"]);
        process(7, ["mongod", "/usr/bin/mongod", "net:[1]", "6989"]);
        process(8, ["postgres", "/usr/bin/postgres", "net:[3]", "6989"]);
        let host = Host::of_proc(proc.path());
        let read = |named: &[PortRange]| {
            let listened = CapturedPorts::of(named, servers::proven_ports(&host));
            (listened.ranges(), serving(&host, &[5, 6, 7, 8], &listened))
        };
        assert_eq!(read(&[]), (vec![27_017..=27_017], vec![7]));
        assert_eq!(read(&[PortRange(636, 636)]), (vec![636..=636], vec![5, 6]));
        let full = CapturedPorts::of(&[], vec![1]);
        assert_eq!(
            serving(&host, &[5, 6, 7, 8], &full),
            [7],
            "its port has no room among those that are captured"
        );
    }

    #[test]
    fn a_server_that_starts_later_gets_a_place_among_any_number_of_another_user() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: u32, user: u32, program: &str| {
            let folder = proc.path().join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), "mongod\n").unwrap();
            fs::write(folder.join("status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")).unwrap();
            symlink(program, folder.join("exe")).unwrap();
        };
        let places = MAX_PROCESSES as u32;
        (1..=places).for_each(|pid| process(pid, 1_000, "/home/mongod"));
        process(places + 1, 1_000, "/home/mongod");
        process(places + 2, 999, "/usr/bin/mongod");
        let placed = servers::with_places(&Host::of_proc(proc.path()), 1..=places + 2, MAX_PROCESSES);
        assert!(placed.contains(&(places + 2)) && !placed.contains(&(places + 1)), "{placed:?}");
        let (gone, others) = giving_way((1..=places).collect(), &placed).unwrap();
        assert_eq!((gone, others.len()), (places, MAX_PROCESSES - 1));
        assert_eq!(giving_way(others, &placed), None);
    }

    #[test]
    fn a_process_that_became_another_program_while_it_was_looked_at_is_not_followed() {
        let mut tracer = match TlsTracer::load(PlaintextSource::Sockets, TlsRoom::AGENT) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
        };
        let cat = || std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut children = [cat(), cat()];
        let [server, other] = [&children[0], &children[1]].map(std::process::Child::id);
        let is_server = |process| process == server;
        let followed = [server, other].map(|process| follow(&mut tracer, process, is_server).unwrap());
        assert_eq!((followed, tracer.followed()), ([true, false], vec![server]));
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn young_processes_are_looked_at_always_old_ones_rarely_and_a_new_one_with_an_old_number_is_young() {
        let mut seen = SeenProcesses::default();
        let sorted = |mut processes: Vec<u32>| {
            processes.sort_unstable();
            processes
        };
        let start = Instant::now();
        assert_eq!(sorted(seen.candidates(vec![1, 2, 3], start, false)), [1, 2, 3]);
        seen.note(2, SeenProcess::Done);
        assert_eq!(sorted(seen.candidates(vec![1, 2, 3], start, true)), [1, 3]);
        let later = start + YOUNG;
        assert_eq!(seen.candidates(vec![1, 2, 4], later, false), [4]);
        assert_eq!(sorted(seen.candidates(vec![1, 2, 4], later, true)), [1, 4]);
        assert_eq!(sorted(seen.candidates(vec![1, 4], later, false)), [4]);
        assert_eq!(sorted(seen.candidates(vec![1, 2, 4], later, false)), [2, 4]);
        // One that could not be read is looked at like an old one, and named once.
        assert!(seen.note(4, SeenProcess::Later) && !seen.note(4, SeenProcess::Later));
        assert_eq!(seen.candidates(vec![1, 2, 4], later, false), [2]);
        assert_eq!(sorted(seen.candidates(vec![1, 2, 4], later, true)), [1, 2, 4]);
        assert!(seen.note(4, SeenProcess::Done));
        assert_eq!(sorted(seen.candidates(vec![1, 2, 4], later, true)), [1, 2]);
    }

    #[test]
    fn of_named_processes_no_others_are_read() {
        let task = |processes: &[u32]| AttacherTask {
            ports: Vec::new(),
            processes: processes.to_vec(),
            any_cost: false,
            confined: true,
            follows_later: false,
            room: TlsRoom::COMMAND,
        };
        assert_eq!([7, 8, 9].map(|process| task(&[7, 9]).wants(process)), [true, false, true]);
        assert!(task(&[]).wants(8), "none is named");
    }

    #[test]
    fn news_reach_the_other_side_in_order_and_long_notes_are_cut() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let told = [AttacherNews::Note("reads".into()), AttacherNews::Attached, AttacherNews::Looked];
        for news in &told {
            send(&mut one, news).unwrap();
            assert_eq!(receive(&mut other).unwrap(), *news);
        }
        send(&mut one, &AttacherNews::Note("x".repeat(2 * MAX_NOTE))).unwrap();
        assert_eq!(receive(&mut other).unwrap(), AttacherNews::Note("x".repeat(MAX_NOTE)));
        drop(one);
        assert_eq!(receive(&mut other).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
