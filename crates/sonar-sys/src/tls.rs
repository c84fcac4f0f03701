//! Reads the plaintext of TLS connections where servers hand it to their TLS library, by eBPF.
//!
//! The programs in the kernel (`bpf/tls.bpf.c`) find the connection of each session and pass on the beginning of each
//! message. [`TlsTracer`] loads them and reads what they pass on.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, ProgramMut, RingBufferBuilder};
use rustix::time::ClockId;
use sonar_core::{Plaintext, PlaintextEvent};

use crate::addresses::endpoint;
use crate::clock_offsets::ClockOffsets;
use crate::ebpf::{TraceError, drained, load_error, update};
use crate::skeletons::tls::{TlsSkel, TlsSkelBuilder, types};
use crate::{sys, sys_bpf};

/// How many bytes are passed on of the beginning of a reply.
pub const MAX_COPIED: usize = 16_384;
/// The most records to take from the ring before looking at the clock.
const MOST_AT_ONCE: usize = 8_192;
/// Time between two looks at the ring.
const PERIOD: Duration = Duration::from_millis(50);
/// The most files to attach to. One stays attached after its last process has ended.
const MAX_FILES: usize = 64;
/// The most mappings of a process to look at.
const MAX_MAPPINGS: usize = 65_536;

/// Where to attach to a function: offsets in the file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TlsCall {
    /// The call of the inner function.
    pub called: u64,
    /// Where it has returned.
    pub returned: u64,
}

/// Where to attach in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSites {
    /// Functions that read.
    pub reads: Vec<TlsCall>,
    /// Functions that write.
    pub writes: Vec<TlsCall>,
    /// The function that begins a session.
    pub handshake: Option<u64>,
    /// The function that frees a session.
    pub free: Option<u64>,
}

/// A file that is mapped into a process to be executed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedFile {
    /// Its path, as the process sees it.
    pub path: String,
    /// A path by which this process can open it, even if it was deleted.
    pub reachable: PathBuf,
    /// Device and inode.
    pub id: (u64, u64),
}

/// The files that a process has mapped to execute them, each once.
///
/// # Errors
/// The process has ended, or belongs to another user.
pub fn executed_files(process: u32) -> io::Result<Vec<MappedFile>> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for line in maps.lines().take(MAX_MAPPINGS) {
        // address permissions offset device inode path
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (fields.next(), fields.next()) else { continue };
        let Some(path) = line.find('/').map(|at| &line[at..]) else { continue };
        if !permissions.contains('x') || !seen.insert(path) {
            continue;
        }
        // Leads to the file itself, whatever has become of its name.
        let reachable = PathBuf::from(format!("/proc/{process}/map_files/{range}"));
        let Ok(found) = std::fs::metadata(&reachable) else { continue };
        files.push(MappedFile { path: path.to_owned(), reachable, id: (found.dev(), found.ino()) });
    }
    Ok(files)
}

impl MappedFile {
    /// Opens it.
    ///
    /// # Errors
    /// Its process has ended, or a privilege is missing.
    pub fn open(&self) -> io::Result<File> {
        File::open(&self.reachable)
    }

    /// Its name without folders.
    pub fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// What was not read, or not passed on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsLosses {
    /// Pieces that did not fit into the ring.
    pub ring_full: u64,
    /// Calls of sessions beyond 65,536.
    pub sessions_full: u64,
    /// Pieces that could not be read from a process's memory.
    pub unreadable: u64,
    /// Calls of sessions whose connection was not known for long.
    pub unmapped: u64,
    /// Calls in which no message begins, before the first one was found.
    pub unsynced: u64,
    /// Calls with more messages than are read of one call (32).
    pub pipelined: u64,
}

/// The programs, loaded and attached until this is dropped.
pub struct TlsTracer {
    skeleton: TlsSkel<'static>,
    control: types::tls_control,
    links: Vec<Link>,
    attached: HashSet<(u64, u64)>,
}

