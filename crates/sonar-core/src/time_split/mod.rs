//! Where the time of an operation went inside the server.
//!
//! The parts are measured at the server's thread, so they add up to the time from the moment when the thread had
//! received the whole request until it had sent the whole reply.

mod activity;
mod blockers;
mod connection_sample;
mod join;
mod row_blockers;
mod row_split;
mod rows;
mod server_evidence;
mod server_join;
mod totals;
mod waits;

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::stacks::ThreadSample;
use crate::{Endpoint, Timestamp};

pub use activity::{Activity, ActivityInterval, MAX_INTERVALS};
pub use blockers::{Blocker, MAX_PENDING_BLOCKS};
pub use connection_sample::ConnectionSample;
pub use join::{JoinCounts, JoinedOperation, MAX_PENDING, SplitJoiner, WireOperation};
pub use row_blockers::{EndedWaits, RowBlockers};
pub use row_split::{MAX_ROW_BLOCKERS, MAX_ROW_FILES, MAX_ROW_WAITS, RowBlocker, RowSplit};
pub use rows::{MAX_SPLIT_ROWS, ShapeOrigin, ShapeSplit, SplitResult, SplitRowKey, SplitTable};
pub use server_evidence::{MAX_EVIDENCE_PLANS, ServerEvidence};
pub use server_join::{
    MAX_JOINABLE, ServerJoinCounts, ServerJoined, ServerJoiner, ServerOperation, TracedOperation,
};
pub use totals::{FileReads, FileTotal, WaitTotal};
pub use waits::{MAX_ALL_WAITS, MAX_PENDING_WAITS, PendingWaits};

/// Stands for all classes, or all files, that have no entry of their own.
pub const OTHER: &str = "";

/// What a thread did, or waited for. The discriminants are those of `enum part` in `bpf/split.h`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TimePart {
    /// On a processor.
    Cpu = 0,
    /// Ready to run, but no processor was free.
    RunQueue,
    /// It gave up its processor by `sched_yield`.
    Yield,
    /// Blocked in a read of a file.
    Read,
    /// Blocked outside any system call: a page that was not in memory.
    Fault,
    /// Blocked in a write to a file.
    Write,
    /// Blocked in `fsync`, `fdatasync` or their like.
    Flush,
    /// Blocked in a futex: a mutex, a semaphore, a condition variable.
    Futex,
    /// Blocked in `poll` or its like: since 4.2 a lock, flow control, replication, or another node.
    Poll,
    /// Blocked in `select`: WiredTiger's pause before it tries again.
    Backoff,
    /// Blocked in `nanosleep`: the pause after a write conflict.
    Sleep,
    /// Blocked in sending to the client.
    Send,
    /// Blocked on a socket of another server.
    Peer,
    /// Blocked in any other system call.
    Other,
}

impl TimePart {
    /// All parts, in the order of `enum part`.
    pub const ALL: [Self; 14] = [
        Self::Cpu,
        Self::RunQueue,
        Self::Yield,
        Self::Read,
        Self::Fault,
        Self::Write,
        Self::Flush,
        Self::Futex,
        Self::Poll,
        Self::Backoff,
        Self::Sleep,
        Self::Send,
        Self::Peer,
        Self::Other,
    ];

    /// The stable name in machine output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::RunQueue => "run_queue",
            Self::Yield => "yield",
            Self::Read => "file_read",
            Self::Fault => "page_fault",
            Self::Write => "file_write",
            Self::Flush => "flush",
            Self::Futex => "futex",
            Self::Poll => "poll",
            Self::Backoff => "backoff",
            Self::Sleep => "sleep",
            Self::Send => "send",
            Self::Peer => "other_server",
            Self::Other => "other",
        }
    }
}

/// Nanoseconds by part.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeSplit([u64; TimePart::ALL.len()]);

