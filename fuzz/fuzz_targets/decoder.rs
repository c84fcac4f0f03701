//! A capture file through everything, from its frames to operations: no panic, the counters balance after
//! each packet, and nothing goes on after the end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sonar_decode::capture_file::{CaptureParser, Step};
use sonar_decode::testing::OwnedPacket;
use sonar_fuzz::decode;

/// So many packets of a file are read.
const MOST: usize = 400;

fuzz_target!(|file: &[u8]| {
    let mut parser = CaptureParser::new();
    let (mut packets, mut at) = (Vec::new(), 0);
    while packets.len() < MOST {
        match parser.next(&file[at..]) {
            Ok(Step::Packet { packet, consumed }) => {
                packets.push(OwnedPacket::from(&packet));
                at += consumed;
            }
            Ok(Step::Skip { consumed } | Step::Secrets { consumed, .. }) => at += consumed,
            Ok(Step::Need { .. }) | Err(_) => break,
        }
    }
    decode(&packets);
});
