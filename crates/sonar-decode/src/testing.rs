//! Synthetic packets for tests and benches; built only for tests or with the feature `testing`.
//!
//! [`TestFrame`] is one packet with any header. [`Conversation`] is a TCP connection with right sequence numbers: say
//! who sends what, take the packets, and then drop, double, reorder or cut them as the test needs. [`pcap`] makes a
//! capture file of them. [`fixtures`] reads recordings of real servers.
//!
//! Checksums are 0, as the kernel leaves them in outgoing packets.

pub mod fixtures;
pub mod templates;

use std::net::{IpAddr, SocketAddr};

use sonar_core::packet::Direction;
use sonar_core::{LinkType, Packet, Timestamp};

/// FIN, as in byte 13 of the TCP header.
pub const FIN: u8 = 0x01;
/// SYN.
pub const SYN: u8 = 0x02;
/// RST.
pub const RST: u8 = 0x04;
/// PSH.
pub const PSH: u8 = 0x08;
/// ACK.
pub const ACK: u8 = 0x10;

/// A packet that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPacket {
    /// See [`Packet::time`].
    pub time: Timestamp,
    /// See [`Packet::link`].
    pub link: LinkType,
    /// See [`Packet::interface`].
    pub interface: u32,
    /// See [`Packet::direction`].
    pub direction: Direction,
    /// See [`Packet::loopback`].
    pub loopback: bool,
    /// See [`Packet::vlan_tci`].
    pub vlan_tci: Option<u16>,
    /// See [`Packet::wire_len`].
    pub wire_len: u32,
    /// See [`Packet::data`].
    pub data: Vec<u8>,
}

impl OwnedPacket {
    /// `data` as it was on the wire of interface 0.
    pub fn new(time: Timestamp, link: LinkType, data: Vec<u8>) -> Self {
        Self {
            time,
            link,
            interface: 0,
            direction: Direction::Unknown,
            loopback: false,
            vlan_tci: None,
            wire_len: data.len() as u32,
            data,
        }
    }

    /// What a decoder takes.
    pub fn as_packet(&self) -> Packet<'_> {
        Packet {
            time: self.time,
            link: self.link,
            interface: self.interface,
            direction: self.direction,
            loopback: self.loopback,
            vlan_tci: self.vlan_tci,
            wire_len: self.wire_len,
            data: &self.data,
        }
    }

    /// Cuts the packet as a snap length of `len` bytes does.
    pub fn snap(&mut self, len: usize) {
        self.data.truncate(len);
    }
}

impl From<&Packet<'_>> for OwnedPacket {
    fn from(packet: &Packet<'_>) -> Self {
        Self {
            time: packet.time,
            link: packet.link,
            interface: packet.interface,
            direction: packet.direction,
            loopback: packet.loopback,
            vlan_tci: packet.vlan_tci,
            wire_len: packet.wire_len,
            data: packet.data.to_vec(),
        }
    }
}

