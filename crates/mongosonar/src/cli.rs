//! Arguments: what can be asked for, and the help that says so.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use sonar_core::Class;
use sonar_view::digest::By;
use sonar_view::{Classes, Column};

use crate::connection::ServerArgs;
use crate::digest::{self, CompareArgs, DigestArgs};
use crate::profiler::args::ProfilerCommand;
use crate::{config, disk, doctor, files, manual, outfile, profiler, queries, screen};

pub use crate::exit::{OK, TRUNCATED, WORSE};

/// Why is MongoDB slow? From the wire down to the disk, without slowing it down.
#[derive(Parser, Debug)]
#[command(name = "mongosonar", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Read defaults from this configuration file instead of the user's or the system's
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep text reports to N columns; 0 is no limit [default: the terminal's width; no limit into a pipe or file]
    #[arg(long, global = true, value_name = "N")]
    width: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  sudo mongosonar queries                  which queries this machine's MongoDB serves, live
  mongosonar queries --read wire.pcap.gz   the same from a capture file
  mongosonar logs report mongod.log        what its log says: plans, documents examined, locks
  mongosonar compare monday.json mongod.log  what is new or slower since
  mongosonar profiler status               what the profiler is set to, and when it wraps
  mongosonar disk bench -r -w              how good this disk is, as mongoperf measured it
  sudo mongosonar io record reads.msio     every access to the files of this machine's mongod
  mongosonar io report reads.msio          which files were read, in which order
  mongosonar doctor                        what works here, and how to fix what does not";

#[derive(Subcommand, Debug)]
enum Command {
    /// Show the queries on the wire: which, queries per second, how slow, for which connection, with which errors
    #[command(after_long_help = QUERIES_EXAMPLES)]
    Queries(Box<QueriesArgs>),
    /// Read logs of mongod and mongos, 2.4 to 8.x: slow operations (slow ms) by shape, connections, starts, errors
    #[command(subcommand, after_help = LOGS_EXAMPLES)]
    Logs(LogsCommand),
    /// Control the database profiler (level, slow ms), read and follow what it writes, and measure what it costs
    #[command(subcommand, after_help = crate::profiler::args::EXAMPLES)]
    Profiler(ProfilerCommand),
    /// Compare two captures, logs, profiles or saved reports: what is new, gone, slower or heavier
    #[command(after_long_help = COMPARE_EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Measure a disk for MongoDB, watch it, check how it is set up
    #[command(subcommand, after_help = disk::args::EXAMPLES)]
    Disk(disk::args::DiskCommand),
    /// Trace the files of a process: which are read, in which order, by how much more than needed
    #[command(subcommand, after_help = IO_EXAMPLES)]
    Io(IoCommand),
    /// Check what works on this machine, and say how to fix what does not
    #[command(after_help = "Examples:\n  mongosonar doctor\n  mongosonar doctor --json")]
    Doctor {
        /// One JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Print shell completions
    #[command(
        after_help = "Example:\n  mongosonar completions bash | sudo tee /etc/bash_completion.d/mongosonar"
    )]
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all pages into a folder
    #[command(after_help = "Example:\n  mongosonar man | man -l -")]
    Man {
        /// Folder to write the pages of all commands into
        dir: Option<PathBuf>,
    },
}

/// What can be done with logs.
#[derive(Subcommand, Debug)]
enum LogsCommand {
    /// Digest of log files
    #[command(after_long_help = LOGS_EXAMPLES)]
    Report(Box<DigestArgs>),
}

const LOGS_EXAMPLES: &str = "\
Examples:
  mongosonar logs report /var/log/mongodb/mongod.log            what took the most time
  mongosonar logs report mongod.log.*.gz mongod.log --sort ratio
  mongosonar logs report mongod.log --by plan --from 2026-05-01T10:00:00Z
  mongosonar logs report mongod.log --html report.html          a page with charts
  mongosonar logs report mongod.log --json > monday.json        for `mongosonar compare`
  kubectl logs mongo-0 | mongosonar logs report -";

