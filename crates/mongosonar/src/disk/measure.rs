//! Measures a disk: creates the test file, runs the probes and the steps, and reads the kernel's counters.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use sonar_core::disk::verdict::{self, DiskProbe};
use sonar_core::disk::{DiskCounters, DiskRates, DiskStep, KernelBytes, SplitMix};
use sonar_core::machine::ControlGroup;
use sonar_sys::Host;
use sonar_sys::disk::{
    Access, DiskEngine, DiskError, EngineStep, Live, Mmap, StepResult, TestFile, TestFileSettings, Threads,
    Uring,
};
use sonar_sys::resource::ResourceUsage;
use sonar_view::disk::run::{BenchReport, BenchVerdict, LatencyQuantiles, ProbeResult};
use sonar_view::disk::{self as view, text};
use sonar_view::kit::escape;

use super::args::{AccessArg, BenchArgs, EngineArg};
use super::config::Options;

/// Requests in flight of the probes that want many.
const PROBE_IN_FLIGHT: u32 = 32;
/// Bytes of a record, and requests in flight, of the probe of bandwidth.
const BANDWIDTH: (u32, u32) = (1 << 20, 4);
/// Most threads that make requests with io_uring.
const MOST_URING_THREADS: usize = 4;
/// What is measured, where, and how.
pub struct Bench<'a> {
    pub args: &'a BenchArgs,
    pub options: &'a Options,
    pub engine: EngineArg,
    pub dir: &'a Path,
    /// Set when the program is asked to stop.
    pub stop: &'a AtomicBool,
    /// The device and its disks, by name.
    pub devices: Vec<String>,
}

/// Whether the measurement failed because it was asked to stop.
pub fn was_stopped(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(DiskError::Stopped))
}

