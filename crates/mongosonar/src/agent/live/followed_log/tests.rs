use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

use proptest::prelude::*;
use sonar_core::history::CollectorKind;
use sonar_core::observation::{Assembler, AssemblyLimits, WindowPart, starts};
use sonar_core::testing::MemoryHistory;
use sonar_core::time::NS_PER_S;
use sonar_core::{HistoryWriter, Source};
use sonar_decode::log::LogSettings;

use super::*;
use crate::agent::servers::local;
use crate::input::follow::FollowStart;
use crate::input::follow::path::FollowedPath;

const PORT: u16 = 27_017;
/// 2026-05-01 10:00:00 in UTC.
const BEGIN: u64 = 1_777_629_600;

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(BEGIN + second, 0)
}

/// A server that writes slow operations into its log.
struct LoggingServer {
    folder: tempfile::TempDir,
    second: u64,
    /// The end of a line that has been begun.
    rest: Option<String>,
    /// Lines by the start of their window in seconds.
    written: BTreeMap<u64, u64>,
    rotated: u32,
}

impl LoggingServer {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, second: 60, rest: None, written: BTreeMap::new(), rotated: 0 }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("mongod.log")
    }

    /// A line of a thread that writes this many seconds late.
    fn line(&mut self, late: u64) -> String {
        let second = self.second - late;
        *self.written.entry(second / 10 * 10).or_default() += 1;
        let (hours, minutes, seconds) = (10 + second / 3_600, second / 60 % 60, second % 60);
        format!(
            r#"{{"t":{{"$date":"2026-05-01T{hours:02}:{minutes:02}:{seconds:02}.000+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1","msg":"Slow query","attr":{{"type":"command","ns":"t.d","command":{{"find":"d","filter":{{"a":1}},"$db":"t"}},"durationMillis":150}}}}"#
        ) + "\n"
    }

    fn write(&mut self, late: &[u64], has_rest: bool) {
        let mut text = self.rest.take().unwrap_or_default();
        for late in late {
            text += &self.line(*late);
        }
        if has_rest {
            let line = self.line(0);
            let (begin, rest) = line.split_at(40);
            text += begin;
            self.rest = Some(rest.to_owned());
        }
        append(&self.log(), &text);
    }

    fn rotated_name(&mut self) -> PathBuf {
        self.rotated += 1;
        self.folder.path().join(format!("mongod.log.{:04}", self.rotated))
    }
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// An agent that follows the log, from where the last one was when it was killed.
struct LogAgent {
    log: FollowedLog<FollowedPath>,
    windows: WindowCutter,
    parts: Receiver<WindowPart>,
    assembler: Assembler<MemoryHistory>,
    observed: u64,
}

impl LogAgent {
    fn start(store: MemoryHistory, server: &LoggingServer) -> Self {
        let start = starts(&store.positions()).remove(&local(PORT));
        let from = start.as_ref().map_or(FollowStart::Beginning, |at| FollowStart::At(at.place.position));
        let follower = FileFollower::new(FollowedPath(server.log()), None, from).unwrap();
        let now = at(server.second);
        let following = LogFollowing { server: local(PORT), start, now, begun: now, knows_settings: false };
        let (to, parts) = channel();
        Self {
            log: FollowedLog::new(follower, LogReader::new(LogSettings::default()), following),
            windows: WindowCutter::new(move |part| to.send(part).is_ok()),
            parts,
            assembler: Assembler::new(store, AssemblyLimits::default()),
            observed: server.second,
        }
    }

    /// Goes on to this second, or until it is killed after this many of three steps.
    fn work(&mut self, second: u64, steps: usize) {
        if steps > 0 {
            self.log.poll(&mut self.windows, &AtomicBool::new(false)).unwrap();
            self.windows.observe(CollectorKind::Log, at(self.observed), at(second));
            self.observed = second;
            self.windows.advance(at(second));
        }
        if steps > 1 {
            self.parts.try_iter().for_each(|part| self.assembler.add(part).unwrap());
        }
        if steps > 2 {
            self.assembler.complete(at(second).minus_ns(5 * NS_PER_S)).unwrap();
        }
    }

    fn killed(mut self) -> MemoryHistory {
        std::mem::take(self.assembler.store_mut())
    }

