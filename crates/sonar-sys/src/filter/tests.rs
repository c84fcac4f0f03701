//! Runs the programs over packets, and compares them with tcpdump if it is installed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::classic_bpf::machine::{FilterPacket, run};

/// A frame to build: TCP by default.
#[derive(Clone)]
struct FrameSpec {
    tags: Vec<(u16, u16)>,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    protocol: u8,
    /// IPv4 options, in words.
    ip_options: u8,
    /// IPv4: fragment offset in units of eight bytes.
    fragment: u16,
    /// IPv6 extension headers: kind and length in bytes.
    extensions: Vec<(u8, usize)>,
    tcp_options: u8,
    payload: usize,
}

fn frame(source: (&str, u16), destination: (&str, u16)) -> FrameSpec {
    FrameSpec {
        tags: Vec::new(),
        source: (source.0.parse().unwrap(), source.1),
        destination: (destination.0.parse().unwrap(), destination.1),
        protocol: 6,
        ip_options: 0,
        fragment: 0,
        extensions: Vec::new(),
        tcp_options: 0,
        payload: 300,
    }
}

impl FrameSpec {
    fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source, ..self.clone() }
    }

    /// From the network header on.
    fn packet(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.source.1.to_be_bytes());
        tcp.extend(self.destination.1.to_be_bytes());
        tcp.extend([0; 8]);
        tcp.extend([(5 + self.tcp_options) << 4, 0x18, 1, 0, 0, 0, 0, 0]);
        tcp.resize(20 + 4 * usize::from(self.tcp_options) + self.payload, 0xee);
        let mut packet = Vec::new();
        match (self.source.0, self.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let words = 5 + self.ip_options;
                packet.extend([0x40 | words, 0]);
                packet.extend((u16::from(words) * 4 + tcp.len() as u16).to_be_bytes());
                packet.extend([0, 0]);
                packet.extend(self.fragment.to_be_bytes());
                packet.extend([64, self.protocol, 0, 0]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
                packet.resize(4 * usize::from(words), 1);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut chain: Vec<u8> = self.extensions.iter().map(|e| e.0).collect();
                chain.push(self.protocol);
                packet.extend([0x60, 0, 0, 0, 0, 0, chain[0], 64]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
                for (index, (kind, length)) in self.extensions.iter().enumerate() {
                    let units = if *kind == 51 { length / 4 - 2 } else { length / 8 - 1 };
                    let at = packet.len();
                    packet.extend([chain[index + 1], if *kind == 44 { 0 } else { units as u8 }]);
                    packet.resize(at + length, 0);
                    if *kind == 44 {
                        packet[at + 2..at + 4].copy_from_slice(&(self.fragment << 3 | 1).to_be_bytes());
                    }
                }
            }
            _ => panic!("two families"),
        }
        packet.extend(tcp);
        packet
    }

    fn ethertype(&self) -> u16 {
        if self.source.0.is_ipv4() { 0x0800 } else { 0x86dd }
    }

    fn ethernet(&self) -> FilterPacket {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (ethertype, tci) in &self.tags {
            bytes.extend(ethertype.to_be_bytes());
            bytes.extend(tci.to_be_bytes());
        }
        bytes.extend(self.ethertype().to_be_bytes());
        let network = bytes.len();
        bytes.extend(self.packet());
        let protocol = self.tags.first().map_or(self.ethertype(), |tag| tag.0);
        FilterPacket {
            bytes,
            network,
            protocol,
            hardware: libc::ARPHRD_ETHER,
            interface: 2,
            ..FilterPacket::default()
        }
    }

    fn on(&self, hardware: u16, header: &[u8]) -> FilterPacket {
        let mut bytes = header.to_vec();
        bytes.extend(self.packet());
        FilterPacket {
            bytes,
            network: header.len(),
            protocol: self.ethertype(),
            hardware,
            interface: 2,
            ..FilterPacket::default()
        }
    }

    fn ends(&self) -> (Endpoint, Endpoint) {
        (std::net::SocketAddr::from(self.source).into(), std::net::SocketAddr::from(self.destination).into())
    }
}

const C4: &str = "10.1.2.3";
const S4: &str = "10.9.8.7";
const C6: &str = "2001:db8::1:2:3";
const S6: &str = "2001:db8:5::9";

fn port(first: u16, last: u16) -> PacketFilter {
    PacketFilter { ports: vec![first..=last], ..PacketFilter::default() }
}

fn program(filter: &PacketFilter) -> Vec<Instruction> {
    filter.assemble(&Scope::default()).unwrap()
}

