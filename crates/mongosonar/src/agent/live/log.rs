//! The logs of servers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use sonar_core::history::Collector;
use sonar_core::{Reading, Timestamp};
use sonar_decode::entry::ParsedEntry;
use sonar_decode::log::{Bound, LogReader, LogSettings};

use super::board::{CollectorBoard, CollectorProblem};
use super::inspector::{FoundServer, InspectedLog, Inspector};
use super::positions::LogPositions;
use super::watched::WatchedServers;
use crate::agent::applications::KnownApplications;
use crate::agent::log_operations::LogOperations;
use crate::agent::parts::{WindowCutter, WindowPart};
use crate::agent::servers::local;
use crate::follow::{FileFollower, FollowNotice, FollowStart, FollowedPlace, LineSink};
use crate::queries::live::now;

/// How often logs are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// A server that is found later than so many nanoseconds after the agent's start has appeared since.
const APPEARED_NS: u64 = 15_000_000_000;
/// The most bytes of a log that are read from its beginning.
const MAX_FROM_BEGINNING: u64 = 16 << 20;

/// What a thread that follows the files of servers shares with the others.
pub struct FollowTask {
    /// Where its windows go.
    pub to: SyncSender<WindowPart>,
    /// The servers.
    pub servers: Arc<WatchedServers>,
    /// Opens their files.
    pub inspector: Arc<Inspector>,
    /// Where it reports how it is.
    pub board: Arc<CollectorBoard>,
    /// How far logs have been read.
    pub positions: Arc<LogPositions>,
    /// When the agent started: what a log has of before is not read.
    pub begun: Timestamp,
    /// Applications that are not new.
    pub applications: Arc<KnownApplications>,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
}

impl FollowTask {
    /// Sleeps until the next look; whether to go on.
    pub fn wait(&self, every: Duration) -> bool {
        let until = std::time::Instant::now() + every;
        while std::time::Instant::now() < until {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        !self.stop.load(Ordering::Relaxed)
    }
}

/// A log that is followed.
struct FollowedLog {
    server: FoundServer,
    follower: FileFollower<InspectedLog>,
    reader: LogReader,
    counted: Reading,
    /// Lines that could not be read and have not been reported.
    lost: u64,
}

/// Follows the logs of all servers until it is to stop.
pub fn run(task: &FollowTask) {
    let mut logs: BTreeMap<u16, FollowedLog> = BTreeMap::new();
    let mut windows = WindowCutter::new(task.to.clone());
    let (mut last, mut lost) = (now(), 0);
    loop {
        let goes_on = task.wait(EVERY);
        let servers = task.servers.all();
        let is_current = |log: &FollowedLog| {
            servers.iter().any(|one| one.port == log.server.port && one.log == log.server.log)
        };
        let gone: Vec<u16> = logs.iter().filter(|(_, log)| !is_current(log)).map(|(port, _)| *port).collect();
        for mut log in gone.iter().filter_map(|port| logs.remove(port)) {
            log.finish(&mut windows, now());
        }
        let mut problem = None;
        for server in servers.iter().filter(|server| server.log.is_some()) {
            if let Entry::Vacant(place) = logs.entry(server.port) {
                match FollowedLog::open(server, task) {
                    Ok(log) => drop(place.insert(log)),
                    Err(error) => problem = Some(unreadable(server, &error)),
                }
            }
        }
        let time = now();
        for (port, log) in &mut logs {
            if let Err(error) = log.poll(&mut windows, time) {
                problem = Some(unreadable(&log.server, &error));
            }
            lost += std::mem::take(&mut log.lost);
            if let Some(position) = log.follower.position() {
                task.positions.set(*port, position);
            }
        }
        task.board.lost(Collector::Log, lost);
        let report = match problem {
            Some(problem) => task.board.failed(Collector::Log, time, &problem),
            None if logs.is_empty() => {
                task.board.waits(Collector::Log, "no server here has a log that is known");
                None
            }
            None => {
                windows.observe(Collector::Log, last, time);
                task.board.data(Collector::Log, time)
            }
        };
        if let Some(event) = report {
            windows.event(event);
        }
        last = time;
        windows.advance(time);
        if !goes_on || windows.is_abandoned() {
            break;
        }
    }
    for log in logs.values_mut() {
        log.end(&mut windows, now());
    }
    windows.finish();
}

/// A log that cannot be read, in the words of `doctor`.
fn unreadable(server: &FoundServer, error: &io::Error) -> CollectorProblem {
    let path = server.log.as_deref().unwrap_or(std::path::Path::new("")).display().to_string();
    CollectorProblem {
        what: format!("{path} cannot be read: {error}"),
        fix: Some(sonar_sys::capabilities::grant_line()),
    }
}

impl FollowedLog {
    /// Begins where the log was read to before; at its beginning if it is that of a server that has just appeared, as
    /// its start is in it; else at its end.
    fn open(server: &FoundServer, task: &FollowTask) -> io::Result<Self> {
        let mut place = InspectedLog::new(server.log.clone().unwrap_or_default(), task.inspector.clone());
        let file = place.open()?;
        let has_appeared = now().since(task.begun) > APPEARED_NS;
        let start = match task.positions.of(server.port) {
            Some(position) => FollowStart::At(position),
            None if has_appeared && file.metadata()?.len() <= MAX_FROM_BEGINNING => FollowStart::Beginning,
            None => FollowStart::End,
        };
        let from = if start == FollowStart::Beginning { Some(Bound::At(task.begun)) } else { None };
        let follower = FileFollower::new(place, Some(file), start)?;
        let reference_ms = i64::try_from(now().unix_ns() / 1_000_000).unwrap_or(i64::MAX);
        let mut reader = LogReader::new(LogSettings { from, reference_ms, ..LogSettings::default() });
        let server_name = local(server.port);
        reader.collect_events(server_name, task.applications.watch(server_name));
        Ok(Self { server: server.clone(), follower, reader, counted: Reading::default(), lost: 0 })
    }

