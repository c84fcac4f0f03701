//! The JSON document.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::time_split::{JoinCounts, ShapeSplit, TimePart, TimeSplit};

use super::answer;
use crate::kit::About;
use crate::kit::json::line;

/// Files, blockers and applications of a shape that are shown.
const MAX_SHOWN: usize = 8;

/// Where the time of operations went.
#[derive(Clone, Debug, Serialize)]
pub struct WhyReport {
    /// Version of the schema.
    pub schema: u32,
    /// `why`.
    pub kind: &'static str,
    /// Where it comes from.
    pub about: About,
    /// Processes that were traced.
    pub processes: Vec<u32>,
    /// Length of the trace in seconds.
    pub seconds: f64,
    /// Processors of the machine.
    pub processors: usize,
    /// Operations in progress at a time, on average, of all shapes that are counted.
    pub active: f64,
    /// The same by part.
    pub active_parts: Vec<PartJson>,
    /// The shapes that were asked for, those with the most time first.
    pub shapes: Vec<ShapeTimeJson>,
    /// Shapes beyond those.
    pub shapes_left_out: usize,
    /// What threads did outside operations, by the name of the thread.
    pub threads: Vec<ThreadRoleJson>,
    /// What was seen and what was not.
    pub coverage: SplitCoverageJson,
}

/// A part of a time.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct PartJson {
    /// Stable name.
    pub part: &'static str,
    /// Nanoseconds, of all operations.
    pub ns: u64,
    /// Share of the whole, 0 to 1.
    pub share: f64,
    /// Operations that had any.
    pub operations: Option<u64>,
    /// Median of those, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// Their 99th percentile.
    pub p99_ns: Option<u64>,
}

/// Where the time of one shape went.
#[derive(Clone, Debug, Serialize)]
pub struct ShapeTimeJson {
    /// The id of the shape.
    pub shape_id: String,
    /// The command.
    pub command: String,
    /// `db.collection`.
    pub namespace: String,
    /// The shape with typed placeholders.
    pub typed: String,
    /// `served` or `issued`.
    pub role: &'static str,
    /// `user`, `internal` and so on.
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
    /// In words: what the time was spent on, with the evidence, and what would help where the figures show it.
    pub answer: Vec<String>,
}

/// A file that operations waited for.
#[derive(Clone, Debug, Serialize)]
pub struct FileJson {
    /// The collection or index, else the name of the file; null if it is not known any more.
    pub name: Option<String>,
    /// Device, in the kernel's own encoding.
    pub device: u32,
    /// Inode.
    pub inode: u64,
    /// Reads that waited.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time blocked in them, in nanoseconds.
    pub wait_ns: u64,
}

/// Who ended waits.
#[derive(Clone, Debug, Serialize)]
pub struct BlockerJson {
    /// The thread's id.
    pub thread: u32,
    /// Its name; null if it ended.
    pub thread_name: Option<String>,
    /// The shape that it executed; null if it serves no connection.
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
#[derive(Clone, Debug, Serialize)]
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
#[derive(Copy, Clone, Debug, Default, Serialize)]
pub struct SplitCoverageJson {
    /// Operations whose time was divided.
    pub joined: u64,
    /// Operations of threads that were not seen on the wire.
    pub without_wire: u64,
    /// Operations of the wire that no traced thread executed, for example because they are encrypted or were in
    /// progress at the start.
    pub without_thread: u64,
    /// Parts of replies that no request asked for.
    pub continued: u64,
    /// Operations that cannot be divided, because their request came together with another one.
    pub pipelined: u64,
    /// Replies of threads that do not serve one request after the other.
    pub foreign_replies: u64,
    /// Operations that the kernel could not report: its ring was full.
    pub ring_full: u64,
    /// Events of threads beyond the table of threads.
    pub threads_full: u64,
    /// Headers of messages that could not be read.
    pub unreadable: u64,
    /// Events that the kernel skipped.
    pub programs_skipped: u64,
    /// Waits whose blocker was not kept.
    pub blockers_turned_away: u64,
    /// Packets that the kernel dropped.
    pub packets_dropped: u64,
}

/// What was traced, as input of a report.
pub struct WhyTrace<'a> {
    /// Where it comes from.
    pub about: About,
    /// Processes.
    pub processes: Vec<u32>,
    /// Length in seconds.
    pub seconds: f64,
    /// Processors.
    pub processors: usize,
    /// The rows that are counted, those with the most time first.
    pub rows: &'a [ShapeSplit],
    /// How many of them are shown.
    pub limit: usize,
    /// The name of a file by device and inode.
    pub file_name: &'a dyn Fn(u32, u64) -> Option<String>,
    /// The name of a thread.
    pub thread_name: &'a dyn Fn(u32) -> Option<String>,
    /// Threads by name, with their time outside operations.
    pub threads: Vec<(String, TimeSplit)>,
    /// What was not seen.
    pub coverage: SplitCoverageJson,
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
            ..self
        }
    }
}

/// `part` of `whole`; 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Names of the two parts that are not measured at the thread.
pub(super) const UNREAD: &str = "not_yet_read";
pub(super) const UNEXPLAINED: &str = "unexplained";

impl WhyReport {
    /// From what was traced.
    pub fn new(trace: &WhyTrace<'_>) -> Self {
        let whole = trace.rows.iter().map(|row| row.total.sum_ns() as u64).sum();
        let active = |ns: u64| ns as f64 / 1e9 / trace.seconds.max(f64::MIN_POSITIVE);
        let mut all = TimeSplit::default();
        let (mut unread, mut unexplained) = (0, 0);
        for row in trace.rows {
            all.add(&row.split);
            unread += row.unread_ns;
            unexplained += row.unexplained_ns;
        }
        let mut report = Self {
            schema: 1,
            kind: "why",
            about: trace.about.clone(),
            processes: trace.processes.clone(),
            seconds: trace.seconds,
            processors: trace.processors,
            active: active(whole),
            active_parts: parts(&all, (unread, unexplained), whole, |_| None),
            shapes: Vec::new(),
            shapes_left_out: trace.rows.len().saturating_sub(trace.limit),
            threads: roles(&trace.threads),
            coverage: trace.coverage,
        };
        report.shapes =
            trace.rows.iter().take(trace.limit).map(|row| report.shape(row, trace, whole)).collect();
        report
    }

