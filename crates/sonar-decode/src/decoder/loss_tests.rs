//! What becomes of requests and replies that the capture lost: tests of the whole decoder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::{Document, doc};
use proptest::prelude::*;
use sonar_core::{Endpoint, Timestamp};

use super::collected::{Collected, message};
use super::pairing::MAX_PENDING;
use super::{Decoder, EndedClient, EndedServer, Settings};
use crate::Shared;
use crate::testing::{ACK, Conversation, ConversationEnd, RST, SYN};

const SECOND: u64 = 1_000_000_000;

/// A decoder, and what came out of it.
struct LossRun {
    decoder: Decoder,
    seen: Collected,
    now: Timestamp,
}

impl LossRun {
    fn new() -> Self {
        let decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
        Self { decoder, seen: Collected::default(), now: Timestamp::default() }
    }

    /// Takes what the conversation has sent, and lets pass the time that a gap is waited for.
    fn take(&mut self, talk: &mut Conversation) -> &mut Self {
        for packet in talk.packets.drain(..) {
            self.decoder.packet(&packet.as_packet(), &mut self.seen);
        }
        talk.wait(4 * SECOND);
        self.now = talk.now();
        self.decoder.tick(self.now, &mut self.seen);
        assert_eq!(self.decoder.coverage().imbalances(self.decoder.in_progress()), []);
        self
    }

    /// Collections of what is in flight, with the age of each.
    fn in_flight(&self) -> BTreeMap<String, u64> {
        let found = self.decoder.in_flight(self.now);
        found.iter().map(|found| (found.shape.collection.to_string(), found.oldest_ns)).collect()
    }

    fn finish(mut self) -> Collected {
        self.decoder.finish(self.now, &mut self.seen);
        self.seen.coverage = self.decoder.coverage();
        assert_eq!(self.seen.coverage.imbalances(self.decoder.in_progress()), []);
        self.seen
    }
}

fn find(collection: &str) -> Document {
    doc! {"find": collection, "filter": {"a": 1}, "$db": "shop"}
}

fn request(id: u32) -> Vec<u8> {
    message(id, 0, &find(&format!("c{id}")))
}

fn reply(id: u32) -> Vec<u8> {
    message(1_000_000 + id, id, &doc! {"ok": 1.0})
}

fn talk() -> Conversation {
    let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
    talk.handshake();
    talk
}

fn lose(talk: &mut Conversation, from: ConversationEnd, bytes: &[u8]) {
    talk.lose(from, bytes.len());
}

#[test]
fn a_later_reply_retires_the_request_whose_reply_was_lost() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    talk.send(ConversationEnd::Client, &request(1)).wait(SECOND);
    lose(&mut talk, ConversationEnd::Server, &reply(1));
    talk.send(ConversationEnd::Client, &request(2)).wait(SECOND).send(ConversationEnd::Server, &reply(2));
    run.take(&mut talk);
    assert!(run.in_flight().is_empty());
    let seen = run.finish();
    let mut found = seen.operations;
    found.sort();
    assert_eq!(found, [(1, "find".into(), "unknown"), (2, "find".into(), "ok")]);
    let coverage = seen.coverage;
    assert_eq!(
        (coverage.requests_reply_lost, coverage.requests_answered, coverage.requests_in_flight),
        (1, 1, 0)
    );
    assert_eq!(seen.window.totals(&sonar_core::Class::ALL).outcome_unknown, 1);
}

#[test]
fn an_acknowledged_gap_ends_the_request_and_not_the_one_behind_it() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    talk.send(ConversationEnd::Client, &request(1)).wait(SECOND);
    lose(&mut talk, ConversationEnd::Server, &reply(1));
    talk.ack(ConversationEnd::Client);
    run.take(&mut talk);
    assert!(run.in_flight().is_empty(), "an idle connection has nothing in flight");
    talk.send(ConversationEnd::Client, &request(2)).wait(SECOND);
    lose(&mut talk, ConversationEnd::Server, &reply(2));
    // It acknowledges the reply to the second request, and is itself not answered.
    talk.send(ConversationEnd::Client, &request(3));
    let sent = talk.now();
    run.take(&mut talk);
    run.take(&mut talk);
    let age = run.now.since(sent);
    let in_flight = run.in_flight();
    assert_eq!(in_flight.keys().collect::<Vec<_>>(), ["c3"]);
    assert!(in_flight["c3"].abs_diff(age) < SECOND, "{in_flight:?} {age}");
    let seen = run.finish();
    assert_eq!(seen.coverage.requests_reply_lost, 2);
    assert_eq!(seen.coverage.requests_in_flight, 1);
}

