//! The arguments of `mongosonar timeline`.

use clap::Args;

use crate::args::when::{When, parse_time};
use crate::history::HistoryReportArgs;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  mongosonar timeline                                      the last hour
  mongosonar timeline --from 14:00 --to 14:30
  mongosonar timeline --from 'yesterday 14:00' --to 15:00 --html timeline.html
  mongosonar timeline --from -1d --json";

/// The arguments of `timeline`.
#[derive(Args, Debug, Clone)]
pub struct TimelineArgs {
    /// From this time on: 14:05, "yesterday 14:00", 2026-05-01T10:00:00Z, -2h [default: the last hour]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<When>,
    /// Until this time [default: the end of the history]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<When>,
    #[command(flatten)]
    pub report: HistoryReportArgs,
}
