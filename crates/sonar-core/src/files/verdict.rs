//! What a recording comes to, with the figures that show it. Words are made of it elsewhere.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::analysis::Analysis;
use super::naming::FileRole;
use super::phase::{Path, SEQUENTIAL_BELOW};
use super::thread::ThreadRole;

/// With fewer reads, or fewer that waited for the device where that is known, nothing is said.
pub const MIN_READS: u64 = 64;
/// Unless they fetched so many bytes: readahead lets a long pass wait seldom.
const MIN_DEVICE_BYTES: u64 = 8 << 20;
/// An order is called the disk's own with less than so many bytes read for each one touched.
const AMPLIFIED_FROM: f64 = 1.5;
/// With less of what was touched from the device, the rest lay in the page cache before.
const COLD_FROM: f64 = 0.5;
/// The rate of reads in order is known from so many bytes on.
const MIN_RATE_BYTES: u64 = 1 << 20;

/// Which access path was seen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Fewer than [`MIN_READS`] reads, or fewer that waited for the device.
    TooFewReads,
    /// Most of what was read lay in the page cache: the order on the disk had no part in it.
    FromCache,
    /// The file was walked in its own order.
    SequentialPass,
    /// The thread that read this file at random walked an index beside it: documents were fetched in
    /// the index's order, which is not the disk's.
    IndexFetch {
        /// The index, by its number.
        index: u32,
    },
    /// Read at random, for no known reason.
    RandomReads,
    /// In the disk's order, but the same places again and again: what was read was not kept.
    ReadAgain,
    /// Partly in order.
    Mixed,
}

impl Finding {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooFewReads => "too_few_reads",
            Self::FromCache => "from_cache",
            Self::SequentialPass => "sequential_pass",
            Self::IndexFetch { .. } => "index_fetch",
            Self::RandomReads => "random_reads",
            Self::ReadAgain => "read_again",
            Self::Mixed => "mixed",
        }
    }
}

/// What a recording comes to. It speaks of the file on which most time was spent waiting for the device, or in reads
/// where none waited.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The file; `None` when nothing was read.
    pub file: Option<u32>,
    /// Which access path.
    pub finding: Finding,
    /// Reads of the file.
    pub reads: u64,
    /// Of them: that waited for the device; `None` where it is not known of any.
    pub device_reads: Option<u64>,
    /// Different places at which they began.
    pub blocks: u64,
    /// Bytes that they gave.
    pub bytes: u64,
    /// Bytes of the file that were touched.
    pub touched: u64,
    /// `bytes` for each of `touched`.
    pub amplification: Option<f64>,
    /// The randomness score.
    pub randomness: Option<f64>,
    /// [`Distances::far_share`](super::Distances::far_share).
    pub far_share: Option<f64>,
    /// Time that threads spent in these reads, in nanoseconds, summed over threads.
    pub read_ns: u128,
    /// The thread that made most of them, of those with the role that did.
    pub thread: Option<u32>,
    /// Share of its time which that thread spent in reads of any file.
    pub thread_read_share: Option<f64>,
    /// The role, by their names, of the threads that made most of the file's reads together.
    pub thread_role: ThreadRole,
    /// Threads of this role that read the file.
    pub role_threads: u64,
    /// Share of the file's reads that they made, 0 to 1; `None` where nothing is known of who read it.
    pub role_share: Option<f64>,
    /// Bytes from the device for each byte that was touched; `None` where it is not known of any read.
    pub device_per_touched: Option<f64>,
    /// [`Analysis::depth`].
    pub depth: Option<f64>,
    /// What reading every byte that was touched once, in order, would take on this disk, in
    /// nanoseconds: at the rate at which this recording's own reads in order were served. `None` where
    /// it holds too few of them to judge.
    pub in_order_ns: Option<u64>,
    /// That rate, in bytes per second.
    pub in_order_rate: Option<f64>,
}

impl Verdict {
    /// Whether most of what was touched lay in the page cache before, so that times are those of memory;
    /// `None` where it is not known.
    pub fn is_of_memory(&self) -> Option<bool> {
        self.device_per_touched.map(|share| share < COLD_FROM)
    }

    /// Whether the reads are evidence of how the file is read from the disk.
    pub const fn is_evident(&self) -> bool {
        !matches!(self.finding, Finding::TooFewReads | Finding::FromCache)
    }
}

/// Judges the file on which most time was spent waiting for the device, or in reads where none waited; `role` says what a file is for, `thread_role` what a
/// thread.
pub fn judge(
    analysis: &Analysis,
    role: impl Fn(u32) -> FileRole,
    thread_role: impl Fn(u32) -> ThreadRole,
) -> Verdict {
    let worst = analysis
        .files()
        .filter(|(_, file)| file.reads.count > 0)
        .max_by_key(|(id, file)| (waited_ns(&file.reads), read_ns(&file.reads), Reverse(*id)));
    worst.and_then(|(file, _)| judge_file(analysis, file, role, thread_role)).unwrap_or(Verdict {
        file: None,
        finding: Finding::TooFewReads,
        reads: 0,
        device_reads: None,
        blocks: 0,
        bytes: 0,
        touched: 0,
        amplification: None,
        randomness: None,
        far_share: None,
        read_ns: 0,
        thread: None,
        thread_read_share: None,
        thread_role: ThreadRole::Other,
        role_threads: 0,
        role_share: None,
        device_per_touched: None,
        depth: None,
        in_order_ns: None,
        in_order_rate: None,
    })
}

