//! Traces accesses to files of chosen processes, by eBPF.
//!
//! The kernel's programs (`bpf/io.bpf.c`) pair the beginning and the end of each call, leave out what is
//! no regular file, other processes' calls and files that were set aside, and hand on one record for an
//! access through a ring, or add it to the figures of its file. What they cannot hand on they count.

mod records;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use sonar_core::files::{IoLosses, Usage};

pub use records::{Event, FileKey, ProcessChange, PseudoFolders};

use crate::{sys, sys_bpf};
use records::{USAGE_BYTES, parse, usage};

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The kernel has no description of its own types.
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

/// Files that the programs have room for, those that are left out included.
pub const MAX_FILES: usize = 65_536;

/// How long records are read at once: where more come than can be handled, the tick still runs.
const DRAIN: Duration = Duration::from_millis(100);
/// Files whose accesses can be added up ([`Mode::Totals`]).
pub const MAX_TOTALS: usize = 16_384;
/// Number of a file that is left out.
const IGNORED: u32 = u32::MAX;
/// Length of the name of a program, as the kernel keeps it.
const PROGRAM_NAME: usize = 16;
/// How long a file's number rests before another file gets it: what the programs were about to add for the old one
/// has been added by then, and what they handed on has been read.
const REST: Duration = Duration::from_millis(200);

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAMS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/io.bpf.o")));

/// What becomes of an access.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each is handed on as an [`Event`].
    Each,
    /// The same, and what is brought into the page cache beside it, as `AccessKind::PageIn`.
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

    /// Those that it cannot do without, and the optional ones.
    const fn programs(self) -> (&'static [(&'static str, &'static str)], &'static [Optional]) {
        match self {
            Self::Vfs => (&VFS, &VFS_OPTIONAL),
            Self::Calls => (&CALLS, &CALLS_OPTIONAL),
        }
    }

    /// What is seen beside reads, writes and flushes, where the kernel lets it be.
    fn optional_parts(self) -> Vec<&'static str> {
        let mut parts: Vec<_> = self.programs().1.iter().map(|(_, _, part)| *part).collect();
        parts.dedup();
        parts.push(URING);
        parts
    }

    /// The programs of an optional part; `None` where the kernel lacks what one of them needs.
    fn programs_of(self, part: &str, has: &dyn Fn(&str) -> bool) -> Option<Vec<&'static str>> {
        if part == URING {
            let (submit, _) = SUBMIT.iter().find(|(_, needs)| has(needs))?;
            return has(COMPLETE.1).then(|| vec![*submit, COMPLETE.0]);
        }
        let programs = self.programs().1.iter().filter(|(_, _, of)| *of == part);
        programs.map(|(program, needs, _)| has(needs).then_some(*program)).collect()
    }
}

/// A program, what the kernel has to have for it, and what is not seen without it.
type Optional = (&'static str, &'static str, &'static str);
/// The optional part that both ways have.
const URING: &str = "io_uring";

/// What is to be traced.
#[derive(Copy, Clone, Debug)]
pub struct Trace<'a> {
    /// Processes, by their ids in the first process namespace.
    pub processes: &'a [u32],
    /// Also processes of this name, or whose program has it, from their start on; at most 15 bytes count.
    pub program: Option<&'a str>,
    /// What becomes of an access.
    pub mode: Mode,
    /// Where accesses are seen; by default at the functions of the VFS where the kernel lets it be done, else at
    /// the system calls.
    pub way: Option<Way>,
    /// Also files of pseudo file systems (`/proc`, `/sys` and their like).
    pub pseudo: bool,
}

