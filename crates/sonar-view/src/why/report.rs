//! Makes the document from what was traced.

use std::collections::BTreeMap;

use sonar_core::Timestamp;
use sonar_core::time_split::{Activity, ConnectionSample, ShapeOrigin, ShapeSplit, TimePart, TimeSplit};

use super::activity::ActivityJson;
use super::disks::DiskLoadJson;
use super::document::{BlockerJson, ShapeTimeJson, SplitCoverageJson, ThreadRoleJson, WhyReport};
use super::in_progress::{self, UnfinishedOperation};
use super::limits::ProcessLimitJson;
use super::server::{ServerEvidenceJson, ServerSourcesJson};
use super::{answer, files, parts};
use crate::kit::{About, share};

/// Files, blockers and applications of a shape that are shown.
const MAX_SHOWN: usize = 8;

/// What was traced, as input of a report.
pub struct WhyTrace<'a> {
    /// Where it comes from.
    pub about: About,
    /// Processes.
    pub processes: Vec<u32>,
    /// Connections that were followed.
    pub sample: ConnectionSample,
    /// Length in seconds.
    pub seconds: f64,
    /// Processors.
    pub processors: usize,
    /// Processes whose control group limits processor time.
    pub limits: Vec<ProcessLimitJson>,
    /// How many long waits each one with a class stands for; at least 1.
    pub wait_weight: f64,
    /// The rows that are counted, those with the most time first.
    pub rows: &'a [ShapeSplit],
    /// Rows without a shape, by the name of the thread.
    pub unseen: &'a [ShapeSplit],
    /// The operations of `rows` over time, up to the end of the trace.
    pub activity: &'a Activity,
    /// The end of the trace.
    pub ended: Timestamp,
    /// The most rows to show.
    pub limit: usize,
    /// The name of a file by device and inode.
    pub file_name: &'a dyn Fn(u32, u64) -> Option<String>,
    /// The load of all disks.
    pub disks: Vec<DiskLoadJson>,
    /// The name of a thread.
    pub thread_name: &'a dyn Fn(u32) -> Option<String>,
    /// Threads by name, with their time outside operations.
    pub threads: Vec<(String, TimeSplit)>,
    /// Operations that had not ended.
    pub unfinished: Vec<UnfinishedOperation>,
    /// What was not seen.
    pub coverage: SplitCoverageJson,
    /// The logs and profiles that were read.
    pub server: ServerSourcesJson,
}

impl WhyReport {
    /// From what was traced.
    pub fn new(trace: &WhyTrace<'_>) -> Self {
        let whole = trace.rows.iter().map(|row| row.total.sum_ns() as u64).sum();
        let active = |ns: u64| ns as f64 / 1e9 / trace.seconds.max(f64::MIN_POSITIVE);
        let active_parts = parts::of_all(trace.rows, whole);
        let mut report = Self {
            schema: 1,
            kind: "why",
            about: trace.about.clone(),
            processes: trace.processes.clone(),
            sample_every: trace.sample.every.get(),
            seconds: trace.seconds,
            processors: trace.processors,
            limits: trace.limits.clone(),
            active: active(whole),
            operations: trace.rows.iter().map(ShapeSplit::count).sum(),
            activity: ActivityJson::new(trace.activity, trace.ended, &active_parts),
            active_parts,
            shapes: Vec::new(),
            unseen: Vec::new(),
            shapes_left_out: trace.rows.len().saturating_sub(trace.limit),
            disks: Vec::new(),
            files: files::of_all(trace.rows, trace.file_name),
            in_progress: in_progress::longest(&trace.unfinished),
            in_progress_total: trace.unfinished.len(),
            threads: roles(&trace.threads),
            coverage: trace.coverage,
            server: trace.server.clone().in_words(),
        };
        let has_file = |disk: &&DiskLoadJson| report.files.iter().any(|one| one.file.device == disk.device);
        report.disks = trace.disks.iter().filter(has_file).cloned().collect();
        report.shapes =
            trace.rows.iter().take(trace.limit).map(|row| report.shape(row, trace, whole)).collect();
        let unseen = trace.unseen.iter().map(|row| row.total.sum_ns() as u64).sum();
        report.unseen =
            trace.unseen.iter().take(MAX_SHOWN).map(|row| report.shape(row, trace, unseen)).collect();
        report
    }

