//! What happens to the processes of servers, as events. They come from the processes themselves, so that a server that is
//! killed, or writes no log, is in the history, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use sonar_core::history::{Event, EventKind, KILL_REACH_NS, changed_settings, killed_process};
use sonar_core::time::NS_PER_S;
use sonar_core::words::plural;
use sonar_core::{Endpoint, Timestamp};
use sonar_sys::process_end::{ProcessEnd, ProcessHandle};

use super::inspector::FoundServer;
use super::known_servers::KnownServers;
use super::watched::FoundUpgrade;
use crate::servers;

/// How long after the end of a process its log and the kernel may still say why it ended, in nanoseconds.
const PATIENCE_NS: u64 = 12 * NS_PER_S;
/// How long before its process ends a server may log that it shuts down, in nanoseconds.
const SHUTDOWN_NS: u64 = 120 * NS_PER_S;
/// How far the kernel's report of a kill and the end of a process may be apart, in nanoseconds.
const KILL_NS: u64 = KILL_REACH_NS;
/// A process that was found only so long after its start was there all the time, in nanoseconds: a server that recovers
/// listens late.
const LATE_NS: u64 = 3_600 * NS_PER_S;
/// How long a process must serve again before that is reported, in nanoseconds. One that was stopped and is then killed runs
/// for a moment before it ends.
const CONFIRMED_NS: u64 = 2 * NS_PER_S;
/// The most kills that are remembered.
const MAX_KILLS: usize = 256;

/// The settings that a process was started with.
#[derive(Clone, Debug)]
struct ProcessSettings {
    /// Its number, and when it started.
    process: (u32, u64),
    options: BTreeMap<String, String>,
}

impl ProcessSettings {
    fn of(server: &FoundServer) -> Self {
        Self { process: (server.pid, server.started), options: server.options.clone() }
    }
}

/// A process that has ended.
#[derive(Clone, Debug)]
struct EndedProcess {
    /// Its name in the history.
    server: Endpoint,
    pid: u32,
    name: String,
    /// Whether its log is followed, which then says whether it shut down.
    is_logged: bool,
    at: Timestamp,
    /// When the process before it with this name ended: what was logged before that is not of this one.
    after: Option<Timestamp>,
    /// Says how it ended; `None` if the kernel cannot.
    handle: Option<Arc<ProcessHandle>>,
    how: Option<ProcessEnd>,
}

/// A process that ended while no agent ran. Its log may say how, once what was written meanwhile has been read.
#[derive(Clone, Debug)]
struct AbsentEnd {
    /// Its name in the history.
    server: Endpoint,
    pid: u32,
    name: String,
    /// When it was last seen, and when the agent missed it.
    span: [Timestamp; 2],
    /// How long that is, in words.
    during: String,
    /// The first thing that its log says of an end since it was last seen.
    logged: Option<Event>,
}

/// What the kernel says of a process that it killed for lack of memory.
#[derive(Clone, Debug)]
struct KernelKill {
    at: Timestamp,
    line: String,
}

/// The processes of the servers of this host, and what is known about how they ended.
#[derive(Debug, Default)]
pub struct ServerLives {
    /// Handles of those that run, by process and the time it started.
    running: BTreeMap<(u32, u64), Arc<ProcessHandle>>,
    /// Those that do not answer, though they run.
    silent: BTreeMap<(Endpoint, u32), ServerSilence>,
    /// Of which it is not known yet why they ended.
    undecided: Vec<EndedProcess>,
    /// Those that ended while no agent ran, of which the same is not known.
    absent: Vec<AbsentEnd>,
    /// The last one that ended, by server: when, and its process.
    last: BTreeMap<Endpoint, (Timestamp, u32)>,
    /// The settings of the last one, by server.
    settings: BTreeMap<Endpoint, ProcessSettings>,
    /// When a server last logged that it shuts down, and how.
    shutdowns: BTreeMap<Endpoint, (Timestamp, Box<str>)>,
    /// When a server last logged that it begins to shut down.
    stopping: BTreeMap<Endpoint, Timestamp>,
    /// When the kernel last killed processes for lack of memory, and how many.
    killed: Option<(Timestamp, u64)>,
    /// Which processes it killed, by their number.
    kills: BTreeMap<u32, KernelKill>,
}

