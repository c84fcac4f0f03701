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
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, IterOpts, Link, RingBufferBuilder};
use rustix::time::{ClockId, clock_gettime};
use sonar_core::stacks::{Registers, StackSnapshot, ThreadSample, ThreadState};

use crate::ebpf::TraceError;
use crate::host::process::RunningProgram;
use crate::skeletons::stacks::{StacksSkel, StacksSkelBuilder};
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
/// The most bytes of stacks in a walk; further threads have no stack.
const MAX_STACKS: usize = 128 << 20;
/// Bytes of each processor's ring of samples: room for the samples around one walk, with their stacks.
const RING_BYTES: usize = 16 * (17 << 10);
/// Bytes of the numbers before the records of a snapshot.
const NUMBERS: usize = 32;
/// Bytes of `struct thread_head`.
const HEAD: usize = 96;

/// The programs, loaded until this is dropped.
pub struct StackSampler {
    process: RunningProgram,
    skeleton: StacksSkel<'static>,
    walk: Link,
    /// What sees that the process ends or executes another program.
    _watches: [Link; 2],
    /// Of each processor; empty if the kernel refuses them.
    timers: Vec<(OwnedFd, Link)>,
    /// The memory of the process, where the programs cannot read it.
    memory: Option<File>,
}

impl StackSampler {
    /// Loads the programs for a process of the initial process namespace. Once it has ended or executes another program,
    /// it has no threads for them.
    ///
    /// # Errors
    /// [`TraceError`], with what is missing.
    pub fn start(process: RunningProgram) -> Result<Self, TraceError> {
        ebpf::prepare()?;
        Self::load(process, true).or_else(|first| match first {
            TraceError::Permission(_) => Err(first),
            // An older kernel does not know the helper that reads the stack.
            _ => Self::load(process, false),
        })
    }

    fn load(process: RunningProgram, reads_memory: bool) -> Result<Self, TraceError> {
        let error = |error: libbpf_rs::Error| ebpf::load_error(&error);
        // The skeleton borrows a place for a pointer for as long as it lives: it is leaked, eight bytes for each try.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = StacksSkelBuilder::default().open(place).map_err(error)?;
        open.progs.threads.set_autoload(reads_memory);
        open.progs.threads_without_memory.set_autoload(!reads_memory);
        let settings = open.maps.rodata_data.as_deref_mut();
        let settings = settings.ok_or_else(|| TraceError::Load("the programs have no settings".into()))?;
        settings.process = process.pid;
        let processors = libbpf_rs::num_possible_cpus().unwrap_or(1);
        let ring = (processors * RING_BYTES).next_power_of_two().clamp(2 << 20, 64 << 20);
        open.maps.samples.set_max_entries(ring as u32).map_err(error)?;
        let skeleton = open.load().map_err(error)?;
        let programs = &skeleton.progs;
        let watches = [
            programs.process_executes.attach().map_err(error)?,
            programs.process_exits.attach().map_err(error)?,
        ];
        let memory = if reads_memory { None } else { Some(memory_of(process.pid)?) };
        let walker = if reads_memory { &programs.threads } else { &programs.threads_without_memory };
        let walk = walker.attach_iter_with_opts(IterOpts::None).map_err(error)?;
        let timers = (0..processors as u32).filter_map(|processor| {
            // Some processors may be offline; without any timer, running threads have no stack.
            let timer = sys_bpf::processor_timer(processor, PERIOD_NS).ok()?;
            let link = ebpf::attach_timer(&programs.on_processor, timer.try_clone().ok()?)?;
            sys_bpf::switch_timer(timer.as_fd(), false).ok()?;
            Some((timer, link))
        });
        let timers = timers.collect();
        Ok(Self { process, skeleton, walk, _watches: watches, timers, memory })
    }

