//! Mirrored and overlay traffic: packets inside packets. Headers are those of the specifications, byte by byte.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;
use sonar_core::{Endpoint, LinkType, Operation, Packet, Timestamp};
use sonar_decode::frame::{MAX_TUNNELS, Segment, Skip, decode};
use sonar_decode::testing::{ACK, Conversation, ConversationEnd, OwnedPacket, PSH, TestFrame, op_msg};
use sonar_decode::{Decoder, Settings, Shared, Sink};

const OUTER_V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const OUTER_V6: [&str; 2] = ["2001:db8:ffff::1", "2001:db8:ffff::2"];

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn inner(link: LinkType) -> TestFrame {
    TestFrame {
        link,
        seq: 0x1234_5678,
        ack: 0x9abc_def0,
        flags: PSH | ACK,
        payload: b"hello, sonar".to_vec(),
        ..TestFrame::new(end("10.0.0.9:51234"), end("10.0.0.1:27017"))
    }
}

fn inner_v6(link: LinkType) -> TestFrame {
    let (source, destination) = (end("[2001:db8::9]:51234"), end("[2001:db8::1]:27017"));
    TestFrame { source, destination, ..inner(link) }
}

/// An IP packet of this protocol between two outer addresses.
fn ip(protocol: u8, ends: [&str; 2], content: &[u8]) -> Vec<u8> {
    let [source, destination] = ends.map(|end| end.parse::<IpAddr>().unwrap());
    let mut out = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = (20 + content.len() as u16).to_be_bytes();
            out.extend([0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let len = (content.len() as u16).to_be_bytes();
            out.extend([0x60, 0, 0, 0, len[0], len[1], protocol, 64]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        _ => panic!("two families"),
    }
    out.extend(content);
    out
}

fn udp(port: u16, content: &[u8]) -> Vec<u8> {
    let len = (8 + content.len() as u16).to_be_bytes();
    [&50_000_u16.to_be_bytes()[..], &port.to_be_bytes(), &len, &[0, 0], content].concat()
}

fn ethernet(ethertype: u16, content: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &ethertype.to_be_bytes()[..], content].concat()
}

/// A frame around an IP packet.
fn frame(ip: &[u8]) -> Vec<u8> {
    ethernet(if ip[0] >> 4 == 4 { 0x0800 } else { 0x86dd }, ip)
}

fn ethertype(frame: &TestFrame) -> u16 {
    if frame.source.is_ipv4() { 0x0800 } else { 0x86dd }
}

/// Every tunnel around Ethernet or IP, between these addresses: its name and the frame.
fn tunnels(inner: &TestFrame, ends: [&str; 2]) -> Vec<(&'static str, Vec<u8>)> {
    let bridged = TestFrame { link: LinkType::Ethernet, ..inner.clone() }.bytes();
    let tagged =
        TestFrame { link: LinkType::Ethernet, vlans: vec![(0x88a8, 7), (0x8100, 9)], ..inner.clone() }
            .bytes();
    let bare = TestFrame { link: LinkType::Raw, ..inner.clone() }.bytes();
    let kind = ethertype(inner).to_be_bytes();
    let protocol = if inner.source.is_ipv4() { 4 } else { 41 };
    let head = |header: &[u8], content: &[u8]| [header, content].concat();
    let over_ip = |protocol, content: &[u8]| frame(&ip(protocol, ends, content));
    let over_udp = |port, content: &[u8]| over_ip(17, &udp(port, content));
    let vxlan = [0x08, 0, 0, 0, 0, 0x12, 0x34, 0];
    let erspan = [0x10, 0x07, 0x80, 0x64, 0, 0, 0, 1];
    let ppp = if inner.source.is_ipv4() { [0, 0x21] } else { [0, 0x57] };
    let label = |number: u32, bottom: u32| (number << 12 | bottom << 8 | 64).to_be_bytes();
    vec![
        ("VXLAN", over_udp(4789, &head(&vxlan, &bridged))),
        ("VXLAN with tags inside", over_udp(4789, &head(&vxlan, &tagged))),
        ("VXLAN at the port of Linux", over_udp(8472, &head(&vxlan, &bridged))),
        (
            "VXLAN-GPE",
            over_udp(4790, &head(&[0x0c, 0, 0, if protocol == 4 { 1 } else { 2 }, 0, 0, 5, 0], &bare)),
        ),
        ("VXLAN-GPE with Ethernet", over_udp(4790, &head(&[0x0c, 0, 0, 3, 0, 0, 5, 0], &bridged))),
        ("GENEVE", over_udp(6081, &head(&[0, 0, 0x65, 0x58, 0, 0x12, 0x34, 0], &bridged))),
        (
            "GENEVE with options",
            over_udp(6081, &head(&[2, 0x40, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 0x80, 1, 9, 9, 9, 9], &bridged)),
        ),
        ("GENEVE with IP", over_udp(6081, &head(&[0, 0, kind[0], kind[1], 0, 0, 5, 0], &bare))),
        ("GRE", over_ip(47, &head(&[0, 0, kind[0], kind[1]], &bare))),
        ("GRE with Ethernet", over_ip(47, &head(&[0, 0, 0x65, 0x58], &bridged))),
        ("GRE with a key", over_ip(47, &head(&[0x20, 0, kind[0], kind[1], 0, 0, 0, 7], &bare))),
        (
            "GRE with all fields",
            over_ip(47, &head(&[0xb0, 0, kind[0], kind[1], 1, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], &bare)),
        ),
        ("GRE over UDP", over_udp(4754, &head(&[0, 0, kind[0], kind[1]], &bare))),
        ("ERSPAN I", over_ip(47, &head(&[0, 0, 0x88, 0xbe], &bridged))),
        ("ERSPAN II", over_ip(47, &[&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1], &erspan[..], &bridged].concat())),
        (
            "ERSPAN III",
            over_ip(
                47,
                &[
                    &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1],
                    &[0x20, 7, 0x80, 0x64, 0, 0, 0, 9, 0, 0, 0, 0][..],
                    &bridged,
                ]
                .concat(),
            ),
        ),
        (
            "ERSPAN III with a subheader",
            over_ip(
                47,
                &[
                    &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1],
                    &[0x20, 7, 0x80, 0x64, 0, 0, 0, 9, 0, 0, 0x80, 1, 0x28, 0, 0, 0, 0, 0, 0, 0][..],
                    &bridged,
                ]
                .concat(),
            ),
        ),
        (
            "ERSPAN III with IP",
            over_ip(
                47,
                &[
                    &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1],
                    &[0x20, 7, 0x80, 0x64, 0, 0, 0, 9, 0, 0, 0x88, 0][..],
                    &bare,
                ]
                .concat(),
            ),
        ),
        ("IP in IP", over_ip(protocol, &bare)),
        ("MPLS", ethernet(0x8847, &[&label(100, 0)[..], &label(200, 1), &bare].concat())),
        ("MPLS with Ethernet", ethernet(0x8847, &[&label(100, 1)[..], &[0, 0, 0, 0], &bridged].concat())),
        ("MPLS without a control word", ethernet(0x8848, &head(&label(100, 1), &bridged))),
        ("MPLS in IP", over_ip(137, &head(&label(100, 1), &bare))),
        ("MPLS over UDP", over_udp(6635, &head(&label(100, 1), &bare))),
        (
            "PPPoE",
            ethernet(
                0x8864,
                &[&[0x11, 0, 0, 7], &(2 + bare.len() as u16).to_be_bytes()[..], &ppp, &bare].concat(),
            ),
        ),
        (
            "PPPoE with a short protocol",
            ethernet(
                0x8864,
                &[&[0x11, 0, 0, 7], &(1 + bare.len() as u16).to_be_bytes()[..], &ppp[1..], &bare].concat(),
            ),
        ),
        ("two tags around GRE", {
            let gre = ip(47, ends, &head(&[0, 0, kind[0], kind[1]], &bare));
            let outer = if gre[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
            ethernet(0x88a8, &[&[0, 1, 0x81, 0, 0, 2], &outer[..], &gre].concat())
        }),
    ]
}