/// A process that runs, but does not answer.
#[derive(Copy, Clone, Debug)]
struct ServerSilence {
    since: Timestamp,
    why: NotServing,
    /// Whether its event has been reported.
    is_told: bool,
    /// Since when it serves again, if it does.
    serves_since: Option<Timestamp>,
}

/// What the system says of the process of a server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProcessState {
    /// It runs and listens.
    Serves,
    /// It does not answer, though it runs.
    Silent(NotServing),
    /// It has ended.
    Ended,
}

/// Why a process that runs does not answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NotServing {
    /// It has closed its port.
    NotListening,
    /// A signal or a debugger has stopped it.
    Stopped,
}

impl ServerLives {
    /// Notes an event of any source.
    pub fn see(&mut self, event: &Event) {
        if event.kind == EventKind::ServerStop {
            let of = |one: &&mut AbsentEnd| {
                let [from, until] = one.span;
                one.server == event.server && one.logged.is_none() && (from..=until).contains(&event.at)
            };
            if let Some(ended) = self.absent.iter_mut().find(of) {
                ended.logged = Some(event.clone());
            }
        }
        match event.kind {
            EventKind::ServerStop if event.text.starts_with("shut down") => {
                self.shutdowns.insert(event.server, (event.at, event.text.clone()));
            }
            EventKind::OutOfMemory => self.killed = Some((event.at, event.count)),
            _ => {}
        }
    }

    /// The kernel says that it killed a process for lack of memory.
    pub fn killed(&mut self, pid: u32, at: Timestamp, line: String) {
        if self.kills.len() >= MAX_KILLS
            && let Some(oldest) = self.kills.iter().min_by_key(|(_, kill)| kill.at).map(|(pid, _)| *pid)
        {
            self.kills.remove(&oldest);
        }
        self.kills.insert(pid, KernelKill { at, line });
    }

    /// Names the processes that the kernel has killed, in the event that counts those of the machine, as far as its log has
    /// each of them.
    pub fn name_killed(&self, event: &mut Event) {
        if event.kind != EventKind::OutOfMemory || event.server.port != 0 {
            return;
        }
        let near =
            self.kills.values().filter(|kill| kill.at <= event.at && event.at.since(kill.at) <= KILL_NS);
        let names: Vec<String> = near.filter_map(|kill| killed_process(&kill.line)).collect();
        // With more or fewer of them it is not clear which are meant.
        if u64::try_from(names.len()).is_ok_and(|count| count == event.count) {
            let named = Event::new(event.at, event.kind, event.server, &names.join(", "));
            *event = Event { count: event.count, ..named };
        }
    }

    /// Begins to watch processes, so that it is known how they end.
    pub fn watch(&mut self, servers: &[FoundServer]) {
        for server in servers {
            let key = (server.pid, server.started);
            if !self.running.contains_key(&key)
                && let Ok(handle) = ProcessHandle::open(server.pid)
            {
                self.running.insert(key, Arc::new(handle));
            }
            self.settings.entry(server.endpoint()).or_insert_with(|| ProcessSettings::of(server));
        }
    }

    /// A process has ended. Its event follows when it is known how, or cannot be known any more; see [`Self::decided`].
    pub fn ended(&mut self, server: &FoundServer, is_logged: bool, at: Timestamp) {
        let (FoundServer { pid, name, .. }, at_name) = (server, server.endpoint());
        let handle = self.running.remove(&(*pid, server.started));
        self.silent.remove(&(at_name, *pid));
        let after = self.last.insert(at_name, (at, *pid)).map(|(before, _)| before);
        let ended = EndedProcess {
            server: at_name,
            pid: *pid,
            name: name.clone(),
            is_logged,
            at,
            after,
            handle,
            how: None,
        };
        self.undecided.push(ended);
    }

