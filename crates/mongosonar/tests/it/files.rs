//! The whole program on capture files: every form of input and of output, what it says when something is
//! wrong, and how it ends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::*;
use serde_json::Value;
use sonar_decode::capture_file::{CaptureParser, InterfaceDescription, PcapngWriter, SectionHeader, Step};

const ALL: &str = "--class all --role all";

/// Counters that nothing of a whole recording may raise.
const LOSSES: [&str; 8] = [
    "kernel_drops",
    "frames_header_malformed",
    "segments_out_of_window",
    "gaps",
    "messages_damaged",
    "messages_malformed",
    "messages_undecodable",
    "requests_evicted",
];

#[test]
fn every_recording_is_read_and_its_counters_balance() {
    for (name, calls) in [("mongod-4.0-mixed", 4_239), ("mongod-4.0-sharded", 7_414)] {
        let output = read(&recording(name), &format!("--json {ALL}"));
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        let all = lines(&output);
        assert_eq!(all.len(), 1, "without --interval there is the summary only");
        let summary = &all[0];
        assert_eq!((&summary["kind"], &summary["schema"]), (&"summary".into(), &1.into()));
        let count = |name: &str| summary["coverage"][name].as_u64().unwrap();
        let sum = |names: &[&str]| names.iter().map(|name| count(name)).sum::<u64>();
        assert_eq!(
            count("replies"),
            sum(&["replies_paired", "replies_exhaust", "replies_joined_late", "replies_orphan"])
        );
        let ends = [
            "answered",
            "unanswered",
            "reply_lost",
            "in_flight",
            "unacknowledged",
            "discarded",
            "evicted",
            "folded",
        ];
        let ends: Vec<_> = ends.iter().map(|how| format!("requests_{how}")).collect();
        assert_eq!(count("requests"), sum(&ends.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(sum(&LOSSES), 0);
        assert_eq!(summary["totals"]["calls"], calls);
        let rows = summary["rows"].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum::<u64>(), calls);
    }
}

#[test]
fn the_same_figures_come_from_a_pipe_and_from_every_compression_and_format() {
    let folder = Folder::new("formats");
    for name in RECORDINGS {
        let plain = unpacked(name);
        let expected = read(&recording(name), "--json").stdout;
        assert!(!expected.is_empty());
        let packed = [
            ("plain", plain.clone()),
            ("zstd", zstd::encode_all(plain.as_slice(), 1).unwrap()),
            ("gzip", std::fs::read(recording(name)).unwrap()),
            // Files that were compressed in parts, as pigz or zstd of several files do.
            ("members", {
                let (a, b) = plain.split_at(plain.len() / 2);
                let part = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
                [part(a), part(b)].concat()
            }),
            ("pcapng", pcapng(&plain)),
        ];
        for (form, bytes) in packed {
            let from_file = read(&folder.file(form, &bytes), "--json");
            assert_eq!(from_file.status.code(), Some(0), "{form}: {}", text(&from_file.stderr));
            assert!(from_file.stdout == expected, "{name}, {form}, from a file");
            let from_pipe = fed(queries("-".as_ref(), "--json"), &bytes);
            assert!(from_pipe.stdout == expected, "{name}, {form}, from a pipe: {}", text(&from_pipe.stderr));
        }
    }
}

/// The same packets as a pcapng file.
fn pcapng(pcap: &[u8]) -> Vec<u8> {
    let (mut parser, mut at, mut out) = (CaptureParser::new(), 0, Vec::new());
    let mut writer = PcapngWriter::begin(&SectionHeader::default(), &mut out);
    let mut number = None;
    loop {
        match parser.next(&pcap[at..]).unwrap() {
            Step::Packet { packet, consumed } => {
                let interface = InterfaceDescription { name: "", link: packet.link, snap_len: 0 };
                let number = *number.get_or_insert_with(|| writer.interface(&interface, &mut out).unwrap());
                writer.packet(number, &packet, &mut out);
                at += consumed;
            }
            Step::Skip { consumed } | Step::Secrets { consumed, .. } => at += consumed,
            Step::Need { .. } => return out,
        }
    }
}

#[test]
fn each_operation_is_a_line_that_parses_and_none_is_missing() {
    for name in RECORDINGS {
        let each = lines(&read(&recording(name), &format!("--each --json {ALL}")));
        let ended = |line: &&serde_json::Value| line["outcome"] != "in_flight" && line["kind"] != "summary";
        let operations: Vec<_> = each.iter().filter(ended).collect();
        let summary = summary(&read(&recording(name), &format!("--json {ALL}")));
        assert_eq!(operations.len() as u64, summary["totals"]["calls"].as_u64().unwrap());
        let sum = |key: &str| operations.iter().map(|op| op[key].as_u64().unwrap_or(0)).sum::<u64>();
        for key in ["request_bytes", "response_bytes", "docs_returned", "docs_affected", "statements"] {
            assert_eq!(summary["totals"][key].as_u64(), Some(sum(key)), "{key}");
        }
        // A line for people each, too.
        let people = read(&recording(name), &format!("--each {ALL}"));
        assert_eq!(text(&people.stdout).lines().count(), each.len() - 1, "all but the summary");
    }
}

#[test]
fn intervals_add_up_to_the_summary() {
    for interval in ["100ms", "1s"] {
        let words = format!("--json {ALL} --interval {interval}");
        let mut all = lines(&read(&recording("mongod-4.0-mixed"), &words));
        let summary = all.pop().unwrap();
        assert_eq!(summary["kind"], "summary");
        assert!(all.len() > 2 && all.iter().all(|line| line["kind"] == "interval"));
        for key in ["calls", "statements", "request_bytes", "response_bytes"] {
            let sum: u64 = all.iter().map(|line| line["totals"][key].as_u64().unwrap()).sum();
            assert_eq!(summary["totals"][key].as_u64(), Some(sum), "{key}");
        }
        for (name, value) in summary["coverage"].as_object().unwrap() {
            let sum: u64 = all.iter().map(|line| line["coverage"][name].as_u64().unwrap()).sum();
            assert_eq!(value.as_u64(), Some(sum), "{name}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let folder = Folder::new("wrong");
    let notes = folder.file("notes.txt", b"no capture at all");
    let empty = folder.file("empty", b"");
    let half = folder.file("half.json", b"{\"op\": \"query\", \"ns\": \"shop.orders\", \"command\": {");
    let half = half.to_str().unwrap();
    let config = folder.file("bad.toml", b"[queries]\nports = [1]\n");
    let (notes, empty, config) = (notes.to_str().unwrap(), empty.to_str().unwrap(), config.to_str().unwrap());
    let cases: [(&str, i32, &[&str]); 29] = [
        ("", 2, &["Usage", "queries"]),
        ("nosuch", 2, &["nosuch", "--help"]),
        ("queries --nosuch", 2, &["--nosuch"]),
        ("queries --port 0", 2, &["\"0\"", "1 to 65535", "27017-27020"]),
        ("queries --port 20-10", 2, &["10-20"]),
        ("queries --duration 5x", 2, &["5x", "500ms"]),
        ("queries --interval 1ms", 2, &["10ms"]),
        ("queries --sample 3", 2, &["1/N", "1/10"]),
        ("queries --by taste", 2, &["shape", "namespace", "client"]),
        ("queries --csv --each", 2, &["--csv", "--each"]),
        ("queries --each --limit 2", 2, &["--each", "--limit"]),
        ("queries --each --sort p99", 2, &["--each", "--sort"]),
        ("queries --each --by app", 2, &["--each", "--by"]),
        ("queries --each --baseline a", 2, &["--each", "--baseline"]),
        ("queries --digest --baseline a", 2, &["--digest", "--baseline"]),
        ("queries --html a.html --baseline a", 2, &["--html", "--baseline"]),
        ("queries --read a --replay --threads 2", 2, &["--replay", "--threads"]),
        ("queries --read a --ring-mib 64", 2, &["--read", "--ring-mib"]),
        ("disk bench -r --nThreads 40000", 2, &["40000", "from 1 to 32768", "like 16"]),
        ("queries --read a --limit 0", 2, &["'0'", "'--limit", "at least 1", "like 20"]),
        ("queries --show-values", 2, &["--each"]),
        ("io reorder orders", 2, &["'orders'", "database.collection", "shop.orders"]),
        ("compare - -", 2, &["only one of A and B"]),
        (&format!("profiler report {half}"), 1, &[half, "no whole document"]),
        ("queries --read a --write b", 2, &["--read", "--write"]),
        ("queries --read /no/such/file", 1, &["/no/such/file", "No such file"]),
        (&format!("queries --read {notes}"), 1, &[notes, "6e 6f 20 63", "pcap"]),
        (&format!("queries --read {empty}"), 1, &[empty]),
        (&format!("queries --read {notes} --config {config}"), 2, &[config, "ports", "expected"]),
    ];
    for (words, code, said) in cases {
        let output = run(words);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {stderr}");
        assert!(output.stdout.is_empty(), "{words}");
        for part in said {
            assert!(stderr.contains(part), "{words}: {part:?} is not in {stderr}");
        }
    }
    // The columns there are, and a folder instead of a file.
    let sorted = read(&recording("mongod-4.0-mixed"), "--sort taste");
    assert_eq!(sorted.status.code(), Some(2));
    assert!(text(&sorted.stderr).contains("calls load p50 p95 p99"), "{}", text(&sorted.stderr));
    let folder = read(std::env::temp_dir().as_path(), "");
    assert_eq!(folder.status.code(), Some(1), "{}", text(&folder.stderr));
    assert!(!folder.stderr.is_empty());
}

#[test]
fn defaults_of_the_configuration_are_those_of_listening_where_they_say_where() {
    let folder = Folder::new("config");
    let config = folder.file("config.toml", b"[queries]\ninterface = [\"eth7\"]\nport = [1]\nby = \"app\"\n");
    let mut command = queries(&recording("mongod-4.0-mixed"), "--json --config");
    let output = command.arg(config).output().unwrap();
    let summary = summary(&output);
    assert!(summary["totals"]["calls"].as_u64().unwrap() > 4_000);
    assert!(summary["rows"][0]["app"].is_string() || summary["rows"][0]["app"].is_object(), "{summary}");
    // Asked for by hand, it is a mistake.
    let output = read(&recording("mongod-4.0-mixed"), "--interface eth7");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--interface"), "{}", text(&output.stderr));
}

/// A line of a log that says who is on a connection.
fn metadata_line(date: &str, client: &str) -> String {
    let (time, client) =
        (format!("{{\"$date\":\"{date}\"}}"), format!("\"remote\":\"{client}\",\"client\":\"conn1\""));
    let doc = "\"doc\":{\"application\":{\"name\":\"shop\"},\"driver\":{\"name\":\"x\",\"version\":\"1\"}}";
    format!("{{\"t\":{time},\"s\":\"I\",\"msg\":\"client metadata\",\"attr\":{{{client},{doc}}}}}\n")
}

#[test]
fn a_log_of_no_use_is_named_with_the_reason() {
    let folder = Folder::new("log");
    // All its connections were open when it began.
    let capture = recording("mongod-4.4-minutes");
    let each = read(&capture, "--each --json --class all --role all");
    let client = lines(&each)[0]["client"].as_str().unwrap().to_owned();
    let named = |name: &str, content: &str| folder.file(name, content.as_bytes());
    let useful = named("useful.log", &metadata_line("2026-11-21T20:00:00.000Z", &client));
    let cases = [
        ("README.md", named("README.md", "# Not a log\n"), "is not a log of a mongod or mongos"),
        (
            "early.log",
            named("early.log", &metadata_line("2020-01-01T00:00:00.000Z", "10.0.0.9:1")),
            "ends at 2020-01-01",
        ),
        (
            "late.log",
            named("late.log", &metadata_line("2030-01-01T00:00:00.000Z", &client)),
            "begins at 2030-01-01",
        ),
    ];
    for (name, log, why) in &cases {
        let with = |words: &str| {
            let output = queries(&capture, words).arg("--log").arg(log).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{name} {words}: {output:?}");
            output
        };
        let says = |shown: &str| shown.contains(&format!("{name} {why}"));
        for words in ["", "--digest"] {
            let shown = text(&with(words).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(says(&shown), "{words}: {shown}");
        }
        for words in ["--json", "--each --json", "--digest --json"] {
            let last = lines(&with(words)).pop().unwrap();
            assert!(
                last["notes"].as_array().unwrap().iter().any(|note| says(note.as_str().unwrap())),
                "{words}: {last}"
            );
        }
        for words in ["--csv", "--each", "--digest --csv"] {
            let output = with(words);
            assert!(says(text(&output.stderr)), "{words}: {output:?}");
        }
    }
    // One that covers the capture, and names none of its clients.
    let other = metadata_line("2026-11-21T21:26:00.000Z", "10.0.0.9:1")
        + &metadata_line("2027-01-01T00:00:00.000Z", "10.0.0.9:1");
    let other = named("other.log", &other);
    let summary_of =
        |log: &Path| summary(&queries(&capture, "--json").arg("--log").arg(log).output().unwrap());
    let note = summary_of(&other)["notes"][0].as_str().unwrap().to_owned();
    assert!(note.contains("names none of the clients of 29 connections joined late"), "{note}");
    assert_eq!(summary_of(&useful)["notes"], serde_json::json!([]));
    assert_eq!(summary(&read(&capture, "--json"))["notes"], serde_json::json!([]));
}

#[test]
fn a_file_that_is_cut_is_shown_to_the_cut_and_the_exit_code_says_so() {
    let folder = Folder::new("cut");
    let plain = unpacked("mongod-4.0-mixed");
    let gzip = std::fs::read(recording("mongod-4.0-mixed")).unwrap();
    let zstd = zstd::encode_all(plain.as_slice(), 1).unwrap();
    let mut damaged = gzip.clone();
    damaged[gzip.len() / 2..].fill(0x55);
    for (name, bytes) in [
        ("plain", plain[..plain.len() / 2].to_vec()),
        ("gzip", gzip[..gzip.len() / 2].to_vec()),
        ("zstd", zstd[..zstd.len() / 2].to_vec()),
        ("damaged", damaged),
    ] {
        let cut = folder.file(name, &bytes);
        for output in [read(&cut, "--json"), fed(queries("-".as_ref(), "--json"), &bytes)] {
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{name}: {stderr}");
            assert!(stderr.contains("all before it has been read and shown"), "{name}: {stderr}");
            let summary: Value = serde_json::from_str(text(&output.stdout).trim()).unwrap();
            assert!(summary["totals"]["calls"].as_u64().unwrap() > 500, "{name}");
            let note = summary["notes"][0].as_str().unwrap();
            assert!(note.starts_with("NOT IN FULL: "), "{name}: {note}");
        }
    }
}

#[test]
fn a_pipe_that_stays_open_is_shown_as_it_comes_and_sigint_ends_it_with_totals() {
    for (form, bytes) in [
        ("plain", unpacked("mongod-4.0-mixed")),
        ("gzip", std::fs::read(recording("mongod-4.0-mixed")).unwrap()),
    ] {
        // Operations come out before the input ends.
        let mut child = queries("-".as_ref(), "--each --json").stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let half = &bytes[..bytes.len() / 2];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                input.write_all(half).unwrap();
                input
            });
            let mut lines = output.lines().map_while(Result::ok);
            for line in lines.by_ref().take(100) {
                let operation: Value = serde_json::from_str(&line).unwrap();
                assert!(operation["request_id"].is_u64(), "{form}: {line}");
            }
            // The writer waits for a reader.
            let rest = scope.spawn(|| lines.count());
            let input = writer.join().unwrap();
            signal(&child, "INT");
            // What was read and not yet decoded is left.
            rest.join().unwrap();
            drop(input);
        });
        assert_eq!(child.wait().unwrap().code(), Some(0), "{form}");

        for name in ["INT", "TERM"] {
            let mut child =
                queries("-".as_ref(), "--json --interval 1s").stdin(Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(half).unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            // Once there is an interval it is surely reading.
            output.read_line(&mut line).unwrap();
            signal(&child, name);
            let last = output.lines().map_while(Result::ok).last().unwrap();
            let summary: Value = serde_json::from_str(&last).unwrap();
            assert_eq!(summary["kind"], "summary", "{form}, {name}");
            assert!(summary["totals"]["calls"].as_u64().unwrap() > 0);
            assert_eq!(child.wait().unwrap().code(), Some(0), "{form}, {name}");
            drop(input);
        }

        // A pipe on which nothing has come yet.
        let mut child = queries("-".as_ref(), "--json").stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        wait_for_signal_handler(&child);
        signal(&child, "INT");
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
        drop(input);
    }
}

/// Returns when the process catches SIGINT (2).
fn wait_for_signal_handler(child: &std::process::Child) {
    for _ in 0..6_000 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0 {
            return;
        }
        // span: between two looks
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("SIGINT is not caught");
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let file = recording("mongod-4.0-mixed");
    let mut commands: Vec<_> = ["--each", "--each --json", "--json", "--csv", "", "--interval 100ms"]
        .iter()
        .map(|words| queries(&file, words))
        .collect();
    commands.extend(
        ["completions bash", "man", "doctor", "doctor --json", "--help", "queries --help", "--version"]
            .map(|words| program(words.split(' '))),
    );
    for mut command in commands {
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{command:?}: {}", text(&output.stderr));
    }
    // One that goes away after a line.
    let mut child = queries(&file, "--each").spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    drop(output);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn completions_come_out_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&format!("completions {shell}"));
        assert!(output.status.success() && output.stderr.is_empty());
        let script = text(&output.stdout);
        for word in ["queries", "doctor", "completions", "snap-replies", "interval"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let wrong = run("completions cmd");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("bash"));
}

#[test]
fn manual_pages_come_out_on_a_pipe_and_into_a_folder() {
    let page = run("man");
    assert!(page.status.success());
    assert!(text(&page.stdout).contains(".TH mongosonar") && text(&page.stdout).contains("EXIT STATUS"));
    let folder = Folder::new("man");
    let output = program(["man"]).arg(folder.path("pages")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (name, flag) in
        [("mongosonar.1", "config"), ("mongosonar-queries.1", "ring\\-mib"), ("mongosonar-doctor.1", "json")]
    {
        let page = std::fs::read_to_string(folder.path("pages").join(name)).unwrap();
        assert!(page.contains(".TH") && page.contains(flag), "{name}");
    }
    let blocked = folder.file("file", b"");
    let output = program(["man"]).arg(&blocked).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(blocked.to_str().unwrap()));
}

/// The one JSON value of an output.
fn told(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_link_type_that_is_not_decoded_is_named_by_its_number() {
    let folder = Folder::new("link-type");
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 147];
    let packet = [1_777_629_600_u32, 0, 4, 4, 0];
    let pcap = header.into_iter().chain(packet).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    let output = read(&folder.file("a.pcap", &pcap), "");
    let out = text(&output.stdout);
    assert!(out.contains("1 of an unknown link type"), "{out}");
    assert!(out.contains("packets of link type 147 are not decoded"), "{out}");
}

#[test]
fn a_capture_without_packets_is_no_error() {
    let folder = Folder::new("no-packets");
    let pcap = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    let section =
        [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28].map(u32::to_le_bytes).concat();
    let interface = [1_u32, 20, 1, 0, 20].map(u32::to_le_bytes).concat();
    let files =
        [("a.pcap", pcap), ("b.pcapng", section.clone()), ("c.pcapng", [section, interface].concat())];
    for (name, bytes) in files {
        let file = folder.file(name, &bytes);
        for words in ["", "--json", "--csv", "--each", "--each --json", "--digest", "--interval 1s"] {
            let output = read(&file, words);
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{name} {words}: {err}");
            assert!(
                format!("{out}{err}").contains("The file holds no packets."),
                "{name} {words}: {out}{err}"
            );
            assert!(!out.contains("1970"), "{name} {words}: {out}");
        }
    }
    let empty = read(&folder.file("empty.pcap", b""), "");
    assert_eq!(empty.status.code(), Some(1));
    assert!(text(&empty.stderr).contains("this is an empty file"), "{}", text(&empty.stderr));
}

#[test]
fn a_digest_says_what_class_filter_and_limit_leave_out() {
    let capture = recording("mongod-4.0-mixed");
    let all = told(&read(&capture, "--digest --json --class all --role all"));
    let calls = |digest: &Value| digest["totals"]["calls"].as_u64().unwrap();
    let (all, folder) = (calls(&all), Folder::new("hidden"));
    let log = folder.file("mongod.log", &inflated("mongod-4.0-mixed/mongod.log.gz"));
    let report = |words: &str| {
        let output = program(["logs", "report"]).arg(&log).args(words.split_whitespace()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        output
    };
    let in_log = calls(&told(&report("--json --class all")));
    for words in [
        "",
        "--filter people",
        "--limit 3",
        "--filter people --limit 3",
        "--class internal",
        "--by namespace --limit 1",
    ] {
        let wire = (told(&read(&capture, &format!("--digest --json {words}"))), all);
        let log = (told(&report(&format!("--json {words}"))), in_log);
        for (digest, all) in [wire, log] {
            let rows: u64 =
                digest["rows"].as_array().unwrap().iter().map(|row| row["calls"].as_u64().unwrap()).sum();
            let hidden = digest["hidden"].as_array().unwrap();
            let left_out: u64 = hidden.iter().map(|part| part["operations"].as_u64().unwrap()).sum();
            assert_eq!(rows + left_out, all, "{words}: {hidden:?}");
            for (word, reason) in [("--filter", "filter"), ("--limit", "limit")] {
                let is_there = hidden.iter().any(|part| part["reason"] == reason);
                assert_eq!(is_there, words.contains(word), "{words}: {hidden:?}");
            }
        }
    }
    for shown in [
        text(&read(&capture, "--digest --filter people --limit 3").stdout),
        text(&report("--filter people --limit 3").stdout),
    ] {
        let line =
            shown.lines().find(|line| line.starts_with("Not shown: ")).unwrap_or_else(|| panic!("{shown}"));
        assert!(line.contains("(without --filter)") && line.contains("(a larger --limit)"), "{line}");
    }
    // Where there is no room for it, it goes beside.
    let csv = report("--csv --filter people");
    assert!(text(&csv.stderr).contains("Not shown: ") && !text(&csv.stdout).contains("Not shown"));
}

#[test]
fn a_capture_has_the_digest_of_logs_and_profiles() {
    let capture = recording("mongod-4.0-mixed");
    let summary = summary(&read(&capture, "--json"));
    let digest = told(&read(&capture, "--digest --json"));
    assert_eq!((&digest["kind"], &digest["source"]), (&"digest".into(), &"wire".into()));
    assert_eq!(digest["totals"]["calls"], summary["totals"]["calls"]);
    assert_eq!(digest["coverage"], summary["coverage"]);
    for row in digest["rows"].as_array().unwrap() {
        let same: Vec<&Value> = summary["rows"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["shape_id"] == row["shape_id"] && one["class"] == row["class"])
            .collect();
        let sum = |what: &dyn Fn(&Value) -> u64| same.iter().map(|one| what(one)).sum::<u64>();
        assert_eq!(row["calls"], sum(&|one| one["calls"].as_u64().unwrap()), "{}", row["shape"]);
        // Unknown where no reply was seen.
        let known = same.iter().any(|one| !one["latency_ns"]["sum"].is_null());
        let latency = known.then(|| sum(&|one| one["latency_ns"]["sum"].as_u64().unwrap_or_default()));
        assert_eq!(row["latency_ns"]["sum"].as_u64(), latency);
        assert!(row["timeline"]["buckets"].as_array().is_some_and(|buckets| !buckets.is_empty()));
        // The wire does not know them.
        assert!(row["sums"].get("docs_examined").is_none() && row["plans"].as_array().unwrap().is_empty());
    }
    let csv = read(&capture, "--digest --csv");
    assert_eq!(text(&csv.stdout).lines().count(), 1 + digest["rows"].as_array().unwrap().len());
    let people = read(&capture, "--digest --limit 3 --sort calls");
    let people = text(&people.stdout);
    assert!(people.contains("over time") && !people.contains("ex/ret"), "{people}");
    let folder = Folder::new("digest-page");
    let path = folder.path("page.html");
    read(&capture, &format!("--html {}", path.display()));
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\"points\":["));
    let wrong = read(&capture, "--digest --by client");
    assert!(text(&wrong.stderr).contains("no rows by client"));
    let namespaces = told(&read(&capture, "--digest --json --by namespace"));
    assert_eq!(namespaces["totals"]["calls"], digest["totals"]["calls"]);
    let sampled = told(&read(&capture, "--digest --json --sample 1/4"));
    assert_eq!(sampled["totals"]["calls"].as_u64().unwrap() % 4, 0);
    assert_eq!(sampled["totals"]["calls"], 4 * sampled["totals"]["entries"].as_u64().unwrap());
}

