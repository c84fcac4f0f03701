//! `io record` of a real process, whose accesses are known: the recording holds exactly that list.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use sonar_core::io::IoAccess;
use sonar_decode::io_file::{Block, Parser, Step};
use support::{Folder, program, run, signal, text};

/// Does what it is told, once it has been told to go on.
const ORACLE: &str = r#"
import os, sys, threading
folder = sys.argv[1]
sys.stdin.readline()
data = os.open(folder + "/collection-1-2.wt", os.O_RDWR)
def thread():
    for n in range(50):
        os.pread(data, 512, n * 1024)
for n in range(100):
    os.pread(data, 4096, n * 4096)
for n in reversed(range(100)):
    os.pread(data, 4096, n * 8192)
os.lseek(data, 12345, os.SEEK_SET)
os.read(data, 100)
os.read(data, 1000)
os.preadv(data, [bytearray(10), bytearray(20), bytearray(30)], 7777)
os.readv(data, [bytearray(5), bytearray(6)])
os.pread(data, 4096, 1 << 40)
os.pwrite(data, b"x" * 300, 4096)
os.pwritev(data, [b"abc", b"defg"], 99)
os.fsync(data)
os.fdatasync(data)
worker = threading.Thread(target=thread)
worker.start()
worker.join()
with open(folder + "/other/ignored", "rb", buffering=0) as other:
    other.read(10)
print("done", flush=True)
sys.stdin.readline()
"#;

/// Kind, offset, asked, given of what the oracle does on its file.
fn expected() -> Vec<(&'static str, u64, u64, u64)> {
    let mut list: Vec<_> = (0..100).map(|n| ("read", n * 4_096, 4_096, 4_096)).collect();
    list.extend((0..100).rev().map(|n| ("read", n * 8_192, 4_096, 4_096)));
    list.push(("read", 12_345, 100, 100));
    list.push(("read", 12_445, 1_000, 1_000));
    list.push(("read", 7_777, 60, 60));
    list.push(("read", 13_445, 11, 11));
    list.push(("read", 1 << 40, 4_096, 0));
    list.push(("write", 4_096, 300, 300));
    list.push(("write", 99, 7, 7));
    list.push(("fsync", 0, 0, 0));
    list.push(("fdatasync", 0, 0, 0));
    list.extend((0..50).map(|n| ("read", n * 1_024, 512, 512)));
    list
}

fn recorded(file: &[u8]) -> (Vec<String>, Vec<IoAccess>) {
    let (mut names, mut accesses) = (Vec::new(), Vec::new());
    let mut parser = Parser::new();
    let mut rest = file;
    while let Step::Block { block, consumed } = parser.next(rest).unwrap() {
        match block {
            Block::Files(files) => names.extend(files.map(|file| file.path.to_string())),
            Block::Accesses(block) => accesses.extend(block),
            Block::Lost(lost) => assert_eq!(lost.losses().total(), 0),
            _ => {}
        }
        rest = &rest[consumed..];
        if rest.is_empty() {
            break;
        }
    }
    parser.finish(rest.len()).unwrap();
    (names, accesses)
}