/// The programs, loaded and attached. They go when this goes.
pub struct Tracer {
    object: Object,
    control: Cell<Control>,
    /// Numbers of files that are given back, and when.
    resting: RefCell<Vec<(Instant, u32)>>,
    totals: bool,
    links: Vec<(String, Link)>,
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
const VFS_OPTIONAL: [Optional; 6] = [
    ("readv_enter", "vfs_readv", "vectored reads"),
    ("readv_leave", "vfs_readv", "vectored reads"),
    ("writev_enter", "vfs_writev", "vectored writes"),
    ("writev_leave", "vfs_writev", "vectored writes"),
    ("fault_enter", "filemap_fault", "page faults"),
    ("fault_leave", "filemap_fault", "page faults"),
];
const CALLS: [(&str, &str); 2] = [("sys_enter", "btf_trace_sys_enter"), ("sys_exit", "btf_trace_sys_exit")];
const CALLS_OPTIONAL: [Optional; 1] = [("fault_tracepoint", "btf_trace_mm_filemap_fault", "page faults")];
/// Programs of every way, which see processes start and end.
const PROCESSES: [(&str, &str); 4] = [
    ("process_exec", "btf_trace_sched_process_exec"),
    ("process_fork", "btf_trace_sched_process_fork"),
    ("process_exit", "btf_trace_sched_process_exit"),
    ("task_rename", "btf_trace_task_rename"),
];
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
    /// Of what this kernel has, less the optional parts that it refuses; `None` where it lacks what the way cannot do
    /// without.
    fn new(way: Way, refused: &[&str], has: &dyn Fn(&str) -> bool) -> Option<Self> {
        let (core, _) = way.programs();
        let mut plan = Self { programs: Vec::new(), without: Vec::new() };
        for (program, needs) in core.iter().chain(&PROCESSES) {
            has(needs).then_some(())?;
            plan.programs.push(program);
        }
        for part in way.optional_parts() {
            match way.programs_of(part, has) {
                Some(programs) if !refused.contains(&part) => plan.programs.extend(programs),
                _ => plan.without.push(part),
            }
        }
        Some(plan)
    }
}