    /// A search at `now` found a process that was not there before: the events of its start, at the time at which it
    /// started.
    pub fn appeared(&mut self, server: &FoundServer, now: Timestamp) -> Vec<Event> {
        self.found(server, servers::started_at(server.started, now).min(now), now)
    }

    /// The same of a process that started at `at`.
    fn found(&mut self, server: &FoundServer, at: Timestamp, now: Timestamp) -> Vec<Event> {
        let events = self.started(server, at);
        if now.since(at) <= LATE_NS { events } else { Vec::new() }
    }

    /// A process has started: that, and which of its settings are others than those of the process before it.
    pub fn started(&mut self, server: &FoundServer, at: Timestamp) -> Vec<Event> {
        let mut text = process(&server.name, server.pid);
        if let Some((before, pid)) = self.last.get(&server.endpoint()) {
            let seconds = at.since(*before) / NS_PER_S;
            text += &format!(", {} after process {pid} had ended", plural(seconds, "second"));
        }
        let before = self.settings.insert(server.endpoint(), ProcessSettings::of(server));
        // One that still runs has another name now, because a server of this host has come to its port.
        let changed = before
            .filter(|before| !self.running.contains_key(&before.process))
            .and_then(|before| changed_settings(&before.options, &server.options));
        let start = Event::new(at, EventKind::ServerStart, server.endpoint(), &text);
        let settings = changed.map(|changed| Event::settings_of_start(at, server.endpoint(), &changed));
        std::iter::once(start).chain(settings).collect()
    }

    /// A server runs another version than before, found at `now`. The event has the time at which its process started.
    pub fn upgraded(upgrade: &FoundUpgrade, now: Timestamp) -> Event {
        let [before, after] = &upgrade.versions;
        let text = format!("version {after}, before {before}");
        let at = servers::started_at(upgrade.started, now).min(now);
        Event::new(at, EventKind::ServerUpgrade, upgrade.server, &text)
    }

    /// A server logs that it begins to shut down.
    pub fn begins_shutdown(&mut self, server: Endpoint, at: Timestamp) {
        self.stopping.insert(server, at);
    }

    /// How processes are now: events of those that do not answer, and of those that answer again. One that has ended, or
    /// is not among them, does not answer again.
    pub fn silent(&mut self, servers: &[(FoundServer, ProcessState)], now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        for (server, state) in servers {
            match state {
                ProcessState::Ended => {}
                ProcessState::Serves => events.extend(self.serves(server, now)),
                ProcessState::Silent(why) => {
                    let event = match self.is_shutting_down(server, now) {
                        true => None,
                        false => self.is_silent(server, *why, now),
                    };
                    events.extend(event);
                }
            }
        }
        events
    }

    /// The event of a process that serves again, once it has done so for [`CONFIRMED_NS`].
    fn serves(&mut self, server: &FoundServer, now: Timestamp) -> Option<Event> {
        let key = (server.endpoint(), server.pid);
        let silence = self.silent.get_mut(&key)?;
        let since = *silence.serves_since.get_or_insert(now);
        if silence.is_told && now.since(since) < CONFIRMED_NS {
            return None;
        }
        let before = self.silent.remove(&key).filter(|before| before.is_told);
        before.map(|before| returned(server, before, since))
    }

    /// Whether this process has logged that it shuts down: it closes its port first, and may then write its data for
    /// minutes.
    fn is_shutting_down(&self, server: &FoundServer, now: Timestamp) -> bool {
        let ended = self.shutdowns.get(&server.endpoint()).map(|(at, _)| *at);
        let logged = ended.into_iter().chain(self.stopping.get(&server.endpoint()).copied()).max();
        logged.is_some_and(|at| at >= servers::started_at(server.started, now))
    }

