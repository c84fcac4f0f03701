//! Many requests in flight from few threads, with io_uring.
//!
//! Each of those in flight makes the same rounds as a thread of mongoperf: a read, a write, a flush, a pause, as
//! requested. One thread serves 128 of them or more; it reads the clock once for each batch of completions.

use std::sync::Arc;
use std::thread;

use sonar_core::words::plural;

use super::threads::{Memory, died};
use super::{
    Aim, DiskEngine, DiskError, EngineStep, Live, Sequence, StepResult, Tally, TestFile, offsets,
    pause_slices,
};
use crate::sys_disk::monotonic_ns;
use crate::sys_uring::{Completion, DiskRing, try_ring};

/// From this many in flight on, another thread pays off.
const IN_FLIGHT_PER_THREAD: u32 = 128;

/// Requests that are submitted together. The kernel holds back (plugs) larger batches and gives them to the device at
/// once; then all in flight move in step, and the device idles in between. Measured on a virtual disk with 16 in
/// flight, larger batches do a tenth less; single requests do no more than pairs and cost a fifth more processor
/// time.
const BATCH: usize = 2;

/// The engine `uring`.
#[derive(Debug)]
pub struct Uring {
    file: Arc<TestFile>,
    most_threads: u32,
}

/// Why io_uring is not available.
#[derive(Debug, thiserror::Error)]
#[error("io_uring cannot be used here ({source}): {reason}")]
pub struct UringRefused {
    reason: &'static str,
    source: std::io::Error,
}

impl Uring {
    /// An engine on this file, with at most `most_threads` threads.
    ///
    /// # Errors
    /// The kernel refuses a ring.
    pub fn new(file: Arc<TestFile>, most_threads: u32) -> Result<Self, UringRefused> {
        Self::available()?;
        Ok(Self { file, most_threads: most_threads.max(1) })
    }

    /// Whether the kernel gives this process a ring; asks for one to find out.
    ///
    /// # Errors
    /// It refuses.
    pub fn available() -> Result<(), UringRefused> {
        try_ring().map(drop).map_err(|source| UringRefused {
            reason: match source.raw_os_error() {
                Some(libc::ENOSYS) => "the kernel was built without it, or a seccomp filter hides it",
                Some(libc::EPERM | libc::EACCES) => {
                    "sysctl kernel.io_uring_disabled or a seccomp filter, as containers have it, forbids it"
                }
                Some(libc::ENOMEM) => "the limit of locked memory (ulimit -l) is too low",
                _ => "the kernel says no",
            },
            source,
        })
    }
}

/// Threads for this many in flight.
fn thread_count(in_flight: u32, most: u32) -> u32 {
    (in_flight / IN_FLIGHT_PER_THREAD).clamp(1, most)
}

impl DiskEngine for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn run(&mut self, step: &EngineStep, live: &Live) -> Result<StepResult, DiskError> {
        let offsets = offsets(step, self.file.bytes())?;
        let memory = Memory::new(step)?;
        let sequence = Sequence::default();
        let threads = thread_count(step.in_flight, self.most_threads);
        let (file, memory_ref, sequence_ref) = (&*self.file, &memory, &sequence);
        let results: Result<Vec<_>, DiskError> = thread::scope(|scope| {
            let mut running = Vec::new();
            for number in 0..threads {
                let (first, end) =
                    (share(number, threads, step.in_flight), share(number + 1, threads, step.in_flight));
                let spawned = thread::Builder::new().name("disk".into()).spawn_scoped(scope, move || {
                    let aims = (first..end).map(|part| Aim::new(offsets, step, part, sequence_ref)).collect();
                    let submitter = Submitter { file, step, live, memory: memory_ref, place: number, first };
                    let result = submitter.run(aims);
                    if result.is_err() {
                        live.stop();
                    }
                    result
                });
                match spawned {
                    Ok(thread) => running.push(thread),
                    Err(source) => {
                        live.stop();
                        return Err(DiskError::Resource { what: plural(threads, "thread"), source });
                    }
                }
            }
            running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died()))).collect()
        });
        Ok(StepResult { shared_buffers: !memory.own, ..StepResult::merge(results?) })
    }
}

