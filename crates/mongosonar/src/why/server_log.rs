//! The logs of the traced servers, followed while the trace lasts.
//!
//! A helper opens them before privileges are dropped, and nobody does again: after a rotation nothing more is read.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sonar_core::Source;
use sonar_core::observation::FileIdentity;
use sonar_core::time_split::ServerOperation;
use sonar_decode::entry::ParsedEntry;
use sonar_decode::log::{LogReader, LogSettings};
use sonar_sys::Host;
use sonar_sys::host::process::Process;
use sonar_sys::host::process_files::ProcessFiles;
use sonar_sys::host::regular;

use super::server_operation::DescribedOperations;
use crate::args::when::now;
use crate::confinement::reading_apart::{ReadApart, read_each};
use crate::input::follow::{
    FileFollower, FileThread, FollowStart, FollowedFile, FollowedPlace, LineSink, PassedIdentity,
    SentIdentity, close_apart, file_identity,
};
use crate::servers;
use crate::servers::configuration::ServerSetting;
use crate::servers::log_location::{LocatedLog, unreadable};
use crate::servers::own_files::descriptor;

/// The most logs of a process.
const MAX_LOGS: usize = 4;

/// What a helper reads of a process: any of it may be withheld.
#[derive(Serialize, Deserialize)]
struct ProcessLogs {
    /// Those that were opened.
    logs: Vec<FoundLog>,
    /// Which files it writes logs into, whoever may read them.
    written: Vec<SentIdentity>,
    /// Why the others could not be opened.
    problems: Vec<String>,
}

/// A log of a process.
#[derive(Serialize, Deserialize)]
struct FoundLog {
    /// As the process sees it.
    path: String,
    #[serde(with = "PassedIdentity")]
    identity: FileIdentity,
}

impl ProcessLogs {
    /// Those that a process writes: the one that its arguments or configuration say, and other open files called `*.log`.
    fn of(process: u32) -> (Self, Vec<File>) {
        let (mut files, mut logs, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        let said = said_log(process).transpose().unwrap_or_else(|reason| {
            problems.push(reason);
            None
        });
        let mut add = |path: PathBuf, opened: io::Result<File>| match opened
            .and_then(|file| Ok((identity_of(&file)?, file)))
        {
            Ok((identity, file)) => {
                logs.push(FoundLog { path: path.display().to_string(), identity });
                files.push(file);
            }
            Err(error) => problems.push(unreadable(&path, &error)),
        };
        said.iter().for_each(|log| add(log.path(), log.open()));
        let written = written_logs(process);
        written.iter().for_each(|log| add(log.path.clone(), log.open()));
        let written = written.iter().map(|log| SentIdentity(log.identity)).collect();
        (Self { logs, written, problems }, files)
    }

    /// Those of each of these processes.
    fn of_each(processes: &[u32]) -> Vec<ReadApart<Self>> {
        read_each("reading the logs of servers", processes, Self::of)
    }
}

/// A log that is open.
struct OpenedLog {
    path: PathBuf,
    file: File,
    /// Whose it is, if that is known.
    process: Option<u32>,
    identity: FileIdentity,
}

/// Logs that are open and not yet followed.
#[derive(Default)]
pub struct OpenedLogs(Vec<OpenedLog>);

impl OpenedLogs {
    /// Opens these logs; each belongs to the process that has it open. Call it before any thread is started.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open(paths: &[PathBuf], processes: &[u32]) -> Result<Self> {
        let of_processes = ProcessLogs::of_each(processes);
        let open = |path: &PathBuf| {
            let cannot = || format!("cannot open the log {}", path.display());
            let file = regular::open(path).with_context(cannot)?;
            let identity = identity_of(&file).with_context(cannot)?;
            let has_it = |one: &&ReadApart<ProcessLogs>| one.said.written.contains(&SentIdentity(identity));
            let process = of_processes.iter().find(has_it).map(|one| one.process);
            Ok(OpenedLog { path: path.clone(), file, process, identity })
        };
        paths.iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// The logs that these processes write: the one that their arguments or configuration say, and other open files
    /// called `*.log`. Call it before any thread is started.
    pub fn of_processes(processes: &[u32]) -> Self {
        let mut logs: Vec<OpenedLog> = Vec::new();
        for ReadApart { process, said, files } in ProcessLogs::of_each(processes) {
            let before = logs.len();
            for (FoundLog { path, identity }, file) in said.logs.into_iter().zip(files) {
                if logs.iter().any(|other| other.identity == identity) {
                    close_apart(vec![file]);
                } else {
                    logs.push(OpenedLog { path: path.into(), file, process: Some(process), identity });
                }
            }
            // Another log that was found is no reason for words about the first.
            if logs.len() == before {
                said.problems.iter().for_each(|why| eprintln!("mongosonar: process {process}: {why}"));
            }
        }
        Self(logs)
    }

