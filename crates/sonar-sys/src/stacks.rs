//! Samples the threads of a process, with registers and the top of the stack, without stopping it.
//!
//! A walk of the kernel's tasks (`bpf/stacks.bpf.c`) gives every thread of the process. The registers that it sees of a
//! thread on a processor are those of its last entry into the kernel, so a timer samples each processor around the walk,
//! and such a thread gets the registers and the stack of the sample nearest to it.
//!
//! [`StackSampler`] works with privileges and gives bytes, which [`parse`] reads without any.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, IterOpts, Link, RingBufferBuilder};
use rustix::time::{ClockId, clock_gettime};
use sonar_core::stacks::{Registers, StackSnapshot, ThreadSample, ThreadState};

use crate::ebpf::TraceError;
use crate::ebpf::skeleton::stacks::{StacksSkel, StacksSkelBuilder};
use crate::{ebpf, sys_bpf};

/// Time between two samples of a processor around a walk.
const PERIOD_NS: u64 = 250_000;
/// How long processors are sampled before a walk, and after it.
const BEFORE: Duration = Duration::from_micros(1_200);
/// A sample of a running thread counts for a walk that saw it at most this long before or after.
const NEAR_NS: u64 = 3_000_000;
/// The most bytes of a stack to copy where the kernel's programs cannot.
const MAX_COPIED: usize = 28 * 1024;
/// The most threads of a walk.
const MAX_THREADS: usize = 100_000;
/// Bytes of `struct thread_head`.
const HEAD: usize = 96;

/// The programs, loaded until this is dropped.
pub struct StackSampler {
    skeleton: StacksSkel<'static>,
    walk: Link,
    /// Of each processor; empty if the kernel refuses them.
    timers: Vec<(OwnedFd, Link)>,
    /// The memory of the process, where the programs cannot read it.
    memory: Option<File>,
}

impl StackSampler {
    /// Loads the programs for a process, by its id in the initial process namespace.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn start(process: u32) -> Result<Self, TraceError> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(TraceError::NoBtf);
        }
        // Otherwise libbpf writes the verifier's log to standard error.
        libbpf_rs::set_print(None);
        Self::load(process, true).or_else(|first| match first {
            TraceError::Permission(_) => Err(first),
            // An older kernel does not know the helper that reads the stack.
            _ => Self::load(process, false),
        })
    }

    fn load(process: u32, reads_memory: bool) -> Result<Self, TraceError> {
        let error = |error: libbpf_rs::Error| ebpf::load_error(&error);
        // The skeleton borrows a place for a pointer for as long as it lives: it is leaked, eight bytes for each try.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = StacksSkelBuilder::default().open(place).map_err(error)?;
        open.progs.threads.set_autoload(reads_memory);
        open.progs.threads_without_memory.set_autoload(!reads_memory);
        let settings = open.maps.rodata_data.as_deref_mut();
        let settings = settings.ok_or_else(|| TraceError::Load("the programs have no settings".into()))?;
        settings.process = process;
        let skeleton = open.load().map_err(error)?;
        let memory = if reads_memory { None } else { Some(memory_of(process)?) };
        let walker =
            if reads_memory { &skeleton.progs.threads } else { &skeleton.progs.threads_without_memory };
        let walk = walker.attach_iter_with_opts(IterOpts::None).map_err(error)?;
        let processors = libbpf_rs::num_possible_cpus().unwrap_or(1);
        let timers = (0..processors as u32).filter_map(|processor| {
            // Some processors may be offline; without any timer, running threads have no stack.
            let timer = sys_bpf::processor_timer(processor, PERIOD_NS).ok()?;
            let link = skeleton.progs.on_processor.attach_perf_event(timer.as_raw_fd()).ok()?;
            sys_bpf::switch_timer(timer.as_fd(), false).ok()?;
            Some((timer, link))
        });
        let timers = timers.collect();
        Ok(Self { skeleton, walk, timers, memory })
    }

    /// Whether threads that run on a processor have a stack.
    pub fn samples_processors(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Looks at all threads once; returns bytes for [`parse`]. It takes about 3 ms, most of it waiting.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn snapshot(&self) -> io::Result<Vec<u8>> {
        self.switch(true);
        if self.samples_processors() {
            std::thread::sleep(BEFORE);
        }
        let begun = clock_gettime(ClockId::ThreadCPUTime);
        let mut walked = self.walk()?;
        if let Some(memory) = &self.memory {
            walked = with_memory(&walked, memory, &self.walk()?);
        }
        let ended = clock_gettime(ClockId::ThreadCPUTime);
        if self.samples_processors() {
            std::thread::sleep(BEFORE);
        }
        self.switch(false);
        let mut sampled = Vec::new();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.samples, |bytes: &[u8]| {
                sampled.extend_from_slice(record(bytes));
                0
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        ring.consume().map_err(io::Error::other)?;
        drop(ring);
        let cost = (ended.tv_sec - begun.tv_sec) * 1_000_000_000 + (ended.tv_nsec - begun.tv_nsec);
        let lost = self.skeleton.maps.bss_data.as_deref().map_or(0, |data| data.samples_lost);
        let mut bytes = Vec::with_capacity(24 + walked.len() + sampled.len());
        for number in [cost.unsigned_abs(), lost, walked.len() as u64] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(walked);
        bytes.extend(sampled);
        Ok(bytes)
    }

    fn switch(&self, on: bool) {
        for (timer, _) in &self.timers {
            // A processor may have gone offline.
            let _ = sys_bpf::switch_timer(timer.as_fd(), on);
        }
    }

    fn walk(&self) -> io::Result<Vec<u8>> {
        let mut iterator = Iter::new(&self.walk).map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        iterator.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Opens the memory of a process for reading; needs `CAP_SYS_PTRACE`, or to be its owner.
fn memory_of(process: u32) -> Result<File, TraceError> {
    File::open(format!("/proc/{process}/mem")).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            TraceError::Permission(format!("CAP_SYS_PTRACE, to read stacks on this kernel: {error}"))
        }
        _ => TraceError::Load(format!("the memory of process {process} cannot be read: {error}")),
    })
}

