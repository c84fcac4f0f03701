//! `mongosonar disk bench`: the file, the probes, the ramp, and what they come to.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sonar_core::disk::verdict::{self, Probe};
use sonar_core::disk::{DiskCounters, DiskRates, DiskStep, SplitMix};
use sonar_sys::Host;
use sonar_sys::disk::{
    Access, DiskError, Done, Engine, Live, Mmap, Step, TestFile, TestFileSettings, Threads, Uring, leftovers,
};
use sonar_sys::resource::Usage;
use sonar_view::disk::run::{KIND, Latency, ProbeResult, Run, SCHEMA, Settings, Verdict};
use sonar_view::disk::{self as view, text};

use super::args::{AccessArg, BenchArgs, EngineArg};
use super::config::{self, MOST_BYTES, Options};
use super::place::{Ground, folder};
use crate::exit::{self, OK, usage};
use crate::stop::{self, Ending};
use crate::{outfile, page, screen};

/// Requests in flight of the probes that want many.
const PROBE_IN_FLIGHT: u32 = 32;
/// Bytes of a record, and requests in flight, of the probe of bandwidth.
const BANDWIDTH: (u32, u32) = (1 << 20, 4);
/// Most threads that make requests with io_uring.
const MOST_URING_THREADS: usize = 4;
/// Width of sentences where the terminal does not say.
const COLUMNS: usize = 100;

/// Runs the command; gives the exit code.
pub fn run(args: &BenchArgs) -> Result<u8> {
    if let Some(files) = &args.compare {
        return super::compare::run(files, args);
    }
    let options = config::parse(&document(args)?).and_then(|options| config::merge(options, args));
    let options = options.map_err(|error| usage!("{}", exit::message(&error)))?;
    let engine = chosen_engine(args, &options)?;
    // The test file must be removed, so that no further signal ends the process.
    let stop = stop::listen(Ending::Careful)?;
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    folder(&dir)?;
    let ground = Ground::of(&dir);
    let bench = Bench {
        signal: stop.signal().clone(),
        stop: stop.flag().clone(),
        lines: Lines { quiet: args.quiet, to_stderr: args.json },
        devices: ground.names().cloned().collect(),
    };
    let mut run = Run {
        schema: SCHEMA,
        kind: KIND.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_ns: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
        settings: settings(args, &options, engine),
        place: ground.place.clone(),
        ..Run::default()
    };
    for left in leftovers(&dir, &Host::live()) {
        run.notes.push(format!(
            "A run that was killed left {} behind ({} MiB): rm {}",
            left.path.display(),
            left.bytes >> 20,
            left.path.display()
        ));
    }
    let result = bench.measure(args, &options, engine, &dir, &mut run);
    let signal = bench.signal.load(Ordering::Relaxed);
    match result {
        Err(error) if signal == 0 || !was_stopped(&error) => return Err(error),
        _ if signal != 0 => {
            run.notes.push(format!(
                "Stopped by {} after {} of {} steps; the test file is removed.",
                signal_name(signal),
                run.steps.len(),
                ramp(args, &options).len()
            ));
        }
        _ => {}
    }
    show(args, &run)?;
    Ok(if signal == 0 { OK } else { 128u8.saturating_add(signal as u8) })
}

fn was_stopped(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(DiskError::Stopped))
}

/// Writes what was asked for.
fn show(args: &BenchArgs, run: &Run) -> Result<()> {
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| run.write(out)))?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        run.write(&mut out)?;
    } else {
        if !args.quiet {
            writeln!(out)?;
        }
        text::report(run, columns(), &mut out)?;
    }
    Ok(out.flush()?)
}

/// Columns of the terminal, within what reads well.
pub fn columns() -> usize {
    screen::width().map_or(COLUMNS, |columns| columns.clamp(40, 120))
}

