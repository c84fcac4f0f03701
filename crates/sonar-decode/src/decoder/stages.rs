//! Joins the stages of decoding: passes the result of one on to the next.
//!
//! `framing` cuts a stream into messages, `unpacking` inflates them, `reading` reads them, `identify` finds what
//! they belong to, and `pairing` joins request and reply to an operation.

mod cut;
mod encrypted;
mod room;

use std::sync::Arc;

use sonar_core::operation::Compressor;
use sonar_core::{Coverage, Timestamp};

use super::connection::Connection;
use super::decryption::Decryption;
use super::emission::{EndedSink, OperationParties};
use super::exchange::{Answer, Arrival, Early, EndedOperation, ReplyPath};
use super::framing::{Framed, Framer, Skipped};
use super::long::LongMessage;
use super::pairing::{EARLY_NS, GivenUp, MAX_ALL_EARLY, PENDING_BUDGET, Pairing};
use super::reading::MessageReader;
use super::request::{ReadRequest, Sent};
use super::settings::{Ports, Settings, TlsSource};
use super::unpacking::{MAX_LONG, Packed, Unpacked, Unpacker};
use crate::identity::Shared;
use crate::keylog::TlsInput;
use crate::message::{Header, Reply};
use crate::tcp::{Chunk, Close, Flow, Gap, Lost, Side, StreamHandler, Unheard, Verdict};

/// All stages. Each has its own buffers, caps and counters.
pub struct Stages {
    pub ports: Ports,
    /// Replies were cut when they were captured.
    snapped: bool,
    coverage: Coverage,
    framer: Framer,
    decryption: Decryption,
    unpacker: Unpacker,
    reader: MessageReader,
    pub(super) pairing: Pairing,
    /// Operations that have ended and are about to be emitted.
    ended: Vec<EndedOperation>,
    caps: StageCaps,
    was_over_caps: bool,
}

/// The most that all connections hold together.
struct StageCaps {
    pending_bytes: usize,
    early: usize,
    long_messages: usize,
}

impl StageCaps {
    /// The caps divided by `share`.
    const fn share(share: usize) -> Self {
        Self {
            pending_bytes: PENDING_BUDGET / share,
            early: MAX_ALL_EARLY / share,
            long_messages: MAX_LONG / share,
        }
    }
}

/// A message that has ended.
#[derive(Copy, Clone)]
struct Arrived {
    header: Header,
    /// Who sent it.
    side: Side,
    /// Time of its last byte.
    time: Timestamp,
}

/// When an unreadable reply came.
fn unread_arrival(conn: &Connection, at: Arrived) -> Arrival {
    let first = conn.streams[at.side.index()].first;
    Arrival { first, last: at.time, compressor: None, whole: false }
}

impl Stages {
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Self {
        let share = settings.share.max(1);
        Self {
            snapped: settings.snap_replies.is_some() || settings.tls.is_process(),
            coverage: Coverage::default(),
            framer: Framer::with_share(share).with_tls(settings.tls, settings.keys.clone()),
            decryption: Decryption::new(settings.keys, shared.clone()),
            unpacker: Unpacker::new(settings.verify_checksums).with_share(share),
            reader: MessageReader::new(shared, settings.show_values),
            pairing: Pairing::default(),
            ended: Vec::new(),
            caps: StageCaps::share(share),
            was_over_caps: false,
            ports: settings.ports,
        }
    }

    pub fn set_tls(&mut self, tls: TlsSource) {
        self.framer.tls = tls;
    }