impl TimeSplit {
    /// The sum of all parts, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Adds another split, part by part.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(part);
        }
    }

    /// The time since an earlier state of the same sums.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut split = *self;
        for (part, before) in split.0.iter_mut().zip(earlier.0) {
            *part = part.saturating_sub(before);
        }
        split
    }

    /// Parts with their nanoseconds, in the order of [`TimePart::ALL`].
    pub fn parts(&self) -> impl Iterator<Item = (TimePart, u64)> {
        TimePart::ALL.into_iter().zip(self.0)
    }
}

impl Index<TimePart> for TimeSplit {
    type Output = u64;

    fn index(&self, part: TimePart) -> &u64 {
        &self.0[part as usize]
    }
}

impl IndexMut<TimePart> for TimeSplit {
    fn index_mut(&mut self, part: TimePart) -> &mut u64 {
        &mut self.0[part as usize]
    }
}

/// A file that an operation waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FileWait {
    /// Inode.
    pub inode: u64,
    /// Device, in the kernel's own encoding.
    pub device: u32,
    /// Reads that waited.
    pub reads: u32,
    /// Those of them that began where the thread's last read of the file had ended.
    pub in_order: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Time blocked in them, in nanoseconds.
    pub wait_ns: u64,
}

/// A thread that ended waits of an operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Waker {
    /// Its id.
    pub thread: u32,
    /// The start of the operation that it executed at that time; `None` if it executed none.
    pub operation_start: Option<Timestamp>,
    /// How many waits.
    pub count: u32,
    /// How long the operation had waited, in nanoseconds.
    pub wait_ns: u64,
}

/// An operation as a thread of the server executed it.
#[derive(Clone, Debug)]
pub struct ThreadOperation {
    /// The server's process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The thread's name, for example `conn41`.
    pub thread_name: String,
    /// The server's and the client's end of the connection; `None` for a socket of another family.
    pub connection: Option<(Endpoint, Endpoint)>,
    /// `requestID` of the request; of a continued reply, that of the reply before it.
    pub request_id: u32,
    /// Number of the opcode of the request.
    pub opcode: u32,
    /// When the thread received the first bytes of the request.
    pub received_from: Timestamp,
    /// When it had received the whole request, or was woken to receive the rest of it.
    pub start: Timestamp,
    /// When it had sent the whole reply.
    pub end: Timestamp,
    /// When it last lost its processor between the operation before and this one, and when it got one again.
    pub preempted: Option<(Timestamp, Timestamp)>,
    /// How long the request had waited by then for that processor, in nanoseconds: it belongs to the operation, and to
    /// [`TimePart::RunQueue`]. 0 until the request's arrival is known.
    pub queued_before_ns: u64,
    /// From `start` to `end`, and `queued_before_ns`, in nanoseconds of one clock.
    pub duration_ns: u64,
    /// Where that time went.
    pub split: TimeSplit,
    /// How often it blocked or lost the processor.
    pub switches: u64,
    /// Reads of files by system calls.
    pub reads: u32,
    /// Their bytes.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub write_bytes: u64,
    /// Bytes that the thread caused to be read from devices.
    pub device_bytes: u64,
    /// Page faults that read from a device.
    pub faults: u32,
    /// Bytes of the request; 0 for a continued reply.
    pub request_bytes: u32,
    /// Bytes of the reply.
    pub reply_bytes: u32,
    /// It continued a reply: no request was received.
    pub is_exhaust: bool,
    /// It had no reply.
    pub is_unacknowledged: bool,
    /// Its request came together with the beginning of the next one, so the division between the two is unknown.
    pub is_pipelined: bool,
    /// Files that it waited for, at most four; `has_all_files` is false if there were more.
    pub files: Vec<FileWait>,
    /// Whether `files` has all of them.
    pub has_all_files: bool,
    /// Threads of the server that ended its waits, at most four.
    pub wakers: Vec<Waker>,
    /// Whether `wakers` is complete.
    pub has_all_wakers: bool,
    /// It ended a wait of another thread.
    pub woke_others: bool,
}

impl ThreadOperation {
    /// What identifies it among all operations of the machine.
    pub fn key(&self) -> OperationKey {
        (self.thread, self.start)
    }