const COMPARE_EXAMPLES: &str = "\
Examples:
  mongosonar compare monday.json mongod.log          a saved report and a log
  mongosonar compare before.pcapng after.pcapng || echo something got worse
  mongosonar compare --by namespace yesterday.log.gz today.log --json";

const QUERIES_EXAMPLES: &str = "\
Examples:
  sudo mongosonar queries                               live view of all that is served here
  sudo mongosonar queries --by app --sort p99           by application, slowest first
  sudo mongosonar queries --each --filter orders        every operation as it ends
  sudo mongosonar queries --interval 10s --json         one JSON object every ten seconds
  sudo mongosonar queries --baseline monday.json        what is new or slower than on Monday, while it happens
  sudo mongosonar queries --write night.pcapng --duration 1h
  mongosonar queries --read night.pcapng --digest --json > monday.json
  mongosonar queries --read night.pcapng --html night.html
  mongosonar queries --read night.pcapng                the same figures from the file
  tcpdump -w - port 27017 | mongosonar queries --read - --interval 1s
Keys of the live view: h for help.";

const IO_EXAMPLES: &str = "\
Examples:
  sudo mongosonar io live                        which files are read now, and how
  sudo mongosonar io record reads.msio           every access of this machine's mongod, until Ctrl-C
  sudo mongosonar io record reads.msio --pid 712 --duration 1m
  mongosonar io report reads.msio                the verdict, files and threads of a recording
  mongosonar io report reads.msio --html page.html
  mongosonar io compare before.msio after.msio
  mongosonar io reorder shop.orders --uri mongodb://localhost:27017";

/// What `io` can be asked for.
#[derive(Subcommand, Debug)]
pub enum IoCommand {
    /// Show the files of a process as `top` shows processes; counted in the kernel
    #[command(
        after_help = "Examples:\n  sudo mongosonar io live\n  sudo mongosonar io live --pid 712 --by namespace --interval 5s\n  sudo mongosonar io live --json --duration 1m"
    )]
    Live(IoLiveArgs),
    /// Record every access to the files of a process with eBPF
    #[command(
        after_help = "Examples:\n  sudo mongosonar io record reads.msio --duration 1m\n  sudo mongosonar io record reads.msio --pid 712 --dbpath /var/lib/mongodb"
    )]
    Record(IoRecordArgs),
    /// Report on a recording: access path, randomness, re-reads, who waits; with a verdict in words
    #[command(
        after_help = "Examples:\n  mongosonar io report reads.msio --limit 5\n  mongosonar io report reads.msio --svg reads.svg\n  mongosonar io report reads.msio --html reads.html\n  mongosonar io report reads.msio --bench disk.json"
    )]
    Report(IoReportArgs),
    /// Compare two recordings: before and after, one shard and another
    #[command(after_help = "Example:\n  mongosonar io compare before.msio after.msio")]
    Compare(IoCompareArgs),
    /// Rewrite a collection in the order of an index; without --apply only estimate it
    #[command(
        after_help = "Examples:\n  mongosonar io reorder shop.orders --uri mongodb://localhost:27017\n  mongosonar io reorder shop.orders --uri mongodb://localhost:27017 --recording reads.msio\n  mongosonar io reorder shop.orders --uri mongodb://localhost:27017 --apply"
    )]
    Reorder(IoReorderArgs),
}

/// What `io live` can be asked for.
#[derive(Args, Debug, Clone)]
pub struct IoLiveArgs {
    /// Process to watch; repeat for several [default: each mongod of this machine, also one that starts later]
    #[arg(long, short_alias = 'p', value_name = "PID")]
    pub pid: Vec<u32>,
    /// Only files under this folder, by its path here or in the process's mount namespace; without --pid only of each
    /// mongod whose folder it is [default: all files of the process]
    #[arg(long, value_name = "DIR")]
    pub dbpath: Option<PathBuf>,
    /// Asked for the names of collections and indexes
    #[command(flatten)]
    pub server: ServerArgs,
    /// One row for each
    #[arg(long, value_name = "WHAT", value_enum, default_value = "file")]
    pub by: IoBy,
    /// Length of an interval, like 500ms, 10s, 1m
    #[arg(long, short_alias = 'i', value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// Stop after this time
    #[arg(long, short_alias = 'd', value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// One JSON object for each interval instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show at most this many rows [default: 20, or as many as fit on the screen]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Where to trace accesses [default: at the VFS, or at the system calls where the kernel does not allow that]
    #[arg(long, value_enum, value_name = "WAY")]
    pub way: Option<IoWay>,
    /// Keep the privileges that the program was started with, for the search of a fault
    #[arg(long)]
    pub keep_privileges: bool,
    /// Also files of pseudo file systems: /proc, /sys and their like
    #[arg(long)]
    pub pseudo_filesystems: bool,
}

