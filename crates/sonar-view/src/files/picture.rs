//! Pictures of files in the JSON report: what the web page draws of their reads.

use serde::{Serialize, Serializer};
use sonar_core::Histogram;
use sonar_core::files::{Density, FilePattern};
use ts_rs::TS;

use super::Recording;

/// Buckets of [`sonar_core::Histogram`] in one of ours, which are four for each power of two.
const TOGETHER: i32 = 8;

/// The reads of a file over time and offset.
#[derive(Serialize, TS)]
pub(super) struct FilePictureJson<'a> {
    file: u32,
    name: String,
    columns: usize,
    rows: usize,
    length: u64,
    span_ns: u64,
    /// Column, row, reads, mean latency in nanoseconds: four numbers for each cell.
    #[serde(serialize_with = "cells")]
    #[ts(type = "Array<number>")]
    cells: &'a Density,
    /// Of each column: reads, median, 99th percentile in nanoseconds; null without reads.
    over: Vec<Option<[u64; 3]>>,
    /// Upper bound in nanoseconds; reads from the page cache, from the device, and of unknown origin.
    buckets: Vec<[u64; 4]>,
}

/// One cell after the other, without a copy: they are many.
fn cells<S: Serializer>(density: &&Density, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(
        density.cells().flat_map(|(column, row, count, mean_ns)| [column as u64, row as u64, count, mean_ns]),
    )
}

/// The picture of a file; `None` where the recording has no such file.
pub(super) fn picture<'a>(
    recording: &Recording<'_>,
    file: u32,
    density: &'a Density,
) -> Option<FilePictureJson<'a>> {
    let pattern = recording.analysis.file(file)?;
    let (columns, rows) = density.size();
    let over: Vec<_> = density
        .latencies()
        .iter()
        .map(|column| Some([column.count(), column.quantile_ns(0.5)?, column.quantile_ns(0.99)?]))
        .collect();
    Some(FilePictureJson {
        file,
        name: recording.name(file),
        columns,
        rows,
        length: density.length(),
        span_ns: density.span_ns(),
        cells: density,
        over,
        buckets: buckets(pattern),
    })
}

/// Upper bound in nanoseconds, and reads from the page cache, from the device, and not known which.
pub(super) fn buckets(pattern: &FilePattern) -> Vec<[u64; 4]> {
    let reads = &pattern.reads;
    let flows = [&reads.cached, &reads.uncached, &reads.unknown];
    let groups = |flow: &Histogram| -> Vec<(i32, u64)> {
        flow.buckets().map(|(index, count)| (index.div_euclid(TOGETHER), count)).collect()
    };
    let flows = flows.map(groups);
    let all = || flows.iter().flatten().map(|(group, _)| *group);
    let (Some(first), Some(last)) = (all().min(), all().max()) else { return Vec::new() };
    (first..=last)
        .map(|group| {
            let bound = sonar_core::histogram::upper_bound_ns(group * TOGETHER + TOGETHER - 1);
            let of = |flow: &[(i32, u64)]| {
                flow.iter().filter(|(at, _)| *at == group).map(|(_, count)| count).sum()
            };
            [bound, of(&flows[0]), of(&flows[1]), of(&flows[2])]
        })
        .collect()
}
