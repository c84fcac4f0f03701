//! The logs of servers.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_core::observation::WindowCutter;
use sonar_core::{Endpoint, Timestamp};
use sonar_decode::log::{Bound, LogReader, LogSettings};

use super::backoff::Backoff;
use super::board::{CollectorProblem, SourceId, unreadable as problem_of_path};
use super::clock_reading::ClockReading;
use super::followed_log::{FollowedLog, LogFollowing, LoggedEnds};
use super::inspector::{FoundServer, InspectedLog, Inspector};
use super::positions::LogPositions;
use super::runner::{Collector, Observation};
use super::watched::WatchedServers;
use crate::agent::applications::KnownApplications;
use crate::agent::memory::Holder;
use crate::args::when::now;
use crate::confinement::privileges;
use crate::input::follow::{FileFollower, FileThread, FileThreads, FollowStart, FollowedFile, FollowedPlace};
use crate::servers::started_at;

/// How often logs are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// A server that is found later than this after the agent's start has appeared since.
const APPEARED: Duration = Duration::from_secs(15);
/// The most bytes of a log that are read from its beginning.
const MAX_FROM_BEGINNING: u64 = 16 << 20;

/// The most bytes that the readers of all logs hold between two looks. A server with 1,000 shapes has one MB.
const LINES_BYTES: usize = 8 << 20;

/// A process may name its version this long before it seems to have started, in nanoseconds: clocks differ by ticks.
const NAMED_EARLY_NS: u64 = 1_000_000_000;

/// Follows the logs of all servers.
pub struct LogCollector {
    /// Opens their files.
    pub inspector: Arc<Inspector>,
    /// How far logs have been read.
    pub positions: Arc<LogPositions>,
    /// When the agent started: what a log has of before is not read.
    pub begun: ClockReading,
    /// Applications that are not new.
    pub applications: Arc<KnownApplications>,
}

/// For so long, a log that cannot be read for a moment (it is rotated) counts as observed.
const READ_LATER_NS: u64 = 60_000_000_000;

impl Collector for LogCollector {
    fn drop_privileges(&self) {
        privileges::confine_follower();
    }

    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem> {
        let mut follower = LogsFollower::new(self);
        into.each(EVERY, |into| follower.poll(into));
        follower.finish(into);
        Ok(())
    }
}

/// The log of a server, whether or not it can be read.
struct LogSource {
    server: FoundServer,
    /// `None` until it could be opened.
    log: Option<FollowedLog<InspectedLog>>,
    /// Reads it, so that a file system that does not answer holds up no other log.
    thread: Arc<FileThread>,
    backoff: Backoff,
    /// Since when it cannot be read.
    unread_since: Option<Timestamp>,
    stated: LoggedServer,
}

/// All logs.
struct LogsFollower<'a> {
    task: &'a LogCollector,
    /// By their servers.
    sources: BTreeMap<Endpoint, LogSource>,
    /// Wait for the file systems of logs.
    threads: Arc<FileThreads>,
    /// Until when logs were observed.
    observed: ClockReading,
    /// Lines lost in logs that are no longer followed.
    lost_before: u64,
    /// What logs that are no longer followed stated about their servers: the next process writes to them, too.
    stated: BTreeMap<Endpoint, LoggedServer>,
}

/// Keeps what readers hold of the lines so far below the limit: the largest ones go first. Returns how many bytes they
/// hold.
fn forget_lines(sources: &mut BTreeMap<Endpoint, LogSource>, windows: &mut WindowCutter) -> usize {
    let held = |source: &LogSource| source.log.as_ref().map_or(0, FollowedLog::memory);
    let mut bytes: usize = sources.values().map(held).sum();
    while bytes > LINES_BYTES
        && let Some(largest) = sources.values_mut().max_by_key(|source| held(source))
        && let Some(log) = &mut largest.log
    {
        let before = log.memory();
        log.forget(windows);
        let forgotten = before.saturating_sub(log.memory());
        if forgotten == 0 {
            break;
        }
        bytes -= forgotten;
    }
    bytes
}

impl<'a> LogsFollower<'a> {
    fn new(task: &'a LogCollector) -> Self {
        Self {
            task,
            sources: BTreeMap::new(),
            threads: Arc::default(),
            observed: ClockReading::now(),
            lost_before: 0,
            stated: BTreeMap::new(),
        }
    }

