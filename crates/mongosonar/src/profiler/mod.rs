//! `mongosonar profiler`: shows the settings of the database profiler, changes them, and reads what it writes.

pub mod args;
mod impact;
mod report;
mod set;
mod status;
mod tail;

use std::path::Path;

use anyhow::Result;
use sonar_mongo::Target;

pub use self::report::reads_files;
use crate::{outfile, privileges, stop};
use args::ProfilerCommand;

/// Runs the command; returns the exit code.
pub fn run(command: &ProfilerCommand) -> Result<u8> {
    match command {
        ProfilerCommand::Status(args) => status::run(args),
        ProfilerCommand::Set(args) => set::run(args),
        ProfilerCommand::Tail(args) => tail::run(args),
        ProfilerCommand::Report(args) => report::run(args),
        ProfilerCommand::Impact(args) => impact::run(args),
    }
}

/// Opens what a command uses besides its server, and drops all privileges but those that asking it takes. Call it before a
/// thread is started.
///
/// # Errors
/// The page cannot be written.
fn begin(server: &Target, page: Option<&Path>) -> Result<()> {
    open(page)?;
    privileges::give_up_but_asking(server);
    Ok(())
}

/// Opens the page that a command writes, and what it takes to watch the standard streams.
///
/// # Errors
/// The page cannot be written.
fn open(page: Option<&Path>) -> Result<()> {
    page.map_or(Ok(()), outfile::prepare)?;
    stop::prepare()
}
