//! The machine and the processes of its servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_core::machine::{MachineMonitor, MachineStep, ProcessReading, WatchedProcess};
use sonar_sys::Host;
use sonar_sys::host::machine::MachineReader;
use sonar_sys::privileges::{Duty, capability};

use super::board::CollectorProblem;
use super::clock_reading::ClockReading;
use super::runner::{Collector, Observation};
use crate::args::when::now;
use crate::confinement::privileges;
use crate::input::follow::{FileThread, FileThreads};
use crate::servers::files::SearchPatience;

/// How often the machine is read.
const EVERY: Duration = Duration::from_secs(2);
/// A longer step is not time observed: this process was stopped.
const MAX_STEP: Duration = Duration::from_secs(10);
/// How long a step waits at most for what processes read and write.
const BYTES_PATIENCE: Duration = Duration::from_secs(1);

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
        let mut bytes = StorageBytes::default();
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
            let mut machine = reader.read(&servers);
            bytes.read(&mut machine.processes, storage_bytes);
            into.board().notes(CollectorKind::Machine, bytes.notes());
            let MachineStep { at, values, events } = monitor.step(machine);
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

/// A process, by its number and when it started.
type ProcessStart = (u32, u64);

/// Reads what processes read from storage and write to it.
///
/// While a process executes a program, whoever reads its `io` waits. It closes files then, whose file system may be its own
/// and may never answer. So another thread waits, and a process that does not answer holds up neither the rest of the
/// machine nor other processes.
#[derive(Default)]
struct StorageBytes {
    threads: Arc<FileThreads>,
    places: BTreeMap<ProcessStart, FileThread>,
    /// How often a process did not answer.
    unanswered: u64,
}

impl StorageBytes {
    /// Reads by `bytes` what each of these processes has read and written.
    fn read(
        &mut self,
        processes: &mut [ProcessReading],
        bytes: impl Fn(u32) -> Option<[u64; 2]> + Copy + Send + 'static,
    ) {
        self.places.retain(|place, _| processes.iter().any(|one| (one.pid, one.started) == *place));
        let mut patience = SearchPatience::of(BYTES_PATIENCE);
        for process in processes {
            let pid = process.pid;
            let place = self.places.entry((pid, process.started));
            let place = place.or_insert_with(|| FileThread::of(&self.threads, Host::live().user(pid)));
            match patience.run(place, move || bytes(pid)) {
                Ok(bytes) => process.io = bytes,
                Err(_) => self.unanswered += 1,
            }
        }
    }

    /// A sentence about how often something was not read.
    fn notes(&self) -> Vec<String> {
        let said = || {
            let times = self.unanswered;
            format!("what a server reads and writes was not read, because it did not answer: {times} times")
        };
        (self.unanswered > 0).then(said).into_iter().collect()
    }
}

/// What a process has read and written; `None` without permission.
fn storage_bytes(pid: u32) -> Option<[u64; 2]> {
    Host::live().bytes_of(pid).map(|bytes| [bytes.read, bytes.written])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_answer_holds_up_no_other_one_and_is_counted() {
        // Nobody has these numbers.
        const SILENT: u32 = 5_000_000;
        let bytes = |pid| match pid {
            SILENT => loop {
                std::thread::park();
            },
            _ => Some([u64::from(pid), 1]),
        };
        let mut reader = StorageBytes::default();
        assert!(reader.notes().is_empty());
        let process = |pid| ProcessReading { pid, ..ProcessReading::default() };
        // On a busy machine an answer may be late.
        loop {
            let before = reader.unanswered;
            let mut processes = [process(SILENT), process(SILENT + 1), process(SILENT + 2)];
            reader.read(&mut processes, bytes);
            assert_eq!(processes[0].io, None);
            if processes[1..].iter().all(|one| one.io == Some([u64::from(one.pid), 1])) {
                assert_eq!(reader.unanswered, before + 1);
                break;
            }
        }
        let times = reader.unanswered;
        let expected =
            format!("what a server reads and writes was not read, because it did not answer: {times} times");
        assert_eq!(reader.notes(), [expected]);
        // It has ended.
        reader.read(&mut [process(SILENT + 1)], bytes);
        assert_eq!(reader.places.len(), 1);
    }
}
