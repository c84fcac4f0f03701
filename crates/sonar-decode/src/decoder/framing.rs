//! Where does a message begin and end? Cuts the stream of one side of a connection into messages, and searches
//! for the next message after a gap.
//!
//! Bytes come in order from [`tcp`](crate::tcp), with gaps where bytes are missing. The content of messages is not
//! read here.

use std::borrow::Cow;

use sonar_core::operation::Opcode;
use sonar_core::{Coverage, Timestamp};

use super::settings::TlsSource;
use crate::message::{HEADER, Header, looks_like_message};
use crate::tcp::{Chunk, Gap, Lost};

/// Memory of all messages that are being assembled, over all connections, in bytes.
pub const COLLECT_BUDGET: usize = 16 << 20;

/// Messages up to this many bytes are assembled when segments split them; longer ones are passed on in pieces.
pub const COLLECT: usize = 16 * 1024;

/// Whether TLS records begin here (RFC 8446, section 5.1): one that ends with these bytes, or another one behind it.
fn is_tls_record(bytes: &[u8]) -> bool {
    /// The longest record: 16 KiB, and what encryption adds.
    const LONGEST: usize = (1 << 14) + 256;
    let &[0x17, 3, 1..=4, high, low, ..] = bytes else { return false };
    let end = 5 + usize::from(u16::from_be_bytes([high, low]));
    end <= 5 + LONGEST && matches!(bytes.get(end..), Some([] | [0x14..=0x17, 3, 1..=4, ..]))
}

/// How many bytes of a stream are searched for a first message before it counts as not MongoDB's.
pub const SEARCH: u64 = 256 * 1024;

/// The stream of one side of a connection.
pub struct MessageStream {
    position: StreamPosition,
    /// Time of the first byte of the message that is being read.
    pub first: Timestamp,
    /// A message has been read.
    pub read: bool,
    /// A search found the last message, and nothing has confirmed it.
    pub provisional: bool,
}

/// What is known of a connection while its streams are cut.
#[derive(Copy, Clone, Debug)]
pub struct StreamFacts {
    /// A message has been read: the connection is MongoDB's.
    pub is_mongodb: bool,
    /// It was open before the capture began.
    pub joined_late: bool,
}

/// The position in a stream.
enum StreamPosition {
    /// Before or inside a header.
    Header { have: usize, bytes: [u8; HEADER] },
    /// In a short message that is being assembled.
    Collect { header: Header, opcode: Opcode, body: Vec<u8> },
    /// In a long message, which is passed on in pieces.
    Long { header: Header, opcode: Opcode, left: u64 },
    /// In a message that has a gap, cannot be read, or was dropped.
    Skip { header: Header, left: u64, evicted: bool },
    /// Searching for the next message; on a stream that was joined late, for the first one. The last bytes are kept,
    /// as segments may split a header. `gap` is the time of the last gap.
    Search { tail: Vec<u8>, searched: u64, joined_late: bool, gap: Timestamp },
}

