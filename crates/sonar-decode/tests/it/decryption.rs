//! Encrypted connections and a key log: what OpenSSL encrypted is read as the same conversation in plaintext is.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use sonar_core::{Coverage, LinkType, Operation, Timestamp};
use sonar_decode::testing::fixtures::{fixture, inflated};
use sonar_decode::testing::{Conversation, ConversationEnd, OwnedPacket};
use sonar_decode::{Decoder, KeyLog, KeyLogReader, Settings, Shared, Sink, frame};

const FOLDER: &str = "tls-key-log";
const SERVER: u16 = 27_017;

/// What one end sent at once.
#[derive(Clone)]
struct Flight {
    from: ConversationEnd,
    time: Timestamp,
    bytes: Vec<u8>,
}

/// The conversations of a capture by the client's port.
fn conversations(folder: &str, name: &str) -> BTreeMap<u16, Vec<Flight>> {
    let file = inflated(&format!("{folder}/{name}.pcap.gz"));
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (24, BTreeMap::<u16, Vec<Flight>>::new());
    while at < file.len() {
        let length = word(at + 8) as usize;
        let time = Timestamp::from_unix(u64::from(word(at)), word(at + 4) * 1_000);
        let data = file[at + 16..at + 16 + length].to_vec();
        at += 16 + length;
        let packet = OwnedPacket::new(time, LinkType::Ethernet, data);
        let packet = packet.as_packet();
        let segment = frame::decode(&packet).unwrap();
        let (from, port) = match segment.source.port {
            SERVER => (ConversationEnd::Server, segment.destination.port),
            port => (ConversationEnd::Client, port),
        };
        let flights = found.entry(port).or_default();
        if !segment.payload.is_empty() {
            flights.push(Flight { from, time, bytes: segment.payload.to_vec() });
        }
    }
    found
}

