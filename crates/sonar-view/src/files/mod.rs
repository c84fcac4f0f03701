//! The report of recorded accesses: text, JSON, and the verdict in words.

pub mod bench;
mod cells;
pub mod compare;
pub mod live;
mod picture;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};
use sonar_core::files::verdict::{Finding, MIN_READS};
use sonar_core::files::{
    Analysis, Density, FilePattern, FileRole, Flow, IoLosses, ThreadRole, Verdict, judge,
};

pub use bench::Bench;
pub use picture::svg;

use bench::by_whom;

use crate::kit::About;
use crate::kit::{self, Count, Fitting, Head, Nanos, UNKNOWN, escape, fit, or_unknown};

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
pub const SCHEMA: u32 = 1;

/// What a report is made of.
pub struct Recording<'a> {
    /// The name of its file.
    pub source: &'a str,
    /// All accesses.
    pub analysis: &'a Analysis,
    /// Paths of files by their number.
    pub files: &'a HashMap<u32, String>,
    /// What files hold, by their number, where the server was asked.
    pub labels: &'a HashMap<u32, String>,
    /// Names of threads by their id.
    pub threads: &'a HashMap<u32, String>,
    /// What was lost while recording.
    pub losses: IoLosses,
    /// Why the recording could not be read to its end, in words.
    pub damage: Option<&'a str>,
    /// How it was made: keys and values.
    pub info: &'a [(String, String)],
    /// Devices of files by their number, as the kernel numbers them.
    pub devices: &'a HashMap<u32, u64>,
    /// Names of these devices and of the disks below, with a space between them.
    pub device_names: &'a HashMap<u64, String>,
    /// What a disk was found to do.
    pub bench: Option<&'a Bench>,
    /// Accesses to files of pseudo file systems, which are in none of these.
    pub left_out: u64,
}