    /// Follows them from their ends on. Threads wait for their file systems: call it when privileges are dropped.
    pub fn follow(self) -> ServerLogs {
        let threads = Arc::default();
        let follow = |log: OpenedLog| {
            let path = log.path.clone();
            let owner = log.process.and_then(|process| Host::live().user(process));
            let traced = TracedLog::new(log, FileThread::of(&threads, owner));
            traced.inspect_err(|error| eprintln!("mongosonar: {}", unreadable(&path, error))).ok()
        };
        ServerLogs(self.0.into_iter().filter_map(follow).collect())
    }
}

/// Logs that are followed.
#[derive(Default)]
pub struct ServerLogs(Vec<TracedLog>);

impl ServerLogs {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their paths.
    pub fn paths(&self) -> Vec<String> {
        self.0.iter().map(|log| log.path.display().to_string()).collect()
    }

    /// Passes on the slow operations that were written since the last call, some megabytes of lines at most.
    pub fn poll(&mut self, mut each: impl FnMut(ServerOperation)) {
        for log in &mut self.0 {
            if let Err(error) = log.poll(&mut each)
                && !std::mem::replace(&mut log.has_failed, true)
            {
                eprintln!("mongosonar: cannot read {}: {error}", log.path.display());
            }
        }
    }

    /// Passes on the rest. Returns how many lines could not be read.
    pub fn finish(mut self, mut each: impl FnMut(ServerOperation)) -> u64 {
        self.poll(&mut each);
        self.0.into_iter().map(|log| log.finish(&mut each)).sum()
    }
}

/// A log that is followed.
struct TracedLog {
    path: PathBuf,
    /// Whose it is, if that is known.
    process: Option<u32>,
    identity: FileIdentity,
    thread: Arc<FileThread>,
    follower: FileFollower<LogPlace>,
    reader: LogReader,
    has_failed: bool,
}

impl TracedLog {
    /// Follows a log from its end on; `thread` reads it.
    fn new(log: OpenedLog, thread: FileThread) -> io::Result<Self> {
        let OpenedLog { path, file, process, identity } = log;
        let thread = Arc::new(thread);
        let file = FollowedFile::new(file, Some(thread.clone()));
        let follower = FileFollower::new(LogPlace(identity), Some(file), FollowStart::End)?;
        let reader = LogReader::new(LogSettings { reference_ms: now().unix_ms(), ..LogSettings::default() });
        Ok(Self { path, process, identity, thread, follower, reader, has_failed: false })
    }

    fn poll(&mut self, each: &mut impl FnMut(ServerOperation)) -> io::Result<()> {
        let mut lines = SlowLines::new(&mut self.reader, self.process, each);
        self.follower.poll(&mut lines).map(drop)
    }

