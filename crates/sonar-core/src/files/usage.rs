//! The figures of a file that the kernel adds up, for the live view.

use crate::Histogram;

/// Number of buckets of [`FileUsage::latency`].
pub const BUCKETS: usize = 256;
/// Number of registers of [`FileUsage::places`].
pub const PLACES: usize = 256;

/// The accesses to one file since counting began. All counters only grow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileUsage {
    /// Reads and page faults.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time spent in reads, in nanoseconds, without page faults of unknown latency.
    pub read_ns: u64,
    /// Number of reads for which the bytes from the device are known.
    pub known: u64,
    /// Number of `known` reads that were served from the page cache.
    pub cached: u64,
    /// Bytes read by `known` reads.
    pub known_bytes: u64,
    /// Bytes that `known` reads fetched from the device.
    pub device_bytes: u64,
    /// Number of contiguous accesses: distances of 0.
    pub contiguous: u64,
    /// Number of skips: ahead by at most [`NEAR`](super::NEAR).
    pub near: u64,
    /// Number of jumps: back, or ahead by more.
    pub jumps: u64,
    /// Number of `jumps` back.
    pub back: u64,
    /// Number of `reads` that are page faults.
    pub faults: u64,
    /// Number of failed accesses.
    pub errors: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time spent in writes, in nanoseconds.
    pub write_ns: u64,
    /// Flushes.
    pub syncs: u64,
    /// Time spent in flushes, in nanoseconds.
    pub sync_ns: u64,
    /// Latencies of reads, with eight buckets per power of two: bucket `8 (e - 2) + s` holds
    /// `[(8 + s) 2^(e-3), (9 + s) 2^(e-3))` ns. Below 8 ns, each bucket is one nanosecond wide.
    pub latency: [u32; BUCKETS],
    /// HyperLogLog registers (Flajolet et al. 2007) for the number of distinct 4 KiB blocks at which reads began.
    pub places: [u8; PLACES],
}

impl Default for FileUsage {
    fn default() -> Self {
        Self {
            reads: 0,
            read_bytes: 0,
            read_ns: 0,
            known: 0,
            cached: 0,
            known_bytes: 0,
            device_bytes: 0,
            contiguous: 0,
            near: 0,
            jumps: 0,
            back: 0,
            faults: 0,
            errors: 0,
            writes: 0,
            write_bytes: 0,
            write_ns: 0,
            syncs: 0,
            sync_ns: 0,
            latency: [0; BUCKETS],
            places: [0; PLACES],
        }
    }
}

impl FileUsage {
    /// All counters, in the order of the kernel's record.
    pub fn counters_mut(&mut self) -> [&mut u64; 18] {
        [
            &mut self.reads,
            &mut self.read_bytes,
            &mut self.read_ns,
            &mut self.known,
            &mut self.cached,
            &mut self.known_bytes,
            &mut self.device_bytes,
            &mut self.contiguous,
            &mut self.near,
            &mut self.jumps,
            &mut self.back,
            &mut self.faults,
            &mut self.errors,
            &mut self.writes,
            &mut self.write_bytes,
            &mut self.write_ns,
            &mut self.syncs,
            &mut self.sync_ns,
        ]
    }

    /// The difference from `earlier`, except that [`places`](Self::places) stays as it is.
    pub fn since(&self, earlier: &Self) -> Self {
        let (mut now, mut before) = (self.clone(), earlier.clone());
        for (now, before) in now.counters_mut().into_iter().zip(before.counters_mut()) {
            *now = now.saturating_sub(*before);
        }
        // The kernel's counters are 32 bits wide and may have wrapped.
        for (now, before) in now.latency.iter_mut().zip(before.latency) {
            *now = now.wrapping_sub(before);
        }
        now
    }

    /// Adds another file's figures, for example to sum a collection and its indexes.
    pub fn add(&mut self, other: &Self) {
        let mut other = other.clone();
        for (mine, theirs) in self.counters_mut().into_iter().zip(other.counters_mut()) {
            *mine = mine.saturating_add(*theirs);
        }
        for (mine, theirs) in self.latency.iter_mut().zip(other.latency) {
            *mine = mine.saturating_add(theirs);
        }
        // The registers do not distinguish blocks of different files, so they cannot be merged.
        self.places = [0; PLACES];
    }

    /// Whether there were no accesses.
    pub const fn is_idle(&self) -> bool {
        self.reads == 0 && self.writes == 0 && self.syncs == 0 && self.errors == 0
    }

