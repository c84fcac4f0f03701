//! Sums by key in bounded memory: the largest are shown by name, and all others together.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The most keys that have a sum of their own while windows are added up.
const MAX_SUMS: usize = 1_000;

/// What is added up of a key.
pub(super) trait BoundedSum: Default {
    /// Adds the sum of another key.
    fn join(&mut self, other: Self);

    /// How large it is: the largest are shown.
    fn size(&self) -> u64;
}

/// Sums by key, of at most [`MAX_SUMS`] keys; `None` is all others.
pub(super) struct BoundedSums<K, S>(BTreeMap<Option<K>, S>);

impl<K, S> Default for BoundedSums<K, S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, S: BoundedSum> BoundedSums<K, S> {
    /// The sum of a key, or that of all others where there is no room.
    pub fn of(&mut self, key: Option<K>) -> &mut S {
        let has_room = self.0.len() < MAX_SUMS || self.0.contains_key(&key);
        self.0.entry(key.filter(|_| has_room)).or_default()
    }

    /// The `most` keys with the largest sums, the largest first, and all others.
    pub fn largest(mut self, most: usize) -> Vec<(Option<K>, S)> {
        let mut others = self.0.remove(&None);
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_by_key(|(_, sum)| Reverse(sum.size()));
        for (_, sum) in all.drain(all.len().min(most)..) {
            others.get_or_insert_default().join(sum);
        }
        all.extend(others.map(|sum| (None, sum)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it was counted, and its size.
    #[derive(Default)]
    struct Counted {
        times: u64,
        size: u64,
    }

    impl Counted {
        fn add(&mut self, size: u64) {
            self.join(Self { times: 1, size });
        }
    }

    impl BoundedSum for Counted {
        fn join(&mut self, other: Self) {
            self.times += other.times;
            self.size += other.size;
        }

        fn size(&self) -> u64 {
            self.size
        }
    }

    #[test]
    fn what_is_not_shown_by_name_is_added_up_and_nothing_is_lost() {
        const MAX_SHOWN: usize = 12;
        let mut sums = BoundedSums::<u64, Counted>::default();
        assert!(BoundedSums::<u64, Counted>::default().largest(MAX_SHOWN).is_empty());
        // The last ones, which have no sum of their own, are the largest.
        let all = 3 * MAX_SUMS as u64;
        (0..all).for_each(|number| sums.of(Some(number)).add(number));
        sums.of(Some(7)).add(all);
        assert_eq!(sums.0.len(), MAX_SUMS + 1);
        let largest = sums.largest(MAX_SHOWN);
        assert_eq!(largest.len(), MAX_SHOWN + 1);
        assert_eq!(largest[0].0, Some(7));
        assert_eq!(largest[MAX_SHOWN].0, None);
        let times: u64 = largest.iter().map(|(_, sum)| sum.times).sum();
        assert_eq!(times, all + 1);
    }
}
