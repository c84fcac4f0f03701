//! Rings on real interfaces, in network namespaces made for each test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::support::{Frame, Namespace, Tun, frame};
use sonar_core::packet::Direction;
use sonar_core::{Endpoint, LinkType, Packet};
use sonar_sys::{PacketFilter, Ring, RingConfig, RingError, RingLayout, Wake};

fn config(interfaces: &[&str], ports: &[u16]) -> RingConfig {
    RingConfig {
        interfaces: interfaces.iter().map(|name| name.to_string()).collect(),
        filter: PacketFilter {
            ports: ports.iter().map(|port| *port..=*port).collect(),
            ..PacketFilter::default()
        },
        // Nobody reads while the test sends, and each period uses up a block: enough for three seconds.
        size_bytes: 16 << 20,
        block_bytes: 256 << 10,
        retire: Duration::from_millis(50),
        ..RingConfig::default()
    }
}

fn open(namespace: &Namespace, config: RingConfig) -> Ring {
    namespace.run(move || Ring::open(&config)).unwrap()
}

/// A packet, kept.
#[derive(Clone, PartialEq)]
struct Kept {
    direction: Direction,
    loopback: bool,
    interface: u32,
    link: LinkType,
    vlan_tci: Option<u16>,
    wire_len: u32,
    data: Vec<u8>,
}

/// Without the payload, so that a failure is readable.
impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (source, destination, _) = self.parse();
        write!(
            f,
            "{source}>{destination} {:?} {}/{} on {}",
            self.direction,
            self.data.len(),
            self.wire_len,
            self.interface
        )
    }
}

impl Kept {
    fn new(packet: Packet<'_>) -> Self {
        assert!(packet.time.unix_ns() > 1_600_000_000_000_000_000);
        Self {
            direction: packet.direction,
            loopback: packet.loopback,
            interface: packet.interface,
            link: packet.link,
            vlan_tci: packet.vlan_tci,
            wire_len: packet.wire_len,
            data: packet.data.to_vec(),
        }
    }

    fn network(&self) -> usize {
        if self.link == LinkType::Raw { 0 } else { 14 }
    }

    /// Source, destination, offset of the payload; tags were removed.
    fn parse(&self) -> (SocketAddr, SocketAddr, usize) {
        let ip = &self.data[self.network()..];
        let address = |at: usize, size: usize| -> IpAddr {
            let bytes = &ip[at..at + size];
            match size {
                4 => <[u8; 4]>::try_from(bytes).unwrap().into(),
                _ => <[u8; 16]>::try_from(bytes).unwrap().into(),
            }
        };
        let (source, destination, length) = match ip[0] >> 4 {
            4 => (address(12, 4), address(16, 4), 4 * usize::from(ip[0] & 15)),
            _ => (address(8, 16), address(24, 16), 40),
        };
        let tcp = &ip[length..];
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let payload = self.network() + length + 4 * usize::from(tcp[12] >> 4);
        (SocketAddr::new(source, port(0)), SocketAddr::new(destination, port(2)), payload)
    }

    /// Length of the TCP header.
    fn tcp_header(&self) -> usize {
        let ip = &self.data[self.network()..];
        let length = if ip[0] >> 4 == 4 { 4 * usize::from(ip[0] & 15) } else { 40 };
        4 * usize::from(ip[length + 12] >> 4)
    }

    /// Bytes of TCP payload on the wire.
    fn payload(&self) -> u64 {
        u64::from(self.wire_len) - self.parse().2 as u64
    }
}

/// Bytes of the streams in these packets, each counted once: under load, TCP retransmits some.
fn stream_bytes<'a>(packets: impl IntoIterator<Item = &'a Kept>) -> u64 {
    let mut flows: BTreeMap<(SocketAddr, SocketAddr), BTreeMap<u32, u32>> = BTreeMap::new();
    for packet in packets {
        let (source, destination, payload) = packet.parse();
        let tcp = payload - packet.tcp_header();
        let seq = u32::from_be_bytes(packet.data[tcp + 4..tcp + 8].try_into().unwrap());
        let segments = flows.entry((source, destination)).or_default();
        // The first packet of a flow is its SYN: positions count from there.
        let first = *segments.entry(u32::MAX).or_insert(seq);
        let length = segments.entry(seq.wrapping_sub(first)).or_default();
        *length = (*length).max(packet.payload() as u32);
    }
    let mut sum = 0;
    for mut segments in flows.into_values() {
        segments.remove(&u32::MAX);
        let mut end = 0;
        for (start, length) in segments {
            let new_end = start + length;
            sum += u64::from(new_end.saturating_sub(end.max(start)));
            end = end.max(new_end);
        }
    }
    sum
}