    /// Number of known distances.
    pub const fn distances(&self) -> u64 {
        self.contiguous + self.near + self.jumps
    }

    /// Share of contiguous accesses in all known distances; `None` if there are none.
    pub fn sequential_share(&self) -> Option<f64> {
        (self.distances() > 0).then(|| self.contiguous as f64 / self.distances() as f64)
    }

    /// Share of jumps in all known distances; `None` if there are none.
    pub fn randomness(&self) -> Option<f64> {
        (self.distances() > 0).then(|| self.jumps as f64 / self.distances() as f64)
    }

    /// Share of `known` reads that were served from the page cache; `None` if there are none.
    pub fn cached_share(&self) -> Option<f64> {
        (self.known > 0).then(|| self.cached as f64 / self.known as f64)
    }

    /// Bytes from the device per byte read; `None` if unknown.
    pub fn device_per_byte(&self) -> Option<f64> {
        (self.known_bytes > 0).then(|| self.device_bytes as f64 / self.known_bytes as f64)
    }

    /// Latencies of the reads, each at the middle of its bucket (error at most 6.3 %).
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        for (at, count) in self.latency.iter().enumerate().filter(|(_, count)| **count > 0) {
            let ns = match at as u64 {
                at @ 0..8 => at,
                at => {
                    let width = 1u64 << (at / 8 - 1);
                    (8 + at % 8) * width + width / 2
                }
            };
            histogram.record_many(ns, u64::from(*count));
        }
        histogram
    }

    /// Estimated number of distinct 4 KiB blocks at which reads began since counting began; the standard error is
    /// 6.5 %.
    pub fn blocks(&self) -> f64 {
        let count = PLACES as f64;
        let sum: f64 = self.places.iter().map(|rank| 0.5f64.powi(i32::from(*rank))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let empty = self.places.iter().filter(|rank| **rank == 0).count();
        // Small numbers are estimated better from the registers that are still zero.
        if raw <= 2.5 * count && empty > 0 { count * (count / empty as f64).ln() } else { raw }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Updates the registers as the eBPF program does.
    fn touch(usage: &mut FileUsage, block: u64) {
        let mut hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
        hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let rank = 56 - ((hash & ((1 << 56) - 1)) | 1).ilog2() as u8;
        let place = &mut usage.places[(hash >> 56) as usize];
        *place = (*place).max(rank);
    }

    #[test]
    fn blocks_are_estimated_within_a_fifth() {
        for count in [1u64, 10, 100, 700, 5_000, 40_000, 1_000_000] {
            for stride in [1u64, 7, 1 << 20] {
                let mut usage = FileUsage::default();
                for _ in 0..2 {
                    for block in 0..count {
                        touch(&mut usage, block * stride);
                    }
                }
                let ratio = usage.blocks() / count as f64;
                assert!((0.8..1.2).contains(&ratio), "{count} by {stride}: {ratio}");
            }
        }
    }

    #[test]
    fn the_middle_of_a_bucket_lies_in_it() {
        // The arithmetic of the eBPF program.
        let bucket = |ns: u64| match ns {
            0..8 => ns as usize,
            _ => {
                let log = ns.ilog2();
                ((log as usize - 2) * 8 + ((ns >> (log - 3)) & 7) as usize).min(BUCKETS - 1)
            }
        };
        for ns in [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 1_000, 4_095, 123_456, 999_999_999, (1 << 34) - 1] {
            let mut usage = FileUsage::default();
            usage.latency[bucket(ns)] = 3;
            let histogram = usage.histogram();
            assert_eq!(histogram.count(), 3);
            let middle = histogram.max_ns().unwrap();
            assert_eq!(bucket(middle), bucket(ns), "{ns}");
            assert!(middle.abs_diff(ns) * 16 <= ns.max(16), "{ns}: {middle}");
        }
    }

    #[test]
    fn since_is_the_difference() {
        let mut before = FileUsage { reads: 5, contiguous: 2, ..FileUsage::default() };
        before.latency[30] = u32::MAX;
        let mut now = FileUsage { reads: 9, contiguous: 3, jumps: 3, ..before.clone() };
        now.latency[30] = 3;
        let since = now.since(&before);
        assert_eq!((since.reads, since.contiguous, since.jumps), (4, 1, 3));
        assert_eq!(since.latency[30], 4);
        assert_eq!(since.randomness(), Some(0.75));
        assert!(now.since(&now).is_idle());
    }
}