/// Where the share of thread `number` of `threads` begins.
fn share(number: u32, threads: u32, all: u32) -> u32 {
    (u64::from(number) * u64::from(all) / u64::from(threads)) as u32
}

/// What a slot waits for.
#[derive(Copy, Clone, PartialEq, Eq)]
enum RequestStage {
    Read,
    Write,
    Flush,
    Pause,
}

/// One of those in flight.
struct RequestSlot<'a> {
    aim: Aim<'a>,
    stage: RequestStage,
    /// Pauses between two rounds, and how many are still to come in this one.
    slices: u32,
    slices_left: u32,
    offset: u64,
    since_ns: u64,
}

/// The requests of a thread, and those that have ended by now.
struct Round {
    ring: DiskRing,
    tally: Tally,
    now: u64,
    /// No further request begins.
    stopping: bool,
}

/// One thread.
struct Submitter<'a> {
    file: &'a TestFile,
    step: &'a EngineStep,
    live: &'a Live,
    memory: &'a Memory,
    /// Its place in [`Live`].
    place: u32,
    /// Number of its first slot among all in flight.
    first: u32,
}

impl Submitter<'_> {
    fn run(&self, aims: Vec<Aim<'_>>) -> Result<Tally, DiskError> {
        let step = self.step;
        let (slice, slices) = pause_slices(step.pause);
        let entries = (aims.len() as u32).max(2).next_power_of_two();
        let (reads, writes) = (self.memory.reads.clone(), self.memory.writes.clone());
        let mut ring = DiskRing::new(entries, self.file.shared_io(), reads, writes)
            .map(|ring| ring.with_pause(slice.as_nanos() as u64))
            .map_err(|source| DiskError::Resource {
                what: format!("an io_uring of {}", plural(aims.len(), "request")),
                source,
            })?;
        let mut tally = Tally::new();
        tally.registered = Some(ring.registered());
        let mut ended: Vec<Completion> = Vec::with_capacity(aims.len().max(1));
        let now = monotonic_ns();
        (tally.begin_ns, tally.end_ns) = (now, now);
        let end = now.saturating_add(step.duration.as_nanos() as u64);
        let mut slots: Vec<RequestSlot<'_>> = aims
            .into_iter()
            .map(|aim| RequestSlot {
                aim,
                stage: RequestStage::Pause,
                slices,
                slices_left: 0,
                offset: 0,
                since_ns: now,
            })
            .collect();
        for (number, slot) in slots.iter_mut().enumerate() {
            self.begin_round(&mut ring, slot, self.first + number as u32, now)?;
        }
        let mut in_flight = slots.len();
        let mut round = Round { ring, tally, now, stopping: false };
        while in_flight > 0 {
            ended.clear();
            round.ring.wait(&mut ended).map_err(|source| self.resource(source))?;
            round.now = monotonic_ns();
            round.stopping = round.now >= end || self.live.stopped();
            for (nth, &completion) in ended.iter().enumerate() {
                if nth > 0 && nth % BATCH == 0 {
                    round.ring.submit().map_err(|source| self.resource(source))?;
                }
                let number = completion.0.wrapping_sub(self.first) as usize;
                let Some(slot) = slots.get_mut(number) else { continue };
                let more = self.ended(&mut round, slot, completion)?;
                in_flight -= usize::from(!more);
            }
            self.live.publish(self.place as usize, round.tally.operations());
        }
        Ok(round.tally)
    }

    /// Counts a request that has ended and begins the next. Returns false if the slot is done.
    #[inline]
    fn ended(
        &self,
        round: &mut Round,
        slot: &mut RequestSlot<'_>,
        (number, result): Completion,
    ) -> Result<bool, DiskError> {
        let step = self.step;
        let Round { ring, tally, now, stopping } = round;
        let (now, stopping) = (*now, *stopping);
        let latency = now - slot.since_ns;
        match slot.stage {
            RequestStage::Read => {
                self.check("read", slot, result)?;
                tally.reads.latency.record(latency);
                tally.reads.bytes += u64::from(step.record_bytes);
                tally.end_ns = now;
                if stopping {
                    return Ok(false);
                }
                if step.writes {
                    self.begin_write(ring, slot, number, now)?;
                    return Ok(true);
                }
            }
            RequestStage::Write => {
                self.check("write", slot, result)?;
                tally.writes.latency.record(latency);
                tally.writes.bytes += u64::from(step.record_bytes);
                tally.end_ns = now;
                if step.flush {
                    (slot.stage, slot.since_ns) = (RequestStage::Flush, now);
                    ring.flush(number).map_err(|source| self.resource(source))?;
                    return Ok(true);
                }
            }
            RequestStage::Flush => {
                if result < 0 {
                    return Err(self.failed("fdatasync", slot, std::io::Error::from_raw_os_error(-result)));
                }
                tally.flushes.latency.record(latency);
                tally.end_ns = now;
            }
            RequestStage::Pause => {
                if stopping {
                    return Ok(false);
                }
                slot.slices_left = slot.slices_left.saturating_sub(1);
                return self.pause_or_begin(ring, slot, number, now).map(|()| true);
            }
        }
        if stopping {
            return Ok(false);
        }
        slot.slices_left = slot.slices;
        self.pause_or_begin(ring, slot, number, now).map(|()| true)
    }

    #[inline]
    fn pause_or_begin(
        &self,
        ring: &mut DiskRing,
        slot: &mut RequestSlot<'_>,
        number: u32,
        now: u64,
    ) -> Result<(), DiskError> {
        if slot.slices_left == 0 {
            return self.begin_round(ring, slot, number, now);
        }
        slot.stage = RequestStage::Pause;
        ring.pause(number).map_err(|source| self.resource(source))
    }

    #[inline]
    fn begin_round(
        &self,
        ring: &mut DiskRing,
        slot: &mut RequestSlot<'_>,
        number: u32,
        now: u64,
    ) -> Result<(), DiskError> {
        if !self.step.reads {
            return self.begin_write(ring, slot, number, now);
        }
        (slot.stage, slot.since_ns, slot.offset) = (RequestStage::Read, now, slot.aim.read());
        ring.read(number, self.step.record_bytes, slot.offset).map_err(|source| self.resource(source))
    }

    #[inline]
    fn begin_write(
        &self,
        ring: &mut DiskRing,
        slot: &mut RequestSlot<'_>,
        number: u32,
        now: u64,
    ) -> Result<(), DiskError> {
        (slot.stage, slot.since_ns, slot.offset) = (RequestStage::Write, now, slot.aim.write());
        if self.memory.own {
            self.memory.writes.stamp(number as usize, self.step.record_bytes as usize, now ^ slot.offset);
        }
        ring.write(number, self.step.record_bytes, slot.offset).map_err(|source| self.resource(source))
    }

    #[inline]
    fn check(&self, what: &'static str, slot: &RequestSlot<'_>, result: i32) -> Result<(), DiskError> {
        if result as i64 == i64::from(self.step.record_bytes) {
            return Ok(());
        }
        let source = if result < 0 {
            std::io::Error::from_raw_os_error(-result)
        } else {
            std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                format!("only {result} bytes were transferred"),
            )
        };
        Err(self.failed(what, slot, source))
    }

    #[cold]
    fn failed(&self, what: &'static str, slot: &RequestSlot<'_>, source: std::io::Error) -> DiskError {
        DiskError::Request { what, bytes: u64::from(self.step.record_bytes), offset: slot.offset, source }
    }

    #[cold]
    fn resource(&self, source: std::io::Error) -> DiskError {
        DiskError::Resource { what: "a place in the ring".into(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_and_threads_are_few() {
        for (threads, all) in [(1, 1), (3, 1_024), (4, 4), (4, 1_023)] {
            assert_eq!((share(0, threads, all), share(threads, threads, all)), (0, all));
            assert!((0..threads).all(|n| share(n, threads, all) < share(n + 1, threads, all)));
        }
        assert_eq!([1, 127, 256, 1_024].map(|n| thread_count(n, 4)), [1, 1, 2, 4]);
        assert_eq!(thread_count(1_024, 1), 1);
    }
}
