//! Which packets the kernel passes on, and how much of each: a socket filter in classic BPF.
//!
//! Other packets cost a few instructions in the kernel and nothing here. The program knows Ethernet with up to two
//! VLAN tags in the frame (not counting tags that the kernel removed), interfaces without a link-layer header, and
//! all others by the kernel's offset of the network header; IPv4, and IPv6 with up to two extension headers. An IPv6
//! packet with more extension headers is passed on whole, and the decoder decides. Only the first fragment of a packet
//! has the ports; it is passed on, so that fragments are counted.
//!
//! Loads use offsets from the beginning of the frame if those are known: kernels before 6.16 refuse loads by network
//! offset (`SKF_NET_OFF`) that reach into a packet's page fragments, and drop the packet.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use sonar_core::time_split::ConnectionSample;
use sonar_core::{Endpoint, sample};

use crate::classic_bpf::{
    Arithmetic, AssembleError, BpfAssembler, Condition, Instruction, JumpLabel, Operand, Width,
};
use crate::hardware;

/// Keeps a packet whole: more than any packet has.
pub const WHOLE: u32 = 0x7fff_ffff;

/// What to keep of the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketFilter {
    /// Ports of servers: keep TCP packets whose source or destination is one of them. Empty: every TCP packet.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Keep one connection in this many, both directions of it or none (see [`PacketFilter::keeps`]).
    pub sample: Option<NonZeroU32>,
    /// Keep only the connections of these clients, by their port. Connections between two servers' ports are kept. Needs
    /// `ports`.
    pub clients: ConnectionSample,
    /// Of a packet from a server, keep only the headers and this many bytes of payload. A packet between two servers'
    /// ports is kept whole. Needs `ports`.
    pub snap_replies: Option<u32>,
    /// Keep at most this many bytes of any packet, from its link-layer header on.
    pub snap_len: u32,
    /// Keep every packet of a tunnel too (VXLAN, GENEVE, GRE, IP in IP, MPLS, PPPoE), whatever is inside it.
    pub tunnels: bool,
}

impl Default for PacketFilter {
    /// Every TCP packet, whole.
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            sample: None,
            clients: ConnectionSample::default(),
            snap_replies: None,
            snap_len: WHOLE,
            tunnels: false,
        }
    }
}

/// Why no program can be made of a filter.
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

/// What the program needs to know of the place where it is attached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Interfaces by index; empty: all.
    pub(crate) interfaces: Vec<u32>,
    /// Leave out the outgoing copy of packets on a loopback interface.
    pub(crate) loopback_once: bool,
}

impl PacketFilter {
    /// Whether a sample keeps the connection between these two, by [`sample::contains`]: exactly as the program in
    /// the kernel decides. True for all if there is no `sample`.
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
        let mut asm = BpfAssembler::default();
        let labels = Labels {
            tcp: asm.label(),
            udp: asm.label(),
            extension: asm.label(),
            accept: asm.label(),
            drop: asm.label(),
        };
        let mut writer = FilterWriter { asm, labels, sampled: self.sample.is_some(), filter: self };
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

/// The ranges in order, without overlaps or neighbours; empty if all ports are meant.
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
    /// A temporary value.
    pub(super) const SCRATCH: u32 = 4;
}

/// Where the network header begins.
#[derive(Copy, Clone)]
enum NetworkOffset {
    /// At this offset in the frame.
    At(u32),
    /// Where the kernel states it (`SKF_NET_OFF`).
    Kernel,
}

impl NetworkOffset {
    /// To add to an offset within the network header.
    const fn base(self) -> u32 {
        match self {
            Self::At(offset) => offset,
            Self::Kernel => libc::SKF_NET_OFF as u32,
        }
    }

    /// From `base() + n` to the number of bytes that contains the frame up to `n` of the network header. An unknown
    /// link-layer header counts as 64 bytes.
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
    /// Both, or it is unknown.
    Either,
}

