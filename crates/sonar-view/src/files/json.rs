//! `io report` as JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};
use sonar_core::Histogram;
use sonar_core::files::verdict::Finding;
use sonar_core::files::{Density, FileAccesses, FilePattern, FilesVerdict, Phase, ThreadUse};
use sonar_core::history::Span;
use ts_rs::TS;

use super::bench::DiskBenchJson;
use super::picture::{FilePictureJson, picture};
use super::{Recording, SCHEMA};
use crate::kit::json::{NamedCounts, name};
use crate::kit::{About, Grouped};

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
    let drawn = pictures.iter().filter_map(|(file, density)| picture(recording, *file, density));
    let pictures = (!pictures.is_empty()).then(|| drawn.collect());
    crate::kit::json::line(&IoReportDocument { report: RecordingJson::new(recording, limit), pictures }, out)
}

/// What `io report` found.
#[derive(Serialize, TS)]
pub(crate) struct IoReportDocument<'a> {
    #[serde(flatten)]
    report: RecordingJson<'a>,
    /// Null where no page was asked for.
    pictures: Option<Vec<FilePictureJson<'a>>>,
}

/// The same without pictures.
#[derive(Serialize, TS)]
pub(super) struct RecordingJson<'a> {
    schema: u32,
    #[ts(type = "\"io_report\"")]
    kind: &'static str,
    about: About,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    accesses: u64,
    lost: NamedCounts,
    lost_in_words: Vec<String>,
    left_out: u64,
    /// Why the recording could not be read to its end.
    incomplete: Option<&'a str>,
    // A map, as a recording may repeat a key.
    #[ts(type = "{ [key in string]: string }")]
    info: Map<String, Value>,
    verdict: IoVerdictJson<'a>,
    files_total: usize,
    files: Vec<IoFileJson<'a>>,
    threads: Vec<IoThreadJson<'a>>,
}

#[derive(Serialize, TS)]
struct IoVerdictJson<'a> {
    finding: &'static str,
    file: Option<u32>,
    path: Option<&'a str>,
    label: Option<&'a str>,
    index: Option<u32>,
    index_path: Option<&'a str>,
    reads: u64,
    device_reads: Option<u64>,
    blocks: u64,
    bytes: u64,
    touched_bytes: u64,
    amplification: Option<f64>,
    randomness: Option<f64>,
    far_share: Option<f64>,
    read_ns: u64,
    thread: Option<u32>,
    thread_name: Option<&'a str>,
    thread_role: Option<&'static str>,
    thread_read_share: Option<f64>,
    role_threads: u64,
    role_share: Option<f64>,
    device_per_touched_byte: Option<f64>,
    of_memory: Option<bool>,
    depth: Option<f64>,
    in_order_ns: Option<u64>,
    in_order_bytes_per_s: Option<f64>,
    bench: Option<DiskBenchJson<'a>>,
    words: Vec<String>,
}

#[derive(Serialize, TS)]
struct IoFileJson<'a> {
    file: u32,
    path: Option<&'a str>,
    /// What it holds, where the server names it.
    label: Option<&'a str>,
    role: Option<&'static str>,
    reads: FlowJson,
    writes: Option<FlowJson>,
    page_ins: Option<PageInsJson>,
    syncs: u64,
    sync_ns: SyncLatencyJson,
    phases: Vec<PhaseJson>,
}

#[derive(Serialize, TS)]
struct PageInsJson {
    count: u64,
    bytes: u64,
    wasted_bytes: u64,
    wasted_share: Option<f64>,
}

#[derive(Serialize, TS)]
struct SyncLatencyJson {
    p50: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

/// A time in which a file was read in one way.
#[derive(Serialize, TS)]
struct PhaseJson {
    start_ns: u64,
    length_ns: u64,
    path: &'static str,
    reads: u64,
    bytes: u64,
    read_ns: u64,
    randomness: Option<f64>,
}

#[derive(Serialize, TS)]
struct IoThreadJson<'a> {
    thread: u32,
    name: Option<&'a str>,
    role: Option<&'static str>,
    reads: u64,
    read_bytes: u64,
    read_ns: u64,
    read_share: Option<f64>,
    writes: u64,
    write_ns: u64,
}

