//! Which files operations waited for, and which query shapes waited for a file.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::time_split::{FileReads, ShapeSplit};
use ts_rs::TS;

use crate::kit::{Bytes, Fitting, Grouped, Heading, Nanos, Percent, TextTable, escape, share};

/// The most files of a shape, files of the report and shapes of a file in the document.
const MAX_SHOWN: usize = 8;
/// The most files in the text.
const MAX_LINES: usize = 5;

/// A file that operations waited for.
#[derive(Clone, Debug, Serialize, TS)]
pub struct FileJson {
    /// The collection or index, else the name of the file; null if that is no longer known.
    pub name: Option<String>,
    /// Device, in the kernel's own encoding.
    pub device: u32,
    /// Inode.
    pub inode: u64,
    /// Reads that waited.
    pub reads: u64,
    /// Those of them that began where the thread's last read of the file had ended.
    pub in_order: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time blocked in them, in nanoseconds.
    pub wait_ns: u64,
}

impl FileJson {
    /// Its name, else its inode.
    pub(super) fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("inode {}", self.inode))
    }
}

/// A file with the shapes that waited for it.
#[derive(Clone, Debug, Serialize, TS)]
pub struct FileWaitsJson {
    /// The file, with the waits of all shapes.
    #[serde(flatten)]
    pub file: FileJson,
    /// The shapes, the longest waits first; at most 8.
    pub shapes: Vec<FileShapeJson>,
}

/// What one shape waited for in a file.
#[derive(Clone, Debug, Serialize, TS)]
pub struct FileShapeJson {
    /// The id of the shape.
    pub shape_id: String,
    /// The command with its namespace.
    pub command: String,
    /// Reads that waited.
    pub reads: u64,
    /// Time blocked in them, in nanoseconds.
    pub wait_ns: u64,
    /// Share of the time that all shapes were blocked in the file.
    pub share: f64,
}

/// The files that operations of one shape waited for, the longest first.
pub(super) fn of_shape(row: &ShapeSplit, name: &dyn Fn(u32, u64) -> Option<String>) -> Vec<FileJson> {
    let mut files: Vec<_> =
        row.files.iter().map(|((device, inode), reads)| file(*device, *inode, reads, name)).collect();
    files.sort_by(|a, b| b.wait_ns.cmp(&a.wait_ns).then(a.inode.cmp(&b.inode)));
    files.truncate(MAX_SHOWN);
    files
}

fn file(device: u32, inode: u64, reads: &FileReads, name: &dyn Fn(u32, u64) -> Option<String>) -> FileJson {
    let FileReads { total, in_order } = *reads;
    let (reads, bytes, wait_ns) = (total.reads, total.bytes, total.wait_ns);
    FileJson { name: name(device, inode), device, inode, reads, in_order, bytes, wait_ns }
}

/// The waits of all shapes for one file.
#[derive(Default)]
struct WaitsForFile<'a> {
    sum: FileReads,
    shapes: Vec<(&'a ShapeSplit, FileReads)>,
}

impl<'a> WaitsForFile<'a> {
    fn add(&mut self, row: &'a ShapeSplit, reads: FileReads) {
        self.sum.add(reads);
        self.shapes.push((row, reads));
    }

    /// The shapes, the longest waits first.
    fn shapes(mut self) -> Vec<FileShapeJson> {
        self.shapes.sort_by_key(|(row, reads)| (Reverse(reads.total.wait_ns), row.shape.id));
        let shape = |(row, FileReads { total, .. }): (&ShapeSplit, FileReads)| FileShapeJson {
            shape_id: row.shape.id.to_string(),
            command: format!("{} {}", row.shape.command, row.shape.namespace()).trim_end().to_owned(),
            reads: total.reads,
            wait_ns: total.wait_ns,
            share: share(total.wait_ns, self.sum.total.wait_ns),
        };
        self.shapes.into_iter().take(MAX_SHOWN).map(shape).collect()
    }
}

