//! What a parser of a capture file finds, and why it may fail.

use std::fmt;

use sonar_core::Packet;

/// The longest packet that is read, in bytes. No link carries packets of more than about half a megabyte, so a longer
/// one means that the file is damaged, or is no capture file further on.
pub const MAX_PACKET_LEN: u32 = 16 << 20;

/// The longest block or record that has to be in the buffer as a whole, in bytes.
pub const MAX_BLOCK_LEN: u32 = MAX_PACKET_LEN + (1 << 20);

/// The most interfaces that one section of a pcapng file may describe.
pub const MAX_INTERFACES: usize = 1 << 16;

/// What [`CaptureParser::next`](super::CaptureParser::next) found at the beginning of the buffer.
#[derive(Copy, Clone, Debug)]
pub enum Step<'a> {
    /// A packet; the buffer goes on after `consumed` bytes.
    Packet {
        /// The packet, borrowed from the buffer.
        packet: Packet<'a>,
        /// Bytes to leave behind.
        consumed: usize,
    },
    /// Secrets that decrypt packets, which the file brings with it; the buffer goes on after `consumed` bytes.
    Secrets {
        /// A key log of TLS, as [`KeyLogReader`](crate::KeyLogReader) reads it.
        key_log: &'a [u8],
        /// Bytes to leave behind.
        consumed: usize,
    },
    /// No packet; the buffer goes on after `consumed` bytes, which is never 0.
    Skip {
        /// Bytes to leave behind.
        consumed: usize,
    },
    /// The buffer must hold this many bytes, from the same beginning, before anything can be said. At the end of the
    /// file call [`CaptureParser::end`](super::CaptureParser::end).
    Need {
        /// More than the buffer held, [`MAX_BLOCK_LEN`] at most.
        at_least: usize,
    },
}

/// Why a file cannot be read, or not further. Offsets count the bytes of the file from 0, after decompression.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The first bytes are those of neither format.
    #[error("not a capture file (pcap or pcapng): {0}")]
    NotACapture(Beginning),
    /// A format of 1998 or before, or of the future.
    #[error("version {major}.{minor} of the capture format at offset {offset} is not known")]
    Version {
        /// Where the header is.
        offset: u64,
        /// Before the dot.
        major: u16,
        /// After the dot.
        minor: u16,
    },
    /// The byte-order mark of a pcapng section is wrong in both byte orders.
    #[error("damaged capture file: byte-order mark {found:02x?} in the section at offset {offset}")]
    ByteOrder {
        /// Where the section begins.
        offset: u64,
        /// What stands where the mark should.
        found: [u8; 4],
    },
    /// A packet longer than [`MAX_PACKET_LEN`].
    #[error(
        "damaged capture file: a packet of {len} bytes at offset {offset}, and {MAX_PACKET_LEN} are the most"
    )]
    PacketTooLong {
        /// Where its record or block begins.
        offset: u64,
        /// Its length as the file says.
        len: u32,
    },
    /// A pcapng block whose length is not possible.
    #[error("damaged capture file: a block of type {kind:#x} and {len} bytes at offset {offset}")]
    BlockLength {
        /// Where it begins.
        offset: u64,
        /// Its type.
        kind: u32,
        /// Its length as the file says.
        len: u32,
    },
    /// A pcapng block whose second length is not the first one.
    #[error(
        "damaged capture file: the block at offset {offset} has {len} bytes at its beginning, {found} at its end"
    )]
    BlockTrailer {
        /// Where the block begins.
        offset: u64,
        /// The length at its beginning.
        len: u32,
        /// The length at its end.
        found: u32,
    },
    /// A pcapng block too short for its stated content.
    #[error(
        "damaged capture file: the block of type {kind:#x} at offset {offset} is too short for its content"
    )]
    BlockContent {
        /// Where it begins.
        offset: u64,
        /// Its type.
        kind: u32,
    },
    /// A packet of an interface that the section has not described.
    #[error(
        "damaged capture file: the packet at offset {offset} is of interface {interface}, which is not described"
    )]
    UnknownInterface {
        /// Where its block begins.
        offset: u64,
        /// The interface's number.
        interface: u32,
    },
    /// More than [`MAX_INTERFACES`] interfaces in one section.
    #[error("damaged capture file: more than {MAX_INTERFACES} interfaces at offset {offset}")]
    TooManyInterfaces {
        /// Where the block of the one too many begins.
        offset: u64,
    },
    /// The file ends in the middle of a packet or block. Everything before it was given.
    #[error("the capture file ends in the middle of the packet or block at offset {offset}")]
    Truncated {
        /// Where the unfinished packet or block begins.
        offset: u64,
    },
}

/// The first bytes of something that is no capture file.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Beginning {
    bytes: [u8; 4],
    len: u8,
}

impl Beginning {
    /// Of a file that begins like `bytes`; only the first four are kept.
    pub fn new(bytes: &[u8]) -> Self {
        let mut kept = [0; 4];
        let len = bytes.len().min(kept.len());
        kept[..len].copy_from_slice(&bytes[..len]);
        Self { bytes: kept, len: len as u8 }
    }

    /// The bytes, four or as many as there were.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// `begins with 7b 22 66 6f`, or `it is empty`.
impl fmt::Display for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len == 0 {
            return f.write_str("it is empty");
        }
        f.write_str("begins with")?;
        self.bytes().iter().try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

impl fmt::Debug for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Numbers out of the fields of a file, in its byte order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Little,
    Big,
}

impl Order {
    #[inline]
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(super) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The `n`-th word of `bytes`; 0 past their end, which callers with arrays never reach.
    #[inline]
    pub(super) fn word(self, bytes: &[u8], n: usize) -> u32 {
        bytes.get(n * 4..).and_then(<[u8]>::first_chunk).map_or(0, |word| self.u32(*word))
    }
}
