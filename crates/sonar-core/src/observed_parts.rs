//! When something was observed: the time that rates are divided by.

use std::collections::BTreeMap;

use crate::timeline::{MAX_BUCKETS, MIN_WIDTH_NS};
use crate::{Timeline, Timestamp};

/// How long a source was observed, in total and in parts of equal width. The parts lie on the same boundaries as the
/// buckets of a [`Timeline`] of the same width, so that both can be set against each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedParts {
    width_ns: u64,
    /// By number of the part (its start divided by the width): nanoseconds.
    parts: BTreeMap<u64, u64>,
    total_ns: u64,
    /// When it began; `None` if nothing was observed.
    start: Option<Timestamp>,
}

impl Default for ObservedParts {
    fn default() -> Self {
        Self::of_width(MIN_WIDTH_NS)
    }
}

impl ObservedParts {
    /// Nothing yet; parts are at least `width_ns` wide (0 counts as 1).
    pub fn of_width(width_ns: u64) -> Self {
        Self { width_ns: width_ns.max(1), parts: BTreeMap::new(), total_ns: 0, start: None }
    }

    /// All of the time from `from` to `to`; nothing if it ends before it begins.
    pub fn between(from: Timestamp, to: Timestamp) -> Self {
        let mut all = Self::default();
        let (from, to) = (from.unix_ns(), to.unix_ns());
        if to <= from {
            return all;
        }
        while to / all.width_ns - from / all.width_ns >= MAX_BUCKETS as u64 {
            all.width_ns = all.width_ns.saturating_mul(2);
        }
        let mut begin = from;
        while begin < to {
            let number = begin / all.width_ns;
            let end = (number + 1).saturating_mul(all.width_ns).min(to);
            all.parts.insert(number, end - begin);
            begin = end;
        }
        all.total_ns = to - from;
        all.start = Some(Timestamp::from_unix_ns(from));
        all
    }

    /// Adds `ns` nanoseconds of a window that starts at `start`.
    pub fn add(&mut self, start: Timestamp, ns: u64) {
        self.total_ns = self.total_ns.saturating_add(ns);
        self.start = Some(self.start.map_or(start, |known| known.min(start)));
        loop {
            let number = start.unix_ns() / self.width_ns;
            let first = self.parts.keys().next().map_or(number, |first| number.min(*first));
            let last = self.parts.keys().next_back().map_or(number, |last| number.max(*last));
            if last - first < MAX_BUCKETS as u64 {
                let part = self.parts.entry(number).or_default();
                *part = part.saturating_add(ns);
                return;
            }
            self.widen();
        }
    }

    fn widen(&mut self) {
        let mut parts: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, ns) in &self.parts {
            let part = parts.entry(number / 2).or_default();
            *part = part.saturating_add(*ns);
        }
        (self.parts, self.width_ns) = (parts, self.width_ns.saturating_mul(2));
    }

    /// How long, in nanoseconds; 0 if nothing was observed.
    pub const fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// When it began, and when it ended if there was no pause; `None` if nothing was observed.
    pub fn ends(&self) -> Option<(Timestamp, Timestamp)> {
        self.start.map(|start| (start, start.plus_ns(self.total_ns)))
    }

    /// How long, in seconds.
    pub fn seconds(&self) -> f64 {
        self.total_ns as f64 / 1e9
    }

    /// For each part that was observed: the calls that `line` has in it, and the seconds.
    pub fn calls(&self, line: &Timeline) -> Vec<(u64, f64)> {
        let mut calls: BTreeMap<u64, u64> = BTreeMap::new();
        for (start, bucket) in line.iter() {
            *calls.entry(start.unix_ns() / self.width_ns).or_default() += bucket.calls;
        }
        let observed = self.parts.iter().filter(|(_, ns)| **ns > 0);
        observed.map(|(number, ns)| (calls.get(number).copied().unwrap_or(0), *ns as f64 / 1e9)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::TimeBucket;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(seconds, 0)
    }

    proptest! {
        #[test]
        fn windows_and_their_calls_meet_in_the_same_parts(
            windows in proptest::collection::btree_map(0u64..5_000, (0u64..100, 0u64..=10), 1..300),
        ) {
            let mut observed = ObservedParts::of_width(10_000_000_000);
            let mut line = Timeline::of_width(10_000_000_000);
            for (number, (calls, seconds)) in &windows {
                let start = at(number * 10);
                observed.add(start, seconds * 1_000_000_000);
                line.add(start, TimeBucket { calls: *calls, ..TimeBucket::default() });
            }
            let seconds: u64 = windows.values().map(|(_, seconds)| seconds).sum();
            prop_assert_eq!(observed.total_ns(), seconds * 1_000_000_000);
            let parts = observed.calls(&line);
            prop_assert!(parts.len() <= MAX_BUCKETS);
            prop_assert!((parts.iter().map(|(_, seconds)| seconds).sum::<f64>() - seconds as f64).abs() < 1e-6);
            if windows.values().all(|(_, seconds)| *seconds > 0) {
                let calls: u64 = windows.values().map(|(calls, _)| calls).sum();
                prop_assert_eq!(parts.iter().map(|(calls, _)| calls).sum::<u64>(), calls);
            }
        }

        #[test]
        fn a_span_has_its_length(from in 0u64..1 << 60, length in 0u64..1 << 58) {
            let from = Timestamp::from_unix_ns(from);
            let observed = ObservedParts::between(from, from.plus_ns(length));
            prop_assert_eq!(observed.total_ns(), length);
            prop_assert_eq!(observed.parts.values().sum::<u64>(), length);
            prop_assert!(observed.parts.len() <= MAX_BUCKETS);
        }
    }
}
