//! What does a long message say? It is read piece by piece as it comes, and never stored.
//!
//! As long as it is unknown which side of its connection is the server, it is read both as a request and as a reply:
//! only its content decides, and what decides may be at its end.

use std::ops::ControlFlow;

use sonar_core::operation::{Compressor, Opcode};

use crate::bson::{ElementKind, Key, key_at};
use crate::compress::Inflater;
use crate::message::{Header, MessageBody, MessageSource, Reply, Request};
use crate::shape::Rendered;
use crate::tcp::Side;

/// A message that is read while it comes, because it is too long to be put together.
pub struct LongMessage {
    /// Number in the order of arrival, which wraps; 0 if the message is complete.
    pub number: u32,
    pub request: Request<Rendered>,
    pub reply: Reply,
    /// Its readings as a request and as a reply: both as long as it is not known which side is the server.
    pub(super) as_request: Option<LongWalk>,
    pub(super) as_reply: Option<LongWalk>,
    pub inflater: Option<Inflater>,
    pub compressor: Option<Compressor>,
    /// Head of an OP_COMPRESSED body, until it is whole.
    pub compressed_head: Vec<u8>,
    /// The rest of it cannot be read.
    pub failed: bool,
    /// It is a request whose rest is missing, and whose beginning says what was asked.
    pub cut: bool,
    pub opcode: Opcode,
    /// The checksum so far, where it is to be verified.
    pub checksum: Option<Checksum>,
    /// Its checksum is right.
    pub verified: bool,
}

/// One reading of a long message.
#[derive(Default)]
pub(super) struct LongWalk {
    pub(super) body: MessageBody,
    /// Bytes that the body needs to see again.
    carry: Vec<u8>,
    /// Read like this, it contradicts itself.
    failed: bool,
}

impl LongWalk {
    pub(super) fn is_whole(&self) -> bool {
        !self.failed && self.body.left() == 0
    }

    /// The key of an element whose value is cut.
    fn cut_key(&self) -> Option<Key<'_>> {
        let (kind, key) = self.carry.split_first().filter(|_| !self.failed && self.body.is_at_key())?;
        ElementKind::from_number(*kind)?;
        key_at(key).ok().flatten()
    }

    /// Passes over bytes that are missing; fails if nothing can be read behind them.
    fn jump(&mut self, missing: u64, mut content: MessageSource<'_, Rendered>) {
        let bytes = self.carry.len() as u64 + missing;
        self.carry.clear();
        self.failed = self.failed || !self.body.jump(bytes, &mut content);
    }

    /// Feeds a piece to the body, behind the bytes that it needs to see again.
    fn feed(&mut self, mut bytes: &[u8], mut content: MessageSource<'_, Rendered>) {
        /// How much of a piece is put behind the carried bytes at first: mostly enough to end an element.
        const JOINED_BYTES: usize = 64;
        let Self { body, carry, failed } = self;
        while !*failed && !bytes.is_empty() {
            if carry.is_empty() {
                match body.feed(bytes, &mut content) {
                    Ok(used) => carry.extend_from_slice(&bytes[used..]),
                    Err(_) => *failed = true,
                }
                return;
            }
            let before = carry.len();
            let take = bytes.len().min(JOINED_BYTES.max(before));
            carry.extend_from_slice(&bytes[..take]);
            match body.feed(carry, &mut content) {
                Ok(used) if used >= before => {
                    // Past the seam: the rest is read where it lies.
                    bytes = &bytes[used - before..];
                    carry.clear();
                }
                Ok(used) => {
                    carry.drain(..used);
                    bytes = &bytes[take..];
                }
                Err(_) => *failed = true,
            }
        }
    }
}

impl LongMessage {
    /// A message with a body of `length` bytes; `from_server` is whether the server sent it, where that is known.
    pub fn new(opcode: Opcode, length: u64, from_server: Option<bool>) -> Box<Self> {
        let mut long = Box::new(Self {
            number: 0,
            request: Request::default(),
            reply: Reply::default(),
            as_request: (from_server != Some(true)).then(LongWalk::default),
            as_reply: (from_server != Some(false)).then(LongWalk::default),
            inflater: None,
            compressor: None,
            compressed_head: Vec::new(),
            failed: false,
            cut: false,
            opcode,
            checksum: None,
            verified: false,
        });
        long.begin(opcode, length);
        long
    }

    /// Passes over bytes that are missing.
    pub fn jump(&mut self, missing: u64) {
        self.checksum = None;
        self.cut = self.is_recognisable();
        if self.cut {
            return;
        }
        if self.opcode == Opcode::Compressed || self.inflater.is_some() {
            self.failed = true;
        }
        if let Some(walk) = &mut self.as_request {
            walk.jump(missing, MessageSource::Request(&mut self.request));
        }
        if let Some(walk) = &mut self.as_reply {
            walk.jump(missing, MessageSource::Reply(&mut self.reply));
        }
    }