    /// What to say of a process that does not answer. That it listens no more may be the beginning of its end, of which
    /// the log speaks later.
    fn is_silent(&mut self, server: &FoundServer, why: NotServing, now: Timestamp) -> Option<Event> {
        let key = (server.endpoint(), server.pid);
        let begun = ServerSilence { since: now, why, is_told: false, serves_since: None };
        let silence = self.silent.entry(key).or_insert(begun);
        silence.serves_since = None;
        if silence.why != why && !silence.is_told {
            *silence = begun;
        }
        let is_held_back = why == NotServing::NotListening && now.since(silence.since) < PATIENCE_NS;
        if silence.is_told || is_held_back {
            return None;
        }
        silence.is_told = true;
        let process = process(&server.name, server.pid);
        let text = match why {
            NotServing::NotListening => format!("{process} runs, but does not listen on its port any more"),
            NotServing::Stopped => format!("{process} was stopped by a signal or a debugger"),
        };
        Some(Event::new(silence.since, EventKind::ServerUnreachable, server.endpoint(), &text))
    }

    /// What happened while no agent ran, by the servers that `known`, the last run, knew. Of ends whose cause the log may
    /// tell, the events follow; see [`Self::decided`].
    pub fn meanwhile(&mut self, known: KnownServers, found: &[FoundServer], now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        let until = known.at;
        let during = match now.since(until) / NS_PER_S {
            seconds @ 0..120 => plural(seconds, "second"),
            seconds => plural(seconds / 60, "minute"),
        };
        for server in &known.servers {
            self.settings.insert(server.endpoint(), ProcessSettings::of(server));
            if found.iter().any(|one| (one.pid, one.started) == (server.pid, server.started)) {
                continue;
            }
            self.last.insert(server.endpoint(), (until, server.pid));
            let ended = AbsentEnd {
                server: server.endpoint(),
                pid: server.pid,
                name: server.name.clone(),
                span: [until, now],
                during: during.clone(),
                logged: None,
            };
            let kill = self.kills.get(&server.pid).filter(|kill| kill.at > until && kill.at <= now);
            match kill {
                Some(kill) => events.push(ended.event(
                    kill.at,
                    EventKind::ServerCrash,
                    &format!("the kernel killed it: {}", kill.line),
                )),
                None if known.is_other_boot => {
                    events.push(ended.event(until, EventKind::ServerStop, "the machine was restarted"));
                }
                None => self.absent.push(ended),
            }
        }
        for server in found {
            let is_known = |one: &&FoundServer| (one.pid, one.started) == (server.pid, server.started);
            let started = servers::started_at(server.started, now);
            // One that had started just before the end of the last run may not be known to it.
            if known.servers.iter().any(|one| is_known(&one)) || started <= until {
                continue;
            }
            for event in self.started(server, started) {
                let text = match event.kind {
                    EventKind::ServerStart => {
                        format!("{}, while no agent ran", process(&server.name, server.pid))
                    }
                    _ => event.text.to_string(),
                };
                events.push(Event::new(started, event.kind, event.server, &text));
            }
        }
        events
    }

    /// The ends of processes that are decided at `now`.
    pub fn decided(&mut self, now: Timestamp) -> Vec<Event> {
        let mut undecided = std::mem::take(&mut self.undecided);
        let mut events = Vec::new();
        self.absent.retain(|ended| {
            let event = ended.decided(now);
            let is_open = event.is_none();
            events.extend(event);
            is_open
        });
        undecided.retain_mut(|ended| {
            if ended.how.is_none() {
                ended.how = ended.handle.as_ref().and_then(|handle| handle.end());
            }
            let is_over = now.since(ended.at) >= PATIENCE_NS || now < ended.at;
            match self.end(ended, is_over) {
                Some(event) => {
                    events.push(event);
                    false
                }
                None => true,
            }
        });
        self.undecided = undecided;
        events
    }

    /// The ends of all processes, at the end of the agent.
    pub fn rest(&mut self) -> Vec<Event> {
        self.decided(Timestamp::from_unix_ns(u64::MAX))
    }

