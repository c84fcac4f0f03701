//! Traces accesses to files of chosen processes, by eBPF.
//!
//! The programs in the kernel (`bpf/io.bpf.c`) pair the beginning and the end of each call. They skip calls of other
//! processes, ignored files, and everything but regular files. They put a record of each access into a ring, or add
//! it to the figures of its file, and count what they lose. [`Tracer`] loads them and reads the ring.

mod plan;
pub(crate) mod processes;
mod records;

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapMut, ProgramMut, RingBufferBuilder};
use rustix::time::ClockId;
use sonar_core::files::{FileUsage, IoLosses};

pub use plan::AttachMode;
pub use records::{FileKey, FirstSeenFile, KernelEvent, ProcessChange, PseudoFolders};

use self::plan::{PAGES, ProgramPlan};
use self::processes::FollowedProcesses;
use crate::clock_offsets::ClockOffsets;
use crate::privileges::{self, capability};
use crate::skeletons::io::{IoSkel, IoSkelBuilder, types};
use crate::sys_bpf::ProgramStatistics;
use crate::{sys, sys_bpf};
use records::{parse, usage};

/// Why tracing is not possible.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The kernel has no description of its types (BTF).
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux): it needs to be built with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    /// No permission.
    #[error("no permission to trace, which takes root, or CAP_BPF and CAP_PERFMON ({0})")]
    Permission(String),
    /// A program of the kernel cannot be attached to a program.
    #[error("cannot attach probes: {why}{}", without_sys_admin())]
    Attach {
        /// The kernel's reason.
        why: String,
    },
    /// Anything else.
    #[error("cannot load the programs into the kernel: {0}")]
    Load(String),
}

/// Why programs of the kernel find no process of this namespace.
pub const OWN_PROCESS_NAMESPACE: &str = "it runs in a process namespace of its own, as in a container, where \
     processes have other numbers than in the kernel, so eBPF programs would not find them";
/// What helps against it.
pub const PROCESS_NAMESPACE_REMEDY: &str =
    "run it in the process namespace of the host (docker run --pid=host; hostPID: true in Kubernetes)";
/// The inode of the initial process namespace (`PROC_PID_INIT_INO` of the kernel).
const INITIAL_PROCESS_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Processes that can be followed at once.
pub const MAX_PROCESSES: usize = 256;
/// Files that the programs have room for, including ignored ones.
pub const MAX_FILES: usize = 65_536;

/// How long records are read before the tick runs, even if more keep coming.
const DRAIN: Duration = Duration::from_millis(100);
/// How much room the kernel has where it adds accesses up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TotalsRoom {
    /// The most files whose accesses are added up.
    pub files: u32,
    /// Bytes of the ring, a power of two: it has only files, threads and processes that are new. It is read ten times a
    /// second.
    pub ring_bytes: u32,
}

impl TotalsRoom {
    /// That of a command.
    pub const COMMAND: Self = Self { files: 16_384, ring_bytes: 16 << 20 };
    /// That of the agent, which stays within the memory of its service.
    pub const AGENT: Self = Self { files: 8_192, ring_bytes: 2 << 20 };
}

/// Number of an ignored file.
const IGNORED: u32 = u32::MAX;
/// How long the number of a file rests before another file gets it: by then the programs have added everything to the
/// old file, and all its records have been read.
const REST: Duration = Duration::from_millis(200);

/// What the kernel does with an access.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TraceMode {
    /// Each is reported as an [`KernelEvent`].
    Each,
    /// The same, and also pages that come into the page cache, as `AccessKind::PageIn`.
    EachAndPages,
    /// The kernel adds them up; see [`Tracer::each_usage`].
    Totals(TotalsRoom),
}

/// What to trace.
#[derive(Copy, Clone, Debug)]
pub struct Trace<'a> {
    /// Processes, by their ids in the initial process namespace: see [`Tracer::refused`].
    pub processes: &'a [u32],
    /// Also processes with this name, or whose program has it, from their start on; only the first 15 bytes count.
    pub program: Option<&'a str>,
    /// What the kernel does with an access.
    pub mode: TraceMode,
    /// Where accesses are seen; by default at the functions of the VFS if the kernel allows it, else at the system
    /// calls.
    pub way: Option<AttachMode>,
    /// Also files of pseudo file systems (`/proc`, `/sys` and their like).
    pub pseudo: bool,
}

