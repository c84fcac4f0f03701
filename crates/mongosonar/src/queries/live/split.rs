//! Traces the threads of the servers while packets are captured, for `--split`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use sonar_core::Window;
use sonar_core::table::GroupBy;
use sonar_core::time_split::{ConnectionSample, JoinCounts};
use sonar_sys::Host;
use sonar_sys::split::MAX_PROCESSES;

use crate::args::when::now;
use crate::capture::OperationListener;
use crate::capture::notice::Notice;
use crate::capture::splitting::{OperationMatcher, SplitTrace, WindowSplits, WireSide};
use crate::confinement::start_order::{StartStep, start_thread};
use crate::locking::lock;
use crate::servers;
use crate::servers::file_names::FileNames;

/// Ticks, ten in a second, between two looks for servers that have started or ended.
const SEARCH_TICKS: u64 = 20;
/// The least time between two looks at what threads do now, in nanoseconds; a little less than a second, since ticks
/// are not exact.
const LOOK_NS: u64 = 800_000_000;

/// How the threads are traced.
pub struct RowSplitTask {
    /// The length of a window.
    pub interval: Duration,
    /// What rows of windows are.
    pub by: GroupBy,
    /// The connections that are followed.
    pub sample: ConnectionSample,
    /// What the files of the server hold.
    pub names: FileNames,
    /// Servers that start later are followed too.
    pub follows: bool,
    /// Where it says what it cannot read.
    pub notices_to: Sender<Notice>,
}

/// A trace that runs in its own thread.
pub struct RunningSplits {
    matcher: Arc<Mutex<OperationMatcher<WindowSplits>>>,
    sample: ConnectionSample,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    /// What did and did not meet, as far as windows have it.
    counted: Cell<JoinCounts>,
}

impl RunningSplits {
    /// Starts the thread. Call it after privileges were dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(trace: SplitTrace, task: RowSplitTask) -> Result<Self> {
        let splits = WindowSplits::new(task.interval.as_nanos() as u64, task.by);
        let matcher = Arc::new(Mutex::new(OperationMatcher::new(splits)));
        let stop = Arc::new(AtomicBool::new(false));
        let sample = task.sample;
        let run = {
            let (matcher, stop) = (matcher.clone(), stop.clone());
            move || follow(&trace, &matcher, &task, &stop)
        };
        let thread = start_thread(StartStep::Thread, "splits", run)?;
        Ok(Self { matcher, sample, stop, thread: Some(thread), counted: Cell::default() })
    }

    /// Takes the operations of the capture.
    pub fn listener(&self) -> Arc<Mutex<dyn OperationListener>> {
        Arc::new(Mutex::new(WireSide::new(self.matcher.clone(), self.sample)))
    }

    /// Whether what the threads did until the end of this window was read.
    pub fn has_read(&self, window: &Window) -> bool {
        self.thread.is_none() || lock(&self.matcher).sink.is_read_until(window.end)
    }

    /// Adds to a window where the time of its operations went.
    pub fn complete(&self, window: &mut Window) {
        let mut matcher = lock(&self.matcher);
        matcher.sink.complete(window);
        self.count(matcher.settled_counts(), window);
    }

    /// Counts in the last window what will not meet any more.
    pub fn complete_last(&self, window: &mut Window) {
        self.count(lock(&self.matcher).counts(), window);
    }

    fn count(&self, counts: JoinCounts, window: &mut Window) {
        let before = self.counted.replace(counts);
        let coverage = &mut window.coverage;
        let undivided = |counts: JoinCounts| counts.pipelined + counts.answered_elsewhere;
        coverage.splits_without_wire += counts.without_wire - before.without_wire;
        coverage.splits_without_thread += counts.without_thread - before.without_thread;
        coverage.splits_undivided += undivided(counts) - undivided(before);
        coverage.splits_continued += counts.continued - before.continued;
    }

    /// Ends the trace, which reports what it has until now.
    ///
    /// # Errors
    /// It has failed.
    pub fn finish(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let outcome = thread.join().map_err(|_| anyhow!("the thread of the trace has failed"))?;
        lock(&self.matcher).end(now());
        outcome
    }
}

fn follow(
    trace: &SplitTrace,
    matcher: &Mutex<OperationMatcher<WindowSplits>>,
    task: &RowSplitTask,
    stop: &AtomicBool,
) -> Result<()> {
    // Nobody may listen any more.
    let complain = |what| drop(task.notices_to.send(Notice::Complaint(what)));
    trace.load_symbols();
    trace.skip()?;
    lock(matcher).begin();
    let mut ticks = 0_u64;
    let mut looked = now();
    let interval_ns = task.interval.as_nanos() as u64;
    let outcome = trace.run(matcher, || {
        trace.take_notices().into_iter().for_each(complain);
        let time = now();
        let is_over = stop.load(Ordering::Relaxed);
        let begun = time.floor_to(interval_ns);
        if is_over || (begun > looked && time.since(looked) >= LOOK_NS) || time < looked {
            looked = time;
            // Without it, all else is known still.
            let activities = trace.now_if_long().unwrap_or_default();
            lock(matcher).sink.note_activities(activities.as_ref());
        }
        lock(matcher).sink.note_read_until(time);
        lock(matcher).sink.lost(&trace.take_losses());
        let read = Instant::now();
        if lock(matcher).sink.labels.are_due(read) {
            let files = trace.files().into_iter();
            let labels = files.map(|(file, path)| (file, task.names.short(&path).into()));
            lock(matcher).sink.labels.set(read, labels);
        }
        if task.follows && ticks.is_multiple_of(SEARCH_TICKS) {
            trace.follow(&servers::in_order_of_places(servers::mongodb(&Host::live()), MAX_PROCESSES));
        }
        ticks += 1;
        !is_over
    });
    trace.take_notices().into_iter().chain(trace.further_failures()).for_each(complain);
    outcome
}