/// What was found in the bytes of a stream.
pub enum Framed<'a> {
    /// A complete message.
    Whole { header: Header, opcode: Opcode, body: Cow<'a, [u8]> },
    /// A piece of the body of a long message; `left` bytes are still to come.
    Piece { header: Header, opcode: Opcode, bytes: &'a [u8], left: u64 },
    /// The end of a message that was skipped.
    Skipped(Skipped),
    /// The stream is not MongoDB's.
    NotMongodb,
}

/// A message whose body was skipped.
#[derive(Copy, Clone)]
pub struct Skipped {
    pub header: Header,
    /// It was skipped because too many long messages were being read.
    pub evicted: bool,
}

/// What a gap ended.
#[derive(Default)]
pub struct GapOutcome {
    /// A message that ended inside the gap.
    pub skipped: Option<Skipped>,
    /// Messages may have begun inside the gap. The time is that of the first gap since the last message.
    pub hides_messages_since: Option<Timestamp>,
}

impl MessageStream {
    pub fn new() -> Self {
        Self {
            position: StreamPosition::boundary(),
            first: Timestamp::default(),
            read: false,
            provisional: false,
        }
    }

    /// Whether a message has begun and not ended.
    pub const fn in_message(&self) -> bool {
        matches!(
            self.position,
            StreamPosition::Collect { .. } | StreamPosition::Long { .. } | StreamPosition::Skip { .. }
        )
    }

    /// Whether a long message has begun and not ended.
    pub const fn in_long_message(&self) -> bool {
        matches!(self.position, StreamPosition::Long { .. })
    }

    /// Passes over bytes that are missing, if they lie inside a long message. Returns whether they do.
    pub fn jump(&mut self, missing: u64) -> bool {
        match &mut self.position {
            StreamPosition::Long { left, .. } if missing < *left => {
                *left -= missing;
                true
            }
            _ => false,
        }
    }

    /// Skips the rest of a long message.
    pub fn evict(&mut self) {
        if let StreamPosition::Long { header, left, .. } = self.position {
            self.position = StreamPosition::Skip { header, left, evicted: true };
        }
    }

    /// A message has been read. `verified`: its checksum was right, which confirms it.
    pub fn has_been_read(&mut self, verified: bool) {
        self.read = true;
        self.provisional &= !verified;
    }

    /// Ends a message that was skipped.
    fn end_skipped(&mut self) -> Option<Framed<'static>> {
        let StreamPosition::Skip { header, evicted, .. } = self.position else { return None };
        self.position = StreamPosition::boundary();
        Some(Framed::Skipped(Skipped { header, evicted }))
    }

    /// What the search found is no message: it goes on behind it.
    pub fn reject(&mut self, facts: StreamFacts) {
        self.position = StreamPosition::search(facts.joined_late && !self.read, self.first);
    }
}

impl StreamPosition {
    /// At a boundary between messages.
    const fn boundary() -> Self {
        Self::Header { have: 0, bytes: [0; HEADER] }
    }

    const fn search(joined_late: bool, gap: Timestamp) -> Self {
        Self::Search { tail: Vec::new(), searched: 0, joined_late, gap }
    }
}

/// Cuts streams into messages.
pub struct Framer {
    /// Counters of messages and of searches.
    pub coverage: Coverage,
    /// Memory of the messages that are being put together, in bytes.
    collecting: usize,
    /// The most of it.
    budget: usize,
    /// A message was passed on in pieces because of that.
    pub was_without_room: bool,
    /// How encrypted connections are read.
    pub tls: TlsSource,
}

impl Default for Framer {
    fn default() -> Self {
        Self::with_share(1)
    }
}

impl Framer {
    /// A framer with the memory budget divided by `share`.
    pub fn with_share(share: usize) -> Self {
        let budget = COLLECT_BUDGET / share;
        Self {
            coverage: Coverage::default(),
            collecting: 0,
            budget,
            was_without_room: false,
            tls: TlsSource::None,
        }
    }

    /// Sets how encrypted connections are read.
    pub fn with_tls(self, tls: TlsSource) -> Self {
        Self { tls, ..self }
    }

