//! What disks did during the trace that hold files for which operations waited.

use serde::Serialize;
use sonar_core::disk::{DeviceCounters, DiskRates};
use ts_rs::TS;

use crate::disk::estimate::best_random_reads;
use crate::disk::run::BenchReport;
use crate::kit::{Count, Percent, plural};

/// The load of a disk during the trace, by all processes.
#[derive(Clone, Debug, Serialize, TS)]
pub struct DiskLoadJson {
    /// Its name, as in `/proc/diskstats`.
    pub name: String,
    /// Device, in the kernel's own encoding, as in `files`.
    pub device: u32,
    /// Reads per second.
    pub reads_per_second: f64,
    /// Mean milliseconds from queueing a read to its completion; 0 if there were no reads.
    pub read_await_ms: f64,
    /// Mean number of requests in flight.
    pub queue: f64,
    /// Share of the time in which at least one request was in flight.
    pub busy: f64,
    /// The most reads at random per second in the test of the disk that was named; null if none was.
    pub best_reads_per_second: Option<f64>,
}

impl DiskLoadJson {
    /// From two readings of the kernel's counters, `elapsed_ns` apart, and a test of the disk. `None` if nothing is known
    /// of the time in between.
    pub fn new(
        before: &DeviceCounters,
        now: &DeviceCounters,
        elapsed_ns: u64,
        test: Option<&BenchReport>,
    ) -> Option<Self> {
        let rates = now
            .continues(before)
            .then(|| DiskRates::between(&before.counters, &now.counters, elapsed_ns))
            .flatten()?;
        let (major, minor) = now.number;
        Some(Self {
            name: now.name.clone(),
            device: major << 20 | minor,
            reads_per_second: rates.reads.per_second,
            read_await_ms: rates.reads.await_ms,
            queue: rates.queue,
            busy: (rates.util_percent / 100.0).min(1.0),
            best_reads_per_second: test.and_then(best_random_reads).map(|(_, rate)| rate),
        })
    }

    /// What it did, in words.
    pub(super) fn sentence(&self) -> String {
        let limit = self.best_reads_per_second.filter(|best| *best > 0.0).map(|best| {
            let share = Percent(self.reads_per_second / best);
            format!(", which is {share} of the {} random reads per second of its test", Count(best))
        });
        format!(
            "During the trace, {} served {} per second ({:.2}ms each) for all processes{}; it was busy {} of the time.",
            self.name,
            plural(Count(self.reads_per_second), "read"),
            self.read_await_ms,
            limit.unwrap_or_default(),
            Percent(self.busy)
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sonar_core::disk::DiskCounters;

    use super::*;

    fn counters(reads: u64, busy_ms: u64) -> DeviceCounters {
        let counters = DiskCounters { reads, read_ms: 2 * reads, busy_ms, ..DiskCounters::default() };
        DeviceCounters { number: (259, 3), name: "nvme0n1p3".into(), counters }
    }

    #[test]
    fn a_disk_has_its_load_and_how_much_of_its_test_that_is() {
        let (before, now) = (counters(1_000, 500), counters(11_000, 10_100));
        let mut load = DiskLoadJson::new(&before, &now, 10_000_000_000, None).unwrap();
        assert_eq!((load.device, load.reads_per_second, load.busy), (259 << 20 | 3, 1_000.0, 0.96));
        assert_eq!(
            load.sentence(),
            "During the trace, nvme0n1p3 served 1.00k reads per second (2.00ms each) for all processes; it was busy 96% of the time."
        );
        load.best_reads_per_second = Some(1_250.0);
        assert!(
            load.sentence().contains("which is 80% of the 1.25k random reads per second of its test"),
            "{}",
            load.sentence()
        );
        assert!(DiskLoadJson::new(&now, &before, 10, None).is_none(), "it was added again");
    }
}