const ANCILLARY: u32 = libc::SKF_AD_OFF as u32;
const ETHERTYPE_IPV4: u32 = libc::ETH_P_IP as u32;
const ETHERTYPE_IPV6: u32 = libc::ETH_P_IPV6 as u32;
/// 802.1Q, 802.1ad, and an earlier number of the outer tag.
const ETHERTYPES_VLAN: [u32; 3] = [libc::ETH_P_8021Q as u32, libc::ETH_P_8021AD as u32, 0x9100];
const PROTOCOL_TCP: u32 = libc::IPPROTO_TCP as u32;
const PROTOCOL_UDP: u32 = libc::IPPROTO_UDP as u32;
/// MPLS (also multicast) and sessions of PPPoE: what they carry may be IP.
const ETHERTYPES_TUNNEL: [u32; 3] = [0x8847, 0x8848, 0x8864];
/// IP in IP, 6in4, GRE, and MPLS in IP.
const PROTOCOLS_TUNNEL: [u32; 4] = [4, 41, 47, 137];
/// VXLAN, its extension GPE, and Linux's earlier number of it; GENEVE; GRE and MPLS in UDP.
const PORTS_TUNNEL: [u32; 6] = [4_789, 4_790, 8_472, 6_081, 4_754, 6_635];
const PROTOCOL_FRAGMENT: u32 = libc::IPPROTO_FRAGMENT as u32;
const PROTOCOL_AUTHENTICATION: u32 = libc::IPPROTO_AH as u32;
/// Extension headers that begin with the next protocol and their length in units of eight bytes, the first
/// not counted: hop-by-hop, routing, destination options, mobility, host identity, shim6 (RFC 8200 and
/// the IANA list).
const PROTOCOLS_OPTIONS: [u32; 6] = [0, 43, 60, 135, 139, 140];
/// The most extension headers that are followed.
const EXTENSIONS: usize = 2;

struct Labels {
    /// X is the offset of a TCP header.
    tcp: JumpLabel,
    /// X is the offset of a UDP header, which may be that of a tunnel.
    udp: JumpLabel,
    /// A is the protocol of the IPv6 header at X.
    extension: JumpLabel,
    accept: JumpLabel,
    drop: JumpLabel,
}

struct FilterWriter<'a> {
    asm: BpfAssembler,
    labels: Labels,
    sampled: bool,
    filter: &'a PacketFilter,
}