/// Names of the cases, and the ports of their clients.
fn cases(folder: &str) -> Vec<(String, u16, Value)> {
    let text = std::fs::read_to_string(fixture(folder).join("cases.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let name = |case: &Value| case["name"].as_str().unwrap().to_owned();
    cases.into_iter().map(|case| (name(&case), case["port"].as_u64().unwrap() as u16, case)).collect()
}

fn key_log() -> Vec<u8> {
    std::fs::read(fixture(FOLDER).join("keys.log")).unwrap()
}

fn keys(log: &[u8]) -> Arc<KeyLog> {
    let (keys, mut reader) = (KeyLog::default(), KeyLogReader::default());
    keys.set_in_use();
    reader.read(log, &keys);
    reader.finish(&keys);
    Arc::new(keys)
}

#[derive(Default)]
struct Operations {
    seen: Vec<String>,
    suites: Vec<String>,
    latencies: Vec<Option<u64>>,
}

impl Sink for Operations {
    fn operation(&mut self, op: &Operation<'_>) {
        let Operation { request_bytes, response_bytes, docs_returned, docs_affected, request_id, .. } = op;
        self.seen.push(format!(
            "{} {} {} {} {:?} {request_id} {request_bytes} {response_bytes} {docs_returned:?} {docs_affected:?} {}",
            op.command,
            op.shape.namespace(),
            op.shape.id,
            op.ordered_id.0,
            op.outcome,
            op.app.label(),
        ));
        self.suites.push(op.tls.map(|suite| suite.to_string()).unwrap_or_default());
        self.latencies.push(op.latency_ns);
    }
}

/// What a decoder with this key log makes of packets; the capture ends a second after the last.
fn decode(packets: &[OwnedPacket], keys: &Arc<KeyLog>) -> (Operations, Coverage) {
    let settings = Settings { keys: Some(keys.clone()), ..Settings::default() };
    let mut decoder = Decoder::new(settings, Arc::new(Shared::default()));
    let (mut seen, mut last) = (Operations::default(), Timestamp::default());
    for packet in packets {
        decoder.packet(&packet.as_packet(), &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        last = packet.time;
    }
    decoder.finish(last.plus_ns(1_000_000_000), &mut seen);
    assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    (seen, decoder.coverage())
}

fn talk() -> Conversation {
    Conversation::new("192.0.2.7:40000", "198.51.100.1:27017")
}

/// The flights in packets of `mss` bytes.
fn packets(flights: &[Flight], mss: usize) -> Vec<OwnedPacket> {
    let mut talk = talk().with_mss(mss);
    talk.handshake();
    for flight in flights {
        talk.send(flight.from, &flight.bytes);
    }
    talk.close();
    talk.packets
}

/// The flights of a case, encrypted and in plaintext.
fn case(name: &str) -> [Vec<Flight>; 2] {
    let port = cases(FOLDER).iter().find(|case| case.0 == name).unwrap_or_else(|| panic!("no case {name}")).1;
    ["tls", "plain"].map(|capture| conversations(FOLDER, capture).remove(&port).unwrap())
}

/// The counters of encrypted connections that are above zero.
fn counted(coverage: &Coverage) -> Vec<(&'static str, u64)> {
    let counters = coverage.iter().filter(|(name, ..)| name.contains("tls"));
    counters.map(|(name, _, count)| (name, count)).filter(|(_, count)| *count > 0).collect()
}

#[test]
fn every_version_and_suite_that_a_driver_negotiates_is_read_as_its_plaintext() {
    let (encrypted, plain, keys) =
        (conversations(FOLDER, "tls"), conversations(FOLDER, "plain"), keys(&key_log()));
    let mut decrypted = 0;
    for (name, port, facts) in cases(FOLDER) {
        let (expected, _) = decode(&packets(&plain[&port], 1_460), &keys);
        assert_eq!(expected.seen.len(), 7, "{name}");
        let (found, coverage) = decode(&packets(&encrypted[&port], 1_460), &keys);
        let why = match name.as_str() {
            "tls10" => "streams_tls_unsupported",
            "not-logged-tls12" | "not-logged-tls13" => "streams_tls_no_key",
            "tls12-renegotiated" => {
                assert_eq!(
                    counted(&coverage),
                    [("streams_tls_decrypted", 1), ("streams_tls_renegotiated", 1)]
                );
                assert_eq!(found.seen[..4], expected.seen[..4], "{name}");
                continue;
            }
            "tls13-early-data" => {
                assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1), ("tls_early_records", 3)]);
                assert_eq!(found.seen, expected.seen, "{name}");
                continue;
            }
            _ => {
                decrypted += 1;
                assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1)], "{name}");
                assert_eq!(coverage.losses().count(), 0, "{name} {coverage:?}");
                assert_eq!(found.seen, expected.seen, "{name}");
                let version = facts["version"].as_str().unwrap();
                assert!(found.suites.iter().all(|suite| suite.starts_with(version)), "{:?}", found.suites);
                continue;
            }
        };
        assert_eq!(counted(&coverage), [(why, 1)], "{name}");
        assert_eq!(found.seen.len(), 0, "{name}");
    }
    assert_eq!(decrypted, 25);
}

#[test]
fn suites_that_are_not_decrypted_are_named() {
    let shared = Arc::new(Shared::default());
    let settings = Settings { keys: Some(keys(&key_log())), ..Settings::default() };
    for name in ["cbc-ecdhe-rsa-aes128-sha256", "tls10", "tls12-ticket"] {
        let mut decoder = Decoder::new(settings.clone(), shared.clone());
        for packet in packets(&case(name)[0], 1_460) {
            decoder.packet(&packet.as_packet(), &mut Operations::default());
        }
    }
    let named: Vec<_> = shared.undecrypted().iter().map(|(suite, n)| format!("{suite} {n}")).collect();
    assert_eq!(named, ["TLSv1.0 TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA 1"]);
}

