//! The trace of the threads, with what names the files and the waits in it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::time_split::ConnectionSample;
use sonar_core::words::plural;
use sonar_sys::ebpf::TraceError;
use sonar_sys::split::{MAX_PROCESSES, SplitEvent, SplitLosses, SplitTracer, ThreadTime};

use super::in_progress::ThreadsNow;
use super::meeting::{SplitMeeting, SplitSink, lock};
use super::open_files::{FileId, OpenFiles};
use super::plan::{EncryptedSplit, SplitPlan};
use super::waits::WaitClassifier;
use crate::files::process::refused;
use crate::privileges;
use crate::queries::live::tls::TlsLibrary;

const UNREADABLE: &str = "cannot read the records of the kernel";

/// The helper processes of a trace. They keep the privileges that it drops.
pub struct SplitHelpers {
    processes: Vec<u32>,
    files: OpenFiles,
    classifier: WaitClassifier,
    plan: SplitPlan,
}

impl SplitHelpers {
    /// Starts them for these processes, with rules for wait classes from the file `classes`. Call it before any thread
    /// is started.
    ///
    /// # Errors
    /// The file of classes is wrong, or a helper cannot be started.
    pub fn start(processes: Vec<u32>, classes: Option<&Path>, plan: SplitPlan) -> Result<Self> {
        let files = OpenFiles::new(plan.confined, plan.files);
        let classifier = WaitClassifier::new(classes, &processes, plan)?;
        Ok(Self { processes, files, classifier, plan })
    }

    /// Begins to trace the threads, for these connections.
    ///
    /// # Errors
    /// The kernel, or a missing privilege.
    pub fn trace(self, connections: ConnectionSample) -> Result<SplitTrace> {
        let Self { processes, files, classifier, plan } = self;
        let encrypted = plan.encrypted;
        let mut tracer = SplitTracer::start(&processes, connections, plan.room).map_err(refused)?;
        if encrypted != EncryptedSplit::Off {
            for process in &processes {
                if let Err(error) = attach_tls(&mut tracer, *process, encrypted) {
                    eprintln!(
                        "mongosonar: the time of encrypted operations of process {process} cannot be divided: {error:#}"
                    );
                }
            }
        }
        Ok(SplitTrace {
            tracer,
            files,
            classifier: RefCell::new(classifier),
            processes: RefCell::new(processes),
            losses: Cell::default(),
            refused: RefCell::default(),
        })
    }
}

/// Attaches to the TLS library of a process, if it has one.
fn attach_tls(tracer: &mut SplitTracer, process: u32, encrypted: EncryptedSplit) -> Result<()> {
    let Some(library) = TlsLibrary::of(process) else { return Ok(()) };
    let sites = library.sites(encrypted == EncryptedSplit::AnyCost)?;
    Ok(tracer.attach_tls(&library.file, &sites)?)
}

/// The threads of some servers, traced until this is dropped.
pub struct SplitTrace {
    tracer: SplitTracer,
    files: OpenFiles,
    classifier: RefCell<WaitClassifier>,
    processes: RefCell<Vec<u32>>,
    /// As they were when they were last taken.
    losses: Cell<SplitLosses>,
    refused: RefCell<RefusedServers>,
}

/// Servers that cannot be traced.
#[derive(Debug, Default)]
struct RefusedServers {
    /// Their number when they were last looked at.
    count: usize,
    /// A sentence that was not shown yet.
    notice: Option<String>,
}

impl RefusedServers {
    /// Number of servers that cannot be traced now, and the reason for the last one. Reported when the number grows.
    fn note(&mut self, count: usize, why: Option<&TraceError>) {
        if count > self.count {
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            self.notice = Some(format!("{}{why}", refused_text(count)));
        }
        self.count = count;
    }
}

fn refused_text(count: usize) -> String {
    let (count, verb) = (plural(count as u64, "server"), if count == 1 { "is" } else { "are" });
    format!("{count} {verb} not traced (at most {MAX_PROCESSES} can be)")
}

impl SplitTrace {
    /// Samples what operations compute: waits of the part `Cpu`. Call it before privileges are dropped.
    pub fn sample_processors(&mut self) {
        if !self.tracer.sample_processors() {
            eprintln!(
                "mongosonar: the kernel has no timers to sample processors with: what operations compute is unknown"
            );
        }
    }

    /// Drops the privileges that the trace no longer needs.
    pub fn give_up_privileges(&self) {
        privileges::give_up_while_tracing(|| self.tracer.is_readable());
    }

    /// Reads the names of functions, which takes a second or two for a large program. Call it after privileges were
    /// dropped.
    pub fn load_symbols(&self) {
        self.classifier.borrow_mut().load();
    }

