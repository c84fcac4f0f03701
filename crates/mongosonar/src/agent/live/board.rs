//! How each collector is: what the status shows, and what is reported once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sonar_core::history::{Collector, Event, EventKind};
use sonar_core::{Endpoint, Timestamp};
use sonar_view::agent::{CollectorState, CollectorStatus};

/// Why a collector does not work, and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorProblem {
    /// What is wrong.
    pub what: String,
    /// The command or the change that helps.
    pub fix: Option<String>,
}

impl CollectorProblem {
    /// On one line.
    pub fn text(&self) -> String {
        match &self.fix {
            Some(fix) => format!("{}; fix: {fix}", self.what),
            None => self.what.clone(),
        }
    }
}

/// How all collectors are. Any thread may report; a repeated report changes nothing.
#[derive(Debug)]
pub struct CollectorBoard {
    states: Mutex<Vec<CollectorStatus>>,
}

impl CollectorBoard {
    /// Those that are wanted wait, the others are off.
    pub fn new(is_wanted: impl Fn(Collector) -> bool) -> Self {
        let state = |collector: Collector| CollectorStatus {
            state: if is_wanted(collector) { CollectorState::Waiting } else { CollectorState::Off },
            ..CollectorStatus::new(collector)
        };
        Self { states: Mutex::new(Collector::ALL.into_iter().map(state).collect()) }
    }

    fn states(&self) -> MutexGuard<'_, Vec<CollectorStatus>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, in the order of [`Collector::ALL`].
    pub fn all(&self) -> Vec<CollectorStatus> {
        self.states().clone()
    }

    /// A collector delivered data at `at`. It works.
    pub fn data(&self, collector: Collector, at: Timestamp) -> Option<Event> {
        let mut states = self.states();
        let status = &mut states[collector as usize];
        status.last_data_ns = Some(at.unix_ns()).max(status.last_data_ns);
        if status.state == CollectorState::Working {
            return None;
        }
        let has_failed = status.state == CollectorState::Failed;
        status.state = CollectorState::Working;
        status.since_ns = Some(at.unix_ns());
        status.problem = None;
        has_failed.then(|| event(at, EventKind::CollectorRecovered, (collector, "it works again")))
    }

    /// A collector delivered data at `at`, and may lack other data.
    pub fn delivered(&self, collector: Collector, at: Timestamp) {
        let status = &mut self.states()[collector as usize];
        status.last_data_ns = Some(at.unix_ns()).max(status.last_data_ns);
    }

    /// What a collector collects, in a line for each server.
    pub fn notes(&self, collector: Collector, notes: Vec<String>) {
        self.states()[collector as usize].notes = notes;
    }

    /// A collector has nothing to collect: no server runs.
    pub fn waits(&self, collector: Collector, why: &str) {
        let mut states = self.states();
        let status = &mut states[collector as usize];
        if status.state != CollectorState::Off {
            status.state = CollectorState::Waiting;
            status.problem = Some(why.to_owned());
        }
    }

    /// A collector cannot work. Gives an event the first time.
    pub fn failed(&self, collector: Collector, at: Timestamp, problem: &CollectorProblem) -> Option<Event> {
        let mut states = self.states();
        let status = &mut states[collector as usize];
        let text = problem.text();
        if status.state == CollectorState::Failed && status.problem.as_deref() == Some(text.as_str()) {
            return None;
        }
        status.state = CollectorState::Failed;
        status.since_ns = Some(at.unix_ns());
        let failed = event(at, EventKind::CollectorFailed, (collector, &text));
        status.problem = Some(text);
        Some(failed)
    }

    /// A collector was switched off.
    pub fn off(&self, collector: Collector) {
        self.states()[collector as usize] = CollectorStatus::new(collector);
    }

    /// Records that were lost so far.
    pub fn lost(&self, collector: Collector, total: u64) {
        self.states()[collector as usize].lost = total;
    }
}

/// What the log of the agent and the history say of a change.
fn event(at: Timestamp, kind: EventKind, (collector, text): (Collector, &str)) -> Event {
    eprintln!("mongosonar: {}: {text}", collector.name());
    Event::new(at, kind, Endpoint::default(), (collector.name(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_and_its_end_are_reported_once() {
        let board = CollectorBoard::new(|collector| collector != Collector::Files);
        let at = |second: u64| Timestamp::from_unix(1_000 + second, 0);
        let problem = |what: &str| CollectorProblem { what: what.to_owned(), fix: Some("sudo".to_owned()) };
        assert_eq!(board.data(Collector::Log, at(0)), None, "it has not failed before");
        let failed = board.failed(Collector::Log, at(1), &problem("mongod.log cannot be read")).unwrap();
        assert_eq!((failed.kind, &*failed.subject), (EventKind::CollectorFailed, "log"));
        assert_eq!(&*failed.text, "mongod.log cannot be read; fix: sudo");
        assert_eq!(board.failed(Collector::Log, at(2), &problem("mongod.log cannot be read")), None);
        assert!(board.failed(Collector::Log, at(3), &problem("it is gone")).is_some(), "another reason");
        let recovered = board.data(Collector::Log, at(4)).unwrap();
        assert_eq!((recovered.kind, recovered.at), (EventKind::CollectorRecovered, at(4)));
        assert_eq!(board.data(Collector::Log, at(5)), None);
        let log = board.all()[Collector::Log as usize].clone();
        assert_eq!((log.state, log.since_ns), (CollectorState::Working, Some(at(4).unix_ns())));
        assert_eq!(log.last_data_ns, Some(at(5).unix_ns()));
        board.waits(Collector::Files, "no server runs");
        assert_eq!(board.all()[Collector::Files as usize].state, CollectorState::Off);
    }
}
