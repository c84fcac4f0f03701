//! `io report` as JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};
use sonar_core::files::verdict::Finding;
use sonar_core::files::{Density, FileAccesses};
use sonar_core::history::Span;

use super::picture::{Picture, picture};
use super::{Recording, SCHEMA};
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
    #[derive(Serialize)]
    struct IoReportDocument<'a> {
        #[serde(flatten)]
        report: Value,
        pictures: Option<Vec<Picture<'a>>>,
    }
    let drawn = pictures.iter().filter_map(|(file, density)| picture(recording, *file, density));
    let pictures = (!pictures.is_empty()).then(|| drawn.collect());
    crate::kit::json::line(&IoReportDocument { report: document(recording, limit), pictures }, out)
}

pub(super) fn document(recording: &Recording<'_>, limit: usize) -> Value {
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
    let threads: Vec<_> = recording
        .threads_ranked()
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
    let lost = recording.losses.iter().map(|(_, name, count)| (name, count));
    let lost: Map<_, _> = lost
        .chain(recording.not_distinguished())
        .map(|(name, count)| (name.to_owned(), Value::from(count)))
        .collect();
    let span = analysis.span();
    let (index, index_path) = match verdict.finding {
        Finding::IndexFetch { index } => (Some(index), Some(recording.path(index))),
        _ => (None, None),
    };
    json!({
        "schema": SCHEMA,
        "kind": "io_report",
        "about": About::new(
            recording.info("host").map(str::to_owned),
            vec![recording.source.to_owned()],
            span.map(|(from, to)| Span { from, to }),
        ),
        "start_ns": span.map(|(first, _)| first.unix_ns()),
        "end_ns": span.map(|(_, last)| last.unix_ns()),
        "accesses": analysis.accesses(),
        "lost": lost,
        "lost_in_words": recording
            .losses
            .in_words()
            .chain(recording.not_distinguished_in_words())
            .map(|(what, count)| format!("{what}: {}", Grouped(count)))
            .collect::<Vec<_>>(),
        "left_out": recording.left_out,
        "incomplete": recording.damage,
        "info": recording.info.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>(),
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

fn flow(flow: &FileAccesses) -> Value {
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
