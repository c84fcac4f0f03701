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
mod described_server;
mod files;
mod followed_log;
mod helpers;
mod inspector;
mod internals;
mod known_servers;
mod lives;
mod log;
mod machine;
mod network;
mod opener;
mod options;
mod path_bytes;
mod plan;
mod positions;
mod pulse;
mod queries;
mod reload;
mod report;
mod search;
mod split;
mod stating;
mod status;
mod status_file;
mod store_folder;
mod storing;
mod threads;
mod watched;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sonar_core::history::{CollectorKind, Event, EventKind};
use sonar_core::observation::Assembler;
use sonar_core::{Endpoint, HistoryWriter};
use sonar_store::SqliteHistory;
use sonar_sys::Host;
use sonar_sys::kernel_log::KernelLog;
use sonar_sys::resource::ResourceUsage;
use sonar_sys::split::SplitRoom;
use sonar_sys::tls::TlsRoom;
use sonar_view::agent::{AgentStatus, AgentSummary, CollectorState};

use self::backoff::Backoff;
use self::board::{CollectorBoard, CollectorProblem, RESTART, SourceId};
use self::clock_reading::ClockReading;
use self::files::{FileSearch, FilesTask};
use self::helpers::HelperWatch;
use self::inspector::{InspectedLog, Inspector};
use self::lives::ServerLives;
use self::log::FollowTask;
use self::machine::MachineTask;
use self::opener::{NetworkState, RingOpener};
pub use self::plan::LivePlan;
use self::positions::LogPositions;
use self::pulse::{StorePulse, WatchTask};
use self::queries::QueriesCollector;
use self::report::CostMeter;
use self::split::{SplitSearch, SplitTask};
use self::status::{StatusReports, StatusTask};
use self::store_folder::StoreFolder;
use self::watched::WatchedServers;
use super::applications::KnownApplications;
use super::memory;
use super::notify::ServiceManager;
use super::part_channel::{PartReceiver, PartSender, part_channel, part_channel_bytes};
use super::servers::LocalServers;
use super::store;
use super::summed_store::SummedStore;
use crate::args::when::now;
use crate::capture::OperationListener;
use crate::capture::applications::Lookup;
use crate::capture::splitting::{OpenFilesRoom, SplitPlan};
use crate::capture::tls::{AttachedCapture, AttacherTask, EncryptedAccess, TlsCapture};
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;
use crate::confinement::start_order;
use crate::confinement::thread_starter::ThreadStarter;
use crate::input::follow::FollowedPlace;
use crate::large::LARGE;
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

/// What `--status` shows; `None` if no agent runs.
///
/// # Errors
/// The status cannot be read.
pub fn status(folder: &Path) -> Result<Option<AgentStatus>> {
    status_file::read(folder)
}

