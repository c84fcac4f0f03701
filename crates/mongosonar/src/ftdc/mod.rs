//! `mongosonar ftdc`: reads `diagnostic.data`, what a server recorded of itself.

pub mod args;
mod compare;
mod export;
pub mod follow;
pub mod input;
mod report;
mod saved;

use anyhow::Result;

pub use self::args::FtdcCommand;

/// Runs the command; returns the exit code.
pub fn run(command: &FtdcCommand) -> Result<u8> {
    match command {
        FtdcCommand::Report(args) => report::run(args),
        FtdcCommand::Export(args) => export::run(args),
        FtdcCommand::Compare(args) => compare::run(args),
    }
}