    /// Takes the next part from `chunk`; `None` once all bytes have been used.
    #[inline]
    pub fn next<'a>(
        &mut self,
        stream: &mut MessageStream,
        facts: StreamFacts,
        chunk: &mut Chunk<'a>,
    ) -> Option<Framed<'a>> {
        while !chunk.bytes.is_empty() {
            let bytes = chunk.bytes;
            match &mut stream.position {
                StreamPosition::Header { have: 0, .. } if bytes.len() >= HEADER => {
                    stream.first = chunk.time;
                    let Some(header) = Header::read(bytes) else {
                        if self.lose(stream, facts, bytes) {
                            return Some(Framed::NotMongodb);
                        }
                        continue;
                    };
                    if let Some(opcode) = header.known()
                        && header.length as usize <= bytes.len()
                    {
                        let (message, rest) = bytes.split_at(header.length as usize);
                        self.coverage.messages += 1;
                        chunk.bytes = rest;
                        let body = Cow::Borrowed(&message[HEADER..]);
                        return Some(Framed::Whole { header, opcode, body });
                    }
                    chunk.bytes = &bytes[HEADER..];
                    if let Some(ended) = self.begin(stream, header) {
                        return Some(ended);
                    }
                }
                StreamPosition::Header { have, bytes: head } => {
                    if *have == 0 {
                        stream.first = chunk.time;
                    }
                    let take = (HEADER - *have).min(bytes.len());
                    head[*have..*have + take].copy_from_slice(&bytes[..take]);
                    *have += take;
                    chunk.bytes = &bytes[take..];
                    if *have < HEADER {
                        return None;
                    }
                    let head = *head;
                    if let Some(header) = Header::read(&head) {
                        if let Some(ended) = self.begin(stream, header) {
                            return Some(ended);
                        }
                    } else if self.lose(stream, facts, &head) {
                        return Some(Framed::NotMongodb);
                    } else if let StreamPosition::Search { tail, .. } = &mut stream.position {
                        // The search includes the bytes of this header.
                        tail.extend_from_slice(&head);
                    }
                }
                StreamPosition::Collect { header, body, .. } => {
                    let want = header.length as usize - HEADER - body.len();
                    let take = want.min(bytes.len());
                    body.extend_from_slice(&bytes[..take]);
                    chunk.bytes = &bytes[take..];
                    if take == want
                        && let StreamPosition::Collect { header, opcode, body } =
                            std::mem::replace(&mut stream.position, StreamPosition::boundary())
                    {
                        self.collecting -= body.capacity();
                        return Some(Framed::Whole { header, opcode, body: Cow::Owned(body) });
                    }
                }
                StreamPosition::Long { header, opcode, left } => {
                    let (piece, rest) = bytes.split_at((*left).min(bytes.len() as u64) as usize);
                    *left -= piece.len() as u64;
                    chunk.bytes = rest;
                    let framed =
                        Framed::Piece { header: *header, opcode: *opcode, bytes: piece, left: *left };
                    if *left == 0 {
                        stream.position = StreamPosition::boundary();
                    }
                    return Some(framed);
                }
                StreamPosition::Skip { left, .. } => {
                    let take = (*left).min(bytes.len() as u64);
                    *left -= take;
                    chunk.bytes = &bytes[take as usize..];
                    if *left == 0 {
                        return stream.end_skipped();
                    }
                }
                StreamPosition::Search { .. } => {
                    if self.search(stream, facts, chunk) {
                        return Some(Framed::NotMongodb);
                    }
                }
            }
        }
        None
    }

    /// A header has been read, and not all of its message is there. A message of a header alone ends at once.
    fn begin(&mut self, stream: &mut MessageStream, header: Header) -> Option<Framed<'static>> {
        self.coverage.messages += 1;
        let body = header.length as usize - HEADER;
        let Some(opcode) = header.known() else {
            stream.position = StreamPosition::Skip { header, left: body as u64, evicted: false };
            return (body == 0).then(|| stream.end_skipped()).flatten();
        };
        if body == 0 {
            stream.position = StreamPosition::boundary();
            return Some(Framed::Whole { header, opcode, body: Cow::Borrowed(&[]) });
        }
        let has_room = self.collecting + body <= self.budget;
        self.was_without_room |= body <= COLLECT && !has_room;
        stream.position = if body <= COLLECT && has_room {
            let buffer = Vec::with_capacity(body);
            self.collecting += buffer.capacity();
            StreamPosition::Collect { header, opcode, body: buffer }
        } else {
            StreamPosition::Long { header, opcode, left: body as u64 }
        };
        None
    }

    /// The next bytes are no header: begins a search, unless the stream is not MongoDB's, which is returned.
    fn lose(&mut self, stream: &mut MessageStream, facts: StreamFacts, bytes: &[u8]) -> bool {
        if !facts.is_mongodb {
            // TLS records: change_cipher_spec, alert, handshake, application data of versions 3.x.
            if matches!(bytes, [0x14..=0x17, 3, 0..=4, ..]) {
                let coverage = &mut self.coverage;
                *(if self.tls != TlsSource::None {
                    &mut coverage.streams_tls_read
                } else {
                    &mut coverage.streams_tls
                }) += 1;
                return true;
            }
            // One that was joined late may begin anywhere in a message.
            if !facts.joined_late {
                self.coverage.streams_not_mongodb += 1;
                return true;
            }
        }
        let joined_late = facts.joined_late && !stream.read;
        self.coverage.resyncs += u64::from(!joined_late);
        stream.position = StreamPosition::search(joined_late, stream.first);
        false
    }

    /// Searches for a message, and consumes the bytes before it. Returns whether the stream is not MongoDB's.
    fn search(&mut self, stream: &mut MessageStream, facts: StreamFacts, chunk: &mut Chunk<'_>) -> bool {
        /// How much of a message is needed to recognise it: header, flags, kind, beginning of a document.
        const WANTED: usize = 64;
        let StreamPosition::Search { tail, searched, joined_late, .. } = &mut stream.position else {
            return false;
        };
        let coverage = &mut self.coverage;
        let passed = if *joined_late { &mut coverage.joined_late_bytes } else { &mut coverage.resync_bytes };
        let bytes = chunk.bytes;
        if *searched == 0 && tail.is_empty() && !facts.is_mongodb && is_tls_record(bytes) {
            *(if self.tls != TlsSource::None {
                &mut coverage.streams_tls_read
            } else {
                &mut coverage.streams_tls
            }) += 1;
            return true;
        }
        // A message that begins in the kept bytes is found at the seam.
        if !tail.is_empty() {
            let kept = tail.len();
            let seam: Vec<u8> = tail.iter().chain(&bytes[..bytes.len().min(WANTED)]).copied().collect();
            let found = (0..kept).find(|at| looks_like_message(&seam[*at..]) == Some(true));
            *passed += found.unwrap_or(kept) as u64;
            if let Some(at) = found {
                let mut head = [0; HEADER];
                let have = (kept - at).min(HEADER);
                head[..have].copy_from_slice(&seam[at..at + have]);
                stream.position = StreamPosition::Header { have, bytes: head };
                stream.provisional = true;
                return false;
            }
            *searched += kept as u64;
            tail.clear();
        }
        let mut at = 0;
        while at < bytes.len() {
            match looks_like_message(&bytes[at..]) {
                Some(true) if follows_well(&bytes[at..]) => {
                    *passed += at as u64;
                    stream.position = StreamPosition::boundary();
                    stream.provisional = true;
                    chunk.bytes = &bytes[at..];
                    return false;
                }
                // Too few bytes to decide: kept for the next segment, at most a header.
                None if bytes.len() - at < HEADER => break,
                _ => at += 1,
            }
        }
        *searched += at as u64;
        *passed += at as u64;
        if !facts.is_mongodb && *searched > SEARCH {
            self.coverage.streams_not_mongodb += 1;
            return true;
        }
        // If a message begins here, it begins now.
        tail.extend_from_slice(&bytes[at..]);
        stream.first = chunk.time;
        chunk.bytes = &[];
        false
    }

    /// Bytes of a stream are missing.
    pub fn gap(&mut self, stream: &mut MessageStream, facts: StreamFacts, gap: &Gap) -> GapOutcome {
        let Lost::Bytes(missing) = gap.lost else {
            if self.tls.is_process() && !stream.in_message() {
                // The kernel passes on whole messages only, from their beginning.
                return GapOutcome::default();
            }
            // Joined late: what comes next may be the middle of a message.
            self.coverage.messages_cut += u64::from(stream.in_message());
            self.release(stream);
            let joined_late = facts.joined_late && !stream.read;
            stream.position = StreamPosition::search(joined_late, gap.time);
            let hides_messages_since = (!joined_late).then(Timestamp::default);
            return GapOutcome { skipped: None, hides_messages_since };
        };
        let (header, left) = match &stream.position {
            StreamPosition::Collect { header, body, .. } => {
                (*header, u64::from(header.length) - (HEADER + body.len()) as u64)
            }
            StreamPosition::Long { header, left, .. } | StreamPosition::Skip { header, left, .. } => {
                (*header, *left)
            }
            // The bytes kept from before the gap are of no use now.
            &StreamPosition::Search { joined_late, gap: before, .. } => {
                stream.position = StreamPosition::search(joined_late, gap.time);
                // What was asked before may have been answered in the gap before.
                return GapOutcome { skipped: None, hides_messages_since: (!joined_late).then_some(before) };
            }
            StreamPosition::Header { .. } => return self.lose_boundary(stream, gap.time),
        };
        self.release(stream);
        if missing < left {
            stream.position = StreamPosition::Skip { header, left: left - missing, evicted: false };
            return GapOutcome::default();
        }
        stream.position = StreamPosition::boundary();
        let skipped = Some(Skipped { header, evicted: false });
        if missing == left {
            return GapOutcome { skipped, hides_messages_since: None };
        }
        GapOutcome { skipped, ..self.lose_boundary(stream, gap.time) }
    }

    /// A gap between messages or inside a header: it is unknown where the next message begins.
    fn lose_boundary(&mut self, stream: &mut MessageStream, time: Timestamp) -> GapOutcome {
        self.coverage.resyncs += 1;
        stream.position = StreamPosition::search(false, time);
        GapOutcome { skipped: None, hides_messages_since: Some(Timestamp::default()) }
    }

    /// The stream ended, with the capture or before it.
    pub fn close(&mut self, stream: &MessageStream, with_capture: bool) {
        if stream.in_message() {
            let coverage = &mut self.coverage;
            let counter =
                if with_capture { &mut coverage.messages_unfinished } else { &mut coverage.messages_cut };
            *counter += 1;
            self.release(stream);
        }
    }

    /// Frees the memory of a message that is being assembled and is about to be dropped, or assembled elsewhere.
    pub fn release(&mut self, stream: &MessageStream) {
        if let StreamPosition::Collect { body, .. } = &stream.position {
            self.collecting -= body.capacity();
        }
    }

    /// Continues to assemble a message that was assembled elsewhere so far.
    pub fn take_over(&mut self, stream: &MessageStream) {
        if let StreamPosition::Collect { body, .. } = &stream.position {
            self.collecting += body.capacity();
        }
    }
}