/// Collects until it is stopped; gives what was stored.
///
/// # Errors
/// The store cannot be used, or no collector works; or only a new start helps: a helper process has ended, or the folder
/// of the store was deleted.
pub fn run(plan: LivePlan<'_>) -> Result<AgentSummary> {
    let signals = Signals::catch(StopBehavior::Service)?;
    let reload = Arc::new(AtomicBool::new(false));
    let asked_to_stop = Arc::new(AtomicBool::new(false));
    for (signal, flag) in [(SIGHUP, &reload), (SIGTERM, &asked_to_stop), (SIGINT, &asked_to_stop)] {
        signal_hook::flag::register(signal, flag.clone()).context("cannot listen for signals")?;
    }
    let manager = Arc::new(ServiceManager::from_environment());
    let settings = &plan.settings;
    let board = Arc::new(CollectorBoard::new(|collector| plan.runs(collector)));
    // Helpers come first: no thread may run yet, and they get nothing that is opened later.
    let inspector = Arc::new(Inspector::start(&settings.server, plan.config, plan.confined));
    let opener = settings.collectors.queries.then(|| RingOpener::start(plan.confined));
    let tls = match settings.collectors.queries && settings.queries.tls {
        true => TlsCapture::open(AttacherTask {
            ports: settings.queries.ports(),
            processes: Vec::new(),
            any_cost: false,
            confined: plan.confined,
            follows_later: true,
            room: TlsRoom::AGENT,
        }),
        false => None,
    };
    let search = settings.collectors.files.then(|| FileSearch::new(plan.confined));
    let split_plan = SplitPlan {
        confined: plan.confined,
        follows: true,
        encrypted: EncryptedAccess::of(!settings.queries.tls, false),
        samples: false,
        samples_processors: false,
        table_bytes: memory::SYMBOL_BYTES,
        large: Some(&LARGE),
        room: SplitRoom::AGENT,
        files: OpenFilesRoom::AGENT,
    };
    let split = settings.collectors.split.then(|| SplitSearch::new(settings.split.sample.0, split_plan));
    let starter = match plan.confined {
        true => ThreadStarter::confined().context("cannot start a thread")?,
        false => ThreadStarter::Here,
    };
    let task = WatchTask { stop: asked_to_stop, folder: plan.folder.to_path_buf(), manager: manager.clone() };
    let pulse = StorePulse::watched(&starter, task)?;
    let opening = pulse.begin();
    let store = store::open(plan.folder, &settings.store, true)?;
    // Without them known applications would be new.
    let applications = Arc::new(KnownApplications::read(&store, now()).unwrap_or_else(|error| {
        eprintln!("mongosonar: the applications of the history cannot be read: {error}");
        KnownApplications::default()
    }));
    drop(opening);
    // Opening it may take a privilege that is dropped.
    let kernel_log = KernelLog::open().ok();
    let opened = OpenedAgent { starter, pulse, store, kernel_log, applications, manager, board, inspector };
    let mut agent = LiveAgent::new(plan, opened);
    if let Some(missing) = sonar_sys::privileges::missing_to_leave_root().filter(|_| agent.plan.confined) {
        agent.note(format!(
            "its threads and helpers stay root, because {missing} (mongosonar doctor says what helps)"
        ));
    }
    let network = NetworkState::now();
    agent.note_network(&network);
    // Cost is shown without opening anything later.
    ResourceUsage::now()?;
    agent.look_for_servers();
    agent.note_absence();
    let lookup = agent.open(search, split, opener, tls)?;
    let (config, folder) = (agent.plan.config.map(Path::to_path_buf), agent.plan.folder.to_path_buf());
    let confined = agent.plan.confined;
    let stop = signals.watch(|| {
        start_order::drop_privileges(confined, || give_up(config.as_deref(), &folder));
    })?;
    agent.gate.open();
    agent.start(lookup)?;
    agent.announce();
    agent.manager.ready();
    let host = Host::live().name().unwrap_or_default();
    agent.event(
        Event::new(now(), EventKind::AgentStart, Endpoint::default(), env!("CARGO_PKG_VERSION")).about(&host),
    );
    agent.collect(stop.flag(), &reload);
    agent.manager.stopping();
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

/// Drops all privileges but writing to the store and reading what the status and a changed configuration need.
fn give_up(config: Option<&Path>, folder: &Path) {
    let config =
        config.and_then(Path::parent).map_or_else(|| PathBuf::from("/etc/mongosonar"), Path::to_path_buf);
    privileges::give_up_but_writing(&[Path::new("/proc"), Path::new("/sys"), &config], folder, &[]);
}

/// What an agent has when it begins.
struct OpenedAgent {
    starter: ThreadStarter,
    pulse: Arc<StorePulse>,
    store: SqliteHistory,
    kernel_log: Option<KernelLog>,
    applications: Arc<KnownApplications>,
    manager: Arc<ServiceManager>,
    board: Arc<CollectorBoard>,
    inspector: Arc<Inspector>,
}

/// An agent that runs.
struct LiveAgent<'a> {
    plan: LivePlan<'a>,
    assembler: Assembler<SummedStore<SqliteHistory>>,
    board: Arc<CollectorBoard>,
    inspector: Arc<Inspector>,
    /// Starts threads once this one has dropped its privileges.
    starter: ThreadStarter,
    /// Open once this thread has dropped its privileges: those that trace or ask servers had to start before.
    gate: StartGate,
    /// Notices that the folder of the store does not answer.
    pulse: Arc<StorePulse>,
    watched: Arc<WatchedServers>,
    positions: Arc<LogPositions>,
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
    to: PartSender,
    parts: PartReceiver,
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
    /// Why only a new start helps, as soon as that is so.
    restart_reason: Option<String>,
    /// Late answers of helpers that were reported.
    late_answers: u64,
    begun: ClockReading,
    /// Applications that the history knew at the start.
    applications: Arc<KnownApplications>,
}

