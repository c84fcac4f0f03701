//! `mongosonar profiler`: shows the settings of the database profiler, changes them, and reads what it writes.

pub mod args;
mod impact;
mod report;
mod set;
mod status;
mod tail;

use anyhow::Result;
use sonar_mongo::Server;
use sonar_mongo::control::OWN_DATABASES;

use args::{Databases, ProfilerCommand};

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

/// The named databases, or all; `own` includes the server's.
fn databases(server: &Server, asked: &Databases, own: bool) -> Result<Vec<String>> {
    if !asked.db.is_empty() {
        let mut named = asked.db.clone();
        named.sort();
        named.dedup();
        return Ok(named);
    }
    let mut names = server.databases()?;
    names.retain(|name| own || !OWN_DATABASES.contains(&name.as_str()));
    Ok(names)
}
