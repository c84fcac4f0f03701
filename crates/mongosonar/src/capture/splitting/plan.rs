//! What a trace of the threads of servers will do.

use sonar_sys::split::SplitRoom;

use super::open_files::OpenFilesRoom;
use crate::large::LargeMemory;

/// What a trace will do.
#[derive(Copy, Clone, Debug)]
pub struct SplitPlan {
    /// It drops its privileges.
    pub confined: bool,
    /// It follows servers that start later.
    pub follows: bool,
    /// At what cost it divides encrypted operations.
    pub encrypted: EncryptedSplit,
    /// It samples the stacks of all threads, on request.
    pub samples: bool,
    /// The most bytes of the tables of functions of all servers.
    pub table_bytes: usize,
    /// The memory into which files of symbols are read, one at a time; `None`: as much as it takes.
    pub large: Option<&'static LargeMemory>,
    /// Room in the kernel.
    pub room: SplitRoom,
    /// Room for the names of open files.
    pub files: OpenFilesRoom,
}

impl SplitPlan {
    /// For a command that somebody watches: it samples, and functions may take what they need.
    pub fn of_command(confined: bool, follows: bool, encrypted: EncryptedSplit) -> Self {
        let (room, files) = (SplitRoom::COMMAND, OpenFilesRoom::COMMAND);
        Self { confined, follows, encrypted, samples: true, table_bytes: 1 << 30, large: None, room, files }
    }
}

/// At what cost the time of encrypted operations is divided.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EncryptedSplit {
    /// It is not.
    Off,
    /// Where probes in the TLS library are cheap.
    Cheap,
    /// Also where a probe costs ten times as much.
    AnyCost,
}

impl EncryptedSplit {
    /// What the options `--no-tls` and `--tls-any-cost` ask for.
    pub fn of(no_tls: bool, any_cost: bool) -> Self {
        match (no_tls, any_cost) {
            (true, _) => Self::Off,
            (false, false) => Self::Cheap,
            (false, true) => Self::AnyCost,
        }
    }
}