    /// Reads what was written since the last call.
    fn poll(&mut self, windows: &mut WindowCutter, time: Timestamp) -> io::Result<()> {
        let server = local(self.server.port);
        let mut sink = LogLines { reader: &mut self.reader, cutter: LogOperations { windows, server } };
        while self.follower.poll(&mut sink)? {}
        self.count(windows, time);
        Ok(())
    }

    /// The server has ended, or writes another log.
    fn finish(&mut self, windows: &mut WindowCutter, time: Timestamp) {
        let cutter = LogOperations { windows, server: local(self.server.port) };
        let mut sink = LogLines { reader: &mut self.reader, cutter };
        self.follower.finish(&mut sink);
        self.end(windows, time);
    }

    /// The agent ends; the rest of the last line is read by the next one.
    fn end(&mut self, windows: &mut WindowCutter, time: Timestamp) {
        let mut cutter = LogOperations { windows, server: local(self.server.port) };
        self.reader.finish(&mut cutter);
        self.count(windows, time);
    }

    fn count(&mut self, windows: &mut WindowCutter, time: Timestamp) {
        let reading = self.reader.reading();
        let part = windows.at(time);
        let news = reading.since(&self.counted);
        part.window.reading.add(&news);
        self.lost += news.lines_too_long + news.lines_malformed + news.lines_unfinished;
        self.counted = reading;
        let (events, left_out) = self.reader.take_events();
        part.events_left_out += left_out;
        events.into_iter().for_each(|event| windows.event(event));
    }
}

/// Reads the lines of a followed log.
struct LogLines<'a, 'b> {
    reader: &'a mut LogReader,
    cutter: LogOperations<'b>,
}

impl LineSink for LogLines<'_, '_> {
    fn line(&mut self, line: &[u8]) {
        self.reader.line(line, &mut self.cutter);
    }

    fn unfinished(&mut self, line: &[u8]) {
        let mut entry = ParsedEntry::default();
        let parsed = self.reader.reader().read(line, &mut entry);
        self.reader.add_last(line, &parsed, &entry, &mut self.cutter);
    }

    fn too_long(&mut self) {
        self.reader.add_too_long();
    }

    fn notice(&mut self, notice: FollowNotice) {
        if notice == FollowNotice::TruncatedWithoutCopy {
            self.reader.reading_mut().lines_unfinished += 1;
            self.reader.reading_mut().lines += 1;
        }
    }
}