    fn shape(&self, row: &ShapeSplit, trace: &WhyTrace<'_>, whole: u64) -> ShapeTimeJson {
        let total = row.total.sum_ns() as u64;
        let mut apps: Vec<_> = row.apps.iter().filter(|(app, _)| !app.is_empty()).collect();
        apps.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let has_shape = row.origin != ShapeOrigin::ThreadName;
        let mut shape = ShapeTimeJson {
            origin: row.origin.name(),
            shape_id: if has_shape { row.shape.id.to_string() } else { String::new() },
            command: row.shape.command.to_string(),
            namespace: row.shape.namespace(),
            typed: row.shape.typed.to_string(),
            role: row.role.name(),
            class: if has_shape { row.class.name() } else { "unknown" },
            apps: apps.into_iter().take(MAX_SHOWN).map(|(app, _)| app.clone()).collect(),
            operations: row.count(),
            total_ns: total,
            share: share(total, whole),
            mean_ns: share(total, row.count()),
            p50_ns: row.total.quantile_ns(0.5),
            p99_ns: row.total.quantile_ns(0.99),
            max_ns: row.total.max_ns(),
            parts: parts::of_shape(row, total, trace.wait_weight),
            reads: row.reads,
            read_bytes: row.read_bytes,
            device_bytes: row.device_bytes,
            write_bytes: row.write_bytes,
            faults: row.faults,
            switches: row.switches,
            unacknowledged: row.unacknowledged,
            files: files::of_shape(row, trace.file_name),
            has_other_files: row.has_other_files || row.files.len() > MAX_SHOWN,
            blockers: blockers(row, trace),
            has_other_blockers: row.has_other_blockers || row.blockers().len() > MAX_SHOWN,
            server: ServerEvidenceJson::new(&row.server),
            answer: Vec::new(),
        };
        shape.answer = answer::sentences(&shape, self);
        shape
    }
}

fn blockers(row: &ShapeSplit, trace: &WhyTrace<'_>) -> Vec<BlockerJson> {
    let waited = row.split[TimePart::Futex] + row.split[TimePart::Poll];
    let blockers = row.blockers().into_iter().take(MAX_SHOWN);
    let json = |(blocker, waits, wait_ns): (&sonar_core::time_split::Blocker, u64, u64)| BlockerJson {
        thread: blocker.thread,
        thread_name: blocker.thread_name.clone().or_else(|| (trace.thread_name)(blocker.thread)),
        has_others: blocker.has_others,
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

/// The name of a thread without its number: `conn` for `conn41`.
pub fn role_of(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-')
}

/// Threads by the name without its numbers, those with the most processor time first.
fn roles(threads: &[(String, TimeSplit)]) -> Vec<ThreadRoleJson> {
    let mut roles: BTreeMap<&str, (usize, TimeSplit)> = BTreeMap::new();
    for (name, split) in threads {
        let (count, sum) = roles.entry(role_of(name)).or_default();
        *count += 1;
        sum.add(split);
    }
    let mut roles: Vec<_> = roles
        .into_iter()
        .map(|(role, (threads, split))| ThreadRoleJson {
            role: role.to_owned(),
            threads,
            cpu_ns: split[TimePart::Cpu],
            run_queue_ns: split[TimePart::RunQueue].saturating_add(split[TimePart::Yield]),
            read_ns: split[TimePart::Read].saturating_add(split[TimePart::Fault]),
            write_ns: split[TimePart::Write].saturating_add(split[TimePart::Flush]),
        })
        .collect();
    roles.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then(a.role.cmp(&b.role)));
    roles
}
