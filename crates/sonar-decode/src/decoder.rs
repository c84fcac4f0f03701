//! The decoder: packets in, operations out. It joins the stages; each of them knows nothing of the
//! others.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use sonar_core::coverage::InProgress;
use sonar_core::operation::{Compressor, ErrorCodes, Opcode};
use sonar_core::packet::Direction;
use sonar_core::{
    Application, Class, Coverage, Endpoint, InFlight, Operation, Outcome, Packet, Role, ShapeId, ShapeInfo,
    Statement, Timestamp,
};

use crate::class::{Facts, class_of};
use crate::compress::{Inflater, Inflaters, Status};
use crate::connection::{
    Arrival, COLLECT, Connection, EARLY_NS, Early, MAX_EARLY, MAX_PENDING, Pending, SEARCH, Stage, Streaming,
};
use crate::frame;
use crate::message::{Body, Content, HEADER, Header, Reply, Request, looks_like_message, to_text};
use crate::shape::{Builder, CommandKind, Rendered, Text, hash};
use crate::shared::{CursorOrigin, Shared};
use crate::tcp::{Close, Flow, FlowTable, Limits, Lost, Side, StreamHandler, Verdict};

/// The most applications that are told apart.
pub const MAX_APPLICATIONS: usize = 1_024;
/// All bytes of messages that are being put together, over all connections.
pub const COLLECT_BUDGET: usize = 16 << 20;
/// Messages that may be walked at once, over all connections; each holds some 16 KiB, and an inflater.
pub const MAX_STREAMING: usize = 512;
/// Bytes of a command's text, with `show_values`.
const VALUES_BUDGET: usize = 2_048;
/// Statements of a mixed bulk whose text is shown.
const MAX_STATEMENT_TEXTS: usize = 16;
/// How long a request waits for its answer before it counts as never answered.
pub const UNANSWERED_NS: u64 = 3_600_000_000_000;

/// Which TCP ports are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// All; streams that are not MongoDB's are found out and left.
    #[default]
    Any,
    /// Those in these inclusive ranges.
    Ranges(Vec<(u16, u16)>),
}

impl Ports {
    /// Whether `port` is named. [`Ports::Any`] names none.
    pub fn names(&self, port: u16) -> bool {
        match self {
            Self::Any => false,
            Self::Ranges(ranges) => ranges.iter().any(|&(low, high)| (low..=high).contains(&port)),
        }
    }
}

/// What to listen for, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which ports are servers'.
    pub ports: Ports,
    /// Only so many bytes of each reply were captured.
    pub snap_replies: Option<u32>,
    /// Give the commands' values too.
    pub show_values: bool,
    /// Keep one connection in so many; 0 and 1 keep all.
    pub sample: u32,
}

/// Who is told of operations.
pub trait Sink {
    /// An operation has ended. Called in the order in which they end on each connection.
    fn operation(&mut self, op: &Operation<'_>);
}

/// Decodes the packets of one ring, or of one file.
pub struct Decoder {
    flows: FlowTable<Connection>,
    /// Counters of packets and segments.
    coverage: Coverage,
    core: Core,
    settings_sample: u32,
}

/// All that the handling of a stream needs beside its connection.
struct Core {
    settings: Settings,
    shared: Arc<Shared>,
    /// Counters of messages and operations.
    coverage: Coverage,
    request: Request<()>,
    renderer: Request<Rendered>,
    reply: Reply,
    body: Body,
    inflated: Vec<u8>,
    inflaters: Inflaters,
    known: HashMap<u64, Arc<ShapeInfo>, foldhash::fast::RandomState>,
    apps: HashMap<Arc<Application>, (), foldhash::quality::RandomState>,
    late: Arc<Application>,
    unnamed: Arc<Application>,
    other_app: Arc<Application>,
    other_shape: Arc<ShapeInfo>,
    collecting: usize,
    streaming: usize,
}

/// A request that has been read to its end, without its buffers.
struct Asked {
    pending: Pending,
    unacknowledged: bool,
    legacy_write: bool,
    get_last_error: bool,
}

impl Decoder {
    /// A decoder that shares cursors and shapes with others.
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Self {
        let other = ShapeInfo { typed: "other".into(), plain: "other".into(), ..ShapeInfo::default() };
        Self {
            flows: FlowTable::new(Limits::default(), shared.twins()),
            coverage: Coverage::default(),
            settings_sample: settings.sample,
            core: Core {
                settings,
                shared,
                coverage: Coverage::default(),
                request: Request::default(),
                renderer: Request::default(),
                reply: Reply::default(),
                body: Body::default(),
                inflated: Vec::new(),
                inflaters: Inflaters::default(),
                known: HashMap::default(),
                apps: HashMap::default(),
                late: Arc::new(Application::late()),
                unnamed: Arc::new(Application::default()),
                other_app: Arc::new(Application { name: "other".into(), ..Application::default() }),
                other_shape: Arc::new(other),
                collecting: 0,
                streaming: 0,
            },
        }
    }

