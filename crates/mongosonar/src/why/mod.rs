//! `mongosonar why`: where the time of each query shape goes inside the server.
//!
//! Two sources see each operation: the wire, which knows its shape, and the thread that executes it, of which the
//! kernel knows where its time goes. They meet by connection and request id.

pub mod args;
mod open_files;

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sonar_core::time_split::{
    ShapeSplit, SplitJoiner, SplitTable, ThreadOperation, TimeSplit, WireOperation,
};
use sonar_core::window::WindowSettings;
use sonar_core::{Class, Operation, Role};
use sonar_decode::{Settings, Shared};
use sonar_sys::split::SplitTracer;
use sonar_sys::{Host, PacketFilter, RingConfig};
use sonar_view::kit::{About, Fitting};
use sonar_view::why::{SplitCoverageJson, WhyReport, WhyTrace};

pub use self::args::WhyArgs;
use self::open_files::OpenFiles;
use crate::exit::OK;
use crate::files::names::FileNames;
use crate::files::process::refused;
use crate::queries::applications::{self, Lookup};
use crate::queries::args::{QueriesArgs, Range};
use crate::queries::live::capture::{CaptureTask, LiveCapture, RunningCapture, block_bytes};
use crate::queries::live::{OperationListener, RETIRE, ThreadWindow};
use crate::queries::notice::Notice;
use crate::queries::ports::Listened;
use crate::stop::{self, StopBehavior};
use crate::when::now;
use crate::{privileges, screen, servers};

/// Bytes of the ring of packets.
const RING_BYTES: usize = 32 << 20;
/// How long packets may take to arrive after the trace has ended.
const LATE: Duration = Duration::from_millis(600);

/// Runs the command; returns the exit code.
pub fn run(args: &WhyArgs) -> Result<u8> {
    let confined = !args.keep_privileges;
    let processes = processes(args)?;
    // Before any thread is started.
    let files = OpenFiles::new(&processes, confined);
    let only_port = match args.port.as_slice() {
        [Range(first, last)] if first == last => Some(*first),
        _ => None,
    };
    let target = args.server.named(only_port)?;
    let listened = Listened::choose(&args.port, &Host::live());
    let config = RingConfig {
        filter: PacketFilter { ports: listened.ranges(), ..PacketFilter::default() },
        size_bytes: RING_BYTES,
        block_bytes: block_bytes(RING_BYTES),
        retire: RETIRE,
        ..RingConfig::default()
    };
    let capture = LiveCapture::open(&config, 1)?;
    let tracer = SplitTracer::start(&processes).map_err(refused)?;
    let names = FileNames::ask_target(target.clone())?;
    let shared = Arc::new(Shared::default());
    let (say, notices) = channel();
    let complaints = say.clone();
    let lookup_args = QueriesArgs { keep_privileges: args.keep_privileges, ..QueriesArgs::default() };
    let lookup = Lookup::open(&lookup_args, &Host::live())?.with_server(target);
    let known = lookup.start(shared.clone(), move |what| drop(complaints.send(Notice::Complaint(what))))?;
    let stop = stop::listen_confined(StopBehavior::Prompt, || {
        if confined {
            privileges::give_up_while_tracing(|| tracer.is_readable());
        }
    })?;
    known.recv_timeout(applications::PATIENCE).ok();
    let state =
        Arc::new(Mutex::new(JoinState { joiner: SplitJoiner::since(now()), table: SplitTable::default() }));
    let task = CaptureTask {
        settings: Settings { ports: listened.ports(), ..Settings::default() },
        shared,
        interval: Duration::from_secs(1),
        window: WindowSettings::default(),
        each: Some(Arc::new(Mutex::new(WireSide { state: state.clone(), pending: Vec::new() }))),
        keep: None,
        say,
        stop: stop.flag().clone(),
        confined,
    };
    let (running, windows) = capture.start(&task)?;
    eprintln!(
        "mongosonar: tracing process {} on {listened} for {:?}; Ctrl-C ends it earlier",
        list(&processes),
        args.duration
    );
    let mut trace = RunningTrace { running, windows, notices, packets_dropped: 0 };
    let before = thread_times(&tracer);
    let (begun, started) = (Instant::now(), now());
    tracer
        .run(
            |operation| lock(&state).thread(operation),
            || {
                trace.take_windows();
                lock(&state).tick();
                !stop.flag().load(Ordering::Relaxed) && begun.elapsed() < args.duration
            },
        )
        .context("cannot read the records of the kernel")?;
    let (elapsed, ended) = (begun.elapsed(), now());
    lock(&state).joiner.traced_until(ended);
    let losses = tracer.losses();
    let threads = since(&before, &thread_times(&tracer));
    let paths = files.read();
    // The last packets are still in the ring.
    std::thread::sleep(LATE);
    stop.flag().store(true, Ordering::Relaxed);
    let packets_dropped = trace.finish()?;
    let state = std::mem::take(&mut *lock(&state));
    let (rows, blockers_turned_away) = state.table.finish(ended);
    let rows = asked(rows, args);
    let coverage = SplitCoverageJson {
        foreign_replies: losses.foreign_replies,
        ring_full: losses.ring_full,
        threads_full: losses.threads_full,
        unreadable: losses.unreadable,
        programs_skipped: losses.programs_skipped,
        blockers_turned_away,
        packets_dropped,
        ..SplitCoverageJson::default()
    };
    let thread_names = ThreadNames::read(&processes);
    let report = WhyReport::new(&WhyTrace {
        about: About::new(
            Host::live().name(),
            vec![listened.to_string()],
            Some((started.unix_ns(), ended.unix_ns())),
        ),
        processes,
        seconds: elapsed.as_secs_f64(),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        rows: &rows,
        limit: args.limit,
        file_name: &|device, inode| {
            let path = paths.get(&(device, inode))?;
            Some(names.of(path).map_or_else(|| short(path), |held| held.label()))
        },
        thread_name: &|thread| thread_names.0.get(&thread).cloned(),
        threads: thread_names.label(threads),
        coverage: coverage.with_counts(state.joiner.finish()),
    });
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        report.json(&mut out)?;
    } else {
        report.text(&mut Fitting::new(&mut out, screen::width()))?;
    }
    out.flush()?;
    Ok(OK)
}

