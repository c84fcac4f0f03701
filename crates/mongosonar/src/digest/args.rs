//! The arguments of `logs report`, `profiler report` and `compare`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sonar_view::digest::RowOrder;

use crate::args::connection::ServerArgs;
use crate::args::values::{ClassArg, ShapeArg, number};
use crate::args::when::{self, When, ZoneArgs, parse_time};
use crate::confinement::file_reading::FileReading;
use crate::history::StoreArgs;
use crate::outfile;
use crate::report_output::OutputArgs;

/// The commands of `mongosonar logs`.
#[derive(Subcommand, Debug)]
pub enum LogsCommand {
    /// Digest of log files
    #[command(after_long_help = LOGS_EXAMPLES, mut_arg("files", |files| files.required(true)))]
    Report(Box<DigestArgs>),
}

/// Examples for the help of `logs`.
pub const LOGS_EXAMPLES: &str = "\
Examples:
  mongosonar logs report /var/log/mongodb/mongod.log            what took the most time
  mongosonar logs report mongod.log.*.gz mongod.log --sort ratio
  mongosonar logs report mongod.log --by plan --from 2026-05-01T10:00:00Z
  mongosonar logs report mongod.log --html report.html          a page with charts
  mongosonar logs report mongod.log --json > monday.json        for `mongosonar compare`
  kubectl logs mongo-0 | mongosonar logs report -";

/// Examples for the help of `report`.
pub const REPORT_EXAMPLES: &str = "\
Examples:
  mongosonar report wire.pcap mongod.log             latency, and documents examined
  mongosonar report wire.pcap mongod.log.*.gz mongod.log system.profile.bson
  mongosonar report wire.pcap mongod.log --from 2026-05-01T10:00 --to 2026-05-01T10:05
  mongosonar report wire.pcap mongod.log --by namespace --sort examined
  mongosonar report wire.pcap mongod.log --html report.html
  mongosonar report --from 14:00 --to 14:30 --html incident.html   an incident, from an agent
  mongosonar report wire.pcap mongod.log --json > monday.json   for `mongosonar compare`
  mongosonar report explain.json                     a plan: what is wrong, which index would help";

/// Examples for the help of `compare`.
pub const COMPARE_EXAMPLES: &str = "\
Examples:
  mongosonar compare monday.json mongod.log          a saved report and a log
  mongosonar compare before.pcapng after.pcapng || echo something got worse
  mongosonar compare 'yesterday 14:00+10m' '14:00+10m'   two spans of the history of an agent
  mongosonar compare --by namespace yesterday.log.gz today.log --json";

/// The arguments of `logs report`, `profiler report` and `report`.
#[derive(Args, Debug, Default, Clone)]
pub struct DigestArgs {
    /// Files to read, plain, gzip or zstd; - is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// One row for each [default: shape]; user and comment only with --show-values
    #[arg(long, value_name = "WHAT", value_parser = ["shape", "order", "namespace", "app", "plan", "client", "user", "comment"], help_heading = "What to show")]
    pub by: Option<String>,
    /// Show what clients chose: with --by, the names of users and the comments of commands; in the output of explain, the values of the query
    #[arg(long, help_heading = "What to show")]
    pub show_values: bool,
    /// Show operations of this class; repeat for several [default: user]
    #[arg(long, value_name = "CLASS", value_enum, help_heading = "What to show")]
    pub class: Vec<ClassArg>,
    /// Only operations that ended at this time or later: 2026-05-01T10:00:00Z, or by the clock of the times shown: 2026-05-01T10:00, 14:05, "yesterday 14:00"; or 2h ago: -2h
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "What to show")]
    pub from: Option<When>,
    /// Only operations that ended before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "What to show")]
    pub to: Option<When>,
    /// Show only rows whose command, namespace, shape or name contains this text
    #[arg(long, value_name = "TEXT", help_heading = "What to show")]
    pub filter: Option<String>,
    #[arg(long, value_name = "COLUMN", value_parser = parse_sort, help = sort_help(), help_heading = "What to show")]
    pub sort: Option<String>,
    /// Show at most this many rows [default: 20 in text, else all]
    #[arg(long, value_name = "N", value_parser = number(1_usize.., 20), help_heading = "What to show")]
    pub limit: Option<usize>,
    /// Write shapes with typed placeholders, or plain with everything masked [default: typed]
    #[arg(long, value_name = "FORM", value_enum, help_heading = "What to show")]
    pub shape: Option<ShapeArg>,
    #[command(flatten)]
    pub zone: ZoneArgs,
    #[command(
        flatten,
        next_help_heading = "Server to ask which indexes exist, so that no index is proposed where one of them serves"
    )]
    pub server: ServerArgs,
    /// One JSON object, which `mongosonar compare` reads too
    #[arg(long, conflicts_with = "csv", help_heading = "How to show it")]
    pub json: bool,
    /// CSV: one line for each row
    #[arg(long, help_heading = "How to show it")]
    pub csv: bool,
    /// Write the report as one self-contained page with charts into this file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse, help_heading = "How to show it")]
    pub html: Option<PathBuf>,
}

