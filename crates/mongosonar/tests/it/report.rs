//! `mongosonar report`: captures, logs and profiles of the same minutes, in one table.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;

use crate::support::*;
use serde_json::{Map, Value};

/// Capture, log and profiles of one recording.
struct Recording {
    wire: PathBuf,
    log: PathBuf,
    profiles: Vec<PathBuf>,
}

fn recordings() -> [Recording; 2] {
    let mixed = |name: &str| fixture(&format!("mongod-4.0-mixed/{name}"));
    let minutes = |name: &str| fixture(&format!("mongod-4.4-minutes/{name}"));
    [
        Recording {
            wire: mixed("wire.pcap.gz"),
            log: mixed("mongod.log.gz"),
            profiles: vec![mixed("profile/shop.bson.gz"), mixed("profile/stats.bson.gz")],
        },
        Recording {
            wire: minutes("wire.pcap.gz"),
            log: minutes("mongod.log.gz"),
            profiles: vec![minutes("profile.bson.gz")],
        },
    ]
}

impl Recording {
    fn files(&self) -> Vec<PathBuf> {
        [self.profiles.clone(), vec![self.log.clone(), self.wire.clone()]].concat()
    }
}

fn run(words: &str, files: &[PathBuf]) -> Output {
    let words: Vec<_> = words.split_whitespace().collect();
    let mut command = program([words[0]]);
    command.args(&words[1..]).args(files);
    command.output().unwrap()
}

