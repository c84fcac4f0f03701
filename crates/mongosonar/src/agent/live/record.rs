//! What the agent keeps: the windows and events of all sources, and what it says of itself.

use std::sync::Arc;

use sonar_core::history::{Event, EventKind, StoreNotice};
use sonar_core::observation::{Assembler, WindowPart};
use sonar_core::time::NS_PER_S;
use sonar_core::{Endpoint, Timestamp};
use sonar_store::StoreSettings;
use sonar_view::agent::{AgentStatus, AgentSummary};

use super::board::{CollectorBoard, CollectorProblem, SourceId};
use super::clock_reading::AgentClock;
use super::notices::Notices;
use super::pulse::StorePulse;
use super::store_problems::StoreProblems;
use crate::agent::memory::Holder;
use crate::agent::store::AgentStore;
use crate::agent::summed_store::{SummedStore, summary};

/// How long after its end a window is stored: what is killed then loses it. Samples of `diagnostic.data` come up to
/// twenty seconds late, and are added to the window when they come.
const LATENESS_NS: u64 = 4 * NS_PER_S + NS_PER_S / 2;

/// Windows that have ended by then are stored at `time`.
fn before_lateness(time: Timestamp) -> Timestamp {
    time.minus_ns(LATENESS_NS)
}

/// Where windows are joined and stored.
pub type AgentAssembler = Assembler<SummedStore<Box<dyn AgentStore>>>;

/// Joins and stores windows, reports once what prevents that, and has what the status says of it.
pub struct AgentRecord {
    assembler: AgentAssembler,
    problems: StoreProblems,
    /// Notices that the folder of the store does not answer.
    pub pulse: Arc<StorePulse>,
    /// What the agent says of itself.
    pub notices: Notices,
    /// The states of the collectors.
    pub board: Arc<CollectorBoard>,
    /// What time it is.
    pub clock: Arc<dyn AgentClock>,
}

impl AgentRecord {
    /// One that has nothing yet.
    pub fn new(
        assembler: AgentAssembler,
        pulse: Arc<StorePulse>,
        board: Arc<CollectorBoard>,
        clock: Arc<dyn AgentClock>,
    ) -> Self {
        let (problems, notices) = (StoreProblems::default(), Notices::default());
        Self { assembler, problems, pulse, notices, board, clock }
    }

    /// Adds what a source observed of a window.
    pub fn add(&mut self, part: WindowPart) {
        let _waits = self.pulse.begin();
        if let Err(error) = self.assembler.add(part) {
            self.loses(&error);
        }
    }

