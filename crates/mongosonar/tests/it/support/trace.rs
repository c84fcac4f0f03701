//! Processes whose accesses are known, and the program tracing them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use sonar_core::files::IoAccess;
use sonar_decode::io_file::{RecordingBlock, RecordingParser, RecordingStep};

use super::{Folder, program, signal, text};

/// Runs the Python that it is sent, a JSON string a line; `db` is the folder it is given.
const INTERPRETER: &str = r#"
import json, os, resource, sys, threading
db = sys.argv[-1]
for line in sys.stdin:
    exec(json.loads(line), globals())
    print("done", flush=True)
"#;

/// Waits until tracers have read everything: they look at the ring ten times a second, and only then wait.
pub const IDLE: &str = r#"
import time
def until_idle(*tracers):
    seen = 0
    while seen < 20:
        calls = [open(f"/proc/{one}/syscall").read().split()[0] for one in tracers]
        # epoll_wait or epoll_pwait, on x86-64 and on ARM.
        seen = seen + 1 if all(call in ("232", "281", "22") for call in calls) else 0
        time.sleep(0.02)
"#;

/// Calls itself mongod, as there is none here: only the name is searched, and nothing else of a mongod.
pub const CALLED_MONGOD: &str = "open('/proc/self/comm', 'w').write('mongod')";

/// A process that runs the code it is sent. It is gone at the end.
pub struct Oracle {
    child: Child,
    /// The process that does it, which a wrapper may have started.
    pub id: u32,
    out: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts one that knows `db` as its folder, with these arguments before it.
    pub fn new(folder: &Folder, arguments: &[&str], db: impl AsRef<Path>) -> Self {
        Self::within(&[], folder, arguments, db)
    }

