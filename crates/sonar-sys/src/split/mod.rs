//! Divides the time of operations of MongoDB servers, by eBPF.
//!
//! The programs in the kernel (`bpf/split.bpf.c`) follow the threads of chosen processes: which request a thread has
//! received, whether it runs, waits for a processor or is blocked, and in which system call. They emit one record for
//! each operation. [`SplitTracer`] loads them and reads the records.
//!
//! The programs copy stacks. So who reads the records must not choose the processes: see
//! [`SplitTracer::give_up_control`].

mod following;
mod records;

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, RingBufferBuilder};
use rustix::time::ClockId;
use sonar_core::time_split::{ConnectionSample, InFlightOperation, ThreadOperation, TimeSplit, WaitSample};

use crate::clock_offsets::ClockOffsets;
use crate::ebpf::{TraceError, drained, load_error, lookup, update};
use crate::skeletons::split::{SplitSkel, SplitSkelBuilder, types};
use crate::sys_bpf::ProgramStatistics;
use crate::tls::{CallPrograms, TlsProbes, TlsSites};
use crate::{ebpf, sys, sys_bpf};
pub use following::FollowedProcess;
use following::Following;
use records::{parse, parse_wait};

/// In the table of processes: one that is watched, and not followed yet. No process is followed from this change on.
const WATCHED: u32 = 0;
/// Processes that can be followed at once.
pub const MAX_PROCESSES: usize = 64;
/// Threads whose time can be divided at once.
pub const MAX_THREADS: u32 = 8192;
/// Entries of the table of threads that one call of the kernel reads.
const THREADS_AT_ONCE: u32 = 256;
/// The most stacks of long waits to take in a second.
pub const MAX_STACKS_A_SECOND: u32 = 200;
/// How long a thread may take, on a busy machine, from sending a reply to the end of the call that sent it.
const SENT_LATE: Duration = Duration::from_millis(50);
/// Time between two samples of a processor, which show what its operation computes.
const SAMPLE_PERIOD: Duration = Duration::from_millis(20);
/// The most records to take from a ring before passing them on.
const MOST_AT_ONCE: usize = 65_536;
/// Waits from this length on are reported with their stack.
pub const LONG_WAIT: Duration = Duration::from_millis(1);

/// How much room the kernel has for what the programs report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SplitRoom {
    /// Bytes of the ring of operations, a power of two. It is read ten times a second.
    pub ring_bytes: u32,
}

impl SplitRoom {
    /// That of a command.
    pub const COMMAND: Self = Self { ring_bytes: 16 << 20 };
    /// That of the agent, which stays within the memory of its service.
    pub const AGENT: Self = Self { ring_bytes: 8 << 20 };
}

/// What the programs could not divide, or could not report.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SplitLosses {
    /// Operations without a record: the ring was full.
    pub ring_full: u64,
    /// Events of threads beyond [`MAX_THREADS`].
    pub threads_full: u64,
    /// Headers that could not be read from a thread's memory.
    pub unreadable: u64,
    /// Replies to a request other than the one that the thread had received: it does not serve one request after the
    /// other.
    pub foreign_replies: u64,
    /// How often a thread got or left a processor unseen. Where its time went is then unknown, or known except for how
    /// long it waited for a processor.
    pub switches_missed: u64,
    /// Long waits whose stack was not taken: there were more than [`MAX_STACKS_A_SECOND`], or the ring was full.
    pub stacks_skipped: u64,
    /// Events that the kernel skipped because the same program was running on that processor.
    pub programs_skipped: u64,
}

impl SplitLosses {
    /// What was lost since `earlier`, an earlier reading of the same counts.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            ring_full: self.ring_full.saturating_sub(earlier.ring_full),
            threads_full: self.threads_full.saturating_sub(earlier.threads_full),
            unreadable: self.unreadable.saturating_sub(earlier.unreadable),
            foreign_replies: self.foreign_replies.saturating_sub(earlier.foreign_replies),
            switches_missed: self.switches_missed.saturating_sub(earlier.switches_missed),
            stacks_skipped: self.stacks_skipped.saturating_sub(earlier.stacks_skipped),
            programs_skipped: self.programs_skipped.saturating_sub(earlier.programs_skipped),
        }
    }
}

/// What the programs report.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "events are handled one by one, and most are operations")]
pub enum SplitEvent {
    /// An operation has ended.
    Operation(ThreadOperation),
    /// A long wait of an operation has ended, or a processor was sampled while it executed the operation. The operation
    /// has not ended yet.
    Wait(WaitSample),
}

