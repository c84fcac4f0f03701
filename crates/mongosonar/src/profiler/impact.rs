//! `mongosonar profiler impact`: what profiling costs here.

use std::fs;

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use sonar_core::impact::{ImpactCounters, Variant};
use sonar_mongo::load::{Measurement, Progress, ServerFacts};
use sonar_mongo::{Server, ServerError};
use sonar_sys::Host;
use sonar_sys::clock::processor_time_of;
use sonar_sys::host::devices::DeviceCounters;
use sonar_view::kit::{Count, Nanos, escape, plural};
use sonar_view::profiler::impact::{self, ImpactReport, Site};

use super::args::ImpactArgs;
use super::start;
use crate::args::when::now;
use crate::confinement::{privileges, start_order};
use crate::digest::IGNORED_RATE_LIMIT;
use crate::exit::{OK, usage};
use crate::progress;
use crate::report_output::fitted;
use crate::stop::{self, StopBehavior};

pub fn run(args: &ImpactArgs) -> Result<u8> {
    let target = args.connection.target()?;
    start::open(args.output.html.as_deref())?;
    // It measures the length of the server's log.
    start_order::drop_privileges(true, || privileges::drop_privileges_but_reading(&[], Some(&target)));
    let signals = stop::listen(StopBehavior::Immediate)?;
    let stop = signals.requests().clone();
    let mut clients = if args.clients.is_empty() { vec![1, 2, 4, 8, 16, 32] } else { args.clients.clone() };
    clients.sort_unstable();
    clients.dedup();
    let most = clients.last().copied().unwrap_or(1);
    let server = Server::connect(target, most + 2)?;
    let label = server.info().label();
    let what = Measurement {
        database: args.db.clone(),
        documents: args.documents,
        variants: variants(args, &server)?,
        clients,
        rounds: usize::from(args.rounds),
        slice: args.slice,
        profile_bytes: args.size,
        confidence: args.confidence / 100.0,
        seed: args.seed,
    };
    if let Some(set) = &server.info().replica_set {
        eprintln!(
            "{} is a member of the replica set {}: what is written is replicated",
            escape(&label),
            escape(set)
        );
    }
    let started_ns = now().unix_ns();
    let line = ProgressLine(progress::line());
    signals.set_behavior(StopBehavior::Careful);
    if let Some(time) = args.duration {
        eprintln!(
            "{}: level {} for {}",
            escape(&label),
            what.variants.last().map_or(0, |v| v.level),
            Nanos(time.as_nanos() as u64)
        );
        let long = server.measure_long(&what, time, &stop, &mut |progress| line.show(&progress));
        line.end();
        let long = done(long)?;
        let facts = server.facts();
        let site = Site { server: &label, host: facts.host.as_deref(), started_ns };
        let text = fitted(|out| impact::long_text(&label, &long, out));
        args.output.write(|out| impact::long_json(&site, &long, out), text)?;
        return Ok(OK);
    }
    let slices = what.clients.len() * what.variants.len() * what.rounds;
    let seconds = (args.slice.as_secs_f64() + 0.4) * slices as f64;
    eprintln!("{}: {}, about {}", escape(&label), plural(slices, "slice"), Nanos((seconds * 1e9) as u64));
    let measured =
        server.measure(&what, &stop, &mut |facts| counters(facts), &mut |progress| line.show(&progress));
    line.end();
    let mut run = done(measured)?;
    let processors = Host::live().processors().ok().map(|processors| processors.count);
    let facts = server.facts();
    run.processors = here(&facts).and(processors);
    let site = Site { server: &label, host: facts.host.as_deref(), started_ns };
    let report = ImpactReport { site, documents: what.documents, run: &run };
    args.output.write(|out| impact::json(&report, out), fitted(|out| impact::text(&report, out)))?;
    Ok(OK)
}

fn done<T>(measured: sonar_mongo::Result<T>) -> Result<T> {
    match measured {
        Err(ServerError::Stopped) => {
            bail!("stopped; everything created on the server was removed, and its profiler restored")
        }
        other => Ok(other?),
    }
}

