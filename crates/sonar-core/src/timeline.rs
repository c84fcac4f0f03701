//! Figures over a time of unknown length: a fixed number of buckets whose width doubles when more are needed.

use crate::Timestamp;
use crate::time::NS_PER_S;

/// The maximum number of buckets.
pub const MAX_BUCKETS: usize = 64;
/// The initial width of a bucket, in nanoseconds.
pub const MIN_WIDTH_NS: u64 = NS_PER_S;

/// Figures of one bucket of time.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeBucket {
    /// Operations that ended in it.
    pub calls: u64,
    /// Sum of their latencies, in nanoseconds.
    pub latency_ns: u64,
    /// Documents or keys that they examined; for each operation the larger number.
    pub examined: u64,
    /// Documents that they returned or changed.
    pub returned: u64,
}

impl TimeBucket {
    /// Adds another bucket.
    pub fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.latency_ns = self.latency_ns.saturating_add(other.latency_ns);
        self.examined = self.examined.saturating_add(other.examined);
        self.returned = self.returned.saturating_add(other.returned);
    }
}

/// Buckets on wall-clock boundaries: they begin at multiples of their width since the Unix epoch, so that
/// timelines of different rows and files can be merged. Widths are [`MIN_WIDTH_NS`] times a power of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    width_ns: u64,
    /// Number of the first bucket: its start divided by the width.
    first: u64,
    buckets: Vec<TimeBucket>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width_ns: MIN_WIDTH_NS, first: 0, buckets: Vec::new() }
    }
}

impl Timeline {
    /// An empty timeline whose buckets are at least `width_ns` wide (0 counts as 1), for figures that are known by
    /// windows of this width only. Timelines whose first widths are no multiples of each other are merged
    /// approximately.
    pub fn of_width(width_ns: u64) -> Self {
        Self { width_ns: width_ns.max(1), ..Self::default() }
    }

    /// Adds the figures of operations that ended at `at`.
    #[inline]
    pub fn add(&mut self, at: Timestamp, what: TimeBucket) {
        let number = at.unix_ns() / self.width_ns;
        match self.buckets.get_mut(number.wrapping_sub(self.first) as usize) {
            Some(bucket) => bucket.add(what),
            None => self.add_outside(at, what),
        }
    }

    #[cold]
    fn add_outside(&mut self, at: Timestamp, what: TimeBucket) {
        if self.buckets.is_empty() {
            self.first = at.unix_ns() / self.width_ns;
            self.buckets.push(what);
            return;
        }
        loop {
            let number = at.unix_ns() / self.width_ns;
            let last = self.first + self.buckets.len() as u64 - 1;
            let (first, last) = (self.first.min(number), self.last_of(last, number));
            if last - first < MAX_BUCKETS as u64 {
                if number < self.first {
                    let more = (self.first - number) as usize;
                    self.buckets.splice(0..0, std::iter::repeat_n(TimeBucket::default(), more));
                    self.first = number;
                } else {
                    // After widening, the bucket may already exist.
                    let len = self.buckets.len().max((number - self.first) as usize + 1);
                    self.buckets.resize(len, TimeBucket::default());
                }
                self.buckets[(number - self.first) as usize].add(what);
                return;
            }
            self.widen();
        }
    }

    const fn last_of(&self, last: u64, number: u64) -> u64 {
        if last > number { last } else { number }
    }

