//! Hostile streams stay within the caps: the allocator counts what the decoder, the shared tables and a window hold
//! (for C code, the kernel counts), and the coverage counts what was turned away.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use peak_alloc::PeakAlloc;
use sonar_core::window::WindowSettings;
use sonar_core::{Coverage, Operation, Timestamp, Window};
use sonar_decode::decoder::Sink;
use sonar_decode::testing::{ACK, Conversation, ConversationEnd, PSH, SYN, TestFrame};
use sonar_decode::{Decoder, Settings, Shared};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The allocator counts for the whole process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Take it before a test allocates anything.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const MIB: usize = 1 << 20;
const NS_PER_S: u64 = 1_000_000_000;

struct Sunk {
    window: Window,
    operations: u64,
}

impl Sink for Sunk {
    fn operation(&mut self, op: &Operation<'_>) {
        self.operations += 1;
        self.window.record(op);
    }
}

/// A decoder with a window behind it, and the memory in use before.
struct Victim {
    decoder: Decoder,
    sunk: Sunk,
    now: Timestamp,
    frame: TestFrame,
}

impl Victim {
    fn new() -> Self {
        let window = Window::new(
            Timestamp::default(),
            WindowSettings { sample: 1, split_by_order: true, ..WindowSettings::default() },
        );
        let ends = ([10, 0, 0, 9], 50_000);
        Self {
            decoder: Decoder::new(Settings::default(), Arc::new(Shared::default())),
            sunk: Sunk { window, operations: 0 },
            now: Timestamp::from_unix(1_777_629_600, 0),
            frame: TestFrame::new(ends.into(), ([10, 0, 0, 1], 27_017).into()),
        }
    }

    /// Advances by a microsecond; every second is reported to the decoder.
    fn pass(&mut self) {
        let before = self.now;
        self.now = self.now.plus_ns(1_000);
        if before.unix_ns() / NS_PER_S != self.now.unix_ns() / NS_PER_S {
            self.decoder.tick(self.now, &mut self.sunk);
        }
    }

    /// A segment from the client with this number, or from the server to it. Sequence numbers begin at a number of
    /// the connection's own: with the same ones for all they would be twins of each other.
    fn segment(&mut self, client: u32, from: ConversationEnd, flags: u8, at: u32, payload: &[u8]) {
        self.pass();
        let [_, a, b, c] = client.to_be_bytes();
        let initial = |end: u32| (client * 2 + end).wrapping_mul(0x9e37_79b1);
        let client = ([11, a, b, c], 50_000).into();
        let server = ([10, 0, 0, 1], 27_017).into();
        let (source, destination) =
            if from == ConversationEnd::Client { (client, server) } else { (server, client) };
        self.frame.source = source;
        self.frame.destination = destination;
        let (own, other) = if from == ConversationEnd::Client { (0, 1) } else { (1, 0) };
        (self.frame.seq, self.frame.ack) = (initial(own).wrapping_add(at), initial(other).wrapping_add(1));
        self.frame.flags = flags;
        self.frame.payload.clear();
        self.frame.payload.extend_from_slice(payload);
        let packet = self.frame.packet(self.now);
        self.decoder.packet(&packet.as_packet(), &mut self.sunk);
    }

    /// A connection's handshake.
    fn open(&mut self, client: u32) {
        self.segment(client, ConversationEnd::Client, SYN, 0, &[]);
        self.segment(client, ConversationEnd::Server, SYN | ACK, 0, &[]);
    }

    /// Bytes of one end, from sequence number `at` on; returns the next one.
    fn say(&mut self, client: u32, from: ConversationEnd, mut at: u32, bytes: &[u8]) -> u32 {
        for chunk in bytes.chunks(60_000) {
            self.segment(client, from, PSH | ACK, at, chunk);
            at = at.wrapping_add(chunk.len() as u32);
        }
        at
    }

    fn coverage(&self) -> Coverage {
        self.decoder.coverage()
    }
}

