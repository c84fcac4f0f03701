//! What the reads of a recording would take on a disk that `disk bench` tested.

use serde::Serialize;
use sonar_core::files::FilesVerdict;
use sonar_core::files::speeds::{Reads, Speeds};
use sonar_core::{Timestamp, files};
use ts_rs::TS;

use super::Recording;
use crate::disk::run::BenchReport;
use crate::kit::{Bytes, Count, Grouped, Nanos, escape, plural};

/// A run of `disk bench`, as far as it measured reads.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskBench {
    speeds: Speeds,
    /// Bytes per second of one small record after the other.
    one_by_one: Option<f64>,
    device: Option<String>,
    disks: Vec<String>,
    host: Option<String>,
    started: Timestamp,
    wrote: bool,
    cached: bool,
}

/// How long the reads of a verdict would take; `None` where the rate was not measured.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Estimates {
    depth: f64,
    in_order_ns: Option<u64>,
    one_by_one_ns: Option<u64>,
    random_once_ns: Option<u64>,
    random_all_ns: Option<u64>,
}

/// The disk that was tested, and how long the reads would take on it.
#[derive(Serialize, TS)]
pub(super) struct DiskBenchJson<'a> {
    device: Option<&'a str>,
    disks: &'a [String],
    host: Option<&'a str>,
    started_ns: u64,
    /// Whether it is the disk that was read; null if that is not known.
    same_device: Option<bool>,
    through_page_cache: bool,
    record_bytes: u64,
    depth: f64,
    in_order_bytes_per_s: Option<f64>,
    in_order_ns: Option<u64>,
    one_by_one_bytes_per_s: Option<f64>,
    one_by_one_ns: Option<u64>,
    random_reads_per_s: Option<f64>,
    random_once_ns: Option<u64>,
    random_all_ns: Option<u64>,
}

