//! A histogram of durations in seconds: base-2 exponential with scale 5, as OpenTelemetry defines it
//! (<https://opentelemetry.io/docs/specs/otel/metrics/data-model/#exponentialhistogram>).
//!
//! Bucket `i` holds `(2^(i/32), 2^((i+1)/32)]` seconds and is 2.2 % wide. The index is computed from integer
//! nanoseconds with a fixed table and one comparison, without floating point, so that it is the same on
//! every platform. Histograms of different windows, hosts and threads are merged by adding counts.

use crate::time::NS_PER_S;

/// Buckets per power of two.
pub const SUB_BUCKETS: i32 = 32;
/// Index of the bucket of 1 ns, the lowest.
pub const MIN_INDEX: i32 = -957;
/// Index of the bucket of `u64::MAX` ns, the highest.
pub const MAX_INDEX: i32 = 1091;
/// What a duration of zero may stand for: a source with whole milliseconds says 0 of what took less than one.
pub const LESS_THAN_A_MS: u64 = 999_999;

/// The number of buckets, not counting the one for zero.
pub const BUCKETS: usize = (MAX_INDEX - MIN_INDEX + 1) as usize;

/// `2^(j/32)` for j = 0 … 31, in fixed point with 63 fractional bits, rounded down.
const ROOTS: [u64; 32] = [
    0x8000000000000000,
    0x82cd8698ac2ba1d7,
    0x85aac367cc487b14,
    0x88980e8092da8527,
    0x8b95c1e3ea8bd6e6,
    0x8ea4398b45cd53c0,
    0x91c3d373ab11c336,
    0x94f4efa8fef70961,
    0x9837f0518db8a96f,
    0x9b8d39b9d54e5538,
    0x9ef5326091a111ad,
    0xa27043030c496818,
    0xa5fed6a9b15138ea,
    0xa9a15ab4ea7c0ef8,
    0xad583eea42a14ac6,
    0xb123f581d2ac258f,
    0xb504f333f9de6484,
    0xb8fbaf4762fb9ee9,
    0xbd08a39f580c36be,
    0xc12c4cca66709456,
    0xc5672a115506dadd,
    0xc9b9bd866e2f27a2,
    0xce248c151f8480e3,
    0xd2a81d91f12ae45a,
    0xd744fccad69d6af4,
    0xdbfbb797daf23755,
    0xe0ccdeec2a94e111,
    0xe5b906e77c8348a8,
    0xeac0c6e7dd24392e,
    0xefe4b99bdcdaf5cb,
    0xf5257d152486cc2c,
    0xfa83b2db722a033a,
];

/// Inclusive upper bound of each bucket in whole nanoseconds, rounded down.
static UPPER_NS: [u64; BUCKETS] = upper_bounds();

const fn upper_bounds() -> [u64; BUCKETS] {
    let mut bounds = [0; BUCKETS];
    let mut slot = 0;
    while slot < BUCKETS {
        let exponent = MIN_INDEX + slot as i32 + 1;
        let octave = exponent.div_euclid(SUB_BUCKETS);
        let root = ROOTS[exponent.rem_euclid(SUB_BUCKETS) as usize];
        let bound = (NS_PER_S as u128 * root as u128) >> (63 - octave);
        bounds[slot] = if bound > u64::MAX as u128 { u64::MAX } else { bound as u64 };
        slot += 1;
    }
    bounds
}

/// Entries per octave of nanoseconds in [`GUESS`]. An entry covers at most 0.72 of a bucket, so at most one
/// bucket boundary lies in it.
const GUESS_SLOTS: usize = 64;

/// Bucket slot of `2^40 × (1 + s/64)` ns, minus 32 × 40 (every octave adds 32).
static GUESS: [i32; GUESS_SLOTS] = guesses();

