//! Reads the plaintext of TLS connections where servers hand it to their TLS library, by eBPF.
//!
//! The programs in the kernel (`bpf/tls.bpf.c`) find the connection of each session and pass on the beginning of each
//! message. [`TlsTracer`] loads them and reads what they pass on.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, ProgramMut, RingBufferBuilder};
use rustix::time::ClockId;
use sonar_core::{Endpoint, Timestamp};

use crate::addresses::endpoint;
use crate::clock_offsets::ClockOffsets;
use crate::ebpf::{TraceError, drained, load_error, update};
use crate::skeletons::tls::{TlsSkel, TlsSkelBuilder, types};
use crate::{sys, sys_bpf};

/// The most bytes of a message that are passed on.
pub const MAX_COPIED: usize = 16_384;
/// The most records to take from the ring before passing them on.
const MOST_AT_ONCE: usize = 8_192;
/// The most mappings of a process to look at.
const MAX_MAPPINGS: usize = 65_536;

/// Where to attach in a file: offsets, and whether the instructions there are cheap to probe.
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
    /// Calls of sessions whose connection is not known.
    pub unmapped: u64,
    /// Calls in which no message begins, before the first one was found.
    pub unsynced: u64,
    /// Calls with more messages than are read of one call (32).
    pub pipelined: u64,
    /// Calls that the kernel skipped because the same program was running on that processor.
    pub programs_skipped: u64,
}

/// A part of the plaintext of a connection.
#[derive(Copy, Clone, Debug)]
pub struct TlsPiece<'a> {
    /// Number of the session.
    pub session: u64,
    /// The process.
    pub process: u32,
    /// Who sent it.
    pub source: Endpoint,
    /// Who received it.
    pub destination: Endpoint,
    /// When the library handed it over, or took it.
    pub time: Timestamp,
    /// Its place in the stream of the source, in bytes since the session was first seen.
    pub offset: u64,
    /// How much of the other stream had passed.
    pub other: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Bytes after these that were skipped.
    pub skipped: u32,
    /// The session has ended; there are no bytes.
    pub end: bool,
}

/// The programs, loaded and attached until this is dropped.
pub struct TlsTracer {
    skeleton: TlsSkel<'static>,
    control: types::tls_control,
    clock: RefCell<ClockOffsets>,
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
        let skeleton = open.load().map_err(error)?;
        let links = vec![
            skeleton.progs.tls_exited.attach().map_err(error)?,
            skeleton.progs.tls_process_exit.attach().map_err(error)?,
        ];
        Ok(Self {
            skeleton,
            control: types::tls_control::default(),
            clock: RefCell::new(ClockOffsets::new(sys::realtime_minus_monotonic_ns())),
            links,
            attached: HashSet::new(),
        })
    }

    /// Attaches to a file, for all processes that map it; those that are not followed cost half a microsecond a call.
    /// A file that it is attached to already is left as it is.
    ///
    /// # Errors
    /// The kernel refuses, for example because the file is on a file system without support for probes.
    pub fn attach(&mut self, file: &MappedFile, sites: &TlsSites) -> Result<(), TraceError> {
        if self.attached.contains(&file.id) {
            return Ok(());
        }
        let programs = &self.skeleton.progs;
        let attach = |program: &ProgramMut<'_>, at: u64| {
            program.attach_uprobe(false, -1, &file.reachable, at as usize).map_err(|error| load_error(&error))
        };
        let mut links = Vec::new();
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

    /// Passes on what has come until now.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn read(&self, mut each: impl FnMut(&TlsPiece<'_>)) -> io::Result<()> {
        let now = sys::nanoseconds(ClockId::Monotonic);
        self.clock.borrow_mut().note(now, sys::realtime_minus_monotonic_ns());
        let mut taken = 0;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.tls_ring, |bytes: &[u8]| {
                if let Some(piece) = parse(bytes, &self.clock.borrow()) {
                    each(&piece);
                }
                taken += 1;
                if taken >= MOST_AT_ONCE { -libc::EAGAIN } else { 0 }
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        drained(ring.consume())
    }

    /// What was lost so far.
    pub fn losses(&self) -> TlsLosses {
        let loss = |index: u32| {
            let value = self.skeleton.maps.tls_losses.lookup(&index.to_ne_bytes(), MapFlags::ANY);
            let value = value.ok().flatten();
            value.and_then(|value| value.first_chunk().copied()).map_or(0, u64::from_ne_bytes)
        };
        let programs = self.skeleton.object().progs();
        TlsLosses {
            ring_full: loss(0),
            sessions_full: loss(1),
            unreadable: loss(2),
            unmapped: loss(3),
            unsynced: loss(4),
            pipelined: loss(5),
            programs_skipped: programs
                .map(|program| sys_bpf::program_statistics(program.as_fd()).unwrap_or_default().skipped)
                .sum(),
        }
    }

    /// How long the programs have run so far, in whatever thread that was; `None` if the kernel does not measure it
    /// (`kernel.bpf_stats_enabled`).
    pub fn run_time(&self) -> Option<Duration> {
        let programs = self.skeleton.object().progs();
        let all = programs.map(|program| sys_bpf::program_statistics(program.as_fd()).unwrap_or_default());
        let (runs, ns) = all.fold((0, 0), |(runs, ns), one| (runs + one.runs, ns + one.run_time_ns));
        (runs > 0).then(|| Duration::from_nanos(ns))
    }

    /// Whether the kernel lets this process read the losses with its present capabilities.
    pub fn is_readable(&self) -> bool {
        self.skeleton.maps.tls_losses.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).is_ok()
    }
}

/// What a record says; `None` if it is none.
fn parse<'a>(bytes: &'a [u8], clock: &ClockOffsets) -> Option<TlsPiece<'a>> {
    const READ: u32 = 1;
    const END: u32 = 3;
    let record: types::tls_record = sys_bpf::read(bytes)?;
    let bytes = bytes.get(size_of::<types::tls_record>()..)?;
    let addresses = &record.addresses;
    let own = endpoint(addresses.family, addresses.server, addresses.server_port)?;
    let peer = endpoint(addresses.family, addresses.client, addresses.client_port)?;
    let (source, destination) = if record.kind == READ { (peer, own) } else { (own, peer) };
    Some(TlsPiece {
        session: record.session,
        process: record.process,
        source,
        destination,
        time: clock.time(record.ns),
        offset: record.offset,
        other: record.other,
        bytes: bytes.get(..record.copied as usize)?,
        skipped: record.skipped,
        end: record.kind == END,
    })
}
