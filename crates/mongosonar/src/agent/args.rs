//! The arguments of `mongosonar agent`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::connection::{PortlessServerArgs, SERVER_OPTIONS};
use crate::args::privileges::PrivilegeArgs;
use crate::args::values::{number, parse_duration};

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar agent                                  collect until it is stopped
  sudo mongosonar agent --once 60s --store /tmp/minute   collect for a minute
  mongosonar agent --replay wire.pcap mongod.log diagnostic.data --store /tmp/incident
  sudo mongosonar agent --uri localhost:27017            also serverStatus, sizes of collections
  mongosonar agent --check-config --config agent.toml    check a configuration file
  sudo mongosonar agent --status                         what the running agent does";

/// The arguments of `agent`.
#[derive(Args, Debug, Clone)]
pub struct AgentArgs {
    /// Folder of the history [default: /var/lib/mongosonar, or what the configuration says]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Read these captures, logs, files or folders of diagnostic.data and recordings of io record of the same time instead
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = SERVER_OPTIONS, help_heading = "What to collect")]
    pub replay: Vec<PathBuf>,
    /// Port of the server whose replayed logs do not state it
    #[arg(long, short, value_name = "PORT", requires = "replay", value_parser = number(1..=u16::MAX, 27_017), help_heading = "What to collect")]
    pub port: Option<u16>,
    /// Collect for this long, store the result, then exit
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "replay", help_heading = "What to collect")]
    pub once: Option<Duration>,
    /// Also read packets inside VXLAN, GENEVE, GRE, ERSPAN, IP in IP, MPLS and PPPoE, as a mirror of the traffic of other hosts sends them
    #[arg(long, conflicts_with_all = ["replay", "status"], help_heading = "What to collect")]
    pub tunnels: bool,
    /// Check the configuration file, then exit
    #[arg(long, conflicts_with_all = ["replay", "once", "status"])]
    pub check_config: bool,
    /// Show what the running agent does: each source, since when it works, what was lost, what it costs
    #[arg(long, conflicts_with_all = ["replay", "once"])]
    pub status: bool,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub privileges: PrivilegeArgs,
    /// A server to ask for serverStatus, replSetGetStatus and the sizes of its collections.
    #[command(
        flatten,
        next_help_heading = "A server to ask (serverStatus, replSetGetStatus, sizes of collections)"
    )]
    pub server: PortlessServerArgs,
}