    fn finish(mut self, each: &mut impl FnMut(ServerOperation)) -> u64 {
        let path = self.path.clone();
        let now = self.thread.run(move || fs::metadata(path)).and_then(|found| found);
        if now.is_ok_and(|found| file_identity(&found) != self.identity) {
            eprintln!(
                "mongosonar: {} was rotated during the trace: lines written after that were not read",
                self.path.display()
            );
        }
        let mut lines = SlowLines::new(&mut self.reader, self.process, each);
        lines.reader.finish(&mut lines.operations);
        let reading = self.reader.reading();
        reading.lines_too_long + reading.lines_malformed + reading.lines_unfinished
    }
}

fn identity_of(file: &File) -> io::Result<FileIdentity> {
    Ok(file_identity(&file.metadata()?))
}

/// A file that a process writes a log into.
struct WrittenLog {
    /// As the process sees it.
    path: PathBuf,
    /// Who has it open, and its number there: it opens the log also in a container.
    process: Process,
    number: u32,
    identity: FileIdentity,
}

/// The log of a mongod or mongos, or where it goes instead; `None` for other programs.
fn said_log(process: u32) -> Option<Result<LocatedLog, String>> {
    let host = Host::live();
    let process = servers::server(&host, process)?;
    Some(LocatedLog::of_process(&host, &process))
}

/// The logs that a process has open: regular files that it writes, and that are named `*.log` or as its configuration
/// says.
fn written_logs(process: u32) -> Vec<WrittenLog> {
    let host = Host::live();
    let Some(process) = servers::whatever(&host, process) else { return Vec::new() };
    let named = ServerSetting::LOG.read(&host, &process);
    let mut logs: Vec<WrittenLog> = Vec::new();
    for (number, path) in process.open_files() {
        let is_named = named.as_deref().is_some_and(|named| path.ends_with(named));
        if logs.len() < MAX_LOGS
            && (is_named || path.extension().is_some_and(|end| end == "log"))
            && is_written(&process, number)
            && let Some(log) = WrittenLog::new(&process, number, path)
            && !logs.iter().any(|other| other.identity == log.identity)
        {
            logs.push(log);
        }
    }
    logs
}

impl WrittenLog {
    fn new(process: &Process, number: u32, path: PathBuf) -> Option<Self> {
        let found = fs::metadata(descriptor(process, number)).ok().filter(fs::Metadata::is_file)?;
        Some(Self { path, process: process.clone(), number, identity: file_identity(&found) })
    }

    /// Opens it, if the user of the process may read it.
    fn open(&self) -> io::Result<File> {
        ProcessFiles::of(&self.process)?.open_descriptor(&self.process, self.number)
    }
}

/// Whether a process has opened a file for writing (proc_pid_fdinfo(5)).
fn is_written(process: &Process, number: u32) -> bool {
    let info = fs::read_to_string(process.folder().join(format!("fdinfo/{number}"))).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 != 0)
}

/// A file that stays open and is not opened again.
struct LogPlace(FileIdentity);

impl FollowedPlace for LogPlace {
    fn identity(&mut self) -> io::Result<Option<FileIdentity>> {
        Ok(Some(self.0))
    }

    fn open(&mut self) -> io::Result<File> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn copies(&mut self) -> Vec<File> {
        Vec::new()
    }
}

/// Reads the lines of a log.
struct SlowLines<'a, F> {
    reader: &'a mut LogReader,
    /// Their connection is that of the thread that wrote the present line.
    operations: DescribedOperations<'a, F>,
}

impl<'a, F: FnMut(ServerOperation)> SlowLines<'a, F> {
    fn new(reader: &'a mut LogReader, process: Option<u32>, each: &'a mut F) -> Self {
        let operations = DescribedOperations { source: Source::Log, process, connection: None, each };
        Self { reader, operations }
    }
}