    /// Inflates the next bytes and reads the result.
    pub fn inflate(&mut self, data: &[u8]) {
        if self.has_failed() || data.is_empty() {
            return;
        }
        let Some(mut inflater) = self.inflater.take() else { return };
        let result = inflater.inflate(data, &mut |chunk: &[u8]| {
            self.feed(chunk);
            if self.has_failed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.failed |= result.is_err();
        self.inflater = Some(inflater);
    }

    /// Whether all of it could be read, as the request or reply that it is.
    pub fn is_whole(&self, is_reply: bool) -> bool {
        let walk = if is_reply { &self.as_reply } else { &self.as_request };
        !self.failed && walk.as_ref().is_some_and(LongWalk::is_whole)
    }

    /// Whether what came of a request is enough to know what was asked: a command, and the beginning of its documents
    /// or statements.
    pub fn is_recognisable(&self) -> bool {
        let walk = self.as_request.as_ref();
        !self.failed
            && self.request.has_database
            && walk.is_some_and(|walk| !walk.failed && walk.body.is_in_statements())
    }

    /// Names the command of a request whose end is missing: by its first key, if the value of that is cut, or by the
    /// kind of message.
    pub fn name_command(&mut self) {
        let Self { request, as_request, .. } = self;
        if request.command.bytes().is_empty()
            && let Some(key) = as_request.as_ref().and_then(LongWalk::cut_key)
        {
            request.first_key(&key);
        }
        if request.command.bytes().is_empty() {
            match self.opcode {
                Opcode::Insert => request.set_command(b"insert"),
                Opcode::Update => request.set_command(b"update"),
                Opcode::Delete => request.set_command(b"delete"),
                Opcode::GetMore => request.set_command(b"getMore"),
                Opcode::KillCursors => request.set_command(b"killCursors"),
                _ => request.leave_unnamed(),
            }
        }
        if !request.is_known {
            request.leave_unnamed();
        }
    }

    pub(super) fn walks(&self) -> impl Iterator<Item = &LongWalk> {
        self.as_request.iter().chain(&self.as_reply)
    }

    /// The rest of it cannot be read.
    fn has_failed(&self) -> bool {
        self.failed || self.cut || self.walks().all(|walk| walk.failed)
    }

    /// Begins the body, or the inflated body of an OP_COMPRESSED.
    pub(super) fn begin(&mut self, opcode: Opcode, length: u64) {
        self.opcode = opcode;
        self.request.reset(opcode);
        for walk in self.as_request.iter_mut().chain(&mut self.as_reply) {
            walk.body.begin(opcode, length);
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.cut {
            return;
        }
        if let Some(walk) = &mut self.as_request {
            walk.feed(bytes, MessageSource::Request(&mut self.request));
        }
        if let Some(walk) = &mut self.as_reply {
            walk.feed(bytes, MessageSource::Reply(&mut self.reply));
        }
    }

    /// Which side is the server, if this message of `side` proves it.
    pub(super) fn server(&self, side: Side) -> Option<Side> {
        let is_reply = matches!(self.opcode, Opcode::Reply | Opcode::CommandReply);
        server_by(side, self.opcode, self.is_whole(is_reply).then_some(self.request.has_database))
    }
}

/// Which side is the server, after a message of `side` that was read to its end and names a database or does not;
/// `None` if that proves nothing. Ports are no evidence: the decision holds for all messages of the connection.
pub(super) fn server_by(side: Side, opcode: Opcode, has_database: Option<bool>) -> Option<Side> {
    let has_database = has_database?;
    Some(match opcode {
        Opcode::Reply | Opcode::CommandReply => side,
        // Every request names a database, and no reply does.
        Opcode::Msg if !has_database => side,
        Opcode::Compressed => return None,
        _ => side.other(),
    })
}

/// The checksum of a message: CRC-32C of all bytes but the last four, which state it.
pub struct Checksum {
    sum: u32,
    stated: [u8; 4],
}

impl Checksum {
    pub fn new(header: Header) -> Self {
        Self { sum: crc32c::crc32c(&header.bytes()), stated: [0; 4] }
    }

    /// Takes the next bytes; `left` bytes of the message, these included, were still to come.
    pub(super) fn feed(&mut self, bytes: &[u8], left: u64) {
        let (covered, stated) = bytes.split_at(left.saturating_sub(4).min(bytes.len() as u64) as usize);
        self.sum = crc32c::crc32c_append(self.sum, covered);
        for byte in stated {
            self.stated.rotate_left(1);
            self.stated[3] = *byte;
        }
    }

    pub(super) fn is_right(&self) -> bool {
        self.sum == u32::from_le_bytes(self.stated)
    }
}