    /// Takes one packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>, sink: &mut impl Sink) {
        self.coverage.frames += 1;
        if packet.loopback && packet.direction == Direction::Outgoing {
            self.coverage.frames_twin_loopback += 1;
            return;
        }
        let segment = match frame::decode(packet) {
            Ok(segment) => segment,
            Err(skip) => return skip.count(&mut self.coverage),
        };
        if let Ports::Ranges(_) = self.core.settings.ports
            && !self.core.settings.ports.names(segment.source.port)
            && !self.core.settings.ports.names(segment.destination.port)
        {
            self.coverage.frames_other_port += 1;
            return;
        }
        if self.settings_sample > 1 && !is_sampled(segment.source, segment.destination, self.settings_sample)
        {
            self.coverage.frames_sampled_out += 1;
            return;
        }
        let mut handler = Handler { core: &mut self.core, sink };
        self.flows.segment(&segment, &mut self.coverage, &mut handler);
    }

    /// Tells that time has come to `now`: what has waited too long is given up. To be called about once
    /// a second of the packets' time.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl Sink) {
        let mut handler = Handler { core: &mut self.core, sink };
        self.flows.tick(now, &mut self.coverage, &mut handler);
        for (flow, conn) in self.flows.iter_mut() {
            handler.expire(flow, conn, now);
        }
    }

    /// Ends the capture: what has not ended, ends.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl Sink) {
        let mut handler = Handler { core: &mut self.core, sink };
        self.flows.finish(now, &mut self.coverage, &mut handler);
    }

    /// The counters.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage;
        coverage.add(&self.core.coverage);
        coverage
    }

    /// What has begun and not ended.
    pub fn in_progress(&self) -> InProgress {
        let mut progress =
            InProgress { segments: self.flows.in_progress_segments(), ..InProgress::default() };
        for (_, conn) in self.flows.iter() {
            progress.requests += conn.requests_in_progress();
            progress.replies += conn.early.len() as u64;
            progress.messages += conn.halves.iter().filter(|half| half.stage.in_message()).count() as u64;
        }
        progress
    }

    /// Operations in flight by shape: how many, and how old the oldest is at `now`.
    pub fn in_flight(&self, now: Timestamp) -> Vec<InFlight> {
        let mut found: Vec<InFlight> = Vec::new();
        for (flow, conn) in self.flows.iter() {
            let Some(server) = conn.server else { continue };
            let server = flow.ends[server.index()];
            for pending in conn.pending.iter().filter(|pending| !pending.follows && !pending.provisional) {
                let (role, age) = (role_of(conn), now.since(pending.start));
                let same = |seen: &&mut InFlight| {
                    (seen.server, seen.role, seen.class, seen.shape.id)
                        == (server, role, pending.class, pending.shape.id)
                };
                match found.iter_mut().find(same) {
                    Some(seen) => {
                        seen.count += 1;
                        seen.oldest_ns = seen.oldest_ns.max(age);
                    }
                    None => found.push(InFlight {
                        server,
                        role,
                        class: pending.class,
                        shape: pending.shape.clone(),
                        count: 1,
                        oldest_ns: age,
                    }),
                }
            }
        }
        found
    }

    /// Connections that are followed.
    pub fn connections(&self) -> usize {
        self.flows.len()
    }
}

/// Whether a connection is one of those that a sample of one in `n` keeps: the same for both
/// directions.
fn is_sampled(a: Endpoint, b: Endpoint, n: u32) -> bool {
    let one = |end: Endpoint| {
        hash::mix(end.addr_bits()[0] ^ end.addr_bits()[1].rotate_left(17), u64::from(end.port))
    };
    (one(a) ^ one(b)) % u64::from(n) == 0
}

fn role_of(conn: &Connection) -> Role {
    if conn.from_server { Role::Issued } else { Role::Served }
}

struct Handler<'a, S> {
    core: &'a mut Core,
    sink: &'a mut S,
}

impl<S: Sink> StreamHandler for Handler<'_, S> {
    type Connection = Connection;

    fn open(&mut self, flow: &Flow) -> Connection {
        let ports = &self.core.settings.ports;
        let named = [ports.names(flow.ends[0].port), ports.names(flow.ends[1].port)];
        let server = match (flow.opener, named) {
            (Some(client), _) => Some(client.other()),
            (None, [true, false]) => Some(Side::Low),
            (None, [false, true]) => Some(Side::High),
            _ => None,
        };
        let app = if flow.opener.is_some() { &self.core.unnamed } else { &self.core.late };
        Connection::new(server, app.clone())
    }

    fn data(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        time: Timestamp,
        bytes: &[u8],
    ) -> Verdict {
        self.stream(flow, conn, side, time, bytes)
    }

    fn gap(&mut self, flow: &Flow, conn: &mut Connection, side: Side, time: Timestamp, lost: Lost) {
        self.hole(flow, conn, side, time, lost);
    }

    fn close(&mut self, flow: &Flow, mut conn: Connection, time: Timestamp, _how: Close) {
        for half in &mut conn.halves {
            if half.stage.in_message() {
                self.core.coverage.messages_cut += 1;
                self.core.forget(&half.stage);
            }
        }
        self.core.coverage.replies_orphan += conn.early.len() as u64;
        conn.early.clear();
        self.end_legacy_write(flow, &mut conn, time);
        while let Some(pending) = conn.pending.pop_front() {
            self.give_up(flow, &conn, pending, time);
        }
    }
}