impl TlsTracer {
    /// Loads the programs. They follow no process yet.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn load() -> Result<Self, TraceError> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(TraceError::NoBtf);
        }
        // Otherwise libbpf writes the verifier's log to standard error.
        libbpf_rs::set_print(None);
        let error = |error: libbpf_rs::Error| load_error(&error);
        // The skeleton borrows a place for a pointer for as long as it lives: it is leaked, eight bytes for each try.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = TlsSkelBuilder::default().open(place).map_err(error)?;
        let settings = open.maps.rodata_data.as_deref_mut();
        let settings = settings.ok_or_else(|| TraceError::Load("the programs have no settings".into()))?;
        settings.tls_cap = MAX_COPIED as u32;
        let types = libbpf_rs::btf::Btf::from_vmlinux().map_err(error)?;
        let has = |name: &str| types.type_by_name::<libbpf_rs::btf::BtfType<'_>>(name).is_some();
        let are_reported =
            ["btf_trace_sk_data_ready", "btf_trace_sock_recv_length", "btf_trace_sock_send_length"]
                .into_iter()
                .all(has);
        open.progs.tls_arrived.set_autoload(are_reported);
        open.progs.tls_received.set_autoload(are_reported);
        open.progs.tls_sent.set_autoload(are_reported);
        open.progs.tls_exited.set_autoload(!are_reported);
        let skeleton = open.load().map_err(error)?;
        Ok(Self {
            skeleton,
            control: types::tls_control::default(),
            links: Vec::new(),
            attached: HashSet::new(),
        })
    }

    /// Attaches to a file, for all processes that map it; those that are not followed cost half a microsecond a call.
    /// A file that it is attached to already is left as it is. The probes end with the process that attached them.
    ///
    /// # Errors
    /// It is attached to 64 files, or the kernel refuses, for example because the file is on a file system without support for probes.
    pub fn attach(&mut self, file: &MappedFile, sites: &TlsSites) -> Result<(), TraceError> {
        if self.attached.contains(&file.id) {
            return Ok(());
        }
        if self.attached.len() >= MAX_FILES {
            return Err(TraceError::Attach { why: format!("probes are in {MAX_FILES} files already") });
        }
        let programs = &self.skeleton.progs;
        let attach = |program: &ProgramMut<'_>, at: u64| {
            let attached = program.attach_uprobe(false, -1, &file.reachable, at as usize);
            attached.map_err(|error| TraceError::Attach { why: format!("{error:#}") })
        };
        let mut links = Vec::new();
        if self.attached.is_empty() {
            // Not before: they run whenever a socket, or any system call, has received or sent something.
            let all =
                [&programs.tls_arrived, &programs.tls_received, &programs.tls_sent, &programs.tls_exited];
            for program in
                all.into_iter().filter(|program| program.autoload()).chain([&programs.tls_process_exit])
            {
                links.push(program.attach().map_err(|error| load_error(&error))?);
            }
        }
        let calls = [
            (&sites.reads, &programs.tls_read_called, &programs.tls_read_returned),
            (&sites.writes, &programs.tls_write_called, &programs.tls_write_returned),
        ];
        for (sites, called, returned) in calls {
            for site in sites {
                links.push(attach(called, site.called)?);
                links.push(attach(returned, site.returned)?);
            }
        }
        if let Some(handshake) = sites.handshake {
            links.push(attach(&programs.tls_begun, handshake)?);
        }
        if let Some(free) = sites.free {
            links.push(attach(&programs.tls_freed, free)?);
        }
        self.links.append(&mut links);
        self.attached.insert(file.id);
        Ok(())
    }

    /// Follows one more process, by its id in the initial process namespace.
    ///
    /// # Errors
    /// The table of processes is full (64).
    pub fn follow(&mut self, process: u32) -> Result<(), TraceError> {
        update(&self.skeleton.maps.tls_processes, &process.to_ne_bytes(), &1u32.to_ne_bytes())?;
        self.control.some[process as usize / 64 % 4] |= 1 << (process % 64);
        update(&self.skeleton.maps.data_control, &0u32.to_ne_bytes(), sys_bpf::bytes_of(&self.control))
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
        TlsLosses { ring_full, sessions_full, unreadable, unmapped, unsynced, pipelined }
    }

    /// How long the programs have run so far, in whatever thread that was; `None` if the kernel does not measure it
    /// (`kernel.bpf_stats_enabled`).
    pub fn run_time(&self) -> Option<Duration> {
        let programs = self.skeleton.object().progs();
        let all = programs.map(|program| sys_bpf::program_statistics(program.as_fd()).unwrap_or_default());
        let (runs, ns) = all.fold((0, 0), |(runs, ns), one| (runs + one.runs, ns + one.run_time_ns));
        (runs > 0).then(|| Duration::from_nanos(ns))
    }
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
        begins: record.begins != 0,
    })
}
