//! Places in files that are followed line by line.

/// Distinguishes files, whatever their names. The number of a file that was deleted may be used again.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device.
    pub device: u64,
    /// The number of the file on it.
    pub inode: u64,
}

/// A position in a followed file: the beginning of a line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FollowPosition {
    /// Which file.
    pub identity: FileIdentity,
    /// Bytes before it.
    pub offset: u64,
    /// A checksum of the last bytes before it: an offset alone says nothing about a file that was truncated and written
    /// again, or whose number another file has now. At the beginning of a file, where no bytes are before it, a checksum of
    /// the first bytes of the first line; 0 if that line was not read.
    pub checksum: u32,
}

/// Where a line begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinePlace {
    /// In its file.
    pub position: FollowPosition,
    /// Bytes that the follower has read before it, of all files.
    pub read: u64,
}

impl LinePlace {
    /// The earlier of two places in the same log.
    pub(super) fn earlier(self, other: Self) -> Self {
        if other.read < self.read { other } else { self }
    }

    /// The later one.
    pub(super) fn later(self, other: Self) -> Self {
        if other.read > self.read { other } else { self }
    }
}