impl Tracer {
    /// Loads the programs, lets them see what is to be traced, and attaches them.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn start(trace: &Trace<'_>) -> Result<Self, TraceError> {
        let Trace { processes, way, .. } = *trace;
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(TraceError::NoBtf);
        }
        // libbpf writes the verifier's log to standard error otherwise.
        libbpf_rs::set_print(None);
        let types = libbpf_rs::btf::Btf::from_vmlinux().map_err(|error| load_error(&error))?;
        let has = |name: &str| types.type_by_name::<libbpf_rs::btf::BtfType<'_>>(name).is_some();
        let mut failed = None;
        for tried in [Way::Vfs, Way::Calls].into_iter().filter(|tried| way.is_none_or(|way| way == *tried)) {
            match Self::load_most(tried, trace, &has) {
                Some(Ok(tracer)) => {
                    for process in processes {
                        tracer.follow(*process)?;
                    }
                    return Ok(tracer);
                }
                Some(Err(error)) => failed = Some(error),
                None => {}
            }
        }
        Err(failed
            .unwrap_or_else(|| TraceError::Load("the kernel lacks what it would be attached to".into())))
    }

    /// Loads as many programs of a way as the kernel takes; `None` where it lacks what the way cannot do without.
    fn load_most(
        way: Way,
        trace: &Trace<'_>,
        has: &dyn Fn(&str) -> bool,
    ) -> Option<Result<Self, TraceError>> {
        let load = |refused: &[&str]| {
            let mut plan = Plan::new(way, refused, has)?;
            if trace.mode == Mode::EachAndPages {
                // It was asked for, so nothing is traced without it.
                if !has(PAGES.1) || !has("folio") {
                    return Some(Err(TraceError::Load(
                        "pages that are brought in are seen from kernel 5.16 on, and this one does not report them: leave --readahead out".into(),
                    )));
                }
                plan.programs.push(PAGES.0);
            }
            Some(Self::load(&plan, way, trace))
        };
        let parts = way.optional_parts();
        match load(&[])? {
            Ok(tracer) => return Some(Ok(tracer)),
            // Without the optional parts it fails too.
            Err(_) => match load(&parts)? {
                Ok(tracer) => drop(tracer),
                Err(error) => return Some(Err(error)),
            },
        }
        // One part that is refused must not take the others with it.
        let is_refused = |part: &&'static str| {
            let others: Vec<_> = parts.iter().copied().filter(|other| other != part).collect();
            !matches!(load(&others), Some(Ok(_)))
        };
        let refused: Vec<_> = parts.iter().copied().filter(is_refused).collect();
        load(&refused)
    }

    fn load(plan: &Plan, way: Way, trace: &Trace<'_>) -> Result<Self, TraceError> {
        let mode = trace.mode;
        let error = |error: libbpf_rs::Error| load_error(&error);
        let mut object = ObjectBuilder::default().open_memory(&PROGRAMS.0).map_err(error)?;
        for mut program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(plan.programs.contains(&name.as_str()));
        }
        // The settings, as `bpf/io.bpf.c` declares them: three flags, the logarithm of the page, and a name.
        let page = (rustix::param::page_size() as u32).ilog2();
        let uring = !plan.without.contains(&URING);
        for mut map in object.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                let value = map.initial_value_mut().unwrap_or_default();
                if let Some(settings) = value.first_chunk_mut::<{ 8 + PROGRAM_NAME }>() {
                    for (to, flag) in settings.iter_mut().zip([mode == Mode::Totals, uring, trace.pseudo]) {
                        *to = u8::from(flag);
                    }
                    settings[4..8].copy_from_slice(&page.to_ne_bytes());
                    let name = trace.program.unwrap_or_default().bytes().take(PROGRAM_NAME - 1);
                    settings[8..].iter_mut().zip(name).for_each(|(to, byte)| *to = byte);
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
            // What the programs remember of nothing is of generation 0.
            control: Cell::new(Control { generation: 1, ..Control::default() }),
            resting: RefCell::default(),
            totals: mode == Mode::Totals,
            links: Vec::new(),
            clock_offset_ns: sys::realtime_minus_monotonic_ns(),
            way,
            without: plan.without.clone(),
        };
        tracer.changed(tracer.control.get())?;
        let mut links = Vec::new();
        for program in tracer.object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if plan.programs.contains(&name.as_str()) {
                links.push((name, program.attach().map_err(error)?));
            }
        }
        tracer.links = links;
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

    /// Leaves a file out from now on, in the kernel, and gives its number back.
    ///
    /// # Errors
    /// The kernel's, when the table cannot be changed.
    pub fn ignore(&self, key: FileKey, number: u32) -> Result<(), TraceError> {
        self.update("files", &key.bytes(), &IGNORED.to_ne_bytes())?;
        self.resting.borrow_mut().push((Instant::now(), number));
        self.changed(self.control.get())
    }

    /// Forgets files, and gives their numbers back to later ones; a file that was left out has none. A file that
    /// is accessed once more comes as a new [`Event::File`].
    ///
    /// # Errors
    /// The kernel's, when the table cannot be changed.
    pub fn release(&self, files: &[(FileKey, Option<u32>)]) -> Result<(), TraceError> {
        let map = self.map("files")?;
        for (key, number) in files {
            map.delete(&key.bytes()).map_err(|error| load_error(&error))?;
            self.resting.borrow_mut().extend(number.map(|number| (Instant::now(), number)));
        }
        self.changed(self.control.get())
    }

    /// Gives numbers that have rested to the programs.
    fn give_back(&self) -> Result<(), TraceError> {
        let mut resting = self.resting.borrow_mut();
        let (rested, rest): (Vec<_>, Vec<_>) =
            resting.drain(..).partition(|(since, _)| since.elapsed() >= REST);
        *resting = rest;
        for (_, number) in rested {
            // A number beyond the table had no figures.
            if self.totals {
                let _ = self.update("usages", &number.to_ne_bytes(), &[0; USAGE_BYTES]);
            }
            self.update("free_numbers", &[], &number.to_ne_bytes())?;
        }
        Ok(())
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

    /// The figures of each file, with its number, since it was first seen ([`Mode::Totals`]).
    ///
    /// # Errors
    /// The kernel's table cannot be read.
    pub fn usages(&self) -> io::Result<Vec<(u32, FileKey, Usage)>> {
        let map = |name| self.map(name).map_err(io::Error::other);
        let (files, figures) = (map("files")?, map("usages")?);
        let mut usages = Vec::new();
        for key in files.keys() {
            // A file beyond the room that there is has no figures; its accesses are counted as lost.
            let Some(number) = files.lookup(&key, MapFlags::ANY).map_err(io::Error::other)? else { continue };
            let value = figures.lookup(&number, MapFlags::ANY).map_err(io::Error::other)?;
            if let (Some(key), Some(usage)) = (FileKey::parse(&key), value.as_deref().and_then(usage))
                && let Some(number) = number.first_chunk()
                && usage != Usage::default()
            {
                usages.push((u32::from_ne_bytes(*number), key, usage));
            }
        }
        Ok(usages)
    }

    /// What was lost so far.
    pub fn losses(&self) -> IoLosses {
        let mut losses = IoLosses { programs_skipped: self.programs_skipped(), ..IoLosses::default() };
        if let Ok(map) = self.map("losses") {
            for index in 0..6u32 {
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

    /// How often the kernel skipped a program, as another one was under way on the same processor.
    fn programs_skipped(&self) -> u64 {
        let programs = self.object.progs().filter(|program| program.autoload());
        programs.map(|program| sys_bpf::recursion_misses(program.as_fd()).unwrap_or(0)).sum()
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
        let until = std::cell::Cell::new(Some(Instant::now() + DRAIN));
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, |bytes: &[u8]| {
                if let Some(event) = parse(bytes, offset) {
                    each(*state.borrow_mut(), event);
                }
                // The record counts as read; what comes after it waits until the tick has run.
                if is_over(until.get()) { -libc::EAGAIN } else { 0 }
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        loop {
            until.set(Some(Instant::now() + DRAIN));
            drained(ring.poll(Duration::from_millis(100)))?;
            // The kernel's side wakes us only where the ring fills quickly.
            drained(ring.consume())?;
            self.give_back().map_err(io::Error::other)?;
            if !tick(*state.borrow_mut()) {
                until.set(None);
                drained(ring.consume())?;
                return Ok(());
            }
        }
    }
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// The outcome of reading the ring, where a signal or a full measure is none.
fn drained(outcome: libbpf_rs::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error)
            if !matches!(
                error.kind(),
                libbpf_rs::ErrorKind::Interrupted | libbpf_rs::ErrorKind::WouldBlock
            ) =>
        {
            Err(io::Error::other(error))
        }
        _ => Ok(()),
    }
}

fn load_error(error: &libbpf_rs::Error) -> TraceError {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => TraceError::Permission(error.to_string()),
        _ => TraceError::Load(format!("{error:#}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_part_that_is_refused_or_absent_takes_no_other_with_it() {
        let all = Plan::new(Way::Vfs, &[], &|_| true).unwrap();
        assert!(all.without.is_empty());
        for part in Way::Vfs.optional_parts() {
            let plan = Plan::new(Way::Vfs, &[part], &|_| true).unwrap();
            assert_eq!(plan.without, [part]);
            let missing = Way::Vfs.programs_of(part, &|_| true).unwrap();
            let expected: Vec<_> =
                all.programs.iter().filter(|program| !missing.contains(program)).copied().collect();
            assert!(expected.len() < all.programs.len() && plan.programs == expected, "{part}");
        }
        let old = Plan::new(Way::Calls, &[], &|needs| needs != "btf_trace_mm_filemap_fault").unwrap();
        assert_eq!(old.without, ["page faults"]);
        let older = Plan::new(Way::Vfs, &[], &|needs| !needs.contains("uring")).unwrap();
        assert_eq!(older.without, ["io_uring"]);
        assert!(Plan::new(Way::Vfs, &[], &|needs| needs != "vfs_read").is_none());
    }

    /// Of our own reads, with the program that sees their ends detached for one of them: as where the kernel skips it.
    #[test]
    fn an_access_whose_end_was_missed_gives_way_to_the_next() {
        for way in [Way::Vfs, Way::Calls] {
            let trace = Trace {
                processes: &[std::process::id()],
                program: None,
                mode: Mode::Each,
                way: Some(way),
                pseudo: false,
            };
            let mut tracer = match Tracer::start(&trace) {
                Ok(tracer) => tracer,
                Err(error) => {
                    eprintln!("skipped {}: {error}", way.name());
                    continue;
                }
            };
            let path = std::env::temp_dir().join(format!("mongosonar-missed-{}", std::process::id()));
            fs::write(&path, [7; 4_096]).unwrap();
            let file = File::open(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let read = |offset: u64| assert_eq!(file.read_at(&mut [0; 16], offset).unwrap(), 16);
            // The number of its file is known from here on.
            read(0);
            let ends = |name: &str| matches!(name, "sys_exit" | "read_leave");
            tracer.links.retain(|(name, _)| !ends(name));
            read(100);
            for program in tracer.object.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                if program.autoload() && ends(&name) {
                    tracer.links.push((name, program.attach().unwrap()));
                }
            }
            read(200);
            read(300);
            let (mut offsets, mut ticks) = (Vec::new(), 0);
            let thread = sys_thread();
            tracer
                .run(
                    |event| {
                        if let Event::Access { offset, asked: 16, thread: by, .. } = event
                            && by == thread
                        {
                            offsets.push(offset);
                        }
                    },
                    || {
                        ticks += 1;
                        ticks < 2
                    },
                )
                .unwrap();
            assert_eq!(offsets, [0, 200, 300], "{}", way.name());
            assert!(tracer.losses().ends_unseen > 0, "{}: what was missed is counted", way.name());
        }
    }

    /// The kernel's id of this thread.
    fn sys_thread() -> u32 {
        let link = fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }
}
