//! Recordings of a real server with frames doubled, delayed, lost and cut on purpose. Everything that is found stays
//! right; everything that is no longer found raises a counter; and nothing is invented.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use crate::support::{Recorded, Seen, operations, packets};
use proptest::prelude::*;
use sonar_core::Coverage;
use sonar_decode::frame::decode;
use sonar_decode::testing::{Conversation, ConversationEnd};

/// A packet and its place.
struct Frame {
    packet: Recorded,
    /// The two ports, the sender's first.
    ports: (u16, u16),
    seq: u32,
    payload: u32,
    syn: bool,
    /// Nothing with payload or FIN follows in its direction, so nothing would show its loss.
    last: bool,
}

/// Whole connections of the mixed recording without very long messages: many small exchanges.
struct Original {
    frames: Vec<Frame>,
    seen: Vec<Seen>,
    coverage: Coverage,
}

static ORIGINAL: LazyLock<Original> = LazyLock::new(|| {
    let all = packets("mongod-4.0-mixed");
    let mut frames: Vec<Frame> = all
        .into_iter()
        .map(|packet| {
            let (ports, seq, payload, syn) = {
                let segment = decode(&packet.as_packet()).unwrap();
                let ports = (segment.source.port, segment.destination.port);
                (ports, segment.seq, segment.payload.len() as u32, segment.flags.syn())
            };
            Frame { packet, ports, seq, payload, syn, last: false }
        })
        .collect();
    // By the client's port: frames, and whether it has a long one.
    let mut flows: BTreeMap<u16, (usize, bool)> = BTreeMap::new();
    for frame in &frames {
        let flow = flows.entry(frame.ports.0.max(frame.ports.1)).or_default();
        flow.0 += 1;
        flow.1 |= frame.packet.data.len() > 8_000;
    }
    let mut room = 1_500_usize;
    let kept: Vec<u16> = flows
        .into_iter()
        .filter(|(_, (count, long))| !long && *count > 20)
        .filter(|(_, (count, _))| {
            let fits = room >= *count;
            room -= if fits { *count } else { 0 };
            fits
        })
        .map(|(port, _)| port)
        .collect();
    assert!(kept.len() >= 3, "{kept:?}");
    frames.retain(|frame| kept.contains(&frame.ports.0.max(frame.ports.1)));
    // Backwards: the first two frames of each direction are its end (data, FIN).
    let mut ends: HashMap<(u16, u16), u32> = HashMap::new();
    for frame in frames.iter_mut().rev() {
        let seen = ends.entry(frame.ports).or_default();
        frame.last = *seen < 3;
        *seen += 1;
    }
    let packets: Vec<Recorded> = frames.iter().map(|frame| frame.packet.clone()).collect();
    let (seen, coverage) = operations(&packets);
    assert!(seen.len() > 400, "{}", seen.len());
    assert_eq!(coverage.losses().count(), 0);
    Original { frames, seen, coverage }
});

/// What happens to a frame.
#[derive(Copy, Clone, Debug)]
enum Fate {
    Lost,
    /// It comes again this many places later.
    Doubled(usize),
    /// It comes this many places later.
    Late(usize),
    /// Only this many bytes of its payload are captured; below 0: of its headers.
    Cut(i32),
}

/// The frames with these faults. Times stay in order: they belong to the place.
fn mangle(frames: &[Frame], fates: &HashMap<usize, Fate>) -> Vec<Recorded> {
    // Where each copy goes: the place, and behind what is there already.
    let mut places: Vec<(usize, usize, Recorded)> = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let packet = &frame.packet;
        match fates.get(&at) {
            Some(Fate::Lost) => {}
            Some(Fate::Late(by)) => places.push((at + by, 1 + at, packet.clone())),
            Some(Fate::Doubled(by)) => {
                places.push((at, 0, packet.clone()));
                places.push((at + by, 1 + at, packet.clone()));
            }
            Some(Fate::Cut(payload)) => {
                let mut packet = packet.clone();
                let headers = packet.data.len() as i32 - frame.payload as i32;
                let len = (headers + payload).clamp(1, packet.data.len() as i32);
                packet.cut = packet.data.len() as u32 - len as u32;
                packet.data.truncate(len as usize);
                places.push((at, 0, packet));
            }
            None => places.push((at, 0, packet.clone())),
        }
    }
    places.sort_by_key(|(place, behind, _)| (*place, *behind));
    places
        .into_iter()
        .map(|(place, _, packet)| Recorded {
            time: frames[place.min(frames.len() - 1)].packet.time,
            ..packet
        })
        .collect()
}

/// Who sent it, and what: request ids of a driver are unique on a connection.
type Key = (u16, u32, String);

fn key(op: &Seen) -> Key {
    (op.client, op.request_id, op.command.clone())
}

