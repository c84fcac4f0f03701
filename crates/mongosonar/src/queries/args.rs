//! The arguments of `mongosonar queries`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sonar_core::time_split::ConnectionSample;
use sonar_core::window::WindowSettings;
use sonar_decode::{Ports, Settings};
use sonar_view::digest::RowOrder;
use sonar_view::queries::Column;

use crate::args::connection::{PortlessServerArgs, SERVER_OPTIONS};
use crate::args::privileges::PrivilegeArgs;
use crate::args::values::{
    ClassArg, PortRange, ShapeArg, number, parse_connections, parse_duration, parse_ports,
};
use crate::args::when::{When, ZoneArgs, parse_time};
use crate::capture::args::{EncryptedAccessArgs, EncryptedArg, SourceArgs};
use crate::capture::rotate::{Rotation, parse_rotation};
use crate::confinement::file_reading::FileReading;
use crate::history::StoreArgs;
use crate::outfile;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar queries                               live view of all that is served here
  sudo mongosonar queries --by app --sort p99           by application, slowest first
  sudo mongosonar queries --each --filter orders        every operation as it ends
  sudo mongosonar queries --interval 10s --json         one JSON object every ten seconds
  sudo mongosonar queries --baseline monday.json        what is new or slower than on Monday
  sudo mongosonar queries --split --by wait             where the time goes inside the server
  sudo mongosonar queries --write night.pcapng --duration 1h
  mongosonar queries --read night.pcapng --digest --json > monday.json
  mongosonar queries --read night.pcapng --html night.html
  mongosonar queries --read night.pcapng                the same figures from the file
  mongosonar queries --at 14:05                         as it was then, from the history of an agent
  mongosonar queries --from 14:00 --to 14:10 --baseline yesterday
  tcpdump -w - port 27017 | mongosonar queries --read - --interval 1s
Keys of the live view: h for help.";

/// The length of an interval of a capture, if none is asked for.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// What only a capture has, not the history.
const NOT_IN_THE_PAST: [&str; 23] = [
    "source",
    "interface",
    "read",
    "replay",
    "write",
    "sample",
    "split",
    "pid",
    "snap_replies",
    "tunnels",
    "verify_checksums",
    "tls_keylog",
    "no_tls",
    "tls_any_cost",
    "encrypted",
    "log",
    "duration",
    "each",
    "digest",
    "html",
    "threads",
    "ring_mib",
    "keep_privileges",
];

