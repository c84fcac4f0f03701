//! `--write`: keeps what was captured as pcapng.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sonar_core::Packet;
use sonar_decode::capture_file::{Interface, Section, Writer};

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 20;

/// A capture file that is being written. An error, like a full disk, ends the writing and not the
/// listening.
pub struct Keep {
    path: PathBuf,
    file: File,
    writer: Writer,
    /// Of the file, by the kernel's; `None` where the file takes no more of them.
    numbers: HashMap<u32, Option<u32>>,
    buffer: Vec<u8>,
    failed: bool,
}

impl Keep {
    /// Makes the file, readable by its owner only. An existing one is never touched.
    pub fn create(path: &Path) -> Result<Self> {
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(|| {
                format!(
                    "cannot make {}: --write makes a new file and leaves existing ones alone",
                    path.display()
                )
            })?;
        eprintln!(
            "mongosonar: {} will hold whole commands and replies, with their values; only its owner may read it",
            path.display()
        );
        let mut buffer = Vec::with_capacity(BUFFER + (1 << 17));
        let application = concat!("mongosonar ", env!("CARGO_PKG_VERSION"));
        let section = Section { hardware: std::env::consts::ARCH, os: std::env::consts::OS, application };
        let writer = Writer::begin(&section, &mut buffer);
        Ok(Self { path: path.into(), file, writer, numbers: HashMap::new(), buffer, failed: false })
    }

    /// Adds a packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        if self.failed {
            return;
        }
        let number = *self.numbers.entry(packet.interface).or_insert_with(|| {
            // Looked up when it is first heard of: it may be younger than this capture.
            let all = sonar_sys::interfaces::list().unwrap_or_default();
            let name = all.iter().find(|interface| interface.index == packet.interface);
            let name = name.map_or("", |interface| interface.name.as_str());
            let interface = Interface { name, link: packet.link, snap_len: 0 };
            self.writer.interface(&interface, &mut self.buffer)
        });
        let Some(number) = number else { return };
        self.writer.packet(number, packet, &mut self.buffer);
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Writes what has been gathered.
    pub fn flush(&mut self) {
        if self.failed {
            return;
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            self.failed = true;
            eprintln!("mongosonar: writing {} ends here: {error}; listening goes on", self.path.display());
        }
        self.buffer.clear();
    }
}