/// Two rings captured the same, but perhaps in a different order: packets that two processors handle at once can
/// reach each ring in another order.
#[track_caller]
fn assert_same(one: &[Kept], other: &[Kept]) {
    let sorted = |packets: &[Kept]| {
        let mut packets = packets.to_vec();
        packets.sort_by(|a, b| a.data.cmp(&b.data));
        packets
    };
    assert_eq!(sorted(one), sorted(other));
}

fn finish(ring: &mut Ring) -> Vec<Kept> {
    let mut kept = Vec::new();
    let count = ring.finish(|packet| kept.push(Kept::new(packet))).unwrap();
    assert_eq!(count, kept.len() as u64);
    let statistics = ring.statistics().unwrap();
    assert_eq!((statistics.packets, statistics.drops), (count, 0));
    assert_eq!(statistics.malformed_blocks, 0);
    kept
}

/// Serves `connections` connections one after the other: reads `request` bytes, answers `reply` bytes.
fn serve(at: SocketAddr, connections: usize, request: usize, reply: usize) -> (SocketAddr, impl FnOnce()) {
    let listener = TcpListener::bind(at).unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = vec![0; request];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&vec![7; reply]).unwrap();
            // The client closes first, so that the last packet is sent before this returns.
            assert_eq!(stream.read(&mut bytes).unwrap(), 0);
        }
    });
    (address, move || thread.join().unwrap())
}

/// One connection: sends `request` bytes, reads `reply` bytes. Returns its own address.
fn ask(server: SocketAddr, request: usize, reply: usize) -> SocketAddr {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(&vec![9; request]).unwrap();
    stream.read_exact(&mut vec![0; reply]).unwrap();
    let address = stream.local_addr().unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    address
}

/// `connections` connections from inside `client` to inside `server`; returns their client addresses.
fn talk(
    client: &Namespace,
    server: &Namespace,
    at: &str,
    connections: usize,
    request: usize,
    reply: usize,
) -> Vec<SocketAddr> {
    let at: SocketAddr = at.parse().unwrap();
    let (address, join) = server.run(move || serve(at, connections, request, reply));
    let clients = client.run(move || (0..connections).map(|_| ask(address, request, reply)).collect());
    join();
    clients
}

#[test]
fn loopback_is_captured_once_unless_twins_are_asked_for() {
    let Some(here) = Namespace::new() else { return };
    let mut once = open(&here, config(&["lo"], &[27017]));
    let mut any = open(&here, config(&[], &[27017]));
    let mut twice = open(&here, RingConfig { loopback_twins: true, ..config(&["lo"], &[27017]) });
    let mut any_twice = open(&here, RingConfig { loopback_twins: true, ..config(&[], &[27017]) });
    let group = config(&["lo"], &[27017]);
    let mut group = here.run(move || Ring::open_group(&group, 2)).unwrap();
    talk(&here, &here, "127.0.0.1:27017", 3, 1000, 100_000);
    talk(&here, &here, "[::1]:27017", 3, 1000, 100_000);

    let once = finish(&mut once);
    assert!(once.iter().all(|p| p.direction == Direction::Incoming && p.loopback));
    assert_eq!(stream_bytes(&once), 6 * 101_000);
    assert_same(&finish(&mut any), &once);
    let grouped: Vec<Kept> = group.iter_mut().flat_map(finish).collect();
    assert_eq!(grouped.len(), once.len());
    assert!(grouped.iter().all(|p| once.contains(p)));
    for twice in [finish(&mut twice), finish(&mut any_twice)] {
        let (out, back): (Vec<_>, Vec<_>) =
            twice.into_iter().partition(|p| p.direction == Direction::Outgoing);
        assert_same(&back, &once);
        assert_eq!(out.len(), once.len());
        // On two processors, sent and received packets can be seen in a different order.
        let bytes = |p: &[Kept]| p.iter().map(|p| p.data.clone()).collect::<BTreeSet<_>>();
        assert!(bytes(&out) == bytes(&once));
    }
}

