//! `mongosonar why`: where the time of each query shape goes inside the server.
//!
//! Two sources see each operation: the wire, which knows its shape, and the thread that executes it, of which the
//! kernel knows where its time goes. They meet by connection and request id.

pub mod args;
mod in_progress;
mod open_files;
mod waits;

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sonar_core::time_split::{
    Activity, ConnectionSample, JoinedOperation, SplitJoiner, SplitResult, SplitTable, ThreadOperation,
    TimeSplit, WireOperation,
};
use sonar_core::window::WindowSettings;
use sonar_core::{Class, Operation, Outcome, Role, Timestamp};
use sonar_decode::{Settings, Shared};
use sonar_sys::split::{SplitEvent, SplitTracer};
use sonar_sys::{Host, PacketFilter, RingConfig};
use sonar_view::kit::{About, Fitting};
use sonar_view::why::{SplitCoverageJson, WhyReport, WhyTrace};

pub use self::args::WhyArgs;
use self::in_progress::{ThreadsNow, UnansweredRequests};
use self::open_files::OpenFiles;
use self::waits::WaitClassifier;
use crate::exit::OK;
use crate::files::names::FileNames;
use crate::files::process::refused;
use crate::outfile::OutFile;
use crate::queries::applications::{self, Lookup};
use crate::queries::args::{QueriesArgs, Range};
use crate::queries::live::capture::{CaptureTask, LiveCapture, RunningCapture, block_bytes};
use crate::queries::live::{OperationListener, RETIRE, ThreadWindow};
use crate::queries::notice::Notice;
use crate::queries::ports::Listened;
use crate::stop::{self, StopBehavior};
use crate::when::now;
use crate::{page, privileges, screen, servers};

/// Bytes of the ring of packets.
const RING_BYTES: usize = 32 << 20;
/// How long packets may take to arrive after the trace has ended.
const LATE: Duration = Duration::from_millis(600);

/// Runs the command; returns the exit code.
pub fn run(args: &WhyArgs) -> Result<u8> {
    // Without it, a server that keeps all processors busy leaves too little time for reading the rings.
    sonar_sys::resource::prefer_this_process().ok();
    let confined = !args.keep_privileges;
    let processes = processes(args)?;
    // It cannot be opened later.
    let html = args.html.as_deref().map(OutFile::open).transpose()?;
    // Before any thread is started.
    let files = OpenFiles::new(&processes, confined);
    let mut classifier = WaitClassifier::new(args, &processes)?;
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
    let tracer = SplitTracer::start(&processes, args.sample.unwrap_or_default()).map_err(refused)?;
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
    classifier.load();
    let state = Arc::new(Mutex::new(JoinState {
        joiner: SplitJoiner::default(),
        table: SplitTable::default(),
        activity: Activity::default(),
        asked: AskedOperations::from(args),
        ended: None,
        unanswered: UnansweredRequests::default(),
    }));
    let task = CaptureTask {
        settings: Settings { ports: listened.ports(), ..Settings::default() },
        shared,
        interval: Duration::from_secs(1),
        window: WindowSettings::default(),
        each: Some(Arc::new(Mutex::new(WireSide {
            state: state.clone(),
            sample: args.sample.unwrap_or_default(),
            pending: Vec::new(),
            unanswered: Vec::new(),
        }))),
        keep: None,
        say,
        stop: stop.flag().clone(),
        confined,
    };
    let (running, windows) = capture.start(&task)?;
    let mut trace = RunningTrace { running, windows, notices, packets_dropped: 0 };
    // What came while everything was opened.
    tracer.run(drop, || false).context("cannot read the records of the kernel")?;
    let (before, losses_before) = (thread_times(&tracer)?, tracer.losses());
    let (begun, started) = (Instant::now(), now());
    {
        let mut state = lock(&state);
        (state.joiner, state.activity) = (SplitJoiner::since(started), Activity::since(started));
    }
    eprintln!(
        "mongosonar: tracing process {} on {listened} for {:?}; Ctrl-C ends it earlier",
        list(&processes),
        args.duration
    );
    let mut ended = started;
    tracer
        .run(
            |event| match event {
                SplitEvent::Operation(operation) => lock(&state).thread(operation),
                SplitEvent::Wait(wait) => {
                    if let Some(class) = classifier.classify(&wait) {
                        lock(&state).table.waited(wait.operation, class);
                    }
                }
            },
            || {
                trace.take_windows();
                lock(&state).tick();
                ended = now();
                !stop.flag().load(Ordering::Relaxed) && begun.elapsed() < args.duration
            },
        )
        .context("cannot read the records of the kernel")?;
    {
        let mut state = lock(&state);
        state.joiner.traced_until(ended);
        state.ended = Some(ended);
    }
    let threads_now = ThreadsNow::look(&tracer, &mut classifier)?;
    let losses = tracer.losses().since(&losses_before);
    let threads = since(&before, &thread_times(&tracer)?);
    let paths = files.read();
    // The last packets are still in the ring.
    std::thread::sleep(LATE);
    stop.flag().store(true, Ordering::Relaxed);
    let packets_dropped = trace.finish()?;
    let state = std::mem::take(&mut *lock(&state));
    let mut unfinished =
        threads_now.unfinished(|operation| state.request_of(operation), args.sample.is_none());
    unfinished.retain(|one| one.wire.as_ref().map_or(!args.is_narrowed(), |wire| state.asked.has(wire)));
    let SplitResult { rows, blockers_turned_away, waits_turned_away } = state.table.finish();
    let coverage = SplitCoverageJson {
        foreign_replies: losses.foreign_replies,
        ring_full: losses.ring_full,
        threads_full: losses.threads_full,
        unreadable: losses.unreadable,
        programs_skipped: losses.programs_skipped,
        switches_missed: losses.switches_missed,
        blockers_turned_away,
        waits_without_class: losses.stacks_skipped + waits_turned_away,
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
        sample: args.sample.unwrap_or_default(),
        seconds: ended.since(started) as f64 / 1e9,
        processors: Host::live().processors().context("cannot read /proc/stat")?.count as usize,
        rows: &rows,
        activity: &state.activity.until(ended),
        ended,
        limit: args.limit,
        file_name: &|device, inode| {
            let path = paths.get(&(device, inode))?;
            Some(names.of(path).map_or_else(|| short(path), |held| held.label()))
        },
        thread_name: &|thread| thread_names.0.get(&thread).cloned(),
        threads: thread_names.label(threads),
        unfinished,
        coverage: coverage.with_counts(state.joiner.finish()),
    });
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        report.json(&mut out)?;
    } else {
        report.text(&mut Fitting::new(&mut out, screen::width()))?;
    }
    out.flush()?;
    if let Some(file) = html {
        file.write(|out| page::write(out, |out| report.json(out)))?;
    }
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
    activity: Activity,
    asked: AskedOperations,
    /// The end of the trace.
    ended: Option<Timestamp>,
    /// Requests that had no reply then.
    unanswered: UnansweredRequests,
}