/// One TCP packet, header by header.
#[derive(Clone, Debug)]
pub struct TestFrame {
    /// What stands before the IP header.
    pub link: LinkType,
    /// VLAN tags, outermost first: Ethernet type and TCI. Only for Ethernet and Linux cooked.
    pub vlans: Vec<(u16, u16)>,
    /// Who sends. Both ends are of one family.
    pub source: SocketAddr,
    /// Who receives.
    pub destination: SocketAddr,
    /// IPv4 options, a multiple of 4 bytes, 40 at most.
    pub ip_options: Vec<u8>,
    /// IPv6 extension headers: protocol number and content, whose first byte is set to the number of the
    /// header after it.
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// [`SYN`], [`ACK`] and so on.
    pub flags: u8,
    /// TCP options, a multiple of 4 bytes, 40 at most.
    pub tcp_options: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

impl TestFrame {
    /// An empty segment in Ethernet with no options.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            link: LinkType::Ethernet,
            vlans: Vec::new(),
            source,
            destination,
            ip_options: Vec::new(),
            extensions: Vec::new(),
            seq: 0,
            ack: 0,
            flags: ACK,
            tcp_options: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// The bytes, without padding. An IP length that does not fit is written as 0, as the kernel does.
    ///
    /// # Panics
    /// When the ends are of two families.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.link_header();
        let tcp_len = 20 + self.tcp_options.len() + self.payload.len();
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header_len = 20 + self.ip_options.len();
                let total = u16::try_from(header_len + tcp_len).unwrap_or(0).to_be_bytes();
                out.extend([
                    0x40 | (header_len / 4) as u8,
                    0,
                    total[0],
                    total[1],
                    0,
                    1,
                    0x40,
                    0,
                    64,
                    6,
                    0,
                    0,
                ]);
                out.extend(source.octets());
                out.extend(destination.octets());
                out.extend(&self.ip_options);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let extensions_len: usize = self.extensions.iter().map(|(_, content)| content.len()).sum();
                let len = u16::try_from(extensions_len + tcp_len).unwrap_or(0).to_be_bytes();
                let mut next = self.extensions.iter().map(|(number, _)| *number).chain([6]);
                out.extend([0x60, 0, 0, 0, len[0], len[1], next.next().unwrap_or(6), 64]);
                out.extend(source.octets());
                out.extend(destination.octets());
                for (_, content) in &self.extensions {
                    out.extend(next.next());
                    out.extend(&content[1..]);
                }
            }
            _ => panic!("{} and {} are of two families", self.source, self.destination),
        }
        out.extend(self.source.port().to_be_bytes());
        out.extend(self.destination.port().to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend([((20 + self.tcp_options.len()) as u8) << 2, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        out.extend(&self.tcp_options);
        out.extend(&self.payload);
        out
    }

    /// The packet as it was on the wire at `time`.
    pub fn packet(&self, time: Timestamp) -> OwnedPacket {
        OwnedPacket::new(time, self.link, self.bytes())
    }

    fn link_header(&self) -> Vec<u8> {
        let (ethertype, family) = if self.source.is_ipv4() { (0x0800_u16, 2_u32) } else { (0x86dd, 10) };
        // Each Ethernet type stands in the header before the thing it names.
        let first = self.vlans.first().map_or(ethertype, |(tag, _)| *tag).to_be_bytes();
        let inner = self.vlans.iter().skip(1).map(|(tag, _)| *tag).chain([ethertype]);
        let mut out = match self.link {
            LinkType::Ethernet => {
                let mut out = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
                out.extend(first);
                out
            }
            LinkType::LinuxCooked => {
                let mut out = vec![0, 0, 0, 1, 0, 6, 0x02, 0, 0, 0, 0, 1, 0, 0];
                out.extend(first);
                out
            }
            LinkType::LinuxCooked2 => {
                let mut out = first.to_vec();
                out.extend([0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 0x02, 0, 0, 0, 0, 1, 0, 0]);
                out
            }
            LinkType::Null => family.to_le_bytes().to_vec(),
            LinkType::Loop => family.to_be_bytes().to_vec(),
            LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 | LinkType::Nflog | LinkType::Other(_) => {
                Vec::new()
            }
        };
        for ((_, tci), inner) in self.vlans.iter().zip(inner) {
            out.extend(tci.to_be_bytes());
            out.extend(inner.to_be_bytes());
        }
        out
    }
}

/// One end of a [`Conversation`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConversationEnd {
    /// The one that connects.
    Client,
    /// The one that listens.
    Server,
}

impl ConversationEnd {
    /// The one at the other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A TCP connection in the making. Each packet is a microsecond after the one before it, unless
/// [`wait`](Self::wait) says more.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Link type, VLAN tags and options of every packet from now on; addresses, numbers, flags and
    /// payload are set for each.
    pub template: TestFrame,
    /// The most payload bytes in one packet, from now on.
    pub mss: usize,
    /// The packets so far.
    pub packets: Vec<OwnedPacket>,
    ends: [SocketAddr; 2],
    next_seq: [u32; 2],
    now: Timestamp,
}

