//! How many operations have which value of a dimension.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The most values of a dimension that are counted by themselves; the smallest stay, so that the result does not depend on the
/// order of additions. Further ones are counted together.
pub const MAX_VALUES: usize = 5_000;

/// The same of the selected operations and of the rest.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct TheseAndRest {
    /// Of the selected ones.
    pub these: f64,
    /// Of the rest.
    pub rest: f64,
}

impl AddAssign for TheseAndRest {
    fn add_assign(&mut self, other: Self) {
        self.these += other.these;
        self.rest += other.rest;
    }
}

/// How much of the operations, or of their time, has which value.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueTally<K> {
    values: BTreeMap<K, TheseAndRest>,
    others: TheseAndRest,
    estimated: f64,
    operations: Option<TheseAndRest>,
}

impl<K> Default for ValueTally<K> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), others: TheseAndRest::default(), estimated: 0.0, operations: None }
    }
}

impl<K: Ord + Clone> ValueTally<K> {
    /// Adds to a value.
    pub fn add(&mut self, value: &K, more: TheseAndRest) {
        if more == TheseAndRest::default() {
            return;
        }
        if let Some(known) = self.values.get_mut(value) {
            *known += more;
            return;
        }
        self.values.insert(value.clone(), more);
        if self.values.len() > MAX_VALUES
            && let Some((_, last)) = self.values.pop_last()
        {
            self.others += last;
        }
    }

    /// Adds to all values that are not known by themselves.
    pub fn add_others(&mut self, more: TheseAndRest) {
        self.others += more;
    }

    /// Takes note that so many of the selected operations were not counted, but estimated.
    pub fn add_estimated(&mut self, these: f64) {
        self.estimated += these;
    }

    /// Sets how many operations count as independent, where values are not counted in operations: those of time, of which a
    /// few long ones may have most.
    pub fn set_operations(&mut self, operations: TheseAndRest) {
        self.operations = Some(operations);
    }

    /// The values that are counted by themselves, in their order.
    pub(super) fn values(&self) -> impl Iterator<Item = (&K, TheseAndRest)> {
        self.values.iter().map(|(value, count)| (value, *count))
    }

    /// All other values.
    pub(super) const fn others(&self) -> TheseAndRest {
        self.others
    }

    /// How much of the selected operations was estimated.
    pub(super) const fn estimated(&self) -> f64 {
        self.estimated
    }

    /// The sum of all values.
    pub(super) fn total(&self) -> TheseAndRest {
        let mut total = self.others;
        self.values.values().for_each(|count| total += *count);
        total
    }

    /// How many operations count as independent.
    pub(super) fn operations(&self) -> TheseAndRest {
        self.operations.unwrap_or_else(|| self.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bounded_and_nothing_is_lost() {
        let one = TheseAndRest { these: 1.0, rest: 2.0 };
        let all = 2 * MAX_VALUES as u64;
        let (mut up, mut down) = (ValueTally::default(), ValueTally::default());
        (0..all).for_each(|value| up.add(&value, one));
        (0..all).rev().for_each(|value| down.add(&value, one));
        assert_eq!(up, down);
        assert_eq!(up.values().count(), MAX_VALUES);
        assert_eq!(up.values().last(), Some((&(MAX_VALUES as u64 - 1), one)));
        assert_eq!(up.total(), TheseAndRest { these: all as f64, rest: 2.0 * all as f64 });
        let mut nothing = ValueTally::default();
        nothing.add(&1, TheseAndRest::default());
        assert_eq!(nothing, ValueTally::default());
    }
}