fn packet(data: &[u8]) -> Packet<'_> {
    Packet {
        time: Timestamp::from_unix(1_777_629_600, 7),
        link: LinkType::Ethernet,
        interface: 0,
        direction: Default::default(),
        loopback: false,
        vlan_tci: None,
        wire_len: data.len() as u32,
        data,
    }
}

#[track_caller]
fn assert_inner(frame: &TestFrame, segment: &Segment<'_>, name: &str) {
    assert_eq!(segment.source, Endpoint::from(frame.source), "{name}");
    assert_eq!(segment.destination, Endpoint::from(frame.destination), "{name}");
    assert_eq!((segment.seq, segment.ack), (frame.seq, frame.ack), "{name}");
    assert_eq!((segment.payload, segment.missing), (&*frame.payload, 0), "{name}");
    assert!(segment.is_tunnelled(), "{name}");
}

#[test]
fn the_inner_addresses_count_in_every_tunnel() {
    for inner in [inner(LinkType::Raw), inner_v6(LinkType::Raw)] {
        for ends in [OUTER_V4, OUTER_V6] {
            for (name, bytes) in tunnels(&inner, ends) {
                assert_inner(
                    &inner,
                    &decode(&packet(&bytes)).unwrap_or_else(|skip| panic!("{name}: {skip:?}")),
                    name,
                );
            }
        }
        let plain = TestFrame { link: LinkType::Ethernet, ..inner }.bytes();
        assert!(!decode(&packet(&plain)).unwrap().is_tunnelled());
    }
}

