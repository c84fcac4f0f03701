//! `ftdc report`: what is wrong with a server, and since when.

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use sonar_view::kit::Fitting;

use super::args::FtdcReportArgs;
use super::input;
use crate::stop::{self, StopBehavior};
use crate::{outfile, page, screen};

/// Runs the command; returns the exit code.
pub fn run(args: &FtdcReportArgs) -> Result<u8> {
    let stop = stop::listen(StopBehavior::Prompt)?;
    let zone = args.zone.asked().unwrap_or_default();
    let report = input::report(&args.paths, &args.range, &zone, stop.flag())?;
    let mut out = BufWriter::new(io::stdout());
    if args.json {
        report.json(&mut out)?;
    } else if args.csv {
        report.csv(&mut out)?;
    } else {
        report.text(&mut Fitting::new(&mut out, screen::width()), &zone)?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| report.json(out)))?;
    }
    Ok(input::exit_code(&report.reading))
}