    /// Whether threads that run on a processor have a stack.
    pub fn samples_processors(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Looks at all threads once; returns bytes for [`parse`]. It takes about 3 ms, most of it waiting. There are none once
    /// the process has ended or executes another program.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn snapshot(&self) -> io::Result<Vec<u8>> {
        let mut sampled = Vec::new();
        let timers = RunningTimers::start(&self.timers);
        if self.samples_processors() {
            std::thread::sleep(BEFORE);
        }
        // On a busy machine that takes long, and old samples would fill the ring.
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        self.take_samples(now_ns.saturating_sub(NEAR_NS), now_ns, &mut sampled)?;
        let lost_before = self.samples_lost();
        let begun = clock_gettime(ClockId::ThreadCPUTime);
        let mut walked = self.walk()?;
        if let Some(memory) = &self.memory {
            walked.bytes = with_memory(&walked.bytes, memory, &self.walk()?.bytes);
        }
        let ended = clock_gettime(ClockId::ThreadCPUTime);
        let lost = self.samples_lost() - lost_before;
        if self.samples_processors() {
            std::thread::sleep(BEFORE);
        }
        drop(timers);
        self.take_samples(0, u64::MAX, &mut sampled)?;
        // It may have done so before the programs watched it.
        if self.process.still(()).is_err() {
            (walked, sampled) = (WalkedThreads::default(), Vec::new());
        }
        let cost = (ended.tv_sec - begun.tv_sec) * 1_000_000_000 + (ended.tv_nsec - begun.tv_nsec);
        let mut bytes = Vec::with_capacity(NUMBERS + walked.bytes.len() + sampled.len());
        for number in [cost.unsigned_abs(), lost, walked.left_out, walked.bytes.len() as u64] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(walked.bytes);
        bytes.extend(sampled);
        Ok(bytes)
    }

    /// Reads the ring up to the first sample at or after `until_ns`, and keeps the samples from `since_ns` on. Without
    /// the limit, it would not end on a slow machine, where samples may come faster than they are read.
    fn take_samples(&self, since_ns: u64, until_ns: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.samples, |bytes: &[u8]| {
                let Some(head) = ThreadHead::read(bytes) else { return 0 };
                if head.ns >= since_ns {
                    into.extend_from_slice(record(bytes));
                }
                if head.ns >= until_ns { -libc::EAGAIN } else { 0 }
            })
            .map_err(io::Error::other)?;
        ebpf::drained(builder.build().map_err(io::Error::other)?.consume())
    }

    /// Samples lost so far because the ring was full.
    fn samples_lost(&self) -> u64 {
        self.skeleton.maps.bss_data.as_deref().map_or(0, |data| data.samples_lost)
    }

    fn walk(&self) -> io::Result<WalkedThreads> {
        let mut iterator = Iter::new(&self.walk).map_err(io::Error::other)?;
        let mut walked = WalkedThreads::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match iterator.read(&mut buffer) {
                Ok(0) => return Ok(walked),
                Ok(read) => walked.push(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Timers that run until this is dropped.
struct RunningTimers<'a>(&'a [(OwnedFd, Link)]);

impl<'a> RunningTimers<'a> {
    fn start(timers: &'a [(OwnedFd, Link)]) -> Self {
        let running = Self(timers);
        running.switch(true);
        running
    }

    fn switch(&self, on: bool) {
        for (timer, _) in self.0 {
            // A processor may have gone offline.
            let _ = sys_bpf::switch_timer(timer.as_fd(), on);
        }
    }
}

impl Drop for RunningTimers<'_> {
    fn drop(&mut self) {
        self.switch(false);
    }
}

/// The records of a walk that fit.
#[derive(Default)]
struct WalkedThreads {
    bytes: Vec<u8>,
    /// The beginning of a record that is not complete yet.
    pending: Vec<u8>,
    threads: usize,
    stacks: usize,
    /// Threads that are not in `bytes`.
    left_out: u64,
}

impl WalkedThreads {
    /// Adds the bytes of the next read; a record may span two reads.
    fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let mut records = Records { bytes: &self.pending };
        for (head, stack) in &mut records {
            if self.threads >= MAX_THREADS {
                self.left_out += 1;
                continue;
            }
            let stack = if self.stacks + stack.len() <= MAX_STACKS { stack } else { &[] };
            self.threads += 1;
            self.stacks += stack.len();
            push_record(&mut self.bytes, head, stack);
        }
        let rest = records.bytes.len();
        self.pending.drain(..self.pending.len() - rest);
    }
}