    /// Reads what has been written since the last call.
    fn poll(&mut self, into: &mut Observation) {
        let servers = into.servers().all();
        self.forget_gone(&servers, into);
        for server in servers.iter().filter(|server| server.log.is_some()) {
            let source = self.sources.entry(server.endpoint()).or_insert_with(|| LogSource {
                server: server.clone(),
                log: None,
                thread: Arc::new(FileThread::of(&self.threads, server.user)),
                backoff: Backoff::default(),
                unread_since: None,
                stated: self.stated.remove(&server.endpoint()).unwrap_or_default(),
            });
            // Another process may write the same log. One with the same name has its own.
            if source.server.log == server.log {
                source.server.clone_from(server);
            }
        }
        let reading = ClockReading::now();
        let time = reading.time;
        let mut is_observed = false;
        // Of the others nothing is known, which does not mean that they wrote nothing.
        let mut unread: Vec<Endpoint> =
            servers.iter().filter(|server| server.log.is_none()).map(FoundServer::endpoint).collect();
        for (server, source) in &mut self.sources {
            match source.poll(self.task, into, time) {
                true => is_observed = true,
                false => unread.push(*server),
            }
            if let Some(place) = source.log.as_ref().and_then(FollowedLog::place) {
                self.task.positions.set(*server, place);
            }
        }
        let held = forget_lines(&mut self.sources, &mut into.windows);
        into.board().held.set(Holder::Logs, held);
        into.board().notes(CollectorKind::Log, self.threads.notes());
        let lost: u64 = self.sources.values().filter_map(|one| one.log.as_ref()).map(FollowedLog::lost).sum();
        into.board().lost(CollectorKind::Log, self.lost_before + lost);
        if self.sources.is_empty() {
            into.board().waits(CollectorKind::Log, &without_log(&servers));
        }
        if is_observed {
            let from = reading.since(&self.observed).from;
            // In this order: what was observed of a window in two parts is the larger of both, what was not is their sum.
            into.windows.observe(CollectorKind::Log, from, time);
            unread.into_iter().for_each(|server| into.windows.miss_log(server, from, time));
        }
        self.observed = reading;
        into.advance(time);
    }

    /// Ends the logs of servers that have ended, or write another log now.
    fn forget_gone(&mut self, servers: &[FoundServer], into: &mut Observation) {
        let is_current = |name: Endpoint, source: &LogSource| {
            servers.iter().any(|one| one.endpoint() == name && one.log == source.server.log)
        };
        let gone: Vec<Endpoint> = self
            .sources
            .iter()
            .filter(|(name, one)| !is_current(**name, one))
            .map(|(name, _)| *name)
            .collect();
        for name in gone {
            if let Some(LogSource { server, log, mut stated, .. }) = self.sources.remove(&name) {
                if let Some(mut log) = log {
                    // Its last lines say why it ended. Where they cannot be read, nothing is left to do.
                    let _ = log.poll(&mut into.windows, &into.task.stop);
                    log.finish(&mut into.windows);
                    // The next server may write to the same log, after what was read now. So does this one if another server
                    // has its name now.
                    if let Some(place) = log.place() {
                        let same = servers.iter().find(|one| one.is_process_of(&server));
                        self.task.positions.set(same.map_or(name, FoundServer::endpoint), place);
                    }
                    note_ends(&mut log, &server, into.servers());
                    self.lost_before += log.lost();
                    stated.note(log.reader());
                }
                self.stated.insert(name, stated);
            }
            into.board().forget(SourceId::of_server(CollectorKind::Log, name));
        }
    }

    /// The agent ends.
    fn finish(mut self, into: &mut Observation) {
        for log in self.sources.values_mut().filter_map(|source| source.log.as_mut()) {
            log.end(&mut into.windows);
        }
    }
}

/// What the log of a server stated about it.
#[derive(Clone, Default)]
struct LoggedServer {
    /// The settings with which it last started.
    settings: BTreeMap<String, String>,
    /// The last version that it named, and when.
    version: Option<(Timestamp, Box<str>)>,
}

impl LoggedServer {
    /// Notes what a reader of the log has found.
    fn note(&mut self, reader: &mut LogReader) {
        self.settings = reader.server_settings();
        self.version = reader.take_version().or(self.version.take());
    }

    /// Tells which version a server is, if its process had started when the log named it.
    fn set_version(&self, servers: &WatchedServers, name: Endpoint, now: Timestamp) {
        let Some((at, version)) = &self.version else { return };
        let all = servers.all();
        let has_started = |one: &&FoundServer| at.plus_ns(NAMED_EARLY_NS) >= started_at(one.started, now);
        if let Some(server) = all.iter().find(|one| one.endpoint() == name).filter(has_started) {
            servers.set_version(server, version);
        }
    }
}

