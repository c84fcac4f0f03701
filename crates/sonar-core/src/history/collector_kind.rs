//! Where an agent's data comes from.

use crate::Source;

/// A source of an agent. Collectors are independent: one that fails does not stop the others.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectorKind {
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

impl CollectorKind {
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
        self.texts()[0]
    }

    /// What it observes, with its verb: `logs were`.
    pub const fn subject(self) -> &'static str {
        self.texts()[1]
    }

    /// Its name and its subject.
    const fn texts(self) -> [&'static str; 2] {
        match self {
            Self::Queries => ["queries", "queries were"],
            Self::Log => ["log", "logs were"],
            Self::Internals => ["internals", "the internals of servers were"],
            Self::Status => ["status", "the status of servers was"],
            Self::Machine => ["machine", "the machine was"],
            Self::Files => ["files", "accesses to files were"],
            Self::Split => ["split", "threads of servers were"],
        }
    }

    /// The collector with this stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}
