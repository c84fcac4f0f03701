//! `mongosonar disk`: measures a disk, watches it, checks its settings.

pub mod args;
mod bench;
pub(crate) mod check;
pub mod compare;
mod config;
mod measure;
mod place;
mod process;
mod stat;
mod version;

use anyhow::Result;

use args::DiskCommand;

/// Runs the command; returns the exit code.
pub fn run(command: &DiskCommand) -> Result<u8> {
    match command {
        DiskCommand::Bench(args) => bench::run(args),
        DiskCommand::Estimate(args) => compare::estimate(args),
        DiskCommand::Check(args) => check::run(args),
        DiskCommand::Stat(args) => stat::run(args),
    }
}
