//! The decoder: packets in, operations out.
//!
//! This file is its interface. `stages` joins the stages: `framing` cuts a stream into messages, `unpacking`
//! verifies and inflates them (`long`: those that are too long to be stored), `reading` reads them, `identify`
//! finds what a request belongs to and `request` what it is for, and `pairing` joins request and reply to an
//! operation (`exchange`: what waits on a connection). `caps` says what gives way in a table that is full.

mod caps;
#[cfg(test)]
mod collected;
mod connection;
mod exchange;
mod framing;
mod identify;
mod long;
#[cfg(test)]
mod loss;
mod pairing;
mod reading;
mod request;
mod settings;
mod stages;
mod unpacking;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

use sonar_core::coverage::InProgress;
use sonar_core::packet::Direction;
use sonar_core::{Coverage, Endpoint, InFlightOperations, Packet, Timestamp, sample};

use self::connection::Connection;
pub use self::settings::{MIN_SNAP_REPLIES, Ports, Settings, Sink};
use self::stages::{Handler, Stages};
use crate::frame;
use crate::identity::Shared;
use crate::tcp::{FlowLimits, FlowTable};

/// Decodes the packets of one ring, or of one file.
pub struct Decoder {
    flows: FlowTable<Connection>,
    /// Counters of packets and segments.
    coverage: Coverage,
    stages: Stages,
    /// Keeps one connection in this many; `None`: all.
    sample: Option<NonZeroU32>,
}

impl Decoder {
    /// A decoder that shares cursors and shapes with others.
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Self {
        Self {
            flows: FlowTable::new(FlowLimits::default(), shared.twins()),
            coverage: Coverage::default(),
            sample: NonZeroU32::new(settings.sample).filter(|every| every.get() > 1),
            stages: Stages::new(settings, shared),
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
        if let Ports::Ranges(_) = self.stages.ports
            && !self.stages.ports.names(segment.source.port)
            && !self.stages.ports.names(segment.destination.port)
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
        let mut handler = Handler { stages: &mut self.stages, sink };
        self.flows.segment(&segment, &mut self.coverage, &mut handler);
        if self.stages.is_over_caps() {
            self.stages.make_room(&mut self.flows, packet.time, sink);
        }
    }

    /// Gives up what has waited too long at `now`. Call it about once per second of the packets' time.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl Sink) {
        self.flows.tick(now, &mut self.coverage, &mut Handler { stages: &mut self.stages, sink });
        self.stages.tick(&mut self.flows, now, sink);
    }

    /// Ends the capture: all that has not ended yet is emitted as in flight.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl Sink) {
        self.flows.finish(now, &mut self.coverage, &mut Handler { stages: &mut self.stages, sink });
    }

    /// Follows these ports from now on, and no longer any connection between other ports.
    pub fn set_ports(&mut self, ports: Ports) {
        self.stages.ports = ports;
    }

    /// The counters.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage;
        coverage.add(&self.stages.coverage());
        coverage
    }

    /// What has begun and not ended.
    pub fn in_progress(&self) -> InProgress {
        let mut progress =
            InProgress { segments: self.flows.in_progress_segments(), ..InProgress::default() };
        for (_, conn) in self.flows.iter() {
            progress.requests += conn.exchange.requests_in_progress();
            progress.replies += conn.exchange.early.len() as u64;
            progress.messages += conn.streams.iter().filter(|stream| stream.in_message()).count() as u64;
        }
        progress
    }

    /// Operations in flight by shape: how many, and how old the oldest is at `now`.
    pub fn in_flight(&self, now: Timestamp) -> Vec<InFlightOperations> {
        let waiting = self.flows.iter().filter_map(|(_, conn)| {
            conn.server?;
            let (server, role) = (conn.server_end(), conn.role());
            let in_flight = conn.exchange.pending.iter().filter(|of| !of.follows && of.passed.is_none());
            Some(in_flight.map(move |request| {
                let request = request.answers.as_deref().unwrap_or(request);
                let one = InFlightOperations {
                    server,
                    role,
                    class: request.class,
                    shape: request.shape.clone(),
                    count: 1,
                    oldest_ns: now.since(request.start),
                };
                ((server, role, one.class, one.shape.id), one)
            }))
        });
        merged(waiting.flatten(), |all, one| {
            all.count += one.count;
            all.oldest_ns = all.oldest_ns.max(one.oldest_ns);
        })
    }

    /// Whether the connection between these two is one of those that a sample of one in `every` keeps.
    fn is_sampled(&self, every: NonZeroU32, source: Endpoint, destination: Endpoint) -> bool {
        sample::contains(every, &source, &destination, |port| self.stages.ports.names(port))
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use bson::doc;

    use super::collected::{Collected, message};
    use super::*;
    use crate::testing::{Conversation, ConversationEnd};

    #[test]
    fn the_least_snap_length_of_replies_pairs_them_all_and_one_byte_less_pairs_none() {
        for (snap, answered) in [(MIN_SNAP_REPLIES, 5), (MIN_SNAP_REPLIES - 1, 0)] {
            let settings = Settings { snap_replies: Some(snap), ..Settings::default() };
            let mut decoder = Decoder::new(settings, Arc::new(Shared::default()));
            let mut seen = Collected::default();
            // Joined late: its messages must be found.
            let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
            for id in 0..5 {
                talk.send(ConversationEnd::Client, &message(id, 0, &doc! {"find": "orders", "$db": "shop"}));
                talk.send(ConversationEnd::Server, &message(100 + id, id, &doc! {"n": 1, "ok": 1.0}));
                // Ethernet, IPv4 and TCP take 14, 20 and 20 bytes.
                talk.packets.last_mut().unwrap().snap(54 + snap as usize);
            }
            talk.packets.drain(..).for_each(|packet| decoder.packet(&packet.as_packet(), &mut seen));
            decoder.finish(talk.now(), &mut seen);
            assert_eq!(decoder.coverage().requests_answered, answered, "{snap}");
        }
    }

    /// A key that counts how often it was compared.
    struct CountingKey<'a>(u32, &'a Cell<u32>);

    impl PartialEq for CountingKey<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for CountingKey<'_> {}

    impl Hash for CountingKey<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn what_is_in_flight_is_merged_in_one_pass_however_many_shapes_there_are() {
        let compared = Cell::new(0);
        let each = (0..60_000).map(|n| (CountingKey(n % 20_000, &compared), (n % 20_000, 1)));
        let found = merged(each, |all, one| all.1 += one.1);
        let expected: Vec<_> = (0..20_000).map(|n| (n, 3)).collect();
        assert!(found == expected);
        assert!(compared.get() < 5 * 60_000, "{}", compared.get());
    }

    #[test]
    fn operations_in_flight_are_counted_by_shape() {
        let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
        let mut seen = Collected::default();
        for n in 0..3 {
            let client = format!("10.0.0.2:4000{n}");
            let mut talk = Conversation::new(&client, "10.0.0.1:27017").with_seq(77_777 * n, 99_999 * n);
            talk.handshake();
            for id in 0..10 {
                let find = doc! {"find": format!("c{}", id % 5), "$db": "shop"};
                talk.send(ConversationEnd::Client, &message(id, 0, &find));
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
            talk.send(ConversationEnd::Client, &message(id, 0, &doc! {"find": "orders", "$db": "shop"}));
            talk.send(ConversationEnd::Server, &message(100 + id, id, &doc! {"ok": 1.0}));
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