#[test]
fn a_baseline_marks_what_is_new_and_slower() {
    let folder = Folder::new("baseline");
    let capture = recording("mongod-4.0-mixed");
    let mut saved = told(&read(&capture, "--digest --json"));
    let baseline = |saved: &Value| folder.file("saved.json", format!("{saved}\n").as_bytes());
    let marks = |output: &Output| {
        let summary = summary(output);
        let rows = summary["rows"].as_array().unwrap().clone();
        rows.into_iter()
            .map(|row| (row["shape_id"].clone(), row["baseline"]["since"].clone()))
            .collect::<Vec<_>>()
    };
    let with = |path: &Path| read(&capture, &format!("--json --baseline {}", path.display()));
    for (id, since) in marks(&with(&baseline(&saved))) {
        assert!(since == "same" || since == "known", "{id} {since}");
    }
    // Of what the recording has: one shape was four times as quick, another was not there.
    let rows = saved["rows"].as_array_mut().unwrap();
    let gone = rows.remove(1)["shape_id"].clone();
    saved["rows_total"] = (rows.len() as u64).into();
    let quick = &mut saved["rows"][0];
    let quick_id = quick["shape_id"].clone();
    for bucket in quick["latency_ns"]["buckets"].as_array_mut().unwrap() {
        bucket[0] = (bucket[0].as_i64().unwrap() - 64).into();
    }
    for name in ["min", "max"] {
        quick["latency_ns"][name] = (quick["latency_ns"][name].as_u64().unwrap() / 4).into();
    }
    for (id, since) in marks(&with(&baseline(&saved))) {
        let expected: &[&str] = match &id {
            id if *id == gone => &["new"],
            id if *id == quick_id => &["slower"],
            _ => &["same", "known"],
        };
        assert!(expected.contains(&since.as_str().unwrap()), "{id} {since}");
    }
    let table = read(&capture, &format!("--sort since --baseline {}", baseline(&saved).display()));
    let table = text(&table.stdout);
    let first: Vec<&str> = table.split_once("namespace").unwrap().1.lines().skip(1).take(2).collect();
    assert!(first[0].contains(" new ") && first[1].contains(" slower ×4.0"), "{first:?}");
    // What a limit left out is not new.
    saved["rows_total"] = 1_000.into();
    let cut = with(&baseline(&saved));
    assert!(marks(&cut).iter().all(|(_, since)| since != "new") && text(&cut.stderr).contains("left out"));
    // The server's own log has another clock.
    let log = capture.with_file_name("mongod.log.gz");
    let log = with(&log);
    assert!(text(&log.stderr).contains("the server's own"));
    assert!(marks(&log).iter().all(|(_, since)| since == "known" || since == "new" || since.is_null()));
    assert!(marks(&log).iter().filter(|(_, since)| since == "known").count() > 40);
    let wrong = folder.file("by.json", &read(&capture, "--digest --json --by app").stdout);
    assert!(text(&with(&wrong).stderr).contains("by shape"));
    assert!(!with(Path::new("/nonexistent")).status.success());
}