    /// How a process ended; `None` if that may still become known.
    fn end(&self, ended: &EndedProcess, is_over: bool) -> Option<Event> {
        let process = process(&ended.name, ended.pid);
        let event = |kind, text: &str| Some(Event::new(ended.at, kind, ended.server, text));
        let near =
            |at: Timestamp, before_ns| ended.at.since(at) <= before_ns && at.since(ended.at) <= KILL_NS;
        let shutdown = self.shutdowns.get(&ended.server).filter(|(at, _)| {
            near(*at, SHUTDOWN_NS) && ended.after.is_none_or(|before| at.since(before) > 0)
        });
        let kill = self.kills.get(&ended.pid).filter(|kill| near(kill.at, KILL_NS));
        let how = ended.how.map(|how| how.to_string());
        match (shutdown, ended.how) {
            // It was killed before it had ended by itself.
            (Some((_, text)), Some(ProcessEnd::Killed { .. })) => {
                let how = how.unwrap_or_default();
                return event(EventKind::ServerCrash, &format!("{process}, {how}, after it had {text}"));
            }
            (Some((_, text)), _) => {
                return event(EventKind::ServerStop, &format!("{process}, after it had {text}"));
            }
            (None, Some(ProcessEnd::Exited(0))) => {
                return event(EventKind::ServerStop, &format!("{process}, exit code 0"));
            }
            _ => {}
        }
        if let Some(kill) = kill {
            let how = how.map_or_else(String::new, |how| format!(", {how}"));
            return event(EventKind::ServerCrash, &format!("{process}{how}; the kernel says: {}", kill.line));
        }
        if !is_over {
            return None;
        }
        // It kills by SIGKILL, and says which processes, if its log can be read.
        let may_be = ended.how.is_none_or(|how| matches!(how, ProcessEnd::Killed { signal: 9, .. }));
        let is_named = self.kills.values().any(|kill| near(kill.at, KILL_NS));
        let killed = self.killed.filter(|(at, _)| may_be && !is_named && near(*at, KILL_NS));
        let memory = killed.map(|(_, count)| {
            let processes = plural(count, "process");
            format!("; the kernel killed {processes} at that time for lack of memory")
        });
        match (how, memory, ended.is_logged) {
            (Some(how), memory, _) => {
                let memory = memory.unwrap_or_default();
                event(EventKind::ServerCrash, &format!("{process}, {how}{memory}"))
            }
            (None, Some(memory), _) => event(EventKind::ServerCrash, &format!("{process}{memory}")),
            (None, None, true) => event(
                EventKind::ServerCrash,
                &format!("{process}; its log has no shutdown: killed, or crashed"),
            ),
            (None, None, false) => {
                event(EventKind::ServerStop, &format!("{process}; without its log it is not known how"))
            }
        }
    }
}

impl AbsentEnd {
    fn event(&self, at: Timestamp, kind: EventKind, why: &str) -> Event {
        let process = process(&self.name, self.pid);
        let text = format!("{process}, in the next {}, while no agent ran; {why}", self.during);
        Event::new(at, kind, self.server, &text)
    }

    /// How it ended; `None` if its log may still say that. A log that does not say it is no evidence: what was written
    /// meanwhile may have been rotated away.
    fn decided(&self, now: Timestamp) -> Option<Event> {
        let [seen, missed] = self.span;
        match &self.logged {
            Some(event) if event.text.starts_with("shut down") => {
                Some(self.event(event.at, EventKind::ServerStop, &format!("it had {}", event.text)))
            }
            Some(_) => Some(self.event(
                seen,
                EventKind::ServerCrash,
                "the next start found that it had not shut down cleanly",
            )),
            None if now.since(missed) >= PATIENCE_NS => {
                Some(self.event(seen, EventKind::ServerStop, "it is not known how"))
            }
            None => None,
        }
    }
}

/// A process answers again.
fn returned(server: &FoundServer, before: ServerSilence, now: Timestamp) -> Event {
    let what = match before.why {
        NotServing::NotListening => "listens again",
        NotServing::Stopped => "runs again",
    };
    let seconds = plural(now.since(before.since) / NS_PER_S, "second");
    let text = format!("process {} {what}, after {seconds}", server.pid);
    Event::new(now, EventKind::ServerReachable, server.endpoint(), &text)
}

fn process(name: &str, pid: u32) -> String {
    format!("process {pid} ({name})")
}

#[cfg(test)]
#[path = "lives_tests.rs"]
mod tests;