/// Runs `attack` on a fresh decoder. Its peak must stay below `cap` bytes; afterwards the counters balance, also
/// after the end of the capture, and all memory is freed.
fn within(name: &str, cap: usize, attack: impl FnOnce(&mut Victim)) -> Coverage {
    let before = ALLOCATOR.current_usage();
    let resident = resident();
    ALLOCATOR.reset_peak_usage();
    let mut victim = Victim::new();
    attack(&mut victim);
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    let grown = self::resident().saturating_sub(resident);
    assert_eq!(victim.coverage().imbalances(victim.decoder.in_progress()), []);
    let now = victim.now;
    victim.decoder.finish(now, &mut victim.sunk);
    let coverage = victim.coverage();
    assert_eq!(coverage.imbalances(victim.decoder.in_progress()), []);
    drop(victim);
    let left = ALLOCATOR.current_usage().saturating_sub(before);
    eprintln!("{name}: at most {} KiB, resident {} KiB more", peak >> 10, grown >> 10);
    assert!(peak < cap, "{name}: {} KiB, and {} KiB are the most", peak >> 10, cap >> 10);
    // Only this shows what the allocator keeps for itself and what C code takes.
    assert!(grown < cap * 2 + 32 * MIB, "{name}: resident {} KiB more", grown >> 10);
    assert!(left < 64 << 10, "{name}: {left} bytes are left behind");
    coverage
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

fn message(id: u32, response_to: u32, opcode: u32, length: u32, body: &[u8]) -> Vec<u8> {
    [&[length, id, response_to, opcode].map(u32::to_le_bytes).concat(), body].concat()
}

/// An OP_MSG of one document.
fn msg(id: u32, response_to: u32, document: &RawDocument) -> Vec<u8> {
    let body = [&[0; 5], document.as_bytes()].concat();
    message(id, response_to, 2013, 16 + body.len() as u32, &body)
}

fn find(id: u32) -> Vec<u8> {
    msg(id, 0, &rawdoc! { "find": "c", "filter": { "a": 1 }, "$db": "d" })
}

fn hello(name: &str) -> RawDocumentBuf {
    let client = rawdoc! { "application": { "name": name }, "driver": { "name": name, "version": name } };
    rawdoc! { "hello": 1, "client": client, "$db": "admin" }
}

/// Every place where `what` begins, unless it directly follows itself.
fn places(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    (1..bytes.len()).filter(|at| bytes[*at..].starts_with(what) && bytes[at - 1] != what[0]).collect()
}

#[test]
fn lengths_beyond_all_bounds() {
    let _turn = turn();
    let coverage = within("huge lengths", 4 * MIB, |victim| {
        victim.open(1);
        // A message of 48 MB, a document of one string, that never ends.
        let length = 48_000_000_u32;
        let mut head = vec![0; 5];
        head.extend((length - 21).to_le_bytes());
        head.extend(b"\x02find\0");
        head.extend((length - 40).to_le_bytes());
        let mut at = victim.say(1, ConversationEnd::Client, 1, &message(1, 0, 2013, length, &head));
        for _ in 0..600 {
            at = victim.say(1, ConversationEnd::Client, at, &[b'x'; 60_000]);
        }
        // A document longer than its message, strings of negative length, a length of 2 GiB, of 0, of 15, each on its
        // own connection.
        for (client, length) in (2..).zip([0x7fff_ffff, 0xffff_ffff, 0, 15, 16, 17, 48_000_001]) {
            victim.open(client);
            let mut at = victim.say(client, ConversationEnd::Client, 1, &find(1));
            for inner in [0x7fff_ffff_u32, 0xffff_ffff, 0, 4, 5] {
                let body = [&[0; 5][..], &inner.to_le_bytes(), b"\x02find\0", &inner.to_le_bytes(), b"c\0\0"]
                    .concat();
                at = victim.say(
                    client,
                    ConversationEnd::Client,
                    at,
                    &message(2, 0, 2013, 16 + body.len() as u32, &body),
                );
            }
            at = victim.say(client, ConversationEnd::Client, at, &message(2, 0, 2013, length, &[0; 100]));
            for _ in 0..100 {
                at = victim.say(client, ConversationEnd::Client, at, &[0xff; 60_000]);
            }
        }
    });
    assert!(coverage.messages_malformed >= 30 && coverage.resyncs > 0, "{coverage:?}");
}

#[test]
fn documents_of_any_depth_and_breadth() {
    let _turn = turn();
    let coverage = within("deep and broad documents", 8 * MIB, |victim| {
        victim.open(1);
        let mut at = 1;
        for (kind, depth) in [(3_u8, 150), (4, 150), (3, 100_000), (4, 100_000)] {
            // A filter of nested documents or arrays, each eight bytes longer than the one in it.
            let mut filter = Vec::new();
            for level in (1..=depth).rev() {
                filter.extend((5 + 8 * level as u32).to_le_bytes());
                filter.extend([kind, b'a', 0]);
            }
            filter.extend([5, 0, 0, 0]);
            filter.resize(filter.len() + depth + 1, 0);
            let inner =
                [b"\x02find\0\x02\0\0\0c\0\x03filter\0", &filter[..], b"\x02$db\0\x02\0\0\0d\0"].concat();
            let body = [&[0; 5], &(inner.len() as u32 + 5).to_le_bytes()[..], &inner, &[0]].concat();
            at = victim.say(
                1,
                ConversationEnd::Client,
                at,
                &message(1, 0, 2013, 16 + body.len() as u32, &body),
            );
        }
        // Different branches, 40 MB of them; fields of 16 MB; keys of the maximum length and longer.
        for (branch, length) in [(true, 40_000_000), (false, 16_000_000)] {
            let mut head = vec![0; 5];
            head.extend((length as u32 - 21).to_le_bytes());
            head.extend(b"\x02find\0\x02\0\0\0c\0\x03filter\0");
            head.extend((length as u32 - 60).to_le_bytes());
            if branch {
                head.extend(b"\x04$or\0");
                head.extend((length as u32 - 80).to_le_bytes());
            }
            at = victim.say(1, ConversationEnd::Client, at, &message(1, 0, 2013, length as u32, &head));
            let mut chunk = Vec::new();
            for n in 0..length / 40 {
                if branch {
                    chunk.extend(b"\x031\0\x14\0\0\0");
                    chunk.extend(format!("\x10f{n:09}\0").bytes());
                    chunk.extend([1, 0, 0, 0, 0]);
                } else {
                    chunk.extend(format!("\x10f{n:029}\0").bytes());
                    chunk.extend([1, 0, 0, 0]);
                }
                if chunk.len() > 50_000 {
                    at = victim.say(1, ConversationEnd::Client, at, &chunk);
                    chunk.clear();
                }
            }
        }
    });
    assert!(coverage.shapes_over_cap + coverage.messages_malformed > 0, "{coverage:?}");
}

/// A compressed message whose content is `size` zeros.
fn bomb(compressor: u8, size: usize) -> Vec<u8> {
    let zeros = vec![0; size];
    let data = match compressor {
        1 => snap::raw::Encoder::new().compress_vec(&zeros).unwrap(),
        2 => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(&zeros).unwrap();
            encoder.finish().unwrap()
        }
        _ => zstd::bulk::compress(&zeros, 19).unwrap(),
    };
    let body = [&2013_u32.to_le_bytes()[..], &(size as u32).to_le_bytes(), &[compressor], &data].concat();
    message(1, 0, 2012, 16 + body.len() as u32, &body)
}

