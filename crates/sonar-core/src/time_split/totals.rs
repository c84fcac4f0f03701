//! Sums of what operations waited for.

use super::FileWait;

/// What operations of a shape waited for in a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FileTotal {
    /// Reads that waited.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time blocked in them, in nanoseconds.
    pub wait_ns: u64,
}

impl FileTotal {
    /// Adds other reads.
    pub fn add(&mut self, other: Self) {
        self.reads = self.reads.saturating_add(other.reads);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
    }
}

/// How operations of a shape read a file that they waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FileReads {
    /// Reads that waited.
    pub total: FileTotal,
    /// Those of them that began where the thread's last read of the file had ended.
    pub in_order: u64,
}

impl From<&FileWait> for FileReads {
    fn from(file: &FileWait) -> Self {
        let total = FileTotal { reads: file.reads.into(), bytes: file.bytes, wait_ns: file.wait_ns };
        Self { total, in_order: file.in_order.into() }
    }
}

impl FileReads {
    /// Adds other reads.
    pub fn add(&mut self, other: Self) {
        self.total.add(other.total);
        self.in_order = self.in_order.saturating_add(other.in_order);
    }
}

/// Waits of operations of a shape.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct WaitTotal {
    /// How many.
    pub waits: u64,
    /// How long, in nanoseconds.
    pub wait_ns: u64,
}

impl WaitTotal {
    /// Adds other waits.
    pub fn add(&mut self, other: Self) {
        self.waits = self.waits.saturating_add(other.waits);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
    }
}
