//! What is inside this message? Verifies its checksum, inflates it if it is compressed, and reads long messages as
//! they come.

use std::ops::ControlFlow;

use sonar_core::Coverage;
use sonar_core::operation::{Compressor, Opcode};

use super::caps::Arrivals;
use super::long::{Checksum, LongMessage};
use crate::compress::{InflateStatus, Inflater, Inflaters};
use crate::message::Header;

/// Long messages that are read at once, over all connections; beyond it the oldest are dropped. Each holds some 16
/// KiB and an inflater.
pub const MAX_LONG: usize = 512;

/// The most bytes that are inflated in one piece; a message with more is read while it is inflated.
const MAX_INFLATED: usize = 64 * 1024;

/// A message, or a piece of a long one, as it came.
#[derive(Copy, Clone)]
pub struct Packed<'a> {
    pub header: Header,
    pub opcode: Opcode,
    /// Bytes of the body.
    pub bytes: &'a [u8],
    /// How many bytes of the body come after these.
    pub left: u64,
    /// Whether the server sent it, where that is known.
    pub from_server: Option<bool>,
    /// It was found by a search.
    pub provisional: bool,
}

/// The result for a message.
pub enum Unpacked<'a> {
    /// A body in one piece.
    Plain(Plain<'a>),
    /// A long message, which has been read.
    Long(Box<LongMessage>),
    /// It cannot be inflated, which has been counted.
    Undecodable,
    WrongChecksum,
}

/// A body in one piece, inflated if it was compressed.
#[derive(Copy, Clone)]
pub struct Plain<'a> {
    pub opcode: Opcode,
    pub body: &'a [u8],
    pub compressor: Option<Compressor>,
    /// Its checksum is right.
    pub verified: bool,
}

/// Verifies and inflates messages.
pub struct Unpacker {
    /// Counters of checksums and of messages that cannot be inflated.
    pub coverage: Coverage,
    verify_checksums: bool,
    inflated: Vec<u8>,
    inflaters: Inflaters,
    /// Long messages that are being read.
    long: usize,
    arrivals: Arrivals,
}

impl Unpacker {
    pub fn new(verify_checksums: bool) -> Self {
        Self {
            coverage: Coverage::default(),
            verify_checksums,
            inflated: Vec::new(),
            inflaters: Inflaters::default(),
            long: 0,
            arrivals: Arrivals::default(),
        }
    }

    /// The same with inflaters for a share of the long messages.
    pub fn with_share(self, share: usize) -> Self {
        Self { inflaters: Inflaters::share(share), ..self }
    }

    /// The bytes of long messages that are being read, and of what inflates them: an estimate.
    pub fn memory(&self) -> usize {
        self.long * size_of::<LongMessage>() + self.inflated.capacity() + self.inflaters.memory()
    }

    /// Unpacks a message that is all there.
    #[inline]
    pub fn message<'a>(&'a mut self, message: Packed<'a>) -> Unpacked<'a> {
        let Packed { header, opcode, bytes, .. } = message;
        if opcode == Opcode::Compressed {
            return self.compressed(message);
        }
        let has_checksum = opcode == Opcode::Msg && bytes.first().is_some_and(|flags| flags & 1 != 0);
        let verified = has_checksum && (self.verify_checksums || message.provisional);
        if verified {
            let mut checksum = Checksum::new(header);
            checksum.feed(bytes, bytes.len() as u64);
            if !self.is_right(&checksum) {
                return Unpacked::WrongChecksum;
            }
        }
        Unpacked::Plain(Plain { opcode, body: bytes, compressor: None, verified })
    }

    fn compressed<'a>(&'a mut self, message: Packed<'a>) -> Unpacked<'a> {
        let Some((opcode, size, compressor, data)) = compressed_head(message.bytes) else {
            self.coverage.messages_undecodable += 1;
            return Unpacked::Undecodable;
        };
        let inflater = self.inflaters.take(compressor, size, data.len() as u32);
        if size as usize > MAX_INFLATED && inflater.is_some() {
            let mut long = LongMessage::new(opcode, u64::from(size), message.from_server);
            (long.compressor, long.inflater) = (Some(compressor), inflater);
            long.inflate(data);
            return Unpacked::Long(long);
        }
        self.inflated.clear();
        if inflate_all(inflater, data, &mut self.inflated) {
            let (body, compressor) = (&*self.inflated, Some(compressor));
            return Unpacked::Plain(Plain { opcode, body, compressor, verified: false });
        }
        self.coverage.messages_undecodable += 1;
        Unpacked::Undecodable
    }

