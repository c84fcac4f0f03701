//! What a trace of the threads of servers will do.

use sonar_sys::split::SplitRoom;

use super::open_files::OpenFilesRoom;
use crate::args::values::PortRange;
use crate::capture::tls::EncryptedAccess;
use crate::large::LargeMemory;

/// What a trace will do.
#[derive(Clone, Debug)]
pub struct SplitPlan {
    /// It drops its privileges.
    pub confined: bool,
    /// It follows servers that start later.
    pub follows: bool,
    /// The ports of those; empty: of all of them.
    pub ports: Vec<PortRange>,
    /// At what cost it divides encrypted operations.
    pub encrypted: EncryptedAccess,
    /// It samples the stacks of all threads, on request.
    pub samples: bool,
    /// It samples what operations compute: waits of the part `Cpu`.
    pub samples_processors: bool,
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
    pub fn of_command(confined: bool, follows: bool, encrypted: EncryptedAccess) -> Self {
        Self {
            confined,
            follows,
            ports: Vec::new(),
            encrypted,
            samples: true,
            samples_processors: false,
            table_bytes: 1 << 30,
            large: None,
            room: SplitRoom::COMMAND,
            files: OpenFilesRoom::COMMAND,
        }
    }
}
