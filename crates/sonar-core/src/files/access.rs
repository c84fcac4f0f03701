//! One access to a file.

use crate::Timestamp;

/// The kind of an access.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AccessKind {
    /// read, pread, readv, preadv and similar calls.
    Read = 0,
    /// write, pwrite, writev, pwritev and similar calls.
    Write = 1,
    /// fsync.
    Sync = 2,
    /// fdatasync.
    DataSync = 3,
    /// A page fault in a mapped file, served from the page cache or the device.
    Fault = 4,
    /// Pages of the file that a read, a fault or readahead loaded into the page cache. This is not an access of its
    /// own and has no latency.
    PageIn = 5,
}

impl AccessKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Sync, Self::DataSync, Self::Fault, Self::PageIn];

    /// From the stable code in recordings and eBPF programs; `None` for an unknown code.
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

    /// The stable code.
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

    /// Whether a thread reads content of the file (by a call or a page fault).
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Fault)
    }

    /// Whether it is a flush, which has no offset and length.
    pub const fn is_sync(self) -> bool {
        matches!(self, Self::Sync | Self::DataSync)
    }
}

/// One completed access to a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IoAccess {
    /// When it began.
    pub start: Timestamp,
    /// Time from start to end in nanoseconds; 0 for a page fault whose end is not visible.
    pub latency_ns: u64,
    /// The kernel's id of the thread.
    pub thread: u32,
    /// Number of the file, assigned by the source.
    pub file: u32,
    /// The kind of access.
    pub kind: AccessKind,
    /// Offset in the file in bytes; 0 for a flush.
    pub offset: u64,
    /// Bytes requested; 0 for a flush.
    pub asked: u64,
    /// Bytes read or written; 0 if it failed.
    pub given: u64,
    /// The errno; 0 if it succeeded.
    pub error: u16,
    /// Bytes that this thread caused to be fetched from the device during the access, by the kernel's accounting;
    /// `None` if unknown. For a read, 0 means that it was served from the page cache.
    pub device_bytes: Option<u64>,
}

impl IoAccess {
    /// When it ended.
    pub const fn end(&self) -> Timestamp {
        self.start.plus_ns(self.latency_ns)
    }
}
