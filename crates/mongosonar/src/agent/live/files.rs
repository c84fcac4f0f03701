//! Accesses to files, added up in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use sonar_core::history::Collector;
use sonar_core::{Endpoint, Timestamp};
use sonar_sys::ebpf::{KernelEvent, Trace, TraceMode, Tracer};

use super::board::{CollectorBoard, CollectorProblem, RESTART};
use super::watched::WatchedServers;
use crate::agent::file_work::{FileWork, add_work};
use crate::agent::parts::{WIDTH_NS, WindowCutter, WindowPart};
use crate::agent::servers::local;
use crate::files::finder::PathFinder;
use crate::files::paths::Paths;
use crate::files::process::{self, TracedProcesses};
use crate::files::totals::{FirstSeenFile, TotalsTable};
use crate::privileges;
use crate::queries::live::now;

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
    pub to: SyncSender<WindowPart>,
    /// The servers, by the folders of their data.
    pub servers: Arc<WatchedServers>,
    /// Where it reports how it is.
    pub board: Arc<CollectorBoard>,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
    /// Whether it drops its privileges once it traces.
    pub confined: bool,
}

/// Starts the thread, and waits until it traces.
///
/// # Errors
/// It cannot trace.
pub fn start(search: FileSearch, task: FilesTask) -> Result<JoinHandle<()>> {
    let (say, started) = channel();
    let run = move || {
        let trace = Trace {
            processes: &search.processes.running(),
            program: search.processes.program(),
            mode: TraceMode::Totals,
            way: None,
            pseudo: false,
        };
        let tracer = match Tracer::start(&trace) {
            Ok(tracer) => tracer,
            Err(error) => return drop(say.send(Err(process::refused(error)))),
        };
        if task.confined {
            privileges::give_up_while_tracing(|| tracer.is_readable());
        }
        drop(say.send(Ok(())));
        trace_files(&tracer, search, &task);
    };
    let builder = std::thread::Builder::new().name(Collector::Files.name().to_owned());
    let handle = builder.spawn(run).context("cannot start a thread")?;
    started.recv().map_err(|_| anyhow!("the thread that traces files has failed"))??;
    Ok(handle)
}

/// What is known from window to window.
struct FileTracing<'a> {
    files: TotalsTable,
    search: FileSearch,
    windows: WindowCutter,
    /// Until when accesses have been taken.
    taken: Timestamp,
    task: &'a FilesTask,
}

fn trace_files(tracer: &Tracer, search: FileSearch, task: &FilesTask) {
    let windows = WindowCutter::new(task.to.clone());
    let mut tracing = FileTracing { files: TotalsTable::default(), search, windows, taken: now(), task };
    let ended = tracer.run_with(
        &mut tracing,
        |tracing, event| tracing.event(tracer, event),
        |tracing| tracing.tick(tracer),
    );
    if let Err(error) = ended {
        // It needs privileges to trace again.
        let what = format!("cannot read the records of the kernel: {error}");
        tracing.fail(&CollectorProblem::permanent(what, Some(RESTART.to_owned())));
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
        let time = now();
        // The clock may have been set back.
        if stopped || time.floor_to(WIDTH_NS) != self.taken.floor_to(WIDTH_NS) {
            self.take(tracer, time);
        }
        !stopped && !self.windows.is_abandoned()
    }

    /// Takes what was done until `time`, which belongs to the window that has just ended.
    fn take(&mut self, tracer: &Tracer, time: Timestamp) {
        let from = std::mem::replace(&mut self.taken, time);
        let at = Timestamp::from_unix_ns(from.floor_to(WIDTH_NS).plus_ns(WIDTH_NS).min(time).unix_ns() - 1);
        let seconds = time.since(from) as f64 / 1e9;
        let totals = match self.files.take(tracer) {
            Ok(totals) => totals,
            Err(error) => return self.fail(&CollectorProblem::temporary(format!("{error:#}"))),
        };
        for file in totals {
            let usage =
                file.before.as_ref().map_or_else(|| file.now.clone(), |before| file.now.since(before));
            if !usage.is_idle() && seconds > 0.0 {
                let server = self.task.servers.of_file(&file.path).map_or(Endpoint::default(), local);
                add_work(&mut self.windows, (server, &file.path), &FileWork::of(&usage), (at, seconds));
            }
        }
        self.windows.observe(Collector::Files, from.max(at.floor_to(WIDTH_NS)), at);
        self.windows.advance(time);
        let lost = tracer.losses().iter().map(|(_, _, count)| count).sum();
        self.task.board.lost(Collector::Files, lost);
        self.task.board.ebpf(Collector::Files, tracer.run_time());
        if let Some(event) = self.task.board.data(Collector::Files, time) {
            self.windows.event(event);
        }
    }

    fn fail(&mut self, problem: &CollectorProblem) {
        if let Some(event) = self.task.board.failed(Collector::Files, now(), problem) {
            self.windows.event(event);
        }
    }
}