/// Reads or writes of a file.
#[derive(Serialize, TS)]
struct FlowJson {
    count: u64,
    errors: u64,
    faults: u64,
    asked_bytes: u64,
    bytes: u64,
    again_bytes: u64,
    touched_bytes: u64,
    granule_bytes: u64,
    blocks: u64,
    amplification: Option<f64>,
    device_bytes: Option<u64>,
    device_bytes_per_byte: Option<f64>,
    readahead_wasted_at_least_bytes: Option<u64>,
    device_beyond_touched_bytes: Option<u64>,
    cached_share: Option<f64>,
    sequential_share: Option<f64>,
    randomness: Option<f64>,
    contiguous: u64,
    skips: u64,
    jumps: u64,
    back: u64,
    distances: Vec<DistanceCountJson>,
    runs: Vec<RunCountJson>,
    run_mean: Option<f64>,
    run_longest: u64,
    latency_ns: FlowLatencyJson,
    latency_cached_ns: FlowLatencyJson,
    latency_uncached_ns: FlowLatencyJson,
}

#[derive(Serialize, TS)]
struct DistanceCountJson {
    /// In bytes; below 0 backwards.
    from: f64,
    count: u64,
}

#[derive(Serialize, TS)]
struct RunCountJson {
    from: u64,
    count: u64,
}

