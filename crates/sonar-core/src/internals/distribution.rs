//! How often each value occurred, in bounded memory.

use hashbrown::HashMap;

/// Bits of the mantissa that are kept: values are exact within 0.2 %.
const DROPPED_BITS: u32 = 52 - 8;

/// Counts of values of at least 0, in buckets 0.4 % wide. Distributions are merged by adding their counts.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    counts: HashMap<u32, u64, foldhash::fast::FixedState>,
    total: u64,
}

impl Distribution {
    /// Counts a value. Negative values count as 0; NaN is ignored.
    pub fn add(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let bucket = (value.max(0.0).to_bits() >> DROPPED_BITS) as u32;
        *self.counts.entry(bucket).or_insert(0) += 1;
        self.total += 1;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The value below which a share of `q` (0 to 1) of all values lies, by nearest rank; `None` without values.
    pub fn quantiles<const N: usize>(&self, q: [f64; N]) -> Option<[f64; N]> {
        if self.total == 0 {
            return None;
        }
        let mut sorted: Vec<(u32, u64)> =
            self.counts.iter().map(|(bucket, count)| (*bucket, *count)).collect();
        sorted.sort_unstable();
        Some(q.map(|q| {
            let mut left = ((q * self.total as f64).ceil() as u64).clamp(1, self.total);
            let found = sorted.iter().find(|(_, count)| {
                let here = left <= *count;
                left = left.saturating_sub(*count);
                here
            });
            found.map_or(0.0, |(bucket, _)| middle(*bucket))
        }))
    }
}

/// The middle of a bucket; small integers are themselves.
fn middle(bucket: u32) -> f64 {
    let low = f64::from_bits(u64::from(bucket) << DROPPED_BITS);
    let high = f64::from_bits((u64::from(bucket) + 1) << DROPPED_BITS);
    if low.fract() == 0.0 && low <= 512.0 { low } else { f64::midpoint(low, high) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_nothing_there_is_no_quantile() {
        let mut distribution = Distribution::default();
        distribution.add(f64::NAN);
        assert_eq!(distribution.quantiles([0.5]), None);
    }

    #[test]
    fn small_integers_are_exact() {
        let mut distribution = Distribution::default();
        (0..=100).for_each(|value| distribution.add(f64::from(value)));
        assert_eq!(distribution.quantiles([0.0, 0.5, 0.95, 1.0]), Some([0.0, 50.0, 95.0, 100.0]));
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(prop_oneof![0.0..1.0f64, 0.0..1e12f64], 1..200),
            q in 0.0..=1.0f64,
        ) {
            let mut distribution = Distribution::default();
            values.iter().for_each(|value| distribution.add(*value));
            values.sort_by(f64::total_cmp);
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let [found] = distribution.quantiles([q]).unwrap();
            prop_assert!((found - exact).abs() <= exact * 0.002, "{found} instead of {exact}");
        }
    }
}