#[test]
fn compressed_bombs() {
    let _turn = turn();
    let bombs: Vec<Vec<u8>> = [1, 2, 3].map(|compressor| bomb(compressor, 48_000_000)).to_vec();
    // And some that state a small size, but are large.
    let liars: Vec<Vec<u8>> = bombs
        .iter()
        .map(|bomb| {
            let mut liar = bomb.clone();
            liar[20..24].copy_from_slice(&100_u32.to_le_bytes());
            liar
        })
        .collect();
    let coverage = within("compressed bombs", 48 * MIB, |victim| {
        let mut client = 0;
        for round in 0..3 {
            for bomb in bombs.iter().chain(&liars) {
                client += 1;
                victim.open(client);
                let at = victim.say(client, ConversationEnd::Client, 1, &find(1));
                let at = victim.say(client, ConversationEnd::Client, at, bomb);
                if round == 0 {
                    victim.say(client, ConversationEnd::Server, 1, bomb);
                }
                victim.say(client, ConversationEnd::Client, at, &find(3));
            }
        }
        // Many at once, each half way through.
        for bomb in &bombs {
            for _ in 0..400 {
                client += 1;
                victim.open(client);
                let half = bomb.len() / 2;
                let at = victim.say(client, ConversationEnd::Client, 1, &find(1));
                let at = victim.say(client, ConversationEnd::Client, at, &bomb[..half.min(1_000)]);
                victim.segment(
                    client,
                    ConversationEnd::Client,
                    PSH | ACK,
                    at,
                    &bomb[half.min(1_000)..half.min(40_000)],
                );
            }
        }
    });
    assert!(coverage.messages_undecodable + coverage.messages_malformed >= 18, "{coverage:?}");
}

