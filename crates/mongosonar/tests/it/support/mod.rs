//! The program under test, and what it is given.

pub mod trace;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use sonar_core::Timestamp;
use sonar_core::files::{AccessKind, IoAccess, IoLosses};
use sonar_decode::io_file::{FileEntry, RecordingWriter, ThreadEntry};
pub use sonar_decode::testing::fixtures::{fixture, inflated};

/// The recordings of a real server, by the folder's name.
pub const RECORDINGS: [&str; 2] = ["mongod-4.0-mixed", "mongod-4.0-sharded"];

/// `LONG=1`: the long form of tests that have one.
pub fn is_long() -> bool {
    std::env::var_os("LONG").is_some()
}

/// What a real mongod read, as strace saw it (a fixture), as a recording of `io record`.
pub fn recorded_reads(name: &str) -> Vec<u8> {
    let table = String::from_utf8(inflated(&format!("mongod-4.0-reads/{name}.tsv.gz"))).unwrap();
    let mut out = Vec::new();
    let mut writer = RecordingWriter::begin(&[("source", "strace")], &mut out);
    let mut files = HashMap::new();
    for line in table.lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let (seconds, micros) = cells[0].split_once('.').unwrap();
        let next = files.len() as u32 + 1;
        let file = *files.entry(cells[2].to_string()).or_insert_with(|| {
            writer.file(&FileEntry { file: next, device: 0, inode: 0, path: cells[2] }, &mut out);
            next
        });
        let access = IoAccess {
            start: Timestamp::from_unix(seconds.parse().unwrap(), micros.parse::<u32>().unwrap() * 1_000),
            latency_ns: (cells[6].parse::<f64>().unwrap() * 1e9).round() as u64,
            thread: cells[1].parse().unwrap(),
            file,
            kind: AccessKind::Read,
            offset: cells[3].parse().unwrap(),
            asked: cells[4].parse().unwrap(),
            given: cells[5].parse().unwrap(),
            error: 0,
            device_bytes: None,
        };
        writer.access(&access, &mut out);
    }
    writer.thread(&ThreadEntry { thread: 31_099, process: 1, name: "conn\u{1b}[31m4" }, &mut out);
    writer.end(&IoLosses { ring_full: 3, ..IoLosses::default() }, &mut out);
    out
}

/// The capture of a recording.
pub fn recording(name: &str) -> PathBuf {
    fixture(name).join("wire.pcap.gz")
}

/// The same without its compression.
pub fn unpacked(name: &str) -> Vec<u8> {
    inflated(&format!("{name}/wire.pcap.gz"))
}

/// The program, with no configuration of this machine's and all its ends in our hands.
pub fn program<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mongosonar"));
    command.args(arguments).env("HOME", "/nonexistent").env("XDG_CONFIG_HOME", "/nonexistent");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end; `words` are its arguments.
pub fn run(words: &str) -> Output {
    program(words.split_whitespace()).output().unwrap()
}

/// Runs `queries --read FILE WORDS`.
pub fn read(file: &Path, words: &str) -> Output {
    queries(file, words).output().unwrap()
}

/// `queries --read FILE WORDS`, not started.
pub fn queries(file: &Path, words: &str) -> Command {
    let mut command = program(["queries", "--read"]);
    command.arg(file).args(words.split_whitespace());
    command
}

/// Runs the program with these bytes on its standard input.
pub fn fed(mut command: Command, bytes: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // It may stop reading before the end.
        scope.spawn(move || input.write_all(bytes).is_ok());
        child.wait_with_output().unwrap()
    })
}

/// The JSON values of the lines of an output, which must have gone well.
pub fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Its one line, the summary.
pub fn summary(output: &Output) -> Value {
    let mut lines = lines(output);
    let last = lines.pop().unwrap();
    assert_eq!(last["kind"], "summary");
    last
}

/// What was said, in UTF-8.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Sends a signal, by its name without SIG.
pub fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

/// A folder that is gone at the end.
pub struct Folder(PathBuf);

impl Folder {
    /// A new one; the name distinguishes tests.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mongosonar-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file in it.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