#[test]
fn tunnels_are_nested_up_to_a_cap() {
    let inner = inner(LinkType::Raw);
    let mut bytes = TestFrame { link: LinkType::Raw, ..inner.clone() }.bytes();
    for depth in 1..=MAX_TUNNELS + 1 {
        bytes = ip(4, OUTER_V4, &bytes);
        let framed = frame(&bytes);
        match decode(&packet(&framed)) {
            Ok(segment) if depth <= MAX_TUNNELS => assert_inner(&inner, &segment, "nested"),
            Err(Skip::TooDeep) if depth > MAX_TUNNELS => {}
            other => panic!("{depth}: {other:?}"),
        }
    }
    // VXLAN in GRE in MPLS.
    let bridged = TestFrame { link: LinkType::Ethernet, ..inner.clone() }.bytes();
    let vxlan = ip(17, OUTER_V4, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &bridged[..]].concat()));
    let gre = ip(47, OUTER_V6, &[&[0, 0, 8, 0], &vxlan[..]].concat());
    let mpls = ethernet(0x8847, &[&[0, 0x10, 0x01, 64], &gre[..]].concat());
    assert_inner(&inner, &decode(&packet(&mpls)).unwrap(), "VXLAN in GRE in MPLS");
}

#[test]
fn records_of_nflog_are_read_in_either_byte_order() {
    for frame in [inner(LinkType::Raw), inner_v6(LinkType::Raw)] {
        let bare = frame.bytes();
        for little in [true, false] {
            let number = |number: u16| if little { number.to_le_bytes() } else { number.to_be_bytes() };
            let mut bytes = vec![2, 0, 0, 5];
            // The packet header, a prefix of 5 bytes with its padding, then the payload.
            bytes.extend([number(8), number(1)].concat());
            bytes.extend([8, 0, 1, 0]);
            bytes.extend([number(9), number(10)].concat());
            bytes.extend(*b"log: \0\0\0");
            bytes.extend([number(4 + bare.len() as u16), number(9)].concat());
            bytes.extend(&bare);
            let packet = Packet { link: LinkType::from_number(239), ..packet(&bytes) };
            let segment = decode(&packet).unwrap();
            assert_eq!(segment.source, Endpoint::from(frame.source), "{little}");
            assert_eq!(segment.payload, frame.payload);
        }
    }
    let empty = Packet { link: LinkType::Nflog, ..packet(&[2, 0, 0, 5]) };
    assert_eq!(decode(&empty).unwrap_err(), Skip::NotIp);
}

#[test]
fn what_is_no_tunnel_stays_what_it_is() {
    let bridged = inner(LinkType::Ethernet).bytes();
    let skip = |bytes: &[u8]| decode(&packet(bytes)).unwrap_err();
    assert_eq!(skip(&frame(&ip(17, OUTER_V4, &udp(53, &bridged)))), Skip::NotTcp);
    // The flag of a valid number is missing.
    assert_eq!(skip(&frame(&ip(17, OUTER_V4, &udp(4789, &[&[0; 8], &bridged[..]].concat())))), Skip::NotTcp);
    // PPTP.
    assert_eq!(skip(&frame(&ip(47, OUTER_V4, &[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0]))), Skip::NotTcp);
    // ARP, and a tunnel that is cut.
    let arp = ethernet(0x0806, &[0; 28]);
    assert_eq!(
        skip(&frame(&ip(17, OUTER_V4, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &arp[..]].concat())))),
        Skip::NotIp
    );
    assert_eq!(skip(&frame(&ip(47, OUTER_V4, &[0, 0]))), Skip::HeaderMalformed);
    // A fragment of a tunnel: only the first one has the tunnel's header.
    let mut fragment = frame(&ip(47, OUTER_V4, &[0, 0, 8, 0]));
    fragment[14 + 6] = 0x20;
    assert_eq!(skip(&fragment), Skip::Fragment);
}

