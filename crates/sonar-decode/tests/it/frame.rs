//! Headers of packets: real bytes, synthetic ones compared with etherparse, and every kind of damage.

use std::net::SocketAddr;

use etherparse::{SlicedPacket, TransportSlice};
use proptest::prelude::*;
use sonar_core::{Endpoint, LinkType, Packet, Timestamp};
use sonar_decode::frame::{Segment, Skip, decode};
use sonar_decode::testing::{ACK, FIN, OwnedPacket, PSH, SYN, TestFrame, hex};

fn packet(link: LinkType, data: &[u8]) -> Packet<'_> {
    Packet {
        time: Timestamp::from_unix(1_777_629_600, 7),
        link,
        interface: 0,
        direction: Default::default(),
        loopback: false,
        vlan_tci: None,
        wire_len: data.len() as u32,
        data,
    }
}

fn ethernet(data: &[u8]) -> Packet<'_> {
    packet(LinkType::Ethernet, data)
}

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn v4() -> TestFrame {
    TestFrame {
        seq: 0x1234_5678,
        ack: 0x9abc_def0,
        flags: PSH | ACK,
        payload: b"hello, sonar".to_vec(),
        ..TestFrame::new(end("10.0.0.9:51234"), end("10.0.0.1:27017"))
    }
}

fn v6() -> TestFrame {
    let (source, destination) = (end("[2001:db8::9]:51234"), end("[2001:db8::1]:27017"));
    TestFrame { source, destination, ..v4() }
}

/// What every undamaged form of [`v4`] and [`v6`] must give.
#[track_caller]
fn assert_whole(frame: &TestFrame, segment: &Segment<'_>) {
    assert_eq!(segment.source, Endpoint::from(frame.source));
    assert_eq!(segment.destination, Endpoint::from(frame.destination));
    assert_eq!((segment.seq, segment.ack), (frame.seq, frame.ack));
    assert_eq!(segment.payload, frame.payload);
    assert_eq!(segment.missing, 0);
}