/// The thread of a collector.
struct CollectorThread {
    handle: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl<'a> LiveAgent<'a> {
    /// One without collectors, which has seen nothing yet.
    fn new(plan: LivePlan<'a>, opened: OpenedAgent) -> Self {
        let OpenedAgent { starter, pulse, store, kernel_log, applications, manager, board, inspector } =
            opened;
        let (to, parts) = part_channel(WAITING);
        Self {
            starter,
            pulse,
            positions: Arc::new(LogPositions::stored(&store.positions())),
            assembler: SummedStore::assembler(store, plan.folder, memory::ASSEMBLY),
            servers: LocalServers::default(),
            lives: ServerLives::default(),
            watched: Arc::new(WatchedServers::default()),
            queries: None,
            threads: BTreeMap::new(),
            restarts: BTreeMap::new(),
            costs: CostMeter::default(),
            refused: None,
            network_problem: None,
            network_seen: None,
            gate: StartGate::default(),
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
            late_answers: 0,
            begun: ClockReading::now(),
            applications,
            manager,
            board,
            inspector,
            parts,
            to,
            plan,
        }
    }
}

impl LiveAgent<'_> {
    /// Opens what needs privileges; gives the logs that name the applications of open connections. A collector that
    /// fails is reported, and the others go on.
    ///
    /// # Errors
    /// A thread cannot be started.
    fn open(
        &mut self,
        search: Option<FileSearch>,
        split: Option<Result<SplitSearch>>,
        opener: Option<RingOpener>,
        tls: Option<AttachedCapture>,
    ) -> Result<Lookup> {
        let mut lookup = Lookup::default();
        let listener = self.start_split(split)?;
        if let Some(opener) = opener {
            lookup = self.open_logs();
            let table = &self.plan.settings.queries;
            let queries = QueriesCollector::new(opener, table, self.watched.ports());
            self.queries =
                Some(queries.with_listener(listener).with_tls(tls).with_threads(self.starter.clone()));
        }
        if let Some(search) = search {
            let stop = Arc::new(AtomicBool::new(false));
            let task = FilesTask {
                to: self.to.clone(),
                servers: self.watched.clone(),
                board: self.board.clone(),
                stop: stop.clone(),
                confined: self.plan.confined,
                gate: self.gate.clone(),
            };
            if let Some(handle) = files::start(search, task)? {
                self.threads.insert(CollectorKind::Files, CollectorThread { handle, stop });
            }
        }
        if self.plan.settings.collectors.machine {
            let stop = Arc::new(AtomicBool::new(false));
            let task = MachineTask {
                to: self.to.clone(),
                servers: self.watched.clone(),
                board: self.board.clone(),
                stop: stop.clone(),
                confined: self.plan.confined,
            };
            let handle = machine::start(task, self.gate.clone())?;
            self.threads.insert(CollectorKind::Machine, CollectorThread { handle, stop });
        }
        if self.plan.runs(CollectorKind::Status) {
            self.start_status()?;
        }
        Ok(lookup)
    }

    /// The logs of the servers, which name the applications of open connections.
    fn open_logs(&self) -> Lookup {
        let mut lookup = Lookup::default().confined(self.plan.confined).share(memory::NAMES_SHARE);
        for server in self.watched.all().iter() {
            let Some(path) = server.log.clone() else { continue };
            let mut place = InspectedLog::new(path, self.inspector.clone());
            if let Ok(newest) = place.open() {
                lookup.add_log(server.port, place.copies().into_iter().rev().chain([newest]).collect());
            }
        }
        lookup
    }