impl<S: Sink> Handler<'_, S> {
    /// Takes bytes of one side, in order.
    fn stream(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        time: Timestamp,
        mut bytes: &[u8],
    ) -> Verdict {
        while !bytes.is_empty() {
            let half = &mut conn.halves[side.index()];
            match &mut half.stage {
                Stage::Header { have: 0, .. } if bytes.len() >= HEADER => {
                    half.first = time;
                    let Some(header) = Header::read(bytes) else {
                        if let Some(verdict) = self.lose(flow, conn, side, bytes) {
                            return verdict;
                        }
                        continue;
                    };
                    if header.known().is_some() && header.length as usize <= bytes.len() {
                        let (message, rest) = bytes.split_at(header.length as usize);
                        self.core.coverage.messages += 1;
                        self.whole(flow, conn, side, header, &message[HEADER..], time);
                        bytes = rest;
                    } else {
                        bytes = &bytes[HEADER..];
                        self.begin(conn, side, header);
                    }
                }
                Stage::Header { have, bytes: head } => {
                    if *have == 0 {
                        half.first = time;
                    }
                    let take = (HEADER - *have).min(bytes.len());
                    head[*have..*have + take].copy_from_slice(&bytes[..take]);
                    *have += take;
                    bytes = &bytes[take..];
                    if *have < HEADER {
                        return Verdict::Continue;
                    }
                    let head = *head;
                    match Header::read(&head) {
                        Some(header) => self.begin(conn, side, header),
                        None => {
                            if let Some(verdict) = self.lose(flow, conn, side, &head) {
                                return verdict;
                            }
                            // The header's bytes are searched with what comes.
                            if let Stage::Lost { tail, .. } = &mut conn.halves[side.index()].stage {
                                tail.extend_from_slice(&head);
                            }
                        }
                    }
                    self.end_if_empty(flow, conn, side, time);
                }
                Stage::Collect { header, body } => {
                    let want = header.length as usize - HEADER - body.len();
                    let take = want.min(bytes.len());
                    body.extend_from_slice(&bytes[..take]);
                    bytes = &bytes[take..];
                    if take == want {
                        let (header, body) = (*header, std::mem::take(body));
                        half.stage = Stage::start();
                        self.core.collecting -= body.capacity();
                        self.whole(flow, conn, side, header, &body, time);
                    }
                }
                Stage::Stream { left, .. } => {
                    let take = (*left).min(bytes.len() as u64) as usize;
                    self.walk(flow, conn, side, &bytes[..take], time);
                    bytes = &bytes[take..];
                }
                Stage::Pass { left, .. } => {
                    let take = (*left).min(bytes.len() as u64);
                    *left -= take;
                    if *left == 0 {
                        self.end_passed(flow, conn, side, time);
                    }
                    bytes = &bytes[take as usize..];
                }
                Stage::Lost { .. } => match self.search(conn, side, time, bytes) {
                    Ok(rest) => bytes = rest,
                    Err(verdict) => return verdict,
                },
            }
        }
        Verdict::Continue
    }

    /// A header has been read, and not all of its message is there.
    fn begin(&mut self, conn: &mut Connection, side: Side, header: Header) {
        self.core.coverage.messages += 1;
        let body = u64::from(header.length) - HEADER as u64;
        conn.halves[side.index()].stage = match header.known() {
            Some(_) if body as usize <= COLLECT && self.core.collecting + body as usize <= COLLECT_BUDGET => {
                let buffer = Vec::with_capacity(body as usize);
                self.core.collecting += buffer.capacity();
                Stage::Collect { header, body: buffer }
            }
            Some(opcode) if self.core.streaming < MAX_STREAMING => {
                self.core.streaming += 1;
                Stage::Stream { header, left: body, streaming: new_streaming(opcode, body) }
            }
            _ => Stage::Pass { header, left: body },
        };
    }

    /// A message of a header alone ends with its header.
    fn end_if_empty(&mut self, flow: &Flow, conn: &mut Connection, side: Side, time: Timestamp) {
        match &conn.halves[side.index()].stage {
            Stage::Collect { header, .. } if header.length as usize == HEADER => {
                let header = *header;
                conn.halves[side.index()].stage = Stage::start();
                self.whole(flow, conn, side, header, &[], time);
            }
            Stage::Pass { left: 0, .. } => self.end_passed(flow, conn, side, time),
            _ => {}
        }
    }

    /// A message that was passed over has ended.
    fn end_passed(&mut self, flow: &Flow, conn: &mut Connection, side: Side, time: Timestamp) {
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

    /// A message that is all there. Its header has been counted.
    fn whole(
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
            reply.reset();
            self.core.body.begin(opcode, body.len() as u64);
            let read = self.core.body.feed::<()>(body, &mut Content::Reply(&mut reply));
            let whole = read.is_ok() && self.core.body.left() == 0;
            self.count_read(whole);
            self.core.coverage.replies += 1;
            self.answer(flow, conn, header, &mut reply, Arrival { first, last: time, compressor, whole });
            self.core.reply = reply;
            return;
        }
        let mut request = std::mem::take(&mut self.core.request);
        request.reset(opcode);
        self.core.body.begin(opcode, body.len() as u64);
        let read = self.core.body.feed(body, &mut Content::Request(&mut request));
        let whole = read.is_ok() && self.core.body.left() == 0 && !request.command.bytes().is_empty();
        self.count_read(whole);
        if whole {
            let asked = self.core.asked(
                conn,
                flow.ends[server.index()],
                &mut request,
                Some(body),
                header,
                compressor,
                time,
                provisional,
            );
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
    fn walk(&mut self, flow: &Flow, conn: &mut Connection, side: Side, bytes: &[u8], time: Timestamp) {
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
            let compressor = streaming.compressor;
            let server = flow.ends[server.index()];
            let asked = self.core.asked(
                conn,
                server,
                &mut streaming.request,
                None,
                header,
                compressor,
                time,
                provisional,
            );
            self.ask(flow, conn, asked, time);
        }
    }

    /// A request has been read.
    fn ask(&mut self, flow: &Flow, conn: &mut Connection, asked: Asked, time: Timestamp) {
        self.core.coverage.requests += 1;
        let Asked { mut pending, unacknowledged, legacy_write, get_last_error } = asked;
        if get_last_error && conn.legacy_write.is_some() {
            pending.answers_write = true;
        } else {
            self.end_legacy_write(flow, conn, time);
        }
        if legacy_write && !pending.provisional {
            conn.legacy_write = Some(Box::new(pending));
            return;
        }
        if unacknowledged {
            if pending.provisional {
                self.core.coverage.requests_discarded += 1;
            } else {
                self.core.coverage.requests_unacknowledged += 1;
                let outcome = Outcome::Unacknowledged;
                self.emit(flow, conn, &pending, time, Told { outcome, ..Told::default() });
            }
            return;
        }
        if conn.pending.len() >= MAX_PENDING {
            self.core.coverage.requests_refused += 1;
            return;
        }
        let id = pending.request_id;
        conn.pending.push_back(pending);
        if let Some(at) = conn.early.iter().position(|early| early.header.response_to == id) {
            let mut early = conn.early.swap_remove(at);
            self.answer(flow, conn, early.header, &mut early.reply, early.arrival);
        }
    }

    /// A legacy write that no getLastError followed.
    fn end_legacy_write(&mut self, flow: &Flow, conn: &mut Connection, time: Timestamp) {
        if let Some(pending) = conn.legacy_write.take() {
            self.core.coverage.requests_unacknowledged += 1;
            let told = Told { outcome: Outcome::Unacknowledged, ..Told::default() };
            self.emit(flow, conn, &pending, time.max(pending.start), told);
        }
    }

    /// A request that will not be answered.
    fn give_up(&mut self, flow: &Flow, conn: &Connection, pending: Pending, time: Timestamp) {
        if pending.follows {
            return;
        }
        if pending.provisional {
            self.core.coverage.requests_discarded += 1;
        } else if pending.answers_write {
            self.core.coverage.requests_folded += 1;
        } else {
            self.core.coverage.requests_unanswered += 1;
            let told = Told { outcome: Outcome::Unanswered, ..Told::default() };
            self.emit(flow, conn, &pending, time, told);
        }
    }

    /// Gives up what has waited too long on one connection.
    fn expire(&mut self, flow: &Flow, conn: &mut Connection, now: Timestamp) {
        if !conn.early.is_empty() {
            let before = conn.early.len();
            conn.early.retain(|early| now.since(early.arrival.first) < EARLY_NS);
            self.core.coverage.replies_orphan += (before - conn.early.len()) as u64;
        }
        while conn.pending.front().is_some_and(|pending| now.since(pending.start) > UNANSWERED_NS) {
            if let Some(pending) = conn.pending.pop_front() {
                self.give_up(flow, conn, pending, now);
            }
        }
        if conn.legacy_write.as_ref().is_some_and(|write| now.since(write.start) > 1_000_000_000) {
            self.end_legacy_write(flow, conn, now);
        }
    }

    /// A reply has come; `reply` says what could be read of it.
    fn answer(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        header: Header,
        reply: &mut Reply,
        arrival: Arrival,
    ) {
        let found = conn.pending.iter().position(|pending| pending.request_id == header.response_to);
        let Some(mut pending) = found.and_then(|at| conn.pending.remove(at)) else {
            if conn.early.len() < MAX_EARLY {
                conn.early.push(Early { header, reply: Box::new(reply.clone()), arrival });
            } else {
                self.core.coverage.replies_orphan += 1;
            }
            return;
        };
        for half in &mut conn.halves {
            half.provisional = false;
        }
        pending.provisional = false;
        let server = conn.server.unwrap_or(Side::Low);
        let server_end = flow.ends[server.index()];
        if pending.follows {
            self.core.coverage.replies_exhaust += 1;
        } else {
            self.core.coverage.replies_paired += 1;
            if pending.answers_write {
                self.core.coverage.requests_folded += 1;
            } else {
                self.core.coverage.requests_answered += 1;
            }
        }
        let mut codes: Vec<(i32, u32)> = Vec::new();
        let told = self.core.told(&pending, reply, &arrival, &mut codes, header);
        let latency = (arrival.first >= pending.start).then(|| arrival.first.since(pending.start));
        let told = Told {
            latency,
            transfer: Some(arrival.last.since(arrival.first)),
            response_bytes: u64::from(header.length),
            compressor: arrival.compressor,
            outcome: if codes.is_empty() {
                told.outcome
            } else {
                Outcome::Failed(ErrorCodes { codes: &codes })
            },
            ..told
        };
        self.core.coverage.documents_unknown += u64::from(!arrival.whole);
        self.core.note_cursor(server_end, &pending, reply, &arrival);
        if pending.answers_write {
            if let Some(write) = conn.legacy_write.take() {
                self.core.coverage.requests_answered += 1;
                // The `n` of getLastError is 0 after an insert, however many were inserted.
                let n = if write.kind == CommandKind::Insert { None } else { reply.n };
                // The server is at work from the write on, not from the getLastError on.
                let latency = (arrival.first >= write.start).then(|| arrival.first.since(write.start));
                let told = Told { affected: n, matched: n, latency, ..told };
                self.emit(flow, conn, &write, arrival.first, told);
            }
        } else {
            self.emit(flow, conn, &pending, arrival.first, told);
        }
        let chain = reply.more_to_come || (pending.exhaust && reply.cursor.is_some_and(|id| id != 0));
        if chain && arrival.whole {
            conn.pending.push_back(Pending {
                request_id: header.request_id,
                start: arrival.last,
                class: if pending.class == Class::Replication { Class::Replication } else { Class::Waiting },
                follows: true,
                bytes: 0,
                cursor: pending.cursor.or(reply.cursor),
                ..pending
            });
        }
    }

    fn emit(&mut self, flow: &Flow, conn: &Connection, pending: &Pending, end: Timestamp, told: Told<'_>) {
        let server = conn.server.unwrap_or(Side::Low);
        let op = Operation {
            start: pending.start,
            end: end.max(pending.start),
            latency_ns: told.latency,
            transfer_ns: told.transfer,
            client: flow.ends[server.other().index()],
            server: flow.ends[server.index()],
            role: role_of(conn),
            class: pending.class,
            command: pending.command.unwrap_or(&pending.shape.command),
            shape: &pending.shape,
            ordered_id: pending.ordered_id,
            statements: &pending.statements,
            statement_count: pending.statement_count,
            app: &conn.app,
            opcode: pending.opcode,
            compressor: pending.compressor.or(told.compressor),
            request_id: pending.own_id,
            cursor_id: pending.cursor.or(told.cursor),
            request_bytes: pending.bytes,
            response_bytes: told.response_bytes,
            docs_returned: told.returned,
            docs_matched: told.matched,
            docs_affected: told.affected,
            outcome: told.outcome,
            values: pending.values.as_deref(),
        };
        self.sink.operation(&op);
    }

    /// The next bytes are no header. `None`: the search has begun; else what to do with the stream.
    fn lose(&mut self, _flow: &Flow, conn: &mut Connection, side: Side, bytes: &[u8]) -> Option<Verdict> {
        if !conn.speaks {
            // TLS records: change_cipher_spec, alert, handshake, application data of versions 3.x.
            if matches!(bytes, [0x14..=0x17, 3, 0..=4, ..]) {
                self.core.coverage.streams_tls += 1;
                return Some(Verdict::Ignore);
            }
            if conn.app.joined_late {
                // May have begun anywhere: searched below.
            } else {
                self.core.coverage.streams_not_mongodb += 1;
                return Some(Verdict::Ignore);
            }
        }
        self.core.coverage.resyncs += 1;
        conn.halves[side.index()].stage = Stage::Lost { tail: Vec::new(), searched: 0 };
        None
    }

    /// Looks for a message. Returns the bytes from its header on, or nothing when there is none yet.
    fn search<'b>(
        &mut self,
        conn: &mut Connection,
        side: Side,
        time: Timestamp,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], Verdict> {
        /// What must be seen of a message before it is believed: header, flags, kind, begin of a document.
        const WANTED: usize = 64;
        let speaks = conn.speaks;
        let half = &mut conn.halves[side.index()];
        let Stage::Lost { tail, searched } = &mut half.stage else { return Ok(bytes) };
        // A message that begins in the kept tail is found by looking at the seam.
        if !tail.is_empty() {
            let kept = tail.len();
            let seam: Vec<u8> = tail.iter().chain(&bytes[..bytes.len().min(WANTED)]).copied().collect();
            for at in 0..kept {
                if looks_like_message(&seam[at..]) == Some(true) {
                    let head = seam[at..kept].to_vec();
                    self.core.coverage.resync_bytes += at as u64;
                    half.stage = Stage::start();
                    half.provisional = true;
                    if let Stage::Header { have, bytes: held } = &mut half.stage {
                        let take = head.len().min(HEADER);
                        held[..take].copy_from_slice(&head[..take]);
                        *have = take;
                    }
                    return Ok(bytes);
                }
            }
            self.core.coverage.resync_bytes += kept as u64;
            *searched += kept as u64;
            tail.clear();
        }
        let mut at = 0;
        while at < bytes.len() {
            match looks_like_message(&bytes[at..]) {
                Some(true) if follows_well(&bytes[at..]) => {
                    self.core.coverage.resync_bytes += at as u64;
                    half.stage = Stage::start();
                    half.provisional = true;
                    return Ok(&bytes[at..]);
                }
                // Too few bytes to tell: kept for the next segment, no more than a header.
                None if bytes.len() - at < HEADER => break,
                _ => at += 1,
            }
        }
        *searched += at as u64;
        self.core.coverage.resync_bytes += at as u64;
        if !speaks && *searched > SEARCH {
            self.core.coverage.streams_not_mongodb += 1;
            return Err(Verdict::Ignore);
        }
        // If a message begins here, it begins now.
        tail.extend_from_slice(&bytes[at..]);
        half.first = time;
        Ok(&[])
    }

    /// Bytes of one side will never come.
    fn hole(&mut self, flow: &Flow, conn: &mut Connection, side: Side, time: Timestamp, lost: Lost) {
        let half = &mut conn.halves[side.index()];
        let Lost::Bytes(mut missing) = lost else {
            // Joined in the middle: what comes next may be the middle of a message.
            if half.stage.in_message() {
                self.core.coverage.messages_cut += 1;
                self.core.forget(&half.stage);
            }
            conn.halves[side.index()].stage = Stage::Lost { tail: Vec::new(), searched: 0 };
            return;
        };
        let (header, left) = match &half.stage {
            Stage::Collect { header, body } => {
                (*header, u64::from(header.length) - (HEADER + body.len()) as u64)
            }
            Stage::Stream { header, left, .. } => (*header, *left),
            Stage::Pass { header, left } => (*header, *left),
            Stage::Header { .. } | Stage::Lost { .. } => {
                // Between messages, or inside a header: where the next one begins is not known.
                self.core.coverage.resyncs += 1;
                half.stage = Stage::Lost { tail: Vec::new(), searched: 0 };
                return;
            }
        };
        self.core.forget(&half.stage);
        let within = missing.min(left);
        missing -= within;
        half.stage = Stage::Pass { header, left: left - within };
        if left == within {
            self.end_passed(flow, conn, side, time);
        }
        if missing > 0 {
            self.core.coverage.resyncs += 1;
            conn.halves[side.index()].stage = Stage::Lost { tail: Vec::new(), searched: 0 };
        }
    }
}