const fn guesses() -> [i32; GUESS_SLOTS] {
    let bounds = upper_bounds();
    let mut guess = [0; GUESS_SLOTS];
    let mut s = 0;
    while s < GUESS_SLOTS {
        let ns = (1u64 << 40) + ((s as u64) << 34);
        let mut slot = 0;
        while bounds[slot] < ns {
            slot += 1;
        }
        guess[s] = slot as i32 - 40 * SUB_BUCKETS;
        s += 1;
    }
    guess
}

/// Slot of a duration above zero in the table of bounds.
#[inline]
fn slot_of(ns: u64) -> usize {
    let octave = 63 - ns.leading_zeros();
    let top = (ns << (63 - octave)) >> 57;
    let guess = GUESS[(top as usize) & (GUESS_SLOTS - 1)] + octave as i32 * SUB_BUCKETS;
    // Below about 30 ns a bucket is narrower than a nanosecond, and the guess may lie before the first
    // slot; the comparison corrects both.
    let mut slot = guess.max(0) as usize;
    while slot + 1 < BUCKETS && ns > UPPER_NS[slot] {
        slot += 1;
    }
    slot
}

/// OpenTelemetry's index of the bucket that holds `ns` nanoseconds; `None` for 0, which has its own bucket.
pub fn index_of(ns: u64) -> Option<i32> {
    (ns > 0).then(|| slot_of(ns) as i32 + MIN_INDEX)
}

/// Inclusive upper bound of bucket `index` in whole nanoseconds, rounded down. An index outside
/// [`MIN_INDEX`]..=[`MAX_INDEX`] gives the bound of the nearest bucket.
pub fn upper_bound_ns(index: i32) -> u64 {
    UPPER_NS[(index.clamp(MIN_INDEX, MAX_INDEX) - MIN_INDEX) as usize]
}

/// The bucket of a duration, computed once for several histograms.
#[derive(Copy, Clone, Debug)]
pub(crate) struct LatencyBucket(usize);

impl LatencyBucket {
    /// The bucket of `ns` nanoseconds.
    #[inline]
    pub(crate) fn of(ns: u64) -> Self {
        Self(slot_of(ns.max(1)))
    }
}

/// A histogram of durations in nanoseconds. It has at most 2,049 buckets (16 KiB), and stores only those from
/// the lowest to the highest one in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    /// Slot of `counts[0]`.
    first_slot: usize,
    zero: u64,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

/// What a histogram knows exactly of its durations, in nanoseconds. All are 0 if it is empty.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationSummary {
    /// Their sum.
    pub sum_ns: u128,
    /// The shortest one.
    pub min_ns: u64,
    /// The longest one.
    pub max_ns: u64,
}

impl Histogram {
    /// An empty histogram, without allocating.
    pub const fn new() -> Self {
        Self { counts: Vec::new(), first_slot: 0, zero: 0, count: 0, sum_ns: 0, min_ns: 0, max_ns: 0 }
    }

    /// An empty histogram that records durations from `low_ns` to `high_ns` without allocating. Other durations
    /// may be recorded too.
    pub fn spanning(low_ns: u64, high_ns: u64) -> Self {
        let (low, high) = (slot_of(low_ns.max(1)), slot_of(high_ns.max(1)));
        Self { counts: vec![0; high.saturating_sub(low) + 1], first_slot: low, ..Self::new() }
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        let (mut counts, first_slot) = (std::mem::take(&mut self.counts), self.first_slot);
        counts.fill(0);
        *self = Self { counts, first_slot, ..Self::new() };
    }

    /// Adds one duration of `ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Adds `times` durations of `ns` nanoseconds each.
    #[inline]
    pub fn record_many(&mut self, ns: u64, times: u64) {
        self.record_in(ns, LatencyBucket::of(ns), times);
    }

    /// Adds `times` durations of `ns` nanoseconds each; `bucket` is the bucket of `ns`.
    #[inline]
    pub(crate) fn record_in(&mut self, ns: u64, bucket: LatencyBucket, times: u64) {
        if times == 0 {
            return;
        }
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += times;
        self.sum_ns += u128::from(ns) * u128::from(times);
        if ns == 0 {
            self.zero += times;
            return;
        }
        let slot = bucket.0;
        match self.counts.get_mut(slot.wrapping_sub(self.first_slot)) {
            Some(count) => *count += times,
            None => self.add_outside(slot, times),
        }
    }

