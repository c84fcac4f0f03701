//! The file of recorded accesses (`mongosonar io record`), versions 1 and 2.
//!
//! # Layout
//! Integers of fixed width are little-endian. *Varint* is LEB128 of at most ten bytes; *zigzag* is a
//! varint of `(n << 1) ^ (n >> 63)`; *text* is a varint length in bytes and UTF-8.
//!
//! ```text
//! file    = "MSONARIO" u16 version, u16 zero, block*
//! block   = u8 kind, u8[3] zero, u32 length of payload, u32 CRC-32 of (kind, zero, length, payload), payload
//! payload of kind
//!   1 info      (text key, text value)*
//!   2 files     (varint file, varint device, varint inode, text path)*
//!   3 threads   (varint thread, varint process, text name)*
//!   4 accesses  varint count, access*
//!   5 lost      (u8 code, varint count)*       counts since the beginning; codes of `IoLosses`
//!   6 end       varint accesses, varint blocks  that came before in this file
//! access  = u8 flags, zigzag start - last start, varint latency, zigzag thread - last thread,
//!           zigzag file - last file, [zigzag offset - last end, varint asked, [varint given]] (not of flushes),
//!           [varint device bytes], [varint error]
//! flags   = bits 0-2 kind, bit 3 given differs from asked, bits 4-5 device (0 not known, 1 none, 2 bytes follow),
//!           bit 6 error follows
//! ```
//! Version 2 is the same with one kind of access more, pages that were brought into the page cache (5); what has none of
//! them is written as version 1, which older programs read. They refuse version 2 by its number.
//!
//! Times are nanoseconds, of a start since the Unix epoch. What is a difference is against the access
//! before it in the *same block* (against 0 at its beginning) and wraps at 64 bits, so that a block is
//! read without those before it. A payload has at most [`MAX_PAYLOAD`] bytes. A later entry for the same
//! file or thread replaces the earlier one. Blocks of other kinds are passed over, so that a later
//! version can add some. A file without its end was cut: whoever wrote it did not come to the end.

mod read;
mod write;

pub use read::{Accesses, Block, Error, FileEntry, Files, Info, Lost, Parser, Step, ThreadEntry, Threads};
pub use write::{Extent, Writer};

/// How a file begins.
pub const MAGIC: &[u8; 8] = b"MSONARIO";
/// The version of recordings that hold accesses only.
pub const VERSION: u16 = 1;
/// The version of those that may hold pages that were brought in, and the newest that this reads.
pub const VERSION_WITH_PAGES: u16 = 2;
/// Bytes a payload has at most.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes before the first block.
const FILE_HEADER: usize = 12;
/// Bytes before a payload.
const BLOCK_HEADER: usize = 12;

const INFO: u8 = 1;
const FILES: u8 = 2;
const THREADS: u8 = 3;
const ACCESSES: u8 = 4;
const LOST: u8 = 5;
const END: u8 = 6;

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}
