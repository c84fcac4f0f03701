//! What does a message say? Reads requests and replies, and derives from a message which side is the server.
//!
//! The layouts are [`message`](crate::message)'s. Messages of a layout that was seen before are recognised by a
//! template and are not walked.

use std::sync::Arc;

use sonar_core::operation::Opcode;
use sonar_core::{Class, Coverage};

use super::connection::Client;
use super::exchange::{Early, Pending};
use super::identify::{Identifier, RequestShape};
use super::long::{LongMessage, server_by};
use super::request::{ReadRequest, RequestFacts, Sent};
use super::unpacking::Plain;
use crate::bson::NumberSlot;
use crate::identity::{MaybeRendered, Shared};
use crate::message::{
    Header, MessageBody, MessageSource, Reply, Request, Template, TemplateMatch, TemplatePlace, Templates,
    to_text,
};
use crate::shape::{Rendered, Text};
use crate::tcp::Side;

/// The most bytes of a command's text, with values.
const VALUES_BUDGET: usize = 2_048;

/// The most statements of a request whose layout is remembered.
const MAX_STATEMENTS: u32 = 8;

/// What is known of requests of one layout.
#[derive(Clone, Debug)]
struct KnownRequest {
    facts: RequestFacts,
    shape: RequestShape,
}

/// Reads messages.
pub struct MessageReader {
    /// Counters of messages.
    pub coverage: Coverage,
    pub identifier: Identifier,
    show_values: bool,
    request: Request<()>,
    reply: Reply,
    body: MessageBody,
    requests: Templates<KnownRequest>,
    replies: Templates<Reply>,
}

impl MessageReader {
    pub fn new(shared: Arc<Shared>, show_values: bool) -> Self {
        Self {
            coverage: Coverage::default(),
            identifier: Identifier::new(shared),
            show_values,
            request: Request::default(),
            reply: Reply::default(),
            body: MessageBody::default(),
            requests: Templates::default(),
            replies: Templates::default(),
        }
    }

