//! Where the time of a shape's operations went on both sides, and which part of it grew.

use std::sync::Arc;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::change::{GrownTime, SplitChange, SplitGrowth};
use crate::ShapeInfo;
use crate::significance::{MIN_CALLS, MIN_FACTOR, holm_at};
use crate::time_split::{OTHER, RowSplit, TimePart};

/// The minimum number of parts of the time before for saying what is usual.
const MIN_PARTS: usize = 4;
/// A part has grown if it has this share of what the time of an operation grew.
const MIN_SHARE: f64 = 0.25;
/// A file or a wait class is named if it has this share of the growth of its part.
const MIN_NAMED: f64 = 0.5;

/// Waits that other threads end: those for locks, tickets and conditions.
const IS_ENDED: [TimePart; 3] = [TimePart::Futex, TimePart::Poll, TimePart::Other];

/// The splits of one shape: those of the windows before, of those right before the span, and of the span.
pub(super) struct ShapeSplits<'a> {
    pub before: Vec<&'a RowSplit>,
    pub recent: Vec<&'a RowSplit>,
    pub after: Vec<&'a RowSplit>,
}

impl ShapeSplits<'_> {
    /// Both sides, and what grew beyond chance, the most first; `None` if a side has fewer than [`MIN_CALLS`] divided
    /// operations. `slower_ns` is what the mean latency of all operations grew.
    pub fn change(&self, slower_ns: f64, alpha: f64) -> Option<SplitChange> {
        let (before, after) = self.sides()?;
        let candidates = self.candidates(&before, &after, slower_ns);
        let p: Vec<f64> = candidates.iter().map(|(_, p)| *p).collect();
        let found =
            candidates.iter().zip(holm_at(&p, alpha)).filter(|(_, is_beyond_chance)| *is_beyond_chance);
        let mut grown: Vec<SplitGrowth> =
            found.map(|((what, _), _)| growth(*what, &before, &after)).collect();
        grown.sort_by(|a, b| (b.after_ns - b.before_ns).total_cmp(&(a.after_ns - a.before_ns)));
        Some(SplitChange { before, after, grown })
    }

    /// The probability that some part of the time grew as much by chance (0 to 1); `None` if a side has fewer than
    /// [`MIN_CALLS`] divided operations, or no part grew.
    pub fn chance_of_growth(&self, slower_ns: f64) -> Option<f64> {
        let (before, after) = self.sides()?;
        let candidates = self.candidates(&before, &after, slower_ns);
        let least = candidates.iter().map(|(_, p)| *p).reduce(f64::min)?;
        Some((least * candidates.len() as f64).min(1.0))
    }

    fn sides(&self) -> Option<(RowSplit, RowSplit)> {
        let (before, after) = (merged(&self.recent), merged(&self.after));
        (before.operations.min(after.operations) >= MIN_CALLS).then_some((before, after))
    }

    /// The parts of the time that grew, each with the probability that it did by chance.
    fn candidates(&self, before: &RowSplit, after: &RowSplit, slower_ns: f64) -> Vec<(GrownTime, f64)> {
        let (usual, now) = (parts_of(&self.before), parts_of(&self.after));
        // The divided operations may be others than the slow ones.
        let whole = slower_ns.max(each(after, RowSplit::total_ns) - each(before, RowSplit::total_ns));
        if usual.len() < MIN_PARTS || slower_ns <= 0.0 {
            return Vec::new();
        }
        let grown = GrownTime::all().filter_map(|what| {
            let mean = |split: &RowSplit| each(split, |split| what.ns(split));
            let (from, to) = (mean(before), mean(after));
            let mut values: Vec<f64> = usual.iter().map(mean).collect();
            let p = chance_of_time(&values, to, now.len());
            values.sort_by(f64::total_cmp);
            let high = values[((values.len() - 1) as f64 * 0.9).round() as usize];
            let is_material = to - from >= MIN_SHARE * whole;
            (is_material && to >= MIN_FACTOR * from && to > high).then_some((what, p))
        });
        grown.collect()
    }
}

fn merged(all: &[&RowSplit]) -> RowSplit {
    let mut sum = RowSplit::default();
    all.iter().for_each(|split| sum.merge(split));
    sum
}

/// Splits of neighbouring windows, each of at least [`MIN_CALLS`] operations but the last.
fn parts_of(all: &[&RowSplit]) -> Vec<RowSplit> {
    let mut parts: Vec<RowSplit> = Vec::new();
    for split in all {
        match parts.last_mut() {
            Some(last) if last.operations < MIN_CALLS => last.merge(split),
            _ => parts.push((*split).clone()),
        }
    }
    parts
}

