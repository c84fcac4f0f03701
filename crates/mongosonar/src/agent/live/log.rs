//! The logs of servers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use sonar_core::history::{ApplicationWatch, Collector};
use sonar_core::{Endpoint, Execution, Identity, Operation, Reading, Record, Source, Timestamp};
use sonar_decode::entry::{EntrySink, ParsedEntry};
use sonar_decode::log::{LogReader, LogSettings};

use super::board::{CollectorBoard, CollectorProblem};
use super::inspector::{FoundServer, InspectedLog, Inspector};
use super::watched::WatchedServers;
use crate::agent::parts::{WindowCutter, WindowPart};
use crate::agent::servers::local;
use crate::follow::{FileFollower, FollowNotice, FollowStart, LineSink};
use crate::queries::live::now;

/// How often logs are looked at.
const EVERY: Duration = Duration::from_secs(1);

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
}

/// Follows the logs of all servers until it is to stop.
pub fn run(task: &FollowTask) {
    let mut logs: BTreeMap<u16, FollowedLog> = BTreeMap::new();
    let mut windows = WindowCutter::new(task.to.clone());
    let mut last = now();
    loop {
        let goes_on = task.wait(EVERY);
        let servers = task.servers.all();
        logs.retain(|port, log| {
            servers.iter().any(|server| server.port == *port && server.log == log.server.log)
        });
        let mut problem = None;
        for server in servers.iter().filter(|server| server.log.is_some()) {
            if !logs.contains_key(&server.port) {
                match FollowedLog::open(server, &task.inspector) {
                    Ok(log) => drop(logs.insert(server.port, log)),
                    Err(error) => problem = Some(unreadable(server, &error)),
                }
            }
        }
        let time = now();
        for log in logs.values_mut() {
            if let Err(error) = log.poll(&mut windows, time) {
                problem = Some(unreadable(&log.server, &error));
            }
        }
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
        log.finish(&mut windows, now());
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
    fn open(server: &FoundServer, inspector: &Arc<Inspector>) -> io::Result<Self> {
        let place = InspectedLog::new(server.log.clone().unwrap_or_default(), inspector.clone());
        let follower = FileFollower::new(place, None, FollowStart::End)?;
        let reference_ms = i64::try_from(now().unix_ns() / 1_000_000).unwrap_or(i64::MAX);
        let mut reader = LogReader::new(LogSettings { reference_ms, ..LogSettings::default() });
        reader.collect_events(local(server.port), ApplicationWatch::default());
        Ok(Self { server: server.clone(), follower, reader, counted: Reading::default() })
    }

    /// Reads what was written since the last call.
    fn poll(&mut self, windows: &mut WindowCutter, time: Timestamp) -> io::Result<()> {
        let server = local(self.server.port);
        let mut sink = LogLines { reader: &mut self.reader, cutter: OperationsOfLog { windows, server } };
        while self.follower.poll(&mut sink)? {}
        self.count(windows, time);
        Ok(())
    }

    fn finish(&mut self, windows: &mut WindowCutter, time: Timestamp) {
        let mut cutter = OperationsOfLog { windows, server: local(self.server.port) };
        self.reader.finish(&mut cutter);
        self.count(windows, time);
    }

    fn count(&mut self, windows: &mut WindowCutter, time: Timestamp) {
        let reading = self.reader.reading();
        let part = windows.at(time);
        part.window.reading.add(&reading.since(&self.counted));
        self.counted = reading;
        let (events, left_out) = self.reader.take_events();
        part.events_left_out += left_out;
        events.into_iter().for_each(|event| windows.event(event));
    }
}

/// Reads the lines of a followed log.
struct LogLines<'a, 'b> {
    reader: &'a mut LogReader,
    cutter: OperationsOfLog<'b>,
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

/// Sorts the operations of a server's log into windows by the time of their end.
struct OperationsOfLog<'a> {
    windows: &'a mut WindowCutter,
    server: Endpoint,
}

impl EntrySink for OperationsOfLog<'_> {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        let op = Operation { server: self.server, ..*op };
        let record = Record::server(Source::Log, &op, execution).read_as(identity, entries);
        self.windows.at(op.end).window.window.record_server(&record);
    }
}
