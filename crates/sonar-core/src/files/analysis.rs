//! Analyses accesses one by one, by file and by thread, in bounded memory.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::access::{AccessKind, IoAccess};
use super::distance::AccessStep;
use super::file_accesses::FilePattern;
use super::in_flight::DeviceDepth;
use super::phase::{MAX_SLICES, Phase, phases};
use crate::Timestamp;

/// The maximum number of files; accesses to further ones are counted in [`Analysis::files_other`].
pub const MAX_FILES: usize = 16_384;
/// Memory for all files together, in bytes; when it is used up, no further file is added.
pub const FILES_BUDGET: usize = 192 << 20;
/// The maximum number of threads; accesses by further ones are counted in [`Analysis::threads_other`].
pub const MAX_THREADS: usize = 16_384;
/// The maximum number of streams (a thread on a file in a direction) whose last position is kept. When there are
/// more, all are dropped at once and counted in [`Analysis::streams_forgotten`].
pub const MAX_STREAMS: usize = 1 << 18;
/// Initial width of a time slice: 2^20 ns.
const SLICE_NS: u64 = 1 << 20;

/// The accesses of one thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ThreadUse {
    /// Reads and page faults.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time spent in reads, in nanoseconds.
    pub read_ns: u64,
    /// Writes and flushes.
    pub writes: u64,
    /// Time spent in writes and flushes, in nanoseconds.
    pub write_ns: u64,
    /// Start of the first access.
    pub first: Timestamp,
    /// End of the last access.
    pub last: Timestamp,
}

impl ThreadUse {
    /// Share of the time from its first to its last access that it spent in reads, 0 to 1. `None` if there is no
    /// time between them.
    pub fn read_share(&self) -> Option<f64> {
        let span = self.last.since(self.first);
        (span > 0).then(|| (self.read_ns as f64 / span as f64).min(1.0))
    }
}

#[derive(Copy, Clone)]
struct ThreadStream {
    end: u64,
    run: u64,
    accesses: u64,
}

/// The analysis of all accesses so far.
pub struct Analysis {
    files: HashMap<u32, Box<FilePattern>, FixedState>,
    threads: HashMap<u32, ThreadUse, FixedState>,
    streams: HashMap<(u32, u32, bool), ThreadStream, FixedState>,
    accesses: u64,
    files_other: u64,
    threads_other: u64,
    streams_forgotten: u64,
    in_flight: DeviceDepth,
    span: Option<(Timestamp, Timestamp)>,
    slice_ns: u64,
    origin: Timestamp,
    full: bool,
}

impl Default for Analysis {
    fn default() -> Self {
        Self::new()
    }
}

impl Analysis {
    /// An empty analysis.
    pub fn new() -> Self {
        Self {
            files: HashMap::with_hasher(FixedState::default()),
            threads: HashMap::with_hasher(FixedState::default()),
            streams: HashMap::with_hasher(FixedState::default()),
            accesses: 0,
            files_other: 0,
            threads_other: 0,
            streams_forgotten: 0,
            in_flight: DeviceDepth::default(),
            span: None,
            slice_ns: SLICE_NS,
            origin: Timestamp::default(),
            full: false,
        }
    }

    /// Adds one access. Accesses of the same thread must come in order.
    pub fn record(&mut self, access: &IoAccess) {
        self.accesses += 1;
        let end = access.end();
        match &mut self.span {
            None => {
                self.span = Some((access.start, end));
                self.origin = access.start;
            }
            Some((first, last)) => {
                *first = (*first).min(access.start);
                *last = (*last).max(end);
            }
        }
        if access.kind != AccessKind::PageIn {
            self.thread(access, end);
        }
        // Reads from the page cache did not wait in the device's queue.
        if access.kind.is_read() && access.device_bytes != Some(0) {
            self.in_flight.record(access.start, access.latency_ns);
        }
        if !self.files.contains_key(&access.file) {
            self.full |= self.files.len() >= MAX_FILES
                || (self.files.len() % 64 == 63 && self.heap_bytes() > FILES_BUDGET);
            if self.full {
                self.files_other += 1;
                return;
            }
        }
        let slot = self.slot(access.start);
        if access.kind == AccessKind::PageIn {
            let file = self.files.entry(access.file).or_default();
            file.page_ins.get_or_insert_default().record(access.offset, access.given);
            return;
        }
        let step = if access.kind.is_sync() { None } else { self.step(access) };
        let file = self.files.entry(access.file).or_default();
        if access.kind.is_sync() {
            file.syncs.record(access.latency_ns);
            return;
        }
        let (step, run) = step.map_or((None, None), |(step, run)| (Some(step), run));
        let flow = if access.kind.is_read() {
            if let Some(pages) = &mut file.page_ins {
                pages.read(access.offset, access.given);
            }
            file.slice(slot).record(access, step);
            &mut file.reads
        } else {
            &mut **file.writes.get_or_insert_default()
        };
        flow.record(access, step);
        if let Some(length) = run {
            flow.runs.record(length);
        }
    }

