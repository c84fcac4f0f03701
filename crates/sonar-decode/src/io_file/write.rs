//! Writes a recording.

use sonar_core::files::{AccessKind, IoAccess, IoLosses};
use sonar_core::words::cut;

use super::layout::{
    ACCESSES, BLOCK_HEADER, END, FILES, INFO, LOST, MAGIC, MAX_PAYLOAD, THREADS, VERSION, VERSION_WITH_PAGES,
    checksum,
};
use super::read::{FileEntry, ThreadEntry};

/// A block of accesses is written once it has this many bytes.
const BLOCK: usize = 64 * 1024;
/// The most bytes of a text; longer ones are cut.
const MAX_TEXT: usize = 8 * 1024;

/// How much a recording holds up to the end of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockExtent {
    /// Accesses.
    pub accesses: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Makes the bytes of a recording. Each call appends whole blocks, or nothing yet, to the buffer that it is
/// given.
#[derive(Debug, Default)]
pub struct RecordingWriter {
    pending: Vec<u8>,
    pending_count: u64,
    start: u64,
    end: u64,
    thread: u32,
    file: u32,
    accesses: u64,
    blocks: u64,
    version: u16,
}

impl RecordingWriter {
    /// Begins a file.
    pub fn begin(info: &[(&str, &str)], out: &mut Vec<u8>) -> Self {
        Self::begin_as(VERSION, info, out)
    }

    /// Begins a file that may hold [`AccessKind::PageIn`], which older programs do not read.
    pub fn begin_with_pages(info: &[(&str, &str)], out: &mut Vec<u8>) -> Self {
        Self::begin_as(VERSION_WITH_PAGES, info, out)
    }

    fn begin_as(version: u16, info: &[(&str, &str)], out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        let mut writer = Self { version, ..Self::default() };
        writer.info(info, out);
        writer
    }

    /// Adds information on how the recording is made.
    pub fn info(&mut self, info: &[(&str, &str)], out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        for (key, value) in info {
            text(key, &mut payload);
            text(value, &mut payload);
        }
        self.block(INFO, &payload, out);
    }

    /// Adds a file. Call it before the first access to that file.
    pub fn file(&mut self, entry: &FileEntry<'_>, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(entry.path.len() + 32);
        varint(u64::from(entry.file), &mut payload);
        varint(entry.device, &mut payload);
        varint(entry.inode, &mut payload);
        text(entry.path, &mut payload);
        self.block(FILES, &payload, out);
    }

    /// Adds a thread.
    pub fn thread(&mut self, entry: &ThreadEntry<'_>, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(32);
        varint(u64::from(entry.thread), &mut payload);
        varint(u64::from(entry.process), &mut payload);
        text(entry.name, &mut payload);
        self.block(THREADS, &payload, out);
    }

    /// Adds an access.
    pub fn access(&mut self, access: &IoAccess, out: &mut Vec<u8>) {
        debug_assert!(access.kind != AccessKind::PageIn || self.version == VERSION_WITH_PAGES);
        let to = &mut self.pending;
        let differs = access.given != access.asked && !access.kind.is_sync();
        let device = match access.device_bytes {
            None => 0,
            Some(0) => 1,
            Some(_) => 2,
        };
        let flags =
            access.kind.code() | u8::from(differs) << 3 | device << 4 | u8::from(access.error != 0) << 6;
        to.push(flags);
        let start = access.start.unix_ns();
        zigzag(start.wrapping_sub(self.start), to);
        varint(access.latency_ns, to);
        zigzag(u64::from(access.thread).wrapping_sub(u64::from(self.thread)), to);
        zigzag(u64::from(access.file).wrapping_sub(u64::from(self.file)), to);
        if !access.kind.is_sync() {
            zigzag(access.offset.wrapping_sub(self.end), to);
            varint(access.asked, to);
            if differs {
                varint(access.given, to);
            }
            self.end = access.offset.wrapping_add(access.given);
        }
        if let Some(bytes) = access.device_bytes.filter(|bytes| *bytes > 0) {
            varint(bytes, to);
        }
        if access.error != 0 {
            varint(u64::from(access.error), to);
        }
        (self.start, self.thread, self.file) = (start, access.thread, access.file);
        self.pending_count += 1;
        if self.pending.len() >= BLOCK {
            self.flush(out);
        }
    }

    /// Writes out the accesses that have been gathered.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.pending_count == 0 {
            return;
        }
        let mut payload = Vec::with_capacity(self.pending.len() + 10);
        varint(self.pending_count, &mut payload);
        payload.append(&mut self.pending);
        self.accesses += self.pending_count;
        (self.pending_count, self.start, self.end, self.thread, self.file) = (0, 0, 0, 0, 0);
        self.block(ACCESSES, &payload, out);
    }

    /// Records what has been lost since the beginning.
    pub fn lost(&mut self, losses: &IoLosses, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        for (code, _, count) in losses.iter() {
            payload.push(code);
            varint(count, &mut payload);
        }
        self.block(LOST, &payload, out);
    }

    /// Ends the file.
    pub fn end(mut self, losses: &IoLosses, out: &mut Vec<u8>) {
        self.flush(out);
        Self::end_after(self.flushed(), losses, out);
    }

    /// Ends a file with these contents.
    pub fn end_after(extent: BlockExtent, losses: &IoLosses, out: &mut Vec<u8>) {
        let BlockExtent { accesses, blocks } = extent;
        let mut writer = Self { accesses, blocks, ..Self::default() };
        writer.lost(losses, out);
        let mut payload = Vec::new();
        varint(writer.accesses, &mut payload);
        varint(writer.blocks, &mut payload);
        writer.block(END, &payload, out);
    }

    /// What the blocks that have been written so far hold.
    pub const fn flushed(&self) -> BlockExtent {
        BlockExtent { accesses: self.accesses, blocks: self.blocks }
    }

    /// Accesses so far.
    pub const fn accesses(&self) -> u64 {
        self.accesses + self.pending_count
    }

    fn block(&mut self, kind: u8, payload: &[u8], out: &mut Vec<u8>) {
        debug_assert!(payload.len() <= MAX_PAYLOAD);
        let mut header = [0; BLOCK_HEADER];
        header[0] = kind;
        header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let sum = checksum(&header[..8], payload);
        header[8..].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
        self.blocks += 1;
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A difference that wrapped at 64 bits.
fn zigzag(difference: u64, out: &mut Vec<u8>) {
    let signed = difference as i64;
    varint(((signed << 1) ^ (signed >> 63)) as u64, out);
}

fn text(text: &str, out: &mut Vec<u8>) {
    let text = cut(text, MAX_TEXT);
    varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}
