//! What the running agent writes into its status.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sonar_core::history::Collector;
use sonar_sys::Host;
use sonar_sys::resource::{ProcessorTime, ResourceUsage, helper_time, thread_times};

use super::inspector::FoundServer;
use super::{AgentStatus, LiveAgent, status_file};
use crate::queries::live::now;
use sonar_view::agent::WatchedServer;

/// The processor time of each collector, also of its threads that have ended.
#[derive(Debug, Default)]
pub struct CostMeter {
    /// Of threads that have ended, and of the present ones when they were last looked at.
    costs: BTreeMap<Collector, (ProcessorTime, ProcessorTime)>,
}

impl CostMeter {
    /// The present threads of a collector have used `present`; gives what all have used.
    fn total(&mut self, collector: Collector, present: ProcessorTime) -> ProcessorTime {
        let (ended, last) = self.costs.entry(collector).or_default();
        if present.total() < last.total() {
            *ended += *last;
        }
        *last = present;
        *ended + present
    }
}

impl LiveAgent<'_> {
    /// Writes the status.
    pub(super) fn state(&mut self) {
        self.stated = Some(Instant::now());
        let times = thread_times();
        let usage = ResourceUsage::now().unwrap_or_default();
        let mut collectors = self.board.all();
        for (status, collector) in collectors.iter_mut().zip(Collector::ALL) {
            let is_of = |name: &str| match collector {
                Collector::Queries => name.starts_with("capture-"),
                _ => name == collector.name(),
            };
            let of = times.iter().filter(|(name, _)| is_of(name));
            let present = of.fold(ProcessorTime::default(), |sum, (_, time)| sum + *time);
            let time = self.costs.total(collector, present);
            (status.user_ns, status.system_ns) = (time.user.as_nanos() as u64, time.system.as_nanos() as u64);
        }
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let server = |server: &FoundServer| WatchedServer {
            name: server.name.clone(),
            version: self.watched.version(server.port),
            pid: server.pid,
            port: server.port,
            log: path(&server.log),
            diagnostic_data: path(&server.diagnostic),
        };
        let pid = std::process::id();
        let summary = self.assembler.summary();
        let status = AgentStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid,
            started_ticks: Host::live().stat(pid).map_or(0, |stat| stat.started),
            started_ns: self.begun.unix_ns(),
            written_ns: now().unix_ns(),
            store: self.plan.folder.display().to_string(),
            store_bytes: folder_bytes(self.plan.folder),
            windows: summary.windows,
            windows_lost: summary.windows_lost,
            last_window_ns: summary.end_ns,
            refused_configuration: self.refused.clone(),
            notices: self.notices.clone(),
            cpu_ns: usage.processor().as_nanos() as u64,
            helpers_cpu_ns: helper_time().as_nanos() as u64,
            memory_bytes: usage.resident_bytes,
            collectors,
            servers: self.watched.all().iter().map(server).collect(),
        };
        let written = status_file::write(self.plan.folder, &status);
        if let Err(error) = written.and_then(|()| self.positions.save(self.plan.folder)) {
            let text = format!("the status cannot be written: {error}");
            if self.notices.last() != Some(&text) {
                eprintln!("mongosonar: {text}");
                self.note(text);
            }
        }
    }
}

/// The size of the files in a folder.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(|found| found.is_file())
        .map(|found| found.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_threads_that_have_ended_stays() {
        let seconds = |user, system| ProcessorTime {
            user: Duration::from_secs(user),
            system: Duration::from_secs(system),
        };
        let mut meter = CostMeter::default();
        assert_eq!(meter.total(Collector::Queries, seconds(5, 1)), seconds(5, 1));
        assert_eq!(meter.total(Collector::Queries, seconds(8, 2)), seconds(8, 2));
        assert_eq!(meter.total(Collector::Queries, seconds(1, 0)), seconds(9, 2), "a new thread");
        assert_eq!(meter.total(Collector::Queries, seconds(2, 0)), seconds(10, 2));
        assert_eq!(meter.total(Collector::Log, seconds(1, 0)), seconds(1, 0));
    }
}