impl DigestArgs {
    /// Whether a span of the history was asked for: no files, and a time.
    pub const fn is_of_the_history(&self) -> bool {
        self.files.is_empty() && (self.from.is_some() || self.to.is_some())
    }

    /// What it reads and writes.
    pub fn reading(&self) -> FileReading<'_> {
        let reading = FileReading::of(&self.files);
        FileReading { server: Some(&self.server), ..reading.with_page(self.html.as_ref()) }
    }
}

/// The arguments of `report`.
#[derive(Args, Debug, Default, Clone)]
pub struct JoinedReportArgs {
    #[command(flatten)]
    pub digest: DigestArgs,
    /// Decrypt TLS connections of the captures with the secrets in this key log (SSLKEYLOGFILE)
    #[arg(long, value_name = "FILE", requires = "files", help_heading = "What to show")]
    pub tls_keylog: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreArgs,
}

impl JoinedReportArgs {
    /// What it reads and writes.
    pub fn reading(&self) -> FileReading<'_> {
        if self.digest.is_of_the_history() {
            return FileReading::of([self.store.folder()]).with_page(self.digest.html.as_ref());
        }
        let mut reading = self.digest.reading();
        reading.inputs.extend(self.tls_keylog.as_deref());
        reading
    }
}

/// The arguments of `compare`.
#[derive(Args, Debug, Default, Clone)]
pub struct CompareArgs {
    /// Before: a log, a profile, a capture, or what --json of a report wrote; - is standard input; or a span of the history of an agent: "yesterday 14:00+10m"
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// After, likewise
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// One row for each [default: shape]
    #[arg(long, value_name = "WHAT", value_parser = ["shape", "order", "namespace", "app", "plan", "client"])]
    pub by: Option<String>,
    /// Show operations of this class; repeat for several [default: user]
    #[arg(long, value_name = "CLASS", value_enum)]
    pub class: Vec<ClassArg>,
    /// Decrypt TLS connections of captures with the secrets in this key log (SSLKEYLOGFILE)
    #[arg(long, value_name = "FILE")]
    pub tls_keylog: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub zone: ZoneArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CompareArgs {
    /// What it reads and writes: files, or spans of a history.
    pub fn reading(&self) -> FileReading<'_> {
        let sides = [&*self.a, &*self.b];
        let files = sides.into_iter().filter(|side| span_of(side).is_none());
        let store = sides.iter().any(|side| span_of(side).is_some()).then(|| self.store.folder());
        FileReading::of(files.chain(store).chain(self.tls_keylog.as_deref()))
            .with_page(self.output.html.as_ref())
    }
}

/// The span of a history that an argument of `compare` names; `None` if it names a file.
pub fn span_of(side: &Path) -> Option<&str> {
    side.to_str().filter(|text| !side.exists() && when::is_span(text))
}

/// A column of a digest, by its name in the help, its heading or its name in `--json`.
fn parse_sort(text: &str) -> Result<String, String> {
    match RowOrder::from_name(text) {
        Some(by) => Ok(by.name().to_owned()),
        None => {
            Err(format!("no such column; there are: {}", RowOrder::names().collect::<Vec<_>>().join(" ")))
        }
    }
}

fn sort_help() -> String {
    format!("Sort by this column: {} [default: time]", RowOrder::names().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_reads_a_history_only_where_it_names_a_span() {
        let inputs = |a: &str, b: &str| {
            let args = CompareArgs { a: a.into(), b: b.into(), ..CompareArgs::default() };
            let inputs = args.reading().inputs;
            (inputs.len(), inputs.contains(&args.store.folder()))
        };
        assert_eq!(inputs("before.json", "-"), (2, false));
        assert_eq!(inputs("yesterday 14:00+10m", "after.json"), (2, true));
        assert_eq!(inputs("yesterday 14:00+10m", "monday 14:00+10m"), (1, true));
    }
}
