//! `mongosonar io`: how the files of a process are read and written.

pub mod args;
mod compare;
mod device_reads;
mod devices;
mod finder;
mod live;
mod names;
mod paths;
mod process;
mod record;
mod recording;
mod reorder;
mod report;
mod search;
mod table;

use anyhow::Result;
use sonar_sys::ebpf::Tracer;
use sonar_sys::privileges::{Duty, capability, works_without};

pub use self::args::IoCommand;
use crate::privileges;

/// What a recording's information about a file begins with; its number follows.
const HOLDS: &str = "holds ";
/// What a key of a recording begins with that says what the kernel calls the device of this number, and the disks
/// below it.
const DEVICE: &str = "device ";

/// Gives up what tracing does not need any more. Where the kernel lets nobody read the maps of eBPF without it
/// (before Linux 5.19), one capability stays.
fn give_up_privileges(tracer: &Tracer) {
    let keep: &[u32] = if works_without(|| tracer.is_readable()) { &[] } else { &[capability::BPF] };
    if !keep.is_empty() {
        eprintln!(
            "mongosonar: privileges are dropped in part only: this kernel wants CAP_BPF for reading figures"
        );
    }
    privileges::give_up(Duty::Reading, &["/proc", "/sys"], keep);
}

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
