//! Traces accesses to files of chosen processes, by eBPF.
//!
//! The kernel's programs (`bpf/io.bpf.c`) pair the beginning and the end of each call, leave out what is
//! no regular file, other processes' calls and files that were set aside, and hand on one record an
//! access through a ring, or add it to the figures of its file. What they cannot hand on they count.

use std::io;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use sonar_core::Timestamp;
use sonar_core::io::{AccessKind, IoLosses, Usage};

use crate::sys;

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The kernel tells nothing of its own types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux): it needs to be built with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    /// No permission.
    #[error(
        "no permission to trace: run as root, or grant it once: sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep on this program ({0})"
    )]
    Permission(String),
    /// Anything else.
    #[error("cannot load the programs into the kernel: {0}")]
    Load(String),
}

/// A file as the kernel knows it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileKey {
    /// Inode.
    pub inode: u64,
    /// Device, in the kernel's own encoding.
    pub device: u64,
}

impl FileKey {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self { inode: word(0)?, device: word(8)? })
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.inode.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.device.to_ne_bytes());
        bytes
    }
}

/// What the kernel hands on.
#[derive(Copy, Clone, Debug)]
pub enum Event<'a> {
    /// A file that was not seen before.
    File {
        /// Which.
        key: FileKey,
        /// Process that uses it.
        process: u32,
        /// By which number it has it open; -1 where that is not known.
        fd: i32,
        /// Last part of its path.
        name: &'a [u8],
    },
    /// An access that has ended.
    Access {
        /// Which file.
        key: FileKey,
        /// What was done.
        kind: AccessKind,
        /// When it began.
        start: Timestamp,
        /// How long it took, in nanoseconds.
        latency_ns: u64,
        /// Where in the file, in bytes.
        offset: u64,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that came of it, or the negated error number.
        result: i64,
        /// Bytes that the thread caused to be fetched from the device meanwhile.
        device_bytes: Option<u64>,
        /// Process.
        process: u32,
        /// Thread.
        thread: u32,
        /// Name of the thread.
        name: &'a [u8],
    },
}

const AT_OFFSET: u32 = 4;
const VECTOR: u32 = 8;
const URING: u32 = 16;

/// What each call does: the kind, and how it gives place and length.
fn calls() -> [(i64, u32); 13] {
    let (read, write, sync, data_sync) = (0, 1, 2, 3);
    [
        (libc::SYS_read, read),
        (libc::SYS_write, write),
        (libc::SYS_pread64, read | AT_OFFSET),
        (libc::SYS_pwrite64, write | AT_OFFSET),
        (libc::SYS_readv, read | VECTOR),
        (libc::SYS_writev, write | VECTOR),
        (libc::SYS_preadv, read | VECTOR | AT_OFFSET),
        (libc::SYS_pwritev, write | VECTOR | AT_OFFSET),
        (libc::SYS_preadv2, read | VECTOR | AT_OFFSET),
        (libc::SYS_pwritev2, write | VECTOR | AT_OFFSET),
        (libc::SYS_fsync, sync),
        (libc::SYS_fdatasync, data_sync),
        (libc::SYS_io_uring_enter, URING),
    ]
}

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAMS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/io.bpf.o")));

/// What becomes of an access.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each is handed on as an [`Event`].
    Each,
    /// They are added up in the kernel; see [`Tracer::usages`].
    Totals,
}

/// Where accesses are seen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// At the functions of the VFS.
    Vfs,
    /// At the system calls.
    Calls,
}

impl Way {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vfs => "VFS functions (fentry/fexit)",
            Self::Calls => "system calls (raw tracepoints)",
        }
    }
}

/// The programs, loaded and attached. They go when this goes.
pub struct Tracer {
    object: Object,
    _links: Vec<Link>,
    clock_offset_ns: u64,
    way: Way,
    without: Vec<&'static str>,
}

/// Programs of each way, with what the kernel has to have for them; those that may be absent, with what is
/// then not seen.
const VFS: [(&str, &str); 6] = [
    ("read_enter", "vfs_read"),
    ("read_leave", "vfs_read"),
    ("write_enter", "vfs_write"),
    ("write_leave", "vfs_write"),
    ("sync_enter", "vfs_fsync_range"),
    ("sync_leave", "vfs_fsync_range"),
];
const VFS_OPTIONAL: [(&str, &str, &str); 6] = [
    ("readv_enter", "vfs_readv", "vectored reads"),
    ("readv_leave", "vfs_readv", "vectored reads"),
    ("writev_enter", "vfs_writev", "vectored writes"),
    ("writev_leave", "vfs_writev", "vectored writes"),
    ("fault_enter", "filemap_fault", "page faults"),
    ("fault_leave", "filemap_fault", "page faults"),
];
const CALLS: [(&str, &str); 2] = [("sys_enter", "btf_trace_sys_enter"), ("sys_exit", "btf_trace_sys_exit")];
const CALLS_OPTIONAL: [(&str, &str, &str); 1] =
    [("fault_tracepoint", "btf_trace_mm_filemap_fault", "page faults")];