    /// The counters of all stages.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage;
        let stages = [
            &self.framer.coverage,
            &self.decryption.coverage,
            &self.unpacker.coverage,
            &self.pairing.coverage,
        ];
        stages.into_iter().for_each(|stage| coverage.add(stage));
        coverage.add(&self.reader.coverage());
        coverage
    }

    /// The stages with their caps divided by `share`.
    pub fn with_share(self, share: usize) -> Self {
        Self {
            caps: StageCaps::share(share),
            framer: Framer::with_share(share).with_tls(self.framer.tls, self.framer.keys.clone()),
            decryption: self.decryption.with_share(share),
            ..self
        }
    }

    /// The bytes that it holds for all connections: an estimate.
    pub fn memory(&self) -> usize {
        self.framer.memory()
            + self.pairing.pending_bytes
            + self.pairing.early * (size_of::<Early>() + size_of::<Reply>())
            + self.unpacker.memory()
    }

    /// Whether it holds more than the caps, or its share of them, allow.
    #[inline]
    pub fn is_over_caps(&self) -> bool {
        self.pairing.pending_bytes > self.caps.pending_bytes
            || self.pairing.early > self.caps.early
            || self.unpacker.long_messages() > self.caps.long_messages
    }

    /// Takes note if the share of the caps is exceeded.
    #[inline]
    pub fn note_caps(&mut self) {
        self.was_over_caps |= self.is_over_caps();
    }

    /// Whether the share of the caps was exceeded: what gives way then depends on all decoders that share them.
    pub fn depends_on_order(&self) -> bool {
        self.was_over_caps || self.framer.was_without_room || self.decryption.was_without_room
    }

    /// Other stages follow this connection from now on.
    pub fn hand_over(&mut self, conn: &Connection) {
        self.pairing.hand_over(&conn.exchange);
        self.unpacker.hand_over(&conn.long);
        conn.streams.iter().for_each(|stream| self.framer.release(stream));
        self.decryption.hand_over(conn.tls.as_deref());
    }

    /// These stages follow this connection from now on.
    pub fn take_over(&mut self, conn: &mut Connection) {
        self.reader.identifier.take_over(&mut conn.client);
        self.pairing.take_over(&conn.exchange);
        self.unpacker.take_over(&conn.long);
        conn.streams.iter().for_each(|stream| self.framer.take_over(stream));
        self.decryption.take_over(conn.tls.as_deref());
    }

    /// Takes a complete message.
    #[inline]
    fn message(&mut self, conn: &mut Connection, at: Arrived, message: Packed<'_>) {
        conn.facts.is_mongodb = true;
        match self.unpacker.message(message) {
            Unpacked::Plain(plain) => {
                let compressor = plain.compressor;
                if conn.streams[at.side.index()].has_been_read(plain.verified) {
                    conn.exchange.confirm();
                }
                if conn.server.is_none() {
                    conn.server = self.reader.server_of(at.side, &plain);
                }
                match conn.is_server(at.side) {
                    None => {}
                    Some(true) => {
                        let oldest = conn.exchange.pending.front();
                        let (reply, whole) = self.reader.reply(&plain, oldest);
                        let arrival = Arrival { compressor, whole, ..unread_arrival(conn, at) };
                        let answer = Answer { header: at.header, reply, arrival };
                        let early = self.pairing.answer(&mut conn.exchange, &answer, &mut self.ended);
                        self.answered(conn, early);
                    }
                    Some(false) => {
                        if let Some(read) = self.reader.request(&plain) {
                            self.ask(conn, at, compressor, read);
                        }
                    }
                }
            }
            Unpacked::Long(long) => self.long_message(conn, at, long),
            Unpacked::Undecodable => self.unread(conn, at),
            Unpacked::WrongChecksum => self.wrong_checksum(conn, at),
        }
    }

    /// Reads a piece of a long message.
    fn piece(&mut self, conn: &mut Connection, at: Arrived, piece: Packed<'_>) {
        let unpacked = self.unpacker.piece(&mut conn.long[at.side.index()], piece);
        conn.facts.is_mongodb |= unpacked.is_some();
        match unpacked {
            Some(Unpacked::Long(long)) => self.long_message(conn, at, long),
            Some(Unpacked::WrongChecksum) => self.wrong_checksum(conn, at),
            _ => {}
        }
    }

    /// A long message has ended.
    fn long_message(&mut self, conn: &mut Connection, at: Arrived, mut long: Box<LongMessage>) {
        if conn.streams[at.side.index()].has_been_read(long.verified) {
            conn.exchange.confirm();
        }
        conn.server = conn.server.or_else(|| long.server(at.side));
        let is_reply = conn.is_server(at.side);
        if long.cut && is_reply == Some(false) {
            return self.cut_request(conn, at, long);
        }
        let whole = is_reply.is_some_and(|is_reply| long.is_whole(is_reply));
        self.reader.count_long(&long, whole);
        match is_reply {
            Some(true) => {
                let arrival = Arrival { compressor: long.compressor, whole, ..unread_arrival(conn, at) };
                self.answer(conn, &Answer { header: at.header, reply: &long.reply, arrival });
            }
            Some(false) if whole => {
                if let Some(read) = self.reader.long_request(&mut long) {
                    self.ask(conn, at, long.compressor, read);
                }
            }
            _ => {}
        }
    }

    /// A message whose checksum is wrong: no message at all, if a search found it.
    fn wrong_checksum(&mut self, conn: &mut Connection, at: Arrived) {
        let stream = &mut conn.streams[at.side.index()];
        if stream.provisional {
            stream.reject(conn.facts);
        } else {
            self.unread(conn, at);
        }
    }

    /// A long request has ended of which only the beginning was copied.
    fn cut_request(&mut self, conn: &mut Connection, at: Arrived, mut long: Box<LongMessage>) {
        self.coverage.messages_snapped += 1;
        if let Some(read) = self.reader.long_request(&mut long) {
            self.ask(conn, at, long.compressor, read);
        }
    }

    /// A message that cannot be read; a reply still answers its request.
    fn unread(&mut self, conn: &mut Connection, at: Arrived) {
        if conn.is_server(at.side) == Some(true) {
            self.answer(
                conn,
                &Answer { header: at.header, reply: &Reply::default(), arrival: unread_arrival(conn, at) },
            );
        }
    }

    /// A message that was skipped has ended.
    fn skipped(&mut self, conn: &mut Connection, at: Arrived, skipped: Skipped) {
        if skipped.cut && !self.snapped && !skipped.evicted && at.header.known().is_some() {
            return self.cut_by_snap(conn, at);
        }
        let coverage = &mut self.coverage;
        let counter = match at.header.known() {
            None => &mut coverage.messages_opcode_unknown,
            Some(_) if skipped.evicted => &mut coverage.messages_evicted,
            Some(_) if self.snapped => &mut coverage.messages_snapped,
            Some(_) => &mut coverage.messages_damaged,
        };
        *counter += 1;
        if at.header.known().is_some() {
            self.unread(conn, at);
        }
    }

    /// A request has been read.
    #[inline]
    fn ask(&mut self, conn: &mut Connection, at: Arrived, compressor: Option<Compressor>, read: ReadRequest) {
        let provisional = conn.streams[at.side.index()].provisional;
        conn.exchange.unheard = conn.hears_no_server();
        let sent = Sent { header: at.header, compressor, time: at.time, provisional };
        let asked = read.sent_by(&mut conn.client, &sent);
        if self.pairing.ask(&mut conn.exchange, asked, &mut self.ended) {
            self.answered(conn, None);
        }
    }

    /// A reply that was not read from a message in one piece.
    fn answer(&mut self, conn: &mut Connection, answer: &Answer<'_>) {
        self.coverage.replies += 1;
        let early = self.pairing.answer(&mut conn.exchange, answer, &mut self.ended);
        self.answered(conn, early);
    }

    /// A reply has answered a request; or it is `early`, and its request may come yet.
    #[inline]
    fn answered(&mut self, conn: &mut Connection, early: Option<Early>) {
        match early {
            None => conn.streams.iter_mut().for_each(|stream| stream.provisional = false),
            Some(early) => self.unmatched(conn, early),
        }
    }

    /// A reply whose request is not known. It may come yet; or the reply is one of a chain that began
    /// before the capture.
    fn unmatched(&mut self, conn: &mut Connection, reply: Early) {
        let Some(before) = self.pairing.predecessor(&mut conn.exchange, &reply) else {
            if let Some(oldest) = self.pairing.keep_early(&mut conn.exchange, reply) {
                self.give_up_reply(conn, &oldest);
            }
            return;
        };
        self.adopt(conn, &before);
        match self.pairing.answer(&mut conn.exchange, &reply.answer(), &mut self.ended) {
            None => self.answered(conn, None),
            // The one before was the last of its chain.
            Some(reply) => self.give_up_reply(conn, &reply),
        }
    }

    /// The request of this reply will not come.
    fn give_up_reply(&mut self, conn: &mut Connection, reply: &Early) {
        if reply.begins_chain() {
            self.adopt(conn, reply);
        } else {
            self.pairing.count_unmatched(reply);
        }
    }

    /// Takes a reply as one of a chain whose beginning was not captured.
    fn adopt(&mut self, conn: &mut Connection, reply: &Early) {
        let pending = self.reader.chained(reply, &mut conn.client);
        self.pairing.adopt(&mut conn.exchange, pending, &reply.answer(), &mut self.ended);
    }

    /// Gives up what has waited too long on a connection.
    fn expire(&mut self, conn: &mut Connection, now: Timestamp) {
        let is_over = |early: &Early| now.since(early.arrival.first) >= EARLY_NS;
        while let Some(early) = self.pairing.take_oldest_early(&mut conn.exchange, is_over) {
            self.give_up_reply(conn, &early);
        }
        self.pairing.expire(&mut conn.exchange, now, &mut self.ended);
    }

    /// Hands on the operations of a connection that have ended.
    #[inline]
    fn emit(&mut self, conn: &Connection, out: &mut impl EndedSink) {
        if self.ended.is_empty() {
            return;
        }
        let app = &conn.client.app;
        if self.reader.identifier.is_other_app(app) {
            self.coverage.apps_folded += self.ended.len() as u64;
        }
        let (flow, client, server, role) = (conn.flow, conn.client_end(), conn.server_end(), conn.role());
        let suite = conn.suite;
        out.take(OperationParties { flow, client, server, role, app, suite }, &mut self.ended);
    }

    /// Advances the time of these connections, which are all that there are, to `now`.
    pub fn tick<'a>(
        &mut self,
        connections: impl Iterator<Item = &'a mut Connection>,
        now: Timestamp,
        out: &mut impl EndedSink,
    ) {
        let more_is_known = self.reader.identifier.clients_have_changed();
        self.decryption.refresh();
        for conn in connections {
            if more_is_known {
                self.reader.identifier.look_up_client(conn);
            }
            if conn.tls.is_some() {
                self.retry_encrypted(conn, now, out);
            }
            self.expire(conn, now);
            self.emit(conn, out);
        }
    }
}