/// Whether what comes behind a message found by its looks, if it is there, is a message too.
fn follows_well(bytes: &[u8]) -> bool {
    Header::read(bytes).is_some_and(|header| match bytes.get(header.length as usize..) {
        None | Some([]) => true,
        Some(next) if next.len() < HEADER => true,
        Some(next) => looks_like_message(next) != Some(false),
    })
}

/// What a reply tells of its operation.
#[derive(Copy, Clone)]
struct Told<'a> {
    outcome: Outcome<'a>,
    latency: Option<u64>,
    transfer: Option<u64>,
    response_bytes: u64,
    compressor: Option<Compressor>,
    cursor: Option<i64>,
    returned: Option<u64>,
    matched: Option<u64>,
    affected: Option<u64>,
}

impl Default for Told<'_> {
    fn default() -> Self {
        Self {
            outcome: Outcome::Unknown,
            latency: None,
            transfer: None,
            response_bytes: 0,
            compressor: None,
            cursor: None,
            returned: None,
            matched: None,
            affected: None,
        }
    }
}

impl Core {
    /// Gives back what a stage holds of the budgets.
    fn forget(&mut self, stage: &Stage) {
        match stage {
            Stage::Collect { body, .. } => self.collecting -= body.capacity(),
            Stage::Stream { .. } => self.streaming -= 1,
            _ => {}
        }
    }