/// What a row of `io live` is.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub enum IoBy {
    /// A file.
    File,
    /// A collection with its indexes; files of a kind where the server was not asked.
    Namespace,
}

/// Where accesses are seen.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub enum IoWay {
    /// At the functions of the VFS (fentry/fexit)
    Vfs,
    /// At the system calls (raw tracepoints)
    Calls,
}

impl From<IoWay> for sonar_sys::ebpf::Way {
    fn from(way: IoWay) -> Self {
        match way {
            IoWay::Vfs => Self::Vfs,
            IoWay::Calls => Self::Calls,
        }
    }
}

/// What `io record` can be asked for.
#[derive(Args, Debug, Clone)]
pub struct IoRecordArgs {
    /// File for the recording; an existing file is not overwritten
    pub file: PathBuf,
    /// Process to trace; repeat for several [default: each mongod of this machine, also one that starts later]
    #[arg(long, short_alias = 'p', value_name = "PID")]
    pub pid: Vec<u32>,
    /// Only files under this folder, by its path here or in the process's mount namespace; without --pid only of each
    /// mongod whose folder it is [default: all files of the process]
    #[arg(long, value_name = "DIR")]
    pub dbpath: Option<PathBuf>,
    /// Stop after this time
    #[arg(long, short_alias = 'd', value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Also record pages that enter the page cache, so that the report shows what readahead fetched in vain;
    /// each page costs about as much as an access
    #[arg(long)]
    pub readahead: bool,
    /// Asked for the names of collections and indexes, which the recording keeps
    #[command(flatten)]
    pub server: ServerArgs,
    /// Where to trace accesses [default: at the VFS, or at the system calls where the kernel does not allow that]
    #[arg(long, value_enum, value_name = "WAY")]
    pub way: Option<IoWay>,
    /// Keep the privileges that the program was started with, for the search of a fault
    #[arg(long)]
    pub keep_privileges: bool,
    /// Also files of pseudo file systems: /proc, /sys and their like
    #[arg(long)]
    pub pseudo_filesystems: bool,
}

/// What `io report` can be asked for.
#[derive(Args, Debug, Clone)]
pub struct IoReportArgs {
    /// The recording; - is standard input
    pub file: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// One line for each access, tab-separated, instead of the report
    #[arg(long, conflicts_with_all = ["json", "svg", "html"])]
    pub each: bool,
    /// Draw the reads of the file that the verdict is about, offset over time, into this SVG file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse)]
    pub svg: Option<PathBuf>,
    /// A result of disk bench --json, to estimate reading in order and at random on that disk
    #[arg(long, value_name = "RUN.json", conflicts_with = "each")]
    pub bench: Option<PathBuf>,
    /// Write the report as one self-contained page with charts into this file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse)]
    pub html: Option<PathBuf>,
    /// Show at most this many files and threads [default: 20]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Also files of pseudo file systems: /proc, /sys and their like
    #[arg(long)]
    pub pseudo_filesystems: bool,
}

/// What `io reorder` can be asked for.
#[derive(Args, Debug, Clone)]
pub struct IoReorderArgs {
    /// The collection: database.collection
    pub namespace: String,
    /// The server that holds it
    #[command(flatten)]
    pub server: ServerArgs,
    /// Name of the index whose order the collection gets
    #[arg(long, value_name = "NAME", default_value = "_id_")]
    pub index: String,
    /// Judge from this recording of `io record` whether it is worth it
    #[arg(long, value_name = "FILE", conflicts_with = "clean")]
    pub recording: Option<PathBuf>,
    /// Rewrite the collection
    #[arg(long)]
    pub apply: bool,
    /// Confirm that nothing writes to the collection meanwhile; --apply needs it where the server has no change streams
    #[arg(long)]
    pub writers_stopped: bool,
    /// Clean up after an interrupted run: remove the copy, and rename the original back if needed
    #[arg(long, conflicts_with = "apply")]
    pub clean: bool,
}