#[test]
fn both_ends_of_a_link_and_any_see_the_same() {
    let (Some(client), Some(server)) = (Namespace::new(), Namespace::new()) else { return };
    client.join(&server);
    let mut rings = [
        open(&client, config(&["va"], &[27017])),
        open(&client, config(&[], &[27017])),
        open(&client, config(&["va", "lo"], &[27017])),
        open(&server, config(&["vb"], &[27017])),
        open(&server, config(&[], &[27017])),
        // These capture nothing: the other interface, and another port.
        open(&client, config(&["lo"], &[27017])),
        open(&client, config(&["va"], &[27018])),
    ];
    talk(&client, &server, "10.77.0.2:27017", 5, 50_000, 300_000);
    talk(&client, &server, "[fd77::2]:27017", 5, 50_000, 300_000);
    let captured: Vec<Vec<Kept>> = rings.iter_mut().map(finish).collect();
    assert_eq!((captured[5].len(), captured[6].len()), (0, 0));
    assert_same(&captured[0], &captured[1]);
    assert_same(&captured[0], &captured[2]);
    assert_same(&captured[3], &captured[4]);
    for (packets, index, to_server) in [
        (&captured[0], client.index("va"), Direction::Outgoing),
        (&captured[3], server.index("vb"), Direction::Incoming),
    ] {
        let (there, back): (Vec<&Kept>, Vec<&Kept>) =
            packets.iter().partition(|packet| packet.parse().1.port() == 27017);
        assert!(there.iter().all(|packet| packet.direction == to_server));
        assert!(back.iter().all(|packet| packet.direction != to_server));
        for packet in packets {
            assert_eq!((packet.interface, packet.loopback), (index, false));
            assert_eq!((packet.link, packet.wire_len as usize), (LinkType::Ethernet, packet.data.len()));
        }
        assert_eq!((stream_bytes(there), stream_bytes(back)), (10 * 50_000, 10 * 300_000));
    }
    // Segments are not cut to the MTU on a veth pair: large frames arrive whole.
    assert!(captured[3].iter().any(|p| p.data.len() > 9000), "no frame above the MTU");
}

#[test]
fn the_kernel_runs_the_filter_as_intended() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    here.join(&there);
    let mut rings = [
        open(&here, config(&["va"], &[27017, 27018])),
        open(&there, config(&["vb"], &[27017, 27018])),
        open(&there, config(&[], &[27017, 27018])),
    ];
    let (c4, s4, c6, s6) = ("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2");
    let v4 = frame((c4, 40000), (s4, 27017));
    let v6 = frame((c6, 40000), (s6, 27018));
    let wanted = [
        v4.clone(),
        v6.clone(),
        frame((s4, 27018), (c4, 40000)),
        Frame { fragment: 0x2000, ..v4.clone() },
        Frame { extensions: vec![0], ..v6.clone() },
        Frame { extensions: vec![60, 44], ..v6.clone() },
        Frame { extensions: vec![0, 43, 60, 135], ..v6.clone() },
        Frame { tags: vec![(0x8100, 10)], ..v4.clone() },
        Frame { tags: vec![(0x8100, 10)], ..v6.clone() },
        Frame { tags: vec![(0x88a8, 20), (0x8100, 30)], ..v4.clone() },
    ];
    let unwanted = [
        frame((c4, 40000), (s4, 27016)),
        frame((c6, 40000), (s6, 27019)),
        Frame { protocol: 17, ..v4.clone() },
        Frame { protocol: 58, extensions: vec![0], ..v6.clone() },
        Frame { fragment: 5, ..v4.clone() },
    ];
    for frames in wanted.chunks(1).zip(unwanted.iter().cycle()) {
        here.send("va", vec![frames.0[0].bytes(), frames.1.bytes()]);
    }
    let sent: Vec<Kept> = finish(&mut rings[0]);
    let received: Vec<Kept> = finish(&mut rings[1]);
    assert_same(&finish(&mut rings[2]), &received);
    assert_eq!(sent.len(), wanted.len());
    assert_eq!(received.len(), wanted.len());
    for ((wanted, sent), received) in wanted.iter().zip(&sent).zip(&received) {
        // Outgoing frames contain their tags; for incoming ones, the kernel has removed the outer tag.
        assert_eq!((&sent.data, sent.vlan_tci), (&wanted.bytes(), None));
        let inner = Frame { tags: wanted.tags.iter().skip(1).copied().collect(), ..wanted.clone() };
        let outer = wanted.tags.first().map(|tag| tag.1);
        assert_eq!((&received.data, received.vlan_tci), (&inner.bytes(), outer));
    }
}

