//! Logs that say of connections that they have ended, beside a capture.

use std::fmt::Write;
use std::path::PathBuf;

use crate::support::*;
use bson::{Document, doc};
use sonar_core::{Class, HistoryReader, Timestamp};
use sonar_decode::log::MAX_CONNECTIONS;
use sonar_decode::testing::{Conversation, ConversationEnd, op_msg, pcap};
use sonar_store::SqliteHistory;
use sonar_view::kit::Zone;

const SECOND: u64 = 1_000_000_000;

fn message(id: u32, response_to: u32, document: &Document) -> Vec<u8> {
    op_msg(id, response_to, &document.to_vec().unwrap())
}

/// One end of a client has a connection to each of two servers on one host, and both are asked. Only the second answers,
/// after 20 seconds. Returns the capture, and when they were asked.
fn two_servers(folder: &Folder) -> (PathBuf, Timestamp) {
    let ok = doc! {"ok": 1.0};
    let mut talks = [27_017, 27_018].map(|port: u32| {
        // Packets with the same numbers would count as copies behind address translation.
        let mut talk = Conversation::new("10.0.0.9:51234", &format!("10.0.0.1:{port}"))
            .with_seq(port * 1_000, port * 2_000);
        let find = doc! {"find": "orders", "$db": "shop"};
        talk.handshake().send(ConversationEnd::Client, &message(1, 0, &find));
        talk.send(ConversationEnd::Server, &message(2, 1, &ok));
        talk.send(ConversationEnd::Client, &message(3, 0, &find)).ack(ConversationEnd::Server);
        talk
    });
    let asked = talks[0].now();
    talks[1].wait(20 * SECOND).send(ConversationEnd::Server, &message(4, 3, &ok));
    let mut packets: Vec<_> = talks.iter().flat_map(|talk| talk.packets.clone()).collect();
    packets.sort_by_key(|packet| packet.time);
    (folder.file("wire.pcap", &pcap(&packets)), asked)
}

/// A line of a log.
fn line(at: Timestamp, message: &str, attributes: &str) -> String {
    let at = Zone::utc().show(at).to_string();
    format!(
        r#"{{"t":{{"$date":"{at}"}},"s":"I","c":"NETWORK","id":1,"ctx":"conn1","msg":"{message}","attr":{{{attributes}}}}}"#
    ) + "\n"
}

/// The line about the end of a connection from this port.
fn ended(port: usize, at: Timestamp) -> String {
    line(at, "Connection ended", &format!(r#""remote":"10.0.0.9:{port}","connectionId":1"#))
}

/// The line about the start of the first server.
fn started(at: Timestamp) -> String {
    line(at, "MongoDB starting", r#""pid":7,"port":27017"#)
}

#[test]
fn a_log_ends_nothing_on_another_server_with_the_same_end_of_a_client() {
    let folder = Folder::new("logged-ends-servers");
    let (wire, asked) = two_servers(&folder);
    let end = ended(51_234, asked.plus_ns(5 * SECOND));
    let stated = folder.file("stated.log", [started(asked), end.clone()].concat().as_bytes());
    let unstated = folder.file("unstated.log", end.as_bytes());
    // Of which server the second one is, is not known.
    for (log, expected) in [(&stated, [3, 1, 0]), (&unstated, [3, 0, 1])] {
        for flags in ["", "--threads 3"] {
            let output = read(&wire, &format!("--json --log {} {flags}", log.display()));
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let summary = lines(&output).pop().unwrap();
            let [coverage, totals] = [&summary["coverage"], &summary["totals"]];
            let found = [&coverage["requests_answered"], &totals["unanswered"], &totals["in_flight"]];
            assert_eq!(found.map(|one| one.as_u64().unwrap()), expected, "{log:?} {flags}");
        }
    }
    // A replay knows the port of each log.
    for (log, flags) in [(&stated, ""), (&unstated, "--port 27017")] {
        let store = folder.path(&format!("store{}", flags.len()));
        let words = format!("agent --json {flags} --store {} --replay", store.display());
        let output = run(&format!("{words} {} {}", wire.display(), log.display()));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let store = SqliteHistory::open(&store).unwrap();
        let all = store.read(store.extent().unwrap().unwrap()).unwrap().unwrap().window;
        let unanswered = all.totals(&Class::ALL).unanswered;
        assert_eq!((all.coverage.requests_answered, unanswered), (3, 1), "{log:?}");
    }
}

#[test]
fn ends_that_there_is_no_room_for_are_said_for_each_log() {
    let folder = Folder::new("logged-ends-many");
    let (wire, asked) = two_servers(&folder);
    let mut many = String::new();
    for n in 0..MAX_CONNECTIONS + 2 {
        write!(many, "{}", ended(1 + n % 50_000, asked)).unwrap();
    }
    let end = ended(51_234, asked.plus_ns(5 * SECOND));
    let many = folder.file("many.log", many.as_bytes());
    let last = folder.file("last.log", [started(asked), end].concat().as_bytes());
    let output = read(&wire, &format!("--json --log {} --log {}", many.display(), last.display()));
    let said = text(&output.stderr);
    assert!(said.contains("many.log: the ends of 2 connections are left out"), "{said}");
    assert!(!said.contains("last.log"), "{said}");
    assert_eq!(lines(&output).pop().unwrap()["totals"]["unanswered"], 1, "the other log has room of its own");
}
