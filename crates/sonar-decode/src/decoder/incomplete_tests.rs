//! Tests of incomplete captures: cut packets, one direction only, a missing end of a connection.

use std::sync::Arc;

use bson::{Document, doc};
use sonar_core::{Coverage, InFlightOperations, Operation, Outcome};

use super::collected::message;
use super::pairing::MAX_PENDING;
use super::{Decoder, Settings, Sink};
use crate::Shared;
use crate::testing::{Conversation, ConversationEnd, OwnedPacket};

const CLIENT: ConversationEnd = ConversationEnd::Client;
const SERVER: ConversationEnd = ConversationEnd::Server;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Ethernet, IPv4, and TCP with time stamps.
const HEADERS: usize = 14 + 20 + 32;

/// Command, namespace, shape, latency in milliseconds, outcome.
type SeenOperation = (String, String, String, Option<u64>, &'static str);

#[derive(Default)]
struct All(Vec<SeenOperation>);

impl Sink for All {
    fn operation(&mut self, op: &Operation<'_>) {
        let shape = op.shape;
        let latency = op.latency_ns.map(|ns| ns / MS);
        self.0.push((
            op.command.into(),
            shape.namespace(),
            shape.plain.to_string(),
            latency,
            op.outcome.name(),
        ));
    }
}

/// Decodes packets as a file with them is decoded.
fn decode<'a>(
    packets: impl IntoIterator<Item = &'a OwnedPacket>,
) -> (Vec<SeenOperation>, Coverage, Vec<InFlightOperations>) {
    let (mut decoder, mut all) =
        (Decoder::new(Settings::default(), Arc::new(Shared::default())), All::default());
    let (mut last, mut second) = (None, 0);
    for packet in packets {
        if packet.time.unix_ns() / SECOND > second {
            second = packet.time.unix_ns() / SECOND;
            decoder.tick(packet.time, &mut all);
        }
        decoder.packet(&packet.as_packet(), &mut all);
        last = Some(packet.time);
    }
    assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    let in_flight = decoder.finish(last.unwrap(), &mut all);
    let coverage = decoder.coverage();
    assert_eq!(coverage.imbalances(decoder.in_progress()), []);
    let count: u64 = in_flight.iter().map(|of| of.count).sum();
    assert_eq!(count, coverage.requests_in_flight, "one figure: {coverage:?}");
    (all.0, coverage, in_flight)
}

fn talk(joined_late: bool) -> Conversation {
    let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
    talk.template.tcp_options = vec![1; 12];
    if !joined_late {
        talk.handshake();
    }
    talk
}

fn find(n: u32) -> Document {
    doc! {"find": "orders", "filter": {"customer": n, "state": "open", "city": "Aachen"}, "lsid": {"id": 7}, "$db": "shop"}
}

fn found() -> Document {
    let order = doc! {"_id": 1, "customer": 17, "state": "open", "lines": "x".repeat(300)};
    doc! {"cursor": {"firstBatch": [order], "id": 0_i64, "ns": "shop.orders"}, "ok": 1.0}
}

/// Eleven finds, each of which takes 5 ms.
fn finds(joined_late: bool) -> Conversation {
    let mut talk = talk(joined_late);
    for id in 1..=11 {
        talk.send(CLIENT, &message(id, 0, &find(id))).wait(5 * MS);
        talk.send(SERVER, &message(100 + id, id, &found())).ack(CLIENT).wait(500 * MS);
    }
    talk
}

fn cut(mut talk: Conversation, bytes: usize) -> Vec<OwnedPacket> {
    talk.packets.iter_mut().for_each(|packet| packet.snap(bytes));
    talk.packets
}

#[test]
fn what_is_inside_a_cut_gives_commands_collections_and_latencies() {
    for joined_late in [false, true] {
        for bytes in [128, 160, 200] {
            let (seen, coverage, _) = decode(&cut(finds(joined_late), bytes));
            assert_eq!(seen.len(), 11, "{bytes} {joined_late} {coverage:?}");
            for (command, namespace, shape, latency, outcome) in &seen {
                assert_eq!((&**command, &**shape), ("find", "(partial)"), "{bytes}");
                assert!(namespace.ends_with("orders"), "{namespace}");
                assert_eq!((*latency, *outcome), (Some(5), "unknown"));
            }
            let (cut, all) = (coverage.frames_snapped, coverage.frames_snapped_bytes);
            assert_eq!((cut, all), (22, 22 * bytes as u64), "requests and replies");
            assert_eq!(coverage.messages_partial, 22);
            assert_eq!((coverage.requests_answered, coverage.replies_orphan), (11, 0));
        }
    }
}

