//! The rows of a heat map of latencies: each is a quarter of an octave.

use std::collections::BTreeMap;

use sonar_core::Histogram;
use sonar_core::histogram::{LESS_THAN_A_MS, SUB_BUCKETS, index_of, upper_bound_ns};

/// Buckets of a histogram in one row: four rows are an octave.
const BUCKETS: i32 = SUB_BUCKETS / 4;

/// The rows in which any of some histograms has operations.
pub(crate) struct HeatRows {
    /// Their numbers from the lowest on, by their places.
    numbers: BTreeMap<i32, u64>,
}

impl HeatRows {
    /// The rows of these histograms.
    pub fn of<'a>(all: impl Iterator<Item = &'a Histogram>) -> Self {
        let mut numbers: BTreeMap<i32, u64> = BTreeMap::new();
        for latency in all {
            numbers.extend(operations(latency).into_keys().map(|place| (place, 0)));
        }
        numbers.values_mut().zip(0..).for_each(|(number, at)| *number = at);
        Self { numbers }
    }

    /// Their upper bounds in nanoseconds, ascending.
    pub fn bounds_ns(&self) -> Vec<u64> {
        self.numbers.keys().map(|place| bound_ns(*place)).collect()
    }

    /// The operations of a histogram: the number of a row, and how many.
    pub fn cells(&self, latency: &Histogram) -> Vec<[u64; 2]> {
        let number = |place: i32| self.numbers.get(&place).copied().unwrap_or_default();
        operations(latency).into_iter().map(|(place, count)| [number(place), count]).collect()
    }
}

/// Operations by the place of their row.
fn operations(latency: &Histogram) -> BTreeMap<i32, u64> {
    let mut rows = BTreeMap::new();
    for (bucket, count) in latency.buckets() {
        *rows.entry(bucket.div_euclid(BUCKETS)).or_default() += count;
    }
    let zero = latency.zero_count();
    if zero > 0 {
        *rows.entry(index_of(LESS_THAN_A_MS).unwrap_or_default().div_euclid(BUCKETS)).or_default() += zero;
    }
    rows
}

/// The upper bound of a row in nanoseconds.
fn bound_ns(place: i32) -> u64 {
    upper_bound_ns(place * BUCKETS + BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_quarters_of_an_octave_and_hold_every_operation() {
        let mut latency = Histogram::default();
        for ns in [0, 1, 1_000, 1_001, 1_500_000, 1_500_001, 3_000_000_000] {
            latency.record(ns);
        }
        let rows = operations(&latency);
        assert_eq!(rows.values().sum::<u64>(), latency.count());
        for ns in [1_000_u64, 1_500_000, 3_000_000_000] {
            let row = index_of(ns).unwrap().div_euclid(BUCKETS);
            assert!(rows.contains_key(&row));
            assert!(bound_ns(row - 1) < ns && ns <= bound_ns(row), "{ns}");
            let ratio = bound_ns(row) as f64 / bound_ns(row - 1) as f64;
            assert!((ratio - 2_f64.powf(0.25)).abs() < 0.01, "{ratio}");
        }
    }

    #[test]
    fn cells_name_rows_by_their_numbers() {
        let [mut fast, mut slow] = [Histogram::default(), Histogram::default()];
        fast.record_many(1_000, 3);
        slow.record(1_000);
        slow.record_many(9_000_000, 2);
        let rows = HeatRows::of([&fast, &slow].into_iter());
        let bounds = rows.bounds_ns();
        assert!(bounds.len() == 2 && bounds[0] >= 1_000 && bounds[1] >= 9_000_000, "{bounds:?}");
        assert_eq!((rows.cells(&fast), rows.cells(&slow)), (vec![[0, 3]], vec![[0, 1], [1, 2]]));
    }
}
