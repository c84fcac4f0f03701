//! Offsets of the requests of a test: the same seed gives the same offsets on every machine.

/// Offsets are multiples of this, as in mongoperf, for any record size.
pub const ALIGNMENT: u64 = 4096;

/// SplitMix64 (Steele, Lea and Flood, 2014): a pseudo-random generator with 64 bits of state.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for part `part` of a task with seed `seed`; parts have unrelated sequences.
    pub const fn part(seed: u64, part: u64) -> Self {
        let mut mixed = Self(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let state = mixed.next();
        Self(state)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an iterator of numbers would hide that it never ends")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number below `bound`; 0 if `bound` is 0. The bias is negligible: below 2^-40 for bounds under 2^24.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}

/// The offsets for a file and a record size.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    places: u64,
    records: u64,
    record_bytes: u64,
}

impl Offsets {
    /// For records of `record_bytes` in a file of `file_bytes`; `None` if not a single one fits.
    pub const fn new(file_bytes: u64, record_bytes: u64) -> Option<Self> {
        if record_bytes == 0 || record_bytes > file_bytes {
            return None;
        }
        let places = (file_bytes - record_bytes) / ALIGNMENT + 1;
        Some(Self { places, records: file_bytes / record_bytes, record_bytes })
    }

    /// The number of consecutive records in the file.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// A random offset of a record that ends inside the file.
    pub const fn random(&self, random: &mut SplitMix) -> u64 {
        random.below(self.places) * ALIGNMENT
    }

    /// The offset of record number `n`; wraps at the end of the file.
    pub const fn sequential(&self, n: u64) -> u64 {
        n % self.records * self.record_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sequence_equals_the_reference() {
        // The first values for seed 1234567, as printed by Vigna's splitmix64.c.
        let mut random = SplitMix::new(1_234_567);
        let values: Vec<u64> = (0..5).map(|_| random.next()).collect();
        assert_eq!(
            values,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn every_place_is_hit_about_as_often() {
        let offsets = Offsets::new(16 << 12, 4096).unwrap();
        let mut random = SplitMix::part(7, 3);
        let mut hits = [0u32; 16];
        for _ in 0..160_000 {
            hits[(offsets.random(&mut random) / ALIGNMENT) as usize] += 1;
        }
        assert!(hits.iter().all(|n| (9_500..10_500).contains(n)), "{hits:?}");
    }

    #[test]
    fn parts_do_not_share_a_sequence() {
        let first = |part| SplitMix::part(1, part).next();
        let mut seen: Vec<u64> = (0..10_000).map(first).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10_000);
    }

    proptest! {
        #[test]
        fn a_record_never_leaves_the_file(file in 1u64..1 << 40, record in 1u64..1 << 26, seed: u64, n: u64) {
            let Some(offsets) = Offsets::new(file, record) else {
                prop_assert!(record > file);
                return Ok(());
            };
            let random = offsets.random(&mut SplitMix::new(seed));
            prop_assert!(random % ALIGNMENT == 0 && random + record <= file);
            prop_assert!(offsets.sequential(n) + record <= file);
        }
    }
}