/// What OpenSSL encrypts with AES-CBC and HMAC in either order.
#[test]
fn every_suite_with_cbc_is_read_as_its_plaintext() {
    let folder = format!("{FOLDER}/cbc");
    let (encrypted, plain) = (conversations(&folder, "tls"), conversations(&folder, "plain"));
    let keys = keys(&std::fs::read(fixture(&folder).join("keys.log")).unwrap());
    let all = cases(&folder);
    assert_eq!(all.len(), 12);
    for (name, port, _) in &all {
        let (expected, _) = decode(&packets(&plain[port], 1_460), &keys);
        for mss in [1_460, 97] {
            let (found, coverage) = decode(&packets(&encrypted[port], mss), &keys);
            assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1)], "{name}");
            assert_eq!((found.seen.len(), &found.seen), (7, &expected.seen), "{name}");
            let suite = if name.contains("sha384") { "CBC_SHA384" } else { "CBC_SHA" };
            assert!(found.suites.iter().all(|found| found.contains(suite)), "{name}: {:?}", found.suites);
        }
        // A byte of the last record, which has data, is changed.
        let mut changed = encrypted[port].clone();
        let flight = changed.iter_mut().rev().find(|flight| flight.bytes.first() == Some(&23)).unwrap();
        *flight.bytes.last_mut().unwrap() ^= 1;
        let (found, coverage) = decode(&packets(&changed, 1_460), &keys);
        assert_eq!(found.seen[..6], expected.seen[..6], "{name}");
        assert!(counted(&coverage).iter().any(|(name, _)| *name != "streams_tls_decrypted"), "{name}");
    }
}

/// Without its padding nobody knows how much plaintext a lost record had.
#[test]
fn behind_a_gap_a_connection_with_cbc_is_not_read_on() {
    let folder = format!("{FOLDER}/cbc");
    let keys = keys(&std::fs::read(fixture(&folder).join("keys.log")).unwrap());
    for (port, flights) in conversations(&folder, "tls") {
        let (all, turns) = slowly(&flights, 1_460);
        let expected = decode(&all, &keys).0.seen;
        assert_eq!(expected.len(), 7, "{port}");
        let mut kept = all.clone();
        kept.remove(turns[turns.len() - 10][0]);
        let (found, coverage) = decode(&kept, &keys);
        assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1), ("streams_tls_gap", 1)], "{port}");
        assert!((1..5).contains(&found.seen.len()), "{port}: {:?}", found.seen);
        assert_eq!(found.seen[0], expected[0], "{port}");
    }
}

#[test]
fn latencies_are_those_of_the_segments_that_complete_the_records() {
    let [encrypted, plain] = case("tls_aes_256_gcm_sha384");
    // Each request and each reply in one packet, so that both forms have the same times.
    let join = |flights: &[Flight]| {
        let mut joined: Vec<Flight> = Vec::new();
        for flight in flights {
            match joined.last_mut() {
                Some(last) if last.from == flight.from => last.bytes.extend(&flight.bytes),
                _ => joined.push(flight.clone()),
            }
        }
        joined
    };
    let keys = keys(&key_log());
    let [encrypted, plain] = [encrypted, plain].map(|flights| {
        let flights = join(&flights);
        let skip = flights.len() - 14;
        // The handshake stays, but what follows it takes as long as in plaintext.
        let mut talk = talk().with_mss(60_000);
        talk.handshake();
        for flight in &flights[..skip] {
            talk.send(flight.from, &flight.bytes);
        }
        for (number, flight) in flights[skip..].iter().enumerate() {
            talk.wait(1_000_000 * (number as u64 + 1)).send(flight.from, &flight.bytes);
        }
        decode(&talk.packets, &keys).0.latencies
    });
    assert_eq!((encrypted.len(), &encrypted), (7, &plain));
}

#[test]
fn packets_in_another_order_and_twice_change_nothing() {
    let keys = keys(&key_log());
    for name in ["ecdhe-rsa-aes256-gcm-sha384", "tls_chacha20_poly1305_sha256", "tls13-key-updates"] {
        let [encrypted, _] = case(name);
        let straight = decode(&packets(&encrypted, 700), &keys).0.seen;
        assert_eq!(straight.len(), 7);
        let mut mixed = packets(&encrypted, 700);
        let last = mixed.len() - 4;
        for at in (3..last).step_by(5) {
            let time = mixed[at].time;
            mixed[at].time = mixed[at + 1].time;
            mixed[at + 1].time = time;
            mixed.swap(at, at + 1);
            let again = mixed[at].clone();
            mixed.insert(at + 2, again);
        }
        let (found, coverage) = decode(&mixed, &keys);
        assert_eq!(
            (found.seen, counted(&coverage)),
            (straight, vec![("streams_tls_decrypted", 1)]),
            "{name}"
        );
    }
}