/// Operations of the original that are missing, and those with missing facts. Panics if an operation was invented,
/// occurs twice, or has wrong facts.
fn compare(seen: &[Seen], what: &dyn std::fmt::Debug) -> (Vec<Key>, Vec<Key>) {
    let mut waiting: HashMap<Key, Vec<&Seen>> = HashMap::new();
    for op in ORIGINAL.seen.iter().rev() {
        waiting.entry(key(op)).or_default().push(op);
    }
    let mut poorer = Vec::new();
    for op in seen {
        if op.command == "getlasterror" {
            // On its own only if its write was lost, or something between them.
            continue;
        }
        let mut wanted = key(op);
        if op.command == "?" {
            // Its header alone is there; it may be a getLastError, too.
            let is_it = |of: &&Key| (of.0, of.1) == (op.client, op.request_id) && !waiting[*of].is_empty();
            let Some(found) = waiting.keys().find(is_it) else { continue };
            wanted = found.clone();
        }
        let Some(truth) = waiting.get_mut(&wanted).and_then(Vec::pop) else {
            panic!("invented: {op:?} by {what:?}");
        };
        // What the request itself contains. The shape of a getMore is that of its cursor, which may be lost; and an
        // application is lost with its hello.
        let of_cursor = ["getMore", "killCursors"].contains(&&*op.command);
        // Of a request that was cut, the shape is not known, and says so.
        let is_partial = op.typed == "(partial)";
        assert_eq!(op.bytes[0], truth.bytes[0], "{op:?} by {what:?}");
        assert!(
            op.app == truth.app || ["joined late", "(no name)"].contains(&&*op.app),
            "{op:?} was {truth:?}"
        );
        if !of_cursor && !is_partial {
            assert_eq!((op.shape, op.ordered), (truth.shape, truth.ordered), "{op:?} by {what:?}");
            assert_eq!((&op.namespace, &op.typed), (&truth.namespace, &truth.typed), "by {what:?}");
            assert_eq!(op.statements, truth.statements, "{op:?} by {what:?}");
        }
        let told = ["ok", "failed"].contains(&op.outcome);
        if told {
            assert_eq!((op.outcome, &op.codes), (truth.outcome, &truth.codes), "by {what:?}");
            assert_eq!(op.bytes[1], truth.bytes[1], "{op:?} by {what:?}");
        }
        let same = |ours: Option<u64>, truth: Option<u64>| ours.is_none() || ours == truth;
        assert!(
            same(op.returned, truth.returned)
                && same(op.matched, truth.matched)
                && same(op.affected, truth.affected),
            "{op:?} was {truth:?} by {what:?}"
        );
        let all = (op.returned, op.matched, op.affected, op.outcome, &op.typed);
        if all != (truth.returned, truth.matched, truth.affected, truth.outcome, &truth.typed) {
            // It is marked as unknown.
            assert!(!told || of_cursor || op.outcome == truth.outcome, "{op:?} was {truth:?} by {what:?}");
            poorer.push(key(op));
        }
    }
    let missing = waiting.into_iter().flat_map(|(key, left)| vec![key; left.len()]).collect();
    (missing, poorer)
}

/// The names of counters that report a loss.
fn losses(coverage: &Coverage) -> Vec<&'static str> {
    coverage.losses().map(|(name, _, _)| name).collect()
}

fn fates(count: usize, fate: impl Strategy<Value = Fate>) -> impl Strategy<Value = HashMap<usize, Fate>> {
    let frames = ORIGINAL.frames.len();
    proptest::collection::hash_map(0..frames, fate, 1..count)
}