/// What happens on a connection.
impl Stages {
    /// A connection begins.
    pub fn open(&self, flow: &Flow) -> Connection {
        let named = [self.ports.names(flow.ends[0].port), self.ports.names(flow.ends[1].port)];
        let server = match (flow.opener, named) {
            (Some(client), _) => Some(client.other()),
            (None, [true, false]) => Some(Side::Low),
            (None, [false, true]) => Some(Side::High),
            _ => None,
        };
        let identifier = &self.reader.identifier;
        let mut conn = Connection::new(flow, server, identifier.unknown_client(flow.opener.is_none()));
        identifier.look_up_client(&mut conn);
        // Of a process, both what it reads and what it writes is captured.
        conn.exchange.saw_server |= self.framer.tls.is_process();
        conn
    }

    /// The next bytes of one side.
    #[inline]
    pub fn data(&mut self, conn: &mut Connection, chunk: Chunk<'_>, out: &mut impl EndedSink) -> Verdict {
        if conn.tls.is_some() {
            return self.encrypted(conn, &TlsInput::Data(chunk), out);
        }
        self.plain(conn, chunk, out)
    }

    /// The next bytes of one side, which are not encrypted or have been decrypted.
    #[inline]
    fn plain(&mut self, conn: &mut Connection, mut chunk: Chunk<'_>, out: &mut impl EndedSink) -> Verdict {
        let side = chunk.side;
        loop {
            let stream = &mut conn.streams[side.index()];
            let Some(framed) = self.framer.next(stream, conn.facts, &mut chunk) else { break };
            let (time, provisional) = (chunk.time, stream.provisional);
            let at = |header| Arrived { header, side, time };
            let from_server = conn.is_server(side);
            match framed {
                Framed::Whole { header, opcode, body } => {
                    let bytes = &*body;
                    let message = Packed { header, opcode, bytes, left: 0, from_server, provisional };
                    self.message(conn, at(header), message);
                }
                Framed::Piece { header, opcode, bytes, left } => {
                    let piece = Packed { header, opcode, bytes, left, from_server, provisional };
                    self.piece(conn, at(header), piece);
                }
                Framed::Skipped(skipped) => self.skipped(conn, at(skipped.header), skipped),
                Framed::Proxied(client) => {
                    conn.server = Some(side.other());
                    conn.behind_proxy = client;
                }
                Framed::Encrypted(start) => return self.begin_encrypted(conn, start, chunk, out),
                Framed::NotMongodb => return Verdict::Ignore,
            }
            self.emit(conn, out);
        }
        Verdict::Continue
    }