    /// The most bytes outside of it: a name as long as the kernel keeps one, four files and four wakers.
    pub const MAX_HEAP: usize = 16 + 4 * size_of::<FileWait>() + 4 * size_of::<Waker>();

    /// The bytes outside of it.
    pub fn heap_bytes(&self) -> usize {
        self.thread_name.capacity()
            + self.files.capacity() * size_of::<FileWait>()
            + self.wakers.capacity() * size_of::<Waker>()
    }
}

/// A long wait of an operation, or a sample of it on a processor, with the stack of its thread.
#[derive(Clone, Debug)]
pub struct WaitSample {
    /// The server's process.
    pub process: u32,
    /// The operation: its thread, and its start.
    pub operation: OperationKey,
    /// What it was blocked in; [`TimePart::Cpu`] for a sample.
    pub part: TimePart,
    /// How long, in nanoseconds; for a sample the time that it stands for.
    pub wait_ns: u64,
    /// The thread's registers and stack at the end of the wait.
    pub sample: ThreadSample,
}

/// An operation that a thread executes now.
#[derive(Clone, Debug)]
pub struct InFlightOperation {
    /// The operation so far; its end is now.
    pub operation: ThreadOperation,
    /// What the thread does, or waits for.
    pub doing: TimePart,
    /// Since when.
    pub since: Timestamp,
}

/// What the thread of an operation in flight did when it was looked at.
#[derive(Clone, Debug)]
pub struct ThreadActivity {
    /// The thread's name, for example `conn41`.
    pub thread_name: String,
    /// What it did, or waited for.
    pub doing: TimePart,
    /// Since when.
    pub since: Timestamp,
    /// For how long until it was looked at, in nanoseconds.
    pub doing_ns: u64,
    /// The class of the wait; `None` if it did not wait, had begun to wait only then, or could not be sampled.
    pub class: Option<Arc<str>>,
    /// While it waits for a read: the file for which the operation has waited longest in earlier reads; `None` if there
    /// were none.
    pub file: Option<Arc<str>>,
    /// Who ended its earlier waits; `None` if there were none, or no followed thread ended them.
    pub blocker: Option<EarlierBlocker>,
}

/// The thread that ended the longest of the earlier waits of an operation in flight.
#[derive(Clone, Debug)]
pub struct EarlierBlocker {
    /// The thread.
    pub thread: u32,
    /// Its name; `None` if it executes no operation now.
    pub thread_name: Option<String>,
    /// How long the operation had waited until then, in nanoseconds.
    pub wait_ns: u64,
}

/// An operation by its thread and its start ([`ThreadOperation::start`]).
pub type OperationKey = (u32, Timestamp);

/// What an operation waited for, by the functions on its stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassifiedWait {
    /// What it was blocked in.
    pub part: TimePart,
    /// The class of the wait, for example `execution ticket`.
    pub class: Arc<str>,
    /// How long, in nanoseconds.
    pub wait_ns: u64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_added_one_by_one() {
        let mut split = TimeSplit::default();
        split[TimePart::Cpu] = 5;
        split[TimePart::Other] = u64::MAX - 3;
        let mut sum = split;
        sum.add(&split);
        assert_eq!(sum[TimePart::Cpu], 10);
        assert_eq!(sum[TimePart::Other], u64::MAX, "it does not wrap");
        assert_eq!(split.total_ns(), u64::MAX);
    }

    #[test]
    fn the_order_is_that_of_the_kernel_side() {
        let header = include_str!("../../../../bpf/split.h");
        let names = header.split("enum part {").nth(1).unwrap().split("};").next().unwrap();
        let names: Vec<_> = names
            .lines()
            .filter_map(|line| line.trim().strip_prefix("PART_")?.strip_suffix(','))
            .take(TimePart::ALL.len())
            .map(|name| name.replace('_', "").to_lowercase())
            .collect();
        let ours: Vec<_> = TimePart::ALL.iter().map(|part| format!("{part:?}").to_lowercase()).collect();
        assert_eq!(names, ours);
        for (index, part) in TimePart::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, index);
        }
    }
}
