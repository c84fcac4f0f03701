//! Reads a message that is too long to be put together, piece by piece while it comes.
//!
//! Until it is known which side of its connection is the server, such a message is read both as a request and as
//! a reply: only what it says decides that, and what it says may stand at its end.

use std::ops::ControlFlow;

use sonar_core::operation::{Compressor, Opcode};

use crate::compress::{Inflater, Status};
use crate::message::{Body, Content, Header, Reply, Request};
use crate::shape::Rendered;
use crate::tcp::Side;

/// A message that is walked while it comes, because it is too long to be put together.
pub struct Streaming {
    /// In the order of arrival, wrapping; 0 where all of the message is there.
    pub number: u32,
    pub request: Request<Rendered>,
    pub reply: Reply,
    /// Reads it as a request and as a reply: both until it is known which side is the server.
    pub(super) as_request: Option<Walk>,
    pub(super) as_reply: Option<Walk>,
    pub inflater: Option<Inflater>,
    pub compressor: Option<Compressor>,
    /// Head of an OP_COMPRESSED body, until it is whole.
    pub compressed_head: Vec<u8>,
    /// Nothing more can be read; why is counted already.
    pub failed: bool,
    pub opcode: Opcode,
    /// Where the message may have a checksum that is to be verified.
    pub checksum: Option<Checksum>,
}

/// One reading of a message that is walked.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) body: Body,
    /// Bytes that the body wants to see again.
    carry: Vec<u8>,
    /// Read like this, it contradicts itself.
    failed: bool,
}

impl Walk {
    pub(super) fn is_whole(&self) -> bool {
        !self.failed && self.body.left() == 0
    }

    /// Feeds a piece to the body, with what it wanted to see again in front.
    fn feed(&mut self, mut bytes: &[u8], mut content: Content<'_, Rendered>) {
        /// How much of a piece is put behind a carry at first: mostly enough to end an element.
        const SEAM: usize = 64;
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
            let take = bytes.len().min(SEAM.max(before));
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

impl Streaming {
    pub(super) fn walks(&self) -> impl Iterator<Item = &Walk> {
        self.as_request.iter().chain(&self.as_reply)
    }

    /// Nothing of it can be read any more.
    fn has_failed(&self) -> bool {
        self.failed || self.walks().all(|walk| walk.failed)
    }

    /// Begins the body, or what came out of an OP_COMPRESSED one.
    pub(super) fn begin(&mut self, opcode: Opcode, length: u64) {
        self.opcode = opcode;
        self.request.reset(opcode);
        for walk in self.as_request.iter_mut().chain(&mut self.as_reply) {
            walk.body.begin(opcode, length);
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if let Some(walk) = &mut self.as_request {
            walk.feed(bytes, Content::Request(&mut self.request));
        }
        if let Some(walk) = &mut self.as_reply {
            walk.feed(bytes, Content::Reply(&mut self.reply));
        }
    }

    /// Which side is the server, where this message, sent by `side`, proves it.
    pub(super) fn server(&self, side: Side) -> Option<Side> {
        let walk = match self.opcode {
            Opcode::Reply | Opcode::CommandReply => &self.as_reply,
            _ => &self.as_request,
        };
        let is_whole = !self.failed && walk.as_ref().is_some_and(Walk::is_whole);
        server_by(side, self.opcode, is_whole.then_some(self.request.has_database))
    }
}

/// Which side is the server, after a message of `side` from whose body it was read whether it names a database;
/// `None` where it could not be read to its end, or says nothing. The ports of a connection say nothing either:
/// what is decided here is decided for all of its messages.
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

/// The checksum of a message that is walked: CRC-32C of all bytes but the last four, which state it.
pub struct Checksum {
    sum: u32,
    stated: [u8; 4],
}

impl Checksum {
    pub fn new(header: Header) -> Self {
        Self { sum: crc32c::crc32c(&header.bytes()), stated: [0; 4] }
    }

    /// Takes bytes in their order; with these, `left` bytes of the message were to come.
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

/// For a message of `length` bytes behind its header; `is_reply`: whether the server sent it, where that is known.
pub(super) fn new_streaming(opcode: Opcode, length: u64, is_reply: Option<bool>) -> Box<Streaming> {
    let mut streaming = Box::new(Streaming {
        number: 0,
        request: Request::default(),
        reply: Reply::default(),
        as_request: (is_reply != Some(true)).then(Walk::default),
        as_reply: (is_reply != Some(false)).then(Walk::default),
        inflater: None,
        compressor: None,
        compressed_head: Vec::new(),
        failed: false,
        opcode,
        checksum: None,
    });
    streaming.begin(opcode, length);
    streaming
}

/// Inflates a short message into `out`. False: it cannot be, or its size was a lie.
pub(super) fn inflate_all(inflater: Option<Inflater>, data: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(mut inflater) = inflater else { return false };
    let result = inflater.inflate(data, &mut |chunk: &[u8]| {
        out.extend_from_slice(chunk);
        ControlFlow::Continue(())
    });
    result == Ok(Status::Done)
}

/// Inflates more of a long message and walks on in it.
pub(super) fn inflate_into(streaming: &mut Streaming, data: &[u8]) {
    if streaming.has_failed() || data.is_empty() {
        return;
    }
    let Some(mut inflater) = streaming.inflater.take() else { return };
    let result = inflater.inflate(data, &mut |chunk: &[u8]| {
        streaming.feed(chunk);
        if streaming.has_failed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    streaming.failed |= result.is_err();
    streaming.inflater = Some(inflater);
}
