//! What does this message say? Inflates it where it is compressed, has it read, in one piece or while it
//! comes, and derives from the first one which side is the server.
//!
//! Where it begins and ends is known from [`stream`](super::stream); a long one is read by
//! [`walk`](super::walk); the layouts are
//! [`message`](crate::message)'s; what comes of a request or a reply is left to [`request`](super::request)
//! and [`pair`](super::pair).

use sonar_core::Timestamp;
use sonar_core::operation::{Compressor, Opcode};

use super::connection::Connection;
use super::pair::Arrival;
use super::request::Sent;
use super::stream::Stage;
use super::walk::{Checksum, Streaming, Walk, inflate_all, inflate_into, new_streaming, server_by};
use super::{Core, Handler, Sink};
use crate::message::{Content, Found, Header, Reply, SlotValues};
use crate::tcp::{Flow, Side};

impl<S: Sink> Handler<'_, S> {
    /// A message that is all there. Its header has been counted.
    pub(super) fn whole(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        header: Header,
        body: &[u8],
        time: Timestamp,
    ) {
        let Some(opcode) = header.known() else {
            self.core.coverage.messages_opcode_unknown += 1;
            return;
        };
        conn.speaks = true;
        if opcode != Opcode::Compressed {
            return self.plain(flow, conn, side, header, opcode, body, None, time);
        }
        let Some((opcode, size, compressor, data)) = compressed_head(body) else {
            self.core.coverage.messages_undecodable += 1;
            return self.unread(flow, conn, side, header, time);
        };
        let mut inflated = std::mem::take(&mut self.core.inflated);
        inflated.clear();
        let small = size as usize <= 64 * 1024;
        let result = if small {
            inflate_all(self.core.inflaters.take(compressor, size, data.len() as u32), data, &mut inflated)
        } else {
            // Too long to be held inflated: walked as it comes out.
            let mut streaming =
                new_streaming(opcode, u64::from(size), conn.server.map(|server| server == side));
            streaming.compressor = Some(compressor);
            streaming.inflater = self.core.inflaters.take(compressor, size, data.len() as u32);
            let ok = streaming.inflater.is_some();
            if ok {
                inflate_into(&mut streaming, data);
                self.core.inflated = inflated;
                return self.streamed(flow, conn, side, header, streaming, time);
            }
            false
        };
        if result {
            self.plain(flow, conn, side, header, opcode, &inflated, Some(compressor), time);
        } else {
            self.core.coverage.messages_undecodable += 1;
            self.unread(flow, conn, side, header, time);
        }
        self.core.inflated = inflated;
    }

    /// A message that was passed over has ended.
    pub(super) fn end_passed(&mut self, flow: &Flow, conn: &mut Connection, side: Side, time: Timestamp) {
        let half = &mut conn.halves[side.index()];
        let Stage::Pass { header, evicted, .. } = half.stage else { return };
        let first = half.first;
        half.stage = Stage::start();
        let is_reply = conn.server == Some(side);
        let snapped = is_reply && self.core.settings.snap_replies.is_some();
        let counter = match header.known() {
            None => &mut self.core.coverage.messages_opcode_unknown,
            Some(_) if evicted => &mut self.core.coverage.messages_evicted,
            Some(_) if snapped => &mut self.core.coverage.messages_snapped,
            Some(_) => &mut self.core.coverage.messages_damaged,
        };
        *counter += 1;
        if is_reply && header.known().is_some() {
            self.core.coverage.replies += 1;
            let arrival = Arrival { first, last: time, compressor: None, whole: false };
            let mut reply = std::mem::take(&mut self.core.reply);
            reply.reset();
            self.answer(flow, conn, header, &mut reply, arrival);
            self.core.reply = reply;
        }
    }

    /// A message that cannot be read: a reply at least answers.
    fn unread(&mut self, flow: &Flow, conn: &mut Connection, side: Side, header: Header, time: Timestamp) {
        if conn.server == Some(side) {
            self.core.coverage.replies += 1;
            let arrival = Arrival {
                first: conn.halves[side.index()].first,
                last: time,
                compressor: None,
                whole: false,
            };
            self.answer(flow, conn, header, &mut Reply::default(), arrival);
        }
    }

    /// A message in one piece, inflated if it was compressed.
    #[allow(clippy::too_many_arguments)]
    fn plain(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        header: Header,
        opcode: Opcode,
        body: &[u8],
        compressor: Option<Compressor>,
        time: Timestamp,
    ) {
        let has_checksum =
            opcode == Opcode::Msg && compressor.is_none() && body.first().is_some_and(|f| f & 1 != 0);
        if has_checksum && (self.core.settings.verify_checksums || conn.halves[side.index()].provisional) {
            let mut checksum = Checksum::new(header);
            checksum.feed(body, body.len() as u64);
            let found_by_looks = conn.halves[side.index()].provisional;
            if !self.verified(conn, side, &checksum) {
                if !found_by_looks {
                    self.unread(flow, conn, side, header, time);
                }
                return;
            }
        }
        conn.halves[side.index()].read = true;
        let server = match conn.server {
            Some(server) => server,
            None => {
                let Some(server) = self.server_of(side, opcode, body) else {
                    self.core.coverage.messages_malformed += 1;
                    return;
                };
                conn.server = Some(server);
                server
            }
        };
        let half = &conn.halves[side.index()];
        let (first, provisional) = (half.first, half.provisional);
        if server == side {
            let mut reply = std::mem::take(&mut self.core.reply);
            let whole = self.core.read_reply(conn, opcode, body, &mut reply);
            self.count_read(whole);
            self.core.coverage.replies += 1;
            self.answer(flow, conn, header, &mut reply, Arrival { first, last: time, compressor, whole });
            self.core.reply = reply;
            return;
        }
        let sent = Sent { server: flow.ends[server.index()], header, compressor, time, provisional };
        let place = match opcode {
            Opcode::Msg => match self.core.recognised(conn, body, &sent) {
                Ok(asked) => {
                    self.count_read(true);
                    return self.ask(flow, conn, asked, time);
                }
                Err(place) => place,
            },
            _ => None,
        };
        let mut request = std::mem::take(&mut self.core.request);
        request.reset(opcode);
        self.core.body.begin(opcode, body.len() as u64);
        let read = self.core.body.feed(body, &mut Content::Request(&mut request));
        let whole = read.is_ok() && self.core.body.left() == 0 && !request.command.bytes().is_empty();
        self.count_read(whole);
        if whole {
            let (asked, meaning) = self.core.walked(conn, &mut request, Some(body), &sent);
            if let Some(place) = place {
                self.core.remember(place, body, &mut request, meaning);
            }
            self.ask(flow, conn, asked, time);
        }
        self.core.request = request;
    }

    /// Whether a checksum is right, which is counted. A message that was found by its looks is one if so;
    /// if not, the search goes on behind it.
    fn verified(&mut self, conn: &mut Connection, side: Side, checksum: &Checksum) -> bool {
        let half = &mut conn.halves[side.index()];
        let right = checksum.is_right();
        self.core.coverage.checksums_verified += 1;
        self.core.coverage.messages_checksum_wrong += u64::from(!right);
        if half.provisional && !right {
            half.stage = Stage::lost(conn.joined_late && !half.read, half.first);
        }
        half.provisional &= !right;
        right
    }

    fn count_read(&mut self, whole: bool) {
        if whole {
            self.core.coverage.messages_decoded += 1;
        } else {
            self.core.coverage.messages_malformed += 1;
        }
    }

    /// Which side is the server, where a message of `side` proves it.
    fn server_of(&mut self, side: Side, opcode: Opcode, body: &[u8]) -> Option<Side> {
        let Core { request, reply, body: walk, .. } = &mut *self.core;
        request.reset(opcode);
        reply.reset();
        walk.begin(opcode, body.len() as u64);
        let read = match opcode {
            Opcode::Reply | Opcode::CommandReply => walk.feed::<()>(body, &mut Content::Reply(reply)),
            _ => walk.feed(body, &mut Content::Request(request)),
        };
        let is_whole = read.is_ok() && walk.left() == 0;
        server_by(side, opcode, is_whole.then_some(request.has_database))
    }

    /// Walks on through a long message.
    pub(super) fn walk(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        bytes: &[u8],
        time: Timestamp,
    ) {
        let Stage::Stream { left, streaming, .. } = &mut conn.halves[side.index()].stage else { return };
        if let Some(checksum) = &mut streaming.checksum {
            checksum.feed(bytes, *left);
        }
        *left -= bytes.len() as u64;
        let ended = *left == 0;
        if streaming.opcode == Opcode::Compressed && streaming.compressor.is_none() && !streaming.failed {
            // The nine bytes that say how it is compressed may be split too.
            let want = (9 - streaming.compressed_head.len()).min(bytes.len());
            streaming.compressed_head.extend_from_slice(&bytes[..want]);
            let rest = &bytes[want..];
            if streaming.compressed_head.len() == 9 {
                let compressed = *left + rest.len() as u64;
                match compressed_head(&streaming.compressed_head) {
                    Some((opcode, size, compressor, _)) => {
                        streaming.compressor = Some(compressor);
                        streaming.inflater = self.core.inflaters.take(compressor, size, compressed as u32);
                        streaming.failed = streaming.inflater.is_none();
                        streaming.begin(opcode, u64::from(size));
                    }
                    None => streaming.failed = true,
                }
                inflate_into(streaming, rest);
            }
        } else if streaming.inflater.is_some() {
            inflate_into(streaming, bytes);
        } else {
            streaming.feed(bytes);
        }
        if ended {
            let stage = std::mem::replace(&mut conn.halves[side.index()].stage, Stage::start());
            if let Stage::Stream { header, streaming, .. } = stage {
                self.core.streaming -= 1;
                self.streamed(flow, conn, side, header, streaming, time);
            }
        }
    }

    /// A long message has ended.
    fn streamed(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        header: Header,
        mut streaming: Box<Streaming>,
        time: Timestamp,
    ) {
        conn.speaks = true;
        let found_by_looks = conn.halves[side.index()].provisional;
        if let Some(checksum) =
            streaming.checksum.take().filter(|_| streaming.walks().any(|walk| walk.body.has_checksum()))
            && !self.verified(conn, side, &checksum)
        {
            if !found_by_looks {
                self.unread(flow, conn, side, header, time);
            }
            return;
        }
        conn.halves[side.index()].read = true;
        conn.server = conn.server.or_else(|| streaming.server(side));
        let walk = match conn.server {
            Some(server) if server == side => &streaming.as_reply,
            Some(_) => &streaming.as_request,
            None => &None,
        };
        let whole = !streaming.failed && walk.as_ref().is_some_and(Walk::is_whole);
        match (whole, streaming.compressor) {
            (true, _) => self.core.coverage.messages_decoded += 1,
            (false, Some(_)) => self.core.coverage.messages_undecodable += 1,
            (false, None) => self.core.coverage.messages_malformed += 1,
        }
        let Some(server) = conn.server else { return };
        let half = &conn.halves[side.index()];
        let (first, provisional) = (half.first, half.provisional);
        if server == side {
            self.core.coverage.replies += 1;
            let arrival = Arrival { first, last: time, compressor: streaming.compressor, whole };
            self.answer(flow, conn, header, &mut streaming.reply, arrival);
        } else if whole && !streaming.request.command.bytes().is_empty() {
            let (server, compressor) = (flow.ends[server.index()], streaming.compressor);
            let sent = Sent { server, header, compressor, time, provisional };
            let (asked, _) = self.core.walked(conn, &mut streaming.request, None, &sent);
            self.ask(flow, conn, asked, time);
        }
    }
}

