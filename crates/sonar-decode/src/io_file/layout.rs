//! The constants of the layout.

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"MSONARIO";
/// The version of recordings that hold accesses only.
pub const VERSION: u16 = 1;
/// The version of recordings that may also hold pages brought into the page cache; the newest one that is read.
pub const VERSION_WITH_PAGES: u16 = 2;
/// The most bytes of a payload.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes before the first block.
pub(super) const FILE_HEADER: usize = 12;
/// Bytes before a payload.
pub(super) const BLOCK_HEADER: usize = 12;

pub(super) const INFO: u8 = 1;
pub(super) const FILES: u8 = 2;
pub(super) const THREADS: u8 = 3;
pub(super) const ACCESSES: u8 = 4;
pub(super) const LOST: u8 = 5;
pub(super) const END: u8 = 6;

pub(super) fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}