/// What `io compare` can be asked for.
#[derive(Args, Debug, Clone)]
pub struct IoCompareArgs {
    /// The first recording
    pub a: PathBuf,
    /// The second one
    pub b: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Show at most this many files [default: 20]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// What `queries` can be asked for. Every flag has its twin in the configuration file.
#[derive(Args, Debug, Default, Clone)]
pub struct QueriesArgs {
    /// Capture on this interface; repeat for several [default: all]
    #[arg(short, long, value_name = "NAME", help_heading = "What to capture")]
    pub interface: Vec<String>,
    /// Port or range of ports (27017-27020) of the servers; repeat for several [default: the ports of each mongod and mongos on this host, else 27017; with --read: all]
    #[arg(short, long, value_name = "PORT", value_parser = parse_ports, help_heading = "What to capture")]
    pub port: Vec<Range>,
    /// Read a capture file (pcap or pcapng, also gzip or zstd) instead of the network; - is standard input
    #[arg(short, long, value_name = "FILE", help_heading = "What to capture")]
    pub read: Option<PathBuf>,
    /// Show the file of --read in the live view, at the speed of its recording, again and again
    #[arg(long, requires = "read", conflicts_with_all = ["each", "digest", "html", "log"], help_heading = "What to capture")]
    pub replay: bool,
    /// Also write the captured packets into this file (pcapng, mode 0600). It holds values, not only shapes
    #[arg(short, long, value_name = "FILE", conflicts_with = "read", help_heading = "What to capture")]
    pub write: Option<PathBuf>,
    /// Begin a new file after so many bytes (100M, 2G) or so much time (10m, 1h); each is complete, with a number in its name
    #[arg(long, value_name = "SIZE|TIME", value_parser = queries::parse_rotation, requires = "write", help_heading = "What to capture")]
    pub rotate: Option<queries::Rotation>,
    /// Keep at most so many files of --rotate, and remove the oldest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "rotate", help_heading = "What to capture")]
    pub keep: Option<u64>,
    /// Keep the privileges that the program was started with, for the search of a fault
    #[arg(long, help_heading = "Resources")]
    pub keep_privileges: bool,
    /// Capture one connection in N; figures are scaled and marked with ~
    #[arg(long, value_name = "1/N", value_parser = parse_sample, help_heading = "What to capture")]
    pub sample: Option<u32>,
    /// Copy only the first N bytes of each packet of a reply, at least 26: costs least, but documents, cursors and late errors are not known
    #[arg(long, value_name = "N", value_parser = parse_snap_replies, conflicts_with = "read", help_heading = "What to capture")]
    pub snap_replies: Option<u32>,
    /// Verify the checksum of every message that has one, and count wrong ones [default: only after a gap]
    #[arg(long, help_heading = "What to capture")]
    pub verify_checksums: bool,
    /// Log of a mongod or mongos that says which applications are on connections opened before the capture; repeat for several [default: the logs of the servers here; with --read: none]
    #[arg(long, value_name = "FILE", help_heading = "What to capture")]
    pub log: Vec<PathBuf>,
    /// Ask this server too which applications are on connections that are open already (currentOp)
    #[arg(long, value_name = "URI", conflicts_with = "read", help_heading = "What to capture")]
    pub uri: Option<String>,
    /// Stop after this time
    #[arg(long, short_alias = 'd', value_name = "TIME", value_parser = parse_duration, help_heading = "What to capture")]
    pub duration: Option<Duration>,
    /// Length of an interval, like 500ms, 10s, 1m [default: 1s; with --read: the whole file]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "What to show")]
    pub interval: Option<Duration>,
    /// One row for each [default: shape]
    #[arg(long, value_name = "WHAT", value_enum, help_heading = "What to show")]
    pub by: Option<ByArg>,
    /// Show operations of this class; repeat for several [default: user]
    #[arg(long, value_name = "CLASS", value_enum, help_heading = "What to show")]
    pub class: Vec<ClassArg>,
    /// Show operations that the server served, or that it issued to another server [default: served]
    #[arg(long, value_name = "ROLE", value_enum, help_heading = "What to show")]
    pub role: Option<RoleArg>,
    #[arg(long, value_name = "COLUMN", value_parser = parse_sort, help = sort_help(), help_heading = "What to show")]
    pub sort: Option<String>,
    /// Show only rows whose command, namespace, shape or name contains this text
    #[arg(long, value_name = "TEXT", help_heading = "What to show")]
    pub filter: Option<String>,
    /// Show at most this many rows
    #[arg(long, value_name = "N", help_heading = "What to show")]
    pub limit: Option<usize>,
    /// Write shapes with typed placeholders, or plain with everything masked [default: typed]
    #[arg(long, value_name = "FORM", value_enum, help_heading = "What to show")]
    pub shape: Option<ShapeArg>,
    /// One line for each operation as it ends
    #[arg(long, help_heading = "How to show it")]
    pub each: bool,
    /// One JSON object for each interval, or with --each for each operation
    #[arg(long, conflicts_with = "csv", help_heading = "How to show it")]
    pub json: bool,
    /// CSV: one line for each row
    #[arg(long, conflicts_with = "each", help_heading = "How to show it")]
    pub csv: bool,
    /// One report over the whole capture at the end, like that of `logs report`, as text, --json (which `mongosonar compare` reads) or --csv
    #[arg(long, conflicts_with_all = ["each", "interval"], help_heading = "How to show it")]
    pub digest: bool,
    /// Write the report as one self-contained page with charts into this file too; implies --digest
    #[arg(long, value_name = "FILE", value_parser = outfile::parse, conflicts_with_all = ["each", "interval"], help_heading = "How to show it")]
    pub html: Option<PathBuf>,
    /// Mark what is new or slower than in this capture, log, profile or saved digest
    #[arg(long, value_name = "FILE", help_heading = "What to show")]
    pub baseline: Option<PathBuf>,
    /// Show the commands with their values (with --each)
    #[arg(long, requires = "each", help_heading = "How to show it")]
    pub show_values: bool,
    #[command(flatten)]
    pub zone: digest::ZoneArgs,
    /// Colours [default: auto]
    #[arg(long, value_name = "WHEN", value_enum, help_heading = "How to show it")]
    pub color: Option<ColorArg>,
    /// Capture threads, each with its own ring [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), help_heading = "Resources")]
    pub threads: Option<u16>,
    /// Memory for the capture ring in MiB [default: 32]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(2..=4096), help_heading = "Resources")]
    pub ring_mib: Option<u32>,
}

/// An inclusive range of ports.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Range(pub u16, pub u16);

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ByArg {
    Shape,
    Order,
    Namespace,
    App,
    Client,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClassArg {
    User,
    Internal,
    Monitoring,
    Replication,
    Waiting,
    All,
}

impl ClassArg {
    /// The classes asked for; users' alone where none was.
    pub fn classes(asked: &[Self]) -> Classes {
        let class = |one: &Self| match one {
            Self::User => Some(Class::User),
            Self::Internal => Some(Class::Internal),
            Self::Monitoring => Some(Class::Monitoring),
            Self::Replication => Some(Class::Replication),
            Self::Waiting => Some(Class::Waiting),
            Self::All => None,
        };
        if asked.contains(&Self::All) {
            Classes::ALL
        } else if asked.is_empty() {
            Classes::USER
        } else {
            asked.iter().filter_map(class).collect()
        }
    }
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum RoleArg {
    Served,
    Issued,
    All,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ShapeArg {
    Typed,
    Plain,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ColorArg {
    Auto,
    Always,
    Never,
}

/// `27017` or `27017-27020`.
pub fn parse_ports(text: &str) -> Result<Range, String> {
    let port = |text: &str| {
        text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| {
            format!("{text:?} is no port: give a number from 1 to 65535, or a range like 27017-27020")
        })
    };
    match text.split_once('-') {
        None => port(text).map(|port| Range(port, port)),
        Some((low, high)) => {
            let range = Range(port(low)?, port(high)?);
            if range.0 > range.1 {
                return Err(format!("the range {text} ends before it begins: write {}-{}", range.1, range.0));
            }
            Ok(range)
        }
    }
}

/// `500ms`, `10s`, `2m`, `1h`, or a plain number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let wrong = || format!("{text:?} is no time: write it like 500ms, 10s, 2m or 1h");
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match text[digits..].trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let duration = Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())?;
    if duration < Duration::from_millis(10) {
        return Err(format!("{text} is too short: at least 10ms"));
    }
    Ok(duration)
}

/// A column of `queries`, or one of its digest: as help, its heading or `--json` names it.
fn parse_sort(text: &str) -> Result<String, String> {
    match Column::from_name(text).is_some() || By::from_name(text).is_some() {
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
    let bytes: u32 =
        text.parse().map_err(|_| format!("{text:?} is not a number of bytes, at least {least}"))?;
    if bytes < least {
        return Err(format!("{bytes} bytes are too few to recognise a reply: at least {least}"));
    }
    Ok(bytes)
}

/// `1/N`.
pub fn parse_sample(text: &str) -> Result<u32, String> {
    let n = text.strip_prefix("1/").and_then(|n| n.parse().ok()).filter(|n| (1..=65_536).contains(n));
    n.ok_or_else(|| format!("{text:?} is no sample: write 1/N with N from 1 to 65536, for example 1/10"))
}

/// All commands with their help.
pub fn program() -> clap::Command {
    manual::with_exit_codes(Cli::command())
}

/// Reads the arguments and does what they ask for.
pub fn run() -> Result<ExitCode> {
    let matches = program().get_matches();
    let cli = Cli::from_arg_matches(&matches)?;
    screen::ask(cli.width);
    let is_doctor = matches!(cli.command, Command::Doctor { .. });
    // A file that is named is checked, whichever command it is for; the doctor reports on it.
    let file = match &cli.command {
        Command::Queries(_) => config::load(cli.config.as_deref())?,
        _ if cli.config.is_some() && !is_doctor => config::load(cli.config.as_deref())?,
        _ => config::File::default(),
    };
    let code = match cli.command {
        Command::Queries(args) => queries::run(&config::merge(*args, &file))?,
        Command::Logs(LogsCommand::Report(args)) => digest::logs(&args)?,
        Command::Profiler(command) => profiler::run(&command)?,
        Command::Compare(args) => digest::compare(&args)?,
        Command::Disk(command) => disk::run(&command)?,
        Command::Io(command) => files::run(&command)?,
        Command::Doctor { json } => doctor::run(json, cli.config.as_deref())?,
        Command::Completions { shell } => {
            manual::completions(&mut program(), shell)?;
            OK
        }
        Command::Man { dir } => {
            manual::pages(program(), dir.as_deref())?;
            OK
        }
    };
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        program().debug_assert();
    }

    #[test]
    fn ports_times_and_samples_say_what_is_wrong_with_them() {
        assert_eq!(parse_ports("27017"), Ok(Range(27_017, 27_017)));
        assert_eq!(parse_ports("27017-27020"), Ok(Range(27_017, 27_020)));
        assert!(parse_ports("70000").unwrap_err().contains("1 to 65535"));
        assert!(parse_ports("0").is_err());
        assert!(parse_ports("20-10").unwrap_err().contains("10-20"));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        assert!(parse_duration("1ms").unwrap_err().contains("too short"));
        assert!(parse_duration("1x").unwrap_err().contains("500ms"));
        assert_eq!(parse_snap_replies("26"), Ok(26));
        assert_eq!(parse_snap_replies("4294967295"), Ok(u32::MAX));
        assert!(parse_snap_replies("25").unwrap_err().contains("26"));
        assert!(parse_snap_replies("0").is_err() && parse_snap_replies("4294967296").is_err());
        assert_eq!(parse_sample("1/10"), Ok(10));
        assert!(parse_sample("0.1").unwrap_err().contains("1/10"));
    }
}