/// Per operation.
fn each(split: &RowSplit, ns: impl Fn(&RowSplit) -> u64) -> f64 {
    ns(split) as f64 / split.operations.max(1) as f64
}

/// Times below this are all the same, in nanoseconds.
const SHORTEST_NS: f64 = 1_000.0;

/// The probability that times are at least `mean` in `parts` values, if they are usual. Times vary by factors, so it is
/// judged on a logarithmic scale: one long wait earlier does not hide that all are long now.
fn chance_of_time(usual: &[f64], mean: f64, parts: usize) -> f64 {
    let log = |ns: f64| ns.max(SHORTEST_NS).ln();
    let usual: Vec<f64> = usual.iter().map(|ns| log(*ns)).collect();
    chance(&usual, log(mean), parts)
}

/// The probability that the mean of `parts` values is at least `mean`, if it is usual: Student's t-test, with the
/// scatter of the `usual` values, because the span may have one part only.
pub(super) fn chance(usual: &[f64], mean: f64, parts: usize) -> f64 {
    let n = usual.len() as f64;
    let center = usual.iter().sum::<f64>() / n;
    let variance = usual.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (n - 1.0);
    let error = (variance * (1.0 / n + 1.0 / parts.max(1) as f64)).sqrt();
    if error <= 0.0 {
        return if mean > center { 0.0 } else { 1.0 };
    }
    StudentsT::new(0.0, 1.0, n - 1.0).map_or(1.0, |t| t.cdf((center - mean) / error))
}

/// What grew, with the file or the wait class that has most of it.
fn growth(what: GrownTime, before: &RowSplit, after: &RowSplit) -> SplitGrowth {
    let mean = |split: &RowSplit| each(split, |split| what.ns(split));
    let (before_ns, after_ns) = (mean(before), mean(after));
    let is_most = |(_, grown): &(&Arc<str>, f64)| *grown >= MIN_NAMED * (after_ns - before_ns);
    let largest = |all: Vec<(&Arc<str>, f64)>| -> Option<Arc<str>> {
        let named = all.into_iter().filter(|(name, _)| ***name != *OTHER).filter(is_most);
        named.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name.clone())
    };
    let waits =
        after.waits.iter().filter(|((part, _), _)| GrownTime::Part(*part) == what).map(|(key, now)| {
            let earlier = before.waits.get(key).map_or(0, |waits| waits.wait_ns);
            (&key.1, each(after, |_| now.wait_ns) - each(before, |_| earlier))
        });
    let is_read = what == GrownTime::Part(TimePart::Read);
    let files = after.files.iter().filter(|_| is_read).map(|(name, now)| {
        let earlier = before.files.get(name).map_or(0, |reads| reads.wait_ns);
        (name, each(after, |_| now.wait_ns) - each(before, |_| earlier))
    });
    let (class, file) = (largest(waits.collect()), largest(files.collect()));
    let is_wait = matches!(what, GrownTime::Part(part) if IS_ENDED.contains(&part));
    let blocker = is_wait.then(|| blocker(before, after, MIN_NAMED * (after_ns - before_ns))).flatten();
    SplitGrowth { what, before_ns, after_ns, class, file, blocker }
}

/// The shape whose operations ended waits that grew most, by at least `least` nanoseconds of an operation.
fn blocker(before: &RowSplit, after: &RowSplit, least: f64) -> Option<Arc<ShapeInfo>> {
    let grown = after.blockers.values().filter(|now| now.shape.id != ShapeInfo::other().id).map(|now| {
        let earlier = before.blockers.get(&now.shape.id).map_or(0, |known| known.waits.wait_ns);
        (&now.shape, each(after, |_| now.waits.wait_ns) - each(before, |_| earlier))
    });
    let most = grown.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, grown)| *grown >= least);
    most.map(|(shape, _)| Arc::clone(shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    #[test]
    fn one_long_wait_before_does_not_hide_a_jump_in_a_few_windows() {
        let mut usual: Vec<f64> = (0..30).map(|at| (0.08 + 0.002 * f64::from(at)) * MS).collect();
        usual[7] = 30.0 * MS;
        // Nine parts of the time are judged together.
        let alpha = 0.001 / 9.0;
        assert!(chance_of_time(&usual, 12.0 * MS, 2) < alpha);
        assert!(chance_of_time(&usual, 0.15 * MS, 2) > 0.1);
        // The mean of the plain values is not beyond chance.
        assert!(chance(&usual, 12.0 * MS, 2) > alpha);
    }

    #[test]
    fn waits_that_do_not_occur_are_no_outliers() {
        let usual = [0.0; 30];
        assert!(chance_of_time(&usual, 0.0, 3) > 0.4);
        assert!(chance_of_time(&usual, 5.0 * MS, 3) < 1e-6);
    }
}
