//! The state of each collector: what the status shows, and what is reported once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sonar_core::history::{CollectorKind, Event, EventKind};
use sonar_core::{Endpoint, Timestamp};
use sonar_sys::capabilities::grant_line;
use sonar_view::agent::{CollectorState, CollectorStatus};

use super::now::board::RunningBoard;
use crate::agent::memory::HeldMemory;
use crate::agent::servers::local;
use crate::confinement::helper_channel::HELPER_ENDED;
use crate::locking::lock;

/// What helps where something can be opened only before privileges are dropped.
pub const RESTART: &str = "restart the agent: systemctl restart mongosonar";

/// Why a collector, or a part of it, does not work, and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorProblem {
    /// What is wrong.
    pub what: String,
    /// The command or the change that helps.
    pub fix: Option<String>,
    /// Whether trying again is useless until somebody applies the fix.
    pub is_permanent: bool,
}

impl CollectorProblem {
    /// One that may pass by itself: the agent tries again.
    pub fn temporary(what: String) -> Self {
        Self { what, fix: None, is_permanent: false }
    }

    /// One that stays until somebody does something.
    pub fn permanent(what: String, fix: Option<String>) -> Self {
        Self { what, fix, is_permanent: true }
    }

    /// On one line.
    pub fn text(&self) -> String {
        match &self.fix {
            Some(fix) => format!("{}; fix: {fix}", self.what),
            None => self.what.clone(),
        }
    }
}

/// A file or folder that cannot be read.
pub fn unreadable(path: &str, error: &io::Error) -> CollectorProblem {
    let what = || format!("{path} cannot be read: {error}");
    match error.kind() {
        HELPER_ENDED | io::ErrorKind::TimedOut => unanswered(error),
        io::ErrorKind::PermissionDenied => CollectorProblem::permanent(what(), Some(grant_line())),
        _ => CollectorProblem::temporary(what()),
    }
}

/// A helper process has gone, or does not answer now. Only a start of the agent starts one.
pub fn unanswered(error: &io::Error) -> CollectorProblem {
    match error.kind() {
        io::ErrorKind::TimedOut => CollectorProblem::temporary(error.to_string()),
        _ => CollectorProblem::permanent(error.to_string(), Some(RESTART.to_owned())),
    }
}

/// A part of a collector that works or fails by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourcePart {
    /// The collector as a whole.
    Whole,
    /// What it reads of the server with this name in the history.
    Server(Endpoint),
    /// A network interface.
    Interface(String),
    /// What it asks the server with this name, which may be on another host.
    Host(String),
    /// The helper process with this name.
    Helper(String),
}

/// A collector, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceId {
    collector: CollectorKind,
    part: SourcePart,
}

impl From<CollectorKind> for SourceId {
    fn from(collector: CollectorKind) -> Self {
        Self { collector, part: SourcePart::Whole }
    }
}

impl SourceId {
    /// What it reads of the server with this name in the history.
    pub const fn of_server(collector: CollectorKind, server: Endpoint) -> Self {
        Self { collector, part: SourcePart::Server(server) }
    }

    /// A network interface.
    pub fn of_interface(collector: CollectorKind, name: &str) -> Self {
        Self { collector, part: SourcePart::Interface(name.to_owned()) }
    }

    /// A server that is asked over the network.
    pub fn of_host(collector: CollectorKind, host: &str) -> Self {
        Self { collector, part: SourcePart::Host(host.to_owned()) }
    }

    /// A helper process that does a part of the work.
    pub fn of_helper(collector: CollectorKind, name: &str) -> Self {
        Self { collector, part: SourcePart::Helper(name.to_owned()) }
    }

    /// What the log of the agent calls it.
    fn name(&self) -> String {
        match &self.part {
            SourcePart::Whole => self.collector.name().to_owned(),
            part => format!("{}, {}", self.collector.name(), name_of(part)),
        }
    }

    /// What the log of the agent and the history say of a change.
    fn event(&self, at: Timestamp, kind: EventKind, text: &str) -> Event {
        eprintln!("mongosonar: {}: {text}", self.name());
        let server = match self.part {
            SourcePart::Server(server) => server,
            _ => Endpoint::default(),
        };
        let text = match &self.part {
            SourcePart::Host(_) | SourcePart::Helper(_) => format!("{}: {text}", name_of(&self.part)),
            _ => text.to_owned(),
        };
        Event::new(at, kind, server, &text).about(self.collector.name())
    }
}

