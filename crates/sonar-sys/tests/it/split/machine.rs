//! Runs the state machine of the kernel's side on events of a test, as an ordinary program.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Parts of the time of an operation, as in `enum part`; the last ones are never used.
pub const PARTS: usize = 16;

/// An operation as `split.h` divides it, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Divided {
    pub thread: u32,
    pub request: u32,
    pub received_from: u64,
    pub preempted: (u64, u64),
    pub start: u64,
    pub end: u64,
    pub flags: u32,
    pub request_bytes: u32,
    pub reply_bytes: u32,
    pub switches: u32,
    pub parts: [u64; PARTS],
    /// Inode, reads, bytes, waited.
    pub files: Vec<[u64; 5]>,
    /// Thread, start of its operation, count, waited.
    pub wakers: Vec<[u64; 4]>,
}

/// What came of the events.
#[derive(Default, Debug)]
pub struct Outcome {
    pub operations: Vec<Divided>,
    /// Threads for which a switch was missed, a request was refused, a reply answered something else.
    pub missed: Vec<u32>,
    pub refused: Vec<u32>,
    pub foreign: Vec<u32>,
    /// The sockets that were found for sessions, 0 for none, in the order of their reads.
    pub sockets: Vec<u32>,
    /// Time outside operations, by thread.
    pub outside: Vec<(u32, [u64; PARTS])>,
}

const COMPILER_OPTIONS: [&str; 5] =
    ["-O1", "-Wall", "-Werror", "-fsanitize=undefined", "-fsanitize-trap=undefined"];

/// The compiled `replay.c`. Each test is a process of its own, so they share one file for each state of the sources.
fn program() -> PathBuf {
    static COMPILED: AtomicU32 = AtomicU32::new(0);
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (source, headers) = (crate_folder.join("tests/it/split/replay.c"), crate_folder.join("../../bpf"));
    let mut read: Vec<PathBuf> = fs::read_dir(&headers).unwrap().map(|entry| entry.unwrap().path()).collect();
    read.retain(|path| path.extension() == Some("h".as_ref()));
    read.push(source.clone());
    read.sort();
    let mut hasher = DefaultHasher::new();
    COMPILER_OPTIONS.hash(&mut hasher);
    read.iter().for_each(|path| fs::read(path).unwrap().hash(&mut hasher));
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("split-replay-{:016x}", hasher.finish()));
    if program.exists() {
        return program;
    }
    // Several tests may compile at once. Each writes a file of its own, and renames it when it is complete.
    let number = COMPILED.fetch_add(1, Ordering::Relaxed);
    let compiled = program.with_extension(format!("{}-{number}", std::process::id()));
    let status = Command::new("clang")
        .args(COMPILER_OPTIONS)
        .arg("-I")
        .arg(headers)
        .arg(source)
        .arg("-o")
        .arg(&compiled)
        .status();
    assert!(status.unwrap().success());
    fs::rename(&compiled, &program).unwrap();
    program
}

/// Feeds the machine with lines of `replay.c`.
pub fn divide(events: &[String]) -> Outcome {
    let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all((events.join("\n") + "\n").as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success());
    let mut outcome = Outcome::default();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let words: Vec<_> = line.split(' ').collect();
        let thread = words[1].parse().unwrap();
        match words[0] {
            "operation" => outcome.operations.push(operation(&words)),
            "missed" => outcome.missed.push(thread),
            "refused" => outcome.refused.push(thread),
            "foreign" => outcome.foreign.push(thread),
            "socket" => outcome.sockets.push(words[2].parse().unwrap()),
            "outside" => outcome.outside.push((thread, parts(&words[2..]))),
            other => panic!("{other}"),
        }
    }
    outcome
}

fn parts(words: &[&str]) -> [u64; PARTS] {
    std::array::from_fn(|part| words[part].parse().unwrap())
}

fn numbers<const COUNT: usize>(word: &str) -> [u64; COUNT] {
    let numbers: Vec<_> = word.split(':').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn operation(words: &[&str]) -> Divided {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let wakers = words.iter().position(|word| *word == "wakers").unwrap();
    Divided {
        thread: number(1) as u32,
        request: words[2].parse::<i32>().unwrap().cast_unsigned(),
        received_from: number(3),
        start: number(4),
        end: number(5),
        flags: number(6) as u32,
        request_bytes: number(7) as u32,
        reply_bytes: number(8) as u32,
        switches: number(9) as u32,
        preempted: (number(10), number(11)),
        parts: parts(&words[12..]),
        files: words[12 + PARTS + 1..wakers].iter().map(|word| numbers(word)).collect(),
        wakers: words[wakers + 1..].iter().map(|word| numbers(word)).collect(),
    }
}

/// What a system call is, as in `enum call_kind`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CallKind {
    None = 0,
    Other,
    Read,
    Write,
    Flush,
    Futex,
    Poll,
    Backoff,
    Sleep,
    Receive,
    Send,
}

/// The beginning of a message in hex: header and flags of an OP_MSG.
pub fn header(length: u32, request: u32, response_to: u32, flags: u32) -> String {
    let words = [length, request, response_to, 2013, flags];
    words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
}
