//! The verdict on a recording, with its evidence. `sonar-view` turns it into words.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::analysis::Analysis;
use super::naming::FileRole;
use super::phase::{AccessPath, SEQUENTIAL_BELOW};
use super::thread::ThreadRole;

/// The minimum number of reads (that waited for the device, if known) for a verdict.
pub const MIN_READS: u64 = 64;
/// This many bytes from the device are enough too: with readahead, a long pass rarely waits.
const MIN_DEVICE_BYTES: u64 = 8 << 20;
/// From this read amplification on, a sequential path is not called a sequential pass.
const AMPLIFIED_FROM: f64 = 1.5;
/// If less than this share of the bytes accessed came from the device, they were in the page cache before.
const COLD_FROM: f64 = 0.5;
/// The minimum number of bytes read in order to determine the rate of such reads.
const MIN_RATE_BYTES: u64 = 1 << 20;

/// The access path of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Fewer than [`MIN_READS`] reads, or fewer that waited for the device.
    TooFewReads,
    /// Most of it was read from the page cache, so the order on disk did not matter.
    FromCache,
    /// The file was read in its own order.
    SequentialPass,
    /// The thread that read this file at random also read an index: it fetched documents in the order of the
    /// index, which differs from their order on disk.
    IndexFetch {
        /// File number of the index.
        index: u32,
    },
    /// Read at random, for an unknown reason.
    RandomReads,
    /// Read in order on disk, but the same places repeatedly: the pages were not kept in memory.
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

/// The verdict on a recording or a file. For a recording, it is about the file whose reads waited longest for the
/// device, or took longest if none waited.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct FilesVerdict {
    /// The file; `None` if nothing was read.
    pub file: Option<u32>,
    /// The access path.
    pub finding: Finding,
    /// Number of reads of the file.
    pub reads: u64,
    /// Number of reads that waited for the device; `None` if unknown for all.
    pub device_reads: Option<u64>,
    /// Number of distinct blocks at which they began.
    pub blocks: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes of the file that were accessed.
    pub touched: u64,
    /// Read amplification: `bytes` divided by `touched`.
    pub amplification: Option<f64>,
    /// The randomness score.
    pub randomness: Option<f64>,
    /// [`Distances::far_share`](super::Distances::far_share).
    pub far_share: Option<f64>,
    /// Time that threads spent in these reads, in nanoseconds, summed over threads.
    pub read_ns: u128,
    /// The thread with the most reads among those with role `thread_role`.
    pub thread: Option<u32>,
    /// Share of its time that this thread spent in reads of any file.
    pub thread_read_share: Option<f64>,
    /// The role whose threads together made most reads of the file.
    pub thread_role: ThreadRole,
    /// Number of threads of this role that read the file.
    pub role_threads: u64,
    /// Share of the file's reads by these threads, 0 to 1; `None` if the readers are unknown.
    pub role_share: Option<f64>,
    /// Bytes from the device per byte accessed; `None` if unknown for all reads.
    pub device_per_touched: Option<f64>,
    /// [`Analysis::depth`].
    pub depth: Option<f64>,
    /// Estimated time in nanoseconds for reading every accessed byte once, in order, at `in_order_rate`. `None` if
    /// that is unknown.
    pub in_order_ns: Option<u64>,
    /// The rate of this recording's reads in order, in bytes per second; `None` if there are too few.
    pub in_order_rate: Option<f64>,
}

impl FilesVerdict {
    /// Whether most of what was read was in the page cache before, so that times are those of memory; `None` if
    /// unknown.
    pub fn is_of_memory(&self) -> Option<bool> {
        self.device_per_touched.map(|share| share < COLD_FROM)
    }

    /// Whether the reads show how the file is read from disk.
    pub const fn is_evident(&self) -> bool {
        !matches!(self.finding, Finding::TooFewReads | Finding::FromCache)
    }
}

/// Judges the file whose reads waited longest for the device, or took longest if none waited. `role` and
/// `thread_role` return the roles of files and threads.
pub fn judge(
    analysis: &Analysis,
    role: impl Fn(u32) -> FileRole,
    thread_role: impl Fn(u32) -> ThreadRole,
) -> FilesVerdict {
    let worst = analysis
        .files()
        .filter(|(_, file)| file.reads.count > 0)
        .max_by_key(|(id, file)| (waited_ns(&file.reads), read_ns(&file.reads), Reverse(*id)));
    worst.and_then(|(file, _)| judge_file(analysis, file, role, thread_role)).unwrap_or(FilesVerdict {
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

/// Time in reads that waited, or may have waited, for the device, in nanoseconds.
fn waited_ns(flow: &super::FileAccesses) -> u128 {
    flow.uncached.sum_ns() + flow.unknown.sum_ns()
}

fn read_ns(flow: &super::FileAccesses) -> u128 {
    flow.cached.sum_ns() + flow.uncached.sum_ns() + flow.unknown.sum_ns()
}

/// Judges one file; `None` if it was not read.
pub fn judge_file(
    analysis: &Analysis,
    id: u32,
    role: impl Fn(u32) -> FileRole,
    thread_role: impl Fn(u32) -> ThreadRole,
) -> Option<FilesVerdict> {
    let reads = &analysis.file(id).filter(|file| file.reads.count > 0)?.reads;
    // Many connections together may read more than one other thread, though each of them reads less.
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
    let path = AccessPath::of(randomness);
    let is_known = reads.device_given > 0;
    let device_reads = is_known.then(|| reads.uncached.count());
    let device_per_touched = (is_known && reads.extent.bytes() > 0)
        .then(|| reads.device_bytes as f64 / reads.extent.bytes() as f64);
    // Reads for which this is unknown count as having waited.
    let waited = device_reads.map_or(reads.count, |count| count + reads.unknown.count());
    let finding = match path {
        _ if reads.count < MIN_READS => Finding::TooFewReads,
        _ if device_per_touched.is_some_and(|share| share < COLD_FROM) => Finding::FromCache,
        _ if waited < MIN_READS && reads.device_bytes < MIN_DEVICE_BYTES => Finding::TooFewReads,
        AccessPath::Unknown => Finding::TooFewReads,
        AccessPath::Sequential if amplification.is_none_or(|times| times < AMPLIFIED_FROM) => {
            Finding::SequentialPass
        }
        // Jumps back to what was just read do not change the order.
        _ if reads.distances.far_share().is_some_and(|share| share < SEQUENTIAL_BELOW) => Finding::ReadAgain,
        AccessPath::Sequential | AccessPath::Mixed => Finding::Mixed,
        AccessPath::Random => match index {
            Some((_, index, _)) if role(id) == FileRole::Collection => Finding::IndexFetch { index },
            _ => Finding::RandomReads,
        },
    };
    Some(FilesVerdict {
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
