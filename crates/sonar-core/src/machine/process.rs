//! The process of a server: its time, memory, threads and control group.

use std::sync::Arc;

use crate::Endpoint;

/// A process of a server at one moment. Counters count since it started.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessReading {
    /// The server that it is.
    pub server: Endpoint,
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot: distinguishes it from a later process with its number.
    pub started: u64,
    /// Processor time of all threads in user code and in the kernel, in nanoseconds, those that have ended included.
    pub cpu_ns: [u64; 2],
    /// Number of threads.
    pub thread_count: u64,
    /// Minor and major page faults.
    pub faults: [u64; 2],
    /// Memory in use, in bytes.
    pub resident: u64,
    /// Memory in use that is not of files, in bytes.
    pub anonymous: Option<u64>,
    /// Memory that is swapped out, in bytes.
    pub swapped: Option<u64>,
    /// Bytes read from and written to storage; `None` without permission.
    pub io: Option<[u64; 2]>,
    /// Open file descriptors; `None` without permission.
    pub descriptors: Option<u64>,
    /// The most file descriptors that it may open; `None` if unlimited or unknown.
    pub descriptor_limit: Option<u64>,
    /// Its threads by number, each once; empty if their times are unknown.
    pub threads: Vec<ThreadReading>,
    /// `threads` lacks some, because there are too many.
    pub threads_left_out: bool,
    /// Its control group.
    pub control_group: ControlGroup,
}

/// A thread at one moment (`/proc/PID/task/TID/schedstat`). Counters count since it started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadReading {
    /// Its number.
    pub id: u32,
    /// Its name, as the kernel keeps it.
    pub name: Arc<str>,
    /// Nanoseconds on a processor.
    pub run_ns: u64,
    /// Nanoseconds ready, waiting for a processor.
    pub wait_ns: u64,
    /// Times that it was given a processor.
    pub switches: u64,
}

/// The control group that limits a process most, of version 1 or 2. Counters count since it was created.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct ControlGroup {
    /// How many processors it allows.
    pub cpu_limit: Option<f64>,
    /// Nanoseconds that its threads were stopped for lack of quota.
    pub throttled_ns: Option<u64>,
    /// Periods, and those in which threads were stopped.
    pub periods: Option<(u64, u64)>,
    /// Memory in use, page cache included, in bytes.
    pub memory: Option<u64>,
    /// The most memory that it allows, in bytes.
    pub memory_limit: Option<u64>,
}

impl ProcessReading {
    /// Whether both are of the same process.
    pub(super) fn is_same_process(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// Processor time of all its threads, in nanoseconds.
    pub(super) fn all_cpu_ns(&self) -> u64 {
        self.cpu_ns[0].saturating_add(self.cpu_ns[1])
    }
}
