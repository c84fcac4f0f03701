//! Which packets the kernel hands over, and how much of each: a socket filter in classic BPF.
//!
//! What is not asked for costs a few instructions in the kernel and nothing here. The program knows
//! Ethernet with up to two VLAN tags in the frame (tags that the kernel took out are no longer there),
//! interfaces without a link-layer header, and, by the kernel's own idea of where the network header
//! begins, any other; IPv4, and IPv6 with up to two extension headers. An IPv6 packet with more of them is
//! handed over whole, for the decoder to judge. Of a fragmented IPv4 or IPv6 packet only the first
//! fragment holds the ports and is handed over, so that fragments are counted.
//!
//! Loads use offsets from the beginning of the frame wherever those are known: the kernels before 6.16
//! refuse loads by network offset (`SKF_NET_OFF`) that reach into a packet's page fragments, and drop it.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use sonar_core::{Endpoint, sample};

use crate::classic_bpf::{
    Arithmetic, AssembleError, Assembler, Condition, Instruction, Label, Operand, Width,
};
use crate::hardware;

/// Keeps a packet whole: more than any packet has.
pub const WHOLE: u32 = 0x7fff_ffff;

/// What to keep of the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Ports of servers; a TCP packet is kept when its source or its destination is one of them. Empty:
    /// every TCP packet.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Keep one connection in this many, both directions of it or none (see [`Filter::keeps`]).
    pub sample: Option<NonZeroU32>,
    /// Keep of a packet from a server only its headers and this many bytes of payload. A packet both of
    /// whose ports are servers' is kept whole. Needs `ports`.
    pub snap_replies: Option<u32>,
    /// Keep no more of any packet than this many bytes, from its link-layer header on.
    pub snap_len: u32,
}

impl Default for Filter {
    /// Every TCP packet, whole.
    fn default() -> Self {
        Self { ports: Vec::new(), sample: None, snap_replies: None, snap_len: WHOLE }
    }
}

/// Why a filter cannot be made into a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The kernel takes programs of 4096 instructions at most.
    #[error(
        "too many separate ports or interfaces: the kernel takes no filter of {instructions} instructions (at most 4096)"
    )]
    TooLong {
        /// How many it would take.
        instructions: usize,
    },
    /// Replies can be distinguished from requests only by the port of the server.
    #[error("replies cannot be cut when every port is listened to: name the ports of the servers")]
    SnapWithoutPorts,
    /// A jump in the generated program goes nowhere; a fault of this crate.
    #[error("the filter program is inconsistent")]
    Inconsistent,
}

/// What the program needs to know of the place it is attached to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Interfaces by index; empty: all.
    pub(crate) interfaces: Vec<u32>,
    /// Leave out the outgoing sight of what passes a loopback interface.
    pub(crate) loopback_once: bool,
}

impl Filter {
    /// Whether a sample keeps the connection between these two, by [`sample::contains`]: exactly what the
    /// program in the kernel decides. True for all when there is no `sample`.
    pub fn keeps(&self, source: &Endpoint, destination: &Endpoint) -> bool {
        let Some(every) = self.sample else { return true };
        sample::contains(every, source, destination, |port| {
            self.ports.iter().any(|range| range.contains(&port))
        })
    }

    /// The program.
    pub(crate) fn assemble(&self, scope: &Scope) -> Result<Vec<Instruction>, FilterError> {
        let ports = merged(&self.ports);
        if self.snap_replies.is_some() && ports.is_empty() {
            return Err(FilterError::SnapWithoutPorts);
        }
        let mut asm = Assembler::default();
        let labels =
            Labels { tcp: asm.label(), extension: asm.label(), accept: asm.label(), drop: asm.label() };
        let mut writer = Writer { asm, labels, sampled: self.sample.is_some(), filter: self };
        writer.scope(scope);
        writer.link_layer();
        writer.extensions();
        writer.tcp(&ports);
        writer.ends();
        writer.asm.finish().map_err(|error| match error {
            AssembleError::TooLong(instructions) => FilterError::TooLong { instructions },
            AssembleError::Label(_) => FilterError::Inconsistent,
        })
    }
}

/// A program that drops everything.
pub(crate) fn drop_all() -> [Instruction; 1] {
    [Instruction { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }]
}

