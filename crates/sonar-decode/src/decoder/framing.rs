//! Where does a message begin and end? Cuts the stream of one side of a connection into messages, and searches
//! for the next message after a gap.
//!
//! Bytes come in order from [`tcp`](crate::tcp), with gaps where bytes are missing. The content of messages is not
//! read here.

mod stream;

use std::borrow::Cow;
use std::sync::Arc;

use sonar_core::{Coverage, Timestamp};

use self::stream::StreamPosition;
pub use self::stream::{CutMessage, EncryptedStart, Framed, GapOutcome, MessageStream, Skipped, StreamFacts};
use super::proxy::{MAX_PROXY_HEADER, ProxyHeader};
use super::settings::TlsSource;
use crate::keylog::KeyLog;
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

/// Whether a ClientHello of TLS begins here.
fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 3, 0..=4, _, _, 1, 0, ..])
}

/// How many bytes of a stream are searched for a first message before it counts as not MongoDB's.
pub const SEARCH: u64 = 256 * 1024;

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
    /// What decrypts them.
    pub keys: Option<Arc<KeyLog>>,
}

impl Default for Framer {
    fn default() -> Self {
        Self::with_share(1)
    }
}

impl Framer {
    /// A framer with the memory budget divided by `share`.
    pub fn with_share(share: usize) -> Self {
        Self {
            coverage: Coverage::default(),
            collecting: 0,
            budget: COLLECT_BUDGET / share,
            was_without_room: false,
            tls: TlsSource::None,
            keys: None,
        }
    }

    /// The bytes of the beginnings of messages that are put together.
    pub const fn memory(&self) -> usize {
        self.collecting
    }

    /// Sets how encrypted connections are read.
    pub fn with_tls(self, tls: TlsSource, keys: Option<Arc<KeyLog>>) -> Self {
        Self { tls, keys, ..self }
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
                        if stream.may_be_proxied(facts, bytes) {
                            stream.position = StreamPosition::Proxy(Vec::new());
                            continue;
                        }
                        if let Some(framed) = self.lose(stream, facts, bytes) {
                            return Some(framed);
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
                    } else if stream.may_be_proxied(facts, &head) {
                        stream.position = StreamPosition::Proxy(head.to_vec());
                        if let Some(framed) = self.proxy(stream, chunk) {
                            return Some(framed);
                        }
                    } else if let Some(framed) = self.lose(stream, facts, &head) {
                        return Some(framed);
                    } else if let StreamPosition::Search { tail, .. } = &mut stream.position {
                        // The search includes the bytes of this header.
                        tail.extend_from_slice(&head);
                    }
                }
                StreamPosition::Proxy(_) => {
                    if let Some(framed) = self.proxy(stream, chunk) {
                        return Some(framed);
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
                    if let Some(framed) = self.search(stream, facts, chunk) {
                        return Some(framed);
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
            stream.position = StreamPosition::Skip { skipped: Skipped::new(header), left: body as u64 };
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

    /// Takes more of a header of the PROXY protocol.
    fn proxy<'a>(&mut self, stream: &mut MessageStream, chunk: &mut Chunk<'a>) -> Option<Framed<'a>> {
        let StreamPosition::Proxy(have) = &mut stream.position else { return None };
        let bytes = chunk.bytes;
        let take = bytes.len().min(MAX_PROXY_HEADER - have.len().min(MAX_PROXY_HEADER));
        have.extend_from_slice(&bytes[..take]);
        match ProxyHeader::read(have) {
            ProxyHeader::Begun if have.len() < MAX_PROXY_HEADER => {
                chunk.bytes = &[];
                None
            }
            ProxyHeader::Whole { len, client } => {
                let surplus = &have[len..];
                // Behind the header comes the first message, of which some may be in what was kept.
                let kept = surplus.len().saturating_sub(take).min(HEADER - 1);
                let mut head = [0; HEADER];
                head[..kept].copy_from_slice(&surplus[..kept]);
                chunk.bytes = &bytes[take - (surplus.len() - kept).min(take)..];
                stream.position = StreamPosition::Header { have: kept, bytes: head };
                stream.proxied = true;
                self.coverage.streams_proxied += 1;
                Some(Framed::Proxied(client))
            }
            _ => {
                self.coverage.streams_not_mongodb += 1;
                Some(Framed::NotMongodb)
            }
        }
    }

    /// A stream turns out to be encrypted.
    fn encrypted(&mut self, facts: StreamFacts, start: EncryptedStart) -> Framed<'static> {
        let counter = match self.tls {
            // Encrypted twice.
            _ if facts.decrypted => &mut self.coverage.streams_not_mongodb,
            _ if self.keys.as_ref().is_some_and(|keys| keys.is_in_use()) => return Framed::Encrypted(start),
            TlsSource::None => &mut self.coverage.streams_tls,
            _ => &mut self.coverage.streams_tls_read,
        };
        *counter += 1;
        Framed::NotMongodb
    }

