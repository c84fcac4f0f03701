//! The accesses to a file: their counts, bytes, latencies and order, and how much readahead they wasted.

use super::IoAccess;
use super::distance::{AccessStep, Distances};
use super::extent::{GRANULE, GranuleSet};
use super::page_ins::PageIns;
use super::phase::{MAX_SLICES, TimeSlice};
use crate::Histogram;

/// A histogram of run lengths: bucket `k` counts runs of `[2^k, 2^(k+1))` contiguous accesses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runs {
    buckets: [u32; 40],
    count: u64,
    accesses: u64,
    longest: u64,
}

impl Default for Runs {
    fn default() -> Self {
        Self { buckets: [0; 40], count: 0, accesses: 0, longest: 0 }
    }
}

impl Runs {
    /// Counts a run of `length` accesses, at least 1.
    pub(super) fn record(&mut self, length: u64) {
        let bucket = &mut self.buckets[(length.max(1).ilog2() as usize).min(39)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.accesses += length;
        self.longest = self.longest.max(length);
    }

    /// Number of completed runs.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Accesses in the longest run.
    pub const fn longest(&self) -> u64 {
        self.longest
    }

    /// Mean number of accesses in a run; `None` if there are no runs.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.accesses as f64 / self.count as f64)
    }

    /// The buckets that are not empty: lower bound of the length, and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|&(_, &n)| n > 0).map(|(k, &n)| (1 << k, u64::from(n)))
    }
}

/// The accesses in one direction: reads (including page faults) or writes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FileAccesses {
    /// Number of accesses, including failed ones.
    pub count: u64,
    /// Number of failed accesses.
    pub errors: u64,
    /// Number of page faults.
    pub faults: u64,
    /// Bytes requested.
    pub asked: u64,
    /// Bytes read or written.
    pub given: u64,
    /// Bytes of `given` in granules that had been accessed before.
    pub again: u64,
    /// Bytes from the device, over the accesses for which this is known.
    pub device_bytes: u64,
    /// Bytes read or written by the accesses for which the bytes from the device are known.
    pub device_given: u64,
    /// The same bytes rounded up to whole 4 KiB pages, access by access.
    pub device_pages: u64,
    /// Latency of accesses served from the page cache.
    pub cached: Histogram,
    /// Latency of accesses that waited for the device.
    pub uncached: Histogram,
    /// Latency of accesses for which this is unknown.
    pub unknown: Histogram,
    /// Total of contiguous accesses and skips: the bytes fetched from the device (or transferred, if that is
    /// unknown), and the time in nanoseconds. Readahead of one access serves the next ones, so only the totals
    /// give the rate of the device for accesses in order.
    pub in_order: (u64, u64),
    /// Distances between consecutive accesses.
    pub distances: Distances,
    /// Runs of contiguous accesses.
    pub runs: Runs,
    /// The highest end offset of an access that transferred bytes.
    pub reach: u64,
    /// The part of the file that was accessed.
    pub extent: GranuleSet,
    /// The granules in which accesses began, that is, the distinct blocks requested.
    pub blocks: GranuleSet,
}

impl FileAccesses {
    pub(super) fn record(&mut self, access: &IoAccess, step: Option<AccessStep>) {
        self.count += 1;
        self.errors += u64::from(access.error != 0);
        self.faults += u64::from(access.kind == super::AccessKind::Fault);
        self.asked = self.asked.saturating_add(access.asked);
        self.given = self.given.saturating_add(access.given);
        self.again = self.again.saturating_add(self.extent.touch(access.offset, access.given));
        if access.given > 0 {
            self.reach = self.reach.max(access.offset.saturating_add(access.given));
        }
        self.blocks.touch(access.offset, access.given.min(1));
        // The end of a page fault is not always visible; then it has no latency.
        let timed = access.kind != super::AccessKind::Fault || access.latency_ns > 0;
        match access.device_bytes {
            None if !timed => {}
            Some(bytes) => {
                self.device_bytes = self.device_bytes.saturating_add(bytes);
                self.device_given = self.device_given.saturating_add(access.given);
                let into = access.offset % GRANULE;
                let pages = access.given.saturating_add(into).div_ceil(GRANULE).saturating_mul(GRANULE);
                let pages = if access.given > 0 { pages } else { 0 };
                self.device_pages = self.device_pages.saturating_add(pages);
                if bytes == 0 { &mut self.cached } else { &mut self.uncached }.record(access.latency_ns);
            }
            None => self.unknown.record(access.latency_ns),
        }
        if let Some(step) = step {
            self.distances.record(step);
            if !step.is_jump() {
                let fetched = access.device_bytes.unwrap_or(access.given);
                self.in_order.0 = self.in_order.0.saturating_add(fetched);
                self.in_order.1 = self.in_order.1.saturating_add(access.latency_ns);
            }
        }
    }