impl Core {
    /// Reads a reply that is all there. False: it contradicts itself.
    #[inline]
    fn read_reply(&mut self, conn: &Connection, opcode: Opcode, body: &[u8], reply: &mut Reply) -> bool {
        let found = match opcode {
            // Mostly the answer to the request that has waited longest.
            Opcode::Msg => {
                let request = conn.pending.front().map_or(0, |pending| pending.ordered_id.0);
                self.replies.find_beside(request, body)
            }
            _ => Found::Unknown,
        };
        let place = match found {
            Found::Known(known, told) => {
                reply.become_known(known, &told);
                return true;
            }
            Found::Wanted(place) => Some(place),
            Found::Unknown => None,
        };
        reply.reset();
        self.body.begin(opcode, body.len() as u64);
        let read = self.body.feed::<()>(body, &mut Content::Reply(reply));
        let whole = read.is_ok() && self.body.left() == 0;
        if let (Some(place), true, true) = (place, whole, reply.codes.is_empty()) {
            let same = |known: &Reply, told: &SlotValues| {
                let mut again = Reply::default();
                again.become_known(known, told);
                again == *reply
            };
            self.replies.add(place, body, &mut Reply::default(), reply.clone(), same);
        }
        whole
    }
}

/// Original opcode, uncompressed size, compressor and data of an OP_COMPRESSED body.
fn compressed_head(body: &[u8]) -> Option<(Opcode, u32, Compressor, &[u8])> {
    let word = |at: usize| body.get(at..at + 4).and_then(|w| w.first_chunk()).map(|w| u32::from_le_bytes(*w));
    let opcode = Opcode::from_number(word(0)?).filter(|opcode| *opcode != Opcode::Compressed)?;
    let size = word(4).filter(|size| *size <= crate::message::MAX_MESSAGE)?;
    Some((opcode, size, Compressor::from_id(*body.get(8)?)?, body.get(9..)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;

    use crate::decoder::collected::{Collected, message};
    use crate::decoder::walk::Checksum;
    use crate::message::{HEADER, Header};
    use crate::testing::{Conversation, End};
    use crate::{Decoder, Settings, Shared};

    /// An OP_MSG with a checksum. CRC-32C bit by bit (reflected polynomial 0x82f63b78).
    fn summed(id: u32, response_to: u32, document: &bson::Document) -> Vec<u8> {
        let mut bytes = message(id, response_to, document);
        let length = bytes.len() as u32 + 4;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[HEADER] = 1;
        let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8)
                .fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        });
        bytes.extend((!crc).to_le_bytes());
        bytes
    }

    fn insert(padding: usize) -> bson::Document {
        let documents = vec![doc! {"_id": 1, "padding": "x".repeat(padding)}];
        doc! {"insert": "orders", "documents": documents, "$db": "shop"}
    }

    fn take(talk: &mut Conversation, verify_checksums: bool) -> Collected {
        let settings = Settings { verify_checksums, ..Settings::default() };
        let mut decoder = Decoder::new(settings, Arc::new(Shared::default()));
        let mut seen = Collected::default();
        // What comes after a gap has been acknowledged: it will not be sent again.
        talk.wait(5_000_000_000).ack(End::Server).ack(End::Client);
        for packet in &talk.packets {
            decoder.packet(&packet.as_packet(), &mut seen);
        }
        decoder.tick(talk.now().plus_ns(5_000_000_000), &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        decoder.finish(talk.now().plus_ns(6_000_000_000), &mut seen);
        seen.coverage = decoder.coverage();
        assert_eq!(seen.coverage.imbalances(decoder.in_progress()), []);
        seen
    }

    fn talk() -> Conversation {
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
        talk.handshake();
        talk
    }

    /// The message as an OP_COMPRESSED of its own length: the compressor is noop.
    fn wrapped(message: &[u8]) -> Vec<u8> {
        let header = Header::read(message).unwrap();
        let body = &message[HEADER..];
        let words = [message.len() as u32 + 9, header.request_id, header.response_to, 2012];
        let head = words.into_iter().chain([header.opcode, body.len() as u32]).flat_map(u32::to_le_bytes);
        head.chain([0]).chain(body.iter().copied()).collect()
    }

    #[test]
    fn on_a_connection_joined_late_what_a_message_says_decides_who_is_the_server() {
        // The client's port is the lower one, and then the higher one.
        for (client, server) in [("10.0.0.2:35000", "10.1.0.1:40001"), ("10.0.0.2:40000", "10.1.0.1:27017")] {
            for (mss, padding) in [(1_400, 100), (1_400, 40_000), (1_400, 100_000), (200_000, 100_000)] {
                for (reply_first, compressed) in [(false, false), (false, true), (true, false), (true, true)]
                {
                    let case = format!("{client} {mss} {padding} {reply_first} {compressed}");
                    let mut talk = Conversation::new(client, server).with_mss(mss);
                    let mut send = |from, message: Vec<u8>| {
                        talk.send(from, &if compressed { wrapped(&message) } else { message });
                    };
                    let long = || "x".repeat(padding);
                    if reply_first {
                        let batch = doc! {"nextBatch": [{"a": long()}], "id": 0_i64, "ns": "shop.orders"};
                        send(End::Server, message(899, 898, &doc! {"cursor": batch, "ok": 1.0}));
                    }
                    for id in 1..=5 {
                        let find = doc! {"find": "orders", "$db": "shop"};
                        let command = if id == 1 { insert(padding) } else { find };
                        send(End::Client, message(id, 0, &command));
                        send(End::Server, message(900 + id, id, &doc! {"n": 1, "ok": 1.0}));
                    }
                    let seen = take(&mut talk, false);
                    let coverage = seen.coverage;
                    assert_eq!((coverage.requests_answered, coverage.requests), (5, 5), "{case}");
                    assert_eq!(coverage.replies_joined_late, u64::from(reply_first), "{case}");
                    assert_eq!(coverage.messages_decoded, coverage.messages, "{case}");
                    let servers: Vec<String> =
                        seen.window.shapes.iter().map(|row| row.key().server.to_string()).collect();
                    assert_eq!(servers, [server, server], "{case}");
                }
            }
        }
    }

    #[test]
    fn a_message_that_cannot_be_read_decides_nothing() {
        for padding in [100, 40_000] {
            let mut talk = Conversation::new("10.0.0.2:35000", "10.1.0.1:40001");
            // BSON has no such type.
            let mut damaged = message(1, 0, &insert(padding));
            let at = damaged.windows(4).position(|bytes| bytes == b"$db\0").unwrap();
            damaged[at - 1] = 0x7e;
            talk.send(End::Client, &damaged);
            for id in 2..5 {
                talk.send(End::Client, &message(id, 0, &insert(10)));
                talk.send(End::Server, &message(900 + id, id, &doc! {"n": 1, "ok": 1.0}));
            }
            let seen = take(&mut talk, false);
            let coverage = seen.coverage;
            assert_eq!((coverage.messages_malformed, coverage.requests_answered), (1, 3), "{padding}");
            assert!(seen.window.shapes.iter().all(|row| row.key().server.to_string() == "10.1.0.1:40001"));
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_specification_however_the_message_is_split() {
        let bytes = summed(1, 0, &insert(100));
        let header = Header::read(&bytes).unwrap();
        for step in [1, 3, 50, 4_096] {
            let mut checksum = Checksum::new(header);
            let mut left = bytes.len() - HEADER;
            for chunk in bytes[HEADER..].chunks(step) {
                checksum.feed(chunk, left as u64);
                left -= chunk.len();
            }
            assert!(checksum.is_right(), "{step}");
        }
    }

    #[test]
    fn every_checksum_is_verified_where_that_is_asked_for_and_wrong_ones_are_counted() {
        for padding in [10, 100_000] {
            for (verify, wrong) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut talk = talk();
                let mut request = summed(1, 0, &insert(padding));
                let byte = request.len() - 20;
                request[byte] ^= u8::from(wrong);
                talk.send(End::Client, &request).send(End::Server, &summed(2, 1, &doc! {"n": 1, "ok": 1.0}));
                // Without a checksum there is nothing to verify.
                talk.send(End::Client, &message(3, 0, &insert(padding)));
                talk.send(End::Server, &message(4, 3, &doc! {"n": 1, "ok": 1.0}));
                let seen = take(&mut talk, verify);
                let coverage = seen.coverage;
                let counted = (coverage.checksums_verified, coverage.messages_checksum_wrong);
                assert_eq!(counted, if verify { (2, u64::from(wrong)) } else { (0, 0) }, "{padding}");
                let told: Vec<_> = seen.operations.iter().map(|told| told.0).collect();
                assert_eq!(
                    told,
                    if verify && wrong { vec![3] } else { vec![1, 3] },
                    "{padding} {verify} {wrong}"
                );
            }
        }
    }

    #[test]
    fn after_a_gap_a_message_with_a_wrong_checksum_is_no_message() {
        for padding in [10, 100_000] {
            for wrong in [false, true] {
                let mut talk = talk();
                talk.send(End::Client, &message(1, 0, &insert(10)));
                talk.send(End::Server, &message(2, 1, &doc! {"n": 1, "ok": 1.0}));
                talk.lose(End::Client, 500);
                let mut found = summed(5, 0, &insert(padding));
                let byte = found.len() - 20;
                found[byte] ^= u8::from(wrong);
                talk.send(End::Client, &found).send(End::Client, &summed(7, 0, &insert(padding)));
                talk.send(End::Server, &message(8, 7, &doc! {"n": 1, "ok": 1.0}));
                let seen = take(&mut talk, false);
                let coverage = seen.coverage;
                // The one behind the first is verified too where the search goes on.
                let verified = if wrong { (2, 1) } else { (1, 0) };
                assert_eq!(
                    (coverage.checksums_verified, coverage.messages_checksum_wrong),
                    verified,
                    "{coverage:?}"
                );
                let mut told: Vec<_> = seen.operations.iter().map(|told| (told.0, told.2)).collect();
                told.sort_unstable();
                let expected: &[_] =
                    if wrong { &[(1, "ok"), (7, "ok")] } else { &[(1, "ok"), (5, "unknown"), (7, "ok")] };
                assert_eq!(told, expected, "{padding}");
            }
        }
    }
}
