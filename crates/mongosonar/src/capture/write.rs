//! `--write`: keeps what was captured as pcapng, in one file or in several that follow each other.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;
use sonar_core::{LinkType, Packet};
use sonar_decode::capture_file::{InterfaceDescription, PcapngWriter, SectionHeader};
use sonar_sys::interfaces::{self, InterfaceNames};
use sonar_view::kit::ByteSize;

use super::notice::Notice;
use super::rotate::{Next, Rotation, SeriesFiles, new_file};
use crate::outfile::cannot_create;

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 20;

/// What every file of `--write` begins with: the section header, and the interfaces that exist when the capture
/// starts. A file is never without it, so that one without packets can be read too.
pub struct FileHeader {
    bytes: Vec<u8>,
    /// Ready for what follows these bytes.
    writer: PcapngWriter,
    /// Numbers in the file, by the kernel's number and the link type of an interface.
    numbers: HashMap<(u32, LinkType), Option<u32>>,
}

impl FileHeader {
    /// For a capture on the interfaces of these names; on all that are up where no name is given.
    pub fn new(names: &[String]) -> Self {
        let mut bytes = Vec::new();
        let application = concat!("mongosonar ", env!("CARGO_PKG_VERSION"));
        let section =
            SectionHeader { hardware: std::env::consts::ARCH, os: std::env::consts::OS, application };
        let mut writer = PcapngWriter::begin(&section, &mut bytes);
        let mut numbers = HashMap::new();
        // One that is missing here is described when its first packet comes.
        for interface in interfaces::list().unwrap_or_default() {
            let is_captured = if names.is_empty() { interface.up } else { names.contains(&interface.name) };
            if is_captured {
                let link = if interface.ethernet { LinkType::Ethernet } else { LinkType::Raw };
                let block = InterfaceDescription { name: &interface.name, link, snap_len: 0 };
                numbers.insert((interface.index, link), writer.interface(&block, &mut bytes));
            }
        }
        Self { bytes, writer, numbers }
    }

    /// The bytes that a file begins with.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Writes captured packets into a file, or a series of files. After an error, such as a full disk, it writes nothing
/// more; the capture itself goes on.
pub struct PacketRecorder {
    path: PathBuf,
    file: File,
    header: FileHeader,
    writer: PcapngWriter,
    /// Interfaces that the header does not describe, in the order of their numbers in the file.
    later: Vec<(String, LinkType)>,
    names: Option<InterfaceNames>,
    buffer: Vec<u8>,
    /// Bytes in the file, all of them whole blocks.
    written: u64,
    begun: Instant,
    rotation: Option<(Rotation, SeriesFiles)>,
    news: Sender<Notice>,
    failed: Option<String>,
}

/// One that all threads of a capture write to.
pub type SharedRecorder = Arc<Mutex<PacketRecorder>>;

impl PacketRecorder {
    /// Writes one file, readable by its owner only. It must not exist yet.
    ///
    /// # Errors
    /// The file cannot be created, or not even its header can be written.
    pub fn create(path: &Path, header: FileHeader, news: Sender<Notice>) -> Result<Self> {
        let file = new_file(path, header.bytes()).map_err(|error| cannot_create(path, error))?;
        Ok(Self::of(file, path.to_path_buf(), header, news))
    }

    /// Writes a series of these files after its first one; `rotation` says when the next one begins.
    pub fn in_series(self, rotation: Rotation, files: SeriesFiles) -> Self {
        Self { rotation: Some((rotation, files)), ..self }
    }

    /// Writes a file that has its header already.
    pub fn of(file: File, path: PathBuf, header: FileHeader, news: Sender<Notice>) -> Self {
        eprintln!(
            "mongosonar: {} will hold whole commands and replies, with their values; only its owner may read it",
            path.display()
        );
        Self {
            path,
            file,
            writer: header.writer.clone(),
            later: Vec::new(),
            names: InterfaceNames::open().ok(),
            buffer: Vec::with_capacity(BUFFER + (1 << 17)),
            written: header.bytes.len() as u64,
            header,
            begun: Instant::now(),
            rotation: None,
            news,
            failed: None,
        }
    }