/// Adds stacks to the heads of a walk; `again` are the heads of a walk after the stacks have been read.
fn with_memory(walked: &[u8], memory: &File, again: &[u8]) -> Vec<u8> {
    let heads = |bytes| Records { bytes }.filter_map(|(head, _)| ThreadHead::read(head));
    let mut later: std::collections::HashMap<u32, u64> =
        heads(again).map(|head: ThreadHead| (head.thread, head.switches)).collect();
    let mut whole = Vec::new();
    let mut stack = vec![0; MAX_COPIED];
    for (bytes, _) in (Records { bytes: walked }) {
        let Some(head) = ThreadHead::read(bytes) else { continue };
        let mut length = 0;
        // Page by page: what is beyond the stack may not be readable.
        while length < MAX_COPIED {
            let at = head.registers.sp.wrapping_add(length as u64);
            let size = (4096 - (at % 4096) as usize).min(MAX_COPIED - length);
            match memory.read_at(&mut stack[length..length + size], at) {
                Ok(read) if read == size => length += size,
                _ => break,
            }
        }
        let after = later.remove(&head.thread).unwrap_or(u64::MAX);
        whole.extend_from_slice(&bytes[..64]);
        whole.extend(after.to_ne_bytes());
        whole.extend_from_slice(&bytes[72..76]);
        whole.extend((length as u32).to_ne_bytes());
        whole.extend_from_slice(&bytes[80..HEAD]);
        whole.extend_from_slice(&stack[..length]);
    }
    whole
}

/// A record of the ring without the unused room behind its stack.
fn record(bytes: &[u8]) -> &[u8] {
    let length =
        bytes.get(76..80).and_then(|length| length.first_chunk().copied()).map_or(0, u32::from_ne_bytes);
    bytes.get(..HEAD + length as usize).unwrap_or(&[])
}

/// The records of a walk: each a head and its stack.
struct Records<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let whole = record(self.bytes);
        if whole.len() < HEAD {
            return None;
        }
        self.bytes = &self.bytes[whole.len()..];
        Some(whole.split_at(HEAD))
    }
}

/// `struct thread_head` of `bpf/stacks.bpf.c`.
struct ThreadHead {
    thread: u32,
    state: u32,
    call: i64,
    registers: Registers,
    ns: u64,
    switches: u64,
    switches_after: u64,
    on_cpu: bool,
    name: String,
}

impl ThreadHead {
    fn read(bytes: &[u8]) -> Option<Self> {
        let small = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let name = bytes.get(80..HEAD)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Self {
            thread: small(0)?,
            state: small(4)?,
            call: long(8)? as i64,
            registers: Registers { ip: long(16)?, sp: long(24)?, fp: long(32)?, lr: long(40)? },
            ns: long(48)?,
            switches: long(56)?,
            switches_after: long(64)?,
            on_cpu: small(72)? != 0,
            name: String::from_utf8_lossy(name).into_owned(),
        })
    }

    fn call(&self) -> Option<u32> {
        u32::try_from(self.call).ok()
    }
}

