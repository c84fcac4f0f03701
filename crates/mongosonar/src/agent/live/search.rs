//! The search for servers, and what happens to their processes.

use std::time::Duration;

use sonar_core::Timestamp;
use sonar_core::history::{CollectorKind, Event};
use sonar_core::words::plural;
use sonar_decode::EndedServer;
use sonar_sys::clock::monotonic;
use sonar_sys::{Host, helper};

use super::board::{CollectorProblem, SourceId, unanswered};
use super::helpers::{HelperReport, collectors};
use super::inspector::FoundServer;
use super::known_servers::KnownServers;
use super::lives::{NotServing, ProcessState, ServerLives};
use super::watched::{LoggedEnd, ServerReach};
use super::{LiveAgent, QueriesCollector, RESTART_EVERY, RESTART_WITHIN, SEARCH_EVERY, page};
use crate::servers;

/// How often the servers are written for the next run.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// What the status says without the kernel's log.
const NO_KERNEL_LOG: &str = "the kernel's log (/dev/kmsg) cannot be read: the end of a process does not say whether the \
                             kernel killed it for lack of memory";

/// When a process ended that a search at `now` missed: before another one started at its port, if that was after the search
/// before. `starts` are those of the others.
fn ended_at(starts: impl Iterator<Item = Timestamp>, now: Timestamp) -> Timestamp {
    let since = u64::try_from(SEARCH_EVERY.as_nanos()).unwrap_or(u64::MAX);
    servers::silent_before(now, starts.filter(|at| now.since(*at) <= since))
}

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

