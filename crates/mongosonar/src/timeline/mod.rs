//! `mongosonar timeline`: queries, internals, machine and events on one axis of time.

pub mod args;

use anyhow::Result;
use sonar_view::kit::Fitting;
use sonar_view::kit::json::line;
use sonar_view::past::timeline::{PARTS, report};
use sonar_view::timeline::chart_columns;

pub use self::args::TimelineArgs;
use crate::args::when::WrittenEnds;
use crate::exit::OK;
use crate::history::{self, StoredHistory, last_hour_or};
use crate::screen;

/// Runs the command; returns the exit code.
pub fn run(args: &TimelineArgs) -> Result<u8> {
    let zone = history::zone(&args.report.zone);
    let stored = StoredHistory::open(&args.report.store)?;
    let history = stored.view()?.of_server(args.report.port)?;
    let span = last_hour_or(&history, WrittenEnds { from: args.from, to: args.to }, &zone)?;
    let document =
        args.report.output.needs_json().then(|| report(&history, span, PARTS, &zone)).transpose()?;
    let width = screen::width();
    args.report.output.write(
        |out| document.as_ref().map_or(Ok(()), |report| line(report, out)),
        |out| -> Result<()> {
            let shown = report(&history, span, chart_columns(width), &zone)?;
            Ok(shown.text(&mut Fitting::new(out, width), &zone)?)
        },
    )?;
    Ok(OK)
}