/// Appends a record: `head` with `stack` in place of its own.
fn push_record(bytes: &mut Vec<u8>, head: &[u8], stack: &[u8]) {
    bytes.extend_from_slice(&head[..76]);
    bytes.extend((stack.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(&head[80..HEAD]);
    bytes.extend_from_slice(stack);
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
    let mut copied = 0;
    for (bytes, _) in (Records { bytes: walked }) {
        let Some(head) = ThreadHead::read(bytes) else { continue };
        let mut length = 0;
        let most = MAX_COPIED.min(MAX_STACKS - copied);
        // Page by page: what is beyond the stack may not be readable.
        while length < most {
            let at = head.registers.sp.wrapping_add(length as u64);
            let size = (4096 - (at % 4096) as usize).min(most - length);
            match memory.read_at(&mut stack[length..length + size], at) {
                Ok(read) if read == size => length += size,
                _ => break,
            }
        }
        let after = later.remove(&head.thread).unwrap_or(u64::MAX);
        copied += length;
        let mut head = bytes.to_vec();
        head[64..72].copy_from_slice(&after.to_ne_bytes());
        push_record(&mut whole, &head, &stack[..length]);
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

/// Reads what [`StackSampler::snapshot`] returned; `None` if the bytes are truncated.
pub fn parse(bytes: &[u8]) -> Option<StackSnapshot> {
    let number = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let (cost_ns, lost, left_out) = (number(0)?, number(8)?, number(16)?);
    let (walked, sampled) = bytes.get(NUMBERS..)?.split_at_checked(usize::try_from(number(24)?).ok()?)?;
    let samples: Vec<(ThreadHead, &[u8])> = Records { bytes: sampled }
        .filter_map(|(head, stack)| Some((ThreadHead::read(head)?, stack)))
        .collect();
    let mut threads = Vec::new();
    for (head, stack) in (Records { bytes: walked }) {
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
    Some(StackSnapshot { threads, cost_ns, lost, left_out })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::executing_shell::ExecutingShell;
    use crate::waiting::{own_thread, wait_until_in};

    fn own() -> RunningProgram {
        RunningProgram::now(std::process::id()).unwrap()
    }

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
        for number in [77, 3, 1, walked.len() as u64] {
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
        assert_eq!((parsed.cost_ns, parsed.lost, parsed.left_out, parsed.threads.len()), (77, 3, 1, 3));
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
        bytes[NUMBERS + 76..NUMBERS + 80].fill(0xff);
        assert!(parse(&bytes).unwrap().threads.is_empty());
    }

    #[test]
    fn a_server_with_many_threads_is_seen_within_bounds() {
        let mut walked = WalkedThreads::default();
        let record = head(7, false, 100, &[5; MAX_COPIED]);
        // As the kernel hands records on: in pieces that end anywhere.
        let most = MAX_STACKS / MAX_COPIED;
        for _ in 0..most + 3 {
            let (first, rest) = record.split_at(1_000);
            walked.push(first);
            walked.push(rest);
        }
        assert!(walked.bytes.len() <= MAX_STACKS + (most + 3) * HEAD && walked.pending.is_empty());
        let parsed = parse(&snapshot(&walked.bytes, &[])).unwrap();
        assert_eq!(parsed.threads.len(), most + 3);
        assert!(parsed.threads[most - 1].stack.len() == MAX_COPIED && parsed.threads[most].stack.is_empty());
        let small = head(8, false, 100, b"");
        (0..MAX_THREADS).for_each(|_| walked.push(&small));
        assert_eq!((walked.threads, walked.left_out), (MAX_THREADS, most as u64 + 3));
    }

    #[test]
    fn samples_of_long_ago_take_no_room_on_a_busy_machine() {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let spinners: Vec<_> = (0..24)
            .map(|_| {
                let seen = stop.clone();
                std::thread::spawn(move || {
                    while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        let outcome = StackSampler::start(own()).map(|sampler| {
            let looks = (0..15).map(|_| parse(&sampler.snapshot().unwrap()).unwrap());
            looks.map(|look| look.lost).collect::<Vec<u64>>()
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
        match outcome {
            // On a busy machine the ring may fill up while a walk waits for a processor. Old samples always fill it.
            Ok(lost) => assert!(lost.iter().filter(|lost| **lost == 0).count() >= 3, "{lost:?}"),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    /// Also after an error: a snapshot may return before it has read everything.
    #[test]
    fn timers_stop_with_their_guard() {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = stop.clone();
        let spinner = std::thread::spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        match StackSampler::start(own()) {
            Ok(sampler) if sampler.samples_processors() => {
                let sampled = || {
                    let mut bytes = Vec::new();
                    sampler.take_samples(0, u64::MAX, &mut bytes).unwrap();
                    bytes.len()
                };
                let running = RunningTimers::start(&sampler.timers);
                let until = std::time::Instant::now() + Duration::from_secs(60);
                while sampled() == 0 {
                    assert!(std::time::Instant::now() < until, "no timer runs");
                    // span: between two looks
                    std::thread::sleep(BEFORE);
                }
                drop(running);
                sampled();
                // span: in which a timer that runs takes samples
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(sampled(), 0);
            }
            Ok(_) => eprintln!("skipped: the kernel refuses timers"),
            Err(error) => eprintln!("skipped: {error}"),
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        spinner.join().unwrap();
    }

    #[test]
    fn a_process_that_executes_another_program_is_sampled_no_longer() {
        for reads_memory in [true, false] {
            let mut shell = ExecutingShell::start();
            let chosen = RunningProgram::now(shell.id()).unwrap();
            let samplers = [chosen, chosen].map(|chosen| StackSampler::load(chosen, reads_memory));
            let threads = |sampler: &StackSampler| parse(&sampler.snapshot().unwrap()).unwrap().threads.len();
            let before = samplers.iter().flatten().map(threads).collect::<Vec<_>>();
            shell.execute();
            let [watched, mut unwatched] = samplers;
            let after = watched.iter().map(|sampler| sampler.walk().unwrap().threads).collect::<Vec<_>>();
            // As if the program had been executed before the sampler was loaded.
            if let Ok(sampler) = &mut unwatched {
                sampler.skeleton.maps.bss_data.as_deref_mut().unwrap().has_ended = 0;
            }
            let unseen = unwatched.iter().map(threads).collect::<Vec<_>>();
            shell.end();
            match unwatched {
                Ok(_) => assert_eq!((before, after, unseen), (vec![1, 1], vec![0], vec![0])),
                Err(error) => eprintln!("skipped: {error}"),
            }
        }
    }

    /// This process's own threads: one that sleeps, and one that runs.
    #[test]
    fn threads_of_this_process_are_seen_in_both_ways() {
        let (say, end) = mpsc::channel::<()>();
        let (tell, id) = mpsc::channel();
        let sleep = move || {
            tell.send(own_thread()).unwrap();
            end.recv()
        };
        let sleeper = std::thread::Builder::new().name("sleeper".into()).spawn(sleep).unwrap();
        wait_until_in(id.recv().unwrap(), libc::SYS_futex);
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = stop.clone();
        let spinner = std::thread::Builder::new().name("spinner".into()).spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        for reads_memory in [true, false] {
            let sampler = match StackSampler::load(own(), reads_memory) {
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
