//! `mongosonar why`: where the time of each query shape goes inside the server.

pub mod args;
mod busyness;
mod rows;
mod server_log;
mod server_operation;
mod server_profile;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::disk::DeviceCounters;
use sonar_core::history::Span;
use sonar_core::machine::ControlGroup;
use sonar_core::time_split::{ConnectionSample, TimeSplit};
use sonar_core::{Coverage, Timestamp};
use sonar_sys::split::SplitLosses;
use sonar_sys::{Host, PacketFilter, RingConfig};
use sonar_view::disk::run::BenchReport;
use sonar_view::kit::json::line;
use sonar_view::kit::{About, Grouped};
use sonar_view::why::{
    DiskLoadJson, ProcessLimitJson, ServerSourcesJson, SplitCoverageJson, WhyReport, WhyTrace,
};

pub use self::args::WhyArgs;
use self::busyness::Busyness;
use self::rows::{SelectedRows, WhyRows};
use self::server_log::{OpenedLogs, ServerLogs};
use self::server_profile::{ProfileReader, ProfiledSpan};
use crate::args::values::only_port;
use crate::args::when::now;
use crate::capture::ThreadWindow;
use crate::capture::args::EncryptedAccessArgs;
use crate::capture::notice::Notice;
use crate::capture::session::{CaptureSession, SessionPlan};
use crate::capture::splitting::{self, OperationMatcher, SplitHelpers, SplitPlan, SplitTrace, WireSide};
use crate::capture::threads::{CaptureTask, RETIRE, RunningCapture};
use crate::capture::tls::EncryptedAccess;
use crate::disk;
use crate::exit::OK;
use crate::locking::lock;
use crate::outfile::OutFile;
use crate::report_output::{fitted, page_and_print, print, write_opened_page};
use crate::servers::file_names::FileNames;
use crate::servers::tracing::warn_of_process_namespace;
use crate::stop::{Signals, StopBehavior};

/// Bytes of the ring of packets.
const RING_BYTES: usize = 32 << 20;
/// How long packets may take to arrive after the trace has ended.
const LATE: Duration = Duration::from_millis(600);

/// The interfaces on which requests can arrive; none: all. Capturing on loopback alone leaves the packets of all others
/// alone.
fn interfaces(asked: &[String], processes: &[u32]) -> Vec<String> {
    if !asked.is_empty() || !Host::live().are_local(processes) {
        return asked.to_vec();
    }
    let all = sonar_sys::interfaces::list().unwrap_or_default();
    all.into_iter().filter(|interface| interface.loopback).map(|interface| interface.name).collect()
}

/// Runs the command; returns the exit code.
pub fn run(args: &WhyArgs) -> Result<u8> {
    // Without it, a server that keeps all processors busy leaves too little time for reading the rings.
    sonar_sys::resource::prefer_this_thread().ok();
    let confined = args.privileges.are_dropped();
    let reads_sockets = args.source.reads_sockets(&[(!args.interface.is_empty(), "--interface")])?;
    warn_of_process_namespace();
    let chosen = splitting::processes(&args.pid, &args.port)?;
    let processes = splitting::numbers(&chosen);
    let ports = splitting::ports(&args.pid, &args.port)?;
    // It cannot be opened later.
    let html = args.html.as_deref().map(OutFile::open).transpose()?;
    let sample = args.sample.unwrap_or_else(|| sample_of_busy(&processes));
    let EncryptedAccessArgs { no_tls, tls_any_cost } = args.encrypted_access;
    let encrypted = EncryptedAccess::of(no_tls, tls_any_cost);
    let plan = SplitPlan { samples_processors: true, ..SplitPlan::of_command(confined, false, encrypted) };
    // Before any thread is started.
    let split = SplitHelpers::start(&chosen, args.classes.as_deref(), sample, plan)?;
    let only_port = only_port(&ports);
    let rings = RingConfig {
        interfaces: interfaces(&args.interface, &processes),
        filter: PacketFilter { clients: sample, ..PacketFilter::default() },
        size_bytes: RING_BYTES,
        retire: RETIRE,
        ..RingConfig::default()
    };
    let plan = SessionPlan {
        confined,
        ports,
        processes: processes.clone(),
        encrypted,
        logs: Vec::new(),
        reads_sockets,
        rings,
        threads: 1,
    };
    let helpers = plan.start_helpers(Some(split))?;
    let target = args.server.named(only_port)?;
    let disk_test = args.disk_test.as_deref().map(disk::compare::read).transpose()?;
    let logs = match (args.no_log, args.log.as_slice()) {
        (true, _) => OpenedLogs::default(),
        (false, []) => OpenedLogs::of_processes(&processes),
        (false, paths) => OpenedLogs::open(paths, &processes)?,
    };
    let mut session = helpers.open(target.clone())?;
    let has_target = target.is_some();
    let start = |target| ProfileReader::start(target, &processes, confined, &session.gate);
    let profiler = target.map(start).transpose()?;
    session.look_up()?;
    let stop = session.drop_privileges(Signals::catch(StopBehavior::Report)?)?;
    let names = session.names(&stop)?;
    // Who ends it before it has begun needs neither a profile nor logs, which may not come soon.
    let has_begun = !stop.load(Ordering::Relaxed);
    let profiler = profiler.filter(|_| has_begun);
    let logs = if has_begun { logs.follow() } else { ServerLogs::default() };
    let has_server_side = !logs.is_empty() || has_target;
    let trace = session.trace.take().context("no threads are traced")?;
    let rows = SelectedRows::new(args, sample, has_server_side);
    let matcher = Arc::new(Mutex::new(OperationMatcher::new(rows)));
    let (capture, windows) = session.start(CaptureTask {
        interval: Duration::from_secs(1),
        each: Some(Arc::new(Mutex::new(WireSide::new(matcher.clone(), sample)))),
        ..CaptureTask::default()
    })?;
    let capture = WhyCapture { session, capture, windows, coverage: Coverage::default() };
    let servers = TracedServers { args, processes, sample, trace, matcher, capture, stop };
    let report =
        servers.report(ServerSources { names, logs, profiler, has_server_side }, disk_test.as_ref())?;
    write(&report, args.json, html)
}