#[test]
fn every_layout_of_a_tcp_packet_is_recognised() {
    let program = program(&port(27017, 27019));
    let mut layouts = Vec::new();
    for (client, server) in [(C4, S4), (C6, S6)] {
        let plain = frame((client, 40000), (server, 27018));
        layouts.push(plain.clone());
        layouts.push(plain.reversed());
        for tags in [
            vec![(0x8100, 7)],
            vec![(0x88a8, 7)],
            vec![(0x9100, 0xe007)],
            vec![(0x88a8, 7), (0x8100, 8)],
            vec![(0x8100, 7), (0x8100, 8)],
        ] {
            layouts.push(FrameSpec { tags, ..plain.clone() });
        }
        layouts.push(FrameSpec { ip_options: 10, tcp_options: 10, ..plain.clone() });
        for extensions in [
            vec![(0, 8)],
            vec![(60, 24)],
            vec![(0, 16), (43, 24)],
            vec![(44, 8)],
            vec![(0, 8), (51, 24)],
            vec![(135, 8), (139, 8)],
            // More than the program follows: passed on whole.
            vec![(0, 8), (43, 8), (60, 8)],
        ] {
            layouts.push(FrameSpec { extensions, ..plain.clone() });
        }
    }
    for layout in layouts {
        for seen in [
            layout.ethernet(),
            layout.on(libc::ARPHRD_NONE, &[]),
            layout.on(libc::ARPHRD_INFINIBAND, &[0xaa; 24]),
        ] {
            assert_eq!(run(&program, &seen), WHOLE, "{:02x?}", &seen.bytes[..80]);
        }
    }
}

#[test]
fn other_packets_are_dropped() {
    let program = program(&port(27017, 27019));
    let plain = frame((C4, 40000), (S4, 27018));
    let v6 = frame((C6, 40000), (S6, 27018));
    for (what, frame) in [
        ("another port", frame((C4, 40000), (S4, 27020))),
        ("another port", frame((C4, 27016), (S4, 27016))),
        ("another port", frame((C6, 40000), (S6, 27016))),
        ("UDP", FrameSpec { protocol: 17, ..plain.clone() }),
        ("UDP", FrameSpec { protocol: 17, ..v6.clone() }),
        ("ICMPv6 behind hop-by-hop", FrameSpec { protocol: 58, extensions: vec![(0, 8)], ..v6.clone() }),
        ("a later fragment", FrameSpec { fragment: 1, ..plain.clone() }),
        ("a later fragment", FrameSpec { fragment: 0x1000, ..plain.clone() }),
        ("a later fragment", FrameSpec { fragment: 0x3000, ..plain.clone() }),
        ("a later fragment", FrameSpec { fragment: 1, extensions: vec![(44, 8)], ..v6.clone() }),
        ("three tags", FrameSpec { tags: vec![(0x8100, 1); 3], ..plain.clone() }),
        ("ESP", FrameSpec { protocol: 50, ..v6.clone() }),
    ] {
        for seen in
            [frame.ethernet(), frame.on(libc::ARPHRD_NONE, &[]), frame.on(libc::ARPHRD_INFINIBAND, &[0; 24])]
        {
            if what == "three tags" && seen.hardware != libc::ARPHRD_ETHER {
                continue;
            }
            assert_eq!(run(&program, &seen), 0, "{what}");
        }
    }
    let mut arp = plain.ethernet();
    arp.bytes[12..14].copy_from_slice(&0x0806u16.to_be_bytes());
    assert_eq!(run(&program, &arp), 0);
    for cut in 0..plain.ethernet().bytes.len() - 300 - 16 {
        let mut seen = plain.ethernet();
        seen.bytes.truncate(cut);
        assert_eq!(run(&program, &seen), 0, "cut to {cut}");
    }
}

