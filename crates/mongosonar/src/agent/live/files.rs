//! Accesses to files, added up in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::history::CollectorKind;
use sonar_core::observation::{WIDTH_NS, WindowCutter};
use sonar_core::{Endpoint, Timestamp};
use sonar_sys::ebpf::{KernelEvent, MAX_PROCESSES, TotalsRoom, Trace, TraceError, TraceMode, Tracer};

use super::backoff::Backoff;
use super::board::{CollectorBoard, CollectorProblem, RESTART};
use super::clock_reading::ClockReading;
use super::watched::WatchedServers;
use crate::agent::file_work::{FileWork, WorkTime};
use crate::agent::memory::Holder;
use crate::agent::part_channel::PartSender;
use crate::agent::servers::local;
use crate::args::when::now;
use crate::io::finder::PathFinder;
use crate::io::paths::Paths;
use crate::io::process::TracedProcesses;
use crate::io::totals::{FirstSeenFile, TotalsTable};
use crate::servers::not_traced;
use crate::{confinement::privileges, confinement::start_gate::StartGate, doctor};

/// Attempts to load the programs: the last one is two minutes after the first. Each takes a second of a processor.
const ATTEMPTS: u32 = 8;
/// How often a waiting thread checks whether to stop.
const NAP: Duration = Duration::from_millis(200);

/// What finds processes and paths. It has helper processes, so it is made before any thread is started.
pub struct FileSearch {
    processes: TracedProcesses,
    places: PathFinder,
}

impl FileSearch {
    /// For every mongod of this host.
    pub fn new(confined: bool) -> Self {
        let mut processes = TracedProcesses::all();
        let places = PathFinder::new(Paths::new(None, &processes.running()), confined);
        if confined {
            processes.search_in_helper();
        }
        Self { processes, places }
    }
}

/// What the thread shares with the others.
pub struct FilesTask {
    /// Where its windows go.
    pub to: PartSender,
    /// The servers, by the folders of their data.
    pub servers: Arc<WatchedServers>,
    /// Where it reports its state.
    pub board: Arc<CollectorBoard>,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
    /// Whether it drops its privileges once it traces.
    pub confined: bool,
    /// Open once the others have dropped theirs: it reads nothing before.
    pub gate: StartGate,
}

/// Starts the thread, and waits for its first attempt to trace. `None` if it has ended, because further ones would be
/// useless; it has reported why.
///
/// # Errors
/// No thread can be started.
pub fn start(search: FileSearch, task: FilesTask) -> Result<Option<JoinHandle<()>>> {
    let (say, tried) = channel();
    let run = move || {
        let Some(tracer) = begin(&search, &task, &say) else { return };
        if task.confined {
            privileges::give_up_while_tracing(|| tracer.is_readable());
        }
        say.send(true).ok();
        // Names of files are what others have chosen.
        task.gate.wait();
        trace_files(&tracer, search, &task);
    };
    let builder = std::thread::Builder::new().name(CollectorKind::Files.name().to_owned());
    let handle = builder.spawn(run).context("cannot start a thread")?;
    // It ends without a word only if it panics.
    Ok(tried.recv().unwrap_or(false).then_some(handle))
}

/// Loads the programs, again and again where that may succeed later. `say` gets `true` once it waits for that; `None` if
/// it gives up, or the task is stopped.
fn begin(search: &FileSearch, task: &FilesTask, say: &Sender<bool>) -> Option<Tracer> {
    let mut backoff = Backoff::default();
    for attempt in 1.. {
        let trace = Trace {
            processes: &search.processes.running(),
            program: search.processes.program(),
            mode: TraceMode::Totals(TotalsRoom::AGENT),
            way: None,
            pseudo: false,
        };
        let error = match Tracer::start(&trace) {
            Ok(tracer) => return Some(tracer),
            Err(error) => error,
        };
        let problem = problem(error, attempt >= ATTEMPTS);
        if let Some(event) = task.board.failed(CollectorKind::Files, now(), &problem) {
            let mut windows = task.to.cutter();
            windows.event(event);
            windows.finish();
        }
        if problem.is_permanent {
            return None;
        }
        if attempt == 1 {
            if task.confined {
                privileges::keep_for_tracing();
            }
            say.send(true).ok();
        }
        backoff.failed(Instant::now());
        while !backoff.is_due(Instant::now()) {
            if task.stop.load(Ordering::Relaxed) {
                return None;
            }
            std::thread::sleep(NAP);
        }
    }
    None
}

/// Why nothing can be traced: for good if somebody has to do something first, or after the last attempt.
fn problem(error: TraceError, is_last: bool) -> CollectorProblem {
    match error {
        TraceError::Permission(_) => {
            let fix = doctor::remedy(CollectorKind::Files).map(|fix| format!("{fix}, then {RESTART}"));
            CollectorProblem::permanent(error.to_string(), Some(fix.unwrap_or_else(|| RESTART.to_owned())))
        }
        TraceError::NoBtf => CollectorProblem::permanent(error.to_string(), None),
        TraceError::Load(_) | TraceError::Attach { .. } if is_last => {
            let what = format!("{error} (after {ATTEMPTS} attempts)");
            CollectorProblem::permanent(what, Some(RESTART.to_owned()))
        }
        TraceError::Load(_) | TraceError::Attach { .. } => {
            CollectorProblem::temporary(format!("{error}; it is tried again"))
        }
    }
}

