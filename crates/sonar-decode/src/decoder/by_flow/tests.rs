//! Workers against one decoder.

use bson::doc;
use proptest::prelude::*;
use sonar_core::Operation;

use super::*;
use crate::Decoder;
use crate::decoder::collected::message;
use crate::identity::{MAX_APPLICATIONS, MAX_SHAPES};
use crate::testing::{Conversation, ConversationEnd, OwnedPacket};

/// What a decoder has come to: its operations, its counters, and what is in flight before it ends.
#[derive(Default, PartialEq, Debug)]
struct Outcome {
    operations: Vec<String>,
    coverage: Coverage,
    in_flight: Vec<String>,
}

impl Sink for Outcome {
    fn operation(&mut self, op: &Operation<'_>) {
        self.operations.push(format!("{op:?}"));
    }
}

fn shown(in_flight: &[InFlightOperations]) -> Vec<String> {
    in_flight.iter().map(|one| format!("{one:?}")).collect()
}

/// Calls `tick` where a new second begins, then `packet`; returns the time of the last packet.
fn feed<D>(
    packets: &[OwnedPacket],
    to: &mut D,
    tick: impl Fn(&mut D, Timestamp),
    packet: impl Fn(&mut D, &Packet<'_>),
) -> Timestamp {
    let (mut second, mut last) = (0, Timestamp::default());
    for one in packets {
        last = last.max(one.time);
        if last.unix_ns() / 1_000_000_000 > second {
            second = last.unix_ns() / 1_000_000_000;
            tick(to, one.time);
        }
        packet(to, &one.as_packet());
    }
    last
}

fn by_one_decoder(packets: &[OwnedPacket], ended: &[EndedClient]) -> Outcome {
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    decoder.clients_ended(ended.iter().cloned());
    let mut both = (decoder, Outcome::default());
    let last = feed(
        packets,
        &mut both,
        |(decoder, outcome), now| decoder.tick(now, outcome),
        |(decoder, outcome), packet| decoder.packet(packet, outcome),
    );
    let (mut decoder, mut outcome) = both;
    let in_flight = decoder.finish(last, &mut outcome);
    outcome.in_flight = shown(&in_flight);
    Outcome { coverage: decoder.coverage(), ..outcome }
}

/// Workers and a merger that take turns, so that each has its part decoded by the time that `round_steps` steps
/// have been made; the last worker comes first.
struct Rounds {
    splitter: FlowSplitter,
    workers: Vec<FlowWorker>,
    merger: FlowMerger,
    outcome: Outcome,
    depends_on_order: bool,
}

impl Rounds {
    fn turn(&mut self, snapshot: bool) -> Vec<FlowBatch> {
        let mut batches: Vec<_> = self.workers.iter().map(|_| FlowBatch::default()).collect();
        let own = self.splitter.exchange(&mut batches, snapshot);
        self.workers.iter_mut().zip(&mut batches).rev().for_each(|(worker, batch)| worker.decode(batch));
        batches.push(own);
        self.depends_on_order |= FlowMerger::depends_on_order(&batches);
        if !self.depends_on_order {
            self.merger.merge(&batches, &mut self.outcome);
        }
        batches
    }
}

/// The same with `count` workers, and whether the outcome depends on which of them comes first.
fn by_workers(
    packets: &[OwnedPacket],
    ended: &[EndedClient],
    count: usize,
    round_steps: usize,
) -> (Outcome, bool) {
    let workers = FlowWorkers::new(Settings::default(), count);
    let mut rounds = Rounds {
        splitter: FlowSplitter::new(&workers),
        workers: (0..count).map(|_| FlowWorker::new(&workers)).collect(),
        merger: FlowMerger::new(&workers),
        outcome: Outcome::default(),
        depends_on_order: false,
    };
    rounds.splitter.clients_ended(ended.iter().cloned());
    let last = feed(
        packets,
        &mut rounds,
        |rounds, now| rounds.splitter.tick(now),
        |rounds, packet| {
            rounds.splitter.packet(packet);
            if rounds.splitter.work().1 >= round_steps {
                rounds.turn(false);
            }
        },
    );
    rounds.splitter.close_gaps(last);
    let mut batches = rounds.turn(true);
    let in_flight = shown(&rounds.merger.snapshot(&mut batches, last).1);
    rounds.splitter.finish(last);
    let mut batches = rounds.turn(true);
    let coverage = rounds.merger.snapshot(&mut batches, last).0;
    (Outcome { coverage, in_flight, ..rounds.outcome }, rounds.depends_on_order)
}

/// What happens next on one of several connections.
#[derive(Copy, Clone, Debug)]
enum Action {
    Handshake,
    Hello(u8),
    /// Opens a cursor, whose number is small, so that cursors come again.
    Find(u8),
    GetMore(u8, bool),
    KillCursors(u8),
    Ask(u8),
    /// A request of this many bytes, or its reply.
    Long(u16, bool),
    Reply,
    Lose(bool, u16),
    Repeat,
    Foreign,
    /// This many earlier packets come again under other addresses.
    Translate(u8),
    Close(bool),
    Wait(u32),
}

fn actions() -> impl Strategy<Value = Vec<(usize, Action)>> {
    let action = prop_oneof![
        2 => Just(Action::Handshake),
        1 => (0u8..3).prop_map(Action::Hello),
        4 => (0u8..6).prop_map(Action::Find),
        6 => (0u8..6, any::<bool>()).prop_map(|(id, last)| Action::GetMore(id, last)),
        1 => (0u8..6).prop_map(Action::KillCursors),
        3 => (0u8..20).prop_map(Action::Ask),
        2 => (0u16..40_000, any::<bool>()).prop_map(|(length, reply)| Action::Long(length, reply)),
        2 => Just(Action::Reply),
        2 => (any::<bool>(), 1u16..3_000).prop_map(|(client, bytes)| Action::Lose(client, bytes)),
        1 => Just(Action::Repeat),
        1 => Just(Action::Foreign),
        1 => (1u8..20).prop_map(Action::Translate),
        1 => any::<bool>().prop_map(Action::Close),
        1 => prop_oneof![0u32..2_000_000, Just(4_000_000_000)].prop_map(Action::Wait),
    ];
    proptest::collection::vec((0usize..7, action), 1..120)
}

/// The packets of all connections, in the order of the actions.
fn packets(actions: &[(usize, Action)]) -> Vec<OwnedPacket> {
    use ConversationEnd::{Client, Server};
    let mut talks: Vec<Conversation> = (0..7)
        .map(|n| {
            Conversation::new(&format!("10.0.0.{n}:4000{n}"), &format!("10.0.1.{}:27017", n % 2))
                .with_seq(1_000 + 7_777_777 * n, 5_000 + 9_999_999 * n)
        })
        .collect();
    let (mut all, mut now) = (Vec::<OwnedPacket>::new(), talks[0].now());
    for (&(which, action), id) in actions.iter().zip(1u32..) {
        let talk = &mut talks[which];
        let request = |command| message(id, 0, &command);
        let answer = |document| message(10_000 + id, id, &document);
        match action {
            Action::Handshake => drop(talk.handshake()),
            Action::Hello(app) => {
                let client = doc! {"application": {"name": format!("app {app}")}};
                talk.send(Client, &request(doc! {"hello": 1, "client": client, "$db": "admin"}));
                talk.send(Server, &answer(doc! {"ok": 1.0}));
            }
            Action::Find(cursor) => {
                let find = doc! {"find": "orders", "filter": {format!("f{cursor}"): 1}, "$db": "shop"};
                let batch = doc! {"firstBatch": [], "id": i64::from(cursor) + 1, "ns": "shop.orders"};
                talk.send(Client, &request(find)).send(Server, &answer(doc! {"cursor": batch, "ok": 1.0}));
            }
            Action::GetMore(cursor, is_last) => {
                let more = doc! {"getMore": i64::from(cursor) + 1, "collection": "orders", "$db": "shop"};
                let id = if is_last { 0_i64 } else { i64::from(cursor) + 1 };
                let batch = doc! {"nextBatch": [{"a": 1}], "id": id, "ns": "shop.orders"};
                talk.send(Client, &request(more)).send(Server, &answer(doc! {"cursor": batch, "ok": 1.0}));
            }
            Action::KillCursors(cursor) => {
                let ids = vec![i64::from(cursor) + 1];
                talk.send(Client, &request(doc! {"killCursors": "orders", "cursors": ids, "$db": "shop"}));
                talk.send(Server, &answer(doc! {"ok": 1.0}));
            }
            Action::Ask(shape) => {
                let field = format!("a{shape}");
                talk.send(Client, &request(doc! {"find": "people", "filter": {field: 1}, "$db": "shop"}));
            }
            Action::Long(length, is_reply) => {
                let long = "x".repeat(usize::from(length));
                if is_reply {
                    let batch = doc! {"firstBatch": [{"a": long}], "id": 0_i64, "ns": "shop.people"};
                    talk.send(Server, &answer(doc! {"cursor": batch, "ok": 1.0}));
                } else {
                    let documents = vec![doc! {"a": long}];
                    let insert = doc! {"insert": "people", "documents": documents, "$db": "shop"};
                    talk.send(Client, &request(insert));
                }
            }
            Action::Reply => drop(talk.send(Server, &message(10_000 + id, id - 1, &doc! {"ok": 1.0}))),
            Action::Lose(client, bytes) => {
                talk.lose(if client { Client } else { Server }, usize::from(bytes));
            }
            Action::Repeat => talk.packets.extend(all.last().cloned()),
            Action::Foreign => drop(talk.send(Client, &[0x16; 90])),
            Action::Translate(many) => {
                for mut packet in all.iter().rev().take(usize::from(many)).rev().cloned().collect::<Vec<_>>()
                {
                    // Ethernet takes 14 bytes; the last of the source and of the destination address.
                    packet.data[14 + 14] ^= 0x80;
                    packet.data[14 + 18] ^= 0x80;
                    talk.packets.push(packet);
                }
            }
            Action::Close(reset) => drop(if reset { talk.reset(Server) } else { talk.close() }),
            Action::Wait(ns) => now = now.plus_ns(u64::from(ns)),
        }
        for mut packet in talk.packets.drain(..) {
            now = now.plus_ns(1_000);
            packet.time = now;
            all.push(packet);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn workers_come_to_the_same_as_one_decoder(
        actions in actions(),
        count in 1usize..9,
        round_steps in 1usize..100,
        ends in proptest::collection::vec((0u64..7, any::<prop::sample::Index>(), any::<bool>()), 0..6),
    ) {
        let packets = packets(&actions);
        let ended: Vec<_> = ends
            .iter()
            .filter_map(|(client, packet, has_port)| {
                let at = packets.get(packet.index(packets.len().max(1)))?.time.plus_ns(1_500);
                let client = format!("10.0.0.{client}:4000{client}").parse::<std::net::SocketAddr>().ok()?;
                let server_port = has_port.then_some(27_017);
                Some(EndedClient { client: client.into(), server_port, host: None, at })
            })
            .collect();
        let one = by_one_decoder(&packets, &ended);
        let (several, depends_on_order) = by_workers(&packets, &ended, count, round_steps);
        prop_assert!(!depends_on_order);
        prop_assert_eq!(several, one);
    }
}

/// A command on each of three connections in turn.
fn each(count: usize, command: impl Fn(usize) -> bson::Document) -> Vec<OwnedPacket> {
    let mut talks: Vec<Conversation> = (0..3)
        .map(|n| {
            Conversation::new(&format!("10.0.0.{n}:40000"), "10.0.1.1:27017").with_seq(77_777 * n, 99_999 * n)
        })
        .collect();
    let mut all = Vec::new();
    for n in 0..count {
        let talk = &mut talks[n % 3];
        talk.send(ConversationEnd::Client, &message(n as u32, 0, &command(n)));
        all.append(&mut talk.packets);
    }
    all
}

#[test]
fn a_full_table_makes_the_outcome_depend_on_the_order() {
    let shape = |n: usize| doc! {"find": "orders", "filter": {format!("f{n}"): 1}, "$db": "shop"};
    let hello = |n: usize| doc! {"hello": 1, "client": {"application": {"name": n.to_string()}}, "$db": "a"};
    for (is_full, all) in [
        (false, each(MAX_SHAPES, shape)),
        (true, each(MAX_SHAPES + 1, shape)),
        (false, each(MAX_APPLICATIONS, hello)),
        (true, each(MAX_APPLICATIONS + 1, hello)),
    ] {
        assert_eq!(by_workers(&all, &[], 3, 1_000).1, is_full, "{}", all.len());
    }
}

#[test]
fn a_share_that_is_used_up_makes_the_outcome_depend_on_the_order() {
    use super::super::unpacking::MAX_LONG;
    for (many, is_used_up) in [(MAX_LONG / 4 - 10, false), (MAX_LONG, true)] {
        let mut all = Vec::new();
        for n in 0..many as u32 {
            let client = format!("10.0.{}.1:{}", n % 200, 20_000 + n);
            let mut talk = Conversation::new(&client, "10.0.255.1:27017").with_seq(77_777 * n, 99_999 * n);
            talk.handshake().send(ConversationEnd::Client, &message(1, 0, &doc! {"ping": 1, "$db": "a"}));
            // The first 1,000 bytes of a long one.
            let insert = doc! {"insert": "orders", "documents": [{"a": "x".repeat(40_000)}], "$db": "shop"};
            talk.send(ConversationEnd::Client, &message(2, 0, &insert)[..1_000]);
            all.append(&mut talk.packets);
        }
        assert_eq!(by_workers(&all, &[], 3, 1_000).1, is_used_up, "{many}");
    }
}