#[test]
fn packets_of_tunnels_are_kept_where_they_are_wanted() {
    let without = port(27017, 27019);
    let with = PacketFilter { tunnels: true, ..without.clone() };
    let (without, with) = (program(&without), program(&with));
    let (v4, v6) = (frame((C4, 40000), (S4, 5)), frame((C6, 40000), (S6, 5)));
    let to = |frame: &FrameSpec, port| FrameSpec {
        protocol: 17,
        destination: (frame.destination.0, port),
        ..frame.clone()
    };
    let mut tunnels = Vec::new();
    for plain in [&v4, &v6] {
        tunnels.extend([4, 41, 47, 137].map(|protocol| FrameSpec { protocol, ..plain.clone() }));
        tunnels.extend([4789, 4790, 8472, 6081, 4754, 6635].map(|port| to(plain, port)));
        tunnels.push(FrameSpec { tags: vec![(0x88a8, 7), (0x8100, 8)], ..to(plain, 4789) });
    }
    tunnels.push(FrameSpec { ip_options: 10, ..to(&v4, 6081) });
    // As Linux sends GRE over IPv6: with a limit of encapsulations.
    tunnels.push(FrameSpec { protocol: 47, extensions: vec![(60, 8)], ..v6.clone() });
    tunnels.push(FrameSpec { extensions: vec![(0, 8), (60, 16)], ..to(&v6, 4789) });
    for frame in &tunnels {
        for seen in
            [frame.ethernet(), frame.on(libc::ARPHRD_NONE, &[]), frame.on(libc::ARPHRD_INFINIBAND, &[0; 24])]
        {
            assert_eq!((run(&with, &seen), run(&without, &seen)), (WHOLE, 0), "protocol {}", frame.protocol);
        }
    }
    for ethertype in [0x8847u16, 0x8848, 0x8864] {
        let mut seen = v4.ethernet();
        seen.bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        seen.protocol = ethertype;
        assert_eq!((run(&with, &seen), run(&without, &seen)), (WHOLE, 0), "{ethertype:#x}");
    }
    // TCP as before, and nothing else.
    for (frame, kept) in [
        (frame((C4, 40000), (S4, 27018)), true),
        (frame((C6, 27017), (S6, 40000)), true),
        (v4.clone(), false),
        (v6.clone(), false),
        (to(&v4, 53), false),
        (to(&v6, 27017), false),
        (FrameSpec { fragment: 5, ..to(&v4, 4789) }, false),
        (FrameSpec { protocol: 50, ..v4 }, false),
        (FrameSpec { protocol: 58, extensions: vec![(0, 8)], ..v6 }, false),
    ] {
        assert_eq!(run(&with, &frame.ethernet()) > 0, kept, "{:?} {}", frame.destination, frame.protocol);
    }
}

#[test]
fn a_first_fragment_is_kept() {
    let more_fragments = FrameSpec { fragment: 0x2000, ..frame((C4, 40000), (S4, 27017)) };
    assert_eq!(run(&program(&port(27017, 27017)), &more_fragments.ethernet()), WHOLE);
}

#[test]
fn without_ports_every_tcp_packet_is_kept() {
    let program = program(&PacketFilter::default());
    assert_eq!(run(&program, &frame((C4, 1), (S4, 2)).ethernet()), WHOLE);
    assert_eq!(run(&program, &frame((C6, 1), (S6, 2)).ethernet()), WHOLE);
    assert_eq!(run(&program, &FrameSpec { protocol: 17, ..frame((C6, 1), (S6, 2)) }.ethernet()), 0);
}

#[test]
fn ports_may_come_in_any_order_and_number() {
    assert_eq!(merged(&[5..=9, 1..=2, 3..=3, 8..=20, 30..=30]), [1..=3, 5..=20, 30..=30]);
    assert_eq!(merged(&[0..=65535, 9..=9]), [0..=65535]);
    let odd =
        PacketFilter { ports: (0..600).map(|n| 2 * n + 1..=2 * n + 1).collect(), ..PacketFilter::default() };
    let ranges =
        PacketFilter { ports: (0..400).map(|n| 10 * n..=10 * n + 4).collect(), ..PacketFilter::default() };
    for (filter, wanted) in
        [(&odd, (|p| p % 2 == 1 && p < 1200) as fn(u16) -> bool), (&ranges, |p| p % 10 < 5 && p < 4000)]
    {
        let program = program(filter);
        for p in 0..4100u16 {
            let expected = if wanted(p) { WHOLE } else { 0 };
            assert_eq!(run(&program, &frame((C4, 60000), (S4, p)).ethernet()), expected, "{p}");
            assert_eq!(run(&program, &frame((S6, p), (C6, 60000)).ethernet()), expected, "{p}");
        }
    }
    let too_many =
        PacketFilter { ports: (0..4000).map(|n| 2 * n..=2 * n).collect(), ..PacketFilter::default() };
    assert!(matches!(
        too_many.assemble(&Scope::default()),
        Err(FilterError::TooLong { instructions: 4097.. })
    ));
}