const COMPLETE: (&str, &str) = ("uring_complete", "btf_trace_io_uring_complete");
const SUBMIT: [(&str, &str); 2] = [
    ("uring_submit_req", "btf_trace_io_uring_submit_req"),
    ("uring_submit_sqe", "btf_trace_io_uring_submit_sqe"),
];

/// Which programs are loaded.
struct Plan {
    programs: Vec<&'static str>,
    without: Vec<&'static str>,
}

impl Plan {
    /// Of what this kernel has; `None` where it lacks what the way cannot do without.
    fn new(way: Way, optional: bool, has: &dyn Fn(&str) -> bool) -> Option<Self> {
        let (core, more): (&[_], &[_]) = match way {
            Way::Vfs => (&VFS, &VFS_OPTIONAL),
            Way::Calls => (&CALLS, &CALLS_OPTIONAL),
        };
        let mut plan = Self { programs: Vec::new(), without: Vec::new() };
        for (program, needs) in core {
            has(needs).then_some(())?;
            plan.programs.push(program);
        }
        for (program, needs, what) in more {
            if optional && has(needs) {
                plan.programs.push(program);
            } else if !plan.without.contains(what) {
                plan.without.push(what);
            }
        }
        let submit = SUBMIT.iter().find(|(_, needs)| has(needs));
        match submit.filter(|_| optional && has(COMPLETE.1)) {
            Some((submit, _)) => plan.programs.extend([submit, COMPLETE.0]),
            None => plan.without.push("io_uring"),
        }
        Some(plan)
    }
}

impl Tracer {
    /// Loads the programs, lets them see these processes (ids of the first process namespace), and
    /// attaches them: at the functions of the VFS where the kernel lets it be done, else at the system
    /// calls. `way` asks for one of them.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn start(processes: &[u32], mode: Mode, way: Option<Way>) -> Result<Self, TraceError> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(TraceError::NoBtf);
        }
        // libbpf writes the verifier's log to standard error otherwise.
        libbpf_rs::set_print(None);
        let types = libbpf_rs::btf::Btf::from_vmlinux().map_err(|error| load_error(&error))?;
        let has = |name: &str| types.type_by_name::<libbpf_rs::btf::BtfType<'_>>(name).is_some();
        let mut failed = None;
        // What may be absent may also be refused; the rest is worth having without it.
        for (tried, optional) in
            [(Way::Vfs, true), (Way::Vfs, false), (Way::Calls, true), (Way::Calls, false)]
        {
            if way.is_some_and(|way| way != tried) {
                continue;
            }
            let Some(plan) = Plan::new(tried, optional, &has) else { continue };
            match Self::load(&plan, tried, mode) {
                Ok(tracer) => {
                    for process in processes {
                        tracer.follow(*process)?;
                    }
                    return Ok(tracer);
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed
            .unwrap_or_else(|| TraceError::Load("the kernel lacks what it would be attached to".into())))
    }

    fn load(plan: &Plan, way: Way, mode: Mode) -> Result<Self, TraceError> {
        let error = |error: libbpf_rs::Error| load_error(&error);
        let mut object = ObjectBuilder::default().open_memory(&PROGRAMS.0).map_err(error)?;
        for mut program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(plan.programs.contains(&name.as_str()));
        }
        // The settings, as `bpf/io.bpf.c` declares them: two flags and the logarithm of the page.
        let page = (sys::page_size() as u32).ilog2();
        let uring = !plan.without.contains(&"io_uring");
        for mut map in object.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                let value = map.initial_value_mut().unwrap_or_default();
                if let Some(settings) = value.first_chunk_mut::<8>() {
                    (settings[0], settings[1]) = (u8::from(mode == Mode::Totals), u8::from(uring));
                    settings[4..].copy_from_slice(&page.to_ne_bytes());
                }
            }
        }
        let object = object.load().map_err(error)?;
        let mut tracer = Self {
            object,
            _links: Vec::new(),
            clock_offset_ns: sys::realtime_minus_monotonic_ns(),
            way,
            without: plan.without.clone(),
        };
        for (number, what) in calls() {
            let number = number as u32;
            tracer.update("calls", &number.to_ne_bytes(), &(what + 1).to_ne_bytes())?;
        }
        let mut links = Vec::new();
        for program in tracer.object.progs_mut() {
            if plan.programs.contains(&program.name().to_string_lossy().as_ref()) {
                links.push(program.attach().map_err(error)?);
            }
        }
        tracer._links = links;
        Ok(tracer)
    }

    /// In one line: how accesses are seen, and which are not.
    pub fn way(&self) -> String {
        match self.without.as_slice() {
            [] => self.way.name().to_string(),
            without => format!("{}, without {}", self.way.name(), without.join(" and ")),
        }
    }

    /// Sees one more process.
    ///
    /// # Errors
    /// The table of processes is full (256).
    pub fn follow(&self, process: u32) -> Result<(), TraceError> {
        self.update("processes", &process.to_ne_bytes(), &1u32.to_ne_bytes())
    }

    /// Leaves a file out from now on, in the kernel.
    ///
    /// # Errors
    /// The kernel's, when the table cannot be changed.
    pub fn ignore(&self, key: FileKey) -> Result<(), TraceError> {
        self.update("files", &key.bytes(), &2u32.to_ne_bytes())
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), TraceError> {
        let found = self.object.maps().find(|found| found.name().to_str() == Some(map));
        let found = found.ok_or_else(|| TraceError::Load(format!("no map {map}")))?;
        found.update(key, value, MapFlags::ANY).map_err(|error| load_error(&error))
    }

    /// The figures of each file since counting began ([`Mode::Totals`]).
    ///
    /// # Errors
    /// The kernel's table cannot be read.
    pub fn usages(&self) -> io::Result<Vec<(FileKey, Usage)>> {
        let map = self.object.maps().find(|map| map.name() == "usages");
        let map = map.ok_or_else(|| io::Error::other("no map usages"))?;
        let mut usages = Vec::new();
        for key in map.keys() {
            // A file that went meanwhile is none.
            let value = map.lookup(&key, MapFlags::ANY).map_err(io::Error::other)?;
            if let (Some(key), Some(usage)) = (FileKey::parse(&key), value.as_deref().and_then(usage)) {
                usages.push((key, usage));
            }
        }
        Ok(usages)
    }

    /// What was lost so far.
    pub fn losses(&self) -> IoLosses {
        let mut losses = IoLosses::default();
        if let Some(map) = self.object.maps().find(|map| map.name() == "losses") {
            for index in 0..5u32 {
                let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten();
                if let Some(bytes) = value.as_deref().and_then(|value| value.first_chunk()) {
                    losses.set(index as u8 + 1, u64::from_ne_bytes(*bytes));
                }
            }
        }
        losses
    }

    /// Hands on what comes, until `tick`, which is called ten times a second, says `false`.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run(&self, mut each: impl FnMut(Event<'_>), mut tick: impl FnMut() -> bool) -> io::Result<()> {
        self.run_with(&mut (), |(), event| each(event), |()| tick())
    }

    /// The same, with `state` for both.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run_with<S>(
        &self,
        state: &mut S,
        mut each: impl FnMut(&mut S, Event<'_>),
        mut tick: impl FnMut(&mut S) -> bool,
    ) -> io::Result<()> {
        let offset = self.clock_offset_ns;
        let map = self.object.maps().find(|map| map.name() == "ring");
        let map = map.ok_or_else(|| io::Error::other("no map ring"))?;
        // The ring's callback and the tick never run at once; the cell says so to the compiler.
        let state = std::cell::RefCell::new(state);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, |bytes: &[u8]| {
                if let Some(event) = parse(bytes, offset) {
                    each(*state.borrow_mut(), event);
                }
                0
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        loop {
            match ring.poll(Duration::from_millis(100)) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                    return Err(io::Error::other(error));
                }
                _ => {}
            }
            // The kernel's side wakes us only where the ring fills quickly.
            ring.consume().map_err(io::Error::other)?;
            if !tick(*state.borrow_mut()) {
                ring.consume().map_err(io::Error::other)?;
                return Ok(());
            }
        }
    }
}