impl Bench<'_> {
    /// The numbers of requests in flight, one for each step.
    pub fn ramp(&self) -> Vec<u32> {
        let most = self.options.n_threads;
        if self.args.no_ramp { vec![most] } else { verdict::ramp(most).collect() }
    }

    /// Prints lines while it runs.
    fn say(&self, lines: &str) -> io::Result<()> {
        match (self.args.quiet, self.args.json) {
            (true, _) => Ok(()),
            (_, true) => {
                eprintln!("{lines}");
                Ok(())
            }
            (_, false) => lines.lines().try_for_each(|line| writeln!(io::stdout(), "{}", escape(line))),
        }
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(DiskError::Stopped.into()) } else { Ok(()) }
    }

    /// Measures, and adds to `run` what it finds until it ends or is stopped.
    ///
    /// # Errors
    /// The file cannot be created, read, written or removed; it was stopped ([`was_stopped`]).
    pub fn measure(&self, run: &mut BenchReport) -> Result<()> {
        self.say("mongosonar disk bench, after mongoperf")?;
        self.say(&format!("options:{}", text::options(run)))?;
        let file = Arc::new(self.make_file(run)?);
        let path = file.path().to_path_buf();
        let result = self.run_on(&file, run);
        // The engine is gone, so nothing else uses the file.
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

    /// The probes and the steps.
    fn run_on(&self, file: &Arc<TestFile>, run: &mut BenchReport) -> Result<()> {
        let (args, options, kind) = (self.args, self.options, self.engine);
        let mut engine = make_engine(kind, file, &mut run.notes).map_err(|error| anyhow!("{error:#}"))?;
        run.engine = engine.name().to_owned();
        if let Some(note) = run.notes.last().filter(|note| note.contains("io_uring")) {
            self.say(note)?;
        }
        let step = EngineStep {
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
            self.probe(engine.as_mut(), &step, file.bytes(), run)?
        };
        self.say("testing...")?;
        let mut steps: Vec<DiskStep> = Vec::new();
        let result = self.ramp().into_iter().try_for_each(|in_flight| {
            steps.push(self.step(engine.as_mut(), &step, in_flight, run)?);
            Ok(())
        });
        run.verdict =
            BenchVerdict::new(&steps, &probes, kind == EngineArg::Threads || run.engine == "threads");
        result
    }

    fn make_file(&self, run: &mut BenchReport) -> Result<TestFile> {
        let (args, options) = (self.args, self.options);
        let bytes = options.file_size_mb << 20;
        let settings = TestFileSettings {
            dir: self.dir.to_path_buf(),
            bytes,
            record_bytes: u64::from(options.rec_size_kb) << 10,
            direct: run.settings.direct,
            seed: args.seed,
        };
        self.say(&format!("creating test file size:{}MB ...", options.file_size_mb))?;
        let bar = indicatif::ProgressBar::hidden();
        if io::stderr().is_terminal() && !args.quiet {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.set_length(bytes);
            let style = "{bar:40} {bytes:>10} of {total_bytes}  {binary_bytes_per_sec}  {eta} left";
            bar.set_style(indicatif::ProgressStyle::with_template(style)?);
        }
        let made = TestFile::create(&settings, self.stop, &mut |written| bar.set_position(written));
        bar.finish_and_clear();
        let file = made.map_err(explained)?;
        if file.allocated_bytes().is_some_and(|allocated| allocated < bytes) {
            run.notes.push(format!(
                "The file system allocated only {} of {} MiB for the file: it compresses or shares blocks, and the \
                 measurement includes that.",
                file.allocated_bytes().unwrap_or(0) >> 20,
                options.file_size_mb
            ));
        }
        Ok(file)
    }

    fn probe(
        &self,
        engine: &mut dyn DiskEngine,
        step: &EngineStep,
        file_bytes: u64,
        run: &mut BenchReport,
    ) -> Result<Vec<DiskProbe>> {
        let duration = self.args.probe_seconds;
        self.say(&format!("probing, {} s ...", (duration * 5).as_secs_f64()))?;
        let mut probes = Vec::new();
        let record = step.record_bytes;
        for (access, record_bytes, in_flight) in [
            (Access::Random, record, 1),
            (Access::Sequential, record, 1),
            (Access::Random, record, PROBE_IN_FLIGHT),
            (Access::Sequential, record, PROBE_IN_FLIGHT),
            (Access::Sequential, BANDWIDTH.0, BANDWIDTH.1),
        ] {
            self.check_stop()?;
            if u64::from(record_bytes) > file_bytes {
                continue;
            }
            // One kind of request: reads where there are reads.
            let probe = EngineStep {
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
            // A part of a probe is no figure.
            self.check_stop()?;
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
                latency_ns: LatencyQuantiles::new(&moved.latency),
            });
            probes.push(DiskProbe { sequential, record_bytes, in_flight, operations_per_second });
        }
        Ok(probes)
    }

    /// Measures with `in_flight` requests in flight.
    fn step(
        &self,
        engine: &mut dyn DiskEngine,
        step: &EngineStep,
        in_flight: u32,
        run: &mut BenchReport,
    ) -> Result<DiskStep> {
        self.check_stop()?;
        self.say(&text::begun(in_flight, step.reads, step.writes))?;
        let step = EngineStep {
            in_flight,
            // In whole microseconds, as mongoperf divides.
            pause: Duration::from_micros(self.options.sleep_micros / u64::from(in_flight)),
            seed: SplitMix::part(step.seed, u64::from(in_flight)).next(),
            ..*step
        };
        let before = self.reading();
        let mut syncs = 0;
        let mapped = run.settings.mmf;
        let (done, per_second) = self.watched(engine, &step, &mut |tick| {
            if let Some(operations) = tick.operations {
                self.say(&text::second(operations, step.record_bytes, mapped))?;
            }
            if tick.syncs.0 > syncs {
                syncs = tick.syncs.0;
                self.say(&text::synced(tick.syncs.1))?;
            }
            Ok(())
        })?;
        let after = self.reading();
        self.check_stop()?;
        if done.shared_buffers && in_flight == self.options.n_threads {
            run.notes.push(
                "The records in flight are too large to have memory of their own; they share some, which is read into \
                 and written from again and again."
                    .to_owned(),
            );
        }
        if done.registered == Some(false) && run.steps.is_empty() {
            run.notes.push(
                "Buffers could not be registered with io_uring (limit of locked memory, ulimit -l): each request costs \
                 a little more."
                    .to_owned(),
            );
        }
        let device = self.devices.first();
        let result = DiskStep { per_second, ..MeasuredSpan { before, after, device }.step(in_flight, done) };
        run.steps.push(view::run::StepJson::new(&result, device.map_or("", String::as_str)));
        Ok(result)
    }

    /// Runs one step in a thread, and calls `tick` each second. Returns what was done and the operations of each full
    /// second.
    fn watched(
        &self,
        engine: &mut dyn DiskEngine,
        step: &EngineStep,
        tick: &mut dyn FnMut(&Tick) -> io::Result<()>,
    ) -> Result<(StepResult, Vec<u64>)> {
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
                // A part of a second at the end does not count.
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
                // Requests that ended after the last full second belong to none.
                per_second.truncate(step.duration.as_secs_f64().floor().max(1.0) as usize);
                Ok((done, per_second))
            }
        }
    }

    /// Waits until a point in time; returns whether the engine finished before.
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
            if self.stop.load(Ordering::Relaxed) {
                live.stop();
            }
        }
    }

    fn reading(&self) -> Reading {
        Reading::of(&Host::live(), &self.devices)
    }
}

