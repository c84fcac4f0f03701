//! Distances between consecutive accesses: signed, on a logarithmic scale.

/// An access ahead by at most this many bytes is not a jump: read-ahead of device and kernel, and the track of a
/// disk, cover such a distance. 1 MiB.
pub const NEAR: u64 = 1 << 20;

/// The position of an access relative to the previous one.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum AccessStep {
    /// It begins where the previous one ended.
    Contiguous,
    /// Ahead by this many bytes.
    Forward(u64),
    /// Back by this many bytes.
    Back(u64),
}

impl AccessStep {
    /// The step from the end of one access to the offset of the next.
    pub const fn between(end: u64, offset: u64) -> Self {
        if offset == end {
            Self::Contiguous
        } else if offset > end {
            Self::Forward(offset - end)
        } else {
            Self::Back(end - offset)
        }
    }

    /// Whether it is back, or ahead by more than [`NEAR`].
    pub const fn is_jump(self) -> bool {
        match self {
            Self::Contiguous => false,
            Self::Forward(bytes) => bytes > NEAR,
            Self::Back(_) => true,
        }
    }
}

/// A histogram of distances. Bucket `k` of either direction holds distances in `[2^k, 2^(k+1))` bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distances {
    contiguous: u64,
    near: u64,
    jumps: u64,
    forward: [u32; 64],
    back: [u32; 64],
}

impl Default for Distances {
    fn default() -> Self {
        Self { contiguous: 0, near: 0, jumps: 0, forward: [0; 64], back: [0; 64] }
    }
}

impl Distances {
    /// Counts one distance; buckets saturate at 2^32 - 1.
    pub fn record(&mut self, step: AccessStep) {
        if step.is_jump() {
            self.jumps += 1;
        }
        match step {
            AccessStep::Contiguous => self.contiguous += 1,
            AccessStep::Forward(bytes) => {
                self.near += u64::from(bytes <= NEAR);
                let bucket = &mut self.forward[bytes.ilog2() as usize];
                *bucket = bucket.saturating_add(1);
            }
            AccessStep::Back(bytes) => {
                let bucket = &mut self.back[bytes.ilog2() as usize];
                *bucket = bucket.saturating_add(1);
            }
        }
    }

    /// Number of known distances.
    pub const fn count(&self) -> u64 {
        self.contiguous + self.near + self.jumps
    }

    /// Number of contiguous accesses: distance 0.
    pub const fn contiguous(&self) -> u64 {
        self.contiguous
    }

    /// Number of skips: forward by 1 byte to [`NEAR`].
    pub const fn near(&self) -> u64 {
        self.near
    }

    /// Number of jumps: back, or forward by more than [`NEAR`].
    pub const fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Number of distances back.
    pub fn back(&self) -> u64 {
        self.back.iter().copied().map(u64::from).sum()
    }

    /// Share of distances of more than [`NEAR`] in either direction: the jumps without those back to what was just
    /// read. `None` if no distance is known.
    pub fn far_share(&self) -> Option<f64> {
        let back: u64 = self.back[..NEAR.ilog2() as usize].iter().copied().map(u64::from).sum();
        let far = self.jumps.saturating_sub(back);
        (self.count() > 0).then(|| far as f64 / self.count() as f64)
    }

    /// Share of contiguous accesses in all known distances; `None` if there are none.
    pub fn sequential_share(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.contiguous as f64 / self.count() as f64)
    }

    /// The randomness score: share of jumps in all known distances, 0 to 1; `None` if there are none.
    pub fn randomness(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.jumps as f64 / self.count() as f64)
    }

    /// The buckets that are not empty, from the farthest back to the farthest ahead: lower bound of the distance in
    /// bytes (negative for back), and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (i128, u64)> + '_ {
        let back = (0..64).rev().map(|k| (-(1i128 << k), u64::from(self.back[k])));
        let forward = (0..64).map(|k| (1i128 << k, u64::from(self.forward[k])));
        let all = back.chain(std::iter::once((0, self.contiguous))).chain(forward);
        all.filter(|&(_, count)| count > 0)
    }
}
