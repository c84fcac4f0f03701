//! The decoder: packets in, operations out. It joins the stages; each of them knows nothing of the
//! others.
//!
//! This file is the interface of the decoder; its modules say what becomes of a stream:
//! `stream` cuts it into messages, `content` reads them (`walk` the long ones), `request` and `shape` find out what is
//! asked, `pair` joins the reply to it and reports the operation, `chain` does for chains of replies that
//! began before the capture, and `caps` makes room in the tables that are full.

mod caps;
mod chain;
#[cfg(test)]
mod collected;
mod connection;
mod content;
mod joined_late;
#[cfg(test)]
mod loss;
mod pair;
mod request;
mod shape;
mod stream;
mod walk;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

use sonar_core::coverage::InProgress;
use sonar_core::packet::Direction;
use sonar_core::{Coverage, Endpoint, InFlight, Operation, Packet, Role, ShapeInfo, Timestamp, sample};

use self::connection::Connection;
use self::pair::Ending;
use self::request::RequestFacts;
use crate::compress::Inflaters;
use crate::frame;
use crate::identity::{Applications, Shared, other_shape};
use crate::message::{Body, Reply, Request, Templates};
use crate::shape::Rendered;
use crate::tcp::{Close, Flow, FlowTable, Limits, Lost, Side, StreamHandler, Verdict};

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

/// The smallest useful [`Settings::snap_replies`]. A message is found on a connection that was joined late
/// by its header (16 bytes) and the beginning of its OP_MSG body: flags (4), kind of the first section (1),
/// length of its document (4) and type of the first element (1). With fewer bytes no reply on such a
/// connection can be paired with its request, and every request seems to wait for ever.
pub const MIN_SNAP_REPLIES: u32 = crate::message::HEADER as u32 + 10;

/// What to listen for, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which ports are servers'.
    pub ports: Ports,
    /// Only so many bytes of each packet of a reply were captured; at least [`MIN_SNAP_REPLIES`] to be of use.
    pub snap_replies: Option<u32>,
    /// Give the commands' values too.
    pub show_values: bool,
    /// Verify the checksum of every OP_MSG that has one, not only while looking for a message after a gap.
    pub verify_checksums: bool,
    /// Keep one connection in so many, by [`sample::keeps`]; 0 and 1 keep all.
    pub sample: u32,
}

/// Receives operations.
pub trait Sink {
    /// An operation has ended, or the capture before it did ([`Outcome::InFlight`](sonar_core::Outcome)). Called in the order
    /// in which they end on each connection.
    fn operation(&mut self, op: &Operation<'_>);
}

/// Decodes the packets of one ring, or of one file.
pub struct Decoder {
    flows: FlowTable<Connection>,
    /// Counters of packets and segments.
    coverage: Coverage,
    core: Core,
    /// One connection in so many is kept; `None`: all.
    sample: Option<NonZeroU32>,
}

/// All that the handling of a stream needs beside its connection.
struct Core {
    settings: Settings,
    shared: Arc<Shared>,
    /// Counters of messages and operations.
    coverage: Coverage,
    request: Request<()>,
    renderer: Request<Rendered>,
    /// Layouts of requests, and what those come to.
    requests: Templates<RequestFacts>,
    /// Layouts of replies, and what they say.
    replies: Templates<Reply>,
    reply: Reply,
    body: Body,
    inflated: Vec<u8>,
    inflaters: Inflaters,
    known: HashMap<u64, Arc<ShapeInfo>, foldhash::fast::RandomState>,
    apps: Applications,
    /// The generation of the known clients that connections were looked up in.
    clients_seen: u64,
    other_shape: Arc<ShapeInfo>,
    collecting: usize,
    streaming: usize,
    /// Memory of all requests that wait for an answer, in bytes.
    pending_bytes: usize,
    /// Replies that wait for their request.
    early: usize,
    /// How many entries the tables have had: see `next_arrival`.
    arrivals: u32,
}

impl Decoder {
    /// A decoder that shares cursors and shapes with others.
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Self {
        Self {
            flows: FlowTable::new(Limits::default(), shared.twins()),
            coverage: Coverage::default(),
            sample: NonZeroU32::new(settings.sample).filter(|every| every.get() > 1),
            core: Core {
                settings,
                shared,
                coverage: Coverage::default(),
                request: Request::default(),
                renderer: Request::default(),
                requests: Templates::default(),
                replies: Templates::default(),
                reply: Reply::default(),
                body: Body::default(),
                inflated: Vec::new(),
                inflaters: Inflaters::default(),
                known: HashMap::default(),
                apps: Applications::default(),
                clients_seen: 0,
                other_shape: Arc::new(other_shape()),
                collecting: 0,
                streaming: 0,
                pending_bytes: 0,
                early: 0,
                arrivals: 0,
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
        if let Some(every) = self.sample
            && !self.is_sampled(every, segment.source, segment.destination)
        {
            self.coverage.frames_sampled_out += 1;
            return;
        }
        let mut handler = Handler { core: &mut self.core, sink };
        self.flows.segment(&segment, &mut self.coverage, &mut handler);
        if self.core.is_over_caps() {
            self.make_room(packet.time, sink);
        }
    }

    /// Tells that time has come to `now`: what has waited too long is given up. To be called about once
    /// a second of the packets' time.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl Sink) {
        let mut handler = Handler { core: &mut self.core, sink };
        self.flows.tick(now, &mut self.coverage, &mut handler);
        let more_is_known = handler.core.clients_have_changed();
        for (flow, conn) in self.flows.iter_mut() {
            if more_is_known {
                handler.core.identify(flow, conn);
            }
            handler.expire(flow, conn, now);
        }
    }

    /// Ends the capture: what has not ended, ends.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl Sink) {
        let mut handler = Handler { core: &mut self.core, sink };
        self.flows.finish(now, &mut self.coverage, &mut handler);
    }