/// Time in reads that waited for the device, or may have.
fn waited_ns(flow: &super::Flow) -> u128 {
    flow.uncached.sum_ns() + flow.unknown.sum_ns()
}

fn read_ns(flow: &super::Flow) -> u128 {
    flow.cached.sum_ns() + flow.uncached.sum_ns() + flow.unknown.sum_ns()
}

/// Judges one file; `None` where nothing of it was read.
pub fn judge_file(
    analysis: &Analysis,
    id: u32,
    role: impl Fn(u32) -> FileRole,
    thread_role: impl Fn(u32) -> ThreadRole,
) -> Option<Verdict> {
    let reads = &analysis.file(id).filter(|file| file.reads.count > 0)?.reads;
    // Many connections may each read less than one other thread, and all of them together more.
    let mut by_role: BTreeMap<ThreadRole, (u64, u64)> = BTreeMap::new();
    for (by, _, reads) in analysis.readers().filter(|(_, file, _)| *file == id) {
        let (threads, sum) = by_role.entry(thread_role(by)).or_default();
        *threads += 1;
        *sum += reads;
    }
    let known_reads: u64 = by_role.values().map(|(_, reads)| reads).sum();
    let main = by_role.iter().max_by_key(|(role, (_, reads))| (*reads, Reverse(**role)));
    let (main_role, (role_threads, role_reads)) =
        main.map_or((ThreadRole::Other, (0, 0)), |(role, sum)| (*role, *sum));
    let thread = analysis
        .readers()
        .filter(|&(by, file, _)| file == id && thread_role(by) == main_role)
        .max_by_key(|r| (r.2, r.0))
        .map(|r| r.0);
    let index = analysis
        .readers()
        .filter(|&(by, other, _)| Some(by) == thread && other != id && role(other) == FileRole::Index)
        .max_by_key(|r| (r.2, r.1));
    let (bytes, ns) = analysis.files().fold((0u64, 0u64), |sum, (_, file)| {
        let (bytes, ns) = file.reads.in_order;
        (sum.0.saturating_add(bytes), sum.1.saturating_add(ns))
    });
    let in_order_rate = (bytes >= MIN_RATE_BYTES && ns > 0).then(|| bytes as f64 / (ns as f64 / 1e9));
    let randomness = reads.distances.randomness();
    let amplification = reads.amplification();
    let path = Path::of(randomness);
    let is_known = reads.device_given > 0;
    let device_reads = is_known.then(|| reads.uncached.count());
    let device_per_touched = (is_known && reads.extent.bytes() > 0)
        .then(|| reads.device_bytes as f64 / reads.extent.bytes() as f64);
    // Reads of which it is not known count as if they had waited.
    let waited = device_reads.map_or(reads.count, |count| count + reads.unknown.count());
    let finding = match path {
        _ if reads.count < MIN_READS => Finding::TooFewReads,
        _ if device_per_touched.is_some_and(|share| share < COLD_FROM) => Finding::FromCache,
        _ if waited < MIN_READS && reads.device_bytes < MIN_DEVICE_BYTES => Finding::TooFewReads,
        Path::Unknown => Finding::TooFewReads,
        Path::Sequential if amplification.is_none_or(|times| times < AMPLIFIED_FROM) => {
            Finding::SequentialPass
        }
        // Jumps that only go back to what was just read say nothing of the order.
        _ if reads.distances.far_share().is_some_and(|share| share < SEQUENTIAL_BELOW) => Finding::ReadAgain,
        Path::Sequential | Path::Mixed => Finding::Mixed,
        Path::Random => match index {
            Some((_, index, _)) if role(id) == FileRole::Collection => Finding::IndexFetch { index },
            _ => Finding::RandomReads,
        },
    };
    Some(Verdict {
        file: Some(id),
        finding,
        reads: reads.count,
        device_reads,
        blocks: reads.blocks.granules(),
        bytes: reads.given,
        touched: reads.extent.bytes(),
        amplification,
        randomness,
        far_share: reads.distances.far_share(),
        read_ns: read_ns(reads),
        thread,
        thread_read_share: thread
            .and_then(|id| analysis.threads().find(|(other, _)| *other == id))
            .and_then(|(_, thread)| thread.read_share()),
        thread_role: main_role,
        role_threads,
        role_share: (known_reads > 0).then(|| role_reads as f64 / known_reads as f64),
        device_per_touched,
        depth: analysis.depth(),
        in_order_ns: in_order_rate.map(|rate| (reads.extent.bytes() as f64 / rate * 1e9) as u64),
        in_order_rate,
    })
}