/// What is in flight of a client that asks three servers, after another connection to the first one was answered with
/// these flags.
fn in_flight_after(client: &str, flags: u8) -> Vec<String> {
    let mut run = LossRun::new();
    let servers = ["10.0.0.1:27017", "10.0.0.1:27018", "10.0.0.9:27017"];
    for (server, id) in servers.iter().zip(1..) {
        let talk = Conversation::new("10.0.0.2:40000", server);
        let begin = talk.now().max(run.now);
        let mut talk = talk.with_time(begin);
        talk.handshake().send(ConversationEnd::Client, &request(id));
        run.take(&mut talk);
    }
    // The FIN of the first server was lost. Its client connects again.
    let mut again = Conversation::new(client, servers[0]).with_time(run.now);
    again.push(ConversationEnd::Client, SYN, &[]).push(ConversationEnd::Server, flags, &[]);
    run.take(&mut again);
    let left = run.in_flight().into_keys().collect();
    run.finish();
    left
}

#[test]
fn a_server_that_refuses_connections_has_nothing_in_flight() {
    assert_eq!(in_flight_after("10.0.0.2:40001", RST | ACK), ["c2", "c3"]);
    // Which is accepted, and one of another client, to whom a rule may apply.
    assert_eq!(in_flight_after("10.0.0.2:40001", SYN | ACK), ["c1", "c2", "c3"]);
    assert_eq!(in_flight_after("10.0.0.3:40001", RST | ACK), ["c1", "c2", "c3"]);
}

/// A client's attempt to connect once more, which is answered with a RST.
fn refuse(client: &str, server: &str, at: Timestamp) -> Conversation {
    let mut again = Conversation::new(client, server).with_time(at);
    again.push(ConversationEnd::Client, SYN, &[]).push(ConversationEnd::Server, RST | ACK, &[]);
    again
}

#[test]
fn a_server_that_takes_no_new_connections_still_answers_those_that_are_open() {
    let (mut run, mut open) = (LossRun::new(), talk());
    open.send(ConversationEnd::Client, &request(1)).send(ConversationEnd::Client, &request(2));
    run.take(&mut open);
    run.take(&mut refuse("10.0.0.2:40001", "10.0.0.1:27017", open.now()));
    assert!(run.in_flight().is_empty());
    open.wait(SECOND).send(ConversationEnd::Client, &request(3));
    run.take(&mut open);
    assert_eq!(run.in_flight().into_keys().collect::<Vec<_>>(), ["c3"], "it was sent later");
    run.take(open.send(ConversationEnd::Server, &reply(1)));
    assert_eq!(run.in_flight().into_keys().collect::<Vec<_>>(), ["c2", "c3"], "the server runs");
    run.take(open.send(ConversationEnd::Server, &reply(2)));
    let seen = run.finish();
    let ended: Vec<_> = seen.operations.iter().map(|seen| (seen.0, seen.2)).collect();
    assert_eq!(ended, [(1, "ok"), (2, "ok"), (3, "in_flight")]);
    assert_eq!((seen.coverage.streams_joined_late, seen.coverage.segments_duplicate), (0, 0));
    assert_eq!((seen.coverage.requests_answered, seen.coverage.requests_in_flight), (2, 1));
}

#[test]
fn several_servers_may_refuse_connections_at_the_same_time() {
    let mut run = LossRun::new();
    let servers = ["10.0.0.1:27017", "10.0.0.1:27018", "10.0.0.9:27017", "10.0.0.9:27018"];
    for (server, id) in servers.iter().zip(1..) {
        let mut talk = Conversation::new("10.0.0.2:40000", server).with_time(run.now);
        talk.handshake().send(ConversationEnd::Client, &request(id));
        run.take(&mut talk);
    }
    let refused = servers[..3].iter().map(|server| refuse("10.0.0.2:40001", server, run.now));
    let mut together = Conversation::new("10.0.0.2:40009", servers[0]).with_time(run.now);
    together.packets = refused.flat_map(|one| one.packets).collect();
    run.take(&mut together);
    assert_eq!(run.in_flight().into_keys().collect::<Vec<_>>(), ["c4"]);
    let coverage = run.finish().coverage;
    assert_eq!((coverage.requests_unanswered, coverage.requests_in_flight), (3, 1));
}