/// Frames that Linux sent to a mongod on loopback, as tcpdump captured them.
#[test]
fn real_frames() {
    // MSS, SACK, timestamps and window scale.
    let bytes = hex("000000000000 000000000000 0800 4500003cf3ef4000400648ca7f0000017f000001
         cd1a69eddb90681200000000a002ffd7fe3000000204ffd70402080a7b89b9c8000000000103030a");
    let segment = decode(&ethernet(&bytes)).unwrap();
    assert_eq!(segment.source.to_string(), "127.0.0.1:52506");
    assert_eq!(segment.destination.to_string(), "127.0.0.1:27117");
    assert_eq!((segment.seq, segment.ack), (0xdb90_6812, 0));
    assert_eq!(format!("{:?}", segment.flags), "[S]");
    assert_eq!((segment.payload, segment.missing), (&[][..], 0));
    assert_eq!(segment.time, Timestamp::from_unix(1_777_629_600, 7));

    let bytes = hex("000000000000 000000000000 86dd 6005b35d00280640
         00000000000000000000000000000001 00000000000000000000000000000001
         69edce3e6a910c107ce9fe71a012ffb8003000000204ffc40402080ababea564f43a79160103030a");
    let segment = decode(&ethernet(&bytes)).unwrap();
    assert_eq!(segment.source.to_string(), "[::1]:27117");
    assert_eq!(segment.destination.to_string(), "[::1]:52798");
    assert_eq!((segment.seq, segment.ack), (0x6a91_0c10, 0x7ce9_fe71));
    assert_eq!(format!("{:?}", segment.flags), "[S.]");

    // An aborted connection: 20 bytes of TCP, the shortest complete frame.
    let bytes = hex("000000000000 000000000000 0800 450000280000400040063cce7f0000017f000001
         bfda6a52c8864c9b0000000050040000728f0000");
    let segment = decode(&ethernet(&bytes)).unwrap();
    assert_eq!(format!("{:?}", segment.flags), "[R]");
    assert!(segment.flags.rst() && !segment.flags.ack());
}

#[test]
fn every_link_type_leads_to_the_same_segment() {
    for frame in [v4(), v6()] {
        let own = if frame.source.is_ipv4() { LinkType::Ipv4 } else { LinkType::Ipv6 };
        for link in [
            LinkType::Ethernet,
            LinkType::LinuxCooked,
            LinkType::LinuxCooked2,
            LinkType::Null,
            LinkType::Loop,
            LinkType::Raw,
            own,
        ] {
            let frame = TestFrame { link, ..frame.clone() };
            assert_whole(&frame, &decode(&packet(link, &frame.bytes())).unwrap());
        }
    }
}

#[test]
fn bsd_null_takes_either_byte_order_and_every_number_of_ipv6() {
    let ip = TestFrame { link: LinkType::Raw, ..v6() }.bytes();
    for family in [10_u32, 24, 28, 30] {
        for header in [family.to_le_bytes(), family.to_be_bytes()] {
            let bytes = [&header[..], &ip].concat();
            assert_whole(&v6(), &decode(&packet(LinkType::Null, &bytes)).unwrap());
        }
    }
    let bytes = [&7_u32.to_le_bytes()[..], &ip].concat();
    assert_eq!(decode(&packet(LinkType::Null, &bytes)).unwrap_err(), Skip::NotIp);
}

#[test]
fn vlan_tags_are_skipped_and_distinguish_places() {
    let place = |vlans: &[(u16, u16)], stripped: Option<u16>, interface: u32| {
        let frame = TestFrame { vlans: vlans.to_vec(), ..v4() };
        let mut packet = OwnedPacket::new(Timestamp::default(), LinkType::Ethernet, frame.bytes());
        packet.vlan_tci = stripped;
        packet.interface = interface;
        let packet = packet.as_packet();
        let segment = decode(&packet).unwrap();
        assert_whole(&frame, &segment);
        segment.place
    };
    let plain = place(&[], None, 0);
    let seven = place(&[(0x8100, 7)], None, 0);
    assert_ne!(plain, seven);
    assert_ne!(plain, place(&[], None, 1));
    assert_ne!(seven, place(&[(0x8100, 8)], None, 0));
    // Priority bits, the kind of the tag and whether the kernel removed it do not change the place.
    assert_eq!(seven, place(&[(0x8100, 0xe007)], None, 0));
    assert_eq!(seven, place(&[], Some(0x6007), 0));
    assert_eq!(seven, place(&[(0x9100, 7)], None, 0));
    assert_eq!(plain, place(&[(0x8100, 0x6000)], None, 0), "VLAN 0 is a priority, not a VLAN");
    let stacked = place(&[(0x88a8, 7), (0x8100, 9)], None, 0);
    assert_eq!(stacked, place(&[(0x8100, 9)], Some(7), 0));
    assert_ne!(stacked, place(&[(0x88a8, 9), (0x8100, 7)], None, 0));
    place(&[(0x88a8, 1), (0x8100, 2), (0x8100, 3), (0x8100, 4)], None, 0);

    let five = TestFrame { vlans: vec![(0x8100, 1); 5], ..v4() }.bytes();
    assert_eq!(decode(&ethernet(&five)).unwrap_err(), Skip::HeaderMalformed);
    let cooked = TestFrame { link: LinkType::LinuxCooked, vlans: vec![(0x8100, 7)], ..v4() }.bytes();
    assert_eq!(decode(&packet(LinkType::LinuxCooked, &cooked)).unwrap().place, seven);
}

#[test]
fn linux_cooked_v2_names_the_interface() {
    let bytes = TestFrame { link: LinkType::LinuxCooked2, ..v4() }.bytes();
    let third = OwnedPacket {
        interface: 3,
        ..OwnedPacket::new(Timestamp::default(), LinkType::Ethernet, v4().bytes())
    };
    assert_eq!(
        decode(&packet(LinkType::LinuxCooked2, &bytes)).unwrap().place,
        decode(&third.as_packet()).unwrap().place
    );
}

#[test]
fn options_and_extension_headers_are_skipped() {
    let options = [1; 12].to_vec();
    for frame in [
        TestFrame { tcp_options: options.clone(), ..v4() },
        TestFrame { tcp_options: [1; 40].to_vec(), ip_options: [1; 40].to_vec(), ..v4() },
        TestFrame { tcp_options: options.clone(), ..v6() },
        TestFrame { extensions: vec![(0, vec![0, 0, 1, 4, 0, 0, 0, 0])], ..v6() },
        TestFrame {
            extensions: vec![
                (0, vec![0, 0, 1, 4, 0, 0, 0, 0]),
                (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (43, vec![0, 0, 4, 0, 0, 0, 0, 0]),
                (44, vec![0; 8]), // an atomic fragment
                (51, vec![0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
                (60, vec![0, 0, 1, 4, 0, 0, 0, 0]),
            ],
            tcp_options: options,
            ..v6()
        },
    ] {
        assert_whole(&frame, &decode(&ethernet(&frame.bytes())).unwrap());
    }
    let endless = TestFrame { extensions: vec![(60, vec![0; 8]); 9], ..v6() };
    assert_eq!(decode(&ethernet(&endless.bytes())).unwrap_err(), Skip::HeaderMalformed);
}

#[test]
fn padding_of_short_frames_is_no_payload() {
    for payload in [&b""[..], b"abc"] {
        let frame = TestFrame { payload: payload.to_vec(), ..v4() };
        let mut bytes = frame.bytes();
        bytes.resize(60, 0x55);
        assert_whole(&frame, &decode(&ethernet(&bytes)).unwrap());
    }
}

#[test]
fn frames_above_the_mtu_are_whole() {
    for frame in [v4(), v6()] {
        for len in [9_000, 65_000, 200_000] {
            // 200,000 bytes do not fit into the length field, which is then 0.
            let frame = TestFrame { payload: vec![7; len], ..frame.clone() };
            assert_whole(&frame, &decode(&ethernet(&frame.bytes())).unwrap());
        }
    }
}

#[test]
fn a_jumbo_payload_option_gives_the_length() {
    // Hop-by-hop, two bytes of padding by Pad1, then the option: 8 + 20 + 100,000.
    let len = 100_028_u32.to_be_bytes();
    let padded = vec![0, 1, 0, 0, 0xc2, 4, len[0], len[1], len[2], len[3], 1, 4, 0, 0, 0, 0];
    let plain = vec![0, 0, 0xc2, 4, len[0], len[1], len[2], len[3]];
    for (header, payload) in [(plain, 100_000), (padded, 99_992)] {
        let frame = TestFrame { extensions: vec![(0, header)], payload: vec![7; payload], ..v6() };
        let mut bytes = frame.bytes();
        bytes.extend([0xee; 4]); // a frame check sequence that is no payload
        assert_whole(&frame, &decode(&ethernet(&bytes)).unwrap());
    }
}

#[test]
fn a_snap_length_leaves_the_number_of_missing_bytes() {
    for frame in [v4(), v6(), TestFrame { tcp_options: vec![1; 12], ..v4() }] {
        let whole = frame.bytes();
        let payload_at = whole.len() - frame.payload.len();
        let tcp_at = payload_at - frame.tcp_options.len() - 20;
        for len in 0..whole.len() {
            let cut = Packet { wire_len: whole.len() as u32, ..ethernet(&whole[..len]) };
            match decode(&cut) {
                Ok(segment) => {
                    assert!(len >= tcp_at + 20, "{len}");
                    let captured = len.saturating_sub(payload_at);
                    assert_eq!(segment.payload, &frame.payload[..captured]);
                    assert_eq!(segment.missing as usize, frame.payload.len() - captured);
                    assert_eq!(segment.seq, frame.seq);
                }
                Err(skip) => {
                    assert!(len < tcp_at + 20, "{len}");
                    assert_eq!(skip, Skip::HeaderTruncated, "{len}");
                }
            }
        }
    }
    // The length field 0 of an offloaded packet, cut.
    let whole = TestFrame { payload: vec![7; 100_000], ..v4() }.bytes();
    let cut = Packet { wire_len: whole.len() as u32, ..ethernet(&whole[..200]) };
    let segment = decode(&cut).unwrap();
    assert_eq!((segment.payload.len(), segment.missing), (146, 99_854));
}

#[test]
fn other_packets_are_refused_with_a_reason() {
    let change = |frame: TestFrame, at: usize, to: u8| {
        let mut bytes = frame.bytes();
        bytes[at] = to;
        bytes
    };
    let fragment = |offset: u16, next: u8| TestFrame {
        extensions: vec![(44, vec![0, 0, (offset >> 8) as u8, offset as u8, 0, 0, 0, 1]), (next, vec![0; 8])],
        ..v6()
    };
    for (what, link, bytes, expected) in [
        ("ARP", LinkType::Ethernet, change(v4(), 13, 0x06), Skip::NotIp),
        ("UDP", LinkType::Ethernet, change(v4(), 23, 17), Skip::NotTcp),
        ("UDP over IPv6", LinkType::Ethernet, change(v6(), 20, 17), Skip::NotTcp),
        ("first fragment", LinkType::Ethernet, change(v4(), 20, 0x20), Skip::Fragment),
        ("later fragment", LinkType::Ethernet, change(v4(), 21, 0x10), Skip::Fragment),
        ("IPv6 first fragment", LinkType::Ethernet, fragment(1, 60).bytes(), Skip::Fragment),
        ("IPv6 later fragment", LinkType::Ethernet, fragment(8, 60).bytes(), Skip::Fragment),
        ("IPv6 fragment of UDP", LinkType::Ethernet, fragment(8, 17).bytes(), Skip::NotTcp),
        ("IPv4 header of 16 bytes", LinkType::Ethernet, change(v4(), 14, 0x44), Skip::HeaderMalformed),
        ("IPv6 in an IPv4 frame", LinkType::Ethernet, change(v4(), 14, 0x65), Skip::HeaderMalformed),
        ("IPv4 in an IPv6 frame", LinkType::Ethernet, change(v6(), 14, 0x45), Skip::HeaderMalformed),
        ("total length below the header", LinkType::Ethernet, change(v4(), 17, 19), Skip::HeaderMalformed),
        ("TCP header of 16 bytes", LinkType::Ethernet, change(v4(), 46, 0x40), Skip::HeaderMalformed),
        ("TCP header beyond the packet", LinkType::Ethernet, change(v4(), 46, 0xf0), Skip::HeaderMalformed),
        ("too short for anything", LinkType::Ethernet, vec![0; 13], Skip::HeaderMalformed),
        ("empty raw packet", LinkType::Raw, vec![], Skip::HeaderMalformed),
        ("raw garbage", LinkType::Raw, vec![0; 60], Skip::NotIp),
        ("802.11", LinkType::Other(105), v4().bytes(), Skip::LinkUnsupported),
    ] {
        assert_eq!(decode(&packet(link, &bytes)).err(), Some(expected), "{what}");
    }
}

fn frames() -> impl Strategy<Value = TestFrame> {
    let vlans = prop::collection::vec((prop_oneof![Just(0x8100_u16), Just(0x88a8)], any::<u16>()), 0..3);
    let tcp_options = (0..=10_usize).prop_map(|words| vec![1; words * 4]);
    let ip_options = (0..=10_usize).prop_map(|words| vec![1; words * 4]);
    let extension = prop_oneof![
        (0..3_u8).prop_map(|words| (60, {
            let mut header = vec![0; usize::from(words) * 8 + 8];
            header[1] = words;
            header
        })),
        Just((43, vec![0; 8])),
        Just((44, vec![0; 8])),
    ];
    let extensions = prop::collection::vec(extension, 0..2);
    let numbers = (any::<u32>(), any::<u32>(), 0..32_u8, any::<[u8; 16]>(), any::<(u16, u16)>());
    let payload = prop::collection::vec(any::<u8>(), 0..80);
    (any::<bool>(), vlans, tcp_options, ip_options, extensions, numbers, payload).prop_map(
        |(v6, vlans, tcp_options, ip_options, extensions, (seq, ack, flags, addr, ports), payload)| {
            let (source, destination) = if v6 {
                ((addr, ports.0).into(), ([0x20; 16], ports.1).into())
            } else {
                (([addr[0], addr[1], addr[2], addr[3]], ports.0).into(), ([10, 0, 0, 1], ports.1).into())
            };
            let mut frame = TestFrame::new(source, destination);
            (frame.seq, frame.ack, frame.flags) = (seq, ack, flags);
            (frame.vlans, frame.tcp_options, frame.payload) = (vlans, tcp_options, payload);
            (frame.ip_options, frame.extensions) = (ip_options, extensions);
            frame
        },
    )
}

proptest! {
    #[test]
    fn etherparse_reads_the_same(frame in frames(), padding in 0..20_usize) {
        let mut bytes = frame.bytes();
        bytes.extend(vec![0xee; padding]);
        let packet = ethernet(&bytes);
        let ours = decode(&packet).unwrap();
        let theirs = SlicedPacket::from_ethernet(&bytes).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = theirs.transport else { panic!("no TCP: {theirs:?}") };
        let (source, destination) = match theirs.net.unwrap() {
            etherparse::NetSlice::Ipv4(ip) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            etherparse::NetSlice::Ipv6(ip) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(ours.source, SocketAddr::new(source, tcp.source_port()).into());
        prop_assert_eq!(ours.destination, SocketAddr::new(destination, tcp.destination_port()).into());
        prop_assert_eq!((ours.seq, ours.ack), (tcp.sequence_number(), tcp.acknowledgment_number()));
        prop_assert_eq!(
            (ours.flags.syn(), ours.flags.fin(), ours.flags.rst(), ours.flags.psh(), ours.flags.ack()),
            (tcp.syn(), tcp.fin(), tcp.rst(), tcp.psh(), tcp.ack())
        );
        prop_assert_eq!(ours.payload, tcp.payload());
        prop_assert_eq!(ours.missing, 0);
    }

    #[test]
    fn no_prefix_and_no_changed_byte_makes_it_panic(
        frame in frames(),
        link in prop_oneof![
            Just(0_u16), Just(1), Just(101), Just(108), Just(113), Just(228), Just(229), Just(276)
        ],
        more in 0..3_u32,
    ) {
        let link = LinkType::from_number(link);
        let whole = TestFrame { link, ..frame }.bytes();
        for len in 0..=whole.len() {
            check(&Packet { wire_len: len as u32 * more, ..packet(link, &whole[..len]) })?;
        }
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                check(&packet(link, &bytes))?;
            }
        }
    }

    #[test]
    fn no_garbage_makes_it_panic(link in 0..300_u16, data in prop::collection::vec(any::<u8>(), 0..120)) {
        check(&packet(LinkType::from_number(link), &data))?;
    }
}

/// Whatever the bytes are, the payload is inside the packet.
fn check(packet: &Packet<'_>) -> Result<(), TestCaseError> {
    if let Ok(segment) = decode(packet) {
        let packet = packet.data.as_ptr_range();
        let payload = segment.payload.as_ptr_range();
        prop_assert!(
            segment.payload.is_empty() || packet.start <= payload.start && payload.end <= packet.end
        );
    }
    Ok(())
}

#[test]
fn flags_read_as_tcpdump_writes_them() {
    let bytes = TestFrame { flags: SYN | FIN | ACK, ..v4() }.bytes();
    assert_eq!(format!("{:?}", decode(&ethernet(&bytes)).unwrap().flags), "[SF.]");
}
