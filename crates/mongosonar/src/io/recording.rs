//! The file of a recording. On a full disk the file ends, and further accesses are only counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sonar_core::files::{IoAccess, IoLosses};
use sonar_decode::io_file::{BlockExtent, FileEntry, RecordingWriter, ThreadEntry};
use sonar_view::kit::ByteSize;

/// In the information of a recording, the keys of what a file holds: its number follows.
pub const HOLDS: &str = "holds ";
/// The keys of what the kernel calls a device, and the disks below it: the number of the device follows.
pub const DEVICE: &str = "device ";
/// Bytes to buffer before writing.
const BUFFER: usize = 1 << 20;
/// How long bytes may stay in the buffer.
const FLUSH: Duration = Duration::from_secs(1);

/// The target of a recording.
pub trait Store: Write {
    /// Truncates it to this many bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Writes all bytes at this offset.
    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;
}

impl Store for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }
}

/// A recording in progress.
pub struct RecordingFile<S = File> {
    file: S,
    path: PathBuf,
    writer: RecordingWriter,
    buffer: Vec<u8>,
    /// Where blocks end in the buffer, with the accesses up to there.
    ends: Vec<(usize, BlockExtent)>,
    /// Bytes of whole blocks in the file, and their accesses.
    written: (u64, BlockExtent),
    flushed: Instant,
    /// The error that ended writing.
    failed: Option<String>,
    /// Accesses that came after that, or were still in the buffer.
    not_written: u64,
}

/// The result of a recording.
pub struct RecordingEnd {
    /// Accesses in the file.
    pub accesses: u64,
    /// Accesses missing in the file.
    pub losses: IoLosses,
    /// The error that ended writing early.
    pub failed: Option<String>,
}

impl RecordingFile<File> {
    /// Creates the file, readable by its owner only, with the bytes that `writer` has put into `buffer`. An existing
    /// file is never changed.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn create(path: &Path, writer: RecordingWriter, buffer: Vec<u8>) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self::new(file, path, writer, buffer))
    }
}

impl<S: Store> RecordingFile<S> {
    fn new(file: S, path: &Path, writer: RecordingWriter, buffer: Vec<u8>) -> Self {
        let mut recording = Self {
            file,
            path: path.into(),
            writer,
            buffer,
            ends: Vec::new(),
            written: (0, BlockExtent::default()),
            flushed: Instant::now(),
            failed: None,
            not_written: 0,
        };
        // So it is readable even if the program is killed at once.
        recording.block_ended();
        recording.flush();
        recording
    }