#[test]
fn a_reset_of_a_connection_that_was_open_is_no_refusal() {
    let mut run = LossRun::new();
    let mut waits = talk();
    waits.send(ConversationEnd::Client, &request(1));
    run.take(&mut waits);
    let mut other = Conversation::new("10.0.0.2:40001", "10.0.0.1:27017").with_time(run.now);
    other.handshake().reset(ConversationEnd::Server);
    run.take(&mut other);
    assert_eq!(run.in_flight().len(), 1);
}

#[test]
fn what_is_in_flight_on_a_server_ends_with_its_process() {
    let mut run = LossRun::new();
    let address = "10.0.0.1".parse().unwrap();
    let ask = |run: &mut LossRun, server: &str, id: u32| {
        let talk = Conversation::new(&format!("10.0.0.2:{}", 40_000 + id), server);
        let begin = talk.now().max(run.now);
        let mut talk = talk.with_time(begin);
        talk.handshake().send(ConversationEnd::Client, &request(id));
        run.take(&mut talk);
    };
    let others = ["10.0.0.1:27018", "10.0.0.9:27017"];
    for (server, id) in ["10.0.0.1:27017", "127.0.0.1:27017"].iter().chain(&others).zip(1..) {
        ask(&mut run, server, id);
    }
    // No FIN was captured. The next process serves the port before anybody notices.
    let ended = run.now.plus_ns(SECOND);
    run.now = ended.plus_ns(SECOND);
    ask(&mut run, "10.0.0.1:27017", 5);
    assert_eq!(run.in_flight().len(), 5);
    // A server in a container, which has an address of its own and the same port.
    let contained = EndedServer {
        port: 27_017,
        addresses: ["10.0.0.7".parse().unwrap()].into(),
        has_loopback: false,
        at: ended,
    };
    run.decoder.server_ended(contained.clone());
    run.decoder.tick(run.now, &mut run.seen);
    assert_eq!(run.in_flight().len(), 5, "it is another one");
    let server = EndedServer { addresses: [address].into(), has_loopback: true, ..contained.clone() };
    // Both end before the next tick.
    run.decoder.server_ended(server);
    run.decoder.server_ended(contained);
    run.decoder.tick(run.now, &mut run.seen);
    assert_eq!(run.in_flight().into_keys().collect::<Vec<_>>(), ["c3", "c4", "c5"]);
    let coverage = run.finish().coverage;
    assert_eq!((coverage.requests, coverage.requests_in_flight), (5, 3));
}

#[test]
fn what_is_in_flight_ends_with_the_connection_that_a_log_says_has_ended() {
    let mut run = LossRun::new();
    let ask = |run: &mut LossRun, id: u32| {
        let talk = Conversation::new(&format!("10.0.0.2:{}", 40_000 + id), "10.0.0.1:27017");
        let begin = talk.now().max(run.now);
        let mut talk = talk.with_time(begin);
        talk.handshake().send(ConversationEnd::Client, &request(id));
        run.take(&mut talk);
        talk
    };
    let mut talks: Vec<_> = (1..=4).map(|id| ask(&mut run, id)).collect();
    let client = |id: u16| Endpoint::v4([10, 0, 0, 2], 40_000 + id);
    let later = run.now.plus_ns(SECOND);
    // The log says it of the third connection, too, but a packet of it is later: it is the next one from that port. And
    // that of the fourth is later than what was read.
    let ended = [(1, later), (3, later), (4, later.plus_ns(60 * SECOND)), (9, later)];
    run.decoder.clients_ended(ended.map(|(id, at)| EndedClient {
        client: client(id),
        server_port: Some(27_017),
        host: None,
        at,
    }));
    talks[2].wait(20 * SECOND);
    talks[2].send(ConversationEnd::Client, &request(5));
    run.take(&mut talks.remove(2));
    assert_eq!(run.in_flight().into_keys().collect::<Vec<_>>(), ["c2", "c3", "c4", "c5"]);
    let seen = run.finish();
    assert_eq!((seen.coverage.requests, seen.coverage.requests_in_flight), (5, 4));
}

#[test]
fn what_a_server_sent_before_it_ended_is_read_first() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    talk.send(ConversationEnd::Client, &request(1));
    run.take(&mut talk);
    let address = "10.0.0.1".parse().unwrap();
    let at = run.now.plus_ns(2 * SECOND);
    let server = EndedServer { port: 27_017, addresses: [address].into(), has_loopback: true, at };
    run.decoder.server_ended(server);
    talk.send(ConversationEnd::Server, &reply(1)).send(ConversationEnd::Client, &request(2));
    // Up to the time of the end, and up to a later time.
    let mut left = Vec::new();
    for _ in 0..2 {
        run.take(&mut talk);
        left.push(run.in_flight().into_keys().collect::<Vec<_>>());
    }
    assert_eq!(left.last(), Some(&Vec::new()), "{left:?}");
    assert_eq!(run.finish().coverage.requests_answered, 1);
}

