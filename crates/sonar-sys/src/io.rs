//! Traces accesses to files of chosen processes, by eBPF.
//!
//! The kernel's programs (`bpf/io.bpf.c`) pair the beginning and the end of each call, leave out what is
//! no regular file, other processes' calls and files that were set aside, and hand on one record for an
//! access through a ring, or add it to the figures of its file. What they cannot hand on they count.

use std::cell::Cell;
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
    #[error("no permission to trace, which takes root, or CAP_BPF and CAP_PERFMON ({0})")]
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
        /// Its number, by which accesses name it. Numbers begin at 0; some are never given.
        file: u32,
        /// Which.
        key: FileKey,
        /// Process that uses it.
        process: u32,
        /// By which number it has it open; -1 where that is not known.
        fd: i32,
        /// Last part of its path.
        name: &'a [u8],
    },
    /// A thread that was not seen before, or may have another name since.
    Thread {
        /// Which.
        thread: u32,
        /// Its process.
        process: u32,
        /// What it is called.
        name: &'a [u8],
    },
    /// An access that has ended.
    Access {
        /// Which file.
        file: u32,
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
        /// Thread.
        thread: u32,
    },
}

/// `struct control` of `bpf/io.bpf.c`.
#[derive(Copy, Clone, Default)]
struct Control {
    /// A bit for each process that is followed, by the last eight bits of its id.
    some: [u64; 4],
    /// Changes with what the kernel's side may remember of processes and files.
    generation: u32,
}