/// Reads what [`StackSampler::snapshot`] returned; `None` if the bytes are cut.
pub fn parse(bytes: &[u8]) -> Option<StackSnapshot> {
    let number = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let (cost_ns, lost) = (number(0)?, number(8)?);
    let (walked, sampled) = bytes.get(24..)?.split_at_checked(usize::try_from(number(16)?).ok()?)?;
    let samples: Vec<(ThreadHead, &[u8])> = Records { bytes: sampled }
        .filter_map(|(head, stack)| Some((ThreadHead::read(head)?, stack)))
        .collect();
    let mut threads = Vec::new();
    for (head, stack) in (Records { bytes: walked }).take(MAX_THREADS) {
        let head = ThreadHead::read(head)?;
        let state = ThreadState::of_kernel(head.state, head.on_cpu);
        let mut sample = ThreadSample {
            thread: head.thread,
            state,
            call: head.call(),
            registers: Some(head.registers),
            stack: stack.to_vec(),
            changed: head.switches != head.switches_after,
            name: head.name,
        };
        let near = samples.iter().filter(|(other, _)| other.thread == head.thread);
        let near = near.min_by_key(|(other, _)| other.ns.abs_diff(head.ns));
        let near = near.filter(|(other, _)| other.ns.abs_diff(head.ns) <= NEAR_NS);
        if state == ThreadState::Runnable && near.is_some() {
            // It ran a moment ago; probably the sampler itself took its processor.
            sample.state = ThreadState::OnCpu;
        }
        if state == ThreadState::OnCpu {
            match near {
                Some((sampled, stack)) => {
                    sample.call = sampled.call();
                    sample.registers = Some(sampled.registers);
                    sample.stack = stack.to_vec();
                    sample.changed = false;
                }
                // The system call may have ended long ago, too.
                None => (sample.call, sample.registers, sample.stack) = (None, None, Vec::new()),
            }
        }
        threads.push(sample);
    }
    Some(StackSnapshot { threads, cost_ns, lost })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn head(thread: u32, on_cpu: bool, ns: u64, stack: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(thread.to_ne_bytes());
        bytes.extend(if on_cpu { 0u32 } else { 1 }.to_ne_bytes());
        bytes.extend(202i64.to_ne_bytes());
        for register in [0x1000u64 + ns, 0x7000, 0x7100, 0] {
            bytes.extend(register.to_ne_bytes());
        }
        for number in [ns, 5, 5] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(u32::from(on_cpu).to_ne_bytes());
        bytes.extend((stack.len() as u32).to_ne_bytes());
        bytes.extend(b"conn7\0garbage!!!");
        assert_eq!(bytes.len(), HEAD);
        bytes.extend_from_slice(stack);
        bytes
    }

    fn snapshot(walked: &[u8], sampled: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [77, 3, walked.len() as u64] {
            bytes.extend(number.to_ne_bytes());
        }
        [bytes, walked.to_vec(), sampled.to_vec()].concat()
    }

    #[test]
    fn a_running_thread_has_the_registers_of_the_nearest_sample() {
        let walked =
            [head(1, false, 100, b"stack"), head(2, true, 200, b"old"), head(3, true, 300, b"")].concat();
        let sampled =
            [head(2, true, 1, b"far"), head(2, true, 210, b"near"), head(4, true, 200, b"")].concat();
        let parsed = parse(&snapshot(&walked, &sampled)).unwrap();
        assert_eq!((parsed.cost_ns, parsed.lost, parsed.threads.len()), (77, 3, 3));
        let [sleeping, running, unseen] = &parsed.threads[..] else { panic!() };
        assert_eq!((sleeping.name.as_str(), sleeping.state), ("conn7", ThreadState::Sleeping));
        assert_eq!((sleeping.call, sleeping.stack.as_slice()), (Some(202), &b"stack"[..]));
        assert_eq!((running.registers.unwrap().ip, running.stack.as_slice()), (0x1000 + 210, &b"near"[..]));
        assert_eq!((unseen.state, unseen.registers, unseen.call), (ThreadState::OnCpu, None, None));
    }

    #[test]
    fn cut_bytes_do_not_panic() {
        let whole = snapshot(&head(1, false, 100, b"stack"), &head(2, true, 1, b"x"));
        for length in 0..whole.len() {
            let _ = parse(&whole[..length]);
        }
        let mut bytes = whole.clone();
        bytes[24 + 76..24 + 80].fill(0xff);
        assert!(parse(&bytes).unwrap().threads.is_empty());
    }

    /// This process's own threads: one that sleeps, and one that runs.
    #[test]
    fn threads_of_this_process_are_seen_in_both_ways() {
        let (say, end) = mpsc::channel::<()>();
        let sleeper = std::thread::Builder::new().name("sleeper".into()).spawn(move || end.recv()).unwrap();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = stop.clone();
        let spinner = std::thread::Builder::new().name("spinner".into()).spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        for reads_memory in [true, false] {
            let sampler = match StackSampler::load(std::process::id(), reads_memory) {
                Ok(sampler) => sampler,
                Err(error) => {
                    eprintln!("skipped: {error}");
                    continue;
                }
            };
            let mut ran = false;
            // On a busy machine it often waits for a processor.
            for _ in 0..200 {
                let snapshot = parse(&sampler.snapshot().unwrap()).unwrap();
                let named = |name| snapshot.threads.iter().find(|thread| thread.name == name).unwrap();
                let sleeping = named("sleeper");
                assert_eq!((sleeping.state, sleeping.changed), (ThreadState::Sleeping, false));
                assert_eq!(sleeping.call, Some(libc::SYS_futex as u32));
                assert!(sleeping.stack.len() > 256, "{}", sleeping.stack.len());
                let running = named("spinner");
                ran |= running.state == ThreadState::OnCpu
                    && running.registers.is_some()
                    && running.call.is_none();
                if ran {
                    break;
                }
            }
            assert!(ran || !sampler.samples_processors(), "the running thread was never sampled");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(say);
        let _ = sleeper.join().unwrap();
        spinner.unwrap().join().unwrap();
    }
}