fn config() -> ProptestConfig {
    let cases = if std::env::var_os("LONG").is_some() { 512 } else { 64 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Copies, at once and much later, change nothing: no figure and no time.
    #[test]
    fn doubled_frames_change_nothing(fates in fates(200, (0usize..40).prop_map(Fate::Doubled))) {
        let (seen, coverage) = operations(&mangle(&ORIGINAL.frames, &fates));
        prop_assert!(seen == ORIGINAL.seen, "{:?}", seen.iter().zip(&ORIGINAL.seen).find(|(a, b)| a != b));
        prop_assert_eq!(coverage.frames, ORIGINAL.coverage.frames + fates.len() as u64);
        let data = fates.keys().filter(|at| ORIGINAL.frames[**at].payload > 0).count() as u64;
        prop_assert_eq!(coverage.segments_duplicate, ORIGINAL.coverage.segments_duplicate + data);
        prop_assert_eq!(losses(&coverage), Vec::<&str>::new());
    }

    /// Frames that come some places later are put in order again: every figure is the same, except times.
    #[test]
    fn late_frames_are_put_in_order(fates in fates(60, (1usize..4).prop_map(Fate::Late))) {
        // At most a few milliseconds later: acknowledged bytes that do not come count as lost.
        let frames = &ORIGINAL.frames;
        let soon = |at: usize, by: usize| {
            let until = &frames[(at + by).min(frames.len() - 1)].packet;
            until.time.since(frames[at].packet.time) < 20_000_000
        };
        let fates: HashMap<usize, Fate> = fates
            .into_iter()
            .filter(|(at, fate)| matches!(fate, Fate::Late(by) if soon(*at, *by)) && !frames[*at].syn && !frames[*at].last)
            .collect();
        let (seen, coverage) = operations(&mangle(frames, &fates));
        let (missing, poorer) = compare(&seen, &fates);
        prop_assert_eq!((missing, poorer), (vec![], vec![]));
        prop_assert_eq!(losses(&coverage), Vec::<&str>::new());
        prop_assert_eq!(coverage.segments_data, ORIGINAL.coverage.segments_data);
    }

    /// Every lost byte is counted exactly, and with it what can no longer be found.
    #[test]
    fn lost_frames_are_counted(fates in fates(60, Just(Fate::Lost))) {
        let frames = &ORIGINAL.frames;
        let fates: HashMap<usize, Fate> =
            fates.into_iter().filter(|(at, _)| !frames[*at].syn && !frames[*at].last).collect();
        let bytes: u64 = fates.keys().map(|at| u64::from(frames[*at].payload)).sum();
        let (seen, coverage) = operations(&mangle(frames, &fates));
        let (missing, poorer) = compare(&seen, &fates);
        prop_assert_eq!(coverage.gap_bytes, bytes);
        if bytes == 0 {
            prop_assert_eq!((missing, poorer), (vec![], vec![]));
        } else {
            // A frame affects at most two operations: one that ends and one that begins in it.
            let lost = fates.keys().filter(|at| frames[**at].payload > 0).count();
            prop_assert!(missing.len() + poorer.len() <= 2 * lost, "{lost} frames took {missing:?} {poorer:?}");
        }
        // What is left is known with its times.
        for op in &seen {
            prop_assert!(op.latency_ns.is_some() || !["ok", "failed"].contains(&op.outcome), "{op:?}");
        }
    }

    /// Frames cut by a snap length: what they still contain is right, the rest is null and counted.
    #[test]
    fn cut_frames_are_counted(fates in fates(60, (-60i32..200).prop_map(Fate::Cut))) {
        let (seen, coverage) = operations(&mangle(&ORIGINAL.frames, &fates));
        let (missing, poorer) = compare(&seen, &fates);
        let counted = coverage.segments_snapped + coverage.frames_header_truncated;
        if counted == 0 {
            prop_assert_eq!((missing, poorer), (vec![], vec![]));
        } else if !missing.is_empty() {
            prop_assert!(!losses(&coverage).is_empty(), "{missing:?} {coverage:?}");
        }
    }

    /// All of it at once, including handshakes and ends: nothing is invented, and no operation is lost silently.
    #[test]
    fn whatever_happens_is_counted(
        fates in fates(400, prop_oneof![
            Just(Fate::Lost),
            (0usize..2_000).prop_map(Fate::Doubled),
            (1usize..300).prop_map(Fate::Late),
            (-60i32..500).prop_map(Fate::Cut),
        ])
    ) {
        let (seen, coverage) = operations(&mangle(&ORIGINAL.frames, &fates));
        let (missing, _) = compare(&seen, &fates);
        // Nothing can show the last frames of a connection if all of them are lost.
        let end_lost = fates.keys().any(|at| ORIGINAL.frames[*at].last);
        prop_assert!(missing.is_empty() || end_lost || !losses(&coverage).is_empty(), "{missing:?}");
    }
}

/// Each frame by itself: if an operation is missing or incomplete, a counter of losses has risen.
#[test]
fn no_frame_can_be_lost_silently() {
    let frames = &ORIGINAL.frames;
    let mut noticed = 0;
    for at in (0..frames.len()).step_by(7) {
        if frames[at].last {
            continue;
        }
        let fates = HashMap::from([(at, Fate::Lost)]);
        let (seen, coverage) = operations(&mangle(frames, &fates));
        let (missing, poorer) = compare(&seen, &fates);
        if !frames[at].syn {
            assert_eq!(
                coverage.gap_bytes,
                u64::from(frames[at].payload),
                "frame {at}, seq {}",
                frames[at].seq
            );
        }
        if !missing.is_empty() || !poorer.is_empty() {
            assert!(!losses(&coverage).is_empty(), "frame {at}: {missing:?} {poorer:?} {coverage:?}");
            noticed += 1;
        }
    }
    assert!(noticed > 50, "{noticed}");
}

/// A message with any opcode.
fn message(id: u32, response_to: u32, opcode: u32, body: &[u8]) -> Vec<u8> {
    let words = [16 + body.len() as u32, id, response_to, opcode];
    [&words.map(u32::to_le_bytes).concat(), body].concat()
}

/// Operations of handmade packets: request id, command, outcome.
fn told(packets: &[sonar_decode::testing::OwnedPacket]) -> (Vec<(u32, String, &'static str)>, Coverage) {
    let packets: Vec<Recorded> = packets
        .iter()
        .map(|packet| Recorded { time: packet.time, data: packet.data.clone(), cut: 0 })
        .collect();
    let (seen, coverage) = operations(&packets);
    (seen.into_iter().map(|op| (op.request_id, op.command, op.outcome)).collect(), coverage)
}

#[test]
fn a_repeated_syn_after_the_end_opens_no_connection() {
    let ping = bson::rawdoc! { "ping": 1, "$db": "admin" };
    let ok = bson::rawdoc! { "ok": 1.0 };
    let body = |document: &bson::RawDocument| [&[0; 5], document.as_bytes()].concat();
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake().send(ConversationEnd::Client, &message(1, 0, 2013, &body(&ping)));
    talk.send(ConversationEnd::Server, &message(2, 1, 2013, &body(&ok))).close();
    let again: Vec<_> = talk.packets.iter().chain(&talk.packets).cloned().collect();
    let (seen, coverage) = told(&again);
    assert_eq!(seen, [(1, "ping".to_owned(), "ok")]);
    assert_eq!((coverage.streams, coverage.segments_duplicate, coverage.losses().count()), (1, 2, 0));
    // The same ports soon after, for another connection.
    let mut next = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017").with_seq(9_000, 90_000);
    next.handshake().send(ConversationEnd::Client, &message(3, 0, 2013, &body(&ping)));
    next.send(ConversationEnd::Server, &message(4, 3, 2013, &body(&ok))).close();
    let (seen, coverage) = told(&[talk.packets, next.packets].concat());
    assert_eq!((seen.len(), coverage.streams), (2, 2));
}

#[test]
fn a_syn_that_comes_after_the_end_opens_nothing() {
    let ping = bson::rawdoc! { "ping": 1, "$db": "admin" };
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    let body = [&[0; 5], ping.as_bytes()].concat();
    talk.handshake().send(ConversationEnd::Client, &message(1, 0, 2013, &body)).close();
    // All of it overtook its SYN; then the request again.
    let [syn, rest @ ..] = &*talk.packets else { panic!("no packets") };
    let request = rest.iter().max_by_key(|packet| packet.data.len()).unwrap();
    let late = [rest, &[syn.clone(), request.clone()]].concat();
    let (seen, coverage) = told(&late);
    assert_eq!(seen, [(1, "ping".to_owned(), "unanswered")]);
    assert_eq!((coverage.streams, coverage.segments_duplicate, coverage.losses().count()), (1, 1, 0));
}

#[test]
fn the_answer_of_a_get_last_error_is_that_of_its_own_write() {
    let write = |id: u32, n: i32| {
        let document = bson::rawdoc! { "n": n };
        message(id, 0, 2002, &[&[0; 4], &b"d.c\0"[..], document.as_bytes()].concat())
    };
    let get_last_error = |id: u32| {
        let document = bson::rawdoc! { "getlasterror": 1 };
        let head = [&[0; 4], &b"d.$cmd\0"[..], &[0; 4], &[0xff; 4]].concat();
        message(id, 0, 2004, &[&head, document.as_bytes()].concat())
    };
    let answer = |id: u32, failed: bool| {
        let (err, code) =
            if failed { (bson::RawBson::from("duplicate key"), 11_000) } else { (bson::RawBson::Null, 0) };
        let document = bson::rawdoc! { "n": 0, "err": err, "code": code, "ok": 1.0 };
        let head = [&[0; 16][..], &1_u32.to_le_bytes()].concat();
        message(100 + id, id, 1, &[&head, document.as_bytes()].concat())
    };
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake();
    // Three writes without waiting, of which the second wants no reply; replies come after all of them.
    talk.send(ConversationEnd::Client, &write(1, 1)).send(ConversationEnd::Client, &get_last_error(2));
    talk.send(ConversationEnd::Client, &write(3, 2));
    talk.send(ConversationEnd::Client, &write(4, 3)).send(ConversationEnd::Client, &get_last_error(5));
    // The server takes longer than a tick.
    talk.wait(5_000_000_000)
        .send(ConversationEnd::Server, &answer(2, true))
        .send(ConversationEnd::Server, &answer(5, false))
        .close();
    let (mut seen, coverage) = told(&talk.packets);
    seen.sort();
    let insert = || "insert".to_owned();
    assert_eq!(seen, [(1, insert(), "failed"), (3, insert(), "unacknowledged"), (4, insert(), "ok")]);
    assert_eq!((coverage.requests, coverage.requests_folded, coverage.replies_paired), (5, 2, 2));
}