    /// Reads a piece of a long message, which is kept in `slot` until it ends.
    pub fn piece(
        &mut self,
        slot: &mut Option<Box<LongMessage>>,
        piece: Packed<'_>,
    ) -> Option<Unpacked<'static>> {
        let Packed { header, opcode, bytes, left, .. } = piece;
        let long = slot.get_or_insert_with(|| {
            self.long += 1;
            let mut long = LongMessage::new(opcode, bytes.len() as u64 + left, piece.from_server);
            long.number = self.arrivals.next();
            let is_verified = opcode == Opcode::Msg && (self.verify_checksums || piece.provisional);
            long.checksum = is_verified.then(|| Checksum::new(header));
            long
        });
        if let Some(checksum) = &mut long.checksum {
            checksum.feed(bytes, bytes.len() as u64 + left);
        }
        if long.opcode == Opcode::Compressed && long.compressor.is_none() && !long.failed {
            self.begin_inflating(long, bytes, left);
        } else if long.inflater.is_some() {
            long.inflate(bytes);
        } else {
            long.feed(bytes);
        }
        if left > 0 {
            return None;
        }
        self.long -= 1;
        let mut long = slot.take()?;
        let checksum = long.checksum.take();
        if let Some(checksum) = checksum.filter(|_| long.walks().any(|walk| walk.body.has_checksum())) {
            if !self.is_right(&checksum) {
                return Some(Unpacked::WrongChecksum);
            }
            long.verified = true;
        }
        Some(Unpacked::Long(long))
    }

    /// Takes the nine bytes that state the compression, which segments may split too.
    fn begin_inflating(&mut self, long: &mut LongMessage, bytes: &[u8], left: u64) {
        let want = (9 - long.compressed_head.len()).min(bytes.len());
        long.compressed_head.extend_from_slice(&bytes[..want]);
        if long.compressed_head.len() < 9 {
            return;
        }
        let rest = &bytes[want..];
        match compressed_head(&long.compressed_head) {
            Some((opcode, size, compressor, _)) => {
                let compressed = left + rest.len() as u64;
                long.compressor = Some(compressor);
                long.inflater = self.inflaters.take(compressor, size, compressed as u32);
                long.failed = long.inflater.is_none();
                long.begin(opcode, u64::from(size));
            }
            None => long.failed = true,
        }
        long.inflate(rest);
    }

    /// Takes a long request whose end was not copied, if its beginning says what was asked.
    pub fn take_cut(&mut self, slot: &mut Option<Box<LongMessage>>) -> Option<Box<LongMessage>> {
        let cut = slot.take_if(|long| long.is_recognisable())?;
        self.long -= 1;
        Some(cut)
    }

    /// Takes what was read so far of a long message that will not be read to its end.
    pub fn take_long(&mut self, slot: &mut Option<Box<LongMessage>>) -> Option<Box<LongMessage>> {
        let long = slot.take()?;
        self.long -= 1;
        Some(long)
    }

    /// Drops a long message that will not be read to its end.
    pub fn drop_long(&mut self, slot: &mut Option<Box<LongMessage>>) {
        if slot.take().is_some() {
            self.long -= 1;
        }
    }

    /// Other stages read these long messages from now on.
    pub fn hand_over(&mut self, slots: &[Option<Box<LongMessage>>]) {
        self.long -= slots.iter().flatten().count();
    }

    /// Reads these long messages from now on.
    pub fn take_over(&mut self, slots: &[Option<Box<LongMessage>>]) {
        self.long += slots.iter().flatten().count();
    }

    /// How many long messages are being read.
    #[inline]
    pub fn long_messages(&self) -> usize {
        self.long
    }

    /// How many long messages have begun since this one.
    pub fn age(&self, long: &LongMessage) -> u32 {
        self.arrivals.age(long.number)
    }

    /// Whether a checksum is right, which is counted.
    fn is_right(&mut self, checksum: &Checksum) -> bool {
        let is_right = checksum.is_right();
        self.coverage.checksums_verified += 1;
        self.coverage.messages_checksum_wrong += u64::from(!is_right);
        is_right
    }
}

