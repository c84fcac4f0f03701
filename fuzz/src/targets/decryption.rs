//! Encrypted connections with a key log: packets of true ones, lost, doubled, reordered, damaged and cut, with the secrets
//! before them or among them: no panic, and the counters balance after each. The input is read as a key log, too: it says
//! the same, however it comes in.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, LazyLock};

use crate::{CheckedDecoder, Input};
use sonar_core::LinkType;
use sonar_decode::capture_file::{CaptureParser, Step};
use sonar_decode::testing::OwnedPacket;
use sonar_decode::{KeyLog, KeyLogReader, Settings, frame};

const CAPTURE: &[u8] = include_bytes!("../../../fixtures/tls-key-log/tls.pcap.gz");
const KEYS: &[u8] = include_bytes!("../../../fixtures/tls-key-log/keys.log");
/// Ethernet, IPv4 and TCP without options.
const HEADERS: usize = 54;

/// The packets of each connection.
static CONNECTIONS: LazyLock<Vec<Vec<OwnedPacket>>> = LazyLock::new(|| {
    let mut capture = Vec::new();
    flate2::read::GzDecoder::new(CAPTURE).read_to_end(&mut capture).expect("gzip");
    let (mut parser, mut at) = (CaptureParser::new(), 0);
    let mut found = BTreeMap::<u16, Vec<OwnedPacket>>::new();
    while let Ok(step) = parser.next(&capture[at..]) {
        match step {
            Step::Packet { packet, consumed } => {
                let segment = frame::decode(&packet).expect("a segment");
                let port = segment.source.port.max(segment.destination.port);
                found.entry(port).or_default().push(OwnedPacket::from(&packet));
                at += consumed;
            }
            Step::Skip { consumed } | Step::Secrets { consumed, .. } => at += consumed,
            Step::Need { .. } => break,
        }
    }
    // The long ones say nothing that the short ones do not.
    found.into_values().filter(|packets| packets.len() < 60).collect()
});

fn read_keys(log: &[u8], keys: &KeyLog, pieces: usize) -> KeyLogReader {
    let mut reader = KeyLogReader::default();
    log.chunks(pieces.max(1)).for_each(|piece| reader.read(piece, keys));
    reader.finish(keys);
    reader
}

/// Takes an input.
pub fn run(data: &[u8]) {
    let (whole, pieces) = (KeyLog::default(), KeyLog::default());
    let one = read_keys(data, &whole, data.len());
    let other = read_keys(data, &pieces, data.first().map_or(1, |first| usize::from(*first)));
    assert_eq!((one.coverage, whole.sessions()), (other.coverage, pieces.sessions()));

    let mut input = Input(data);
    let keys = Arc::new(KeyLog::default());
    keys.set_in_use();
    let (which, how) = (usize::from(input.byte()), input.byte());
    if how & 1 != 0 {
        keys.set_growing();
    }
    if how & 2 == 0 {
        read_keys(KEYS, &keys, KEYS.len());
    }
    let mut decoder = CheckedDecoder::with(Settings { keys: Some(keys.clone()), ..Settings::default() });
    let mut take = |packet: &OwnedPacket| {
        decoder.take(packet.time, |decoder, operations| decoder.packet(&packet.as_packet(), operations));
    };
    let mut held = None;
    for packet in &CONNECTIONS[which % CONNECTIONS.len()] {
        let mut packet = packet.clone();
        debug_assert_eq!(packet.link, LinkType::Ethernet);
        let payload = packet.data.len().saturating_sub(HEADERS);
        match input.byte() {
            200..=209 => continue,
            210..=219 => take(&packet),
            220..=229 => {
                if let Some(before) = held.replace(packet) {
                    take(&before);
                }
                continue;
            }
            230..=239 if payload > 0 => {
                let at = HEADERS + usize::from(input.u16()) % payload;
                packet.data[at] ^= input.byte();
            }
            240..=247 if payload > 0 => packet.snap(HEADERS + usize::from(input.u16()) % payload),
            248..=251 => packet.time = packet.time.plus_ns(u64::from(input.u16()) * 1_000_000),
            252..=255 => drop(read_keys(KEYS, &keys, KEYS.len())),
            _ => {}
        }
        take(&packet);
        if let Some(before) = held.take() {
            take(&before);
        }
    }
    decoder.finish();
}
