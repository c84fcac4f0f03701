//! One access to a file.

use crate::Timestamp;

/// What was done.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AccessKind {
    /// read, pread, readv, preadv and their like.
    Read = 0,
    /// write, pwrite, writev, pwritev and their like.
    Write = 1,
    /// fsync.
    Sync = 2,
    /// fdatasync.
    DataSync = 3,
    /// A page fault of a mapped file that the page cache or the device answered.
    Fault = 4,
    /// Pages of the file that were brought into the page cache by a read, a fault or their readahead; no access of
    /// its own. It has no latency.
    PageIn = 5,
}

impl AccessKind {
    /// All of them, by their code.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Sync, Self::DataSync, Self::Fault, Self::PageIn];

    /// From the stable number in recordings and in the kernel's programs.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Read),
            1 => Some(Self::Write),
            2 => Some(Self::Sync),
            3 => Some(Self::DataSync),
            4 => Some(Self::Fault),
            5 => Some(Self::PageIn),
            _ => None,
        }
    }

    /// The stable number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "fsync",
            Self::DataSync => "fdatasync",
            Self::Fault => "fault",
            Self::PageIn => "page_in",
        }
    }

    /// Whether a thread takes content of the file by it.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Fault)
    }

    /// Whether it is a flush, which has no offset and no length.
    pub const fn is_sync(self) -> bool {
        matches!(self, Self::Sync | Self::DataSync)
    }
}

/// One access to a file, as it ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IoAccess {
    /// When it was asked for.
    pub start: Timestamp,
    /// From there to its end, in nanoseconds, on one clock; 0 of a page fault whose end cannot be seen.
    pub latency_ns: u64,
    /// The kernel's id of the thread.
    pub thread: u32,
    /// Which file, by the number that the source gave it.
    pub file: u32,
    /// What was done.
    pub kind: AccessKind,
    /// Where in the file it began, in bytes; 0 of a flush.
    pub offset: u64,
    /// Bytes asked for; 0 of a flush.
    pub asked: u64,
    /// Bytes that were read or written; 0 when it failed.
    pub given: u64,
    /// The error number; 0 when there was none.
    pub error: u16,
    /// Bytes that the thread itself caused to be fetched from the device meanwhile (read), by the
    /// kernel's accounting; `None` where that is not known. 0 is an answer from the page cache.
    pub device_bytes: Option<u64>,
}

impl IoAccess {
    /// When it ended.
    pub const fn end(&self) -> Timestamp {
        self.start.plus_ns(self.latency_ns)
    }
}