    /// Ends in order.
    fn end(mut self) -> MemoryHistory {
        self.log.poll(&mut self.windows, &AtomicBool::new(false)).unwrap();
        self.log.end(&mut self.windows);
        self.windows.finish();
        self.parts.try_iter().for_each(|part| self.assembler.add(part).unwrap());
        self.assembler.complete(Timestamp::from_unix_ns(u64::MAX)).unwrap();
        self.killed()
    }
}

/// Lines and operations that are stored, by the start of their window in seconds.
fn stored(store: &MemoryHistory) -> BTreeMap<u64, (u64, u64)> {
    let mut all = BTreeMap::<u64, (u64, u64)>::new();
    for window in &store.windows {
        let calls = |row: &sonar_core::Row| row.observed_by(Source::Log).map_or(0, |seen| seen.figures.calls);
        let operations: u64 = window.window.shapes.iter().map(calls).sum();
        if window.reading.lines + operations > 0 {
            let second = window.window.start.unix_ns() / NS_PER_S - BEGIN;
            let known = all.entry(second).or_default();
            *known = (known.0 + window.reading.lines, known.1 + operations);
        }
    }
    all
}

#[derive(Clone, Debug)]
enum Action {
    /// Writes lines that are this many seconds late, and perhaps the beginning of another one.
    Write(Vec<u64>, bool),
    /// Goes on for this many seconds.
    Work(u64),
    /// The agent is killed after this many steps, and started again.
    Kill(usize),
    Rename,
    CopyAndTruncate,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let late = prop_oneof![4 => Just(0u64), 1 => 0u64..40];
    let action = prop_oneof![
        6 => (prop::collection::vec(late, 0..20), any::<bool>()).prop_map(|(late, rest)| Action::Write(late, rest)),
        6 => (1u64..15).prop_map(Action::Work),
        3 => (0usize..4).prop_map(Action::Kill),
        1 => Just(Action::Rename),
        1 => Just(Action::CopyAndTruncate),
    ];
    prop::collection::vec(action, 0..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Each line and its operation is stored once, in the window of its time.
    #[test]
    fn whenever_the_agent_is_killed_each_line_is_stored_once(actions in actions()) {
        let mut server = LoggingServer::new();
        append(&server.log(), "");
        let mut agent = LogAgent::start(MemoryHistory::default(), &server);
        for action in actions {
            if matches!(action, Action::Rename | Action::CopyAndTruncate) {
                // Only one rotation lies between the present and where a later run begins.
                server.write(&[0], false);
                server.second += 40;
                agent.work(server.second, 3);
                server.write(&[0, 0], false);
            }
            match action {
                Action::Write(late, has_rest) => server.write(&late, has_rest),
                Action::Work(seconds) => {
                    server.second += seconds;
                    agent.work(server.second, 3);
                }
                Action::Kill(steps) => {
                    server.second += 1;
                    agent.work(server.second, steps);
                    agent = LogAgent::start(agent.killed(), &server);
                }
                Action::Rename => {
                    fs::rename(server.log(), server.rotated_name()).unwrap();
                    server.write(&[0], false);
                }
                Action::CopyAndTruncate => {
                    fs::copy(server.log(), server.rotated_name()).unwrap();
                    OpenOptions::new().write(true).open(server.log()).unwrap().set_len(0).unwrap();
                    server.write(&[0, 0, 0], false);
                }
            }
        }
        server.write(&[], false);
        let store = agent.end();
        let expected: BTreeMap<u64, (u64, u64)> =
            server.written.iter().map(|(start, lines)| (*start, (*lines, *lines))).collect();
        prop_assert_eq!(stored(&store), expected);
    }
}

#[test]
fn a_line_without_a_time_counts_with_the_one_before() {
    let mut server = LoggingServer::new();
    server.write(&[0], false);
    append(&server.log(), "something else\n");
    server.second += 100;
    let mut agent = LogAgent::start(MemoryHistory::default(), &server);
    agent.work(server.second, 3);
    let store = agent.end();
    assert_eq!(stored(&store), [(60, (2, 1))].into());
}

#[test]
fn the_rest_of_a_last_line_is_not_read_again() {
    let mut server = LoggingServer::new();
    server.write(&[0], false);
    append(&server.log(), "the server was killed in this li");
    let mut agent = LogAgent::start(MemoryHistory::default(), &server);
    agent.work(server.second, 3);
    agent.log.finish(&mut agent.windows);
    let store = agent.end();
    assert_eq!(stored(&store), [(60, (2, 1))].into());
    server.second += 100;
    append(&server.log(), "\n");
    server.write(&[0], false);
    let mut agent = LogAgent::start(store, &server);
    agent.work(server.second, 3);
    assert_eq!(stored(&agent.end()), [(60, (2, 1)), (160, (1, 1))].into());
}

/// An agent that was killed when it had stored the second of two lines, but not the first.
fn agent_with_a_stored_line(server: &mut LoggingServer) -> LogAgent {
    server.second = 65;
    server.write(&[0, 15], false);
    let mut agent = LogAgent::start(MemoryHistory::default(), server);
    agent.work(68, 3);
    let store = agent.killed();
    assert_eq!((stored(&store)[&50], stored(&store).get(&60)), ((1, 1), None));
    LogAgent::start(store, server)
}

#[test]
fn the_end_of_a_truncated_log_does_not_count_as_the_line_before() {
    let mut server = LoggingServer::new();
    let mut agent = agent_with_a_stored_line(&mut server);
    // It is of the same window as the line that is stored.
    let line = server.line(15);
    append(&server.log(), line.trim_end());
    agent.work(69, 3);
    OpenOptions::new().write(true).open(server.log()).unwrap().set_len(0).unwrap();
    server.write(&[0], false);
    // What was lost with the truncation counts as a line, too.
    assert_eq!(stored(&agent.end()), [(50, (3, 2)), (60, (2, 2))].into());
}

#[test]
fn a_line_that_is_too_long_does_not_count_as_the_line_before() {
    let mut server = LoggingServer::new();
    let mut agent = agent_with_a_stored_line(&mut server);
    append(&server.log(), &("x".repeat(5 << 20) + "\n"));
    agent.work(69, 3);
    assert_eq!(stored(&agent.end()), [(50, (2, 1)), (60, (1, 1))].into());
}

#[test]
fn a_line_that_is_too_long_counts_once_if_the_agent_is_killed_within_it() {
    let mut server = LoggingServer::new();
    server.write(&[0], false);
    append(&server.log(), &"x".repeat(5 << 20));
    let mut agent = LogAgent::start(MemoryHistory::default(), &server);
    agent.work(200, 3);
    let store = agent.killed();
    append(&server.log(), "\n");
    server.second = 200;
    server.write(&[0], false);
    let agent = LogAgent::start(store, &server);
    assert_eq!(stored(&agent.end()), [(60, (1, 1)), (200, (2, 1))].into());
}

#[test]
fn lines_after_a_truncation_are_stored_once_wherever_the_agent_is_killed() {
    for is_noticed in [false, true] {
        let mut server = LoggingServer::new();
        server.second = 25;
        server.write(&[0], false);
        // What comes first now is in a window that is not stored.
        let mut agent = agent_with_a_stored_line(&mut server);
        agent.work(69, 2);
        OpenOptions::new().write(true).open(server.log()).unwrap().set_len(0).unwrap();
        server.write(&[15], false);
        if is_noticed {
            agent.work(69, 3);
        }
        server.write(&[15], false);
        let mut agent = LogAgent::start(agent.killed(), &server);
        agent.work(71, 3);
        assert_eq!(stored(&agent.end())[&50].1, server.written[&50], "noticed: {is_noticed}");
    }
}

#[test]
fn ends_of_connections_since_the_agent_started_are_told_once() {
    let server = LoggingServer::new();
    let ended = |second: u64, port: u16| {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:01:{second:02}.000+00:00"}},"s":"I","c":"NETWORK","id":22944,"ctx":"conn1","msg":"Connection ended","attr":{{"remote":"10.0.0.9:{port}","connectionCount":1}}}}"#
        ) + "\n"
    };
    // The agent starts a second after this line.
    let before = "2026-05-01T10:00:59.000+0000 I NETWORK  [conn1] end connection 10.0.0.9:1 (0 connections now open)\n";
    append(&server.log(), before);
    append(&server.log(), &[ended(1, 2), ended(2, 3)].concat());
    let mut agent = LogAgent::start(MemoryHistory::default(), &server);
    agent.work(65, 3);
    let mut told = || -> Vec<(u16, u64)> {
        let ends = agent.log.take_ends().clients.waiting;
        ends.iter().map(|one| (one.client.port, one.at.since(at(60)) / NS_PER_S)).collect()
    };
    assert_eq!(told(), [(2, 1), (3, 2)]);
    assert_eq!(told(), []);
}
