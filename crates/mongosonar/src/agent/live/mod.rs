//! The running agent: opens all sources, drops its privileges, and stores what they observe.
//!
//! Each collector has a thread of its own and sends windows to the main thread, which joins and stores them. The main
//! thread and all threads that start after it drop their privileges; what still needs some is done by helper processes
//! (`inspector`, and those of `io live`), which start first.

mod backoff;
mod board;
mod client_ends;
mod clock_reading;
mod collecting;
mod collector_helpers;
mod costs;
mod described_server;
mod files;
mod followed_log;
mod followers;
mod helpers;
mod inspector;
mod internals;
mod known_servers;
mod listing;
mod lives;
mod log;
mod machine;
mod names;
mod network;
mod now;
mod opener;
mod options;
mod page;
mod plan;
mod positions;
mod pulse;
mod queries;
mod reload;
mod runner;
mod search;
mod split;
mod stating;
mod status;
mod store_folder;
mod storing;
mod threads;
mod watched;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sonar_core::history::{CollectorKind, Event};
use sonar_core::observation::Assembler;
use sonar_core::{HistoryWriter, Timestamp};
use sonar_sys::Host;
use sonar_sys::kernel_log::KernelLog;
use sonar_sys::resource::ResourceUsage;
use sonar_view::agent::AgentSummary;

use self::backoff::Backoff;
use self::board::{CollectorBoard, CollectorProblem, SourceId};
use self::clock_reading::{ClockReading, HostClock};
use self::collector_helpers::CollectorHelpers;
use self::costs::CostMeter;
use self::followers::Followers;
use self::helpers::HelperWatch;
use self::inspector::Inspector;
use self::lives::ServerLives;
use self::now::round::RunningRound;
use self::opener::NetworkState;
use self::page::AgentPage;
pub use self::plan::LivePlan;
use self::positions::LogPositions;
use self::pulse::{StorePulse, WatchTask};
use self::queries::QueriesCollector;
use self::runner::{CollectorContext, CollectorThread};
use self::store_folder::StoreFolder;
use self::watched::WatchedServers;
use super::applications::KnownApplications;
use super::memory;
use super::notify::ServiceManager;
use super::part_channel::{PartReceiver, part_channel, part_channel_bytes};
use super::servers::LocalServers;
use super::store::{self, AgentStore};
use super::summed_store::SummedStore;
use crate::args::when::now;
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;
use crate::confinement::start_order;
use crate::confinement::thread_starter::ThreadStarter;
use crate::servers;
use crate::stop::{Signals, StopBehavior};

/// Parts of windows that wait to be joined.
const WAITING: usize = 256;
const _: () = assert!(part_channel_bytes(WAITING) <= memory::CHANNEL_BYTES, "the channel has its share");
/// The longest sleep of the main thread.
const NAP: Duration = Duration::from_millis(250);
/// How often to search for servers.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// How often, and for how long, to search for a server that may have been restarted.
const RESTART_EVERY: Duration = Duration::from_secs(1);
const RESTART_WITHIN: Duration = Duration::from_secs(60);
/// How often to look at interfaces that are named in the configuration: they come and go.
const INTERFACES_EVERY: Duration = Duration::from_secs(2);
/// How often the status is written.
const STATUS_EVERY: Duration = Duration::from_secs(2);
/// How long collectors may take to hand over their last windows.
const PATIENCE: Duration = Duration::from_secs(8);

/// Collects until it is stopped; gives what was stored.
///
/// # Errors
/// The store cannot be used, or no collector works; or only a new start helps: a helper process has ended, or the folder
/// of the store was deleted.
pub fn run(plan: LivePlan<'_>) -> Result<AgentSummary> {
    let signals = Signals::catch(StopBehavior::Service)?;
    let (reload, asked_to_stop) = (on_signals(&[SIGHUP])?, on_signals(&[SIGTERM, SIGINT])?);
    // Helpers come first: no thread may run yet, and they get nothing that is opened later.
    let page = AgentPage::start(&plan);
    let inspector = Arc::new(Inspector::start(&plan.settings.server, plan.config, plan.confined));
    let helpers = CollectorHelpers::start(&plan);
    let opened = OpenedAgent::open(&plan, inspector, page, asked_to_stop)?;
    let mut agent = LiveAgent::new(plan, opened);
    agent.look_around()?;
    if agent.context.servers.all().is_empty() {
        let found = servers::listeners(&Host::live()).unwrap_or_default();
        agent.hidden_servers = servers::ports_unknown(&found);
    }
    let lookup = agent.open(helpers)?;
    let (config, folder) = (agent.plan.config.map(Path::to_path_buf), agent.plan.folder.to_path_buf());
    let confined = agent.plan.confined;
    let stop = signals.watch(|| {
        start_order::drop_privileges(confined, || drop_privileges(config.as_deref(), &folder));
    })?;
    agent.context.gate.open();
    agent.start(lookup)?;
    agent.collect(stop.flag(), &reload);
    let why = agent.restart_reason.take();
    let summary = agent.finish();
    match why {
        // Its service starts it again after a failure.
        Some(why) => {
            bail!("{why}: the agent ends, so that its service starts it again")
        }
        None => Ok(summary),
    }
}

