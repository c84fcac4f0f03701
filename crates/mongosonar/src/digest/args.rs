//! The arguments of `logs report`, `profiler report` and `compare`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sonar_core::Timestamp;
use sonar_decode::syntax::time;
use sonar_view::kit::Zone;
use sonar_view::logs::RowOrder;

use crate::connection::ServerArgs;
use crate::outfile;
use crate::values::{ClassArg, ShapeArg, number};

/// The commands of `mongosonar logs`.
#[derive(Subcommand, Debug)]
pub enum LogsCommand {
    /// Digest of log files
    #[command(after_long_help = LOGS_EXAMPLES)]
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
  mongosonar report wire.pcap mongod.log --json > monday.json   for `mongosonar compare`";

/// Examples for the help of `compare`.
pub const COMPARE_EXAMPLES: &str = "\
Examples:
  mongosonar compare monday.json mongod.log          a saved report and a log
  mongosonar compare before.pcapng after.pcapng || echo something got worse
  mongosonar compare --by namespace yesterday.log.gz today.log --json";

/// The arguments of `logs report`, `profiler report` and `report`.
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
    /// Only operations that ended at this time or later: 2026-05-01T10:00:00Z, or by the clock of the times shown: 2026-05-01T10:00, 2026-05-01
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

/// The arguments of `compare`.
#[derive(Args, Debug, Default, Clone)]
pub struct CompareArgs {
    /// Before: a log, a profile, a capture, or what --json of a report wrote; - is standard input
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// After, likewise
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// One row for each [default: shape]
    #[arg(long, value_name = "WHAT", value_parser = ["shape", "order", "namespace", "app", "plan"])]
    pub by: Option<String>,
    /// Show operations of this class; repeat for several [default: user]
    #[arg(long, value_name = "CLASS", value_enum)]
    pub class: Vec<ClassArg>,
    #[command(flatten)]
    pub zone: ZoneArgs,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained page into this file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse)]
    pub html: Option<PathBuf>,
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

/// The zone in which times are shown and read.
#[derive(Args, Debug, Default, Clone)]
pub struct ZoneArgs {
    /// Show times in UTC [default: as the clock of a log has them, else UTC]
    #[arg(long, conflicts_with = "timezone", help_heading = "How to show it")]
    pub utc: bool,
    /// Show times in this zone: Europe/Berlin, +02:00, or local for that of this machine
    #[arg(long, value_name = "ZONE", value_parser = Zone::named, help_heading = "How to show it")]
    pub timezone: Option<Zone>,
}

impl ZoneArgs {
    /// The zone that was asked for.
    pub fn asked(&self) -> Option<Zone> {
        if self.utc { Some(Zone::utc()) } else { self.timezone.clone() }
    }
}

/// A point in time as the user wrote it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// With an offset.
    At(Timestamp),
    /// Without one: what a clock shows, in milliseconds since it showed 1970-01-01T00:00:00.
    Clock(i64),
}

impl When {
    /// The point in time, read from a clock in `zone` where it has no offset.
    pub fn in_zone(self, zone: &Zone) -> Timestamp {
        let ms = match self {
            Self::At(at) => return at,
            Self::Clock(ms) => {
                zone.at_local(ms.div_euclid(1_000)).map_or(ms, |s| s * 1_000 + ms.rem_euclid(1_000))
            }
        };
        Timestamp::from_unix_ns(u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000))
    }
}

/// A time with an offset, or by the clock of the zone in which times are shown.
pub fn parse_time(text: &str) -> Result<When, String> {
    let whole = match text.len() {
        10 => format!("{text}T00:00:00"),
        16 => format!("{text}:00"),
        _ => text.to_owned(),
    };
    let has_offset = whole.get(19..).is_some_and(|rest| rest.contains(['Z', '+', '-']));
    let ms = time::iso(whole.as_bytes()).filter(|ms| *ms >= 0);
    let ms = ms.ok_or_else(|| {
        format!("{text:?} is no time: write it like 2026-05-01T10:00:00Z, 2026-05-01T10:00 or 2026-05-01")
    })?;
    let at = || Timestamp::from_unix_ns(u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000));
    Ok(if has_offset { When::At(at()) } else { When::Clock(ms) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_an_offset_is_that_of_a_clock_in_the_zone() {
        let utc = Timestamp::from_unix(1_777_629_600, 0);
        assert_eq!(parse_time("2026-05-01T10:00:00Z"), Ok(When::At(utc)));
        assert_eq!(parse_time("2026-05-01T12:00:00+02:00"), Ok(When::At(utc)));
        let noon = parse_time("2026-05-01T12:00").unwrap();
        assert_eq!(noon.in_zone(&Zone::named("Europe/Berlin").unwrap()), utc);
        assert_eq!(parse_time("2026-05-01T10:00:00").unwrap().in_zone(&Zone::utc()), utc);
        assert!(parse_time("yesterday").unwrap_err().contains("2026-05-01"));
    }
}