    /// Bytes of one side are missing.
    pub fn gap(&mut self, conn: &mut Connection, gap: &Gap, out: &mut impl EndedSink) {
        if conn.tls.is_some() {
            // It is ignored with the next bytes.
            let _ = self.encrypted(conn, &TlsInput::Gap(*gap), out);
        } else {
            self.plain_gap(conn, gap, out);
        }
    }

    /// One direction of a connection is not captured; or it is after all.
    pub fn unheard(&mut self, conn: &mut Connection, unheard: Unheard) {
        // Inside a process there are no acknowledgements: a server that is silent works.
        if self.framer.tls.is_process() {
            return;
        }
        self.coverage.streams_one_way += u64::from(unheard.side.is_some());
        conn.unheard = unheard.side;
        conn.exchange.set_unheard(conn.hears_no_server(), unheard.time);
    }

    /// Bytes of one side are missing, which were not encrypted or would have been decrypted.
    fn plain_gap(&mut self, conn: &mut Connection, gap: &Gap, out: &mut impl EndedSink) {
        let &Gap { side, time, lost } = gap;
        if self.framer.tls.is_process()
            && let Some(missing) = lost.bytes()
            && let Some(long) = &mut conn.long[side.index()]
            && conn.streams[side.index()].jump(missing)
        {
            // Only the beginning and the end of a long message are copied.
            return long.jump(missing);
        }
        let is_cut = matches!(lost, Lost::Cut(_)) && !self.snapped;
        let is_reply = conn.is_server(side) == Some(true);
        if !is_reply && !is_cut {
            // A getLastError behind the gap may be that of another write, which is in the gap.
            self.pairing.end_legacy_write(&mut conn.exchange, time, &mut self.ended);
            conn.exchange.request_gap = Some(time);
        }
        let stream = &mut conn.streams[side.index()];
        let outcome = self.framer.gap(stream, conn.facts, gap);
        if let Some(beginning) = outcome.beginning.filter(|_| is_cut) {
            self.read_beginning(conn, side, &beginning);
        }
        let stream = &conn.streams[side.index()];
        let is_cut_request = self.snapped && outcome.skipped.is_some() && conn.server == Some(side.other());
        let slot = &mut conn.long[side.index()];
        let cut = if is_cut_request { self.unpacker.take_cut(slot) } else { None };
        if !stream.in_long_message() && !is_cut {
            self.unpacker.drop_long(&mut conn.long[side.index()]);
        }
        if let Some(skipped) = outcome.skipped {
            let at = Arrived { header: skipped.header, side, time };
            match cut {
                Some(long) => self.cut_request(conn, at, long),
                None => self.skipped(conn, at, skipped),
            }
        }
        if let Some(since) = outcome.hides_messages_since.filter(|_| is_reply) {
            self.pairing.reply_in_gap(&mut conn.exchange, since, time);
        }
        self.emit(conn, out);
    }