impl FilterWriter<'_> {
    /// Drops packets of other interfaces, and the second copy on loopback.
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
        self.network(NetworkOffset::Kernel, false);
        self.asm.place(bare);
        self.asm.load(Width::Half, ANCILLARY + libc::SKF_AD_PROTOCOL as u32);
        self.network(NetworkOffset::At(0), false);
        self.asm.place(ethernet);
        for (tags, may_be_tagged) in [(0, true), (1, true), (2, false)] {
            self.asm.load(Width::Half, 12 + 4 * tags);
            self.network(NetworkOffset::At(14 + 4 * tags), may_be_tagged);
        }
    }

    /// From the network header to TCP. A is the ethertype; continues after this if it is that of a VLAN tag and
    /// `may_be_tagged`.
    fn network(&mut self, network: NetworkOffset, may_be_tagged: bool) {
        let (v4, v6, tag) = (self.asm.label(), self.asm.label(), self.asm.label());
        let base = network.base();
        self.asm.when(Condition::Equal, ETHERTYPE_IPV4, v4);
        self.asm.when(Condition::Equal, ETHERTYPE_IPV6, v6);
        if may_be_tagged {
            for ethertype in ETHERTYPES_VLAN {
                self.asm.when(Condition::Equal, ethertype, tag);
            }
        }
        if self.filter.tunnels {
            for ethertype in ETHERTYPES_TUNNEL {
                self.asm.when(Condition::Equal, ethertype, self.labels.accept);
            }
        }
        self.asm.jump(self.labels.drop);

        self.asm.place(v4);
        self.asm.load(Width::Byte, base + 9);
        if self.filter.tunnels {
            let (tcp, udp) = (self.asm.label(), self.asm.label());
            self.asm.when(Condition::Equal, PROTOCOL_TCP, tcp);
            self.tunnels_or_udp(udp);
            self.asm.jump(self.labels.drop);
            self.asm.place(udp);
            self.first_ipv4_fragment(base);
            self.asm.jump(self.labels.udp);
            self.asm.place(tcp);
        } else {
            self.asm.unless(Condition::Equal, PROTOCOL_TCP, self.labels.drop);
        }
        self.remember(network, 12, 4);
        self.first_ipv4_fragment(base);
        self.asm.jump(self.labels.tcp);

        self.asm.place(v6);
        self.remember(network, 8, 6);
        self.asm.load_x_constant(base + 40);
        self.asm.load(Width::Byte, base + 6);
        self.asm.when(Condition::Equal, PROTOCOL_TCP, self.labels.tcp);
        self.tunnels_or_udp(self.labels.udp);
        self.asm.jump(self.labels.extension);
        self.asm.place(tag);
    }

    /// Drops later fragments of an IPv4 packet; then X is where its header ends.
    fn first_ipv4_fragment(&mut self, base: u32) {
        self.asm.load(Width::Half, base + 6);
        self.asm.when(Condition::AnyBit, 0x1fff, self.labels.drop);
        self.asm.load_x_ipv4_length(base);
        if base != 0 {
            self.asm.x_to_a();
            self.asm.arithmetic(Arithmetic::Add, Operand::Constant(base));
            self.asm.a_to_x();
        }
    }

    /// If tunnels are wanted: keeps the packet if A is the protocol of one, and goes on at `udp` if it is UDP.
    fn tunnels_or_udp(&mut self, udp: JumpLabel) {
        if self.filter.tunnels {
            for protocol in PROTOCOLS_TUNNEL {
                self.asm.when(Condition::Equal, protocol, self.labels.accept);
            }
            self.asm.when(Condition::Equal, PROTOCOL_UDP, udp);
        }
    }

    /// Stores what only the network header states and the end of the program needs.
    fn remember(&mut self, network: NetworkOffset, addresses: u32, family: u32) {
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
            self.tunnels_or_udp(self.labels.udp);
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
        let told_apart =
            self.sampled || self.filter.clients.is_partial() || self.filter.snap_replies.is_some();
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

    /// Whether A is in one of the ranges, which are in order.
    fn port_in(&mut self, ports: &[RangeInclusive<u16>], yes: JumpLabel, no: JumpLabel) {
        for range in ports {
            let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
            if first == last {
                self.asm.when(Condition::Equal, first, yes);
            } else {
                let above = self.asm.label();
                self.asm.when(Condition::Greater, last, above);
                self.asm.when(Condition::GreaterOrEqual, first, yes);
                // A port below this range is below all the following.
                self.asm.jump(no);
                self.asm.place(above);
            }
        }
        self.asm.jump(no);
    }

    /// Samples and snap length; the TCP header is at X.
    fn verdict(&mut self, servers: Servers) {
        self.clients(servers);
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

    /// Drops unless the client's port belongs to its sample: the arithmetic of [`ConnectionSample::has`].
    fn clients(&mut self, servers: Servers) {
        let clients = self.filter.clients;
        let port_at = match servers {
            _ if !clients.is_partial() => return,
            Servers::Destination => 0,
            Servers::Source => 2,
            Servers::Either => return,
        };
        self.asm.load_at_x(Width::Half, port_at);
        self.asm.arithmetic(Arithmetic::Multiply, Operand::Constant(ConnectionSample::MULTIPLIER));
        self.asm.arithmetic(Arithmetic::ShiftRight, Operand::Constant(ConnectionSample::SHIFT));
        self.asm.arithmetic(Arithmetic::Remainder, Operand::Constant(u32::from(clients.every.get())));
        self.asm.unless(Condition::Equal, 0, self.labels.drop);
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
            // A and X are the only registers, so the sum is stored in memory while X is the offset.
            for (count, word) in wanted.enumerate() {
                asm.load_x_memory(slot::ADDRESSES);
                asm.load_at_x(Width::Word, 4 * word);
                if count > 0 {
                    asm.load_x_memory(slot::SCRATCH);
                    asm.arithmetic(Arithmetic::Xor, Operand::X);
                }
                asm.store(slot::SCRATCH);
            }
            // The mappings of two IPv4 addresses cancel each other out.
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
                // FAMILY is no longer needed.
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
    fn xor_shifted(asm: &mut BpfAssembler, bits: u32) {
        asm.a_to_x();
        asm.arithmetic(Arithmetic::ShiftRight, Operand::Constant(bits));
        asm.arithmetic(Arithmetic::Xor, Operand::X);
    }

    fn ends(&mut self) {
        if self.filter.tunnels {
            self.asm.place(self.labels.udp);
            self.asm.load_at_x(Width::Half, 2);
            for port in PORTS_TUNNEL {
                self.asm.when(Condition::Equal, port, self.labels.accept);
            }
            self.asm.jump(self.labels.drop);
        }
        self.asm.place(self.labels.accept);
        self.asm.return_constant(self.filter.snap_len);
        self.asm.place(self.labels.drop);
        self.asm.return_constant(0);
    }
}

#[cfg(test)]
mod tests;