impl Recording<'_> {
    fn path(&self, file: u32) -> &str {
        self.files.get(&file).map_or("", String::as_str)
    }

    fn role(&self, file: u32) -> FileRole {
        FileRole::of(self.path(file))
    }

    /// The name that a person knows it by: what it holds where that is known, else the last part of its path.
    pub fn name(&self, file: u32) -> String {
        if let Some(label) = self.labels.get(&file) {
            return escape(label).into_owned();
        }
        match self.path(file) {
            "" => format!("file {file}"),
            path => escape(path.rsplit('/').next().unwrap_or(path)).into_owned(),
        }
    }

    /// The value that the recording has for a key.
    fn info(&self, key: &str) -> Option<&str> {
        self.info.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Names of the device that a file lies on and of the disks below.
    fn device(&self, file: u32) -> Option<&str> {
        self.device_names.get(self.devices.get(&file)?).map(String::as_str)
    }

    /// What a thread is for, by its name.
    pub fn thread_role(&self, thread: u32) -> ThreadRole {
        self.threads.get(&thread).map_or(ThreadRole::Other, |name| ThreadRole::of(name))
    }

    fn thread(&self, thread: u32) -> String {
        match self.threads.get(&thread) {
            Some(name) if !name.is_empty() => format!("{} ({thread})", escape(name)),
            _ => thread.to_string(),
        }
    }

    /// Files by the time that was spent in reading them, then by bytes written.
    pub fn ranked(&self) -> Vec<(u32, &FilePattern)> {
        let mut files: Vec<_> = self.analysis.files().collect();
        files.sort_by_cached_key(|(id, file)| {
            let written = file.writes.as_ref().map_or(0, |flow| flow.given);
            (Reverse(file.reads.latency().sum_ns()), Reverse(written), *id)
        });
        files
    }

    /// What was seen, from the figures of the verdict; each sentence is one line.
    pub fn verdict(&self) -> (Verdict, Vec<String>) {
        let verdict = judge(self.analysis, |file| self.role(file), |thread| self.thread_role(thread));
        let mut words = Vec::new();
        let Some(file) = verdict.file else {
            words.push("Nothing was read.".to_string());
            return (verdict, words);
        };
        let name = self.name(file);
        let role = match self.role(file).name() {
            "" => String::new(),
            role => format!(", a file of the kind {role}"),
        };
        let by = by_whom(verdict.thread_role, verdict.role_threads);
        if !verdict.is_evident() {
            let comma = if role.is_empty() { "" } else { "," };
            words.push(self.no_verdict(&verdict, &format!("{name}{role}{comma}")));
            words.extend(self.bench.into_iter().flat_map(|bench| bench.words(self, &verdict)));
            return (verdict, words);
        }
        words.push(match verdict.finding {
            Finding::TooFewReads | Finding::FromCache => self.no_verdict(&verdict, &name),
            Finding::SequentialPass => {
                format!("A sequential pass{by}: {name}{role}, was read in the order in which it lies on the disk.")
            }
            Finding::IndexFetch { index } => format!(
                "A fetch through an index whose order is not the disk's{by}: while it walked {}, the same thread read {name}{role}, at random.",
                self.name(index)
            ),
            Finding::RandomReads => {
                format!("Random reads of {name}{role}{by}; no index was walked beside them, so the recording does not show why.")
            }
            Finding::ReadAgain => format!(
                "Blocks read again and again, in the order of the disk{by}: {name}{role}, was read in the order in which it lies there, but what was read was not kept. A larger cache helps; another order does not."
            ),
            Finding::Mixed => format!("Partly in order, partly not{by}: {name}{role}."),
        });
        if let (Some(times), Some(randomness)) = (verdict.amplification, verdict.randomness) {
            words.push(format!(
                "Evidence: {} reads for {} different blocks, {times:.1} bytes read for each byte of the file that was touched, randomness {randomness:.2} (jumps among consecutive reads).",
                grouped(verdict.reads),
                grouped(verdict.blocks),
            ));
        }
        words.extend(
            self.analysis.file(file).and_then(readahead).filter(|(_, large)| *large).map(|found| found.0),
        );
        if let (Some(thread), Some(share)) = (verdict.thread, verdict.thread_read_share) {
            let judged = match share {
                share if share >= 0.5 => "it is bound by I/O",
                share if share >= 0.2 => "I/O is a good part of its time",
                _ => "it is not bound by I/O",
            };
            let role = verdict.thread_role.name();
            words.push(format!(
                "Thread {}{} waited in reads for {:.0} % of the time from its first access to its last: {judged}.",
                self.thread(thread),
                if role.is_empty() { String::new() } else { format!(", {role},") },
                share * 100.0
            ));
        }
        if let Some(share) = verdict.role_share.filter(|_| verdict.role_threads > 1 && !by.is_empty()) {
            words.push(format!("{:.0} % of the reads were made{by}.", share * 100.0).replace(", by", " by"));
        }
        words.extend(self.estimates(&verdict));
        (verdict, words)
    }

    /// Why nothing can be concluded from the reads of a file.
    fn no_verdict(&self, verdict: &Verdict, name: &str) -> String {
        let share = verdict.device_per_touched.unwrap_or_default() * 100.0;
        match (verdict.finding, verdict.device_reads) {
            (Finding::FromCache, _) => format!(
                "No verdict: most of {name} came from the page cache, {share:.0} % of what was touched from the device. The times are those of memory and not of the disk, and the order on the disk had no part in them{}.",
                if self.bench.is_some() {
                    ""
                } else {
                    " (--bench takes the disk's times from a run of disk bench)"
                },
            ),
            (_, Some(device)) if verdict.reads >= MIN_READS => format!(
                "No verdict: too few reads of {name} waited for the device: {} of {}.",
                grouped(device),
                grouped(verdict.reads)
            ),
            _ => format!("No verdict: {} reads of {name} are too few.", verdict.reads),
        }
    }

    /// What other orders would take.
    fn estimates(&self, verdict: &Verdict) -> Vec<String> {
        let mut words = Vec::new();
        let took = u64::try_from(verdict.read_ns).unwrap_or(u64::MAX);
        let slow =
            matches!(verdict.finding, Finding::IndexFetch { .. } | Finding::RandomReads | Finding::Mixed);
        match (verdict.in_order_ns, verdict.in_order_rate) {
            _ if !slow => {}
            (Some(ns), Some(_)) if ns >= took => words.push(
                "Reading in the order of the disk would not be quicker: most of this came from the page cache, which has no order."
                    .to_string(),
            ),
            (Some(ns), Some(rate)) => words.push(format!(
                "Reading each touched byte once in the order of the disk would wait for about {} instead of {}, at the {}B/s at which this recording's own reads in order were served{}.",
                Nanos(ns),
                Nanos(took),
                Count(rate),
                match verdict.is_of_memory() {
                    Some(_) => "",
                    None => " (by the device or by the page cache: that is not known here)",
                }
            )),
            _ if self.bench.is_some() => {}
            _ => words.push(
                "What reading in the order of the disk would take is not known: the recording holds too few reads in order that came from the device."
                    .to_string(),
            ),
        }
        words.extend(self.bench.into_iter().flat_map(|bench| bench.words(self, verdict)));
        words
    }
}

