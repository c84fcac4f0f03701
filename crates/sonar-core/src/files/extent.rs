//! The part of a file that was accessed, with one bit per granule.

/// Initial size of a granule in bytes: WiredTiger's allocation unit, and the page size of most machines.
pub const GRANULE: u64 = 4096;
/// The maximum number of bits: 4 GiB of a file in granules of 4 KiB, 128 KiB of memory. For longer files the
/// size of a granule doubles as often as needed.
pub const MAX_BITS: u64 = 1 << 20;

/// A set of granules of a file. A granule that is accessed in part counts as a whole. When the granule size
/// doubles, the set is rounded up to the new granules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GranuleSet {
    words: Vec<u64>,
    /// log2 of the granule size in bytes.
    shift: u32,
    set: u64,
    max_bits: u64,
}

impl Default for GranuleSet {
    fn default() -> Self {
        Self::with_max_bits(MAX_BITS)
    }
}

impl GranuleSet {
    /// An empty set of at most `max_bits` granules, rounded up to a multiple of 128.
    pub fn with_max_bits(max_bits: u64) -> Self {
        let max_bits = max_bits.clamp(1, MAX_BITS).next_multiple_of(128);
        Self { words: Vec::new(), shift: GRANULE.ilog2(), set: 0, max_bits }
    }

    /// Adds `length` bytes from `offset` (cut at 2^64). Returns how many of them lie in granules that were
    /// already in the set.
    pub fn touch(&mut self, offset: u64, length: u64) -> u64 {
        let Some(last) = length.checked_sub(1).map(|less| offset.saturating_add(less)) else { return 0 };
        while last >> self.shift >= self.max_bits {
            self.coarsen();
        }
        let (first_bit, last_bit) = (offset >> self.shift, last >> self.shift);
        let words = (last_bit / 64 + 1) as usize;
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        let mut before = 0;
        let (first_word, last_word) = (first_bit / 64, last_bit / 64);
        for word in first_word..=last_word {
            let mut mask = u64::MAX;
            if word == first_word {
                mask &= u64::MAX << (first_bit % 64);
            }
            if word == last_word {
                mask &= u64::MAX >> (63 - last_bit % 64);
            }
            let bits = &mut self.words[word as usize];
            let old = *bits & mask;
            self.set += u64::from((mask & !*bits).count_ones());
            *bits |= mask;
            let mut bytes = u64::from(old.count_ones()) << self.shift;
            // The first and the last granule may be covered only in part.
            if old != 0 {
                let edge = |bit: u64| word * 64 <= bit && bit < word * 64 + 64 && old >> (bit % 64) & 1 == 1;
                if edge(first_bit) {
                    bytes -= offset - (first_bit << self.shift);
                }
                if edge(last_bit) {
                    bytes -= (last_bit << self.shift) + ((1 << self.shift) - 1) - last;
                }
            }
            before += bytes;
        }
        before
    }

    /// Removes the granules that `length` bytes from `offset` overlap, also in part.
    pub fn clear(&mut self, offset: u64, length: u64) {
        let Some(last) = length.checked_sub(1).map(|less| offset.saturating_add(less)) else { return };
        let (first_bit, last_bit) = (offset >> self.shift, last >> self.shift);
        for word in first_bit / 64..=last_bit / 64 {
            let Some(bits) = usize::try_from(word).ok().and_then(|word| self.words.get_mut(word)) else {
                break;
            };
            let mut mask = u64::MAX;
            if word == first_bit / 64 {
                mask &= u64::MAX << (first_bit % 64);
            }
            if word == last_bit / 64 {
                mask &= u64::MAX >> (63 - last_bit % 64);
            }
            self.set -= u64::from((mask & *bits).count_ones());
            *bits &= !mask;
        }
    }

