//! Reads one process and its threads.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::param::page_size;
use sonar_core::machine::{ProcessReading, ThreadReading};

use super::super::Host;
use super::super::control_group::GroupFiles;
use super::super::process::{Stat, allowed_processors, soft_limit};
use super::text::TextBuffer;

/// The most threads of a process.
const MAX_THREADS: usize = 32_768;
/// Readings after which limits, the control group and the names of threads are read again.
const REFRESH: u64 = 30;
/// Readings after which descriptors are counted again where the kernel does not.
const COUNT_AGAIN: u64 = 6;

/// Reads a process again and again.
#[derive(Debug)]
pub(super) struct ProcessReader {
    pid: u32,
    /// What is known of the process that had the number at the last reading.
    known: Option<KnownProcess>,
}

#[derive(Debug)]
struct KnownProcess {
    pid: u32,
    started: u64,
    readings: u64,
    folder: PathBuf,
    /// Its folder of threads.
    tasks: Option<OwnedFd>,
    /// Names of its threads, and how often each was read.
    names: BTreeMap<u32, (Arc<str>, u64)>,
    groups: GroupFiles,
    descriptor_limit: Option<u64>,
}

impl ProcessReader {
    /// Ready to read the process with this number.
    pub fn new(pid: u32) -> Self {
        Self { pid, known: None }
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Reads it; `None` if it does not run.
    pub fn read(&mut self, host: &Host, buffer: &mut TextBuffer) -> Option<ProcessReading> {
        let folder = host.path(&format!("proc/{}", self.pid));
        let stat = Stat::parse(buffer.read(&folder.join("stat"))?.as_bytes()).filter(Stat::runs)?;
        let known = match &mut self.known {
            Some(known) if known.started == stat.started => known,
            other => other.insert(KnownProcess::new(self.pid, folder, stat.started)),
        };
        let mut reading = ProcessReading {
            pid: self.pid,
            started: stat.started,
            cpu_ns: stat.cpu_by_mode.map(|time| time.as_nanos() as u64),
            thread_count: stat.threads,
            faults: stat.faults,
            resident: stat.resident_pages.saturating_mul(page_size() as u64),
            ..ProcessReading::default()
        };
        known.read(host, buffer, &mut reading);
        Some(reading)
    }
}

impl KnownProcess {
    fn new(pid: u32, folder: PathBuf, started: u64) -> Self {
        Self {
            pid,
            started,
            readings: 0,
            tasks: None,
            folder,
            names: BTreeMap::new(),
            groups: GroupFiles::default(),
            descriptor_limit: None,
        }
    }

    fn read(&mut self, host: &Host, buffer: &mut TextBuffer, reading: &mut ProcessReading) {
        if self.readings.is_multiple_of(REFRESH) {
            self.refresh(host, buffer);
        }
        if let Some(text) = buffer.read(&self.folder.join("status")) {
            let bytes = |name| kibibytes(text, name).and_then(|kib| kib.checked_mul(1_024));
            (reading.anonymous, reading.swapped) = (bytes("RssAnon"), bytes("VmSwap"));
            reading.processors_allowed = allowed_processors(text);
        }
        reading.descriptors = self.descriptors();
        reading.descriptor_limit = self.descriptor_limit;
        reading.control_group = self.groups.read(buffer);
        self.read_threads(reading);
        self.readings += 1;
    }

    /// Reads what hardly ever changes.
    fn refresh(&mut self, host: &Host, buffer: &mut TextBuffer) {
        if self.tasks.is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.tasks = rustix::fs::open(self.folder.join("task"), flags, Mode::empty()).ok();
        }
        if let Some(text) = buffer.read(&self.folder.join("limits")) {
            let limits = || text.lines().skip(1).filter_map(soft_limit);
            self.descriptor_limit =
                limits().find(|(name, _)| *name == "Max open files").and_then(|found| found.1);
        }
        if let Some(groups) = GroupFiles::find(host, self.pid, buffer) {
            self.groups = groups;
        }
    }

    /// The number of open descriptors: since 6.2 it is the size of the folder. Counting takes long if there are many.
    fn descriptors(&self) -> Option<u64> {
        let folder = self.folder.join("fd");
        match fs::metadata(&folder).ok()?.len() {
            0 if self.readings.is_multiple_of(COUNT_AGAIN) => Some(fs::read_dir(folder).ok()?.count() as u64),
            0 => None,
            count => Some(count),
        }
    }

    fn read_threads(&mut self, reading: &mut ProcessReading) {
        let Some(tasks) = &self.tasks else { return };
        let mut ids = thread_ids(&self.folder.join("task"));
        reading.threads_left_out = ids.len() > MAX_THREADS;
        ids.truncate(MAX_THREADS);
        let mut names = BTreeMap::new();
        for id in ids {
            let Some([run_ns, wait_ns, switches]) = times(tasks, id) else { continue };
            let (name, reads) = match self.names.remove(&id) {
                // Threads are given their names shortly after they start.
                Some((name, reads)) if reads != 1 && !reads.is_multiple_of(REFRESH) => (name, reads),
                known => {
                    let (old, reads) = known.map_or((None, 0), |(name, reads)| (Some(name), reads));
                    (thread_name(tasks, id, old), reads)
                }
            };
            names.insert(id, (name.clone(), reads + 1));
            reading.threads.push(ThreadReading { id, name, run_ns, wait_ns, switches });
        }
        self.names = names;
        // A kernel without these statistics writes zeros.
        if reading.threads.iter().all(|thread| thread.run_ns == 0) {
            reading.threads.clear();
        }
    }
}

/// A number of `/proc/PID/status` in KiB.
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// The numbers of a process' threads, the smallest first.
fn thread_ids(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut ids: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MAX_THREADS + 1).collect();
    ids.sort_unstable();
    ids
}

/// Reads a small file of a thread; `None` if the thread has ended.
fn thread_file<'a>(tasks: &OwnedFd, path: &str, buffer: &'a mut [u8; 128]) -> Option<&'a [u8]> {
    let file = openat(tasks, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, &mut buffer[..]).ok()?;
    buffer.get(..length)
}

/// Nanoseconds on a processor, nanoseconds of waiting for one, and how often it got one.
fn times(tasks: &OwnedFd, id: u32) -> Option<[u64; 3]> {
    let mut buffer = [0; 128];
    let text = std::str::from_utf8(thread_file(tasks, &format!("{id}/schedstat"), &mut buffer)?).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// The name of a thread. If it is `old`, that is used again.
fn thread_name(tasks: &OwnedFd, id: u32, old: Option<Arc<str>>) -> Arc<str> {
    let mut buffer = [0; 128];
    let text = thread_file(tasks, &format!("{id}/comm"), &mut buffer).unwrap_or_default();
    let name = String::from_utf8_lossy(text.trim_ascii_end());
    old.filter(|old| **old == *name).unwrap_or_else(|| name.as_ref().into())
}