    /// Takes sentences about servers that cannot be traced, and about symbols and stacks that could not be read, to be
    /// shown.
    pub fn take_notices(&self) -> Vec<String> {
        let mut notices = self.classifier.borrow_mut().problems().take_notices();
        notices.extend(self.refused.borrow_mut().notice.take());
        notices
    }

    /// A sentence about servers that cannot be traced now, if there are any.
    pub fn refused(&self) -> Option<String> {
        let count = self.refused.borrow().count;
        (count > 0).then(|| refused_text(count))
    }

    /// A sentence about how often symbols or stacks could not be read after the first time, if they could not.
    pub fn further_failures(&self) -> Option<String> {
        let count = self.classifier.borrow_mut().problems().further_failures();
        (count > 0).then(|| format!("functions or stacks could not be read {}", plural(count, "more time")))
    }

    /// Drops what the threads did until now.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn skip(&self) -> Result<()> {
        self.tracer.run(drop, || false).context(UNREADABLE)?;
        self.take_losses();
        Ok(())
    }

    /// Passes on what the threads do until `tick`, which is called ten times a second, returns `false`.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn run<S: SplitSink>(
        &self,
        meeting: &Mutex<SplitMeeting<S>>,
        mut tick: impl FnMut() -> bool,
    ) -> Result<()> {
        let each = |event| match event {
            SplitEvent::Operation(operation) => lock(meeting).thread(operation),
            SplitEvent::Wait(wait) => {
                let class = self.classifier.borrow_mut().classify(&wait);
                if let Some(class) = class {
                    lock(meeting).waited(wait.operation, class);
                }
            }
        };
        let tick = || {
            lock(meeting).tick();
            tick()
        };
        self.tracer.run(each, tick).context(UNREADABLE)
    }

    /// What the threads do now.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn now(&self) -> Result<ThreadsNow> {
        ThreadsNow::look(&self.tracer, &mut self.classifier.borrow_mut())
    }

    /// What the threads do now, if an operation has taken long; else nothing.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn now_if_long(&self) -> Result<Option<ThreadsNow>> {
        ThreadsNow::look_if_long(&self.tracer, &mut self.classifier.borrow_mut())
    }

    /// The time of each thread outside operations.
    ///
    /// # Errors
    /// The kernel's table cannot be read.
    pub fn threads(&self) -> Result<Vec<ThreadTime>> {
        self.tracer.threads().context("cannot read the times of threads")
    }

    /// The files that the servers have open now, with their paths.
    pub fn files(&self) -> HashMap<FileId, String> {
        self.files.read(&self.processes.borrow())
    }

    /// Follows exactly these processes from now on. Reads the names of functions of those that are new; what their
    /// operations in flight wait for has no class, because their threads are not sampled. Their encrypted operations
    /// are divided if an earlier server had mapped the same TLS library.
    pub fn follow(&self, processes: &[u32]) {
        let mut followed = self.processes.borrow_mut();
        for gone in followed.iter().filter(|process| !processes.contains(process)) {
            // A process that has ended has no threads any more: nothing depends on it.
            self.tracer.leave(*gone).ok();
            self.classifier.borrow_mut().remove(*gone);
        }
        followed.retain(|process| processes.contains(process));
        let (mut refused, mut why) = (0, None);
        for new in processes {
            if followed.contains(new) {
                continue;
            }
            match self.tracer.follow(*new) {
                Ok(()) => {
                    followed.push(*new);
                    self.classifier.borrow_mut().add(*new);
                }
                Err(error) => (refused, why) = (refused + 1, Some(error)),
            }
        }
        self.refused.borrow_mut().note(refused, why.as_ref());
    }

    /// The bytes of the tables of functions of all servers.
    pub fn symbol_bytes(&self) -> usize {
        self.classifier.borrow().table_bytes()
    }

    /// How long its eBPF programs have run so far, if the kernel measures it.
    pub fn run_time(&self) -> Option<Duration> {
        self.tracer.run_time()
    }

    /// What was lost since this was last called.
    pub fn take_losses(&self) -> SplitLosses {
        let losses = self.tracer.losses();
        losses.since(&self.losses.replace(losses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_cannot_be_traced_are_named_once_and_stay_in_the_status() {
        let mut refused = RefusedServers::default();
        let full = TraceError::Load("the table is full".to_owned());
        refused.note(0, None);
        assert_eq!(refused.notice.take(), None);
        refused.note(2, Some(&full));
        let notice = refused.notice.take().unwrap();
        assert!(notice.starts_with("2 servers are not traced (at most 64 can be): "), "{notice}");
        for (count, is_new) in [(2, false), (1, false), (3, true)] {
            refused.note(count, Some(&full));
            assert_eq!((refused.count, refused.notice.take().is_some()), (count, is_new));
        }
        assert_eq!(refused_text(1), "1 server is not traced (at most 64 can be)");
    }
}