    /// Follows these ports from now on. A connection that is followed is so no longer when neither of its
    /// ports is among them.
    pub fn set_ports(&mut self, ports: Ports) {
        self.core.settings.ports = ports;
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
        let waiting = self.flows.iter().filter_map(|(flow, conn)| {
            let server = flow.ends[conn.server?.index()];
            let in_flight = conn.pending.iter().filter(|of| !of.follows && of.passed.is_none());
            Some(in_flight.map(move |pending| {
                let pending = pending.answers.as_deref().unwrap_or(pending);
                let one = InFlight {
                    server,
                    role: role_of(conn),
                    class: pending.class,
                    shape: pending.shape.clone(),
                    count: 1,
                    oldest_ns: now.since(pending.start),
                };
                ((server, one.role, one.class, one.shape.id), one)
            }))
        });
        merged(waiting.flatten(), |all, one| {
            all.count += one.count;
            all.oldest_ns = all.oldest_ns.max(one.oldest_ns);
        })
    }

    /// Whether the connection between these two is one of those that a sample of one in `every` keeps.
    fn is_sampled(&self, every: NonZeroU32, source: Endpoint, destination: Endpoint) -> bool {
        sample::keeps(every, &source, &destination, |port| self.core.settings.ports.names(port))
    }

    /// Connections that are followed.
    pub fn connections(&self) -> usize {
        self.flows.len()
    }
}

/// Merges the values of each key with `add`. Keys stay in the order in which they came first.
fn merged<K: Eq + Hash, V>(values: impl Iterator<Item = (K, V)>, add: impl Fn(&mut V, V)) -> Vec<V> {
    let mut places: HashMap<K, usize, foldhash::quality::RandomState> = HashMap::default();
    let mut found: Vec<V> = Vec::new();
    for (key, value) in values {
        match places.entry(key) {
            Entry::Occupied(place) => add(&mut found[*place.get()], value),
            Entry::Vacant(place) => {
                place.insert(found.len());
                found.push(value);
            }
        }
    }
    found
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
        let app = if flow.opener.is_some() { &self.core.apps.unnamed } else { &self.core.apps.joined_late };
        let mut conn = Connection::new(server, app.clone());
        self.core.identify(flow, &mut conn);
        conn
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

    fn close(&mut self, flow: &Flow, mut conn: Connection, time: Timestamp, how: Close) {
        for half in &mut conn.halves {
            if half.stage.in_message() {
                match how {
                    Close::EndOfCapture => self.core.coverage.messages_unfinished += 1,
                    _ => self.core.coverage.messages_cut += 1,
                }
                self.core.forget(&half.stage);
            }
        }
        while !conn.early.is_empty() {
            let reply = conn.early.remove(0);
            self.core.early -= 1;
            self.give_up_reply(flow, &mut conn, reply);
        }
        self.end_legacy_write(flow, &mut conn, time);
        let ending = if how == Close::EndOfCapture { Ending::InFlight } else { Ending::Unanswered };
        while let Some(pending) = conn.pending.pop_front() {
            self.core.pending_bytes -= pending.bytes_held();
            self.give_up(flow, &conn, pending, (time, ending));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use bson::doc;

    use super::collected::{Collected, message};
    use super::*;
    use crate::testing::{Conversation, End};

    #[test]
    fn the_least_snap_length_of_replies_pairs_them_all_and_one_byte_less_pairs_none() {
        for (snap, answered) in [(MIN_SNAP_REPLIES, 5), (MIN_SNAP_REPLIES - 1, 0)] {
            let settings = Settings { snap_replies: Some(snap), ..Settings::default() };
            let mut decoder = Decoder::new(settings, Arc::new(Shared::default()));
            let mut seen = Collected::default();
            // Joined late: its messages must be found.
            let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
            for id in 0..5 {
                talk.send(End::Client, &message(id, 0, &doc! {"find": "orders", "$db": "shop"}));
                talk.send(End::Server, &message(100 + id, id, &doc! {"n": 1, "ok": 1.0}));
                // Ethernet, IPv4 and TCP take 14, 20 and 20 bytes.
                talk.packets.last_mut().unwrap().snap(54 + snap as usize);
            }
            talk.packets.drain(..).for_each(|packet| decoder.packet(&packet.as_packet(), &mut seen));
            decoder.finish(talk.now(), &mut seen);
            assert_eq!(decoder.coverage().requests_answered, answered, "{snap}");
        }
    }

    /// A key that counts how often it was compared.
    struct Counted<'a>(u32, &'a Cell<u32>);

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted<'_> {}

    impl Hash for Counted<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn what_is_in_flight_is_merged_in_one_pass_however_many_shapes_there_are() {
        let compared = Cell::new(0);
        let each = (0..60_000).map(|n| (Counted(n % 20_000, &compared), (n % 20_000, 1)));
        let found = merged(each, |all, one| all.1 += one.1);
        let expected: Vec<_> = (0..20_000).map(|n| (n, 3)).collect();
        assert!(found == expected);
        assert!(compared.get() < 5 * 60_000, "{}", compared.get());
    }

    #[test]
    fn operations_in_flight_are_told_apart_by_shape_and_counted() {
        let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
        let mut seen = Collected::default();
        for n in 0..3 {
            let client = format!("10.0.0.2:4000{n}");
            let mut talk = Conversation::new(&client, "10.0.0.1:27017").with_seq(77_777 * n, 99_999 * n);
            talk.handshake();
            for id in 0..10 {
                let find = doc! {"find": format!("c{}", id % 5), "$db": "shop"};
                talk.send(End::Client, &message(id, 0, &find));
            }
            talk.packets.drain(..).for_each(|packet| decoder.packet(&packet.as_packet(), &mut seen));
        }
        // The first of each shape came 3, 4, 5, 6 and 7 microseconds after the connection began.
        let start = Timestamp::from_unix(1_777_629_600, 0);
        let found = decoder.in_flight(start.plus_ns(100_000));
        let found: Vec<_> =
            found.iter().map(|of| (of.shape.collection.to_string(), of.count, of.oldest_ns)).collect();
        let expected: Vec<_> = (0..5_u64).map(|n| (format!("c{n}"), 6, 97_000 - 1_000 * n)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn ports_that_are_named_later_are_followed_from_then_on() {
        let settings = Settings { ports: Ports::Ranges(vec![(27_017, 27_017)]), ..Settings::default() };
        let mut decoder = Decoder::new(settings, Arc::new(Shared::default()));
        let mut seen = Collected::default();
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27018");
        talk.handshake();
        let mut ask = |id, decoder: &mut Decoder, seen: &mut Collected| {
            talk.send(End::Client, &message(id, 0, &doc! {"find": "orders", "$db": "shop"}));
            talk.send(End::Server, &message(100 + id, id, &doc! {"ok": 1.0}));
            talk.packets.drain(..).for_each(|packet| decoder.packet(&packet.as_packet(), seen));
        };
        ask(1, &mut decoder, &mut seen);
        assert_eq!((decoder.coverage().frames_other_port, seen.operations.len()), (5, 0));
        decoder.set_ports(Ports::Ranges(vec![(27_017, 27_018)]));
        ask(2, &mut decoder, &mut seen);
        assert_eq!(seen.operations, [(2, "find".into(), "ok")]);
        assert_eq!((decoder.coverage().frames_other_port, decoder.coverage().frames), (5, 7));
    }
}
