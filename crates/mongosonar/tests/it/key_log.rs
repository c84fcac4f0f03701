//! `--tls-keylog`, and capture files that bring their secrets with them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::support::*;
use serde_json::Value;
use sonar_core::Packet;
use sonar_decode::capture_file::{CaptureParser, InterfaceDescription, PcapngWriter, SectionHeader, Step};

const SECRETS: u32 = 10;
const KEY_LOG: u32 = 0x544c_534b;

fn encrypted() -> PathBuf {
    fixture("tls-key-log/tls.pcap.gz")
}

fn key_log() -> String {
    fixture("tls-key-log/keys.log").display().to_string()
}

/// A block of a pcapng file with secrets of this type.
fn secrets(kind: u32, content: &[u8]) -> Vec<u8> {
    let padding = vec![0; content.len().next_multiple_of(4) - content.len()];
    let length = (20 + content.len() + padding.len()) as u32;
    let words = [SECRETS, length, kind, content.len() as u32].map(u32::to_le_bytes).concat();
    [&words, content, &padding, &length.to_le_bytes()].concat()
}

/// The encrypted packets as pcapng, with these blocks before the packets of the given numbers.
fn pcapng(blocks: &[(usize, Vec<u8>)]) -> Vec<u8> {
    pcapng_at(1, blocks)
}

/// The same, with the packets so many times as fast.
fn pcapng_at(speed: u64, blocks: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let pcap = inflated("tls-key-log/tls.pcap.gz");
    let (mut parser, mut at, mut out, mut number) = (CaptureParser::new(), 0, Vec::new(), 0);
    let mut writer = PcapngWriter::begin(&SectionHeader::default(), &mut out);
    let (mut interface, mut first) = (None, None);
    loop {
        match parser.next(&pcap[at..]).unwrap() {
            Step::Packet { packet, consumed } => {
                for (_, block) in blocks.iter().filter(|(before, _)| *before == number) {
                    out.extend(block);
                }
                let about = InterfaceDescription { name: "", link: packet.link, snap_len: 0 };
                let interface = *interface.get_or_insert_with(|| writer.interface(&about, &mut out).unwrap());
                let first = *first.get_or_insert(packet.time);
                let time = first.plus_ns(packet.time.since(first) / speed);
                writer.packet(interface, &Packet { time, ..packet }, &mut out);
                (at, number) = (at + consumed, number + 1);
            }
            Step::Skip { consumed } | Step::Secrets { consumed, .. } => at += consumed,
            Step::Need { .. } => return out,
        }
    }
}