    /// Reads outcome, documents and cursor out of a reply.
    fn told<'a>(
        &self,
        pending: &Pending,
        reply: &Reply,
        arrival: &Arrival,
        codes: &mut Vec<(i32, u32)>,
        _: Header,
    ) -> Told<'a> {
        let mut told = Told { outcome: Outcome::Ok, ..Told::default() };
        if !arrival.whole {
            told.outcome = Outcome::Unknown;
            return told;
        }
        if pending.legacy_find {
            if reply.cursor_not_found {
                codes.push((43, 1));
            } else if reply.query_failure {
                codes.push((reply.code.unwrap_or(0), 1));
            } else {
                told.returned = reply.returned;
            }
            told.cursor = reply.cursor.filter(|id| *id != 0);
            return told;
        }
        codes.extend_from_slice(&reply.codes);
        if reply.ok == Some(false) || (reply.has_err && (pending.answers_write || reply.ok != Some(true))) {
            codes.push((reply.code.unwrap_or(0), 1));
        }
        if reply.ok.is_none() && codes.is_empty() {
            told.outcome = Outcome::Unknown;
        }
        told.cursor = reply.cursor.filter(|id| *id != 0);
        told.returned = match pending.kind {
            CommandKind::FindAndModify => reply.value.map(u64::from),
            _ => reply.documents,
        };
        told.matched = reply.n;
        told.affected = match pending.kind {
            CommandKind::Update => reply.modified.map(|n| n + reply.upserted).or(reply.n),
            CommandKind::Insert | CommandKind::Delete => reply.n,
            CommandKind::FindAndModify => reply.last_error_n,
            CommandKind::BulkWrite => reply.bulk,
            _ => None,
        };
        told
    }

    /// Remembers or forgets the cursor that a reply speaks of.
    fn note_cursor(&self, server: Endpoint, pending: &Pending, reply: &Reply, arrival: &Arrival) {
        if !arrival.whole {
            return;
        }
        match (pending.kind, reply.cursor, pending.cursor) {
            (CommandKind::GetMore, Some(0), Some(id)) => self.shared.close_cursor(server, id),
            (CommandKind::GetMore, ..) | (_, None | Some(0), _) => {}
            (_, Some(id), _) => {
                let origin = CursorOrigin {
                    shape: pending.shape.clone(),
                    ordered_id: pending.ordered_id,
                    waits: pending.opens_waiting,
                };
                self.shared.open_cursor(server, id, origin);
            }
        }
    }

    /// Makes of a request that has been read what waits for its answer.
    #[allow(clippy::too_many_arguments)]
    fn asked<T: Text + IntoRendered>(
        &mut self,
        conn: &mut Connection,
        server: Endpoint,
        request: &mut Request<T>,
        body: Option<&[u8]>,
        header: Header,
        compressor: Option<Compressor>,
        time: Timestamp,
        provisional: bool,
    ) -> Asked {
        if request.client.present {
            conn.app = self.application(request);
            conn.from_server |= is_server(&conn.app);
        }
        conn.from_server |= request.from_server;
        let values = match body {
            Some(body) if self.settings.show_values => {
                command_document(request.opcode, body).map(|document| to_text(document, VALUES_BUDGET).into())
            }
            _ => None,
        };
        let origin = match (request.kind, request.cursor) {
            (CommandKind::GetMore | CommandKind::KillCursors, Some(id)) => {
                let origin = self.shared.cursor(server, id);
                self.coverage.cursors_unknown += u64::from(origin.is_none());
                origin
            }
            _ => None,
        };
        let waits = match request.kind {
            CommandKind::GetMore => origin.as_ref().is_some_and(|origin| origin.waits) || request.max_time,
            CommandKind::Hello => request.awaits_topology,
            _ => false,
        };
        let class = class_of(&Facts {
            kind: request.kind,
            command: request.command.bytes(),
            database: request.database.bytes(),
            collection: request.collection.bytes(),
            from_server: conn.from_server,
            waits,
        });
        let opens_waiting = request.opens_waiting_cursor();
        let kind = request.kind;
        let (shape, ordered_id, statements, statement_count, command) = match origin {
            Some(origin) => {
                let command = if kind == CommandKind::GetMore { "getMore" } else { "killCursors" };
                (origin.shape, origin.ordered_id, Box::default(), 1, Some(command))
            }
            None => {
                let (shape, ordered, statements, count) = self.shape(request, body);
                (shape, ordered, statements, count, None)
            }
        };
        let legacy_write = matches!(request.opcode, Opcode::Insert | Opcode::Update | Opcode::Delete);
        Asked {
            unacknowledged: request.unacknowledged || request.opcode == Opcode::KillCursors,
            legacy_write,
            get_last_error: request.is_get_last_error(),
            pending: Pending {
                request_id: header.request_id,
                own_id: header.request_id,
                start: time,
                shape,
                ordered_id,
                statements,
                statement_count,
                class,
                kind,
                command,
                opcode: request.opcode,
                compressor,
                cursor: request.cursor,
                bytes: u64::from(header.length),
                legacy_find: matches!(request.opcode, Opcode::GetMore)
                    || (request.opcode == Opcode::Query
                        && kind == CommandKind::Find
                        && request.is_legacy_find()),
                opens_waiting,
                provisional,
                follows: false,
                exhaust: false,
                answers_write: false,
                values,
            },
        }
    }

    /// The application that a `hello` names, as one shared value.
    fn application<T: Text>(&mut self, request: &Request<T>) -> Arc<Application> {
        let client = &request.client;
        let app = Application {
            name: client.application.text(),
            driver: client.driver.text(),
            driver_version: client.driver_version.text(),
            joined_late: false,
        };
        if let Some((known, ())) = self.apps.get_key_value(&app) {
            return known.clone();
        }
        if self.apps.len() >= MAX_APPLICATIONS {
            return self.other_app.clone();
        }
        let app = Arc::new(app);
        self.apps.insert(app.clone(), ());
        app
    }

    /// Shape, ordered id and statements of a request.
    fn shape<T: Text + IntoRendered>(
        &mut self,
        request: &mut Request<T>,
        body: Option<&[u8]>,
    ) -> (Arc<ShapeInfo>, ShapeId, Box<[Statement]>, u32) {
        let (ids, text) = ids_of(request);
        self.coverage.shapes_over_cap += u64::from(request.builder.over_cap);
        let count = request.builder.statement_count.max(1);
        if let Some(info) = self.known.get(&ids.shape.0) {
            return (info.clone(), ids.ordered, ids.statements, count);
        }
        if self.known.len() >= crate::shared::MAX_SHAPES {
            self.coverage.shapes_folded += 1;
            return (self.other_shape.clone(), ids.ordered, ids.statements, count);
        }
        let shared = self.shared.clone();
        let made = match body {
            // Seen for the first time, and its bytes are here: read again, this time with text.
            Some(body) => shared.shape(ids.shape, || {
                self.renderer.reset(request.opcode);
                self.body.begin(request.opcode, body.len() as u64);
                let _ = self.body.feed(body, &mut Content::Request(&mut self.renderer));
                info_of(&mut self.renderer)
            }),
            None => shared.shape(ids.shape, || info_with(request, &ids, text)),
        };
        let Some((info, cut)) = made else {
            self.coverage.shapes_folded += 1;
            return (self.other_shape.clone(), ids.ordered, ids.statements, count);
        };
        self.coverage.shapes_text_cut += u64::from(cut);
        self.known.insert(ids.shape.0, info.clone());
        (info, ids.ordered, ids.statements, count)
    }
}