#[test]
fn endless_half_messages() {
    let _turn = turn();
    let coverage = within("half messages", 96 * MIB, |victim| {
        // Short ones are assembled, up to a budget; long ones are walked, up to a number.
        for client in 0..60_000 {
            victim.open(client);
            let length = if client % 2 == 0 { 16_000 } else { 1_000_000 };
            let at = victim.say(client, ConversationEnd::Client, 1, &find(1));
            victim.say(client, ConversationEnd::Client, at, &message(2, 0, 2013, length, &[0; 5]));
        }
        // They continue a little, again and again.
        for client in 0..60_000_u32 {
            let at = 1 + find(1).len() as u32 + 21;
            victim.say(client, ConversationEnd::Client, at, b"\x00\x10\x00\x00\x02find\0\x02\0\0\0c\0");
        }
    });
    assert!(coverage.messages_cut + coverage.messages_unfinished >= 60_000, "{coverage:?}");
}

#[test]
fn gaps_that_are_never_filled() {
    let _turn = turn();
    let coverage = within("held segments", 64 * MIB, |victim| {
        for client in 0..1_000 {
            victim.open(client);
            for n in 1..80_u32 {
                victim.segment(client, ConversationEnd::Client, PSH | ACK, n * 3_000, &[0; 1_400]);
            }
        }
    });
    assert!(coverage.gaps > 1_000, "{coverage:?}");
}