/// Set by each of these signals.
fn on_signals(signals: &[i32]) -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, flag.clone()).context("cannot listen for signals")?;
    }
    Ok(flag)
}

/// Drops all privileges but writing to the store and reading what the status and a changed configuration need.
fn drop_privileges(config: Option<&Path>, folder: &Path) {
    let config =
        config.and_then(Path::parent).map_or_else(|| PathBuf::from("/etc/mongosonar"), Path::to_path_buf);
    privileges::drop_privileges_but_writing(&[Path::new("/proc"), Path::new("/sys"), &config], folder, &[]);
}

/// What an agent has when it begins.
struct OpenedAgent {
    starter: ThreadStarter,
    pulse: Arc<StorePulse>,
    store: Box<dyn AgentStore>,
    kernel_log: Option<KernelLog>,
    applications: Arc<KnownApplications>,
    manager: Arc<ServiceManager>,
    inspector: Arc<Inspector>,
    page: AgentPage,
}

impl OpenedAgent {
    /// Opens the store and what else takes privileges. `asked_to_stop` is set once the agent is to end.
    ///
    /// # Errors
    /// The store cannot be used, or a thread cannot be started.
    fn open(
        plan: &LivePlan<'_>,
        inspector: Arc<Inspector>,
        page: AgentPage,
        asked_to_stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let manager = Arc::new(ServiceManager::from_environment());
        let starter = match plan.confined {
            true => ThreadStarter::confined().context("cannot start a thread")?,
            false => ThreadStarter::Here,
        };
        let folder = plan.folder.to_path_buf();
        let task = WatchTask { stop: asked_to_stop, folder, manager: manager.clone() };
        let pulse = StorePulse::watched(&starter, task)?;
        let opening = pulse.begin();
        let store = store::open(plan.folder, &plan.settings.store, true)?;
        // Without them known applications would be new.
        let applications = Arc::new(KnownApplications::read(&store, now()).unwrap_or_else(|error| {
            eprintln!("mongosonar: the applications of the history cannot be read: {error}");
            KnownApplications::default()
        }));
        let page = page.begin(plan.folder);
        drop(opening);
        // Opening it may take a privilege that is dropped.
        let kernel_log = KernelLog::open().ok();
        let store = Box::new(store);
        Ok(Self { starter, pulse, store, kernel_log, applications, manager, inspector, page })
    }
}

/// An agent that runs.
struct LiveAgent<'a> {
    plan: LivePlan<'a>,
    assembler: Assembler<SummedStore<Box<dyn AgentStore>>>,
    /// What it shares with its collectors.
    context: CollectorContext,
    parts: PartReceiver,
    /// Makes the collectors that need no privileges, each time that they start.
    followers: Followers,
    inspector: Arc<Inspector>,
    /// Starts threads once this one has dropped its privileges.
    starter: ThreadStarter,
    /// Notices that the folder of the store does not answer.
    pulse: Arc<StorePulse>,
    /// Also those that have ended.
    servers: LocalServers,
    lives: ServerLives,
    queries: Option<QueriesCollector>,
    threads: BTreeMap<CollectorKind, CollectorThread>,
    /// Threads that have failed, and when they are started again.
    restarts: BTreeMap<CollectorKind, Backoff>,
    costs: CostMeter,
    /// Why the last change of the configuration was refused, if it was.
    refused: Option<String>,
    /// Why the network of this host is not known, if it is not.
    network_problem: Option<String>,
    /// When the network was looked at.
    network_seen: Option<Instant>,
    manager: Arc<ServiceManager>,
    notices: Vec<String>,
    searched: Option<Instant>,
    /// When the process of a server last ended.
    last_end: Option<Instant>,
    stated: Option<Instant>,
    /// When the servers were written for the next run.
    kept: Option<Instant>,
    /// What the kernel says of processes that it kills; `None` if it may not be read.
    kernel_log: Option<KernelLog>,
    store_folder: StoreFolder,
    /// Why nothing can be stored, as long as that is so.
    store_problem: Option<String>,
    /// Why the last window that was lost for another reason was lost.
    last_loss: Option<String>,
    /// Lost windows of earlier full disks, which have been reported.
    losses_reported: u64,
    /// Why the status cannot be written, if it cannot.
    status_problem: Option<String>,
    /// Why the inspector did not answer the last search for servers, if it did not.
    unanswered: Option<CollectorProblem>,
    helpers: HelperWatch,
    page: AgentPage,
    /// The operations that somebody looks at.
    running: RunningRound,
    /// Why only a new start helps, as soon as that is so.
    restart_reason: Option<String>,
    /// Servers that ran at the start and whose ports this process may not see, if it saw no port of any.
    hidden_servers: Option<String>,
    /// Late answers of helpers that were reported.
    late_answers: u64,
    begun: ClockReading,
}