#[derive(Serialize, TS)]
struct FlowLatencyJson {
    count: u64,
    sum: u64,
    p50: Option<u64>,
    p95: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

impl<'a> RecordingJson<'a> {
    /// At most `limit` files and threads.
    pub(super) fn new(recording: &'a Recording<'a>, limit: usize) -> Self {
        let analysis = recording.analysis;
        let (verdict, words) = recording.verdict();
        let files = recording.ranked().into_iter().take(limit);
        let threads = recording.threads_ranked().into_iter().take(limit);
        let lost = recording.losses.iter().map(|(_, name, count)| (name, count));
        let span = analysis.span();
        Self {
            schema: SCHEMA,
            kind: "io_report",
            about: About::new(
                recording.info("host").map(str::to_owned),
                vec![recording.source.to_owned()],
                span.map(|(from, to)| Span { from, to }),
            ),
            start_ns: span.map(|(first, _)| first.unix_ns()),
            end_ns: span.map(|(_, last)| last.unix_ns()),
            accesses: analysis.accesses(),
            lost: lost.chain(recording.not_distinguished()).collect(),
            lost_in_words: recording
                .losses
                .in_words()
                .chain(recording.not_distinguished_in_words())
                .map(|(what, count)| format!("{what}: {}", Grouped(count)))
                .collect(),
            left_out: recording.left_out,
            incomplete: recording.damage,
            info: recording.info.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect(),
            verdict: IoVerdictJson::new(recording, &verdict, words),
            files_total: analysis.files().count(),
            files: files.map(|(id, file)| IoFileJson::new(recording, id, file)).collect(),
            threads: threads.map(|(id, thread)| IoThreadJson::new(recording, id, thread)).collect(),
        }
    }
}

impl<'a> IoVerdictJson<'a> {
    fn new(recording: &'a Recording<'a>, verdict: &FilesVerdict, words: Vec<String>) -> Self {
        let index = match verdict.finding {
            Finding::IndexFetch { index } => Some(index),
            _ => None,
        };
        Self {
            finding: verdict.finding.name(),
            file: verdict.file,
            path: verdict.file.map(|file| recording.path(file)),
            label: verdict.file.and_then(|file| recording.label(file)),
            index,
            index_path: index.map(|index| recording.path(index)),
            reads: verdict.reads,
            device_reads: verdict.device_reads,
            blocks: verdict.blocks,
            bytes: verdict.bytes,
            touched_bytes: verdict.touched,
            amplification: verdict.amplification,
            randomness: verdict.randomness,
            far_share: verdict.far_share,
            read_ns: u64::try_from(verdict.read_ns).unwrap_or(u64::MAX),
            thread: verdict.thread,
            thread_name: verdict.thread.and_then(|thread| recording.thread_name(thread)),
            thread_role: name(verdict.thread_role.name()),
            thread_read_share: verdict.thread_read_share,
            role_threads: verdict.role_threads,
            role_share: verdict.role_share,
            device_per_touched_byte: verdict.device_per_touched,
            of_memory: verdict.is_of_memory(),
            depth: verdict.depth,
            in_order_ns: verdict.in_order_ns,
            in_order_bytes_per_s: verdict.in_order_rate,
            bench: recording.bench.map(|bench| bench.json(recording, verdict)),
            words,
        }
    }
}

impl<'a> IoFileJson<'a> {
    fn new(recording: &'a Recording<'a>, id: u32, file: &FilePattern) -> Self {
        let (analysis, syncs) = (recording.analysis, &file.syncs);
        let phase = |phase: &Phase| PhaseJson {
            start_ns: analysis.origin().plus_ns(phase.first as u64 * analysis.slice_ns()).unix_ns(),
            length_ns: (phase.last - phase.first + 1) as u64 * analysis.slice_ns(),
            path: phase.path.name(),
            reads: phase.total.reads,
            bytes: phase.total.bytes,
            read_ns: phase.total.latency_ns,
            randomness: phase.total.randomness(),
        };
        Self {
            file: id,
            path: name(recording.path(id)),
            label: recording.label(id),
            role: name(recording.role(id).name()),
            reads: FlowJson::new(&file.reads),
            writes: file.writes.as_deref().map(FlowJson::new),
            page_ins: file.page_ins.as_deref().map(|pages| PageInsJson {
                count: pages.count,
                bytes: pages.bytes,
                wasted_bytes: pages.wasted(),
                wasted_share: pages.wasted_share(),
            }),
            syncs: syncs.count(),
            sync_ns: SyncLatencyJson {
                p50: syncs.quantile_ns(0.5),
                p99: syncs.quantile_ns(0.99),
                max: syncs.max_ns(),
            },
            phases: analysis.phases(id).iter().map(phase).collect(),
        }
    }
}

impl<'a> IoThreadJson<'a> {
    fn new(recording: &'a Recording<'a>, id: u32, thread: &ThreadUse) -> Self {
        Self {
            thread: id,
            name: recording.thread_name(id),
            role: name(recording.thread_role(id).name()),
            reads: thread.reads,
            read_bytes: thread.read_bytes,
            read_ns: thread.read_ns,
            read_share: thread.read_share(),
            writes: thread.writes,
            write_ns: thread.write_ns,
        }
    }
}

impl FlowJson {
    fn new(flow: &FileAccesses) -> Self {
        let distances = flow.distances.buckets();
        Self {
            count: flow.count,
            errors: flow.errors,
            faults: flow.faults,
            asked_bytes: flow.asked,
            bytes: flow.given,
            again_bytes: flow.again,
            touched_bytes: flow.extent.bytes(),
            granule_bytes: flow.extent.granule_bytes(),
            blocks: flow.blocks.granules(),
            amplification: flow.amplification(),
            device_bytes: (flow.device_given > 0).then_some(flow.device_bytes),
            device_bytes_per_byte: flow.device_per_byte(),
            readahead_wasted_at_least_bytes: flow.wasted_at_least(),
            device_beyond_touched_bytes: flow.beyond_touched(),
            cached_share: flow.cached_share(),
            sequential_share: flow.distances.sequential_share(),
            randomness: flow.distances.randomness(),
            contiguous: flow.distances.contiguous(),
            skips: flow.distances.near(),
            jumps: flow.distances.jumps(),
            back: flow.distances.back(),
            distances: distances.map(|(low, count)| DistanceCountJson { from: low as f64, count }).collect(),
            runs: flow.runs.buckets().map(|(from, count)| RunCountJson { from, count }).collect(),
            run_mean: flow.runs.mean(),
            run_longest: flow.runs.longest(),
            latency_ns: FlowLatencyJson::new(&flow.latency()),
            latency_cached_ns: FlowLatencyJson::new(&flow.cached),
            latency_uncached_ns: FlowLatencyJson::new(&flow.uncached),
        }
    }
}

impl FlowLatencyJson {
    fn new(latency: &Histogram) -> Self {
        Self {
            count: latency.count(),
            sum: u64::try_from(latency.sum_ns()).unwrap_or(u64::MAX),
            p50: latency.quantile_ns(0.5),
            p95: latency.quantile_ns(0.95),
            p99: latency.quantile_ns(0.99),
            max: latency.max_ns(),
        }
    }
}