/// A reply to one of these may begin a chain; one that was cut does not show whether it does.
fn may_begin_a_chain() -> [Document; 2] {
    [
        doc! {"getMore": 5_i64, "collection": "orders", "$db": "shop"},
        doc! {"hello": 1, "maxAwaitTimeMS": 10_000, "topologyVersion": {"counter": 6_i64}, "$db": "admin"},
    ]
}

/// A reply of which the capture has only the beginning.
fn send_cut(talk: &mut Conversation, id: u32) {
    talk.send(ConversationEnd::Server, &message(1_000_000 + id, id, &doc! {"ok": 1.0, "x": "y".repeat(200)}));
    talk.packets.last_mut().unwrap().snap(54 + 60);
}

#[test]
fn behind_a_reply_that_was_cut_a_lost_reply_ends_its_request() {
    for first in may_begin_a_chain() {
        for pipelined in [false, true] {
            let (mut run, mut talk) = (LossRun::new(), talk());
            talk.send(ConversationEnd::Client, &message(1, 0, &first));
            if !pipelined {
                send_cut(talk.wait(SECOND), 1);
            }
            talk.wait(SECOND).send(ConversationEnd::Client, &request(2)).wait(SECOND);
            if pipelined {
                send_cut(&mut talk, 1);
            }
            lose(&mut talk, ConversationEnd::Server, &reply(2));
            talk.ack(ConversationEnd::Client);
            run.take(&mut talk);
            assert!(run.in_flight().is_empty(), "{first} {pipelined}");
            run.take(talk.ack(ConversationEnd::Client));
            let outcomes: Vec<_> = run.seen.operations.iter().map(|seen| (seen.0, seen.2)).collect();
            assert_eq!(outcomes, [(1, "unknown"), (2, "unknown")], "it is reported as soon as it is known");
            let coverage = run.finish().coverage;
            assert_eq!((coverage.requests_reply_lost, coverage.requests_in_flight), (1, 0));
        }
    }
}

#[test]
fn a_reply_answers_a_request_rather_than_continue_a_chain() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    let [_, hello] = may_begin_a_chain();
    let mut more = message(7, 1, &doc! {"isWritablePrimary": true, "ok": 1.0});
    more[16] = 2; // moreToCome
    talk.send(ConversationEnd::Client, &message(1, 0, &hello)).send(ConversationEnd::Server, &more);
    // The client's identifier is by chance the one of the server's reply.
    talk.send(ConversationEnd::Client, &request(6)).send(ConversationEnd::Client, &request(7));
    for (id, response_to) in [(8, 7), (9, 6)] {
        talk.send(ConversationEnd::Server, &message(id, response_to, &doc! {"ok": 1.0}));
    }
    run.take(&mut talk);
    let outcomes: Vec<_> = run.seen.operations.iter().map(|seen| (seen.0, seen.2)).collect();
    assert_eq!(outcomes, [(1, "ok"), (7, "ok"), (6, "ok")]);
    assert_eq!(run.finish().coverage.requests_answered, 3);
}

#[test]
fn a_connection_that_loses_every_reply_does_not_go_blind() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    let many = 2 * MAX_PENDING as u32;
    for id in 1..=many {
        talk.send(ConversationEnd::Client, &request(id)).wait(SECOND / 10);
        lose(&mut talk, ConversationEnd::Server, &reply(id));
    }
    talk.send(ConversationEnd::Client, &request(many + 1)).send(ConversationEnd::Server, &reply(many + 1));
    run.take(&mut talk);
    run.take(&mut talk);
    assert!(run.in_flight().is_empty());
    let seen = run.finish();
    assert!(seen.operations.contains(&(many + 1, "find".into(), "ok")));
    let coverage = seen.coverage;
    assert_eq!(coverage.requests_reply_lost + coverage.requests_evicted, u64::from(many), "{coverage:?}");
    assert_eq!(seen.operations.len() as u32, many + 1, "each is reported");
}

