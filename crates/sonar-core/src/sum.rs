//! Sums of values that not every operation reports.

/// A sum over the operations that report a value, and the number of those operations.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// The sum.
    pub total: u64,
    /// Operations that reported a value.
    pub known: u64,
}

impl Sum {
    /// Adds `value` for each of `weight` operations; nothing for `None`.
    #[inline]
    pub(crate) fn add(&mut self, value: Option<u64>, weight: u64) {
        if let Some(value) = value {
            self.total = self.total.saturating_add(value.saturating_mul(weight));
            self.known += weight;
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.known += other.known;
    }

    /// The sum; `None` if no operation reported a value.
    pub const fn get(self) -> Option<u64> {
        if self.known > 0 { Some(self.total) } else { None }
    }

    /// The mean over the operations that reported a value; `None` if none did.
    pub fn mean(self) -> Option<f64> {
        (self.known > 0).then(|| self.total as f64 / self.known as f64)
    }
}
