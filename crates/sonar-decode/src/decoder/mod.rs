//! The decoder: packets in, operations out.
//!
//! This file is its interface. `stages` joins the stages: `framing` cuts a stream into messages, `unpacking`
//! verifies and inflates them (`long`: those that are too long to be stored), `reading` reads them, `identify`
//! finds what a request belongs to and `request` what it is for, and `pairing` joins request and reply to an
//! operation (`exchange`: what waits on a connection), which `emission` hands on. `decryption` counts connections that a
//! key log decrypts, and those that it does not. `caps` says what gives way in a table that is full.
//! `sessions` says which sessions are followed that were read inside processes, and `ended_servers` which connections end
//! with the process of their server.

mod by_flow;
mod caps;
#[cfg(test)]
mod collected;
mod connection;
mod decryption;
mod emission;
mod ended_clients;
mod ended_servers;
mod exchange;
mod framing;
mod identify;
#[cfg(test)]
mod incomplete_tests;
mod intake;
mod long;
#[cfg(test)]
mod loss_tests;
mod pairing;
mod proxy;
mod reading;
mod request;
mod sessions;
mod settings;
mod stages;
mod unpacking;

use std::sync::Arc;

use sonar_core::coverage::InProgress;
use sonar_core::{
    Coverage, Endpoint, InFlightOperations, Packet, Plaintext, PlaintextEvent, RunningOperations, Timestamp,
};

pub use self::by_flow::{FlowBatch, FlowMerger, FlowSplitter, FlowWorker, FlowWorkers};
use self::connection::Connection;
use self::emission::{Emission, Emitter, WaitingRequest};
pub use self::ended_clients::EndedClient;
use self::ended_clients::EndedClients;
pub use self::ended_servers::EndedServer;
use self::ended_servers::EndedServers;
use self::intake::PacketIntake;
use self::sessions::{Admission, Sessions, WaitingPart};
pub use self::settings::{MIN_SNAP_REPLIES, Ports, Settings, Sink, TlsSource};
use self::stages::{Handler, Stages};
use crate::frame::Segment;
use crate::identity::Shared;
use crate::tcp::{Flow, FlowLimits, FlowTable, Twins};

/// Decodes the packets of one ring, or of one file.
pub struct Decoder {
    flows: FlowTable<Connection>,
    intake: PacketIntake,
    sessions: Sessions,
    stages: Stages,
    emitter: Emitter,
    ended: EndedServers,
    ended_clients: EndedClients,
}

impl Decoder {
    /// A decoder that shares cursors and shapes with others.
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Self {
        let share = settings.share.max(1);
        Self {
            // Its encrypted form is no twin of a plaintext.
            flows: FlowTable::new(
                FlowLimits::share(share),
                if settings.tls.is_process() { Twins::default() } else { shared.twins() },
            ),
            intake: PacketIntake::new(&settings),
            sessions: Sessions::share(share),
            emitter: Emitter::new(shared.clone(), settings.tls == TlsSource::This).with_share(share),
            stages: Stages::new(settings, shared),
            ended: EndedServers::default(),
            ended_clients: EndedClients::share(share),
        }
    }