impl<'a> LiveAgent<'a> {
    /// One without collectors, which has seen nothing yet.
    fn new(plan: LivePlan<'a>, opened: OpenedAgent) -> Self {
        let OpenedAgent { starter, pulse, store, kernel_log, applications, manager, inspector, page } =
            opened;
        let (to, parts) = part_channel(WAITING);
        let context = CollectorContext {
            to,
            servers: Arc::new(WatchedServers::default()),
            board: Arc::new(CollectorBoard::new(|collector| plan.runs(collector))),
            gate: StartGate::default(),
            clock: Arc::new(HostClock),
            confined: plan.confined,
        };
        let begun = ClockReading::now();
        let positions = Arc::new(LogPositions::stored(&store.positions()));
        let followers = followers::of_servers(inspector.clone(), positions, begun, applications);
        Self {
            starter,
            pulse,
            assembler: SummedStore::assembler(store, plan.folder, memory::ASSEMBLY),
            servers: LocalServers::default(),
            lives: ServerLives::default(),
            queries: None,
            threads: BTreeMap::new(),
            restarts: BTreeMap::new(),
            costs: CostMeter::default(),
            refused: None,
            network_problem: None,
            network_seen: None,
            notices: Vec::new(),
            searched: None,
            last_end: None,
            stated: None,
            kept: None,
            kernel_log,
            store_folder: StoreFolder::at(plan.folder),
            store_problem: None,
            last_loss: None,
            losses_reported: 0,
            status_problem: None,
            unanswered: None,
            helpers: HelperWatch::default(),
            restart_reason: None,
            running: RunningRound::default(),
            hidden_servers: None,
            late_answers: 0,
            begun,
            page,
            followers,
            manager,
            inspector,
            context,
            parts,
            plan,
        }
    }
}

impl LiveAgent<'_> {
    /// What time it is.
    fn now(&self) -> Timestamp {
        self.context.clock.now().time
    }

    /// The present moment, by a clock that nobody sets.
    fn instant(&self) -> Instant {
        self.context.clock.now().at
    }

    /// Whether something is due again that was last done then.
    fn is_due(&self, last: Option<Instant>, every: Duration) -> bool {
        last.is_none_or(|last| self.instant().saturating_duration_since(last) >= every)
    }

    /// Notes who and what is here before collectors begin.
    ///
    /// # Errors
    /// What this process uses cannot be measured.
    fn look_around(&mut self) -> Result<()> {
        if let Some(missing) = sonar_sys::privileges::missing_to_leave_root().filter(|_| self.plan.confined) {
            self.note(format!(
                "its threads and helpers stay root, because {missing} (mongosonar doctor says what helps)"
            ));
        }
        self.note_network(&NetworkState::now());
        // Cost is shown without opening anything later.
        ResourceUsage::now()?;
        self.look_for_servers();
        self.note_absence();
        Ok(())
    }

    /// A collector or a part of it fails: reported once.
    fn fail(&mut self, source: impl Into<SourceId>, problem: &CollectorProblem) {
        let event = self.context.board.failed(source, self.now(), problem);
        event.into_iter().for_each(|event| self.event(event));
    }

    /// What was wrong with a collector or a part of it has passed.
    fn passes(&mut self, source: impl Into<SourceId>) {
        let event = self.context.board.passed(source, self.now());
        event.into_iter().for_each(|event| self.event(event));
    }

    fn event(&mut self, event: Event) {
        self.assembler.event(event);
    }
}

#[cfg(test)]
mod tests;
