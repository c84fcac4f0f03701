//! The arguments of `mongosonar why`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::connection::PortlessServerArgs;
use crate::args::privileges::PrivilegeArgs;
use crate::args::values::{
    PortRange, number, parse_connections, parse_duration, parse_ports, parse_shape_id,
};
use crate::capture::args::{EncryptedAccessArgs, SourceArgs};
use crate::outfile;
use sonar_core::time_split::ConnectionSample;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar why                                 the heaviest shapes of the next ten seconds
  sudo mongosonar why --namespace shop.orders         those of one collection
  sudo mongosonar why --shape 1f2e3d4c5b6a7980 --duration 1m
  sudo mongosonar why --app shop-api --html why.html  also a page with charts
  sudo mongosonar why --uri mongodb://localhost       also names of collections, and the profiler";

/// The arguments of `why`.
#[derive(Args, Debug, Clone)]
pub struct WhyArgs {
    /// Only the shape with this id; the beginning of the id is enough
    #[arg(long, value_name = "ID", value_parser = parse_shape_id, help_heading = "What to explain")]
    pub shape: Option<String>,
    /// Only this collection (db.collection) or database
    #[arg(long, value_name = "NS", help_heading = "What to explain")]
    pub namespace: Option<String>,
    /// Only operations of this application
    #[arg(long, value_name = "NAME", help_heading = "What to explain")]
    pub app: Option<String>,
    /// Also internal, monitoring and replication operations, and those that wait on purpose
    #[arg(long, help_heading = "What to explain")]
    pub all: bool,
    /// How long to trace
    #[arg(long, short_alias = 'd', value_name = "TIME", default_value = "10s", value_parser = parse_duration, help_heading = "What to trace")]
    pub duration: Duration,
    /// Follow one connection in N; 1/1 follows all [default: all, unless the server is busy]
    #[arg(long, value_name = "1/N", value_parser = parse_connections, help_heading = "What to trace")]
    pub sample: Option<ConnectionSample>,
    /// Process to trace; repeat for several [default: each mongod and mongos of this machine; with --port those that listen on it]
    #[arg(long, short_alias = 'p', value_name = "PID", help_heading = "What to trace")]
    pub pid: Vec<u32>,
    /// Port or range of ports of the servers; repeat for several [default: those on which the processes of --pid listen; else the ports of each mongod and mongos on this host, else 27017]
    #[arg(long, value_name = "PORT", value_parser = parse_ports, help_heading = "What to trace")]
    pub port: Vec<PortRange>,
    /// Capture on this interface; repeat for several [default: all, or loopback alone if the traced servers listen nowhere else]
    #[arg(short, long, value_name = "NAME", help_heading = "What to trace")]
    pub interface: Vec<String>,
    #[command(flatten, next_help_heading = "What to trace")]
    pub source: SourceArgs,
    #[command(flatten, next_help_heading = "What to trace")]
    pub encrypted_access: EncryptedAccessArgs,
    /// Rules for wait classes, applied before the built-in ones (see `mongosonar stacks`)
    #[arg(long, value_name = "FILE", help_heading = "What to trace")]
    pub classes: Option<PathBuf>,
    /// Log of a traced server; repeat for several [default: the logs that the processes have open]
    #[arg(long, value_name = "FILE", help_heading = "What to trace")]
    pub log: Vec<PathBuf>,
    /// Read no log
    #[arg(long, conflicts_with = "log", help_heading = "What to trace")]
    pub no_log: bool,
    /// Result of `mongosonar disk bench --json`, to compare the load of the disk with
    #[arg(long, value_name = "FILE", help_heading = "What to trace")]
    pub disk_test: Option<PathBuf>,
    /// Show at most this many shapes
    #[arg(long, value_name = "N", default_value = "5", value_parser = number(1_usize.., 5), help_heading = "How to show it")]
    pub limit: usize,
    /// Write the report as one self-contained page with charts into this file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse, help_heading = "How to show it")]
    pub html: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long, help_heading = "How to show it")]
    pub json: bool,
    #[command(flatten, next_help_heading = "What to trace")]
    pub privileges: PrivilegeArgs,
    #[command(
        flatten,
        next_help_heading = "Server to ask for the names of collections and indexes, and for its profile"
    )]
    pub server: PortlessServerArgs,
}
