//! The running agent: opens all sources, drops its privileges, and stores what they observe.
//!
//! Each collector has a thread of its own and sends windows to the main thread, which joins and stores them. The main
//! thread and all threads that start after it drop their privileges; what still needs some is done by helper processes
//! (`inspector`, and those of `io live`), which start first.

mod backoff;
mod board;
mod clock_reading;
mod files;
mod helper_channel;
mod inspector;
mod internals;
mod lives;
mod log;
mod machine;
mod opener;
mod positions;
mod queries;
mod reload;
mod report;
mod split;
mod status;
mod status_file;
mod storing;
mod watched;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sonar_core::history::{Collector, Event, EventKind};
use sonar_core::{Endpoint, Timestamp};
use sonar_mongo::Target;
use sonar_store::SqliteHistory;
use sonar_sys::Host;
use sonar_sys::resource::{ResourceUsage, helper_time};
use sonar_view::agent::{AgentStatus, AgentSummary, CollectorState, WatchedServer};

use self::backoff::Backoff;
use self::board::{CollectorBoard, CollectorProblem, RESTART, SourceId, lost_helper};
use self::clock_reading::ClockReading;
use self::files::{FileSearch, FilesTask};
use self::inspector::{FoundServer, Inspector};
use self::lives::ServerLives;
use self::log::FollowTask;
use self::machine::MachineTask;
use self::opener::{NetworkState, RingOpener};
use self::positions::LogPositions;
use self::queries::QueriesCollector;
use self::report::{CostMeter, folder_bytes};
use self::split::{SplitSearch, SplitTask};
use self::status::{StatusReports, StatusTask};
use self::watched::WatchedServers;
use super::applications::KnownApplications;
use super::assembler::Assembler;
use super::notify::ServiceManager;
use super::parts::WindowPart;
use super::servers::LocalServers;
use super::settings::AgentSettings;
use super::store;
use crate::privileges;
use crate::queries::applications::Lookup;
use crate::queries::live::tls::{AttacherTask, TlsAttacher, TlsCapture};
use crate::queries::live::{OperationListener, now};
use crate::splitting::{EncryptedSplit, SplitPlan};
use crate::stop::{Signals, StopBehavior};

/// Parts of windows that wait to be joined.
const WAITING: usize = 256;
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

/// How the agent runs.
pub struct LivePlan<'a> {
    /// The configuration.
    pub settings: AgentSettings,
    /// Servers to ask for `serverStatus` and the sizes of their collections.
    pub targets: Vec<Target>,
    /// The configuration file that was named.
    pub config: Option<&'a Path>,
    /// The folder of the store.
    pub folder: &'a Path,
    /// How long it collects; without a limit if `None`.
    pub once: Option<Duration>,
    /// Whether it drops its privileges.
    pub confined: bool,
}

impl LivePlan<'_> {
    /// Whether a collector runs with this configuration.
    fn runs(&self, collector: Collector) -> bool {
        let has_work = collector != Collector::Status || !self.targets.is_empty();
        has_work && self.settings.collectors.runs(collector)
    }
}

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
/// The store cannot be used, or no collector works.
pub fn run(plan: LivePlan<'_>) -> Result<AgentSummary> {
    let signals = Signals::catch(StopBehavior::Service)?;
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, reload.clone())
        .context("cannot listen for signals")?;
    let manager = ServiceManager::from_environment();
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
        }),
        false => None,
    };
    let search = settings.collectors.files.then(|| FileSearch::new(plan.confined));
    let split_plan = SplitPlan {
        confined: plan.confined,
        follows: true,
        encrypted: EncryptedSplit::of(!settings.queries.tls, false),
    };
    let split = settings.collectors.split.then(|| SplitSearch::new(settings.split.sample.0, split_plan));
    let store = store::open(plan.folder, &settings.store, true)?;
    // Without them known applications would be new.
    let applications = Arc::new(KnownApplications::read(&store, now()).unwrap_or_else(|error| {
        eprintln!("mongosonar: the applications of the history cannot be read: {error}");
        KnownApplications::default()
    }));
    let (to, parts) = sync_channel(WAITING);
    let mut agent = LiveAgent {
        assembler: Assembler::new(store, plan.folder),
        servers: LocalServers::default(),
        lives: ServerLives::default(),
        watched: Arc::new(WatchedServers::default()),
        positions: Arc::new(LogPositions::load(plan.folder)),
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
        store_problem: None,
        last_loss: None,
        losses_reported: 0,
        status_problem: None,
        begun: ClockReading::now(),
        applications,
        manager,
        board,
        inspector,
        parts,
        to,
        plan,
    };
    let network = NetworkState::now();
    agent.note_network(&network);
    // Cost is shown without opening anything later.
    ResourceUsage::now()?;
    agent.look_for_servers();
    let lookup = agent.open(search, split, opener.map(|opener| (opener, tls)))?;
    let (config, folder) = (agent.plan.config.map(Path::to_path_buf), agent.plan.folder.to_path_buf());
    let confined = agent.plan.confined;
    let stop = signals.watch(|| {
        if confined {
            give_up(config.as_deref(), &folder);
        }
    })?;
    agent.start(lookup)?;
    agent.manager.ready();
    agent.event(Event::new(
        now(),
        EventKind::AgentStart,
        Endpoint::default(),
        ("", env!("CARGO_PKG_VERSION")),
    ));
    agent.collect(stop.flag(), &reload);
    agent.manager.stopping();
    Ok(agent.finish())
}