/// Counts operations, and from where they came.
#[derive(Default)]
struct Count(Vec<String>);

impl Sink for Count {
    fn operation(&mut self, op: &Operation<'_>) {
        self.0.push(op.client.to_string());
    }
}

/// Five finds, each packet in the tunnel that `wrap` makes of the number of its copy.
fn run(wrap: impl Fn(usize, &OwnedPacket) -> Option<Vec<u8>>) -> (Vec<String>, sonar_core::Coverage) {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake();
    let document = |key: &str| bson::doc! {key: 1, "$db": "shop"}.to_vec().unwrap();
    for id in 1..=5 {
        talk.send(ConversationEnd::Client, &op_msg(id, 0, &document("find")));
        talk.send(ConversationEnd::Server, &op_msg(100 + id, id, &bson::doc! {"ok": 1.0}.to_vec().unwrap()));
    }
    let (mut decoder, mut count) =
        (Decoder::new(Settings::default(), Arc::new(Shared::default())), Count::default());
    for plain in &talk.packets {
        for copy in 0..2 {
            let Some(data) = wrap(copy, plain) else { continue };
            decoder.packet(&OwnedPacket::new(plain.time, LinkType::Ethernet, data).as_packet(), &mut count);
        }
    }
    decoder.finish(talk.now(), &mut count);
    assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    (count.0, decoder.coverage())
}

fn vxlan(number: u8, packet: &OwnedPacket) -> Vec<u8> {
    frame(&ip(17, OUTER_V4, &udp(4789, &[&[8, 0, 0, 0, 0, 0, number, 0], &packet.data[..]].concat())))
}

#[test]
fn mirrored_packets_are_decoded_and_counted() {
    let (clients, coverage) = run(|copy, plain| (copy == 0).then(|| vxlan(7, plain)));
    assert_eq!(clients, vec!["10.0.0.9:51234"; 5]);
    assert_eq!((coverage.frames_tunnelled, coverage.frames), (13, 13));
    assert_eq!(coverage.losses().count(), 0, "{coverage:?}");
}

/// Makes other packets of the packet with this number.
type Wrap = dyn Fn(usize, &OwnedPacket) -> Vec<u8>;

#[test]
fn the_same_packet_in_two_tunnels_or_with_and_without_one_counts_once() {
    let cases: [(&str, &Wrap); 3] = [
        ("by itself and mirrored", &|copy, plain| {
            if copy == 0 { plain.data.clone() } else { vxlan(7, plain) }
        }),
        ("two networks", &|copy, plain| vxlan(7 + copy as u8, plain)),
        ("two mirrors", &|copy, plain| {
            let ends = [["192.0.2.1", "192.0.2.9"], ["192.0.2.2", "192.0.2.9"]][copy];
            frame(&ip(47, ends, &[&[0, 0, 0x65, 0x58], &plain.data[..]].concat()))
        }),
    ];
    for (name, wrap) in cases {
        let (clients, coverage) = run(|copy, plain| Some(wrap(copy, plain)));
        assert_eq!(clients.len(), 5, "{name}");
        assert_eq!((coverage.frames_twin_interface, coverage.frames), (13, 26), "{name} {coverage:?}");
        assert_eq!(coverage.segments_duplicate, 0, "they are no retransmissions: {name}");
    }
}

/// A mirror that cuts packets does not say so: the length that the inner packet states does.
#[test]
fn a_packet_that_a_mirror_has_cut_misses_its_end() {
    let mut cut = inner(LinkType::Ethernet).bytes();
    cut.truncate(cut.len() - 5);
    let bytes = frame(&ip(47, OUTER_V4, &[&[0, 0, 0x65, 0x58], &cut[..]].concat()));
    let packet = packet(&bytes);
    let segment = decode(&packet).unwrap();
    assert_eq!((segment.payload, segment.missing), (&b"hello, "[..], 5));
}

proptest! {
    /// Damage gives a reason or a segment, and no panic.
    #[test]
    fn damaged_tunnels_do_no_harm(which in 0..26_usize, v6: bool, at in 0..200_usize, byte: u8, cut in 0..300_usize) {
        let inner = if v6 { inner_v6(LinkType::Raw) } else { inner(LinkType::Raw) };
        let all = tunnels(&inner, OUTER_V4);
        let mut bytes = all[which % all.len()].1.clone();
        let len = bytes.len();
        bytes[at % len] = byte;
        bytes.truncate(cut);
        let _ = decode(&packet(&bytes));
        let _ = decode(&Packet { link: LinkType::Nflog, ..packet(&bytes) });
    }
}
