//! What reading takes on a disk that was tested.

/// Rates of a disk, as a test measured them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Speeds {
    /// Bytes of a record of the reads at random.
    pub record_bytes: u64,
    /// Reads at random per second, by the number in flight, ascending.
    pub random: Vec<(u32, f64)>,
    /// Bytes per second in order.
    pub in_order: Option<f64>,
}

/// Reads, and what they are to bring.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Reads {
    /// How many.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Speeds {
    /// Reads at random per second with so many in flight (1 or more): between two that were measured in
    /// proportion, beyond them that of the nearest. `None` where none was measured.
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

    /// Nanoseconds for so many bytes in order; saturates.
    pub fn in_order_ns(&self, bytes: u64) -> Option<u64> {
        crate::disk::estimate::duration_ns(bytes, self.in_order?)
    }

    /// Nanoseconds for these reads at random with `depth` in flight, saturating: each takes as long as a read
    /// of the test, and what it brings beyond a record of the test comes at the rate of reads in order.
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
    fn rates_between_two_that_were_measured_lie_between_them() {
        let at = |depth| speeds().random_per_second(depth);
        assert_eq!([at(0.5), at(1.0), at(2.5)], [Some(100.0), Some(100.0), Some(250.0)]);
        assert_eq!([at(4.0), at(6.0), at(99.0)], [Some(400.0), Some(450.0), Some(500.0)]);
        assert_eq!(Speeds::default().random_per_second(1.0), None);
        assert_eq!(Speeds { random: vec![(1, 0.0)], ..speeds() }.random_per_second(1.0), None);
    }

    #[test]
    fn a_read_takes_its_place_and_its_bytes() {
        let speeds = speeds();
        assert_eq!(speeds.in_order_ns(200_000_000), Some(2_000_000_000));
        // Of 4 KiB: the place alone.
        assert_eq!(speeds.random_ns(Reads { count: 100, bytes: 409_600 }, 1.0), Some(1_000_000_000));
        // Of 1 MB more each: 100 MB in order beside them.
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