/// What readahead fetched for nothing, in words, and whether that is a large part of what was fetched; `None` where
/// nothing is known of it, or there is none.
fn readahead(file: &FilePattern) -> Option<(String, bool)> {
    if let Some(pages) = file.page_ins.as_deref() {
        let share = pages.wasted_share()?;
        let words = format!(
            "Readahead: {}B came into the page cache, {}B of it ({:.0} %) were not read while recording.",
            Count(pages.bytes as f64),
            Count(pages.wasted() as f64),
            share * 100.0
        );
        return Some((words, share >= LARGE_WASTE && pages.wasted() >= LEAST_WASTE));
    }
    let wasted = file.reads.wasted_at_least().filter(|wasted| *wasted > 0)?;
    let share = wasted as f64 / file.reads.device_bytes as f64;
    let words = format!(
        "Readahead: at least {}B ({:.0} %) of the {}B from the device were not read (a lower bound; io record --readahead measures it).",
        Count(wasted as f64),
        share * 100.0,
        Count(file.reads.device_bytes as f64)
    );
    (share >= TOLD_WASTE).then_some((words, share >= LARGE_WASTE && wasted >= LEAST_WASTE))
}

/// Share of what was fetched for nothing from which on the verdict speaks of it, with at least so many bytes; share
/// from which on a bound is shown at all.
const LARGE_WASTE: f64 = 0.25;
const LEAST_WASTE: u64 = 1 << 20;
const TOLD_WASTE: f64 = 0.01;

/// `49559` as `49,559`.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_string(), |share| format!("{:.0}%", share * 100.0))
}

fn score(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_string(), |value| format!("{value:.2}"))
}

/// Columns of the table of files.
const FILES: [Head; 14] = [
    Head::figure("  reads", 0),
    Head::figure(" bytes", 1),
    Head::figure("  time", 0),
    Head::figure("   p50", 6),
    Head::figure("   p99", 3),
    Head::figure("cached", 2),
    Head::figure("  seq", 5),
    Head::figure("random", 4),
    Head::figure(" run", 9),
    Head::figure("amplif", 7),
    Head::figure("dev/B", 8),
    Head::figure(" writes", 10),
    Head::figure(" syncs", 11),
    Head::text("file", 0, 20),
];

/// Columns of the table of threads.
const THREADS: [Head; 6] = [
    Head::figure("  reads", 0),
    Head::figure(" bytes", 0),
    Head::figure("  time", 0),
    Head::figure("waits", 0),
    Head::text("what for", 0, 10),
    Head::text("thread", 0, 10),
];

