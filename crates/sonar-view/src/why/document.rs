//! The JSON document.

use serde::Serialize;
use sonar_core::time_split::{JoinCounts, TimePart};
use ts_rs::TS;

use super::activity::ActivityJson;
use super::disks::DiskLoadJson;
use super::files::{FileJson, FileWaitsJson};
use super::in_progress::InProgressJson;
use super::limits::ProcessLimitJson;
use super::parts::PartJson;
use super::server::{ServerEvidenceJson, ServerSourcesJson};
use crate::kit::About;
use crate::shown_part::ShownPart;

/// Where the time of operations went.
#[derive(Clone, Debug, Serialize, TS)]
pub struct WhyReport {
    /// Version of the schema.
    pub schema: u32,
    /// `why`.
    #[ts(type = "\"why\"")]
    pub kind: &'static str,
    /// Where it comes from.
    pub about: About,
    /// Processes that were traced.
    pub processes: Vec<u32>,
    /// Every how many connections one was followed, 1 if all were; the others are left out, also of `threads`.
    pub sample_every: u16,
    /// Length of the trace in seconds.
    pub seconds: f64,
    /// Processors of the machine.
    pub processors: usize,
    /// Processes whose control group limits processor time.
    pub limits: Vec<ProcessLimitJson>,
    /// Counted operations of all shapes.
    pub operations: u64,
    /// Average number of counted operations in progress at a time.
    pub active: f64,
    /// The same by part.
    pub active_parts: Vec<PartJson>,
    /// The same over time.
    pub activity: ActivityJson,
    /// The requested shapes, those with the most time first.
    pub shapes: Vec<ShapeTimeJson>,
    /// Shapes beyond those.
    pub shapes_left_out: usize,
    /// Operations of threads that no source names a shape of, by the name of the thread. They are in none of the sums
    /// above.
    pub unseen: Vec<ShapeTimeJson>,
    /// Files that operations of all shapes waited for, with these shapes; at most 8, the longest waits first.
    pub files: Vec<FileWaitsJson>,
    /// What the disks with these files did, as far as the kernel counts it: file systems without a block device of their
    /// own have none.
    pub disks: Vec<DiskLoadJson>,
    /// Operations of 100 ms or more that had not ended when the trace did; at most 20, the longest first.
    pub in_progress: Vec<InProgressJson>,
    /// Number of these operations, whether listed or not.
    pub in_progress_total: usize,
    /// What threads did outside operations, by the name of the thread.
    pub threads: Vec<ThreadRoleJson>,
    /// What was seen and what was not.
    pub coverage: SplitCoverageJson,
    /// Which logs and profiles of the server were read.
    pub server: ServerSourcesJson,
}

/// Where the time of one shape went.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ShapeTimeJson {
    /// What names the shape: `wire`, or `log` or `profile` for operations that were not captured; `thread_name` for
    /// those without a shape.
    pub origin: &'static str,
    /// The id of the shape; empty without a shape.
    pub shape_id: String,
    /// The command; without a shape, the role of the threads.
    pub command: String,
    /// `db.collection`.
    pub namespace: String,
    /// The shape with typed placeholders.
    pub typed: String,
    /// `served` or `issued`.
    pub role: &'static str,
    /// `user`, `internal` and so on; `unknown` without a shape.
    pub class: &'static str,
    /// The applications, those with the most operations first.
    pub apps: Vec<String>,
    /// Operations.
    pub operations: u64,
    /// Their time, from the arrival of the request until the reply was sent, in nanoseconds.
    pub total_ns: u64,
    /// Share of the time of all operations that are counted.
    pub share: f64,
    /// Mean time of an operation, in nanoseconds.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
    /// Where the time went, the largest part first. They add up to `total_ns`.
    pub parts: Vec<PartJson>,
    /// Reads of files by system calls, from the page cache or not.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Bytes that came from devices.
    pub device_bytes: u64,
    /// Bytes written to files.
    pub write_bytes: u64,
    /// Page faults that read from a device.
    pub faults: u64,
    /// How often operations blocked or lost the processor.
    pub switches: u64,
    /// Operations without a reply.
    pub unacknowledged: u64,
    /// Files that they waited for, the longest first.
    pub files: Vec<FileJson>,
    /// There were more files.
    pub has_other_files: bool,
    /// Who ended their waits, the longest first.
    pub blockers: Vec<BlockerJson>,
    /// Whether there were more blockers.
    pub has_other_blockers: bool,
    /// What the server's log or profiler says of them; null if it says nothing.
    pub server: Option<ServerEvidenceJson>,
    /// In words: what the time was spent on, the evidence, and what would help where the figures show it.
    pub answer: Vec<String>,
}

