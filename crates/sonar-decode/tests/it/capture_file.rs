//! Capture files: real bytes, every variant of the formats, damage; and tshark checks what this crate writes.

use std::process::Command;

use proptest::prelude::*;
use sonar_core::packet::Direction;
use sonar_core::{LinkType, Timestamp};
use sonar_decode::capture_file::{
    Beginning, CaptureParser, Error, InterfaceDescription, MAX_BLOCK_LEN, MAX_INTERFACES, MAX_PACKET_LEN,
    PacketCounts, PcapngWriter, SectionHeader, Step,
};
use sonar_decode::frame;
use sonar_decode::testing::{Conversation, ConversationEnd, OwnedPacket, hex, pcap};

/// Feeds the file in pieces of these sizes, again and again, as a caller with a growing buffer does.
fn read_in_pieces(file: &[u8], sizes: &[usize]) -> (Vec<OwnedPacket>, Result<(), Error>, CaptureParser) {
    let mut parser = CaptureParser::new();
    let mut packets = Vec::new();
    let (mut start, mut end) = (0, 0);
    let mut sizes = sizes.iter().cycle();
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
                assert!(at_least > end - start && at_least <= MAX_BLOCK_LEN as usize, "{at_least}");
                if end == file.len() {
                    let rest = parser.end(end - start);
                    return (packets, rest, parser);
                }
                end = (end + sizes.next().unwrap().max(&1)).min(file.len());
            }
            Err(error) => return (packets, Err(error), parser),
        }
        assert!(start <= end, "consumed more than there was");
        assert_eq!(parser.offset(), start as u64);
    }
}

fn read(file: &[u8]) -> (Vec<OwnedPacket>, Result<(), Error>) {
    let (packets, result, _) = read_in_pieces(file, &[file.len()]);
    (packets, result)
}

#[track_caller]
fn read_whole(file: &[u8]) -> Vec<OwnedPacket> {
    let (packets, result) = read(file);
    assert_eq!(result, Ok(()));
    packets
}

/// In the requested byte order.
struct Bytes {
    big: bool,
    out: Vec<u8>,
}

impl Bytes {
    fn new(big: bool) -> Self {
        Self { big, out: Vec::new() }
    }
    fn u16(&mut self, value: u16) -> &mut Self {
        self.out.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.out.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend(bytes);
        self
    }
    fn option(&mut self, code: u16, value: &[u8]) -> &mut Self {
        self.u16(code).u16(value.len() as u16).raw(value).raw(&vec![
            0;
            value.len().next_multiple_of(4)
                - value.len()
        ])
    }
    fn block(&mut self, kind: u32, content: impl FnOnce(&mut Bytes)) -> &mut Self {
        let mut inner = Bytes::new(self.big);
        content(&mut inner);
        let len = inner.out.len().next_multiple_of(4);
        inner.out.resize(len, 0);
        self.u32(kind).u32(len as u32 + 12).raw(&inner.out).u32(len as u32 + 12)
    }
    fn section(&mut self) -> &mut Self {
        self.block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).raw(&[0xff; 8]);
        })
    }
    fn interface(&mut self, link: u16, snap_len: u32, options: &[(u16, &[u8])]) -> &mut Self {
        self.block(1, |b| {
            b.u16(link).u16(0).u32(snap_len);
            for (code, value) in options {
                b.option(*code, value);
            }
            b.option(0, &[]);
        })
    }
    fn enhanced(
        &mut self,
        interface: u32,
        time: u64,
        wire_len: u32,
        data: &[u8],
        flags: Option<u32>,
    ) -> &mut Self {
        self.block(6, |b| {
            b.u32(interface).u32((time >> 32) as u32).u32(time as u32).u32(data.len() as u32).u32(wire_len);
            b.raw(data).raw(&vec![0; data.len().next_multiple_of(4) - data.len()]);
            if let Some(flags) = flags {
                let flags = if b.big { flags.to_be_bytes() } else { flags.to_le_bytes() };
                b.option(1, b"a comment").option(2, &flags).option(0, &[]);
            }
        })
    }
}