#[test]
fn a_vlan_interface_and_the_one_below_it() {
    let (Some(client), Some(server)) = (Namespace::new(), Namespace::new()) else { return };
    client.join(&server);
    for (namespace, below, number) in [(&client, "va", 1), (&server, "vb", 2)] {
        if let Err(error) = namespace.try_ip(&format!("link add link {below} name v10 type vlan id 10")) {
            eprintln!("skipped: this kernel makes no VLAN interfaces ({error})");
            return;
        }
        namespace.ip(&format!("addr add 10.78.0.{number}/24 dev v10"));
        namespace.ip("link set v10 up");
    }
    let mut upper = open(&server, config(&["v10"], &[27017]));
    let mut lower = open(&server, config(&["vb"], &[27017]));
    let mut any = open(&server, config(&[], &[27017]));
    talk(&client, &server, "10.78.0.2:27017", 2, 5000, 5000);
    let (upper, lower, any) = (finish(&mut upper), finish(&mut lower), finish(&mut any));
    assert!(!upper.is_empty());
    assert_eq!(stream_bytes(&upper), 20_000);
    assert_eq!(lower.len(), upper.len());
    assert_eq!(any.len(), upper.len() + lower.len());
    for packet in lower.iter().filter(|p| p.direction == Direction::Incoming) {
        assert_eq!(packet.vlan_tci.map(|tci| tci & 0xfff), Some(10));
    }
}

#[test]
fn an_interface_without_link_layer_gives_raw_packets() {
    let (Some(client), Some(server)) = (Namespace::new(), Namespace::new()) else { return };
    client.join(&server);
    for kind in ["ipip", "gre", "sit"] {
        let mut made = Ok(String::new());
        for (namespace, own, other) in [(&client, 1, 2), (&server, 2, 1)] {
            let link = format!("link add t0 type {kind} local 10.77.0.{own} remote 10.77.0.{other}");
            made = made.and(namespace.try_ip(&link));
        }
        if let Err(error) = made {
            eprintln!("skipped: {kind}: this kernel does not have it ({error})");
            continue;
        }
        let subnet = if kind == "sit" { "fd79::" } else { "10.79.0." };
        let length = if kind == "sit" { 64 } else { 24 };
        for (namespace, number) in [(&client, 1), (&server, 2)] {
            namespace.ip("link set t0 up");
            namespace.ip(&format!("addr add {subnet}{number}/{length} dev t0"));
        }
        let at = if kind == "sit" { "[fd79::2]:27017" } else { "10.79.0.2:27017" };
        let mut ring = open(&server, config(&["t0"], &[27017]));
        let cut = RingConfig {
            filter: PacketFilter { snap_replies: Some(10), ..config(&[], &[27017]).filter },
            ..config(&["t0"], &[27017])
        };
        let mut cut = open(&server, cut);
        let mut any = open(&server, config(&[], &[27017]));
        talk(&client, &server, at, 2, 5000, 5000);
        let packets = finish(&mut ring);
        assert!(packets.iter().all(|p| p.link == LinkType::Raw), "{kind}");
        assert_eq!(stream_bytes(&packets), 20_000, "{kind}");
        assert_same(&finish(&mut any), &packets);
        let cut = finish(&mut cut);
        assert_eq!(cut.len(), packets.len());
        for (cut, whole) in cut.iter().zip(&packets) {
            assert_eq!(cut.wire_len, whole.wire_len);
            let (source, _, payload) = whole.parse();
            let expected =
                if source.port() == 27017 { whole.data.len().min(payload + 10) } else { whole.data.len() };
            // If only the kernel knows the link layer, a little more is kept.
            let slack = if kind == "gre" { 64 } else { 0 };
            assert!(
                (expected..=expected + slack).contains(&cut.data.len()),
                "{kind} {} {expected}",
                cut.data.len()
            );
        }
        client.ip("link del t0");
        server.ip("link del t0");
    }
}

