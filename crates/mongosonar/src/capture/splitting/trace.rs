//! The trace of the threads, with what names the files and the waits in it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::time_split::ConnectionSample;
use sonar_core::words::plural;
use sonar_sys::Host;
use sonar_sys::ebpf::TraceError;
use sonar_sys::host::process::RunningProgram;
use sonar_sys::split::{FollowedProcess, MAX_PROCESSES, SplitEvent, SplitLosses, SplitTracer, ThreadTime};

use super::in_progress::ThreadsNow;
use super::numbers;
use super::open_files::{FileId, OpenFiles};
use super::operation_matcher::{OperationMatcher, SplitSink};
use super::plan::SplitPlan;
use super::waits::WaitClassifier;
use crate::capture::tls::{EncryptedAccess, TlsLibrary, WithholdingProcess, look_apart, may_attach, watched};
use crate::confinement::privileges;
use crate::confinement::start_order::{self, StartStep};
use crate::functions::following::FollowedServers;
use crate::locking::lock;
use crate::servers::not_traced;
use crate::servers::tracing::refused;

const UNREADABLE: &str = "cannot read the records of the kernel";
/// How often the helper is asked which servers are traced if nothing seems to have changed: a server that has ended may
/// have been replaced by one with the same number.
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// The programs of a trace, and its helper processes. These keep the privileges that it drops.
pub struct SplitHelpers {
    tracer: SplitTracer,
    files: OpenFiles,
    classifier: WaitClassifier,
    plan: SplitPlan,
    /// The TLS libraries of processes that have one, where encrypted operations are divided.
    libraries: Vec<(u32, TlsLibrary)>,
    /// Processes that attaching to them may wait for; `None` if unknown.
    withholding: Option<Vec<WithholdingProcess>>,
    refused: RefusedServers,
}

impl SplitHelpers {
    /// Starts them for these processes, as many as can be traced and still run the program for which they were chosen, and
    /// for these connections, with rules for wait classes from the file `classes`. From then on this process chooses no
    /// others. Call it before any thread is started.
    ///
    /// # Errors
    /// The file of classes is wrong, or a helper cannot be started. The kernel, or a missing privilege.
    pub fn start(
        processes: &[RunningProgram],
        classes: Option<&Path>,
        connections: ConnectionSample,
        plan: SplitPlan,
    ) -> Result<Self> {
        // Before anything is started for each of them.
        let (processes, others) = processes.split_at(processes.len().min(MAX_PROCESSES));
        let mut without_place = RefusedServers::default();
        without_place.note(others.len());
        let libraries = match plan.encrypted {
            EncryptedAccess::Off => Vec::new(),
            EncryptedAccess::Cheap | EncryptedAccess::AnyCost => TlsLibrary::read_apart(&numbers(processes)),
        };
        let withholding = if libraries.is_empty() { None } else { look_apart() };
        let files = OpenFiles::new(plan.confined, plan.files);
        let mut classifier = WaitClassifier::new(classes, processes, &plan)?;
        let tracer = SplitTracer::start(&[], connections, plan.room).map_err(refused)?;
        for other in follow_chosen(&tracer, processes).map_err(refused)? {
            eprintln!("mongosonar: process {other} is not traced: it has ended, or executes another program");
        }
        if plan.follows || !plan.samples {
            classifier = classifier.with_later(&tracer, &plan.ports);
        }
        // From now on only that helper decides which processes are traced, or nobody.
        tracer.give_up_control().context("cannot give up the control of what is traced")?;
        Ok(Self { tracer, files, classifier, plan, libraries, withholding, refused: without_place })
    }

    /// Begins to trace the threads.
    pub fn trace(self) -> SplitTrace {
        let Self { mut tracer, files, classifier, plan, libraries, withholding, refused } = self;
        start_order::take(StartStep::Opened);
        let followed = tracer.followed();
        for (process, library) in &libraries {
            let attached = withholding
                .as_ref()
                .context("it is unknown which processes withhold their memory")
                .and_then(|withholding| may_attach(withholding, Host::live().user(*process)))
                .and_then(|()| attach_tls(&mut tracer, library, plan.encrypted));
            if let Err(error) = attached {
                eprintln!(
                    "mongosonar: the time of encrypted operations of process {process} cannot be divided: {error:#}"
                );
            }
        }
        if plan.samples_processors && !tracer.sample_processors() {
            eprintln!(
                "mongosonar: the kernel has no timers to sample processors with: what operations compute is unknown"
            );
        }
        SplitTrace {
            tracer,
            files,
            classifier: RefCell::new(classifier),
            followed: RefCell::new(followed),
            asked: Cell::default(),
            losses: Cell::default(),
            refused: refused.into(),
        }
    }
}

