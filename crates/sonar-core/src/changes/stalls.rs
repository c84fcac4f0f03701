//! Operations of a shape that took far longer than its others: what waited for something, and the rest apart from it.

use super::holds::{Hold, Waited};
use crate::figures::Figures;
use crate::histogram::upper_bound_ns;
use crate::history::{HistoryWindow, Span};
use crate::significance::MIN_CALLS;
use crate::{Histogram, Timestamp};

/// The time from which on a single operation of a new shape is reported.
pub(super) const LONG_NS: u64 = 500_000_000;
/// Below this an operation that nothing held is not stalled.
pub(super) const MIN_STALL_NS: u64 = LONG_NS / 5;
/// How many times as long as the longest one before an operation must take to be stalled, besides [`LONG_NS`].
const STALL_FACTOR: u64 = 10;
/// At most one operation in this number is stalled; where there are more, the shape is slower.
const MAX_STALLED: u64 = 5;

/// Operations of a shape that stalled.
#[derive(Clone, Debug)]
pub(super) struct Stall {
    /// How many, and how long they took.
    pub waited: Waited,
    /// The latencies of the others in the span.
    pub others: Histogram,
    /// The probability that they did by chance.
    pub p: f64,
    /// When the first of them began to wait, or the start of the window in which it ended.
    pub since: Timestamp,
}

/// A shape whose operations may have stalled.
pub(super) struct StallTest<'a> {
    /// Latencies of the time before.
    pub before: &'a Histogram,
    /// Windows of the span with operations.
    pub after: Vec<(&'a HistoryWindow, &'a Figures)>,
    /// Windows behind the span: what the span held may end there.
    pub later: Vec<(&'a HistoryWindow, &'a Figures)>,
    /// What waits at the end of all of them.
    pub waiting: Waited,
}

/// Durations in nanoseconds, above and up to.
type RangeNs = (u64, u64);

impl StallTest<'_> {
    /// Operations that were held: where the server says that it held operations, nothing else is needed to tell.
    pub fn held(&self, holds: &[Hold]) -> Option<Stall> {
        let usual_ns = self.before.quantile_ns(0.9).unwrap_or(0);
        let ranges = |window: &HistoryWindow| -> Vec<RangeNs> {
            let span = Span { from: window.window.start, to: window.window.end };
            holds.iter().filter_map(|hold| hold.range_ns(span, usual_ns)).collect()
        };
        let (mut waited, others) = self.divided(&ranges);
        for (window, figures) in &self.later {
            divide(figures, &ranges(window), &mut waited, &mut Histogram::new());
        }
        waited.add_all(self.waiting);
        let since = holds.iter().map(|hold| hold.lasts.from).min()?;
        (waited.count > 0).then_some(Stall { waited, others, p: 0.0, since })
    }

    /// A few operations that took longer than any before.
    pub fn longer_than_any(&self) -> Option<Stall> {
        let longest = self.before.max_ns()?;
        let range = [(longest.saturating_mul(2), u64::MAX)];
        let (waited, others) = self.divided(&|_| range.to_vec());
        let now = self.after.iter().filter_map(|(_, figures)| figures.latency.max_ns()).max()?;
        let calls = waited.count + others.count();
        // Where many are slow, the shape is slower.
        let is_common = waited.count.saturating_mul(MAX_STALLED) > calls;
        if self.before.count() < MIN_CALLS || waited.count == 0 || is_common || now < MIN_STALL_NS {
            return None;
        }
        let is_extreme = now >= LONG_NS && now >= longest.saturating_mul(STALL_FACTOR);
        let share = calls as f64 / (calls + self.before.count()).max(1) as f64;
        let p = if is_extreme { 0.0 } else { share.powf(waited.count as f64) };
        let has_one = |figures: &Figures| {
            let mut waited = Waited::default();
            divide(figures, &range, &mut waited, &mut Histogram::new());
            waited.count > 0
        };
        let (first, _) = self.after.iter().find(|(_, figures)| has_one(figures))?;
        Some(Stall { waited, others, p, since: first.window.start })
    }

    /// The operations of the span that took so long, and the latencies of the others.
    fn divided(&self, ranges: &dyn Fn(&HistoryWindow) -> Vec<RangeNs>) -> (Waited, Histogram) {
        let (mut waited, mut others) = (Waited::default(), Histogram::new());
        for (window, figures) in &self.after {
            divide(figures, &ranges(window), &mut waited, &mut others);
        }
        (waited, others)
    }
}

/// Adds the operations whose durations are in one of `ranges` to `waited`, and the rest to `others`.
fn divide(figures: &Figures, ranges: &[RangeNs], waited: &mut Waited, others: &mut Histogram) {
    let latency = &figures.latency;
    if ranges.is_empty() {
        others.merge(latency);
        return;
    }
    let longest = latency.max_ns().unwrap_or(0);
    others.record_many(0, latency.zero_count());
    for (index, count) in latency.buckets() {
        let bound = upper_bound_ns(index);
        match ranges.iter().any(|(above, up_to)| bound > *above && bound <= *up_to) {
            true => waited.add(count, bound.min(longest)),
            false => others.record_many(bound, count),
        }
    }
}