    /// Adds an access.
    pub fn access(&mut self, access: &IoAccess) {
        if self.failed.is_some() {
            self.not_written += 1;
            return;
        }
        self.writer.access(access, &mut self.buffer);
        self.block_ended();
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Adds a file; call it before adding accesses to it.
    pub fn file(&mut self, entry: &FileEntry<'_>) {
        if self.failed.is_none() {
            self.writer.file(entry, &mut self.buffer);
            self.block_ended();
        }
    }

    /// Adds a thread.
    pub fn thread(&mut self, entry: &ThreadEntry<'_>) {
        if self.failed.is_none() {
            self.writer.thread(entry, &mut self.buffer);
            self.block_ended();
        }
    }

    /// Adds information about the recording.
    pub fn info(&mut self, info: &[(&str, &str)]) {
        if self.failed.is_none() {
            self.writer.info(info, &mut self.buffer);
            self.block_ended();
        }
    }

    /// Writes the buffer once a second: no more is lost if the program is killed.
    pub fn flush_in_time(&mut self) {
        if self.flushed.elapsed() >= FLUSH {
            self.writer.flush(&mut self.buffer);
            self.block_ended();
            self.flush();
        }
    }

    /// Ends the recording. Accesses that could not be written count as losses, also in the file if there is room.
    pub fn end(mut self, mut losses: IoLosses) -> RecordingEnd {
        self.writer.flush(&mut self.buffer);
        self.block_ended();
        self.flush();
        if self.failed.is_none() {
            RecordingWriter::end_after(self.writer.flushed(), &losses, &mut self.buffer);
            self.flush();
        }
        let (whole, extent) = self.written;
        if self.failed.is_some() {
            losses.not_written = self.not_written;
            let mut end = Vec::new();
            if whole > 0 {
                RecordingWriter::end_after(extent, &losses, &mut end);
            }
            // Half a block was removed when writing ended, so there may be room. Without its end the recording is cut,
            // and readable up to there.
            if self.file.write_at(&end, whole).is_err() {
                let _ = self.file.cut(whole);
            }
        }
        RecordingEnd { accesses: extent.accesses, losses, failed: self.failed }
    }

    fn block_ended(&mut self) {
        if self.ends.last().is_none_or(|(end, _)| *end < self.buffer.len()) {
            self.ends.push((self.buffer.len(), self.writer.flushed()));
        }
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        if self.failed.is_none() {
            let (done, error) = write(&mut self.file, &self.buffer);
            let (before, _) = self.written;
            if let Some((end, extent)) = self.ends.iter().rfind(|(end, _)| *end <= done) {
                self.written = (before + *end as u64, *extent);
            }
            if let Some(error) = error {
                self.ends_early(&error);
            }
        }
        self.buffer.clear();
        self.ends.clear();
    }

    fn ends_early(&mut self, error: &io::Error) {
        let (whole, extent) = self.written;
        // Half a block would look like damage.
        let _ = self.file.cut(whole);
        self.not_written = self.writer.accesses() - extent.accesses;
        let failed = format!(
            "{}: writing ended after {}; {} can be read up to there",
            sonar_mongo::without_number(&error.to_string()),
            ByteSize(whole),
            self.path.display()
        );
        eprintln!("mongosonar: {failed}; accesses are counted on");
        self.failed = Some(failed);
    }
}

/// Writes all of it; returns the number of bytes written, and the error that ended it.
fn write(to: &mut impl Write, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        match to.write(&bytes[done..]) {
            Ok(0) => return (done, Some(io::ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sonar_core::Timestamp;
    use sonar_core::files::AccessKind;
    use sonar_decode::io_file::{RecordingBlock, RecordingParser, RecordingStep};

    use super::*;

    fn access(number: u64) -> IoAccess {
        IoAccess {
            start: Timestamp::from_unix_ns(number * 1_000_003),
            latency_ns: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20,
            thread: 7,
            file: 1,
            kind: AccessKind::Read,
            offset: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12,
            asked: 4_096,
            given: 4_096,
            error: 0,
            device_bytes: None,
        }
    }

    /// Accesses in a recording, and accesses that were not written; `None` if its end is missing.
    fn held(bytes: &[u8]) -> (u64, Option<u64>) {
        let (mut parser, mut rest, mut accesses, mut lost) = (RecordingParser::new(), bytes, 0, None);
        while !rest.is_empty() {
            let RecordingStep::Block { block, consumed } = parser.next(rest).unwrap() else { break };
            match block {
                RecordingBlock::Accesses(block) => accesses += block.count() as u64,
                RecordingBlock::Lost(counts) => lost = Some(counts.losses().not_written),
                _ => {}
            }
            rest = &rest[consumed..];
        }
        (accesses, parser.finish(rest.len()).ok().and(lost))
    }

    /// A disk with room for `room` bytes.
    struct SmallDisk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room - self.bytes.len()).min(9_999);
            if taken == 0 {
                return Err(io::Error::from_raw_os_error(28));
            }
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Store for &mut SmallDisk {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            self.bytes.truncate(length as usize);
            Ok(())
        }

        fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
            assert_eq!(at, self.bytes.len() as u64);
            Write::write_all(self, bytes)
        }
    }

    #[test]
    fn a_disk_that_is_full_leaves_whole_blocks_and_the_count_of_the_rest() {
        let count = 200_000;
        for room in [0, 11, 5_000, 100_000, 1_500_000, 2_000_001, 1 << 30] {
            let mut disk = SmallDisk { bytes: Vec::new(), room };
            let mut buffer = Vec::new();
            let writer = RecordingWriter::begin(&[("host", "here")], &mut buffer);
            let mut recording = RecordingFile::new(&mut disk, Path::new("x.msio"), writer, buffer);
            recording.file(&FileEntry { file: 1, device: 1, inode: 1, path: "/db/a.wt" });
            (0..count).for_each(|number| recording.access(&access(number)));
            let ended = recording.end(IoLosses::default());
            assert_eq!(ended.failed.is_some(), room < 1 << 30, "{room}");
            assert_eq!(ended.accesses + ended.losses.not_written, count, "{room}");
            // Nearly all of the room is used: a block has 64 KiB.
            assert!(
                ended.failed.is_none() || room < 70_000 + disk.bytes.len(),
                "{room}: {}",
                disk.bytes.len()
            );
            match room {
                0 | 11 => assert!(disk.bytes.is_empty(), "{room}: not even its beginning"),
                _ => {
                    assert_eq!(held(&disk.bytes), (ended.accesses, Some(ended.losses.not_written)), "{room}")
                }
            }
        }
    }

    #[test]
    fn without_room_for_its_end_a_recording_is_cut_after_a_whole_block() {
        let mut disk = SmallDisk { bytes: Vec::new(), room: usize::MAX };
        let mut buffer = Vec::new();
        let writer = RecordingWriter::begin(&[("host", "here")], &mut buffer);
        let mut recording = RecordingFile::new(&mut disk, Path::new("x.msio"), writer, buffer);
        (0..100).for_each(|number| recording.access(&access(number)));
        recording.writer.flush(&mut recording.buffer);
        recording.block_ended();
        recording.flush();
        recording.file.room = recording.file.bytes.len() + 3;
        recording.access(&access(100));
        let ended = recording.end(IoLosses::default());
        assert_eq!((ended.accesses, ended.losses.not_written), (100, 1));
        assert_eq!(held(&disk.bytes), (100, None));
    }
}
