//! Reads the plaintext of TLS connections where servers hand it to their TLS library, by eBPF.
//!
//! The programs in the kernel (`bpf/tls.bpf.c`) find the connection of each session and pass on the beginning of each
//! message. [`TlsTracer`] loads them and reads what they pass on.

mod files;
mod probes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, MapCore, MapType, RingBufferBuilder};
use rustix::time::ClockId;
use sonar_core::{Plaintext, PlaintextEvent, TlsSuite};

pub use self::files::{MappedFile, executed_files, file_name};
use self::probes::ProbedFile;
pub(crate) use self::probes::{CallPrograms, TlsProbes};
pub use self::probes::{TlsCall, TlsSites};
use crate::addresses::endpoint;
use crate::clock_offsets::ClockOffsets;
use crate::ebpf::processes::FollowedProcesses;
use crate::ebpf::{TraceError, drained, load_error, lookup, update};
use crate::skeletons::tls::{TlsSkel, TlsSkelBuilder, types};
use crate::sys_bpf::ProgramStatistics;
use crate::{ebpf, sys, sys_bpf};

/// Processes that can be followed at once.
pub const MAX_PROCESSES: usize = 64;
/// How many bytes are passed on of the beginning of a reply.
pub const MAX_COPIED: usize = 16_384;
/// The most records to take from the ring before looking at the clock.
const MOST_AT_ONCE: usize = 8_192;
/// The most connections to remember where sockets are read.
const MAX_SOCKETS: u32 = 16_384;
/// Time between two looks at the ring.
const PERIOD: Duration = Duration::from_millis(50);
/// How much room the kernel has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TlsRoom {
    /// The most sessions of a TLS library at once.
    pub sessions: u32,
}

impl TlsRoom {
    /// That of a command.
    pub const COMMAND: Self = Self { sessions: 65_536 };
    /// That of the agent, which stays within the memory of its service.
    pub const AGENT: Self = Self { sessions: 32_768 };
}

/// What was not read, or not passed on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsLosses {
    /// Pieces that did not fit into the ring.
    pub ring_full: u64,
    /// Calls of sessions beyond [`TlsRoom::sessions`].
    pub sessions_full: u64,
    /// Pieces that could not be read from a process's memory.
    pub unreadable: u64,
    /// Calls of sessions whose connection was not known for long.
    pub unmapped: u64,
    /// Calls in which no message begins, before the first one was found.
    pub unsynced: u64,
    /// Calls with more messages than are read of one call (32).
    pub pipelined: u64,
    /// System calls that the kernel did not report, because it was reporting another one on the same processor.
    pub programs_skipped: u64,
}

/// Where plaintext is read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PlaintextSource {
    /// Where processes hand it to their TLS library.
    Library,
    /// Where processes hand it to their sockets: connections that are not encrypted.
    Sockets,
}

/// The programs, loaded and attached until this is dropped.
pub struct TlsTracer {
    skeleton: TlsSkel<'static>,
    followed: FollowedProcesses,
    /// What sees sockets.
    links: Vec<Link>,
    /// What sees that processes end, and execute other programs.
    lives: Vec<Link>,
    probes: TlsProbes,
    /// The processes for which programs were attached to a file.
    users: HashMap<ProbedFile, BTreeSet<u32>>,
}

