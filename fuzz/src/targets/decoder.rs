//! A capture file through everything, from its frames to operations: no panic, the counters balance after
//! each packet, and nothing goes on after the end.

use crate::decode;
use sonar_decode::capture_file::{CaptureParser, Step};
use sonar_decode::testing::OwnedPacket;

/// So many packets of a file are read.
const MOST: usize = 400;

/// Takes an input.
pub fn run(file: &[u8]) {
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
}
