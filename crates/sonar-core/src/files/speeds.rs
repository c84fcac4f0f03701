//! Estimates reading times from the results of a disk test.

/// Rates of a disk, measured by a test.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Speeds {
    /// Record size of the random reads in bytes.
    pub record_bytes: u64,
    /// Random reads per second for each number in flight, ascending.
    pub random: Vec<(u32, f64)>,
    /// Rate of sequential reads in bytes per second; `None` if it was not measured.
    pub in_order: Option<f64>,
}

/// A number of reads and their total size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Reads {
    /// Number of reads.
    pub count: u64,
    /// Total bytes of all reads.
    pub bytes: u64,
}

impl Speeds {
    /// Random reads per second with `depth` in flight (1 or more): interpolated between measured depths; beyond
    /// them, the rate of the nearest. `None` if none was measured.
    pub fn random_per_second(&self, depth: f64) -> Option<f64> {
        let (first, last) = (self.random.first()?, self.random.last()?);
        let above = self.random.iter().position(|(in_flight, _)| f64::from(*in_flight) >= depth);
        let rate = match above {
            Some(0) => first.1,
            None => last.1,
            Some(at) => {
                let ((low, from), (high, to)) = (self.random[at - 1], self.random[at]);
                let (low, high) = (f64::from(low), f64::from(high));
                from + (to - from) * (depth - low) / (high - low)
            }
        };
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// Nanoseconds for reading this many bytes in order; saturates. `None` if the rate was not measured.
    pub fn in_order_ns(&self, bytes: u64) -> Option<u64> {
        crate::disk::estimate::duration_ns(bytes, self.in_order?)
    }

    /// Nanoseconds for these random reads with `depth` in flight; saturates. Each takes as long as a read of the
    /// test; bytes beyond the record size of the test are read at the sequential rate.
    pub fn random_ns(&self, reads: Reads, depth: f64) -> Option<u64> {
        let places = crate::disk::estimate::duration_ns(reads.count, self.random_per_second(depth)?)?;
        let beyond = reads.bytes.saturating_sub(reads.count.saturating_mul(self.record_bytes));
        let transfer = if beyond > 0 { self.in_order_ns(beyond).unwrap_or(0) } else { 0 };
        Some(places.saturating_add(transfer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds() -> Speeds {
        Speeds { record_bytes: 4_096, random: vec![(1, 100.0), (4, 400.0), (8, 500.0)], in_order: Some(1e8) }
    }

    #[test]
    fn rates_are_interpolated_between_measured_depths() {
        let at = |depth| speeds().random_per_second(depth);
        assert_eq!([at(0.5), at(1.0), at(2.5)], [Some(100.0), Some(100.0), Some(250.0)]);
        assert_eq!([at(4.0), at(6.0), at(99.0)], [Some(400.0), Some(450.0), Some(500.0)]);
        assert_eq!(Speeds::default().random_per_second(1.0), None);
        assert_eq!(Speeds { random: vec![(1, 0.0)], ..speeds() }.random_per_second(1.0), None);
    }

    #[test]
    fn a_read_costs_a_seek_and_its_bytes() {
        let speeds = speeds();
        assert_eq!(speeds.in_order_ns(200_000_000), Some(2_000_000_000));
        // 4 KiB each: the seek only.
        assert_eq!(speeds.random_ns(Reads { count: 100, bytes: 409_600 }, 1.0), Some(1_000_000_000));
        // 1 MB more each: plus 100 MB in order.
        let wide = Reads { count: 100, bytes: 409_600 + 100_000_000 };
        assert_eq!(speeds.random_ns(wide, 1.0), Some(2_000_000_000));
        let without = Speeds { in_order: None, ..speeds };
        assert_eq!(without.random_ns(wide, 1.0), Some(1_000_000_000));
        assert_eq!(without.in_order_ns(1), None);
        let all = Reads { count: u64::MAX, bytes: u64::MAX };
        assert_eq!(speeds_of_a_snail().random_ns(all, 1.0), Some(u64::MAX));
    }

    fn speeds_of_a_snail() -> Speeds {
        Speeds { record_bytes: 0, random: vec![(1, 1e-9)], in_order: Some(1e-9) }
    }
}
