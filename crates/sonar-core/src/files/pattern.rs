//! How one file was used.

use super::IoAccess;
use super::distance::{Distances, Step};
use super::extent::{Extent, GRANULE};
use super::page_ins::PageIns;
use super::phase::{MAX_SLICES, Slice};
use crate::Histogram;

/// Lengths of runs: bucket `k` counts runs of `[2^k, 2^(k+1))` contiguous accesses.
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
    /// Counts a run of `length` accesses, at least one.
    pub(super) fn record(&mut self, length: u64) {
        let bucket = &mut self.buckets[(length.max(1).ilog2() as usize).min(39)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.accesses += length;
        self.longest = self.longest.max(length);
    }

    /// Runs that have ended.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Accesses in the longest.
    pub const fn longest(&self) -> u64 {
        self.longest
    }

    /// Accesses in a run on average; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.accesses as f64 / self.count as f64)
    }

    /// Buckets that are not empty: lower bound of the length, and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|&(_, &n)| n > 0).map(|(k, &n)| (1 << k, u64::from(n)))
    }
}

/// The accesses of one direction: what was read (page faults too), or what was written.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Flow {
    /// Accesses, failed ones too.
    pub count: u64,
    /// Of them: failed.
    pub errors: u64,
    /// Of them: page faults.
    pub faults: u64,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes read or written.
    pub given: u64,
    /// Of `given`: bytes in granules that had been touched before.
    pub again: u64,
    /// Bytes from the device, of the accesses of which that is known.
    pub device_bytes: u64,
    /// Bytes given by the accesses of which it is known what came from the device.
    pub device_given: u64,
    /// Of the same accesses: bytes of the whole 4 KiB pages in which what they gave lies.
    pub device_pages: u64,
    /// Latency of accesses that the page cache answered.
    pub cached: Histogram,
    /// Latency of accesses that waited for the device.
    pub uncached: Histogram,
    /// Latency of accesses of which neither is known.
    pub unknown: Histogram,
    /// Of contiguous accesses and skips: the bytes that they fetched from the device (that they gave, where
    /// that is not known) and the time of all of them. One of them fetches ahead and the next ones wait for
    /// nothing, so only together they give the rate at which the device serves what is asked for in order.
    pub in_order: (u64, u64),
    /// Distances between consecutive accesses.
    pub distances: Distances,
    /// Contiguous accesses in a row.
    pub runs: Runs,
    /// End of the farthest access that gave bytes, in bytes.
    pub reach: u64,
    /// What was touched.
    pub extent: Extent,
    /// Where accesses began: its granules are the different blocks that were asked for.
    pub blocks: Extent,
}

impl Flow {
    pub(super) fn record(&mut self, access: &IoAccess, step: Option<Step>) {
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
        // Faults have no latency where their end cannot be seen.
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

    /// All latencies.
    pub fn latency(&self) -> Histogram {
        let mut all = self.cached.clone();
        all.merge(&self.uncached);
        all.merge(&self.unknown);
        all
    }

    /// Bytes given for each byte of the file that was touched; `None` when nothing was.
    pub fn amplification(&self) -> Option<f64> {
        (self.extent.bytes() > 0).then(|| self.given as f64 / self.extent.bytes() as f64)
    }

    /// Bytes from the device for each byte given, where known.
    pub fn device_per_byte(&self) -> Option<f64> {
        (self.device_given > 0).then(|| self.device_bytes as f64 / self.device_given as f64)
    }

    /// What was read ahead for nothing at the least: bytes from the device beyond all pages that were read, each as
    /// often as it was. A byte that was fetched and read counts as read, so the rest nobody read. `None` where
    /// it is not known what came from the device.
    pub fn wasted_at_least(&self) -> Option<u64> {
        (self.device_given > 0).then(|| self.device_bytes.saturating_sub(self.device_pages))
    }

    /// Bytes from the device beyond those that were touched: readahead that nobody read, or what was fetched
    /// more than once. `None` where it is not known what came from the device.
    pub fn beyond_touched(&self) -> Option<u64> {
        (self.device_given > 0).then(|| self.device_bytes.saturating_sub(self.extent.bytes()))
    }

    /// Share of the accesses that the page cache answered, where known.
    pub fn cached_share(&self) -> Option<f64> {
        let known = self.cached.count() + self.uncached.count();
        (known > 0).then(|| self.cached.count() as f64 / known as f64)
    }

    fn heap_bytes(&self) -> usize {
        let latencies = [&self.cached, &self.uncached, &self.unknown].map(Histogram::heap_bytes);
        latencies.iter().sum::<usize>() + self.extent.heap_bytes() + self.blocks.heap_bytes()
    }
}

/// How one file was used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FilePattern {
    /// What was read.
    pub reads: Flow,
    /// What was written; `None` when nothing was.
    pub writes: Option<Box<Flow>>,
    /// What was brought into the page cache; `None` where that was not traced, or nothing was.
    pub page_ins: Option<Box<PageIns>>,
    /// Latency of flushes.
    pub syncs: Histogram,
    /// Reads over time; the width of a slice is that of the analysis.
    pub slices: Vec<Slice>,
}

impl FilePattern {
    /// The slice of this number.
    pub(super) fn slice(&mut self, at: usize) -> &mut Slice {
        let at = at.min(MAX_SLICES - 1);
        if self.slices.len() <= at {
            self.slices.resize(at + 1, Slice::default());
        }
        &mut self.slices[at]
    }

    /// Slices of twice the width.
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

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        let writes = self.writes.as_ref().map_or(0, |flow| size_of::<Flow>() + flow.heap_bytes());
        let page_ins = self.page_ins.as_ref().map_or(0, |pages| size_of::<PageIns>() + pages.heap_bytes());
        self.reads.heap_bytes()
            + writes
            + page_ins
            + self.syncs.heap_bytes()
            + self.slices.capacity() * size_of::<Slice>()
    }
}