impl LiveAgent<'_> {
    /// Reports which helper processes do nothing, and which work again.
    pub(super) fn follow_helpers(&mut self) {
        for HelperReport { name, problem, has_ended } in self.helpers.look(&Host::live(), &helper::started())
        {
            if name == page::HELPER {
                // Only the page depends on it.
                self.page.note(problem.as_ref().map(CollectorProblem::text));
                continue;
            }
            if has_ended {
                // Nobody else can start it again.
                self.restart_reason.get_or_insert_with(|| format!("the helper process {name} has ended"));
            }
            for collector in collectors(&name) {
                if !self.plan.runs(*collector) {
                    continue;
                }
                let source = SourceId::of_helper(*collector, &name);
                match &problem {
                    Some(problem) => self.fail(source, problem),
                    None => self.passes(source),
                }
            }
        }
    }

    /// Searches for servers, and reports which have started or ended.
    pub(super) fn look_for_servers(&mut self) {
        let is_first = self.searched.replace(self.instant()).is_none();
        let found = self.inspector.servers();
        self.note_answer(found.as_ref().err().map(unanswered));
        let Ok(found) = found else { return };
        let ports: Vec<u16> = found.iter().map(|server| server.port).collect();
        let (started, ended) = self.context.servers.set(found);
        self.context.servers.add_to(&mut self.servers);
        for (servers, what) in [(&ended, "ended"), (&started, "started")] {
            for server in servers.iter().filter(|_| !is_first) {
                eprintln!("mongosonar: {} {} on port {} has {what}", server.name, server.pid, server.port);
            }
        }
        if !is_first {
            self.lives.watch(&self.context.servers.all());
        }
        self.note_servers(&ended, &started);
        self.end_in_flight(&ended);
        if let Some(queries) = &mut self.queries {
            queries.add_ports(&ports);
        }
        self.follow_network();
    }

    /// Reports why the helper did not answer, or that it does again, and how many answers came late and were discarded.
    fn note_answer(&mut self, problem: Option<CollectorProblem>) {
        let before = std::mem::replace(&mut self.unanswered, problem.clone());
        for collector in [CollectorKind::Log, CollectorKind::Internals] {
            if self.plan.settings.collectors.runs(collector) {
                match &problem {
                    // Once, whatever else is reported meanwhile.
                    Some(problem) if before.as_ref() != Some(problem) => self.fail(collector, problem),
                    None if before.is_some() => self.passes(collector),
                    _ => {}
                }
            }
        }
        let of_rings = self.queries.as_ref().map_or(0, QueriesCollector::late_answers);
        let late = self.inspector.late_answers() + of_rings;
        if std::mem::replace(&mut self.late_answers, late) < late {
            let text = format!("helper processes stood still: {} came late", plural(late, "answer"));
            eprintln!("mongosonar: {text}");
            self.note(text);
        }
    }

    /// Tells the capture which servers have nothing in flight any more, because their process has ended.
    fn end_in_flight(&self, ended: &[FoundServer]) {
        let Some(queries) = &self.queries else { return };
        let (host, now) = (Host::live(), self.now());
        // One whose ports cannot be found out any more, or that has closed one, still works.
        for server in ended.iter().filter(|server| state_of(&host, server) == ProcessState::Ended) {
            let (found, reach) = (self.context.servers.all(), self.context.servers.reach(server));
            let is_at_its_port = |other: &&FoundServer| {
                other.port == server.port && self.context.servers.reach(other).overlaps(&reach)
            };
            let others = found.iter().filter(is_at_its_port);
            let at = servers::silent_before(now, others.map(|other| servers::started_at(other.started, now)));
            let ServerReach { addresses, has_loopback } = reach;
            queries.server_ended(&EndedServer { port: server.port, addresses, has_loopback, at });
        }
    }

    /// Tells the capture which connections have ended, as logs say.
    fn follow_ends(&mut self) {
        match &mut self.queries {
            Some(queries) => queries.follow_ends(&self.context.servers),
            None => drop(self.context.servers.take_clients()),
        }
    }

    /// Looks at the processes of servers, searches for servers if that is due, and reports what has happened to them.
    pub(super) fn follow_servers(&mut self) {
        self.read_kernel_log();
        let host = Host::live();
        let servers = self.context.servers.all();
        let states: Vec<_> = servers.iter().map(|server| (server.clone(), state_of(&host, server))).collect();
        let has_ended = states.iter().any(|(_, state)| *state == ProcessState::Ended);
        for logged in self.context.servers.take_logged() {
            match logged {
                LoggedEnd::Begins(server, at) => self.lives.begins_shutdown(server, at),
                LoggedEnd::Ends(event) => self.lives.see(&event),
            }
        }
        self.follow_ends();
        let mut events = self.lives.silent(&states, self.now());
        if has_ended || self.is_due(self.searched, self.search_every()) {
            self.look_for_servers();
        }
        events.extend(self.lives.decided(self.now()));
        let upgrades = self.context.servers.take_upgrades();
        events.extend(upgrades.iter().map(|upgrade| ServerLives::upgraded(upgrade, self.now())));
        events.into_iter().for_each(|event| self.event(event));
        if self.is_due(self.kept, KEEP_EVERY) {
            self.keep_servers();
        }
    }

    /// Notes which processes the kernel has killed for lack of memory.
    pub(super) fn read_kernel_log(&mut self) {
        let now = self.now();
        let Some(log) = &mut self.kernel_log else { return };
        for death in log.deaths() {
            let ago = monotonic().saturating_sub(death.at);
            let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
            let at = now.minus_ns(ago);
            self.lives.killed(death.pid, at, death.line);
        }
    }

    /// Reports what happened to servers while no agent ran. The last run wrote which ones it knew.
    pub(super) fn note_absence(&mut self) {
        if self.kernel_log.is_none() {
            self.note(NO_KERNEL_LOG.to_owned());
        }
        self.read_kernel_log();
        if let Some(known) = KnownServers::load(self.plan.folder) {
            self.context.servers.keep(&known);
            self.context.servers.add_to(&mut self.servers);
            let events = self.lives.meanwhile(known, &self.context.servers.all(), self.now());
            events.into_iter().for_each(|event| self.event(event));
        }
        // They have their names only now.
        self.lives.watch(&self.context.servers.all());
        self.keep_servers();
    }

    /// Writes the servers for the next run. Without them it only misses what happens in between.
    pub(super) fn keep_servers(&mut self) {
        self.kept = Some(self.instant());
        let _waits = self.pulse.begin();
        let _ = KnownServers::save(self.plan.folder, &self.context.servers.all(), self.now());
    }

    /// How often to search for servers now.
    fn search_every(&self) -> Duration {
        let is_restarting = self.last_end.is_some() && !self.is_due(self.last_end, RESTART_WITHIN);
        if is_restarting { RESTART_EVERY } else { SEARCH_EVERY }
    }

    /// Reports starts and ends of servers.
    fn note_servers(&mut self, ended: &[FoundServer], started: &[FoundServer]) {
        let time = self.now();
        for server in ended {
            let is_logged = self.plan.settings.collectors.log && server.log.is_some();
            let others = started.iter().filter(|other| other.endpoint() == server.endpoint());
            let starts = others.map(|other| servers::started_at(other.started, time));
            self.lives.ended(server, is_logged, ended_at(starts, time));
            self.last_end = Some(self.instant());
        }
        // Before the first status the agent itself starts.
        if self.stated.is_some() {
            let starts: Vec<Event> =
                started.iter().flat_map(|server| self.lives.appeared(server, time)).collect();
            starts.into_iter().for_each(|event| self.event(event));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_process_has_ended_before_the_next_one_at_its_port_starts() {
        let at = |second| Timestamp::from_unix(second, 0);
        let ended = |starts: &[u64]| ended_at(starts.iter().map(|start| at(*start)), at(1_000));
        assert_eq!(ended(&[]), at(1_000));
        assert_eq!(ended(&[998]), at(998));
        assert_eq!(ended(&[500]), at(1_000), "that one ran beside it");
    }
}
