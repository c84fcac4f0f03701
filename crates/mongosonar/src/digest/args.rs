//! What can be asked of a digest.

use std::path::PathBuf;

use clap::Args;
use sonar_core::Timestamp;
use sonar_decode::syntax::time;
use sonar_view::digest::By;

use crate::cli::{ClassArg, ShapeArg};
use crate::connection::ServerArgs;
use crate::outfile;

/// What `logs report` and `profiler report` can be asked for.
#[derive(Args, Debug, Default, Clone)]
pub struct DigestArgs {
    /// Files to read, plain, gzip or zstd; - is standard input
    #[arg(required_unless_present_any = ["uri", "host", "port"], value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// One row for each [default: shape]
    #[arg(long, value_name = "WHAT", value_parser = ["shape", "order", "namespace", "app", "plan"], help_heading = "What to show")]
    pub by: Option<String>,
    /// Show operations of this class; repeat for several [default: user]
    #[arg(long, value_name = "CLASS", value_enum, help_heading = "What to show")]
    pub class: Vec<ClassArg>,
    /// Only operations that ended at this time or later: 2026-05-01T10:00:00Z, or 2026-05-01
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "What to show")]
    pub from: Option<Timestamp>,
    /// Only operations that ended before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "What to show")]
    pub to: Option<Timestamp>,
    /// Show only rows whose command, namespace, shape or name contains this text
    #[arg(long, value_name = "TEXT", help_heading = "What to show")]
    pub filter: Option<String>,
    #[arg(long, value_name = "COLUMN", value_parser = parse_sort, help = sort_help(), help_heading = "What to show")]
    pub sort: Option<String>,
    /// Show at most this many rows [default: 20 in text, else all]
    #[arg(long, value_name = "N", help_heading = "What to show")]
    pub limit: Option<usize>,
    /// Write shapes with typed placeholders, or plain with everything masked [default: typed]
    #[arg(long, value_name = "FORM", value_enum, help_heading = "What to show")]
    pub shape: Option<ShapeArg>,
    /// Asked which indexes exist, so that no index is proposed where one of them serves
    #[command(flatten)]
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

/// What `compare` can be asked for.
#[derive(Args, Debug, Default, Clone)]
pub struct CompareArgs {
    /// Before: a log, a profile, a capture, or what --json of a report wrote
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// After
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// One row for each [default: shape]
    #[arg(long, value_name = "WHAT", value_parser = ["shape", "order", "namespace", "app", "plan"])]
    pub by: Option<String>,
    /// Show operations of this class; repeat for several [default: user]
    #[arg(long, value_name = "CLASS", value_enum)]
    pub class: Vec<ClassArg>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// A column of a digest, as help, its heading or `--json` names it.
fn parse_sort(text: &str) -> Result<String, String> {
    match By::from_name(text) {
        Some(by) => Ok(by.name().to_owned()),
        None => Err(format!("no such column; there are: {}", By::ALL.map(By::name).join(" "))),
    }
}

fn sort_help() -> String {
    format!("Sort by this column: {} [default: time]", By::ALL.map(By::name).join(" "))
}

/// A time in UTC, or with an offset.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let whole = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        16 => format!("{text}:00Z"),
        _ => text.to_owned(),
    };
    let ms = time::iso(whole.as_bytes()).and_then(|ms| u64::try_from(ms).ok());
    ms.map(|ms| Timestamp::from_unix_ns(ms.saturating_mul(1_000_000)))
        .ok_or_else(|| format!("{text:?} is no time: write it like 2026-05-01T10:00:00Z or 2026-05-01"))
}