    /// The distance from the stream's previous access, and the length of the run that this access ended.
    fn step(&mut self, access: &IoAccess) -> Option<(AccessStep, Option<u64>)> {
        if access.error != 0 {
            return None;
        }
        let key = (access.thread, access.file, access.kind.is_read());
        let end = access.offset.saturating_add(access.given);
        if let Some(stream) = self.streams.get_mut(&key) {
            let step = AccessStep::between(stream.end, access.offset);
            stream.end = end;
            stream.accesses += 1;
            if step == AccessStep::Contiguous {
                stream.run += 1;
                return Some((step, None));
            }
            let run = std::mem::replace(&mut stream.run, 1);
            return Some((step, (run > 0).then_some(run)));
        }
        if self.streams.len() >= MAX_STREAMS {
            self.streams_forgotten += self.streams.len() as u64;
            self.end_runs();
            self.streams.clear();
        }
        self.streams.insert(key, ThreadStream { end, run: 1, accesses: 1 });
        None
    }

    /// Completes the open runs. Call this after the last access; later accesses start new runs.
    pub fn finish(&mut self) {
        self.in_flight.end();
        self.end_runs();
    }

    fn end_runs(&mut self) {
        for ((_, file, read), stream) in self.streams.iter_mut().filter(|(_, stream)| stream.run > 0) {
            let Some(file) = self.files.get_mut(file) else { continue };
            let flow = if *read { &mut file.reads } else { &mut **file.writes.get_or_insert_default() };
            flow.runs.record(std::mem::take(&mut stream.run));
        }
    }

    fn thread(&mut self, access: &IoAccess, end: Timestamp) {
        if !self.threads.contains_key(&access.thread) && self.threads.len() >= MAX_THREADS {
            self.threads_other += 1;
            return;
        }
        let thread = self.threads.entry(access.thread).or_insert(ThreadUse {
            reads: 0,
            read_bytes: 0,
            read_ns: 0,
            writes: 0,
            write_ns: 0,
            first: access.start,
            last: end,
        });
        thread.first = thread.first.min(access.start);
        thread.last = thread.last.max(end);
        if access.kind.is_read() {
            thread.reads += 1;
            thread.read_bytes = thread.read_bytes.saturating_add(access.given);
            thread.read_ns = thread.read_ns.saturating_add(access.latency_ns);
        } else {
            thread.writes += 1;
            thread.write_ns = thread.write_ns.saturating_add(access.latency_ns);
        }
    }

    /// Number of the time slice that contains `at`; 0 before the first access.
    fn slot(&mut self, at: Timestamp) -> usize {
        let since = at.since(self.origin);
        while since / self.slice_ns >= MAX_SLICES as u64 {
            // Double the width until `at` fits; existing slices are merged in pairs.
            self.slice_ns *= 2;
            for file in self.files.values_mut() {
                file.widen();
            }
        }
        (since / self.slice_ns) as usize
    }

    /// Number of accesses.
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Number of accesses to files beyond the caps; no file's figures include them.
    pub const fn files_other(&self) -> u64 {
        self.files_other
    }

    /// Number of accesses by threads beyond the cap.
    pub const fn threads_other(&self) -> u64 {
        self.threads_other
    }

    /// Number of positions that were dropped for lack of space; as many distances are unknown.
    pub const fn streams_forgotten(&self) -> u64 {
        self.streams_forgotten
    }

    /// Mean number of concurrent reads that waited for the device, while there was at least one: 1 or more. Reads
    /// count as waiting if this is unknown. `None` if none waited.
    pub fn depth(&self) -> Option<f64> {
        self.in_flight.depth()
    }

    /// The earliest start and the latest end; `None` before the first access.
    pub const fn span(&self) -> Option<(Timestamp, Timestamp)> {
        self.span
    }

    /// Width of a time slice in nanoseconds.
    pub const fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// Start of the first time slice.
    pub const fn origin(&self) -> Timestamp {
        self.origin
    }

    /// The files with their numbers, in no particular order.
    pub fn files(&self) -> impl Iterator<Item = (u32, &FilePattern)> {
        self.files.iter().map(|(id, file)| (*id, &**file))
    }

    /// The file with this number; `None` if unknown.
    pub fn file(&self, id: u32) -> Option<&FilePattern> {
        self.files.get(&id).map(|file| &**file)
    }

    /// The phases of a file's reads.
    pub fn phases(&self, id: u32) -> Vec<Phase> {
        self.file(id).map_or_else(Vec::new, |file| phases(&file.slices))
    }

    /// The threads with their ids, in no particular order.
    pub fn threads(&self) -> impl Iterator<Item = (u32, &ThreadUse)> {
        self.threads.iter().map(|(id, thread)| (*id, thread))
    }

    /// Which thread read which file: thread, file, number of successful reads. It includes only reads since
    /// positions were last dropped for lack of space.
    pub fn readers(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let reads = self.streams.iter().filter(|((_, _, read), _)| *read);
        reads.map(|((thread, file, _), stream)| (*thread, *file, stream.accesses))
    }

    /// Approximate heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        let files: usize = self.files.values().map(|file| size_of::<FilePattern>() + file.heap_bytes()).sum();
        files + self.streams.capacity() * 40 + self.threads.capacity() * 80
    }
}