    /// Doubles the width.
    fn widen(&mut self) {
        let first = self.first / 2;
        let mut buckets = vec![TimeBucket::default(); self.buckets.len() / 2 + 1];
        for (at, bucket) in (self.first..).zip(&self.buckets) {
            buckets[(at / 2 - first) as usize].add(*bucket);
        }
        while buckets.len() > 1 && buckets.last() == Some(&TimeBucket::default()) {
            buckets.pop();
        }
        (self.first, self.buckets, self.width_ns) = (first, buckets, self.width_ns.saturating_mul(2));
    }

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: &Self) {
        while self.width_ns < other.width_ns && !other.buckets.is_empty() {
            if self.buckets.is_empty() {
                self.width_ns = other.width_ns;
            } else {
                self.widen();
            }
        }
        for (start, bucket) in other.iter().filter(|(_, bucket)| *bucket != TimeBucket::default()) {
            self.add(start, bucket);
        }
    }

    /// Width of the buckets in nanoseconds.
    pub const fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// The buckets with their start times, from the first to the last that is not empty.
    pub fn iter(&self) -> impl Iterator<Item = (Timestamp, TimeBucket)> + '_ {
        let width = self.width_ns;
        (self.first..)
            .zip(&self.buckets)
            .map(move |(number, bucket)| (Timestamp::from_unix_ns(number.saturating_mul(width)), *bucket))
    }

    /// Start of the first bucket and end of the last; `None` if nothing was added.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        let begin = self.first.checked_mul(self.width_ns)?;
        let end = begin.saturating_add(self.width_ns.saturating_mul(self.buckets.len() as u64));
        (!self.buckets.is_empty()).then_some((Timestamp::from_unix_ns(begin), Timestamp::from_unix_ns(end)))
    }

    /// The same figures in `columns` equal parts of the span from `from` to `to`. Each bucket is added to the
    /// part that contains its middle. Parts without a bucket are zero.
    pub fn resampled(&self, from: Timestamp, to: Timestamp, columns: usize) -> Vec<TimeBucket> {
        let mut parts = vec![TimeBucket::default(); columns];
        let span = to.since(from).max(1);
        for (start, bucket) in self.iter() {
            let middle = start.plus_ns(self.width_ns / 2).since(from);
            let at = (u128::from(middle) * columns as u128 / u128::from(span)) as usize;
            if let Some(part) = parts.get_mut(at.min(columns.saturating_sub(1))) {
                part.add(bucket);
            }
        }
        parts
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<TimeBucket>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one() -> TimeBucket {
        TimeBucket { calls: 1, latency_ns: 3, examined: 7, returned: 2 }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_number_of_buckets_is_bounded(
            times in proptest::collection::vec(prop_oneof![0u64..100_000, any::<u64>()], 1..200),
            split in 0usize..200,
        ) {
            let split = split.min(times.len());
            let (mut whole, mut left, mut right) = <(Timeline, Timeline, Timeline)>::default();
            for (at, &seconds) in times.iter().enumerate() {
                let time = Timestamp::from_unix(seconds, 0);
                whole.add(time, one());
                if at < split { left.add(time, one()) } else { right.add(time, one()) }
                prop_assert!(whole.buckets.len() <= MAX_BUCKETS);
            }
            let sum = |line: &Timeline| line.iter().map(|(_, bucket)| bucket.calls).sum::<u64>();
            prop_assert_eq!(sum(&whole), times.len() as u64);
            left.merge(&right);
            prop_assert_eq!(sum(&left), times.len() as u64);
            let (from, to) = whole.span().unwrap();
            let within = |&s: &u64| (from..=to).contains(&Timestamp::from_unix(s, 0));
            prop_assert!(times.iter().all(within));
            prop_assert_eq!(whole.resampled(from, to, 7).iter().map(|b| b.calls).sum::<u64>(), sum(&whole));
        }
    }

    #[test]
    fn widening_for_an_earlier_time_keeps_later_buckets() {
        let mut line = Timeline::default();
        // The third one is in the span of the first bucket once that is two seconds wide.
        for seconds in [101, 164, 100] {
            line.add(Timestamp::from_unix(seconds, 0), one());
        }
        let calls: Vec<_> = line
            .iter()
            .filter(|(_, b)| b.calls > 0)
            .map(|(t, b)| (t.unix_ns() / NS_PER_S, b.calls))
            .collect();
        assert_eq!(calls, [(100, 2), (164, 1)]);
    }

    #[test]
    fn buckets_lie_on_multiples_of_their_width() {
        let mut line = Timeline::default();
        line.add(Timestamp::from_unix(1_003, 0), one());
        line.add(Timestamp::from_unix(1_000, 5), one());
        assert_eq!(line.iter().count(), 4);
        line.add(Timestamp::from_unix(1_000 + 64, 0), one());
        assert_eq!(line.width_ns(), 2 * NS_PER_S);
        let begins: Vec<_> =
            line.iter().filter(|(_, b)| b.calls > 0).map(|(t, _)| t.unix_ns() / NS_PER_S).collect();
        assert_eq!(begins, [1_000, 1_002, 1_064]);
    }
}
