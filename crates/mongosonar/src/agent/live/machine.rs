//! The machine and the processes of its servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::history::CollectorKind;
use sonar_core::machine::{MachineMonitor, MachineStep, WatchedProcess};
use sonar_sys::Host;
use sonar_sys::host::machine::MachineReader;
use sonar_sys::privileges::{Duty, capability};

use super::board::CollectorBoard;
use super::clock_reading::ClockReading;
use super::watched::WatchedServers;
use crate::agent::part_channel::PartSender;
use crate::agent::servers::local;
use crate::args::when::now;
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;

/// How often the machine is read.
const EVERY: Duration = Duration::from_secs(2);
/// A longer step is not time observed: this process was stopped.
const MAX_STEP: Duration = Duration::from_secs(10);

/// What the thread shares with the others.
pub struct MachineTask {
    /// Where its windows go.
    pub to: PartSender,
    /// The servers.
    pub servers: Arc<WatchedServers>,
    /// Where it reports its state.
    pub board: Arc<CollectorBoard>,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
    /// Whether it drops its privileges. It keeps those to see what other users' processes read, write and have open.
    pub confined: bool,
}

/// Starts the thread. It drops its privileges by itself, keeps `gate` closed until then, and reads nothing before it opens.
///
/// # Errors
/// It cannot be started.
pub fn start(task: MachineTask, gate: StartGate) -> Result<JoinHandle<()>> {
    let builder = std::thread::Builder::new().name(CollectorKind::Machine.name().to_owned());
    let held = gate.hold();
    let run = move || {
        if task.confined {
            // `io` and `fd` of a process are its user's, and tell only who may inspect the process.
            let keep = [capability::SYS_PTRACE, capability::DAC_READ_SEARCH];
            privileges::give_up(Duty::Observing, &["/proc", "/sys"], &keep);
        }
        drop(held);
        gate.wait();
        read(&task);
    };
    builder.spawn(run).context("cannot start a thread")
}

fn read(task: &MachineTask) {
    let mut windows = task.to.cutter();
    let mut reader = MachineReader::new(Host::live());
    let mut monitor = MachineMonitor::default();
    let mut before: Option<ClockReading> = None;
    let mut next = std::time::Instant::now();
    while !task.stop.load(Ordering::Relaxed) && !windows.is_abandoned() {
        if std::time::Instant::now() < next {
            std::thread::sleep(Duration::from_millis(100));
            // Between two readings, so that a window is handed over before it is stored.
            windows.advance(now());
            continue;
        }
        // After a stop of this process nothing is made up for.
        next = (next + EVERY).max(std::time::Instant::now());
        let servers: Vec<_> = task
            .servers
            .all()
            .iter()
            .map(|server| WatchedProcess { pid: server.pid, server: local(server.port) })
            .collect();
        let MachineStep { at, values, events } = monitor.step(reader.read(&servers));
        let window = &mut windows.at(at).window;
        for (key, value, seconds) in &values {
            window.sample(key, at, *value, *seconds);
        }
        let reading = ClockReading::of(at);
        let observed = before.replace(reading).map(|before| reading.since(&before));
        if let Some(observed) = observed.filter(|one| !values.is_empty() && one.elapsed <= MAX_STEP) {
            windows.observe(CollectorKind::Machine, observed.from, at);
        }
        events.into_iter().for_each(|event| windows.event(event));
        if let Some(event) = task.board.data(CollectorKind::Machine, at) {
            windows.event(event);
        }
        windows.advance(at);
        windows.release_ahead(at);
    }
    windows.finish();
}
