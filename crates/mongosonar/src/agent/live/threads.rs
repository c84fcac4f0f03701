//! The threads of the collectors: those that fail are started again, and those that end hand over their last windows.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sonar_core::history::CollectorKind;
use sonar_view::agent::CollectorState;

use super::backoff::Backoff;
use super::board::{CollectorProblem, RESTART};
use super::collector_helpers::CollectorHelpers;
use super::inspector::InspectedLog;
use super::machine::MachineCollector;
use super::queries::QueriesCollector;
use super::runner::{CollectorPlan, CollectorThread};
use super::status::StatusCollector;
use super::{LiveAgent, PATIENCE, WAITING};
use crate::agent::memory;
use crate::agent::part_channel::TAKEN_AT_ONCE;
use crate::capture::applications::Lookup;
use crate::confinement::thread_starter::ThreadStarter;
use crate::input::follow::FollowedPlace;

/// Why a collector does not work whose thread panicked.
const FAILED: &str = "its thread has failed";

impl LiveAgent<'_> {
    /// Opens what needs privileges; gives the logs that name the applications of open connections. A collector that
    /// fails is reported, and the others go on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn open(&mut self, helpers: CollectorHelpers) -> Result<Lookup> {
        let CollectorHelpers { opener, tls, files, split } = helpers;
        let mut lookup = Lookup::default();
        let listener = match split {
            None => None,
            Some(Ok(search)) => {
                let listener = search.listener();
                self.begin(CollectorKind::Split, Box::new(search))?.then_some(listener)
            }
            Some(Err(error)) => {
                let what = crate::exit::message(&error);
                self.fail(CollectorKind::Split, &CollectorProblem::permanent(what, Some(RESTART.to_owned())));
                None
            }
        };
        if let Some(opener) = opener {
            lookup = self.open_logs();
            let table = &self.plan.settings.queries;
            let queries = QueriesCollector::new(opener, table, self.context.servers.ports());
            self.queries =
                Some(queries.with_listener(listener).with_tls(tls).with_threads(self.starter.clone()));
        }
        if let Some(search) = files {
            self.begin(CollectorKind::Files, Box::new(search))?;
        }
        if self.plan.settings.collectors.machine {
            self.begin(CollectorKind::Machine, Box::new(MachineCollector))?;
        }
        if self.plan.runs(CollectorKind::Status) {
            let targets = self.plan.targets.clone();
            let follows_internals = self.plan.runs(CollectorKind::Internals);
            let follows_logs = self.plan.runs(CollectorKind::Log);
            let status = StatusCollector { targets, follows_internals, follows_logs };
            let network = ThreadStarter::network(self.plan.confined).context("cannot start a thread")?;
            self.begin_by(&network, CollectorKind::Status, Box::new(status))?;
        }
        Ok(lookup)
    }

    /// The logs of the servers, which name the applications of open connections.
    fn open_logs(&self) -> Lookup {
        let mut lookup = Lookup::default().confined(self.plan.confined).share(memory::NAMES_SHARE);
        for server in self.context.servers.all().iter() {
            let Some(path) = server.log.clone() else { continue };
            let mut place = InspectedLog::new(path, self.inspector.clone());
            if let Ok(newest) = place.open() {
                lookup.add_log(server.port, place.copies().into_iter().rev().chain([newest]).collect());
            }
        }
        lookup
    }

    /// Starts a collector that needs privileges, and waits until it has dropped what it does not need. Returns whether
    /// it goes on.
    pub(super) fn begin(&mut self, kind: CollectorKind, plan: Box<dyn CollectorPlan>) -> Result<bool> {
        self.begin_by(&ThreadStarter::Here, kind, plan)
    }

    /// The same in a thread that this one starts.
    fn begin_by(
        &mut self,
        starter: &ThreadStarter,
        kind: CollectorKind,
        plan: Box<dyn CollectorPlan>,
    ) -> Result<bool> {
        let thread = self.context.start(starter, kind, plan)?;
        let goes_on = thread.has_begun();
        if goes_on {
            self.threads.insert(kind, thread);
        } else if thread.handle.join().is_err() {
            self.fail(kind, &CollectorProblem::permanent(FAILED.to_owned(), Some(RESTART.to_owned())));
        }
        Ok(goes_on)
    }

    /// Starts what needs no privileges.
    ///
    /// # Errors
    /// No collector works, or a thread cannot be started.
    pub(super) fn start(&mut self, lookup: Lookup) -> Result<()> {
        for kind in [CollectorKind::Log, CollectorKind::Internals] {
            if self.plan.settings.collectors.runs(kind) {
                self.follow(kind)?;
            }
        }
        self.follow_network();
        if let Some(queries) = &mut self.queries {
            queries.look_up(lookup)?;
            queries.follow_tls()?;
        }
        self.ensure_capture_runs();
        let is_useless = |state| matches!(state, CollectorState::Off | CollectorState::NeedsYou);
        if self.threads.is_empty() && self.context.board.all().iter().all(|one| is_useless(one.state)) {
            bail!("no collector works");
        }
        Ok(())
    }

    /// Starts a collector that follows files of servers; whether this is one.
    pub(super) fn follow(&mut self, kind: CollectorKind) -> Result<bool> {
        let Some(plan) = (self.followers)(kind) else { return Ok(false) };
        self.threads.insert(kind, self.context.start(&self.starter, kind, plan)?);
        Ok(true)
    }

    /// Starts collectors again that have failed, where they need no privileges.
    pub(super) fn restart_collectors(&mut self) {
        let has_ended = |thread: &CollectorThread| thread.handle.is_finished();
        let ended: Vec<CollectorKind> =
            self.threads.iter().filter(|(_, one)| has_ended(one)).map(|(kind, _)| *kind).collect();
        for kind in ended {
            self.detach(kind);
            let failed = self.threads.remove(&kind).is_some_and(|thread| thread.handle.join().is_err());
            if (self.followers)(kind).is_some() {
                self.try_again(kind, FAILED.to_owned());
            } else if failed {
                // One that ends in order has reported why.
                self.fail(kind, &CollectorProblem::permanent(FAILED.to_owned(), Some(RESTART.to_owned())));
            }
        }
        let now = self.instant();
        let is_due = |(kind, backoff): &(&CollectorKind, &Backoff)| {
            backoff.is_due(now) && !self.threads.contains_key(*kind)
        };
        let due: Vec<CollectorKind> = self.restarts.iter().filter(is_due).map(|(kind, _)| *kind).collect();
        for kind in due {
            if self.follow(kind).is_ok() {
                self.passes(kind);
            }
        }
    }

    /// The thread of a collector has ended: nothing is passed on to it any more.
    fn detach(&mut self, collector: CollectorKind) {
        if collector == CollectorKind::Split
            && let Some(queries) = &mut self.queries
        {
            queries.without_listener();
        }
    }

    /// The thread of a collector that needs no privileges has failed: it is started again after a pause.
    pub(super) fn try_again(&mut self, collector: CollectorKind, what: String) {
        let now = self.instant();
        self.restarts.entry(collector).or_default().failed(now);
        self.fail(collector, &CollectorProblem::temporary(what));
    }

    /// Ends a collector, and takes its last windows.
    pub(super) fn end(&mut self, collector: CollectorKind) {
        if collector == CollectorKind::Queries
            && let Some(mut queries) = self.queries.take()
        {
            let (parts, _) = queries.finish(&self.servers);
            parts.into_iter().for_each(|part| self.add(part));
        }
        if let Some(thread) = self.threads.remove(&collector) {
            thread.stop.store(true, Ordering::Relaxed);
            self.wait_for(&[thread]);
            self.detach(collector);
        }
        self.restarts.remove(&collector);
        self.context.board.want(collector, false);
    }

    /// Takes windows until these threads have ended.
    pub(super) fn wait_for(&mut self, threads: &[CollectorThread]) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !threads.iter().all(|thread| thread.handle.is_finished()) {
            self.take(Duration::from_millis(20));
        }
        // All that is waiting now, also if a thread that does not end sends more.
        (0..WAITING.div_ceil(TAKEN_AT_ONCE)).for_each(|_| self.take(Duration::ZERO));
    }
}
