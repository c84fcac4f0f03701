//! Any bytes as a capture file: no panic, bounded needs, and the same packets and the same end however
//! the file comes in.

use sonar_decode::capture_file::{CaptureParser, Error, MAX_BLOCK_LEN, Step};
use sonar_decode::testing::OwnedPacket;

/// Takes an input.
pub fn run(input: &[u8]) {
    let [size, file @ ..] = input else { return };
    let whole = read(file, file.len());
    let in_pieces = read(file, usize::from(*size) + 1);
    assert_eq!(whole, in_pieces);
}

fn read(file: &[u8], size: usize) -> (Vec<OwnedPacket>, Result<(), Error>, u64) {
    let mut parser = CaptureParser::new();
    let mut packets = Vec::new();
    let (mut start, mut end) = (0, 0);
    loop {
        match parser.next(&file[start..end]) {
            Ok(Step::Packet { packet, consumed }) => {
                packets.push(OwnedPacket::from(&packet));
                start += consumed;
            }
            Ok(Step::Skip { consumed } | Step::Secrets { consumed, .. }) => {
                assert!(consumed > 0);
                start += consumed;
            }
            Ok(Step::Need { at_least }) => {
                assert!(at_least > end - start && at_least <= MAX_BLOCK_LEN as usize);
                if end == file.len() {
                    return (packets, parser.end(end - start), parser.dropped());
                }
                end = (end + size.max(1)).min(file.len());
            }
            Err(error) => return (packets, Err(error), parser.dropped()),
        }
        assert!(start <= end);
    }
}
