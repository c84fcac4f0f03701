//! How many reads were waited for at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Timestamp;

/// Reads that are held back until none that began earlier is likely to come.
const HELD: usize = 256;

/// The depth at which a device was asked: reads in flight on average while there was at least one (Little's
/// law: the time of all of them over the time that they cover together).
///
/// Accesses come in the order in which they ended, and the time they cover is added up in that in which they
/// began; as many as 256 reads may have ended between a read's beginning and its end without an error.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    held: BinaryHeap<Reverse<(Timestamp, u64)>>,
    until: Timestamp,
    sum_ns: u128,
    covered_ns: u64,
}

impl InFlight {
    /// Adds a read.
    pub(super) fn record(&mut self, start: Timestamp, latency_ns: u64) {
        self.held.push(Reverse((start, latency_ns)));
        if self.held.len() > HELD {
            self.take();
        }
    }

    /// Adds up what is held back.
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

    /// Reads in flight on average, 1 or more; `None` without any that took time.
    pub fn depth(&self) -> Option<f64> {
        (self.covered_ns > 0).then(|| (self.sum_ns as f64 / self.covered_ns as f64).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(reads: &[(u64, u64)]) -> Option<f64> {
        let mut flight = InFlight::default();
        for (start, latency_ns) in reads {
            flight.record(Timestamp::from_unix_ns(*start), *latency_ns);
        }
        flight.end();
        flight.depth()
    }

    #[test]
    fn depth_is_the_time_of_all_over_the_time_that_they_cover() {
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