    /// Why writing ended early, if it did.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Adds a packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        if self.failed.is_some() {
            return;
        }
        let number = *self.header.numbers.entry((packet.interface, packet.link)).or_insert_with(|| {
            // The interface may be younger than this capture.
            let name = self.names.as_ref().map(|names| names.of(packet.interface)).unwrap_or_default();
            let interface = InterfaceDescription { name: &name, link: packet.link, snap_len: 0 };
            let number = self.writer.interface(&interface, &mut self.buffer);
            if number.is_some() {
                self.later.push((name, packet.link));
            }
            number
        });
        // The file takes no more interfaces.
        let Some(number) = number else { return };
        self.writer.packet(number, packet, &mut self.buffer);
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Writes what is in the buffer, and begins the next file when it is due.
    pub fn flush(&mut self) {
        self.write_buffer();
        self.rotate();
    }

    fn write_buffer(&mut self) {
        if self.failed.is_some() {
            return;
        }
        match write_blocks(&mut self.file, &self.buffer) {
            (whole, None) => self.written += whole,
            (whole, Some(error)) => {
                self.written += whole;
                // Half a block would look like damage.
                let _ = self.file.set_len(self.written);
                // The reason comes first: a narrow screen cuts a long path.
                self.fail(format!(
                    "{error}: writing ended after {}; {} can be read up to there",
                    ByteSize(self.written),
                    self.path.display()
                ));
            }
        }
        self.buffer.clear();
    }

    fn fail(&mut self, reason: String) {
        self.news.send(Notice::WritingEnded(reason.clone())).ok();
        self.failed = Some(reason);
    }

    /// Goes on in the next file if this one is large or old enough and the next one exists.
    fn rotate(&mut self) {
        let Some((rotation, files)) = &mut self.rotation else { return };
        let due = match *rotation {
            Rotation::Bytes(bytes) => self.written >= bytes,
            Rotation::Time(time) => self.begun.elapsed() >= time,
        };
        if !due || self.failed.is_some() {
            return;
        }
        match files.next() {
            // Not yet: the next flush asks again.
            None => {}
            Some(Ok(Next { file, path, complaint })) => {
                if let Some(complaint) = complaint {
                    self.news.send(Notice::Complaint(complaint)).ok();
                }
                (self.file, self.path, self.begun) = (file, path, Instant::now());
                self.written = self.header.bytes.len() as u64;
                self.writer = self.header.writer.clone();
                // Each file describes all interfaces, under the same numbers.
                for (name, link) in &self.later {
                    let interface = InterfaceDescription { name, link: *link, snap_len: 0 };
                    self.writer.interface(&interface, &mut self.buffer);
                }
                self.write_buffer();
            }
            Some(Err(error)) => {
                let path = self.path.display();
                self.fail(format!("writing ended with {path}: the next file cannot be created: {error}"));
            }
        }
    }
}