    /// Rebuilds a histogram from saved values: the count of zero durations, the other [`buckets`](Self::buckets), and
    /// a summary of all. `None` if they contradict each other or the index of one that is not empty is out of range.
    pub fn from_parts(zero: u64, buckets: &[(i32, u64)], summary: DurationSummary) -> Option<Self> {
        let used = || buckets.iter().filter(|(_, count)| *count > 0);
        let indices = used().map(|(index, _)| *index);
        let (Some(first), Some(last)) = (indices.clone().min(), indices.max()) else {
            return Self::from_counts(zero, 0, Vec::new(), summary);
        };
        if first < MIN_INDEX || last > MAX_INDEX {
            return None;
        }
        let mut counts = vec![0u64; (last - first + 1) as usize];
        for &(index, count) in used() {
            let sum = &mut counts[(index - first) as usize];
            *sum = sum.checked_add(count)?;
        }
        Self::from_counts(zero, first, counts, summary)
    }

    /// The same from the index of the lowest non-empty bucket and the counts from there to the highest one.
    pub fn from_counts(zero: u64, first: i32, counts: Vec<u64>, summary: DurationSummary) -> Option<Self> {
        let count = counts.iter().try_fold(zero, |sum, count| sum.checked_add(*count))?;
        let mut histogram = Self { zero, count, counts, ..Self::default() };
        if !histogram.counts.is_empty() {
            let first = usize::try_from(first.checked_sub(MIN_INDEX)?).ok()?;
            if first.checked_add(histogram.counts.len())? > BUCKETS {
                return None;
            }
            histogram.first_slot = first;
        }
        if count > 0 {
            let DurationSummary { sum_ns, min_ns, max_ns } = summary;
            if min_ns > max_ns || u128::from(min_ns) > sum_ns {
                return None;
            }
            (histogram.sum_ns, histogram.min_ns, histogram.max_ns) = (sum_ns, min_ns, max_ns);
        }
        Some(histogram)
    }

