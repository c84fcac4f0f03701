//! Where the time of a row's operations went, as bytes.

use std::sync::Arc;

use sonar_core::time_split::{FileTotal, REST, RowSplit, TimePart, TimeSplit, WaitTotal};

use super::blob::BlobError;
use super::bytes::{BlobReader, BlobWriter};
use super::layout::{Layout, position};
use super::numbers::{NumberLookup, Numbering};

/// The bit of the sources of a row that says that a split follows.
pub(super) const HAS_SPLIT: u8 = 1 << 7;
/// Stands for [`REST`].
const NO_TEXT: u32 = 0;

/// Wait classes and files without a number are counted in [`REST`].
pub(super) fn write_split(split: &RowSplit, out: &mut BlobWriter, numbering: &mut dyn Numbering) {
    out.count(split.operations);
    out.varint(split.unread_ns);
    out.varint(split.duration_ns);
    out.count(split.device_bytes);
    let parts = || split.split.parts().filter(|(_, ns)| *ns > 0);
    out.varint(parts().count() as u64);
    for (part, ns) in parts() {
        out.varint(part as u64);
        out.varint(ns);
    }
    let mut number = |text: &str| match text {
        REST => NO_TEXT,
        text => numbering.text(text).unwrap_or(NO_TEXT),
    };
    out.varint(split.waits.len() as u64);
    for ((part, class), waits) in &split.waits {
        out.varint(*part as u64);
        out.varint(u64::from(number(class)));
        out.count(waits.waits);
        out.varint(waits.wait_ns);
    }
    out.varint(split.files.len() as u64);
    for (name, reads) in &split.files {
        out.varint(u64::from(number(name)));
        out.count(reads.reads);
        out.count(reads.bytes);
        out.varint(reads.wait_ns);
    }
}

/// The time of parts that this program does not know is unexplained.
///
/// # Errors
/// It is damaged, or names a text that is missing.
pub(super) fn read_split(
    bytes: &mut BlobReader<'_>,
    layout: &Layout,
    lookup: &dyn NumberLookup,
) -> Result<RowSplit, BlobError> {
    let part_at = |at| Ok(position(&layout.parts, at)?.and_then(|at| TimePart::ALL.get(at)).copied());
    let text = |number: u64| match u32::try_from(number) {
        Ok(NO_TEXT) => Ok(Arc::from(REST)),
        Ok(number) => lookup.text(number).ok_or(BlobError::Missing("a text")),
        Err(_) => Err(BlobError::Impossible("a number")),
    };
    let mut read = RowSplit {
        operations: bytes.count()?,
        unread_ns: bytes.varint()?,
        duration_ns: bytes.varint()?,
        device_bytes: bytes.count()?,
        ..RowSplit::default()
    };
    for _ in 0..bytes.len()? {
        let (part, ns) = (part_at(bytes.varint()?)?, bytes.varint()?);
        if let Some(part) = part {
            let mut split = TimeSplit::default();
            split[part] = ns;
            read.split.add(&split);
        }
    }
    for _ in 0..bytes.len()? {
        let (part, class) = (part_at(bytes.varint()?)?, text(bytes.varint()?)?);
        let waits = WaitTotal { waits: bytes.count()?, wait_ns: bytes.varint()? };
        if let Some(part) = part {
            read.add_wait((part, &class), waits);
        }
    }
    for _ in 0..bytes.len()? {
        let name = text(bytes.varint()?)?;
        let reads = FileTotal { reads: bytes.count()?, bytes: bytes.count()?, wait_ns: bytes.varint()? };
        read.add_file(&name, reads);
    }
    Ok(read)
}
