//! The result of one step of a disk test: a fixed number of requests in flight for some seconds.

use super::counters::DiskRates;
use crate::Histogram;

/// Requests of one kind: reads, writes or flushes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Time from submitting a request to seeing its completion; the count is the number of requests.
    pub latency: Histogram,
    /// Bytes read or written.
    pub bytes: u64,
}

impl Requests {
    /// Number of requests.
    pub const fn count(&self) -> u64 {
        self.latency.count()
    }
}

/// Bytes that this process caused to be read from and written to storage, by the kernel's accounting
/// (`read_bytes` and `write_bytes` of `/proc/PID/io`, proc_pid_io(5)).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelBytes {
    /// Bytes read from storage.
    pub read: u64,
    /// Bytes written to storage.
    pub written: u64,
}

impl KernelBytes {
    /// The difference from `earlier`; 0 if a counter went back, as for an ended process.
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

/// One step of a disk test. Every request of the step started and ended in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskStep {
    /// Requests kept in flight; with one thread per request, the number of threads.
    pub in_flight: u32,
    /// Threads that made the requests.
    pub threads: u32,
    /// Time from the first request to the last completion, in nanoseconds.
    pub elapsed_ns: u64,
    /// Reads.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Flushes (`fdatasync`, or `msync` of a mapped file).
    pub flushes: Requests,
    /// Reads and writes completed in each full second.
    pub per_second: Vec<u64>,
    /// Processor time of this process in user mode, in nanoseconds.
    pub user_ns: u64,
    /// Processor time of this process in kernel mode, in nanoseconds.
    pub system_ns: u64,
    /// Busy share of all processors of the machine, 0 to 1, including other processes.
    pub machine_busy: Option<f64>,
    /// How many processors this process may use, by its affinity and its control group; `None` if that is not known.
    pub usable_processors: Option<f64>,
    /// Share of the periods of its control group in which threads were stopped for lack of processor time, 0 to 1; `None`
    /// without a quota.
    pub throttled: Option<f64>,
    /// Rates of the device below the file, from the kernel's counters.
    pub device: Option<DiskRates>,
    /// Rates of the devices that it consists of, by name.
    pub members: Vec<(String, DiskRates)>,
    /// The kernel's accounting for this process.
    pub kernel: Option<KernelBytes>,
}

impl DiskStep {
    /// Number of reads and writes. As in mongoperf, a flush is not an operation of its own.
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

    /// Mean number of processors that this process kept busy: 1.0 is one processor.
    pub fn processors(&self) -> f64 {
        self.per_elapsed(self.user_ns + self.system_ns) / 1e9
    }

    /// Mean processor time per read or write in nanoseconds; `None` if there were none.
    pub fn cpu_ns_per_operation(&self) -> Option<f64> {
        let operations = self.operations();
        (operations > 0).then(|| (self.user_ns + self.system_ns) as f64 / operations as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_include_reads_and_writes_only() {
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
