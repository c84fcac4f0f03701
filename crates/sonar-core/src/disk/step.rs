//! What one step of a disk test did: a fixed number of requests in flight for some seconds.

use super::counters::DiskRates;
use crate::Histogram;

/// Requests of one kind: reads, writes or flushes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// From handing a request over to seeing it complete; its count is the number of requests.
    pub latency: Histogram,
    /// Bytes that they moved.
    pub bytes: u64,
}

impl Requests {
    /// How many.
    pub const fn count(&self) -> u64 {
        self.latency.count()
    }
}

/// What the kernel says this process has caused to be fetched from and sent to storage
/// (`read_bytes` and `write_bytes` of `/proc/PID/io`, proc_pid_io(5)).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelBytes {
    /// Bytes read from storage.
    pub read: u64,
    /// Bytes sent to storage.
    pub written: u64,
}

impl KernelBytes {
    /// What came since `earlier`; counters of an ended process do not run backwards.
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

/// One step of a disk test. Every request that began in it has ended in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskStep {
    /// Requests kept in flight; with one thread a request, threads.
    pub in_flight: u32,
    /// Threads that made them.
    pub threads: u32,
    /// From the first request to the last completion, in nanoseconds.
    pub elapsed_ns: u64,
    /// Reads.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Flushes (`fdatasync`, or `msync` of a mapped file).
    pub flushes: Requests,
    /// Reads and writes that ended in each full second.
    pub per_second: Vec<u64>,
    /// Processor time of this process in user mode, nanoseconds.
    pub user_ns: u64,
    /// Processor time of the kernel on its behalf, nanoseconds.
    pub system_ns: u64,
    /// Share of the machine's processors that were busy, with this or anything else: 0 to 1.
    pub machine_busy: Option<f64>,
    /// The device below the file, by the kernel's counters.
    pub device: Option<DiskRates>,
    /// The devices that it is made of, by name.
    pub members: Vec<(String, DiskRates)>,
    /// What the kernel counted for this process.
    pub kernel: Option<KernelBytes>,
}

impl DiskStep {
    /// Reads and writes. A flush is no operation of its own, as with mongoperf.
    pub const fn operations(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }

    /// Reads and writes per second.
    pub fn operations_per_second(&self) -> f64 {
        self.per_elapsed(self.operations())
    }

    /// Bytes read and written per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.per_elapsed(self.reads.bytes + self.writes.bytes)
    }

    fn per_elapsed(&self, count: u64) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// Processors kept busy by this process on average: 1.0 is one whole processor.
    pub fn processors(&self) -> f64 {
        self.per_elapsed(self.user_ns + self.system_ns) / 1e9
    }

    /// Processor time of a read or write, in nanoseconds; `None` where there was none.
    pub fn cpu_ns_per_operation(&self) -> Option<f64> {
        let operations = self.operations();
        (operations > 0).then(|| (self.user_ns + self.system_ns) as f64 / operations as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_reads_and_writes() {
        let mut step = DiskStep { elapsed_ns: 2_000_000_000, user_ns: 1_000_000_000, ..Default::default() };
        for _ in 0..300 {
            step.reads.latency.record(1_000_000);
            step.reads.bytes += 8_192;
        }
        for _ in 0..100 {
            step.writes.latency.record(2_000_000);
            step.writes.bytes += 8_192;
            step.flushes.latency.record(5_000_000);
        }
        assert_eq!(step.operations(), 400);
        assert_eq!(step.operations_per_second(), 200.0);
        assert_eq!(step.bytes_per_second(), 200.0 * 8_192.0);
        assert_eq!(step.processors(), 0.5);
        assert_eq!(step.cpu_ns_per_operation(), Some(2_500_000.0));
        assert_eq!(DiskStep::default().operations_per_second(), 0.0);
        assert_eq!(DiskStep::default().cpu_ns_per_operation(), None);
    }
}
