//! Arguments that commands which capture have in common.

use anyhow::Result;
use clap::ValueEnum;

use crate::exit::usage;

/// What a capture reads.
#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum SourceArg {
    /// Packets of the network.
    Packets,
    /// The sockets of the servers' processes.
    Process,
}

/// Which connections are wanted, by whether they are encrypted.
#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum EncryptedArg {
    Only,
    No,
}

impl EncryptedArg {
    /// Whether operations on connections that are encrypted, or are not, are wanted.
    pub const fn wants(self, tls: bool) -> bool {
        matches!((self, tls), (Self::Only, true) | (Self::No, false))
    }
}

/// Whether this source is the sockets of processes.
///
/// # Errors
/// One of these options was given too: they are for packets only.
pub fn reads_sockets(source: Option<SourceArg>, only_for_packets: &[(bool, &str)]) -> Result<bool> {
    let is_process = source == Some(SourceArg::Process);
    match only_for_packets.iter().find(|(is_given, _)| is_process && *is_given) {
        Some((_, option)) => Err(usage!("{option} is for packets: leave it out, or --source process")),
        None => Ok(is_process),
    }
}
