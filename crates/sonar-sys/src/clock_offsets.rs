//! Converts readings of the monotonic clock to times, even if the clock is set during a trace.

use std::collections::VecDeque;

use sonar_core::Timestamp;

/// The most steps of the clock to remember.
const MAX_STEPS: usize = 64;
/// The smallest step in nanoseconds; a smaller difference may come from reading two clocks one after the other.
const SMALLEST_STEP_NS: u64 = 1_000_000;

/// How far the time was ahead of the monotonic clock, and since when. Offsets are modulo 2^64.
#[derive(Debug)]
pub struct ClockOffsets {
    /// Readings of the monotonic clock with the offset from then on; at least one.
    since: VecDeque<(u64, u64)>,
}

impl ClockOffsets {
    pub fn new(offset_ns: u64) -> Self {
        Self { since: VecDeque::from([(0, offset_ns)]) }
    }

    /// Notes that the offset is `offset_ns` now. A new one holds from now on, because nobody knows when exactly the
    /// clock was set.
    pub fn note(&mut self, monotonic_ns: u64, offset_ns: u64) {
        let last = self.since.back().map_or(offset_ns, |(_, offset)| *offset);
        let step = offset_ns.wrapping_sub(last).cast_signed();
        if step.unsigned_abs() < SMALLEST_STEP_NS {
            return;
        }
        if self.since.len() >= MAX_STEPS {
            self.since.pop_front();
        }
        self.since.push_back((monotonic_ns, offset_ns));
    }

    /// The offset at a reading of the monotonic clock.
    pub fn at(&self, monotonic_ns: u64) -> u64 {
        let held = self.since.iter().rev().find(|(since, _)| *since <= monotonic_ns);
        held.or(self.since.front()).map_or(0, |(_, offset)| *offset)
    }

    /// The time at a reading of the monotonic clock.
    pub fn time(&self, monotonic_ns: u64) -> Timestamp {
        Timestamp::from_unix_ns(monotonic_ns.wrapping_add(self.at(monotonic_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn a_clock_that_is_set_counts_for_what_begins_later() {
        let mut offsets = ClockOffsets::new(50 * HOUR);
        offsets.note(1_000, 50 * HOUR + SMALLEST_STEP_NS - 1);
        offsets.note(2_000, 51 * HOUR);
        offsets.note(3_000, 51 * HOUR - 1);
        // Back again, to before the first time.
        offsets.note(4_000, 49 * HOUR);
        let at = |ns| offsets.time(ns).unix_ns() - ns;
        assert_eq!([0, 1_000, 1_999].map(at), [50 * HOUR; 3]);
        assert_eq!([2_000, 3_999].map(at), [51 * HOUR; 2]);
        assert_eq!([4_000, HOUR].map(at), [49 * HOUR; 2]);
    }

    #[test]
    fn steps_are_bounded_and_the_latest_stay() {
        let mut offsets = ClockOffsets::new(0);
        for step in 1..=1_000 {
            offsets.note(step * 10, step * HOUR);
        }
        assert_eq!(offsets.since.len(), MAX_STEPS);
        assert_eq!([offsets.at(10_000), offsets.at(9_995)], [1_000 * HOUR, 999 * HOUR]);
        assert_eq!(offsets.at(5), (1_000 - MAX_STEPS as u64 + 1) * HOUR, "the oldest that is known");
    }
}
