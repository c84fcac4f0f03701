//! `mongosonar profiler`: what the database profiler is set to, setting it, and what it says.

pub mod args;
mod impact;
mod report;
mod set;
mod status;
mod tail;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_mongo::control::OWN_DATABASES;
use sonar_mongo::{Server, Stop};

use crate::stop::{self, Ending};
use args::{Databases, ProfilerCommand};

/// Runs the command; gives the exit code.
pub fn run(command: &ProfilerCommand) -> Result<u8> {
    match command {
        ProfilerCommand::Status(args) => status::run(args),
        ProfilerCommand::Set(args) => set::run(args),
        ProfilerCommand::Tail(args) => tail::run(args),
        ProfilerCommand::Report(args) => report::run(args),
        ProfilerCommand::Impact(args) => impact::run(args),
    }
}

/// The databases that are asked for; `all` where none is named.
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

/// A flag that is set when the program is asked to stop.
fn stop_flag(ending: Ending) -> Result<(Stop, Arc<AtomicBool>)> {
    let flag = stop::listen(ending)?.flag().clone();
    Ok((Stop::following(flag.clone()), flag))
}
