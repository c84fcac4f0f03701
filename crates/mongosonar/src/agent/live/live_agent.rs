//! The main thread: what it does until the agent ends, and how it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use sonar_core::history::{CollectorKind, EventKind};
use sonar_core::observation::WindowPart;
use sonar_sys::resource::ResourceUsage;
use sonar_sys::{Host, helper};
use sonar_view::agent::{AgentStatus, AgentSummary, CollectorState, HeldBytes};
use sonar_view::now::{MAX_OPERATIONS, NowListing};

use super::announcement;
use super::board::{CollectorBoard, CollectorProblem};
use super::collector_helpers::CollectorHelpers;
use super::helpers::HelperWatch;
use super::known_servers::ServerKeeper;
use super::network::NetworkWatch;
use super::now::round::RunningRound;
use super::opened::OpenedAgent;
use super::opener::NetworkState;
use super::page::AgentPage;
use super::plan::LivePlan;
use super::queries::QueriesCollector;
use super::record::AgentRecord;
use super::reload::{ConfigurationChange, LiveConfiguration};
use super::runner::{CollectorContext, CollectorThread};
use super::search::HostServers;
use super::stating::{self, StatusWriter};
use super::threads::{CollectorThreads, TAKES, WAITING};
use super::watched::WatchedServers;
use crate::agent::memory::{self, Holder};
use crate::agent::notify::ServiceManager;
use crate::agent::part_channel::part_channel;
use crate::agent::summed_store::SummedStore;
use crate::agent::{process_memory, store};
use crate::capture::applications::Lookup;
use crate::confinement::start_gate::StartGate;

/// The longest sleep of the main thread.
const NAP: Duration = Duration::from_millis(250);
/// How long collectors may take to hand over their last windows.
const PATIENCE: Duration = Duration::from_secs(8);

/// An agent that runs.
pub struct LiveAgent<'a> {
    configuration: LiveConfiguration<'a>,
    record: AgentRecord,
    threads: CollectorThreads,
    queries: Option<QueriesCollector>,
    servers: HostServers,
    network: NetworkWatch,
    helpers: HelperWatch,
    page: AgentPage,
    /// The operations that somebody looks at.
    running: RunningRound,
    status: StatusWriter,
    manager: Arc<ServiceManager>,
    /// Why only a new start helps, as soon as that is so.
    restart_reason: Option<String>,
}

impl<'a> LiveAgent<'a> {
    /// One without collectors, which has seen nothing yet.
    pub fn new(plan: LivePlan<'a>, opened: OpenedAgent) -> Self {
        let (clock, (to, parts)) = (opened.clock, part_channel(WAITING));
        let watched = Arc::new(WatchedServers::default());
        let board = Arc::new(CollectorBoard::new(|collector| plan.runs(collector)));
        let context = CollectorContext {
            to,
            servers: watched.clone(),
            board: board.clone(),
            gate: StartGate::default(),
            clock: clock.clone(),
            confined: plan.confined,
        };
        let assembler = SummedStore::assembler(opened.store, plan.folder, memory::ASSEMBLY);
        let keeper = ServerKeeper::of(plan.folder);
        Self {
            record: AgentRecord::new(assembler, opened.pulse, board, clock),
            threads: CollectorThreads::new(context, parts, opened.followers, opened.starter),
            queries: None,
            servers: HostServers::new(opened.inspector, watched, opened.kernel_log, keeper),
            network: NetworkWatch::default(),
            helpers: HelperWatch::default(),
            page: opened.page,
            running: RunningRound::default(),
            status: StatusWriter::new(plan.folder, opened.begun.time),
            manager: opened.manager,
            restart_reason: None,
            configuration: LiveConfiguration::of(plan),
        }
    }

    /// Notes who and what is here before collectors begin.
    ///
    /// # Errors
    /// What this process uses cannot be measured.
    pub fn look_around(&mut self) -> Result<()> {
        let confined = self.configuration.plan.confined;
        if let Some(missing) = sonar_sys::privileges::missing_to_leave_root().filter(|_| confined) {
            self.record.notices.note(format!(
                "its threads and helpers stay root, because {missing} (mongosonar doctor says what helps)"
            ));
        }
        self.network.note(&NetworkState::now(), &mut self.servers, &mut self.record);
        // Cost is shown without opening anything later.
        ResourceUsage::now()?;
        self.look_for_servers();
        self.servers.note_absence(&mut self.record);
        Ok(())
    }

