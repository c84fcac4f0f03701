//! `ftdc report`: what is wrong with a server, and since when.

use anyhow::Result;
use sonar_view::kit::Fitting;
use sonar_view::kit::json::line;

use super::args::FtdcReportArgs;
use super::input;
use crate::screen;
use crate::stop::{self, StopBehavior};

/// Runs the command; returns the exit code.
pub fn run(args: &FtdcReportArgs) -> Result<u8> {
    let stop = stop::listen(StopBehavior::Prompt)?;
    let zone = args.zone.asked().unwrap_or_default();
    let report = input::report(&args.paths, &args.range, &zone, stop.flag())?;
    args.output.write(
        |out| line(&report, out),
        |mut out| match args.csv {
            true => report.csv(&mut out),
            false => report.text(&mut Fitting::new(out, screen::width()), &zone),
        },
    )?;
    Ok(input::exit_code(&report.reading))
}
