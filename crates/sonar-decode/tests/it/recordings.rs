//! The driver as oracle: what the decoder finds on a recorded wire is compared with what the driver itself recorded
//! at the same time, request id by request id.

use std::collections::{HashMap, HashSet};

use crate::support::{Recorded, Seen, operations, packets};
use serde_json::Value;
use sonar_core::{Class, Role};
use sonar_decode::testing::fixtures::inflated;

fn commands(recording: &str) -> Vec<Value> {
    let text = String::from_utf8(inflated(&format!("{recording}/driver.jsonl.gz"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Joins the driver's commands with the decoder's; every difference is a line.
fn differences(commands: &[Value], seen: &[Seen]) -> Vec<String> {
    // Request ids are random; an id may occur on two connections, so port, command and id together.
    let mut by_id: HashMap<(u32, &str), Vec<&Seen>> = HashMap::new();
    for op in seen {
        by_id.entry((op.request_id, op.command.as_str())).or_default().push(op);
    }
    let mut wrong = Vec::new();
    for command in commands {
        let name = command["command"].as_str().unwrap();
        let id = command["request_id"].as_i64().unwrap() as u32;
        let port: u16 = command["server"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
        let Some(op) = by_id.get(&(id, name)).and_then(|ops| ops.iter().find(|op| op.port == port)) else {
            wrong.push(format!("missing: {command}"));
            continue;
        };
        let mut expect = |what: &str, same: bool| {
            if !same {
                wrong.push(format!("{what}: {command} seen {op:?}"));
            }
        };
        let namespace = command["ns"].as_str().unwrap();
        let (database, collection) = namespace.split_once('.').unwrap();
        let on_collection = collection.parse::<i64>().is_err() && !collection.starts_with('[');
        expect("namespace", op.namespace == if on_collection { namespace } else { database });
        let us = command["us"].as_u64().unwrap();
        expect("latency above the driver's", op.latency_ns.is_none_or(|ns| ns <= (us + 1) * 1_000));
        expect("application", op.app == command["client"].as_str().unwrap());
        let (outcome, n) = (command["outcome"].as_str().unwrap(), command["n"].as_u64());
        let codes: u32 = op.codes.iter().map(|(_, count)| count).sum();
        match (outcome, command["writeErrors"].as_array()) {
            ("failed", _) => {
                expect("code", op.codes == [(command["code"].as_i64().unwrap() as i32, 1)]);
            }
            (_, Some(errors)) => expect("write errors", codes as usize == errors.len()),
            // An unacknowledged write is ok for the driver at once.
            _ if command["n"].is_null() && matches!(name, "update" | "insert" | "delete") => {
                expect("unacknowledged", op.outcome == "unacknowledged" && op.latency_ns.is_none());
            }
            // Dropping a missing collection: the server answers NamespaceNotFound, and this driver ignores it.
            _ if name == "drop" => expect("outcome of drop", op.outcome == "ok" || op.codes == [(26, 1)]),
            _ => expect("outcome", op.outcome == "ok"),
        }
        if let Some(docs) = command["docs"].as_u64() {
            expect("documents", op.returned == Some(docs));
        }
        if n.is_some() {
            expect("n", op.matched == n);
        }
        if let Some(modified) = command["nModified"].as_u64() {
            expect(
                "nModified",
                op.affected
                    .is_some_and(|affected| affected >= modified && affected <= n.unwrap_or(0).max(modified)),
            );
        }
        match command["cursor"].as_i64() {
            Some(0) | None => {}
            Some(cursor) => expect("cursor", op.cursor == Some(cursor)),
        }
    }
    wrong
}

fn count(seen: &[Seen], command: &str) -> usize {
    seen.iter().filter(|op| op.command == command).count()
}

#[test]
fn the_mixed_recording_is_what_the_driver_recorded() {
    let (seen, coverage) = operations(&packets("mongod-4.0-mixed"));
    let commands = commands("mongod-4.0-mixed");
    assert_eq!(commands.len(), 4_206);
    let wrong = differences(&commands, &seen);
    assert!(wrong.is_empty(), "{} differences, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    // None extra: the driver does not report handshakes, monitoring and handmade messages.
    for name in ["aggregate", "findAndModify", "distinct", "count", "commitTransaction", "noSuchCommand"] {
        let told = commands.iter().filter(|command| command["command"] == name).count();
        assert_eq!(count(&seen, name), told, "{name}");
    }
    let losses: Vec<_> = coverage.losses().collect();
    assert!(losses.is_empty(), "{losses:?}");
}

#[test]
fn the_sharded_recording_is_what_the_driver_recorded() {
    let (seen, coverage) = operations(&packets("mongod-4.0-sharded"));
    let commands = commands("mongod-4.0-sharded");
    assert_eq!(commands.len(), 1_567);
    let wrong = differences(&commands, &seen);
    assert!(wrong.is_empty(), "{} differences, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    // Seen at its server, a user's operation is served once: what mongos passes on is issued.
    let users = seen.iter().filter(|op| op.class == Class::User && op.role == Role::Served).count();
    let told = commands.len();
    assert!(users >= told && users - told < 40, "{users} served for {told} of the driver");
    assert!(seen.iter().any(|op| op.role == Role::Issued && op.port == 27_218 && op.class == Class::User));
    assert!(seen.iter().any(|op| op.class == Class::Replication));
    assert_eq!(coverage.gaps, 0);
}

#[test]
fn the_fetch_of_the_oplog_that_began_before_the_capture_is_replication_and_no_loss() {
    let (seen, coverage) = operations(&packets("mongod-4.4-oplog"));
    let commands = commands("mongod-4.4-oplog");
    assert_eq!(commands.len(), 177);
    let wrong = differences(&commands, &seen);
    assert!(wrong.is_empty(), "{} differences, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    let losses: Vec<_> = coverage.losses().collect();
    assert!(losses.is_empty(), "{losses:?}");
    // Counted by headers: on this connection the server sent 51 messages, 55,136 bytes in all, each in reply to the
    // one before.
    let fetched: Vec<_> = seen.iter().filter(|op| (op.port, op.client) == (27_117, 44_408)).collect();
    assert_eq!((fetched.len(), coverage.replies_exhaust), (51, 51));
    assert_eq!(fetched.iter().map(|op| op.bytes[1]).sum::<u64>(), 55_136);
    for (n, op) in fetched.iter().enumerate() {
        assert_eq!((op.class, op.role, op.outcome), (Class::Replication, Role::Issued, "ok"));
        assert_eq!((op.command.as_str(), op.namespace.as_str()), ("getMore", "local.oplog.rs"));
        assert!(op.returned.is_some() && op.latency_ns.is_some() == (n > 0), "{op:?}");
    }
}

#[test]
fn one_missing_frame_is_noticed() {
    let all = packets("mongod-4.0-mixed");
    let commands = commands("mongod-4.0-mixed");
    // The frame of a find in the middle of the recording.
    let find = all
        .iter()
        .enumerate()
        .skip(all.len() / 2)
        .find(|(_, packet)| packet.data.windows(5).any(|bytes| bytes == b"find\0"))
        .unwrap()
        .0;
    let mut without = all.clone();
    without.remove(find);
    let (seen, coverage) = operations(&without);
    assert!(!differences(&commands, &seen).is_empty());
    assert!(coverage.gaps > 0 || coverage.replies_orphan > 0, "a loss must be counted");
}

/// The two ports of a packet, sorted: in this recording they name its connection.
fn ports(packet: &Recorded) -> [u16; 2] {
    let data = &packet.data;
    let tcp = if data[12..14] == [0x86, 0xdd] { 54 } else { 14 + usize::from(data[14] & 15) * 4 };
    let port = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    let mut ports = [port(tcp), port(tcp + 2)];
    ports.sort_unstable();
    ports
}

/// The packet as two, its payload split after `at` bytes (unchanged if it has no more than that).
fn split(packet: &Recorded, at: usize) -> Vec<Recorded> {
    let data = &packet.data;
    let (ip, v6) = (14, data[12..14] == [0x86, 0xdd]);
    let tcp = if v6 { ip + 40 } else { ip + usize::from(data[ip] & 15) * 4 };
    let length = |at: usize| usize::from(u16::from_be_bytes([data[at], data[at + 1]]));
    let end = if v6 { ip + 40 + length(ip + 4) } else { ip + length(ip + 2) };
    let payload = tcp + usize::from(data[tcp + 12] >> 4) * 4;
    if payload + at >= end || at == 0 {
        return vec![packet.clone()];
    }
    let part = |from: usize, to: usize| {
        let mut part = [&data[..payload], &data[payload + from..payload + to]].concat();
        let size = (part.len() - ip - if v6 { 40 } else { 0 }) as u16;
        let field = if v6 { ip + 4 } else { ip + 2 };
        part[field..field + 2].copy_from_slice(&size.to_be_bytes());
        let seq = u32::from_be_bytes(data[tcp + 4..tcp + 8].try_into().unwrap()).wrapping_add(from as u32);
        part[tcp + 4..tcp + 8].copy_from_slice(&seq.to_be_bytes());
        Recorded { time: packet.time, data: part, cut: 0 }
    };
    vec![part(0, at), part(at, end - payload)]
}

fn split_all(packets: &[Recorded], at: impl Fn(usize) -> usize) -> Vec<Recorded> {
    packets.iter().enumerate().flat_map(|(number, packet)| split(packet, at(number))).collect()
}

#[test]
fn messages_split_at_every_point_give_the_same_operations() {
    let all = packets("mongod-4.0-mixed");
    // Only whole connections of small packets: with more segments, a missing packet would be given up at another
    // time.
    let large: HashSet<[u16; 2]> =
        all.iter().filter(|packet| packet.data.len() >= 4_000).map(ports).collect();
    let small: Vec<Recorded> =
        all.iter().filter(|packet| !large.contains(&ports(packet))).take(2_400).cloned().collect();
    let (expected, _) = operations(&small);
    assert!(expected.len() > 500);
    // Each point of the headers and of the first fields; then some of those that are left.
    let rest = if std::env::var_os("LONG").is_some() { 1 } else { 5 };
    for at in (1..=64).chain((65..=320).step_by(rest)) {
        let (seen, _) = operations(&split_all(&small, |_| at));
        let first = seen.iter().zip(&expected).find(|(seen, expected)| seen != expected);
        assert!(seen == expected, "split after {at}: {first:#?}");
    }
}

#[test]
fn long_messages_split_anywhere_give_the_same_operations() {
    let all = packets("mongod-4.0-mixed");
    let (expected, _) = operations(&all);
    for seed in 1..=6usize {
        // A different point in each packet, from its first bytes to far into it.
        let at =
            |number: usize| (number * 7_919 + seed * 104_729) % [17, 300, 5_000, 60_000][(number + seed) % 4];
        let (seen, _) = operations(&split_all(&all, at));
        let first = seen.iter().zip(&expected).find(|(seen, expected)| seen != expected);
        assert!(seen == expected, "seed {seed}: {first:#?}");
    }
}