#[test]
fn interfaces_and_loopback_twins() {
    let scope = Scope { interfaces: vec![1, 7], loopback_once: true };
    let program = port(27017, 27017).assemble(&scope).unwrap();
    let seen = frame((C4, 40000), (S4, 27017)).ethernet();
    for (interface, hardware, packet_type, kept) in [
        (7, libc::ARPHRD_ETHER, libc::PACKET_HOST, true),
        (7, libc::ARPHRD_ETHER, libc::PACKET_OUTGOING, true),
        (1, libc::ARPHRD_LOOPBACK, libc::PACKET_HOST, true),
        (1, libc::ARPHRD_LOOPBACK, libc::PACKET_OUTGOING, false),
        (2, libc::ARPHRD_ETHER, libc::PACKET_HOST, false),
    ] {
        let seen = FilterPacket { interface, hardware, packet_type: u32::from(packet_type), ..seen.clone() };
        assert_eq!(run(&program, &seen) > 0, kept, "{interface} {hardware} {packet_type}");
    }
}

#[test]
fn replies_are_cut_behind_their_headers() {
    let filter = PacketFilter { snap_replies: Some(64), ..port(27017, 27019) };
    let program = program(&filter);
    let request = frame((C4, 40000), (S4, 27017));
    assert_eq!(run(&program, &request.ethernet()), WHOLE);
    assert_eq!(run(&program, &request.reversed().ethernet()), 14 + 20 + 20 + 64);
    let options = FrameSpec { ip_options: 3, tcp_options: 3, ..request.reversed() };
    assert_eq!(run(&program, &options.ethernet()), 14 + 32 + 32 + 64);
    let tagged = FrameSpec { tags: vec![(0x88a8, 1), (0x8100, 2)], ..request.reversed() };
    assert_eq!(run(&program, &tagged.ethernet()), 22 + 40 + 64);
    assert_eq!(run(&program, &request.reversed().on(libc::ARPHRD_PPP, &[])), 40 + 64);
    let v6 = FrameSpec { extensions: vec![(0, 16)], tcp_options: 3, ..frame((S6, 27018), (C6, 40000)) };
    assert_eq!(run(&program, &v6.ethernet()), 14 + 40 + 16 + 32 + 64);
    // An unknown link-layer header: there is room for it.
    let cut = run(&program, &request.reversed().on(libc::ARPHRD_INFINIBAND, &[0; 24]));
    assert!((24 + 40 + 64..24 + 40 + 64 + 64).contains(&cut), "{cut}");
    // It is unknown which of the two is the server.
    assert_eq!(run(&program, &frame((C4, 27018), (S4, 27017)).ethernet()), WHOLE);
    // The general limit is above it.
    let short = PacketFilter { snap_len: 100, ..filter };
    assert_eq!(run(&self::program(&short), &request.reversed().ethernet()), 100);
    assert_eq!(run(&self::program(&short), &request.ethernet()), 100);
    let no_ports = PacketFilter { snap_replies: Some(1), ..PacketFilter::default() };
    assert_eq!(no_ports.assemble(&Scope::default()).unwrap_err(), FilterError::SnapWithoutPorts);
    let most = PacketFilter { snap_replies: Some(u32::MAX), ..port(27017, 27017) };
    assert!(run(&self::program(&most), &request.reversed().ethernet()) > 1 << 20);
}

#[test]
fn a_sample_keeps_whole_connections() {
    let every = NonZeroU32::new(10);
    for filter in [
        PacketFilter { sample: every, ..port(27017, 27019) },
        PacketFilter { sample: every, snap_replies: Some(8), ..port(27017, 27019) },
        PacketFilter { sample: every, ..PacketFilter::default() },
    ] {
        let program = program(&filter);
        for (client, server) in [(C4, S4), (C6, S6)] {
            let mut kept = 0;
            for n in 0..10_000u16 {
                // As one client's connections are: ephemeral ports two apart.
                let there = frame((client, 20_000 + 2 * n), (server, 27017 + n % 2));
                let (source, destination) = there.ends();
                let keep = filter.keeps(&source, &destination);
                assert_eq!(keep, filter.keeps(&destination, &source));
                let far = FrameSpec { extensions: vec![(0, 8), (60, 16)], ..there.clone() };
                for frame in [there.reversed(), far, there] {
                    for seen in [frame.ethernet(), frame.on(libc::ARPHRD_INFINIBAND, &[0; 24])] {
                        assert_eq!(run(&program, &seen) > 0, keep, "{n}");
                    }
                }
                kept += u32::from(keep);
            }
            // Binomial: mean 1000, standard deviation 30.
            assert!((850..1150).contains(&kept), "{kept} of 10000 for 1/10");
        }
    }
}

