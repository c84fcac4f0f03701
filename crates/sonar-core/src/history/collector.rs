//! Where an agent's data comes from.

use crate::Source;

/// A source of an agent. Collectors are independent: one that fails does not stop the others.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Collector {
    /// Packets on the wire.
    Queries,
    /// The log of a server.
    Log,
    /// `diagnostic.data` of a server.
    Internals,
    /// `serverStatus` and the sizes of collections, with a login.
    Status,
    /// The machine and its processes.
    Machine,
    /// Accesses to files, counted in the kernel.
    Files,
    /// Where the time of operations goes, from the threads of the servers.
    Split,
}

impl Collector {
    /// All collectors, in display order.
    pub const ALL: [Self; 7] =
        [Self::Queries, Self::Log, Self::Internals, Self::Status, Self::Machine, Self::Files, Self::Split];

    /// The collector of operations of this source; `None` if the history has none of it.
    pub const fn of(source: Source) -> Option<Self> {
        match source {
            Source::Wire => Some(Self::Queries),
            Source::Log => Some(Self::Log),
            Source::Profile => None,
        }
    }

    /// The stable name in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queries => "queries",
            Self::Log => "log",
            Self::Internals => "internals",
            Self::Status => "status",
            Self::Machine => "machine",
            Self::Files => "files",
            Self::Split => "split",
        }
    }

    /// The collector with this stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}
