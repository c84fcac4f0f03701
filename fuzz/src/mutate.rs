//! Changed inputs without a fuzzer: the same ones for the same seed of the generator.

/// Numbers at which readers of lengths and counts go wrong.
const EDGES: [u32; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, and 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // Below a usize, so it fits one.
        (self.next() % (end as u64).max(1)) as usize
    }

    /// A part of `len` bytes, of at most 64.
    fn part(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len);
        start..(start + 1 + self.below(64)).min(len)
    }
}

/// Changes the input in one to four places: bits and bytes, lengths, parts that are cut out, doubled or taken from another
/// input, and its end.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let len = input.len();
        let at = random.below(len);
        match random.below(8) {
            0 => input.truncate(at),
            1 => drop(input.drain(random.part(len))),
            2 => {
                let part = input[random.part(len)].to_vec();
                input.splice(at..at, part);
            }
            3 => {
                let part = &other[random.part(other.len())];
                input.splice(at..at, part.iter().copied());
            }
            4 if len >= 4 => {
                let at = random.below(len - 3);
                input[at..at + 4].copy_from_slice(&EDGES[random.below(EDGES.len())].to_le_bytes());
            }
            5 if len > 0 => input[at] = EDGES[random.below(5)] as u8,
            _ if len > 0 => input[at] ^= 1 << random.below(8),
            _ => input.push(random.below(256) as u8),
        }
    }
}