#[test]
fn the_oldest_of_too_many_requests_is_dropped() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    let many = MAX_PENDING as u32 + 5;
    (1..=many).for_each(|id| {
        talk.send(ConversationEnd::Client, &request(id));
    });
    run.take(&mut talk);
    let in_flight = run.in_flight();
    assert_eq!(in_flight.len(), MAX_PENDING);
    assert!(in_flight.contains_key(&format!("c{many}")) && !in_flight.contains_key("c5"));
    talk.send(ConversationEnd::Server, &reply(many));
    run.take(&mut talk);
    let seen = run.finish();
    assert_eq!(seen.operations[..5], (1..=5).map(|id| (id, "find".into(), "unknown")).collect::<Vec<_>>());
    assert_eq!(seen.operations[5], (many, "find".into(), "ok"));
    assert_eq!(seen.coverage.requests_evicted, 5);
}

#[test]
fn pipelined_requests_are_answered_in_order_and_nothing_is_lost() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    for round in 0..3 {
        let ids = 10 * round + 1..10 * round + 9;
        ids.clone().for_each(|id| {
            talk.send(ConversationEnd::Client, &request(id));
        });
        run.take(&mut talk);
        for id in ids {
            assert!(run.in_flight().contains_key(&format!("c{id}")));
            talk.send(ConversationEnd::Server, &reply(id));
            run.take(&mut talk);
            assert!(!run.in_flight().contains_key(&format!("c{id}")));
        }
    }
    let seen = run.finish();
    assert_eq!(seen.coverage.losses().count(), 0, "{:?}", seen.coverage);
    assert_eq!(seen.coverage.requests_answered, 24);
}

#[test]
fn a_client_that_gives_all_its_requests_one_id_loses_one_reply_and_no_more() {
    let (mut run, mut talk) = (LossRun::new(), talk());
    let again = |n: u32| message(7, 0, &find(&format!("c{n}")));
    talk.send(ConversationEnd::Client, &again(1)).wait(SECOND);
    lose(&mut talk, ConversationEnd::Server, &reply(7));
    for n in 2..6 {
        talk.send(ConversationEnd::Client, &again(n)).wait(SECOND).send(ConversationEnd::Server, &reply(7));
        run.take(&mut talk);
        assert!(run.in_flight().is_empty(), "{n}");
    }
    let seen = run.finish();
    assert_eq!((seen.coverage.requests_answered, seen.coverage.requests_reply_lost), (4, 1));
    let slowest = seen.window.totals(&sonar_core::Class::ALL).latency.max_ns();
    assert!(slowest.is_some_and(|ns| ns < 2 * SECOND), "no reply is taken for that of an earlier request");
}

#[test]
fn a_connection_joined_late_loses_nothing() {
    let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
    // The end of a long reply, and the reply to a request that was sent before.
    talk.send(ConversationEnd::Server, &[b'x'; 700]).send(ConversationEnd::Server, &reply(1));
    talk.send(ConversationEnd::Client, &request(2)).wait(SECOND).send(ConversationEnd::Server, &reply(2));
    let mut run = LossRun::new();
    run.take(&mut talk);
    let coverage = run.finish().coverage;
    assert_eq!(coverage.losses().count(), 0, "{coverage:?}");
    assert_eq!(
        (coverage.streams_joined_late, coverage.replies_joined_late, coverage.joined_late_bytes),
        (1, 1, 700)
    );
    assert_eq!(coverage.requests_answered, 1);
}

#[test]
fn after_a_connection_joined_late_was_in_step_a_reply_to_nothing_is_a_loss() {
    let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
    talk.send(ConversationEnd::Client, &request(1)).send(ConversationEnd::Server, &reply(1));
    lose(&mut talk, ConversationEnd::Client, &request(2));
    talk.send(ConversationEnd::Server, &reply(2));
    let mut run = LossRun::new();
    run.take(&mut talk);
    let coverage = run.finish().coverage;
    assert_eq!((coverage.replies_orphan, coverage.replies_joined_late), (1, 0));
}

/// What happens next on a connection.
#[derive(Copy, Clone, Debug)]
enum Act {
    Ask,
    Answer,
    Acknowledge,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Act, bool)>> {
    let act = prop_oneof![4 => Just(Act::Ask), 4 => Just(Act::Answer), 1 => Just(Act::Acknowledge)];
    let step = (0..3_usize, act, prop::bool::weighted(0.25));
    prop::collection::vec(step, 1..60)
}

/// A connection as it really was, and what of it was captured.
struct Model {
    talk: Conversation,
    /// Requests in order: id, captured, answered, its reply captured, when it was sent.
    requests: Vec<(u32, bool, bool, bool, Timestamp)>,
}