    /// The next bytes are no header: begins a search, unless the stream is not MongoDB's, which is returned.
    fn lose(
        &mut self,
        stream: &mut MessageStream,
        facts: StreamFacts,
        bytes: &[u8],
    ) -> Option<Framed<'static>> {
        if !facts.is_mongodb {
            // TLS records: change_cipher_spec, alert, handshake, application data of versions 3.x.
            if matches!(bytes, [0x14..=0x17, 3, 0..=4, ..]) {
                return Some(self.encrypted(facts, EncryptedStart::First));
            }
            // One that was joined late may begin anywhere in a message.
            if !facts.joined_late {
                self.coverage.streams_not_mongodb += 1;
                return Some(Framed::NotMongodb);
            }
        }
        let joined_late = facts.joined_late && !stream.read;
        self.coverage.resyncs += u64::from(!joined_late);
        stream.position = StreamPosition::search(joined_late, stream.first);
        None
    }

    /// Searches for a message, and consumes the bytes before it. Returns that the stream is not MongoDB's if it is not.
    fn search(
        &mut self,
        stream: &mut MessageStream,
        facts: StreamFacts,
        chunk: &mut Chunk<'_>,
    ) -> Option<Framed<'static>> {
        /// How much of a message is needed to recognise it: header, flags, kind, beginning of a document.
        const WANTED: usize = 64;
        let StreamPosition::Search { tail, searched, joined_late, .. } = &mut stream.position else {
            return None;
        };
        if *searched == 0 && tail.is_empty() && !facts.is_mongodb {
            if is_client_hello(chunk.bytes) {
                return Some(self.encrypted(facts, EncryptedStart::First));
            }
            if is_tls_record(chunk.bytes) {
                return Some(self.encrypted(facts, EncryptedStart::Middle));
            }
        }
        let coverage = &mut self.coverage;
        let passed = if *joined_late { &mut coverage.joined_late_bytes } else { &mut coverage.resync_bytes };
        let bytes = chunk.bytes;
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
                stream.was_found();
                return None;
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
                    stream.was_found();
                    chunk.bytes = &bytes[at..];
                    return None;
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
            return Some(Framed::NotMongodb);
        }
        // If a message begins here, it begins now.
        tail.extend_from_slice(&bytes[at..]);
        stream.first = chunk.time;
        chunk.bytes = &[];
        None
    }

    /// Bytes of a stream are missing.
    pub fn gap(&mut self, stream: &mut MessageStream, facts: StreamFacts, gap: &Gap) -> GapOutcome {
        let Some(missing) = gap.lost.bytes() else {
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
            return GapOutcome { hides_messages_since, ..GapOutcome::default() };
        };
        let cut = matches!(gap.lost, Lost::Cut(_));
        self.release(stream);
        let (mut skipped, left, beginning) =
            match std::mem::replace(&mut stream.position, StreamPosition::boundary()) {
                StreamPosition::Collect { header, opcode, body } => {
                    let left = u64::from(header.length) - (HEADER + body.len()) as u64;
                    let beginning = cut.then_some(CutMessage { header, opcode, bytes: body });
                    (Skipped::new(header), left, beginning)
                }
                StreamPosition::Long { header, left, .. } => (Skipped::new(header), left, None),
                StreamPosition::Skip { skipped, left } => (skipped, left, None),
                // The bytes kept from before the gap are of no use now.
                StreamPosition::Search { joined_late, gap: before, .. } => {
                    stream.position = StreamPosition::search(joined_late, gap.time);
                    // What was asked before may have been answered in the gap before.
                    let hides_messages_since = (!joined_late).then_some(before);
                    return GapOutcome { hides_messages_since, ..GapOutcome::default() };
                }
                StreamPosition::Header { .. } | StreamPosition::Proxy(_) => {
                    return self.lose_boundary(stream, gap.time);
                }
            };
        skipped.cut |= cut;
        if missing < left {
            stream.position = StreamPosition::Skip { skipped, left: left - missing };
            return GapOutcome { beginning, ..GapOutcome::default() };
        }
        let skipped = Some(skipped);
        if missing == left {
            return GapOutcome { beginning, skipped, hides_messages_since: None };
        }
        GapOutcome { beginning, skipped, ..self.lose_boundary(stream, gap.time) }
    }

    /// A gap between messages or inside a header: it is unknown where the next message begins.
    fn lose_boundary(&mut self, stream: &mut MessageStream, time: Timestamp) -> GapOutcome {
        self.coverage.resyncs += 1;
        stream.position = StreamPosition::search(false, time);
        GapOutcome { hides_messages_since: Some(Timestamp::default()), ..GapOutcome::default() }
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
mod tests;