#[test]
fn a_tun_interface_gives_raw_packets() {
    let Some(here) = Namespace::new() else { return };
    let tun = match here.run(Tun::new) {
        Ok(tun) => tun,
        Err(error) => {
            eprintln!("skipped: no tun interface can be made ({error})");
            return;
        }
    };
    here.ip("link set t0 up");
    let filter = PacketFilter { snap_replies: Some(10), ..config(&[], &[27017]).filter };
    let mut ring = open(&here, RingConfig { filter, ..config(&["t0"], &[]) });
    let mut any = open(&here, config(&[], &[27017]));
    let request = frame(("192.0.2.1", 40000), ("192.0.2.2", 27017));
    let v6 = Frame { extensions: vec![60], ..frame(("2001:db8::1", 40000), ("2001:db8::2", 27017)) };
    let reply = frame(("192.0.2.2", 27017), ("192.0.2.1", 40000));
    let other = frame(("192.0.2.2", 27018), ("192.0.2.1", 40000));
    let packets = [&request, &v6, &reply, &other].map(|frame| frame.bytes().split_off(14));
    packets.iter().for_each(|packet| tun.write(packet));
    let captured = finish(&mut ring);
    assert_eq!(captured.len(), 3);
    for (captured, sent) in captured.iter().zip(&packets) {
        assert_eq!((captured.link, captured.wire_len as usize), (LinkType::Raw, sent.len()));
        assert!(sent.starts_with(&captured.data));
    }
    // 40 bytes of headers and 10 of payload.
    let lengths: Vec<usize> = captured.iter().map(|p| p.data.len()).collect();
    assert_eq!(lengths, [packets[0].len(), packets[1].len(), 50]);
    assert_eq!(
        finish(&mut any).iter().map(|p| &p.data).collect::<Vec<_>>(),
        packets[..3].iter().collect::<Vec<_>>()
    );
}

/// Packets of each connection, by the client's address.
fn by_client(packets: &[Kept], server: u16) -> BTreeMap<SocketAddr, usize> {
    let mut clients = BTreeMap::new();
    for packet in packets {
        let (source, destination, _) = packet.parse();
        let client = if source.port() == server { destination } else { source };
        *clients.entry(client).or_default() += 1;
    }
    clients
}

#[test]
fn a_sample_is_of_whole_connections() {
    let Some(here) = Namespace::new() else { return };
    for at in ["127.0.0.1:27017", "[::1]:27017"] {
        let sampled = PacketFilter {
            sample: NonZeroU32::new(4),
            ports: vec![27017..=27019],
            ..PacketFilter::default()
        };
        let mut all = open(&here, config(&["lo"], &[27017]));
        let mut some = open(&here, RingConfig { filter: sampled.clone(), ..config(&["lo"], &[]) });
        let clients = talk(&here, &here, at, 100, 100, 100);
        let (all, some) = (by_client(&finish(&mut all), 27017), by_client(&finish(&mut some), 27017));
        assert_eq!(all.len(), 100);
        let server = Endpoint::from(at.parse::<SocketAddr>().unwrap());
        let kept: BTreeSet<SocketAddr> =
            clients.into_iter().filter(|client| sampled.keeps(&Endpoint::from(*client), &server)).collect();
        assert!(!kept.is_empty() && kept.len() < 60, "{} of 100 for 1/4", kept.len());
        assert_eq!(some.keys().copied().collect::<BTreeSet<_>>(), kept);
        assert!(some.iter().all(|(client, packets)| all[client] == *packets));
    }
}

