//! Arguments that commands which capture have in common.

use anyhow::Result;
use clap::{Args, ValueEnum};

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

/// What a capture reads.
#[derive(Args, Debug, Default, Clone)]
#[group(skip)]
pub struct SourceArgs {
    /// Read packets, or the sockets of the servers' processes. Sockets also show connections over Unix sockets, and need no permission to capture packets [default: packets]
    #[arg(long, value_name = "SOURCE", value_enum)]
    pub source: Option<SourceArg>,
}

impl SourceArgs {
    /// Whether it reads the sockets of processes.
    ///
    /// # Errors
    /// One of these options was given too: they are for packets only.
    pub fn reads_sockets(&self, only_for_packets: &[(bool, &str)]) -> Result<bool> {
        let is_process = self.source == Some(SourceArg::Process);
        match only_for_packets.iter().find(|(is_given, _)| is_process && *is_given) {
            Some((_, option)) => Err(usage!("{option} is for packets: leave it out, or --source process")),
            None => Ok(is_process),
        }
    }
}

/// Whether encrypted connections are read inside the servers' processes.
#[derive(Args, Debug, Default, Copy, Clone)]
#[group(skip)]
pub struct EncryptedAccessArgs {
    /// Do not read encrypted connections inside the servers' processes
    #[arg(long)]
    pub no_tls: bool,
    /// Read encrypted connections even where a probe in the TLS library costs 4 microseconds a call instead of 0.5
    #[arg(long, conflicts_with = "no_tls")]
    pub tls_any_cost: bool,
}