    /// The counters of reading and of identifying.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage;
        coverage.add(&self.identifier.coverage);
        coverage
    }

    /// Which side is the server, if a message of `side` proves it. Counts one that proves nothing as malformed.
    pub fn server_of(&mut self, side: Side, plain: &Plain<'_>) -> Option<Side> {
        let Self { request, reply, body, .. } = self;
        request.reset(plain.opcode);
        reply.reset();
        body.begin(plain.opcode, plain.body.len() as u64);
        let read = match plain.opcode {
            Opcode::Reply | Opcode::CommandReply => {
                body.feed::<()>(plain.body, &mut MessageSource::Reply(reply))
            }
            _ => body.feed(plain.body, &mut MessageSource::Request(request)),
        };
        let is_whole = read.is_ok() && body.left() == 0;
        let server = server_by(side, plain.opcode, is_whole.then_some(request.has_database));
        self.coverage.messages_malformed += u64::from(server.is_none());
        server
    }

    /// Reads a request; `None` if it is malformed, which is counted.
    #[inline]
    pub fn request(&mut self, plain: &Plain<'_>) -> Option<ReadRequest> {
        let found = match plain.opcode {
            Opcode::Msg => self.requests.find(plain.body),
            _ => TemplateMatch::Unknown,
        };
        let place = match found {
            TemplateMatch::Known(KnownRequest { facts, shape }, numbers) => {
                let (facts, shape, cursor) = (*facts, shape.clone(), numbers.get(NumberSlot::Cursor));
                self.coverage.messages_decoded += 1;
                let values = self.values(plain);
                return Some(ReadRequest { facts, shape, cursor, client: None, values });
            }
            TemplateMatch::Wanted(place) => Some(place),
            TemplateMatch::Unknown => None,
        };
        self.walk_request(plain, place)
    }

    /// Reads a request whose layout is not known; `place` is where its template is wanted, if it is.
    fn walk_request(&mut self, plain: &Plain<'_>, place: Option<TemplatePlace>) -> Option<ReadRequest> {
        let Self { request, body, identifier, .. } = self;
        request.reset(plain.opcode);
        body.begin(plain.opcode, plain.body.len() as u64);
        let read = body.feed(plain.body, &mut MessageSource::Request(request));
        if read.is_err() || body.left() > 0 || request.command.bytes().is_empty() {
            self.coverage.messages_malformed += 1;
            return None;
        }
        self.coverage.messages_decoded += 1;
        let mut read = identified(identifier, request, Some(plain.body));
        if let Some(place) = place {
            self.remember(place, plain.body, &read);
        }
        read.values = self.values(plain);
        Some(read)
    }

    /// Remembers the layout of the request that has just been walked.
    fn remember(&mut self, place: TemplatePlace, body: &[u8], read: &ReadRequest) {
        let Self { request, identifier, requests, .. } = self;
        // Requests that are counted each time, or that name an application, are walked each time.
        let is_other = identifier.is_other_shape(&read.shape.info);
        let has_many = request.builder.statement_count > MAX_STATEMENTS;
        if !(request.has_client || request.builder.over_cap || is_other || has_many) {
            let (known, cursor) =
                (KnownRequest { facts: read.facts, shape: read.shape.clone() }, request.cursor);
            if let Some((template, numbers)) = Template::new(body, request, known)
                && numbers.get(NumberSlot::Cursor) == cursor
            {
                requests.add(place, template);
            }
        }
    }

    /// The text of a request with its values, if requested.
    #[inline]
    fn values(&self, plain: &Plain<'_>) -> Option<Box<str>> {
        let document = if self.show_values { command_document(plain) } else { None };
        document.map(|document| to_text(document, VALUES_BUDGET).into())
    }

    /// Reads a reply, and says whether all of it could be read. `request` is the one that it most likely
    /// answers.
    #[inline]
    pub fn reply(&mut self, plain: &Plain<'_>, request: Option<&Pending>) -> (&Reply, bool) {
        let holds_results = request.is_some_and(Pending::returns_results);
        let request = request.map_or(0, |request| request.ordered_id.0);
        let Self { replies, reply, body, .. } = self;
        self.coverage.replies += 1;
        let found = match plain.opcode {
            Opcode::Msg if !holds_results => replies.find_beside(request, plain.body),
            _ => TemplateMatch::Unknown,
        };
        let place = match found {
            TemplateMatch::Known(known, numbers) => {
                reply.become_known(known, &numbers);
                self.coverage.messages_decoded += 1;
                return (reply, true);
            }
            TemplateMatch::Wanted(place) => Some(place),
            TemplateMatch::Unknown => None,
        };
        reply.reset();
        reply.holds_results = holds_results;
        body.begin(plain.opcode, plain.body.len() as u64);
        let read = body.feed::<()>(plain.body, &mut MessageSource::Reply(reply));
        let is_whole = read.is_ok() && body.left() == 0;
        if let (Some(place), true, true) = (place, is_whole, reply.codes.is_empty())
            && let Some((template, numbers)) = Template::new(plain.body, &mut Reply::default(), reply.clone())
        {
            let mut again = Reply::default();
            again.become_known(reply, &numbers);
            if again == *reply {
                replies.add(place, template);
            }
        }
        let coverage = &mut self.coverage;
        *(if is_whole { &mut coverage.messages_decoded } else { &mut coverage.messages_malformed }) += 1;
        (reply, is_whole)
    }

    /// Counts a long message by how it could be read.
    pub fn count_long(&mut self, long: &LongMessage, is_whole: bool) {
        let counter = match (is_whole, long.compressor) {
            (true, _) => &mut self.coverage.messages_decoded,
            (false, Some(_)) => &mut self.coverage.messages_undecodable,
            (false, None) => &mut self.coverage.messages_malformed,
        };
        *counter += 1;
    }

    /// The request in a long message; `None` if it names no command.
    pub fn long_request(&mut self, long: &mut LongMessage) -> Option<ReadRequest> {
        let request = &mut long.request;
        (!request.command.bytes().is_empty()).then(|| identified(&mut self.identifier, request, None))
    }

    /// A request whose end was not captured, as far as its beginning says what was asked.
    pub fn partial_request(&mut self, long: &mut LongMessage) -> ReadRequest {
        long.name_command();
        let request = &long.request;
        let facts = RequestFacts::of_beginning(request);
        let shape = self.identifier.partial_shape(request);
        // What a hello says of its sender may be cut, too.
        ReadRequest { facts, shape, cursor: request.cursor, client: None, values: None }
    }

    /// The request of an exhaust chain that began before the capture, as far as one of its replies shows it.
    ///
    /// The server sends one reply after another, and each answers the one before it, so the request that began
    /// the chain is never seen. On every replica set from 4.4 on, secondaries fetch the oplog in such a chain,
    /// and drivers watch the topology in one (`hello`). The reply has the namespace and the cursor of a getMore,
    /// or the fields of a hello.
    pub fn chained(&mut self, early: &Early, client: &mut Client) -> Pending {
        let Early { header, reply, arrival, .. } = early;
        let legacy = reply.is_legacy();
        let mut request = Request::<Rendered>::default();
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
        let read = identified(&mut self.identifier, &mut request, None);
        let header = Header { length: 0, request_id: header.response_to, ..*header };
        let sent = Sent { header, compressor: None, time: arrival.first, provisional: false };
        let pending = read.sent_by(client, &sent).request;
        Pending {
            class: if pending.class == Class::Replication { Class::Replication } else { Class::Waiting },
            follows: true,
            joined_late: true,
            exhaust: legacy,
            ..pending
        }
    }
}