impl JoinState {
    fn wire(&mut self, operation: WireOperation) {
        if self.ended.is_some_and(|ended| operation.end > ended) {
            self.unanswered.add(operation);
            return;
        }
        if let Some(joined) = self.joiner.wire(operation) {
            self.joined(&joined);
        }
    }

    fn thread(&mut self, operation: ThreadOperation) {
        if let Some(joined) = self.joiner.thread(operation) {
            self.joined(&joined);
        }
    }

    fn joined(&mut self, operation: &JoinedOperation) {
        if self.asked.has(&operation.wire) {
            self.table.add(operation);
            self.activity.add(operation);
        } else {
            self.table.pass(operation);
        }
    }

    /// The request of an operation that is still in progress.
    fn request_of(&self, operation: &ThreadOperation) -> Option<WireOperation> {
        self.unanswered.of(operation).or_else(|| self.joiner.pending(operation)).cloned()
    }

    fn tick(&mut self) {
        self.joiner.expire(now());
        self.table.resolve();
    }
}

/// Passes the operations of a batch of packets on at once.
struct WireSide {
    state: Arc<Mutex<JoinState>>,
    /// Connections that are followed.
    sample: ConnectionSample,
    pending: Vec<WireOperation>,
    unanswered: Vec<WireOperation>,
}

impl OperationListener for WireSide {
    fn operation(&mut self, op: &Operation<'_>) -> io::Result<()> {
        if op.role == Role::Served && self.sample.has(op.client) {
            let requests = match op.outcome {
                Outcome::InFlight => &mut self.unanswered,
                _ => &mut self.pending,
            };
            requests.push(op.into());
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut state = lock(&self.state);
        self.pending.drain(..).for_each(|operation| state.wire(operation));
        self.unanswered.drain(..).for_each(|request| state.unanswered.add(request));
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

/// Which operations are counted.
#[derive(Default)]
struct AskedOperations {
    all: bool,
    shape: Option<String>,
    namespace: Option<String>,
    app: Option<String>,
}

impl AskedOperations {
    fn has(&self, operation: &WireOperation) -> bool {
        let shape = &operation.shape;
        let in_namespace = |asked: &String| *shape.database == **asked || shape.namespace() == *asked;
        (self.all || operation.class == Class::User)
            && self.shape.as_ref().is_none_or(|id| shape.id.to_string().starts_with(id.as_str()))
            && self.namespace.as_ref().is_none_or(in_namespace)
            && self.app.as_ref().is_none_or(|app| *operation.app.name == **app)
    }
}

impl From<&WhyArgs> for AskedOperations {
    fn from(args: &WhyArgs) -> Self {
        let WhyArgs { all, shape, namespace, app, .. } = args.clone();
        Self { all, shape, namespace, app }
    }
}

/// What each thread did outside operations so far.
fn thread_times(tracer: &SplitTracer) -> Result<HashMap<u32, TimeSplit>> {
    let threads = tracer.threads().context("cannot read the times of threads")?;
    Ok(threads.into_iter().map(|thread| (thread.thread, thread.split)).collect())
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
