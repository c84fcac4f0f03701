//! Operations in progress over time, by what they did.

use super::{JoinedOperation, TimeSplit};
use crate::Timestamp;

/// The most intervals. When there are more, pairs of intervals are joined.
pub const MAX_INTERVALS: usize = 600;
/// The width of an interval at first, in nanoseconds.
const FIRST_WIDTH_NS: u64 = 125_000_000;

/// What operations did in an interval, in nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ActivityInterval {
    /// The measured parts.
    pub split: TimeSplit,
    /// Not yet read by the server.
    pub unread_ns: u64,
    /// Explained by no part.
    pub unexplained_ns: u64,
}

impl ActivityInterval {
    fn add(&mut self, other: &Self) {
        self.split.add(&other.split);
        self.unread_ns = self.unread_ns.saturating_add(other.unread_ns);
        self.unexplained_ns = self.unexplained_ns.saturating_add(other.unexplained_ns);
    }

    /// The share `part` / `whole` of all values.
    fn scaled(&self, part: u64, whole: u64) -> Self {
        let scale = |ns: u64| (u128::from(ns) * u128::from(part) / u128::from(whole.max(1))) as u64;
        let mut split = TimeSplit::default();
        for (part, ns) in self.split.parts() {
            split[part] = scale(ns);
        }
        Self { split, unread_ns: scale(self.unread_ns), unexplained_ns: scale(self.unexplained_ns) }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            split: self.split.since(&earlier.split),
            unread_ns: self.unread_ns.saturating_sub(earlier.unread_ns),
            unexplained_ns: self.unexplained_ns.saturating_sub(earlier.unexplained_ns),
        }
    }
}

/// The time of operations, by part and by equal intervals from the start of a trace. Divided by the width of an
/// interval, it is the average number of operations that were in progress.
///
/// When each part of an operation happened is not known: its time is spread evenly from its arrival to its end.
#[derive(Clone, Debug)]
pub struct Activity {
    start: Timestamp,
    width_ns: u64,
    intervals: Vec<ActivityInterval>,
}

impl Default for Activity {
    fn default() -> Self {
        Self::since(Timestamp::default())
    }
}

impl Activity {
    /// No operations yet, for a trace that starts at `start`.
    pub fn since(start: Timestamp) -> Self {
        Self { start, width_ns: FIRST_WIDTH_NS, intervals: Vec::new() }
    }

    /// Adds an operation. What it did before the start of the trace counts for the first interval.
    pub fn add(&mut self, operation: &JoinedOperation) {
        let thread = &operation.thread;
        let total = operation.total_ns();
        let whole = ActivityInterval {
            split: thread.split,
            unread_ns: operation.unread_ns(),
            unexplained_ns: thread.duration_ns.saturating_sub(thread.split.total_ns()),
        };
        let end = thread.end.since(self.start);
        // Zero if it began before the trace.
        let begin = end.saturating_sub(total);
        self.make_room(end);
        let (first, last) = (begin / self.width_ns, end.saturating_sub(1).max(begin) / self.width_ns);
        let mut before = ActivityInterval::default();
        for at in first..=last {
            // The sum up to the end of the interval, so that rounding loses nothing.
            let until =
                if at == last { whole } else { whole.scaled((at + 1) * self.width_ns - begin, end - begin) };
            self.intervals[at as usize].add(&until.since(&before));
            before = until;
        }
    }

    /// Widens the intervals until they reach `end`, in nanoseconds since the start.
    fn make_room(&mut self, end: u64) {
        while end.saturating_sub(1) / self.width_ns >= MAX_INTERVALS as u64 {
            self.width_ns *= 2;
            self.intervals = self
                .intervals
                .chunks(2)
                .map(|pair| {
                    let mut sum = pair[0];
                    pair[1..].iter().for_each(|second| sum.add(second));
                    sum
                })
                .collect();
        }
        let needed = (end.saturating_sub(1) / self.width_ns) as usize + 1;
        if self.intervals.len() < needed {
            self.intervals.resize(needed, ActivityInterval::default());
        }
    }

    /// The start of the first interval.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The width of an interval, in nanoseconds.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// The intervals up to `end`, the end of the trace; those without operations are zero. The rest after the last
    /// whole interval belongs to that one, and so do operations that ended after the trace.
    pub fn until(mut self, end: Timestamp) -> Self {
        let length = end.since(self.start);
        self.make_room(length);
        let count = (length / self.width_ns).max(1) as usize;
        let late = self.intervals.split_off(count.min(self.intervals.len()));
        if let Some(last) = self.intervals.last_mut() {
            late.iter().for_each(|interval| last.add(interval));
        }
        self
    }