/// Drops all privileges but writing to the store and reading what the status and a changed configuration need.
fn give_up(config: Option<&Path>, folder: &Path) {
    let config =
        config.and_then(Path::parent).map_or_else(|| PathBuf::from("/etc/mongosonar"), Path::to_path_buf);
    privileges::give_up_but_writing(&[Path::new("/proc"), Path::new("/sys"), &config], folder, &[]);
}

/// An agent that runs.
struct LiveAgent<'a> {
    plan: LivePlan<'a>,
    assembler: Assembler<SqliteHistory>,
    board: Arc<CollectorBoard>,
    inspector: Arc<Inspector>,
    watched: Arc<WatchedServers>,
    positions: Arc<LogPositions>,
    /// Also those that have ended.
    servers: LocalServers,
    lives: ServerLives,
    queries: Option<QueriesCollector>,
    threads: BTreeMap<Collector, CollectorThread>,
    /// Threads that have failed, and when they are started again.
    restarts: BTreeMap<Collector, Backoff>,
    costs: CostMeter,
    /// Why the last change of the configuration was refused, if it was.
    refused: Option<String>,
    /// Why the network of this host is not known, if it is not.
    network_problem: Option<String>,
    /// When the network was looked at.
    network_seen: Option<Instant>,
    to: SyncSender<WindowPart>,
    parts: Receiver<WindowPart>,
    manager: ServiceManager,
    notices: Vec<String>,
    searched: Option<Instant>,
    /// When the process of a server last ended.
    last_end: Option<Instant>,
    stated: Option<Instant>,
    /// Why nothing can be stored, as long as that is so.
    store_problem: Option<String>,
    /// Why the last window that was lost for another reason was lost.
    last_loss: Option<String>,
    /// Lost windows of earlier full disks, which have been reported.
    losses_reported: u64,
    /// Why the status cannot be written, if it cannot.
    status_problem: Option<String>,
    begun: ClockReading,
    /// Applications that the history knew at the start.
    applications: Arc<KnownApplications>,
}

