//! Capture files: pcap and pcapng to packets, and packets to pcapng.
//!
//! [`Parser`] does no I/O: it is handed the bytes that are there and says what to do next. The caller
//! reads, undoes gzip or zstd, and keeps a buffer; no packet needs more of it than [`MAX_BLOCK_LEN`].
//!
//! Formats: [pcap](https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html) and
//! [pcapng](https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html).

mod pcap;
mod pcapng;
mod write;

use std::fmt;

use sonar_core::Packet;

pub use write::{Interface, Section, Writer};

/// The longest packet that is read, in bytes. No link carries one of more than about half a megabyte;
/// a longer one means that the file is damaged, or that it is no capture file further on.
pub const MAX_PACKET_LEN: u32 = 16 << 20;

/// The longest block or record that has to be in the buffer as a whole, in bytes.
pub const MAX_BLOCK_LEN: u32 = MAX_PACKET_LEN + (1 << 20);

/// The most interfaces that one section of a pcapng file may describe.
pub const MAX_INTERFACES: usize = 1 << 16;

/// What [`Parser::next`] found at the beginning of the buffer.
#[derive(Copy, Clone, Debug)]
pub enum Step<'a> {
    /// A packet; the buffer goes on after `consumed` bytes.
    Packet {
        /// The packet, borrowed from the buffer.
        packet: Packet<'a>,
        /// Bytes to leave behind.
        consumed: usize,
    },
    /// No packet; the buffer goes on after `consumed` bytes, which is never 0.
    Skip {
        /// Bytes to leave behind.
        consumed: usize,
    },
    /// Nothing can be said before the buffer, from the same beginning, holds this many bytes. At the end
    /// of the file call [`Parser::end`].
    Need {
        /// More than the buffer held, [`MAX_BLOCK_LEN`] at most.
        at_least: usize,
    },
}

/// Why a file cannot be read, or not further. Offsets count the bytes of the file from 0, after gzip or
/// zstd was undone.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The first bytes are those of neither format.
    #[error("not a capture file (pcap or pcapng): {0}")]
    NotACapture(Beginning),
    /// A format of 1998 or before, or of the future.
    #[error("version {major}.{minor} of the capture format at offset {offset} is not known")]
    Version {
        /// Where the header stands that says so.
        offset: u64,
        /// Before the dot.
        major: u16,
        /// After the dot.
        minor: u16,
    },
    /// The byte-order mark of a pcapng section is neither way round.
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
    /// A pcapng block too short for what it says to hold.
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

    fn may_be_a_capture(&self) -> bool {
        let mut magics = pcap::MAGICS.iter().chain([&pcapng::SECTION_HEADER]);
        self.len > 0 && magics.any(|magic| magic.starts_with(self.bytes()))
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

/// Takes a capture file apart, whichever of the formats it is. After an error it gives the same error
/// again; there is no way to go on.
#[derive(Debug)]
pub struct Parser {
    /// Of the beginning of the buffer.
    offset: u64,
    format: Format,
    failed: Option<Error>,
}

#[derive(Debug)]
enum Format {
    /// What came so far, fewer than four bytes.
    Unknown(Beginning),
    Pcap(pcap::Reader),
    Pcapng(pcapng::Reader),
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

impl Parser {
    /// For a file from its first byte on.
    pub fn new() -> Self {
        Self { offset: 0, format: Format::Unknown(Beginning::new(&[])), failed: None }
    }

    /// Looks at the beginning of `buf`, which must be where the last step's `consumed` bytes ended.
    ///
    /// # Errors
    /// When the file is of no known format or damaged.
    #[inline]
    pub fn next<'a>(&mut self, buf: &'a [u8]) -> Result<Step<'a>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let step = match &mut self.format {
            Format::Pcap(reader) => reader.next(buf, self.offset),
            Format::Pcapng(reader) => reader.next(buf, self.offset),
            Format::Unknown(beginning) => {
                *beginning = Beginning::new(buf);
                match recognise(buf) {
                    Ok(Recognised::Section) => {
                        // A section header is a block like any other: nothing is consumed yet.
                        self.format = Format::Pcapng(pcapng::Reader::default());
                        return self.next(buf);
                    }
                    Ok(Recognised::Pcap(reader)) => {
                        self.format = Format::Pcap(reader);
                        Ok(Step::Skip { consumed: pcap::FILE_HEADER_LEN })
                    }
                    Ok(Recognised::TooShort { at_least }) => Ok(Step::Need { at_least }),
                    Err(error) => Err(error),
                }
            }
        };
        match step {
            Ok(Step::Packet { consumed, .. } | Step::Skip { consumed }) => self.offset += consumed as u64,
            Ok(Step::Need { .. }) => {}
            Err(error) => self.failed = Some(error),
        }
        step
    }

    /// Checks whether the file may end here, with `rest` bytes left that [`next`](Self::next) needed more of.
    ///
    /// # Errors
    /// [`Error::Truncated`], or [`Error::NotACapture`] for an empty file.
    pub fn end(&self, rest: usize) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let unfinished = match &self.format {
            Format::Unknown(beginning) if !beginning.may_be_a_capture() => {
                return Err(Error::NotACapture(*beginning));
            }
            Format::Pcapng(reader) => reader.unfinished(),
            _ => None,
        };
        match unfinished {
            Some(offset) => Err(Error::Truncated { offset }),
            None if rest > 0 => Err(Error::Truncated { offset: self.offset }),
            None => Ok(()),
        }
    }

    /// Where in the file the beginning of the buffer is.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Packets that whoever wrote the file had to drop, as far as the file says so (pcapng interface
    /// statistics).
    pub fn dropped(&self) -> u64 {
        match &self.format {
            Format::Pcapng(reader) => reader.dropped(),
            _ => 0,
        }
    }
}

enum Recognised {
    Section,
    Pcap(pcap::Reader),
    TooShort { at_least: usize },
}

/// The format by the first bytes.
fn recognise(buf: &[u8]) -> Result<Recognised, Error> {
    let Some(magic) = buf.first_chunk::<4>() else { return Ok(Recognised::TooShort { at_least: 4 }) };
    if *magic == pcapng::SECTION_HEADER {
        return Ok(Recognised::Section);
    }
    if !pcap::MAGICS.contains(magic) {
        return Err(Error::NotACapture(Beginning::new(buf)));
    }
    match buf.first_chunk() {
        Some(header) => Ok(Recognised::Pcap(pcap::Reader::new(header)?)),
        None => Ok(Recognised::TooShort { at_least: pcap::FILE_HEADER_LEN }),
    }
}

/// Numbers out of the fields of a file, in its byte order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Little,
    Big,
}

impl Order {
    #[inline]
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The `n`-th word of `bytes`; 0 past their end, which callers with arrays never reach.
    #[inline]
    fn word(self, bytes: &[u8], n: usize) -> u32 {
        bytes.get(n * 4..).and_then(<[u8]>::first_chunk).map_or(0, |word| self.u32(*word))
    }
}
