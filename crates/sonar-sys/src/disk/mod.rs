//! The disk test: a file of its own, and engines that read and write it with a fixed number of requests in flight.
//!
//! A [`DiskEngine`] runs one step at a time and returns what it did. It knows nothing of ramps, output or the meaning
//! of the figures. Its loop allocates nothing, takes no lock, and makes no system calls except those of the requests
//! and pauses.

mod file;
mod mapped;
mod threads;
mod uring;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sonar_core::Histogram;
use sonar_core::disk::{Offsets, Requests, SplitMix};
use sonar_core::words::binary_size;

pub use crate::sys_disk::{FileSystemState, file_system_state};
pub use file::{Leftover, TestFile, TestFileSettings, leftovers};
pub use mapped::Mmap;
pub use threads::Threads;
pub use uring::{Uring, UringRefused};

/// The most requests in flight: io_uring's own limit for a ring.
pub const MOST_IN_FLIGHT: u32 = 32_768;

/// Memory for the buffers of reads, and as much for writes. If the records of all requests in flight need more,
/// requests share buffers.
pub const BUFFER_BYTES: usize = 64 << 20;

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file could not be created.
    #[error("cannot make a test file in {}", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is not enough space.
    #[error("not enough space in {}: {} are needed, {} are free", path.display(), binary_size(*needed), binary_size(*free))]
    Space {
        /// The folder.
        path: PathBuf,
        /// Bytes of the test file and a margin.
        needed: u64,
        /// Bytes that may be used.
        free: u64,
    },
    /// The file could not be filled.
    #[error("cannot fill the test file {} at byte {offset}", path.display())]
    Fill {
        /// The file.
        path: PathBuf,
        /// How far it was filled.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The file system has no direct I/O.
    #[error("{} does not offer direct I/O (O_DIRECT), so that every figure would be of the page cache", path.display())]
    NoDirectIo {
        /// The folder.
        path: PathBuf,
    },
    /// Records are not a multiple of what the device can read.
    #[error("records of {record} bytes cannot be read directly here: it must be a multiple of {block}")]
    Alignment {
        /// Bytes of a record.
        record: u64,
        /// Bytes of a logical block.
        block: u64,
    },
    /// A request failed.
    #[error("{what} of {bytes} bytes at offset {offset} failed")]
    Request {
        /// `read`, `write`, `fdatasync` or `msync`.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// A page of the mapped file could not be read or written.
    #[error(
        "a page of the mapped file could not be read or written: the device failed or the file system is full"
    )]
    Fault,
    /// Threads, memory or the ring are not available.
    #[error("cannot get {what}")]
    Resource {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// It was asked to stop.
    #[error("stopped")]
    Stopped,
}

impl DiskError {
    /// Whether a request failed as the kernel reports it for a device that failed or was removed (the errors of its
    /// block layer; a file system without its device reports `EIO`).
    pub fn is_of_the_device(&self) -> bool {
        let (Self::Request { source, .. } | Self::Fill { source, .. }) = self else { return false };
        matches!(
            source.raw_os_error(),
            Some(
                libc::EIO
                    | libc::ENODEV
                    | libc::ENXIO
                    | libc::ENODATA
                    | libc::EREMOTEIO
                    | libc::ENOLINK
                    | libc::ETIMEDOUT
                    | libc::EILSEQ
            )
        )
    }
}

/// Where requests go.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anywhere, at multiples of 4 KiB.
    Random,
    /// One record after the other; writes begin in the middle of the file.
    Sequential,
}

/// What a step does.
#[derive(Copy, Clone, Debug)]
pub struct EngineStep {
    /// Requests in flight, 1 to [`MOST_IN_FLIGHT`].
    pub in_flight: u32,
    /// Bytes of a record, above 0 and no more than the file has.
    pub record_bytes: u32,
    /// Whether to read. With both, each round is one read and one write.
    pub reads: bool,
    /// Whether to write.
    pub writes: bool,
    /// Whether a write is followed by `fdatasync`.
    pub flush: bool,
    /// Where.
    pub access: Access,
    /// How long new requests begin; those in flight are then awaited.
    pub duration: Duration,
    /// Pause after each round, for each of those in flight.
    pub pause: Duration,
    /// Time between two `msync`; zero is never. Only for the mapped engine.
    pub sync_delay: Duration,
    /// Determines the offsets.
    pub seed: u64,
}

/// What an engine did in a step.
#[derive(Clone, Debug, Default)]
pub struct StepResult {
    /// Reads.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Flushes.
    pub flushes: Requests,
    /// From the first request to the last completion, in nanoseconds.
    pub elapsed_ns: u64,
    /// Threads that made the requests.
    pub threads: u32,
    /// Whether each request had its own memory (false: the records were too many and too large).
    pub shared_buffers: bool,
    /// Whether buffers and file were registered with the kernel; `None` if the engine registers nothing.
    pub registered: Option<bool>,
}

/// Runs steps on a file.
pub trait DiskEngine: Send {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// Runs one step. Returns early, without an error, when [`Live::stop`] was called.
    ///
    /// # Errors
    /// The first failed request; others in flight are awaited.
    fn run(&mut self, step: &EngineStep, live: &Live) -> Result<StepResult, DiskError>;
}

/// On its own cache line, so that threads do not wait for each other.
#[repr(align(128))]
#[derive(Debug, Default)]
struct CacheLine(AtomicU64);

/// What can be seen of a running step, and how to end it. One writer for each place.
#[derive(Debug)]
pub struct Live {
    operations: Box<[CacheLine]>,
    stop: AtomicBool,
    sync_count: AtomicU64,
    sync_ns: AtomicU64,
}

