//! The mean number of concurrent reads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Timestamp;

/// Number of reads to hold back, because accesses arrive in order of their end, not of their start.
const HELD: usize = 256;

/// The queue depth: the mean number of reads in flight while there was at least one. By Little's law this is the
/// sum of all latencies divided by the time in which at least one read was in flight.
///
/// Reads are processed in order of their start. The result is exact as long as at most 256 reads end between the
/// start and the end of a read.
#[derive(Clone, Debug, Default)]
pub struct DeviceDepth {
    held: BinaryHeap<Reverse<(Timestamp, u64)>>,
    until: Timestamp,
    sum_ns: u128,
    covered_ns: u64,
}

impl DeviceDepth {
    /// Adds a read.
    pub(super) fn record(&mut self, start: Timestamp, latency_ns: u64) {
        self.held.push(Reverse((start, latency_ns)));
        if self.held.len() > HELD {
            self.take();
        }
    }

    /// Processes the reads that are held back.
    pub(super) fn end(&mut self) {
        while self.take() {}
    }

    fn take(&mut self) -> bool {
        let Some(Reverse((start, latency_ns))) = self.held.pop() else { return false };
        let end = start.plus_ns(latency_ns);
        self.sum_ns += u128::from(latency_ns);
        self.covered_ns = self.covered_ns.saturating_add(end.since(start.max(self.until)));
        self.until = self.until.max(end);
        true
    }

    /// Mean number of reads in flight, 1 or more; `None` if no read took any time.
    pub fn depth(&self) -> Option<f64> {
        (self.covered_ns > 0).then(|| (self.sum_ns as f64 / self.covered_ns as f64).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(reads: &[(u64, u64)]) -> Option<f64> {
        let mut flight = DeviceDepth::default();
        for (start, latency_ns) in reads {
            flight.record(Timestamp::from_unix_ns(*start), *latency_ns);
        }
        flight.end();
        flight.depth()
    }

    #[test]
    fn depth_is_the_sum_of_latencies_over_the_covered_time() {
        assert_eq!(depth(&[]), None);
        assert_eq!(depth(&[(5, 0)]), None);
        // One after the other, with pauses.
        assert_eq!(depth(&[(0, 10), (20, 10), (100, 10)]), Some(1.0));
        // A long one that ends last, beside two short ones with a gap between them.
        assert_eq!(depth(&[(10, 10), (50, 10), (0, 100)]), Some(1.2));
        // Four at once, all the time.
        let four: Vec<_> = (0..4_000).map(|n| (n / 4 * 100, 100)).collect();
        assert_eq!(depth(&four), Some(4.0));
    }
}
