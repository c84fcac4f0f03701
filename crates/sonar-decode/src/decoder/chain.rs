//! What is known of an exhaust chain that began before the capture?
//!
//! The server sends one reply after another, and each answers the one before it, so the request that
//! began the chain is never seen. On every replica set from 4.4 on, the fetch of the oplog by the
//! secondaries is such a chain, and drivers watch the topology by one (`hello`). What was asked is read
//! from the replies: the namespace and the cursor of a getMore, the fields of a hello.

use sonar_core::operation::Opcode;
use sonar_core::{Class, Endpoint};

use super::connection::Connection;
use super::pair::{Early, Pending};
use super::request::Sent;
use super::{Core, Handler, Sink};
use crate::message::Header;
use crate::tcp::{Flow, Side};

impl<S: Sink> Handler<'_, S> {
    /// Takes a reply as one of a chain whose beginning was not captured. The reply after it is waited for.
    pub(super) fn adopt(&mut self, flow: &Flow, conn: &mut Connection, reply: Early) {
        // If a gap broke a chain, this is how it goes on.
        self.end_chains(conn);
        let server = conn.server.unwrap_or(Side::Low);
        let pending = self.core.chained(conn, flow.ends[server.index()], &reply);
        let Early { header, reply, arrival, .. } = reply;
        if let Some(next) = self.complete(flow, conn, pending, (header, &reply, arrival)) {
            self.core.pending_bytes += next.bytes_held();
            conn.pending.push_front(next);
        }
    }
}

