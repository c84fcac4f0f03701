//! `io record`: records every access to the files of a process.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sonar_core::files::IoAccess;
use sonar_decode::io_file::{FileEntry, RecordingWriter, ThreadEntry};
use sonar_sys::Host;
use sonar_sys::ebpf::{FileKey, KernelEvent, TraceMode, Tracer};
use sonar_view::kit::plural;

use super::args::IoRecordArgs;
use super::devices::DeviceNames;
use super::file_trace::{FileSearch, FileTrace};
use super::finder::PathFinder;
use super::paths::FoundFile;
use super::process::TracedProcesses;
use super::recording::{DEVICE, HOLDS, RecordingEnd, RecordingFile};
use super::table::FileTable;
use crate::exit::{self, OK};
use crate::outfile;
use crate::servers::file_names::FileNames;

/// The most threads to record by name; others have only a number.
const MAX_NAMES: usize = 65_536;

/// The key under which a recording names its processes.
const PROCESSES: &str = "processes";

/// Runs the command; returns the exit code.
pub fn run(args: &IoRecordArgs) -> Result<u8> {
    let mode = if args.readahead { TraceMode::EachAndPages } else { TraceMode::Each };
    let trace = FileTrace::open(&args.traced, &args.server, &args.trace, mode)?;
    let (processes, way) = (trace.search.processes.list(), trace.tracer.way());
    let recording = recording(args, &processes, &way)?;
    let file = args.file.display();
    let stop = trace.begin(format!("recording process {processes} by {way} into {file}; Ctrl-C ends it"))?;
    let FileTrace { search: FileSearch { processes: mut watch, places: paths }, tracer, names, .. } = trace;
    let until = args.duration.map(|duration| Instant::now() + duration);
    // The recording has begun, and another attempt would find its file there.
    let names = names.ask(&stop, until).unwrap_or_else(|error| {
        eprintln!("mongosonar: files go by their own names: {}", exit::message(&error));
        FileNames::default()
    });
    let mut recorder = AccessRecorder::new(recording, names, paths);
    tracer
        .run_with(
            &mut (&mut recorder, &mut watch),
            |(recorder, watch), event| match event {
                KernelEvent::Process { process, change } => {
                    recorder.processes(watch.event(process, change), watch)
                }
                event => recorder.event(&event, &tracer),
            },
            |(recorder, watch)| {
                recorder.recording.flush_in_time();
                recorder.processes(watch.look(&tracer), watch);
                recorder.numbers.release(&tracer);
                !stop.load(Ordering::Relaxed)
                    && until.is_none_or(|until| Instant::now() < until)
                    && !watch.is_over()
            },
        )
        .context("cannot read what the kernel hands on")?;
    let unplaced = recorder.paths.unplaced();
    let RecordingEnd { accesses, losses, failed } = recorder.recording.end(tracer.losses());
    eprintln!("mongosonar: {} recorded, {} lost", plural(accesses, "access"), losses.total());
    for (what, count) in losses.in_words() {
        eprintln!("mongosonar: lost: {what}: {count}");
    }
    if unplaced > 0 {
        eprintln!(
            "mongosonar: {} left out: closed before it could be determined whether they are in the folder",
            plural(unplaced, "file")
        );
    }
    match failed {
        Some(failed) => bail!("{failed}"),
        None => Ok(OK),
    }
}

/// Writes what the kernel reports into a recording.
struct AccessRecorder {
    recording: RecordingFile,
    /// The recording's numbers of files.
    numbers: FileTable<u32>,
    next: u32,
    /// Start of the latest access.
    latest_ns: u64,
    /// The last names of threads.
    threads: HashMap<u32, Vec<u8>>,
    paths: PathFinder,
    names: FileNames,
    devices: DeviceNames,
}

/// Creates the recording.
fn recording(args: &IoRecordArgs, processes: &str, way: &str) -> Result<RecordingFile> {
    let here = Host::live();
    let (host, kernel) = (here.name().unwrap_or_default(), here.kernel().unwrap_or_default());
    let begin = if args.readahead { RecordingWriter::begin_with_pages } else { RecordingWriter::begin };
    let mut buffer = Vec::new();
    let writer = begin(
        &[
            ("program", concat!("mongosonar ", env!("CARGO_PKG_VERSION"))),
            ("host", &host),
            ("kernel", &kernel),
            (PROCESSES, processes),
            ("way", way),
            ("readahead", if args.readahead { "traced" } else { "not traced" }),
        ],
        &mut buffer,
    );
    let path = args.file.as_path();
    RecordingFile::create(path, writer, buffer).map_err(|error| outfile::cannot_create(path, error))
}

impl AccessRecorder {
    fn new(recording: RecordingFile, names: FileNames, paths: PathFinder) -> Self {
        Self {
            recording,
            numbers: FileTable::of_each(),
            next: 1,
            latest_ns: 0,
            threads: HashMap::new(),
            paths,
            names,
            devices: DeviceNames::default(),
        }
    }

    /// Prints messages about processes, and records the processes traced so far.
    fn processes(&mut self, lines: Vec<String>, watch: &TracedProcesses) {
        for line in &lines {
            eprintln!("mongosonar: {line}");
        }
        if !lines.is_empty() {
            self.recording.info(&[(PROCESSES, &watch.list())]);
        }
    }

    fn event(&mut self, event: &KernelEvent<'_>, tracer: &Tracer) {
        match *event {
            KernelEvent::File(new) => {
                let FoundFile { path, wanted } = self.paths.find(&new);
                if wanted {
                    self.file(new.file, new.key, &path.to_string_lossy());
                } else {
                    self.numbers.leave_out(tracer, &new);
                }
            }
            // Handled by the caller, which knows the processes.
            KernelEvent::Process { .. } => {}
            KernelEvent::Thread { thread, process, name } => {
                let room = self.threads.len() < MAX_NAMES;
                let known = self.threads.get(&thread);
                if known.is_some_and(|known| *known == name) || (known.is_none() && !room) {
                    return;
                }
                self.threads.insert(thread, name.to_vec());
                let name = String::from_utf8_lossy(name);
                self.recording.thread(&ThreadEntry { thread, process, name: &name });
            }
            KernelEvent::Access {
                file,
                kind,
                start,
                latency_ns,
                offset,
                asked,
                result,
                device_bytes,
                thread,
            } => {
                // The kernel reports a file before its accesses.
                self.latest_ns = self.latest_ns.max(start.unix_ns());
                let Some(file) = self.numbers.used(file, start.unix_ns()).copied() else { return };
                let sync = kind.is_sync();
                let access = IoAccess {
                    start,
                    latency_ns,
                    thread,
                    file,
                    kind,
                    offset: if sync { 0 } else { offset },
                    asked: if sync { 0 } else { asked },
                    given: if sync { 0 } else { u64::try_from(result).unwrap_or(0) },
                    error: if result < 0 { u16::try_from(-result).unwrap_or(u16::MAX) } else { 0 },
                    device_bytes,
                };
                self.recording.access(&access);
            }
        }
    }

    fn file(&mut self, number: u32, key: FileKey, path: &str) {
        let file = self.next;
        self.next += 1;
        self.numbers.insert(number, key, self.latest_ns, file);
        self.recording.file(&FileEntry { file, device: key.device, inode: key.inode, path });
        if let Some(names) = self.devices.first(key.device, path) {
            let device = format!("{DEVICE}{}", key.device);
            self.recording.info(&[(&device, &names)]);
        }
        if let Some(held) = self.names.of(path) {
            let key = format!("{HOLDS}{file}");
            self.recording.info(&[(&key, &held.label())]);
        }
    }
}
