//! `mongosonar doctor`: what works here, and how to fix what does not.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use sonar_sys::probe::{self, Verdict};
use sonar_sys::{RingConfig, listeners};

use crate::cli::OK;
use crate::config;
use crate::exit::PROBLEM;
use crate::queries::SERVERS;

/// One line.
#[derive(Serialize)]
struct Line {
    name: String,
    verdict: &'static str,
    found: String,
    remedy: Option<String>,
}

/// Prints the findings; the exit code tells whether there is a problem.
pub fn run(json: bool, config_file: Option<&Path>) -> Result<u8> {
    let mut lines: Vec<Line> = probe::all(&RingConfig::default(), Path::new("/proc"), Path::new("/sys"))
        .into_iter()
        .map(|check| Line {
            name: check.name.to_owned(),
            verdict: match check.verdict {
                Verdict::Ok => "ok",
                Verdict::Warning => "warning",
                Verdict::Problem => "problem",
            },
            found: check.found,
            remedy: check.remedy,
        })
        .collect();
    lines.push(servers());
    lines.push(configuration(config_file));
    lines.push(terminal());
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, &lines)?;
        writeln!(out)?;
    } else {
        let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
        for line in &lines {
            writeln!(out, "{:8} {:width$}  {}", line.verdict, line.name, line.found)?;
            if let Some(remedy) = &line.remedy {
                writeln!(out, "{:8} {:width$}  fix: {remedy}", "", "")?;
            }
        }
    }
    Ok(if lines.iter().any(|line| line.verdict == "problem") { PROBLEM } else { OK })
}

fn servers() -> Line {
    let search = listeners::Search { names: &SERVERS, port_options: &["--port"] };
    let (verdict, found, remedy) = match listeners::find(Path::new("/proc"), search) {
        Ok(found) if found.listeners.is_empty() => {
            let hidden =
                found.incomplete.iter().map(|one| format!("; {} ({}): {}", one.name, one.pid, one.reason));
            let found = format!("no mongod or mongos listens here{}", hidden.collect::<String>());
            ("warning", found, Some("mongosonar queries --port PORT, or --read FILE".to_owned()))
        }
        Ok(found) => {
            let each =
                found.listeners.iter().map(|one| format!("{} ({}) on {}", one.name, one.pid, one.address));
            ("ok", each.collect::<Vec<_>>().join(", "), None)
        }
        Err(error) => ("warning", format!("cannot look for mongod and mongos: {error}"), None),
    };
    Line { name: "servers".into(), verdict, found, remedy }
}

fn configuration(named: Option<&Path>) -> Line {
    let (verdict, found, remedy) = match (config::find(named), config::load(named)) {
        (Some(path), Ok(_)) => ("ok", format!("read from {}", path.display()), None),
        (None, _) => ("ok", "none; defaults are used".to_owned(), None),
        (Some(path), Err(error)) => {
            ("problem", format!("{error:#}"), Some(format!("edit {}", path.display())))
        }
    };
    Line { name: "configuration".into(), verdict, found, remedy }
}

fn terminal() -> Line {
    let found = match (io::stdout().is_terminal(), crossterm::terminal::size()) {
        (true, Ok((columns, rows))) => format!("{columns} columns, {rows} rows: live view"),
        _ => "standard output is no terminal: a table for each interval".to_owned(),
    };
    Line { name: "terminal".into(), verdict: "ok", found, remedy: None }
}