/// The settings to compare: the requested ones, else levels 0, 1, 2, and level 2 with a rate limit if the server has
/// one.
fn variants(args: &ImpactArgs, server: &Server) -> Result<Vec<Variant>> {
    let plain = |level| Variant { level, rate_limit: None };
    let mut variants: Vec<Variant> = if args.level.is_empty() {
        vec![plain(0), plain(1), plain(2)]
    } else {
        args.level.iter().copied().map(plain).collect()
    };
    let percona = server.info().product.starts_with("Percona");
    if server.info().ignores_rate_limit() && (args.rate_limit.is_some() || args.level.is_empty()) {
        // A level 2 with a limit would measure level 2.
        eprintln!("{IGNORED_RATE_LIMIT} What a rate limit saves cannot be measured here.");
    }
    match args.rate_limit {
        Some(limit) => variants.push(Variant { level: 2, rate_limit: Some(limit) }),
        None if server.info().ignores_rate_limit() => {}
        None if percona && args.level.is_empty() => {
            variants.push(Variant { level: 2, rate_limit: Some(100) })
        }
        None => {}
    }
    // Level 2 alone keeps the server's rate limit; beside a limited level 2 it means every operation.
    if variants.iter().any(|variant| variant.rate_limit.is_some()) {
        for variant in variants.iter_mut().filter(|v| v.level == 2 && v.rate_limit.is_none()) {
            variant.rate_limit = Some(1);
        }
    }
    if args.duration.is_none() && variants.len() < 2 {
        return Err(usage!(
            "one level alone compares with nothing: give at least two, like --level 0 --level 2"
        ));
    }
    Ok(variants)
}

/// The server's process id, if it runs on this host: its host has this host's name, and a process has that id.
fn here(facts: &ServerFacts) -> Option<u32> {
    let host = Host::live();
    let same = facts.host.is_some() && facts.host == host.name();
    facts.pid.filter(|pid| same && host.stat(*pid).is_some())
}

/// What this machine knows.
fn counters(facts: &ServerFacts) -> ImpactCounters {
    let host = Host::live();
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let here = here(facts);
    let (disk_busy_ns, disk_queue_ns) =
        here.and_then(|_| host.disk_counters().ok()).map(|disks| busiest(&disks)).unwrap_or_default();
    ImpactCounters {
        server_cpu_ns: here.and_then(|pid| processor_time_of(pid).ok()).map(ns),
        client_cpu_ns: processor_time_of(std::process::id()).ok().map(ns),
        host_busy_ns: here.and_then(|_| host.processors().ok()).map(|found| ns(found.busy())),
        disk_busy_ns,
        disk_queue_ns,
        log_bytes: here
            .and(facts.log_path.as_deref())
            .and_then(|path| fs::metadata(path).ok())
            .filter(|file| file.is_file())
            .map(|file| file.len()),
        ..ImpactCounters::default()
    }
}

/// Of the disk that was busy for longest since the host started: that time, and the sum of the times of its requests.
fn busiest(disks: &[DeviceCounters]) -> (Option<u64>, Option<u64>) {
    let busiest = disks.iter().map(|disk| &disk.counters).max_by_key(|counters| counters.busy_ms);
    let ns = |ms: u64| ms.saturating_mul(1_000_000);
    let queue = busiest.map(|counters| counters.queue_ms).filter(|ms| *ms > 0);
    (Some(ns(busiest.map_or(0, |counters| counters.busy_ms))), queue.map(ns))
}

/// The progress of the measurement, on standard error.
struct ProgressLine(ProgressBar);

impl ProgressLine {
    fn show(&self, progress: &Progress<'_>) {
        let line = match progress {
            Progress::Filling(done, all) => format!("filling the table: {done} of {all}"),
            Progress::Measured(slice, done, all) => {
                format!(
                    "{done} of {all}: {}, {} ops/s",
                    plural(slice.clients, "client"),
                    Count(slice.throughput())
                )
            }
            Progress::Second(operations) => format!("{operations} ops/s"),
            Progress::Wrapped => return self.say("system.profile is full and begins to wrap"),
            Progress::Again(error) => {
                return self.say(&format!("a slice was lost ({error}); measuring it again"));
            }
            Progress::Cleaning => "cleaning up".to_owned(),
            Progress::CannotClean(error) => {
                return self.say(&format!("cannot clean up yet ({error}); trying again, Ctrl-C gives up"));
            }
        };
        self.0.set_message(line);
    }

    fn say(&self, text: &str) {
        self.0.suspend(|| eprintln!("{text}"));
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