impl Control {
    fn bytes(self) -> [u8; 40] {
        let mut bytes = [0; 40];
        for (at, word) in bytes.chunks_exact_mut(8).zip(self.some) {
            at.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[32..36].copy_from_slice(&self.generation.to_ne_bytes());
        bytes
    }
}

/// Number of a file that is left out.
const IGNORED: u32 = u32::MAX;

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAMS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/io.bpf.o")));

/// What becomes of an access.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each is handed on as an [`Event`].
    Each,
    /// The same, and what is brought into the page cache beside it, as [`AccessKind::PageIn`].
    EachAndPages,
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
    control: Cell<Control>,
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
const PAGES: (&str, &str) = ("page_in", "btf_trace_mm_filemap_add_to_page_cache");
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
            let Some(mut plan) = Plan::new(tried, optional, &has) else { continue };
            if mode == Mode::EachAndPages {
                // It was asked for, so nothing is traced without it.
                if !has(PAGES.1) || !has("folio") {
                    return Err(TraceError::Load(
                        "pages that are brought in are seen from kernel 5.16 on, and this one does not tell of them: leave --readahead out".into(),
                    ));
                }
                plan.programs.push(PAGES.0);
            }
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
            if map.name() == "usages" && mode != Mode::Totals {
                // It takes its memory at once, and nothing would be added up in it.
                map.set_max_entries(1).map_err(error)?;
            }
        }
        let object = object.load().map_err(error)?;
        let mut tracer = Self {
            object,
            control: Cell::default(),
            _links: Vec::new(),
            clock_offset_ns: sys::realtime_minus_monotonic_ns(),
            way,
            without: plan.without.clone(),
        };
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
        self.update("processes", &process.to_ne_bytes(), &1u32.to_ne_bytes())?;
        let mut control = self.control.get();
        control.some[process as usize / 64 % 4] |= 1 << (process % 64);
        self.changed(control)
    }

    /// Sees a process no more: it has ended, and its id may be another's soon.
    ///
    /// # Errors
    /// The kernel's, when it was not followed.
    pub fn leave(&self, process: u32) -> Result<(), TraceError> {
        self.map("processes")?.delete(&process.to_ne_bytes()).map_err(|error| load_error(&error))?;
        self.changed(self.control.get())
    }

    /// Leaves a file out from now on, in the kernel.
    ///
    /// # Errors
    /// The kernel's, when the table cannot be changed.
    pub fn ignore(&self, key: FileKey) -> Result<(), TraceError> {
        self.update("files", &key.bytes(), &IGNORED.to_ne_bytes())?;
        self.changed(self.control.get())
    }

    /// What is remembered of processes and files holds no more.
    fn changed(&self, mut control: Control) -> Result<(), TraceError> {
        control.generation += 1;
        self.control.set(control);
        self.update(".data.control", &0u32.to_ne_bytes(), &control.bytes())
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), TraceError> {
        self.map(map)?.update(key, value, MapFlags::ANY).map_err(|error| load_error(&error))
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, TraceError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| TraceError::Load(format!("no map {name}")))
    }

    /// The figures of each file since counting began ([`Mode::Totals`]).
    ///
    /// # Errors
    /// The kernel's table cannot be read.
    pub fn usages(&self) -> io::Result<Vec<(FileKey, Usage)>> {
        let map = |name| self.map(name).map_err(io::Error::other);
        let (files, figures) = (map("files")?, map("usages")?);
        let mut usages = Vec::new();
        for key in files.keys() {
            // A file beyond the room that there is has no figures; its accesses are counted as lost.
            let Some(number) = files.lookup(&key, MapFlags::ANY).map_err(io::Error::other)? else { continue };
            let value = figures.lookup(&number, MapFlags::ANY).map_err(io::Error::other)?;
            if let (Some(key), Some(usage)) = (FileKey::parse(&key), value.as_deref().and_then(usage))
                && usage != Usage::default()
            {
                usages.push((key, usage));
            }
        }
        Ok(usages)
    }

    /// What was lost so far.
    pub fn losses(&self) -> IoLosses {
        let mut losses = IoLosses::default();
        if let Ok(map) = self.map("losses") {
            for index in 0..5u32 {
                let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten();
                if let Some(bytes) = value.as_deref().and_then(|value| value.first_chunk()) {
                    losses.set(index as u8 + 1, u64::from_ne_bytes(*bytes));
                }
            }
        }
        losses
    }

    /// Whether the kernel lets this process read the figures, with the capabilities that it has now.
    pub fn is_readable(&self) -> bool {
        self.map("losses").is_ok_and(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).is_ok())
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
        let map = self.map("ring").map_err(io::Error::other)?;
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
    let (counters, rest) = bytes.split_first_chunk::<{ 18 * 8 }>()?;
    let mut words = counters.chunks_exact(8).filter_map(|word| word.first_chunk());
    let mut next = || words.next().map(|word| u64::from_ne_bytes(*word));
    let (reads, read_bytes, read_ns) = (next()?, next()?, next()?);
    let (contiguous, near, ahead, back) = (next()?, next()?, next()?, next()?);
    let (fetches, device_bytes, unknown, unknown_bytes) = (next()?, next()?, next()?, next()?);
    // A read that is added while this is copied may be in one figure and not yet in another.
    let known = reads.saturating_sub(unknown);
    let mut usage = Usage {
        reads,
        read_bytes,
        read_ns,
        known,
        cached: known.saturating_sub(fetches),
        known_bytes: read_bytes.saturating_sub(unknown_bytes),
        device_bytes,
        contiguous,
        near,
        jumps: ahead.saturating_add(back),
        back,
        faults: next()?,
        errors: next()?,
        writes: next()?,
        write_bytes: next()?,
        write_ns: next()?,
        syncs: next()?,
        sync_ns: next()?,
        ..Usage::default()
    };
    let mut rest = rest;
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
    match u32_at(0)? {
        0 => Some(Event::Access {
            kind: AccessKind::from_code(u8::try_from(u32_at(4)?).ok()?)?,
            file: u32_at(8)?,
            thread: u32_at(12)?,
            start: Timestamp::from_unix_ns(u64_at(16)?.wrapping_add(clock_offset_ns)),
            latency_ns: u64_at(24)?,
            offset: u64_at(32)?,
            asked: u64_at(40)?,
            result: u64_at(48)? as i64,
            device_bytes: u64_at(56).map(|bytes| (bytes != u64::MAX).then_some(bytes))?,
        }),
        1 => Some(Event::File {
            fd: u32_at(4)? as i32,
            key: FileKey { inode: u64_at(8)?, device: u64_at(16)? },
            file: u32_at(24)?,
            process: u32_at(28)?,
            name: name(32, 96)?,
        }),
        2 => Some(Event::Thread { thread: u32_at(4)?, process: u32_at(8)?, name: name(16, 16)? }),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    /// Lengths as `bpf/io.bpf.c` asserts them; shorter ones are no records.
    #[test]
    fn records_are_as_long_as_the_programs_make_them() {
        let record = |kind: u8, length: usize| {
            let mut bytes = vec![0; length];
            bytes[0] = kind;
            bytes
        };
        for (kind, length) in [(0, 64), (1, 128), (2, 32)] {
            assert!(parse(&record(kind, length), 0).is_some(), "{kind}");
            assert!(parse(&record(kind, length - 1), 0).is_none(), "{kind}");
        }
        assert!(parse(&record(3, 128), 0).is_none());
        assert!(usage(&[0; 1424]).is_some());
        assert!(usage(&[0; 1423]).is_none());
    }

    #[test]
    fn an_access_is_read_field_by_field() {
        let mut bytes = Vec::new();
        for word in [0u32, 4, 7, 99] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [1_000u64, 50, 4_096, 8_192, -5i64 as u64, u64::MAX] {
            bytes.extend(word.to_ne_bytes());
        }
        let Some(Event::Access {
            file,
            kind,
            start,
            latency_ns,
            offset,
            asked,
            result,
            device_bytes,
            thread,
        }) = parse(&bytes, 5)
        else {
            panic!("no access")
        };
        assert_eq!((file, kind, thread), (7, AccessKind::Fault, 99));
        assert_eq!((start.unix_ns(), latency_ns, offset, asked), (1_005, 50, 4_096, 8_192));
        assert_eq!((result, device_bytes), (-5, None));
    }

    /// What is not counted by the kernel's side follows from what is.
    #[test]
    fn figures_that_follow() {
        let mut bytes = vec![0; 1424];
        for (at, value) in [10u64, 1_000, 5, 1, 2, 3, 4, 6, 700, 1, 50].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let usage = usage(&bytes).unwrap();
        assert_eq!((usage.reads, usage.known, usage.cached), (10, 9, 3));
        assert_eq!((usage.known_bytes, usage.device_bytes), (950, 700));
        assert_eq!((usage.contiguous, usage.near, usage.jumps, usage.back), (1, 2, 7, 4));
    }
}