#[test]
fn the_recording_holds_exactly_what_the_process_did() {
    let folder = Folder::new("io-oracle");
    fs::create_dir_all(folder.path("db/other")).unwrap();
    fs::write(folder.path("db/collection-1-2.wt"), vec![7; 1 << 20]).unwrap();
    fs::write(folder.path("db/other/ignored"), [1; 100]).unwrap();
    let script = folder.file("oracle.py", ORACLE.as_bytes());
    let mut oracle = Command::new("python3")
        .arg(script)
        .arg(folder.path("db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let recording = folder.path("reads.msio");
    let mut recorder = program(["io", "record", "--pid", &oracle.id().to_string(), "--dbpath"]);
    recorder.arg(folder.path("db")).arg(&recording);
    let mut recorder = recorder.spawn().unwrap();
    let mut said = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let mut input = oracle.stdin.take().unwrap();
    if !line.contains("recording process") {
        eprintln!("skipped, as nothing can be traced here: {line}");
        assert!(
            line.contains("permission") || line.contains("BTF") || line.contains("cannot load"),
            "{line}"
        );
        drop(input);
        oracle.kill().unwrap();
        oracle.wait().unwrap();
        recorder.wait().unwrap();
        return;
    }
    input.write_all(b"go\n").unwrap();
    let mut done = String::new();
    BufReader::new(oracle.stdout.take().unwrap()).read_line(&mut done).unwrap();
    assert_eq!(done, "done\n");
    signal(&recorder, "INT");
    assert!(recorder.wait().unwrap().success());
    drop(input);
    oracle.wait().unwrap();

    let (names, accesses) = recorded(&fs::read(&recording).unwrap());
    let at = names.iter().position(|name| name.ends_with("db/collection-1-2.wt")).unwrap() as u32 + 1;
    let mine: Vec<_> = accesses
        .iter()
        .filter(|access| access.file == at)
        .map(|access| (access.kind.name(), access.offset, access.asked, access.given))
        .collect();
    assert_eq!(mine, expected());
    assert!(accesses.iter().any(|access| access.thread != oracle.id()), "the other thread is told apart");
    assert!(names.iter().all(|name| name.contains("/db/")), "{names:?}");

    let report = run(&format!("io report --json {}", recording.display()));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["accesses"].as_u64(), Some(accesses.len() as u64));
    assert_eq!(report["lost"]["ring_full"], 0);
}

/// A process that waits to be told to go on, and a tracer that is attached to it; `None` where nothing can
/// be traced.
fn traced(folder: &Folder, script: &str, arguments: &[&str]) -> Option<(Child, Child)> {
    fs::create_dir_all(folder.path("db/other")).unwrap();
    fs::write(folder.path("db/collection-1-2.wt"), vec![7; 1 << 20]).unwrap();
    fs::write(folder.path("db/other/ignored"), [1; 100]).unwrap();
    let script = folder.file("oracle.py", script.as_bytes());
    let mut oracle = Command::new("python3")
        .arg(script)
        .arg(folder.path("db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut tracer = program(["io"]);
    tracer.args(arguments).args(["--pid", &oracle.id().to_string()]);
    let mut tracer = tracer.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(tracer.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.contains("Ctrl-C ends it") {
        oracle.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut done = String::new();
        BufReader::new(oracle.stdout.as_mut().unwrap()).read_line(&mut done).unwrap();
        assert_eq!(done, "done\n");
        return Some((oracle, tracer));
    }
    eprintln!("skipped, as nothing can be traced here: {line}");
    assert!(line.contains("permission") || line.contains("BTF") || line.contains("cannot load"), "{line}");
    oracle.kill().unwrap();
    oracle.wait().unwrap();
    tracer.wait().unwrap();
    None
}

/// Reads four pages at each MiB of a cold file, with the advice that it is given; tells what the kernel counted as
/// fetched from the device for it, and what it was given.
const STRIDES: &str = r#"
import os, sys
folder, advice = sys.argv[1], ADVICE
path = folder + "/collection-7-8.wt"
with open(path, "wb") as file:
    file.write(os.urandom(48 << 20))
    os.fsync(file.fileno())
data = os.open(path, os.O_RDONLY)
os.posix_fadvise(data, 0, 0, os.POSIX_FADV_DONTNEED)
os.posix_fadvise(data, 0, 0, advice)
def fetched():
    with open("/proc/self/io") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith("read_bytes"))
fetched()
sys.stdin.readline()
before, given = fetched(), 0
for mebibyte in range(48):
    for page in range(4):
        given += len(os.pread(data, 4096, (mebibyte << 20) + page * 4096))
told = f"{fetched() - before} {given}"
with open(folder + "/told", "w") as file:
    file.write(told)
print("done", flush=True)
sys.stdin.readline()
"#;

/// What readahead fetches for nothing is what the kernel fetched beyond what was read.
#[test]
fn readahead_that_nobody_reads_is_a_figure() {
    for (advice, ahead) in [("os.POSIX_FADV_NORMAL", true), ("os.POSIX_FADV_RANDOM", false)] {
        let folder = Folder::new(&format!("io-readahead-{ahead}"));
        let recording = folder.path("reads.msio").display().to_string();
        let script = STRIDES.replace("ADVICE", advice);
        let Some((mut oracle, mut tracer)) = traced(&folder, &script, &["record", "--readahead", &recording])
        else {
            return;
        };
        signal(&tracer, "INT");
        assert!(tracer.wait().unwrap().success());
        drop(oracle.stdin.take());
        oracle.wait().unwrap();
        let told = fs::read_to_string(folder.path("db/told")).unwrap();
        let told: Vec<u64> = told.split(' ').map(|figure| figure.parse().unwrap()).collect();
        let (fetched, given) = (told[0], told[1]);
        assert_eq!(given, 48 * 4 * 4_096);
        if fetched == 0 {
            eprintln!("skipped, as this file system lies on no device");
            return;
        }
        let report = run(&format!("io report --json {recording}"));
        let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
        let files = report["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"].as_str().unwrap().ends_with("8.wt")).unwrap();
        let pages = &file["page_ins"];
        let (brought, wasted) = (pages["bytes"].as_u64().unwrap(), pages["wasted_bytes"].as_u64().unwrap());
        // Blocks of the file system's own are counted by the kernel too.
        assert!(brought <= fetched && fetched - brought < 256 << 10, "{brought} of {fetched}");
        assert_eq!(wasted, brought - given, "each page was read once");
        assert_eq!(wasted > 0, ahead, "{wasted}");
        // No page that was brought in counts as a read.
        assert_eq!(file["reads"]["count"], 48 * 4);
        assert_eq!(file["reads"]["bytes"], given);
        let bound = file["reads"]["readahead_wasted_at_least_bytes"].as_u64().unwrap();
        assert!(bound <= fetched - given && bound + (256 << 10) > wasted, "{bound} for {wasted}");
        let words = report["verdict"]["words"].to_string();
        assert_eq!(words.contains("were not read while recording"), ahead, "{words}");
    }
}

#[test]
fn live_adds_up_what_the_process_did() {
    let folder = Folder::new("io-live");
    let Some((mut oracle, tracer)) = traced(&folder, ORACLE, &["live", "--json", "--interval", "300ms"])
    else {
        return;
    };
    signal(&tracer, "INT");
    let output = tracer.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(oracle.stdin.take());
    oracle.wait().unwrap();
    let mut sums = std::collections::HashMap::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let interval: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert!(interval["lost"].as_object().unwrap().values().all(|count| count == 0), "{interval}");
        let files = interval["files"].as_array().unwrap();
        let mine = files.iter().filter(|f| f["name"].as_str().unwrap().ends_with("db/collection-1-2.wt"));
        for file in mine {
            for field in [
                "reads",
                "read_bytes",
                "writes",
                "write_bytes",
                "syncs",
                "contiguous",
                "skips",
                "jumps",
                "back",
            ] {
                *sums.entry(field).or_insert(0) += file[field].as_u64().unwrap();
            }
        }
    }
    let list = expected();
    let of = |kind: &str| list.iter().filter(|access| access.0 == kind).collect::<Vec<_>>();
    assert_eq!(sums["reads"], of("read").len() as u64);
    assert_eq!(sums["read_bytes"], of("read").iter().map(|access| access.3).sum::<u64>());
    assert_eq!(sums["writes"], 2);
    assert_eq!(sums["write_bytes"], 307);
    assert_eq!(sums["syncs"], 2);
    // Distances, of the first thread and of the second.
    let (one, other) = list.split_at(list.len() - 50);
    let (mut contiguous, mut skips, mut jumps, mut back) = (0, 0, 0, 0);
    for thread in [one, other] {
        let reads: Vec<_> = thread.iter().filter(|access| access.0 == "read").collect();
        for pair in reads.windows(2) {
            let (end, at) = (pair[0].1 + pair[0].3, pair[1].1);
            contiguous += u64::from(at == end);
            skips += u64::from(at > end && at - end <= 1 << 20);
            jumps += u64::from(at < end || at > end + (1 << 20));
            back += u64::from(at < end);
        }
    }
    assert_eq!(
        (sums["contiguous"], sums["skips"], sums["jumps"], sums["back"]),
        (contiguous, skips, jumps, back)
    );
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let folder = Folder::new("io-none");
    let output = run(&format!("io record --pid 4194303 {}", folder.path("x").display()));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no process 4194303"), "{output:?}");
    assert!(!folder.path("x").exists());
}