/// Servers whose threads are traced while their packets are captured.
struct TracedServers<'a> {
    args: &'a WhyArgs,
    processes: Vec<u32>,
    sample: ConnectionSample,
    trace: SplitTrace,
    /// Where the operations of both sides meet.
    matcher: Arc<Mutex<OperationMatcher<SelectedRows>>>,
    capture: WhyCapture,
    /// Ends the trace.
    stop: Arc<AtomicBool>,
}

/// What the servers say of themselves.
struct ServerSources {
    /// The names of their files.
    names: FileNames,
    logs: ServerLogs,
    profiler: Option<ProfileReader>,
    /// Whether there is a log or a profiler.
    has_server_side: bool,
}

impl TracedServers<'_> {
    /// Traces until the time is over or it is to stop, and reports.
    fn report(mut self, mut sources: ServerSources, disk_test: Option<&BenchReport>) -> Result<WhyReport> {
        // The capture reads its ring meanwhile.
        self.trace.load_symbols();
        show_notices(&self.trace);
        // What came while everything was opened.
        self.trace.skip()?;
        let before = thread_times(&self.trace)?;
        let mut thread_names = ThreadNames::default();
        thread_names.read(&self.processes);
        let disks_before = disk_counters();
        let groups_before = control_groups(&self.processes);
        let (begun, started) = (Instant::now(), now());
        let rows = SelectedRows::new(self.args, self.sample, sources.has_server_side);
        *lock(&self.matcher) = OperationMatcher::new(rows);
        let listened = self.capture.session.listened.to_string();
        eprintln!(
            "mongosonar: tracing process {} on {listened} for {:?}; Ctrl-C ends it earlier",
            list(&self.processes),
            self.args.duration
        );
        self.capture.session.watch_sockets_on_use();
        let ended = self.trace(begun, started, &mut sources.logs)?;
        let disks = disk_loads(&disks_before, &disk_counters(), begun.elapsed(), disk_test);
        let limits = limits(&groups_before, &control_groups(&self.processes));
        let threads_now = self.trace.now()?;
        show_notices(&self.trace);
        for what in self.trace.further_failures() {
            eprintln!("mongosonar: {what}");
        }
        let losses = self.trace.take_losses();
        let threads = since(&before, &thread_times(&self.trace)?);
        let paths = self.trace.files();
        std::thread::sleep(LATE);
        let captured = self.capture.finish()?;
        let logs = sources.logs.paths();
        let log_lines_unread = sources.logs.finish(|operation| lock(&self.matcher).sink.server(operation));
        let mut matcher = lock(&self.matcher);
        matcher.close();
        let mut unfinished =
            threads_now.unfinished(|operation| matcher.request_of(operation), !self.sample.is_partial());
        let asked = &matcher.sink.asked;
        unfinished.retain(|one| one.wire.as_ref().map_or(!asked.is_narrowed(), |wire| asked.has(wire)));
        let time = Span { from: started, to: ended };
        let profiled = sources.profiler.and_then(|profiler| {
            profiler.read(ProfiledSpan { databases: matcher.sink.databases(), time }, &self.stop)
        });
        let profiled = profiled.map(|read| {
            read.operations.into_iter().for_each(|operation| matcher.sink.server(operation));
            read.about
        });
        let WhyRows { rows, unseen, activity, blockers_turned_away, log, profile } =
            std::mem::take(&mut matcher.sink).finish(started, ended);
        let waits_without_class = losses.stacks_skipped + matcher.waits_turned_away();
        let lost = split_coverage(&losses, &captured);
        let coverage = SplitCoverageJson { blockers_turned_away, waits_without_class, ..lost };
        thread_names.read(&self.processes);
        let report = WhyReport::new(&WhyTrace {
            about: About::new(Host::live().name(), vec![listened], Some(time)),
            processes: self.processes,
            sample: self.sample,
            seconds: ended.since(started) as f64 / 1e9,
            processors: Host::live().processors().context("cannot read /proc/stat")?.count as usize,
            limits,
            wait_weight: matcher.wait_weight(waits_without_class),
            rows: &rows,
            unseen: &unseen,
            activity: &activity.until(ended),
            ended,
            limit: self.args.limit,
            file_name: &|device, inode| Some(sources.names.short(paths.get(&(device, inode))?)),
            disks,
            thread_name: &|thread| thread_names.0.get(&thread).cloned(),
            threads: thread_names.label(threads),
            unfinished,
            coverage: coverage.with_counts(matcher.counts()),
            server: ServerSourcesJson {
                log: (!logs.is_empty()).then(|| log.into()),
                logs,
                log_lines_unread,
                profile: profiled.is_some().then(|| profile.into()),
                profiler: profiled,
                ..ServerSourcesJson::default()
            },
        });
        if disk_test.is_some() && report.disks.is_empty() {
            eprintln!(
                "mongosonar: --disk-test had no effect: no operation waited for a file on a disk that /proc/diskstats counts"
            );
        }
        Ok(report)
    }

    /// Traces until the time since it has begun is over, or it is to stop; returns when it ended.
    fn trace(&mut self, begun: Instant, started: Timestamp, logs: &mut ServerLogs) -> Result<Timestamp> {
        let (matcher, capture) = (&*self.matcher, &mut self.capture);
        let mut ended = started;
        self.trace.run(matcher, || {
            capture.take_windows();
            show_notices(&self.trace);
            logs.poll(|operation| lock(matcher).sink.server(operation));
            ended = now();
            // A capture that fails stops by itself.
            let is_stopped = self.stop.load(Ordering::Relaxed) || capture.capture.is_stopping();
            let goes_on = !is_stopped && begun.elapsed() < self.args.duration;
            // Before the threads' last operations are read, some of which ended later.
            if !goes_on {
                lock(matcher).end(ended);
            }
            goes_on
        })?;
        Ok(ended)
    }
}