#[test]
fn replies_are_cut_but_their_length_is_known() {
    let Some(here) = Namespace::new() else { return };
    for at in ["127.0.0.1:27017", "[::1]:27017"] {
        let filter = PacketFilter { snap_replies: Some(100), ..config(&[], &[27017]).filter };
        let mut ring = open(&here, RingConfig { filter, ..config(&["lo"], &[]) });
        talk(&here, &here, at, 2, 20_000, 50_000);
        let packets = finish(&mut ring);
        for packet in &packets {
            let (source, _, payload) = packet.parse();
            let kept = if source.port() == 27017 { packet.payload().min(100) } else { packet.payload() };
            assert_eq!(packet.data.len(), payload + kept as usize);
        }
        assert_eq!(stream_bytes(&packets), 140_000);
    }
}

#[test]
fn drops_of_a_full_ring_are_counted() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    here.join(&there);
    let small = RingConfig { size_bytes: 1, block_bytes: 64 << 10, ..config(&["vb"], &[27017]) };
    let mut ring = open(&there, small);
    let frames = Frame { payload: 1000, ..frame(("192.0.2.1", 40000), ("192.0.2.2", 27017)) };
    here.send("va", vec![frames.bytes(); 5000]);
    let mut read = 0;
    ring.finish(|_| read += 1).unwrap();
    let statistics = ring.statistics().unwrap();
    assert_eq!(statistics.packets, 5000);
    assert_eq!(statistics.packets - statistics.drops, read);
    assert!(read >= 50 && statistics.drops > 4000, "{statistics:?}");
    assert!(statistics.freezes > 0);
    // The counts cover the whole life of the ring, and it goes on.
    assert_eq!(ring.statistics().unwrap(), statistics);
}

#[test]
fn a_reader_that_stands_still_loses_nothing_as_long_as_the_ring_says() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    here.join(&there);
    // A period of the kernel's timer passes between two packets, so that each of them has a block of its own.
    let retire = Duration::from_millis(1);
    let mut ring = open(&there, RingConfig { retire, ..config(&["vb"], &[27017]) });
    let periods = (ring.tolerated_stall().as_nanos() / retire.as_nanos()) as u16;
    assert_eq!(periods, 63);
    for number in 0..periods {
        let one = frame(("192.0.2.1", 40_000 + number), ("192.0.2.2", 27017));
        here.send("va", vec![one.bytes()]);
        // span: of the kernel's timer
        std::thread::sleep(4 * retire);
    }
    assert_eq!(finish(&mut ring).len(), usize::from(periods));
}

#[test]
fn a_group_shares_packets_by_connection() {
    let Some(here) = Namespace::new() else { return };
    let mut one = open(&here, config(&["lo"], &[27017]));
    let shared = config(&["lo"], &[27017]);
    let mut group = here.run(move || Ring::open_group(&shared, 3)).unwrap();
    talk(&here, &here, "127.0.0.1:27017", 60, 100, 100);
    talk(&here, &here, "[::1]:27017", 60, 100, 100);
    let one = by_client(&finish(&mut one), 27017);
    let group: Vec<_> = group.iter_mut().map(|ring| by_client(&finish(ring), 27017)).collect();
    // Each connection is in one ring, with all its packets.
    assert_eq!(group.iter().map(BTreeMap::len).sum::<usize>(), 120);
    for part in &group {
        assert!(!part.is_empty());
        assert!(part.iter().all(|(client, packets)| one[client] == *packets));
    }
}

