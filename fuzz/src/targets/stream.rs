//! Segments of one true conversation and of others, lost, doubled, reordered, overlapping, cut, with
//! wrong numbers and flags: no panic, and the counters balance after each.

use crate::{Input, conversation, decode};
use sonar_core::{LinkType, Timestamp};
use sonar_decode::testing::{OwnedPacket, TestFrame};

/// Takes an input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let (requests, replies) = (conversation(0), conversation(1));
    let wrap = u32::from(input.byte()) << 24;
    let mut time = Timestamp::from_unix(1_777_629_600, 0);
    let mut packets = Vec::new();
    while !input.is_empty() && packets.len() < 200 {
        let (what, flags) = (input.byte(), input.byte());
        let at = u32::from(input.u16());
        let len = usize::from(input.byte()) * 3;
        time = time.plus_ns(u64::from(input.byte()).pow(5));
        let (client, server) = (([10, 0, 0, 9], 50_000 + u16::from(what >> 6)), ([10, 0, 0, 1], 27_017));
        let from_client = what & 1 == 0;
        let (source, destination) = if from_client { (client, server) } else { (server, client) };
        let stream = if from_client { &requests } else { &replies };
        let mut frame = TestFrame::new(source.into(), destination.into());
        frame.flags = if what & 2 == 0 { 0x18 } else { flags };
        frame.seq = wrap.wrapping_add(at).wrapping_add(if what & 4 == 0 { 0 } else { 1 << 30 });
        frame.ack = wrap.wrapping_add(u32::from(flags) << 4);
        let begin = (at as usize).min(stream.len());
        frame.payload = stream[begin..(begin + len).min(stream.len())].to_vec();
        let mut packet = OwnedPacket::new(time, LinkType::Ethernet, frame.bytes());
        packet.interface = u32::from(what >> 4 & 1);
        if what & 8 != 0 {
            packet.snap(54 + usize::from(flags));
        }
        packets.push(packet);
    }
    decode(&packets);
}
