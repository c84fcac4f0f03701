//! What is read of logs when their servers end and start.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::super::board::CollectorBoard;
use super::super::clock_reading::HostClock;
use super::super::inspector::tests::with_log;
use super::super::runner::{CollectorContext, CollectorTask};
use super::*;
use crate::agent::part_channel::{PartReceiver, part_channel};
use crate::agent::servers::local;
use crate::confinement::start_gate::StartGate;

const PORT: u16 = 27_017;
/// A line of a server.
const LINE: &str = "2018-11-21T21:26:53.420+0000 I COMMAND  [conn7] command stats.daily\n";

/// A server with a log.
struct LoggedHost {
    _folder: tempfile::TempDir,
    log: PathBuf,
    server: FoundServer,
    task: LogCollector,
    into: Observation,
    parts: PartReceiver,
}

impl LoggedHost {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("mongod.log");
        fs::write(&log, LINE).unwrap();
        let (inspector, server) = with_log(PORT, &log);
        let (to, parts) = part_channel(1_000);
        let task = LogCollector {
            inspector: Arc::new(inspector),
            positions: Arc::new(LogPositions::default()),
            begun: ClockReading::now(),
            applications: Arc::new(KnownApplications::default()),
        };
        let context = CollectorContext {
            to,
            servers: Arc::default(),
            board: Arc::new(CollectorBoard::new(|_| true)),
            gate: StartGate::opened(),
            clock: Arc::new(HostClock),
            confined: false,
        };
        let into = CollectorTask { kind: CollectorKind::Log, context, stop: Arc::default() }.observation();
        Self { _folder: folder, log, server, task, into, parts }
    }

    /// Lines that were counted in windows since the last call.
    fn lines(&self) -> u64 {
        self.parts.take(Duration::ZERO).into_iter().map(|part| part.window.reading.lines).sum()
    }
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn what_a_server_writes_last_is_read_once() {
    let mut host = LoggedHost::new();
    let mut follower = LogsFollower::new(&host.task);
    host.into.servers().set(vec![host.server.clone()]);
    follower.poll(&mut host.into);
    append(&host.log, LINE);
    follower.poll(&mut host.into);
    // It is killed within a line, and nothing has been read of that when the end is noticed.
    append(&host.log, &format!("{LINE}2018-11-21T21:26:53.420+0000 I COMM"));
    host.into.servers().set(Vec::new());
    follower.poll(&mut host.into);
    host.into.windows.finish();
    assert_eq!(host.lines(), 3, "what was there when the agent began is not read");
    // The next process writes to the same log.
    append(&host.log, &format!("\n{LINE}"));
    host.into.servers().set(vec![host.server.clone()]);
    follower.poll(&mut host.into);
    follower.finish(&mut host.into);
    host.into.windows.finish();
    assert_eq!(host.lines(), 1);
}

#[test]
fn a_log_that_cannot_be_read_was_not_observed() {
    let mut host = LoggedHost::new();
    let other = |port, log| FoundServer { port, log, ..host.server.clone() };
    let unreadable = other(PORT + 1, Some(host.log.with_file_name("other.log")));
    host.into.servers().set(vec![host.server.clone(), unreadable, other(PORT + 2, None)]);
    let mut follower = LogsFollower::new(&host.task);
    (0..3).for_each(|_| follower.poll(&mut host.into));
    follower.finish(&mut host.into);
    host.into.windows.finish();
    let windows: Vec<_> = host.parts.take(Duration::ZERO).into_iter().map(|part| part.window).collect();
    let observed = |port| -> u64 {
        windows.iter().map(|window| window.observed_of(CollectorKind::Log, local(port))).sum()
    };
    assert!(observed(PORT) > 0);
    assert_eq!([observed(PORT + 1), observed(PORT + 2)], [0, 0]);
    assert!(windows.iter().all(|window| window.series.keys().all(|key| key.server.port != PORT)));
}

#[test]
fn a_log_that_is_read_again_soon_was_observed() {
    let mut host = LoggedHost::new();
    let mut follower = LogsFollower::new(&host.task);
    host.into.servers().set(vec![host.server.clone()]);
    follower.poll(&mut host.into);
    let source = follower.sources.get_mut(&local(PORT)).unwrap();
    let since = ClockReading::now().time;
    let after = |seconds: u64| since.plus_ns(seconds * 1_000_000_000);
    assert!(source.is_observed(after(100)));
    source.unread_since = Some(since);
    // Its lines come when it can be read again, with their own times.
    assert!(source.is_observed(after(59)) && !source.is_observed(after(61)));
    // One that was never open is read from its end.
    source.log = None;
    assert!(!source.is_observed(after(1)));
}

#[test]
fn lines_that_are_not_complete_stay_below_the_limit_of_all_logs() {
    let mut host = LoggedHost::new();
    let servers: Vec<FoundServer> =
        (PORT..PORT + 8).map(|port| FoundServer { port, ..host.server.clone() }).collect();
    host.into.servers().set(servers);
    let mut follower = LogsFollower::new(&host.task);
    follower.poll(&mut host.into);
    append(&host.log, &"x".repeat(3 << 20));
    follower.poll(&mut host.into);
    let held = host.into.board().held.of(Holder::Logs);
    assert!(held <= LINES_BYTES, "{held}");
    // Two have room. The lines of the others are too long.
    append(&host.log, "\n");
    follower.poll(&mut host.into);
    host.into.windows.finish();
    let windows: Vec<_> = host.parts.take(Duration::ZERO).into_iter().map(|part| part.window).collect();
    let too_long: u64 = windows.iter().map(|window| window.reading.lines_too_long).sum();
    assert!((1..8).contains(&too_long), "{too_long}");
    let held = host.into.board().held.of(Holder::Logs);
    assert!(held < 1 << 20, "a long line leaves no room behind: {held}");
}