    /// The intervals, the earliest first.
    pub fn intervals(&self) -> &[ActivityInterval] {
        &self.intervals
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::super::TimePart;
    use super::*;
    use crate::testing::{thread_operation as thread, wire_operation as wire};

    const START: u64 = 1_000_000_000_000;

    /// An operation that ends `end_ns` after the start and spent its time on a processor, in reads, and unread.
    fn operation(end_ns: u64, cpu: u64, read: u64, unread: u64) -> JoinedOperation {
        let mut thread = thread(1, START + end_ns - cpu - read);
        thread.duration_ns = cpu + read;
        thread.end = Timestamp::from_unix_ns(START + end_ns);
        thread.split[TimePart::Cpu] = cpu;
        thread.split[TimePart::Read] = read;
        JoinedOperation { wire: wire(1, START + end_ns - cpu - read - unread), thread }
    }

    fn since_start() -> Activity {
        Activity::since(Timestamp::from_unix_ns(START))
    }

    fn sums(activity: &Activity) -> (u64, u64, u64) {
        let sum = |of: &dyn Fn(&ActivityInterval) -> u64| activity.intervals().iter().map(of).sum();
        (
            sum(&|interval| interval.split[TimePart::Cpu]),
            sum(&|interval| interval.split[TimePart::Read]),
            sum(&|interval| interval.unread_ns + interval.unexplained_ns),
        )
    }

    #[test]
    fn the_time_of_an_operation_is_spread_over_the_intervals_in_which_it_ran() {
        let mut activity = since_start();
        // From 62.5 ms to 312.5 ms: a quarter, a half, a quarter.
        activity.add(&operation(312_500_000, 50_000_000, 150_000_000, 50_000_000));
        let found: Vec<_> = activity
            .intervals()
            .iter()
            .map(|interval| {
                (interval.split[TimePart::Cpu], interval.split[TimePart::Read], interval.unread_ns)
            })
            .collect();
        let (quarter, half) = ((12_500_000, 37_500_000, 12_500_000), (25_000_000, 75_000_000, 25_000_000));
        assert_eq!(found, [quarter, half, quarter]);
        // An operation within one interval, which ends with it.
        activity.add(&operation(125_000_000, 1_000, 0, 0));
        assert_eq!(activity.intervals()[0].split[TimePart::Cpu], 12_501_000);
        assert_eq!(activity.intervals()[1].split[TimePart::Cpu], 25_000_000);
    }

    #[test]
    fn what_happened_before_the_start_is_in_the_first_interval() {
        let mut activity = since_start();
        activity.add(&operation(1_000, 5_000, 0, 3_000));
        assert_eq!(activity.intervals().len(), 1);
        assert_eq!(sums(&activity), (5_000, 0, 3_000));
        // The clock was set back.
        let mut earlier = operation(0, 100, 0, 0);
        earlier.thread.end = Timestamp::from_unix_ns(START - 7);
        activity.add(&earlier);
        assert_eq!(sums(&activity), (5_100, 0, 3_000));
    }

    #[test]
    fn a_trace_ends_with_a_whole_interval() {
        let mut activity = since_start();
        activity.add(&operation(100_000_000, 1_000, 0, 0));
        // 0.4 s is three intervals and a rest.
        let intervals = |activity: Activity| activity.until(Timestamp::from_unix_ns(START + 400_000_000));
        assert_eq!(intervals(activity.clone()).intervals().len(), 3);
        activity.add(&operation(399_000_000, 2_000, 0, 0));
        activity.add(&operation(900_000_000, 4_000, 0, 0));
        let ended = intervals(activity);
        assert_eq!(ended.intervals().len(), 3);
        assert_eq!(ended.intervals()[2].split[TimePart::Cpu], 6_000);
        assert_eq!(intervals(since_start()).intervals().len(), 3, "nothing was in progress");
        assert_eq!(since_start().until(Timestamp::from_unix_ns(START)).intervals().len(), 1);
    }

    #[test]
    fn a_long_trace_has_wider_intervals_and_the_same_sums() {
        let mut activity = since_start();
        for second in 1..=3_600 {
            activity.add(&operation(second * 1_000_000_000, 300_000_000, 600_000_000, 50_000_000));
            assert!(activity.intervals().len() <= MAX_INTERVALS);
        }
        assert_eq!(activity.width_ns(), 8_000_000_000);
        let ended = activity.until(Timestamp::from_unix_ns(START + 3_600_000_000_000));
        assert_eq!(ended.intervals().len(), 450);
        assert_eq!(sums(&ended), (3_600 * 300_000_000, 3_600 * 600_000_000, 3_600 * 50_000_000));
        assert_eq!(ended.intervals()[200].split[TimePart::Cpu], 8 * 300_000_000);
        // A clock that jumps far ahead costs resolution, not memory.
        let mut activity = since_start();
        let mut far = operation(1_000, 1_000, 0, 0);
        far.thread.end = Timestamp::from_unix_ns(u64::MAX);
        activity.add(&far);
        assert!(activity.intervals().len() <= MAX_INTERVALS);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_added(
            operations in proptest::collection::vec(
                (0u64..2_000_000_000_000, 0u64..3_000_000_000, 0u64..90_000_000_000, 0u64..1_000_000), 1..40),
        ) {
            let mut activity = since_start();
            let mut expected = (0, 0, 0);
            for (end, cpu, read, unread) in operations {
                activity.add(&operation(end + cpu + read + unread, cpu, read, unread));
                expected = (expected.0 + cpu, expected.1 + read, expected.2 + unread);
            }
            prop_assert_eq!(sums(&activity), expected);
            prop_assert!(activity.intervals().len() <= MAX_INTERVALS);
            let ended = activity.until(Timestamp::from_unix_ns(START + 1_000_000_000_000));
            prop_assert_eq!(sums(&ended), expected);
        }
    }
}
