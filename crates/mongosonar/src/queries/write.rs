//! `--write`: keeps what was captured as pcapng, in one file or in several that follow each other.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::{LinkType, Packet};
use sonar_decode::capture_file::{Interface, Section, Writer};
use sonar_sys::interfaces::Names;
use sonar_view::units::Size;

use super::live::News;
use super::rotate::{Files, Rotation};

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 20;

/// A capture file that is being written. An error, like a full disk, ends the writing and not the
/// listening.
pub struct Recorder {
    path: PathBuf,
    file: File,
    writer: Writer,
    /// What the packets of the file came from: the kernel's number and the link type, by the number in the file.
    interfaces: Vec<(String, LinkType)>,
    /// Of the file, by the kernel's; `None` where the file takes no more of them.
    numbers: HashMap<u32, Option<u32>>,
    names: Option<Names>,
    buffer: Vec<u8>,
    /// Bytes in the file, whole blocks all of them.
    written: u64,
    begun: Instant,
    rotation: Option<(Rotation, Files)>,
    news: Sender<News>,
    failed: Option<String>,
}

impl Recorder {
    /// Makes the file, readable by its owner only. An existing one is never touched. With `rotation` it is the first
    /// of those that `files` makes.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, rotation: Option<(Rotation, Files)>, news: Sender<News>) -> Result<Self> {
        let path = rotation.as_ref().map_or_else(|| path.to_path_buf(), |(_, files)| files.first());
        let file = new_file(&path).with_context(|| {
            format!("cannot make {}: --write makes a new file and leaves existing ones alone", path.display())
        })?;
        eprintln!(
            "mongosonar: {} will hold whole commands and replies, with their values; only its owner may read it",
            path.display()
        );
        let mut buffer = Vec::with_capacity(BUFFER + (1 << 17));
        let writer = begin(&mut buffer);
        let mut recorder = Self {
            path,
            file,
            writer,
            interfaces: Vec::new(),
            numbers: HashMap::new(),
            names: Names::open().ok(),
            buffer,
            written: 0,
            begun: Instant::now(),
            rotation,
            news,
            failed: None,
        };
        recorder.flush();
        Ok(recorder)
    }

    /// What ended the writing early, where something did.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Adds a packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        if self.failed.is_some() {
            return;
        }
        let number = *self.numbers.entry(packet.interface).or_insert_with(|| {
            // Asked when it is first seen: it may be younger than this capture.
            let name = self.names.as_ref().map(|names| names.of(packet.interface)).unwrap_or_default();
            let interface = Interface { name: &name, link: packet.link, snap_len: 0 };
            let number = self.writer.interface(&interface, &mut self.buffer);
            if number.is_some() {
                self.interfaces.push((name, packet.link));
            }
            number
        });
        let Some(number) = number else { return };
        self.writer.packet(number, packet, &mut self.buffer);
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Writes what has been gathered.
    pub fn flush(&mut self) {
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
                let failed = format!(
                    "{error}: writing ended after {}; {} can be read up to there",
                    Size(self.written),
                    self.path.display()
                );
                self.news.send(News::WritingEnded(failed.clone())).ok();
                self.failed = Some(failed);
            }
        }
        self.buffer.clear();
        self.rotate();
    }

    /// Goes on in the next file where this one is large or old enough, and the next one is there.
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
            // It is being made: the next flush sees it.
            None => {}
            Some(Ok((file, path))) => {
                (self.file, self.path, self.written, self.begun) = (file, path, 0, Instant::now());
                self.writer = begin(&mut self.buffer);
                // A file stands for itself: it describes the interfaces anew, by the same numbers.
                for (name, link) in &self.interfaces {
                    let interface = Interface { name, link: *link, snap_len: 0 };
                    self.writer.interface(&interface, &mut self.buffer);
                }
            }
            Some(Err(error)) => {
                let failed = format!(
                    "writing ended with {}: the next file cannot be made: {error}",
                    self.path.display()
                );
                self.news.send(News::WritingEnded(failed.clone())).ok();
                self.failed = Some(failed);
            }
        }
    }
}

fn begin(buffer: &mut Vec<u8>) -> Writer {
    let application = concat!("mongosonar ", env!("CARGO_PKG_VERSION"));
    let section = Section { hardware: std::env::consts::ARCH, os: std::env::consts::OS, application };
    Writer::begin(&section, buffer)
}

/// A new file that its owner only may read.
///
/// # Errors
/// There is one of this name, or none can be made.
pub fn new_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes blocks; gives the bytes of those that were written whole, and the error that ended it.
fn write_blocks(to: &mut impl Write, blocks: &[u8]) -> (u64, Option<std::io::Error>) {
    let mut done = 0;
    let error = loop {
        match to.write(&blocks[done..]) {
            _ if done == blocks.len() => return (done as u64, None),
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

/// How long a file is written to, in words of a person: `100M`, `1h`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_rotation(text: &str) -> Result<Rotation, String> {
    let wrong = || format!("{text:?} is neither a size like 100M or 2G nor a time like 10m or 1h");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    let shift = match unit {
        "K" | "KiB" | "k" => 10,
        "M" | "MiB" | "MB" => 20,
        "G" | "GiB" | "GB" => 30,
        _ => {
            let time = crate::cli::parse_duration(text).map_err(|_| wrong())?;
            return match time {
                _ if unit.is_empty() => Err(wrong()),
                time if time < Duration::from_secs(1) => Err(format!("{text} is too short: at least 1s")),
                time => Ok(Rotation::Time(time)),
            };
        }
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    match bytes.ok_or_else(wrong)? {
        bytes if bytes < 64 << 10 => Err(format!("{text} is too small: at least 64K")),
        bytes => Ok(Rotation::Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct Small(usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.0).min(7);
            self.0 -= taken;
            if taken == 0 && !bytes.is_empty() {
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
            let (whole, error) = write_blocks(&mut Small(room), &blocks);
            let expected = ends.iter().copied().filter(|end| *end <= room).max().unwrap_or(0);
            assert_eq!((whole, error.is_none()), (expected as u64, room == blocks.len()), "{room}");
        }
    }

    #[test]
    fn a_rotation_is_a_size_or_a_time() {
        assert_eq!(parse_rotation("100M"), Ok(Rotation::Bytes(100 << 20)));
        assert_eq!(parse_rotation("2G"), Ok(Rotation::Bytes(2 << 30)));
        assert_eq!(parse_rotation("10m"), Ok(Rotation::Time(Duration::from_secs(600))));
        assert_eq!(parse_rotation("1h"), Ok(Rotation::Time(Duration::from_secs(3_600))));
        for bad in ["", "M", "10", "1K", "10ms", "x", "-1M", "99999999999999G"] {
            assert!(parse_rotation(bad).is_err(), "{bad}");
        }
    }
}
