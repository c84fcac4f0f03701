//! `mongosonar disk bench`: what was asked for, and how the result is written.

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sonar_sys::Host;
use sonar_sys::disk::leftovers;
use sonar_sys::host::regular;
use sonar_view::disk::run::{BenchReport, BenchSettings, KIND, SCHEMA};
use sonar_view::disk::text;
use sonar_view::kit::{Fitting, plural};

use super::args::{AccessArg, BenchArgs, EngineArg};
use super::config::{self, MOST_BYTES, Options};
use super::measure::{Bench, was_stopped};
use super::place::{Ground, folder};
use crate::args::when::now;
use crate::exit::{self, OK, usage};
use crate::report_output::OutputArgs;
use crate::screen;
use crate::stop::{self, StopBehavior};

/// Runs the command; returns the exit code.
pub fn run(args: &BenchArgs) -> Result<u8> {
    if let Some(files) = &args.compare {
        return super::compare::run(files, args);
    }
    let options = config::parse(&document(args)?).and_then(|options| config::merge(options, args));
    let options = options.map_err(|error| usage!("{}", exit::message(&error)))?;
    let engine = chosen_engine(args, &options)?;
    // The test file must be removed, so that no further signal ends the process.
    let stop = stop::listen(StopBehavior::Careful)?;
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    folder(&dir)?;
    let ground = Ground::of(&dir);
    let bench = Bench {
        args,
        options: &options,
        engine,
        dir: &dir,
        stop: stop.flag(),
        devices: ground.names().cloned().collect(),
    };
    let mut run = BenchReport {
        schema: SCHEMA,
        kind: KIND.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_ns: now().unix_ns(),
        settings: settings(args, &options, engine),
        place: ground.place.clone(),
        ..BenchReport::default()
    };
    for left in leftovers(&dir, &Host::live()) {
        run.notes.push(format!(
            "A run that was killed left {} behind ({} MiB): rm {}",
            left.path.display(),
            left.bytes >> 20,
            left.path.display()
        ));
    }
    let result = bench.measure(&mut run);
    let signal = stop.signal().load(Ordering::Relaxed);
    match result {
        Err(error) if signal == 0 || !was_stopped(&error) => return Err(error),
        _ if signal != 0 => {
            let when = match run.steps.len() {
                0 => "before the first step was measured".to_owned(),
                steps => format!("after {steps} of {}", plural(bench.ramp().len(), "step")),
            };
            run.notes.push(format!("Stopped by {} {when}; the test file is removed.", signal_name(signal)));
        }
        _ => {}
    }
    show(args, &run)?;
    Ok(if signal == 0 { OK } else { 128u8.saturating_add(signal as u8) })
}

/// Writes what was asked for.
fn show(args: &BenchArgs, run: &BenchReport) -> Result<()> {
    let text = |out: &mut dyn Write| {
        if !args.quiet {
            writeln!(out)?;
        }
        text::text(run, &mut Fitting::new(out, Some(screen::reading_width())))
    };
    let output = OutputArgs { json: args.json, html: args.html.clone() };
    output.write(|out| run.json(out), text)
}

/// mongoperf's document: of a file, of standard input, or none.
fn document(args: &BenchArgs) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let bound = MOST_BYTES as u64 + 1;
    match &args.mongoperf_config {
        Some(path) if path.as_os_str() != "-" => {
            let read =
                regular::open_no_device(path).and_then(|file| file.take(bound).read_to_end(&mut bytes));
            read.map_err(|error| {
                let why = exit::message(&error.into());
                usage!("cannot read mongoperf's configuration {}: {why}", path.display())
            })?;
        }
        Some(_) => {
            io::stdin().take(bound).read_to_end(&mut bytes)?;
        }
        None if args.r.is_none() && args.w.is_none() && !io::stdin().is_terminal() => {
            io::stdin().take(bound).read_to_end(&mut bytes)?;
        }
        None => {}
    }
    Ok(bytes)
}

fn signal_name(signal: usize) -> &'static str {
    match signal as i32 {
        SIGINT => "Ctrl-C",
        SIGTERM => "SIGTERM",
        SIGHUP => "SIGHUP",
        _ => "a signal",
    }
}

fn chosen_engine(args: &BenchArgs, options: &Options) -> Result<EngineArg> {
    match (args.engine, options.mmf) {
        (None | Some(EngineArg::Mmap), true) | (Some(EngineArg::Mmap), false) => Ok(EngineArg::Mmap),
        (Some(_), true) => Err(usage!("mmf maps the file: it goes with --engine mmap only")),
        (engine, false) => Ok(engine.unwrap_or(EngineArg::Uring)),
    }
}

fn settings(args: &BenchArgs, options: &Options, engine: EngineArg) -> BenchSettings {
    let mapped = engine == EngineArg::Mmap;
    BenchSettings {
        n_threads: options.n_threads,
        file_size_mb: options.file_size_mb,
        sleep_micros: options.sleep_micros,
        mmf: mapped,
        r: options.r,
        w: options.w,
        rec_size_kb: options.rec_size_kb,
        sync_delay: options.sync_delay,
        step_seconds: args.step_seconds.as_secs_f64(),
        access: match args.access {
            Some(AccessArg::Sequential) => "sequential",
            _ => "random",
        }
        .to_owned(),
        fdatasync: options.w && !mapped && !args.no_fdatasync,
        direct: !mapped && !args.buffered,
        seed: args.seed,
    }
}
