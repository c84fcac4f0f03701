//! The search for servers, and what happens to their processes.

use std::sync::Arc;

use anyhow::{Result, bail};
use sonar_core::Timestamp;
use sonar_core::history::{CollectorKind, Event, EventKind};
use sonar_core::observation::WindowPart;
use sonar_decode::EndedServer;
use sonar_sys::Host;
use sonar_sys::clock::monotonic;
use sonar_sys::kernel_log::KernelLog;

use super::answers::HelperAnswers;
use super::board::unanswered;
use super::inspector::{FoundServer, InspectedLog, Inspector, ServerFiles};
use super::known_servers::ServerKeeper;
use super::lives::{NotServing, ProcessState, ServerLives};
use super::opener::NetworkState;
use super::queries::QueriesCollector;
use super::record::AgentRecord;
use super::search_pace::{SearchPace, ended_at};
use super::watched::{LoggedEnd, ServerReach, WatchedServers};
use crate::agent::memory;
use crate::agent::servers::LocalServers;
use crate::agent::settings::AgentSettings;
use crate::capture::applications::Lookup;
use crate::input::follow::FollowedPlace;
use crate::servers;

/// What the status says without the kernel's log.
const NO_KERNEL_LOG: &str = "the kernel's log (/dev/kmsg) cannot be read: the end of a process does not say whether the \
                             kernel killed it for lack of memory";

fn state_of(host: &Host, server: &FoundServer) -> ProcessState {
    if servers::has_ended(host, server.pid, server.started) {
        return ProcessState::Ended;
    }
    match host.stat(server.pid).map(|stat| (stat.state, stat.is_ending)) {
        Some((b'T' | b't', _)) => ProcessState::Silent(NotServing::Stopped),
        // It may still free its memory.
        Some((_, is_ending)) if is_ending || server.is_closed => {
            ProcessState::Silent(NotServing::NotListening)
        }
        Some(_) => ProcessState::Serves,
        None => ProcessState::Ended,
    }
}

/// What a look at the processes of servers has found.
pub struct ServerLook {
    /// Which do not answer, and which answer again.
    silent: Vec<Event>,
    /// Whether to search for servers now.
    pub is_search_due: bool,
}

/// The servers of this host: finds them, and notices what happens to their processes.
pub struct HostServers {
    inspector: Arc<Inspector>,
    watched: Arc<WatchedServers>,
    /// Also those that have ended.
    local: LocalServers,
    lives: ServerLives,
    /// What the kernel says of processes that it kills; `None` if it may not be read.
    kernel_log: Option<KernelLog>,
    keeper: ServerKeeper,
    pace: SearchPace,
    answers: HelperAnswers,
    /// Those that ran at the start and whose ports this process may not see, if it saw no port of any.
    hidden: Option<String>,
}

impl HostServers {
    /// One that has found none yet.
    pub fn new(
        inspector: Arc<Inspector>,
        watched: Arc<WatchedServers>,
        kernel_log: Option<KernelLog>,
        keeper: ServerKeeper,
    ) -> Self {
        Self {
            inspector,
            watched,
            local: LocalServers::default(),
            lives: ServerLives::default(),
            kernel_log,
            keeper,
            pace: SearchPace::default(),
            answers: HelperAnswers::default(),
            hidden: None,
        }
    }

    /// Those that run now.
    pub fn watched(&self) -> &WatchedServers {
        &self.watched
    }

    /// The names of all of them, also of those that have ended.
    pub fn local(&self) -> &LocalServers {
        &self.local
    }

    /// Those that ran at the start and cannot be watched, in words.
    pub fn hidden(&self) -> Option<&str> {
        self.hidden.as_deref()
    }

    /// The network of this host is like this now.
    pub fn set_network(&mut self, network: &NetworkState) {
        self.watched.set_addresses(network.addresses.iter().copied().collect());
        self.watched.add_to(&mut self.local);
    }

    /// Uses other settings of servers, from the next search on.
    ///
    /// # Errors
    /// The helper has gone, or reads other settings than these. The old ones stay then.
    pub fn reload(&self, settings: &AgentSettings) -> Result<()> {
        if self.inspector.reload()? != ServerFiles::all(settings) {
            bail!("the file has changed again; reload once more");
        }
        self.inspector.accept();
        Ok(())
    }