/// Writes blocks; gives the bytes of those that were written whole, and the error that ended it.
fn write_blocks(to: &mut impl Write, blocks: &[u8]) -> (u64, Option<std::io::Error>) {
    let mut done = 0;
    let error = loop {
        if done == blocks.len() {
            return (done as u64, None);
        }
        match to.write(&blocks[done..]) {
            Ok(0) => break std::io::ErrorKind::WriteZero.into(),
            Ok(written) => done += written,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
    };
    let mut whole = 0;
    // The length of a block stands at its fifth byte.
    while let Some(length) = blocks.get(whole + 4..whole + 8).and_then(|bytes| bytes.first_chunk()) {
        let end = whole + u32::from_le_bytes(*length) as usize;
        if end > done || end == whole {
            break;
        }
        whole = end;
    }
    (whole as u64, Some(error))
}

#[cfg(test)]
mod tests {
    use sonar_decode::capture_file::{CaptureParser, Step};

    use super::super::rotate::Started;
    use super::*;

    /// A disk with room for this number of bytes.
    struct TinyDisk(usize);

    impl Write for TinyDisk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.0).min(7);
            self.0 -= taken;
            assert!(!bytes.is_empty(), "nothing to write");
            if taken == 0 {
                return Err(std::io::Error::from_raw_os_error(28));
            }
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_took_is_counted_in_whole_blocks() {
        let mut blocks = Vec::new();
        let ends: Vec<usize> = [12, 32, 16]
            .into_iter()
            .map(|length: u32| {
                let mut block = vec![7; length as usize];
                block[4..8].copy_from_slice(&length.to_le_bytes());
                blocks.append(&mut block);
                blocks.len()
            })
            .collect();
        for room in 0..=blocks.len() {
            let (whole, error) = write_blocks(&mut TinyDisk(room), &blocks);
            let expected = ends.iter().copied().filter(|end| *end <= room).max().unwrap_or(0);
            assert_eq!((whole, error.is_none()), (expected as u64, room == blocks.len()), "{room}");
        }
    }

    /// The link types of the interfaces that a file describes, and how many packets it holds.
    fn contents(path: &Path) -> (usize, usize) {
        let bytes = std::fs::read(path).unwrap();
        let (mut parser, mut at, mut packets) = (CaptureParser::new(), 0, 0);
        loop {
            match parser.next(&bytes[at..]).unwrap() {
                Step::Packet { consumed, .. } => (at, packets) = (at + consumed, packets + 1),
                Step::Skip { consumed } | Step::Secrets { consumed, .. } => at += consumed,
                Step::Need { .. } => break,
            }
        }
        parser.end(bytes.len() - at).unwrap();
        // The type of an interface block is 1; blocks say their length.
        let (mut interfaces, mut at) = (0, 0);
        while let Some(head) = bytes.get(at..at + 8) {
            interfaces += usize::from(head[..4] == [1, 0, 0, 0]);
            at += u32::from_le_bytes(*head[4..].first_chunk().unwrap()) as usize;
        }
        (interfaces, packets)
    }

    fn packet(interface: u32, link: LinkType) -> Packet<'static> {
        Packet {
            time: sonar_core::Timestamp::from_unix(1_700_000_000, 0),
            link,
            interface,
            direction: Default::default(),
            loopback: false,
            vlan_tci: None,
            wire_len: 1_000,
            data: &[7; 1_000],
        }
    }

    #[test]
    fn a_file_can_be_read_as_soon_as_it_exists() {
        let folder = std::env::temp_dir().join(format!("mongosonar-write-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let header = FileHeader::new(&["lo".to_owned()]);
        let (news, _receiver) = std::sync::mpsc::channel();

        let single = folder.join("single.pcapng");
        let recorder =
            PacketRecorder::create(&single, FileHeader::new(&["lo".to_owned()]), news.clone()).unwrap();
        assert_eq!(contents(&single), (1, 0));
        drop(recorder);
        assert!(PacketRecorder::create(&single, FileHeader::new(&[]), news.clone()).is_err(), "it exists");

        let path = folder.join("kept.pcapng");
        let series = SeriesFiles::prepare(&path, None, header.bytes(), false).unwrap();
        let Started { first: (file, path), files, work } = series.start().unwrap();
        let worker = std::thread::spawn(work);
        let kept = |number| folder.join(format!("kept-{number:05}.pcapng"));
        assert_eq!(contents(&kept(1)), (1, 0));
        let recorder = PacketRecorder::of(file, path, header, news);
        let mut recorder = recorder.in_series(Rotation::Bytes(64 << 10), files);
        // Two that the header does not describe: the same number with another link type is another interface.
        for link in [LinkType::Ethernet, LinkType::Raw] {
            for _ in 0..40 {
                recorder.packet(&packet(u32::MAX, link));
            }
        }
        recorder.flush();
        assert_eq!(contents(&kept(1)), (3, 80));
        while recorder.path != kept(2) {
            recorder.flush();
            std::thread::yield_now();
        }
        assert_eq!(contents(&kept(2)), (3, 0), "without another flush");
        recorder.packet(&packet(u32::MAX, LinkType::Raw));
        recorder.flush();
        assert_eq!(contents(&kept(2)), (3, 1));
        drop(recorder);
        worker.join().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