#[test]
fn secrets_that_cannot_be_read_cost_no_packets() {
    let (tls_key_log, secrets) = (0x544c_534b, 10);
    let mut file = Bytes::new(false);
    file.section()
        .block(secrets, |b| {
            // Longer than its block.
            b.u32(tls_key_log).u32(1_000).raw(b"CLIENT");
        })
        .block(secrets, |b| {
            b.u32(tls_key_log).u32(MAX_BLOCK_LEN).raw(&vec![0; MAX_BLOCK_LEN as usize]);
        })
        .interface(1, 0, &[])
        .enhanced(0, 5_000_001, 3, b"abc", None);
    assert_eq!(read_whole(&file.out).len(), 1);
}

#[test]
fn a_real_pcap() {
    // Header and first packet of a tcpdump capture of a mongod.
    let file = hex("d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000
         50e8006b 2b890000 4a000000 4a000000
         00000000000000000000000008004500003cf3ef4000400648ca7f0000017f000001
         cd1a69eddb90681200000000a002ffd7fe3000000204ffd70402080a7b89b9c8000000000103030a");
    let packets = read_whole(&file);
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].time, Timestamp::from_unix(1_795_221_584, 35_115_000));
    assert_eq!((packets[0].link, packets[0].wire_len), (LinkType::Ethernet, 74));
    let packet = packets[0].as_packet();
    assert_eq!(frame::decode(&packet).unwrap().source.to_string(), "127.0.0.1:52506");
}

#[test]
fn every_pcap_magic() {
    for big in [false, true] {
        for (magic, fraction, ns) in [(0xa1b2_c3d4, 7, 7_000), (0xa1b2_3c4d, 7, 7), (0xa1b2_cd34, 7, 7_000)] {
            let mut file = Bytes::new(big);
            // The upper half of the link type describes four bytes of frame check sequence.
            file.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(0x4400_0001);
            file.u32(1_777_629_600).u32(fraction).u32(3).u32(90);
            if magic == 0xa1b2_cd34 {
                file.u32(5).u16(0x0800).raw(&[4, 0]);
            }
            file.raw(b"abc");
            let packets = read_whole(&file.out);
            let mut expected = OwnedPacket::new(
                Timestamp::from_unix(1_777_629_600, ns),
                LinkType::Ethernet,
                b"abc".to_vec(),
            );
            expected.wire_len = 90;
            if magic == 0xa1b2_cd34 {
                (expected.interface, expected.direction) = (5, Direction::Outgoing);
            }
            assert_eq!(packets, [expected], "{magic:x} {big}");
        }
    }
}

#[test]
fn pcapng_of_either_byte_order_with_everything_in_it() {
    for big in [false, true] {
        let offset = |seconds: i64| if big { seconds.to_be_bytes() } else { seconds.to_le_bytes() };
        let mut file = Bytes::new(big);
        file.section()
            .interface(1, 0, &[])
            .block(0x0bad, |b| {
                b.raw(&[7; 1_000]);
            })
            .interface(113, 8, &[(2, b"lo"), (9, &[9]), (14, &offset(-3))])
            .interface(276, 0, &[(9, &[0x80 | 10])])
            .enhanced(0, 5_000_001, 3, b"abc", None)
            .enhanced(1, 5_000_000_001, 90, b"abcdefg", Some(0b10))
            .enhanced(2, 5 << 10, 4, b"abcd", Some(0xffff_fffd))
            .block(2, |b| {
                b.u16(1).u16(9).u32(1).u32(0).u32(2).u32(2).raw(b"xy");
            })
            .block(5, |b| {
                b.u32(0)
                    .u32(0)
                    .u32(0)
                    .option(5, &counter(big, 30))
                    .option(7, &counter(big, 4))
                    .option(0, &[]);
            })
            .block(5, |b| {
                b.u32(0).u32(0).u32(0).option(5, &counter(big, 40)).option(0, &[]);
            })
            // A second section, in the other byte order, with interfaces of its own.
            .raw(&{
                let mut second = Bytes::new(!big);
                second
                    .section()
                    .interface(101, 4, &[(9, &[3])])
                    .enhanced(0, 7_001, 1, b"z", None)
                    .block(3, |b| {
                        b.u32(90).raw(b"pqrs");
                    })
                    .block(5, |b| {
                        b.u32(0).u32(0).u32(0).option(5, &counter(!big, 2)).option(0, &[]);
                    });
                second.out
            });
        let packet = |ns, link, interface, wire_len, data: &[u8]| OwnedPacket {
            interface,
            wire_len,
            ..OwnedPacket::new(Timestamp::from_unix_ns(ns), link, data.to_vec())
        };
        let expected = [
            packet(5_000_001_000, LinkType::Ethernet, 0, 3, b"abc"),
            OwnedPacket {
                direction: Direction::Outgoing,
                loopback: true,
                ..packet(2_000_000_001, LinkType::LinuxCooked, 1, 90, b"abcdefg")
            },
            OwnedPacket {
                direction: Direction::Incoming,
                ..packet(5_000_000_000, LinkType::LinuxCooked2, 2, 4, b"abcd")
            },
            OwnedPacket { loopback: true, ..packet(1_294_967_296, LinkType::LinuxCooked, 1, 2, b"xy") },
            packet(7_001_000_000, LinkType::Raw, 0, 1, b"z"),
            // A simple packet: no time of its own, cut at the interface's snap length.
            packet(7_001_000_000, LinkType::Raw, 0, 90, b"pqrs"),
        ];
        for sizes in [&[usize::MAX / 2][..], &[1], &[5, 64]] {
            let (packets, result, parser) = read_in_pieces(&file.out, sizes);
            assert_eq!(result, Ok(()));
            assert_eq!(packets, expected);
            assert_eq!(parser.dropped(), 34 + 6 + 2);
        }
    }
}

