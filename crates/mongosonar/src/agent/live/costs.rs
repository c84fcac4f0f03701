//! What the running agent costs: the processor time of each collector, and the size of its files.

use std::collections::BTreeMap;
use std::path::Path;

use sonar_core::history::CollectorKind;
use sonar_sys::resource::{ProcessorTime, thread_times};
use sonar_view::agent::CollectorStatus;

/// The processor time of each collector, also of its threads that have ended.
#[derive(Debug, Default)]
pub struct CostMeter {
    /// Of threads that have ended, and of the present ones when they were last looked at.
    costs: BTreeMap<CollectorKind, (ProcessorTime, ProcessorTime)>,
}

impl CostMeter {
    /// Sets the processor time of each collector, by the names of its threads.
    pub fn measure(&mut self, collectors: &mut [CollectorStatus]) {
        let times = thread_times();
        for (status, collector) in collectors.iter_mut().zip(CollectorKind::ALL) {
            let is_of = |name: &str| match collector {
                CollectorKind::Queries => name.starts_with("capture-"),
                _ => name == collector.name(),
            };
            let of = times.iter().filter(|(name, _)| is_of(name));
            let present = of.fold(ProcessorTime::default(), |sum, (_, time)| sum + *time);
            let time = self.total(collector, present);
            (status.user_ns, status.system_ns) = (time.user.as_nanos() as u64, time.system.as_nanos() as u64);
        }
    }

    /// The present threads of a collector have used `present`; gives what all have used.
    fn total(&mut self, collector: CollectorKind, present: ProcessorTime) -> ProcessorTime {
        let (ended, last) = self.costs.entry(collector).or_default();
        if present.total() < last.total() {
            *ended += *last;
        }
        *last = present;
        *ended + present
    }
}

/// The size of the files in a folder.
pub fn folder_bytes(folder: &Path) -> u64 {
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
        assert_eq!(meter.total(CollectorKind::Queries, seconds(5, 1)), seconds(5, 1));
        assert_eq!(meter.total(CollectorKind::Queries, seconds(8, 2)), seconds(8, 2));
        assert_eq!(meter.total(CollectorKind::Queries, seconds(1, 0)), seconds(9, 2), "a new thread");
        assert_eq!(meter.total(CollectorKind::Queries, seconds(2, 0)), seconds(10, 2));
        assert_eq!(meter.total(CollectorKind::Log, seconds(1, 0)), seconds(1, 0));
    }
}
