//! What does this message say? Inflates it where it is compressed, has it read, in one piece or while it
//! comes, and tells from the first one which side is the server.
//!
//! Where it begins and ends is known from [`stream`](super::stream); the layouts are
//! [`message`](crate::message)'s; what comes of a request or a reply is left to [`request`](super::request)
//! and [`pair`](super::pair).

use std::ops::ControlFlow;

use sonar_core::Timestamp;
use sonar_core::operation::{Compressor, Opcode};

use super::connection::Connection;
use super::pair::Arrival;
use super::request::Sent;
use super::stream::Stage;
use super::{Core, Handler, Sink};
use crate::compress::{Inflater, Status};
use crate::message::{Body, Content, Found, Header, Reply, Request, Told};
use crate::shape::Rendered;
use crate::tcp::{Flow, Side};

/// A message that is walked while it comes, because it is too long to be put together.
pub struct Streaming {
    pub body: Body,
    pub request: Request<Rendered>,
    pub reply: Reply,
    pub inflater: Option<Inflater>,
    pub compressor: Option<Compressor>,
    /// Bytes that the body wants to see again.
    pub carry: Vec<u8>,
    /// Head of an OP_COMPRESSED body, until it is whole.
    pub compressed_head: Vec<u8>,
    /// Nothing more can be read; why is counted already.
    pub failed: bool,
    pub opcode: Opcode,
}

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
            let mut streaming = new_streaming(opcode, u64::from(size));
            streaming.compressor = Some(compressor);
            streaming.inflater = self.core.inflaters.take(compressor, size, data.len() as u32);
            let ok = streaming.inflater.is_some();
            if ok {
                let is_request = conn.server.map(|server| server != side).unwrap_or(true);
                inflate_into(&mut streaming, data, is_request);
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
        let Stage::Pass { header, .. } = half.stage else { return };
        let first = half.first;
        half.stage = Stage::start();
        let is_reply = conn.server == Some(side);
        let snapped = is_reply && self.core.settings.snap_replies.is_some();
        let counter = match header.known() {
            None => &mut self.core.coverage.messages_opcode_unknown,
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
        let server = match conn.server {
            Some(server) => server,
            None => {
                let server = self.tell_server(flow, side, opcode, body);
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

    fn count_read(&mut self, whole: bool) {
        if whole {
            self.core.coverage.messages_decoded += 1;
        } else {
            self.core.coverage.messages_malformed += 1;
        }
    }

    /// Which side is the server, from the first message that could be read.
    fn tell_server(&mut self, flow: &Flow, side: Side, opcode: Opcode, body: &[u8]) -> Side {
        match opcode {
            Opcode::Reply | Opcode::CommandReply => return side,
            Opcode::Msg => {}
            _ => return side.other(),
        }
        let mut request = std::mem::take(&mut self.core.request);
        request.reset(opcode);
        self.core.body.begin(opcode, body.len() as u64);
        let read = self.core.body.feed(body, &mut Content::Request(&mut request));
        let is_request = read.is_ok() && request.has_database;
        self.core.request = request;
        if is_request {
            side.other()
        } else if read.is_ok() {
            side
        } else if flow.ends[0].port <= flow.ends[1].port {
            // Nothing tells: servers mostly have the lower port.
            Side::Low
        } else {
            Side::High
        }
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
        let is_request = conn
            .server
            .map(|server| server != side)
            .unwrap_or(flow.ends[side.index()].port > flow.ends[side.other().index()].port);
        let Stage::Stream { left, streaming, .. } = &mut conn.halves[side.index()].stage else { return };
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
                        streaming.opcode = opcode;
                        streaming.compressor = Some(compressor);
                        streaming.inflater = self.core.inflaters.take(compressor, size, compressed as u32);
                        streaming.failed = streaming.inflater.is_none();
                        streaming.body.begin(opcode, u64::from(size));
                        streaming.request.reset(opcode);
                    }
                    None => streaming.failed = true,
                }
                inflate_into(streaming, rest, is_request);
            }
        } else if streaming.inflater.is_some() {
            inflate_into(streaming, bytes, is_request);
        } else {
            feed_streaming(streaming, bytes, is_request);
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
        let whole = !streaming.failed && streaming.body.left() == 0;
        match (whole, streaming.compressor) {
            (true, _) => self.core.coverage.messages_decoded += 1,
            (false, Some(_)) => self.core.coverage.messages_undecodable += 1,
            (false, None) => self.core.coverage.messages_malformed += 1,
        }
        let server = *conn.server.get_or_insert(if flow.ends[0].port <= flow.ends[1].port {
            Side::Low
        } else {
            Side::High
        });
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
            let same = |known: &Reply, told: &Told| {
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

pub(super) fn new_streaming(opcode: Opcode, length: u64) -> Box<Streaming> {
    let mut streaming = Box::new(Streaming {
        body: Body::default(),
        request: Request::default(),
        reply: Reply::default(),
        inflater: None,
        compressor: None,
        carry: Vec::new(),
        compressed_head: Vec::new(),
        failed: false,
        opcode,
    });
    streaming.body.begin(opcode, length);
    streaming.request.reset(opcode);
    streaming
}

/// Inflates a short message into `out`. False: it cannot be, or its size was a lie.
fn inflate_all(inflater: Option<Inflater>, data: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(mut inflater) = inflater else { return false };
    let result = inflater.inflate(data, &mut |chunk: &[u8]| {
        out.extend_from_slice(chunk);
        ControlFlow::Continue(())
    });
    result == Ok(Status::Done)
}

/// Inflates more of a long message and walks on in it.
fn inflate_into(streaming: &mut Streaming, data: &[u8], is_request: bool) {
    if streaming.failed || data.is_empty() {
        return;
    }
    let Some(mut inflater) = streaming.inflater.take() else { return };
    let result = inflater.inflate(data, &mut |chunk: &[u8]| {
        feed_streaming(streaming, chunk, is_request);
        if streaming.failed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    streaming.failed |= result.is_err();
    streaming.inflater = Some(inflater);
}

/// Feeds a piece to the body of a long message, with what it wanted to see again in front.
fn feed_streaming(streaming: &mut Streaming, mut bytes: &[u8], is_request: bool) {
    /// How much of a piece is put behind a carry at first: mostly enough to end an element.
    const SEAM: usize = 64;
    let Streaming { body, request, reply, carry, failed, .. } = streaming;
    let mut content = if is_request { Content::Request(request) } else { Content::Reply(reply) };
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
