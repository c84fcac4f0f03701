//! Runs collectors. All that they have in common is here: each has a thread, windows, an entry on the board, and attempts
//! to open what it needs. A collector observes, and drops the privileges that this does not take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::Timestamp;
use sonar_core::history::{CollectorKind, Event};
use sonar_core::observation::WindowCutter;

use super::backoff::Backoff;
use super::board::{CollectorBoard, CollectorProblem};
use super::clock_reading::AgentClock;
use super::watched::WatchedServers;
use crate::agent::part_channel::{PartSender, SourceCount};
use crate::confinement::start_gate::StartGate;
use crate::confinement::thread_starter::ThreadStarter;

/// How often a thread that waits looks whether it is to end.
const NAP: Duration = Duration::from_millis(100);

/// What is opened before a collector observes, with the privileges that this takes.
pub trait CollectorPlan: Send {
    /// Opens it, in the thread of the collector.
    ///
    /// # Errors
    /// Why that is impossible, for good or now.
    fn open(self: Box<Self>) -> Result<Box<dyn Collector>, NotOpened>;
}

/// A source of the agent.
pub trait Collector {
    /// Drops the privileges of this thread but those that observing takes.
    fn drop_privileges(&self);

    /// Observes as long as [`Observation::goes_on`].
    ///
    /// # Errors
    /// Why it cannot go on.
    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem>;
}

/// Why a collector could not be opened.
pub struct NotOpened {
    /// What is reported.
    pub problem: CollectorProblem,
    /// What to open after a pause; `None` if that is useless.
    pub again: Option<Box<dyn CollectorPlan>>,
}

/// One that opens nothing.
impl<C: Collector + Send + 'static> CollectorPlan for C {
    fn open(self: Box<Self>) -> Result<Box<dyn Collector>, NotOpened> {
        Ok(self)
    }
}

/// What the threads of all collectors share with the rest of the agent.
#[derive(Clone)]
pub struct CollectorContext {
    /// Where their windows go.
    pub to: PartSender,
    /// The servers, and the addresses of this host.
    pub servers: Arc<WatchedServers>,
    /// Where they report their states.
    pub board: Arc<CollectorBoard>,
    /// Open once all threads have dropped their privileges: a collector observes nothing before.
    pub gate: StartGate,
    /// What time it is while they wait.
    pub clock: Arc<dyn AgentClock>,
    /// Whether they drop their privileges.
    pub confined: bool,
}

/// The thread of a collector.
pub struct CollectorThread {
    /// Finished once it has ended.
    pub handle: JoinHandle<()>,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
    begun: Receiver<()>,
}

impl CollectorThread {
    /// Waits until it has dropped its privileges, or keeps only those to try again; whether it goes on.
    pub fn has_begun(&self) -> bool {
        self.begun.recv().is_ok()
    }
}

impl CollectorContext {
    /// Starts the thread of a collector.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        &self,
        starter: &ThreadStarter,
        kind: CollectorKind,
        plan: Box<dyn CollectorPlan>,
    ) -> Result<CollectorThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let task = CollectorTask { kind, context: self.clone(), stop: stop.clone() };
        let (say, begun) = channel();
        let handle = starter.spawn(kind.name().to_owned(), move || task.run(plan, &say));
        Ok(CollectorThread { handle: handle.context("cannot start a thread")?, stop, begun })
    }
}

/// What the threads of one collector share.
#[derive(Clone)]
pub struct CollectorTask {
    /// Which one.
    pub kind: CollectorKind,
    /// What it shares with the others.
    pub context: CollectorContext,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
}

impl CollectorTask {
    /// Observes for it.
    pub fn observation(&self) -> Observation {
        let count = match self.kind {
            CollectorKind::Status => SourceCount::EachServer,
            _ => SourceCount::Few,
        };
        Observation { windows: self.context.to.cutter(count), task: self.clone() }
    }

    /// Opens what it needs, with further attempts where one may succeed later, and observes. Sends to `begun` once it has
    /// dropped the privileges that it does not need.
    fn run(self, mut plan: Box<dyn CollectorPlan>, begun: &Sender<()>) {
        let mut into = self.observation();
        let mut backoff = Backoff::default();
        let mut collector = loop {
            let NotOpened { problem, again } = match plan.open() {
                Ok(collector) => break collector,
                Err(why) => why,
            };
            into.failed(&problem);
            into.windows.finish();
            let Some(again) = again else { return };
            begun.send(()).ok();
            backoff.failed(into.instant());
            while !backoff.is_due(into.instant()) {
                if !into.nap() {
                    return;
                }
            }
            plan = again;
        };
        if self.context.confined {
            collector.drop_privileges();
        }
        begun.send(()).ok();
        // What it reads comes from outside: who takes it over could use the privileges of threads that still have some.
        self.context.gate.wait();
        if let Err(problem) = collector.observe(&mut into) {
            into.failed(&problem);
        }
        into.windows.finish();
    }
}

/// Where a collector's observations go, and what it reports.
pub struct Observation {
    /// Its windows.
    pub windows: WindowCutter,
    /// What its threads share.
    pub task: CollectorTask,
}

impl Observation {
    /// The servers, and the addresses of this host.
    pub fn servers(&self) -> &WatchedServers {
        &self.task.context.servers
    }

    /// Where it reports its state.
    pub fn board(&self) -> &CollectorBoard {
        &self.task.context.board
    }

    /// Whether it is not to end.
    pub fn goes_on(&self) -> bool {
        !self.task.stop.load(Ordering::Relaxed) && !self.windows.is_abandoned()
    }

    /// Waits for a moment; whether to go on.
    pub fn nap(&self) -> bool {
        self.task.context.clock.sleep(NAP);
        self.goes_on()
    }

    /// Waits until then; whether to go on.
    pub fn sleep(&self, until: Instant) -> bool {
        while self.instant() < until && self.nap() {}
        self.goes_on()
    }

    /// The present moment.
    fn instant(&self) -> Instant {
        self.task.context.clock.instant()
    }

    /// Calls `poll` again and again with this pause before each call, and once more when it is to end.
    pub fn each(&mut self, pause: Duration, mut poll: impl FnMut(&mut Self)) {
        loop {
            let goes_on = self.sleep(self.instant() + pause);
            poll(self);
            if !goes_on || self.windows.is_abandoned() {
                return;
            }
        }
    }

    /// Adds an event about the state of the collector, if there is one.
    pub fn report(&mut self, event: Option<Event>) {
        event.into_iter().for_each(|event| self.windows.event(event));
    }

    /// It cannot work.
    pub fn failed(&mut self, problem: &CollectorProblem) {
        let event = self.board().failed(self.task.kind, self.task.context.clock.time(), problem);
        self.report(event);
    }

    /// All that it observed until then is in windows.
    pub fn advance(&mut self, time: Timestamp) {
        self.windows.advance(time);
        self.windows.release_ahead(time);
    }
}
