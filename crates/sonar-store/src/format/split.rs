//! Where the time of a row's operations went, as bytes.

use std::sync::Arc;

use sonar_core::ShapeInfo;
use sonar_core::time_split::{FileTotal, OTHER, RowBlocker, RowSplit, TimePart, TimeSplit, WaitTotal};

use super::blob::BlobError;
use super::bytes::{BlobReader, BlobWriter};
use super::layout::{Layout, position};
use super::numbers::{NumberLookup, Numbering};

/// The bit of the sources of a row that says that a split follows.
pub(super) const HAS_SPLIT: u8 = 1 << 7;
/// Stands for [`OTHER`].
const NO_TEXT: u32 = 0;
/// Stands for the shape `other`.
const OTHER_SHAPE: u32 = 0;
/// The version from which on a split says which shapes ended its waits.
const WITH_BLOCKERS: u8 = 3;

/// Wait classes and files without a number are counted in [`OTHER`], shapes in `other`.
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
        OTHER => NO_TEXT,
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
    out.varint(split.blockers.len() as u64);
    for RowBlocker { shape, waits } in split.blockers.values() {
        let is_other = shape.id == ShapeInfo::other().id;
        let number = if is_other { None } else { numbering.shape(shape) };
        out.varint(u64::from(number.unwrap_or(OTHER_SHAPE)));
        out.count(waits.waits);
        out.varint(waits.wait_ns);
    }
}

/// The time of parts that this program does not know is unexplained.
///
/// # Errors
/// It is damaged, or names a text that is missing.
pub(super) fn read_split(
    bytes: &mut BlobReader<'_>,
    version: u8,
    layout: &Layout,
    lookup: &dyn NumberLookup,
) -> Result<RowSplit, BlobError> {
    let part_at = |at| Ok(position(&layout.parts, at)?.and_then(|at| TimePart::ALL.get(at)).copied());
    let text = |number: u64| match u32::try_from(number) {
        Ok(NO_TEXT) => Ok(Arc::from(OTHER)),
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
            read.add_wait(part, &class, waits);
        }
    }
    for _ in 0..bytes.len()? {
        let name = text(bytes.varint()?)?;
        let reads = FileTotal { reads: bytes.count()?, bytes: bytes.count()?, wait_ns: bytes.varint()? };
        read.add_file(&name, reads);
    }
    let blockers = if version < WITH_BLOCKERS { 0 } else { bytes.len()? };
    for _ in 0..blockers {
        let number = bytes.varint()?;
        let number = u32::try_from(number).map_err(|_| BlobError::Impossible("a number"))?;
        let shape = match number {
            OTHER_SHAPE => Arc::new(ShapeInfo::other()),
            number => lookup.shape(number).ok_or(BlobError::Missing("a shape"))?,
        };
        read.add_blocker(&shape, WaitTotal { waits: bytes.count()?, wait_ns: bytes.varint()? });
    }
    Ok(read)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sonar_core::ShapeId;
    use sonar_core::history::SeriesKey;
    use sonar_core::operation::Application;

    use super::*;

    /// Has one shape, with the number 1.
    struct OneShape(Arc<ShapeInfo>);

    impl Numbering for OneShape {
        fn shape(&mut self, _: &Arc<ShapeInfo>) -> Option<u32> {
            Some(1)
        }
        fn order(&mut self, _: ShapeId) -> Option<u32> {
            None
        }
        fn application(&mut self, _: &Arc<Application>) -> Option<u32> {
            None
        }
        fn text(&mut self, _: &str) -> Option<u32> {
            None
        }
        fn series(&mut self, _: &SeriesKey) -> Option<u32> {
            None
        }
        fn layout(&self) -> u32 {
            1
        }
    }

    impl NumberLookup for OneShape {
        fn shape(&self, number: u32) -> Option<Arc<ShapeInfo>> {
            (number == 1).then(|| self.0.clone())
        }
        fn order(&self, _: u32) -> Option<ShapeId> {
            None
        }
        fn application(&self, _: u32) -> Option<Arc<Application>> {
            None
        }
        fn text(&self, _: u32) -> Option<Arc<str>> {
            None
        }
        fn series(&self, _: u32) -> Option<Arc<SeriesKey>> {
            None
        }
        fn layout(&self, _: u32) -> Option<Arc<Layout>> {
            None
        }
    }

    #[test]
    fn splits_of_version_2_do_not_say_what_ended_waits() {
        let layout = Layout::parse(&Layout::current());
        let mut numbers = OneShape(Arc::new(ShapeInfo { id: ShapeId(7), ..ShapeInfo::default() }));
        let mut split = RowSplit { operations: 3, duration_ns: 90, ..RowSplit::default() };
        split.split[TimePart::Futex] = 80;
        let read = |bytes: &[u8], version, numbers: &OneShape| {
            let mut reader = BlobReader(bytes);
            let read = read_split(&mut reader, version, &layout, numbers).unwrap();
            assert!(reader.0.is_empty());
            read
        };
        let mut old = BlobWriter::default();
        write_split(&split, &mut old, &mut numbers);
        // The length of the list that version 2 does not have.
        assert_eq!(old.0.pop(), Some(0));
        assert_eq!(read(&old.0, 2, &numbers), split);
        split.add_blocker(&numbers.0, WaitTotal { waits: 2, wait_ns: 60 });
        split.add_blocker(&Arc::new(ShapeInfo::other()), WaitTotal { waits: 1, wait_ns: 5 });
        let mut new = BlobWriter::default();
        write_split(&split, &mut new, &mut numbers);
        assert_eq!(read(&new.0, 3, &numbers), split);
    }
}
