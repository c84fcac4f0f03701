//! The report as a page: one file, nothing fetched; files can be chosen, cells pointed at, columns sorted.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::Value;
use sonar_core::Histogram;
use sonar_core::files::{Density, FilePattern};

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
    let data = Data { report: document(recording, limit), pictures };
    let (before, after) = PAGE.split_once("/*DATA*/").unwrap_or((PAGE, ""));
    out.write_all(before.as_bytes())?;
    serde_json::to_writer(InScript(&mut out), &data)?;
    out.write_all(after.as_bytes())?;
    out.flush()
}

#[derive(Serialize)]
struct Data<'a> {
    report: Value,
    pictures: Vec<Picture<'a>>,
}

/// A picture. Its cells are many, so that they are written from where they are.
#[derive(Serialize)]
struct Picture<'a> {
    file: u32,
    name: String,
    columns: usize,
    rows: usize,
    length: u64,
    span_ns: u64,
    #[serde(serialize_with = "cells")]
    cells: &'a Density,
    over: Vec<Option<[u64; 3]>>,
    buckets: Vec<[u64; 4]>,
}

/// Column, row, count and mean latency of one cell after the other.
fn cells<S: Serializer>(density: &&Density, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(
        density.cells().flat_map(|(column, row, count, mean_ns)| [column as u64, row as u64, count, mean_ns]),
    )
}

/// JSON within a script element, which only a `<` could end, or begin a comment in. In JSON it stands in texts only.
struct InScript<W>(W);

impl<W: Write> Write for InScript<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (at, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if at > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn picture<'a>(
    recording: &Recording<'_>,
    file: u32,
    pattern: &FilePattern,
    density: &'a Density,
) -> Picture<'a> {
    let (columns, rows) = density.size();
    let over: Vec<_> = density
        .latencies()
        .iter()
        .map(|column| Some([column.count(), column.quantile_ns(0.5)?, column.quantile_ns(0.99)?]))
        .collect();
    Picture {
        file,
        name: recording.name(file),
        columns,
        rows,
        length: density.length(),
        span_ns: density.span_ns(),
        cells: density,
        over,
        buckets: buckets(pattern),
    }
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
