//! `mongosonar agent`: collects all the time, and keeps what it collects.

mod args;
mod assembler;
mod figures;
mod file_work;
mod parts;
mod replay;
mod servers;
mod settings;
mod store;

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use sonar_view::agent::AgentSummary;

pub use self::args::{AgentArgs, EXAMPLES};
use self::replay::ReplayPlan;
use self::settings::AgentSettings;
use crate::exit::OK;

/// Runs the command; returns the exit code. `config` is the configuration file that was named.
pub fn run(args: &AgentArgs, config: Option<&Path>) -> Result<u8> {
    let (settings, file) = AgentSettings::load(config)?;
    let folder = &args.store.clone().unwrap_or_else(|| settings.store.path.clone());
    if args.check_config {
        match file {
            Some(file) => println!("{}: valid", file.display()),
            None => println!("no configuration file ({}); defaults are used", settings::PLACE),
        }
        return Ok(OK);
    }
    if !args.replay.is_empty() {
        let plan = ReplayPlan { paths: &args.replay, port: args.port, folder };
        let (summary, code) = replay::run(&plan, store::open(folder, &settings.store, false)?)?;
        show(&summary, args.json)?;
        return Ok(code);
    }
    bail!("collecting all the time is not possible yet; --replay reads files")
}

fn show(summary: &AgentSummary, json: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    if json {
        summary.json(&mut out)?
    } else {
        summary.text(&mut out)?
    };
    Ok(out.flush()?)
}
