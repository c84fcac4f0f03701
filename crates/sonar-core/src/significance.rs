//! Which changes are more than chance: the tests of significance behind every comparison.
//!
//! Latencies are compared with the Mann-Whitney test on histogram buckets, corrected for ties. It asks
//! whether an operation of one side tends to be slower than one of the other, for any distribution.
//! Operations of the same second are not independent (a checkpoint slows all of them), so the variance is
//! scaled by how much the parts of each side's own timeline differ (see [`dispersion`]). The p values of
//! all shapes are corrected together (Holm): for two halves of one steady recording, at most one
//! comparison in twenty reports any change.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::histogram::SUB_BUCKETS;
use crate::timeline::TimeBucket;
use crate::{Figures, Histogram, ObservedParts, Timeline};

/// Probability of a false alarm, over all shapes together.
pub const ALPHA: f64 = 0.05;
/// The minimum number of operations on each side for testing a change of latency.
pub const MIN_CALLS: u64 = 20;
/// The smallest effect that is reported: Cliff's delta; 0.147 is conventionally called small.
pub const MIN_EFFECT: f64 = 0.147;
/// The smallest change of a rate, or of examined per returned, that is reported, as a factor.
pub const MIN_FACTOR: f64 = 1.25;
/// The smallest difference of two shares that is reported: Cohen's h; 0.2 is conventionally called small.
pub const MIN_SHARE_EFFECT: f64 = 0.2;
/// Up to so many expected operations, the test of two shares computes the binomial distribution.
const MAX_RARE: f64 = 50.0;

/// How the latencies of one row differ.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Shift {
    /// Cliff's delta, -1 to 1: the probability that an operation of B is slower than one of A, minus the
    /// probability that it is faster. Above 0: B is slower.
    pub effect: f64,
    /// Probability of an effect at least this large if both were the same.
    pub p: f64,
    /// 50 %, 95 % and 99 % quantiles of A and of B, in nanoseconds.
    pub quantiles: [(u64, u64); 3],
}

impl Shift {
    /// The largest growth of any of the quantiles, as a factor; below 1 if all of them fell.
    pub fn factor(&self) -> f64 {
        self.quantiles.iter().map(|&(a, b)| b as f64 / a.max(1) as f64).fold(0.0, f64::max)
    }
}

/// The Mann-Whitney test on two histograms (`statrs` has it for single values only); `None` if a side has fewer than
/// [`MIN_CALLS`] operations.
/// `dispersion` (1 or more) is the factor by which the variance exceeds that of independent operations.
pub fn shift(a: &Histogram, b: &Histogram, dispersion: f64) -> Option<Shift> {
    let (effect, z) = ranks(a, b)?;
    let p = if z == 0.0 { 1.0 } else { two_sided(z.abs() / dispersion.max(1.0).sqrt()) };
    let quantile = |q| (a.quantile_ns(q).unwrap_or(0), b.quantile_ns(q).unwrap_or(0));
    Some(Shift { effect, p, quantiles: [quantile(0.5), quantile(0.95), quantile(0.99)] })
}

