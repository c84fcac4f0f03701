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
//! Version 2 adds one kind of access, pages that were brought into the page cache (5). A recording without them is
//! written as version 1, which older programs read; they refuse version 2 by its number.
//!
//! Times are in nanoseconds; that of a start is since the Unix epoch. Differences are against the access before
//! it in the *same block* (against 0 at its beginning) and wrap at 64 bits, so that each block can be read by
//! itself. A payload has at most [`MAX_PAYLOAD`] bytes. A later entry for the same
//! file or thread replaces the earlier one. Blocks of other kinds are skipped, so that a later
//! version can add some. A file without its end was cut: its writer did not finish.

mod layout;
mod read;
mod write;

pub use layout::{MAGIC, MAX_PAYLOAD, VERSION, VERSION_WITH_PAGES};
pub use read::{
    Accesses, FileEntry, Files, Info, Lost, RecordingBlock, RecordingError, RecordingParser, RecordingStep,
    ThreadEntry, Threads,
};
pub use write::{BlockExtent, RecordingWriter};
