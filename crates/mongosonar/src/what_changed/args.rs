//! The arguments of `mongosonar what-changed`.

use clap::Args;

use crate::args::when::{Against, When, parse_against, parse_time};
use crate::history::HistoryReportArgs;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  mongosonar what-changed                                      moments of change in the last hour
  mongosonar what-changed --at 14:05                           what began then
  mongosonar what-changed --from 'yesterday 14:00' --to 18:00  moments of change in these hours
  mongosonar what-changed --from 14:00 --to 15:00 --against yesterday
  mongosonar what-changed --at 14:05 --html incident.html
  mongosonar what-changed --from -10m > /dev/null || echo something changed";

/// The arguments of `what-changed`.
#[derive(Args, Debug, Clone)]
pub struct WhatChangedArgs {
    /// What began at this time: 14:05, "yesterday 14:00", 2026-05-01T10:00:00Z, -2h
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["from", "to"])]
    pub at: Option<When>,
    /// Look for moments of change from this time on [default: the last hour]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<When>,
    /// Look for moments of change before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<When>,
    /// Compare the whole span with another one: yesterday, last-week, or a span like 13:00+1h [default: each moment with the time before it]
    #[arg(long, value_name = "SPAN", value_parser = parse_against)]
    pub against: Option<Against>,
    #[command(flatten)]
    pub report: HistoryReportArgs,
}
