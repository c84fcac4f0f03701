//! An allocator that counts: the system's own, and how many bytes the program has from it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// Whether it counts.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// Bytes that are in use; blocks from before the beginning may be returned later.
static IN_USE: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, which counts the bytes in use from [`CountedHeap::begin`] on. Until then it only passes calls
/// on. C libraries allocate without it.
#[derive(Copy, Clone, Debug)]
pub struct CountedHeap;

impl CountedHeap {
    /// Begins to count. What was allocated before does not count.
    pub fn begin() {
        COUNTS.store(true, Ordering::Relaxed);
    }

    /// The bytes in use, as they were asked for; `None` if they are not counted.
    pub fn in_use() -> Option<u64> {
        let counts = COUNTS.load(Ordering::Relaxed);
        counts.then(|| IN_USE.load(Ordering::Relaxed).max(0).cast_unsigned() as u64)
    }

    fn add(bytes: usize) {
        if COUNTS.load(Ordering::Relaxed) {
            IN_USE.fetch_add(bytes.cast_signed(), Ordering::Relaxed);
        }
    }

    fn subtract(bytes: usize) {
        if COUNTS.load(Ordering::Relaxed) {
            IN_USE.fetch_sub(bytes.cast_signed(), Ordering::Relaxed);
        }
    }
}

// SAFETY: each call is passed on as it is to the system's allocator, and counting allocates nothing.
unsafe impl GlobalAlloc for CountedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the rules of `alloc`, which are those of the system's.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            Self::add(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            Self::add(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Self::subtract(layout.size());
        // SAFETY: the block is the system's, as all are, and the layout is the caller's.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; the new size is the caller's.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            Self::add(size);
            Self::subtract(layout.size());
        }
        moved
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The allocator of no other test is this one.
    #[test]
    fn blocks_in_use_are_counted() {
        assert_eq!(CountedHeap::in_use(), None);
        CountedHeap::begin();
        let layout = Layout::from_size_align(1_000, 8).unwrap();
        let counted = || CountedHeap::in_use().unwrap();
        // SAFETY: the layout is that of the block, which is not used after it was returned.
        let counts = unsafe {
            let block = CountedHeap.alloc(layout);
            let first = counted();
            let block = CountedHeap.realloc(block, layout, 4_000);
            let grown = counted();
            CountedHeap.dealloc(block, Layout::from_size_align(4_000, 8).unwrap());
            let zeroed = CountedHeap.alloc_zeroed(layout);
            CountedHeap.dealloc(zeroed, layout);
            (first, grown, counted())
        };
        assert_eq!(counts, (1_000, 4_000, 0));
    }
}
