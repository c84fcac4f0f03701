//! `mongosonar doctor`: checks what works on this host, and shows how to fix what does not.

mod checks;

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::Result;
use clap::Args;
use sonar_core::history::CollectorKind;
use sonar_core::words::plural;
use sonar_sys::host::listeners::FoundListeners;
use sonar_sys::privileges::Duty;
use sonar_sys::probe::{self, ProbeVerdict};
use sonar_sys::{Host, RingConfig};
use sonar_view::doctor::{DoctorLine, DoctorReport};
use sonar_view::kit::json::line;

use self::checks::PrivilegedChecks;
use crate::args::config;
use crate::confinement::{privileges, start_order};
use crate::exit::{OK, PROBLEM};
use crate::report_output::print;

/// The arguments of `mongosonar doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the findings; the exit code shows whether there is a problem.
pub fn run(args: &DoctorArgs, config_file: Option<&Path>) -> Result<u8> {
    let host = Host::live();
    let mut lines: Vec<DoctorLine> = probe::all(&RingConfig::default(), &host)
        .into_iter()
        .map(|check| DoctorLine {
            name: check.name.to_owned(),
            commands: "queries",
            verdict: match check.verdict {
                ProbeVerdict::Ok => "ok",
                ProbeVerdict::Warning => "warning",
                ProbeVerdict::Problem => "problem",
            },
            found: check.found,
            remedy: check.remedy,
        })
        .collect();
    let privileged = PrivilegedChecks::run(&host);
    let own = [configuration(config_file), terminal()];
    // What follows others may have chosen: processes, and the files that they name.
    start_order::drop_privileges(true, || privileges::drop_privileges_but_inspecting(&[], Duty::Client));
    let found = crate::servers::listeners(&host);
    let known = found.as_ref().map_or(&[][..], |found| &found.listeners);
    let checked = privileged.with_servers(&host, known, privileges::drop_network);
    lines.push(servers(found));
    lines.extend(checked);
    lines.extend(own);
    let report = DoctorReport::new(lines);
    print(args.json, |out| line(&report, out), |mut out| report.text(&mut out))?;
    Ok(if report.has_problem() { PROBLEM } else { OK })
}

/// What helps a collector of the agent that cannot work, in the words of this command.
pub fn remedy(collector: CollectorKind) -> Option<String> {
    match collector {
        CollectorKind::Queries => {
            let checks = probe::all(&RingConfig::default(), &Host::live());
            checks.into_iter().find(|check| matches!(check.verdict, ProbeVerdict::Problem))?.remedy
        }
        CollectorKind::Files | CollectorKind::Split => checks::tracing().remedy,
        _ => None,
    }
}

fn servers(found: io::Result<FoundListeners>) -> DoctorLine {
    let (verdict, found, remedy) = match found {
        Ok(found) if found.listeners.is_empty() => {
            let found = crate::servers::ports_unknown(&found)
                .unwrap_or_else(|| "no mongod or mongos listens here".to_owned());
            ("warning", found, Some("mongosonar queries --port PORT, or --read FILE".to_owned()))
        }
        Ok(found) => {
            let each =
                found.listeners.iter().map(|one| format!("{} ({}) on {}", one.name, one.pid, one.address));
            ("ok", each.collect::<Vec<_>>().join(", "), None)
        }
        Err(error) => ("warning", format!("cannot look for mongod and mongos: {error}"), None),
    };
    DoctorLine { verdict, found, remedy, ..DoctorLine::new("servers", "queries, io live, io record") }
}

fn configuration(named: Option<&Path>) -> DoctorLine {
    let (verdict, found, remedy) = match (config::find(named), config::load(named)) {
        (Some(path), Ok(_)) => ("ok", format!("read from {}", path.display()), None),
        (None, _) => ("ok", "none; defaults are used".to_owned(), None),
        (Some(path), Err(error)) => {
            ("problem", format!("{error:#}"), Some(format!("edit {}", path.display())))
        }
    };
    DoctorLine { verdict, found, remedy, ..DoctorLine::new("configuration", "all") }
}

fn terminal() -> DoctorLine {
    let found = match (io::stdout().is_terminal(), crossterm::terminal::size()) {
        (true, Ok((columns, rows))) => {
            format!("{}, {}: live view", plural(columns, "column"), plural(rows, "row"))
        }
        _ => "standard output is no terminal: a table for each interval".to_owned(),
    };
    DoctorLine::new("terminal", "queries, io live").ok(found)
}
