//! Whether a part of the samples is larger in one run than in another, beyond chance.

use statrs::distribution::{ContinuousCDF, Normal};

/// How many of all samples have something in common.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SampleShare {
    /// Samples that have it.
    pub part: u64,
    /// All samples.
    pub all: u64,
    /// How many of all samples count as independent, at most `all`: samples of one thread in one stack tell little more
    /// than one of them.
    pub independent: u64,
}

impl SampleShare {
    /// The part, from 0 to 1; 0 without samples.
    pub fn share(self) -> f64 {
        if self.all == 0 { 0.0 } else { self.part as f64 / self.all as f64 }
    }

    /// The probability of a difference like that to `other` if both have the same share (two-sided test of two
    /// proportions, with pooled variance and one pseudo-sample on either side); 1 without samples.
    pub fn p(self, other: Self) -> f64 {
        let counts = |of: Self| {
            let independent = of.independent.min(of.all) as f64;
            (of.share() * independent + 0.5, independent + 1.0)
        };
        if self.all == 0 || other.all == 0 {
            return 1.0;
        }
        let ((a, n), (b, m)) = (counts(self), counts(other));
        let pooled = (a + b) / (n + m);
        let deviation = (pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m)).sqrt();
        let Ok(normal) = Normal::new(0.0, 1.0) else { return 1.0 };
        2.0 * normal.sf(((a / n - b / m) / deviation).abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(part: u64, all: u64, independent: u64) -> SampleShare {
        SampleShare { part, all, independent }
    }

    #[test]
    fn a_difference_needs_enough_independent_samples() {
        // By hand: 60.5/101 and 40.5/101, pooled 0.5, deviation 0.07036, z = 2.814.
        let p = share(60, 100, 100).p(share(40, 100, 100));
        assert!((p - 0.0049).abs() < 0.0002, "{p}");
        // The same of few threads.
        assert!(share(60, 100, 8).p(share(40, 100, 8)) > 0.3);
        assert!(share(6_000, 10_000, 10).p(share(4_000, 10_000, 10)) > 0.3);
        assert_eq!(share(5, 10, 10).p(share(0, 0, 0)), 1.0);
        assert!((share(5, 10, 10).p(share(5, 10, 10)) - 1.0).abs() < 1e-9);
        assert_eq!(share(0, 0, 0).share(), 0.0);
    }
}