#[test]
fn a_group_that_opens_under_load_captures_nothing_twice() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    here.join(&there);
    // Every frame is different, by client port and length.
    let frames: Vec<Vec<u8>> = (0..200)
        .flat_map(|payload| (0..500).map(move |n| (payload, 10_000 + n)))
        .map(|(payload, port)| Frame { payload, ..frame(("192.0.2.1", port), ("192.0.2.2", 27017)) }.bytes())
        .collect();
    let (begin, begun) = std::sync::mpsc::channel();
    let sender = std::thread::spawn(move || {
        begin.send(()).unwrap();
        here.send("va", frames);
        // Returned to the test: otherwise the link would disappear with its namespace.
        here
    });
    begun.recv().unwrap();
    while !sender.is_finished() {
        let shared = RingConfig { retire: Duration::from_millis(5), ..config(&["vb"], &[27017]) };
        let mut group = there.run(move || Ring::open_group(&shared, 8)).unwrap();
        let mut captured = BTreeSet::new();
        for ring in &mut group {
            ring.finish(|packet| assert!(captured.insert(packet.data.to_vec()), "captured twice")).unwrap();
        }
    }
    sender.join().unwrap();
}

#[test]
fn waiting_ends_for_packets_time_and_stop() {
    let Some(here) = Namespace::new() else { return };
    let shared = config(&["lo"], &[27017]);
    let mut group = here.run(move || Ring::open_group(&shared, 2)).unwrap();
    assert_eq!(group[0].poll(Duration::ZERO).unwrap(), Wake::TimedOut);
    talk(&here, &here, "127.0.0.1:27017", 20, 100, 100);
    for ring in &mut group {
        assert_eq!(ring.poll(Duration::from_secs(60)).unwrap(), Wake::Packets);
        while ring.for_each(|_| ()) > 0 {}
    }
    let stopper = group[0].stopper();
    let stop = std::thread::spawn(move || stopper.stop());
    for ring in &mut group {
        assert_eq!(ring.poll(Duration::from_secs(60)).unwrap(), Wake::Stopped);
        assert_eq!(ring.poll(Duration::from_secs(60)).unwrap(), Wake::Stopped);
    }
    stop.join().unwrap();
}

#[test]
fn an_interface_that_goes_down_is_reported_and_captured_again() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    here.join(&there);
    let mut ring = open(&there, config(&["vb"], &[27017]));
    there.ip("link set vb down");
    assert_eq!(ring.poll(Duration::from_secs(60)).unwrap(), Wake::InterfaceDown);
    assert_eq!(ring.poll(Duration::ZERO).unwrap(), Wake::TimedOut);
    there.ip("link set vb up");
    here.send("va", vec![frame(("192.0.2.1", 40000), ("192.0.2.2", 27017)).bytes()]);
    assert_eq!(ring.poll(Duration::from_secs(60)).unwrap(), Wake::Packets);
    assert_eq!(ring.for_each(|_| ()), 1);
}

#[test]
fn a_ring_of_another_process_loses_nothing() {
    let Some(here) = Namespace::new() else { return };
    let opened = open(&here, config(&["lo"], &[27017]));
    let stopper = opened.stopper();
    // What comes before and after it has changed hands.
    talk(&here, &here, "127.0.0.1:27017", 20, 100, 100);
    let (socket, layout) = opened.hand_over();
    talk(&here, &here, "127.0.0.1:27017", 20, 100, 100);
    let mut first = open(&here, config(&["lo"], &[27018]));
    let mut ring = Ring::adopt(socket, &layout).unwrap();
    let packets = finish(&mut ring);
    assert!(stream_bytes(&packets) >= 2 * 20 * 200, "{}", stream_bytes(&packets));
    let statistics = ring.statistics().unwrap();
    assert_eq!((statistics.drops, statistics.packets), (0, packets.len() as u64));
    // Its own stopper went with the process before; it takes that of the ring that it replaces.
    ring.replace(&first);
    stopper.stop();
    assert_eq!(ring.poll(Duration::ZERO).unwrap(), Wake::TimedOut);
    first.stopper().stop();
    assert_eq!(ring.poll(Duration::from_secs(60)).unwrap(), Wake::Stopped);
    assert_eq!(first.poll(Duration::from_secs(60)).unwrap(), Wake::Stopped);
    let (socket, layout) = first.hand_over();
    let wrong = RingLayout { blocks: layout.blocks + 1, ..layout };
    assert!(matches!(Ring::adopt(socket, &wrong), Err(RingError::Memory { .. })));
}

