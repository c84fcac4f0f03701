//! Reads a recording, in pieces of any size.

use sonar_core::Timestamp;
use sonar_core::files::{AccessKind, IoAccess, IoLosses};

use super::layout::{
    ACCESSES, BLOCK_HEADER, END, FILE_HEADER, FILES, INFO, LOST, MAGIC, MAX_PAYLOAD, THREADS, VERSION,
    VERSION_WITH_PAGES,
};

/// What is wrong with a recording. Offsets are in bytes from its beginning.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordingError {
    /// It does not begin like one.
    #[error("this is no recording of accesses: it does not begin with MSONARIO")]
    Foreign,
    /// A version that is not known.
    #[error("this recording has version {0}; this program reads versions up to {VERSION_WITH_PAGES}")]
    Version(u16),
    /// A block whose checksum is wrong, or whose header is impossible.
    #[error("the recording is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where the block begins.
        offset: u64,
        /// In words.
        what: &'static str,
    },
    /// It ends without its last block.
    #[error("the recording is cut at byte {offset}: {}", if *.inside { "inside a block" } else { "its end is missing" })]
    Cut {
        /// How many bytes there are.
        offset: u64,
        /// Whether a block has begun there.
        inside: bool,
    },
}

/// What the next bytes hold.
#[derive(Debug)]
pub enum RecordingStep<'a> {
    /// More bytes are needed, counted from the beginning of those given.
    Need {
        /// At most 12 bytes and [`MAX_PAYLOAD`].
        at_least: usize,
    },
    /// A block.
    Block {
        /// What it holds.
        block: RecordingBlock<'a>,
        /// How many bytes it takes.
        consumed: usize,
    },
}

/// What a block holds. Its checksum is right; an iterator ends at the first impossible entry, and
/// [`is_damaged`](Accesses::is_damaged) then returns true.
#[derive(Debug)]
pub enum RecordingBlock<'a> {
    /// The header of the file, or a kind of block that is not known.
    Other,
    /// How the recording was made: keys and values.
    Info(Info<'a>),
    /// Files by their numbers.
    Files(Files<'a>),
    /// Threads by their ids.
    Threads(Threads<'a>),
    /// Accesses.
    Accesses(Accesses<'a>),
    /// What was lost since the beginning.
    Lost(Lost<'a>),
    /// The end.
    End {
        /// Accesses that the writer counted.
        accesses: u64,
    },
}

/// A file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FileEntry<'a> {
    /// The number that accesses give.
    pub file: u32,
    /// The device of its file system, as in `stat(2)`; 0 when not known.
    pub device: u64,
    /// Inode; 0 when not known.
    pub inode: u64,
    /// Path, as it was when the file was first seen.
    pub path: &'a str,
}

/// A thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ThreadEntry<'a> {
    /// Its id in the kernel.
    pub thread: u32,
    /// The id of its process.
    pub process: u32,
    /// Its name.
    pub name: &'a str,
}

/// The position in a recording. Holds no bytes of it.
#[derive(Debug, Default)]
pub struct RecordingParser {
    offset: u64,
    ended: bool,
}

impl RecordingParser {
    /// At the beginning.
    pub const fn new() -> Self {
        Self { offset: 0, ended: false }
    }

    /// Looks at the bytes that come next. Whatever follows the end is skipped.
    ///
    /// # Errors
    /// The recording cannot be read any further.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<RecordingStep<'a>, RecordingError> {
        if self.ended {
            return match bytes.len() {
                0 => Ok(RecordingStep::Need { at_least: 1 }),
                consumed => Ok(RecordingStep::Block { block: RecordingBlock::Other, consumed }),
            };
        }
        if self.offset == 0 {
            let known = bytes.len().min(MAGIC.len());
            if bytes[..known] != MAGIC[..known] {
                return Err(RecordingError::Foreign);
            }
            let Some(header) = bytes.first_chunk::<FILE_HEADER>() else {
                return Ok(RecordingStep::Need { at_least: FILE_HEADER });
            };
            let version = u16::from_le_bytes([header[8], header[9]]);
            if !(VERSION..=VERSION_WITH_PAGES).contains(&version) {
                return Err(RecordingError::Version(version));
            }
            self.offset = FILE_HEADER as u64;
            return Ok(RecordingStep::Block { block: RecordingBlock::Other, consumed: FILE_HEADER });
        }
        let Some(header) = bytes.first_chunk::<BLOCK_HEADER>() else {
            return Ok(RecordingStep::Need { at_least: BLOCK_HEADER });
        };
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let damaged = |what| RecordingError::Damaged { offset: self.offset, what };
        if length > MAX_PAYLOAD {
            return Err(damaged("a block is longer than one can be"));
        }
        let Some(payload) = bytes.get(BLOCK_HEADER..BLOCK_HEADER + length) else {
            return Ok(RecordingStep::Need { at_least: BLOCK_HEADER + length });
        };
        let sum = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if super::layout::checksum(&header[..8], payload) != sum {
            return Err(damaged("the checksum of a block is wrong"));
        }
        let mut rest = ByteReader { bytes: payload, damaged: false };
        let block = match header[0] {
            INFO => RecordingBlock::Info(Info(rest)),
            FILES => RecordingBlock::Files(Files(rest)),
            THREADS => RecordingBlock::Threads(Threads(rest)),
            ACCESSES => {
                let left = rest.varint().ok_or_else(|| damaged("a block of accesses has no count"))?;
                RecordingBlock::Accesses(Accesses { rest, left, start: 0, end: 0, thread: 0, file: 0 })
            }
            LOST => RecordingBlock::Lost(Lost(rest)),
            END => {
                self.ended = true;
                RecordingBlock::End {
                    accesses: rest.varint().ok_or_else(|| damaged("the end has no count"))?,
                }
            }
            _ => RecordingBlock::Other,
        };
        let consumed = BLOCK_HEADER + length;
        self.offset += consumed as u64;
        Ok(RecordingStep::Block { block, consumed })
    }

    /// Checks that the recording is complete, with no more than the `left` bytes unconsumed.
    ///
    /// # Errors
    /// [`RecordingError::Cut`] when it is not.
    pub fn finish(&self, left: usize) -> Result<(), RecordingError> {
        if self.ended {
            return Ok(());
        }
        Err(RecordingError::Cut { offset: self.offset + left as u64, inside: left > 0 })
    }
}

/// What is left of a payload.
#[derive(Clone, Debug)]
struct ByteReader<'a> {
    bytes: &'a [u8],
    damaged: bool,
}