/// Who ended waits.
#[derive(Clone, Debug, Serialize, TS)]
pub struct BlockerJson {
    /// The thread's id.
    pub thread: u32,
    /// Its name; null if it ended.
    pub thread_name: Option<String>,
    /// Whether other threads that executed the same shape ended waits, too; the figures cover all these threads.
    pub has_others: bool,
    /// The shape that it executed; null if it executed none, or serves a connection that is not followed.
    pub shape_id: Option<String>,
    /// The command of that shape with its namespace.
    pub command: Option<String>,
    /// Waits.
    pub waits: u64,
    /// How long they had lasted, in nanoseconds.
    pub wait_ns: u64,
    /// Share of the time that operations waited in futexes and polls.
    pub share: f64,
}

/// What the threads of one name did outside operations.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ThreadRoleJson {
    /// The name without numbers: `conn`, `JournalFlusher`.
    pub role: String,
    /// Threads.
    pub threads: usize,
    /// On a processor, in nanoseconds.
    pub cpu_ns: u64,
    /// Waiting for a processor.
    pub run_queue_ns: u64,
    /// Blocked in reads of files and in page faults.
    pub read_ns: u64,
    /// Blocked in writes and flushes.
    pub write_ns: u64,
}

/// What was seen and what was not.
#[derive(Copy, Clone, Debug, Default, Serialize, TS)]
pub struct SplitCoverageJson {
    /// Operations whose time was divided.
    pub joined: u64,
    /// Operations of threads that were not seen on the wire.
    pub without_wire: u64,
    /// Operations of the wire that no traced thread executed, for example because they were in progress at the
    /// start.
    pub without_thread: u64,
    /// Parts of replies that no request asked for.
    pub continued: u64,
    /// Operations that cannot be divided, because their request came together with another one.
    pub pipelined: u64,
    /// Operations that cannot be divided, because another thread sent their reply.
    pub answered_elsewhere: u64,
    /// Replies of threads that do not serve one request after the other.
    pub foreign_replies: u64,
    /// Operations that the kernel could not report: its ring buffer was full.
    pub ring_full: u64,
    /// Events that were lost because the table of threads was full.
    pub threads_full: u64,
    /// Message headers that could not be read.
    pub unreadable: u64,
    /// Events that the kernel skipped.
    pub programs_skipped: u64,
    /// How often a thread got or left a processor unseen.
    pub switches_missed: u64,
    /// Waits whose blocker was not kept.
    pub blockers_turned_away: u64,
    /// Long waits without a class: there were too many.
    pub waits_without_class: u64,
    /// Packets that the kernel dropped.
    pub packets_dropped: u64,
    /// Connections encrypted with TLS that could not be read.
    pub encrypted_unread: u64,
    /// Reads and writes of TLS sessions whose connection is unknown.
    pub encrypted_unmapped: u64,
    /// Parts of encrypted connections that were lost in the kernel.
    pub encrypted_lost: u64,
}

impl ShapeTimeJson {
    /// The share of a part, 0 to 1.
    pub(super) fn share_of(&self, part: TimePart) -> f64 {
        let found = self.parts.iter().find(|shown| shown.part == ShownPart::Measured(part));
        found.map_or(0.0, |found| found.share)
    }
}

impl SplitCoverageJson {
    /// With the counts of the joiner.
    pub fn with_counts(self, counts: JoinCounts) -> Self {
        Self {
            joined: counts.joined,
            without_wire: counts.without_wire,
            without_thread: counts.without_thread,
            continued: counts.continued,
            pipelined: counts.pipelined,
            answered_elsewhere: counts.answered_elsewhere,
            ..self
        }
    }
}