    /// Opens what needs privileges; gives the logs that name the applications of open connections. A collector that
    /// fails is reported, and the others go on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn open(&mut self, helpers: CollectorHelpers) -> Result<Lookup> {
        let CollectorHelpers { opener, tls, files, split } = helpers;
        let listener = self.threads.begin_split(split, &mut self.record)?;
        let mut lookup = Lookup::default();
        let plan = &self.configuration.plan;
        if let Some(opener) = opener {
            lookup = self.servers.lookup(plan.confined);
            let ports = self.servers.watched().ports();
            let queries = QueriesCollector::new(opener, &plan.settings.queries, ports);
            let queries = queries.with_listener(listener).with_tls(tls);
            self.queries = Some(queries.with_threads(self.threads.starter()));
        }
        self.threads.begin_others(files, plan, &mut self.record)?;
        Ok(lookup)
    }

    /// Lets collectors observe, because all threads have dropped their privileges, and starts what needs none.
    ///
    /// # Errors
    /// No collector works, or a thread cannot be started.
    pub fn start(&mut self, lookup: Lookup) -> Result<()> {
        self.threads.open_gate();
        for kind in [CollectorKind::Log, CollectorKind::Internals] {
            if self.configuration.plan.runs(kind) {
                self.threads.follow(kind)?;
            }
        }
        self.follow_network();
        if let Some(queries) = &mut self.queries {
            queries.look_up(lookup)?;
            queries.follow_tls()?;
        }
        self.ensure_capture_runs();
        let is_useless = |state| matches!(state, CollectorState::Off | CollectorState::NeedsYou);
        let board = &self.record.board;
        if self.threads.all().is_empty() && board.all().iter().all(|one| is_useless(one.state)) {
            bail!("no collector works");
        }
        Ok(())
    }

    /// Collects until it is stopped. Reads the configuration again when `reload` is set.
    pub fn collect(&mut self, stop: &AtomicBool, reload: &AtomicBool) {
        self.announce();
        self.manager.ready();
        let begun = self.record.clock.instant();
        while !stop.load(Ordering::Relaxed) && !self.is_done(begun) {
            self.step(NAP);
            if reload.swap(false, Ordering::Relaxed) {
                self.manager.reloading();
                self.reload();
                self.manager.ready();
            }
            if self.status.is_due(&*self.record.clock) {
                self.write_status();
            }
            self.record.note_standstill();
            self.manager.works();
        }
        self.manager.stopping();
    }

    /// Whether one that has collected since `begun` ends by itself.
    fn is_done(&self, begun: Instant) -> bool {
        let is_over = |once| self.record.clock.is_due(Some(begun), once);
        self.restart_reason.is_some() || self.configuration.plan.once.is_some_and(is_over)
    }

    /// Takes windows that have come, and waits at most so long for one; then does what is due.
    fn step(&mut self, wait: Duration) {
        self.take(wait);
        self.list_running();
        self.follow_helpers();
        self.follow_servers();
        if self.network.is_due(self.queries.as_ref(), &*self.record.clock) {
            self.follow_network();
        }
        self.ensure_capture_runs();
        self.restart_collectors();
        self.record.store();
    }

    /// Why only a new start of the agent helps, if that is so.
    pub fn restart_reason(&self) -> Option<&str> {
        self.restart_reason.as_deref()
    }

    /// Says what is watched, where it is stored, and how to ask for it; the history has the start.
    fn announce(&mut self) {
        let plan = &self.configuration.plan;
        let servers = self.servers.watched().all();
        announcement::announce(&servers, self.servers.hidden(), plan.folder, self.page.url());
        if let Some(text) = announcement::unseen_processes(&plan.settings.collectors) {
            self.record.notices.say(text);
        }
        let host = Host::live().name().unwrap_or_default();
        self.record.of_agent(EventKind::AgentStart, env!("CARGO_PKG_VERSION"), &host);
    }

    /// Takes windows that have come, and waits for one.
    fn take(&mut self, wait: Duration) {
        for part in self.threads.take(wait) {
            self.add(part);
        }
        let Some(queries) = &mut self.queries else { return };
        let mut taken = Vec::new();
        while let Some(one) = queries.take(Duration::ZERO, self.servers.local()) {
            taken.push(one);
        }
        let (texts, is_down) = queries.notices();
        let has_interface = queries.has_interface();
        self.record.board.lost(CollectorKind::Queries, queries.lost());
        for (part, has_packets) in taken {
            let end = part.window.window.end;
            self.add(part);
            let board = &self.record.board;
            let report = match (has_interface, has_packets) {
                (false, _) => None,
                (true, true) => board.data(CollectorKind::Queries, end),
                (true, false) => board.works(CollectorKind::Queries, end),
            };
            self.record.events(report);
        }
        for text in texts {
            eprintln!("mongosonar: queries: {text}");
        }
        if is_down {
            self.follow_network();
        }
    }

    fn add(&mut self, mut part: WindowPart) {
        self.servers.see(&mut part, self.record.clock.time());
        self.record.add(part);
    }

    /// Begins a list of the operations that run if the page asks for one, and hands over the one that is complete. It never
    /// waits.
    fn list_running(&mut self) {
        let (now, board) = (self.record.clock.instant(), &self.record.board.running);
        if self.page.asks_for_running() {
            board.want(now);
            let queries = self.queries.as_ref();
            self.running.begin(now, || queries?.ask_running(MAX_OPERATIONS));
        }
        if let Some(wire) = self.running.end(now) {
            let listing = NowListing {
                at: self.record.clock.time(),
                wire: wire.operations,
                is_partial: wire.is_partial,
                threads: board.threads(now),
                servers: board.servers(now),
            };
            let servers = self.servers.local();
            self.page.send_running(listing.snapshot(&|server| servers.name(server)));
        }
        self.page.flush_running();
        board.forget_unwanted(now);
    }

    /// Reports which helper processes do nothing, and which work again.
    fn follow_helpers(&mut self) {
        for report in self.helpers.look(&Host::live(), &helper::started()) {
            let why = report.record(&mut self.page, &mut self.record);
            self.restart_reason = self.restart_reason.take().or(why);
        }
    }

    /// Looks at servers, searches for them if that is due, and records what has happened to them.
    fn follow_servers(&mut self) {
        let look = self.servers.look(self.queries.as_mut(), &self.record);
        if look.is_search_due {
            self.look_for_servers();
        }
        self.servers.report(look, &mut self.record);
    }

    /// Searches for servers. Before the first status the agent itself starts, and no server does.
    fn look_for_servers(&mut self) {
        let reports_starts = self.status.is_written();
        if self.servers.search(self.queries.as_mut(), &mut self.record, reports_starts) {
            self.follow_network();
        }
    }

    /// Looks at the interfaces and addresses of this host.
    fn follow_network(&mut self) {
        self.network.follow(self.queries.as_mut(), &mut self.servers, &mut self.record);
    }

    /// Starts the capture again if it has ended or could not be started.
    fn ensure_capture_runs(&mut self) {
        let Some(queries) = &mut self.queries else { return };
        let problems = [queries.failure(), queries.keep_running().err()];
        for problem in problems.into_iter().flatten() {
            self.record.fail(CollectorKind::Queries, &problem);
        }
    }

    /// Starts collectors again that have failed, where they need no privileges.
    fn restart_collectors(&mut self) {
        for ended in self.threads.restart(&mut self.record) {
            self.detach(ended);
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

    /// Reads the configuration again. One that is wrong or cannot take effect now is refused, and the old one stays.
    fn reload(&mut self) {
        let change = self.configuration.read();
        let applied = change.and_then(|change| self.apply(change));
        self.configuration.conclude(applied);
    }

    /// Changes what is different; names it.
    ///
    /// # Errors
    /// Something is impossible now. Nothing was changed then.
    fn apply(&mut self, mut change: ConfigurationChange) -> Result<Vec<String>> {
        // What can fail comes first.
        let table = &change.settings.queries;
        let mut prepared = None;
        if change.queries
            && let Some(queries) = &self.queries
        {
            let ring = queries.prepare(table, self.servers.watched().ports());
            prepared = Some(ring.map_err(|problem| anyhow!("queries: {}", problem.text()))?);
        }
        if change.servers {
            self.servers.reload(&change.settings)?;
        }
        // From here on nothing fails as a whole.
        change.queries = prepared.is_some();
        if let (Some(queries), Some(prepared)) = (&mut self.queries, prepared) {
            self.record.board.keep_interfaces(CollectorKind::Queries, &table.interface);
            queries.change(prepared);
        }
        if change.store {
            self.record.configure(store::settings(&change.settings.store, true));
        }
        for (collector, is_on) in &change.switched {
            match is_on {
                true => self.switch_on(*collector),
                false => self.end(*collector),
            }
        }
        let names = change.names();
        self.configuration.plan.settings = change.settings;
        if !names.is_empty() {
            self.look_for_servers();
        }
        Ok(names)
    }

    /// Starts a collector that needs no privileges.
    fn switch_on(&mut self, collector: CollectorKind) {
        self.record.board.want(collector, true);
        if let Err(error) = self.threads.follow(collector) {
            self.threads.try_again(collector, format!("{error:#}"), &mut self.record);
        }
    }

    /// Ends a collector, and takes its last windows.
    fn end(&mut self, collector: CollectorKind) {
        if collector == CollectorKind::Queries {
            // Whatever happens to it, nobody wants it any more.
            let _ = self.end_capture();
        }
        if let Some(thread) = self.threads.stop(collector) {
            self.wait_for(&[thread]);
            self.detach(collector);
        }
        self.record.board.want(collector, false);
    }

    /// Ends the capture, if there is one, and takes its last windows.
    ///
    /// # Errors
    /// Why it failed.
    fn end_capture(&mut self) -> Result<()> {
        let Some(mut queries) = self.queries.take() else { return Ok(()) };
        let (parts, ended) = queries.finish(self.servers.local());
        parts.into_iter().for_each(|part| self.add(part));
        ended
    }

    /// Takes windows until these threads have ended.
    fn wait_for(&mut self, threads: &[CollectorThread]) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !threads.iter().all(|thread| thread.handle.is_finished()) {
            self.take(Duration::from_millis(20));
        }
        // All that is waiting now, also if a thread that does not end sends more.
        (0..TAKES).for_each(|_| self.take(Duration::ZERO));
    }

    /// Writes the status.
    fn write_status(&mut self) {
        let _waits = self.record.pulse.begin();
        if self.configuration.plan.confined && self.restart_reason.is_none() {
            // A start makes it again. This thread may write below the old one only.
            self.restart_reason = self.status.deletion();
        }
        let status = AgentStatus {
            refused_configuration: self.configuration.refused().map(str::to_owned),
            held: self.held(),
            page: self.page.status(),
            servers: stating::servers(self.servers.watched(), &self.record.board),
            ..self.record.status()
        };
        self.status.write(status, &mut self.record);
    }

    /// What holds memory. Shapes and applications are counted where they are shared.
    fn held(&self) -> Vec<HeldBytes> {
        let held = &self.record.board.held;
        // At the same moment as the others: what is free now may be a holder's next.
        let parts = process_memory::parts(held);
        self.record.count_memory();
        self.threads.count_memory();
        let mut ends = self.servers.watched().clients_memory();
        if let Some(queries) = &self.queries {
            queries.count_memory(held);
            ends += queries.ends_memory();
        }
        held.set(Holder::ClientEnds, ends);
        held.set(Holder::Running, self.record.board.running.memory() + self.page.running_memory());
        stating::holders(held).into_iter().chain(parts).collect()
    }

    /// Ends all collectors and stores what is open.
    pub fn finish(mut self) -> AgentSummary {
        let all = CollectorKind::ALL;
        let threads: Vec<CollectorThread> =
            all.into_iter().filter_map(|kind| self.threads.stop(kind)).collect();
        if let Err(error) = self.end_capture() {
            let problem = CollectorProblem::temporary(crate::exit::message(&error));
            self.record.fail(CollectorKind::Queries, &problem);
        }
        self.wait_for(&threads);
        self.record.events(self.servers.rest());
        self.record.of_agent(EventKind::AgentStop, "", "");
        self.record.store_rest();
        self.servers.keep(&self.record);
        let pulse = self.record.pulse.clone();
        let waits = pulse.begin();
        self.status.remove();
        drop(waits);
        let summary = self.record.summary();
        // The store closes its files.
        pulse.close(self);
        summary
    }
}

#[cfg(test)]
mod tests;
