//! The stream of one side of a connection: where it stands, and what was found in it.

use std::borrow::Cow;

use sonar_core::operation::Opcode;
use sonar_core::{Endpoint, Timestamp};

use crate::decoder::proxy::ProxyHeader;
use crate::message::{HEADER, Header};

/// The stream of one side of a connection.
pub struct MessageStream {
    pub(super) position: StreamPosition,
    /// Time of the first byte of the message that is being read.
    pub first: Timestamp,
    /// A message has been read.
    pub read: bool,
    /// A search found the last message, and nothing has confirmed it.
    pub provisional: bool,
    /// A message has been read since then.
    found_before: bool,
    /// A header of the PROXY protocol has been read.
    pub(super) proxied: bool,
}

/// What is known of a connection while its streams are cut.
#[derive(Copy, Clone, Debug)]
pub struct StreamFacts {
    /// A message has been read: the connection is MongoDB's.
    pub is_mongodb: bool,
    /// It was open before the capture began.
    pub joined_late: bool,
    /// What its streams bring is decrypted already.
    pub decrypted: bool,
}

/// The position in a stream.
pub(super) enum StreamPosition {
    /// Before or inside a header.
    Header { have: usize, bytes: [u8; HEADER] },
    /// In a header of the PROXY protocol, of which this has come.
    Proxy(Vec<u8>),
    /// In a short message that is being assembled.
    Collect { header: Header, opcode: Opcode, body: Vec<u8> },
    /// In a long message, which is passed on in pieces.
    Long { header: Header, opcode: Opcode, left: u64 },
    /// In a message that has a gap, cannot be read, or was dropped.
    Skip { skipped: Skipped, left: u64 },
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
    /// A proxy has sent the rest of the stream, for this client if it says so.
    Proxied(Option<Endpoint>),
    /// The stream is encrypted, and a key log may decrypt it.
    Encrypted(EncryptedStart),
    /// The stream is not MongoDB's.
    NotMongodb,
}

/// Where a stream turned out to be encrypted.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum EncryptedStart {
    /// At its first bytes, some of which may be kept as a header.
    First,
    /// Its first bytes are missing.
    Middle,
}

/// A message whose body was skipped.
#[derive(Copy, Clone)]
pub struct Skipped {
    pub header: Header,
    /// It was skipped because too many long messages were being read.
    pub evicted: bool,
    /// A snap length cut it.
    pub cut: bool,
}

impl Skipped {
    pub(super) const fn new(header: Header) -> Self {
        Self { header, evicted: false, cut: false }
    }
}

/// What was captured of a message that a snap length cut.
pub struct CutMessage {
    pub header: Header,
    pub opcode: Opcode,
    /// The beginning of its body.
    pub bytes: Vec<u8>,
}

/// What a gap ended.
#[derive(Default)]
pub struct GapOutcome {
    /// The beginning of a message that was cut, unless it is being read in pieces.
    pub beginning: Option<CutMessage>,
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
            found_before: false,
            proxied: false,
        }
    }

    /// Begins anew, before the first message has begun. Returns what was kept of a header.
    pub fn begin_anew(&mut self) -> Vec<u8> {
        if self.in_message() {
            return Vec::new();
        }
        match std::mem::replace(&mut self.position, StreamPosition::boundary()) {
            StreamPosition::Header { have, bytes } => bytes[..have].to_vec(),
            _ => Vec::new(),
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
            let skipped = Skipped { evicted: true, ..Skipped::new(header) };
            self.position = StreamPosition::Skip { skipped, left };
        }
    }

    /// A search has found a message.
    pub(super) fn was_found(&mut self) {
        (self.provisional, self.found_before) = (true, false);
    }

    /// A message has been read. `verified`: its checksum was right. That confirms what a search has found, and so does a
    /// second message right behind the first. Returns whether it is confirmed by this one.
    pub fn has_been_read(&mut self, verified: bool) -> bool {
        self.read = true;
        let is_confirmed = self.provisional && (verified || self.found_before);
        self.found_before = self.provisional;
        self.provisional &= !is_confirmed;
        is_confirmed
    }

    /// Whether the first bytes of a connection may be a header of the PROXY protocol.
    pub(super) fn may_be_proxied(&self, facts: StreamFacts, bytes: &[u8]) -> bool {
        let is_first = !facts.is_mongodb && !facts.joined_late && !self.read && !self.proxied;
        is_first && ProxyHeader::read(bytes) != ProxyHeader::None
    }

    /// Ends a message that was skipped.
    pub(super) fn end_skipped(&mut self) -> Option<Framed<'static>> {
        let StreamPosition::Skip { skipped, .. } = self.position else { return None };
        self.position = StreamPosition::boundary();
        Some(Framed::Skipped(skipped))
    }

    /// What the search found is no message: it goes on behind it.
    pub fn reject(&mut self, facts: StreamFacts) {
        self.position = StreamPosition::search(facts.joined_late && !self.read, self.first);
    }
}

impl StreamPosition {
    /// At a boundary between messages.
    pub(super) const fn boundary() -> Self {
        Self::Header { have: 0, bytes: [0; HEADER] }
    }

    pub(super) const fn search(joined_late: bool, gap: Timestamp) -> Self {
        Self::Search { tail: Vec::new(), searched: 0, joined_late, gap }
    }
}
