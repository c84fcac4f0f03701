//! One thread for each request in flight, with `pread` and `pwrite`, as mongoperf did.

use std::sync::{Arc, Barrier};
use std::thread;

use sonar_core::words::plural;

use super::{
    Aim, DiskEngine, DiskError, EngineStep, Live, Sequence, StepResult, Tally, TestFile, buffer_count,
    offsets, pause_slices,
};
use crate::sys_disk::{Buffers, monotonic_ns};

/// Enough for a loop of system calls; there may be a thousand threads.
const STACK_BYTES: usize = 128 << 10;

/// The engine `threads`.
#[derive(Debug)]
pub struct Threads {
    file: Arc<TestFile>,
}

impl Threads {
    /// Reads and writes this file.
    pub const fn new(file: Arc<TestFile>) -> Self {
        Self { file }
    }
}

/// Memory of the requests of a step.
pub(super) struct Memory {
    pub(super) reads: Arc<Buffers>,
    pub(super) writes: Arc<Buffers>,
    /// Whether each request has its own.
    pub(super) own: bool,
}

impl Memory {
    pub(super) fn new(step: &EngineStep) -> Result<Self, DiskError> {
        let count = buffer_count(step.in_flight, step.record_bytes);
        let make = |wanted: bool| {
            let count = if wanted { count } else { 1 };
            Buffers::new(count, step.record_bytes as usize).map(Arc::new).map_err(|source| {
                DiskError::Resource {
                    what: format!("{} of {} KiB", plural(count, "buffer"), step.record_bytes >> 10),
                    source,
                }
            })
        };
        let (reads, writes) = (make(step.reads)?, make(step.writes)?);
        if step.writes {
            // What is written must not be compressible.
            let mut random = sonar_core::disk::SplitMix::part(step.seed, u64::MAX);
            writes.fill(|| random.next());
        }
        let own = count >= step.in_flight as usize;
        Ok(Self { reads, writes, own })
    }
}

impl DiskEngine for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn run(&mut self, step: &EngineStep, live: &Live) -> Result<StepResult, DiskError> {
        let offsets = offsets(step, self.file.bytes())?;
        let memory = Memory::new(step)?;
        let sequence = Sequence::default();
        let start = Barrier::new(step.in_flight as usize);
        let (file, memory_ref, sequence_ref, start_ref) = (&*self.file, &memory, &sequence, &start);
        let results: Result<Vec<_>, DiskError> = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(step.in_flight as usize);
            // If a thread cannot be started, the others must not wait at the barrier: they first wait for a channel,
            // which is then closed.
            // which is closed then.
            let mut gates = Vec::with_capacity(step.in_flight as usize);
            for number in 0..step.in_flight {
                let (gate, wait) = std::sync::mpsc::sync_channel::<()>(1);
                let aim = Aim::new(offsets, step, number, sequence_ref);
                let spawned = thread::Builder::new()
                    .name("disk".into())
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || {
                        let mut tally = Tally::new();
                        if wait.recv().is_err() {
                            return Ok(tally);
                        }
                        start_ref.wait();
                        let worker = ThreadWorker { file, step, live, memory: memory_ref, number };
                        let result = worker.run(aim, &mut tally);
                        if result.is_err() {
                            live.stop();
                        }
                        result.map(|()| tally)
                    });
                match spawned {
                    Ok(thread) => {
                        threads.push(thread);
                        gates.push(gate);
                    }
                    Err(source) => {
                        drop(gates);
                        let what = format!("{} (got {number})", plural(step.in_flight, "thread"));
                        return Err(DiskError::Resource { what, source });
                    }
                }
            }
            for gate in gates {
                let _ = gate.send(());
            }
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died()))).collect()
        });
        Ok(StepResult { shared_buffers: !memory.own, ..StepResult::merge(results?) })
    }
}

/// A thread panicked: a bug, reported as an error.
pub(super) fn died() -> DiskError {
    DiskError::Resource { what: "a thread: it ended".into(), source: std::io::ErrorKind::Other.into() }
}

/// One thread.
struct ThreadWorker<'a> {
    file: &'a TestFile,
    step: &'a EngineStep,
    live: &'a Live,
    memory: &'a Memory,
    number: u32,
}

impl ThreadWorker<'_> {
    fn run(self, mut aim: Aim<'_>, tally: &mut Tally) -> Result<(), DiskError> {
        let Self { file, step, live, memory, number } = self;
        let (own, bytes) = (number as usize, step.record_bytes as usize);
        let io = file.io();
        let (slice, slices) = pause_slices(step.pause);
        let failed = |what, offset, source| DiskError::Request { what, bytes: bytes as u64, offset, source };
        let mut now = monotonic_ns();
        tally.begin_ns = now;
        let end = now.saturating_add(step.duration.as_nanos() as u64);
        // One reading of the clock for each request: the next one begins where one ends.
        while now < end && !live.stopped() {
            if step.reads {
                let offset = aim.read();
                memory.reads.read(io, own, bytes, offset).map_err(|e| failed("read", offset, e))?;
                let then = monotonic_ns();
                tally.reads.latency.record(then - now);
                tally.reads.bytes += bytes as u64;
                now = then;
            }
            if step.writes {
                let offset = aim.write();
                if memory.own {
                    memory.writes.stamp(own, bytes, now ^ offset);
                }
                memory.writes.write(io, own, bytes, offset).map_err(|e| failed("write", offset, e))?;
                let then = monotonic_ns();
                tally.writes.latency.record(then - now);
                tally.writes.bytes += bytes as u64;
                now = then;
                if step.flush {
                    io.sync_data().map_err(|e| failed("fdatasync", offset, e))?;
                    let then = monotonic_ns();
                    tally.flushes.latency.record(then - now);
                    now = then;
                }
            }
            live.publish(own, tally.operations());
            tally.end_ns = now;
            if slices > 0 {
                for _ in 0..slices {
                    if !live.stopped() && now < end {
                        thread::sleep(slice);
                        now = monotonic_ns();
                    }
                }
            }
        }
        tally.end_ns = tally.end_ns.max(tally.begin_ns);
        Ok(())
    }
}
