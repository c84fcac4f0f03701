//! Compares two runs: the ratio of their rates, with its confidence interval.

use crate::impact;

/// The ratio of two rates with its 95 % confidence interval.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct RateRatio {
    /// The second rate divided by the first.
    pub ratio: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
    /// Probability of a ratio at least this far from 1 if both rates were the same, 0 to 1.
    pub p: f64,
}

impl RateRatio {
    /// Whether the interval excludes 1: the two differ by more than chance.
    pub fn differs(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

struct Moments {
    mean: f64,
    /// Variance of the mean divided by the square of the mean.
    relative: f64,
    count: f64,
}

fn moments(values: &[f64]) -> Option<Moments> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 || !mean.is_finite() || mean <= 0.0 {
        return None;
    }
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (count - 1.0);
    Some(Moments { mean, relative: variance / count / (mean * mean), count })
}

/// Compares the mean of `b` with the mean of `a`; each is a series of rates over equal spans (the seconds
/// of a step). The interval is Welch's, for the logarithm of the ratio; the variances of the logarithms
/// come from the delta method. Spans count as independent. `None` for fewer than two spans or a mean of 0.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<RateRatio> {
    let (a, b) = (moments(a)?, moments(b)?);
    let ratio = b.mean / a.mean;
    let variance = a.relative + b.relative;
    if variance <= 0.0 {
        // All spans of a side are equal.
        let p = if ratio == 1.0 { 1.0 } else { 0.0 };
        return Some(RateRatio { ratio, low: ratio, high: ratio, p });
    }
    let degrees = variance * variance
        / (a.relative * a.relative / (a.count - 1.0) + b.relative * b.relative / (b.count - 1.0));
    let half = impact::students_t(0.95, degrees)? * variance.sqrt();
    let p = impact::beyond_t(ratio.ln() / variance.sqrt(), degrees)?;
    Some(RateRatio { ratio, low: ratio * (-half).exp(), high: ratio * half.exp(), p })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SplitMix;

    #[test]
    fn the_ratio_and_its_interval() {
        // Means 100 and 200, both with a deviation of 10 %, eight spans: the relative variance of each mean
        // is 0.01/8 · 8/7 by construction, and Welch's degrees are 14.
        let a: Vec<f64> = [90.0, 110.0].repeat(4);
        let b: Vec<f64> = a.iter().map(|v| v * 2.0).collect();
        let found = ratio(&a, &b).unwrap();
        // R: qt(0.975, 14).
        let half = 2.144_786_687_917_804 * (2.0 * 0.01 / 7.0f64).sqrt();
        assert!((found.ratio - 2.0).abs() < 1e-12);
        assert!(
            (found.low - 2.0 * (-half).exp()).abs() < 1e-9 && (found.high - 2.0 * half.exp()).abs() < 1e-9
        );
        assert!(found.differs() && found.p < 0.05);
        let same = ratio(&a, &a).unwrap();
        assert!(!same.differs() && same.low < 1.0 && same.high > 1.0 && (same.p - 1.0).abs() < 1e-9);
        // At the end of the interval it is 5 %, as that is one of 95 %.
        let by: Vec<f64> = a.iter().map(|v| v * half.exp()).collect();
        assert!((ratio(&a, &by).unwrap().p - 0.05).abs() < 1e-6);
    }

    #[test]
    fn too_little_data_gives_no_ratio() {
        assert_eq!(ratio(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(ratio(&[0.0, 0.0], &[1.0, 2.0]), None);
        assert_eq!(ratio(&[], &[]), None);
        assert_eq!(ratio(&[f64::NAN, 1.0], &[1.0, 2.0]), None);
        let equal = RateRatio { ratio: 1.5, low: 1.5, high: 1.5, p: 0.0 };
        assert_eq!(ratio(&[2.0, 2.0], &[3.0, 3.0]), Some(equal));
        assert_eq!(ratio(&[2.0, 2.0], &[2.0, 2.0]).map(|same| same.p), Some(1.0));
    }

    /// For noise around the same mean, about one interval in twenty excludes 1.
    #[test]
    fn a_95_percent_interval_contains_1_in_19_of_20_cases() {
        let mut random = SplitMix::new(3);
        // The sum of twelve uniform numbers is close enough to normal.
        let mut normal = || {
            1_000.0
                + 50.0
                    * ((0..12).map(|_| random.below(1 << 32) as f64).sum::<f64>() / (1u64 << 32) as f64 - 6.0)
        };
        let mut outside = 0;
        for _ in 0..4_000 {
            let a: Vec<f64> = (0..8).map(|_| normal()).collect();
            let b: Vec<f64> = (0..8).map(|_| normal()).collect();
            outside += u32::from(ratio(&a, &b).unwrap().differs());
        }
        assert!((140..260).contains(&outside), "{outside} of 4000");
    }
}
