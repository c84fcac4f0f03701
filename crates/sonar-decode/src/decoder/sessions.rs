//! Which sessions of processes are followed? Each connection once, and each session from its first part on.
//!
//! What passes in a session before its connection is known waits here. If both ends of a connection are read, because
//! both processes are, only the session of its server is followed: the other one brings the same again. The session of
//! a client therefore waits a moment for that of the server.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sonar_core::held::tree_bytes;
use sonar_core::{Coverage, Endpoint, Plaintext, PlaintextEvent, Timestamp};

use super::settings::Ports;

/// The most bytes of a session that wait, of all sessions, and the most sessions that wait. Beyond it the oldest
/// sessions lose what waits of them.
const MAX_WAITING_OF_ONE: usize = 64 << 10;
const MAX_WAITING_BYTES: usize = 16 << 20;
const MAX_WAITING: usize = 4_096;
/// The most sessions that are remembered.
const MAX_SESSIONS: usize = 131_072;
/// What a part takes in addition to its bytes.
const PART_OVERHEAD: usize = 128;
/// How long the session of a client waits for that of the server, in nanoseconds.
const CLIENT_WAITS_NS: u64 = 500_000_000;
/// How long a session must be silent before one of the other end takes its place, in nanoseconds.
const SILENT_NS: u64 = 10_000_000_000;

/// A part that waits.
pub struct WaitingPart {
    plaintext: Plaintext<'static>,
    bytes: Box<[u8]>,
}

impl WaitingPart {
    fn of(plaintext: &Plaintext<'_>) -> Self {
        Self { bytes: plaintext.bytes.into(), plaintext: Plaintext { bytes: &[], ..*plaintext } }
    }

    /// The part, on the connection with these ends.
    pub fn at(&self, ends: [Endpoint; 2]) -> Plaintext<'_> {
        Plaintext { bytes: &self.bytes, ends: Some(ends), ..self.plaintext }
    }

    fn cost(&self) -> usize {
        self.bytes.len() + PART_OVERHEAD
    }
}

/// What to do with a part, or the end of a session.
pub enum Admission {
    /// It waits, or is left out.
    Nothing,
    /// It is next on its connection, after those that waited.
    Next(Vec<WaitingPart>, [Endpoint; 2]),
}

enum SessionState {
    /// Its connection is not known, or its turn has not come.
    Waits {
        parts: Vec<WaitingPart>,
        bytes: usize,
        overflowed: bool,
    },
    Followed,
    /// The other end is followed.
    Twin,
}

struct ProcessSession {
    state: SessionState,
    ends: Option<[Endpoint; 2]>,
    first: Timestamp,
    last: Timestamp,
}

impl ProcessSession {
    /// Whether the session of a client may wait for that of the server.
    fn has_time(&self) -> bool {
        let has_room =
            matches!(self.state, SessionState::Waits { bytes, .. } if bytes < MAX_WAITING_OF_ONE / 2);
        has_room && self.last.since(self.first) < CLIENT_WAITS_NS
    }
}

/// All sessions.
#[derive(Default)]
pub struct Sessions {
    /// All caps are divided by this; 0: by 1.
    share: usize,
    /// By number, which grows.
    sessions: BTreeMap<u64, ProcessSession>,
    /// Those that wait.
    waiting: BTreeSet<u64>,
    waiting_bytes: usize,
    /// The session that is followed on each connection.
    followed: HashMap<[Endpoint; 2], u64>,
    /// The session of a client that waits for that of the server.
    clients: HashMap<[Endpoint; 2], u64>,
    /// Counters of parts that are left out.
    pub coverage: Coverage,
}

fn connection([own, peer]: [Endpoint; 2]) -> [Endpoint; 2] {
    if own <= peer { [own, peer] } else { [peer, own] }
}

impl Sessions {
    /// With all caps divided by `share`.
    pub fn share(share: usize) -> Self {
        Self { share, ..Self::default() }
    }