    /// One side has sent all that it will send: a server that has ends all requests, a client that has waits for no
    /// reply for long.
    pub fn fin(&mut self, conn: &mut Connection, side: Side, time: Timestamp, out: &mut impl EndedSink) {
        if conn.is_server(side) == Some(true) {
            conn.exchange.replies = ReplyPath::Ended(time);
            self.unanswered(conn, time);
            self.emit(conn, out);
        } else if !matches!(conn.exchange.replies, ReplyPath::Ended(_)) {
            conn.exchange.replies = ReplyPath::Closing(time);
        }
    }

    /// Gives up all requests of a connection: their replies will not come.
    fn unanswered(&mut self, conn: &mut Connection, time: Timestamp) {
        while !conn.exchange.pending.is_empty() {
            let ended = self.pairing.give_up_at(&mut conn.exchange, 0, time, GivenUp::Unanswered);
            self.ended.extend(ended);
        }
    }

    /// A connection ends.
    pub fn close(&mut self, mut conn: Connection, time: Timestamp, how: Close, out: &mut impl EndedSink) {
        let with_capture = how == Close::EndOfCapture;
        self.close_encrypted(&mut conn, time, out);
        for (stream, long) in conn.streams.iter().zip(&mut conn.long) {
            self.framer.close(stream, with_capture);
            self.unpacker.drop_long(long);
        }
        while let Some(early) = self.pairing.take_oldest_early(&mut conn.exchange, |_| true) {
            self.give_up_reply(&mut conn, &early);
        }
        self.pairing.end_legacy_write(&mut conn.exchange, time, &mut self.ended);
        while let Some(oldest) = conn.exchange.pending.front() {
            let in_flight = with_capture && conn.exchange.awaits_reply_to(oldest);
            let why = if in_flight { GivenUp::InFlight } else { GivenUp::Unanswered };
            let ended = self.pairing.give_up_at(&mut conn.exchange, 0, time, why);
            self.ended.extend(ended);
        }
        self.emit(&conn, out);
    }
}