/// The thread of a collector.
struct CollectorThread {
    handle: JoinHandle<()>,
    stop: Arc<AtomicBool>,
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
        capture: Option<(RingOpener, Option<(TlsCapture, TlsAttacher)>)>,
    ) -> Result<Lookup> {
        let mut lookup = Lookup::default();
        let listener = self.start_split(split)?;
        if let Some((opener, tls)) = capture {
            lookup = queries::open_logs(self.plan.confined)?;
            let table = &self.plan.settings.queries;
            let queries = QueriesCollector::new(opener, table, self.watched.ports());
            self.queries = Some(queries.with_listener(listener).with_tls(tls));
        }
        if let Some(search) = search {
            let stop = Arc::new(AtomicBool::new(false));
            let task = FilesTask {
                to: self.to.clone(),
                servers: self.watched.clone(),
                board: self.board.clone(),
                stop: stop.clone(),
                confined: self.plan.confined,
            };
            if let Some(handle) = files::start(search, task)? {
                self.threads.insert(Collector::Files, CollectorThread { handle, stop });
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
            let handle = machine::start(task)?;
            self.threads.insert(Collector::Machine, CollectorThread { handle, stop });
        }
        if self.plan.runs(Collector::Status) {
            self.start_status()?;
        }
        Ok(lookup)
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
                self.fail(Collector::Split, &CollectorProblem::permanent(what, Some(RESTART.to_owned())));
                return Ok(None);
            }
        };
        let listener = search.listener();
        let stop = Arc::new(AtomicBool::new(false));
        let task = SplitTask {
            to: self.to.clone(),
            servers: self.watched.clone(),
            local: self.servers.clone(),
            board: self.board.clone(),
            stop: stop.clone(),
            confined: self.plan.confined,
        };
        let Some(handle) = split::start(search, task)? else { return Ok(None) };
        self.threads.insert(Collector::Split, CollectorThread { handle, stop });
        Ok(Some(listener))
    }

    /// Starts the thread that asks servers: all that start later have no network any more.
    fn start_status(&mut self) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let task = StatusTask {
            to: self.to.clone(),
            servers: self.watched.clone(),
            reports: StatusReports::new(self.board.clone()),
            addresses: self.servers.addresses.clone(),
            follows_internals: self.plan.runs(Collector::Internals),
            follows_logs: self.plan.runs(Collector::Log),
            stop: stop.clone(),
        };
        let handle = status::start(task, self.plan.targets.clone(), self.plan.confined)?;
        self.threads.insert(Collector::Status, CollectorThread { handle, stop });
        Ok(())
    }

    /// Starts what needs no privileges.
    ///
    /// # Errors
    /// No collector works, or a thread cannot be started.
    fn start(&mut self, lookup: Lookup) -> Result<()> {
        for collector in [Collector::Log, Collector::Internals] {
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
    fn follow(&mut self, collector: Collector) -> Result<()> {
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
                Collector::Log => log::run(&task),
                _ => internals::run(&task),
            }
        };
        let builder = std::thread::Builder::new().name(collector.name().to_owned());
        let handle = builder.spawn(run).context("cannot start a thread")?;
        self.threads.insert(collector, CollectorThread { handle, stop });
        Ok(())
    }

    /// A collector or a part of it fails: reported once.
    fn fail(&mut self, source: impl Into<SourceId>, problem: &CollectorProblem) {
        if let Some(event) = self.board.failed(source, now(), problem) {
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        self.assembler.event(event);
    }

    /// Collects until it is stopped.
    fn collect(&mut self, stop: &AtomicBool, reload: &AtomicBool) {
        let begun = Instant::now();
        while !stop.load(Ordering::Relaxed) && self.plan.once.is_none_or(|once| begun.elapsed() < once) {
            self.take(NAP);
            if self.searched.is_none_or(|searched| searched.elapsed() >= self.search_every())
                || self.has_server_ended()
            {
                self.look_for_servers();
            }
            let ends = self.lives.decided(now());
            let upgrades = self.watched.take_upgrades();
            let upgrades =
                upgrades.iter().map(|(port, versions)| ServerLives::upgraded(*port, versions, now()));
            ends.into_iter().chain(upgrades).for_each(|event| self.event(event));
            let names_interfaces =
                self.queries.as_ref().is_some_and(|queries| !queries.interfaces().is_empty());
            if names_interfaces && self.network_seen.is_none_or(|seen| seen.elapsed() >= INTERFACES_EVERY) {
                self.follow_network();
            }
            self.keep_queries();
            self.keep_threads();
            self.store(now());
            if reload.swap(false, Ordering::Relaxed) {
                self.manager.reloading();
                self.reload();
                self.manager.ready();
            }
            if self.stated.is_none_or(|stated| stated.elapsed() >= STATUS_EVERY) {
                self.state();
            }
            self.manager.works();
        }
    }

    /// Takes the windows that have come, and waits for one.
    fn take(&mut self, wait: Duration) {
        if let Ok(part) = self.parts.recv_timeout(wait) {
            self.add(part);
        }
        while let Ok(part) = self.parts.try_recv() {
            self.add(part);
        }
        let Some(queries) = &mut self.queries else { return };
        let mut taken = Vec::new();
        while let Some(one) = queries.take(Duration::ZERO, &self.servers) {
            taken.push(one);
        }
        let (texts, is_down) = queries.notices();
        let has_interface = queries.has_interface();
        self.board.lost(Collector::Queries, queries.lost());
        for (part, has_packets) in taken {
            let end = part.window.window.end;
            self.add(part);
            let report = match (has_interface, has_packets) {
                (false, _) => None,
                (true, true) => self.board.data(Collector::Queries, end),
                (true, false) => self.board.works(Collector::Queries, end),
            };
            report.into_iter().for_each(|event| self.event(event));
        }
        for text in texts {
            eprintln!("mongosonar: queries: {text}");
        }
        if is_down {
            self.follow_network();
        }
    }

    /// Starts the capture again if it has ended or could not be started.
    fn keep_queries(&mut self) {
        let Some(queries) = &mut self.queries else { return };
        let problems = [queries.failure(), queries.keep_running().err()];
        for problem in problems.into_iter().flatten() {
            self.fail(Collector::Queries, &problem);
        }
    }

    /// Notes the addresses of this host, or reports once why they are not known.
    fn note_network(&mut self, network: &Result<NetworkState, String>) {
        match network {
            Ok(network) => {
                self.network_problem = None;
                self.servers.addresses = network.addresses.iter().copied().collect();
            }
            Err(why) => {
                let text =
                    format!("{why}; connections to its own addresses are stored under these addresses");
                if self.network_problem.replace(text.clone()).as_ref() != Some(&text) {
                    eprintln!("mongosonar: queries: {text}");
                    self.note(text);
                }
            }
        }
    }

    /// Looks at the interfaces and addresses of this host: they come and go.
    fn follow_network(&mut self) {
        let Some(queries) = &self.queries else { return };
        self.network_seen = Some(Instant::now());
        let network = queries.network();
        self.note_network(&network);
        let (Ok(network), Some(queries)) = (network, &mut self.queries) else { return };
        let followed = queries.follow_interfaces(&network);
        let (names, has_interface) = (queries.interfaces().to_vec(), queries.has_interface());
        for name in &names {
            let source = (Collector::Queries, name.as_str());
            match network.problem(name).or_else(|| followed.as_ref().err().cloned()) {
                Some(problem) => self.fail(source, &problem),
                None => {
                    let report = self.board.passed(source, now());
                    report.into_iter().for_each(|event| self.event(event));
                }
            }
        }
        if !has_interface {
            self.board.forget(Collector::Queries);
        }
    }

    /// Starts threads again that have failed, where they need no privileges.
    fn keep_threads(&mut self) {
        let has_ended = |thread: &CollectorThread| thread.handle.is_finished();
        let ended: Vec<Collector> =
            self.threads.iter().filter(|(_, one)| has_ended(one)).map(|(collector, _)| *collector).collect();
        for collector in ended {
            let failed = self.threads.remove(&collector).is_some_and(|thread| thread.handle.join().is_err());
            let is_follower = matches!(collector, Collector::Log | Collector::Internals);
            let what = "its thread has failed".to_owned();
            if is_follower {
                self.restarts.entry(collector).or_default().failed(Instant::now());
                self.fail(collector, &CollectorProblem::temporary(what));
            } else if failed {
                // One that ends in order has reported why.
                self.fail(collector, &CollectorProblem::permanent(what, Some(RESTART.to_owned())));
            }
        }
        let is_due = |(_, backoff): &(&Collector, &Backoff)| backoff.is_due(Instant::now());
        let due: Vec<Collector> =
            self.restarts.iter().filter(is_due).map(|(collector, _)| *collector).collect();
        for collector in due.into_iter().filter(|one| !self.threads.contains_key(one)).collect::<Vec<_>>() {
            let report = match self.follow(collector) {
                Ok(()) => self.board.passed(collector, now()),
                Err(_) => None,
            };
            report.into_iter().for_each(|event| self.event(event));
        }
    }

    /// Searches for servers, and reports which have started or ended.
    fn look_for_servers(&mut self) {
        let is_first = self.searched.replace(Instant::now()).is_none();
        let found = match self.inspector.servers() {
            Ok(found) => found,
            Err(error) => {
                for collector in [Collector::Log, Collector::Internals] {
                    if self.plan.settings.collectors.runs(collector) {
                        self.fail(collector, &lost_helper(&error));
                    }
                }
                return;
            }
        };
        let ports: Vec<u16> = found.iter().map(|server| server.port).collect();
        let (started, ended) = self.watched.set(found);
        self.watched.add_to(&mut self.servers);
        for (servers, what) in [(&ended, "ended"), (&started, "started")] {
            for server in servers.iter().filter(|_| !is_first) {
                eprintln!("mongosonar: {} {} on port {} has {what}", server.name, server.pid, server.port);
            }
        }
        self.note_servers(&ended, &started);
        if let Some(queries) = &mut self.queries {
            queries.add_ports(ports);
        }
        self.follow_network();
    }

    /// How often to search for servers now.
    fn search_every(&self) -> Duration {
        let is_restarting = self.last_end.is_some_and(|ended| ended.elapsed() < RESTART_WITHIN);
        if is_restarting { RESTART_EVERY } else { SEARCH_EVERY }
    }

    /// Whether the process of a server has ended since the last search.
    fn has_server_ended(&self) -> bool {
        let host = Host::live();
        let runs = |server: &FoundServer| {
            // A zombie has ended, but nobody has asked for its exit code.
            host.stat(server.pid).is_some_and(|stat| stat.started == server.started && stat.state != b'Z')
        };
        !self.watched.all().iter().all(runs)
    }

    /// Reports starts and ends of servers.
    fn note_servers(&mut self, ended: &[FoundServer], started: &[FoundServer]) {
        let time = now();
        for server in ended {
            let is_logged = self.plan.settings.collectors.log && server.log.is_some();
            self.lives.ended(server, is_logged, time);
            self.last_end = Some(Instant::now());
        }
        // Before the first status the agent itself starts.
        if self.stated.is_some() {
            let starts: Vec<Event> = started.iter().map(|server| self.lives.started(server, time)).collect();
            starts.into_iter().for_each(|event| self.event(event));
        }
    }

    /// Ends a collector, and takes its last windows.
    fn end(&mut self, collector: Collector) {
        if collector == Collector::Queries
            && let Some(mut queries) = self.queries.take()
        {
            let (parts, _) = queries.finish(&self.servers);
            parts.into_iter().for_each(|part| self.add(part));
        }
        if let Some(thread) = self.threads.remove(&collector) {
            thread.stop.store(true, Ordering::Relaxed);
            self.wait_for(&[thread]);
        }
        self.restarts.remove(&collector);
        self.board.want(collector, false);
    }

    /// Takes windows until these threads have ended.
    fn wait_for(&mut self, threads: &[CollectorThread]) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !threads.iter().all(|thread| thread.handle.is_finished()) {
            self.take(Duration::from_millis(20));
        }
        self.take(Duration::ZERO);
    }

    /// Ends all collectors and stores what is open.
    fn finish(mut self) -> AgentSummary {
        let threads: Vec<CollectorThread> = std::mem::take(&mut self.threads).into_values().collect();
        threads.iter().for_each(|thread| thread.stop.store(true, Ordering::Relaxed));
        if let Some(mut queries) = self.queries.take() {
            let (parts, why) = queries.finish(&self.servers);
            parts.into_iter().for_each(|part| self.add(part));
            if let Err(error) = why {
                self.fail(Collector::Queries, &CollectorProblem::temporary(crate::exit::message(&error)));
            }
        }
        self.wait_for(&threads);
        let ends = self.lives.rest();
        ends.into_iter().for_each(|event| self.event(event));
        self.event(Event::new(now(), EventKind::AgentStop, Endpoint::default(), ("", "")));
        while let Err(error) = self.assembler.complete(Timestamp::from_unix_ns(u64::MAX)) {
            self.store_failed(&error);
        }
        self.take_notices();
        // Without them the next run begins at the ends of the logs.
        let _ = self.positions.save(self.plan.folder);
        status_file::remove(self.plan.folder);
        let mut summary = self.assembler.summary().clone();
        for one in self.board.failing() {
            summary.notes.push(one);
        }
        summary
    }

    /// Writes the status.
    fn state(&mut self) {
        self.stated = Some(Instant::now());
        let usage = ResourceUsage::now().unwrap_or_default();
        let mut collectors = self.board.all();
        self.costs.measure(&mut collectors);
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let server = |server: &FoundServer| WatchedServer {
            name: server.name.clone(),
            version: self.watched.version(server.port),
            pid: server.pid,
            port: server.port,
            log: path(&server.log),
            diagnostic_data: path(&server.diagnostic),
        };
        let pid = std::process::id();
        let summary = self.assembler.summary().clone();
        let status = AgentStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid,
            started_ticks: Host::live().stat(pid).map_or(0, |stat| stat.started),
            started_ns: self.begun.time.unix_ns(),
            written_ns: now().unix_ns(),
            store: self.plan.folder.display().to_string(),
            store_bytes: folder_bytes(self.plan.folder),
            windows: summary.windows,
            windows_lost: summary.windows_lost,
            store_problem: self.store_problem.clone(),
            last_window_ns: self.assembler.stored_until().map(Timestamp::unix_ns),
            refused_configuration: self.refused.clone(),
            notices: self.notices.clone(),
            cpu_ns: usage.processor().as_nanos() as u64,
            helpers_cpu_ns: helper_time().as_nanos() as u64,
            memory_bytes: usage.resident_bytes,
            collectors,
            servers: self.watched.all().iter().map(server).collect(),
        };
        let written = status_file::write(self.plan.folder, &status);
        match written.and_then(|()| self.positions.save(self.plan.folder)) {
            Ok(()) => self.status_problem = None,
            Err(error) => {
                let text = format!("the status cannot be written: {error}");
                if self.status_problem.replace(text.clone()).as_ref() != Some(&text) {
                    eprintln!("mongosonar: {text}");
                    self.note(text);
                }
            }
        }
    }
}