/// Marks the two forms of text that a request may carry.
pub trait IntoRendered: Text {
    /// Takes the text out, if there is any.
    fn into_rendered(self) -> Rendered;
}

impl IntoRendered for () {
    fn into_rendered(self) -> Rendered {
        Rendered::default()
    }
}

impl IntoRendered for Rendered {
    fn into_rendered(self) -> Rendered {
        self
    }
}

/// The ids of a request.
#[derive(Debug)]
pub(crate) struct Ids {
    pub shape: ShapeId,
    pub ordered: ShapeId,
    pub statements: Box<[Statement]>,
}

/// What every id of a request begins with: its command and namespace.
fn base_of<T: Text>(request: &Request<T>) -> u64 {
    let command = match request.kind {
        CommandKind::FindAndModify => b"findAndModify",
        CommandKind::MapReduce => b"mapReduce".as_slice(),
        _ => request.command.bytes(),
    };
    let command =
        hash::mix(hash::bytes(command), if request.explain { request.kind as u64 } else { u64::MAX });
    let namespace = hash::mix(hash::bytes(request.database.bytes()), hash::bytes(request.collection.bytes()));
    hash::mix(hash::mix(hash::SEED, command), namespace)
}

/// The ids of a request, and the text of its body where it is not made of statements. To be called once
/// for a request: it takes the body out of the builder.
pub(crate) fn ids_of<T: Text>(request: &mut Request<T>) -> (Ids, T) {
    let base = base_of(request);
    if !request.kind.has_statements() || request.builder.statements().is_empty() {
        let body = request.builder.finish();
        let ids = Ids {
            shape: ShapeId(hash::mix(base, body.unordered)),
            ordered: ShapeId(hash::mix(base, body.ordered)),
            statements: Box::default(),
        };
        return (ids, body.text);
    }
    let namespaces = std::mem::take(&mut request.namespaces);
    let statements = request.builder.statements();
    let id = |hash_of: u64, namespace: Option<i64>| {
        let namespace = namespace.map(|index| {
            usize::try_from(index)
                .ok()
                .and_then(|index| namespaces.get(index))
                .map_or(0, |name| hash::bytes(name.bytes()))
        });
        hash::mix(base, namespace.map_or(hash_of, |namespace| hash::mix(namespace, hash_of)))
    };
    let ids = if let [one] = statements.as_slice() {
        Ids {
            shape: ShapeId(id(one.unordered, one.namespace)),
            ordered: ShapeId(id(one.ordered, one.namespace)),
            statements: Box::default(),
        }
    } else {
        let mut shapes: Vec<Statement> = statements
            .iter()
            .map(|one| Statement { shape: ShapeId(id(one.unordered, one.namespace)), count: one.count })
            .collect();
        let ordered = Builder::<T>::mixed(statements.iter().map(|one| id(one.ordered, one.namespace)));
        shapes.sort_unstable_by_key(|one| one.shape);
        let mixed = Builder::<T>::mixed(shapes.iter().map(|one| one.shape.0));
        Ids {
            shape: ShapeId(hash::mix(base, mixed)),
            ordered: ShapeId(hash::mix(base, ordered)),
            statements: shapes.into(),
        }
    };
    request.namespaces = namespaces;
    (ids, T::default())
}