/// How many connections, shapes and cursors come: several times the caps, or as many as `HOSTILE_ROUNDS` says.
fn rounds() -> u32 {
    std::env::var("HOSTILE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150_000)
}

#[test]
fn connections_and_applications_without_end() {
    let _turn = turn();
    let rounds = rounds();
    let coverage = within("connections without end", 160 * MIB, |victim| {
        let (hello, ok) = (msg(7, 0, &hello(&"x".repeat(70))), msg(1, 7, &rawdoc! { "ok": 1.0 }));
        let names: Vec<usize> = places(&hello, b"xxxxxxx");
        assert_eq!(names.len(), 3);
        let mut hello = hello.clone();
        for client in 0..rounds {
            let number = format!("{client:07}");
            names.iter().for_each(|at| hello[*at..at + 7].copy_from_slice(number.as_bytes()));
            victim.segment(client, ConversationEnd::Client, SYN, 0, &[]);
            victim.say(client, ConversationEnd::Client, 1, &hello);
            victim.say(client, ConversationEnd::Server, 1, &ok);
        }
    });
    let turned_away = u64::from(rounds - 100_000);
    assert!(coverage.streams_evicted > turned_away && coverage.apps_folded > turned_away, "{coverage:?}");
}

#[test]
fn requests_that_are_never_answered() {
    let _turn = turn();
    let coverage = within("requests in flight", 160 * MIB, |victim| {
        let requests: Vec<u8> = (0..1_100).flat_map(find).collect();
        for client in 0..1_000 {
            victim.open(client);
            victim.say(client, ConversationEnd::Client, 1, &requests);
        }
        // And replies that nobody requested.
        let answers: Vec<u8> = (0..20).flat_map(|n| msg(n, 5_000_000 + n, &rawdoc! { "ok": 1.0 })).collect();
        for client in 1_000..11_000 {
            victim.say(client, ConversationEnd::Server, 1, &answers);
        }
    });
    assert!(coverage.requests_evicted > 500_000 && coverage.replies_joined_late > 150_000, "{coverage:?}");
    // Bursts that are answered, except for the last request, leave no room behind.
    let coverage = within("bursts", 24 * MIB, |victim| {
        let requests: Vec<u8> = (0..1_000).flat_map(find).collect();
        let answers: Vec<u8> = (0..999).flat_map(|n| msg(n, n, &rawdoc! { "ok": 1.0 })).collect();
        for client in 0..300 {
            victim.open(client);
            victim.say(client, ConversationEnd::Client, 1, &requests);
            victim.say(client, ConversationEnd::Server, 1, &answers);
        }
    });
    assert_eq!((coverage.requests_answered, coverage.requests_in_flight), (999 * 300, 300));
}

#[test]
fn shapes_and_cursors_without_end() {
    let _turn = turn();
    let rounds = rounds();
    let coverage = within("shapes without end", 96 * MIB, |victim| {
        victim.open(1);
        let (mut client, mut server) = (1, 1);
        for n in 0..rounds {
            let mut filter = RawDocumentBuf::new();
            filter
                .append(bson::raw::CString::try_from(format!("field_{n}_{}", "long".repeat(10))).unwrap(), 1);
            let find = rawdoc! { "find": format!("c{}", n % 977), "filter": filter, "$db": "d" };
            client = victim.say(1, ConversationEnd::Client, client, &msg(n, 0, &find));
            let reply =
                rawdoc! { "ok": 1.0, "cursor": { "id": i64::from(n) + 1, "ns": "d.c", "firstBatch": [] } };
            server = victim.say(1, ConversationEnd::Server, server, &msg(n, n, &reply));
        }
    });
    assert!(coverage.shapes_folded > u64::from(rounds - 100_000), "{coverage:?}");
    assert_eq!(coverage.requests_answered, u64::from(rounds));
}

/// None of it changes what is found on other connections.
#[test]
fn a_conversation_among_hostile_ones_is_decoded_correctly() {
    let _turn = turn();
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake();
    for n in 1..=200 {
        talk.send(ConversationEnd::Client, &find(n))
            .send(ConversationEnd::Server, &msg(1_000 + n, n, &rawdoc! { "ok": 1.0 }));
    }
    let mut victim = Victim::new();
    let bomb = bomb(2, 4_000_000);
    for (n, packet) in talk.packets.iter().enumerate() {
        let client = n as u32;
        victim.open(client);
        victim.say(client, ConversationEnd::Client, 1, &find(1));
        victim.say(
            client,
            ConversationEnd::Client,
            1 + find(1).len() as u32,
            &bomb[..bomb.len() / (1 + n % 3)],
        );
        victim.segment(client, ConversationEnd::Server, ACK, 1 << 23, &[0; 500]);
        let mut packet = packet.clone();
        packet.time = victim.now;
        victim.decoder.packet(&packet.as_packet(), &mut victim.sunk);
    }
    let now = victim.now;
    victim.decoder.finish(now, &mut victim.sunk);
    assert!(victim.coverage().requests_answered >= 200, "{:?}", victim.coverage());
    assert!(victim.sunk.operations >= 200);
}
