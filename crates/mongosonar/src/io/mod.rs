//! `mongosonar io`: how the files of a process are read and written.

mod compare;
mod devices;
mod live;
mod names;
mod paths;
mod process;
mod record;
mod reorder;
mod report;

use anyhow::Result;

use crate::cli::IoCommand;

/// What a recording's information about a file begins with; its number follows.
const HOLDS: &str = "holds ";
/// What a key of a recording begins with that says what the kernel calls the device of this number, and the disks
/// below it.
const DEVICE: &str = "device ";

/// Runs the command; gives the exit code.
pub fn run(command: &IoCommand) -> Result<u8> {
    match command {
        IoCommand::Live(args) => live::run(args),
        IoCommand::Record(args) => record::run(args),
        IoCommand::Compare(args) => compare::run(args),
        IoCommand::Reorder(args) => reorder::run(args),
        IoCommand::Report(args) => report::run(args),
    }
}