/// mongoperf's document: of a file, of standard input, or none.
fn document(args: &BenchArgs) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let bound = MOST_BYTES as u64 + 1;
    match &args.mongoperf_config {
        Some(path) if path.as_os_str() != "-" => {
            let file = std::fs::File::open(path)
                .with_context(|| format!("cannot read mongoperf's configuration {}", path.display()))?;
            file.take(bound)
                .read_to_end(&mut bytes)
                .with_context(|| format!("cannot read mongoperf's configuration {}", path.display()))?;
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

fn settings(args: &BenchArgs, options: &Options, engine: EngineArg) -> Settings {
    let mapped = engine == EngineArg::Mmap;
    Settings {
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

/// The numbers in flight, one a step.
fn ramp(args: &BenchArgs, options: &Options) -> Vec<u32> {
    if args.no_ramp { vec![options.n_threads] } else { verdict::ramp(options.n_threads).collect() }
}

/// Where the lines go that are printed while it runs.
struct Lines {
    quiet: bool,
    to_stderr: bool,
}

impl Lines {
    fn say(&self, line: &str) -> io::Result<()> {
        match (self.quiet, self.to_stderr) {
            (true, _) => Ok(()),
            (_, true) => writeln!(io::stderr(), "{line}"),
            (_, false) => writeln!(io::stdout(), "{line}"),
        }
    }
}

struct Bench {
    /// The number of the first signal that asks to stop, 0 before.
    signal: Arc<AtomicUsize>,
    /// Set as soon as a signal came: what the making of the file looks at.
    stop: Arc<AtomicBool>,
    lines: Lines,
    /// The device and its disks, by name.
    devices: Vec<String>,
}

impl Bench {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn measure(
        &self,
        args: &BenchArgs,
        options: &Options,
        kind: EngineArg,
        dir: &Path,
        run: &mut Run,
    ) -> Result<()> {
        self.lines.say("mongosonar disk bench, after mongoperf")?;
        self.lines.say(&format!("options:{}", text::options(run)))?;
        let file = Arc::new(self.make_file(args, options, dir, run)?);
        let path = file.path().to_path_buf();
        let result = self.run_on(&file, args, options, kind, run);
        // The engine is gone, and nobody else has the file.
        let Some(Err(source)) = Arc::into_inner(file).map(TestFile::remove) else { return result };
        let left = format!(
            "the removal of the test file could not be written to the device ({source}): if it is there again \
             later, rm {}",
            path.display()
        );
        match result {
            Err(error) if !was_stopped(&error) => Err(anyhow!("{error:#}; {left}")),
            result => {
                run.notes.push(left);
                result
            }
        }
    }

    /// The probes and the ramp.
    fn run_on(
        &self,
        file: &Arc<TestFile>,
        args: &BenchArgs,
        options: &Options,
        kind: EngineArg,
        run: &mut Run,
    ) -> Result<()> {
        let mut engine = make_engine(kind, file, &mut run.notes).map_err(|error| anyhow!("{error:#}"))?;
        run.engine = engine.name().to_owned();
        if let Some(note) = run.notes.last().filter(|note| note.contains("io_uring")) {
            self.lines.say(note)?;
        }
        let step = Step {
            in_flight: 1,
            record_bytes: options.rec_size_kb << 10,
            reads: options.r,
            writes: options.w,
            flush: run.settings.fdatasync,
            access: match args.access {
                Some(AccessArg::Sequential) => Access::Sequential,
                _ => Access::Random,
            },
            duration: args.step_seconds,
            pause: Duration::ZERO,
            sync_delay: Duration::from_secs(options.sync_delay),
            seed: args.seed,
        };
        let probes = if kind == EngineArg::Mmap || args.probe_seconds.is_zero() {
            Vec::new()
        } else {
            self.probe(engine.as_mut(), &step, args.probe_seconds, file.bytes(), run)?
        };
        self.lines.say("testing...")?;
        let mut steps: Vec<DiskStep> = Vec::new();
        let ramp = ramp(args, options);
        let result = self.ramp(engine.as_mut(), &step, options, &ramp, &mut steps, run);
        run.verdict = Verdict::new(&steps, &probes, kind == EngineArg::Threads || run.engine == "threads");
        result
    }

    fn make_file(&self, args: &BenchArgs, options: &Options, dir: &Path, run: &mut Run) -> Result<TestFile> {
        let bytes = options.file_size_mb << 20;
        let settings = TestFileSettings {
            dir: dir.to_path_buf(),
            bytes,
            record_bytes: u64::from(options.rec_size_kb) << 10,
            direct: run.settings.direct,
            seed: args.seed,
        };
        self.lines.say(&format!("creating test file size:{}MB ...", options.file_size_mb))?;
        let bar = indicatif::ProgressBar::hidden();
        if io::stderr().is_terminal() && !args.quiet {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.set_length(bytes);
            let style = "{bar:40} {bytes:>10} of {total_bytes}  {binary_bytes_per_sec}  {eta} left";
            bar.set_style(indicatif::ProgressStyle::with_template(style)?);
        }
        let made = TestFile::create(&settings, &self.stop, &mut |written| bar.set_position(written));
        bar.finish_and_clear();
        let file = made.map_err(explained)?;
        if file.allocated_bytes().is_some_and(|allocated| allocated < bytes) {
            run.notes.push(format!(
                "The file system gave the file {} MiB of {} only: it compresses or shares blocks, and what is \
                 measured is that too.",
                file.allocated_bytes().unwrap_or(0) >> 20,
                options.file_size_mb
            ));
        }
        Ok(file)
    }

    fn probe(
        &self,
        engine: &mut dyn Engine,
        step: &Step,
        duration: Duration,
        file_bytes: u64,
        run: &mut Run,
    ) -> Result<Vec<Probe>> {
        self.lines.say(&format!("probing, {} s ...", (duration * 5).as_secs_f64()))?;
        let mut probes = Vec::new();
        let record = step.record_bytes;
        for (access, record_bytes, in_flight) in [
            (Access::Random, record, 1),
            (Access::Sequential, record, 1),
            (Access::Random, record, PROBE_IN_FLIGHT),
            (Access::Sequential, record, PROBE_IN_FLIGHT),
            (Access::Sequential, BANDWIDTH.0, BANDWIDTH.1),
        ] {
            if self.stopped() {
                return Err(DiskError::Stopped.into());
            }
            if u64::from(record_bytes) > file_bytes {
                continue;
            }
            // One kind of request: reads where there are reads.
            let probe = Step {
                in_flight,
                record_bytes,
                reads: step.reads,
                writes: !step.reads,
                flush: !step.reads && step.flush,
                access,
                duration,
                pause: Duration::ZERO,
                sync_delay: Duration::ZERO,
                seed: SplitMix::part(step.seed, u64::from(in_flight) << 32 | u64::from(record_bytes)).next(),
            };
            let done = self.watched(engine, &probe, &mut |_| Ok(()))?.0;
            let moved = if step.reads { &done.reads } else { &done.writes };
            let seconds = done.elapsed_ns.max(1) as f64 / 1e9;
            let sequential = access == Access::Sequential;
            let operations_per_second = moved.count() as f64 / seconds;
            run.probes.push(ProbeResult {
                sequential,
                record_bytes,
                in_flight,
                operations_per_second,
                bytes_per_second: moved.bytes as f64 / seconds,
                latency_ns: Latency::new(&moved.latency),
            });
            probes.push(Probe { sequential, record_bytes, in_flight, operations_per_second });
        }
        Ok(probes)
    }

    fn ramp(
        &self,
        engine: &mut dyn Engine,
        step: &Step,
        options: &Options,
        ramp: &[u32],
        steps: &mut Vec<DiskStep>,
        run: &mut Run,
    ) -> Result<()> {
        let mapped = run.settings.mmf;
        let pause = Duration::from_micros(options.sleep_micros);
        for &in_flight in ramp {
            if self.stopped() {
                return Err(DiskError::Stopped.into());
            }
            self.lines.say(&text::begun(in_flight, step.reads, step.writes))?;
            let step = Step {
                in_flight,
                // In whole microseconds, as mongoperf divides.
                pause: Duration::from_micros(pause.as_micros() as u64 / u64::from(in_flight)),
                seed: SplitMix::part(step.seed, u64::from(in_flight)).next(),
                ..*step
            };
            let before = self.reading();
            let mut syncs = 0;
            let (done, per_second) = self.watched(engine, &step, &mut |tick| {
                if let Some(operations) = tick.operations {
                    self.lines.say(&text::second(operations, step.record_bytes, mapped))?;
                }
                if tick.syncs.0 > syncs {
                    syncs = tick.syncs.0;
                    self.lines.say(&text::synced(tick.syncs.1))?;
                }
                Ok(())
            })?;
            let after = self.reading();
            if self.stopped() {
                return Err(DiskError::Stopped.into());
            }
            if done.shared_buffers && in_flight == options.n_threads {
                run.notes.push(
                    "The records in flight are too large for memory of their own; they share some, which is read \
                     into and written from again and again."
                        .to_owned(),
                );
            }
            if done.registered == Some(false) && steps.is_empty() {
                run.notes.push(
                    "Buffers could not be registered with io_uring (limit of locked memory, ulimit -l): each \
                     request costs a little more."
                        .to_owned(),
                );
            }
            let result = assemble(&step, done, per_second, &before, &after, self.devices.first());
            run.steps.push(view::run::Step::new(&result, self.devices.first().map_or("", String::as_str)));
            steps.push(result);
        }
        Ok(())
    }

    /// Runs one step on a thread of its own, and calls `tick` each second. Gives what was done and the
    /// operations of each full second.
    fn watched(
        &self,
        engine: &mut dyn Engine,
        step: &Step,
        tick: &mut dyn FnMut(&Tick) -> io::Result<()>,
    ) -> Result<(Done, Vec<u64>)> {
        let live = Live::new(step.in_flight);
        let mut per_second = Vec::new();
        let mut failed = None;
        let done = thread::scope(|scope| {
            let (finished, wait) = mpsc::channel();
            let live_ref = &live;
            let thread = scope.spawn(move || {
                let done = engine.run(step, live_ref);
                let _ = finished.send(());
                done
            });
            let start = Instant::now();
            let mut last = 0;
            for second in 1u32.. {
                let over = self.wait_until(start + Duration::from_secs(1) * second, &wait, &live);
                let operations = live.operations();
                // What is left of a second at the end is no second.
                let full = (!over).then_some(operations - last);
                per_second.extend(full);
                last = operations;
                if let Err(error) = tick(&Tick { operations: full, syncs: live.syncs() }) {
                    failed = Some(error);
                    live.stop();
                }
                if over {
                    break;
                }
            }
            thread.join().unwrap_or_else(|_| {
                let what = "an engine: it ended in mid-run".to_owned();
                Err(DiskError::Resource { what, source: io::ErrorKind::Other.into() })
            })
        })
        .map_err(explained)?;
        match failed {
            Some(error) => Err(error.into()),
            None => {
                // Requests that were waited for past the end belong to no full second.
                per_second.truncate(step.duration.as_secs_f64().floor().max(1.0) as usize);
                Ok((done, per_second))
            }
        }
    }

    /// Waits for a point in time; true when the engine has finished before.
    fn wait_until(&self, until: Instant, finished: &mpsc::Receiver<()>, live: &Live) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match finished.recv_timeout(left.min(Duration::from_millis(50))) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return true,
            }
            if self.stopped() {
                live.stop();
            }
        }
    }

    fn reading(&self) -> Reading {
        let host = Host::live();
        let counters = host.disk_counters().unwrap_or_default();
        Reading {
            at: Instant::now(),
            devices: counters
                .into_iter()
                .filter(|counted| self.devices.contains(&counted.name))
                .map(|counted| (counted.name, counted.counters))
                .collect(),
            usage: Usage::now().ok(),
            ticks: host.processors().ok().map(|found| found.all_and_idle_ticks()),
            kernel: host.own_bytes().ok(),
        }
    }
}

/// What can be seen each second.
struct Tick {
    /// Operations of the second, when it was a full one.
    operations: Option<u64>,
    syncs: (u64, u64),
}

/// The kernel's counters at one point in time.
struct Reading {
    at: Instant,
    devices: HashMap<String, DiskCounters>,
    usage: Option<Usage>,
    ticks: Option<(u64, u64)>,
    kernel: Option<sonar_core::disk::KernelBytes>,
}

fn assemble(
    step: &Step,
    done: Done,
    per_second: Vec<u64>,
    before: &Reading,
    after: &Reading,
    device: Option<&String>,
) -> DiskStep {
    let elapsed = u64::try_from(after.at.duration_since(before.at).as_nanos()).unwrap_or(u64::MAX);
    let rates =
        |name: &String| DiskRates::between(before.devices.get(name)?, after.devices.get(name)?, elapsed);
    let mut members: Vec<(String, DiskRates)> = after
        .devices
        .keys()
        .filter(|name| Some(*name) != device)
        .filter_map(|name| Some((name.clone(), rates(name)?)))
        .collect();
    members.sort_by(|a, b| a.0.cmp(&b.0));
    let used = |time: fn(&Usage) -> Duration| match (&before.usage, &after.usage) {
        (Some(before), Some(after)) => time(after).saturating_sub(time(before)).as_nanos() as u64,
        _ => 0,
    };
    DiskStep {
        in_flight: step.in_flight,
        threads: done.threads,
        elapsed_ns: done.elapsed_ns,
        reads: done.reads,
        writes: done.writes,
        flushes: done.flushes,
        per_second,
        user_ns: used(|usage| usage.user),
        system_ns: used(|usage| usage.system),
        machine_busy: before.ticks.zip(after.ticks).and_then(|(before, after)| {
            let (all, idle) = (after.0.checked_sub(before.0)?, after.1.saturating_sub(before.1));
            (all > 0).then(|| 1.0 - idle as f64 / all as f64)
        }),
        device: device.and_then(rates),
        members,
        kernel: before.kernel.zip(after.kernel).map(|(before, after)| after.since(before)),
    }
}

fn make_engine(kind: EngineArg, file: &Arc<TestFile>, notes: &mut Vec<String>) -> Result<Box<dyn Engine>> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let most = (cores / 2).clamp(1, MOST_URING_THREADS) as u32;
    Ok(match kind {
        EngineArg::Threads => Box::new(Threads::new(file.clone())),
        EngineArg::Mmap => Box::new(Mmap::new(file.clone())?),
        EngineArg::Uring => match Uring::new(file.clone(), most) {
            Ok(engine) => Box::new(engine),
            Err(why) => {
                notes.push(format!("{why}. The engine threads is used instead."));
                Box::new(Threads::new(file.clone()))
            }
        },
    })
}