/// What is kept of a request's shape; the request must carry text.
pub(crate) fn info_of<T: Text + IntoRendered>(request: &mut Request<T>) -> ShapeInfo {
    let (ids, text) = ids_of(request);
    info_with(request, &ids, text)
}

/// The same, where the ids have been found already.
fn info_with<T: Text + IntoRendered>(request: &mut Request<T>, ids: &Ids, body: T) -> ShapeInfo {
    let mut parts: Vec<Rendered> = if request.kind.has_statements() {
        let statements = request.builder.statements();
        statements.iter_mut().map(|one| std::mem::take(&mut one.text).into_rendered()).collect()
    } else {
        Vec::new()
    };
    let text = match parts.len() {
        0 => body.into_rendered(),
        1 => parts.remove(0),
        all => {
            parts.sort_by(|a, b| a.typed.cmp(&b.typed));
            parts.truncate(MAX_STATEMENT_TEXTS);
            let more = if all > parts.len() { "; …" } else { "" };
            let join = |form: fn(&Rendered) -> &str| {
                format!("[{}{more}]", parts.iter().map(form).collect::<Vec<_>>().join("; "))
            };
            Rendered {
                typed: join(|part| &part.typed),
                plain: join(|part| &part.plain),
                cut: parts.iter().any(|part| part.cut) || all > parts.len(),
            }
        }
    };
    ShapeInfo {
        id: ids.shape,
        command: request.command.text(),
        database: request.database.text(),
        collection: request.collection.text(),
        typed: text.typed.into(),
        plain: text.plain.into(),
        cut: text.cut,
        statements: ids.statements.iter().map(|one| one.shape).collect(),
    }
}

