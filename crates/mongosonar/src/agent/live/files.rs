//! Accesses to files, added up in the kernel.

use sonar_core::Timestamp;
use sonar_core::history::CollectorKind;
use sonar_core::observation::WIDTH_NS;
use sonar_sys::ebpf::{KernelEvent, MAX_PROCESSES, TotalsRoom, TraceError, TraceMode, Tracer};

use super::board::{CollectorProblem, RESTART};
use super::clock_reading::ClockReading;
use super::runner::{Collector, CollectorPlan, NotOpened, Observation};
use crate::agent::file_work::{FileWork, WorkTime};
use crate::agent::memory::Holder;
use crate::io::file_trace::FileSearch;
use crate::io::process::TracedProcesses;
use crate::io::totals::TotalsTable;
use crate::servers::not_traced;
use crate::{confinement::privileges, doctor};

/// Attempts to load the programs: the last one is two minutes after the first. Each takes a second of a processor.
const ATTEMPTS: u32 = 8;
/// What finds processes and paths. It has helper processes, so it is made before any thread is started.
pub struct FileSetup {
    search: FileSearch,
    confined: bool,
    /// Failed attempts to load the programs.
    attempts: u32,
}

impl FileSetup {
    /// For every mongod of this host.
    pub fn new(confined: bool) -> Self {
        Self { search: FileSearch::new(TracedProcesses::all(), confined), confined, attempts: 0 }
    }
}

impl CollectorPlan for FileSetup {
    /// Loads the programs.
    fn open(mut self: Box<Self>) -> Result<Box<dyn Collector>, NotOpened> {
        let error = match self.search.start(TraceMode::Totals(TotalsRoom::AGENT), None, false) {
            Ok(tracer) => return Ok(Box::new(FileCollector { tracer, search: self.search })),
            Err(error) => error,
        };
        self.attempts += 1;
        let problem = problem(error, self.attempts >= ATTEMPTS);
        if problem.is_permanent {
            return Err(NotOpened { problem, again: None });
        }
        if self.confined && self.attempts == 1 {
            privileges::keep_for_tracing();
        }
        Err(NotOpened { problem, again: Some(self) })
    }
}

/// Traces accesses to files.
struct FileCollector {
    tracer: Tracer,
    search: FileSearch,
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

impl Collector for FileCollector {
    fn drop_privileges(&self) {
        privileges::drop_privileges_while_tracing(|| self.tracer.is_readable());
    }

    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem> {
        let Self { tracer, search } = self;
        search.processes.note_refused(tracer.refused());
        let (files, taken) = (TotalsTable::new(TotalsRoom::AGENT), ClockReading::now());
        let open = taken.time.floor_to(WIDTH_NS);
        let mut tracing = FileTracing { files, search, taken, open, into };
        let ended = tracer.run_with(
            &mut tracing,
            |tracing, event| tracing.event(tracer, event),
            |tracing| tracing.tick(tracer),
        );
        ended.map_err(|error| {
            // It needs privileges to trace again.
            let what = format!("cannot read the records of the kernel: {error}");
            CollectorProblem::permanent(what, Some(RESTART.to_owned()))
        })?;
        // Only now all records are read: a file whose record was still in the ring has figures, but no name.
        tracing.take(tracer, ClockReading::now());
        Ok(())
    }
}

/// State that outlives a window.
struct FileTracing<'a> {
    files: TotalsTable,
    search: &'a mut FileSearch,
    /// Until when accesses have been taken.
    taken: ClockReading,
    /// The start of the window that is open.
    open: Timestamp,
    into: &'a mut Observation,
}

impl FileTracing<'_> {
    fn event(&mut self, tracer: &Tracer, event: KernelEvent<'_>) {
        match event {
            KernelEvent::File(new) => self.files.add(tracer, &mut self.search.places, &new),
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
        let reading = ClockReading::now();
        // The clock may have been set back.
        if self.into.goes_on() && reading.time.floor_to(WIDTH_NS) != self.open {
            self.take(tracer, reading);
        }
        self.into.goes_on()
    }

    /// Takes what was done until now, which belongs to the window that has just ended.
    fn take(&mut self, tracer: &Tracer, reading: ClockReading) {
        let time = reading.time;
        let end = self.open.plus_ns(WIDTH_NS);
        self.open = time.floor_to(WIDTH_NS);
        let before = std::mem::replace(&mut self.taken, reading);
        let observed = reading.since(&before);
        let (from, seconds) = (before.time, observed.elapsed.as_secs_f64());
        let at = observed.to.min(end).minus_ns(1);
        let Self { files, search, into, .. } = self;
        let taken = files.take(tracer, |file| {
            let usage =
                file.before.as_ref().map_or_else(|| file.now.clone(), |before| file.now.since(before));
            if !usage.is_idle() && seconds > 0.0 {
                let server = into.servers().of_file(&file.path).unwrap_or_default();
                WorkTime { at, seconds }.add(&mut into.windows, server, &file.path, &FileWork::of(&usage));
            }
        });
        into.board().held.set(Holder::Files, files.memory());
        if let Err(error) = taken {
            return into.failed(&CollectorProblem::temporary(format!("{error:#}")));
        }
        into.windows.observe(CollectorKind::Files, from, at);
        into.advance(time);
        let board = into.board();
        board.lost(CollectorKind::Files, tracer.losses().iter().map(|(_, _, count)| count).sum());
        board.ebpf(CollectorKind::Files, tracer.run_time());
        let refused = search.processes.refused();
        let notes = (refused > 0).then(|| not_traced(refused, MAX_PROCESSES)).into_iter().collect();
        board.notes(CollectorKind::Files, notes);
        let event = board.data(CollectorKind::Files, time);
        into.report(event);
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
