//! `mongosonar profiler`: shows the settings of the database profiler, changes them, and reads what it writes.

pub mod args;
mod impact;
mod report;
mod set;
mod start;
mod status;
mod tail;

use anyhow::Result;

pub use self::report::reads_files;
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
