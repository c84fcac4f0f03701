//! A value over time, in a bounded number of buckets.

/// The most buckets of a trend: about the pixels of a chart.
const MAX_BUCKETS: usize = 1_200;
/// The first width of a bucket, in milliseconds.
const FIRST_WIDTH_MS: i64 = 1_000;

/// The values of one bucket.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct TrendBucket {
    /// Its begin, in milliseconds since 1970, a multiple of the width.
    pub start_ms: i64,
    /// The smallest value.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Sum of the values.
    pub sum: f64,
    /// Number of values.
    pub count: u64,
}

impl TrendBucket {
    /// The mean.
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    fn merge(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }
}

/// A value over time. Whoever keeps several widens them together, so that their buckets stay aligned.
#[derive(Clone, Debug, PartialEq)]
pub struct Trend {
    width_ms: i64,
    /// By time; empty ones are left out.
    buckets: Vec<TrendBucket>,
}

impl Default for Trend {
    fn default() -> Self {
        Self { width_ms: FIRST_WIDTH_MS, buckets: Vec::new() }
    }
}

impl Trend {
    /// Adds a value. Times may go back, which costs more.
    pub fn add(&mut self, time_ms: i64, value: f64) {
        let start_ms = time_ms.div_euclid(self.width_ms).saturating_mul(self.width_ms);
        let new = TrendBucket { start_ms, min: value, max: value, sum: value, count: 1 };
        match self.buckets.last_mut() {
            Some(last) if last.start_ms == start_ms => last.merge(&new),
            Some(last) if last.start_ms > start_ms => {
                match self.buckets.binary_search_by_key(&start_ms, |bucket| bucket.start_ms) {
                    Ok(at) => self.buckets[at].merge(&new),
                    Err(at) => self.buckets.insert(at, new),
                }
            }
            _ => self.buckets.push(new),
        }
    }

    /// It has more buckets than it should.
    pub fn is_full(&self) -> bool {
        self.buckets.len() > MAX_BUCKETS
    }

    /// Width of a bucket in milliseconds.
    pub fn width_ms(&self) -> i64 {
        self.width_ms
    }

    /// The buckets that have values, by time.
    pub fn buckets(&self) -> &[TrendBucket] {
        &self.buckets
    }

    /// Doubles the width of its buckets.
    pub fn widen(&mut self) {
        self.width_ms = self.width_ms.saturating_mul(2);
        let width = self.width_ms;
        for bucket in &mut self.buckets {
            bucket.start_ms = bucket.start_ms.div_euclid(width).saturating_mul(width);
        }
        self.buckets.dedup_by(|later, kept| {
            let same = later.start_ms == kept.start_ms;
            if same {
                kept.merge(later);
            }
            same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_widen_and_lose_nothing() {
        let mut trend = Trend::default();
        let seconds = 10_000;
        for second in 0..seconds {
            trend.add(second * 1_000, second as f64);
            while trend.is_full() {
                trend.widen();
            }
        }
        assert!(trend.buckets().len() <= MAX_BUCKETS);
        assert_eq!(trend.width_ms(), 16_000);
        assert_eq!(trend.buckets().iter().map(|bucket| bucket.count).sum::<u64>(), seconds as u64);
        let second = trend.buckets()[1];
        assert_eq!((second.start_ms, second.min, second.max, second.mean()), (16_000, 16.0, 31.0, 23.5));
    }

    #[test]
    fn a_clock_that_is_set_back_adds_to_earlier_buckets() {
        let mut trend = Trend::default();
        for (time, value) in [(5_000, 1.0), (9_000, 2.0), (5_500, 3.0), (7_000, 4.0)] {
            trend.add(time, value);
        }
        let found: Vec<_> = trend.buckets().iter().map(|bucket| (bucket.start_ms, bucket.max)).collect();
        assert_eq!(found, [(5_000, 3.0), (7_000, 4.0), (9_000, 2.0)]);
    }
}