    /// Doubles the granule size.
    fn coarsen(&mut self) {
        self.shift += 1;
        self.set = 0;
        let pairs = |word: u64| {
            // Bit i of the result is the OR of bits 2i and 2i+1 of the word.
            let mut x = (word | word >> 1) & 0x5555_5555_5555_5555;
            x = (x | x >> 1) & 0x3333_3333_3333_3333;
            x = (x | x >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
            x = (x | x >> 4) & 0x00ff_00ff_00ff_00ff;
            x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
            (x | x >> 16) & 0x0000_0000_ffff_ffff
        };
        for to in 0..self.words.len().div_ceil(2) {
            let low = pairs(self.words[to * 2]);
            let high = self.words.get(to * 2 + 1).map_or(0, |word| pairs(*word));
            self.words[to] = low | high << 32;
            self.set += u64::from(self.words[to].count_ones());
        }
        self.words.truncate(self.words.len().div_ceil(2));
    }

    /// The number of granules in the set.
    pub const fn granules(&self) -> u64 {
        self.set
    }

    /// Granule size in bytes.
    pub const fn granule_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Bytes in the set, in whole granules; saturates.
    pub const fn bytes(&self) -> u64 {
        self.set.saturating_mul(1 << self.shift)
    }

    /// Heap memory in bytes, at most 128 KiB.
    pub fn heap_bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_extent_is_the_set_of_granules(touches in proptest::collection::vec((0u64..3_000_000, 0u64..200_000), 1..60)) {
            let mut extent = GranuleSet::default();
            let mut bytes_of = BTreeSet::new();
            for (offset, length) in touches {
                let mut before = 0;
                let mut at = offset;
                while at < offset + length {
                    let granule = at / GRANULE;
                    let end = ((granule + 1) * GRANULE).min(offset + length);
                    before += if bytes_of.contains(&granule) { end - at } else { 0 };
                    at = end;
                }
                prop_assert_eq!(extent.touch(offset, length), before);
                if length > 0 {
                    bytes_of.extend((offset / GRANULE)..(offset + length).div_ceil(GRANULE));
                }

                prop_assert_eq!(extent.granules(), bytes_of.len() as u64);
            }
        }

        #[test]
        fn cleared_granules_are_removed(steps in proptest::collection::vec((any::<bool>(), 0u64..3_000_000, 0u64..200_000), 1..60)) {
            let mut extent = GranuleSet::default();
            let mut set = BTreeSet::new();
            for (add, offset, length) in steps {
                let granules = (offset / GRANULE)..if length > 0 { (offset + length).div_ceil(GRANULE) } else { 0 };
                if add {
                    extent.touch(offset, length);
                    set.extend(granules);
                } else {
                    extent.clear(offset, length);
                    set.retain(|granule| !granules.contains(granule));
                }
                prop_assert_eq!(extent.granules(), set.len() as u64);
            }
            extent.clear(0, u64::MAX);
            extent.clear(u64::MAX, u64::MAX);
            prop_assert_eq!(extent.granules(), 0);
        }

        #[test]
        fn a_small_extent_of_a_large_file_has_larger_granules(
            touches in proptest::collection::vec((0u64..1 << 40, 1u64..100_000_000), 1..20),
        ) {
            let mut extent = GranuleSet::with_max_bits(128);
            for (offset, length) in &touches {
                extent.touch(*offset, *length);
            }
            let granule = extent.granule_bytes();
            let set: BTreeSet<u64> = touches
                .iter()
                .flat_map(|(offset, length)| (offset / granule)..=((offset + length - 1) / granule))
                .collect();
            prop_assert_eq!(extent.granules(), set.len() as u64);
            prop_assert!(extent.heap_bytes() <= 32);
        }
    }

    #[test]
    fn the_end_of_the_range_saturates() {
        let mut extent = GranuleSet::default();
        extent.touch(u64::MAX - 5, u64::MAX);
        extent.touch(0, u64::MAX);
        extent.touch(u64::MAX, 0);
        assert!(extent.heap_bytes() <= 128 * 1024);
        assert!(extent.granules() <= MAX_BITS);
    }
}