/// The files that all rows waited for, each with its shapes.
pub(super) fn of_all(rows: &[ShapeSplit], name: &dyn Fn(u32, u64) -> Option<String>) -> Vec<FileWaitsJson> {
    // By device and inode.
    let mut by_file: HashMap<(u32, u64), WaitsForFile<'_>> = HashMap::new();
    for row in rows {
        row.files.iter().for_each(|(id, reads)| by_file.entry(*id).or_default().add(row, *reads));
    }
    let mut files: Vec<_> = by_file.into_iter().collect();
    files.sort_by_key(|(id, waits)| (Reverse(waits.sum.total.wait_ns), *id));
    files.truncate(MAX_SHOWN);
    let shown = |((device, inode), waits): ((u32, u64), WaitsForFile<'_>)| FileWaitsJson {
        file: file(device, inode, &waits.sum, name),
        shapes: waits.shapes(),
    };
    files.into_iter().map(shown).collect()
}

pub(super) fn text<W: Write>(files: &[FileWaitsJson], out: &mut Fitting<W>) -> io::Result<()> {
    let Some(first) = files.first().filter(|first| first.file.wait_ns > 0) else { return Ok(()) };
    let mut table = TextTable::new(&[
        Heading::text("FILES READ", 0, 16),
        Heading::figure("waits", 2),
        Heading::figure("bytes each", 3),
        Heading::figure("in order", 4),
        Heading::figure("waited", 1),
        Heading::text("by", 1, 20),
    ]);
    let notable = |one: &&FileWaitsJson| one.file.wait_ns.saturating_mul(100) >= first.file.wait_ns;
    for FileWaitsJson { file, shapes } in files.iter().filter(notable).take(MAX_LINES) {
        let by = shapes.iter().take(2);
        let by: Vec<_> = by.map(|shape| format!("{} {}", shape.command, Percent(shape.share))).collect();
        table.row([
            escape(&file.label()).to_string(),
            Grouped(file.reads).to_string(),
            Bytes(file.bytes as f64 / file.reads.max(1) as f64).to_string(),
            Percent(share(file.in_order, file.reads)).to_string(),
            Nanos(file.wait_ns).to_string(),
            escape(&by.join(", ")).to_string(),
        ]);
    }
    writeln!(out)?;
    table.spaced().write(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use sonar_core::time_split::FileTotal;
    use sonar_core::{Class, Role, ShapeId, ShapeInfo};

    use super::*;

    fn row(id: u64, files: &[(u64, u64)]) -> ShapeSplit {
        let shape = ShapeInfo { id: ShapeId(id), command: "find".into(), ..ShapeInfo::default() };
        let mut row = ShapeSplit::new(Arc::new(shape), Role::Served, Class::User);
        for (inode, wait_ns) in files {
            let total = FileTotal { reads: 2, bytes: 8_192, wait_ns: *wait_ns };
            row.files.insert((1, *inode), FileReads { total, in_order: 1 });
        }
        row
    }

    #[test]
    fn a_file_has_the_shapes_that_waited_for_it() {
        let rows = [row(7, &[(10, 300), (11, 50)]), row(8, &[(10, 100)])];
        let files = of_all(&rows, &|_, inode| (inode == 10).then(|| "shop.orders".to_owned()));
        let [first, second] = &files[..] else { panic!("{files:?}") };
        assert_eq!(first.file.name.as_deref(), Some("shop.orders"));
        assert_eq!((first.file.reads, first.file.bytes, first.file.wait_ns), (4, 16_384, 400));
        assert_eq!(first.file.in_order, 2);
        let shapes: Vec<_> = first.shapes.iter().map(|shape| (&*shape.shape_id, shape.share)).collect();
        assert_eq!(shapes, [("0000000000000007", 0.75), ("0000000000000008", 0.25)]);
        assert_eq!((second.file.label().as_str(), second.shapes.len()), ("inode 11", 1));
        let mut written = Vec::new();
        text(&files, &mut Fitting::new(&mut written, Some(100))).unwrap();
        let text = String::from_utf8(written).unwrap();
        assert!(text.contains("shop.orders") && text.contains("find 75%, find 25%"), "{text}");
    }
}
