//! Decodes the mixed frames of the bench ROUNDS times, for a tool that counts instructions: `frame_instructions
//! ours|etherparse|nothing ROUNDS`, or `frame_instructions pcap FILE` to write them as a capture file for other
//! programs. The difference between runs with different ROUNDS does not include the start-up.

use std::error::Error;
use std::hint::black_box;

use etherparse::SlicedPacket;
use sonar_core::Packet;
use sonar_decode::frame::decode;
use sonar_decode::testing::{OwnedPacket, mixed_frames, pcap};

const FRAMES: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, argument] = &arguments[..] else {
        return Err("usage: frame_instructions ours|etherparse|nothing ROUNDS, or pcap FILE".into());
    };
    let decoder: fn(&Packet<'_>) = match what.as_str() {
        "ours" => |frame| {
            _ = black_box(&decode(frame));
        },
        "etherparse" => |frame| {
            _ = black_box(&SlicedPacket::from_ethernet(frame.data));
        },
        "nothing" => |_| {},
        "pcap" => {
            std::fs::write(argument, pcap(&mixed_frames(100_000)))?;
            return Ok(());
        }
        other => return Err(format!("{other}: not ours, etherparse, nothing or pcap").into()),
    };
    let rounds: u32 = argument.parse()?;
    let frames = mixed_frames(FRAMES);
    let frames: Vec<Packet<'_>> = frames.iter().map(OwnedPacket::as_packet).collect();
    for _ in 0..rounds {
        for frame in &frames {
            decoder(black_box(frame));
        }
    }
    Ok(())
}