/// Writes the report as text within `width` columns (`None`: in full), at most `limit` files and threads.
///
/// # Errors
/// Those of `out`.
pub fn text(
    recording: &Recording<'_>,
    limit: usize,
    width: Option<usize>,
    out: impl Write,
) -> io::Result<()> {
    let mut out = Fitting::new(out, width);
    let analysis = recording.analysis;
    let span = analysis.span();
    write!(out, "{} accesses", grouped(analysis.accesses()))?;
    if let Some((first, last)) = span {
        write!(out, " in {}: {first} to {last}", Nanos(last.since(first)))?;
    }
    writeln!(out)?;
    let lost: Vec<_> = recording.losses.iter().filter(|(_, _, count)| *count > 0).collect();
    for (_, name, count) in lost {
        writeln!(out, "  lost: {name} {}", grouped(count))?;
    }
    for (name, count) in own_losses(analysis).into_iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "  not distinguished: {name} {}", grouped(count))?;
    }
    if recording.left_out > 0 {
        let count = grouped(recording.left_out);
        writeln!(
            out,
            "  left out: {count} accesses to files of /proc and /sys (--pseudo-filesystems shows them)"
        )?;
    }
    if let Some(damage) = recording.damage {
        writeln!(out, "  incomplete: {}", escape(damage))?;
    }
    writeln!(out)?;
    for line in recording.verdict().1 {
        writeln!(out, "{line}")?;
    }
    let files = recording.ranked();
    let shown = files.len().min(limit);
    writeln!(out, "\nFiles, by time spent in reading them ({shown} of {})", files.len())?;
    let cells = |(id, file): &(u32, &FilePattern)| {
        let reads = &file.reads;
        let latency = reads.latency();
        vec![
            Count(reads.count as f64).to_string(),
            Count(reads.given as f64).to_string(),
            Nanos(u64::try_from(latency.sum_ns()).unwrap_or(u64::MAX)).to_string(),
            or_unknown(latency.quantile_ns(0.5).map(Nanos)),
            or_unknown(latency.quantile_ns(0.99).map(Nanos)),
            percent(reads.cached_share()),
            percent(reads.distances.sequential_share()),
            score(reads.distances.randomness()),
            or_unknown(reads.runs.mean().map(Count)),
            score(reads.amplification()),
            score(reads.device_per_byte()),
            Count(file.writes.as_ref().map_or(0, |flow| flow.count) as f64).to_string(),
            Count(file.syncs.count() as f64).to_string(),
            format!(" {}", fit(&recording.name(*id), 60)),
        ]
    };
    let rows: Vec<Vec<String>> = files.iter().take(limit).map(cells).collect();
    let laid = kit::lay(&FILES, &rows, width);
    writeln!(out, "{}", laid.head)?;
    for ((id, file), line) in files.iter().zip(&laid.rows) {
        writeln!(out, "{line}")?;
        let phases = analysis.phases(*id);
        if phases.len() > 1 {
            let mut line = String::new();
            for phase in phases.iter().take(6) {
                let from = phase.first as u64 * analysis.slice_ns();
                let length = (phase.last - phase.first + 1) as u64 * analysis.slice_ns();
                let _ = write!(
                    line,
                    "{} at {} for {} ({} reads); ",
                    phase.path.name(),
                    Nanos(from),
                    Nanos(length),
                    Count(phase.total.reads as f64)
                );
            }
            if phases.len() > 6 {
                let _ = write!(line, "{} more; ", phases.len() - 6);
            }
            writeln!(out, "        phases: {}", line.trim_end_matches("; "))?;
        }
        if let Some((words, _)) = readahead(file) {
            writeln!(out, "        {}", words.replacen('R', "r", 1))?;
        }
    }
    if let Some(line) = &laid.left_out {
        writeln!(out, "{line}")?;
    }
    if let Some((id, file)) = files.first().filter(|(_, file)| file.reads.distances.count() > 0) {
        writeln!(out, "\nDistances between consecutive reads of {}", recording.name(*id))?;
        let most = file.reads.distances.buckets().map(|(_, count)| count).max().unwrap_or(1);
        for (low, count) in file.reads.distances.buckets() {
            let what = match low {
                0 => "0".to_string(),
                low => format!("{}{}B", if low < 0 { "-" } else { "+" }, Count(low.unsigned_abs() as f64)),
            };
            let bar = "#".repeat((count as f64 / most as f64 * 40.0).ceil() as usize);
            writeln!(out, "{what:>9} {:>10} {bar}", grouped(count))?;
        }
    }
    let mut threads: Vec<_> = analysis.threads().collect();
    threads.sort_by_key(|(id, thread)| (Reverse(thread.read_ns), *id));
    writeln!(out, "\nThreads, by time spent in reads ({} of {})", threads.len().min(limit), threads.len())?;
    let rows: Vec<Vec<String>> = threads
        .iter()
        .take(limit)
        .map(|(id, thread)| {
            let role = recording.thread_role(*id).name();
            vec![
                Count(thread.reads as f64).to_string(),
                Count(thread.read_bytes as f64).to_string(),
                Nanos(thread.read_ns).to_string(),
                percent(thread.read_share()),
                format!(" {:<17}", if role.is_empty() { UNKNOWN } else { role }),
                format!(" {}", recording.thread(*id)),
            ]
        })
        .collect();
    kit::table(&THREADS, &rows, width, &mut out)?;
    out.flush()
}