fn object(output: &Output) -> Value {
    assert!(text(&output.stderr).lines().all(|line| line.contains("sent by other servers")), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_log_has_seen_the_time_of_all_its_lines() {
    let folder = Folder::new("lines");
    let line = |time: &str, what: &str| {
        format!(r#"{{"t":{{"$date":"2026-05-01T{time}.000+00:00"}},"s":"I","ctx":"conn1",{what}}}"#)
    };
    let slow = r#""c":"COMMAND","id":51803,"msg":"Slow query","attr":{"type":"command","ns":"shop.carts","command":{"find":"carts","filter":{"b":1},"$db":"shop"},"durationMillis":300}"#;
    let other = r#""c":"NETWORK","id":22944,"msg":"Connection ended","attr":{}"#;
    let profiled = |time: &str| {
        format!(
            r#"{{"op":"query","ns":"shop.carts","command":{{"find":"carts","filter":{{"b":1}},"$db":"shop"}},"nreturned":1,"millis":300,"ts":{{"$date":"2026-05-01T{time}.000Z"}}}}"#
        )
    };
    let profile = ["10:00:01", "10:05:01", "10:09:59"].map(profiled).join("\n");
    let profile = folder.file("profile.json", profile.as_bytes());
    let said = |name: &str, lines: &[String]| {
        let log = folder.file(name, lines.join("\n").as_bytes());
        text(&run("report --utc", &[profile.clone(), log]).stdout).to_owned()
    };
    let slow = line("10:05:01", slow);
    let all = said("all.log", &[line("10:00:00", other), slow.clone(), line("10:10:00", other)]);
    assert!(!all.contains("reaches further"), "{all}");
    let short = said("short.log", &[line("10:05:00", other), slow, line("10:05:09", other)]);
    let within =
        "the profile reaches further than the others: --from 2026-05-01T10:05:00Z --to 2026-05-01T10:05:09Z";
    assert!(short.contains(within), "{short}");
}

#[test]
fn waits_are_a_share_of_the_time_of_operations_whose_waits_are_known() {
    let folder = Folder::new("waits");
    let logged = r#"{"t":{"$date":"2026-05-01T10:00:00.000+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1","msg":"Slow query","attr":{"type":"command","ns":"shop.orders","command":{"find":"orders","filter":{"a":1},"$db":"shop"},"planSummary":"COLLSCAN","docsExamined":9,"nreturned":1,"locks":{"Global":{"acquireCount":{"r":1},"acquireWaitCount":{"r":1},"timeAcquiringMicros":{"r":100000}}},"durationMillis":200}}"#;
    let log = folder.file("mongod.log", logged.as_bytes());
    // It does not show how operations were executed.
    let [Recording { wire, .. }, _] = recordings();
    let waits = |files: &[PathBuf]| {
        let output = run("report --utc", files);
        text(&output.stdout)
            .lines()
            .find(|line| line.starts_with("  waited for"))
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(waits(std::slice::from_ref(&log)), "  waited for: locks 100ms (50.0%)");
    let of = "; of 200ms, the time of the operations whose waits are known";
    assert_eq!(waits(&[log, wire]), format!("  waited for: locks 100ms (50.0%){of}"));
}

/// What makes a row the same in two reports.
fn identity(row: &Value, by: &str) -> String {
    match by {
        "shape" => format!("{} {} {}", row["class"], row["identity"], row["shape_id"]),
        by => row[by].to_string(),
    }
}

/// Fields of the figures, which are the same whoever reports them.
const FIGURES: [&str; 18] = [
    "calls",
    "entries",
    "statements",
    "failed",
    "errors",
    "errors_other",
    "latency_ns",
    "sums",
    "examined_per_returned",
    "collection_scans",
    "memory_sorts",
    "used_disk",
    "replanned",
    "plans",
    "plans_other",
    "first_seen",
    "last_seen",
    "timeline",
];

fn figures(row: &Value) -> Map<String, Value> {
    FIGURES.iter().map(|name| ((*name).to_owned(), row[name].clone())).collect()
}

#[test]
fn every_row_has_the_figures_that_each_source_alone_gives() {
    for recording in recordings() {
        for by in ["shape", "namespace"] {
            let words = format!("--json --class all --by {by}");
            let joined = object(&run(&format!("report {words}"), &recording.files()));
            let wire = format!("queries --digest {words} --log {} --read", recording.log.display());
            let alone = [
                ("wire", object(&run(&wire, std::slice::from_ref(&recording.wire)))),
                ("log", object(&run(&format!("logs report {words}"), std::slice::from_ref(&recording.log)))),
                ("profile", object(&run(&format!("profiler report {words}"), &recording.profiles))),
            ];
            let rows = joined["rows"].as_array().unwrap();
            for (source, alone) in &alone {
                let of_source = |row: &&Value| {
                    !row["by_source"][source].is_null() && row["by_source"][source]["calls"] != 0
                };
                assert_eq!(rows.iter().filter(of_source).count(), alone["rows"].as_array().unwrap().len());
                for single in alone["rows"].as_array().unwrap() {
                    let same = |row: &&Value| identity(row, by) == identity(single, by);
                    let row = rows.iter().find(same).unwrap();
                    assert_eq!(
                        figures(&row["by_source"][source]),
                        figures(single),
                        "{source} {}",
                        single["shape"]
                    );
                }
                let mut sources = joined["sources"].as_array().unwrap().iter();
                let summary = sources.find(|summary| summary["source"] == *source).unwrap();
                assert_eq!(figures(&summary["totals"]), figures(&alone["totals"]), "{source}");
                assert_eq!(summary["first_seen"], alone["totals"]["first_seen"]);
                let read = if *source == "wire" { "coverage" } else { "reading" };
                for (name, count) in summary["counters"].as_object().unwrap() {
                    assert_eq!(*count, alone[read][name], "{source} {name}");
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_latency_of_the_wire_and_the_execution_of_the_server() {
    let [recording, _] = recordings();
    let joined = object(&run("report --json", &recording.files()));
    assert_eq!(joined["source"], "wire");
    let rows = joined["rows"].as_array().unwrap();
    let (mut both, mut wire_alone) = (0, 0);
    for row in rows {
        let of = &row["by_source"];
        if of["wire"].is_null() {
            continue;
        }
        assert_eq!(row["latency_ns"], of["wire"]["latency_ns"]);
        assert_eq!(row["calls"], of["wire"]["calls"]);
        assert_eq!(of["wire"]["plans"], Value::Array(Vec::new()), "the wire cannot know it");
        let server = [&of["profile"], &of["log"]];
        match server
            .iter()
            .filter(|figures| !figures.is_null())
            .max_by_key(|figures| figures["calls"].as_u64())
        {
            None => {
                wire_alone += 1;
                assert_eq!(row["examined_per_returned"], Value::Null);
                assert_eq!(row["sums"].get("docs_examined"), None);
            }
            Some(most) => {
                both += 1;
                let with_most: Vec<_> =
                    server.iter().filter(|figures| figures["calls"] == most["calls"]).collect();
                assert!(with_most.iter().any(|figures| row["plans"] == figures["plans"]));
                assert!(with_most.iter().any(|figures| {
                    row["sums"].get("docs_examined") == figures["sums"].get("docs_examined")
                }));
            }
        }
    }
    // Level 2 and slowms 0: the server wrote nearly every operation, and the shapes are the wire's.
    assert!(both > 10 * wire_alone, "{both} rows of both, {wire_alone} of the wire alone");
    let as_often = rows.iter().filter(|row| {
        let of = &row["by_source"];
        row["command"] == "find" && !of["wire"].is_null() && of["wire"]["calls"] == of["log"]["calls"]
    });
    assert!(as_often.count() > 10);
}

#[test]
fn text_and_csv_show_what_is_unknown_as_unknown() {
    let [recording, _] = recordings();
    let shown = run("report --width 0 --limit 5", &recording.files());
    let shown = text(&shown.stdout);
    for words in ["wire     4.", "profile  ", "log      ", "nothing lost", "server", "locks", "examined"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let csv = run("report --csv", &[recording.wire.clone(), recording.log.clone()]);
    let csv = text(&csv.stdout);
    let mut lines = csv.lines();
    let heading: Vec<_> = lines.next().unwrap().split(',').collect();
    let at = |name: &str| heading.iter().position(|one| *one == name).unwrap();
    assert!(!heading.contains(&"profile_calls"), "no profile was read");
    // The last columns hold figures, which need no quotes.
    let last = |line: &str, name: &str| {
        let from_end = heading.len() - at(name);
        line.rsplit(',').nth(from_end - 1).unwrap().to_owned()
    };
    let known: BTreeSet<(bool, bool)> = lines
        .map(|line| (!last(line, "wire_calls").is_empty(), !last(line, "log_calls").is_empty()))
        .collect();
    assert!(known.contains(&(true, true)) && !known.contains(&(false, false)), "{known:?}");
}

#[test]
fn a_report_is_written_as_a_page_and_compared() {
    let (folder, [recording, minutes]) = (Folder::new("joined"), recordings());
    let page = folder.path("report.html");
    let output = run(&format!("report --json --html {}", page.display()), &recording.files());
    assert!(std::fs::read_to_string(&page).unwrap().contains("\"by_source\""));
    let saved = folder.file("saved.json", &output.stdout);
    // The same capture is the same whatever it was joined with.
    let same = run("compare --json", &[saved.clone(), recording.wire.clone()]);
    assert_eq!((same.status.code(), object(&same)["worse"].clone()), (Some(0), Value::Bool(false)));
    let other = run("compare --json", &[saved, minutes.wire]);
    assert_eq!(other.status.code(), Some(4), "another application");
}

#[test]
fn what_servers_asked_each_other_is_left_out_and_counted() {
    let capture = fixture("mongod-4.0-sharded/wire.pcap.gz");
    let joined = object(&run("report --json --class all", std::slice::from_ref(&capture)));
    let all = object(&run("queries --digest --json --class all --role all --read", &[capture]));
    let role = |part: &&Value| part["reason"] == "role";
    let left_out =
        joined["hidden"].as_array().unwrap().iter().find(role).unwrap()["operations"].as_u64().unwrap();
    assert!(left_out > 100);
    let (served, all) = (joined["totals"]["calls"].as_u64(), all["totals"]["calls"].as_u64());
    assert_eq!(served.unwrap() + left_out, all.unwrap());
}

#[test]
fn applications_are_joined_by_name() {
    let [_, recording] = recordings();
    let joined = object(&run("report --json --by app", &recording.files()));
    let rows = joined["rows"].as_array().unwrap();
    let known = |name: &str, source: &str| {
        rows.iter().any(|row| row["app"] == name && !row["by_source"][source].is_null())
    };
    assert!(known("shop-api", "profile"));
    let names: BTreeSet<_> = rows.iter().map(|row| row["app"].to_string()).collect();
    assert_eq!(names.len(), rows.len(), "each once");
}

/// Ten o'clock on the first of May 2026, in nanoseconds since 1970.
const TEN: u64 = 1_777_629_600_000_000_000;

#[test]
fn sources_of_different_lengths_lie_on_one_axis() {
    let folder = Folder::new("axis");
    let logged = |time: &str| {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T{time}.000+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1","msg":"Slow query","attr":{{"type":"command","ns":"shop.orders","command":{{"find":"orders","filter":{{"a":1}},"$db":"shop"}},"planSummary":"COLLSCAN","nreturned":1,"durationMillis":200}}}}"#
        )
    };
    let profiled = |time: &str| {
        format!(
            r#"{{"op":"query","ns":"shop.carts","command":{{"find":"carts","filter":{{"b":1}},"$db":"shop"}},"nreturned":1,"millis":300,"ts":{{"$date":"2026-05-01T{time}.000Z"}}}}"#
        )
    };
    let log = ["10:00:00", "10:10:00"].map(logged).join("\n");
    let profile = ["10:05:01", "10:05:02", "10:05:03"].map(profiled).join("\n");
    let files = [folder.file("profile.json", profile.as_bytes()), folder.file("mongod.log", log.as_bytes())];
    let page = folder.path("report.html");
    let joined = object(&run(&format!("report --json --html {}", page.display()), &files));
    let totals = &joined["totals"];
    assert_eq!((&totals["first_seen"], &totals["calls"]), (&TEN.into(), &5.into()));
    assert_eq!(totals["last_seen"], TEN + 600 * 1_000_000_000);
    for (head, figure) in [("start_ns", "first_seen"), ("end_ns", "last_seen")] {
        assert_eq!(joined["about"][head], totals[figure], "the head of the page");
    }
    // The dots are those of the profile.
    let after_us: Vec<u64> =
        joined["points"].as_array().unwrap().chunks(3).map(|dot| dot[0].as_u64().unwrap()).collect();
    assert_eq!(after_us, [301_000_000, 302_000_000, 303_000_000]);
    let shown = run("report --width 200", &files);
    let shown = text(&shown.stdout);
    let carts = shown.lines().find(|line| line.contains("shop.carts") && line.contains("300ms")).unwrap();
    let bars = carts.chars().filter(|c| ('\u{2581}'..='\u{2588}').contains(c)).count();
    assert_eq!(bars, 1, "three seconds of ten minutes: {carts}");
}

#[test]
fn it_ends_as_every_command_does() {
    let (folder, [recording, _]) = (Folder::new("joined-codes"), recordings());
    let code = |words: &str, files: &[PathBuf]| run(words, files).status.code();
    assert_eq!(code("report", &[]), Some(2));
    // The usage is the same in the help and in an error.
    for (words, usage) in [
        ("report --help", "report [OPTIONS] [FILE]..."),
        ("logs report --help", "logs report [OPTIONS] <FILE>..."),
        ("logs report", "logs report <FILE>..."),
        ("profiler report --help", "profiler report [OPTIONS] [FILE]..."),
    ] {
        let said = run(words, &[]);
        let said = [text(&said.stdout), text(&said.stderr)].concat();
        assert!(said.contains(&format!("Usage: mongosonar {usage}\n")), "{words}: {said}");
    }
    for words in ["report", "profiler report"] {
        let said = run(words, &[]);
        assert!(text(&said.stderr).contains("mongosonar: which "), "{words}: {said:?}");
    }
    assert_eq!(code("report -", &[]), Some(1), "nothing on standard input");
    assert_eq!(code("report", &["/nonexistent".into(), recording.log.clone()]), Some(1));
    let readme = folder.file("README", b"not from a server\n");
    let refused = run("report", &[recording.log.clone(), readme]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("README") && text(&refused.stderr).contains("report reads captures")
    );
    let bytes = inflated("mongod-4.0-mixed/wire.pcap.gz");
    let cut = folder.file("cut.pcap", &bytes[..bytes.len() / 2 + 1]);
    let output = run("report --json", &[cut, recording.log]);
    assert_eq!(output.status.code(), Some(3));
    let joined: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(joined["sources"][0]["damaged"], true);
    assert_eq!(joined["sources"][1]["damaged"], false);
}

/// A capture file with at most so many bytes of each packet, as `tcpdump -s` writes it.
fn snapped(pcap: &[u8], most: u32) -> Vec<u8> {
    let (head, mut rest) = pcap.split_at(24);
    assert_eq!(head[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    let mut out = head.to_vec();
    while let Some((head, packet)) = rest.split_first_chunk::<16>() {
        let captured = u32::from_le_bytes(*head[8..].first_chunk().unwrap());
        let kept = captured.min(most);
        out.extend([&head[..8], &kept.to_le_bytes(), &head[12..], &packet[..kept as usize]].concat());
        rest = &packet[captured as usize..];
    }
    out
}

#[test]
fn what_is_known_in_part_is_in_the_documents_of_pages() {
    let [recording, _] = recordings();
    let folder = Folder::new("in-part");
    let capture = folder.file("snapped.pcap", &snapped(&inflated("mongod-4.0-mixed/wire.pcap.gz"), 200));
    let parts = |output: Output| {
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let parts = document["incomplete"].as_array().unwrap().clone();
        let words = |part: &Value| (part["way"].as_str().unwrap().to_owned(), part["what"].to_string());
        parts.iter().map(words).collect::<std::collections::BTreeMap<_, _>>()
    };
    let alone = || run("queries --digest --json --read", std::slice::from_ref(&capture));
    for found in [parts(alone()), parts(run("report --json", &[capture.clone(), recording.log.clone()]))] {
        assert!(found["known in part"].contains("that a snap length cut"), "{found:?}");
    }
    assert_eq!(parts(run("logs report --json", std::slice::from_ref(&recording.log))).len(), 0);
    // The text names them, too.
    let shown = run("queries --digest --read", std::slice::from_ref(&capture));
    assert!(text(&shown.stdout).contains("Messages that a snap length cut"), "{}", text(&shown.stdout));
}

#[test]
fn what_cut_packets_hide_is_no_figure() {
    let folder = Folder::new("cut");
    let whole = inflated("mongod-4.0-mixed/wire.pcap.gz");
    for bytes in [96, 128, 200] {
        let capture = folder.file(&format!("{bytes}.pcap"), &snapped(&whole, bytes));
        let document = object(&run("queries --json --read", std::slice::from_ref(&capture)));
        let totals = &document["totals"];
        // Nearly all outcomes are unknown, so how many failed is, too.
        assert_eq!((&totals["errors"], &totals["failed"]), (&Value::Null, &Value::Null), "{bytes}");
        let rows = document["rows"].as_array().unwrap();
        let calls = |is_it: &dyn Fn(&Value) -> bool| -> u64 {
            rows.iter().filter(|row| is_it(row)).map(|row| row["calls"].as_u64().unwrap()).sum()
        };
        let unknown = calls(&|row| row["command"] == "?");
        let types: u64 = document["by_type"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(
            types + unknown,
            totals["calls"].as_u64().unwrap(),
            "{bytes}: a command that is hidden has no type"
        );
        let cut = calls(&|row| {
            row["command"] == "getMore" && row["shape"].as_str().unwrap().starts_with("(partial)")
        });
        assert_eq!(cut > 0, bytes > 96);
        let shown = run("queries --read", std::slice::from_ref(&capture));
        let shown = text(&shown.stdout);
        assert!(
            shown.contains("errors -") && shown.contains("at least, as messages are cut"),
            "{bytes}: {shown}"
        );
        let notes = [document, object(&run("report --json", std::slice::from_ref(&capture)))];
        for notes in notes.map(|document| document["notes"].to_string()) {
            let note = format!("{cut} getMores were cut by a snap length");
            assert_eq!(notes.contains(&note), cut > 0, "{bytes}: {notes}");
        }
    }
}

#[test]
fn operations_of_a_router_that_its_shards_logged_too_are_told_apart() {
    let log = |port: u16| fixture(&format!("mongod-4.0-sharded/{port}.log.gz"));
    let all = [log(27_217), log(27_218), log(27_220)];
    let calls = |row: &Value| row["calls"].as_u64().unwrap();
    let report = |words: &str, files: &[PathBuf]| object(&run(words, files));
    let joined = report("logs report --json", &all);
    let notes = joined["notes"].to_string();
    let expected = "27217.log.gz is the log of a router (";
    assert!(
        notes.contains(expected) && notes.contains("of servers to which routers sent 4,052 operations"),
        "{notes}"
    );
    let rows = joined["rows"].as_array().unwrap();
    let (routed, own): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["role"] == "issued");
    let of_router: u64 = report("logs report --json", &all[..1])["totals"]["calls"].as_u64().unwrap();
    let own: u64 = own.into_iter().map(calls).sum();
    let routed: u64 = routed.into_iter().map(calls).sum();
    assert_eq!(own + routed, joined["totals"]["calls"].as_u64().unwrap());
    assert!(routed > 1_000 && own >= of_router && own < of_router + routed / 4, "{own} {routed} {of_router}");
    // By themselves they are no copies.
    for files in [&all[..1], &all[1..]] {
        let alone = report("logs report --json", files);
        assert!(!alone["notes"].to_string().contains("router"), "{}", alone["notes"]);
        assert!(alone["rows"].as_array().unwrap().iter().all(|row| row["role"].is_null()));
    }
    let shown = run("logs report", &all);
    assert!(text(&shown.stdout).contains("(sent by a router) "), "{}", text(&shown.stdout));
    let with_wire =
        report("report --json", &[&all[..], &[fixture("mongod-4.0-sharded/wire.pcap.gz")]].concat());
    assert!(with_wire["notes"].to_string().contains(expected), "{}", with_wire["notes"]);
}

/// An operation in flight, as `currentOp` lists it.
fn in_flight(field: &str, seconds: u32, more: &str) -> String {
    format!(
        r#"{{"type":"op","desc":"conn42","client":"10.0.0.9:51234","appName":"shop-api","active":true,"currentOpTime":"2026-05-01T10:00:00.120+00:00","opid":4711,"secs_running":{seconds},"op":"update","ns":"shop.orders","command":{{"q":{{"{field}":1}},"u":{{"$set":{{"a":2}}}},"multi":true,"upsert":false}},"planSummary":"COLLSCAN","numYields":17{more}}}"#
    )
}

#[test]
fn operations_in_flight_are_a_report_of_their_own_and_a_note_beside_others() {
    let folder = Folder::new("current");
    let all = [in_flight("young", 3, ""), in_flight("old", 312, r#","waitingForLock":true"#)].join(",");
    let list = folder.file("current.json", format!("{{\"inprog\":[{all}],\"ok\":1}}").as_bytes());
    let array = folder.file("array.json", format!("[{all}]").as_bytes());
    let expected = "2 operations in flight at 2026-05-01T10:00:00.120Z, the oldest for 5m12s (update shop.orders); 1 waits for a lock\n";
    for file in [&list, &array] {
        let alone = run("report", std::slice::from_ref(file));
        assert_eq!(alone.status.code(), Some(0), "{alone:?}");
        let shown = text(&alone.stdout);
        assert!(shown.starts_with(expected), "{shown}");
        // The oldest first, with what it waits for.
        let rows: Vec<_> = shown.lines().filter(|line| line.contains("COLLSCAN")).collect();
        assert!(
            rows[0].contains("5m12s") && rows[0].contains("a lock") && rows[0].contains("old"),
            "{shown}"
        );
        assert!(rows[1].contains("3.00s") && rows[1].contains("young"), "{shown}");
        let json: Value =
            serde_json::from_slice(&run("report --json", std::slice::from_ref(file)).stdout).unwrap();
        assert_eq!(json["kind"], "current_operations");
        assert_eq!(
            (&json["in_flight"], &json["oldest_us"], &json["waiting_for_lock"]),
            (&2.into(), &312_000_000.into(), &1.into())
        );
        assert_eq!(json["operations"][0]["waits"][0]["kind"], "lock");
        // No command takes them for operations that ended, and each names the one that reads them.
        for command in ["profiler report", "logs report", "queries --read"] {
            let refused = run(command, std::slice::from_ref(file));
            assert_eq!(refused.status.code(), Some(1), "{command}: {refused:?}");
            let why = text(&refused.stderr);
            assert!(
                why.contains("operations in flight (currentOp)") && why.contains("mongosonar report FILE"),
                "{command}: {why}"
            );
        }
    }
    let log = fixture("mongod-4.0-mixed/mongod.log.gz");
    let joined = run("report", &[log, list.clone()]);
    let shown = text(&joined.stdout);
    assert!(shown.contains(&format!("current.json: {}.", expected.trim_end())), "{shown}");
    for switch in ["--csv", "--show-values"] {
        let refused = run(&format!("report {switch}"), std::slice::from_ref(&list));
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}

#[test]
fn hellos_that_wait_by_design_are_not_the_oldest_operation() {
    let hello = |name: &str, more: &str| {
        format!(
            r#"{{"type":"op","desc":"conn7","client":"10.0.0.9:51000","active":true,"currentOpTime":"2026-05-01T10:00:00.120+00:00","opid":4000,"secs_running":{{"$numberLong":"9"}},"op":"command","ns":"admin.$cmd","command":{{"{name}":1{more},"$db":"admin"}},"numYields":0}}"#
        )
    };
    let waits = r#","maxAwaitTimeMS":10000,"topologyVersion":{"processId":{"$oid":"65a0f0000000000000000000"},"counter":{"$numberLong":"6"}}"#;
    let folder = Folder::new("hellos");
    let all = [
        hello("isMaster", waits),
        in_flight("young", 3, ""),
        hello("hello", waits),
        // It should have been answered at once.
        hello("hello", ""),
    ];
    let list = folder.file("current.json", format!("{{\"inprog\":[{}],\"ok\":1}}", all.join(",")).as_bytes());
    let output = run("report --class all", std::slice::from_ref(&list));
    let shown = text(&output.stdout);
    let head = "4 operations in flight at 2026-05-01T10:00:00.120Z, the oldest for 9.00s (hello admin); 2 are hellos that \
                wait for a change of the topology, by design";
    assert_eq!(shown.lines().next().unwrap(), head, "{shown}");
    let by_design: Vec<bool> = shown
        .lines()
        .filter(|line| line.contains("conn"))
        .map(|line| line.contains("topology (by design)"))
        .collect();
    assert_eq!(by_design, [false, false, true, true], "they are last: {shown}");
    let user = text(&run("report", std::slice::from_ref(&list)).stdout).to_owned();
    assert!(!user.contains("(by design)"), "{user}");
    let json: Value =
        serde_json::from_slice(&run("report --json --class all", std::slice::from_ref(&list)).stdout)
            .unwrap();
    assert_eq!((&json["oldest_us"], &json["awaiting_topology"]), (&9_000_000.into(), &2.into()));
    let awaits: Vec<_> =
        json["operations"].as_array().unwrap().iter().map(|one| &one["awaits_topology"]).collect();
    assert_eq!(awaits, [false, false, true, true]);
}