    /// The same, started by another program.
    pub fn within(wrapper: &[&str], folder: &Folder, arguments: &[&str], db: impl AsRef<Path>) -> Self {
        let script = folder.file("interpreter.py", INTERPRETER.as_bytes());
        let mut command = match wrapper {
            [] => Command::new("python3"),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg("python3");
                command
            }
        };
        command.arg("-S").arg(script).args(arguments).arg(db.as_ref());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let id = child.id();
        let mut oracle = Self { child, id, out };
        // Until Python has read what it reads to begin with.
        oracle.does("pass");
        oracle
    }

    /// Has it do this, and waits until it is done.
    pub fn does(&mut self, code: &str) {
        let line = serde_json::to_string(code).unwrap();
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut done = String::new();
        self.out.read_line(&mut done).unwrap();
        assert_eq!(done, "done\n", "{code}");
    }

    /// Has it do this, after which it says no more.
    pub fn last(&mut self, code: &str) {
        let line = serde_json::to_string(code).unwrap();
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Has it say something.
    pub fn says(&mut self, expression: &str) -> String {
        let line = serde_json::to_string(&format!("print({expression})")).unwrap();
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let (mut said, mut done) = (String::new(), String::new());
        self.out.read_line(&mut said).unwrap();
        self.out.read_line(&mut done).unwrap();
        assert_eq!(done, "done\n", "{expression}");
        said.trim_end().to_owned()
    }

    /// Ends it, but leaves it uncollected, as a parent that is busy does.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mongosonar io record` or `live`, attached. It is gone at the end.
pub struct Tracer {
    child: Option<Child>,
    /// What it has said on standard error so far.
    pub said: String,
    err: BufReader<std::process::ChildStderr>,
}

impl Tracer {
    /// Starts `io ARGUMENTS`, and waits until it sees accesses; `None` where nothing can be traced, which it
    /// says.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let mut command = program(["io"]);
        command.args(arguments);
        Self::spawn(command)
    }

    /// The same of a command that is made.
    pub fn spawn(mut command: Command) -> Option<Self> {
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let mut tracer = Self { child: Some(child), said: String::new(), err };
        if tracer.line().contains("Ctrl-C ends it") {
            return Some(tracer);
        }
        let said = &tracer.said;
        assert!(["permission", "BTF", "cannot load"].iter().any(|why| said.contains(why)), "{said}");
        eprintln!("skipped, as nothing can be traced here: {said}");
        None
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    fn line(&mut self) -> &str {
        let from = self.said.len();
        self.err.read_line(&mut self.said).unwrap();
        &self.said[from..]
    }

    /// Waits until it says this.
    pub fn until_said(&mut self, what: &str) {
        while !self.said.contains(what) {
            let line = self.line();
            assert!(!line.is_empty(), "it ended, and never said {what:?}: {}", self.said);
        }
    }

    /// Has it stand still until it ends, as on a machine whose processors are all busy.
    pub fn suspend(&self) {
        signal(self.child.as_ref().unwrap(), "STOP");
    }

    /// Ends it by SIGINT; gives what it wrote on standard output.
    pub fn end(mut self) -> Output {
        signal(self.child.as_ref().unwrap(), "INT");
        signal(self.child.as_ref().unwrap(), "CONT");
        self.wait()
    }

    /// Waits for its own end.
    pub fn wait(&mut self) -> Output {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let mut rest = String::new();
        self.err.read_to_string(&mut rest).unwrap();
        self.said.push_str(&rest);
        assert!(output.status.success(), "{output:?} {}", self.said);
        output
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An access: path, process, kind, offset, asked, given.
pub type Seen = (String, u32, &'static str, u64, u64, u64);

/// What a recording holds.
#[derive(Default)]
pub struct Recorded {
    pub accesses: Vec<IoAccess>,
    pub files: BTreeMap<u32, String>,
    pub processes: BTreeMap<u32, u32>,
    pub info: BTreeMap<String, String>,
}

impl Recorded {
    /// Reads it; nothing may have been lost.
    pub fn read(path: &Path) -> Self {
        let file = fs::read(path).unwrap();
        let (mut recorded, mut parser, mut rest) = (Self::default(), RecordingParser::new(), file.as_slice());
        while let RecordingStep::Block { block, consumed } = parser.next(rest).unwrap() {
            match block {
                RecordingBlock::Files(files) => files.for_each(|file| {
                    recorded.files.insert(file.file, file.path.to_string());
                }),
                RecordingBlock::Threads(threads) => threads.for_each(|thread| {
                    recorded.processes.insert(thread.thread, thread.process);
                }),
                RecordingBlock::Info(info) => info.for_each(|(key, value)| {
                    recorded.info.insert(key.into(), value.into());
                }),
                RecordingBlock::Accesses(block) => recorded.accesses.extend(block),
                RecordingBlock::Lost(lost) => assert_eq!(lost.losses().total(), 0),
                _ => {}
            }
            rest = &rest[consumed..];
            if rest.is_empty() {
                break;
            }
        }
        parser.finish(rest.len()).unwrap();
        recorded
    }

    /// The accesses, in order.
    pub fn seen(&self) -> impl Iterator<Item = Seen> {
        self.accesses.iter().map(|access| {
            let path = self.files.get(&access.file).cloned().unwrap_or_default();
            let process = self.processes.get(&access.thread).copied().unwrap_or_default();
            (path, process, access.kind.name(), access.offset, access.asked, access.given)
        })
    }

    /// Those to the files of a folder, each with the rest of the path.
    pub fn under(&self, folder: impl AsRef<Path>) -> Vec<Seen> {
        let rest = |seen: Seen| {
            let path = Path::new(&seen.0).strip_prefix(folder.as_ref()).ok()?.display().to_string();
            Some((path, seen.1, seen.2, seen.3, seen.4, seen.5))
        };
        self.seen().filter_map(rest).collect()
    }
}

/// How many accesses each path of a folder has, by process.
pub fn counts(recorded: &Recorded, db: &Path) -> BTreeMap<(String, u32), usize> {
    let mut counts = BTreeMap::new();
    for access in recorded.under(db) {
        *counts.entry((access.0, access.1)).or_insert(0) += 1;
    }
    counts
}

/// Paths in a folder, as text.
pub fn paths<const N: usize>(folder: &Folder, names: [&str; N]) -> [String; N] {
    names.map(|name| folder.path(name).to_str().unwrap().to_owned())
}

/// Reads of each file that `io live --json` shows, over all intervals.
pub fn live_reads(out: &[u8]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text(out).lines() {
        let interval: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(interval["lost"].as_object().unwrap().values().all(|count| count == 0), "{interval}");
        for file in interval["files"].as_array().unwrap() {
            *sums.entry(file["name"].as_str().unwrap().to_owned()).or_insert(0) +=
                file["reads"].as_u64().unwrap();
        }
    }
    sums.retain(|_, reads| *reads > 0);
    sums
}
