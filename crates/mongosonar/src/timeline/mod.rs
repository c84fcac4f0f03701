//! `mongosonar timeline`: queries, internals, machine and events on one axis of time.

pub mod args;

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use sonar_view::kit::Fitting;
use sonar_view::past::timeline::{PARTS, report};
use sonar_view::timeline::chart_columns;

pub use self::args::TimelineArgs;
use crate::args::when::WrittenEnds;
use crate::exit::OK;
use crate::history::{self, StoredHistory, last_hour_or};
use crate::{outfile, page, screen};

/// Runs the command; returns the exit code.
pub fn run(args: &TimelineArgs) -> Result<u8> {
    let zone = history::zone(&args.zone);
    let stored = StoredHistory::open(&args.store)?;
    let history = stored.view()?.of_server(args.port)?;
    let span = last_hour_or(&history, WrittenEnds { from: args.from, to: args.to }, &zone)?;
    let mut out = BufWriter::new(io::stdout());
    if args.json {
        report(&history, span, PARTS, &zone)?.json(&mut out)?;
    } else {
        let width = screen::width();
        let report = report(&history, span, chart_columns(width), &zone)?;
        report.text(&mut Fitting::new(&mut out, width), &zone)?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        let report = report(&history, span, PARTS, &zone)?;
        outfile::write(path, |out| page::write(out, |out| report.json(out)))?;
    }
    Ok(OK)
}