#[test]
fn a_capture_that_begins_behind_the_handshake_is_counted_and_not_a_loss() {
    let keys = keys(&key_log());
    for name in ["ecdhe-rsa-aes256-gcm-sha384", "tls_aes_128_gcm_sha256"] {
        let all = packets(&case(name)[0], 1_460);
        // In the middle of the conversation, at a record and inside one.
        for from in all.len() / 2..all.len() / 2 + 6 {
            let (found, coverage) = decode(&all[from..], &keys);
            assert_eq!(found.seen.len(), 0);
            let late = coverage.streams_tls_joined_late;
            assert_eq!(
                coverage.streams_tls_gap + coverage.streams_tls_unopened,
                0,
                "{name} {from} {coverage:?}"
            );
            assert!(late == 1 || coverage.joined_late_bytes > 0, "{name} {from} {coverage:?}");
        }
        // Without its first packets, the handshake is enough.
        let (found, coverage) = decode(&all[3..], &keys);
        assert_eq!((found.seen.len(), counted(&coverage)), (7, vec![("streams_tls_decrypted", 1)]));
    }
}

#[test]
fn a_wrong_key_is_counted_as_such() {
    let log = String::from_utf8(key_log()).unwrap();
    // The last digit of each secret becomes another one.
    let wrong: String = log
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (line, last) = line.split_at(line.len() - 1);
            let last = (last.chars().next().unwrap().to_digit(16).unwrap() + 1) % 16;
            format!("{line}{last:x}\n")
        })
        .collect();
    let keys = keys(wrong.as_bytes());
    for name in ["ecdhe-rsa-aes256-gcm-sha384", "ecdhe-rsa-chacha20-poly1305", "tls_aes_128_gcm_sha256"] {
        let (found, coverage) = decode(&packets(&case(name)[0], 1_460), &keys);
        assert_eq!((found.seen.len(), counted(&coverage)), (0, vec![("streams_tls_unopened", 1)]), "{name}");
    }
}

#[test]
fn a_damaged_record_ends_the_decryption_and_its_operations_stay() {
    let keys = keys(&key_log());
    let [encrypted, plain] = case("tls_aes_256_gcm_sha384");
    let expected = decode(&packets(&plain, 1_460), &keys).0.seen;
    let mut damaged = packets(&encrypted, 1_460);
    let last = damaged.iter().rposition(|packet| packet.data.len() > 100).unwrap();
    *damaged[last].data.last_mut().unwrap() ^= 1;
    let (found, coverage) = decode(&damaged, &keys);
    assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1), ("streams_tls_unopened", 1)]);
    assert_eq!(found.seen[..6], expected[..6]);
    assert_eq!((coverage.requests, coverage.requests_reply_lost), (7, 1), "{coverage:?}");
}

/// The flights with a second before each turn of the other end, in packets of `mss` bytes; and the numbers of the packets
/// that carry the bytes of each turn.
fn slowly(flights: &[Flight], mss: usize) -> (Vec<OwnedPacket>, Vec<Vec<usize>>) {
    let mut talk = talk().with_mss(mss);
    talk.handshake();
    let (mut turns, mut before) = (Vec::<Vec<usize>>::new(), None);
    for flight in flights {
        if before != Some(flight.from) {
            // What came is acknowledged.
            talk.wait(500_000_000).ack(flight.from).wait(500_000_000);
            turns.push(Vec::new());
            before = Some(flight.from);
        }
        let begin = talk.packets.len();
        talk.send(flight.from, &flight.bytes);
        turns.last_mut().unwrap().extend(begin..talk.packets.len());
    }
    talk.wait(5_000_000_000).ack(ConversationEnd::Client).ack(ConversationEnd::Server);
    (talk.packets, turns)
}

#[test]
fn a_lost_request_or_reply_costs_only_its_operation() {
    let keys = keys(&key_log());
    for name in [
        "ecdhe-rsa-aes256-gcm-sha384",
        "ecdhe-ecdsa-chacha20-poly1305",
        "tls_aes_256_gcm_sha384",
        "tls13-resumed",
    ] {
        let [encrypted, plain] = case(name);
        let expected = decode(&packets(&plain, 1_460), &keys).0.seen;
        let (all, turns) = slowly(&encrypted, 1_460);
        // The last 14 turns are those of the conversation: seven requests, each with its reply.
        let turns = &turns[turns.len() - 14..];
        for operation in 1..6 {
            for lost in &turns[2 * operation..2 * operation + 2] {
                let kept = all.iter().enumerate().filter(|(number, _)| !lost.contains(number));
                let kept: Vec<_> = kept.map(|(_, packet)| packet.clone()).collect();
                let (found, coverage) = decode(&kept, &keys);
                assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1)], "{name} {operation}");
                let others = |seen: &[String]| {
                    let of = format!(" {} ", operation + 1);
                    seen.iter().filter(|op| !op.contains(&of)).cloned().collect::<Vec<_>>()
                };
                assert_eq!(others(&found.seen), others(&expected), "{name} {operation} {coverage:?}");
                assert_eq!(coverage.gaps, 1);
            }
        }
    }
}