/// The state at the end of each second.
struct Tick {
    /// Operations of the second, if it was a full one.
    operations: Option<u64>,
    syncs: (u64, u64),
}

/// The kernel's counters at one point in time.
struct Reading {
    at: Instant,
    devices: HashMap<String, DiskCounters>,
    usage: Option<ResourceUsage>,
    ticks: Option<(u64, u64)>,
    kernel: Option<KernelBytes>,
    /// How many processors this process may run on.
    processors: Option<u32>,
    /// The control group of this process.
    group: ControlGroup,
}

impl Reading {
    fn of(host: &Host, devices: &[String]) -> Self {
        let counters = host.disk_counters().unwrap_or_default();
        Self {
            at: Instant::now(),
            devices: counters
                .into_iter()
                .filter(|counted| devices.contains(&counted.name))
                .map(|counted| (counted.name, counted.counters))
                .collect(),
            usage: ResourceUsage::now().ok(),
            ticks: host.processors().ok().map(|found| found.all_and_idle_ticks()),
            kernel: host.own_bytes().ok(),
            processors: host.own_processors(),
            group: host.control_groups(std::process::id()).map(|groups| groups.group).unwrap_or_default(),
        }
    }
}

/// The kernel's counters before and after a step.
struct MeasuredSpan<'a> {
    before: Reading,
    after: Reading,
    /// The device; the others are its disks.
    device: Option<&'a String>,
}

impl MeasuredSpan<'_> {
    fn step(self, in_flight: u32, done: StepResult) -> DiskStep {
        let Self { before, after, .. } = &self;
        let elapsed = u64::try_from(after.at.duration_since(before.at).as_nanos()).unwrap_or(u64::MAX);
        let rates =
            |name: &String| DiskRates::between(before.devices.get(name)?, after.devices.get(name)?, elapsed);
        let mut members: Vec<(String, DiskRates)> = after
            .devices
            .keys()
            .filter(|name| Some(*name) != self.device)
            .filter_map(|name| Some((name.clone(), rates(name)?)))
            .collect();
        members.sort_by(|a, b| a.0.cmp(&b.0));
        let used = |time: fn(&ResourceUsage) -> Duration| match (&before.usage, &after.usage) {
            (Some(before), Some(after)) => time(after).saturating_sub(time(before)).as_nanos() as u64,
            _ => 0,
        };
        DiskStep {
            in_flight,
            threads: done.threads,
            elapsed_ns: done.elapsed_ns,
            reads: done.reads,
            writes: done.writes,
            flushes: done.flushes,
            user_ns: used(|usage| usage.user),
            system_ns: used(|usage| usage.system),
            machine_busy: before.ticks.zip(after.ticks).and_then(|(before, after)| {
                let (all, idle) = (after.0.checked_sub(before.0)?, after.1.saturating_sub(before.1));
                (all > 0).then(|| 1.0 - idle as f64 / all as f64)
            }),
            usable_processors: after.group.usable_processors([after.processors, None]),
            throttled: after.group.throttled_periods_percent(&before.group).map(|percent| percent / 100.0),
            device: self.device.and_then(rates),
            members,
            kernel: before.kernel.zip(after.kernel).map(|(before, after)| after.since(before)),
            ..DiskStep::default()
        }
    }
}

fn make_engine(
    kind: EngineArg,
    file: &Arc<TestFile>,
    notes: &mut Vec<String>,
) -> Result<Box<dyn DiskEngine>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_of_one_and_a_half_processors_is_not_rounded() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("self")).unwrap();
        std::fs::write(proc.path().join("self/status"), "Cpus_allowed_list:\t0-4095\n").unwrap();
        let usable = |cpu_limit| {
            let group = ControlGroup { cpu_limit, ..ControlGroup::default() };
            let reading = || Reading { group, ..Reading::of(&Host::of_proc(proc.path()), &[]) };
            let span = MeasuredSpan { before: reading(), after: reading(), device: None };
            span.step(1, StepResult::default()).usable_processors
        };
        assert_eq!(usable(Some(1.5)), Some(1.5));
        // More than the machine of this test has: the figure is that of the process, not that of a pool of threads.
        assert_eq!(usable(Some(2_000.5)), Some(2_000.5));
        assert_eq!(usable(None), Some(4_096.0));
    }
}
