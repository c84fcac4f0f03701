//! The threads of the collectors: those that fail are started again, and those that end hand over their last windows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::history::CollectorKind;
use sonar_core::observation::WindowPart;

use super::backoff::Backoff;
use super::board::{CollectorProblem, RESTART};
use super::files::FileSetup;
use super::followers::Followers;
use super::machine::MachineCollector;
use super::plan::LivePlan;
use super::record::AgentRecord;
use super::runner::{CollectorContext, CollectorPlan, CollectorThread};
use super::split::SplitSetup;
use super::status::StatusCollector;
use crate::agent::memory::{self, Holder};
use crate::agent::part_channel::{PartReceiver, TAKEN_AT_ONCE, part_channel_bytes};
use crate::capture::OperationListener;
use crate::confinement::thread_starter::ThreadStarter;

/// Parts of windows that wait to be joined.
pub const WAITING: usize = 256;
const _: () = assert!(part_channel_bytes(WAITING) <= memory::CHANNEL_BYTES, "the channel has its share");
/// So many calls of [`CollectorThreads::take`] take all that waits.
pub const TAKES: usize = WAITING.div_ceil(TAKEN_AT_ONCE);
/// Why a collector does not work whose thread panicked.
const FAILED: &str = "its thread has failed";

/// The collectors that have a thread of their own.
pub struct CollectorThreads {
    context: CollectorContext,
    parts: PartReceiver,
    /// Makes the collectors that need no privileges, each time that they start.
    followers: Followers,
    /// Starts threads once this one has dropped its privileges.
    starter: ThreadStarter,
    running: BTreeMap<CollectorKind, CollectorThread>,
    /// Those that have failed, and when they are started again.
    restarts: BTreeMap<CollectorKind, Backoff>,
}

impl CollectorThreads {
    /// None yet. Those of `context` send their windows to `parts`.
    pub fn new(
        context: CollectorContext,
        parts: PartReceiver,
        followers: Followers,
        starter: ThreadStarter,
    ) -> Self {
        Self { context, parts, followers, starter, running: BTreeMap::new(), restarts: BTreeMap::new() }
    }

    /// What starts threads later.
    pub fn starter(&self) -> ThreadStarter {
        self.starter.clone()
    }

    /// Lets all of them observe: this thread has dropped its privileges. Waits until they have done so, too.
    pub fn open_gate(&self) {
        self.context.gate.open();
    }

    /// All of them.
    pub fn all(&self) -> &BTreeMap<CollectorKind, CollectorThread> {
        &self.running
    }

    /// Counts what waits for this thread.
    pub fn count_memory(&self) {
        let bytes = self.parts.memory() + self.parts.channel_memory();
        self.context.board.held.set(Holder::Parts, bytes);
    }