#[test]
fn a_lost_segment_inside_a_record_costs_only_its_operation() {
    let keys = keys(&key_log());
    for name in ["ecdhe-rsa-aes128-gcm-sha256", "ecdhe-rsa-chacha20-poly1305", "tls_aes_128_gcm_sha256"] {
        let [encrypted, plain] = case(name);
        let expected = decode(&packets(&plain, 1_460), &keys).0.seen;
        let (all, turns) = slowly(&encrypted, 1_000);
        // The insert takes three records, and more than forty segments.
        let long = &turns[turns.len() - 10];
        assert!(long.len() > 40);
        for lost in [1, 5, 20, 33, 40] {
            let mut kept = all.clone();
            kept.remove(long[lost]);
            let (found, coverage) = decode(&kept, &keys);
            assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1)], "{name} {lost}");
            // In the first record is the header of the message, too.
            let damaged = u64::from(lost > 24);
            assert_eq!(
                (coverage.gaps, coverage.messages_damaged),
                (1, damaged),
                "{name} {lost} {coverage:?}"
            );
            let others: Vec<_> = expected.iter().filter(|op| !op.starts_with("insert")).cloned().collect();
            assert_eq!(found.seen, others, "{name} {lost}");
        }
    }
}

#[test]
fn a_gap_in_the_handshake_or_over_a_change_of_keys_ends_the_decryption() {
    let keys = keys(&key_log());
    for name in ["ecdhe-rsa-aes128-gcm-sha256", "tls_aes_128_gcm_sha256"] {
        let (all, turns) = slowly(&case(name)[0], 500);
        let mut kept = all.clone();
        // Of the certificate.
        kept.remove(turns[1][1]);
        let (found, coverage) = decode(&kept, &keys);
        assert_eq!((found.seen.len(), counted(&coverage)), (0, vec![("streams_tls_gap", 1)]), "{name}");
    }
    // The client's KeyUpdate stands before its second request.
    let (all, turns) = slowly(&case("tls13-key-updates")[0], 1_460);
    let lost = &turns[turns.len() - 12];
    let kept = all.iter().enumerate().filter(|(number, _)| !lost.contains(number));
    let (found, coverage) = decode(&kept.map(|(_, packet)| packet.clone()).collect::<Vec<_>>(), &keys);
    assert_eq!(counted(&coverage), [("streams_tls_decrypted", 1), ("streams_tls_gap", 1)]);
    assert_eq!(found.seen.len(), 1, "{:?}", found.seen);
}

#[test]
fn secrets_may_come_after_the_packets_that_need_them() {
    let log = key_log();
    for name in ["ecdhe-rsa-aes256-gcm-sha384", "tls_aes_256_gcm_sha384"] {
        let all = packets(&case(name)[0], 1_460);
        let expected = decode(&all, &keys(&log)).0.seen;
        let late = Arc::new(KeyLog::default());
        late.set_in_use();
        late.set_growing();
        let settings = Settings { keys: Some(late.clone()), ..Settings::default() };
        let mut decoder = Decoder::new(settings, Arc::new(Shared::default()));
        let mut seen = Operations::default();
        let most = all.len() - 10;
        all[..most].iter().for_each(|packet| decoder.packet(&packet.as_packet(), &mut seen));
        decoder.tick(all[most].time, &mut seen);
        assert_eq!(seen.seen.len(), 0);
        KeyLogReader::default().read(&log, &late);
        decoder.tick(all[most].time, &mut seen);
        assert!(!seen.seen.is_empty(), "{name}: a tick is enough");
        all[most..].iter().for_each(|packet| decoder.packet(&packet.as_packet(), &mut seen));
        decoder.finish(all.last().unwrap().time, &mut seen);
        assert_eq!((seen.seen, counted(&decoder.coverage())), (expected, vec![("streams_tls_decrypted", 1)]));
    }
}