/// Follows those of these processes that still run the program for which they were chosen; returns the others.
fn follow_chosen(tracer: &SplitTracer, chosen: &[RunningProgram]) -> Result<Vec<u32>, TraceError> {
    let mut others = Vec::new();
    for process in chosen {
        if !tracer.follow_if(process.pid, || process.still(()).is_ok())? {
            others.push(process.pid);
        }
    }
    Ok(others)
}

/// Attaches to the TLS library of a process.
fn attach_tls(tracer: &mut SplitTracer, library: &TlsLibrary, encrypted: EncryptedAccess) -> Result<()> {
    let sites = library.sites(encrypted == EncryptedAccess::AnyCost)?;
    let (file, say) = (library.file()?, |note| eprintln!("mongosonar: {note}"));
    Ok(watched(library.name(), say, || tracer.attach_tls(file, &sites))?)
}

/// The threads of some servers, traced until this is dropped.
pub struct SplitTrace {
    tracer: SplitTracer,
    files: OpenFiles,
    classifier: RefCell<WaitClassifier>,
    followed: RefCell<Vec<FollowedProcess>>,
    /// When the helper was last asked which ones to follow.
    asked: Cell<Option<Instant>>,
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
    /// Number of servers that cannot be traced now. Reported when the number grows.
    fn note(&mut self, count: usize) {
        if count > self.count {
            self.notice = Some(not_traced(count, MAX_PROCESSES));
        }
        self.count = count;
    }
}

impl SplitTrace {
    /// Drops the privileges that the trace no longer needs.
    pub fn drop_privileges(&self) {
        privileges::drop_privileges_while_tracing(|| self.tracer.is_readable());
    }

