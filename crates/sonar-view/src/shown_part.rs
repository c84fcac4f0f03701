//! The parts of the time of operations, as they are shown: those that were measured, and the rest.

use std::cmp::Reverse;

use serde::{Serialize, Serializer};
use sonar_core::time_split::{RowSplit, TimePart, TimeSplit};
use ts_rs::TS;

/// What an operation spent a part of its time on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, TS)]
#[ts(type = "string")]
pub enum ShownPart {
    /// Measured at the thread.
    Measured(TimePart),
    /// The request had arrived, but the thread had not read it.
    Unread,
    /// Between the beginning and the end, but not measured.
    Unexplained,
}

impl ShownPart {
    /// All parts, in the order of columns.
    pub fn all() -> impl Iterator<Item = Self> {
        TimePart::ALL.into_iter().map(Self::Measured).chain([Self::Unread, Self::Unexplained])
    }

    /// The stable name in machine output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured(part) => part.name(),
            Self::Unread => "not_yet_read",
            Self::Unexplained => "unexplained",
        }
    }

    /// What the operation did meanwhile, in words.
    pub const fn words(self) -> &'static str {
        let part = match self {
            Self::Measured(part) => part,
            Self::Unread => return "not yet read by the server",
            Self::Unexplained => return "unexplained: events were lost",
        };
        match part {
            TimePart::Cpu => "on a processor",
            TimePart::RunQueue => "waiting for a processor",
            TimePart::Yield => "giving way to other threads",
            TimePart::Read => "waiting for reads of files",
            TimePart::Fault => "waiting for pages of memory",
            TimePart::Write => "waiting for writes to files",
            TimePart::Flush => "waiting for flushes to disk",
            TimePart::Futex => "waiting for a mutex, a ticket or a condition",
            TimePart::Poll => "waiting for a lock, replication or another server",
            TimePart::Backoff => "pausing for a busy page (WiredTiger)",
            TimePart::Sleep => "pausing after a write conflict",
            TimePart::Send => "waiting for the client to take the reply",
            TimePart::Peer => "waiting for a socket of another server",
            TimePart::Other => "waiting in other system calls",
        }
    }
}

impl Serialize for ShownPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// All parts of a time, in nanoseconds, in the order of [`ShownPart::all`].
pub(crate) fn all(
    split: &TimeSplit,
    unread_ns: u64,
    unexplained_ns: u64,
) -> impl Iterator<Item = (ShownPart, u64)> {
    let rest = [(ShownPart::Unread, unread_ns), (ShownPart::Unexplained, unexplained_ns)];
    split.parts().map(|(part, ns)| (ShownPart::Measured(part), ns)).chain(rest)
}

/// Those that took any time, the longest first.
pub(crate) fn longest(split: &TimeSplit, unread_ns: u64, unexplained_ns: u64) -> Vec<(ShownPart, u64)> {
    let mut parts: Vec<_> = all(split, unread_ns, unexplained_ns).filter(|(_, ns)| *ns > 0).collect();
    parts.sort_by_key(|(_, ns)| Reverse(*ns));
    parts
}

/// All parts of the time of a row.
pub(crate) fn of_row(row: &RowSplit) -> impl Iterator<Item = (ShownPart, u64)> {
    all(&row.split, row.unread_ns, row.unexplained_ns())
}