/// Original opcode, uncompressed size, compressor and data of an OP_COMPRESSED body.
fn compressed_head(body: &[u8]) -> Option<(Opcode, u32, Compressor, &[u8])> {
    let word = |at: usize| body.get(at..at + 4).and_then(|w| w.first_chunk()).map(|w| u32::from_le_bytes(*w));
    let opcode = Opcode::from_number(word(0)?).filter(|opcode| *opcode != Opcode::Compressed)?;
    let size = word(4).filter(|size| *size <= crate::message::MAX_MESSAGE)?;
    Some((opcode, size, Compressor::from_id(*body.get(8)?)?, body.get(9..)?))
}

/// Inflates a short message into `out`. Returns false if it cannot be inflated, or its size was wrong.
fn inflate_all(inflater: Option<Inflater>, data: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(mut inflater) = inflater else { return false };
    let result = inflater.inflate(data, &mut |chunk: &[u8]| {
        out.extend_from_slice(chunk);
        ControlFlow::Continue(())
    });
    result == Ok(InflateStatus::Done)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;

    use crate::decoder::collected::{Collected, message};
    use crate::decoder::long::Checksum;
    use crate::message::{HEADER, Header};
    use crate::testing::{Conversation, ConversationEnd};
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
        talk.wait(5_000_000_000).ack(ConversationEnd::Server).ack(ConversationEnd::Client);
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
                        send(ConversationEnd::Server, message(899, 898, &doc! {"cursor": batch, "ok": 1.0}));
                    }
                    for id in 1..=5 {
                        let find = doc! {"find": "orders", "$db": "shop"};
                        let command = if id == 1 { insert(padding) } else { find };
                        send(ConversationEnd::Client, message(id, 0, &command));
                        send(ConversationEnd::Server, message(900 + id, id, &doc! {"n": 1, "ok": 1.0}));
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
            talk.send(ConversationEnd::Client, &damaged);
            for id in 2..5 {
                talk.send(ConversationEnd::Client, &message(id, 0, &insert(10)));
                talk.send(ConversationEnd::Server, &message(900 + id, id, &doc! {"n": 1, "ok": 1.0}));
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
    fn all_checksums_are_verified_on_request_and_wrong_ones_are_counted() {
        for padding in [10, 100_000] {
            for (verify, wrong) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut talk = talk();
                let mut request = summed(1, 0, &insert(padding));
                let byte = request.len() - 20;
                request[byte] ^= u8::from(wrong);
                talk.send(ConversationEnd::Client, &request)
                    .send(ConversationEnd::Server, &summed(2, 1, &doc! {"n": 1, "ok": 1.0}));
                // Without a checksum there is nothing to verify.
                talk.send(ConversationEnd::Client, &message(3, 0, &insert(padding)));
                talk.send(ConversationEnd::Server, &message(4, 3, &doc! {"n": 1, "ok": 1.0}));
                let seen = take(&mut talk, verify);
                let coverage = seen.coverage;
                let counted = (coverage.checksums_verified, coverage.messages_checksum_wrong);
                assert_eq!(counted, if verify { (2, u64::from(wrong)) } else { (0, 0) }, "{padding}");
                let found: Vec<_> = seen.operations.iter().map(|op| op.0).collect();
                assert_eq!(
                    found,
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
                talk.send(ConversationEnd::Client, &message(1, 0, &insert(10)));
                talk.send(ConversationEnd::Server, &message(2, 1, &doc! {"n": 1, "ok": 1.0}));
                talk.lose(ConversationEnd::Client, 500);
                let mut found = summed(5, 0, &insert(padding));
                let byte = found.len() - 20;
                found[byte] ^= u8::from(wrong);
                talk.send(ConversationEnd::Client, &found)
                    .send(ConversationEnd::Client, &summed(7, 0, &insert(padding)));
                talk.send(ConversationEnd::Server, &message(8, 7, &doc! {"n": 1, "ok": 1.0}));
                let seen = take(&mut talk, false);
                let coverage = seen.coverage;
                // The one behind the first is verified too where the search goes on.
                let verified = if wrong { (2, 1) } else { (1, 0) };
                assert_eq!(
                    (coverage.checksums_verified, coverage.messages_checksum_wrong),
                    verified,
                    "{coverage:?}"
                );
                let mut found: Vec<_> = seen.operations.iter().map(|op| (op.0, op.2)).collect();
                found.sort_unstable();
                let expected: &[_] =
                    if wrong { &[(1, "ok"), (7, "ok")] } else { &[(1, "ok"), (5, "unknown"), (7, "ok")] };
                assert_eq!(found, expected, "{padding}");
            }
        }
    }
}
