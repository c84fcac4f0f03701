//! The machine and the processes of its servers.

use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_core::machine::{MachineMonitor, MachineStep, WatchedProcess};
use sonar_sys::Host;
use sonar_sys::host::machine::MachineReader;
use sonar_sys::privileges::{Duty, capability};

use super::board::CollectorProblem;
use super::clock_reading::ClockReading;
use super::runner::{Collector, Observation};
use crate::args::when::now;
use crate::confinement::privileges;

/// How often the machine is read.
const EVERY: Duration = Duration::from_secs(2);
/// A longer step is not time observed: this process was stopped.
const MAX_STEP: Duration = Duration::from_secs(10);

/// Reads the machine.
pub struct MachineCollector;

impl Collector for MachineCollector {
    /// It keeps those to see what other users' processes read, write and have open: `io` and `fd` of a process are its
    /// user's, and tell only who may inspect the process.
    fn drop_privileges(&self) {
        let keep = [capability::SYS_PTRACE, capability::DAC_READ_SEARCH];
        privileges::drop_privileges(Duty::Observing, &["/proc", "/sys"], &keep);
    }

    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem> {
        let mut reader = MachineReader::new(Host::live());
        let mut monitor = MachineMonitor::default();
        let mut before: Option<ClockReading> = None;
        let mut next = Instant::now();
        while into.goes_on() {
            if Instant::now() < next {
                into.nap();
                // Between two readings, so that a window is handed over before it is stored.
                into.windows.advance(now());
                continue;
            }
            // After a stop of this process nothing is made up for.
            next = (next + EVERY).max(Instant::now());
            let servers: Vec<_> = into
                .servers()
                .all()
                .iter()
                .map(|server| WatchedProcess { pid: server.pid, server: server.endpoint() })
                .collect();
            let MachineStep { at, values, events } = monitor.step(reader.read(&servers));
            let window = &mut into.windows.at(at).window;
            for (key, value, seconds) in &values {
                window.sample(key, at, *value, *seconds);
            }
            let reading = ClockReading::of(at);
            let observed = before.replace(reading).map(|before| reading.since(&before));
            if let Some(observed) = observed.filter(|one| !values.is_empty() && one.elapsed <= MAX_STEP) {
                into.windows.observe(CollectorKind::Machine, observed.from, at);
            }
            events.into_iter().for_each(|event| into.windows.event(event));
            let event = into.board().data(CollectorKind::Machine, at);
            into.report(event);
            into.advance(at);
        }
        Ok(())
    }
}
