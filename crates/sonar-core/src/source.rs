//! Sources of operations.

/// The source of figures.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// Captured packets.
    Wire,
    /// `system.profile`.
    Profile,
    /// `mongod.log`, `mongos.log`.
    Log,
}

impl Source {
    /// All sources, the one with the most precise latencies first.
    pub const ALL: [Self; 3] = [Self::Wire, Self::Profile, Self::Log];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Profile => "profile",
            Self::Log => "log",
        }
    }

    /// The source with this stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The resolution of durations in nanoseconds: they are rounded down to a multiple of this.
    pub const fn precision_ns(self) -> u64 {
        match self {
            Self::Wire => 1,
            Self::Profile | Self::Log => 1_000_000,
        }
    }
}