/// Whether the bytes behind a message that a search found, if there are any, are a message too.
fn follows_well(bytes: &[u8]) -> bool {
    Header::read(bytes).is_some_and(|header| match bytes.get(header.length as usize..) {
        None | Some([]) => true,
        Some(next) if next.len() < HEADER => true,
        Some(next) => looks_like_message(next) != Some(false),
    })
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::COLLECT;
    use crate::decoder::collected::{collect, message};
    use crate::testing::{Conversation, ConversationEnd};

    /// An insert, with a reply, in packets of `mss` bytes. `padding` decides whether the message is put
    /// together or walked.
    fn insert(talk: &mut Conversation, id: u32, padding: usize) {
        let document = doc! {"_id": 1, "padding": "x".repeat(padding)};
        let documents: Vec<Document> = vec![document];
        let command = doc! {"insert": "orders", "documents": documents, "$db": "shop"};
        talk.send(ConversationEnd::Client, &message(id, 0, &command));
        talk.send(ConversationEnd::Server, &message(100 + id, id, &doc! {"n": 1, "ok": 1.0}));
    }

    fn talk(mss: usize) -> Conversation {
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017").with_mss(mss);
        talk.handshake();
        talk
    }

    #[test]
    fn segments_do_not_change_how_messages_are_cut() {
        for mss in [1, 3, 15, 16, 17, 20, 21, 100, 1_460, 9_000] {
            let mut talk = talk(mss);
            let paddings = [0, 1_000, COLLECT - 200, COLLECT, 3 * COLLECT];
            for (id, padding) in (1..).zip(paddings) {
                insert(&mut talk, id, padding);
            }
            let seen = collect(&talk.packets);
            let expected: Vec<_> = (1..=5).map(|id| (id, "insert".to_owned(), "ok")).collect();
            assert_eq!(seen.operations, expected, "{mss}");
            assert_eq!((seen.coverage.messages, seen.coverage.messages_decoded), (10, 10), "{mss}");
            assert_eq!(seen.window.shapes.iter().count(), 1, "{mss}");
        }
    }

    #[test]
    fn a_gap_within_a_message_costs_only_that_message() {
        for padding in [2 * 1_460, 2 * COLLECT] {
            let mut talk = talk(1_460);
            insert(&mut talk, 1, 10);
            let lost = talk.packets.len() + 1;
            insert(&mut talk, 2, padding);
            insert(&mut talk, 3, 10);
            // What comes after the gap has been acknowledged: it will not be sent again.
            talk.wait(5_000_000_000).ack(ConversationEnd::Server).ack(ConversationEnd::Client);
            talk.packets.remove(lost);
            let seen = collect(&talk.packets);
            let ids: Vec<_> = seen.operations.iter().map(|op| (op.0, op.2)).collect();
            assert_eq!(ids, [(1, "ok"), (3, "ok")], "{:?}", seen.coverage);
            assert_eq!((seen.coverage.messages_damaged, seen.coverage.resyncs), (1, 0));
        }
    }
}
