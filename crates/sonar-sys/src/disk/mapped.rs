//! The file mapped into memory: each request touches one byte of every page of its record, as mongoperf's `mmf: true`
//! did. The page cache is in between, and serves what it contains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sonar_core::words::plural;

use super::threads::died;
use super::{
    Aim, DiskEngine, DiskError, EngineStep, Live, Sequence, StepResult, Tally, TestFile, offsets,
    pause_slices, requests,
};
use crate::sys_disk::{Mapped, monotonic_ns};

/// The engine `mmap`.
#[derive(Debug)]
pub struct Mmap {
    file: Arc<TestFile>,
    map: Mapped,
    /// [`EngineStep::writes`] writes another value in each step.
    rounds: u8,
}

impl Mmap {
    /// An engine on this file, which is mapped until it is dropped. One at a time in a process.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn new(file: Arc<TestFile>) -> Result<Self, DiskError> {
        let map = Mapped::new(file.io(), file.bytes())
            .map_err(|source| DiskError::Resource { what: "a mapping of the file".into(), source })?;
        Ok(Self { file, map, rounds: 0 })
    }
}

impl DiskEngine for Mmap {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn run(&mut self, step: &EngineStep, live: &Live) -> Result<StepResult, DiskError> {
        let offsets = offsets(step, self.file.bytes())?;
        let sequence = Sequence::default();
        self.rounds = self.rounds.wrapping_add(1);
        let (map, value, sequence_ref) = (&self.map, self.rounds, &sequence);
        let over = AtomicBool::new(false);
        let over_ref = &over;
        let (results, flushes): (Result<Vec<_>, DiskError>, _) = thread::scope(|scope| {
            let flusher = (step.writes && !step.sync_delay.is_zero())
                .then(|| scope.spawn(move || sync(map, step.sync_delay, live, over_ref)));
            let mut running = Vec::with_capacity(step.in_flight as usize);
            let mut failure = None;
            for number in 0..step.in_flight {
                let aim = Aim::new(offsets, step, number, sequence_ref);
                let worker = MappedWorker { map, step, live, number, value };
                match thread::Builder::new()
                    .name("disk".into())
                    .stack_size(128 << 10)
                    .spawn_scoped(scope, move || worker.run(aim))
                {
                    Ok(thread) => running.push(thread),
                    Err(source) => {
                        live.stop();
                        let what = format!("{} (got {number})", plural(step.in_flight, "thread"));
                        failure = Some(DiskError::Resource { what, source });
                        break;
                    }
                }
            }
            let mut results = Vec::with_capacity(running.len());
            for thread in running {
                results.push(thread.join().unwrap_or_else(|_| Err(died())));
            }
            over_ref.store(true, Ordering::Release);
            let flushes = flusher.map(|thread| thread.join().unwrap_or_else(|_| Err(died())));
            (failure.map_or_else(|| results.into_iter().collect(), Err), flushes)
        });
        let mut done = StepResult::merge(results?);
        if let Some(flushes) = flushes {
            done.flushes = flushes?;
        }
        if Mapped::has_faulted() { Err(DiskError::Fault) } else { Ok(done) }
    }
}

/// Repeats `msync` until the step is over, and then once more.
fn sync(map: &Mapped, delay: Duration, live: &Live, over: &AtomicBool) -> Result<super::Requests, DiskError> {
    let mut flushes = requests();
    loop {
        let next = monotonic_ns().saturating_add(delay.as_nanos() as u64);
        while monotonic_ns() < next && !over.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(10).min(delay));
        }
        let begin = monotonic_ns();
        map.sync().map_err(|source| {
            live.stop();
            DiskError::Request { what: "msync", bytes: 0, offset: 0, source }
        })?;
        let took = monotonic_ns() - begin;
        flushes.latency.record(took);
        live.synced(took);
        if over.load(Ordering::Acquire) {
            return Ok(flushes);
        }
    }
}

/// One thread.
struct MappedWorker<'a> {
    map: &'a Mapped,
    step: &'a EngineStep,
    live: &'a Live,
    number: u32,
    /// The value to write.
    value: u8,
}

impl MappedWorker<'_> {
    fn run(self, mut aim: Aim<'_>) -> Result<Tally, DiskError> {
        let Self { map, step, live, number, value } = self;
        let bytes = step.record_bytes as usize;
        let (slice, slices) = pause_slices(step.pause);
        let mut tally = Tally::new();
        let mut now = monotonic_ns();
        tally.begin_ns = now;
        let end = now.saturating_add(step.duration.as_nanos() as u64);
        while now < end && !live.stopped() {
            if step.reads {
                map.touch(aim.read() as usize, bytes);
                let then = monotonic_ns();
                tally.reads.latency.record(then - now);
                now = then;
            }
            if step.writes {
                map.dirty(aim.write() as usize, bytes, value);
                let then = monotonic_ns();
                tally.writes.latency.record(then - now);
                now = then;
            }
            tally.end_ns = now;
            live.publish(number as usize, tally.operations());
            if Mapped::has_faulted() {
                live.stop();
                return Err(DiskError::Fault);
            }
            for _ in 0..slices {
                if !live.stopped() && now < end {
                    thread::sleep(slice);
                    now = monotonic_ns();
                }
            }
        }
        let record = u64::from(step.record_bytes);
        tally.reads.bytes = tally.reads.count().saturating_mul(record);
        tally.writes.bytes = tally.writes.count().saturating_mul(record);
        tally.end_ns = tally.end_ns.max(tally.begin_ns);
        Ok(tally)
    }
}