/// The smallest factor by which the latencies of `a` would have had to grow in `b` for a change to be reported in nine of
/// ten cases, for the level and the dispersion of `test`; `None` if none would have been, or if a side has fewer than [`MIN_CALLS`]
/// operations.
pub fn least_latency_growth(a: &Histogram, b: &Histogram, test: Sensitivity) -> Option<f64> {
    let deviation = rank_test(a, b)?.deviation * test.dispersion.max(1.0).sqrt();
    let least = (test.z() * deviation).max(MIN_EFFECT);
    let buckets: Vec<(i32, f64)> =
        a.buckets().map(|(index, count)| (index, count as f64 / a.count() as f64)).collect();
    // All latencies grow by the width of so many buckets.
    let effect = |shift: i32| {
        let (mut below, mut next, mut wins) = (0.0, 0, 0.0);
        for &(index, share) in &buckets {
            while buckets.get(next).is_some_and(|(other, _)| *other < index + shift) {
                below += buckets[next].1;
                next += 1;
            }
            let tied =
                buckets.get(next).filter(|(other, _)| *other == index + shift).map_or(0.0, |one| one.1);
            wins += share * (below + tied / 2.0);
        }
        2.0 * wins - buckets.iter().map(|one| one.1).sum::<f64>().powi(2)
    };
    /// A factor of 4,096.
    const MOST: i32 = 12 * SUB_BUCKETS;
    if effect(MOST) < least {
        return None;
    }
    let (mut too_small, mut enough) = (0, MOST);
    while enough - too_small > 1 {
        let middle = i32::midpoint(too_small, enough);
        if effect(middle) < least { too_small = middle } else { enough = middle }
    }
    Some((f64::from(enough) / f64::from(SUB_BUCKETS)).exp2())
}

/// The smallest factor by which a rate would have had to grow for a change to be reported in nine of ten cases; `None` if
/// there are too few calls, or if it is not known how long was observed.
pub fn least_rate_growth(a: Rate, b: Rate, alpha: f64) -> Option<f64> {
    if a.calls + b.calls < MIN_CALLS as f64 || a.calls <= 0.0 || a.seconds <= 0.0 || b.seconds <= 0.0 {
        return None;
    }
    let root = a.per_second.sqrt();
    let deviation = (a.dispersion / (4.0 * a.seconds) + b.dispersion / (4.0 * b.seconds)).sqrt();
    let z = Sensitivity { alpha, dispersion: 1.0 }.z();
    Some(((root + z * deviation) / root).powi(2).max(MIN_FACTOR))
}

/// How small a change a test can see.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Sensitivity {
    /// Its significance level.
    pub alpha: f64,
    /// The factor by which the variance exceeds that of independent operations, 1 or more.
    pub dispersion: f64,
}

impl Sensitivity {
    /// How many standard deviations a change must have, so that nine of ten are significant.
    fn z(self) -> f64 {
        /// The 90 % quantile of a standard normal value.
        const NINE_OF_TEN: f64 = 1.2816;
        let (mut low, mut high) = (0.0, 40.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if two_sided(middle) > self.alpha { low = middle } else { high = middle }
        }
        high + NINE_OF_TEN
    }
}

/// Cliff's delta of two histograms, and its standard deviation if both are the same and operations are independent.
struct RankTest {
    effect: f64,
    deviation: f64,
}

/// Cliff's delta of two histograms, and the statistic of the Mann-Whitney test, which is a standard normal value if
/// both are the same and operations are independent; `None` if a side has fewer than [`MIN_CALLS`] operations.
pub(crate) fn ranks(a: &Histogram, b: &Histogram) -> Option<(f64, f64)> {
    let RankTest { effect, deviation } = rank_test(a, b)?;
    Some((effect, if deviation > 0.0 { effect / deviation } else { 0.0 }))
}

fn rank_test(a: &Histogram, b: &Histogram) -> Option<RankTest> {
    if a.count() < MIN_CALLS || b.count() < MIN_CALLS {
        return None;
    }
    let buckets = |histogram: &Histogram| -> Vec<(i32, u64)> {
        std::iter::once((i32::MIN, histogram.zero_count())).chain(histogram.buckets()).collect()
    };
    let (left, right) = (buckets(a), buckets(b));
    let (n, m) = (a.count() as f64, b.count() as f64);
    let (mut i, mut j) = (0, 0);
    let (mut a_below, mut wins, mut ties) = (0.0, 0.0, 0.0);
    while i < left.len() || j < right.len() {
        let index = match (left.get(i), right.get(j)) {
            (Some(x), Some(y)) => x.0.min(y.0),
            (Some(x), None) => x.0,
            (None, Some(y)) => y.0,
            (None, None) => break,
        };
        let take = |side: &[(i32, u64)], at: &mut usize| match side.get(*at) {
            Some(&(same, count)) if same == index => {
                *at += 1;
                count as f64
            }
            _ => 0.0,
        };
        let (x, y) = (take(&left, &mut i), take(&right, &mut j));
        wins += y * (a_below + x / 2.0);
        a_below += x;
        let tied = x + y;
        ties += tied * tied * tied - tied;
    }
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    let effect = 2.0 * wins / (n * m) - 1.0;
    let deviation = if variance > 0.0 { 2.0 * variance.sqrt() / (n * m) } else { 0.0 };
    Some(RankTest { effect, deviation })
}

