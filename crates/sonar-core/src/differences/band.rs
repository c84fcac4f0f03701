//! Bands of latencies.

use crate::Histogram;
use crate::histogram::{LESS_THAN_A_MS, MAX_INDEX, MIN_INDEX, index_of, upper_bound_ns};

/// Which latencies are selected: whole buckets of a [`Histogram`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LatencyBand {
    /// The index of its lowest bucket.
    first: i32,
    /// That of its highest one.
    last: i32,
}

impl LatencyBand {
    /// All latencies.
    pub const ALL: Self = Self { first: MIN_INDEX, last: MAX_INDEX };

    /// More than `low_ns` and at most `high_ns` nanoseconds; without a bound where it is `None` (or `low_ns` is 0). A bucket
    /// that a bound cuts is in it as a whole. `None` if no latency is between them.
    pub fn between(low_ns: Option<u64>, high_ns: Option<u64>) -> Option<Self> {
        if low_ns.zip(high_ns).is_some_and(|(low, high)| low >= high) {
            return None;
        }
        let first = match low_ns {
            None | Some(0) => MIN_INDEX,
            Some(ns) => index_of(ns.checked_add(1)?)?,
        };
        let last = match high_ns {
            None => MAX_INDEX,
            Some(ns) => index_of(ns)?,
        };
        Some(Self { first, last })
    }

    /// From the bucket that holds the `q` quantile (0 to 1) up.
    pub fn from_quantile(latency: &Histogram, q: f64) -> Self {
        let first = latency.quantile_ns(q).and_then(index_of);
        Self { first: first.unwrap_or(MIN_INDEX), ..Self::ALL }
    }

    /// What all of its latencies are longer than, in nanoseconds; `None` if it has no lower bound.
    pub fn low_ns(self) -> Option<u64> {
        (self.first > MIN_INDEX).then(|| upper_bound_ns(self.first - 1))
    }

    /// Its longest latency in nanoseconds; `None` if it has no upper bound.
    pub fn high_ns(self) -> Option<u64> {
        (self.last < MAX_INDEX).then(|| upper_bound_ns(self.last))
    }

    fn contains(self, index: i32) -> bool {
        (self.first..=self.last).contains(&index)
    }
}

/// Some operations, and how long they took, as far as their buckets say.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LatencySums {
    /// How many.
    pub operations: u64,
    /// The sum of their latencies in nanoseconds, each as the middle of its bucket.
    pub ns: f64,
    /// The sum of their squares.
    pub square: f64,
}

impl LatencySums {
    fn add(&mut self, operations: u64, ns: f64) {
        self.operations += operations;
        self.ns += operations as f64 * ns;
        self.square += operations as f64 * ns * ns;
    }
}

/// The operations of a histogram inside a band of latencies, and outside.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct DividedLatencies {
    /// Those in the band.
    pub inside: LatencySums,
    /// The others.
    pub outside: LatencySums,
}

impl DividedLatencies {
    /// Counts the operations of a histogram inside and outside a band. Without a band, all are outside.
    pub fn new(latency: &Histogram, band: Option<LatencyBand>) -> Self {
        let mut divided = Self::default();
        let middle = |index: i32| {
            let [low, high] = [index - 1, index].map(|index| upper_bound_ns(index) as f64);
            f64::midpoint(low, high)
        };
        let zero = (index_of(LESS_THAN_A_MS).unwrap_or(MIN_INDEX), latency.zero_count(), 0.0);
        let buckets = latency.buckets().map(|(index, operations)| (index, operations, middle(index)));
        for (index, operations, ns) in buckets.chain([zero]) {
            let is_inside = band.is_some_and(|band| band.contains(index));
            let sums = if is_inside { &mut divided.inside } else { &mut divided.outside };
            sums.add(operations, ns);
        }
        divided
    }

    /// All of them.
    pub const fn operations(&self) -> u64 {
        self.inside.operations + self.outside.operations
    }

    /// The share of the operations that is inside, 0 to 1.
    pub fn share(&self) -> f64 {
        self.inside.operations as f64 / self.operations().max(1) as f64
    }

    /// Whether some are inside, and some outside.
    pub const fn is_mixed(&self) -> bool {
        self.inside.operations > 0 && self.outside.operations > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|ns| histogram.record(*ns));
        histogram
    }

    #[test]
    fn a_bucket_that_a_bound_cuts_is_in_the_band_as_a_whole() {
        let latency =
            histogram(&[1_000_000, 99_000_000, 100_000_000, 101_000_000, 900_000_000, 7_000_000_000]);
        let band = LatencyBand::between(Some(100_000_000), Some(900_000_000)).unwrap();
        let (low, high) = (band.low_ns().unwrap(), band.high_ns().unwrap());
        assert!(low < 100_000_000 && low > 97_000_000, "{low}");
        assert!((900_000_000..920_000_000).contains(&high), "{high}");
        let divided = DividedLatencies::new(&latency, Some(band));
        let expected = [1_000_000, 99_000_000, 100_000_000, 101_000_000, 900_000_000, 7_000_000_000_u64]
            .into_iter()
            .filter(|ns| *ns > low && *ns <= high)
            .count() as u64;
        assert_eq!((divided.inside.operations, divided.operations()), (expected, 6));
        // The bounds of the band are edges: they give the same band.
        assert_eq!(LatencyBand::between(Some(low), Some(high)), Some(band));
    }

    #[test]
    fn a_band_may_have_one_bound_or_none() {
        let latency = histogram(&[0, 1, 5_000, u64::MAX]);
        let inside = |low, high| {
            let band = LatencyBand::between(low, high).unwrap();
            DividedLatencies::new(&latency, Some(band)).inside.operations
        };
        assert_eq!([inside(None, None), inside(Some(0), None), inside(Some(5_500), None)], [4, 4, 2]);
        // Zero stands for anything below a millisecond.
        assert_eq!([inside(None, Some(6_000)), inside(Some(500_000), Some(1_000_000))], [2, 1]);
        assert_eq!((LatencyBand::ALL.low_ns(), LatencyBand::ALL.high_ns()), (None, None));
        for (low, high) in [(Some(5), Some(5)), (Some(7), Some(3)), (None, Some(0)), (Some(u64::MAX), None)] {
            assert_eq!(LatencyBand::between(low, high), None, "{low:?} {high:?}");
        }
        assert_eq!(DividedLatencies::new(&latency, None).inside, LatencySums::default());
    }

    #[test]
    fn the_slowest_twentieth_is_at_least_a_twentieth() {
        let latency = histogram(&(1..=1_000).map(|n| n * 1_000_000).collect::<Vec<_>>());
        let band = LatencyBand::from_quantile(&latency, 0.95);
        let divided = DividedLatencies::new(&latency, Some(band));
        assert!((50..80).contains(&divided.inside.operations), "{divided:?}");
        assert!((divided.inside.ns / divided.inside.operations as f64 / 972e6 - 1.0).abs() < 0.02);
        assert!(divided.is_mixed());
        assert_eq!(LatencyBand::from_quantile(&Histogram::new(), 0.95), LatencyBand::ALL);
    }
}
