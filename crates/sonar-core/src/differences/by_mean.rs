//! How many operations of each value are in a band of latencies, where only their mean is known.

use super::DividedLatencies;

/// The operations of a row with one value, and how long they took together.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ValueTime {
    /// Operations.
    pub calls: u64,
    /// The sum of their latencies in nanoseconds.
    pub latency_ns: u64,
}

/// How many operations of each value are probably inside, of a row whose latencies are `divided`: the regression of being
/// inside on the latency. It is exact where all operations inside take equally long, and all outside; where means differ for
/// other reasons, it comes near to the proportion of calls. The sum is the share inside of all calls.
pub fn inside_by_mean(divided: &DividedLatencies, values: &[ValueTime]) -> Vec<f64> {
    let share = divided.share();
    let calls: f64 = values.iter().map(|value| value.calls as f64).sum();
    if !divided.is_mixed() || calls <= 0.0 {
        return values.iter().map(|value| value.calls as f64 * share).collect();
    }
    let mean_ns = values.iter().map(|value| value.latency_ns as f64).sum::<f64>() / calls;
    let slope = slope(divided);
    let inside = share * calls;
    let most = |value: &ValueTime| (value.calls as f64).min(inside);
    let estimate = |value: &ValueTime| {
        let calls = value.calls as f64;
        let longer_ns = value.latency_ns as f64 - calls * mean_ns;
        (calls * share + slope * longer_ns).clamp(0.0, most(value))
    };
    let mut found: Vec<f64> = values.iter().map(estimate).collect();
    // What the bounds took from some, or gave to them, is divided among the others.
    let sum: f64 = found.iter().sum();
    if sum > inside {
        found.iter_mut().for_each(|one| *one *= inside / sum);
    } else {
        let room: f64 = values.iter().map(most).sum::<f64>() - sum;
        let filled = if room > 0.0 { (inside - sum) / room } else { 0.0 };
        found.iter_mut().zip(values).for_each(|(one, value)| *one += filled * (most(value) - *one));
    }
    found
}

/// How much more probable each nanosecond of latency makes it to be inside: the covariance of both, divided by the variance of
/// the latency; 0 if all latencies are the same.
fn slope(divided: &DividedLatencies) -> f64 {
    let DividedLatencies { inside, outside } = divided;
    let all = divided.operations() as f64;
    let mean = (inside.ns + outside.ns) / all;
    let variance = (inside.square + outside.square) / all - mean * mean;
    let covariance = inside.ns / all - divided.share() * mean;
    // Differences of large numbers: a spread of less than a millionth of the mean is none.
    if variance > mean * mean * 1e-12 { covariance / variance } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::LatencyBand;
    use super::*;
    use crate::Histogram;

    const MS: u64 = 1_000_000;

    /// So many operations of 3 ms and of 200 ms.
    fn latencies(fast: u64, slow: u64) -> DividedLatencies {
        let mut latency = Histogram::new();
        latency.record_many(3 * MS, fast);
        latency.record_many(200 * MS, slow);
        DividedLatencies::new(&latency, LatencyBand::between(Some(100 * MS), None))
    }

    fn value(fast: u64, slow: u64) -> ValueTime {
        ValueTime { calls: fast + slow, latency_ns: (3 * fast + 200 * slow) * MS }
    }

    #[test]
    fn means_tell_which_value_the_slow_operations_have() {
        let found = inside_by_mean(&latencies(900, 100), &[value(800, 0), value(95, 95), value(5, 5)]);
        for (found, expected) in found.iter().zip([0.0, 95.0, 5.0]) {
            // Latencies are those of buckets.
            assert!((found - expected).abs() < 2.0, "{found} {expected}");
        }
    }

    #[test]
    fn without_a_difference_of_means_the_calls_decide() {
        let found = inside_by_mean(&latencies(900, 100), &[value(810, 90), value(90, 10)]);
        assert!((found[0] - 90.0).abs() < 1e-6 && (found[1] - 10.0).abs() < 1e-6, "{found:?}");
        // All of them inside, or outside.
        let values = [value(0, 30), value(0, 70)];
        assert_eq!(inside_by_mean(&latencies(0, 100), &values), [30.0, 70.0]);
        assert_eq!(inside_by_mean(&latencies(100, 0), &values), [0.0, 0.0]);
        assert!(inside_by_mean(&latencies(5, 5), &[]).is_empty());
    }

    proptest! {
        #[test]
        fn no_value_has_more_inside_than_calls_and_together_they_have_all(
            fast in 0u64..500,
            slow in 0u64..500,
            values in proptest::collection::vec((0u64..300, 0u64..500_000), 1..12),
        ) {
            let divided = latencies(fast, slow);
            let values: Vec<ValueTime> = values
                .into_iter()
                .map(|(calls, mean_us)| ValueTime { calls, latency_ns: calls * mean_us * 1_000 })
                .collect();
            let found = inside_by_mean(&divided, &values);
            let calls: u64 = values.iter().map(|value| value.calls).sum();
            let (sum, expected) = (found.iter().sum::<f64>(), calls as f64 * divided.share());
            prop_assert!((sum - expected).abs() <= 1e-6 * expected.max(1.0), "{} {}", sum, expected);
            for (found, value) in found.iter().zip(&values) {
                prop_assert!(*found >= 0.0 && *found <= value.calls as f64 + 1e-9, "{} {:?}", found, value);
            }
        }
    }
}