    fn shape(&self, row: &ShapeSplit, trace: &WhyTrace<'_>, whole: u64) -> ShapeTimeJson {
        let total = row.total.sum_ns() as u64;
        let histogram = |part: TimePart| row.parts[part as usize].as_deref();
        let mut apps: Vec<_> = row.apps.iter().filter(|(app, _)| !app.is_empty()).collect();
        apps.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let mut shape = ShapeTimeJson {
            shape_id: row.shape.id.to_string(),
            command: row.shape.command.to_string(),
            namespace: row.shape.namespace(),
            typed: row.shape.typed.to_string(),
            role: row.role.name(),
            class: row.class.name(),
            apps: apps.into_iter().take(MAX_SHOWN).map(|(app, _)| app.clone()).collect(),
            operations: row.count(),
            total_ns: total,
            share: share(total, whole),
            mean_ns: share(total, row.count()),
            p50_ns: row.total.quantile_ns(0.5),
            p99_ns: row.total.quantile_ns(0.99),
            max_ns: row.total.max_ns(),
            parts: parts(&row.split, (row.unread_ns, row.unexplained_ns), total, histogram),
            reads: row.reads,
            read_bytes: row.read_bytes,
            device_bytes: row.device_bytes,
            write_bytes: row.write_bytes,
            faults: row.faults,
            switches: row.switches,
            unacknowledged: row.unacknowledged,
            files: files(row, trace),
            has_other_files: row.has_other_files || row.files.len() > MAX_SHOWN,
            blockers: blockers(row, trace),
            answer: Vec::new(),
        };
        shape.answer = answer::sentences(&shape, self);
        shape
    }

    /// Writes the document as one line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: impl Write) -> io::Result<()> {
        line(self, out)
    }
}

fn parts<'a>(
    split: &TimeSplit,
    (unread, unexplained): (u64, u64),
    whole: u64,
    histogram: impl Fn(TimePart) -> Option<&'a sonar_core::Histogram>,
) -> Vec<PartJson> {
    let plain = |part, ns| PartJson {
        part,
        ns,
        share: share(ns, whole),
        operations: None,
        p50_ns: None,
        p99_ns: None,
    };
    let measured = split.parts().map(|(part, ns)| {
        let times = histogram(part);
        PartJson {
            operations: times.map(sonar_core::Histogram::count),
            p50_ns: times.and_then(|times| times.quantile_ns(0.5)),
            p99_ns: times.and_then(|times| times.quantile_ns(0.99)),
            ..plain(part.name(), ns)
        }
    });
    let mut parts: Vec<_> = measured
        .chain([plain(UNREAD, unread), plain(UNEXPLAINED, unexplained)])
        .filter(|part| part.ns > 0)
        .collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    parts
}

fn files(row: &ShapeSplit, trace: &WhyTrace<'_>) -> Vec<FileJson> {
    let mut files: Vec<_> = row
        .files
        .iter()
        .map(|(&(device, inode), total)| FileJson {
            name: (trace.file_name)(device, inode),
            device,
            inode,
            reads: total.reads,
            bytes: total.bytes,
            wait_ns: total.wait_ns,
        })
        .collect();
    files.sort_by(|a, b| b.wait_ns.cmp(&a.wait_ns).then(a.inode.cmp(&b.inode)));
    files.truncate(MAX_SHOWN);
    files
}

fn blockers(row: &ShapeSplit, trace: &WhyTrace<'_>) -> Vec<BlockerJson> {
    let waited = row.split[TimePart::Futex] + row.split[TimePart::Poll];
    let blockers = row.blockers().into_iter().take(MAX_SHOWN);
    let json = |(blocker, waits, wait_ns): (&sonar_core::time_split::Blocker, u64, u64)| BlockerJson {
        thread: blocker.thread,
        thread_name: blocker.thread_name.clone().or_else(|| (trace.thread_name)(blocker.thread)),
        shape_id: blocker.shape.as_ref().map(|shape| shape.id.to_string()),
        command: blocker
            .shape
            .as_ref()
            .map(|shape| format!("{} {}", shape.command, shape.namespace()).trim_end().to_owned()),
        waits,
        wait_ns,
        share: share(wait_ns, waited).min(1.0),
    };
    blockers.map(json).collect()
}

/// Threads by the name without its numbers, those with the most processor time first.
fn roles(threads: &[(String, TimeSplit)]) -> Vec<ThreadRoleJson> {
    let mut roles: BTreeMap<&str, (usize, TimeSplit)> = BTreeMap::new();
    for (name, split) in threads {
        let role = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
        let (count, sum) = roles.entry(role).or_default();
        *count += 1;
        sum.add(split);
    }
    let mut roles: Vec<_> = roles
        .into_iter()
        .map(|(role, (threads, split))| ThreadRoleJson {
            role: role.to_owned(),
            threads,
            cpu_ns: split[TimePart::Cpu],
            run_queue_ns: split[TimePart::RunQueue] + split[TimePart::Yield],
            read_ns: split[TimePart::Read] + split[TimePart::Fault],
            write_ns: split[TimePart::Write] + split[TimePart::Flush],
        })
        .collect();
    roles.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then(a.role.cmp(&b.role)));
    roles
}