/// State that outlives a window.
struct FileTracing<'a> {
    files: TotalsTable,
    search: FileSearch,
    windows: WindowCutter,
    /// Until when accesses have been taken.
    taken: ClockReading,
    /// The start of the window that is open.
    open: Timestamp,
    task: &'a FilesTask,
}

fn trace_files(tracer: &Tracer, mut search: FileSearch, task: &FilesTask) {
    search.processes.note_refused(tracer.refused());
    let windows = task.to.cutter();
    let (files, taken) = (TotalsTable::new(TotalsRoom::AGENT), ClockReading::now());
    let open = taken.time.floor_to(WIDTH_NS);
    let mut tracing = FileTracing { files, search, windows, taken, open, task };
    let ended = tracer.run_with(
        &mut tracing,
        |tracing, event| tracing.event(tracer, event),
        |tracing| tracing.tick(tracer),
    );
    match ended {
        // Only now all records are read: a file whose record was still in the ring has figures, but no name.
        Ok(()) => tracing.take(tracer, ClockReading::now()),
        Err(error) => {
            // It needs privileges to trace again.
            let what = format!("cannot read the records of the kernel: {error}");
            tracing.fail(&CollectorProblem::permanent(what, Some(RESTART.to_owned())));
        }
    }
    tracing.windows.finish();
}

impl FileTracing<'_> {
    fn event(&mut self, tracer: &Tracer, event: KernelEvent<'_>) {
        match event {
            KernelEvent::File { file, key, process, fd, name, pseudo } => {
                let new = FirstSeenFile { file, key, opened: (process, fd), name, pseudo };
                self.files.add(tracer, &mut self.search.places, &new);
            }
            KernelEvent::Process { process, change } => {
                // The status lists the servers.
                self.search.processes.event(process, change);
            }
            _ => {}
        }
    }

    /// Takes what is due; whether to go on.
    fn tick(&mut self, tracer: &Tracer) -> bool {
        self.search.processes.look(tracer);
        self.files.release(tracer);
        let stopped = self.task.stop.load(Ordering::Relaxed);
        let reading = ClockReading::now();
        // The clock may have been set back.
        if !stopped && reading.time.floor_to(WIDTH_NS) != self.open {
            self.take(tracer, reading);
        }
        !stopped && !self.windows.is_abandoned()
    }

    /// Takes what was done until now, which belongs to the window that has just ended.
    fn take(&mut self, tracer: &Tracer, reading: ClockReading) {
        let time = reading.time;
        let end = self.open.plus_ns(WIDTH_NS);
        self.open = time.floor_to(WIDTH_NS);
        let before = std::mem::replace(&mut self.taken, reading);
        let observed = reading.since(&before);
        let (from, seconds) = (before.time, observed.elapsed.as_secs_f64());
        let at = Timestamp::from_unix_ns(observed.to.min(end).unix_ns() - 1);
        let Self { files, windows, task, .. } = self;
        let taken = files.take(tracer, |file| {
            let usage =
                file.before.as_ref().map_or_else(|| file.now.clone(), |before| file.now.since(before));
            if !usage.is_idle() && seconds > 0.0 {
                let server = task.servers.of_file(&file.path).map_or(Endpoint::default(), local);
                WorkTime { at, seconds }.add(windows, server, &file.path, &FileWork::of(&usage));
            }
        });
        task.board.held.set(Holder::Files, files.memory());
        if let Err(error) = taken {
            return self.fail(&CollectorProblem::temporary(format!("{error:#}")));
        }
        self.windows.observe(CollectorKind::Files, from, at);
        self.windows.advance(time);
        self.windows.release_ahead(time);
        let lost = tracer.losses().iter().map(|(_, _, count)| count).sum();
        self.task.board.lost(CollectorKind::Files, lost);
        self.task.board.ebpf(CollectorKind::Files, tracer.run_time());
        let refused = self.search.processes.refused();
        let notes = (refused > 0).then(|| not_traced(refused, MAX_PROCESSES)).into_iter().collect();
        self.task.board.notes(CollectorKind::Files, notes);
        if let Some(event) = self.task.board.data(CollectorKind::Files, time) {
            self.windows.event(event);
        }
    }

    fn fail(&mut self, problem: &CollectorProblem) {
        if let Some(event) = self.task.board.failed(CollectorKind::Files, now(), problem) {
            self.windows.event(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again_and_anything_else_names_its_fix() {
        let busy = || TraceError::Load("out of memory".to_owned());
        let first = problem(busy(), false);
        assert!(!first.is_permanent && first.text().ends_with("it is tried again"), "{first:?}");
        let last = problem(busy(), true);
        assert!(last.is_permanent && last.text().ends_with(&format!("fix: {RESTART}")), "{last:?}");
        let denied = problem(TraceError::Permission("EPERM".to_owned()), false);
        assert!(denied.is_permanent && denied.text().ends_with(RESTART), "{denied:?}");
        assert!(problem(TraceError::NoBtf, false).is_permanent);
    }
}