/// The time of a thread outside operations since it was first seen.
#[derive(Clone, Debug)]
pub struct ThreadTime {
    /// The thread.
    pub thread: u32,
    /// Where its time went.
    pub split: TimeSplit,
    /// Time that it waited for the next request, in nanoseconds.
    pub idle_ns: u64,
    /// It has waited for a request since it was first seen, so what it executes now began later.
    pub is_followed: bool,
}

/// The programs, loaded and attached until this is dropped.
pub struct SplitTracer {
    skeleton: SplitSkel<'static>,
    following: RefCell<Following>,
    clock: RefCell<ClockOffsets>,
    links: Vec<Link>,
    probes: TlsProbes,
}

impl SplitTracer {
    /// Loads and attaches the programs. `processes` are ids in the initial process namespace, `connections` says which
    /// of their connections to follow.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn start(
        processes: &[u32],
        connections: ConnectionSample,
        room: SplitRoom,
    ) -> Result<Self, TraceError> {
        ebpf::prepare()?;
        let error = |error: libbpf_rs::Error| load_error(&error);
        // The skeleton borrows a place for a pointer for as long as it lives: it is leaked, eight bytes for each try.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = SplitSkelBuilder::default().open(place).map_err(error)?;
        let settings = open.maps.rodata_data.as_deref_mut();
        let settings = settings.ok_or_else(|| TraceError::Load("the programs have no settings".into()))?;
        settings.stack_after_ns = LONG_WAIT.as_nanos() as u64;
        settings.stacks_a_second = MAX_STACKS_A_SECOND;
        settings.sample_period_ns = SAMPLE_PERIOD.as_nanos() as u64;
        settings.sample_every = connections.every.get().into();
        open.maps.split_ring.set_max_entries(room.ring_bytes).map_err(error)?;
        let types = libbpf_rs::btf::Btf::from_vmlinux().map_err(error)?;
        let programs = &mut open.progs;
        let probes = TlsProbes::prepare(
            &types,
            [
                &mut programs.split_tls_read_called,
                &mut programs.split_tls_read_returned,
                &mut programs.split_tls_write_called,
                &mut programs.split_tls_write_returned,
                &mut programs.split_tls_begun,
                &mut programs.split_tls_freed,
            ],
        );
        let mut skeleton = open.load().map_err(error)?;
        let mut links = Vec::new();
        let programs = &mut skeleton.progs;
        for program in [
            &mut programs.split_exit,
            &mut programs.split_switch,
            &mut programs.split_wake,
            &mut programs.split_thread_exit,
            &mut programs.split_exec,
        ] {
            links.push(program.attach().map_err(error)?);
        }
        let tracer = Self {
            skeleton,
            following: RefCell::default(),
            clock: RefCell::new(ClockOffsets::new(sys::realtime_minus_monotonic_ns())),
            links,
            probes,
        };
        for process in processes {
            tracer.follow(*process)?;
        }
        Ok(tracer)
    }

    /// Samples what operations compute, from now on: [`SplitEvent::Wait`] with [`TimePart::Cpu`](sonar_core::time_split::TimePart::Cpu). Returns `false` if the
    /// kernel has no timer for any processor, or refuses it.
    pub fn sample_processors(&mut self) -> bool {
        let program = &self.skeleton.progs.split_on_processor;
        let processors = libbpf_rs::num_possible_cpus().unwrap_or(1) as u32;
        let before = self.links.len();
        // A processor may be offline.
        self.links.extend((0..processors).filter_map(|processor| {
            let timer = sys_bpf::processor_timer(processor, SAMPLE_PERIOD.as_nanos() as u64).ok()?;
            sys_bpf::switch_timer(timer.as_fd(), true).ok()?;
            ebpf::attach_timer(program, timer)
        }));
        self.links.len() > before
    }

    /// Divides the time of encrypted operations, too, of all processes that map this TLS library, in which `sites` were
    /// found.
    ///
    /// # Errors
    /// Probes are in 64 files already, or the kernel refuses.
    pub fn attach_tls(&mut self, file: &File, sites: &TlsSites) -> Result<(), TraceError> {
        let programs = &self.skeleton.progs;
        let calls = CallPrograms {
            read: [&programs.split_tls_read_called, &programs.split_tls_read_returned],
            write: [&programs.split_tls_write_called, &programs.split_tls_write_returned],
            handshake: &programs.split_tls_begun,
            free: &programs.split_tls_freed,
        };
        self.probes.attach(&calls, file, sites).map(drop)
    }

    /// Keeps the rings and the tables that nobody can write, and gives up all other maps, in this process: it can follow
    /// no process any more, and leave none. Call it before any outside input is decoded. If servers are to be followed that
    /// start later, a helper process has its own copies of [`SplitTracer::controls`] by then, and decides.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn give_up_control(&self) -> io::Result<()> {
        let null = File::open("/dev/null")?;
        let maps = &self.skeleton.maps;
        let kept = [&maps.split_ring, &maps.split_stacks, &maps.split_threads, &maps.split_losses];
        let kept = kept.map(|map| map.as_fd().as_raw_fd());
        let others = self.skeleton.object().maps().filter(|map| !kept.contains(&map.as_fd().as_raw_fd()));
        others.into_iter().try_for_each(|map| sys_bpf::replace(map.as_fd(), null.as_fd()))
    }

    /// The maps that it takes to [`follow`](Self::follow) and to [`leave`](Self::leave) processes.
    pub fn controls(&self) -> [BorrowedFd<'_>; 3] {
        let maps = &self.skeleton.maps;
        [&maps.split_processes, &maps.data_control, &maps.split_skipped].map(|map| map.as_fd())
    }

    /// Follows one more process, from nothing.
    ///
    /// # Errors
    /// The table of processes is full ([`MAX_PROCESSES`]), or control was given up.
    pub fn follow(&self, process: u32) -> Result<(), TraceError> {
        self.follow_if(process, || true).map(drop)
    }

    /// Follows one more process, from nothing, if it is proven to be what it was chosen for. Returns whether it is followed.
    ///
    /// The proof is asked for while the programs watch the process, and before they record anything of it. If it ends or
    /// executes another program from then on, it is not followed, whatever the proof says.
    ///
    /// # Errors
    /// As [`follow`](Self::follow).
    pub fn follow_if(&self, process: u32, is_proven: impl FnOnce() -> bool) -> Result<bool, TraceError> {
        let mut next = self.following.borrow().next()?;
        next.add(process);
        // First of all the programs look at it, so that they notice if it ends or executes another program meanwhile.
        self.change(next)?;
        let since = self.following.borrow().generation();
        let (processes, key) = (&self.skeleton.maps.split_processes, process.to_ne_bytes());
        if let Err(error) = update(processes, &key, &WATCHED.to_ne_bytes()) {
            self.following.borrow_mut().remove(process);
            return Err(error);
        }
        // Where it has ended or executed another program, the programs have removed it.
        if is_proven() && processes.update(&key, &since.to_ne_bytes(), MapFlags::EXIST).is_ok() {
            return Ok(true);
        }
        self.leave(process).map(|()| false)
    }

    /// Stops following a process, and forgets its threads.
    ///
    /// # Errors
    /// The process was not followed, or the kernel's tables cannot be changed.
    pub fn leave(&self, process: u32) -> Result<(), TraceError> {
        let mut next = self.following.borrow().next()?;
        if !next.remove(process) {
            return Err(TraceError::Load(format!("process {process} is not followed")));
        }
        match self.skeleton.maps.split_processes.delete(&process.to_ne_bytes()) {
            // It has ended.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            deleted => deleted.map_err(|error| load_error(&error))?,
        }
        self.change(next)?;
        // The programs may not notice when its threads exit. Those of other processes that are skipped are skipped again
        // at their next request.
        for place in 0..MAX_THREADS {
            let nobody = [0; size_of::<types::skipped>()];
            update(&self.skeleton.maps.split_skipped, &place.to_ne_bytes(), &nobody)?;
        }
        Ok(())
    }

    /// Whether a process is followed. It is not any more once it has ended or executes another program. Takes the maps of
    /// [`SplitTracer::controls`].
    pub fn follows(&self, process: u32) -> bool {
        let found = lookup(&self.skeleton.maps.split_processes, &process.to_ne_bytes());
        found.is_ok_and(|found| found.is_some_and(|since| since != WATCHED.to_ne_bytes()))
    }

    /// The processes that were chosen, including those that have ended since.
    pub fn followed(&self) -> Vec<FollowedProcess> {
        self.following.borrow().all()
    }

    /// In a process that has given up control: what was decided elsewhere. The tables of threads are read accordingly.
    pub fn note_followed(&self, followed: &[FollowedProcess]) {
        self.following.borrow_mut().set(followed);
    }

    fn change(&self, next: Following) -> Result<(), TraceError> {
        let control = next.control();
        update(&self.skeleton.maps.data_control, &0u32.to_ne_bytes(), sys_bpf::bytes_of(&control))?;
        self.following.replace(next);
        Ok(())
    }

    /// Passes events to `each` until `tick`, called ten times a second, returns `false`. Long waits come before the
    /// operation to which they belong.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run(&self, mut each: impl FnMut(SplitEvent), mut tick: impl FnMut() -> bool) -> io::Result<()> {
        let maps = &self.skeleton.maps;
        let (operations, waits) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        // Bounded, because at very high rates records come as fast as they are read.
        let full = |taken: usize| if taken >= MOST_AT_ONCE { -libc::EAGAIN } else { 0 };
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&maps.split_ring, |bytes: &[u8]| {
                operations.borrow_mut().extend(parse(bytes, &self.clock.borrow()));
                full(operations.borrow().len())
            })
            .map_err(io::Error::other)?;
        let operation_ring = builder.build().map_err(io::Error::other)?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&maps.split_stacks, |bytes: &[u8]| {
                waits.borrow_mut().extend(parse_wait(bytes, &self.clock.borrow()));
                full(waits.borrow().len())
            })
            .map_err(io::Error::other)?;
        let wait_ring = builder.build().map_err(io::Error::other)?;
        let mut consume = || {
            self.look_at_clock();
            // Operations first: by the time one is read, its waits are in their ring.
            drained(operation_ring.consume())?;
            drained(wait_ring.consume())?;
            waits.borrow_mut().drain(..).map(SplitEvent::Wait).for_each(&mut each);
            operations.borrow_mut().drain(..).map(SplitEvent::Operation).for_each(&mut each);
            Ok(())
        };
        loop {
            std::thread::sleep(Duration::from_millis(100));
            consume()?;
            if !tick() {
                // The client may have a reply before the call that sent it has ended.
                std::thread::sleep(SENT_LATE);
                return consume();
            }
        }
    }

    /// Notices whether the clock was set.
    fn look_at_clock(&self) {
        let now = sys::nanoseconds(ClockId::Monotonic);
        self.clock.borrow_mut().note(now, sys::realtime_minus_monotonic_ns());
    }

    /// The time of each thread outside operations.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn threads(&self) -> io::Result<Vec<ThreadTime>> {
        let time = |state: types::split_thread| {
            let (split, idle_ns) = records::split_of(&state.outside);
            ThreadTime { thread: state.owner, split, idle_ns, is_followed: state.phase > 0 || idle_ns > 0 }
        };
        Ok(self.states()?.into_iter().map(time).collect())
    }

    /// What threads execute now.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn in_flight(&self) -> io::Result<Vec<InFlightOperation>> {
        let states = self.states()?;
        self.look_at_clock();
        let clock = self.clock.borrow();
        let now = sys::nanoseconds(ClockId::Monotonic);
        let in_flight = |state| records::in_flight(state, now, &clock);
        Ok(states.iter().filter_map(in_flight).collect())
    }

    /// The states of the threads of followed processes.
    fn states(&self) -> io::Result<Vec<types::split_thread>> {
        let following = self.following.borrow();
        let all = &self.skeleton.maps.split_threads;
        let mut unread = MAX_THREADS;
        let mut states = Vec::new();
        for (_, state) in
            all.lookup_batch(THREADS_AT_ONCE, MapFlags::ANY, MapFlags::ANY).map_err(io::Error::other)?
        {
            unread -= 1;
            let state: Option<types::split_thread> = sys_bpf::read(&state);
            states.extend(state.filter(|state| state.owner != 0 && following.has(state)));
        }
        if unread > 0 {
            return Err(io::Error::other(format!(
                "{unread} of {MAX_THREADS} entries of the table of threads"
            )));
        }
        Ok(states)
    }

    /// Whether the kernel lets this process read the figures with its present capabilities.
    pub fn is_readable(&self) -> bool {
        lookup(&self.skeleton.maps.split_losses, &0u32.to_ne_bytes()).is_ok()
    }

    /// How long the programs have run so far, in whatever thread that was; `None` if the kernel does not measure it
    /// (`kernel.bpf_stats_enabled`).
    pub fn run_time(&self) -> Option<Duration> {
        ProgramStatistics::of_all(self.skeleton.object().progs()).run_time()
    }

    /// What was lost so far.
    pub fn losses(&self) -> SplitLosses {
        let loss = |index: u32| {
            let map = &self.skeleton.maps.split_losses;
            let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten();
            value.and_then(|value| value.first_chunk().copied()).map_or(0, u64::from_ne_bytes)
        };
        SplitLosses {
            ring_full: loss(0),
            threads_full: loss(1),
            unreadable: loss(2),
            foreign_replies: loss(3),
            switches_missed: loss(4),
            stacks_skipped: loss(5),
            programs_skipped: ProgramStatistics::of_all(self.skeleton.object().progs()).skipped,
        }
    }
}

#[cfg(test)]
mod tests;