    /// Their logs, which name the applications of open connections.
    pub fn lookup(&self, confined: bool) -> Lookup {
        let mut lookup = Lookup::default().confined(confined).share(memory::NAMES_SHARE);
        for server in self.watched.all().iter() {
            let Some(path) = server.log.clone() else { continue };
            let mut place = InspectedLog::new(path, self.inspector.clone());
            if let Ok(newest) = place.open() {
                lookup.add_log(server.port, place.copies().into_iter().rev().chain([newest]).collect());
            }
        }
        lookup
    }

    /// Searches for servers, and records which have started or ended, starts only if it `reports_starts`; whether the
    /// search was answered.
    pub fn search(
        &mut self,
        queries: Option<&mut QueriesCollector>,
        record: &mut AgentRecord,
        reports_starts: bool,
    ) -> bool {
        let is_first = self.pace.searches(&*record.clock);
        let found = self.inspector.servers();
        let of_rings = queries.as_deref().map_or(0, QueriesCollector::late_answers);
        let late = self.inspector.late_answers() + of_rings;
        self.answers.note(found.as_ref().err().map(unanswered), late, record);
        let Ok(found) = found else { return false };
        let ports: Vec<u16> = found.iter().map(|server| server.port).collect();
        let (started, ended) = self.watched.set(found);
        self.watched.add_to(&mut self.local);
        if !is_first {
            for (servers, what) in [(&ended, "ended"), (&started, "started")] {
                for server in servers {
                    eprintln!(
                        "mongosonar: {} {} on port {} has {what}",
                        server.name, server.pid, server.port
                    );
                }
            }
            self.lives.watch(&self.watched.all());
        }
        self.note_ends(&ended, &started, record);
        if reports_starts {
            let time = record.clock.time();
            record.events(started.iter().flat_map(|server| self.lives.appeared(server, time)));
        }
        if let Some(queries) = queries {
            self.end_in_flight(&ended, queries, record.clock.time());
            queries.add_ports(&ports);
        }
        true
    }

    /// Notes which processes have ended, where these have started.
    fn note_ends(&mut self, ended: &[FoundServer], started: &[FoundServer], record: &AgentRecord) {
        let time = record.clock.time();
        for server in ended {
            let is_logged = record.board.is_wanted(CollectorKind::Log) && server.log.is_some();
            let others = started.iter().filter(|other| other.endpoint() == server.endpoint());
            let starts = others.map(|other| servers::started_at(other.started, time));
            self.lives.ended(server, is_logged, ended_at(starts, time));
            self.pace.ends(&*record.clock);
        }
    }

    /// Tells the capture which servers have nothing in flight any more, because their process has ended.
    fn end_in_flight(&self, ended: &[FoundServer], queries: &QueriesCollector, now: Timestamp) {
        let host = Host::live();
        // One whose ports cannot be found out any more, or that has closed one, still works.
        for server in ended.iter().filter(|server| state_of(&host, server) == ProcessState::Ended) {
            let (found, reach) = (self.watched.all(), self.watched.reach(server));
            let is_at_its_port = |other: &&FoundServer| {
                other.port == server.port && self.watched.reach(other).overlaps(&reach)
            };
            let others = found.iter().filter(is_at_its_port);
            let at = servers::silent_before(now, others.map(|other| servers::started_at(other.started, now)));
            let ServerReach { addresses, has_loopback } = reach;
            queries.server_ended(&EndedServer { port: server.port, addresses, has_loopback, at });
        }
    }

    /// Looks at the processes of servers, and at what logs say of ends.
    pub fn look(&mut self, queries: Option<&mut QueriesCollector>, record: &AgentRecord) -> ServerLook {
        self.read_kernel_log(record.clock.time());
        let host = Host::live();
        let servers = self.watched.all();
        let states: Vec<_> = servers.iter().map(|server| (server.clone(), state_of(&host, server))).collect();
        let has_ended = states.iter().any(|(_, state)| *state == ProcessState::Ended);
        for logged in self.watched.take_logged() {
            match logged {
                LoggedEnd::Begins(server, at) => self.lives.begins_shutdown(server, at),
                LoggedEnd::Ends(event) => self.lives.see(&event),
            }
        }
        match queries {
            Some(queries) => queries.follow_ends(&self.watched),
            None => drop(self.watched.take_clients()),
        }
        let silent = self.lives.silent(&states, record.clock.time());
        ServerLook { silent, is_search_due: has_ended || self.pace.is_due(&*record.clock) }
    }

    /// Records what has happened to servers, also what a look has found.
    pub fn report(&mut self, look: ServerLook, record: &mut AgentRecord) {
        let now = record.clock.time();
        record.events(look.silent);
        record.events(self.lives.decided(now));
        let upgrades = self.watched.take_upgrades();
        record.events(upgrades.iter().map(|upgrade| ServerLives::upgraded(upgrade, now)));
        self.keeper.keep_if_due(&self.watched.all(), record);
    }