impl<F: FnMut(ServerOperation)> LineSink for SlowLines<'_, F> {
    fn line(&mut self, line: &[u8]) {
        let mut entry = ParsedEntry::default();
        let parsed = self.reader.reader().read(line, &mut entry);
        self.operations.connection = parsed.connection();
        self.reader.add(line, &parsed, &entry, &mut self.operations);
        self.operations.connection = None;
    }

    fn unfinished(&mut self, _line: &[u8]) {
        self.reader.add_too_long();
    }

    fn too_long(&mut self) {
        self.reader.add_too_long();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SLOW: &[u8] = br#"{"t":{"$date":"2026-11-21T21:26:53.420+00:00"},"s":"I",  "c":"COMMAND",  "id":51803,   "ctx":"conn44","msg":"Slow query","attr":{"type":"command","ns":"stats.daily","appName":"reports","command":{"find":"daily","filter":{"day":3},"$db":"stats"},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":6036,"numYields":6,"nreturned":7,"reslen":421,"locks":{},"storage":{},"protocol":"op_msg","durationMillis":21}}
"#;
    const OLD: &[u8] = b"2018-11-21T21:26:53.420+0000 I COMMAND  [conn7] command stats.daily command: find { find: \"daily\", filter: { day: 3.0 }, $db: \"stats\" } planSummary: COLLSCAN keysExamined:0 docsExamined:6036 cursorExhausted:1 numYields:6 nreturned:7 reslen:421 locks:{} protocol:op_msg 21ms\n";
    /// Of no connection.
    const INTERNAL: &[u8] = br#"{"t":{"$date":"2026-11-21T21:26:53.420+00:00"},"s":"I",  "c":"COMMAND",  "id":51803,   "ctx":"TTLMonitor","msg":"Slow query","attr":{"type":"command","ns":"stats.daily","command":{"find":"daily","filter":{"day":3},"$db":"stats"},"durationMillis":21}}
"#;

    #[test]
    fn slow_operations_of_connections_are_read_from_the_end_of_a_log_that_this_process_writes() {
        let path = std::env::temp_dir().join(format!("mongosonar-why-{}.log", std::process::id()));
        let mut file = File::options().append(true).create(true).open(&path).unwrap();
        file.write_all(SLOW).unwrap();
        let found = written_logs(std::process::id());
        let log = found.iter().find(|log| log.path == path).unwrap();
        assert_eq!(log.identity, identity_of(&file).unwrap());
        let opened = ProcessLogs::of(std::process::id());
        let of_path = |log: &&FoundLog| path == std::path::Path::new(&log.path);
        assert_eq!(opened.0.logs.iter().find(of_path).unwrap().identity, identity_of(&file).unwrap());
        assert_eq!(opened.0.logs.len(), opened.1.len());
        let (process, identity) = (Some(std::process::id()), identity_of(&file).unwrap());
        let log = OpenedLog { path: path.clone(), file: File::open(&path).unwrap(), process, identity };
        let mut logs = OpenedLogs(vec![log]).follow();
        assert_eq!(logs.paths(), [path.display().to_string()]);
        for line in [SLOW, INTERNAL, OLD, &SLOW[..100], b"\n"] {
            file.write_all(line).unwrap();
        }
        let mut operations = Vec::new();
        logs.poll(|operation| operations.push(operation));
        let unread = logs.finish(|operation| operations.push(operation));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(unread, 1);
        let [new, old] = &operations[..] else { panic!("{operations:?}") };
        assert_eq!((new.connection, old.connection), (Some(44), Some(7)));
        for one in [new, old] {
            assert_eq!((one.process, one.source), (Some(std::process::id()), Source::Log));
            assert_eq!((one.duration_ns, one.is_exact), (21_000_000, true));
            assert_eq!(one.evidence.totals.collection_scans, 1);
            assert_eq!(one.evidence.totals.sums.docs_examined.get(), Some(6036));
            assert_eq!(one.evidence.selected.get(), Some(7));
        }
        assert_eq!(new.shape.id, old.shape.id);
        assert_eq!(new.end.unix_ns() % 1_000_000_000, 420_000_000);
    }

    #[test]
    fn a_log_that_a_process_only_reads_is_not_its_own() {
        let path = std::env::temp_dir().join(format!("mongosonar-why-read-{}.log", std::process::id()));
        std::fs::write(&path, SLOW).unwrap();
        let _file = File::open(&path).unwrap();
        assert!(written_logs(std::process::id()).iter().all(|log| log.path != path));
        std::fs::remove_file(&path).unwrap();
    }
}