    /// The bytes that it holds: an estimate.
    pub fn memory(&self) -> usize {
        self.waiting_bytes
            + tree_bytes(self.sessions.len(), size_of::<(u64, ProcessSession)>())
            + tree_bytes(self.waiting.len(), size_of::<u64>())
            + (self.followed.capacity() + self.clients.capacity()) * size_of::<([Endpoint; 2], u64)>()
    }

    /// Takes what happened to a session.
    pub fn admit(&mut self, plaintext: &Plaintext<'_>, ports: &Ports) -> Admission {
        let &Plaintext { session: id, time, event, .. } = plaintext;
        let session = self.sessions.entry(id).or_insert_with(|| {
            self.waiting.insert(id);
            ProcessSession {
                state: SessionState::Waits { parts: Vec::new(), bytes: 0, overflowed: false },
                ends: None,
                first: time,
                last: time,
            }
        });
        session.ends = plaintext.ends.or(session.ends);
        session.last = time;
        let ends = session.ends;
        let waits = match session.state {
            SessionState::Waits { .. } => true,
            SessionState::Followed => false,
            SessionState::Twin => {
                self.count_twins(u64::from(event != PlaintextEvent::Bound));
                self.forget_if(event == PlaintextEvent::Ended, id);
                return Admission::Nothing;
            }
        };
        let admission = match ends {
            Some(ends) if !waits => Admission::Next(Vec::new(), ends),
            Some(ends) => self.decide(id, ends, ports, event == PlaintextEvent::Ended),
            None => Admission::Nothing,
        };
        if matches!(admission, Admission::Nothing) {
            self.wait(plaintext);
        }
        self.forget_if(event == PlaintextEvent::Ended, id);
        self.bound();
        admission
    }

    /// The sessions of clients that have waited long enough at `now`, with what waited of them.
    pub fn tick(&mut self, now: Timestamp) -> Vec<(Vec<WaitingPart>, [Endpoint; 2])> {
        let due = |id: &u64| {
            let session = self.sessions.get(id)?;
            (now.since(session.first) >= CLIENT_WAITS_NS).then_some((*id, session.ends?))
        };
        let due: Vec<_> = self.clients.values().filter_map(due).collect();
        due.into_iter().map(|(id, ends)| (self.follow(id, ends), ends)).collect()
    }

    /// Ends all: what waits for its turn is returned, what waits for its connection is counted.
    pub fn finish(&mut self) -> Vec<(Vec<WaitingPart>, [Endpoint; 2])> {
        let clients: Vec<_> = self.clients.values().copied().collect();
        let ends = |id| Some((id, self.sessions.get(&id)?.ends?));
        let clients: Vec<_> = clients.into_iter().filter_map(ends).collect();
        let rest = clients.into_iter().map(|(id, ends)| (self.follow(id, ends), ends)).collect();
        while let Some(id) = self.waiting.pop_first() {
            self.drop_waiting(id);
        }
        rest
    }

    /// Decides on a session that waits and whose connection is known.
    fn decide(&mut self, id: u64, ends: [Endpoint; 2], ports: &Ports, ended: bool) -> Admission {
        let [own, peer] = ends;
        let connection = connection(ends);
        let is_client = !ports.names(own.port) && ports.names(peer.port);
        if let Some(other) = self.followed.get(&connection).and_then(|of| self.sessions.get(of)) {
            let same_end = other.ends.is_some_and(|ends| ends[0] == own);
            let last = self.sessions.get(&id).map_or(other.last, |session| session.last);
            if !same_end && last.since(other.last) < SILENT_NS {
                self.become_twin(id);
                return Admission::Nothing;
            }
        } else if is_client {
            self.clients.insert(connection, id);
            if !ended && self.sessions.get(&id).is_some_and(ProcessSession::has_time) {
                return Admission::Nothing;
            }
        }
        if let Some(client) = self.clients.get(&connection).copied().filter(|client| *client != id) {
            self.become_twin(client);
        }
        Admission::Next(self.follow(id, ends), ends)
    }

