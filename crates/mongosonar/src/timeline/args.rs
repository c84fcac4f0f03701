//! The arguments of `mongosonar timeline`.

use clap::Args;

use crate::args::values::number;
use crate::args::when::{When, ZoneArgs, parse_time};
use crate::history::StoreArgs;
use crate::report_output::OutputArgs;

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
    /// Show only the server at this port, beside the machine [default: all servers]
    #[arg(short, long, value_name = "PORT", value_parser = number(1_u16..=65_535, 27_017))]
    pub port: Option<u16>,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub zone: ZoneArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