/// An error with what can be done about it.
fn explained(error: DiskError) -> anyhow::Error {
    let hint = match &error {
        DiskError::NoDirectIo { .. } => Some(
            "what still holds there: --buffered (reads and writes through the page cache) or --mmf (the file \
             mapped); both then measure memory as much as a disk",
        ),
        DiskError::Space { .. } => Some("ask for a smaller --fileSizeMB, or another --dir"),
        DiskError::Alignment { .. } => Some("ask for another --recSizeKB"),
        DiskError::Create { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Some("give a folder that you may write to with --dir")
        }
        DiskError::Create { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Some("the file system is mounted read-only; give another --dir")
        }
        DiskError::Create { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("--dir must be a folder that is there")
        }
        DiskError::Resource { what, .. } if what.contains("threads") => {
            Some("ask for fewer --nThreads, or use --engine uring, which needs few threads")
        }
        error if error.is_of_the_device() => Some("the device failed or went away; dmesg has more"),
        DiskError::Create { source, .. } | DiskError::Fill { source, .. }
            if source.kind() == io::ErrorKind::QuotaExceeded =>
        {
            Some(
                "the quota of this user or project is used up; ask for a smaller --fileSizeMB, or another --dir",
            )
        }
        _ => None,
    };
    let error = anyhow::Error::from(error);
    match hint {
        Some(hint) => anyhow!("{error:#}; {hint}"),
        None => error,
    }
}