    /// Reads the names of functions, which takes a second or two for a large program. Those of a process that does not answer
    /// are used once they come. Call it after privileges were dropped.
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
        (count > 0).then(|| not_traced(count, MAX_PROCESSES))
    }

    /// Sentences about how often symbols or stacks could not be read after the first time, and how often symbols were not
    /// loaded yet, if that was so.
    pub fn further_failures(&self) -> Vec<String> {
        let mut classifier = self.classifier.borrow_mut();
        let (further, unnamed) = (classifier.problems().further_failures(), classifier.problems().unnamed());
        let further = (further > 0)
            .then(|| format!("functions or stacks could not be read {}", plural(further, "more time")));
        let unnamed = (unnamed > 0).then(|| {
            let waits = plural(unnamed, "wait");
            format!("functions of {waits} have no names: those of the process were not read yet")
        });
        further.into_iter().chain(unnamed).collect()
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
        matcher: &Mutex<OperationMatcher<S>>,
        mut tick: impl FnMut() -> bool,
    ) -> Result<()> {
        let each = |event| match event {
            SplitEvent::Operation(operation) => lock(matcher).thread(operation),
            SplitEvent::Wait(wait) => {
                let class = self.classifier.borrow_mut().classify(&wait);
                if let Some(class) = class {
                    lock(matcher).waited(wait.operation, class);
                }
            }
        };
        let tick = || {
            lock(matcher).tick();
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
        let followed: Vec<u32> = self.followed.borrow().iter().map(|one| one.process).collect();
        self.files.read(&followed)
    }

    /// Follows these processes from now on and no others, if the helper finds that the new ones are servers. Reads the
    /// names of their functions; what their operations in flight wait for has no class, because their threads are not
    /// sampled. Their encrypted operations are divided if an earlier server had mapped the same TLS library.
    pub fn follow(&self, processes: &[u32]) {
        let mut followed = self.followed.borrow_mut();
        let changed = changed(&followed, processes);
        if !changed && self.asked.get().is_some_and(|asked| asked.elapsed() < ASKED_EVERY) {
            return;
        }
        self.asked.set(Some(Instant::now()));
        let mut classifier = self.classifier.borrow_mut();
        let Some(later) = classifier.later() else { return };
        let now = later.follow(processes).unwrap_or_else(|error| {
            let failure = || format!("servers that start later are not traced: {error:#}");
            classifier.problems().note_failure(failure);
            // Of those that have ended, nothing is asked any more.
            let alive = followed.iter().filter(|one| processes.contains(&one.process)).copied();
            FollowedServers { followed: alive.collect(), turned_away: self.refused.borrow().count as u32 }
        });
        self.tracer.note_followed(&now.followed);
        for gone in followed.iter().filter(|one| !now.followed.contains(one)) {
            classifier.remove(gone.process);
        }
        for new in now.followed.iter().filter(|one| !followed.contains(one)) {
            classifier.add(new.process);
        }
        *followed = now.followed;
        self.refused.borrow_mut().note(now.turned_away as usize);
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

/// Whether other processes are to be followed than are.
fn changed(followed: &[FollowedProcess], wanted: &[u32]) -> bool {
    let is_followed = |process: &u32| followed.iter().any(|one| one.process == *process);
    !followed.iter().all(|one| wanted.contains(&one.process)) || !wanted.iter().all(is_followed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_cannot_be_traced_are_named_once_and_stay_in_the_status() {
        let mut refused = RefusedServers::default();
        refused.note(0);
        assert_eq!(refused.notice.take(), None);
        refused.note(2);
        assert_eq!(refused.notice.take().unwrap(), "2 servers are not traced (at most 64 can be)");
        for (count, is_new) in [(2, false), (1, false), (3, true)] {
            refused.note(count);
            assert_eq!((refused.count, refused.notice.take().is_some()), (count, is_new));
        }
        assert_eq!(not_traced(1, MAX_PROCESSES), "1 server is not traced (at most 64 can be)");
    }

    #[test]
    fn servers_beyond_those_that_can_be_traced_are_counted_and_cost_nothing() {
        use sonar_sys::split::SplitRoom;
        if let Err(error) = SplitTracer::start(&[], ConnectionSample::default(), SplitRoom::COMMAND) {
            return println!("skipped: {error}");
        }
        let plan = SplitPlan::of_command(false, false, EncryptedAccess::Off);
        // Nobody has these numbers.
        let numbers = 5_000_000..5_000_003 + MAX_PROCESSES as u32;
        let many: Vec<_> = numbers.map(|pid| RunningProgram { pid, started: 1, program: None }).collect();
        let trace = SplitHelpers::start(&many, None, ConnectionSample::default(), plan).unwrap().trace();
        assert_eq!(trace.refused().unwrap(), not_traced(3, MAX_PROCESSES));
        assert!(trace.followed.borrow().is_empty(), "none of them runs");
    }

    #[test]
    fn a_process_that_is_not_what_it_was_chosen_for_is_not_traced() {
        use sonar_sys::split::SplitRoom;
        let tracer = match SplitTracer::start(&[], ConnectionSample::default(), SplitRoom::COMMAND) {
            Ok(tracer) => tracer,
            Err(error) => return println!("skipped: {error}"),
        };
        let child = || std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut children = [child(), child()];
        let [same, other] =
            [&children[0], &children[1]].map(|child| RunningProgram::now(child.id()).unwrap());
        let own = RunningProgram::now(std::process::id()).unwrap();
        for before in [
            // Another process has its number since.
            RunningProgram { started: other.started - 1, ..other },
            // It executes another program since.
            RunningProgram { program: own.program, ..other },
        ] {
            assert_eq!(follow_chosen(&tracer, &[before, same]).unwrap(), [other.pid]);
            assert_eq!(tracer.followed().iter().map(|one| one.process).collect::<Vec<_>>(), [same.pid]);
            tracer.leave(same.pid).unwrap();
        }
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn the_helper_is_asked_when_servers_come_or_go() {
        let followed = [7, 8].map(|process| FollowedProcess { process, since: 1 });
        for (wanted, expected) in [(&[8, 7][..], false), (&[7], true), (&[7, 8, 9], true), (&[], true)] {
            assert_eq!(changed(&followed, wanted), expected, "{wanted:?}");
        }
        assert!(!changed(&[], &[]));
    }
}
