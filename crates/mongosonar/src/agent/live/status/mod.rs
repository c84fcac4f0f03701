//! Servers with a URI: `serverStatus`, `replSetGetStatus` and the sizes of their collections; and the operations that they
//! work on, as long as somebody looks at those.
//!
//! The thread starts before the agent drops its privileges, and drops all of its own but the network. Each server has
//! a thread below it, so that one that does not answer delays no other.

mod members;
mod report;
mod running;
mod samples;
mod server;
mod sizes;
mod task;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_mongo::Target;

use self::report::{ServerReport, StatusReports};
use self::server::PolledServer;
use self::task::StatusTask;
use super::board::CollectorProblem;
use super::runner::{Collector, Observation};
use crate::args::when::now;
use crate::confinement::privileges;

/// How often a server is asked: once in each window.
const EVERY: Duration = Duration::from_secs(10);
/// How long to wait before names are looked up again.
const NAMES_AGAIN: Duration = Duration::from_secs(30);

/// Asks the servers with a URI.
pub struct StatusCollector {
    /// The servers.
    pub targets: Vec<Target>,
    /// Whether the agent reads `diagnostic.data`.
    pub follows_internals: bool,
    /// Whether the agent reads logs.
    pub follows_logs: bool,
}

impl Collector for StatusCollector {
    fn drop_privileges(&self) {
        privileges::drop_privileges_but_network(&self.targets);
    }

    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem> {
        let task = &StatusTask {
            reports: StatusReports::new(into.task.context.board.clone()),
            follows_internals: self.follows_internals,
            follows_logs: self.follows_logs,
            collector: into.task.clone(),
            servers: AtomicUsize::new(0),
        };
        std::thread::scope(|scope| {
            for (number, target) in (1..).zip(&self.targets) {
                spawn(scope, move || ask_hosts(task, target, number));
            }
        });
        Ok(())
    }
}

/// Starts a thread. Its name makes its processor time count for the collector.
fn spawn<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, run: impl FnOnce() + Send + 'scope) {
    let builder = std::thread::Builder::new().name(CollectorKind::Status.name().to_owned());
    if let Err(error) = builder.spawn_scoped(scope, run) {
        eprintln!("mongosonar: {}: cannot start a thread: {error}", CollectorKind::Status.name());
    }
}

/// Asks all servers that a target names, which has this number.
fn ask_hosts(task: &StatusTask, target: &Target, number: usize) {
    let name = &format!("connection string {number}");
    let mut into = task.collector.observation();
    let hosts = loop {
        match target.hosts() {
            Ok(hosts) => break hosts,
            Err(error) => {
                let problem = CollectorProblem::temporary(error.to_string());
                let report = ServerReport { problems: vec![problem], ..ServerReport::default() };
                into.report(task.reports.report(name, now(), report));
                into.windows.finish();
                if !into.sleep(Instant::now() + NAMES_AGAIN) {
                    return;
                }
            }
        }
    };
    drop(into);
    task.reports.forget(name);
    task.servers.fetch_add(hosts.len(), Ordering::Relaxed);
    std::thread::scope(|scope| {
        for host in &hosts {
            spawn(scope, move || ask(task, target, host));
        }
    });
}

/// Asks a server until the task is stopped.
fn ask(task: &StatusTask, target: &Target, host: &str) {
    let mut server = PolledServer::new(task, target, host);
    let mut next = Instant::now();
    loop {
        server.ask();
        // A server that took long is not asked twice in a row.
        next = (next + EVERY).max(Instant::now());
        if !server.sleep(next) {
            break;
        }
    }
    server.finish();
}
