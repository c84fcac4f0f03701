//! The whole program on what a capture holds beside plain requests and replies: streams that began before
//! it, checksums, replies cut short.

use std::io::{BufRead, BufReader};

use crate::support::*;
use bson::{Document, doc};
use sonar_decode::testing::{Conversation, ConversationEnd, pcap};

/// An OP_MSG of one document, with this as its checksum.
fn message(id: u32, response_to: u32, document: &Document, checksum: Option<u32>) -> Vec<u8> {
    let document = document.to_vec().unwrap();
    let length = 16 + 5 + document.len() as u32 + if checksum.is_some() { 4 } else { 0 };
    let words = [length, id, response_to, 2013, u32::from(checksum.is_some())];
    let mut message = words.map(u32::to_le_bytes).concat();
    message.push(0);
    message.extend(document);
    message.extend(checksum.into_iter().flat_map(u32::to_le_bytes));
    message
}

#[test]
fn wrong_checksums_are_counted_where_that_is_asked_for() {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    let find = doc! {"find": "orders", "$db": "shop"};
    talk.handshake().send(ConversationEnd::Client, &message(1, 0, &find, Some(0)));
    talk.send(ConversationEnd::Server, &message(2, 1, &doc! {"ok": 1.0}, None));
    let folder = Folder::new("checksums");
    let file = folder.file("wrong.pcap", &pcap(&talk.packets));
    for (flags, wrong, answered) in [("--json", 0, 1), ("--json --verify-checksums", 1, 0)] {
        let output = read(&file, flags);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let coverage = &lines(&output)[0]["coverage"];
        assert_eq!(coverage["messages_checksum_wrong"], wrong, "{flags}");
        assert_eq!(coverage["requests_answered"], answered, "{flags}");
    }
    let summary = text(&read(&file, "--verify-checksums").stdout).to_owned();
    assert!(summary.contains("messages_checksum_wrong"), "it is shown: {summary}");
}

#[test]
fn a_capture_that_began_after_its_connections_lost_nothing() {
    let recording = recording("mongod-4.4-oplog");
    let summary = text(&read(&recording, "").stdout).to_owned();
    assert!(!summary.contains("LOST"), "{summary}");
    let output = read(&recording, "--json --class replication --role all");
    let rows = &lines(&output)[0]["rows"];
    let fetch = rows.as_array().unwrap().iter().find(|row| row["collection"] == "oplog.rs").unwrap();
    assert_eq!((&fetch["calls"], &fetch["role"]), (&51.into(), &"issued".into()));
    assert_eq!(fetch["response_bytes"], 55_136);
}