#[test]
fn what_waits_for_its_secrets_is_bounded_and_counted() {
    let keys = Arc::new(KeyLog::default());
    keys.set_in_use();
    keys.set_growing();
    let [encrypted, _] = case("tls_aes_128_gcm_sha256");
    let (found, coverage) = decode(&packets(&encrypted, 1_460), &keys);
    assert_eq!((found.seen.len(), counted(&coverage)), (0, vec![("streams_tls_no_key", 1)]));
    // It is not followed to its end.
    assert!(coverage.segments_ignored > 0, "{coverage:?}");
}

#[test]
fn a_header_of_the_proxy_protocol_may_stand_before_the_handshake() {
    let keys = keys(&key_log());
    let [encrypted, plain] = case("tls_aes_128_gcm_sha256");
    let header = b"PROXY TCP4 203.0.113.7 198.51.100.1 51234 27017\r\n";
    let behind = |flights: &[Flight], mss| {
        let first = Flight { from: ConversationEnd::Client, time: flights[0].time, bytes: header.to_vec() };
        packets(&[std::slice::from_ref(&first), flights].concat(), mss)
    };
    let expected = decode(&behind(&plain, 1_460), &keys).0.seen;
    for mss in [1, 7, 16, 40, 60, 1_460] {
        let (found, coverage) = decode(&behind(&encrypted, mss), &keys);
        assert_eq!(found.seen, expected, "{mss} {coverage:?}");
        assert_eq!(coverage.streams_proxied, 1);
    }
}

#[test]
fn without_a_key_log_encrypted_connections_are_counted_as_before() {
    let unused = Arc::new(KeyLog::default());
    let (found, coverage) = decode(&packets(&case("tls_aes_128_gcm_sha256")[0], 1_460), &unused);
    assert_eq!((found.seen.len(), counted(&coverage)), (0, vec![("streams_tls", 1)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// However the bytes are cut into segments, the operations are those of the plaintext.
    #[test]
    fn segments_do_not_matter(
        sizes in proptest::collection::vec(1_usize..3_000, 1..40),
        which in 0_usize..4,
    ) {
        let names =
            ["ecdhe-ecdsa-aes128-gcm-sha256", "ecdhe-rsa-chacha20-poly1305", "tls13-resumed", "tls13-key-updates"];
        let [encrypted, plain] = case(names[which]);
        let keys = keys(&key_log());
        let expected = decode(&packets(&plain, 1_460), &keys).0.seen;
        let mut sizes = sizes.into_iter().cycle();
        let mut talk = talk();
        talk.handshake();
        for flight in &encrypted {
            let mut rest = &flight.bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(sizes.next().unwrap().min(rest.len()));
                talk.mss = now.len();
                talk.send(flight.from, now);
                rest = later;
            }
        }
        talk.close();
        let (found, coverage) = decode(&talk.packets, &keys);
        prop_assert_eq!(found.seen, expected);
        prop_assert_eq!(counted(&coverage), vec![("streams_tls_decrypted", 1)]);
    }

    /// Damage anywhere, and loss of any packets: no panic, and the counters balance.
    #[test]
    fn damage_and_loss_never_panic(
        which in 0_usize..8,
        damages in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..6),
        losses in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        mss in 1_usize..3_000,
    ) {
        let names = [
            "ecdhe-ecdsa-aes128-gcm-sha256", "ecdhe-rsa-chacha20-poly1305", "tls13-resumed", "tls13-key-updates",
            "tls13-retry", "tls13-early-data", "tls12-renegotiated", "client-certificate-tls13",
        ];
        let mut packets = packets(&case(names[which])[0], mss.max(20));
        for (packet, byte, change) in damages {
            let packet = packet.index(packets.len());
            let data = &mut packets[packet].data;
            if data.len() > 54 {
                let at = 54 + byte.index(data.len() - 54);
                data[at] ^= change;
            }
        }
        for loss in losses {
            let at = loss.index(packets.len());
            packets.remove(at);
        }
        decode(&packets, &keys(&key_log()));
    }
}