fn load_error(error: &libbpf_rs::Error) -> TraceError {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => TraceError::Permission(error.to_string()),
        _ => TraceError::Load(format!("{error:#}")),
    }
}

/// `struct usage` of `bpf/io.bpf.c`.
fn usage(bytes: &[u8]) -> Option<Usage> {
    let mut usage = Usage::default();
    let mut rest = bytes;
    for counter in usage.counters_mut() {
        let (word, after) = rest.split_first_chunk()?;
        *counter = u64::from_ne_bytes(*word);
        rest = after;
    }
    for count in &mut usage.latency {
        let (word, after) = rest.split_first_chunk()?;
        *count = u32::from_ne_bytes(*word);
        rest = after;
    }
    usage.places = *rest.first_chunk()?;
    Some(usage)
}

/// The records of `bpf/io.bpf.c`.
fn parse(bytes: &[u8], clock_offset_ns: u64) -> Option<Event<'_>> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let name = |at: usize, length: usize| {
        let field = bytes.get(at..at + length)?;
        Some(field.split(|byte| *byte == 0).next().unwrap_or(field))
    };
    let key = FileKey { inode: u64_at(8)?, device: u64_at(16)? };
    match u32_at(0)? {
        0 => Some(Event::Access {
            key,
            kind: AccessKind::from_code(u8::try_from(u32_at(4)?).ok()?)?,
            start: Timestamp::from_unix_ns(u64_at(24)?.wrapping_add(clock_offset_ns)),
            latency_ns: u64_at(32)?,
            offset: u64_at(40)?,
            asked: u64_at(48)?,
            result: u64_at(56)? as i64,
            device_bytes: u64_at(64).map(|bytes| (bytes != u64::MAX).then_some(bytes))?,
            thread: u32_at(72)?,
            process: u32_at(76)?,
            name: name(80, 16)?,
        }),
        1 => Some(Event::File { key, fd: u32_at(4)? as i32, process: u32_at(24)?, name: name(32, 96)? }),
        _ => None,
    }
}