impl Core {
    /// The request that such a reply answers, as far as the reply says what it was.
    fn chained(&mut self, conn: &mut Connection, server: Endpoint, answer: &Early) -> Pending {
        let Early { header, reply, arrival, .. } = answer;
        let legacy = reply.is_legacy();
        let mut request = std::mem::take(&mut self.renderer);
        request.reset(if legacy { Opcode::GetMore } else { Opcode::Msg });
        if let Some(namespace) = &reply.namespace {
            request.set_namespace(namespace.as_bytes());
        } else if reply.hello {
            request.set_database(b"admin");
        }
        request.set_command(if reply.hello { b"hello" } else { b"getMore" });
        request.awaits_topology = reply.hello;
        request.cursor = reply.cursor;
        request.from_server = reply.to_server;
        let sent = Sent {
            server,
            header: Header { length: 0, request_id: header.response_to, ..*header },
            compressor: None,
            time: arrival.first,
            provisional: false,
        };
        let (asked, _) = self.walked(conn, &mut request, None, &sent);
        self.renderer = request;
        let pending = asked.pending;
        Pending {
            class: if pending.class == Class::Replication { Class::Replication } else { Class::Waiting },
            follows: true,
            joined_late: true,
            exhaust: legacy,
            ..pending
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::{Document, doc};
    use sonar_core::{Class, Operation, Role};

    use crate::decoder::collected::message;
    use crate::testing::{Conversation, End};
    use crate::{Decoder, MIN_SNAP_REPLIES, Ports, Settings, Shared, Sink};

    /// What is kept of an operation: command, namespace, class, role, latency, documents, reply's bytes.
    type Seen = (String, String, Class, Role, Option<u64>, Option<u64>, u64);

    #[derive(Default)]
    struct All(Vec<Seen>);

    impl Sink for All {
        fn operation(&mut self, op: &Operation<'_>) {
            self.0.push((
                op.command.into(),
                op.shape.namespace(),
                op.class,
                op.role,
                op.latency_ns,
                op.docs_returned,
                op.response_bytes,
            ));
        }
    }

    const MORE_TO_COME: u8 = 2;

    fn reply(id: u32, response_to: u32, more: bool, document: &Document) -> Vec<u8> {
        let mut reply = message(id, response_to, document);
        reply[16] = if more { MORE_TO_COME } else { 0 };
        reply
    }

    fn oplog(documents: i32) -> Document {
        let batch: Vec<Document> = (0..documents).map(|n| doc! {"op": "i", "n": n}).collect();
        doc! {"cursor": {"nextBatch": batch, "id": 77_i64, "ns": "local.oplog.rs"}, "ok": 1.0,
        "$replData": {"term": 1_i64}, "$oplogQueryData": {"rbid": 1}}
    }

    fn run(talk: &Conversation) -> (Vec<Seen>, sonar_core::Coverage) {
        let settings = Settings { ports: Ports::Ranges(vec![(27_017, 27_017)]), ..Settings::default() };
        let (mut decoder, mut all) = (Decoder::new(settings, Arc::new(Shared::default())), All::default());
        let mut second = 0;
        for packet in &talk.packets {
            if packet.time.unix_ns() / 1_000_000_000 > second {
                second = packet.time.unix_ns() / 1_000_000_000;
                decoder.tick(packet.time, &mut all);
            }
            decoder.packet(&packet.as_packet(), &mut all);
        }
        assert!(decoder.in_flight(talk.now()).is_empty(), "nobody waits for an answer");
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        decoder.finish(talk.now(), &mut all);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        (all.0, decoder.coverage())
    }

    fn joined_late() -> Conversation {
        Conversation::new("10.0.0.2:40000", "10.0.0.1:27017")
    }

    #[test]
    fn the_fetch_of_the_oplog_joined_late_is_replication_and_no_loss() {
        for pause in [1_000, 5_000_000_000] {
            let mut talk = joined_late();
            let mut expected = Vec::new();
            for n in 0..6 {
                let message = reply(500 + n, 499 + n, true, &oplog(n as i32));
                let transfer = if n == 0 { None } else { Some(pause + 1_000) };
                let (command, namespace) = ("getMore".to_owned(), "local.oplog.rs".to_owned());
                let docs = Some(u64::from(n));
                let bytes = message.len() as u64;
                expected.push((command, namespace, Class::Replication, Role::Issued, transfer, docs, bytes));
                talk.send(End::Server, &message).ack(End::Client).wait(pause - 1_000);
            }
            let (seen, coverage) = run(&talk);
            // The time before the first reply is not known; later it is that between replies.
            assert_eq!(seen, expected);
            assert_eq!(coverage.losses().count(), 0, "{coverage:?}");
            assert_eq!((coverage.replies, coverage.replies_exhaust), (6, 6));
        }
    }

    #[test]
    fn a_chain_that_a_gap_broke_goes_on() {
        let mut talk = joined_late();
        for n in 0..8 {
            let message = reply(500 + n, 499 + n, true, &oplog(1));
            if n == 3 {
                talk.lose(End::Server, message.len());
            } else {
                talk.send(End::Server, &message);
            }
            talk.ack(End::Client).wait(2_000_000_000);
        }
        let (seen, coverage) = run(&talk);
        assert_eq!(seen.len(), 7);
        assert!(seen.iter().all(|seen| seen.2 == Class::Replication && seen.5 == Some(1)), "{seen:?}");
        assert_eq!((coverage.replies_exhaust, coverage.replies_orphan, coverage.gaps), (7, 0, 1));
    }

    #[test]
    fn any_chain_is_recognised_and_waits_on_purpose() {
        let hello = doc! {"isWritablePrimary": true, "topologyVersion": {"counter": 6_i64}, "ok": 1.0};
        let batch = doc! {"cursor": {"nextBatch": [{"a": 1}], "id": 9_i64, "ns": "shop.orders"}, "ok": 1.0};
        for (document, command, namespace) in [(hello, "hello", "admin"), (batch, "getMore", "shop.orders")] {
            let mut talk = joined_late();
            for n in 0..3 {
                // The last one says that no more come.
                talk.send(End::Server, &reply(500 + n, 499 + n, n < 2, &document)).wait(10_000_000_000);
            }
            talk.ack(End::Client);
            let (seen, coverage) = run(&talk);
            assert_eq!(seen.len(), 3, "{command}");
            for one in seen {
                assert_eq!((one.0.as_str(), one.1.as_str()), (command, namespace));
                assert_eq!((one.2, one.3), (Class::Waiting, Role::Served));
            }
            assert_eq!((coverage.losses().count(), coverage.replies_exhaust), (0, 3));
        }
    }

    #[test]
    fn a_chain_of_which_little_was_copied_is_no_loss_either() {
        let hello = doc! {"hello": 1, "topologyVersion": {"counter": 6_i64}, "maxAwaitTimeMS": 10_000, "$db": "admin"};
        let answer = doc! {"isWritablePrimary": true, "ok": 1.0};
        for late in [false, true] {
            let mut talk = joined_late();
            if !late {
                talk.handshake().send(End::Client, &message(499, 0, &hello));
            }
            for n in 0..5 {
                talk.send(End::Server, &reply(500 + n, 499 + n, true, &answer)).wait(10_000_000);
                let packet = talk.packets.last_mut().unwrap();
                packet.snap(54 + MIN_SNAP_REPLIES as usize);
            }
            let (seen, coverage) = run(&talk);
            assert_eq!(seen.len(), 5);
            assert_eq!(
                coverage.losses().map(|loss| loss.0).collect::<Vec<_>>(),
                ["messages_damaged"],
                "{late}"
            );
            assert!(seen.iter().skip(1).all(|seen| seen.2 == Class::Waiting), "{seen:?}");
        }
    }

    #[test]
    fn its_shape_is_that_of_the_command_that_opened_the_cursor_where_it_was_seen() {
        let (mut opener, mut chain) = (joined_late(), Conversation::new("10.0.0.2:40001", "10.0.0.1:27017"));
        let find = doc! {"find": "orders", "filter": {"a": 1}, "$db": "shop"};
        let opened = doc! {"cursor": {"firstBatch": [], "id": 9_i64, "ns": "shop.orders"}, "ok": 1.0};
        opener.send(End::Client, &message(1, 0, &find)).send(End::Server, &message(2, 1, &opened));
        let batch = doc! {"cursor": {"nextBatch": [{"a": 1}], "id": 9_i64, "ns": "shop.orders"}, "ok": 1.0};
        for n in 0..3 {
            chain.send(End::Server, &reply(500 + n, 499 + n, true, &batch));
        }
        #[derive(Default)]
        struct Shapes(Vec<(String, u64)>);
        impl Sink for Shapes {
            fn operation(&mut self, op: &Operation<'_>) {
                self.0.push((op.shape.command.to_string(), op.shape.id.0));
            }
        }
        let (mut decoder, mut shapes) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Shapes::default());
        for packet in opener.packets.iter().chain(&chain.packets) {
            decoder.packet(&packet.as_packet(), &mut shapes);
        }
        decoder.finish(chain.now(), &mut shapes);
        assert_eq!(shapes.0.len(), 4);
        assert!(shapes.0.iter().all(|shape| *shape == shapes.0[0]), "{:?}", shapes.0);
    }

    /// An OP_REPLY of one document.
    fn legacy_reply(id: u32, response_to: u32, cursor: i64) -> Vec<u8> {
        let document = doc! {"a": 1}.to_vec().unwrap();
        let head = [36 + document.len() as u32, id, response_to, 1, 0].map(u32::to_le_bytes).concat();
        let tail = [0_u32, 1].map(u32::to_le_bytes).concat();
        [head, cursor.to_le_bytes().to_vec(), tail, document].concat()
    }

    #[test]
    fn a_legacy_exhaust_query_has_a_chain_of_replies_from_its_beginning_or_joined_late() {
        let query = doc! {"a": 1}.to_vec().unwrap();
        let exhaust = 0x40_u32;
        let body = [&exhaust.to_le_bytes()[..], b"shop.orders\0", &[0; 8], &query].concat();
        let head = [16 + body.len() as u32, 7, 0, 2004].map(u32::to_le_bytes).concat();
        let query = [head, body].concat();
        for late in [false, true] {
            let mut talk = joined_late();
            if !late {
                talk.handshake().send(End::Client, &query);
            }
            for n in 0..4 {
                let before = if n == 0 { 7 } else { 499 + n };
                let cursor = if n == 3 { 0 } else { 9 };
                talk.send(End::Server, &legacy_reply(500 + n, before, cursor)).wait(1_000_000);
            }
            let (seen, coverage) = run(&talk);
            assert_eq!(seen.len(), 4, "{coverage:?}");
            assert!(seen.iter().all(|seen| seen.5 == Some(1)), "{seen:?}");
            let waiting = seen.iter().filter(|seen| seen.2 == Class::Waiting).count();
            assert_eq!(waiting, if late { 4 } else { 3 }, "only the first answers a request");
            assert_eq!(
                (coverage.losses().count(), coverage.replies_exhaust),
                (0, waiting as u64),
                "{coverage:?}"
            );
        }
    }
}