impl DiskBench {
    /// Takes what a run measured of reads.
    ///
    /// # Errors
    /// The run measured no reads; the message says why.
    pub fn of(run: &BenchReport) -> Result<Self, &'static str> {
        if !run.settings.r {
            return Err("that run only wrote: what reading takes needs a run with r");
        }
        let record_bytes = u64::from(run.settings.rec_size_kb) << 10;
        let rate = |per_second: f64| Some(per_second).filter(|rate| rate.is_finite() && *rate > 0.0);
        let probes = |sequential: bool| run.probes.iter().filter(move |probe| probe.sequential == sequential);
        let small = |probe: &&crate::disk::run::ProbeResult| u64::from(probe.record_bytes) == record_bytes;
        let mut random: Vec<(u32, f64)> = Vec::new();
        if run.settings.access == "random" {
            random.extend(run.steps.iter().filter_map(|step| {
                let reads = step.reads.as_ref()?;
                Some((step.in_flight, rate(reads.count as f64 / step.seconds)?))
            }));
        }
        for probe in probes(false).filter(small) {
            if !random.iter().any(|(in_flight, _)| *in_flight == probe.in_flight) {
                random.extend(rate(probe.operations_per_second).map(|rate| (probe.in_flight, rate)));
            }
        }
        random.sort_by_key(|(in_flight, _)| *in_flight);
        random.dedup_by_key(|(in_flight, _)| *in_flight);
        let one_by_one = probes(true).filter(small).find(|probe| probe.in_flight == 1);
        let streamed = probes(true).max_by_key(|probe| (probe.record_bytes, probe.in_flight));
        let stepped = run.steps.iter().filter(|_| run.settings.access == "sequential").filter_map(|step| {
            let reads = step.reads.as_ref()?;
            rate(reads.bytes as f64 / step.seconds)
        });
        let in_order = streamed.and_then(|probe| rate(probe.bytes_per_second));
        let in_order = in_order.or_else(|| stepped.max_by(f64::total_cmp));
        if random.is_empty() && in_order.is_none() {
            return Err("that run has no steps and no probes to judge from");
        }
        Ok(Self {
            speeds: Speeds { record_bytes, random, in_order },
            one_by_one: one_by_one.and_then(|probe| rate(probe.bytes_per_second)),
            device: run.place.device.clone(),
            disks: run.place.disks.clone(),
            host: run.place.host.clone(),
            started: Timestamp::from_unix_ns(run.started_ns),
            wrote: run.settings.w,
            cached: !run.settings.direct,
        })
    }

    fn estimates(&self, verdict: &FilesVerdict) -> Estimates {
        let depth = verdict.depth.unwrap_or(1.0);
        let once = Reads { count: verdict.blocks, bytes: verdict.touched };
        let all = Reads { count: verdict.reads, bytes: verdict.bytes };
        let one_by_one = Speeds { in_order: self.one_by_one, ..Speeds::default() };
        Estimates {
            depth,
            in_order_ns: self.speeds.in_order_ns(verdict.touched),
            one_by_one_ns: one_by_one.in_order_ns(verdict.touched),
            random_once_ns: self.speeds.random_ns(once, depth),
            random_all_ns: self.speeds.random_ns(all, depth),
        }
    }

    /// Whether the file lies on the disk that was tested; `None` where one of them is not known.
    fn is_of(&self, recording: &Recording<'_>, file: u32) -> Option<bool> {
        if let (Some(here), Some(there)) = (&self.host, recording.info("host"))
            && here != there
        {
            return Some(false);
        }
        let names = recording.device(file)?;
        let mut tested = self.device.iter().chain(&self.disks).peekable();
        tested.peek()?;
        Some(tested.any(|tested| names.split(' ').any(|name| name == tested)))
    }

    /// The estimates as sentences.
    pub(super) fn words(&self, recording: &Recording<'_>, verdict: &FilesVerdict) -> Vec<String> {
        let Some(file) = verdict.file else { return Vec::new() };
        let estimates = self.estimates(verdict);
        let mut parts = Vec::new();
        if let (Some(ns), Some(rate)) = (estimates.in_order_ns, self.speeds.in_order) {
            let slowest = match (estimates.one_by_one_ns, self.one_by_one) {
                (Some(slow), Some(rate)) if slow > ns => {
                    format!("; {} at {}/s where nothing reads ahead", Nanos(slow), Bytes(rate))
                }
                _ => String::new(),
            };
            parts.push(format!("in order about {} (at {}/s{slowest})", Nanos(ns), Bytes(rate)));
        }
        if let (Some(once), Some(all)) = (estimates.random_once_ns, estimates.random_all_ns) {
            parts.push(format!(
                "each block once at random ({}) {}, and each read at random ({}) {} with nothing in the page cache ({} reads/s with {:.1} in flight, as seen)",
                plural(Grouped(verdict.blocks), "block"),
                Nanos(once),
                plural(Grouped(verdict.reads), "read"),
                Nanos(all),
                Count(self.speeds.random_per_second(estimates.depth).unwrap_or(0.0)),
                estimates.depth,
            ));
        }
        let mut words = vec![format!(
            "On {}, as disk bench measured it on {}, reading the {} that were touched takes {}.",
            self.name(),
            self.started.to_string().split('T').next().unwrap_or_default(),
            Bytes(verdict.touched as f64),
            parts.join(", "),
        )];
        match self.is_of(recording, file) {
            Some(true) => {}
            Some(false) => words.push(format!(
                "But this is another disk: the bench tested {}, and the file lies on {}.",
                self.name(),
                place(recording.device(file), recording.info("host")),
            )),
            None => words.push(
                "Whether this is the disk that was read is not known: the recording or the bench does not name its device."
                    .to_string(),
            ),
        }
        if self.cached {
            words
                .push("The bench went through the page cache: its rates may be those of memory.".to_string());
        }
        if self.wrote {
            words.push("The bench wrote at the same time, which slows its reads.".to_string());
        }
        words
    }

    fn name(&self) -> String {
        place(self.device.as_deref(), self.host.as_deref())
    }

    pub(super) fn json(&self, recording: &Recording<'_>, verdict: &FilesVerdict) -> DiskBenchJson<'_> {
        let estimates = self.estimates(verdict);
        DiskBenchJson {
            device: self.device.as_deref(),
            disks: &self.disks,
            host: self.host.as_deref(),
            started_ns: self.started.unix_ns(),
            same_device: verdict.file.and_then(|file| self.is_of(recording, file)),
            through_page_cache: self.cached,
            record_bytes: self.speeds.record_bytes,
            depth: estimates.depth,
            in_order_bytes_per_s: self.speeds.in_order,
            in_order_ns: estimates.in_order_ns,
            one_by_one_bytes_per_s: self.one_by_one,
            one_by_one_ns: estimates.one_by_one_ns,
            random_reads_per_s: self.speeds.random_per_second(estimates.depth),
            random_once_ns: estimates.random_once_ns,
            random_all_ns: estimates.random_all_ns,
        }
    }
}

/// `vda of db1`.
fn place(device: Option<&str>, host: Option<&str>) -> String {
    let device = device.map_or_else(|| "a disk without a name".into(), escape);
    match host {
        Some(host) => format!("{device} of {}", escape(host)),
        None => device.into_owned(),
    }
}

/// By whom files were read, as words; empty where that is not known.
pub(super) fn by_whom(role: files::ThreadRole, threads: u64) -> String {
    use files::ThreadRole::*;
    let (one, many) = match role {
        IndexBuild => ("an index build's thread", "threads of index builds"),
        Client => ("a client's connection", "clients' connections"),
        Checkpoint => ("the checkpoint's thread", "threads of checkpoints"),
        Journal => ("the journal's thread", "threads of the journal"),
        Engine => ("a thread of WiredTiger's own", "threads of WiredTiger's own"),
        Replication => ("a thread of replication", "threads of replication"),
        Ttl => ("the TTL monitor", "threads of the TTL monitor"),
        Migration => ("a thread of chunk migration", "threads of chunk migration"),
        Diagnostics => ("the collector of diagnostics", "collectors of diagnostics"),
        Other => return String::new(),
    };
    match threads {
        0 | 1 => format!(", by {one}"),
        n => format!(", by {} {many}", Grouped(n)),
    }
}