fn name_of(part: &SourcePart) -> String {
    match part {
        SourcePart::Whole => String::new(),
        SourcePart::Server(server) if *server == local(server.port) => format!("port {}", server.port),
        SourcePart::Server(server) => server.to_string(),
        SourcePart::Interface(name) => format!("interface {name}"),
        SourcePart::Host(name) => name.clone(),
        SourcePart::Helper(name) => format!("helper process {name}"),
    }
}

/// A collector. It has as many parts as there are servers and named interfaces, which are bounded.
#[derive(Debug)]
struct CollectorEntry {
    status: CollectorStatus,
    is_wanted: bool,
    /// Why it has nothing to collect.
    idle: Option<String>,
    working: BTreeSet<SourcePart>,
    failing: BTreeMap<SourcePart, CollectorProblem>,
}

impl CollectorEntry {
    fn new(collector: CollectorKind, is_wanted: bool) -> Self {
        let mut entry = Self {
            status: CollectorStatus::new(collector),
            is_wanted,
            idle: None,
            working: BTreeSet::new(),
            failing: BTreeMap::new(),
        };
        entry.update(None);
        entry
    }

    fn works(&mut self, source: &SourceId, at: Timestamp) -> Option<Event> {
        let has_failed = self.failing.remove(&source.part).is_some();
        let is_new = self.working.insert(source.part.clone());
        if has_failed || is_new {
            self.update(Some(at));
        }
        has_failed.then(|| source.event(at, EventKind::CollectorRecovered, "it works again"))
    }

    /// Works the state out from the parts; it has been so since `at`.
    fn update(&mut self, at: Option<Timestamp>) {
        let state = if !self.is_wanted {
            CollectorState::Off
        } else if !self.working.is_empty() {
            CollectorState::Working
        } else if self.failing.values().any(|problem| problem.is_permanent) {
            CollectorState::NeedsYou
        } else {
            CollectorState::Waiting
        };
        if state != self.status.state {
            self.status.state = state;
            self.status.since_ns = at.map(Timestamp::unix_ns);
        }
        let problem = |(part, problem): (&SourcePart, &CollectorProblem)| match part {
            SourcePart::Whole => problem.text(),
            part => format!("{}: {}", name_of(part), problem.text()),
        };
        self.status.problems = self.failing.iter().map(problem).collect();
        if self.working.is_empty() && self.failing.is_empty() && self.is_wanted {
            self.status.problems.extend(self.idle.clone());
        }
    }
}

/// The state of all collectors. Any thread may report; a repeated report changes nothing.
#[derive(Debug)]
pub struct CollectorBoard {
    entries: Mutex<Vec<CollectorEntry>>,
    /// What holds memory, as far as threads have said.
    pub held: HeldMemory,
    /// Operations that run, as long as somebody looks.
    pub running: RunningBoard,
}