/// The processes to trace.
fn processes(args: &WhyArgs) -> Result<Vec<u32>> {
    let host = Host::live();
    if let Some(none) = args.pid.iter().find(|process| host.stat(**process).is_none()) {
        bail!("there is no process {none}");
    }
    if !args.pid.is_empty() {
        return Ok(args.pid.clone());
    }
    let found: Vec<u32> = servers::mongodb(&host).iter().map(|process| process.pid).collect();
    if found.is_empty() {
        bail!("no mongod or mongos runs here: name a process with --pid");
    }
    Ok(found)
}

fn list(processes: &[u32]) -> String {
    processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The last part of a path.
fn short(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn lock<T>(state: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both sides meet here.
#[derive(Default)]
struct JoinState {
    joiner: SplitJoiner,
    table: SplitTable,
}

impl JoinState {
    fn wire(&mut self, operation: WireOperation) {
        if let Some(joined) = self.joiner.wire(operation) {
            self.table.add(&joined);
        }
    }

    fn thread(&mut self, operation: ThreadOperation) {
        if let Some(joined) = self.joiner.thread(operation) {
            self.table.add(&joined);
        }
    }

    fn tick(&mut self) {
        let now = now();
        self.joiner.expire(now);
        self.table.resolve(now);
    }
}

/// Passes the operations of a batch of packets on at once.
struct WireSide {
    state: Arc<Mutex<JoinState>>,
    pending: Vec<WireOperation>,
}

impl OperationListener for WireSide {
    fn operation(&mut self, op: &Operation<'_>) -> io::Result<()> {
        if op.role == Role::Served {
            self.pending.push(op.into());
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut state = lock(&self.state);
        self.pending.drain(..).for_each(|operation| state.wire(operation));
        Ok(())
    }
}

/// The capture while the threads are traced.
struct RunningTrace {
    running: RunningCapture,
    windows: Receiver<ThreadWindow>,
    notices: Receiver<Notice>,
    packets_dropped: u64,
}

impl RunningTrace {
    fn take_windows(&mut self) {
        for window in self.windows.try_iter() {
            self.packets_dropped += window.window.coverage.kernel_drops;
        }
        for notice in self.notices.try_iter() {
            if let Notice::Complaint(what) = notice {
                eprintln!("mongosonar: {what}");
            }
        }
    }

    /// Ends the capture; returns how many packets were dropped.
    fn finish(mut self) -> Result<u64> {
        self.running.wake();
        // The thread hands its last window over before it ends.
        for window in self.windows.iter() {
            self.packets_dropped += window.window.coverage.kernel_drops;
        }
        self.running.join()?;
        Ok(self.packets_dropped)
    }
}

/// The rows that were asked for.
fn asked(rows: Vec<ShapeSplit>, args: &WhyArgs) -> Vec<ShapeSplit> {
    let is_asked = |row: &ShapeSplit| {
        let namespace = row.shape.namespace();
        let in_database = |asked: &str| namespace == asked || *row.shape.database == *asked;
        (args.all || row.class == Class::User)
            && args.shape.as_ref().is_none_or(|id| row.shape.id.to_string().starts_with(id.as_str()))
            && args.namespace.as_deref().is_none_or(in_database)
            && args.app.as_ref().is_none_or(|app| row.apps.contains_key(app))
    };
    rows.into_iter().filter(is_asked).collect()
}

fn thread_times(tracer: &SplitTracer) -> HashMap<u32, TimeSplit> {
    let threads = tracer.threads().unwrap_or_default();
    threads.into_iter().map(|thread| (thread.thread, thread.split)).collect()
}

/// What each thread did since.
fn since(before: &HashMap<u32, TimeSplit>, after: &HashMap<u32, TimeSplit>) -> Vec<(u32, TimeSplit)> {
    let before = |thread: &u32| before.get(thread).copied().unwrap_or_default();
    after.iter().map(|(thread, split)| (*thread, split.since(&before(thread)))).collect()
}

/// Names of threads that run now.
struct ThreadNames(HashMap<u32, String>);

impl ThreadNames {
    fn read(processes: &[u32]) -> Self {
        let host = Host::live();
        let mut names = HashMap::new();
        for process in processes {
            let tasks = std::fs::read_dir(host.path(&format!("proc/{process}/task")));
            for task in tasks.into_iter().flatten().flatten() {
                let thread = task.file_name().to_str().and_then(|id| id.parse().ok());
                let name = host.text(&format!("proc/{process}/task/{}/comm", task.file_name().display()));
                if let (Some(thread), Some(name)) = (thread, name) {
                    names.insert(thread, name.trim_end().to_owned());
                }
            }
        }
        Self(names)
    }

    fn label(&self, threads: Vec<(u32, TimeSplit)>) -> Vec<(String, TimeSplit)> {
        let name = |thread: u32| self.0.get(&thread).cloned().unwrap_or_else(|| "(ended)".to_owned());
        threads.into_iter().map(|(thread, split)| (name(thread), split)).collect()
    }
}