/// What comes before any programs are loaded.
///
/// # Errors
/// They would not load.
pub(crate) fn prepare() -> Result<(), TraceError> {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(TraceError::NoBtf);
    }
    // Otherwise libbpf writes the verifier's log to standard error.
    libbpf_rs::set_print(None);
    Ok(())
}

/// Whether this process runs in a process namespace of its own: programs can be loaded, but see processes by their ids in
/// the initial one, and so find none of this namespace, or another one.
pub fn is_in_own_process_namespace() -> bool {
    // Where it cannot be seen, as without /proc, nothing speaks against the initial one.
    let own = std::fs::metadata("/proc/self/ns/pid").ok();
    own.is_some_and(|own| own.ino() != INITIAL_PROCESS_NAMESPACE)
}

/// The programs, loaded and attached until this is dropped.
pub struct Tracer {
    skeleton: IoSkel<'static>,
    control: Cell<types::control>,
    /// Numbers of files that were given back, and when.
    resting: RefCell<Vec<(Instant, u32)>>,
    totals: bool,
    links: Vec<(String, Link)>,
    followed: RefCell<FollowedProcesses>,
    clock: RefCell<ClockOffsets>,
    way: AttachMode,
    without: Vec<&'static str>,
    refused: Vec<u32>,
}

impl Tracer {
    /// Loads the programs, configures what they trace, and attaches them.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn start(trace: &Trace<'_>) -> Result<Self, TraceError> {
        let Trace { processes, way, .. } = *trace;
        prepare()?;
        let types = libbpf_rs::btf::Btf::from_vmlinux().map_err(|error| load_error(&error))?;
        let has = |name: &str| types.type_by_name::<libbpf_rs::btf::BtfType<'_>>(name).is_some();
        let mut failed = None;
        for tried in [AttachMode::Vfs, AttachMode::Calls]
            .into_iter()
            .filter(|tried| way.is_none_or(|way| way == *tried))
        {
            match Self::load_most(tried, trace, &has) {
                Some(Ok(mut tracer)) => {
                    for process in processes {
                        match tracer.follow(*process) {
                            Err(_) if !tracer.has_room() => tracer.refused.push(*process),
                            followed => followed?,
                        }
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

    /// Loads as many programs of a way as the kernel accepts; `None` if it lacks a required one.
    fn load_most(
        way: AttachMode,
        trace: &Trace<'_>,
        has: &dyn Fn(&str) -> bool,
    ) -> Option<Result<Self, TraceError>> {
        let load = |refused: &[&str]| {
            let mut plan = ProgramPlan::new(way, refused, has)?;
            if trace.mode == TraceMode::EachAndPages {
                // The user asked for it, so nothing is traced without it.
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
            // It may fail without the optional parts, too.
            Err(_) => match load(&parts)? {
                Ok(tracer) => drop(tracer),
                Err(error) => return Some(Err(error)),
            },
        }
        // A refused part must not prevent the others.
        let is_refused = |part: &&'static str| {
            let others: Vec<_> = parts.iter().copied().filter(|other| other != part).collect();
            !matches!(load(&others), Some(Ok(_)))
        };
        let refused: Vec<_> = parts.iter().copied().filter(is_refused).collect();
        load(&refused)
    }

    fn load(plan: &ProgramPlan, way: AttachMode, trace: &Trace<'_>) -> Result<Self, TraceError> {
        let mode = trace.mode;
        let error = |error: libbpf_rs::Error| load_error(&error);
        // The skeleton borrows a place for a pointer for as long as it lives: it is leaked, eight bytes for each try.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = IoSkelBuilder::default().open(place).map_err(error)?;
        for mut program in open.open_object_mut().progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(plan.programs.contains(&name.as_str()));
        }
        let settings = open.maps.rodata_data.as_deref_mut();
        let settings = settings.ok_or_else(|| TraceError::Load("the programs have no settings".into()))?;
        let totals = match mode {
            TraceMode::Totals(room) => Some(room),
            TraceMode::Each | TraceMode::EachAndPages => None,
        };
        settings.live = totals.is_some();
        settings.uring_seen = plan.has_uring();
        settings.pseudo_seen = trace.pseudo;
        settings.page_shift = rustix::param::page_size().ilog2();
        // The kernel cuts names in the same way; a zero stays at the end.
        let room = settings.program_name.len() - 1;
        let name = trace.program.unwrap_or_default().bytes().take(room);
        settings.program_name.iter_mut().zip(name).for_each(|(to, byte)| *to = byte);
        // What nothing would use would take its memory at once.
        open.maps.usages.set_max_entries(totals.map_or(1, |room| room.files)).map_err(error)?;
        if let Some(room) = totals {
            open.maps.ring.set_max_entries(room.ring_bytes).map_err(error)?;
        }
        let mut tracer = Self {
            skeleton: open.load().map_err(error)?,
            // Zeroed memory of the programs is of generation 0.
            control: Cell::new(types::control { generation: 1, ..types::control::default() }),
            resting: RefCell::default(),
            totals: totals.is_some(),
            links: Vec::new(),
            followed: RefCell::default(),
            clock: RefCell::new(ClockOffsets::new(sys::realtime_minus_monotonic_ns())),
            way,
            without: plan.without.clone(),
            refused: Vec::new(),
        };
        tracer.changed(tracer.control.get())?;
        // Not by the skeleton: if one program is refused, it leaves the others attached for good.
        let mut links = Vec::new();
        for program in tracer.skeleton.object_mut().progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if plan.programs.contains(&name.as_str()) {
                links.push((name, program.attach().map_err(error)?));
            }
        }
        tracer.links = links;
        Ok(tracer)
    }

    /// Those of the processes to trace that there was no room for: there are more than [`MAX_PROCESSES`] of them and of those
    /// with the name of the program.
    pub fn refused(&self) -> &[u32] {
        &self.refused
    }

    /// How accesses are seen, and which are not, in one line.
    pub fn way(&self) -> String {
        match self.without.as_slice() {
            [] => self.way.name().to_string(),
            without => format!("{}, without {}", self.way.name(), without.join(" and ")),
        }
    }

    /// Follows one more process.
    ///
    /// # Errors
    /// The table of processes is full ([`MAX_PROCESSES`]).
    pub fn follow(&self, process: u32) -> Result<(), TraceError> {
        update(&self.skeleton.maps.processes, &process.to_ne_bytes(), &1u32.to_ne_bytes())?;
        self.followed.borrow_mut().add(process);
        self.changed(self.control.get())
    }

    fn has_room(&self) -> bool {
        self.skeleton.maps.processes.keys().count() < MAX_PROCESSES
    }

    /// Stops following a process that has ended: another process may soon have its id.
    ///
    /// # Errors
    /// The process was not followed.
    pub fn leave(&self, process: u32) -> Result<(), TraceError> {
        let processes = &self.skeleton.maps.processes;
        processes.delete(&process.to_ne_bytes()).map_err(|error| load_error(&error))?;
        self.followed.borrow_mut().remove(process);
        self.changed(self.control.get())
    }

    /// Ignores a file from now on, in the kernel, and frees its number.
    ///
    /// # Errors
    /// The table of files cannot be changed.
    pub fn ignore(&self, key: FileKey, number: u32) -> Result<(), TraceError> {
        let key = types::file_key::from(key);
        update(&self.skeleton.maps.files, sys_bpf::bytes_of(&key), &IGNORED.to_ne_bytes())?;
        self.resting.borrow_mut().push((Instant::now(), number));
        self.changed(self.control.get())
    }

    /// Forgets files, and frees their numbers for later ones; an ignored file has none. A file that is accessed again
    /// is reported as a new [`KernelEvent::File`].
    ///
    /// # Errors
    /// The table of files cannot be changed.
    pub fn release(&self, files: &[(FileKey, Option<u32>)]) -> Result<(), TraceError> {
        for (key, number) in files {
            let key = types::file_key::from(*key);
            self.skeleton.maps.files.delete(sys_bpf::bytes_of(&key)).map_err(|error| load_error(&error))?;
            self.resting.borrow_mut().extend(number.map(|number| (Instant::now(), number)));
        }
        self.changed(self.control.get())
    }

    /// Gives numbers that have rested back to the programs.
    fn give_back(&self) -> Result<(), TraceError> {
        let mut resting = self.resting.borrow_mut();
        let (rested, rest): (Vec<_>, Vec<_>) =
            resting.drain(..).partition(|(since, _)| since.elapsed() >= REST);
        *resting = rest;
        for (_, number) in rested {
            // A number beyond the table had no figures.
            if self.totals {
                let none = types::usage::default();
                let _ = update(&self.skeleton.maps.usages, &number.to_ne_bytes(), sys_bpf::bytes_of(&none));
            }
            update(&self.skeleton.maps.free_numbers, &[], &number.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Tells the programs that their memory of processes and files is out of date.
    fn changed(&self, mut control: types::control) -> Result<(), TraceError> {
        control.some = self.followed.borrow().bits();
        control.generation += 1;
        self.control.set(control);
        update(&self.skeleton.maps.data_control, &0u32.to_ne_bytes(), sys_bpf::bytes_of(&control))
    }

    /// Passes the figures of each file, with its number, to `each`: those since it was first seen ([`TraceMode::Totals`]).
    /// All of them would take megabytes.
    ///
    /// # Errors
    /// The table cannot be read. Some may have been passed on.
    pub fn each_usage(&self, mut each: impl FnMut(u32, FileKey, FileUsage)) -> io::Result<()> {
        let (files, figures) = (&self.skeleton.maps.files, &self.skeleton.maps.usages);
        for key in files.keys() {
            // A file without room has no figures; its accesses count as lost.
            let Some(number) = lookup(files, &key)? else { continue };
            let value = lookup(figures, &number)?;
            if let (Some(key), Some(usage)) = (sys_bpf::read(&key), value.as_deref().and_then(usage))
                && let Some(number) = number.first_chunk()
                && usage != FileUsage::default()
            {
                each(u32::from_ne_bytes(*number), FileKey::from(&key), usage);
            }
        }
        Ok(())
    }

    /// What was lost so far.
    pub fn losses(&self) -> IoLosses {
        let mut losses = IoLosses { programs_skipped: self.statistics().skipped, ..IoLosses::default() };
        for index in 0..6u32 {
            let value = lookup(&self.skeleton.maps.losses, &index.to_ne_bytes()).ok().flatten();
            if let Some(bytes) = value.as_deref().and_then(|value| value.first_chunk()) {
                losses.set(index as u8 + 1, u64::from_ne_bytes(*bytes));
            }
        }
        losses
    }

    /// Whether the kernel lets this process read the figures with its present capabilities.
    pub fn is_readable(&self) -> bool {
        lookup(&self.skeleton.maps.losses, &0u32.to_ne_bytes()).is_ok()
    }

    /// How long the programs have run so far, in whatever thread that was; `None` if the kernel does not measure it
    /// (`kernel.bpf_stats_enabled`).
    pub fn run_time(&self) -> Option<Duration> {
        self.statistics().run_time()
    }

    /// Notices whether the clock was set.
    fn look_at_clock(&self) {
        let now = sys::nanoseconds(ClockId::Monotonic);
        self.clock.borrow_mut().note(now, sys::realtime_minus_monotonic_ns());
    }

    fn statistics(&self) -> ProgramStatistics {
        ProgramStatistics::of_all(self.skeleton.object().progs().filter(|program| program.autoload()))
    }

    /// Passes records to `each` until `tick`, which is called ten times a second, returns `false`. Records of what
    /// happened before that may still come afterwards: all of them have come when this returns.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run(
        &self,
        mut each: impl FnMut(KernelEvent<'_>),
        mut tick: impl FnMut() -> bool,
    ) -> io::Result<()> {
        self.run_with(&mut (), |(), event| each(event), |()| tick())
    }

    /// The same; both get `state`.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run_with<S>(
        &self,
        state: &mut S,
        mut each: impl FnMut(&mut S, KernelEvent<'_>),
        mut tick: impl FnMut(&mut S) -> bool,
    ) -> io::Result<()> {
        // The ring's callback and the tick never run at the same time, which the compiler cannot know.
        let state = std::cell::RefCell::new(state);
        let until = std::cell::Cell::new(Some(Instant::now() + DRAIN));
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.ring, |bytes: &[u8]| {
                if let Some(event) = parse(bytes, &self.clock.borrow()) {
                    each(*state.borrow_mut(), event);
                }
                // The record counts as read; the next ones wait until the tick has run.
                if is_over(until.get()) { -libc::EAGAIN } else { 0 }
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        loop {
            until.set(Some(Instant::now() + DRAIN));
            self.look_at_clock();
            drained(ring.poll(Duration::from_millis(100)))?;
            // The programs wake this process only if the ring fills quickly.
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

pub(crate) fn update(map: &MapMut<'_>, key: &[u8], value: &[u8]) -> Result<(), TraceError> {
    map.update(key, value, MapFlags::ANY).map_err(|error| load_error(&error))
}

pub(crate) fn lookup(map: &MapMut<'_>, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
    map.lookup(key, MapFlags::ANY).map_err(io::Error::other)
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// Runs a program whenever a timer fires; `None` if the kernel refuses. The link closes the timer.
pub(crate) fn attach_timer(program: &ProgramMut<'_>, timer: OwnedFd) -> Option<Link> {
    let link = program.attach_perf_event(timer.as_raw_fd()).ok()?;
    let _closed_by_the_link = timer.into_raw_fd();
    Some(link)
}

/// The result of reading the ring; an interruption or the end of [`DRAIN`] is no error.
pub(crate) fn drained(outcome: libbpf_rs::Result<()>) -> io::Result<()> {
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

/// The capability that may be missing, for an error.
fn without_sys_admin() -> &'static str {
    if privileges::holds(capability::SYS_ADMIN) { "" } else { " (this kernel may require CAP_SYS_ADMIN)" }
}

pub(crate) fn load_error(error: &libbpf_rs::Error) -> TraceError {
    match error.kind() {
        // If the process holds both capabilities, the kernel's verifier refused.
        libbpf_rs::ErrorKind::PermissionDenied
            if !privileges::holds(capability::BPF) || !privileges::holds(capability::PERFMON) =>
        {
            TraceError::Permission(error.to_string())
        }
        _ => TraceError::Load(format!("{error:#}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;

    /// Of this thread's own reads, with the program that sees their ends detached for one of them: as if the kernel
    /// skipped it.
    #[test]
    fn an_access_whose_end_was_missed_is_replaced_by_the_next() {
        for way in [AttachMode::Vfs, AttachMode::Calls] {
            let trace = Trace {
                processes: &[std::process::id()],
                program: None,
                mode: TraceMode::Each,
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
            for program in tracer.skeleton.object_mut().progs_mut() {
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
                        if let KernelEvent::Access { offset, asked: 16, thread: by, .. } = event
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

    #[test]
    fn processes_without_room_do_not_keep_the_others_from_being_traced() {
        // Nobody has these numbers.
        let many: Vec<u32> = (5_000_000..5_000_002 + MAX_PROCESSES as u32).collect();
        let trace =
            Trace { processes: &many, program: None, mode: TraceMode::Each, way: None, pseudo: false };
        match Tracer::start(&trace) {
            Ok(tracer) => assert_eq!(tracer.refused(), &many[MAX_PROCESSES..]),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    #[test]
    fn a_process_that_is_no_longer_followed_takes_its_bit_along() {
        let (first, second) = (std::process::id(), std::process::id() + 1);
        let trace =
            Trace { processes: &[first], program: None, mode: TraceMode::Each, way: None, pseudo: false };
        let tracer = match Tracer::start(&trace) {
            Ok(tracer) => tracer,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let before = tracer.control.get().some;
        for _ in 0..300 {
            tracer.follow(second).unwrap();
            assert_ne!(tracer.control.get().some, before);
            tracer.leave(second).unwrap();
        }
        assert_eq!(tracer.control.get().some, before);
    }

    /// The kernel's id of this thread.
    fn sys_thread() -> u32 {
        let link = fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }
}