/// Probability of a standard normal value beyond ±`z`. Abramowitz and Stegun, 7.1.26; error below 2e-7.
pub(crate) fn two_sided(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    (poly * (-x * x).exp()).clamp(0.0, 1.0)
}

/// How much more the means of a timeline's parts vary than those of independent operations would, as a
/// ratio of variances; at least 1.
pub fn dispersion(timeline: &Timeline, latency: &Histogram) -> f64 {
    dispersion_of(timeline.iter().map(|(_, bucket)| bucket), latency)
}

/// The same for parts of any equal width.
pub(crate) fn dispersion_of(parts: impl Iterator<Item = TimeBucket>, latency: &Histogram) -> f64 {
    let calls = latency.count() as f64;
    if calls < 2.0 {
        return 1.0;
    }
    let mean = latency.sum_ns() as f64 / calls;
    // Each duration counts as the upper bound of its bucket: at most 2.2 % too much.
    let spread: f64 = latency
        .buckets()
        .map(|(index, count)| {
            let off = crate::histogram::upper_bound_ns(index) as f64 - mean;
            off * off * count as f64
        })
        .sum::<f64>()
        + latency.zero_count() as f64 * mean * mean;
    let variance = spread / (calls - 1.0);
    let parts: Vec<_> = parts.filter(|bucket| bucket.calls > 0).collect();
    if variance <= 0.0 || parts.len() < 3 {
        return 1.0;
    }
    let chi: f64 = parts
        .iter()
        .map(|bucket| {
            let off = bucket.latency_ns as f64 / bucket.calls as f64 - mean;
            off * off * bucket.calls as f64 / variance
        })
        .sum();
    (chi / (parts.len() as f64 - 1.0)).max(1.0)
}

/// Calls per second of a row over the time that was observed, with the dispersion of the calls per part of that time.
pub fn rate(figures: &Figures, observed: &ObservedParts) -> Rate {
    rate_over(figures.calls, observed.seconds(), &observed.calls(figures.timeline()))
}

/// Calls per second over the seconds that were observed, whose parts are known by their calls and seconds.
pub(crate) fn rate_over(calls: u64, seconds: f64, parts: &[(u64, f64)]) -> Rate {
    let calls = calls as f64;
    if seconds <= 0.0 {
        return Rate { calls, ..Rate::default() };
    }
    let per_second = calls / seconds;
    // For independent calls, the variance in a part is the number that is expected in it.
    let square = |&(calls, seconds): &(u64, f64)| {
        let expected = per_second * seconds;
        (calls as f64 - expected).powi(2) / expected
    };
    let dispersion = if calls > 0.0 && parts.len() > 2 {
        (parts.iter().map(square).sum::<f64>() / (parts.len() as f64 - 1.0)).max(1.0)
    } else {
        1.0
    };
    Rate { per_second, seconds, calls, dispersion }
}

/// How often something happens.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Rate {
    /// Calls per second; 0 if nothing was observed.
    pub per_second: f64,
    /// Seconds that were observed; 0 if that is not known.
    pub seconds: f64,
    /// Calls.
    pub calls: f64,
    /// Variance of the calls per part divided by their mean; 1 for independent calls.
    pub dispersion: f64,
}

