//! How the memory of a ring is divided into blocks.
//!
//! At low rates the kernel passes a block on once in [`RingConfig::retire`](crate::RingConfig::retire), with however
//! few packets are in it, and a block holds nothing else until it is returned. So what bounds how long a reader may
//! stand still is the number of blocks, not their size: [`tolerated_stall`]. Larger blocks mean fewer wake-ups where
//! they fill before their time.

use std::time::Duration;

/// How long a reader may stand still at low rates without losing a packet, where the memory allows it: a program that
/// is still starting, a page that is read from a slow disk, or other programs on all processors.
const LEAST_STALL: Duration = Duration::from_secs(6);
/// The fewest blocks of a ring: the kernel fills one while others are read.
const MIN_BLOCKS: usize = 8;
/// The largest block, in bytes.
const MAX_BLOCK_BYTES: usize = 4 << 20;
/// The smallest block, in bytes. Only a frame that fits in a block is captured whole, and segmentation offload makes
/// frames of 64 KiB.
const MIN_BLOCK_BYTES: usize = 128 << 10;

/// Bytes of a block of a ring of `ring_bytes` whose blocks are passed on after `retire` at the latest: a power of two
/// from 128 KiB to 4 MiB, the largest one with which the ring tolerates that its reader stands still for six seconds;
/// the smallest one if none does.
pub fn block_bytes(ring_bytes: usize, retire: Duration) -> usize {
    let retire = retire.max(Duration::from_millis(1));
    // One more than those that are passed on meanwhile: the kernel is filling it.
    let blocks = LEAST_STALL.as_nanos().div_ceil(retire.as_nanos()) as usize + 1;
    let most = (ring_bytes / blocks.max(MIN_BLOCKS)).clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
    1 << most.ilog2()
}

/// How long the reader of a ring of `blocks` blocks may stand still without losing a packet, if no block fills before
/// the kernel passes it on after `retire`.
pub fn tolerated_stall(blocks: usize, retire: Duration) -> Duration {
    // The last one is full of packets of the next period when it is needed again.
    retire.saturating_mul(u32::try_from(blocks.saturating_sub(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_a_ring_tolerates_is_one_period_for_each_block_but_the_last() {
        assert_eq!(tolerated_stall(8, ms(250)), ms(1_750));
        assert_eq!(tolerated_stall(32, ms(250)), ms(7_750));
        assert_eq!(tolerated_stall(64, ms(100)), ms(6_300));
        assert_eq!([0, 1].map(|blocks| tolerated_stall(blocks, ms(250))), [Duration::ZERO; 2]);
        assert!(tolerated_stall(usize::MAX, Duration::MAX) > LEAST_STALL);
    }

    #[test]
    fn blocks_are_as_large_as_the_stall_allows() {
        // 24 blocks are passed on in six seconds, or 60.
        assert_eq!(block_bytes(32 * MIB, ms(250)), MIB);
        assert_eq!(block_bytes(32 * MIB, ms(100)), MIB / 2);
        assert_eq!(block_bytes(1024 * MIB, ms(250)), 4 * MIB);
    }

    #[test]
    fn rings_of_every_size_tolerate_seconds() {
        for retire in [250, 100] {
            for ring in (4..=4096).map(|mib| mib * MIB) {
                let bytes = block_bytes(ring, ms(retire));
                let blocks = ring / bytes;
                assert!(bytes.is_power_of_two() && (MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&bytes));
                assert!(blocks >= MIN_BLOCKS, "{ring}: {blocks} blocks");
                let stall = tolerated_stall(blocks, ms(retire));
                let least = if bytes == MIN_BLOCK_BYTES { ms(3_000) } else { LEAST_STALL };
                assert!(stall >= least, "{ring} bytes in {blocks} blocks: {stall:?}");
            }
        }
    }
}