    /// Adds to a bucket that there may be no room for yet.
    #[cold]
    fn add_outside(&mut self, slot: usize, count: u64) {
        if self.counts.is_empty() {
            self.first_slot = slot;
            self.counts.push(count);
        } else if slot < self.first_slot {
            let grow = self.first_slot - slot;
            self.counts.splice(0..0, std::iter::repeat_n(0, grow));
            self.first_slot = slot;
            self.counts[0] = count;
        } else {
            let at = slot - self.first_slot;
            if at >= self.counts.len() {
                self.counts.resize(at + 1, 0);
            }
            self.counts[at] += count;
        }
    }

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.zero += other.zero;
        let used = |count: &u64| *count > 0;
        let (Some(first), Some(last)) =
            (other.counts.iter().position(used), other.counts.iter().rposition(used))
        else {
            return;
        };
        // Makes room once.
        for end in [first, last] {
            self.add_outside(other.first_slot + end, 0);
        }
        let start = other.first_slot + first - self.first_slot;
        self.counts[start..]
            .iter_mut()
            .zip(&other.counts[first..=last])
            .for_each(|(mine, count)| *mine += count);
    }

    /// The number of durations.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The number of durations of zero.
    pub const fn zero_count(&self) -> u64 {
        self.zero
    }

    /// The sum of all durations in nanoseconds, exact.
    pub const fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The shortest duration, exact; `None` if empty.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The longest duration, exact; `None` if empty.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The `q` quantile (0 to 1) in nanoseconds; `None` if empty. This is the upper bound of the quantile's
    /// bucket, limited to the recorded range: at most 2.2 % above the true value, never below it.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = self.zero;
        if seen >= rank {
            return Some(0);
        }
        for (offset, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(UPPER_NS[self.first_slot + offset].clamp(self.min_ns, self.max_ns));
            }
        }
        Some(self.max_ns)
    }

    /// The buckets that are not empty: OpenTelemetry's index and the count, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .map(|(offset, &count)| ((self.first_slot + offset) as i32 + MIN_INDEX, count))
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn powers_of_two_seconds_are_upper_bounds_of_their_buckets() {
        // (2^(i/32), 2^((i+1)/32)]: one second is the upper bound of bucket -1.
        assert_eq!(index_of(NS_PER_S), Some(-1));
        assert_eq!(index_of(NS_PER_S + 1), Some(0));
        assert_eq!(index_of(2 * NS_PER_S), Some(31));
        assert_eq!(index_of(2 * NS_PER_S + 1), Some(32));
        assert_eq!(index_of(NS_PER_S / 2), Some(-33));
        assert_eq!(index_of(1), Some(MIN_INDEX));
        assert_eq!(index_of(u64::MAX), Some(MAX_INDEX));
        assert_eq!(index_of(0), None);
    }

    #[test]
    fn a_spanning_histogram_does_not_allocate_within_its_span() {
        let mut spanning = Histogram::spanning(64, 1 << 36);
        let bytes = spanning.heap_bytes();
        for ns in [64, 1_000, 1 << 36] {
            spanning.record(ns);
        }
        assert_eq!(spanning.heap_bytes(), bytes);
        spanning.record(1);
        assert_eq!((spanning.min_ns(), spanning.max_ns(), spanning.count()), (Some(1), Some(1 << 36), 4));
        let mut plain = Histogram::new();
        [64, 1_000, 1 << 36, 1].into_iter().for_each(|ns| plain.record(ns));
        assert!(spanning.buckets().eq(plain.buckets()));
        spanning.clear();
        assert_eq!((spanning.count(), spanning.quantile_ns(0.5), spanning.buckets().count()), (0, None, 0));
    }

    proptest! {
        /// The definition by logarithms, except at boundaries, which floating point cannot decide.
        #[test]
        fn the_table_agrees_with_the_logarithm(bits in 0u32..64, low in any::<u64>()) {
            let ns = ((1u64 << bits) | (low & ((1u64 << bits) - 1))).max(1);
            let exact = (ns as f64 / 1e9).log2() * 32.0;
            if (exact - exact.round()).abs() > 1e-6 {
                prop_assert_eq!(index_of(ns), Some(exact.floor() as i32));
            }
        }

        #[test]
        fn a_quantile_is_at_most_a_bucket_above_the_truth(
            mut values in proptest::collection::vec(0u64..20_000_000_000, 1..300),
            q in 0.0f64..=1.0,
        ) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&ns| histogram.record(ns));
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let (truth, reported) = (values[rank - 1], histogram.quantile_ns(q).unwrap());
            prop_assert!(reported >= truth && reported as f64 <= truth as f64 * 1.0219 + 1.0, "{truth} {reported}");
        }

        #[test]
        fn merging_equals_recording_together(
            a in proptest::collection::vec(any::<u64>(), 0..50),
            b in proptest::collection::vec(0u64..1_000_000, 0..50),
        ) {
            let record = |values: &[&[u64]]| {
                let mut histogram = Histogram::new();
                values.iter().flat_map(|v| v.iter()).for_each(|&ns| histogram.record(ns));
                histogram
            };
            let mut merged = record(&[&a]);
            merged.merge(&record(&[&b]));
            let together = record(&[&a, &b]);
            prop_assert_eq!(merged.buckets().collect::<Vec<_>>(), together.buckets().collect::<Vec<_>>());
            prop_assert_eq!(
                (merged.count(), merged.sum_ns(), merged.min_ns(), merged.max_ns(), merged.zero_count()),
                (together.count(), together.sum_ns(), together.min_ns(), together.max_ns(), together.zero_count())
            );
        }
    }
}