/// The arguments of `queries`. The configuration file may set those in `config::SETTINGS`.
#[derive(Args, Debug, Default, Clone)]
pub struct QueriesArgs {
    /// Capture on this interface; repeat for several [default: all]
    #[arg(short, long, value_name = "NAME", help_heading = "What to capture")]
    pub interface: Vec<String>,
    /// Port or range of ports (27017-27020) of the servers; repeat for several [default: the ports of each mongod and mongos on this host, else 27017; with --read: all]. Of the history: show only the server at this port
    #[arg(short, long, value_name = "PORT", value_parser = parse_ports, help_heading = "What to capture")]
    pub port: Vec<PortRange>,
    #[command(flatten, next_help_heading = "What to capture")]
    pub source: SourceArgs,
    /// Read a capture file (pcap or pcapng, also gzip or zstd) instead of the network; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = SERVER_OPTIONS, conflicts_with_all = ["source", "no_tls", "tls_any_cost"], help_heading = "What to capture")]
    pub read: Option<PathBuf>,
    /// Show the file of --read in the live view, at the speed of its recording, again and again
    #[arg(long, requires = "read", conflicts_with_all = ["each", "digest", "html", "log"], help_heading = "What to capture")]
    pub replay: bool,
    /// Also write the captured packets into this file (pcapng, mode 0600). It holds values, not only shapes
    #[arg(short, long, value_name = "FILE", conflicts_with = "read", help_heading = "What to capture")]
    pub write: Option<PathBuf>,
    /// Begin a new file after this size (100M, 2G) or time (10m, 1h); every file can be read on its own, and has a number in its name
    #[arg(long, value_name = "SIZE|TIME", value_parser = parse_rotation, requires = "write", help_heading = "What to capture")]
    pub rotate: Option<Rotation>,
    /// Keep at most N files of --rotate, and remove the oldest
    #[arg(long, value_name = "N", value_parser = number(1_u64.., 10), requires = "rotate", help_heading = "What to capture")]
    pub keep: Option<u64>,
    #[command(flatten, next_help_heading = "Resources")]
    pub privileges: PrivilegeArgs,
    /// Capture one connection in N; figures are scaled and marked with ~
    #[arg(long, value_name = "1/N", value_parser = parse_sample, help_heading = "What to capture")]
    pub sample: Option<u32>,
    /// Also show where the time of each operation went inside the server: on a processor, waiting for one, for the disk or for a lock. Traces the threads of the servers here, which costs them a few percent at very high rates; 1/N traces one connection in N
    #[arg(long, value_name = "1/N", num_args = 0..=1, require_equals = true, default_missing_value = "1/1", value_parser = parse_connections, conflicts_with_all = ["read", "each", "digest", "html"], help_heading = "What to capture")]
    pub split: Option<ConnectionSample>,
    /// Process whose threads --split traces; repeat for several [default: each mongod and mongos of this machine; with --port those that listen on it]
    #[arg(long, value_name = "PID", requires = "split", help_heading = "What to capture")]
    pub pid: Vec<u32>,
    /// Also read packets inside VXLAN, GENEVE, GRE, ERSPAN, IP in IP, MPLS and PPPoE, as a mirror of the traffic of another host sends them; files are always read so
    #[arg(long, conflicts_with_all = ["read", "sample", "split", "snap_replies"], help_heading = "What to capture")]
    pub tunnels: bool,
    /// Copy only the first N bytes of each packet of a reply, at least 26: costs least, but documents, cursors and late errors are not known
    #[arg(long, value_name = "N", value_parser = parse_snap_replies, conflicts_with = "read", help_heading = "What to capture")]
    pub snap_replies: Option<u32>,
    /// Verify the checksum of every message that has one, and count wrong ones [default: only after a gap]
    #[arg(long, help_heading = "What to capture")]
    pub verify_checksums: bool,
    /// Decrypt TLS connections with the secrets in this key log (SSLKEYLOGFILE), which a client writes. During a capture it is followed as it grows, and connections are not read inside the servers' processes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["split", "snap_replies", "encrypted", "tls_any_cost"], help_heading = "What to capture")]
    pub tls_keylog: Option<PathBuf>,
    #[command(flatten, next_help_heading = "What to capture")]
    pub encrypted_access: EncryptedAccessArgs,
    /// Log of a mongod or mongos that says which applications are on connections opened before the capture. A live capture reads it once, at its start: later connections are captured from their beginning. Repeat for several [default: the logs of the servers here; with --read: none]
    #[arg(long, value_name = "FILE", help_heading = "What to capture")]
    pub log: Vec<PathBuf>,
    #[command(
        flatten,
        next_help_heading = "Server to ask which applications are on open connections (currentOp); with --host HOST a single --port counts for it too"
    )]
    pub server: PortlessServerArgs,
    /// Show the history that an agent keeps, as it was at this time, instead of the network: 14:05, "yesterday 14:00", 2026-05-01T10:00:00Z, -2h
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = NOT_IN_THE_PAST, conflicts_with_all = ["from", "to", "interval"], help_heading = "What to capture")]
    pub at: Option<When>,
    /// The same from this time on; on a terminal the live view, where the bracket keys step through time
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = NOT_IN_THE_PAST, help_heading = "What to capture")]
    pub from: Option<When>,
    /// The same before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = NOT_IN_THE_PAST, help_heading = "What to capture")]
    pub to: Option<When>,
    #[command(flatten, next_help_heading = "What to capture")]
    pub store: StoreArgs,
    /// Stop after this time
    #[arg(long, short_alias = 'd', value_name = "TIME", value_parser = parse_duration, help_heading = "What to capture")]
    pub duration: Option<Duration>,
    /// Length of an interval, like 500ms, 10s, 1m [default: 1s; with --read: the whole file]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "What to show")]
    pub interval: Option<Duration>,
    /// What a row is [default: shape]; wait: shapes, sorted by the time that their operations waited (with --split)
    #[arg(long, value_name = "WHAT", value_enum, help_heading = "What to show")]
    pub by: Option<ByArg>,
    /// Show operations of this class; repeat for several [default: user]
    #[arg(long, value_name = "CLASS", value_enum, help_heading = "What to show")]
    pub class: Vec<ClassArg>,
    /// Show operations that the server served, or that it issued to another server [default: served]
    #[arg(long, value_name = "ROLE", value_enum, help_heading = "What to show")]
    pub role: Option<RoleArg>,
    /// Show operations on connections encrypted with TLS only; with =no those on plain connections only
    #[arg(long, value_name = "WHICH", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "only", conflicts_with_all = ["read", "no_tls", "split"], help_heading = "What to show")]
    pub encrypted: Option<EncryptedArg>,
    #[arg(long, value_name = "COLUMN", value_parser = parse_sort, help = sort_help(), help_heading = "What to show")]
    pub sort: Option<String>,
    /// Show only rows whose command, namespace, shape or name contains this text
    #[arg(long, value_name = "TEXT", help_heading = "What to show")]
    pub filter: Option<String>,
    /// Show at most this many rows
    #[arg(long, value_name = "N", value_parser = number(1_usize.., 20), help_heading = "What to show")]
    pub limit: Option<usize>,
    /// Write shapes with typed placeholders, or plain with everything masked [default: typed]
    #[arg(long, value_name = "FORM", value_enum, help_heading = "What to show")]
    pub shape: Option<ShapeArg>,
    /// One line for each operation as it ends, instead of a table
    #[arg(long, conflicts_with_all = ["by", "sort", "limit", "baseline"], help_heading = "How to show it")]
    pub each: bool,
    /// One JSON object for each interval, or with --each for each operation
    #[arg(long, conflicts_with = "csv", help_heading = "How to show it")]
    pub json: bool,
    /// CSV: one line for each row
    #[arg(long, conflicts_with = "each", help_heading = "How to show it")]
    pub csv: bool,
    /// One report over the whole capture at the end, like that of `logs report`, as text, --json (which `mongosonar compare` reads) or --csv
    #[arg(long, conflicts_with_all = ["each", "interval", "baseline"], help_heading = "How to show it")]
    pub digest: bool,
    /// Write the report as one self-contained page with charts into this file too; implies --digest
    #[arg(long, value_name = "FILE", value_parser = outfile::parse, conflicts_with_all = ["each", "interval", "baseline"], help_heading = "How to show it")]
    pub html: Option<PathBuf>,
    /// Mark what is new or slower than in this capture, log, profile or saved digest, or than in the history: yesterday, last-week or a span like "monday 14:00+1h"
    #[arg(long, value_name = "FILE|SPAN", help_heading = "What to show")]
    pub baseline: Option<PathBuf>,
    /// Show the commands with their values (with --each)
    #[arg(long, requires = "each", help_heading = "How to show it")]
    pub show_values: bool,
    #[command(flatten)]
    pub zone: ZoneArgs,
    /// Colours [default: auto]
    #[arg(long, value_name = "WHEN", value_enum, help_heading = "How to show it")]
    pub color: Option<ColorArg>,
    /// Capture threads, each with its own ring [default: 1]; with --read, threads that decode a file [default: one for
    /// each core, at most 8]
    #[arg(long, value_name = "N", conflicts_with = "replay", value_parser = number(1_u16..=64, 2), help_heading = "Resources")]
    pub threads: Option<u16>,
    /// Memory for the capture ring in MiB [default: 32]
    #[arg(long, value_name = "MIB", conflicts_with = "read", value_parser = number(2_u32..=4096, 64), help_heading = "Resources")]
    pub ring_mib: Option<u32>,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ByArg {
    Shape,
    Order,
    Namespace,
    App,
    Client,
    Wait,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum RoleArg {
    Served,
    Issued,
    All,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ColorArg {
    Auto,
    Always,
    Never,
}

impl QueriesArgs {
    /// Whether to read the sockets of processes instead of packets.
    ///
    /// # Errors
    /// Another option is for packets only.
    pub fn reads_sockets(&self) -> anyhow::Result<bool> {
        let only_for_packets = [
            (!self.interface.is_empty(), "--interface"),
            (self.write.is_some(), "--write"),
            (self.sample.is_some(), "--sample"),
            (self.snap_replies.is_some(), "--snap-replies"),
            (self.tls_keylog.is_some(), "--tls-keylog"),
            (self.threads.is_some(), "--threads"),
        ];
        self.source.reads_sockets(&only_for_packets)
    }

    /// Whether to write a digest.
    pub fn makes_digest(&self) -> bool {
        self.digest || self.html.is_some()
    }

    /// The ports for the decoder.
    fn decoder_ports(&self) -> Ports {
        if self.port.is_empty() {
            Ports::Any
        } else {
            Ports::Ranges(self.port.iter().map(|range| (range.0, range.1)).collect())
        }
    }

    /// How a capture file is decoded.
    pub fn file_settings(&self) -> Settings {
        Settings {
            ports: self.decoder_ports(),
            snap_replies: None,
            verify_checksums: self.verify_checksums,
            show_values: self.show_values,
            sample: self.sample.unwrap_or(0),
            ..Settings::default()
        }
    }

    /// Whether the history is shown, not a capture.
    pub const fn is_past(&self) -> bool {
        self.at.is_some() || self.from.is_some() || self.to.is_some()
    }

    /// Whether it captures what passes now.
    pub const fn captures_live(&self) -> bool {
        self.read.is_none() && !self.is_past()
    }

    /// What it reads and writes, if it captures nothing.
    pub fn reading(&self) -> Option<FileReading<'_>> {
        if self.privileges.keep_privileges || self.captures_live() {
            return None;
        }
        let logs = self.log.iter().map(PathBuf::as_path);
        let store = self.is_past().then(|| self.store.folder());
        let files =
            [&self.read, &self.tls_keylog, &self.baseline].into_iter().flatten().map(PathBuf::as_path);
        Some(FileReading::of(files.chain(logs).chain(store)).with_page(self.html.as_ref()))
    }

    pub fn window_settings(&self) -> WindowSettings {
        let split_by_order = self.by == Some(ByArg::Order);
        WindowSettings { sample: self.sample.unwrap_or(1), split_by_order, ..WindowSettings::default() }
    }
}

/// A column of `queries`, or one of its digest: as help, its heading or `--json` names it.
fn parse_sort(text: &str) -> Result<String, String> {
    match Column::from_name(text).is_some() || RowOrder::from_name(text).is_some() {
        true => Ok(text.to_owned()),
        false => Err(format!("no such column; there are: {}", Column::ALL.map(Column::name).join(" "))),
    }
}

fn sort_help() -> String {
    format!("Sort by this column: {} [default: load]", Column::ALL.map(Column::name).join(" "))
}

/// Reads how many bytes of each packet of a reply are copied.
pub fn parse_snap_replies(text: &str) -> Result<u32, String> {
    let least = sonar_decode::MIN_SNAP_REPLIES;
    let bytes: u32 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of bytes: write at least {least}, like 512"))?;
    if bytes < least {
        return Err(format!("{bytes} bytes are too few to recognise a reply: at least {least}"));
    }
    Ok(bytes)
}

/// `1/N`.
pub fn parse_sample(text: &str) -> Result<u32, String> {
    let n = text.strip_prefix("1/").and_then(|n| n.parse().ok()).filter(|n| (1..=65_536).contains(n));
    n.ok_or_else(|| format!("{text:?} is no sample: write 1/N with N from 1 to 65536, like 1/10"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct TestCommand {
        #[command(flatten)]
        queries: QueriesArgs,
    }

    #[test]
    fn encrypted_operations_alone_or_plain_ones_alone_are_asked_for_and_only_of_a_capture() {
        let parse = |arguments: &str| {
            let words = ["queries"].into_iter().chain(arguments.split_whitespace());
            TestCommand::try_parse_from(words).map(|command| command.queries.encrypted)
        };
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("--encrypted").unwrap(), Some(EncryptedArg::Only));
        assert_eq!(parse("--encrypted=no --host db1 --tls").unwrap(), Some(EncryptedArg::No));
        for more in ["--read x", "--at 14:05", "--from 14:00", "--to 14:00", "--no-tls", "--split"] {
            assert!(parse(&format!("--encrypted {more}")).is_err(), "{more}");
        }
        assert!(parse("--encrypted=maybe").is_err() && parse("--encrypted no").is_err());
    }

    #[test]
    fn samples_say_what_is_wrong_with_them() {
        assert_eq!(parse_snap_replies("26"), Ok(26));
        assert_eq!(parse_snap_replies("4294967295"), Ok(u32::MAX));
        assert!(parse_snap_replies("25").unwrap_err().contains("26"));
        assert!(parse_snap_replies("0").is_err() && parse_snap_replies("4294967296").is_err());
        assert_eq!(parse_sample("1/10"), Ok(10));
        assert!(parse_sample("0.1").unwrap_err().contains("1/10"));
    }
}
