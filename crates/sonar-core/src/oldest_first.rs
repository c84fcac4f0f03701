//! Values by key, of which the oldest give way.

use std::collections::VecDeque;
use std::hash::Hash;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use crate::held::{list_bytes, table_bytes};

/// At least so many keys of removed values are kept before they are cleaned up.
const MIN_GONE: usize = 512;

/// Values by key, which remembers the order in which the keys came. Who fills it takes out the oldest where there are too
/// many. A key that comes again after its value was removed is the newest.
#[derive(Clone, Debug)]
pub struct OldestFirst<K, V> {
    values: HashMap<K, V, RandomState>,
    /// The keys, the oldest first. Those of removed values stay for a while.
    order: VecDeque<K>,
    /// How often each key stands in `order` for a value that was removed: before where it stands for one that is there.
    gone: HashMap<K, u32, RandomState>,
}

impl<K, V> Default for OldestFirst<K, V> {
    fn default() -> Self {
        Self { values: HashMap::default(), order: VecDeque::new(), gone: HashMap::default() }
    }
}

/// The most keys of removed values, beside so many that are there.
const fn most_gone(values: usize) -> usize {
    if values / 8 > MIN_GONE { values / 8 } else { MIN_GONE }
}

/// Whether the next occurrence of a key in the order stands for a removed value; then it does so once less.
fn is_gone<K: Eq + Hash>(gone: &mut HashMap<K, u32, RandomState>, key: &K) -> bool {
    let Some(times) = gone.get_mut(key) else { return false };
    *times -= 1;
    if *times == 0 {
        gone.remove(key);
    }
    true
}

impl<K: Copy + Eq + Hash, V> OldestFirst<K, V> {
    /// How many values there are.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    /// Whether there is a value of this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.values.contains_key(key)
    }

    /// The value of a key; a new one if there is none.
    pub fn entry(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.values.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            V::default()
        })
    }

    /// Sets the value of a key; one that is there keeps its age. Returns the value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.values.insert(key, value);
        if before.is_none() {
            self.order.push_back(key);
        }
        before
    }

    /// Takes out the value of a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.values.remove(key)?;
        *self.gone.entry(*key).or_default() += 1;
        if self.order.len() - self.values.len() > most_gone(self.values.len()) {
            let gone = &mut self.gone;
            self.order.retain(|key| !is_gone(gone, key));
        }
        Some(value)
    }

    /// Takes out the oldest.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        loop {
            let key = self.order.pop_front()?;
            if !is_gone(&mut self.gone, &key) {
                return self.values.remove_entry(&key);
            }
        }
    }

    /// The keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.values.keys()
    }

    /// The values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values()
    }

    /// The values, in no order.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.values.into_values()
    }

    /// The most bytes that it allocates if there are never more than `values` values, without what these have themselves.
    pub const fn max_memory(values: usize) -> usize {
        // One more is gone before they are cleaned up.
        let gone = most_gone(values) + 1;
        table_bytes(values, size_of::<(K, V)>())
            + list_bytes(values + gone, size_of::<K>())
            + table_bytes(gone, size_of::<(K, u32)>())
    }

    /// The bytes that it has allocated, without what the values have themselves.
    pub fn memory(&self) -> usize {
        self.values.allocation_size() + self.order.capacity() * size_of::<K>() + self.gone.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_oldest_goes_first_as_in_a_list(
            steps in proptest::collection::vec((0u8..100, 0u16..100), 0..3_000),
        ) {
            let (mut found, mut list, mut most) = (OldestFirst::default(), Vec::<(u16, usize)>::new(), 0);
            for (number, (step, key)) in steps.into_iter().enumerate() {
                let at = list.iter().position(|(known, _)| *known == key);
                match (step, at) {
                    (0..2, _) => {
                        let oldest = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(found.pop_oldest(), oldest);
                    }
                    (2..50, _) => prop_assert_eq!(found.remove(&key), at.map(|at| list.remove(at).1)),
                    (_, Some(at)) => {
                        let before = std::mem::replace(&mut list[at].1, number);
                        prop_assert_eq!(found.insert(key, number), Some(before));
                    }
                    (_, None) => {
                        list.push((key, number));
                        *found.entry(key) = number;
                    }
                }
                most = most.max(list.len());
                prop_assert_eq!(found.count(), list.len());
                prop_assert!(found.memory() <= OldestFirst::<u16, usize>::max_memory(most));
            }
            let left: Vec<_> = std::iter::from_fn(|| found.pop_oldest()).collect();
            prop_assert_eq!(left, list);
        }
    }

    #[test]
    fn keys_of_removed_values_do_not_pile_up_and_one_that_comes_again_is_the_newest() {
        let mut found = OldestFirst::default();
        for number in 0..10 * MIN_GONE {
            for key in [number, usize::MAX, usize::MAX - 1] {
                found.insert(key, number);
            }
            found.remove(&usize::MAX);
            // The others stay.
            if number >= 3 {
                found.remove(&number);
            }
            assert!(found.order.len() - found.count() <= MIN_GONE);
            assert_eq!(found.order.len() - found.count(), found.gone.values().sum::<u32>() as usize);
        }
        found.insert(usize::MAX, 7);
        let keys: Vec<_> = std::iter::from_fn(|| found.pop_oldest()).map(|(key, _)| key).collect();
        assert_eq!(keys, [0, usize::MAX - 1, 1, 2, usize::MAX]);
    }

    #[test]
    fn memory_is_bounded_while_values_come_and_go() {
        const MOST: usize = 5_000;
        let mut found = OldestFirst::default();
        for key in 0..20 * MOST as u64 {
            *found.entry(key) = key;
            found.remove(&(key - key % 3));
            while found.count() > MOST {
                found.pop_oldest();
            }
            assert!(found.memory() <= OldestFirst::<u64, u64>::max_memory(MOST + 1));
        }
        assert_eq!(found.count(), MOST);
    }
}