impl Live {
    /// For a step with `in_flight` requests.
    pub fn new(in_flight: u32) -> Self {
        Self {
            operations: (0..in_flight.max(1)).map(|_| CacheLine::default()).collect(),
            stop: AtomicBool::new(false),
            sync_count: AtomicU64::new(0),
            sync_ns: AtomicU64::new(0),
        }
    }

    /// Reads and writes that have ended.
    pub fn operations(&self) -> u64 {
        self.operations.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }

    /// How many `msync` have ended, and how long the last one took, in nanoseconds.
    pub fn syncs(&self) -> (u64, u64) {
        (self.sync_count.load(Ordering::Acquire), self.sync_ns.load(Ordering::Relaxed))
    }

    /// Ends the step: no further request is begun.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    #[inline]
    fn publish(&self, place: usize, operations: u64) {
        if let Some(line) = self.operations.get(place) {
            line.0.store(operations, Ordering::Relaxed);
        }
    }

    fn synced(&self, ns: u64) {
        self.sync_ns.store(ns, Ordering::Relaxed);
        self.sync_count.fetch_add(1, Ordering::Release);
    }
}

/// Latencies between these bounds are recorded without allocating: 64 ns to 69 s.
fn histogram() -> Histogram {
    Histogram::spanning(64, 1 << 36)
}

fn requests() -> Requests {
    Requests { latency: histogram(), bytes: 0 }
}

/// What one thread counted.
struct Tally {
    reads: Requests,
    writes: Requests,
    flushes: Requests,
    begin_ns: u64,
    end_ns: u64,
    registered: Option<bool>,
}

impl Tally {
    fn new() -> Self {
        let (reads, writes, flushes) = (requests(), requests(), requests());
        Self { reads, writes, flushes, begin_ns: 0, end_ns: 0, registered: None }
    }

    fn operations(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }
}

impl StepResult {
    /// Adds up what threads counted.
    fn merge(tallies: impl IntoIterator<Item = Tally>) -> Self {
        let mut done = Self::default();
        let (mut begin, mut end) = (u64::MAX, 0);
        for tally in tallies {
            for (sum, part) in [
                (&mut done.reads, &tally.reads),
                (&mut done.writes, &tally.writes),
                (&mut done.flushes, &tally.flushes),
            ] {
                sum.latency.merge(&part.latency);
                sum.bytes += part.bytes;
            }
            begin = begin.min(tally.begin_ns);
            end = end.max(tally.end_ns);
            done.threads += 1;
            done.registered = match (done.registered, tally.registered) {
                (Some(a), Some(b)) => Some(a && b),
                (a, b) => a.or(b),
            };
        }
        done.elapsed_ns = end.saturating_sub(begin);
        done
    }
}

/// The next offsets of one of the requests in flight. Random ones depend only on the seed and the number of that
/// request; sequential ones are given out in order to whoever asks.
struct Aim<'a> {
    offsets: Offsets,
    random: SplitMix,
    sequence: Option<&'a Sequence>,
}

/// Counters of sequential access, on cache lines of their own.
#[derive(Default)]
struct Sequence {
    read: CacheLine,
    write: CacheLine,
}

impl<'a> Aim<'a> {
    fn new(offsets: Offsets, step: &EngineStep, part: u32, sequence: &'a Sequence) -> Self {
        Self {
            offsets,
            random: SplitMix::part(step.seed, u64::from(part)),
            sequence: (step.access == Access::Sequential).then_some(sequence),
        }
    }

    #[inline]
    fn read(&mut self) -> u64 {
        match self.sequence {
            None => self.offsets.random(&mut self.random),
            Some(sequence) => self.offsets.sequential(sequence.read.0.fetch_add(1, Ordering::Relaxed)),
        }
    }

    #[inline]
    fn write(&mut self) -> u64 {
        match self.sequence {
            None => self.offsets.random(&mut self.random),
            Some(sequence) => {
                let half = self.offsets.records() / 2;
                self.offsets.sequential(half + sequence.write.0.fetch_add(1, Ordering::Relaxed))
            }
        }
    }
}

/// A pause as equal parts, short enough that a step can end in between: length and number of the parts.
fn pause_slices(pause: Duration) -> (Duration, u32) {
    const LONGEST_NS: u128 = 100_000_000;
    if pause.is_zero() {
        return (pause, 0);
    }
    let parts = u32::try_from(pause.as_nanos().div_ceil(LONGEST_NS)).unwrap_or(u32::MAX);
    (pause / parts, parts)
}

/// How many buffers requests of `record_bytes` get: one each, as far as [`BUFFER_BYTES`] allows.
fn buffer_count(in_flight: u32, record_bytes: u32) -> usize {
    (BUFFER_BYTES / (record_bytes.max(1) as usize).next_multiple_of(4096)).clamp(1, in_flight.max(1) as usize)
}

/// The checks of every engine before it begins.
fn offsets(step: &EngineStep, file_bytes: u64) -> Result<Offsets, DiskError> {
    let invalid = |what: &str| DiskError::Resource {
        what: what.to_owned(),
        source: io::ErrorKind::InvalidInput.into(),
    };
    if !(1..=MOST_IN_FLIGHT).contains(&step.in_flight) {
        return Err(invalid("this number of requests in flight"));
    }
    if !step.reads && !step.writes {
        return Err(invalid("a step that neither reads nor writes"));
    }
    Offsets::new(file_bytes, u64::from(step.record_bytes))
        .ok_or_else(|| invalid("a record larger than the file"))
}