impl<'a> ByteReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (at, byte) in self.bytes.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if at == 9 && bits > 1 {
                return None;
            }
            value |= bits << (7 * at);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[at + 1..];
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn zigzag(&mut self) -> Option<u64> {
        let value = self.varint()?;
        Some((value >> 1) ^ (value & 1).wrapping_neg())
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        self.varint()?.try_into().ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.number::<usize>()?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }

    /// The next entry by `read`, until there are no more bytes or an entry is impossible.
    fn entry<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.damaged || self.bytes.is_empty() {
            return None;
        }
        let entry = read(self);
        self.damaged = entry.is_none();
        entry
    }
}

macro_rules! entries {
    ($(#[doc = $doc:literal] $name:ident -> $item:ty: $read:expr;)+) => {$(
        #[doc = $doc]
        #[derive(Clone, Debug)]
        pub struct $name<'a>(ByteReader<'a>);

        impl $name<'_> {
            /// Whether it ended at an impossible entry.
            pub const fn is_damaged(&self) -> bool {
                self.0.damaged
            }
        }

        impl<'a> Iterator for $name<'a> {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                self.0.entry($read)
            }
        }
    )+};
}

entries! {
    /// Keys and values.
    Info -> (&'a str, &'a str): |bytes| Some((bytes.text()?, bytes.text()?));
    /// Files.
    Files -> FileEntry<'a>: |bytes| Some(FileEntry {
        file: bytes.number()?,
        device: bytes.varint()?,
        inode: bytes.varint()?,
        path: bytes.text()?,
    });
    /// Threads.
    Threads -> ThreadEntry<'a>: |bytes| Some(ThreadEntry {
        thread: bytes.number()?,
        process: bytes.number()?,
        name: bytes.text()?,
    });
    /// Codes and counts.
    Lost -> (u8, u64): |bytes| Some((bytes.byte()?, bytes.varint()?));
}

impl Lost<'_> {
    /// The counters, without those of unknown codes.
    pub fn losses(self) -> IoLosses {
        let mut losses = IoLosses::default();
        for (code, count) in self {
            losses.set(code, count);
        }
        losses
    }
}

/// The accesses of a block.
#[derive(Clone, Debug)]
pub struct Accesses<'a> {
    rest: ByteReader<'a>,
    left: u64,
    start: u64,
    end: u64,
    thread: u64,
    file: u64,
}

impl Accesses<'_> {
    /// Whether it ended at an impossible access, or bytes are left after the last one. Call it after the last
    /// access.
    pub const fn is_damaged(&self) -> bool {
        self.rest.damaged || (self.left == 0 && !self.rest.bytes.is_empty())
    }

    #[inline]
    fn read(&mut self) -> Option<IoAccess> {
        let bytes = &mut self.rest;
        let flags = bytes.byte()?;
        let kind = AccessKind::from_code(flags & 7)?;
        if flags & 0x80 != 0 {
            return None;
        }
        self.start = self.start.wrapping_add(bytes.zigzag()?);
        let latency_ns = bytes.varint()?;
        self.thread = self.thread.wrapping_add(bytes.zigzag()?);
        self.file = self.file.wrapping_add(bytes.zigzag()?);
        let (mut offset, mut asked, mut given) = (0, 0, 0);
        if !kind.is_sync() {
            offset = self.end.wrapping_add(bytes.zigzag()?);
            asked = bytes.varint()?;
            given = if flags & 8 != 0 { bytes.varint()? } else { asked };
            self.end = offset.wrapping_add(given);
        }
        let device_bytes = match flags >> 4 & 3 {
            0 => None,
            1 => Some(0),
            2 => Some(bytes.varint()?),
            _ => return None,
        };
        let error = if flags & 0x40 != 0 { bytes.number()? } else { 0 };
        Some(IoAccess {
            start: Timestamp::from_unix_ns(self.start),
            latency_ns,
            thread: self.thread.try_into().ok()?,
            file: self.file.try_into().ok()?,
            kind,
            offset,
            asked,
            given,
            error,
            device_bytes,
        })
    }
}

impl Iterator for Accesses<'_> {
    type Item = IoAccess;

    #[inline]
    fn next(&mut self) -> Option<IoAccess> {
        if self.left == 0 || self.rest.damaged {
            return None;
        }
        let access = self.read();
        match access {
            Some(_) => self.left -= 1,
            None => self.rest.damaged = true,
        }
        access
    }
}