fn own_losses(analysis: &Analysis) -> [(&'static str, u64); 3] {
    [
        ("accesses_other_files", analysis.files_other()),
        ("accesses_other_threads", analysis.threads_other()),
        ("distances_forgotten", analysis.streams_forgotten()),
    ]
}

/// Writes the report as one line of JSON; what is not known is null. At most `limit` files and threads, with pictures
/// of the reads of some files.
///
/// # Errors
/// Those of `out`.
pub fn json(
    recording: &Recording<'_>,
    limit: usize,
    pictures: &[(u32, Density)],
    out: impl Write,
) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        report: Value,
        pictures: Option<Vec<cells::Picture<'a>>>,
    }
    let drawn = pictures.iter().filter_map(|(file, density)| cells::picture(recording, *file, density));
    let pictures = (!pictures.is_empty()).then(|| drawn.collect());
    crate::kit::json::line(&Document { report: document(recording, limit), pictures }, out)
}

fn document(recording: &Recording<'_>, limit: usize) -> Value {
    let analysis = recording.analysis;
    let (verdict, words) = recording.verdict();
    let files: Vec<_> = recording.ranked().into_iter().take(limit).map(|(id, file)| {
        let phases: Vec<_> = analysis.phases(id).iter().map(|phase| json!({
            "start_ns": analysis.origin().plus_ns(phase.first as u64 * analysis.slice_ns()).unix_ns(),
            "length_ns": (phase.last - phase.first + 1) as u64 * analysis.slice_ns(),
            "path": phase.path.name(),
            "reads": phase.total.reads,
            "bytes": phase.total.bytes,
            "read_ns": phase.total.latency_ns,
            "randomness": phase.total.randomness(),
        })).collect();
        let path = recording.path(id);
        json!({
            "file": id,
            "path": (!path.is_empty()).then_some(path),
            "label": recording.labels.get(&id),
            "role": Some(recording.role(id).name()).filter(|name| !name.is_empty()),
            "reads": flow(&file.reads),
            "writes": file.writes.as_deref().map(flow),
            "page_ins": file.page_ins.as_deref().map(|pages| json!({
                "count": pages.count,
                "bytes": pages.bytes,
                "wasted_bytes": pages.wasted(),
                "wasted_share": pages.wasted_share(),
            })),
            "syncs": file.syncs.count(),
            "sync_ns": { "p50": file.syncs.quantile_ns(0.5), "p99": file.syncs.quantile_ns(0.99), "max": file.syncs.max_ns() },
            "phases": phases,
        })
    }).collect();
    let mut threads: Vec<_> = analysis.threads().collect();
    threads.sort_by_key(|(id, thread)| (Reverse(thread.read_ns), *id));
    let threads: Vec<_> = threads
        .into_iter()
        .take(limit)
        .map(|(id, thread)| {
            json!({
                "thread": id,
                "name": recording.threads.get(&id),
                "role": Some(recording.thread_role(id).name()).filter(|name| !name.is_empty()),
                "reads": thread.reads,
                "read_bytes": thread.read_bytes,
                "read_ns": thread.read_ns,
                "read_share": thread.read_share(),
                "writes": thread.writes,
                "write_ns": thread.write_ns,
            })
        })
        .collect();
    let mut lost = serde_json::Map::new();
    lost.extend(recording.losses.iter().map(|(_, name, count)| (name.to_string(), Value::from(count))));
    lost.extend(own_losses(analysis).into_iter().map(|(name, count)| (name.to_string(), Value::from(count))));
    let span = analysis.span();
    let (index, index_path) = match verdict.finding {
        Finding::IndexFetch { index } => (Some(index), Some(recording.path(index))),
        _ => (None, None),
    };
    json!({
        "schema": SCHEMA,
        "kind": "io_report",
        "about": About::new(recording.info("host").map(str::to_owned), vec![recording.source.to_owned()]),
        "start_ns": span.map(|(first, _)| first.unix_ns()),
        "end_ns": span.map(|(_, last)| last.unix_ns()),
        "accesses": analysis.accesses(),
        "lost": lost,
        "left_out": recording.left_out,
        "incomplete": recording.damage,
        "info": recording.info.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<serde_json::Map<_, _>>(),
        "verdict": {
            "finding": verdict.finding.name(),
            "file": verdict.file,
            "path": verdict.file.map(|file| recording.path(file)),
            "label": verdict.file.and_then(|file| recording.labels.get(&file)),
            "index": index,
            "index_path": index_path,
            "reads": verdict.reads,
            "device_reads": verdict.device_reads,
            "blocks": verdict.blocks,
            "bytes": verdict.bytes,
            "touched_bytes": verdict.touched,
            "amplification": verdict.amplification,
            "randomness": verdict.randomness,
            "far_share": verdict.far_share,
            "read_ns": u64::try_from(verdict.read_ns).unwrap_or(u64::MAX),
            "thread": verdict.thread,
            "thread_name": verdict.thread.and_then(|thread| recording.threads.get(&thread)),
            "thread_role": Some(verdict.thread_role.name()).filter(|name| !name.is_empty()),
            "thread_read_share": verdict.thread_read_share,
            "role_threads": verdict.role_threads,
            "role_share": verdict.role_share,
            "device_per_touched_byte": verdict.device_per_touched,
            "of_memory": verdict.is_of_memory(),
            "depth": verdict.depth,
            "in_order_ns": verdict.in_order_ns,
            "in_order_bytes_per_s": verdict.in_order_rate,
            "bench": recording.bench.map(|bench| bench.json(recording, &verdict)),
            "words": words,
        },
        "files_total": analysis.files().count(),
        "files": files,
        "threads": threads,
    })
}

