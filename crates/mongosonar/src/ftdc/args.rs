//! The arguments of `mongosonar ftdc`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::when::{When, ZoneArgs, parse_time};
use crate::confinement::file_reading::FileReading;
use crate::report_output::OutputArgs;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar ftdc report /var/lib/mongodb/diagnostic.data  what is wrong, and since when
  mongosonar ftdc report metrics.2026-05-01T10-00-00Z-00000 --html report.html
  mongosonar ftdc report diagnostic.data --from 2026-05-01T14:00 --to 2026-05-01T15:00
  mongosonar ftdc export diagnostic.data --metric 'serverStatus.connections.*' --csv > open.csv
  mongosonar ftdc compare monday/diagnostic.data tuesday/diagnostic.data";

/// The commands of `ftdc`.
#[derive(Subcommand, Debug)]
pub enum FtdcCommand {
    /// Say what is wrong with a server and since when, with the figures that experts look at first
    #[command(
        after_help = "Examples:\n  sudo mongosonar ftdc report /var/lib/mongodb\n  mongosonar ftdc report diagnostic.data --from 2026-05-01T14:00 --html report.html\n  mongosonar ftdc report diagnostic.data --json"
    )]
    Report(FtdcReportArgs),
    /// Write any metric of every sample as CSV, JSON lines or OpenMetrics
    #[command(
        after_help = "Examples:\n  mongosonar ftdc export diagnostic.data --list\n  mongosonar ftdc export diagnostic.data --metric '*.opcounters.*' --csv\n  mongosonar ftdc export diagnostic.data --metric 'serverStatus.mem.*' --openmetrics"
    )]
    Export(FtdcExportArgs),
    /// Compare two servers, or one server before and after
    #[command(
        after_help = "Examples:\n  mongosonar ftdc compare before/diagnostic.data after/diagnostic.data\n  mongosonar ftdc compare db.tar db.tar --to-a 2026-05-01T14:00 --from-b 2026-05-01T14:00"
    )]
    Compare(FtdcCompareArgs),
}

impl FtdcCommand {
    /// What it reads and writes.
    pub fn reading(&self) -> FileReading<'_> {
        match self {
            Self::Report(args) => FileReading::of(&args.paths).with_page(args.output.html.as_ref()),
            Self::Export(args) => FileReading::of(&args.paths),
            Self::Compare(args) => FileReading::of([&args.a, &args.b]),
        }
    }
}

/// Which samples.
#[derive(Args, Debug, Clone)]
pub struct SampleRangeArgs {
    /// Only samples at this time or later: 2026-05-01T10:00:00Z, or by the clock of the times shown: 2026-05-01T10:00, 14:05, "yesterday 14:00"; or 2h ago: -2h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<When>,
    /// Only samples before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<When>,
}

/// The arguments of `ftdc report`.
#[derive(Args, Debug, Clone)]
pub struct FtdcReportArgs {
    /// Files of diagnostic.data, the folder, or the server's data folder
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub range: SampleRangeArgs,
    #[command(flatten)]
    pub zone: ZoneArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// CSV: one line for each figure
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// The arguments of `ftdc export`.
#[derive(Args, Debug, Clone)]
pub struct FtdcExportArgs {
    /// Files of diagnostic.data, the folder, or the server's data folder
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// Only metrics of this path; * stands for any text; repeat for several [default: all]
    #[arg(long, short_alias = 'm', value_name = "PATTERN")]
    pub metric: Vec<String>,
    #[command(flatten)]
    pub range: SampleRangeArgs,
    /// Form of the output [default: JSON lines]
    #[command(flatten)]
    pub form: ExportForm,
}

/// How `ftdc export` writes.
#[derive(Args, Debug, Clone, Default)]
#[group(multiple = false)]
pub struct ExportForm {
    /// CSV: a line for each sample, a column for each metric
    #[arg(long)]
    pub csv: bool,
    /// JSON lines: an object for each sample; this is the default
    #[arg(long)]
    pub json: bool,
    /// OpenMetrics text, with the times of the samples
    #[arg(long)]
    pub openmetrics: bool,
    /// Only the paths of the metrics
    #[arg(long)]
    pub list: bool,
}

/// What `ftdc export` writes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Csv,
    Json,
    OpenMetrics,
    List,
}

impl ExportForm {
    /// The format that was asked for.
    pub const fn format(&self) -> ExportFormat {
        match (self.csv, self.openmetrics, self.list) {
            (true, ..) => ExportFormat::Csv,
            (_, true, _) => ExportFormat::OpenMetrics,
            (_, _, true) => ExportFormat::List,
            _ => ExportFormat::Json,
        }
    }
}

/// The arguments of `ftdc compare`.
#[derive(Args, Debug, Clone)]
pub struct FtdcCompareArgs {
    /// Before: a file of diagnostic.data, or a folder
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// After
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Of A only samples at this time or later: 2026-05-01T10:00:00Z, or by the clock of the times shown: 2026-05-01T10:00
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from_a: Option<When>,
    /// Of A only samples before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to_a: Option<When>,
    /// Of B only samples at this time or later
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from_b: Option<When>,
    /// Of B only samples before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to_b: Option<When>,
    #[command(flatten)]
    pub zone: ZoneArgs,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}
