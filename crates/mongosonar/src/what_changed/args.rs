//! The arguments of `mongosonar what-changed`.

use clap::Args;

use crate::args::values::number;
use crate::args::when::{Against, When, ZoneArgs, parse_against, parse_time};
use crate::history::StoreArgs;
use crate::report_output::OutputArgs;

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
    /// Explain only the server at this port, beside the machine [default: all servers]
    #[arg(short, long, value_name = "PORT", value_parser = number(1_u16..=65_535, 27_017))]
    pub port: Option<u16>,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub zone: ZoneArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