#[test]
fn a_log_ends_what_is_in_flight_on_a_connection_whose_end_was_not_captured() {
    const SECOND: u64 = 1_000_000_000;
    let mut talks = [51_001, 51_002, 51_003].map(|port: u32| {
        // Packets with the same numbers would count as copies behind address translation.
        let mut talk = Conversation::new(&format!("10.0.0.9:{port}"), "10.0.0.1:27017")
            .with_seq(port * 1_000, port * 2_000);
        let find = doc! {"find": "orders", "$db": "shop"};
        talk.handshake().send(ConversationEnd::Client, &message(1, 0, &find, None));
        talk.send(ConversationEnd::Server, &message(2, 1, &doc! {"ok": 1.0}, None));
        talk.send(ConversationEnd::Client, &message(3, 0, &find, None)).ack(ConversationEnd::Server);
        talk
    });
    let asked = talks[0].now();
    for talk in &mut talks[1..] {
        talk.wait(20 * SECOND).ack(ConversationEnd::Server);
    }
    let folder = Folder::new("logged-ends");
    let mut packets: Vec<_> = talks.iter().flat_map(|talk| talk.packets.clone()).collect();
    packets.sort_by_key(|packet| packet.time);
    let file = folder.file("wire.pcap", &pcap(&packets));
    let line = |port: u16, seconds: u64| {
        let at = sonar_view::kit::Zone::utc().show(asked.plus_ns(seconds * SECOND)).to_string();
        format!(
            r#"{{"t":{{"$date":"{at}"}},"s":"I","c":"NETWORK","id":22944,"ctx":"conn1","msg":"Connection ended","attr":{{"remote":"10.0.0.9:{port}","connectionId":1,"connectionCount":1}}}}"#
        ) + "\n"
    };
    // The second connection ends after the capture.
    let log = folder.file("mongod.log", [line(51_001, 5), line(51_002, 60)].concat().as_bytes());
    let in_flight = |flags: &str| {
        let output = read(&file, &format!("--json {flags}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let summary = lines(&output).pop().unwrap();
        assert_eq!(summary["coverage"]["requests_in_flight"], summary["totals"]["in_flight"]);
        [&summary["totals"]["in_flight"], &summary["totals"]["unanswered"]].map(|one| one.as_u64().unwrap())
    };
    assert_eq!(in_flight(""), [3, 0]);
    let log = log.display();
    assert_eq!(in_flight(&format!("--log {log}")), [2, 1]);
    assert_eq!(in_flight(&format!("--log {log} --threads 3")), [2, 1]);
    let report = run(&format!("report {} {log} --json", file.display()));
    assert_eq!(lines(&report)[0]["rows"][0]["by_source"]["wire"]["in_flight"], 2, "{}", text(&report.stdout));
}

#[test]
fn what_could_not_be_read_is_unknown_in_each_interval_and_in_each_stored_window() {
    const SECOND: u64 = 1_000_000_000;
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    let hello = [&[0x16, 3, 1, 0, 90, 1, 0, 0, 86, 3, 3][..], &[7; 84]].concat();
    talk.handshake().send(ConversationEnd::Client, &hello);
    // Records of application data, up to 2026-05-01T10:00:25Z.
    for _ in 0..5 {
        talk.wait(5 * SECOND).send(
            ConversationEnd::Client,
            &[0x17, 3, 3, 0, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        );
    }
    let folder = Folder::new("unread");
    let file = folder.file("tls.pcap", &pcap(&talk.packets));
    let is_unknown = |output: &std::process::Output, objects: usize| {
        let lines = lines(output);
        assert_eq!(lines.len(), objects);
        for line in lines {
            let totals = &line["totals"];
            let unknown = [&totals["calls_per_s"], &totals["load"], &line["by_type"]];
            assert!(unknown.iter().all(|one| one.is_null()), "{} {unknown:?}", line["start_ns"]);
        }
    };
    // The connection counts in the first one.
    is_unknown(&read(&file, "--json --interval 10s"), 4);
    let store = folder.path("store").display().to_string();
    let replayed = run(&format!("agent --json --store {store} --replay {}", file.display()));
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
    is_unknown(&run(&format!("queries --json --store {store} --at 2026-05-01T10:00:20Z")), 1);
    is_unknown(
        &run(&format!("queries --json --store {store} --from 2026-05-01T10:00:00Z --interval 10s")),
        4,
    );
}

#[test]
fn what_only_replies_show_is_null_of_a_capture_of_requests_alone() {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake();
    for id in 1..4 {
        let find = doc! {"find": "orders", "$db": "shop"};
        talk.send(ConversationEnd::Client, &message(id, 0, &find, None)).wait(2_000_000_000);
    }
    // Ethernet and IPv4 take 14 and 20 bytes; the port of the destination comes after that of the source.
    talk.packets.retain(|packet| packet.data[36..38] == 27_017_u16.to_be_bytes());
    let folder = Folder::new("requests-alone");
    let file = folder.file("wire.pcap", &pcap(&talk.packets));
    let log = folder.file(
        "mongod.log",
        br#"{"t":{"$date":"2026-05-01T10:00:00.000+00:00"},"s":"I","c":"NETWORK","id":1,"ctx":"conn1","msg":"Connection ended","attr":{"remote":"10.0.0.7:1"}}"#,
    );
    let is_unknown = |row: &serde_json::Value, callers: &[&str]| {
        assert_eq!((&row["calls"], &row["failed"]), (&3.into(), &serde_json::Value::Null), "{row}");
        for caller in callers.iter().map(|name| &row[name][0]) {
            assert_eq!(caller["calls"], 3, "{caller}");
            assert!(caller["failed"].is_null() && caller["latency_ns"].is_null(), "{caller}");
        }
    };
    is_unknown(&lines(&read(&file, "--json"))[0]["rows"][0], &["apps", "clients"]);
    let report = lines(&run(&format!("report {} {} --json", file.display(), log.display()))).remove(0);
    let row = &report["rows"][0];
    is_unknown(row, &["apps"]);
    let wire = row["by_source"]["wire"].as_object().unwrap();
    assert!(wire["transfer_ns"].is_null() && wire["failed"].is_null(), "{wire:?}");
}

#[test]
fn replies_are_not_cut_shorter_than_what_they_are_recognised_by() {
    for (bytes, why) in [("0", "at least 26"), ("25", "at least 26"), ("few", "not a number"), ("-1", "")] {
        let output = run(&format!("queries --port 27017 --snap-replies={bytes}"));
        assert_eq!(output.status.code(), Some(2), "{bytes}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

#[test]
fn a_replay_begins_again_at_the_end_of_its_recording() {
    let recording = recording("mongod-4.0-mixed");
    let once = lines(&read(&recording, "--json"))[0]["totals"]["calls"].as_u64().unwrap();
    let mut child = queries(&recording, "--replay --json --interval 500ms")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut intervals = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut calls = 0;
    while calls <= once {
        let interval: serde_json::Value = serde_json::from_str(&intervals.next().unwrap().unwrap()).unwrap();
        assert_eq!(interval["kind"], "interval");
        calls += interval["totals"]["calls"].as_u64().unwrap();
    }
    signal(&child, "INT");
    let summary: serde_json::Value = serde_json::from_str(&intervals.last().unwrap().unwrap()).unwrap();
    assert_eq!(summary["kind"], "summary");
    assert!(summary["totals"]["calls"].as_u64().unwrap() >= calls);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_capture_without_packets_cannot_be_replayed() {
    let folder = Folder::new("replay");
    let file = folder.file("empty.pcap", &pcap(&[]));
    let output = read(&file, "--replay");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("holds no packets to replay"), "{}", text(&output.stderr));
    // What can be read once only.
    let output = fed(program(["queries", "--replay", "--read", "-"]), &pcap(&[]));
    assert_eq!(output.status.code(), Some(2));
}