    /// Starts the collector that divides the time of operations, if it is to run; gives who listens to operations.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn begin_split(
        &mut self,
        split: Option<Result<SplitSetup>>,
        record: &mut AgentRecord,
    ) -> Result<Option<Arc<Mutex<dyn OperationListener>>>> {
        match split {
            None => Ok(None),
            Some(Ok(search)) => {
                let listener = search.listener();
                Ok(self.begin(CollectorKind::Split, Box::new(search), record)?.then_some(listener))
            }
            Some(Err(error)) => {
                fails_for_good(CollectorKind::Split, &crate::exit::message(&error), record);
                Ok(None)
            }
        }
    }

    /// Starts the others that need privileges. One that fails is reported, and the others go on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn begin_others(
        &mut self,
        files: Option<FileSetup>,
        plan: &LivePlan<'_>,
        record: &mut AgentRecord,
    ) -> Result<()> {
        if let Some(search) = files {
            self.begin(CollectorKind::Files, Box::new(search), record)?;
        }
        if plan.runs(CollectorKind::Machine) {
            self.begin(CollectorKind::Machine, Box::new(MachineCollector), record)?;
        }
        if plan.runs(CollectorKind::Status) {
            let targets = plan.targets.clone();
            let follows_internals = plan.runs(CollectorKind::Internals);
            let follows_logs = plan.runs(CollectorKind::Log);
            let status = StatusCollector { targets, follows_internals, follows_logs };
            let network = ThreadStarter::network(plan.confined).context("cannot start a thread")?;
            let thread = self.context.start(&network, CollectorKind::Status, Box::new(status))?;
            self.wait_for_begin(CollectorKind::Status, thread, record);
        }
        Ok(())
    }

    /// Starts a collector that needs privileges, and waits until it has dropped what it does not need. Returns whether
    /// it goes on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn begin(
        &mut self,
        kind: CollectorKind,
        plan: Box<dyn CollectorPlan>,
        record: &mut AgentRecord,
    ) -> Result<bool> {
        let thread = self.context.start(&ThreadStarter::Here, kind, plan)?;
        Ok(self.wait_for_begin(kind, thread, record))
    }

    fn wait_for_begin(
        &mut self,
        kind: CollectorKind,
        thread: CollectorThread,
        record: &mut AgentRecord,
    ) -> bool {
        let goes_on = thread.has_begun();
        if goes_on {
            self.running.insert(kind, thread);
        } else if thread.handle.join().is_err() {
            fails_for_good(kind, FAILED, record);
        }
        goes_on
    }

    /// Starts a collector that follows files of servers; whether this is one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn follow(&mut self, kind: CollectorKind) -> Result<bool> {
        let Some(plan) = (self.followers)(kind) else { return Ok(false) };
        self.running.insert(kind, self.context.start(&self.starter, kind, plan)?);
        Ok(true)
    }

    /// Starts collectors again that have failed, where they need no privileges. Returns those whose threads have ended.
    pub fn restart(&mut self, record: &mut AgentRecord) -> Vec<CollectorKind> {
        let has_ended = |thread: &CollectorThread| thread.handle.is_finished();
        let ended: Vec<CollectorKind> =
            self.running.iter().filter(|(_, one)| has_ended(one)).map(|(kind, _)| *kind).collect();
        for kind in &ended {
            let failed = self.running.remove(kind).is_some_and(|thread| thread.handle.join().is_err());
            if (self.followers)(*kind).is_some() {
                self.try_again(*kind, FAILED.to_owned(), record);
            } else if failed {
                // One that ends in order has reported why.
                fails_for_good(*kind, FAILED, record);
            }
        }
        let now = record.clock.instant();
        let is_due = |(kind, backoff): &(&CollectorKind, &Backoff)| {
            backoff.is_due(now) && !self.running.contains_key(*kind)
        };
        let due: Vec<CollectorKind> = self.restarts.iter().filter(is_due).map(|(kind, _)| *kind).collect();
        for kind in due {
            if self.follow(kind).is_ok() {
                record.passes(kind);
            }
        }
        ended
    }

    /// A collector that needs no privileges has failed: it is started again after a pause.
    pub fn try_again(&mut self, kind: CollectorKind, what: String, record: &mut AgentRecord) {
        self.restarts.entry(kind).or_default().failed(record.clock.instant());
        record.fail(kind, &CollectorProblem::temporary(what));
    }

    /// Ends a collector, which is not started again; gives its thread, if it has one.
    pub fn stop(&mut self, kind: CollectorKind) -> Option<CollectorThread> {
        self.restarts.remove(&kind);
        let thread = self.running.remove(&kind)?;
        thread.stop.store(true, Ordering::Relaxed);
        Some(thread)
    }

    /// The parts of windows that have come; waits at most so long for one.
    pub fn take(&self, wait: Duration) -> Vec<WindowPart> {
        self.parts.take(wait)
    }
}

/// A collector does not work until the agent is started again.
fn fails_for_good(kind: CollectorKind, what: &str, record: &mut AgentRecord) {
    record.fail(kind, &CollectorProblem::permanent(what.to_owned(), Some(RESTART.to_owned())));
}