impl LogSource {
    /// Reads what is new, or tries to open the log if that is due, and reports how it is. Whether the time until now counts
    /// as observed.
    fn poll(&mut self, task: &LogCollector, into: &mut Observation, time: Timestamp) -> bool {
        if !self.backoff.is_due(Instant::now()) {
            return self.is_observed(time);
        }
        let id = SourceId::of_server(CollectorKind::Log, self.server.endpoint());
        let read = self.read(task, into).map_err(|error| unreadable(&self.server, &error));
        match &read {
            Ok(_) => {
                self.backoff.worked();
                self.unread_since = None;
            }
            Err(_) => {
                self.backoff.failed(Instant::now());
                self.unread_since.get_or_insert(time);
            }
        }
        let is_missing = self.log.as_ref().is_some_and(|log| log.is_missing());
        let read = read.and_then(|lines| if is_missing { Err(missing(&self.server)) } else { Ok(lines) });
        let report = match read {
            Ok(0) => into.board().works(id, time),
            Ok(_) => into.board().data(id, time),
            // It is forgotten as soon as the end is noticed.
            Err(_) if task.inspector.has_ended(&self.server) => None,
            Err(problem) => into.board().failed(id, time, &problem),
        };
        into.report(report);
        self.is_observed(time)
    }

    /// A log that was open is read from where it was left: for a while, what it says meanwhile comes later.
    fn is_observed(&self, time: Timestamp) -> bool {
        let is_short = |since| self.log.is_some() && time.since(since) < READ_LATER_NS;
        self.unread_since.is_none_or(is_short)
    }

    /// The number of lines that were read.
    fn read(&mut self, task: &LogCollector, into: &mut Observation) -> io::Result<u64> {
        let log = match &mut self.log {
            Some(log) => log,
            None => {
                let mut log = open(&self.server, self.thread.clone(), task)?;
                log.reader().knows_server_settings(self.stated.settings.clone());
                self.log.insert(log)
            }
        };
        let before = log.lines();
        let polled = log.poll(&mut into.windows, &into.task.stop);
        note_ends(log, &self.server, into.servers());
        self.stated.note(log.reader());
        self.stated.set_version(into.servers(), self.server.endpoint(), now());
        polled.map(|()| log.lines() - before)
    }
}

/// Passes on what a log says of the end of its server, and of connections to it.
fn note_ends(log: &mut FollowedLog<InspectedLog>, server: &FoundServer, servers: &WatchedServers) {
    let LoggedEnds { began, events, clients } = log.take_ends();
    servers.log(server.endpoint(), began, &events);
    servers.clients_ended(server, clients);
}

/// Why there is no log to follow.
fn without_log(servers: &[FoundServer]) -> String {
    let reason = |server: &FoundServer| Some(format!("port {}: {}", server.port, server.no_log.as_deref()?));
    let reasons: Vec<String> = servers.iter().filter_map(reason).collect();
    if reasons.is_empty() { "no server here has a log that is known".to_owned() } else { reasons.join("; ") }
}

fn path_of(server: &FoundServer) -> String {
    server.log.as_deref().unwrap_or(Path::new("")).display().to_string()
}

/// A log that cannot be read, in the words of `doctor`.
fn unreadable(server: &FoundServer, error: &io::Error) -> CollectorProblem {
    let path = path_of(server);
    match error.kind() {
        io::ErrorKind::NotFound => missing(server),
        _ => problem_of_path(&path, error),
    }
}

/// Nothing is at the path of a log: it was removed, or is named wrongly.
fn missing(server: &FoundServer) -> CollectorProblem {
    CollectorProblem::temporary(format!("{} does not exist", path_of(server)))
}

/// Begins where the log was read to before; at its beginning if it is that of a server that has just appeared, as its
/// start is in it; else at its end.
fn open(
    server: &FoundServer,
    thread: Arc<FileThread>,
    task: &LogCollector,
) -> io::Result<FollowedLog<InspectedLog>> {
    let path = server.log.clone().unwrap_or_default();
    let mut place = InspectedLog::new(path, task.inspector.clone()).read_by(thread.clone());
    let file = FollowedFile::open(Some(thread), || place.open())?;
    let has_appeared = ClockReading::now().since(&task.begun).elapsed > APPEARED;
    let known = task.positions.of(server.endpoint());
    let start = match &known {
        Some(known) => FollowStart::At(known.place.position),
        None if has_appeared && file.metadata()?.len() <= MAX_FROM_BEGINNING => FollowStart::Beginning,
        None => FollowStart::End,
    };
    let from = if start == FollowStart::Beginning { Some(Bound::At(task.begun.time)) } else { None };
    let follower = FileFollower::new(place, Some(file), start)?;
    let now = now();
    let settings = LogSettings { from, reference_ms: now.unix_ms(), ..LogSettings::default() };
    let mut reader = LogReader::new(settings);
    let server_name = server.endpoint();
    reader.collect_events(server_name, task.applications.watch(server_name));
    let following = LogFollowing {
        server: server_name,
        start: known,
        now,
        begun: task.begun.time,
        knows_settings: !server.options.is_empty(),
    };
    Ok(FollowedLog::new(follower, reader, following))
}

#[cfg(test)]
mod tests;
