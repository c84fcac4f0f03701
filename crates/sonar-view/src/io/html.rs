//! The report as a page: one file, nothing fetched; files can be chosen, cells pointed at, columns sorted.

use std::io::{self, Write};

use serde_json::{Value, json};
use sonar_core::Histogram;
use sonar_core::io::{Density, FilePattern};

use super::{Recording, document};

const PAGE: &str = include_str!("page.html");
/// Buckets of the histogram are four for each power of two.
const TOGETHER: i32 = 8;

/// Writes the page: the report, at most `limit` files and threads, with the pictures of some files.
///
/// # Errors
/// Those of `out`.
pub fn page(
    recording: &Recording<'_>,
    limit: usize,
    pictures: &[(u32, Density)],
    mut out: impl Write,
) -> io::Result<()> {
    let pictures: Vec<_> = pictures
        .iter()
        .filter_map(|(file, density)| {
            Some(picture(recording, *file, recording.analysis.file(*file)?, density))
        })
        .collect();
    let data = json!({ "report": document(recording, limit), "pictures": pictures });
    // Within a script element only this could end it, or begin a comment.
    let data = data.to_string().replace('<', "\\u003c");
    let (before, after) = PAGE.split_once("/*DATA*/").unwrap_or((PAGE, ""));
    out.write_all(before.as_bytes())?;
    out.write_all(data.as_bytes())?;
    out.write_all(after.as_bytes())?;
    out.flush()
}

fn picture(recording: &Recording<'_>, file: u32, pattern: &FilePattern, density: &Density) -> Value {
    let (columns, rows) = density.size();
    let cells: Vec<u64> = density
        .cells()
        .flat_map(|(column, row, count, mean_ns)| [column as u64, row as u64, count, mean_ns])
        .collect();
    let over: Vec<_> = density
        .latencies()
        .iter()
        .map(|column| Some([column.count(), column.quantile_ns(0.5)?, column.quantile_ns(0.99)?]))
        .collect();
    json!({
        "file": file,
        "name": recording.name(file),
        "columns": columns,
        "rows": rows,
        "length": density.length(),
        "span_ns": density.span_ns(),
        "cells": cells,
        "over": over,
        "buckets": buckets(pattern),
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
