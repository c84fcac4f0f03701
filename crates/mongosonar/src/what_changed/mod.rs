//! `mongosonar what-changed`: explains what changed at a moment, or finds the moments of change in a span.

pub mod args;

use anyhow::{Result, bail};
use sonar_view::kit::json::line;
use sonar_view::past::what_changed::{AskedChanges, AskedTime, report};

pub use self::args::WhatChangedArgs;
use crate::args::when::WrittenEnds;
use crate::exit::{OK, WORSE};
use crate::history::{self, StoredHistory, last_hour_or};
use crate::report_output::fitted;

/// Runs the command; returns the exit code.
pub fn run(args: &WhatChangedArgs) -> Result<u8> {
    let zone = history::zone(&args.report.zone);
    let stored = StoredHistory::open(&args.report.store)?;
    let history = stored.view()?.of_server(args.report.port)?;
    let when = match args.at {
        Some(at) => AskedTime::Moment { at: at.in_zone(&zone), precision_ns: at.precision_ns() },
        None => {
            let ends = WrittenEnds { from: args.from, to: args.to };
            AskedTime::Span(last_hour_or(&history, ends, &zone)?)
        }
    };
    let against = args.against.map(|against| against.in_zone(&zone)).transpose()?;
    let report = report(&history, &AskedChanges { when, against }, &zone)?;
    // Nobody looked: that is not the same as no change.
    if let Some(doubt) = report.doubt().filter(|_| !report.has_changes()) {
        bail!("{doubt}");
    }
    let text = fitted(|out| report.text(out, &zone, &args.report.store.suffix()));
    args.report.output.write(|out| line(&report, out), text)?;
    Ok(if report.has_changes() { WORSE } else { OK })
}