#[test]
fn a_request_that_is_cut_in_several_packets_is_one_request() {
    let mut talk = talk(false).with_mss(100);
    for id in 1..=3 {
        talk.send(CLIENT, &message(id, 0, &find(id))).wait(5 * MS);
        talk.send(SERVER, &message(100 + id, id, &found())).ack(CLIENT).wait(500 * MS);
    }
    let (seen, coverage, _) = decode(&cut(talk, 64 + HEADERS));
    let latencies: Vec<_> = seen.iter().map(|one| one.3).collect();
    assert_eq!(latencies, [Some(5); 3], "from the last packet of the request to the first of the reply");
    assert_eq!((coverage.requests, coverage.messages_partial), (3, 6));
}

#[test]
fn whole_messages_between_cut_ones_are_exact_and_a_long_insert_is_partial() {
    let mut talk = talk(false);
    let documents: Vec<Document> = (0..60).map(|n| doc! {"_id": n, "text": "x".repeat(400)}).collect();
    talk.send(CLIENT, &message(1, 0, &doc! {"ping": 1, "$db": "admin"}));
    talk.send(SERVER, &message(101, 1, &doc! {"ok": 1.0}));
    talk.send(CLIENT, &message(2, 0, &doc! {"insert": "orders", "documents": documents, "$db": "shop"}));
    talk.send(SERVER, &message(102, 2, &doc! {"n": 60, "ok": 1.0}));
    let (seen, coverage, _) = decode(&cut(talk, 64 + HEADERS));
    let shapes: Vec<_> = seen.iter().map(|one| (&*one.0, &*one.2, one.4)).collect();
    assert_eq!(shapes, [("ping", "{}", "ok"), ("insert", "(partial)", "ok")]);
    assert_eq!(coverage.messages_partial, 1);
}

#[test]
fn packets_cut_before_the_message_are_counted_with_their_length() {
    for bytes in [68, 60] {
        let (seen, coverage, _) = decode(&cut(finds(false), bytes));
        assert_eq!((seen.len(), coverage.requests), (0, 0));
        assert_eq!(coverage.frames_snapped_bytes, coverage.frames_snapped * bytes as u64);
        assert_eq!(coverage.frames_snapped, 22);
    }
    // Inside the TCP header.
    let (_, coverage, _) = decode(&cut(finds(false), 40));
    assert_eq!(coverage.frames_snapped_bytes, 40 * coverage.frames_snapped);
    assert_eq!(coverage.frames_snapped, coverage.frames_header_truncated);
}

#[test]
fn a_command_whose_collection_is_cut_is_known_and_a_header_alone_is_a_call() {
    let commands = [
        doc! {"find": "orders", "filter": {"a": 1}, "$db": "shop"},
        doc! {"update": "carts", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}], "$db": "shop"},
        doc! {"aggregate": "orders", "pipeline": [{"$match": {"a": 1}}], "cursor": {}, "$db": "shop"},
        doc! {"findAndModify": "orders", "query": {"a": 1}, "remove": true, "$db": "shop"},
        doc! {"getMore": 5_i64, "collection": "orders", "$db": "shop"},
        doc! {"secretOf": "orders", "a": "x".repeat(100), "$db": "shop"},
    ];
    // Ethernet, IPv4, TCP; header, flags, kind and the length of the command; what is left for it.
    for (time_stamps, bytes, names_the_command) in
        [(0, 96, true), (12, 108, true), (12, 96, false), (0, 82, false), (0, 70, false)]
    {
        let mut talk = talk(false);
        talk.template.tcp_options = vec![1; time_stamps];
        for (n, command) in commands.iter().enumerate() {
            let id = 1 + n as u32;
            talk.send(CLIENT, &message(id, 0, command)).wait(5 * MS);
            talk.send(SERVER, &message(100 + id, id, &found())).ack(CLIENT).wait(500 * MS);
        }
        let (seen, coverage, _) = decode(&cut(talk, bytes));
        let case = format!("{time_stamps} {bytes} {coverage:?}");
        let names: Vec<_> = seen.iter().map(|one| &*one.0).collect();
        let known = ["find", "update", "aggregate", "findAndModify", "getMore", "?"];
        assert_eq!(names, if names_the_command { known } else { ["?"; 6] }, "{case}");
        assert!(seen.iter().all(|one| &*one.2 == "(partial)" && one.3 == Some(5)), "{case} {seen:?}");
        assert!(seen.iter().all(|one| !one.1.contains("secret")), "{seen:?}");
        assert_eq!((coverage.requests, coverage.requests_answered), (6, 6), "{case}");
        assert_eq!((coverage.replies_orphan, coverage.messages_partial), (0, 12), "{case}");
    }
}