/// The ranges in order, none touching another; empty when all ports are meant.
fn merged(ports: &[RangeInclusive<u16>]) -> Vec<RangeInclusive<u16>> {
    let mut sorted: Vec<_> = ports.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u16>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Words of the machine's memory and what they hold.
mod slot {
    /// Offset of the TCP header.
    pub(super) const TCP: u32 = 0;
    /// Offset of the source address.
    pub(super) const ADDRESSES: u32 = 1;
    /// 4 or 6.
    pub(super) const FAMILY: u32 = 2;
    /// What to add to an offset to get a number of bytes to keep.
    pub(super) const BIAS: u32 = 3;
    /// A value on its way.
    pub(super) const SCRATCH: u32 = 4;
}

/// Where the network header begins.
#[derive(Copy, Clone)]
enum Network {
    /// At this offset in the frame.
    At(u32),
    /// Where the kernel says (`SKF_NET_OFF`).
    Kernel,
}

impl Network {
    /// To be added to an offset within the network header.
    const fn base(self) -> u32 {
        match self {
            Self::At(offset) => offset,
            Self::Kernel => libc::SKF_NET_OFF as u32,
        }
    }

    /// From `base() + n` to a number of bytes that holds the frame up to `n` of the network header. The
    /// length of an unknown link-layer header is taken to be at most 64 bytes.
    const fn bias(self) -> u32 {
        match self {
            Self::At(_) => 0,
            Self::Kernel => 0u32.wrapping_sub(libc::SKF_NET_OFF as u32) + 64,
        }
    }
}

/// Which ends of a packet are servers.
#[derive(Copy, Clone)]
enum Servers {
    Source,
    Destination,
    /// Both, or it is not known.
    Either,
}

const ANCILLARY: u32 = libc::SKF_AD_OFF as u32;
const ETHERTYPE_IPV4: u32 = libc::ETH_P_IP as u32;
const ETHERTYPE_IPV6: u32 = libc::ETH_P_IPV6 as u32;
/// 802.1Q, 802.1ad, and what was used for the outer tag before that.
const ETHERTYPES_VLAN: [u32; 3] = [libc::ETH_P_8021Q as u32, libc::ETH_P_8021AD as u32, 0x9100];
const PROTOCOL_TCP: u32 = libc::IPPROTO_TCP as u32;
const PROTOCOL_FRAGMENT: u32 = libc::IPPROTO_FRAGMENT as u32;
const PROTOCOL_AUTHENTICATION: u32 = libc::IPPROTO_AH as u32;
/// Extension headers that begin with the next protocol and their length in units of eight bytes, the first
/// not counted: hop-by-hop, routing, destination options, mobility, host identity, shim6 (RFC 8200 and
/// the IANA list).
const PROTOCOLS_OPTIONS: [u32; 6] = [0, 43, 60, 135, 139, 140];
/// Extension headers that are looked through.
const EXTENSIONS: usize = 2;

struct Labels {
    /// X is the offset of a TCP header.
    tcp: Label,
    /// A is the protocol of the IPv6 header at X.
    extension: Label,
    accept: Label,
    drop: Label,
}

struct Writer<'a> {
    asm: Assembler,
    labels: Labels,
    sampled: bool,
    filter: &'a Filter,
}

