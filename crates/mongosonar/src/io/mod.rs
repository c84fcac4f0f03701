//! `mongosonar io`: how the files of a process are read and written.

pub mod args;
mod compare;
mod device_reads;
mod devices;
pub mod file_trace;
pub mod finder;
mod live;
pub mod paths;
pub mod process;
mod record;
mod recording;
mod reorder;
pub mod report;
mod search;
mod table;
pub mod totals;

use anyhow::Result;

pub use self::args::IoCommand;

/// Runs the command; returns the exit code.
pub fn run(command: &IoCommand) -> Result<u8> {
    match command {
        IoCommand::Live(args) => live::run(args),
        IoCommand::Record(args) => record::run(args),
        IoCommand::Compare(args) => compare::run(args),
        IoCommand::Reorder(args) => reorder::run(args),
        IoCommand::Report(args) => report::run(args),
    }
}
