//! `ftdc compare`: two servers, or one before and after.

use std::path::PathBuf;

use anyhow::Result;
use sonar_view::ftdc::FtdcComparison;
use sonar_view::kit::json::line;

use super::args::{FtdcCompareArgs, SampleRangeArgs};
use super::input;
use crate::exit::{OK, WORSE};
use crate::report_output::{fitted, print};
use crate::stop::{self, StopBehavior};

/// Runs the command; returns the exit code.
pub fn run(args: &FtdcCompareArgs) -> Result<u8> {
    let stop = stop::listen(StopBehavior::Prompt)?;
    let zone = args.zone.asked().unwrap_or_default();
    let read = |path: &PathBuf, from, to| {
        input::report(std::slice::from_ref(path), &SampleRangeArgs { from, to }, &zone, stop.flag())
    };
    let a = read(&args.a, args.from_a, args.to_a)?;
    let b = read(&args.b, args.from_b, args.to_b)?;
    let comparison = FtdcComparison::new(&a, &b);
    print(args.json, |out| line(&comparison, out), fitted(|out| comparison.text(out, &zone)))?;
    Ok(match (input::exit_code(&a.reading), input::exit_code(&b.reading)) {
        (OK, OK) if comparison.is_worse() => WORSE,
        (OK, code) | (code, _) => code,
    })
}