impl Conversation {
    /// Between two addresses, for example `10.0.0.9:51234` or `[2001:db8::9]:51234`, from 2026-05-01
    /// 10:00 UTC on, with sequence numbers 1,000 and 5,000 and an MSS of 1,460.
    ///
    /// # Panics
    /// When an address cannot be read.
    pub fn new(client: &str, server: &str) -> Self {
        let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("`{text}` is no address and port"));
        let ends = [parse(client), parse(server)];
        Self {
            template: TestFrame::new(ends[0], ends[1]),
            mss: 1_460,
            packets: Vec::new(),
            ends,
            next_seq: [1_000, 5_000],
            now: Timestamp::from_unix(1_777_629_600, 0),
        }
    }

    /// The next sequence numbers of client and server: near `u32::MAX` to see them wrap around.
    pub fn with_seq(mut self, client: u32, server: u32) -> Self {
        self.next_seq = [client, server];
        self
    }

    /// The time of the next packet.
    pub fn with_time(mut self, time: Timestamp) -> Self {
        self.now = time;
        self
    }

    /// The most payload bytes in one packet.
    pub fn with_mss(mut self, mss: usize) -> Self {
        self.mss = mss;
        self
    }

    /// Puts every packet into this VLAN.
    pub fn with_vlan(mut self, id: u16) -> Self {
        self.template.vlans = vec![(0x8100, id)];
        self
    }

    /// The time of the next packet.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Lets `ns` nanoseconds pass.
    pub fn wait(&mut self, ns: u64) -> &mut Self {
        self.now = self.now.plus_ns(ns);
        self
    }

    /// SYN, SYN-ACK, ACK.
    pub fn handshake(&mut self) -> &mut Self {
        self.push(ConversationEnd::Client, SYN, &[]).push(ConversationEnd::Server, SYN | ACK, &[]).push(
            ConversationEnd::Client,
            ACK,
            &[],
        )
    }

    /// `bytes` in as many packets as the MSS requires; PSH on the last.
    pub fn send(&mut self, from: ConversationEnd, bytes: &[u8]) -> &mut Self {
        let chunks = bytes.chunks(self.mss.max(1));
        let last = chunks.len();
        for (n, chunk) in chunks.enumerate() {
            self.push(from, if n + 1 == last { PSH | ACK } else { ACK }, chunk);
        }
        self
    }

    /// `bytes` that are not captured: only the sequence number moves on.
    pub fn lose(&mut self, from: ConversationEnd, bytes: usize) -> &mut Self {
        let seq = &mut self.next_seq[from as usize];
        *seq = seq.wrapping_add(bytes as u32);
        self
    }

    /// An empty ACK.
    pub fn ack(&mut self, from: ConversationEnd) -> &mut Self {
        self.push(from, ACK, &[])
    }

    /// FIN from one end.
    pub fn fin(&mut self, from: ConversationEnd) -> &mut Self {
        self.push(from, FIN | ACK, &[])
    }

    /// RST from one end.
    pub fn reset(&mut self, from: ConversationEnd) -> &mut Self {
        self.push(from, RST | ACK, &[])
    }

    /// FIN from the client, FIN from the server, ACK.
    pub fn close(&mut self) -> &mut Self {
        self.fin(ConversationEnd::Client).fin(ConversationEnd::Server).ack(ConversationEnd::Client)
    }

    /// One packet with these flags.
    pub fn push(&mut self, from: ConversationEnd, flags: u8, payload: &[u8]) -> &mut Self {
        let (to, from) = (from.other() as usize, from as usize);
        let frame = TestFrame {
            source: self.ends[from],
            destination: self.ends[to],
            seq: self.next_seq[from],
            ack: if flags & ACK != 0 { self.next_seq[to] } else { 0 },
            flags,
            payload: payload.to_vec(),
            ..self.template.clone()
        };
        self.packets.push(frame.packet(self.now));
        self.now = self.now.plus_ns(1_000);
        let length = payload.len() as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.next_seq[from] = self.next_seq[from].wrapping_add(length);
        self
    }
}

/// Bytes from hexadecimal digits; everything between them is skipped.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
}

/// An OP_MSG of one document, which is BSON.
pub fn op_msg(id: u32, response_to: u32, document: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for word in [16 + 5 + document.len() as u32, id, response_to, 2013, 0] {
        message.extend(word.to_le_bytes());
    }
    message.push(0);
    message.extend(document);
    message
}

/// A pcap file in nanoseconds. All packets must have the link type of the first.
pub fn pcap<'a>(packets: impl IntoIterator<Item = &'a OwnedPacket>) -> Vec<u8> {
    let mut packets = packets.into_iter().peekable();
    let link = packets.peek().map_or(LinkType::Ethernet, |packet| packet.link);
    let mut out = Vec::new();
    out.extend(0xa1b2_3c4d_u32.to_le_bytes());
    out.extend([2, 0, 4, 0]);
    for word in [0, 0, 262_144, u32::from(link.number())] {
        out.extend(word.to_le_bytes());
    }
    for packet in packets {
        let ns = packet.time.unix_ns();
        let record = [
            (ns / 1_000_000_000) as u32,
            (ns % 1_000_000_000) as u32,
            packet.data.len() as u32,
            packet.wire_len,
        ];
        out.extend(record.into_iter().flat_map(u32::to_le_bytes));
        out.extend(&packet.data);
    }
    out
}

/// Ethernet frames as a busy server sees them, for measuring: IPv4 and IPv6 (one in four), with and without TCP
/// timestamps, some in one or two VLANs, payloads from nothing to 1,448 bytes. The same for the same `count`, in an
/// order that a branch predictor cannot learn.
pub fn mixed_frames(count: usize) -> Vec<OwnedPacket> {
    const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    (0..count)
        .map(|n| {
            let port = 32_768 + random(16_384) as u16;
            let host = random(200) as u8;
            let (client, server): (SocketAddr, SocketAddr) = if random(4) == 0 {
                let mut addr = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
                let client = (addr, port).into();
                addr[15] = 201;
                (client, (addr, 27_017).into())
            } else {
                (([10, 0, 0, host], port).into(), ([10, 0, 0, 201], 27_017).into())
            };
            let mut frame =
                if random(2) == 0 { TestFrame::new(client, server) } else { TestFrame::new(server, client) };
            (frame.seq, frame.ack) = (random(1 << 32) as u32, random(1 << 32) as u32);
            frame.tcp_options = if random(10) < 7 { TIMESTAMPS.to_vec() } else { Vec::new() };
            frame.vlans = match random(10) {
                0 => vec![(0x8100, 100)],
                1 => vec![(0x88a8, 7), (0x8100, 100)],
                _ => Vec::new(),
            };
            let len = [0, 40 + random(300), 1_448][random(3) as usize];
            frame.payload = vec![n as u8; len as usize];
            frame.packet(Timestamp::from_unix(1_777_629_600, n as u32))
        })
        .collect()
}