    /// Takes one packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>, sink: &mut impl Sink) {
        let Some(segment) = self.intake.segment(packet, &self.stages.ports) else { return };
        self.segment(&segment, sink);
    }

    /// Takes what was read inside a process. All parts of a session go to the same decoder, which takes no packets.
    pub fn plaintext(&mut self, plaintext: &Plaintext<'_>, sink: &mut impl Sink) {
        if let Admission::Next(waited, ends) = self.sessions.admit(plaintext, &self.stages.ports) {
            self.waited(&waited, ends, sink);
            self.part(&Plaintext { ends: Some(ends), ..*plaintext }, sink);
        }
    }

    /// Takes parts that have waited.
    fn waited(&mut self, parts: &[WaitingPart], ends: [Endpoint; 2], sink: &mut impl Sink) {
        parts.iter().for_each(|part| self.part(&part.at(ends), sink));
    }

    /// Takes the next part of a connection, or its end.
    fn part(&mut self, plaintext: &Plaintext<'_>, sink: &mut impl Sink) {
        self.emitter.note_suite(plaintext);
        let mut take = |plaintext: &Plaintext<'_>, received| {
            if let Some(segment) = self.intake.plaintext(plaintext, received, &self.stages.ports) {
                self.segment(&segment, sink);
            }
        };
        match plaintext.event {
            PlaintextEvent::Part { received } => take(plaintext, received),
            PlaintextEvent::Bound => {}
            // The end of a session ends both directions.
            PlaintextEvent::Ended => {
                take(plaintext, false);
                take(&plaintext.answered(), true);
                self.emitter.forget_suite(plaintext);
            }
        }
    }

    #[inline]
    fn segment(&mut self, segment: &Segment<'_>, sink: &mut impl Sink) {
        let out = Emission { emitter: &mut self.emitter, sink };
        let mut handler = Handler { stages: &mut self.stages, out };
        self.flows.segment(segment, &mut self.intake.coverage, &mut handler);
        if self.stages.is_over_caps() {
            let mut out = Emission { emitter: &mut self.emitter, sink };
            self.stages.make_room(&mut self.flows, segment.time, &mut out);
        }
    }

    /// Gives up what has waited too long at `now`. Call it about once per second of the packets' time.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl Sink) {
        for (waited, ends) in self.sessions.tick(now) {
            self.waited(&waited, ends, sink);
        }
        // Before the flow table forgets those that have ended.
        let clients = self.ended_clients.take_until(now, self.flows.ends());
        let out = Emission { emitter: &mut self.emitter, sink };
        let mut handler = Handler { stages: &mut self.stages, out };
        self.flows.tick(now, &mut self.intake.coverage, &mut handler);
        let ended = self.ended.take_until(now);
        if !ended.is_empty() {
            let end = |flow: &Flow, conn: &Connection| Some(ended_servers::find(&ended, flow, conn)?.at);
            self.flows.end_where(end, &mut self.intake.coverage, &mut handler);
        }
        if !clients.is_empty() {
            let end = |flow: &Flow, _: &Connection| clients.end_of(flow);
            self.flows.end_where(end, &mut self.intake.coverage, &mut handler);
        }
        let connections = self.flows.iter_mut().map(|(_, conn)| conn);
        handler.stages.tick(connections, now, &mut handler.out);
    }

    /// Ends the capture: all that has not ended yet is emitted as in flight. Returns that by shape, as
    /// [`in_flight`](Self::in_flight) does.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl Sink) -> Vec<InFlightOperations> {
        for (waited, ends) in self.sessions.finish() {
            self.waited(&waited, ends, sink);
        }
        let out = Emission { emitter: &mut self.emitter, sink: &mut *sink };
        // What is lost by now has been answered, as far as can be known: that is not in flight.
        self.flows.close_gaps(now, &mut self.intake.coverage, &mut Handler { stages: &mut self.stages, out });
        let in_flight = self.in_flight(now);
        let out = Emission { emitter: &mut self.emitter, sink };
        self.flows.finish(now, &mut self.intake.coverage, &mut Handler { stages: &mut self.stages, out });
        in_flight
    }

    /// Follows these ports from now on, and no longer any connection between other ports.
    pub fn set_ports(&mut self, ports: Ports) {
        self.stages.ports = ports;
    }

    /// The process of a server has ended. What is in flight on it ends with the first [`tick`](Self::tick) at that time
    /// or later: the end of its connections may not have been captured.
    pub fn server_ended(&mut self, server: EndedServer) {
        self.ended.add(server);
    }

    /// The log of a server says that these connections have ended. What is in flight on one ends with the first
    /// [`tick`](Self::tick) at that time or later, unless several connections can be meant.
    pub fn clients_ended(&mut self, clients: impl IntoIterator<Item = EndedClient>) {
        self.intake.coverage.ends_left_out += self.ended_clients.add(clients);
    }

    /// Counts connections that turn out to be encrypted as this says from now on. It is not for a decoder that reads
    /// their plaintext itself.
    pub fn set_tls(&mut self, tls: TlsSource) {
        self.stages.set_tls(tls);
    }

    /// The bytes that it holds for all connections: an estimate, without what it shares with other decoders.
    pub fn memory(&self) -> usize {
        let ended = self.ended_clients.memory();
        self.flows.heap_bytes()
            + self.sessions.memory()
            + self.stages.memory()
            + self.emitter.memory()
            + ended
    }

    /// The counters.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.intake.coverage;
        coverage.add(&self.sessions.coverage);
        coverage.add(&self.stages.coverage());
        coverage.add(&self.emitter.coverage);
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
        let waiting = self.flows.iter().flat_map(|(_, conn)| WaitingRequest::all_of(conn));
        self.emitter.in_flight(waiting, now)
    }

    /// The oldest operations in flight, at most `most`, one by one.
    pub fn running(&self, most: usize) -> RunningOperations {
        self.emitter.running(self.flows.iter().flat_map(|(_, conn)| WaitingRequest::all_of(conn)), most)
    }

    /// Connections that are followed.
    pub fn connections(&self) -> usize {
        self.flows.len()
    }
}

#[cfg(test)]
mod tests {
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
        // The same one by one: ten on each connection, the first of which came after three microseconds.
        let running = decoder.running(4);
        let found: Vec<_> = running
            .operations
            .iter()
            .map(|one| (one.client.port, one.request_id, &*one.command, one.start.since(start)))
            .collect();
        let first = |port, id, ns| (port, id, "find", ns);
        let [first_three @ .., fourth] = &found[..] else { panic!("{found:?}") };
        assert!(first_three.iter().all(|one| (one.1, one.3) == (0, 3_000)), "{found:?}");
        assert_eq!((fourth.1, fourth.2, fourth.3), (1, "find", 4_000));
        assert_eq!((running.left_out, running.waiting), (26, 0));
        assert!(found.contains(&first(40_000, 0, 3_000)), "{found:?}");
        assert!(decoder.running(100).operations.iter().all(|one| &*one.shape.database == "shop"));
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
