//! What long waits were for, by the functions on their stacks.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::stacks::{ThreadSample, ThreadState};
use sonar_core::time_split::{ClassifiedWait, TimePart, WaitSample};
use sonar_decode::stacks::{AddressSpace, TableBudget, WaitClasses};
use sonar_sys::Host;
use sonar_sys::host::process::RunningProgram;
use sonar_sys::split::SplitTracer;

use super::loaded_symbols::{LoadedSymbols, MOMENT};
use super::numbers;
use super::plan::SplitPlan;
use super::wait_problems::WaitProblems;
use crate::args::values::PortRange;
use crate::functions::helper::{LaterSources, StackSource};
use crate::functions::shared::{ImageFile, SharedSymbols};
use crate::functions::symbols::{ProcessSymbols, classify, computation, own_vdso, wait_classes};

/// How long all processes that were there at the start are waited for together.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Names the classes of waits.
pub struct WaitClassifier {
    classes: WaitClasses,
    processes: LoadedSymbols,
    /// Unwinds what has no symbols yet.
    without_symbols: AddressSpace<ImageFile>,
    /// For servers that start later, where they are followed.
    later: Option<LaterSources>,
    /// Those that were there at the start, where the same helper answers for them.
    unread: Vec<u32>,
    /// What the symbols of all servers share.
    shared: SharedSymbols,
    vdso: Vec<u8>,
    problems: WaitProblems,
}

impl WaitClassifier {
    /// For these processes, with more rules from the file `classes`. One whose threads cannot be sampled is left out, which
    /// is a problem to tell. Call it before any thread is started, and before privileges are dropped.
    ///
    /// # Errors
    /// The file of classes is wrong.
    pub fn new(classes: Option<&Path>, processes: &[RunningProgram], plan: &SplitPlan) -> Result<Self> {
        Self::with_sources(classes, processes, plan, StackSource::start)
    }

    /// The same, with what gives the source of a process.
    fn with_sources(
        classes: Option<&Path>,
        chosen: &[RunningProgram],
        plan: &SplitPlan,
        start: impl Fn(RunningProgram) -> Result<StackSource>,
    ) -> Result<Self> {
        let classes = wait_classes(classes)?;
        let vdso = own_vdso();
        let shared = SharedSymbols::new(TableBudget::new(plan.table_bytes), plan.large);
        let mut problems = WaitProblems::default();
        let (sampled, unread) = if plan.samples { (chosen, &[][..]) } else { (&[][..], chosen) };
        let mut unread = numbers(unread);
        let mut processes = LoadedSymbols::default();
        // What has become something else takes no helper.
        for process in sampled.iter().filter(|process| process.still(()).is_ok()) {
            let pid = process.pid;
            match start(*process) {
                Ok(source) => {
                    let symbols = ProcessSymbols::new(source, program(pid), vdso.clone());
                    processes.insert(pid, symbols.within(shared.clone()));
                }
                Err(error) => {
                    problems.note_failure(|| {
                        format!("the threads of process {pid} are not sampled, so its waits have no classes: {error:#}")
                    });
                    // The helper for servers that start later may answer for its functions, where there is one.
                    unread.push(pid);
                }
            }
        }
        let without_symbols = AddressSpace::default();
        Ok(Self { classes, processes, without_symbols, later: None, unread, shared, vdso, problems })
    }

    /// The same, also for servers that start later and listen on these ports, or on any if there are none; the helper
    /// decides which are traced. Call it before any thread is started, and before privileges are dropped.
    pub fn with_later(self, tracer: &SplitTracer, ports: &[PortRange]) -> Self {
        Self { later: LaterSources::start(tracer, ports), ..self }
    }

    /// The helper for servers that start later, if there is one.
    pub fn later(&mut self) -> Option<&mut LaterSources> {
        self.later.as_mut()
    }

    /// The bytes of the tables of functions of all servers.
    pub fn table_bytes(&self) -> usize {
        self.shared.budget.used()
    }