/// The stages, as the flow table calls them.
pub struct Handler<'a, O> {
    pub stages: &'a mut Stages,
    pub out: O,
}

impl<O: EndedSink> StreamHandler for Handler<'_, O> {
    type Connection = Connection;

    fn open(&mut self, flow: &Flow) -> Connection {
        self.stages.open(flow)
    }

    #[inline]
    fn data(&mut self, _: &Flow, conn: &mut Connection, chunk: Chunk<'_>) -> Verdict {
        self.stages.data(conn, chunk, &mut self.out)
    }

    fn gap(&mut self, _: &Flow, conn: &mut Connection, gap: Gap) {
        self.stages.gap(conn, &gap, &mut self.out);
    }

    fn fin(&mut self, _: &Flow, conn: &mut Connection, side: Side, time: Timestamp) {
        self.stages.fin(conn, side, time, &mut self.out);
    }

    fn refused(&mut self, _: &Flow, conn: &mut Connection, time: Timestamp) {
        conn.exchange.refused = Some(time);
    }

    fn unheard(&mut self, _: &Flow, conn: &mut Connection, unheard: Unheard) {
        self.stages.unheard(conn, unheard);
    }

    fn close(&mut self, _: &Flow, conn: Connection, time: Timestamp, how: Close) {
        self.stages.close(conn, time, how, &mut self.out);
    }
}