impl Writer<'_> {
    /// Interfaces that were not asked for, and twins on loopback.
    fn scope(&mut self, scope: &Scope) {
        let asm = &mut self.asm;
        if !scope.interfaces.is_empty() {
            let wanted = asm.label();
            asm.load(Width::Word, ANCILLARY + libc::SKF_AD_IFINDEX as u32);
            for index in &scope.interfaces {
                asm.when(Condition::Equal, *index, wanted);
            }
            asm.jump(self.labels.drop);
            asm.place(wanted);
        }
        if scope.loopback_once {
            let other = asm.label();
            asm.load(Width::Half, ANCILLARY + libc::SKF_AD_HATYPE as u32);
            asm.unless(Condition::Equal, u32::from(libc::ARPHRD_LOOPBACK), other);
            asm.load(Width::Word, ANCILLARY + libc::SKF_AD_PKTTYPE as u32);
            asm.when(Condition::Equal, u32::from(libc::PACKET_OUTGOING), self.labels.drop);
            asm.place(other);
        }
    }

    /// From the beginning of the frame to the network header.
    fn link_layer(&mut self) {
        let (ethernet, bare) = (self.asm.label(), self.asm.label());
        self.asm.load(Width::Half, ANCILLARY + libc::SKF_AD_HATYPE as u32);
        for kind in hardware::ETHERNET {
            self.asm.when(Condition::Equal, u32::from(kind), ethernet);
        }
        for kind in hardware::WITHOUT_HEADER {
            self.asm.when(Condition::Equal, u32::from(kind), bare);
        }
        self.asm.load(Width::Half, ANCILLARY + libc::SKF_AD_PROTOCOL as u32);
        self.network(Network::Kernel, false);
        self.asm.place(bare);
        self.asm.load(Width::Half, ANCILLARY + libc::SKF_AD_PROTOCOL as u32);
        self.network(Network::At(0), false);
        self.asm.place(ethernet);
        for (tags, may_be_tagged) in [(0, true), (1, true), (2, false)] {
            self.asm.load(Width::Half, 12 + 4 * tags);
            self.network(Network::At(14 + 4 * tags), may_be_tagged);
        }
    }

    /// From the network header to TCP. A is the ethertype; goes on behind when that is a VLAN tag's and
    /// `may_be_tagged`.
    fn network(&mut self, network: Network, may_be_tagged: bool) {
        let (v4, v6, tag) = (self.asm.label(), self.asm.label(), self.asm.label());
        let base = network.base();
        self.asm.when(Condition::Equal, ETHERTYPE_IPV4, v4);
        self.asm.when(Condition::Equal, ETHERTYPE_IPV6, v6);
        if may_be_tagged {
            for ethertype in ETHERTYPES_VLAN {
                self.asm.when(Condition::Equal, ethertype, tag);
            }
        }
        self.asm.jump(self.labels.drop);

        self.asm.place(v4);
        self.asm.load(Width::Byte, base + 9);
        self.asm.unless(Condition::Equal, PROTOCOL_TCP, self.labels.drop);
        self.asm.load(Width::Half, base + 6);
        self.asm.when(Condition::AnyBit, 0x1fff, self.labels.drop);
        self.remember(network, 12, 4);
        self.asm.load_x_ipv4_length(base);
        if base != 0 {
            self.asm.x_to_a();
            self.asm.arithmetic(Arithmetic::Add, Operand::Constant(base));
            self.asm.a_to_x();
        }
        self.asm.jump(self.labels.tcp);

        self.asm.place(v6);
        self.remember(network, 8, 6);
        self.asm.load_x_constant(base + 40);
        self.asm.load(Width::Byte, base + 6);
        self.asm.when(Condition::Equal, PROTOCOL_TCP, self.labels.tcp);
        self.asm.jump(self.labels.extension);
        self.asm.place(tag);
    }

    /// Keeps what only the network header says and the end of the program needs.
    fn remember(&mut self, network: Network, addresses: u32, family: u32) {
        if self.sampled {
            self.asm.load_constant(network.base() + addresses);
            self.asm.store(slot::ADDRESSES);
            self.asm.load_constant(family);
            self.asm.store(slot::FAMILY);
        }
        if self.filter.snap_replies.is_some() {
            self.asm.load_constant(network.bias());
            self.asm.store(slot::BIAS);
        }
    }

    /// From the first IPv6 extension header to TCP. A is its kind, X its offset.
    fn extensions(&mut self) {
        self.asm.place(self.labels.extension);
        for _ in 0..EXTENSIONS {
            let (options, fragment, authentication) = (self.asm.label(), self.asm.label(), self.asm.label());
            let next = self.asm.label();
            for kind in PROTOCOLS_OPTIONS {
                self.asm.when(Condition::Equal, kind, options);
            }
            self.asm.when(Condition::Equal, PROTOCOL_FRAGMENT, fragment);
            self.asm.when(Condition::Equal, PROTOCOL_AUTHENTICATION, authentication);
            self.asm.jump(self.labels.drop);

            self.asm.place(fragment);
            self.asm.load_at_x(Width::Half, 2);
            self.asm.when(Condition::AnyBit, 0xfff8, self.labels.drop);
            self.asm.load_constant(8);
            self.asm.jump(next);

            self.asm.place(authentication);
            self.asm.load_at_x(Width::Byte, 1);
            self.asm.arithmetic(Arithmetic::Add, Operand::Constant(2));
            self.asm.arithmetic(Arithmetic::ShiftLeft, Operand::Constant(2));
            self.asm.jump(next);

            self.asm.place(options);
            self.asm.load_at_x(Width::Byte, 1);
            self.asm.arithmetic(Arithmetic::Add, Operand::Constant(1));
            self.asm.arithmetic(Arithmetic::ShiftLeft, Operand::Constant(3));

            // A is the header's length.
            self.asm.place(next);
            self.asm.arithmetic(Arithmetic::Add, Operand::X);
            self.asm.store(slot::SCRATCH);
            self.asm.load_at_x(Width::Byte, 0);
            self.asm.load_x_memory(slot::SCRATCH);
            self.asm.when(Condition::Equal, PROTOCOL_TCP, self.labels.tcp);
        }
        for kind in PROTOCOLS_OPTIONS.into_iter().chain([PROTOCOL_FRAGMENT, PROTOCOL_AUTHENTICATION]) {
            self.asm.when(Condition::Equal, kind, self.labels.accept);
        }
        self.asm.jump(self.labels.drop);
    }

    /// From the TCP header at X to the verdict.
    fn tcp(&mut self, ports: &[RangeInclusive<u16>]) {
        self.asm.place(self.labels.tcp);
        if ports.is_empty() && self.filter.ports.is_empty() {
            self.verdict(Servers::Either);
            return;
        }
        let told_apart = self.sampled || self.filter.snap_replies.is_some();
        let (source, destination, no_source) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.load_at_x(Width::Half, 0);
        self.port_in(ports, if told_apart { source } else { self.labels.accept }, no_source);
        self.asm.place(no_source);
        self.asm.load_at_x(Width::Half, 2);
        self.port_in(ports, if told_apart { destination } else { self.labels.accept }, self.labels.drop);
        if !told_apart {
            return;
        }
        self.asm.place(destination);
        self.verdict(Servers::Destination);
        self.asm.place(source);
        let (both, only_source) = (self.asm.label(), self.asm.label());
        self.asm.load_at_x(Width::Half, 2);
        self.port_in(ports, both, only_source);
        self.asm.place(both);
        self.verdict(Servers::Either);
        self.asm.place(only_source);
        self.verdict(Servers::Source);
    }

    /// Is A in one of the ranges, which are in order?
    fn port_in(&mut self, ports: &[RangeInclusive<u16>], yes: Label, no: Label) {
        for range in ports {
            let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
            if first == last {
                self.asm.when(Condition::Equal, first, yes);
            } else {
                let above = self.asm.label();
                self.asm.when(Condition::Greater, last, above);
                self.asm.when(Condition::GreaterOrEqual, first, yes);
                // Below this range is below all that follow.
                self.asm.jump(no);
                self.asm.place(above);
            }
        }
        self.asm.jump(no);
    }

    /// Sample and snap length; the TCP header is at X.
    fn verdict(&mut self, servers: Servers) {
        if let Some(every) = self.filter.sample {
            self.asm.store_x(slot::TCP);
            self.sample(servers, every);
            self.asm.load_x_memory(slot::TCP);
        }
        match (self.filter.snap_replies, servers) {
            (Some(payload), Servers::Source) => {
                let capped = self.asm.label();
                self.asm.load_at_x(Width::Byte, 12);
                self.asm.arithmetic(Arithmetic::And, Operand::Constant(0xf0));
                self.asm.arithmetic(Arithmetic::ShiftRight, Operand::Constant(2));
                self.asm.arithmetic(Arithmetic::Add, Operand::X);
                self.asm.load_x_memory(slot::BIAS);
                self.asm.arithmetic(Arithmetic::Add, Operand::X);
                self.asm.arithmetic(Arithmetic::Add, Operand::Constant(payload.min(WHOLE / 2)));
                self.asm.when(Condition::Greater, self.filter.snap_len, capped);
                self.asm.return_a();
                self.asm.place(capped);
                self.asm.return_constant(self.filter.snap_len);
            }
            _ => self.asm.return_constant(self.filter.snap_len),
        }
    }

    /// Drops unless the connection belongs to the sample: the arithmetic of [`sample::contains`].
    fn sample(&mut self, servers: Servers, every: NonZeroU32) {
        let (v6, hash) = (self.asm.label(), self.asm.label());
        let asm = &mut self.asm;
        asm.load_memory(slot::FAMILY);
        asm.when(Condition::Equal, 6, v6);
        for words in [1, 4] {
            if words == 4 {
                asm.place(v6);
            }
            let wanted = match servers {
                Servers::Destination => 0..words,
                Servers::Source => words..2 * words,
                Servers::Either => 0..2 * words,
            };
            // A and X are the only registers, so the sum waits in memory while X holds the offset.
            for (count, word) in wanted.enumerate() {
                asm.load_x_memory(slot::ADDRESSES);
                asm.load_at_x(Width::Word, 4 * word);
                if count > 0 {
                    asm.load_x_memory(slot::SCRATCH);
                    asm.arithmetic(Arithmetic::Xor, Operand::X);
                }
                asm.store(slot::SCRATCH);
            }
            // Of two IPv4 addresses the mappings cancel each other out.
            if words == 1 && !matches!(servers, Servers::Either) {
                asm.arithmetic(Arithmetic::Xor, Operand::Constant(sample::MAPPED));
            }
            asm.jump(hash);
        }
        asm.place(hash);
        asm.arithmetic(Arithmetic::Multiply, Operand::Constant(sample::MULTIPLIERS[0]));
        Self::xor_shifted(asm, sample::SHIFTS[0]);
        asm.store(slot::SCRATCH);
        asm.load_x_memory(slot::TCP);
        match servers {
            Servers::Destination => asm.load_at_x(Width::Half, 0),
            Servers::Source => asm.load_at_x(Width::Half, 2),
            Servers::Either => {
                // FAMILY is not needed any more.
                asm.load_at_x(Width::Half, 0);
                asm.store(slot::FAMILY);
                asm.load_at_x(Width::Half, 2);
                asm.load_x_memory(slot::FAMILY);
                asm.arithmetic(Arithmetic::Xor, Operand::X);
            }
        }
        asm.load_x_memory(slot::SCRATCH);
        asm.arithmetic(Arithmetic::Add, Operand::X);
        asm.arithmetic(Arithmetic::Multiply, Operand::Constant(sample::MULTIPLIERS[1]));
        Self::xor_shifted(asm, sample::SHIFTS[1]);
        asm.arithmetic(Arithmetic::Multiply, Operand::Constant(sample::MULTIPLIERS[2]));
        Self::xor_shifted(asm, sample::SHIFTS[2]);
        asm.arithmetic(Arithmetic::Remainder, Operand::Constant(every.get()));
        asm.unless(Condition::Equal, 0, self.labels.drop);
    }

    /// A = A xor (A >> bits).
    fn xor_shifted(asm: &mut Assembler, bits: u32) {
        asm.a_to_x();
        asm.arithmetic(Arithmetic::ShiftRight, Operand::Constant(bits));
        asm.arithmetic(Arithmetic::Xor, Operand::X);
    }

    fn ends(&mut self) {
        self.asm.place(self.labels.accept);
        self.asm.return_constant(self.filter.snap_len);
        self.asm.place(self.labels.drop);
        self.asm.return_constant(0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;
    use crate::classic_bpf::machine::{Seen, run};

    /// A frame to be built: TCP unless set otherwise.
    #[derive(Clone)]
    struct Frame {
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

    fn frame(source: (&str, u16), destination: (&str, u16)) -> Frame {
        Frame {
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

    impl Frame {
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

        fn ethernet(&self) -> Seen {
            let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
            for (ethertype, tci) in &self.tags {
                bytes.extend(ethertype.to_be_bytes());
                bytes.extend(tci.to_be_bytes());
            }
            bytes.extend(self.ethertype().to_be_bytes());
            let network = bytes.len();
            bytes.extend(self.packet());
            let protocol = self.tags.first().map_or(self.ethertype(), |tag| tag.0);
            Seen { bytes, network, protocol, hardware: libc::ARPHRD_ETHER, interface: 2, ..Seen::default() }
        }

        fn on(&self, hardware: u16, header: &[u8]) -> Seen {
            let mut bytes = header.to_vec();
            bytes.extend(self.packet());
            Seen {
                bytes,
                network: header.len(),
                protocol: self.ethertype(),
                hardware,
                interface: 2,
                ..Seen::default()
            }
        }

        fn ends(&self) -> (Endpoint, Endpoint) {
            (
                std::net::SocketAddr::from(self.source).into(),
                std::net::SocketAddr::from(self.destination).into(),
            )
        }
    }

    const C4: &str = "10.1.2.3";
    const S4: &str = "10.9.8.7";
    const C6: &str = "2001:db8::1:2:3";
    const S6: &str = "2001:db8:5::9";

    fn port(first: u16, last: u16) -> Filter {
        Filter { ports: vec![first..=last], ..Filter::default() }
    }

    fn program(filter: &Filter) -> Vec<Instruction> {
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
                layouts.push(Frame { tags, ..plain.clone() });
            }
            layouts.push(Frame { ip_options: 10, tcp_options: 10, ..plain.clone() });
            for extensions in [
                vec![(0, 8)],
                vec![(60, 24)],
                vec![(0, 16), (43, 24)],
                vec![(44, 8)],
                vec![(0, 8), (51, 24)],
                vec![(135, 8), (139, 8)],
                // More than the program looks through: handed over unseen.
                vec![(0, 8), (43, 8), (60, 8)],
            ] {
                layouts.push(Frame { extensions, ..plain.clone() });
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
    fn what_was_not_asked_for_is_dropped() {
        let program = program(&port(27017, 27019));
        let plain = frame((C4, 40000), (S4, 27018));
        let v6 = frame((C6, 40000), (S6, 27018));
        for (what, frame) in [
            ("another port", frame((C4, 40000), (S4, 27020))),
            ("another port", frame((C4, 27016), (S4, 27016))),
            ("another port", frame((C6, 40000), (S6, 27016))),
            ("UDP", Frame { protocol: 17, ..plain.clone() }),
            ("UDP", Frame { protocol: 17, ..v6.clone() }),
            ("ICMPv6 behind hop-by-hop", Frame { protocol: 58, extensions: vec![(0, 8)], ..v6.clone() }),
            ("a later fragment", Frame { fragment: 1, ..plain.clone() }),
            ("a later fragment", Frame { fragment: 0x1000, ..plain.clone() }),
            ("a later fragment", Frame { fragment: 0x3000, ..plain.clone() }),
            ("a later fragment", Frame { fragment: 1, extensions: vec![(44, 8)], ..v6.clone() }),
            ("three tags", Frame { tags: vec![(0x8100, 1); 3], ..plain.clone() }),
            ("ESP", Frame { protocol: 50, ..v6.clone() }),
        ] {
            for seen in [
                frame.ethernet(),
                frame.on(libc::ARPHRD_NONE, &[]),
                frame.on(libc::ARPHRD_INFINIBAND, &[0; 24]),
            ] {
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
    fn a_first_fragment_is_kept() {
        let more_fragments = Frame { fragment: 0x2000, ..frame((C4, 40000), (S4, 27017)) };
        assert_eq!(run(&program(&port(27017, 27017)), &more_fragments.ethernet()), WHOLE);
    }

    #[test]
    fn without_ports_every_tcp_packet_is_kept() {
        let program = program(&Filter::default());
        assert_eq!(run(&program, &frame((C4, 1), (S4, 2)).ethernet()), WHOLE);
        assert_eq!(run(&program, &frame((C6, 1), (S6, 2)).ethernet()), WHOLE);
        assert_eq!(run(&program, &Frame { protocol: 17, ..frame((C6, 1), (S6, 2)) }.ethernet()), 0);
    }

    #[test]
    fn ports_are_asked_for_in_any_order_and_number() {
        assert_eq!(merged(&[5..=9, 1..=2, 3..=3, 8..=20, 30..=30]), [1..=3, 5..=20, 30..=30]);
        assert_eq!(merged(&[0..=65535, 9..=9]), [0..=65535]);
        let odd = Filter { ports: (0..600).map(|n| 2 * n + 1..=2 * n + 1).collect(), ..Filter::default() };
        let ranges = Filter { ports: (0..400).map(|n| 10 * n..=10 * n + 4).collect(), ..Filter::default() };
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
        let too_many = Filter { ports: (0..4000).map(|n| 2 * n..=2 * n).collect(), ..Filter::default() };
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
            let seen = Seen { interface, hardware, packet_type: u32::from(packet_type), ..seen.clone() };
            assert_eq!(run(&program, &seen) > 0, kept, "{interface} {hardware} {packet_type}");
        }
    }

    #[test]
    fn replies_are_cut_behind_their_headers() {
        let filter = Filter { snap_replies: Some(64), ..port(27017, 27019) };
        let program = program(&filter);
        let request = frame((C4, 40000), (S4, 27017));
        assert_eq!(run(&program, &request.ethernet()), WHOLE);
        assert_eq!(run(&program, &request.reversed().ethernet()), 14 + 20 + 20 + 64);
        let options = Frame { ip_options: 3, tcp_options: 3, ..request.reversed() };
        assert_eq!(run(&program, &options.ethernet()), 14 + 32 + 32 + 64);
        let tagged = Frame { tags: vec![(0x88a8, 1), (0x8100, 2)], ..request.reversed() };
        assert_eq!(run(&program, &tagged.ethernet()), 22 + 40 + 64);
        assert_eq!(run(&program, &request.reversed().on(libc::ARPHRD_PPP, &[])), 40 + 64);
        let v6 = Frame { extensions: vec![(0, 16)], tcp_options: 3, ..frame((S6, 27018), (C6, 40000)) };
        assert_eq!(run(&program, &v6.ethernet()), 14 + 40 + 16 + 32 + 64);
        // An unknown link-layer header: room for it is left.
        let cut = run(&program, &request.reversed().on(libc::ARPHRD_INFINIBAND, &[0; 24]));
        assert!((24 + 40 + 64..24 + 40 + 64 + 64).contains(&cut), "{cut}");
        // Who of the two is the server is not known.
        assert_eq!(run(&program, &frame((C4, 27018), (S4, 27017)).ethernet()), WHOLE);
        // The general limit is above it.
        let short = Filter { snap_len: 100, ..filter };
        assert_eq!(run(&self::program(&short), &request.reversed().ethernet()), 100);
        assert_eq!(run(&self::program(&short), &request.ethernet()), 100);
        let no_ports = Filter { snap_replies: Some(1), ..Filter::default() };
        assert_eq!(no_ports.assemble(&Scope::default()).unwrap_err(), FilterError::SnapWithoutPorts);
        let most = Filter { snap_replies: Some(u32::MAX), ..port(27017, 27017) };
        assert!(run(&self::program(&most), &request.reversed().ethernet()) > 1 << 20);
    }

    #[test]
    fn a_sample_keeps_whole_connections() {
        let every = NonZeroU32::new(10);
        for filter in [
            Filter { sample: every, ..port(27017, 27019) },
            Filter { sample: every, snap_replies: Some(8), ..port(27017, 27019) },
            Filter { sample: every, ..Filter::default() },
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
                    let far = Frame { extensions: vec![(0, 8), (60, 16)], ..there.clone() };
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

    /// Two addresses of one family; IPv4-mapped ones, which no wire should have, among them.
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
            let filter = Filter { ports: ranges, sample: NonZeroU32::new(every), ..Filter::default() };
            let program = program(&filter);
            let frame = Frame {
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

    /// The judgement of somebody else's compiler on the same frames.
    #[test]
    fn agrees_with_tcpdump() {
        for (expression, filter, tagged) in [
            ("tcp port 27017", port(27017, 27017), false),
            ("tcp portrange 27017-27019", port(27017, 27019), false),
            (
                "tcp port 27017 or tcp portrange 30000-30010",
                Filter { ports: vec![30000..=30010, 27017..=27017], ..Filter::default() },
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
                            let frame = Frame {
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
}