#[test]
fn a_sample_of_clients_keeps_what_is_followed_inside_the_server() {
    let clients = ConnectionSample { every: NonZeroU16::new(7).unwrap() };
    let program = program(&PacketFilter { clients, ..port(27017, 27019) });
    for (client, server) in [(C4, S4), (C6, S6)] {
        for n in 0..1_000u16 {
            let there = frame((client, 20_000 + 2 * n), (server, 27017 + n % 2));
            let (source, _) = there.ends();
            for seen in [there.reversed(), there] {
                assert_eq!(run(&program, &seen.ethernet()) > 0, clients.has(source), "{n}");
            }
        }
        // Either end may be the server.
        let between = frame((client, 27018), (server, 27017));
        assert!(run(&program, &between.ethernet()) > 0);
    }
}

/// Two addresses of one family; some are IPv4-mapped, which no packet should have.
fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = any::<[u8; 4]>();
    let v6 = prop_oneof![
        any::<[u8; 16]>().prop_map(Ipv6Addr::from),
        v4.prop_map(|address| Ipv4Addr::from(address).to_ipv6_mapped()),
    ];
    prop_oneof![
        (v4, v4).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        (v6.clone(), v6).prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_program_keeps_of_any_flow_what_the_sample_keeps(
        (one, other) in addresses(),
        // Near the servers' ports, so that one end, both or none is a server.
        one_port in prop_oneof![any::<u16>(), 27_015u16..27_022],
        other_port in 27_015u16..27_022,
        ports in proptest::collection::vec(27_015u16..27_022, 0..3),
        every in prop_oneof![1u32..5, 1u32..65_537],
    ) {
        let ranges: Vec<_> = ports.iter().map(|port| *port..=*port).collect();
        let filter = PacketFilter { ports: ranges, sample: NonZeroU32::new(every), ..PacketFilter::default() };
        let program = program(&filter);
        let frame = FrameSpec {
            source: (one, one_port),
            destination: (other, other_port),
            ..frame((C4, 1), (S4, 2))
        };
        let (source, destination) = frame.ends();
        let asked_for = ports.is_empty() || ports.contains(&one_port) || ports.contains(&other_port);
        let keep = asked_for && filter.keeps(&source, &destination);
        for frame in [frame.reversed(), frame] {
            prop_assert_eq!(run(&program, &frame.ethernet()) > 0, keep, "{:?}", frame.ends());
        }
    }
}

/// Compares with tcpdump's compiler on the same frames.
#[test]
fn agrees_with_tcpdump() {
    for (expression, filter, tagged) in [
        ("tcp port 27017", port(27017, 27017), false),
        ("tcp portrange 27017-27019", port(27017, 27019), false),
        (
            "tcp port 27017 or tcp portrange 30000-30010",
            PacketFilter { ports: vec![30000..=30010, 27017..=27017], ..PacketFilter::default() },
            false,
        ),
        ("vlan and tcp port 27017", port(27017, 27017), true),
    ] {
        let Some(oracle) = tcpdump(expression) else {
            eprintln!("skipped: no tcpdump");
            return;
        };
        let program = program(&filter);
        let mut kept = 0;
        for client in [27016, 27017, 27018, 27019, 27020, 29999, 30000, 30010, 30011] {
            for server in [1, 27016, 27017, 27018, 27019, 27020, 30005] {
                for (from, to) in [(C4, S4), (S4, C4), (C6, S6)] {
                    for (protocol, ip_options, fragment) in [
                        (6, 0, 0),
                        (6, 5, 0),
                        (6, 0, 3),
                        (6, 0, 0x2000),
                        (6, 0, 0x4000),
                        (17, 0, 0),
                        (1, 0, 0),
                    ] {
                        let tags = if tagged { vec![(0x8100, 5)] } else { Vec::new() };
                        let frame = FrameSpec {
                            protocol,
                            ip_options,
                            fragment,
                            tags,
                            ..frame((from, client), (to, server))
                        };
                        let seen = frame.ethernet();
                        assert_eq!(
                            run(&program, &seen) > 0,
                            run(&oracle, &seen) > 0,
                            "{expression} {client} {server}"
                        );
                        kept += u32::from(run(&oracle, &seen) > 0);
                    }
                }
            }
        }
        assert!(kept > 50, "the oracle keeps some");
    }
}

/// What `tcpdump -ddd` prints: the number of instructions, then `code jt jf k` a line.
fn tcpdump(expression: &str) -> Option<Vec<Instruction>> {
    let output = Command::new("tcpdump").args(["-y", "EN10MB", "-ddd", expression]).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let instructions = text.lines().skip(1).map(|line| {
        let mut numbers = line.split(' ').map(|n| n.parse::<u32>().unwrap());
        let mut next = || numbers.next().unwrap();
        Instruction { code: next() as u16, jt: next() as u8, jf: next() as u8, k: next() }
    });
    Some(instructions.collect())
}