fn counter(big: bool, value: u64) -> [u8; 8] {
    if big { value.to_be_bytes() } else { value.to_le_bytes() }
}

#[test]
fn other_files_are_recognised_by_their_first_bytes() {
    for (file, text) in [
        (&br#"{"format":1}"#[..], "not a capture file (pcap or pcapng): begins with 7b 22 66 6f"),
        (b"\x1f\x8b", "not a capture file (pcap or pcapng): begins with 1f 8b"),
        (b"", "not a capture file (pcap or pcapng): it is empty"),
        (b"\xd4\xc3\xb2\xff", "not a capture file (pcap or pcapng): begins with d4 c3 b2 ff"),
    ] {
        let (packets, result) = read(file);
        assert_eq!((packets.len(), result.unwrap_err().to_string()), (0, text.to_owned()));
    }
    let mut old = Bytes::new(false);
    old.u32(0xa1b2_c3d4).u16(3).u16(0).raw(&[0; 16]);
    assert_eq!(read(&old.out).1, Err(Error::Version { offset: 0, major: 3, minor: 0 }));
    let section = [0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 1, 2, 3, 4];
    assert_eq!(read(&section).1, Err(Error::ByteOrder { offset: 0, found: [1, 2, 3, 4] }));
    assert_eq!(Beginning::new(b"abcdef").bytes(), b"abcd");
}

#[test]
fn damage_is_reported_with_its_offset() {
    let file = |damage: fn(&mut Bytes)| {
        let mut file = Bytes::new(false);
        file.section().interface(1, 0, &[]).enhanced(0, 1, 3, b"abc", None);
        damage(&mut file);
        file.out
    };
    // Section 28, interface 24, packet 36 bytes.
    let offset = 88;
    let cases: [(Vec<u8>, Error); 8] = [
        (file(|b| _ = b.u32(6).u32(8).u32(0)), Error::BlockLength { offset, kind: 6, len: 8 }),
        (file(|b| _ = b.u32(6).u32(33).u32(0)), Error::BlockLength { offset, kind: 6, len: 33 }),
        (file(|b| _ = b.u32(6).u32(0x1000_0000).u32(0)), Error::PacketTooLong { offset, len: 0x1000_0000 }),
        (
            file(|b| _ = b.u32(1).u32(0x1000_0000).u32(0)),
            Error::BlockLength { offset, kind: 1, len: 0x1000_0000 },
        ),
        (file(|b| _ = b.u32(77).u32(16).u32(0).u32(12)), Error::BlockTrailer { offset, len: 16, found: 12 }),
        (file(|b| _ = b.u32(1).u32(16).u32(1).u32(12)), Error::BlockTrailer { offset, len: 16, found: 12 }),
        (
            file(|b| {
                b.block(6, |b| _ = b.u32(0).u32(0).u32(0).u32(5).u32(5).u32(0));
            }),
            Error::BlockContent { offset, kind: 6 },
        ),
        (file(|b| _ = b.enhanced(1, 0, 0, b"", None)), Error::UnknownInterface { offset, interface: 1 }),
    ];
    for (file, expected) in cases {
        let (packets, result, mut parser) = read_in_pieces(&file, &[7]);
        assert_eq!(result, Err(expected));
        assert_eq!(packets.len(), 1, "what was before the damage is given");
        assert_eq!(parser.next(b"").unwrap_err(), expected, "an error stays");
        assert_eq!(parser.end(0), Err(expected));
    }
    let mut long = pcap([]);
    long.extend([0; 8]);
    long.extend((MAX_PACKET_LEN + 1).to_le_bytes());
    long.extend([0; 4]);
    assert_eq!(read(&long).1, Err(Error::PacketTooLong { offset: 24, len: MAX_PACKET_LEN + 1 }));
}

#[test]
fn a_file_cut_anywhere_gives_everything_before_the_cut() {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake().send(ConversationEnd::Client, b"hello").send(ConversationEnd::Server, b"hi").close();
    let mut ng = Vec::new();
    let mut writer = PcapngWriter::begin(&SectionHeader::default(), &mut ng);
    let eth0 = InterfaceDescription { name: "eth0", link: LinkType::Ethernet, snap_len: 0 };
    let number = writer.interface(&eth0, &mut ng).unwrap();
    for packet in &talk.packets {
        writer.packet(number, &packet.as_packet(), &mut ng);
    }
    ng.extend([9, 0, 0, 0, 16, 0, 0, 0, 1, 2, 3, 4, 16, 0, 0, 0]);
    for file in [pcap(&talk.packets), ng] {
        assert_eq!(read_whole(&file), talk.packets);
        let mut whole = 0;
        for len in 1..file.len() {
            let (packets, result, parser) = read_in_pieces(&file[..len], &[13]);
            assert_eq!(packets, talk.packets[..packets.len()]);
            match result {
                Ok(()) => whole += 1,
                Err(error) => {
                    let Error::Truncated { offset } = error else { panic!("{error}") };
                    assert!(offset < len as u64 && offset <= parser.offset());
                    assert_eq!(
                        error.to_string(),
                        format!(
                            "the capture file ends in the middle of the packet or block at offset {offset}"
                        )
                    );
                }
            }
        }
        assert!((talk.packets.len()..talk.packets.len() + 3).contains(&whole), "{whole}");
    }
}

#[test]
fn interfaces_are_capped() {
    let mut file = Vec::new();
    let mut writer = PcapngWriter::begin(&SectionHeader::default(), &mut file);
    let interface = InterfaceDescription { name: "", link: LinkType::Raw, snap_len: 0 };
    for n in 0..MAX_INTERFACES as u32 {
        assert_eq!(writer.interface(&interface, &mut file), Some(n));
    }
    assert_eq!(writer.interface(&interface, &mut file), None);
    assert_eq!(read(&file).1, Ok(()));
    let mut one_more = Bytes::new(false);
    one_more.interface(1, 0, &[]);
    let offset = file.len() as u64;
    file.extend(one_more.out);
    assert_eq!(read(&file).1, Err(Error::TooManyInterfaces { offset }));
}

/// A file of our own with two interfaces, all directions, a VLAN tag to restore, a cut packet.
fn written() -> (Vec<OwnedPacket>, Vec<u8>) {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake().send(ConversationEnd::Client, &[b'x'; 3_001]).ack(ConversationEnd::Server).close();
    let mut six = Conversation::new("[2001:db8::9]:51234", "[2001:db8::1]:27017");
    six.template.link = LinkType::Raw;
    six.handshake().send(ConversationEnd::Server, b"abc");
    let mut packets = talk.packets;
    packets[0].direction = Direction::Incoming;
    packets[1].direction = Direction::Outgoing;
    packets[1].vlan_tci = Some(0x2007);
    packets[3].snap(96);
    for packet in &mut six.packets {
        packet.interface = 1;
    }
    packets.extend(six.packets);

    let mut file = Vec::new();
    let section = SectionHeader { hardware: "x86_64", os: "Linux 6.1.0", application: "mongosonar 0.1.0" };
    let mut writer = PcapngWriter::begin(&section, &mut file);
    for (name, link) in [("eth0", LinkType::Ethernet), ("tun7", LinkType::Raw)] {
        assert!(
            writer.interface(&InterfaceDescription { name, link, snap_len: 262_144 }, &mut file).is_some()
        );
    }
    for packet in &packets {
        writer.packet(packet.interface, &packet.as_packet(), &mut file);
    }
    writer.statistics(0, packets[5].time, PacketCounts { received: 30, dropped: 2 }, &mut file);
    writer.statistics(1, packets[5].time, PacketCounts { received: 4, dropped: 0 }, &mut file);
    (packets, file)
}

#[test]
fn a_written_file_is_read_back() {
    let (packets, file) = written();
    let (read, result, parser) = read_in_pieces(&file, &[100]);
    assert_eq!(result, Ok(()));
    assert_eq!(parser.dropped(), 2);
    assert_eq!(read.len(), packets.len());
    for (n, (read, mut packet)) in read.into_iter().zip(packets).enumerate() {
        if let Some(tci) = packet.vlan_tci.take() {
            let [a, b] = tci.to_be_bytes();
            packet.data.splice(12..12, [0x81, 0x00, a, b]);
            packet.wire_len += 4;
        }
        assert_eq!(read, packet, "{n}");
    }
}

#[test]
fn tshark_reads_what_is_written() {
    let (packets, file) = written();
    let path = std::env::temp_dir().join(format!("sonar-capture-file-{}.pcapng", std::process::id()));
    std::fs::write(&path, &file).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.arg("-r").arg(&path).args(arguments).env("TZ", "UTC");
        let output = match command.output() {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => panic!("{program}: {error}"),
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let fields = [
        "frame.time_epoch",
        "frame.len",
        "frame.cap_len",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "vlan.id",
        "tcp.seq_raw",
        "tcp.len",
    ];
    let mut arguments = vec!["-T", "fields", "-E", "separator=,"];
    for field in &fields {
        arguments.extend(["-e", *field]);
    }
    let Some(text) = run("tshark", &arguments) else {
        eprintln!("skipped: tshark is not installed");
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), packets.len());
    for (line, packet) in lines.iter().zip(&packets) {
        let segment_packet = packet.as_packet();
        let segment = frame::decode(&segment_packet).unwrap();
        let tag = if packet.vlan_tci.is_some() { 4 } else { 0 };
        let ns = packet.time.unix_ns();
        let expected = [
            format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
            (packet.wire_len + tag).to_string(),
            (packet.data.len() as u32 + tag).to_string(),
            ["eth0", "tun7"][packet.interface as usize].to_owned(),
            match packet.direction {
                Direction::Unknown => String::new(),
                Direction::Incoming => "0x00000001".to_owned(),
                Direction::Outgoing => "0x00000002".to_owned(),
            },
            packet.vlan_tci.map_or(String::new(), |tci| (tci & 0xfff).to_string()),
            segment.seq.to_string(),
            (segment.payload.len() as u32 + segment.missing).to_string(),
        ];
        assert_eq!(line.split(',').collect::<Vec<_>>(), expected);
    }
    let mut capinfos = Command::new("capinfos");
    let output = match capinfos.arg(&path).output() {
        Ok(output) => output,
        Err(_) => {
            eprintln!("skipped: capinfos is not installed");
            return;
        }
    };
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["mongosonar 0.1.0", "Linux 6.1.0", "x86_64", "Name = eth0", "Name = tun7"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    std::fs::remove_file(&path).unwrap();
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_packets(sizes in prop::collection::vec(1..200_usize, 1..20)) {
        let (_, ng) = written();
        let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
        talk.handshake().send(ConversationEnd::Client, &[b'x'; 3_001]).close();
        for file in [ng, pcap(&talk.packets)] {
            let (packets, result, _) = read_in_pieces(&file, &sizes);
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(packets, read_whole(&file));
        }
    }

    #[test]
    fn no_damage_makes_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        sizes in prop::collection::vec(1..200_usize, 1..4),
    ) {
        let (_, mut file) = written();
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        let (packets, result) = read(&file);
        let in_pieces = read_in_pieces(&file, &sizes);
        prop_assert_eq!((packets, result), (in_pieces.0, in_pieces.1));
    }

    #[test]
    fn no_garbage_makes_it_panic(magic in 0..8_usize, garbage in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut file = [
            &[][..],
            &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0],
            &[0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4],
            &[0xa1, 0xb2, 0xcd, 0x34, 0, 2, 0, 4],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
            &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d],
            &[0x0a, 0x0d],
            &[0xd4],
        ][magic]
            .to_vec();
        file.extend(garbage);
        let (packets, result) = read(&file);
        let in_pieces = read_in_pieces(&file, &[1]);
        prop_assert_eq!((packets, result), (in_pieces.0, in_pieces.1));
    }
}