impl Rate {
    /// Calls per second; `None` if it is not known how long was observed.
    pub fn known(self) -> Option<f64> {
        (self.seconds > 0.0).then_some(self.per_second)
    }

    /// Probability of rates that differ at least this much if both were the same; 1 if there are too few calls to
    /// decide.
    pub fn p(self, other: Self) -> f64 {
        if self.calls + other.calls < MIN_CALLS as f64 || self.seconds <= 0.0 || other.seconds <= 0.0 {
            return 1.0;
        }
        // The square root of a count has nearly the same variance at any mean: a quarter of the dispersion.
        let root = |rate: Self| ((rate.calls + 0.375) / rate.seconds).sqrt();
        let variance = |rate: Self| rate.dispersion / (4.0 * rate.seconds);
        two_sided((root(self) - root(other)).abs() / (variance(self) + variance(other)).sqrt())
    }

    /// Probability that all of these calls are on this side by chance, if any second of both was as likely to have them; 1
    /// if there are too few to decide. Calls that came all at once count like others: that they are here and not there
    /// is known.
    pub fn p_of_all(self, other: Self) -> f64 {
        if self.calls < MIN_CALLS as f64 || self.seconds <= 0.0 || other.seconds <= 0.0 {
            return 1.0;
        }
        (self.seconds / (self.seconds + other.seconds)).powf(self.calls)
    }
}

/// Documents or keys examined for each document returned or changed, with its standard error.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Examined {
    /// Examined per returned.
    pub ratio: f64,
    /// Square of the standard error of its logarithm.
    square: f64,
    /// Parts of the timeline that it was computed from.
    parts: f64,
}

/// The minimum number of timeline parts for judging examined per returned.
pub const MIN_PARTS: usize = 6;

/// The ratio over a timeline, and how far its parts (at least a second long) scatter around it. `None` for
/// fewer than [`MIN_CALLS`] calls or [`MIN_PARTS`] parts, or if nothing was examined or returned.
pub fn examined(timeline: &Timeline) -> Option<Examined> {
    let parts: Vec<_> = timeline.iter().map(|(_, part)| part).filter(|part| part.calls > 0).collect();
    let sum = |of: fn(&TimeBucket) -> u64| parts.iter().map(|part| of(part) as f64).sum::<f64>();
    let (examined, returned) = (sum(|part| part.examined), sum(|part| part.returned));
    let calls = sum(|part| part.calls);
    if parts.len() < MIN_PARTS || calls < MIN_CALLS as f64 || examined <= 0.0 || returned <= 0.0 {
        return None;
    }
    let (ratio, n) = (examined / returned, parts.len() as f64);
    // The ratio is one of sums, so its error follows from examined - ratio × returned of each part.
    let off: f64 =
        parts.iter().map(|part| (part.examined as f64 - ratio * part.returned as f64).powi(2)).sum();
    Some(Examined { ratio, square: off * n / (n - 1.0) / examined.powi(2), parts: n })
}

impl Examined {
    /// Probability of ratios that differ at least this much if both were the same: Welch's t-test on their logarithms.
    pub fn p(self, other: Self) -> f64 {
        let difference = (other.ratio / self.ratio).ln().abs();
        let square = self.square + other.square;
        if square <= 0.0 {
            // Every part of both has the same ratio.
            return if difference > 1e-9 { 0.0 } else { 1.0 };
        }
        let freedom = square.powi(2)
            / (self.square.powi(2) / (self.parts - 1.0) + other.square.powi(2) / (other.parts - 1.0));
        match StudentsT::new(0.0, 1.0, freedom) {
            Ok(t) => 2.0 * t.cdf(-difference / square.sqrt()),
            Err(_) => 1.0,
        }
    }
}