impl TlsTracer {
    /// Loads the programs. They follow no process yet.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn load(source: PlaintextSource, room: TlsRoom) -> Result<Self, TraceError> {
        ebpf::prepare()?;
        let error = |error: libbpf_rs::Error| load_error(&error);
        // The skeleton borrows a place for a pointer for as long as it lives: it is leaked, eight bytes for each try.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = TlsSkelBuilder::default().open(place).map_err(error)?;
        let settings = open.maps.rodata_data.as_deref_mut();
        let settings = settings.ok_or_else(|| TraceError::Load("the programs have no settings".into()))?;
        settings.tls_cap = MAX_COPIED as u32;
        let from_sockets = source == PlaintextSource::Sockets;
        settings.from_sockets = from_sockets;
        let types = libbpf_rs::btf::Btf::from_vmlinux().map_err(error)?;
        let has = |name: &str| types.type_by_name::<libbpf_rs::btf::BtfType<'_>>(name).is_some();
        let are_reported =
            ["btf_trace_sk_data_ready", "btf_trace_sock_recv_length", "btf_trace_sock_send_length"]
                .into_iter()
                .all(has);
        let programs = &mut open.progs;
        let mut calls = [
            &mut programs.tls_read_called,
            &mut programs.tls_read_returned,
            &mut programs.tls_write_called,
            &mut programs.tls_write_returned,
            &mut programs.tls_begun,
            &mut programs.tls_freed,
        ];
        for program in &mut calls {
            program.set_autoload(!from_sockets);
        }
        let probes = TlsProbes::prepare(&types, calls);
        programs.tls_arrived.set_autoload(are_reported);
        programs.tls_received.set_autoload(!from_sockets && are_reported);
        programs.tls_sent.set_autoload(!from_sockets && are_reported);
        programs.tls_exited.set_autoload(!from_sockets && !are_reported);
        programs.socket_received.set_autoload(from_sockets && are_reported);
        programs.socket_used.set_autoload(from_sockets);
        let sessions = &mut open.maps.tls_sessions;
        sessions.set_max_entries(room.sessions).map_err(error)?;
        if from_sockets {
            // No call ends them: the oldest give way to new ones.
            sessions.set_type(MapType::LruHash).map_err(error)?;
            sessions.set_map_flags(0).map_err(error)?;
            sessions.set_max_entries(MAX_SOCKETS).map_err(error)?;
        }
        let skeleton = open.load().map_err(error)?;
        Ok(Self {
            skeleton,
            followed: FollowedProcesses::default(),
            links: Vec::new(),
            lives: Vec::new(),
            probes,
            users: HashMap::new(),
        })
    }

    /// Whether one more process can be followed.
    pub fn has_room(&self) -> bool {
        self.skeleton.maps.tls_processes.keys().count() < MAX_PROCESSES
    }

    /// The processes that are followed now.
    pub fn followed(&self) -> Vec<u32> {
        let keys = self.skeleton.maps.tls_processes.keys();
        keys.filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?))).collect()
    }

    fn follows(&self, process: u32) -> bool {
        let found = lookup(&self.skeleton.maps.tls_processes, &process.to_ne_bytes());
        found.is_ok_and(|found| found.is_some())
    }

    /// Whether programs are attached to an open file.
    pub fn is_attached(&self, file: &File) -> bool {
        self.probes.are_in(file)
    }

    /// Attaches to an open file in which `sites` were found, for all processes that map it, of which this one is about to be
    /// followed; those that are not followed cost half a microsecond a call. A file that it is attached to already is left
    /// as it is. The probes end with the process that attached them, or when others need their room and no process is
    /// followed any more for which they were attached.
    /// To find the connections of sessions it takes [`attach_sockets`](Self::attach_sockets), too.
    ///
    /// # Errors
    /// It is attached to 64 files for processes that are followed, or the kernel refuses, for example because the file is on
    /// a file system without support for probes.
    pub fn attach(&mut self, process: u32, file: &File, sites: &TlsSites) -> Result<(), TraceError> {
        if self.probes.are_full() {
            let mut users = std::mem::take(&mut self.users);
            users.retain(|_, processes| processes.iter().any(|process| self.follows(*process)));
            self.probes.keep(|file| users.contains_key(file));
            self.users = users;
        }
        let programs = &self.skeleton.progs;
        let calls = CallPrograms {
            read: [&programs.tls_read_called, &programs.tls_read_returned],
            write: [&programs.tls_write_called, &programs.tls_write_returned],
            handshake: &programs.tls_begun,
            free: &programs.tls_freed,
        };
        let file = self.probes.attach(&calls, file, sites)?;
        // Those that have ended are forgotten: a server may start again any number of times.
        let mut users = self.users.remove(&file).unwrap_or_default();
        users.retain(|user| self.follows(*user));
        users.insert(process);
        self.users.insert(file, users);
        Ok(())
    }

    /// Attaches to all sockets, once; those of processes that are not followed cost a comparison a call.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach_sockets(&mut self) -> Result<(), TraceError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        let programs = &self.skeleton.progs;
        let all = [
            &programs.tls_arrived,
            &programs.tls_received,
            &programs.tls_sent,
            &programs.tls_exited,
            &programs.socket_received,
            &programs.socket_used,
        ];
        // All or none, so that it can be tried again.
        let mut links = Vec::new();
        for program in all.into_iter().filter(|program| program.autoload()) {
            links.push(program.attach().map_err(|error| load_error(&error))?);
        }
        self.links = links;
        Ok(())
    }

    /// Undoes [`attach_sockets`](Self::attach_sockets).
    pub fn detach_sockets(&mut self) {
        self.links.clear();
    }

    /// Whether any followed process has called its TLS library so far.
    pub fn is_used(&self) -> bool {
        self.skeleton.maps.bss_data.as_ref().is_some_and(|memory| memory.tls_active != 0)
    }

    /// Whether the kernel may require `CAP_SYS_ADMIN` to attach: before Linux 6.6, in some later releases.
    pub fn may_need_sys_admin(&self) -> bool {
        !self.probes.is_multi()
    }

    /// Keeps the ring and gives up all other maps, in this process: it can follow no process any more. Call it once a
    /// helper has a copy, which then is the only one that decides whose plaintext is read.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn give_up_control(&mut self) -> io::Result<()> {
        let null = File::open("/dev/null")?;
        let ring = self.skeleton.maps.tls_ring.as_fd().as_raw_fd();
        let others = self.skeleton.object().maps().filter(|map| map.as_fd().as_raw_fd() != ring);
        others.into_iter().try_for_each(|map| sys_bpf::replace(map.as_fd(), null.as_fd()))
    }

    /// Follows one more process, by its id in the initial process namespace, until it ends or executes another program.
    ///
    /// # Errors
    /// The table of processes is full ([`MAX_PROCESSES`]), or the kernel refuses.
    pub fn follow(&mut self, process: u32) -> Result<(), TraceError> {
        if self.lives.is_empty() {
            let programs = [&self.skeleton.progs.tls_executed, &self.skeleton.progs.tls_process_exit];
            let links =
                programs.into_iter().map(|program| program.attach().map_err(|error| load_error(&error)));
            self.lives = links.collect::<Result<_, _>>()?;
        }
        update(&self.skeleton.maps.tls_processes, &process.to_ne_bytes(), &1u32.to_ne_bytes())?;
        self.followed.add(process);
        self.changed()
    }

    /// Stops following the processes that are not in `alive`: others may soon have their ids.
    ///
    /// # Errors
    /// The kernel's tables cannot be changed.
    pub fn leave_all_but(&mut self, alive: &[u32]) -> Result<(), TraceError> {
        let gone = self.followed.gone(alive);
        for process in &gone {
            match self.skeleton.maps.tls_processes.delete(&process.to_ne_bytes()) {
                // It has ended, or executed another program.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                deleted => {
                    deleted.map_err(|error| load_error(&error))?;
                    self.forget_sessions(*process);
                }
            }
            self.followed.remove(*process);
        }
        if gone.is_empty() { Ok(()) } else { self.changed() }
    }

    /// Removes the sessions of a process that is followed no more: the programs see no end of theirs.
    fn forget_sessions(&self, process: u32) {
        let sessions = &self.skeleton.maps.tls_sessions;
        for key in sessions.keys().filter(|key| is_session_of(process, key)).collect::<Vec<_>>() {
            // Another one may have taken its room.
            let _ = sessions.delete(&key);
        }
    }

    fn changed(&self) -> Result<(), TraceError> {
        let control = types::tls_control { some: self.followed.bits() };
        update(&self.skeleton.maps.data_control, &0u32.to_ne_bytes(), sys_bpf::bytes_of(&control))
    }

    /// Passes what comes on to `each`, until `tick`, called twenty times a second, returns `false`. Both get `state`, which is
    /// returned. `ready` is called when nothing will be opened any more.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run<S>(
        &self,
        state: S,
        ready: impl FnOnce(),
        mut each: impl FnMut(&mut S, &Plaintext<'_>),
        mut tick: impl FnMut(&mut S, TlsLosses) -> bool,
    ) -> io::Result<S> {
        let state = RefCell::new(state);
        let clock = RefCell::new(ClockOffsets::new(sys::realtime_minus_monotonic_ns()));
        let taken = Cell::new(0);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.tls_ring, |bytes: &[u8]| {
                if let Some(plaintext) = parse(bytes, &clock.borrow()) {
                    each(&mut state.borrow_mut(), &plaintext);
                }
                taken.set(taken.get() + 1);
                // Bounded, because at very high rates records come as fast as they are read.
                if taken.get() >= MOST_AT_ONCE { -libc::EAGAIN } else { 0 }
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        ready();
        loop {
            if taken.replace(0) < MOST_AT_ONCE {
                std::thread::sleep(PERIOD);
            }
            let now = sys::nanoseconds(ClockId::Monotonic);
            clock.borrow_mut().note(now, sys::realtime_minus_monotonic_ns());
            drained(ring.consume())?;
            if !tick(&mut state.borrow_mut(), self.losses()) {
                drained(ring.consume())?;
                break;
            }
        }
        drop(ring);
        Ok(state.into_inner())
    }

    /// What was lost so far.
    pub fn losses(&self) -> TlsLosses {
        let Some(memory) = &self.skeleton.maps.bss_data else { return TlsLosses::default() };
        let [ring_full, sessions_full, unreadable, unmapped, unsynced, pipelined] = memory.tls_losses;
        let programs = &self.skeleton.progs;
        let that_read =
            [&programs.tls_received, &programs.tls_sent, &programs.tls_exited, &programs.socket_used];
        let programs_skipped =
            ProgramStatistics::of_all(that_read.into_iter().filter(|program| program.autoload())).skipped;
        TlsLosses { ring_full, sessions_full, unreadable, unmapped, unsynced, pipelined, programs_skipped }
    }

    /// How long the programs have run so far, in whatever thread that was; `None` if the kernel does not measure it
    /// (`kernel.bpf_stats_enabled`).
    pub fn run_time(&self) -> Option<Duration> {
        ProgramStatistics::of_all(self.skeleton.object().progs()).run_time()
    }
}