    /// Adds a server that has started since. A thread loads its symbols.
    pub fn add(&mut self, process: u32) {
        self.insert(process);
        self.processes.load(process, MOMENT, &mut self.problems);
    }

    fn insert(&mut self, process: u32) {
        let Some(later) = &mut self.later else { return };
        match later.source(process) {
            Ok(source) => {
                let symbols = ProcessSymbols::new(source, program(process), self.vdso.clone());
                self.processes.insert(process, symbols.within(self.shared.clone()));
            }
            Err(error) => self.problems.note_symbols(process, Err(error), Vec::new()),
        }
    }

    /// Forgets a process that has ended.
    pub fn remove(&mut self, process: u32) {
        self.processes.remove(process);
    }

    /// Loads the symbols, which takes a second or two for a large program. Those of a process that does not answer are used
    /// once they come. Call it after privileges were dropped.
    pub fn load(&mut self) {
        std::mem::take(&mut self.unread).into_iter().for_each(|process| self.insert(process));
        let mut patience = START_PATIENCE;
        for process in self.processes.processes() {
            let begun = Instant::now();
            // One that does not answer leaves time for the others.
            self.processes.load(process, patience / 2, &mut self.problems);
            patience = patience.saturating_sub(begun.elapsed());
        }
    }

    /// The class of a wait, or what was computed; `None` if its process is not known.
    pub fn classify(&mut self, wait: &WaitSample) -> Option<ClassifiedWait> {
        // A library may have been loaded since. Without it, the stack is cut.
        let samples = std::slice::from_ref(&wait.sample);
        self.processes.load_for(wait.process, samples, &mut self.problems);
        if !self.processes.has(wait.process) {
            return None;
        }
        let stack = match self.processes.ready(wait.process) {
            Some(symbols) => symbols.unwind(&wait.sample),
            None => {
                self.problems.note_unnamed();
                self.without_symbols.unwind(&wait.sample)
            }
        };
        let class = match wait.part {
            TimePart::Cpu => computation(&stack),
            _ => classify(&self.classes, &wait.sample, &stack).0.name,
        };
        Some(ClassifiedWait { part: wait.part, class, wait_ns: wait.wait_ns })
    }

    /// What all threads wait for now, but for those that have nothing to do. A process that cannot be sampled has none;
    /// neither has one that was added, and one whose symbols are not loaded yet.
    pub fn look(&mut self) -> Vec<SampledWait> {
        let mut waits = Vec::new();
        self.processes.take_loaded(&mut self.problems);
        for process in self.processes.processes() {
            let Some(symbols) = self.processes.ready(process) else {
                self.problems.note_unnamed();
                continue;
            };
            if !symbols.source.has_snapshots() {
                continue;
            }
            let threads = match threads_now(symbols) {
                Ok(threads) => threads,
                Err(error) => {
                    self.problems.note_failure(|| {
                        format!("what the threads of process {process} wait for is unknown: {error:#}")
                    });
                    continue;
                }
            };
            self.processes.load_for(process, &threads, &mut self.problems);
            let Some(symbols) = self.processes.ready(process) else {
                self.problems.note_unnamed();
                continue;
            };
            for sample in threads {
                let stack = symbols.unwind(&sample);
                let (class, _) = classify(&self.classes, &sample, &stack);
                if !class.idle && matches!(sample.state, ThreadState::Sleeping | ThreadState::Disk) {
                    let (thread, thread_name) = (sample.thread, sample.name);
                    waits.push(SampledWait { thread, thread_name, class: class.name });
                }
            }
        }
        waits
    }

    /// What went wrong since they were last taken.
    pub fn problems(&mut self) -> &mut WaitProblems {
        &mut self.problems
    }
}

/// The name of the program of a process.
fn program(process: u32) -> String {
    Host::live().text(&format!("proc/{process}/comm")).unwrap_or_default().trim_end().to_owned()
}

fn threads_now(symbols: &mut ProcessSymbols) -> Result<Vec<ThreadSample>> {
    let bytes = symbols.source.snapshot()?;
    Ok(sonar_sys::stacks::parse(&bytes).context("the records of the threads are truncated")?.threads)
}

