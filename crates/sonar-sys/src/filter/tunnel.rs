//! The part of the program that looks into tunnels.

use std::ops::RangeInclusive;

use super::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPES_VLAN, FilterWriter, PROTOCOL_AUTHENTICATION,
    PROTOCOL_FRAGMENT, PROTOCOL_TCP, PROTOCOLS_OPTIONS,
};
use crate::classic_bpf::{Arithmetic, Condition, Operand, Width};

/// MPLS for one and for many receivers, and PPPoE.
pub(super) const ETHERTYPES_TUNNEL: [u32; 3] = [0x8847, 0x8848, 0x8864];
const ETHERTYPE_BRIDGED: u32 = 0x6558;
pub(super) const PROTOCOL_UDP: u32 = libc::IPPROTO_UDP as u32;
/// IPv4, IPv6, GRE and MPLS inside of IP.
pub(super) const PROTOCOLS_TUNNEL: [u32; 4] = [4, 41, 47, 137];
/// Ports of VXLAN.
const PORTS_VXLAN: [u32; 2] = [4789, 8472];
const PORT_GENEVE: u32 = 6081;
/// Ports of VXLAN-GPE, and of GRE and MPLS over UDP.
const PORTS_TUNNEL: [u32; 3] = [4790, 4754, 6635];

impl FilterWriter<'_> {
    /// Continues with a tunnel if A is the protocol of one; X is the offset of its header.
    pub(super) fn tunnel_of_ipv6(&mut self) {
        if self.filter.tunnels {
            self.accept(&PROTOCOLS_TUNNEL);
            self.asm.when(Condition::Equal, PROTOCOL_UDP, self.labels.udp);
        }
    }

    /// From the UDP header at X to what is inside a tunnel.
    pub(super) fn tunnel(&mut self, ports: &[RangeInclusive<u16>]) {
        /// From the UDP header to the Ethernet type inside VXLAN: UDP, VXLAN, and two addresses.
        const ETHERTYPE: u32 = 8 + 8 + 12;
        const NETWORK: u32 = ETHERTYPE + 2;
        if !self.filter.tunnels {
            return;
        }
        self.asm.place(self.labels.udp);
        let (geneve, inside) = (self.asm.label(), self.asm.label());
        self.asm.load_at_x(Width::Half, 2);
        for port in PORTS_VXLAN {
            self.asm.when(Condition::Equal, port, inside);
        }
        self.asm.when(Condition::Equal, PORT_GENEVE, geneve);
        self.accept(&PORTS_TUNNEL);
        self.asm.jump(self.labels.drop);

        self.asm.place(geneve);
        self.asm.load_at_x(Width::Half, 8 + 2);
        self.asm.unless(Condition::Equal, ETHERTYPE_BRIDGED, self.labels.accept);
        // Past its options.
        self.asm.load_at_x(Width::Byte, 8);
        self.asm.arithmetic(Arithmetic::And, Operand::Constant(0x3f));
        self.asm.arithmetic(Arithmetic::ShiftLeft, Operand::Constant(2));
        self.asm.arithmetic(Arithmetic::Add, Operand::X);
        self.asm.a_to_x();

        self.asm.place(inside);
        let (v4, v6) = (self.asm.label(), self.asm.label());
        self.asm.load_at_x(Width::Half, ETHERTYPE);
        self.asm.when(Condition::Equal, ETHERTYPE_IPV4, v4);
        self.asm.when(Condition::Equal, ETHERTYPE_IPV6, v6);
        self.accept(&ETHERTYPES_VLAN);
        self.accept(&ETHERTYPES_TUNNEL);
        self.asm.jump(self.labels.drop);

        self.asm.place(v4);
        // Options are for the decoder.
        self.asm.load_at_x(Width::Byte, NETWORK);
        self.asm.unless(Condition::Equal, 0x45, self.labels.accept);
        self.asm.load_at_x(Width::Byte, NETWORK + 9);
        self.inside(NETWORK + 20, ports);
        self.asm.place(v6);
        self.asm.load_at_x(Width::Byte, NETWORK + 6);
        self.inside(NETWORK + 40, ports);
    }

    /// Inside a tunnel: A is the protocol of what is at `at` behind X.
    fn inside(&mut self, at: u32, ports: &[RangeInclusive<u16>]) {
        /// With more ranges of ports the program would become long; the decoder knows them too.
        const MAX_PORTS_INSIDE: usize = 64;
        let (tcp, udp, no_source) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.when(Condition::Equal, PROTOCOL_TCP, tcp);
        self.asm.when(Condition::Equal, PROTOCOL_UDP, udp);
        self.accept(&PROTOCOLS_TUNNEL);
        self.accept(&PROTOCOLS_OPTIONS);
        self.accept(&[PROTOCOL_FRAGMENT, PROTOCOL_AUTHENTICATION]);
        self.asm.jump(self.labels.drop);
        self.asm.place(udp);
        self.asm.load_at_x(Width::Half, at + 2);
        self.accept(&PORTS_VXLAN);
        self.accept(&[PORT_GENEVE]);
        self.accept(&PORTS_TUNNEL);
        self.asm.jump(self.labels.drop);
        self.asm.place(tcp);
        if (ports.is_empty() && self.filter.ports.is_empty()) || ports.len() > MAX_PORTS_INSIDE {
            return self.asm.jump(self.labels.accept);
        }
        self.asm.load_at_x(Width::Half, at);
        self.port_in(ports, self.labels.accept, no_source);
        self.asm.place(no_source);
        self.asm.load_at_x(Width::Half, at + 2);
        self.port_in(ports, self.labels.accept, self.labels.drop);
    }
}