/// The rows: calls by shape.
fn rows(summary: &Value) -> Vec<(String, u64)> {
    let row = |row: &Value| (row["shape"].to_string(), row["calls"].as_u64().unwrap());
    let mut rows: Vec<_> = summary["rows"].as_array().unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

/// The counters of encrypted connections that are above zero.
fn counted(summary: &Value) -> Vec<(String, u64)> {
    let counters = summary["coverage"].as_object().unwrap().iter();
    let counters = counters.map(|(name, count)| (name.clone(), count.as_u64().unwrap()));
    counters.filter(|(name, count)| name.contains("tls") && *count > 0).collect()
}

fn expect(summary: &Value, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(counted(summary), expected);
}

/// What the key log of all connections comes to.
const ALL: [(&str, u64); 5] = [
    ("streams_tls_decrypted", 27),
    ("streams_tls_no_key", 2),
    ("streams_tls_unsupported", 1),
    ("streams_tls_renegotiated", 1),
    ("tls_early_records", 3),
];

#[test]
fn a_key_log_decrypts_a_capture_file_and_what_it_does_not_is_counted_and_named() {
    let output = read(&encrypted(), &format!("--json --tls-keylog {}", key_log()));
    let decrypted = summary(&output);
    expect(&decrypted, &ALL);
    let plain = summary(&read(&fixture("tls-key-log/plain.pcap.gz"), "--json"));
    // Of 30 connections 26 are read in full, and one up to its renegotiation.
    let shapes = |rows: &[(String, u64)]| rows.iter().map(|(shape, _)| shape.clone()).collect::<Vec<_>>();
    assert_eq!(shapes(&rows(&decrypted)), shapes(&rows(&plain)));
    let calls: u64 = rows(&plain).iter().map(|(_, calls)| calls).sum();
    assert_eq!(calls, 6 * 30, "without the hello of each");
    let calls: u64 = rows(&decrypted).iter().map(|(_, calls)| calls).sum();
    assert_eq!(calls, 6 * 26 + 3);
    let note = decrypted["notes"][0].as_str().unwrap();
    assert!(note.contains("TLSv1.0 TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA (1 connection)"), "{note}");
    let output = read(&encrypted(), &format!("--tls-keylog {}", key_log()));
    let said = text(&output.stdout);
    assert!(said.contains("encrypted connections whose secrets are not in the key log: 2 of "), "{said}");
    assert!(said.contains("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"), "{said}");
}

#[test]
fn threads_pipes_and_secrets_inside_the_file_come_to_the_same() {
    let folder = Folder::new("key-log");
    let log = std::fs::read(key_log()).unwrap();
    let expected = read(&encrypted(), &format!("--json --threads 1 --tls-keylog {}", key_log())).stdout;
    assert!(!expected.is_empty());
    let threads = read(&encrypted(), &format!("--json --threads 3 --tls-keylog {}", key_log())).stdout;
    assert!(threads == expected, "several threads");
    // The key log of a pipe may grow, so that packets wait for it.
    let pipe = queries("-".as_ref(), &format!("--json --tls-keylog {}", key_log()));
    let pipe = summary(&fed(pipe, &inflated("tls-key-log/tls.pcap.gz")));
    expect(&pipe, &ALL);
    let alone = summary(&read(&encrypted(), &format!("--json --tls-keylog {}", key_log())));
    assert_eq!(rows(&pipe), rows(&alone));
    let inside = folder.file("inside.pcapng", &pcapng(&[(0, secrets(KEY_LOG, &log))]));
    // Others may follow inside a file, too.
    let outputs = [1, 3].map(|threads| read(&inside, &format!("--json --threads {threads}")));
    assert!(outputs[0].stdout == outputs[1].stdout, "inside the file, with several threads");
    let inside = summary(&outputs[0]);
    expect(&inside, &ALL);
    assert_eq!(rows(&inside), rows(&alone));
    // Secrets of another kind are passed over.
    let other = folder.file("other.pcapng", &pcapng(&[(0, secrets(0x5747_4b4c, &log))]));
    expect(&summary(&read(&other, "--json")), &[("streams_tls", 30)]);
}

#[test]
fn secrets_inside_a_file_may_follow_the_first_packets_of_their_connection() {
    let folder = Folder::new("late-keys");
    let log = std::fs::read(key_log()).unwrap();
    // A first block without the secrets says that others follow.
    let blocks = |late| pcapng(&[(0, secrets(KEY_LOG, b"# more follow\n")), (late, secrets(KEY_LOG, &log))]);
    let expected = summary(&read(&encrypted(), &format!("--json --tls-keylog {}", key_log())));
    for threads in [1, 3] {
        for late in [1, 9, 14] {
            let file = folder.file("late.pcapng", &blocks(late));
            let found = summary(&read(&file, &format!("--json --threads {threads} --tls-keylog /dev/null")));
            assert_eq!((rows(&found), counted(&found)), (rows(&expected), counted(&expected)), "{late}");
        }
    }
    let broken = [&secrets(KEY_LOG, &log)[..16], &[0xff; 4]].concat();
    let file = folder.file("broken.pcapng", &[pcapng(&[(3, broken)])].concat());
    assert_ne!(read(&file, "--json").status.code(), Some(0));
}

#[test]
fn each_operation_says_what_its_connection_is_encrypted_with() {
    let all = lines(&read(&encrypted(), &format!("--each --json --tls-keylog {}", key_log())));
    let ops: Vec<_> = all.iter().filter(|line| line["command"].is_string()).collect();
    assert!(ops.len() > 100 && ops.iter().all(|op| op["tls"] == true), "{}", ops[0]);
    let versions = |version: &str| ops.iter().filter(|op| op["tls_version"] == version).count();
    assert_eq!(versions("TLSv1.2") + versions("TLSv1.3"), ops.len());
    assert_eq!(ops[0]["tls_cipher"], "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
}

#[test]
fn a_key_log_with_comments_crlf_and_garbage_is_read_and_what_is_no_secret_is_counted() {
    let folder = Folder::new("garbage");
    let log = std::fs::read_to_string(key_log()).unwrap().replace('\n', "\r\n");
    let garbage =
        format!("# comment\r\n\r\nCLIENT_RANDOM 00\r\n\u{7f}\u{0}\r\nnot a line\r\n{log}EXPORTER_SECRET");
    let path = folder.file("garbage.log", garbage.as_bytes());
    let found = summary(&read(&encrypted(), &format!("--json --tls-keylog {}", path.display())));
    let mut expected = ALL.to_vec();
    expected.push(("tls_keys_unread", 4));
    expect(&found, &expected);
}

#[test]
fn a_key_log_that_cannot_be_read_or_has_no_use_is_named() {
    let missing = read(&encrypted(), "--tls-keylog /nonexistent/keys.log");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("/nonexistent/keys.log"), "{}", text(&missing.stderr));
    let folder = read(&encrypted(), "--tls-keylog /");
    assert!(text(&folder.stderr).contains("directory"), "{}", text(&folder.stderr));
    let grows = fed(queries("-".as_ref(), "--tls-keylog /dev/null"), b"");
    assert_eq!(grows.status.code(), Some(2), "{}", text(&grows.stderr));
    // Without one, it is asked for.
    let output = read(&encrypted(), "");
    let said = text(&output.stdout);
    assert!(said.contains("All 30 connections are encrypted") && said.contains("--tls-keylog"), "{said}");
    let none = summary(&read(&encrypted(), "--json --tls-keylog /dev/null"));
    assert_eq!(none["empty_because"]["reason"], "tls-undecrypted", "{}", none["empty_because"]);
    expect(&none, &[("streams_tls_no_key", 29), ("streams_tls_unsupported", 1)]);
    for words in ["--split", "--snap-replies 100", "--encrypted", "--source process"] {
        let output = run(&format!("queries --tls-keylog {} {words}", key_log()));
        assert_eq!(output.status.code(), Some(2), "{words}: {}", text(&output.stderr));
    }
}

/// What is named that could not be decrypted.
const CBC: &str = "TLSv1.0 TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA (1 connection)";

#[test]
fn reports_and_comparisons_decrypt_captures() {
    let capture = encrypted().display().to_string();
    let report = run(&format!("report --json --class all --tls-keylog {} {capture}", key_log()));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let calls =
        |rows: &Value| rows.as_array().unwrap().iter().map(|row| row["calls"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(calls(&report["rows"]), 186, "as in the summary of queries");
    let notes = report["notes"].to_string();
    assert!(notes.contains(CBC), "{notes}");
    let wire = &report["sources"][0];
    assert_eq!(wire["counters"]["streams_tls_no_key"], 2, "{wire}");
    let plain = fixture("tls-key-log/plain.pcap.gz").display().to_string();
    let compared = run(&format!("compare --json --tls-keylog {} {capture} {plain}", key_log()));
    assert!(text(&compared.stderr).contains(CBC), "{}", text(&compared.stderr));
    let compared: Value = serde_json::from_slice(&compared.stdout).unwrap();
    let shapes = compared["rows"].as_array().unwrap();
    assert!(
        !shapes.is_empty() && shapes.iter().all(|row| row["in_a"] == true && row["in_b"] == true),
        "{compared}"
    );
    for words in ["report", "compare fixtures/README.md"] {
        let log = fixture("mongod-4.4-minutes/mongod.log.gz").display().to_string();
        let words = words.replace("fixtures/README.md", &log);
        let output = run(&format!("{words} --tls-keylog {} {log}", key_log()));
        assert_eq!(output.status.code(), Some(2), "{words}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("--tls-keylog decrypts captures"), "{}", text(&output.stderr));
    }
}

#[test]
fn what_a_history_could_not_decrypt_is_named() {
    let folder = Folder::new("history-keys");
    let log = std::fs::read(key_log()).unwrap();
    let inside = folder.file("inside.pcapng", &pcapng(&[(0, secrets(KEY_LOG, &log))])).display().to_string();
    let store = folder.path("store").display().to_string();
    let output = run(&format!("agent --json --store {store} --replay {inside}"));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["notes"].to_string().contains(CBC), "{summary}");
}

#[test]
fn a_replay_names_what_it_could_not_decrypt_and_counts_lines_that_are_of_no_use() {
    let folder = Folder::new("replay-keys");
    let keys = folder
        .file("keys.log", format!("no key\n{}", std::fs::read_to_string(key_log()).unwrap()).as_bytes());
    let fast = folder.file("fast.pcapng", &pcapng_at(100, &[(0, secrets(KEY_LOG, b"no key either\n"))]));
    let words = format!("queries --json --read {} --replay --tls-keylog {}", fast.display(), keys.display());
    let mut child = program(words.split_whitespace())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Until one was not decrypted.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut unsupported = 0;
    while unsupported == 0 {
        let interval: Value = serde_json::from_str(&lines.next().expect("it goes on")).unwrap();
        unsupported += interval["coverage"]["streams_tls_unsupported"].as_u64().unwrap();
    }
    signal(&child, "INT");
    let summary: Value = serde_json::from_str(&lines.last().unwrap()).unwrap();
    child.wait().unwrap();
    let notes = summary["notes"].to_string();
    assert!(notes.contains("not decrypted, because of the version or cipher suite: TLSv1."), "{summary}");
    assert_eq!(summary["coverage"]["tls_keys_unread"], 2, "one in the key log, one in the file");
}

#[test]
fn a_key_log_of_a_pipe_is_followed_while_packets_come() {
    for how in [Growth::Longer, Growth::Anew, Growth::Replaced] {
        follow(how);
    }
}

/// How a key log gets more secrets.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Growth {
    Longer,
    /// It is truncated and written again.
    Anew,
    /// Another file takes its place.
    Replaced,
}

/// Reads packets from a pipe; meanwhile the key log grows.
fn follow(how: Growth) {
    let folder = Folder::new("followed");
    let (pcap, log) = (inflated("tls-key-log/tls.pcap.gz"), std::fs::read(key_log()).unwrap());
    let path: &Path = &folder.file("keys.log", b"# begins empty\n");
    let mut command = queries("-".as_ref(), &format!("--json --tls-keylog {}", path.display()));
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // The packets of the first connections, up to some that wait for their secrets.
    let (first, rest) = pcap.split_at(30_000);
    input.write_all(first).unwrap();
    let mut options = std::fs::OpenOptions::new();
    match how {
        Growth::Longer => options.append(true).open(path).unwrap().write_all(&log).unwrap(),
        Growth::Anew => options.write(true).truncate(true).open(path).unwrap().write_all(&log).unwrap(),
        Growth::Replaced => {
            wait_until_open(child.id(), path);
            std::fs::rename(folder.file("other.log", &log), path).unwrap();
            wait_until_open(child.id(), path);
        }
    }
    input.write_all(rest).unwrap();
    drop(input);
    let found = summary(&child.wait_with_output().unwrap());
    expect(&found, &ALL);
}

/// Waits until a process has opened the file that has this name now, and closed the one that had it before.
fn wait_until_open(process: u32, path: &Path) {
    let descriptors = format!("/proc/{process}/fd");
    let is_open = || {
        let open = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
        let targets: Vec<_> = open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
        let deleted = PathBuf::from(format!("{} (deleted)", path.display()));
        targets.iter().any(|target| target == path) && !targets.contains(&deleted)
    };
    let begin = std::time::Instant::now();
    while !is_open() {
        assert!(begin.elapsed().as_secs() < 60, "{} is not opened", path.display());
        // span: between two looks
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
