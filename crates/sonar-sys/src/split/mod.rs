//! Divides the time of operations of MongoDB servers, by eBPF.
//!
//! The programs in the kernel (`bpf/split.bpf.c`) follow the threads of chosen processes: which request a thread has
//! received, whether it runs, waits for a processor or is blocked, and in which system call. They emit one record for
//! each operation. [`SplitTracer`] loads them and reads the records.

mod records;
pub(crate) mod skeleton;

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, RingBufferBuilder};
use sonar_core::time_split::{ThreadOperation, TimeSplit};

use crate::ebpf::{TraceError, drained, load_error, lookup, update};
use crate::{sys, sys_bpf};
use records::parse;
use skeleton::{SplitSkel, SplitSkelBuilder, types};

/// Threads whose time can be divided at once.
pub const MAX_THREADS: u32 = 8192;

/// What the programs could not divide, or could not report.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SplitLosses {
    /// Operations without a record: the ring was full.
    pub ring_full: u64,
    /// Events of threads beyond [`MAX_THREADS`].
    pub threads_full: u64,
    /// Headers that could not be read from a thread's memory.
    pub unreadable: u64,
    /// Replies to another request than the one that the thread had received: it does not serve one request after the
    /// other.
    pub foreign_replies: u64,
    /// Events that the kernel skipped because the same program was running on that processor.
    pub programs_skipped: u64,
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
}

/// The programs, loaded and attached until this is dropped.
pub struct SplitTracer {
    skeleton: SplitSkel<'static>,
    control: Cell<types::split_control>,
    clock_offset_ns: u64,
    _links: Vec<Link>,
}

impl SplitTracer {
    /// Loads and attaches the programs, for these processes by their ids in the initial process namespace.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn start(processes: &[u32]) -> Result<Self, TraceError> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(TraceError::NoBtf);
        }
        // Otherwise libbpf writes the verifier's log to standard error.
        libbpf_rs::set_print(None);
        let error = |error: libbpf_rs::Error| load_error(&error);
        // The skeleton borrows a place for a pointer for as long as it lives: it is leaked, eight bytes for each try.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut skeleton = SplitSkelBuilder::default().open(place).map_err(error)?.load().map_err(error)?;
        let mut links = Vec::new();
        for program in skeleton.object_mut().progs_mut() {
            links.push(program.attach().map_err(error)?);
        }
        let tracer = Self {
            skeleton,
            // Zeroed memory of the programs is of generation 0.
            control: Cell::new(types::split_control { generation: 1, ..types::split_control::default() }),
            clock_offset_ns: sys::realtime_minus_monotonic_ns(),
            _links: links,
        };
        for process in processes {
            tracer.follow(*process)?;
        }
        Ok(tracer)
    }

    /// Follows one more process.
    ///
    /// # Errors
    /// The table of processes is full (64).
    pub fn follow(&self, process: u32) -> Result<(), TraceError> {
        update(&self.skeleton.maps.split_processes, &process.to_ne_bytes(), &1u32.to_ne_bytes())?;
        let mut control = self.control.get();
        control.some[process as usize / 64 % 4] |= 1 << (process % 64);
        self.changed(control)
    }

    /// Stops following a process.
    ///
    /// # Errors
    /// The process was not followed.
    pub fn leave(&self, process: u32) -> Result<(), TraceError> {
        let processes = &self.skeleton.maps.split_processes;
        processes.delete(&process.to_ne_bytes()).map_err(|error| load_error(&error))?;
        self.changed(self.control.get())
    }

    fn changed(&self, mut control: types::split_control) -> Result<(), TraceError> {
        control.generation += 1;
        self.control.set(control);
        update(&self.skeleton.maps.data_control, &0u32.to_ne_bytes(), sys_bpf::bytes_of(&control))
    }

    /// Passes operations that have ended to `each` until `tick`, which is called ten times a second, returns `false`.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run(
        &self,
        mut each: impl FnMut(ThreadOperation),
        mut tick: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let offset = self.clock_offset_ns;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.split_ring, |bytes: &[u8]| {
                if let Some(operation) = parse(bytes, offset) {
                    each(operation);
                }
                0
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        loop {
            std::thread::sleep(Duration::from_millis(100));
            drained(ring.consume())?;
            if !tick() {
                return drained(ring.consume());
            }
        }
    }

    /// The time of each thread outside operations.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn threads(&self) -> io::Result<Vec<ThreadTime>> {
        let mut threads = Vec::new();
        for number in 0..MAX_THREADS {
            let state = lookup(&self.skeleton.maps.split_threads, &number.to_ne_bytes())?;
            let state: Option<types::split_thread> = state.as_deref().and_then(sys_bpf::read);
            if let Some(state) = state.filter(|state| state.owner != 0 && state.followed != 0) {
                let (split, idle_ns) = records::split_of(&state.outside);
                threads.push(ThreadTime { thread: state.owner, split, idle_ns });
            }
        }
        Ok(threads)
    }

    /// Whether the kernel lets this process read the figures with its present capabilities.
    pub fn is_readable(&self) -> bool {
        lookup(&self.skeleton.maps.split_losses, &0u32.to_ne_bytes()).is_ok()
    }

    /// What was lost so far.
    pub fn losses(&self) -> SplitLosses {
        let loss = |index: u32| {
            let map = &self.skeleton.maps.split_losses;
            let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten();
            value.and_then(|value| value.first_chunk().copied()).map_or(0, u64::from_ne_bytes)
        };
        let programs = self.skeleton.object().progs();
        SplitLosses {
            ring_full: loss(0),
            threads_full: loss(1),
            unreadable: loss(2),
            foreign_replies: loss(3),
            programs_skipped: programs
                .map(|program| sys_bpf::program_statistics(program.as_fd()).unwrap_or_default().skipped)
                .sum(),
        }
    }
}

#[cfg(test)]
mod tests;