/// Examined documents per call in the second half of a timeline, divided by those in the first half: 1 is no
/// change. `None` if a half has fewer than [`MIN_CALLS`] calls or the first examined nothing. It shows a
/// collection that grows without an index.
pub fn growth(timeline: &Timeline) -> Option<f64> {
    let (from, to) = timeline.span()?;
    let halves = timeline.resampled(from, to, 2);
    let [first, second] = halves.as_slice() else { return None };
    let per_call = |half: &crate::timeline::TimeBucket| half.examined as f64 / half.calls as f64;
    (first.calls >= MIN_CALLS && second.calls >= MIN_CALLS && first.examined > 0)
        .then(|| per_call(second) / per_call(first))
}

/// How many of some operations have something in common.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct ShareOf {
    /// Operations that have it, at most `of`; not a whole number where it is estimated.
    pub part: f64,
    /// All of them.
    pub of: f64,
}

impl ShareOf {
    /// The share, 0 to 1; 0 of nothing.
    pub fn share(self) -> f64 {
        if self.of > 0.0 { (self.part / self.of).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// How two shares differ.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct ShareShift {
    /// The share of B minus that of A, -1 to 1.
    pub difference: f64,
    /// Cohen's h, -π to π: the same difference weighs more near 0 and 1. Above 0: the share of B is larger.
    pub effect: f64,
    /// Probability of a difference at least this large if the operations of both are as likely to have it, each by itself.
    pub p: f64,
}

/// Compares two shares. Where few operations are expected to have it, or to lack it, on one side, their number has a binomial
/// distribution; else the angles `2 asin √share` are compared, which have nearly the same variance for any share.
pub fn share_shift(a: ShareOf, b: ShareOf) -> ShareShift {
    let angle = |one: ShareOf| 2.0 * one.share().sqrt().asin();
    let effect = angle(b) - angle(a);
    let (all, have) = (a.of + b.of, a.part + b.part);
    let p = if a.of <= 0.0 || b.of <= 0.0 || have <= 0.0 || have >= all {
        1.0
    } else {
        let smaller = if a.of <= b.of { a } else { b };
        // Of the four cells of their table, the one in which the fewest are expected.
        let (rare, seen) =
            if 2.0 * have <= all { (have, smaller.part) } else { (all - have, smaller.of - smaller.part) };
        if rare * smaller.of / all > MAX_RARE {
            two_sided(effect.abs() / (1.0 / a.of + 1.0 / b.of).sqrt())
        } else {
            let (draws, others) = (rare.min(smaller.of), rare.max(smaller.of));
            rare_p(seen, draws, others / all)
        }
    };
    ShareShift { difference: b.share() - a.share(), effect, p }
}

/// Probability of a number at least as far from what is expected of so many draws, each with this chance. A number that is
/// not whole counts as the next one towards what is expected.
fn rare_p(seen: f64, draws: f64, chance: f64) -> f64 {
    /// What sums of estimates lose.
    const ROUNDING: f64 = 1e-6;
    let Ok(binomial) = Binomial::new(chance, draws.round() as u64) else { return 1.0 };
    let tail = if seen > draws * chance {
        match (seen + ROUNDING).floor() as u64 {
            0 => 1.0,
            seen => binomial.sf(seen - 1),
        }
    } else {
        binomial.cdf((seen - ROUNDING).ceil() as u64)
    };
    (2.0 * tail).min(1.0)
}

/// Whether each p value is significant at [`ALPHA`], corrected for testing all of them (Holm's method).
pub fn holm(p: &[f64]) -> Vec<bool> {
    holm_at(p, ALPHA)
}

/// Like [`holm`], at significance level `alpha` over all of them together.
pub fn holm_at(p: &[f64], alpha: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut significant = vec![false; p.len()];
    for (rank, &at) in order.iter().enumerate() {
        if p[at] > alpha / (p.len() - rank) as f64 {
            break;
        }
        significant[at] = true;
    }
    significant
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    #[test]
    fn the_test_agrees_with_a_calculation_by_hand() {
        // Twenty and twenty, all of B above all of A: U = 400, z = 200 / sqrt(400 × 41 / 12).
        let (a, b) = (histogram((0..20).map(|n| 1_000 << n)), histogram((20..40).map(|n| 1_000 << n)));
        let shift = shift(&a, &b, 1.0).unwrap();
        assert!((shift.effect - 1.0).abs() < 1e-12);
        // Python: math.erfc(200 / math.sqrt(400 * 41 / 12) / math.sqrt(2)).
        assert!((shift.p - 6.302e-8).abs() < 2e-7, "{}", shift.p);
        assert!(super::shift(&a, &histogram([1, 2]), 1.0).is_none());
    }

    #[test]
    fn examined_per_returned_is_judged_by_the_scatter_of_its_parts() {
        let line = |examined: &dyn Fn(u64) -> u64, seconds: u64| {
            let mut line = Timeline::default();
            for second in 0..seconds {
                let bucket =
                    TimeBucket { calls: 10, latency_ns: 0, examined: examined(second), returned: 20 };
                line.add(crate::Timestamp::from_unix(1_000 + second, 0), bucket);
            }
            line
        };
        let steady = super::examined(&line(&|_| 100, 20)).unwrap();
        assert_eq!((steady.ratio, steady.p(steady)), (5.0, 1.0));
        assert_eq!(steady.p(super::examined(&line(&|_| 101, 20)).unwrap()), 0.0);
        // 90 and 110 in turns against 120 and 140: Welch's t of the means, as logarithms are nearly linear here.
        let (a, b) = (line(&|n| 90 + n % 2 * 20, 20), line(&|n| 120 + n % 2 * 20, 20));
        let p = super::examined(&a).unwrap().p(super::examined(&b).unwrap());
        assert!(p < 1e-9, "{p}");
        // Python, scipy: 2 * t.sf(log(1.02) / sqrt(2 * 10**2 / 19 / 100**2), 38) for 100 ± 10 against 102 ± 10.
        let b = line(&|n| 92 + n % 2 * 20, 20);
        let p = super::examined(&a).unwrap().p(super::examined(&b).unwrap());
        assert!((p - 0.544).abs() < 0.01, "{p}");
        assert!(super::examined(&line(&|_| 100, 5)).is_none(), "too few parts");
        assert!(super::examined(&line(&|_| 0, 20)).is_none(), "nothing examined");
    }

    #[test]
    fn the_smallest_change_that_is_seen_depends_on_the_number_of_operations() {
        // Spread over two octaves, so that a shift by s of them has the effect 1 - (1 - s / 2)², as far as the buckets
        // allow.
        let spread =
            |count: u64| histogram((0..count).map(|n| (1e6 * (2.0 * n as f64 / count as f64).exp2()) as u64));
        let least = |count, alpha, dispersion| {
            least_latency_growth(&spread(count), &spread(count), Sensitivity { alpha, dispersion })
        };
        // Many: the smallest effect that counts, which is a shift by 2 × (1 - √(1 - 0.147)) octaves.
        let many = least(100_000, 0.05, 1.0).unwrap();
        assert!((many - 0.153_f64.exp2()).abs() < 0.03, "{many}");
        // Forty: (1.96 + 1.2816) × 2 × √(40² × 81 / 12) / 40² = 0.421, a shift by 0.478 octaves.
        let few = least(40, 0.05, 1.0).unwrap();
        assert!((few - 0.478_f64.exp2()).abs() < 0.06, "{few}");
        assert!(least(40, 0.05, 2.0).unwrap() > few && least(40, 0.001, 1.0).unwrap() > few);
        assert_eq!(least(40, 0.05, 100.0), None);
        assert_eq!(least(19, 0.05, 1.0), None);
    }

    #[test]
    fn the_smallest_change_of_a_rate_follows_from_its_calls() {
        let rate = |calls: f64| Rate { per_second: calls / 100.0, seconds: 100.0, calls, dispersion: 1.0 };
        // Python: ((10 + 3.2416 * math.sqrt(1 / 2)) / 10) ** 2 for 100 calls, in roots of counts.
        let least = least_rate_growth(rate(100.0), rate(100.0), 0.05).unwrap();
        assert!((least - 1.511).abs() < 0.002, "{least}");
        assert_eq!(least_rate_growth(rate(1e6), rate(1e6), 0.05), Some(MIN_FACTOR));
        assert_eq!(least_rate_growth(rate(9.0), rate(9.0), 0.05), None);
    }

    #[test]
    fn a_histogram_compared_with_itself_shows_no_change() {
        let a = histogram((0..1_000).map(|n| n * 1_000));
        let same = shift(&a, &a, 1.0).unwrap();
        assert!(same.effect.abs() < 1e-9 && same.p > 0.999);
        let zeros = histogram([0; 100]);
        assert_eq!(shift(&zeros, &zeros, 1.0).unwrap().p, 1.0);
    }

    #[test]
    fn shares_are_compared_by_angles_and_rare_ones_exactly() {
        let of = |part: f64, of: f64| ShareOf { part, of };
        // 2 asin √0.6 - 2 asin √0.5 = 0.20136, z = 0.20136 / √0.002 = 4.5025.
        let many = share_shift(of(500.0, 1_000.0), of(600.0, 1_000.0));
        assert!((many.difference - 0.1).abs() < 1e-12 && (many.effect - 0.201_358).abs() < 1e-5, "{many:?}");
        assert!((many.p - 6.7e-6).abs() < 4e-7, "{many:?}");
        // Python: 2 * sum(comb(25, n) * q**n * (1 - q)**(25 - n) for n in range(5, 26)), with q = 50 / 100_050.
        let rare = share_shift(of(20.0, 100_000.0), of(5.0, 50.0));
        assert!((rare.p / 3.284_858_85e-12 - 1.0).abs() < 1e-6, "{rare:?}");
        assert!(share_shift(of(20.0, 100_000.0), of(1.0, 50.0)).p > 0.01, "one by chance");
        // What all have but five is as rare.
        let lacking = share_shift(of(99_980.0, 100_000.0), of(45.0, 50.0));
        assert!((lacking.p / rare.p - 1.0).abs() < 1e-6, "{lacking:?}");
        // Python: 2 * (1 - q)**30, with q = 1_000 / 11_000.
        let none = share_shift(of(30.0, 10_000.0), of(0.0, 1_000.0));
        assert!((none.p / 0.114_617_107 - 1.0).abs() < 1e-6, "{none:?}");
        for (a, b) in
            [(of(0.0, 0.0), of(3.0, 10.0)), (of(0.0, 10.0), of(0.0, 10.0)), (of(10.0, 10.0), of(7.0, 7.0))]
        {
            assert_eq!(share_shift(a, b).p, 1.0, "{a:?} {b:?}");
        }
        let same = share_shift(of(5_000.0, 10_000.0), of(500.0, 1_000.0));
        assert!(same.difference == 0.0 && same.p > 0.999_9, "{same:?}");
    }

    #[test]
    fn holm_corrects_for_the_number_of_p_values() {
        assert_eq!(holm(&[0.04, 0.04, 0.04]), [false; 3]);
        assert_eq!(holm(&[0.001, 0.04, 0.6]), [true, false, false]);
        assert_eq!(holm(&[0.01, 0.02, 0.001]), [true; 3]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn the_normal_distribution_agrees_with_published_tables() {
        for (z, p) in [(0.0, 1.0), (1.96, 0.049_996), (2.575_829, 0.01), (3.290_527, 0.001)] {
            assert!((two_sided(z) - p).abs() < 1e-6, "{z}: {}", two_sided(z));
        }
    }
}
