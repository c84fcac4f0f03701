//! The process of a server: its time, memory, threads and control group.

use std::sync::Arc;

use crate::Endpoint;
use crate::internals::over;

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
    /// How many processors it may run on, by its affinity.
    pub processors_allowed: Option<u32>,
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
    /// How many processors it allows; `None` if it has no quota, or it is not known whether it has one.
    pub cpu_limit: Option<f64>,
    /// Whether the quota, or that there is none, was read.
    pub is_cpu_limit_known: bool,
    /// Identifies the group that limits processor time, the inode of its folder: processes with the same share the limit.
    pub cpu_group: Option<u64>,
    /// Nanoseconds that its threads were stopped for lack of quota.
    pub throttled_ns: Option<u64>,
    /// Periods, and those in which threads were stopped.
    pub periods: Option<(u64, u64)>,
    /// Memory in use, page cache included, in bytes.
    pub memory: Option<u64>,
    /// The most memory that it allows, in bytes.
    pub memory_limit: Option<u64>,
    /// Of [`memory`](Self::memory) the page cache of files, which the kernel takes back when it is needed, in bytes.
    pub memory_files: Option<u64>,
    /// From this much memory on the kernel takes memory back and slows the group down, in bytes (version 2).
    pub memory_high: Option<u64>,
    /// Times that memory had to be taken back because a limit of memory was reached.
    pub limit_hits: Option<u64>,
    /// Of these, those at the limit that it allows, where the kernel kills: `max` and `oom` of `memory.events`, or
    /// `memory.failcnt`.
    pub memory_limit_hits: Option<u64>,
    /// Identifies the group that limits memory, as [`cpu_group`](Self::cpu_group).
    pub memory_group: Option<u64>,
    /// Processes of the group that the kernel killed for lack of memory, of the group, of one above it, or of the machine.
    pub out_of_memory_kills: Option<u64>,
    /// Tasks (threads of all processes).
    pub tasks: Option<u64>,
    /// The most tasks that it allows.
    pub task_limit: Option<u64>,
}

impl ControlGroup {
    /// How many processors a process can use at a time: the smallest of what the group allows and of `others` (the
    /// machine's processors, and those of its affinity). `None` if all are unknown.
    pub fn usable_processors(&self, others: [Option<u32>; 2]) -> Option<f64> {
        let others = others.into_iter().flatten().map(f64::from);
        others.chain(self.cpu_limit).filter(|count| *count > 0.0).min_by(f64::total_cmp)
    }

    /// Per cent of the memory that it allows which is in use and which the kernel cannot just take back; `None` without
    /// a limit.
    pub fn memory_used_percent(&self) -> Option<f64> {
        let used = self.memory?.saturating_sub(self.memory_files.unwrap_or(0));
        over(100.0 * used as f64, self.memory_limit? as f64)
    }

    /// Per cent of the tasks that it allows; `None` without a limit.
    pub fn tasks_percent(&self) -> Option<f64> {
        over(100.0 * self.tasks? as f64, self.task_limit? as f64)
    }

    /// Per cent of the periods between an `earlier` reading and this one in which threads were stopped for lack of
    /// quota; `None` if there was none.
    pub fn throttled_periods_percent(&self, earlier: &Self) -> Option<f64> {
        let (now, before) = self.periods.zip(earlier.periods)?;
        let stopped = now.1.checked_sub(before.1)?;
        over(100.0 * stopped as f64, now.0.checked_sub(before.0)? as f64)
    }
}

impl ProcessReading {
    /// How many processors it can use at a time: the smallest of what its control group allows, its affinity and the
    /// machine's processors. `None` if all are unknown.
    pub(super) fn usable_processors(&self, machine: Option<u32>) -> Option<f64> {
        self.control_group.usable_processors([machine, self.processors_allowed])
    }

    /// Whether both are of the same process.
    pub(super) fn is_same_process(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// Processor time of all its threads, in nanoseconds.
    pub(super) fn all_cpu_ns(&self) -> u64 {
        self.cpu_ns[0].saturating_add(self.cpu_ns[1])
    }
}