impl Model {
    /// What is running on the server and can be known.
    fn running(&self) -> impl Iterator<Item = (u32, Timestamp)> {
        self.requests.iter().filter(|of| of.1 && !of.2).map(|of| (of.0, of.4))
    }

    /// What was captured, and may be in flight by all that was captured after it.
    fn open(&self) -> impl Iterator<Item = u32> {
        let paired = self.requests.iter().rposition(|of| of.1 && of.3).map_or(0, |at| at + 1);
        self.requests[paired..].iter().filter(|of| of.1).map(|of| of.0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Frames go missing at random, each a message. The server answers each connection in order.
    #[test]
    fn what_is_in_flight_is_right_under_any_loss(steps in steps()) {
        let mut run = LossRun::new();
        let mut models: Vec<Model> = (0..3)
            .map(|n| {
                // Connections with the same numbers would be one connection, seen twice.
                let talk = Conversation::new(&format!("10.0.0.2:4000{n}"), "10.0.0.1:27017");
                let mut talk = talk.with_seq(1_000 + 77_777 * n, 5_000 + 99_999 * n);
                talk.handshake();
                Model { talk, requests: Vec::new() }
            })
            .collect();
        let mut id = 0;
        // In the end all that is open is answered, and one more request on each, of which nothing is lost.
        let end = (0..3).flat_map(|n| {
            let answers = std::iter::repeat_n((n, Act::Answer, false), 3);
            answers.chain([(n, Act::Ask, false), (n, Act::Answer, false), (n, Act::Ask, false)])
        });
        for (n, act, lost) in steps.iter().copied().chain(end) {
            // The clock is one for all connections.
            let now = models.iter().map(|model| model.talk.now()).max().unwrap();
            let Model { talk, requests } = &mut models[n];
            talk.wait(now.since(talk.now()));
            // The third client sends up to three requests before it is answered.
            let depth = if n == 2 { 3 } else { 1 };
            let waiting = requests.iter().position(|of| !of.2);
            match act {
                Act::Ask if requests.iter().filter(|of| !of.2).count() < depth => {
                    id += 1;
                    requests.push((id, !lost, false, false, talk.now()));
                    talk.send(ConversationEnd::Client, &request(id)).ack(ConversationEnd::Server);
                }
                Act::Answer if waiting.is_some() => {
                    let of = &mut requests[waiting.unwrap()];
                    (of.2, of.3) = (true, !lost);
                    talk.send(ConversationEnd::Server, &reply(of.0));
                }
                Act::Acknowledge => {
                    talk.ack(ConversationEnd::Client).ack(ConversationEnd::Server);
                }
                _ => {}
            }
            if lost {
                talk.packets.clear();
            }
            run.take(talk);
            let shown = run.in_flight();
            let running: BTreeMap<u32, Timestamp> = models.iter().flat_map(Model::running).collect();
            let open: BTreeSet<u32> = models.iter().flat_map(Model::open).collect();
            for (id, sent) in running {
                let age = shown.get(&format!("c{id}"));
                prop_assert_eq!(age.copied(), Some(run.now.since(sent)), "request {} runs", id);
            }
            for name in shown.keys() {
                let id: u32 = name[1..].parse().unwrap();
                prop_assert!(open.contains(&id), "request {id} was answered, and a later one after it");
            }
        }
        let last: Vec<String> = models.iter().flat_map(Model::running).map(|(id, _)| format!("c{id}")).collect();
        prop_assert_eq!(last.len(), 3);
        let mut shown: Vec<String> = run.in_flight().into_keys().collect();
        shown.sort_by_key(|name| name[1..].parse::<u32>().unwrap());
        let mut last = last;
        last.sort_by_key(|name| name[1..].parse::<u32>().unwrap());
        prop_assert_eq!(shown, last, "in the end only what really runs is in flight");
        let seen = run.finish();
        let all = models.iter().flat_map(|model| &model.requests);
        let captured: Vec<_> = all.filter(|of| of.1).collect();
        let paired = captured.iter().filter(|of| of.3).count() as u64;
        prop_assert_eq!(seen.coverage.requests, captured.len() as u64);
        prop_assert_eq!(seen.coverage.requests_answered, paired);
        prop_assert_eq!(seen.coverage.requests_in_flight, 3);
        let lost = seen.coverage.requests_reply_lost + seen.coverage.requests_discarded;
        prop_assert_eq!(lost, captured.len() as u64 - paired - 3);
    }
}