    /// Latency of all accesses.
    pub fn latency(&self) -> Histogram {
        let mut all = self.cached.clone();
        all.merge(&self.uncached);
        all.merge(&self.unknown);
        all
    }

    /// Bytes read or written per byte of the file that was accessed; `None` if nothing was.
    pub fn amplification(&self) -> Option<f64> {
        (self.extent.bytes() > 0).then(|| self.given as f64 / self.extent.bytes() as f64)
    }

    /// Bytes from the device per byte read or written; `None` if unknown.
    pub fn device_per_byte(&self) -> Option<f64> {
        (self.device_given > 0).then(|| self.device_bytes as f64 / self.device_given as f64)
    }

    /// A lower bound of the readahead waste: bytes from the device minus the pages that were read, counted as often
    /// as they were read. `None` if the bytes from the device are unknown.
    pub fn wasted_at_least(&self) -> Option<u64> {
        (self.device_given > 0).then(|| self.device_bytes.saturating_sub(self.device_pages))
    }

    /// Bytes from the device minus the bytes accessed: readahead that nobody read, and bytes fetched more than
    /// once. `None` if the bytes from the device are unknown.
    pub fn beyond_touched(&self) -> Option<u64> {
        (self.device_given > 0).then(|| self.device_bytes.saturating_sub(self.extent.bytes()))
    }

    /// Share of the accesses served from the page cache, of those for which this is known; `None` if there are none.
    pub fn cached_share(&self) -> Option<f64> {
        let known = self.cached.count() + self.uncached.count();
        (known > 0).then(|| self.cached.count() as f64 / known as f64)
    }

    fn heap_bytes(&self) -> usize {
        let latencies = [&self.cached, &self.uncached, &self.unknown].map(Histogram::heap_bytes);
        latencies.iter().sum::<usize>() + self.extent.heap_bytes() + self.blocks.heap_bytes()
    }
}

/// How a file was used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FilePattern {
    /// Reads and page faults.
    pub reads: FileAccesses,
    /// Writes; `None` if there were none.
    pub writes: Option<Box<FileAccesses>>,
    /// Pages loaded into the page cache; `None` if there were none or this was not traced.
    pub page_ins: Option<Box<PageIns>>,
    /// Latency of flushes.
    pub syncs: Histogram,
    /// Reads over time; the width of a slice is [`Analysis::slice_ns`](super::Analysis::slice_ns).
    pub slices: Vec<TimeSlice>,
}

impl FilePattern {
    /// The slice with this number.
    pub(super) fn slice(&mut self, at: usize) -> &mut TimeSlice {
        let at = at.min(MAX_SLICES - 1);
        if self.slices.len() <= at {
            self.slices.resize(at + 1, TimeSlice::default());
        }
        &mut self.slices[at]
    }

    /// Doubles the width of the slices.
    pub(super) fn widen(&mut self) {
        for to in 0..self.slices.len().div_ceil(2) {
            let mut sum = self.slices[to * 2];
            if let Some(next) = self.slices.get(to * 2 + 1) {
                sum.add(next);
            }
            self.slices[to] = sum;
        }
        self.slices.truncate(self.slices.len().div_ceil(2));
    }

    /// Approximate heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        let writes = self.writes.as_ref().map_or(0, |flow| size_of::<FileAccesses>() + flow.heap_bytes());
        let page_ins = self.page_ins.as_ref().map_or(0, |pages| size_of::<PageIns>() + pages.heap_bytes());
        self.reads.heap_bytes()
            + writes
            + page_ins
            + self.syncs.heap_bytes()
            + self.slices.capacity() * size_of::<TimeSlice>()
    }
}
