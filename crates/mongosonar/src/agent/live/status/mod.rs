//! Servers with a URI: `serverStatus`, `replSetGetStatus` and the sizes of their collections.
//!
//! The thread starts before the agent drops its privileges, and drops all of its own but the network. Each server has
//! a thread below it, so that one that does not answer delays no other.

mod members;
mod report;
mod samples;
mod server;
mod sizes;
mod task;

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::history::CollectorKind;
use sonar_mongo::Target;

use self::report::ServerReport;
pub use self::report::StatusReports;
use self::server::AskedServer;
pub use self::task::StatusTask;
use super::board::CollectorProblem;
use crate::args::when::now;
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;

/// How often a server is asked: once in each window.
const EVERY: Duration = Duration::from_secs(10);
/// How long to wait before names are looked up again.
const NAMES_AGAIN: Duration = Duration::from_secs(30);

/// Starts the thread. It drops its privileges by itself if it is to be `confined`, and asks nobody before `gate` is open.
///
/// # Errors
/// It cannot be started.
pub fn start(
    task: StatusTask,
    targets: Vec<Target>,
    confined: bool,
    gate: StartGate,
) -> Result<JoinHandle<()>> {
    let held = gate.hold();
    let run = move || {
        if confined {
            privileges::give_up_but_network(&targets);
        }
        drop(held);
        gate.wait();
        std::thread::scope(|scope| {
            for (number, target) in (1..).zip(&targets) {
                let task = &task;
                spawn(scope, move || ask_hosts(task, target, number));
            }
        });
    };
    std::thread::Builder::new()
        .name(CollectorKind::Status.name().to_owned())
        .spawn(run)
        .context("cannot start a thread")
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
    let hosts = loop {
        match target.hosts() {
            Ok(hosts) => break hosts,
            Err(error) => {
                let problem = CollectorProblem::temporary(error.to_string());
                let report = ServerReport { problems: vec![problem], ..ServerReport::default() };
                if let Some(event) = task.reports.report(name, now(), report) {
                    let mut windows = task.to.cutter();
                    windows.event(event);
                    windows.finish();
                }
                if !task.sleep(Instant::now() + NAMES_AGAIN) {
                    return;
                }
            }
        }
    };
    task.reports.forget(name);
    std::thread::scope(|scope| {
        for host in &hosts {
            spawn(scope, move || ask(task, target, host));
        }
    });
}

/// Asks a server until the task is stopped.
fn ask(task: &StatusTask, target: &Target, host: &str) {
    let mut server = AskedServer::new(task, target, host);
    let mut next = Instant::now();
    while server.ask() {
        // A server that took long is not asked twice in a row.
        next = (next + EVERY).max(Instant::now());
        if !task.sleep(next) {
            break;
        }
    }
    server.finish();
}