    /// Starts the thread that traces the threads of the servers; gives what receives operations of the wire for it.
    fn start_split(
        &mut self,
        search: Option<Result<SplitSearch>>,
    ) -> Result<Option<Arc<Mutex<dyn OperationListener>>>> {
        let search = match search {
            None => return Ok(None),
            Some(Ok(search)) => search,
            Some(Err(error)) => {
                let what = crate::exit::message(&error);
                self.fail(CollectorKind::Split, &CollectorProblem::permanent(what, Some(RESTART.to_owned())));
                return Ok(None);
            }
        };
        let listener = search.listener();
        let stop = Arc::new(AtomicBool::new(false));
        let task = SplitTask {
            to: self.to.clone(),
            servers: self.watched.clone(),
            board: self.board.clone(),
            stop: stop.clone(),
            confined: self.plan.confined,
            gate: self.gate.clone(),
        };
        let Some(handle) = split::start(search, task)? else { return Ok(None) };
        self.threads.insert(CollectorKind::Split, CollectorThread { handle, stop });
        Ok(Some(listener))
    }

    /// Starts the thread that asks servers: all that start later have no network any more.
    fn start_status(&mut self) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let task = StatusTask {
            to: self.to.clone(),
            servers: self.watched.clone(),
            reports: StatusReports::new(self.board.clone()),
            follows_internals: self.plan.runs(CollectorKind::Internals),
            follows_logs: self.plan.runs(CollectorKind::Log),
            stop: stop.clone(),
        };
        let handle = status::start(task, self.plan.targets.clone(), self.plan.confined, self.gate.clone())?;
        self.threads.insert(CollectorKind::Status, CollectorThread { handle, stop });
        Ok(())
    }

    /// Starts what needs no privileges.
    ///
    /// # Errors
    /// No collector works, or a thread cannot be started.
    fn start(&mut self, lookup: Lookup) -> Result<()> {
        for collector in [CollectorKind::Log, CollectorKind::Internals] {
            if self.plan.settings.collectors.runs(collector) {
                self.follow(collector)?;
            }
        }
        self.follow_network();
        if let Some(queries) = &mut self.queries {
            queries.look_up(lookup)?;
            queries.follow_tls()?;
        }
        self.keep_queries();
        let is_useless = |state| matches!(state, CollectorState::Off | CollectorState::NeedsYou);
        if self.threads.is_empty() && self.board.all().iter().all(|one| is_useless(one.state)) {
            bail!("no collector works");
        }
        Ok(())
    }

    /// Starts a thread that follows files of servers. It opens nothing itself.
    fn follow(&mut self, collector: CollectorKind) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let task = FollowTask {
            to: self.to.clone(),
            servers: self.watched.clone(),
            inspector: self.inspector.clone(),
            board: self.board.clone(),
            positions: self.positions.clone(),
            begun: self.begun,
            applications: self.applications.clone(),
            stop: stop.clone(),
        };
        let confined = self.plan.confined;
        let run = move || {
            if confined {
                privileges::confine_follower();
            }
            match collector {
                CollectorKind::Log => log::run(&task),
                _ => internals::run(&task),
            }
        };
        let handle = self.starter.spawn(collector.name().to_owned(), run).context("cannot start a thread")?;
        self.threads.insert(collector, CollectorThread { handle, stop });
        Ok(())
    }

    /// A collector or a part of it fails: reported once.
    fn fail(&mut self, source: impl Into<SourceId>, problem: &CollectorProblem) {
        if let Some(event) = self.board.failed(source, now(), problem) {
            self.event(event);
        }
    }

    /// What was wrong with a collector or a part of it has passed.
    fn passes(&mut self, source: impl Into<SourceId>) {
        if let Some(event) = self.board.passed(source, now()) {
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        self.assembler.event(event);
    }
}