/// Whether an application is a MongoDB server.
fn is_server(app: &Application) -> bool {
    app.driver.starts_with("NetworkInterface") || &*app.driver == "MongoDB Internal Client"
}

/// The command itself in a message that is all there.
fn command_document(opcode: Opcode, body: &[u8]) -> Option<&[u8]> {
    let length = |at: usize| {
        body.get(at..at + 4)
            .and_then(|bytes| bytes.first_chunk())
            .map(|bytes| u32::from_le_bytes(*bytes) as usize)
    };
    match opcode {
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

/// Original opcode, uncompressed size, compressor and data of an OP_COMPRESSED body.
fn compressed_head(body: &[u8]) -> Option<(Opcode, u32, Compressor, &[u8])> {
    let word = |at: usize| body.get(at..at + 4).and_then(|w| w.first_chunk()).map(|w| u32::from_le_bytes(*w));
    let opcode = Opcode::from_number(word(0)?).filter(|opcode| *opcode != Opcode::Compressed)?;
    let size = word(4).filter(|size| *size <= crate::message::MAX_MESSAGE)?;
    Some((opcode, size, Compressor::from_id(*body.get(8)?)?, body.get(9..)?))
}

fn new_streaming(opcode: Opcode, length: u64) -> Box<Streaming> {
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