    /// Follows a session that waited; returns what waited of it.
    fn follow(&mut self, id: u64, ends: [Endpoint; 2]) -> Vec<WaitingPart> {
        let connection = connection(ends);
        self.clients.remove(&connection);
        self.followed.insert(connection, id);
        self.waiting.remove(&id);
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        match std::mem::replace(&mut session.state, SessionState::Followed) {
            SessionState::Waits { parts, bytes, .. } => {
                self.waiting_bytes -= bytes;
                parts
            }
            _ => Vec::new(),
        }
    }

    fn become_twin(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        self.waiting.remove(&id);
        if let Some(ends) = session.ends {
            self.clients.remove(&connection(ends));
        }
        if let SessionState::Waits { parts, bytes, .. } =
            std::mem::replace(&mut session.state, SessionState::Twin)
        {
            self.waiting_bytes -= bytes;
            self.count_twins(parts.len() as u64);
        }
    }

    fn count_twins(&mut self, parts: u64) {
        self.coverage.frames += parts;
        self.coverage.frames_twin_interface += parts;
    }

    /// Keeps a part of a session that waits, unless there is too much of it.
    fn wait(&mut self, plaintext: &Plaintext<'_>) {
        let Some(session) = self.sessions.get_mut(&plaintext.session) else { return };
        let is_part = matches!(plaintext.event, PlaintextEvent::Part { .. });
        match &mut session.state {
            SessionState::Waits { overflowed: true, .. } => self.coverage.tls_unmapped += u64::from(is_part),
            SessionState::Waits { parts, bytes, overflowed } if is_part => {
                let part = WaitingPart::of(plaintext);
                *bytes += part.cost();
                self.waiting_bytes += part.cost();
                parts.push(part);
                if *bytes > MAX_WAITING_OF_ONE {
                    self.waiting_bytes -= std::mem::take(bytes);
                    self.coverage.tls_unmapped += std::mem::take(parts).len() as u64;
                    *overflowed = true;
                }
            }
            SessionState::Twin => self.count_twins(u64::from(is_part)),
            SessionState::Waits { .. } | SessionState::Followed => {}
        }
    }

    /// Counts what waits of a session, and forgets it.
    fn drop_waiting(&mut self, id: u64) {
        self.waiting.remove(&id);
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(ends) = session.ends
            && self.clients.get(&connection(ends)) == Some(&id)
        {
            self.clients.remove(&connection(ends));
        }
        if let SessionState::Waits { parts, bytes, .. } = session.state {
            self.waiting_bytes -= bytes;
            self.coverage.tls_unmapped += parts.len() as u64;
        }
    }

    fn forget_if(&mut self, ended: bool, id: u64) {
        if !ended {
            return;
        }
        let ends = self.sessions.get(&id).and_then(|session| session.ends);
        self.drop_waiting(id);
        if let Some(ends) = ends
            && self.followed.get(&connection(ends)) == Some(&id)
        {
            self.followed.remove(&connection(ends));
        }
    }