/// Whether this is the key of a session of a process.
fn is_session_of(process: u32, key: &[u8]) -> bool {
    sys_bpf::read(key).is_some_and(|key: types::tls_key| key.process == process)
}

/// What a record says; `None` if it is none.
fn parse<'a>(bytes: &'a [u8], clock: &ClockOffsets) -> Option<Plaintext<'a>> {
    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const END: u32 = 3;
    const BOUND: u32 = 4;
    let record: types::tls_record = sys_bpf::read(bytes)?;
    let bytes = bytes.get(size_of::<types::tls_record>()..)?;
    let addresses = &record.addresses;
    let own = endpoint(addresses.family, addresses.server, addresses.server_port);
    let peer = endpoint(addresses.family, addresses.client, addresses.client_port);
    let event = match record.kind {
        READ => PlaintextEvent::Part { received: true },
        WRITE => PlaintextEvent::Part { received: false },
        END => PlaintextEvent::Ended,
        BOUND => PlaintextEvent::Bound,
        _ => return None,
    };
    Some(Plaintext {
        session: record.session,
        process: record.process,
        ends: own.zip(peer).map(|(own, peer)| [own, peer]),
        event,
        time: clock.time(record.ns),
        offset: record.offset,
        other: record.other,
        bytes: bytes.get(..record.copied as usize)?,
        skipped: record.skipped,
        suite: TlsSuite::of_server_hello(record.version, record.cipher),
        begins: record.begins != 0,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::executing_shell::ExecutingShell;

    #[test]
    fn a_command_has_room_for_more_sessions_than_the_agent() {
        for (room, sessions) in [(TlsRoom::COMMAND, 65_536), (TlsRoom::AGENT, 32_768)] {
            match TlsTracer::load(PlaintextSource::Library, room) {
                Ok(tracer) => assert_eq!(tracer.skeleton.maps.tls_sessions.max_entries(), sessions),
                Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
            }
        }
    }

    /// What a program has at an offset of the file that it executes.
    fn instruction(program: &Path, offset: u64) -> u8 {
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
        // Once it answers, it executes the file.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let address = maps.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (start, end) = fields[0].split_once('-').unwrap();
            let (start, end, from) = (number(start), number(end), number(fields[2]));
            let is_there = fields.last().is_some_and(|path| Path::new(path) == program);
            (is_there && fields[1] == "r-xp" && (from..from + end - start).contains(&offset))
                .then_some(start + offset - from)
        });
        let mut byte = [0];
        let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        memory.read_exact_at(&mut byte, address.expect("the mapping of the place")).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        byte[0]
    }

    #[test]
    fn probes_are_in_the_file_that_was_read_though_another_one_has_taken_its_path() {
        let mut tracer = match TlsTracer::load(PlaintextSource::Library, TlsRoom::AGENT) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
        };
        let folder = std::env::temp_dir().join(format!("sonar-sys-probes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [read, other, path] = ["read", "other", "path"].map(|name| folder.join(name));
        for copy in [&read, &other] {
            std::fs::copy("/bin/cat", copy).unwrap();
        }
        std::fs::hard_link(&read, &path).unwrap();
        let file = crate::host::regular::open(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        let mut entry = [0; 8];
        file.read_exact_at(&mut entry, 24).unwrap();
        let entry = u64::from_le_bytes(entry);
        let before = [&read, &path].map(|program| instruction(program, entry));
        assert_eq!(before[0], before[1]);
        let sites = TlsSites { handshake: Some(entry), ..TlsSites::default() };
        let attached = tracer.attach(std::process::id(), &file, &sites);
        let after = [&read, &path].map(|program| instruction(program, entry));
        std::fs::remove_dir_all(&folder).unwrap();
        attached.unwrap();
        assert!(after[0] != before[0] && after[1] == before[1], "{before:x?} {after:x?}");
    }

    #[test]
    fn probes_for_processes_that_are_followed_no_longer_make_room_for_others() {
        let mut tracer = match TlsTracer::load(PlaintextSource::Library, TlsRoom::AGENT) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
        };
        let folder = std::env::temp_dir().join(format!("sonar-sys-rooms-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut entry = [0; 8];
        File::open("/bin/cat").unwrap().read_exact_at(&mut entry, 24).unwrap();
        let sites = TlsSites { handshake: Some(u64::from_le_bytes(entry)), ..TlsSites::default() };
        let own = std::process::id();
        let attached: Vec<_> = (0..130)
            .map(|number| {
                let copy = folder.join(number.to_string());
                std::fs::copy("/bin/cat", &copy).unwrap();
                // Nobody has such a number.
                let process = if number == 0 { own } else { 5_000_000 + number };
                tracer.attach(process, &File::open(&copy).unwrap(), &sites)?;
                if number == 0 { tracer.follow(own) } else { Ok(()) }
            })
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(attached.iter().all(Result::is_ok), "{attached:?}");
        assert!(tracer.users.values().any(|processes| processes.contains(&own)) && tracer.has_room());
    }

    #[test]
    fn a_process_that_executes_another_program_is_not_followed_any_more() {
        let mut tracer = match TlsTracer::load(PlaintextSource::Library, TlsRoom::AGENT) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
        };
        let mut shell = ExecutingShell::start();
        let (process, own) = (shell.id(), std::process::id());
        tracer.follow(process).unwrap();
        tracer.follow(own).unwrap();
        assert!(tracer.follows(process));
        shell.execute();
        assert!(!tracer.follows(process) && tracer.follows(own));
        shell.end();
        tracer.leave_all_but(&[own]).unwrap();
        assert!(tracer.follows(own));
    }

    #[test]
    fn a_process_that_has_ended_is_not_followed_any_more() {
        let mut tracer = match TlsTracer::load(PlaintextSource::Library, TlsRoom::AGENT) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
        };
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (process, own) = (child.id(), std::process::id());
        [process, own].into_iter().for_each(|process| tracer.follow(process).unwrap());
        // The end of one of its threads is not that of this process.
        std::thread::spawn(|| {}).join().unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let followed: Vec<_> = tracer.skeleton.maps.tls_processes.keys().collect();
        assert_eq!(followed, [own.to_ne_bytes()]);
        tracer.leave_all_but(&[own]).unwrap();
    }

    /// What a TLS library would do when a session begins: a program of the kernel runs here.
    #[inline(never)]
    extern "C" fn begin_session(ssl: u64) {
        std::hint::black_box(ssl);
    }

    /// The sessions of this process by their addresses.
    fn own_sessions(tracer: &TlsTracer) -> Vec<u64> {
        let keys = tracer.skeleton.maps.tls_sessions.keys();
        let keys = keys.filter_map(|key| sys_bpf::read::<types::tls_key>(&key));
        keys.filter(|key| key.process == std::process::id()).map(|key| key.ssl).collect()
    }

    #[test]
    fn of_a_process_that_is_followed_no_more_nothing_is_kept_and_nothing_is_read() {
        let mut tracer = match TlsTracer::load(PlaintextSource::Library, TlsRoom::AGENT) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
        };
        let (own, address) = (std::process::id(), begin_session as extern "C" fn(u64) as usize as u64);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let offset = maps.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (start, end) = fields[0].split_once('-').unwrap();
            (number(start)..number(end))
                .contains(&address)
                .then(|| address - number(start) + number(fields[2]))
        });
        let sites = TlsSites { handshake: offset, ..TlsSites::default() };
        tracer.attach(own, &File::open("/proc/self/exe").unwrap(), &sites).unwrap();
        begin_session(6);
        assert_eq!(own_sessions(&tracer), []);
        tracer.follow(own).unwrap();
        begin_session(7);
        assert_eq!(own_sessions(&tracer), [7]);
        tracer.leave_all_but(&[]).unwrap();
        assert_eq!(own_sessions(&tracer), [], "nobody would remove it");
        // The thread was followed before.
        begin_session(8);
        assert_eq!(own_sessions(&tracer), []);
        tracer.follow(own).unwrap();
        begin_session(9);
        assert_eq!(own_sessions(&tracer), [9]);
    }

    #[test]
    fn without_control_no_further_process_is_followed_and_the_ring_is_still_read() {
        let mut tracer = match TlsTracer::load(PlaintextSource::Library, TlsRoom::AGENT) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: no eBPF program can be loaded here: {error}"),
        };
        const MAPPABLE: u32 = 0x400;
        let control = tracer.skeleton.maps.data_control.info().unwrap();
        assert_eq!(control.info.map_flags & MAPPABLE, 0, "it cannot be written past the descriptor");
        tracer.follow(1).unwrap();
        tracer.give_up_control().unwrap();
        assert!(tracer.follow(2).is_err());
        let ring = tracer.skeleton.maps.tls_ring.as_fd().as_raw_fd();
        for map in tracer.skeleton.object().maps().filter(|map| map.as_fd().as_raw_fd() != ring) {
            let key = vec![0; map.key_size() as usize];
            assert!(map.delete(&key).is_err() && map.keys().next().is_none(), "{:?}", map.name());
        }
        let looks = tracer.run(
            0,
            || {},
            |_, _| {},
            |looks, _| {
                *looks += 1;
                *looks < 3
            },
        );
        assert_eq!(looks.unwrap(), 3);
    }
}