    /// Notes what a window of any source says of servers, and names the processes that were killed.
    pub fn see(&mut self, part: &mut WindowPart, now: Timestamp) {
        if part.events.iter().any(|event| event.kind == EventKind::OutOfMemory) {
            self.read_kernel_log(now);
            part.events.iter_mut().for_each(|event| self.lives.name_killed(event));
        }
        part.events.iter().for_each(|event| self.lives.see(event));
    }

    /// Notes which processes the kernel has killed for lack of memory.
    fn read_kernel_log(&mut self, now: Timestamp) {
        let Some(log) = &mut self.kernel_log else { return };
        for death in log.deaths() {
            let ago = monotonic().saturating_sub(death.at);
            let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
            let at = now.minus_ns(ago);
            self.lives.killed(death.pid, at, death.line);
        }
    }

    /// Records what happened to servers while no agent ran, of which the last run wrote which ones it knew. Notes what it
    /// cannot see.
    pub fn note_absence(&mut self, record: &mut AgentRecord) {
        if self.kernel_log.is_none() {
            record.notices.note(NO_KERNEL_LOG.to_owned());
        }
        self.read_kernel_log(record.clock.time());
        if let Some(known) = self.keeper.last() {
            self.watched.keep(&known);
            self.watched.add_to(&mut self.local);
            record.events(self.lives.meanwhile(known, &self.watched.all(), record.clock.time()));
        }
        // They have their names only now.
        self.lives.watch(&self.watched.all());
        self.keep(record);
        if self.watched.all().is_empty() {
            self.hidden = servers::ports_unknown(&servers::listeners(&Host::live()).unwrap_or_default());
        }
    }

    /// The ends of all processes whose cause is not known yet, at the end of the agent.
    pub fn rest(&mut self) -> Vec<Event> {
        self.lives.rest()
    }

    /// Writes the servers for the next run.
    pub fn keep(&mut self, record: &AgentRecord) {
        self.keeper.keep(&self.watched.all(), record);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::agent::live::clock_reading::AgentClock;
    use crate::agent::live::fakes::{TestRecord, test_record, test_servers};

    #[test]
    fn a_server_whose_process_has_gone_is_searched_for_at_once_and_its_end_is_recorded() {
        /// More than the kernel's largest number of a process.
        const GONE: u32 = u32::MAX;
        let folder = tempfile::tempdir().unwrap();
        let TestRecord { mut record, store, clock } = test_record(folder.path(), 0);
        let mut search = test_servers(folder.path());
        assert!(search.search(None, &mut record, true));
        assert!(!search.look(None, &record).is_search_due);
        search.watched().set(vec![FoundServer {
            port: 5,
            pid: GONE,
            name: "mongod".to_owned(),
            ..FoundServer::default()
        }]);
        let look = search.look(None, &record);
        assert!(look.is_search_due);
        assert!(search.search(None, &mut record, true));
        search.report(look, &mut record);
        clock.sleep(Duration::from_secs(12));
        let look = search.look(None, &record);
        search.report(look, &mut record);
        record.store_rest();
        let kinds = [EventKind::ServerStart, EventKind::ServerStop, EventKind::ServerCrash];
        let text = format!("process {GONE} (mongod); without its log it is not known how");
        assert_eq!(store.events(&kinds), [(EventKind::ServerStop, text)]);
    }

    #[test]
    fn a_process_that_is_ending_serves_no_more() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("7")).unwrap();
        let state = |state: &str, flags: u32| {
            // Its start is the 22nd field of proc_pid_stat(5).
            let stat =
                format!("7 (mongod) {state} 1 1 1 0 0 {flags} {} 5 {}\n", "0 ".repeat(12), "0 ".repeat(30));
            std::fs::write(proc.path().join("7/stat"), stat).unwrap();
            let server = FoundServer { pid: 7, started: 5, ..FoundServer::default() };
            state_of(&Host::of_proc(proc.path()), &server)
        };
        assert_eq!(state("S", 0), ProcessState::Serves);
        assert_eq!(state("T", 0), ProcessState::Silent(NotServing::Stopped));
        // PF_EXITING of linux/sched.h.
        assert_eq!(state("R", 4), ProcessState::Silent(NotServing::NotListening));
        assert_eq!(state("Z", 4), ProcessState::Ended);
    }
}