/// Finds what a request that has been walked belongs to; `body`, where it is at hand, is what it was read from.
fn identified<T: Text + MaybeRendered>(
    identifier: &mut Identifier,
    request: &mut Request<T>,
    body: Option<&[u8]>,
) -> ReadRequest {
    request.settle_namespace();
    let facts = RequestFacts::of(request);
    let client = request.has_client.then(|| identifier.client(request));
    let shape = identifier.shape(request, body);
    ReadRequest { facts, shape, cursor: request.cursor, client, values: None }
}

/// The command itself in a message that is all there.
fn command_document<'a>(plain: &Plain<'a>) -> Option<&'a [u8]> {
    let body = plain.body;
    let length = |at: usize| {
        body.get(at..at + 4)
            .and_then(|bytes| bytes.first_chunk())
            .map(|bytes| u32::from_le_bytes(*bytes) as usize)
    };
    match plain.opcode {
        Opcode::Msg => {
            let mut at = 4;
            loop {
                let size = length(at + 1)?;
                match body.get(at)? {
                    0 => return body.get(at + 1..at + 1 + size),
                    _ => at += 1 + size.max(1),
                }
            }
        }
        Opcode::Query => {
            let end = memchr::memchr(0, body.get(4..)?)?;
            let at = 4 + end + 1 + 8;
            body.get(at..at + length(at)?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::{Document, doc};
    use sonar_core::{Class, Operation, Role};

    use crate::decoder::collected::message;
    use crate::testing::{Conversation, ConversationEnd};
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
                talk.send(ConversationEnd::Server, &message).ack(ConversationEnd::Client).wait(pause - 1_000);
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
                talk.lose(ConversationEnd::Server, message.len());
            } else {
                talk.send(ConversationEnd::Server, &message);
            }
            talk.ack(ConversationEnd::Client).wait(2_000_000_000);
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
                // The last one announces no more.
                talk.send(ConversationEnd::Server, &reply(500 + n, 499 + n, n < 2, &document))
                    .ack(ConversationEnd::Client)
                    .wait(10_000_000_000);
            }
            talk.ack(ConversationEnd::Client);
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
    fn a_chain_in_short_copies_is_no_loss_either() {
        let hello = doc! {"hello": 1, "topologyVersion": {"counter": 6_i64}, "maxAwaitTimeMS": 10_000, "$db": "admin"};
        let answer = doc! {"isWritablePrimary": true, "ok": 1.0};
        for late in [false, true] {
            let mut talk = joined_late();
            if !late {
                talk.handshake().send(ConversationEnd::Client, &message(499, 0, &hello));
            }
            for n in 0..5 {
                talk.send(ConversationEnd::Server, &reply(500 + n, 499 + n, true, &answer)).wait(10_000_000);
                let packet = talk.packets.last_mut().unwrap();
                packet.snap(54 + MIN_SNAP_REPLIES as usize);
                talk.ack(ConversationEnd::Client);
            }
            let (seen, coverage) = run(&talk);
            assert_eq!(seen.len(), 5);
            assert_eq!(
                coverage.losses().map(|loss| loss.0).collect::<Vec<_>>(),
                ["messages_partial"],
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
        opener
            .send(ConversationEnd::Client, &message(1, 0, &find))
            .send(ConversationEnd::Server, &message(2, 1, &opened));
        let batch = doc! {"cursor": {"nextBatch": [{"a": 1}], "id": 9_i64, "ns": "shop.orders"}, "ok": 1.0};
        for n in 0..3 {
            chain.send(ConversationEnd::Server, &reply(500 + n, 499 + n, true, &batch));
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
                talk.handshake().send(ConversationEnd::Client, &query);
            }
            for n in 0..4 {
                let before = if n == 0 { 7 } else { 499 + n };
                let cursor = if n == 3 { 0 } else { 9 };
                talk.send(ConversationEnd::Server, &legacy_reply(500 + n, before, cursor))
                    .ack(ConversationEnd::Client)
                    .wait(1_000_000);
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
