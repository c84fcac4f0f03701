//! Any bytes as a packet of any link: no panic, the payload lies in the packet, and the quick way for
//! ordinary Ethernet frames gives what the careful one gives for the IP packet inside.

use sonar_core::{LinkType, Packet, Timestamp};
use sonar_decode::frame::decode;

const LINKS: [u16; 9] = [1, 0, 101, 108, 113, 228, 229, 276, 999];

/// Takes an input.
pub fn run(input: &[u8]) {
    let [link, cut, data @ ..] = input else { return };
    let link = LinkType::from_number(LINKS[usize::from(*link) % LINKS.len()]);
    let packet = Packet {
        time: Timestamp::default(),
        link,
        interface: 0,
        direction: Default::default(),
        loopback: false,
        vlan_tci: None,
        wire_len: data.len() as u32 + u32::from(*cut) * 7,
        data,
    };
    let segment = decode(&packet);
    if let Ok(segment) = segment {
        let (whole, payload) = (data.as_ptr_range(), segment.payload.as_ptr_range());
        assert!(segment.payload.is_empty() || whole.start <= payload.start && payload.end <= whole.end);
    }
    if link == LinkType::Ethernet
        && let Some(at) = ip_at(data)
        && let Some(ip) = data.get(at..)
        && matches!(ip.first(), Some(first) if matches!(first >> 4, 4 | 6))
    {
        let version = if data[at - 1] == 0 { 4 } else { 6 };
        if ip[0] >> 4 != version {
            return;
        }
        let inner = Packet { link: LinkType::Raw, data: ip, wire_len: packet.wire_len - at as u32, ..packet };
        match (segment, decode(&inner)) {
            (Ok(a), Ok(b)) => {
                assert_eq!((a.source, a.destination, a.seq, a.ack), (b.source, b.destination, b.seq, b.ack));
                assert_eq!((a.flags, a.payload, a.missing), (b.flags, b.payload, b.missing));
            }
            (a, b) => assert_eq!(a.err(), b.err()),
        }
    }
}

/// Where the IP packet begins, after four VLAN tags at most.
fn ip_at(data: &[u8]) -> Option<usize> {
    let mut at = 14;
    for _ in 0..=4 {
        match data.get(at - 2..at)? {
            [0x08, 0x00] | [0x86, 0xdd] => return Some(at),
            [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00] => at += 4,
            _ => return None,
        }
    }
    None
}