#[test]
fn a_ring_sends_nothing() {
    let Some(namespace) = Namespace::new() else { return };
    let (socket, layout) = open(&namespace, config(&["lo"], &[])).hand_over();
    // It is bound to this interface, so that it needs no address.
    let frame = [0x88; 60];
    for _ in 0..2 {
        let sent = rustix::io::write(&socket, &frame);
        assert!(!matches!(sent, Ok(1..)), "{sent:?}");
    }
    // Nor by whoever has adopted it.
    let adopted = Ring::adopt(socket.try_clone().unwrap(), &layout).unwrap();
    let sent = rustix::io::write(&socket, &frame);
    assert!(!matches!(sent, Ok(1..)), "{sent:?}");
    drop(adopted);
}

#[test]
fn failures_to_open_a_ring_are_reported() {
    let Some(here) = Namespace::new() else { return };
    let error = |config: RingConfig| here.run(move || Ring::open(&config)).unwrap_err();
    let unknown = error(config(&["eth9"], &[]));
    assert_eq!(unknown.to_string(), "no such interface: eth9 (those that exist: lo)");
    assert!(matches!(unknown, RingError::Interface(_)));
    for block_bytes in [0, 4096, 100_000, 1 << 31] {
        let odd = RingConfig { block_bytes, ..config(&[], &[]) };
        assert!(matches!(error(odd), RingError::Size { .. }), "{block_bytes}");
    }
    let many = (0..3000).map(|n| 2 * n..=2 * n).collect();
    let many =
        RingConfig { filter: PacketFilter { ports: many, ..PacketFilter::default() }, ..config(&[], &[]) };
    assert!(matches!(error(many), RingError::Filter(_)));
}

#[test]
fn promiscuous_mode_lasts_as_long_as_the_ring() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    here.join(&there);
    let promiscuity = |times: u32| here.ip("-d link show va").contains(&format!("promiscuity {times} "));
    assert!(promiscuity(0));
    let named = open(&here, RingConfig { promiscuous: true, ..config(&["va"], &[]) });
    let all = open(&here, RingConfig { promiscuous: true, ..config(&[], &[]) });
    let quiet = open(&here, config(&["va"], &[]));
    assert!(promiscuity(2));
    drop((named, all, quiet));
    assert!(promiscuity(0));
}

#[test]
fn a_new_filter_and_a_new_interface_are_followed_by_an_open_ring() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    let configuration = config(&[], &[27017]);
    let mut ring = open(&here, configuration.clone());
    let mut group = here.run(move || Ring::open_group(&configuration, 2)).unwrap();
    let servers = |kept: &[Kept]| {
        let ends = kept.iter().flat_map(|packet| [packet.parse().0, packet.parse().1]);
        ends.filter(|end| (27017..27020).contains(&end.port())).collect::<BTreeSet<_>>()
    };
    talk(&here, &here, "127.0.0.1:27018", 2, 100, 100);
    talk(&here, &here, "127.0.0.1:27017", 2, 100, 100);
    let more = PacketFilter { ports: vec![27017..=27018], ..PacketFilter::default() };
    ring.set_filter(&more).unwrap();
    group.iter_mut().for_each(|ring| ring.set_filter(&more).unwrap());
    // Made long after the rings were opened.
    here.join(&there);
    talk(&there, &here, "10.77.0.1:27018", 2, 100, 100);
    talk(&there, &here, "10.77.0.1:27019", 2, 100, 100);
    let refused = PacketFilter { snap_replies: Some(1), ..PacketFilter::default() };
    assert!(matches!(ring.set_filter(&refused), Err(RingError::Filter(_))));
    talk(&here, &here, "127.0.0.1:27018", 1, 100, 100);

    let expected = ["127.0.0.1:27017", "10.77.0.1:27018", "127.0.0.1:27018"].map(|end| end.parse().unwrap());
    let kept = finish(&mut ring);
    assert_eq!(servers(&kept), BTreeSet::from(expected));
    let early = kept.iter().position(|packet| packet.parse().1 == expected[1]).unwrap();
    assert!(kept[..early].iter().all(|packet| servers(std::slice::from_ref(packet)).contains(&expected[0])));
    let group: Vec<Kept> = group.iter_mut().flat_map(finish).collect();
    assert_eq!(servers(&group), BTreeSet::from(expected));
}