fn flow(flow: &Flow) -> Value {
    let latency = |histogram: &sonar_core::Histogram| {
        json!({
            "count": histogram.count(),
            "sum": u64::try_from(histogram.sum_ns()).unwrap_or(u64::MAX),
            "p50": histogram.quantile_ns(0.5),
            "p95": histogram.quantile_ns(0.95),
            "p99": histogram.quantile_ns(0.99),
            "max": histogram.max_ns(),
        })
    };
    let distances: Vec<_> =
        flow.distances.buckets().map(|(low, count)| json!({ "from": low as f64, "count": count })).collect();
    let runs: Vec<_> =
        flow.runs.buckets().map(|(low, count)| json!({ "from": low, "count": count })).collect();
    json!({
        "count": flow.count,
        "errors": flow.errors,
        "faults": flow.faults,
        "asked_bytes": flow.asked,
        "bytes": flow.given,
        "again_bytes": flow.again,
        "touched_bytes": flow.extent.bytes(),
        "granule_bytes": flow.extent.granule_bytes(),
        "blocks": flow.blocks.granules(),
        "amplification": flow.amplification(),
        "device_bytes": (flow.device_given > 0).then_some(flow.device_bytes),
        "device_bytes_per_byte": flow.device_per_byte(),
        "readahead_wasted_at_least_bytes": flow.wasted_at_least(),
        "device_beyond_touched_bytes": flow.beyond_touched(),
        "cached_share": flow.cached_share(),
        "sequential_share": flow.distances.sequential_share(),
        "randomness": flow.distances.randomness(),
        "contiguous": flow.distances.contiguous(),
        "skips": flow.distances.near(),
        "jumps": flow.distances.jumps(),
        "back": flow.distances.back(),
        "distances": distances,
        "runs": runs,
        "run_mean": flow.runs.mean(),
        "run_longest": flow.runs.longest(),
        "latency_ns": latency(&flow.latency()),
        "latency_cached_ns": latency(&flow.cached),
        "latency_uncached_ns": latency(&flow.uncached),
    })
}