/// What was lost at the threads and on the wire.
fn split_coverage(losses: &SplitLosses, captured: &Coverage) -> SplitCoverageJson {
    SplitCoverageJson {
        foreign_replies: losses.foreign_replies,
        ring_full: losses.ring_full,
        threads_full: losses.threads_full,
        unreadable: losses.unreadable,
        programs_skipped: losses.programs_skipped,
        switches_missed: losses.switches_missed,
        packets_dropped: captured.kernel_drops,
        encrypted_unread: captured.streams_tls,
        encrypted_unmapped: captured.tls_unmapped,
        encrypted_lost: captured.tls_lost,
        ..SplitCoverageJson::default()
    }
}

/// The kernel's counters of all disks; none if they cannot be read.
fn disk_counters() -> Vec<DeviceCounters> {
    Host::live().disk_counters().unwrap_or_default()
}

/// The control groups of processes, as far as they can be seen.
fn control_groups(processes: &[u32]) -> Vec<(u32, ControlGroup)> {
    let host = Host::live();
    processes.iter().filter_map(|pid| Some((*pid, host.control_groups(*pid)?.group))).collect()
}

/// What control groups allowed and denied between two readings.
fn limits(before: &[(u32, ControlGroup)], now: &[(u32, ControlGroup)]) -> Vec<ProcessLimitJson> {
    let both = now.iter().filter_map(|(pid, now)| {
        let (_, before) = before.iter().find(|(other, _)| other == pid)?;
        ProcessLimitJson::new(*pid, before, now)
    });
    both.collect()
}

