//! Takes accesses one by one; keeps in bounded memory what they say of files and threads.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::access::{AccessKind, IoAccess};
use super::distance::Step;
use super::in_flight::InFlight;
use super::pattern::FilePattern;
use super::phase::{MAX_SLICES, Phase, phases};
use crate::Timestamp;

/// Files that are counted one by one; accesses to more are counted in [`Analysis::files_other`].
pub const MAX_FILES: usize = 16_384;
/// Memory for all files together, in bytes; when it is used up, no further file is taken.
pub const FILES_BUDGET: usize = 192 << 20;
/// Threads that are counted one by one.
pub const MAX_THREADS: usize = 16_384;
/// Streams (a thread on a file in a direction) whose last position is kept; with more, all are
/// forgotten at once and begin anew, which is counted.
pub const MAX_STREAMS: usize = 1 << 18;
/// Width of a slice of time at first: 2^20 ns.
const SLICE_NS: u64 = 1 << 20;

/// What one thread did.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ThreadUse {
    /// Reads and page faults.
    pub reads: u64,
    /// Bytes that they gave.
    pub read_bytes: u64,
    /// Time spent in them, in nanoseconds.
    pub read_ns: u64,
    /// Writes and flushes.
    pub writes: u64,
    /// Time spent in them, in nanoseconds.
    pub write_ns: u64,
    /// Start of the first access.
    pub first: Timestamp,
    /// End of the last.
    pub last: Timestamp,
}

impl ThreadUse {
    /// Share of the time from its first access to its last that it spent in reads, 0 to 1. A thread
    /// that reads one thing at a time cannot exceed it. `None` for a thread of a single moment.
    pub fn read_share(&self) -> Option<f64> {
        let span = self.last.since(self.first);
        (span > 0).then(|| (self.read_ns as f64 / span as f64).min(1.0))
    }
}

#[derive(Copy, Clone)]
struct Stream {
    end: u64,
    run: u64,
    accesses: u64,
}

/// All that was seen of the accesses so far.
pub struct Analysis {
    files: HashMap<u32, Box<FilePattern>, FixedState>,
    threads: HashMap<u32, ThreadUse, FixedState>,
    streams: HashMap<(u32, u32, bool), Stream, FixedState>,
    accesses: u64,
    files_other: u64,
    threads_other: u64,
    streams_forgotten: u64,
    in_flight: InFlight,
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
    /// Of nothing yet.
    pub fn new() -> Self {
        Self {
            files: HashMap::with_hasher(FixedState::default()),
            threads: HashMap::with_hasher(FixedState::default()),
            streams: HashMap::with_hasher(FixedState::default()),
            accesses: 0,
            files_other: 0,
            threads_other: 0,
            streams_forgotten: 0,
            in_flight: InFlight::default(),
            span: None,
            slice_ns: SLICE_NS,
            origin: Timestamp::default(),
            full: false,
        }
    }

    /// Takes one access. Those of one thread are to come in their order.
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
        // What the page cache answered did not wait in the device's queue.
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

    /// The distance from the stream's last access, and the length of the run that it ended.
    fn step(&mut self, access: &IoAccess) -> Option<(Step, Option<u64>)> {
        if access.error != 0 {
            return None;
        }
        let key = (access.thread, access.file, access.kind.is_read());
        let end = access.offset.saturating_add(access.given);
        if let Some(stream) = self.streams.get_mut(&key) {
            let step = Step::between(stream.end, access.offset);
            stream.end = end;
            stream.accesses += 1;
            if step == Step::Contiguous {
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
        self.streams.insert(key, Stream { end, run: 1, accesses: 1 });
        None
    }

    /// Ends the runs that are under way; what comes after begins anew. To be called once all accesses
    /// are in.
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

    /// Number of the slice of time; before the first access it is 0.
    fn slot(&mut self, at: Timestamp) -> usize {
        let since = at.since(self.origin);
        while since / self.slice_ns >= MAX_SLICES as u64 {
            // Wide enough for what `since` asks, and halved detail for what was there.
            self.slice_ns *= 2;
            for file in self.files.values_mut() {
                file.widen();
            }
        }
        (since / self.slice_ns) as usize
    }

    /// Accesses that were taken.
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Of them: to files beyond what is kept apart; they are in no file's figures.
    pub const fn files_other(&self) -> u64 {
        self.files_other
    }

    /// Of them: by threads beyond what is kept apart.
    pub const fn threads_other(&self) -> u64 {
        self.threads_other
    }

    /// Positions that were forgotten for want of room: as many distances are not known.
    pub const fn streams_forgotten(&self) -> u64 {
        self.streams_forgotten
    }

    /// Reads that waited for the device at once, on average while there was one (of all reads, where it is
    /// not known which did): 1 or more. `None` where none did.
    pub fn depth(&self) -> Option<f64> {
        self.in_flight.depth()
    }

    /// The first start and the last end; `None` before the first access.
    pub const fn span(&self) -> Option<(Timestamp, Timestamp)> {
        self.span
    }

    /// Width of a slice of time in nanoseconds.
    pub const fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// Start of the first slice.
    pub const fn origin(&self) -> Timestamp {
        self.origin
    }

    /// The files by their number, in no order.
    pub fn files(&self) -> impl Iterator<Item = (u32, &FilePattern)> {
        self.files.iter().map(|(id, file)| (*id, &**file))
    }

    /// One file.
    pub fn file(&self, id: u32) -> Option<&FilePattern> {
        self.files.get(&id).map(|file| &**file)
    }

    /// The phases of a file's reads.
    pub fn phases(&self, id: u32) -> Vec<Phase> {
        self.file(id).map_or_else(Vec::new, |file| phases(&file.slices))
    }

    /// The threads by their id, in no order.
    pub fn threads(&self) -> impl Iterator<Item = (u32, &ThreadUse)> {
        self.threads.iter().map(|(id, thread)| (*id, thread))
    }

    /// Which thread read which file, and how often: thread, file, reads that did not fail. Only what was
    /// seen since positions were last forgotten for want of room.
    pub fn readers(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let reads = self.streams.iter().filter(|((_, _, read), _)| *read);
        reads.map(|((thread, file, _), stream)| (*thread, *file, stream.accesses))
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        let files: usize = self.files.values().map(|file| size_of::<FilePattern>() + file.heap_bytes()).sum();
        files + self.streams.capacity() * 40 + self.threads.capacity() * 80
    }
}