/// A thread that waits.
pub struct SampledWait {
    pub thread: u32,
    pub thread_name: String,
    /// What it waits for.
    pub class: Arc<str>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;
    use sonar_core::Timestamp;
    use sonar_core::stacks::Registers;

    use super::*;
    use crate::capture::tls::EncryptedAccess;

    #[test]
    fn symbols_that_are_withheld_hold_up_no_wait_and_are_used_once_they_come() {
        let own = std::process::id();
        let (go, may_answer) = std::sync::mpsc::channel();
        let source = Cell::new(Some(StackSource::withheld(own, may_answer)));
        let plan = SplitPlan::of_command(false, false, EncryptedAccess::Off);
        let chosen = [RunningProgram::now(own).unwrap()];
        let start = |_| source.take().context("it is asked once");
        let mut classifier = WaitClassifier::with_sources(None, &chosen, &plan, start).unwrap();
        let code =
            symbols_that_are_withheld_hold_up_no_wait_and_are_used_once_they_come as fn() as usize as u64;
        let wait = wait_at(own, code);
        for unnamed in 1..=2 {
            assert!(classifier.classify(&wait).is_some());
            assert_eq!((classifier.problems().unnamed(), classifier.table_bytes()), (unnamed, 0));
        }
        assert!(classifier.classify(&wait_at(1, code)).is_none(), "it is not traced");
        drop(go);
        // The thread that loads takes its time.
        loop {
            let unnamed = classifier.problems().unnamed();
            classifier.classify(&wait).unwrap();
            if classifier.problems().unnamed() == unnamed {
                break;
            }
            std::thread::yield_now();
        }
        assert!(classifier.table_bytes() > 0);
        assert_eq!(classifier.problems().take_notices(), [] as [String; 0]);
        // A server that has ended while a thread loads its symbols.
        let (go, may_answer) = std::sync::mpsc::channel();
        let symbols = ProcessSymbols::new(StackSource::withheld(own, may_answer), String::new(), Vec::new());
        classifier.processes.insert(own, symbols);
        assert!(classifier.classify(&wait).is_some());
        classifier.remove(own);
        drop(go);
        assert!(classifier.classify(&wait).is_none());
    }

    fn wait_at(process: u32, ip: u64) -> WaitSample {
        let registers = Registers { ip, ..Registers::default() };
        let sample = ThreadSample {
            thread: 7,
            name: "conn1".to_owned(),
            state: ThreadState::Sleeping,
            call: None,
            registers: Some(registers),
            stack: Vec::new(),
            changed: false,
        };
        let operation = (sample.thread, Timestamp::from_unix(1, 0));
        WaitSample { process, operation, part: TimePart::Futex, wait_ns: 1, sample }
    }

    #[test]
    fn a_process_that_cannot_be_sampled_is_told_and_holds_up_no_other_one() {
        let own = std::process::id();
        let others =
            [1, 2].map(|_| std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn());
        let mut others = others.map(Result::unwrap);
        let [first, second] = [&others[0], &others[1]].map(std::process::Child::id);
        let start = |process: RunningProgram| match process.pid == own {
            true => Ok(StackSource::in_thread(own)),
            false => bail!("its memory cannot be read"),
        };
        let plan = SplitPlan::of_command(false, false, EncryptedAccess::Off);
        let chosen = [first, own, second].map(|process| RunningProgram::now(process).unwrap());
        let mut classifier = WaitClassifier::with_sources(None, &chosen, &plan, start).unwrap();
        classifier.load();
        assert_eq!(classifier.processes.processes(), [own]);
        // Of several, the first one is put in words.
        let expected = format!(
            "the threads of process {first} are not sampled, so its waits have no classes: its memory cannot be read"
        );
        assert_eq!(classifier.problems().take_notices(), [expected]);
        assert_eq!(classifier.problems().further_failures(), 1);
        for child in &mut others {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