    /// Makes room.
    fn bound(&mut self) {
        let share = self.share.max(1);
        while (self.waiting.len() > MAX_WAITING / share || self.waiting_bytes > MAX_WAITING_BYTES / share)
            && let Some(id) = self.waiting.pop_first()
        {
            self.drop_waiting(id);
        }
        while self.sessions.len() > MAX_SESSIONS / share
            && let Some((&id, _)) = self.sessions.first_key_value()
        {
            self.forget_if(true, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;
    use sonar_core::TlsSuite;

    use super::*;
    use crate::decoder::collected::{Collected, message};
    use crate::{Decoder, Settings, Shared, TlsSource};

    const SERVER: Endpoint = Endpoint::v4([10, 0, 0, 1], 27_017);
    const CLIENT: Endpoint = Endpoint::v4([10, 0, 0, 2], 40_000);

    /// A session, as the kernel passes it on.
    struct Told {
        session: u64,
        ends: Option<[Endpoint; 2]>,
        passed: [u64; 2],
        time: Timestamp,
        fresh: bool,
    }

    impl Told {
        fn new(session: u64, ends: Option<[Endpoint; 2]>) -> Self {
            let time = Timestamp::from_unix(1_777_629_600, 0);
            Self { session, ends, passed: [0; 2], time, fresh: true }
        }

        fn tell(&mut self, event: PlaintextEvent, bytes: &[u8]) -> Plaintext<'static> {
            self.time = self.time.plus_ns(1_000);
            let received = event == PlaintextEvent::Part { received: true };
            let own = usize::from(received);
            let told = Plaintext {
                session: self.session,
                process: 1,
                ends: self.ends,
                event,
                time: self.time,
                offset: self.passed[own],
                other: self.passed[1 - own],
                bytes: bytes.to_vec().leak(),
                skipped: 0,
                suite: TlsSuite::default(),
                begins: std::mem::take(&mut self.fresh),
            };
            self.passed[own] += bytes.len() as u64;
            told
        }

        /// A message of which the first bytes and the last 2,048 are passed on.
        fn cut(&mut self, received: bool, message: &[u8], head: usize) -> [Plaintext<'static>; 2] {
            let event = PlaintextEvent::Part { received };
            let tail = message.len() - 2_048;
            let first = Plaintext { skipped: (tail - head) as u32, ..self.tell(event, &message[..head]) };
            self.passed[usize::from(received)] += u64::from(first.skipped);
            [first, self.tell(event, &message[tail..])]
        }

        /// Finds with their replies, at the server or at its client.
        fn talk(&mut self, ids: std::ops::Range<u32>, at_server: bool) -> Vec<Plaintext<'static>> {
            let mut told = Vec::new();
            for id in ids {
                let asked = doc! {"find": "orders", "filter": {"a": 1}, "$db": "shop"};
                let asked = message(id, 0, &asked);
                let answer = message(1_000 + id, id, &doc! {"ok": 1.0});
                told.push(self.tell(PlaintextEvent::Part { received: at_server }, &asked));
                told.push(self.tell(PlaintextEvent::Part { received: !at_server }, &answer));
            }
            told
        }
    }

    fn decoder() -> Decoder {
        let ports = Ports::Ranges(vec![(27_017, 27_017)]);
        let settings = Settings { ports, tls: TlsSource::This, ..Settings::default() };
        Decoder::new(settings, Arc::new(Shared::default()))
    }

    /// The ids of the operations that end, and the counters.
    fn decode(told: impl IntoIterator<Item = Plaintext<'static>>) -> (Vec<u32>, Coverage) {
        let (mut decoder, mut seen) = (decoder(), Collected::default());
        let mut last = Timestamp::default();
        for one in told {
            last = last.max(one.time);
            decoder.plaintext(&one, &mut seen);
        }
        decoder.tick(last.plus_ns(2 * CLIENT_WAITS_NS), &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        decoder.finish(last.plus_ns(5_000_000_000), &mut seen);
        assert!(seen.operations.iter().all(|op| op.2 == "ok"), "{:?}", seen.operations);
        (seen.operations.iter().map(|op| op.0).collect(), decoder.coverage())
    }

    #[test]
    fn what_passes_before_the_connection_is_known_comes_first() {
        let mut server = Told::new(7, None);
        let mut told = server.talk(1..3, true);
        server.ends = Some([SERVER, CLIENT]);
        told.push(server.tell(PlaintextEvent::Bound, &[]));
        told.extend(server.talk(3..5, true));
        told.push(server.tell(PlaintextEvent::Ended, &[]));
        let (ids, coverage) = decode(told);
        assert_eq!(ids, [1, 2, 3, 4]);
        assert_eq!((coverage.tls_unmapped, coverage.streams, coverage.streams_joined_late), (0, 1, 0));
    }

    #[test]
    fn a_session_that_ends_without_a_connection_is_counted() {
        let mut server = Told::new(7, None);
        let mut told = server.talk(1..3, true);
        told.push(server.tell(PlaintextEvent::Ended, &[]));
        let (ids, coverage) = decode(told);
        assert_eq!((ids.len(), coverage.tls_unmapped, coverage.frames), (0, 4, 0));
    }

    #[test]
    fn an_operation_has_the_suite_of_its_connection() {
        struct Suites(Vec<Option<TlsSuite>>);
        impl crate::Sink for Suites {
            fn operation(&mut self, op: &sonar_core::Operation<'_>) {
                self.0.push(op.tls);
            }
        }
        let suite = TlsSuite { version: 0x0303, cipher: 0xc02f };
        let (mut decoder, mut seen) = (decoder(), Suites(Vec::new()));
        let with = |told: Vec<Plaintext<'static>>, suite| {
            told.into_iter().map(move |one| Plaintext { suite, ..one })
        };
        let mut one = Told::new(1, Some([SERVER, CLIENT]));
        let mut other = Told::new(2, Some([SERVER, Endpoint::v4([10, 0, 0, 2], 40_001)]));
        let mut told: Vec<_> = with(one.talk(1..3, true), suite).collect();
        told.extend(other.talk(3..4, true));
        told.extend(with(vec![one.tell(PlaintextEvent::Ended, &[])], suite));
        // The client's port is used again, for a connection whose beginning was not seen.
        told.extend(Told::new(3, Some([SERVER, CLIENT])).talk(4..5, true));
        for one in &told {
            decoder.plaintext(one, &mut seen);
        }
        decoder.finish(one.time.plus_ns(5_000_000_000), &mut seen);
        let unknown = TlsSuite::default();
        assert_eq!(seen.0, [Some(suite), Some(suite), Some(unknown), Some(unknown)]);
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_dropped_is_counted() {
        let mut server = Told::new(7, None);
        // About 170 bytes for each message, and what it takes beside them.
        let mut told = server.talk(1..1_000, true);
        let waited = told.len() as u64;
        server.ends = Some([SERVER, CLIENT]);
        told.extend(server.talk(1_000..1_002, true));
        let (ids, coverage) = decode(told);
        assert_eq!((ids, coverage.tls_unmapped), (vec![1_000, 1_001], waited));

        let mut sessions = Sessions::default();
        for id in 0..2 * MAX_WAITING as u64 {
            for one in Told::new(id, None).talk(1..5, true) {
                sessions.admit(&one, &Ports::Any);
            }
            assert!(sessions.waiting.len() <= MAX_WAITING && sessions.waiting_bytes <= MAX_WAITING_BYTES);
        }
        let waiting = sessions.waiting.len() as u64;
        assert_eq!(sessions.coverage.tls_unmapped, 8 * (2 * MAX_WAITING as u64 - waiting));
        sessions.finish();
        assert_eq!((sessions.coverage.tls_unmapped, sessions.waiting_bytes), (16 * MAX_WAITING as u64, 0));
    }

    #[test]
    fn both_ends_of_a_connection_count_once_in_any_order() {
        let all = |mut told: Told, at_server| {
            let mut all = told.talk(1..9, at_server);
            all.push(told.tell(PlaintextEvent::Ended, &[]));
            all
        };
        let server = all(Told::new(2, Some([SERVER, CLIENT])), true);
        let client = all(Told::new(1, Some([CLIENT, SERVER])), false);
        let between = |first: &[Plaintext<'static>], then: &[Plaintext<'static>]| {
            first.iter().zip(then).flat_map(|(a, b)| [*a, *b]).collect::<Vec<_>>()
        };
        let ids: Vec<u32> = (1..9).collect();
        let late = [&server[..16], &client[..]].concat();
        for told in [between(&client, &server), between(&server, &client), late] {
            let (seen, coverage) = decode(told);
            assert_eq!(seen, ids);
            assert_eq!((coverage.streams, coverage.streams_joined_late), (1, 0));
            assert!(coverage.frames_twin_interface >= 16, "{}", coverage.frames_twin_interface);
        }
    }

    #[test]
    fn the_session_of_a_client_is_followed_where_its_server_is_not_read() {
        let mut client = Told::new(1, Some([CLIENT, SERVER]));
        let told = client.talk(1..4, false);
        assert_eq!(decode(told).0, [1, 2, 3]);
        let mut ended = Told::new(1, Some([CLIENT, SERVER]));
        let mut told = ended.talk(1..4, false);
        told.push(ended.tell(PlaintextEvent::Ended, &[]));
        assert_eq!(decode(told).0, [1, 2, 3]);
    }

    #[test]
    fn a_new_session_of_the_same_end_takes_the_place_of_one_whose_end_was_not_seen() {
        let told = (1..4).flat_map(|session| Told::new(session, Some([SERVER, CLIENT])).talk(1..3, true));
        let (ids, coverage) = decode(told);
        assert_eq!((ids, coverage.streams), (vec![1, 2, 1, 2, 1, 2], 3));
    }

    /// The operations of one request with its reply, which are cut after `head` bytes.
    /// A request, and the reply to it, as messages.
    fn exchange(asked: &bson::Document, answer: &bson::Document) -> [Vec<u8>; 2] {
        [message(1, 0, asked), message(2, 1, answer)]
    }

    fn cut([asked, answer]: &[Vec<u8>; 2], head: usize) -> (Collected, Coverage) {
        let mut server = Told::new(1, Some([SERVER, CLIENT]));
        let (mut decoder, mut seen) = (decoder(), Collected::default());
        for (message, received) in [(asked, true), (answer, false)] {
            let parts = match message.len() > head + 2_048 {
                true => server.cut(received, message, head).to_vec(),
                false => vec![server.tell(PlaintextEvent::Part { received }, message)],
            };
            parts.iter().for_each(|part| decoder.plaintext(part, &mut seen));
        }
        for one in server.talk(3..5, true) {
            decoder.plaintext(&one, &mut seen);
        }
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        let coverage = decoder.coverage();
        assert_eq!(coverage.resyncs, 0);
        let ids: Vec<_> = seen.operations.iter().map(|op| op.0).collect();
        assert_eq!(ids, [1, 3, 4], "{coverage:?}");
        (seen, coverage)
    }

    fn documents(size: usize) -> Vec<bson::Document> {
        (0..100).map(|n| doc! {"_id": n, "pad": "x".repeat(size)}).collect()
    }

    #[test]
    fn a_request_with_long_documents_in_its_command_is_named_by_its_end() {
        let asked = doc! {"insert": "orders", "documents": documents(4_000), "ordered": true, "$db": "shop"};
        let both = exchange(&asked, &doc! {"n": 100, "ok": 1.0});
        // Cut inside a document, inside its length, between two.
        for head in 16_384..20_500 {
            let (seen, _) = cut(&both, head);
            assert_eq!((&*seen.operations[0].1, seen.operations[0].2), ("insert", "ok"), "{head}");
            let shapes: Vec<_> =
                seen.window.shapes.iter().map(|row| row.shape().collection.to_string()).collect();
            assert_eq!(shapes, ["orders", "orders"], "{head}");
        }
    }

    #[test]
    fn the_outcome_of_a_long_reply_is_at_its_end() {
        let asked = doc! {"find": "orders", "filter": {}, "$db": "shop"};
        let reply = |ok: f64| {
            let cursor = doc! {"firstBatch": documents(900), "id": 0_i64, "ns": "shop.orders"};
            exchange(&asked, &doc! {"cursor": cursor, "ok": ok, "code": 11_601})
        };
        let (good, bad) = (reply(1.0), reply(0.0));
        for head in (16_384..18_000).step_by(7) {
            assert_eq!(cut(&good, head).0.operations[0].2, "ok", "{head}");
            assert_eq!(cut(&bad, head).0.operations[0].2, "failed", "{head}");
        }
    }

    #[test]
    fn the_outcome_is_unknown_if_errors_are_missing() {
        let asked = doc! {"insert": "orders", "documents": [], "$db": "shop"};
        let error = |n: i32| doc! {"index": n, "code": 11_000, "errmsg": "x".repeat(900)};
        let answer = doc! {"n": 0, "writeErrors": (0..100).map(error).collect::<Vec<_>>(), "ok": 1.0};
        assert_eq!(cut(&exchange(&asked, &answer), 16_384).0.operations[0].2, "unknown");
    }
}
