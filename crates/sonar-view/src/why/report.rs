//! Makes the document from what was traced.

use std::collections::BTreeMap;

use sonar_core::time_split::{ShapeSplit, TimePart, TimeSplit};

use super::answer;
use super::document::{
    BlockerJson, FileJson, PartJson, ShapeTimeJson, SplitCoverageJson, ThreadRoleJson, UNEXPLAINED, UNREAD,
    WhyReport, share,
};
use crate::kit::About;

/// Files, blockers and applications of a shape that are shown.
const MAX_SHOWN: usize = 8;

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