/// A message of the protocol before OP_MSG.
fn legacy_message(ids: [u32; 2], opcode: u32, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let header = [body.len() as u32 + 16, ids[0], ids[1], opcode].map(u32::to_le_bytes);
    [header.concat(), body].concat()
}

/// Outcome, error codes, and documents that were matched or affected.
type SeenOutcome = (&'static str, Vec<(i32, u32)>, Option<u64>);

/// With their commands.
#[derive(Default)]
struct Outcomes(Vec<(String, SeenOutcome)>);

impl Sink for Outcomes {
    fn operation(&mut self, op: &Operation<'_>) {
        let codes = match op.outcome {
            Outcome::Failed(failed) => failed.codes.to_vec(),
            _ => Vec::new(),
        };
        let documents = op.docs_matched.or(op.docs_affected);
        self.0.push((op.command.into(), (op.outcome.name(), codes, documents)));
    }
}

/// A write, then its getLastError and the reply to that, of which this many bytes of the messages are captured.
fn write_with_last_error(last_error: usize, reply: usize) -> (Outcomes, Coverage) {
    let document = doc! {"_id": 1}.to_vec().unwrap();
    let asked = doc! {"getlasterror": 1, "w": 1}.to_vec().unwrap();
    let answered = doc! {"connectionId": 7, "n": 0, "err": "E11000 duplicate key", "code": 11000, "ok": 1.0};
    let mut talk = talk(false);
    let insert = legacy_message([1, 0], 2002, &[&[0; 4], b"shop.orders\0", &document]);
    let numbers = [0_i32, -1].map(i32::to_le_bytes).concat();
    let ask = legacy_message([2, 0], 2004, &[&[0; 4], b"shop.$cmd\0", &numbers, &asked]);
    let begin = [8_i32, 0, 0, 0, 1].map(i32::to_le_bytes).concat();
    let answer = legacy_message([102, 2], 1, &[&begin, &answered.to_vec().unwrap()]);
    talk.send(CLIENT, &insert);
    talk.send(CLIENT, &ask).packets.last_mut().unwrap().snap(HEADERS + last_error);
    talk.wait(5 * MS).send(SERVER, &answer).packets.last_mut().unwrap().snap(HEADERS + reply);
    // What is asked next is answered by its own reply.
    talk.send(CLIENT, &message(3, 0, &find(3))).wait(5 * MS);
    talk.send(SERVER, &message(103, 3, &found()));
    let (mut decoder, mut seen) =
        (Decoder::new(Settings::default(), Arc::new(Shared::default())), Outcomes::default());
    talk.packets.iter().for_each(|packet| decoder.packet(&packet.as_packet(), &mut seen));
    decoder.finish(talk.now(), &mut seen);
    let coverage = decoder.coverage();
    assert_eq!(coverage.imbalances(decoder.in_progress()), []);
    (seen, coverage)
}

#[test]
fn a_write_whose_last_error_is_only_a_header_is_neither_unacknowledged_nor_right() {
    let failed = ("failed", vec![(11_000, 1)], None);
    let unknown = ("unknown", vec![], None);
    let whole = 1_000;
    for (last_error, reply, expected, partial) in [
        (whole, whole, vec![("insert", failed.clone())], 0),
        (16, whole, vec![("insert", unknown.clone()), ("?", failed)], 1),
        // The flags, and the namespace.
        (40, 16, vec![("insert", unknown.clone()), ("?", unknown.clone())], 2),
        (16, 16, vec![("insert", unknown.clone()), ("?", unknown)], 2),
    ] {
        let (seen, coverage) = write_with_last_error(last_error, reply);
        let mut seen: Vec<_> = seen.0.iter().map(|(name, outcome)| (&**name, outcome.clone())).collect();
        let find = seen.pop().map(|one| (one.0, one.1.0));
        assert_eq!(find, Some(("find", "ok")), "{last_error} {reply} {coverage:?}");
        assert_eq!(seen, expected, "{last_error} {reply} {coverage:?}");
        assert_eq!((coverage.messages_partial, coverage.requests_unacknowledged), (partial, 0));
        assert_eq!((coverage.replies_orphan, coverage.requests_folded), (0, u64::from(partial == 0)));
    }
}

/// The packets of one direction.
fn from(talk: &Conversation, client: bool) -> Vec<OwnedPacket> {
    // The client's port stands at the place of the source in its packets.
    let is_clients = |packet: &&OwnedPacket| packet.data[34..36] == 40_000_u16.to_be_bytes();
    talk.packets.iter().filter(|packet| is_clients(packet) == client).cloned().collect()
}

#[test]
fn requests_alone_are_not_in_flight() {
    for joined_late in [false, true] {
        let (seen, coverage, in_flight) = decode(&from(&finds(joined_late), true));
        assert_eq!((seen.len(), in_flight.len()), (11, 0), "{joined_late} {coverage:?}");
        assert!(seen.iter().all(|one| one.4 == "unknown" && one.3.is_none()), "{seen:?}");
        assert_eq!((coverage.streams_one_way, coverage.replies, coverage.requests_reply_lost), (1, 0, 11));
    }
}

/// Requests of several connections, each 10 s after the one before. Only packets of the client are captured.
fn requests_alone(connections: u16, requests: u32, joined_late: bool) -> Vec<OwnedPacket> {
    let mut packets = Vec::new();
    let mut now = None;
    for n in 0..connections {
        let mut talk = Conversation::new(&format!("10.0.0.2:{}", 41_000 + n), "10.0.0.1:27017")
            .with_seq(1_000_000 * (1 + u32::from(n)), 77_000_000 * (1 + u32::from(n)));
        if let Some(now) = now {
            talk = talk.with_time(now);
        }
        if !joined_late {
            talk.handshake();
        }
        for id in 1..=requests {
            talk.send(CLIENT, &message(id, 0, &find(id))).wait(5 * MS);
            talk.send(SERVER, &message(100 + id, id, &found())).wait(10 * SECOND);
        }
        now = Some(talk.now());
        let source = (41_000 + n).to_be_bytes();
        packets.extend(talk.packets.into_iter().filter(|packet| packet.data[34..36] == source));
    }
    packets
}

#[test]
fn few_requests_alone_are_not_in_flight_either() {
    for joined_late in [false, true] {
        for (connections, requests) in [(1, 1), (1, 2), (3, 2), (3, 4), (3, 6), (3, 8), (24, 1)] {
            let case = format!("{connections} x {requests}, {joined_late}");
            let (seen, coverage, in_flight) = decode(&requests_alone(connections, requests, joined_late));
            assert_eq!((in_flight.len(), coverage.requests_in_flight), (0, 0), "{case} {coverage:?}");
            assert_eq!(coverage.streams_one_way, u64::from(connections), "{case}");
            assert!(seen.iter().all(|one| one.4 == "unknown"), "{case} {seen:?}");
            // A search found the first request of one joined late, and nothing confirms it until the next.
            let lost = coverage.requests_reply_lost + coverage.requests_discarded;
            assert_eq!(lost, u64::from(connections) * u64::from(requests), "{case}");
            assert!(coverage.requests_discarded == 0 || (joined_late && requests == 1), "{case}");
        }
    }
}

#[test]
fn more_requests_alone_than_may_wait_have_lost_their_replies() {
    let more = 300;
    let requests = MAX_PENDING as u32 + more;
    for joined_late in [false, true] {
        let mut talk = talk(joined_late);
        for id in 1..=requests {
            talk.send(CLIENT, &message(id, 0, &find(id))).wait(1_000);
        }
        let (seen, coverage, in_flight) = decode(&from(&talk, true));
        assert_eq!((seen.len() as u32, in_flight.len()), (requests, 0), "{joined_late} {coverage:?}");
        assert!(seen.iter().all(|one| one.4 == "unknown"), "{joined_late}");
        let lost = (coverage.requests_reply_lost, coverage.requests_evicted);
        assert_eq!(lost, (u64::from(requests), 0), "{joined_late} {coverage:?}");
        assert_eq!(coverage.streams_one_way, 1, "{joined_late}");
        // The server's part of the handshake is captured, so its replies may come.
        if !joined_late {
            let (_, coverage, _) = decode(&talk.packets);
            assert_eq!(coverage.requests_evicted, u64::from(more), "{coverage:?}");
        }
    }
}

#[test]
fn what_the_acknowledgements_and_the_fin_of_a_client_say_of_an_unseen_server() {
    for joined_late in [false, true] {
        for close in [false, true] {
            // Its acknowledgements stand still, or prove that replies went by.
            for answered in [false, true] {
                let mut talk = talk(joined_late);
                for id in 1..=4 {
                    talk.send(CLIENT, &message(id, 0, &find(id))).wait(5 * MS);
                    if answered {
                        talk.send(SERVER, &message(100 + id, id, &found())).ack(CLIENT);
                    }
                    talk.wait(400 * MS);
                }
                if close {
                    talk.fin(CLIENT);
                }
                let (seen, coverage, in_flight) = decode(&from(&talk, true));
                let case = format!("{joined_late} {close} {answered} {coverage:?}");
                assert_eq!((seen.len(), in_flight.len()), (4, 0), "{case}");
                assert_eq!((coverage.streams_one_way, coverage.requests_reply_lost), (1, 4), "{case}");
            }
        }
    }
}

#[test]
fn a_server_that_is_heard_after_all_may_reply_yet() {
    let mut talk = talk(true);
    talk.send(CLIENT, &message(1, 0, &find(1))).wait(400 * MS).send(CLIENT, &message(2, 0, &find(2)));
    // A tick, the acknowledgement of the server, and the next tick.
    talk.wait(900 * MS).ack(CLIENT).wait(300 * MS).ack(SERVER).wait(700 * MS).ack(CLIENT);
    let (_, coverage, in_flight) = decode(&talk.packets);
    assert_eq!(coverage.requests_in_flight, 2, "{coverage:?}");
    assert!(in_flight[0].oldest_ns >= 2 * SECOND);
}

#[test]
fn replies_alone_are_counted_as_one_direction() {
    for joined_late in [false, true] {
        let (_, coverage, _) = decode(&from(&finds(joined_late), false));
        assert_eq!(
            (coverage.streams_one_way, coverage.requests, coverage.replies),
            (1, 0, 11),
            "{joined_late}"
        );
    }
}

#[test]
fn a_request_that_the_server_has_not_answered_yet_is_in_flight_until_it_can_be_no_longer() {
    for joined_late in [false, true] {
        let mut talk = finds(joined_late);
        talk.send(CLIENT, &message(50, 0, &find(50))).ack(SERVER).wait(60 * SECOND).ack(SERVER);
        let (_, coverage, in_flight) = decode(&talk.packets);
        assert_eq!((coverage.requests_in_flight, coverage.streams_one_way), (1, 0), "{joined_late}");
        assert!(in_flight[0].oldest_ns >= 60 * SECOND);
        // The server closes its side.
        let ended = decode(&talk.clone().fin(SERVER).packets).1;
        assert_eq!((ended.requests_in_flight, ended.requests_unanswered), (0, 1));
        // The client closes its side and does not read the reply.
        let ended = decode(&talk.clone().fin(CLIENT).packets).1;
        assert_eq!((ended.requests_in_flight, ended.requests_unanswered), (0, 1));
        let answered = talk.clone().fin(CLIENT).send(SERVER, &message(150, 50, &found())).clone();
        assert_eq!(decode(&answered.packets).1.requests_answered, 12, "it came before the server knew");
        // A reset; a connection with the same ends.
        let ended = decode(&talk.clone().reset(SERVER).packets).1;
        assert_eq!((ended.requests_in_flight, ended.requests_unanswered), (0, 1));
        let mut again = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
        again = again.with_seq(3_000_000_000, 2_000_000_000).with_time(talk.now());
        again.handshake();
        let ended = decode(talk.packets.iter().chain(&again.packets)).1;
        assert_eq!((ended.requests_in_flight, ended.requests_unanswered), (0, 1), "{joined_late}");
    }
}

#[test]
fn the_last_replies_lost_before_the_close_leave_nothing_in_flight() {
    for lost in [1, 2] {
        let mut talk = finds(false);
        for id in 50..50 + lost {
            talk.send(CLIENT, &message(id, 0, &find(id))).wait(5 * MS);
            talk.lose(SERVER, message(100 + id, id, &found()).len());
        }
        talk.close();
        let (seen, coverage, in_flight) = decode(&talk.packets);
        assert_eq!((coverage.requests_in_flight, in_flight.len()), (0, 0), "{lost} {coverage:?}");
        assert_eq!(seen.len() as u32, 11 + lost, "each once");
        assert_eq!(coverage.requests_reply_lost + coverage.requests_unanswered, u64::from(lost));
    }
}