/// The load of each disk between two readings.
fn disk_loads(
    before: &[DeviceCounters],
    now: &[DeviceCounters],
    elapsed: Duration,
    test: Option<&BenchReport>,
) -> Vec<DiskLoadJson> {
    let load = |now: &DeviceCounters| {
        let before = before.iter().find(|before| before.number == now.number)?;
        DiskLoadJson::new(before, now, elapsed.as_nanos() as u64, test)
    };
    now.iter().filter_map(load).collect()
}

/// The connections to follow if nobody says so: all, unless the servers are busy.
fn sample_of_busy(processes: &[u32]) -> ConnectionSample {
    let busyness = Busyness::of(processes, &Host::live());
    let sample = busyness.sample();
    if sample.is_partial() {
        eprintln!(
            "mongosonar: the server is busy (its threads get a processor {} times a second), so only one connection in {} is followed; --sample 1/1 follows all",
            Grouped(busyness.turns as u64),
            sample.every
        );
    }
    sample
}

/// Says which symbols and stacks could not be read.
fn show_notices(trace: &SplitTrace) {
    for what in trace.take_notices() {
        eprintln!("mongosonar: {what}");
    }
}

/// Writes the report, and its page.
fn write(report: &WhyReport, as_json: bool, html: Option<OutFile>) -> Result<u8> {
    let text = fitted(|out| report.text(out));
    page_and_print(write_opened_page(html.as_ref(), |out| line(report, out)), || {
        print(as_json, |out| line(report, out), text)
    })?;
    Ok(OK)
}

fn list(processes: &[u32]) -> String {
    processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The capture while the threads are traced. It outlives the trace, also if a signal ends that: the last packets are still
/// in the ring then.
struct WhyCapture {
    session: CaptureSession,
    capture: RunningCapture,
    windows: Receiver<ThreadWindow>,
    coverage: Coverage,
}

impl WhyCapture {
    fn take_windows(&mut self) {
        for window in self.windows.try_iter() {
            self.coverage.add(&window.window.coverage);
        }
        for notice in self.session.notices.try_iter() {
            if let Notice::Complaint(what) = notice {
                eprintln!("mongosonar: {what}");
            }
        }
    }

    /// Ends the capture; returns what it saw and what it did not.
    fn finish(&mut self) -> Result<Coverage> {
        let capture = std::mem::take(&mut self.capture);
        capture.stop();
        // The thread hands its last window over before it ends.
        for window in self.windows.iter() {
            self.coverage.add(&window.window.coverage);
        }
        capture.join()?;
        Ok(self.coverage)
    }
}

/// What each thread did outside operations so far.
fn thread_times(trace: &SplitTrace) -> Result<HashMap<u32, TimeSplit>> {
    Ok(trace.threads()?.into_iter().map(|thread| (thread.thread, thread.split)).collect())
}

/// What each thread did since.
fn since(before: &HashMap<u32, TimeSplit>, after: &HashMap<u32, TimeSplit>) -> Vec<(u32, TimeSplit)> {
    let before = |thread: &u32| before.get(thread).copied().unwrap_or_default();
    after.iter().map(|(thread, split)| (*thread, split.since(&before(thread)))).collect()
}

/// Names of threads that run, or ran when they were read before.
#[derive(Default)]
struct ThreadNames(HashMap<u32, String>);

impl ThreadNames {
    fn read(&mut self, processes: &[u32]) {
        let host = Host::live();
        for process in processes {
            let tasks = std::fs::read_dir(host.path(&format!("proc/{process}/task")));
            for task in tasks.into_iter().flatten().flatten() {
                let thread = task.file_name().to_str().and_then(|id| id.parse().ok());
                let name = host.text(&format!("proc/{process}/task/{}/comm", task.file_name().display()));
                if let (Some(thread), Some(name)) = (thread, name) {
                    self.0.insert(thread, name.trim_end().to_owned());
                }
            }
        }
    }

    fn label(&self, threads: Vec<(u32, TimeSplit)>) -> Vec<(String, TimeSplit)> {
        let name = |thread: u32| self.0.get(&thread).cloned().unwrap_or_else(|| "(ended)".to_owned());
        threads.into_iter().map(|(thread, split)| (name(thread), split)).collect()
    }
}
