//! The arguments of `mongosonar io`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::args::connection::ServerArgs;
use crate::args::privileges::PrivilegeArgs;
use crate::args::values::{number, parse_duration};
use crate::confinement::file_reading::FileReading;
use crate::history::PastArgs;
use crate::report_output::OutputArgs;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar io live                        which files are read now, and how
  sudo mongosonar io record reads.msio           every access of this machine's mongod, until Ctrl-C
  sudo mongosonar io record reads.msio --pid 712 --duration 1m
  mongosonar io report reads.msio                the verdict, files and threads of a recording
  mongosonar io report reads.msio --html page.html
  mongosonar io compare before.msio after.msio
  mongosonar io reorder shop.orders --uri mongodb://localhost:27017";

/// The arguments of `io`.
#[derive(Subcommand, Debug)]
pub enum IoCommand {
    /// Show the files of a process as `top` shows processes; counted in the kernel
    #[command(
        after_help = "Examples:\n  sudo mongosonar io live\n  sudo mongosonar io live --pid 712 --by namespace --interval 5s\n  sudo mongosonar io live --json --duration 1m\n  mongosonar io live --from 14:00 --to 14:10"
    )]
    Live(IoLiveArgs),
    /// Record every access to the files of a process with eBPF
    #[command(
        after_help = "Examples:\n  sudo mongosonar io record reads.msio --duration 1m\n  sudo mongosonar io record reads.msio --pid 712 --dbpath /var/lib/mongodb"
    )]
    Record(IoRecordArgs),
    /// Report on a recording: access path, randomness, re-reads, who waits; with a verdict in words
    #[command(
        after_help = "Examples:\n  mongosonar io report reads.msio --limit 5\n  mongosonar io report reads.msio --html reads.html\n  mongosonar io report reads.msio --bench disk.json"
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

impl IoCommand {
    /// What it reads and writes, if it traces nothing and changes nothing.
    pub fn reading(&self) -> Option<FileReading<'_>> {
        match self {
            Self::Live(args) => args.past.is_asked().then(|| FileReading::of([args.past.store.folder()])),
            Self::Report(args) => Some(
                FileReading::of([&args.file].into_iter().chain(&args.bench))
                    .with_page(args.output.html.as_ref()),
            ),
            Self::Compare(args) => Some(FileReading::of([&args.a, &args.b])),
            Self::Record(_) | Self::Reorder(_) => None,
        }
    }
}

/// Whose accesses are traced, and to which files.
#[derive(Args, Debug, Clone)]
#[group(skip)]
pub struct TracedFilesArgs {
    /// Process to trace; repeat for several [default: with --port and neither --host nor --uri the mongod there, else each
    /// mongod of this machine, also one that starts later]
    #[arg(long, short_alias = 'p', value_name = "PID")]
    pub pid: Vec<u32>,
    /// Only files under this folder, by its path here or in the process's mount namespace; without --pid only of each
    /// mongod whose folder it is [default: all files of the process]
    #[arg(long, value_name = "DIR")]
    pub dbpath: Option<PathBuf>,
}

/// How accesses are traced.
#[derive(Args, Debug, Clone)]
#[group(skip)]
pub struct FileTraceArgs {
    /// Where to trace accesses [default: at the VFS, or at the system calls where the kernel does not allow that]
    #[arg(long, value_enum, value_name = "WAY")]
    pub way: Option<IoWay>,
    #[command(flatten)]
    pub privileges: PrivilegeArgs,
    /// Also files of pseudo file systems: /proc, /sys and their like
    #[arg(long)]
    pub pseudo_filesystems: bool,
}

/// The arguments of `io live`.
#[derive(Args, Debug, Clone)]
pub struct IoLiveArgs {
    #[command(flatten)]
    pub traced: TracedFilesArgs,
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
    #[arg(long, value_name = "N", value_parser = number(1_usize.., 20))]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub trace: FileTraceArgs,
    #[command(flatten, next_help_heading = "History")]
    pub past: PastArgs,
    #[command(flatten, next_help_heading = "Server to ask for the names of collections and indexes")]
    pub server: ServerArgs,
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

impl From<IoWay> for sonar_sys::ebpf::AttachMode {
    fn from(way: IoWay) -> Self {
        match way {
            IoWay::Vfs => Self::Vfs,
            IoWay::Calls => Self::Calls,
        }
    }
}

/// The arguments of `io record`.
#[derive(Args, Debug, Clone)]
pub struct IoRecordArgs {
    /// File for the recording; an existing file is not overwritten
    pub file: PathBuf,
    #[command(flatten)]
    pub traced: TracedFilesArgs,
    /// Stop after this time
    #[arg(long, short_alias = 'd', value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Also record pages that enter the page cache, so that the report shows what readahead fetched in vain;
    /// each page costs about as much as an access
    #[arg(long)]
    pub readahead: bool,
    #[command(flatten)]
    pub trace: FileTraceArgs,
    #[command(
        flatten,
        next_help_heading = "Server to ask for the names of collections and indexes, which the recording keeps"
    )]
    pub server: ServerArgs,
}

/// The arguments of `io report`.
#[derive(Args, Debug, Clone)]
pub struct IoReportArgs {
    /// The recording; - is standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
    /// One line for each access, tab-separated, instead of the report
    #[arg(long, conflicts_with_all = ["json", "html"])]
    pub each: bool,
    /// A result of disk bench --json, to estimate reading in order and at random on that disk
    #[arg(long, value_name = "RUN.json", conflicts_with = "each")]
    pub bench: Option<PathBuf>,
    /// Show at most this many files and threads [default: 20]
    #[arg(long, value_name = "N", value_parser = number(1_usize.., 20))]
    pub limit: Option<usize>,
    /// Also files of pseudo file systems: /proc, /sys and their like
    #[arg(long)]
    pub pseudo_filesystems: bool,
}

/// The arguments of `io reorder`.
#[derive(Args, Debug, Clone)]
pub struct IoReorderArgs {
    /// The collection: database.collection
    #[arg(value_parser = parse_namespace)]
    pub namespace: String,
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
    /// The most documents of one insert into the copy; smaller inserts let others in between more often [default: 1000]
    #[arg(long, value_name = "N", value_parser = number(1_usize..=100_000, 1_000))]
    pub batch_documents: Option<usize>,
    /// Clean up after an interrupted run: remove the copy, and rename the original back if needed
    #[arg(long, conflicts_with = "apply")]
    pub clean: bool,
    #[command(flatten, next_help_heading = "Server that holds it")]
    pub server: ServerArgs,
}

/// `database.collection`.
fn parse_namespace(text: &str) -> Result<String, String> {
    let parts =
        text.split_once('.').filter(|(database, collection)| !database.is_empty() && !collection.is_empty());
    parts
        .map(|_| text.to_owned())
        .ok_or_else(|| "write it as database.collection, like shop.orders".to_owned())
}

/// The arguments of `io compare`.
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
    #[arg(long, value_name = "N", value_parser = number(1_usize.., 20))]
    pub limit: Option<usize>,
}