impl CollectorBoard {
    /// Wanted collectors wait, the others are off.
    pub fn new(is_wanted: impl Fn(CollectorKind) -> bool) -> Self {
        let entry = |collector| CollectorEntry::new(collector, is_wanted(collector));
        let entries = Mutex::new(CollectorKind::ALL.into_iter().map(entry).collect());
        Self { entries, held: HeldMemory::default(), running: RunningBoard::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<CollectorEntry>> {
        lock(&self.entries)
    }

    /// All of them, in the order of [`CollectorKind::ALL`].
    pub fn all(&self) -> Vec<CollectorStatus> {
        self.entries().iter().map(|entry| entry.status.clone()).collect()
    }

    /// It delivered data of `at`, so it works. Gives an event if it has failed before.
    pub fn data(&self, source: impl Into<SourceId>, at: Timestamp) -> Option<Event> {
        let source = source.into();
        let entry = &mut self.entries()[source.collector as usize];
        entry.status.last_data_ns = Some(at.unix_ns()).max(entry.status.last_data_ns);
        entry.works(&source, at)
    }

    /// A collector delivered data of `at`, and may lack other data.
    pub fn delivered(&self, collector: CollectorKind, at: Timestamp) {
        let status = &mut self.entries()[collector as usize].status;
        status.last_data_ns = Some(at.unix_ns()).max(status.last_data_ns);
    }

    /// What a collector collects, in a line for each server.
    pub fn notes(&self, collector: CollectorKind, notes: Vec<String>) {
        self.entries()[collector as usize].status.notes = notes;
    }

    /// It works, with or without new data. Gives an event if it has failed before.
    pub fn works(&self, source: impl Into<SourceId>, at: Timestamp) -> Option<Event> {
        let source = source.into();
        self.entries()[source.collector as usize].works(&source, at)
    }

    /// What was wrong with it has passed; whether it works it reports itself. Gives an event if it has failed before.
    pub fn passed(&self, source: impl Into<SourceId>, at: Timestamp) -> Option<Event> {
        let source = source.into();
        let entry = &mut self.entries()[source.collector as usize];
        entry.failing.remove(&source.part)?;
        entry.update(Some(at));
        Some(source.event(at, EventKind::CollectorRecovered, "it works again"))
    }

    /// A collector has nothing to collect: no server runs.
    pub fn waits(&self, collector: CollectorKind, why: &str) {
        let entry = &mut self.entries()[collector as usize];
        entry.working.clear();
        // Helper processes are those of all servers.
        entry.failing.retain(|part, _| matches!(part, SourcePart::Helper(_)));
        entry.idle = Some(why.to_owned());
        entry.update(None);
    }

    /// It cannot work. Gives an event the first time, and when the reason changes.
    pub fn failed(
        &self,
        source: impl Into<SourceId>,
        at: Timestamp,
        problem: &CollectorProblem,
    ) -> Option<Event> {
        let source = source.into();
        let entry = &mut self.entries()[source.collector as usize];
        if entry.failing.get(&source.part) == Some(problem) {
            return None;
        }
        entry.working.remove(&source.part);
        entry.failing.insert(source.part.clone(), problem.clone());
        entry.update(Some(at));
        Some(source.event(at, EventKind::CollectorFailed, &problem.text()))
    }

    /// A part no longer exists: its server has ended.
    pub fn forget(&self, source: impl Into<SourceId>) {
        let source = source.into();
        let entry = &mut self.entries()[source.collector as usize];
        entry.working.remove(&source.part);
        entry.failing.remove(&source.part);
        entry.update(None);
    }

    /// Forgets the interfaces that are no longer captured.
    pub fn keep_interfaces(&self, collector: CollectorKind, names: &[String]) {
        let entry = &mut self.entries()[collector as usize];
        entry.failing.retain(|part, _| !matches!(part, SourcePart::Interface(name) if !names.contains(name)));
        entry.update(None);
    }

    /// A collector was switched on or off.
    pub fn want(&self, collector: CollectorKind, is_wanted: bool) {
        self.entries()[collector as usize] = CollectorEntry::new(collector, is_wanted);
    }

    /// Whether a collector is switched on.
    pub fn is_wanted(&self, collector: CollectorKind) -> bool {
        self.entries()[collector as usize].is_wanted
    }

    /// Why a part is not collected; `None` if it is, as far as that is known.
    pub fn problem(&self, source: impl Into<SourceId>) -> Option<String> {
        let source = source.into();
        let entry = &self.entries()[source.collector as usize];
        match entry.is_wanted {
            true => entry.failing.get(&source.part).map(CollectorProblem::text),
            false => Some(format!("{} is switched off", source.collector.name())),
        }
    }

    /// Whether a part has been collected, and nothing is known to be wrong with it.
    pub fn is_collected(&self, source: impl Into<SourceId>) -> bool {
        let source = source.into();
        self.entries()[source.collector as usize].working.contains(&source.part)
    }

    /// What fails, in words.
    pub fn failing(&self) -> Vec<String> {
        let entries = self.entries();
        let of = |entry: &CollectorEntry| {
            let name = entry.status.name.clone();
            let texts = if entry.failing.is_empty() { Vec::new() } else { entry.status.problems.clone() };
            texts.into_iter().map(move |text| format!("{name}: {text}"))
        };
        entries.iter().flat_map(of).collect()
    }

    /// How long its eBPF programs have run so far, if the kernel measures it.
    pub fn ebpf(&self, collector: CollectorKind, run_time: Option<Duration>) {
        self.entries()[collector as usize].status.ebpf_ns = run_time.map(|time| time.as_nanos() as u64);
    }

    /// Records that were lost so far.
    pub fn lost(&self, collector: CollectorKind, total: u64) {
        self.entries()[collector as usize].status.lost = total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_000 + second, 0)
    }

    fn denied(what: &str) -> CollectorProblem {
        CollectorProblem::permanent(what.to_owned(), Some("sudo".to_owned()))
    }

    fn log_of(board: &CollectorBoard) -> CollectorStatus {
        board.all()[CollectorKind::Log as usize].clone()
    }

    #[test]
    fn a_failure_and_its_end_are_reported_once() {
        let board = CollectorBoard::new(|collector| collector != CollectorKind::Files);
        let log = || SourceId::of_server(CollectorKind::Log, local(5));
        assert_eq!(board.data(log(), at(0)), None, "it has not failed before");
        let failed = board.failed(log(), at(1), &denied("mongod.log cannot be read")).unwrap();
        assert_eq!((failed.kind, &*failed.subject), (EventKind::CollectorFailed, "log"));
        assert_eq!((failed.server, &*failed.text), (local(5), "mongod.log cannot be read; fix: sudo"));
        assert_eq!(board.failed(log(), at(2), &denied("mongod.log cannot be read")), None);
        assert!(board.failed(log(), at(3), &denied("it is gone")).is_some(), "another reason");
        assert_eq!(log_of(&board).since_ns, Some(at(1).unix_ns()), "it has needed somebody since the first");
        let recovered = board.data(log(), at(4)).unwrap();
        assert_eq!((recovered.kind, recovered.at), (EventKind::CollectorRecovered, at(4)));
        assert_eq!(board.data(log(), at(5)), None);
        assert_eq!(board.works(log(), at(6)), None);
        let log = log_of(&board);
        assert_eq!((log.state, log.since_ns), (CollectorState::Working, Some(at(4).unix_ns())));
        assert_eq!(log.last_data_ns, Some(at(5).unix_ns()), "none came with the last report");
        board.waits(CollectorKind::Files, "no server runs");
        assert_eq!(board.all()[CollectorKind::Files as usize].state, CollectorState::Off);
    }

    #[test]
    fn one_server_that_fails_does_not_stop_the_others() {
        let board = CollectorBoard::new(|_| true);
        board.data(SourceId::of_server(CollectorKind::Log, local(5)), at(0));
        assert!(
            board
                .failed(
                    SourceId::of_server(CollectorKind::Log, local(6)),
                    at(1),
                    &denied("b.log cannot be read")
                )
                .is_some()
        );
        let log = log_of(&board);
        assert_eq!((log.state, log.since_ns), (CollectorState::Working, Some(at(0).unix_ns())));
        assert_eq!(log.problems, ["port 6: b.log cannot be read; fix: sudo"]);
        assert_eq!(
            board.problem(SourceId::of_server(CollectorKind::Log, local(6))).as_deref(),
            Some("b.log cannot be read; fix: sudo")
        );
        assert_eq!(board.problem(SourceId::of_server(CollectorKind::Log, local(5))), None);
        let is_collected = |port| board.is_collected(SourceId::of_server(CollectorKind::Log, local(port)));
        assert_eq!([5, 6, 7].map(is_collected), [true, false, false], "nothing was read of the last one yet");
        let off = CollectorBoard::new(|_| false);
        assert_eq!(
            off.problem(SourceId::of_server(CollectorKind::Log, local(5))).as_deref(),
            Some("log is switched off")
        );
        assert_eq!(
            board.data(SourceId::of_server(CollectorKind::Log, local(5)), at(2)),
            None,
            "it never failed"
        );
        board.forget(SourceId::of_server(CollectorKind::Log, local(5)));
        assert_eq!(log_of(&board).state, CollectorState::NeedsYou, "nothing else works");
        board.forget(SourceId::of_server(CollectorKind::Log, local(6)));
        assert_eq!((log_of(&board).state, log_of(&board).problems.len()), (CollectorState::Waiting, 0));
    }

    #[test]
    fn what_passes_by_itself_waits_and_what_needs_somebody_says_so() {
        let board = CollectorBoard::new(|_| true);
        let temporary = CollectorProblem::temporary("a.log does not exist".to_owned());
        assert!(board.failed(SourceId::of_server(CollectorKind::Log, local(5)), at(1), &temporary).is_some());
        assert_eq!(log_of(&board).state, CollectorState::Waiting);
        assert!(
            board
                .failed(
                    SourceId::of_server(CollectorKind::Log, local(5)),
                    at(2),
                    &denied("a.log cannot be read")
                )
                .is_some()
        );
        assert_eq!(log_of(&board).state, CollectorState::NeedsYou);
        board.waits(CollectorKind::Log, "no server runs");
        assert_eq!(
            (log_of(&board).state, log_of(&board).problems),
            (CollectorState::Waiting, vec!["no server runs".to_owned()])
        );
        board.want(CollectorKind::Log, false);
        assert_eq!((log_of(&board).state, log_of(&board).problems.len()), (CollectorState::Off, 0));
    }
}
