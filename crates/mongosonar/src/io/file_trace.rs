//! Opens the trace of accesses to files: what finds processes and paths, and then the programs in the kernel.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_sys::ebpf::{AttachMode, Trace, TraceError, TraceMode, Tracer};

use super::args::{FileTraceArgs, TracedFilesArgs};
use super::finder::PathFinder;
use super::paths::Paths;
use super::process::{self, TracedProcesses};
use crate::args::connection::ServerArgs;
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;
use crate::confinement::start_order::{self, StartStep};
use crate::servers::file_names::FileNamesQuestion;
use crate::servers::tracing::{refused, warn_of_process_namespace};
use crate::stop::{self, StopBehavior};

/// What finds processes and the paths of their files.
pub struct FileSearch {
    /// The processes that are traced.
    pub processes: TracedProcesses,
    /// Where their files are.
    pub places: PathFinder,
}

impl FileSearch {
    /// For these processes. If this process gives up its privileges (`confined`), helpers search: call it before any thread
    /// is started.
    pub fn new(mut processes: TracedProcesses, confined: bool) -> Self {
        let paths = Paths::new(processes.folder().cloned(), &processes.running());
        let places = PathFinder::new(paths, confined);
        if confined {
            processes.search_in_helper();
        }
        Self { processes, places }
    }

    /// Loads and attaches the programs for what runs now; see [`Trace`].
    ///
    /// # Errors
    /// As [`Tracer::start`].
    pub fn start(
        &self,
        mode: TraceMode,
        way: Option<AttachMode>,
        pseudo: bool,
    ) -> Result<Tracer, TraceError> {
        let processes = &self.processes.running();
        Tracer::start(&Trace { processes, program: self.processes.program(), mode, way, pseudo })
    }
}

/// The trace of a command, with all that is prepared before privileges are dropped.
pub struct FileTrace {
    pub search: FileSearch,
    /// The programs, which are attached.
    pub tracer: Tracer,
    /// Asks the server for the names of its files, once the trace has begun.
    pub names: FileNamesQuestion,
    gate: StartGate,
    confined: bool,
    /// Why processes are not followed, a line each.
    refused: Vec<String>,
}

impl FileTrace {
    /// Opens it. Call it before any thread is started.
    ///
    /// # Errors
    /// There is no such process, or none, or the server is named wrongly. As [`Tracer::start`], with what helps.
    pub fn open(
        files: &TracedFilesArgs,
        server: &ServerArgs,
        args: &FileTraceArgs,
        mode: TraceMode,
    ) -> Result<Self> {
        let confined = args.privileges.are_dropped();
        let named = process::named(&files.pid, server)?;
        // Before the driver starts threads.
        let mut search = FileSearch::new(TracedProcesses::new(&named, files.dbpath.as_deref())?, confined);
        let gate = StartGate::default();
        let names = FileNamesQuestion::to(server.named()?, confined, &gate)?;
        warn_of_process_namespace();
        start_order::take(StartStep::Opened);
        let tracer = search.start(mode, args.way.map(Into::into), args.pseudo_filesystems);
        let tracer = tracer.map_err(refused)?;
        let refused = search.processes.note_refused(tracer.refused());
        Ok(Self { search, tracer, names, gate, confined, refused })
    }

    /// Begins: listens for signals, gives up privileges, and then prints this line and what is wrong with processes, when
    /// Ctrl-C can end it. Returns what says that it is to stop.
    ///
    /// # Errors
    /// As [`stop::listen`].
    pub fn begin(&self, line: String) -> Result<Arc<AtomicBool>> {
        // Read while there are privileges.
        let obstacle = self.search.processes.obstacle();
        let drop_all = || privileges::drop_privileges_while_tracing(|| self.tracer.is_readable());
        let stop = stop::listen_confined(StopBehavior::Summary, || {
            start_order::drop_privileges(self.confined, drop_all)
        })?;
        for line in [line].iter().chain(&obstacle).chain(&self.refused) {
            eprintln!("mongosonar: {line}");
        }
        self.gate.open();
        Ok(stop.flag().clone())
    }
}