    /// Adds events to their windows.
    pub fn events(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.assembler.event(event));
    }

    /// Adds an event of the agent itself.
    pub fn of_agent(&mut self, kind: EventKind, text: &str, subject: &str) {
        let event = Event::new(self.clock.time(), kind, Endpoint::default(), text);
        self.events([event.about(subject)]);
    }

    /// A collector or a part of it fails: reported once.
    pub fn fail(&mut self, source: impl Into<SourceId>, problem: &CollectorProblem) {
        self.events(self.board.failed(source, self.clock.time(), problem));
    }

    /// What was wrong with a collector or a part of it has passed.
    pub fn passes(&mut self, source: impl Into<SourceId>) {
        self.events(self.board.passed(source, self.clock.time()));
    }

    /// Stores the windows that have ended a while ago, and those of a time before the clock was set back.
    pub fn store(&mut self) {
        let time = self.clock.time();
        self.complete(before_lateness(time));
        let _waits = self.pulse.begin();
        while let Err(error) = self.assembler.complete_ahead(time) {
            self.loses(&error);
        }
        self.take_notices();
    }

    /// Stores all that is open: the agent ends.
    pub fn store_rest(&mut self) {
        self.complete(Timestamp::from_unix_ns(u64::MAX));
        self.take_notices();
    }

    /// Stores the windows that have ended by `until`.
    fn complete(&mut self, until: Timestamp) {
        loop {
            // One at a time: each may take a while.
            let stored = {
                let _waits = self.pulse.begin();
                self.assembler.complete_next(until)
            };
            match stored {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.loses(&error),
            }
        }
    }

    /// Changes what is kept.
    pub fn configure(&mut self, settings: StoreSettings) {
        self.assembler.store_mut().history.configure(settings);
    }

    /// Reports that the file system of the store did not answer for a while.
    pub fn note_standstill(&mut self) {
        if let Some(waited) = self.pulse.take_longest() {
            self.store_problem(format!(
                "the file system of the store did not answer for {} s",
                waited.as_secs()
            ));
        }
    }

    fn store_problem(&mut self, text: String) {
        self.of_agent(EventKind::StoreProblem, &text, "");
        self.notices.say(text);
    }

    fn take_notices(&mut self) {
        for notice in self.assembler.notices() {
            let text = self.problems.notice(&notice, self.assembler.counts().windows_lost);
            match notice {
                StoreNotice::Shrunk(..) => self.notices.say(text),
                _ => self.store_problem(text),
            }
        }
    }

    /// A window could not be stored.
    fn loses(&mut self, error: &impl std::fmt::Display) {
        self.take_notices();
        let text = error.to_string();
        if self.problems.is_new_loss(&text) {
            eprintln!("mongosonar: a window is lost: {text}");
            self.notices.note(text);
        }
    }

    /// Counts what it holds.
    pub fn count_memory(&self) {
        self.board.held.set(Holder::Open, self.assembler.memory());
        self.board.held.set(Holder::Store, self.assembler.store().history.memory());
    }

    /// What was stored, and which collectors fail.
    pub fn summary(&self) -> AgentSummary {
        let mut summary = summary(&self.assembler);
        summary.notes.extend(self.board.failing());
        summary
    }

    /// The status, as far as it is about what is kept.
    pub fn status(&self) -> AgentStatus {
        let stored = summary(&self.assembler);
        AgentStatus {
            windows: stored.windows,
            windows_lost: stored.windows_lost,
            store_problem: self.problems.present().map(str::to_owned),
            last_window_ns: self.assembler.stored_until().map(Timestamp::unix_ns),
            notices: self.notices.all().to_vec(),
            ..AgentStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use sonar_core::history::{CollectorKind, Resolution};
    use sonar_core::observation::{AssemblyLimits, WIDTH_NS, WindowCutter};
    use sonar_core::testing::MemoryHistory;

    use super::*;
    use crate::agent::live::fakes::{TestRecord, test_record};
    use crate::locking::lock;

    #[test]
    fn whenever_it_is_killed_at_most_a_window_and_five_seconds_are_lost() {
        const TICK_NS: u64 = NS_PER_S / 4;
        let (to, parts) = sync_channel(100);
        let mut windows = WindowCutter::new(move |part| to.send(part).is_ok());
        let mut assembler = Assembler::new(MemoryHistory::default(), AssemblyLimits::default());
        let begin = Timestamp::from_unix(1_000_003, 0);
        let mut observed = begin;
        // A source looks once a second, the main thread four times.
        for tick in 1..400 {
            let now = begin.plus_ns(tick * TICK_NS);
            if tick % 4 == 1 {
                windows.observe(CollectorKind::Log, observed, now);
                windows.advance(now);
                observed = now;
            }
            parts.try_iter().for_each(|part| assembler.add(part).unwrap());
            assembler.complete(before_lateness(now)).unwrap();
            let stored = assembler.store().windows.iter();
            let stored: u64 = stored.map(|window| window.observed_ns(CollectorKind::Log)).sum();
            let lost = now.since(begin) - stored;
            assert!(lost < WIDTH_NS + 5 * NS_PER_S, "{lost} ns after {tick} ticks");
        }
        let mut starts: Vec<_> = assembler.store().windows.iter().map(|window| window.window.start).collect();
        starts.dedup();
        assert_eq!(starts.len(), assembler.store().windows.len(), "each is stored once");
    }

    #[test]
    fn what_happens_to_the_store_is_recorded_but_not_what_it_deletes_to_keep_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let TestRecord { mut record, store, .. } = test_record(folder.path(), 0);
        let full = StoreNotice::Full("no space left".to_owned());
        let shrunk = StoreNotice::Shrunk(Resolution::Minute, "2026-11-21".to_owned());
        lock(&store.notices).extend([shrunk, full]);
        record.store();
        let status = record.status();
        assert_eq!(status.store_problem.as_deref(), Some("no space left"));
        assert_eq!((status.notices.len(), &*status.notices[1]), (2, "windows are not stored: no space left"));
        lock(&store.notices).push(StoreNotice::Recovered(1));
        record.store_rest();
        assert_eq!(record.status().store_problem, None);
        record.store_rest();
        let said =
            ["windows are not stored: no space left", "windows are stored again, 0 windows could not be"];
        let events = store.events(&[EventKind::StoreProblem]);
        assert_eq!(events.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), said);
    }
}
