//! Packets inside packets: overlay networks and mirrored traffic.
//!
//! VXLAN (RFC 7348) and VXLAN-GPE, GENEVE (RFC 8926), GRE (RFC 2784, 2890), ERSPAN I, II and III
//! (draft-foschiano-erspan), IP in IP (RFC 2003), 6in4 (RFC 4213), MPLS (RFC 3032, 4023), PPPoE (RFC 2516), and the
//! records of NFLOG. They may be nested, each with VLAN tags.
//!
//! Only the innermost addresses count. The same segment may come once by itself and once in a tunnel, or in several
//! mirror sessions: so what surrounds it becomes part of the place where it was seen.

use sonar_core::Packet;

use super::segment::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, MAX_TUNNELS, Segment, Skip, TUNNELLED, is_vlan, not_captured, outer_vlan,
    place, short,
};

/// The most labels of one MPLS stack.
const MAX_LABELS: usize = 16;

pub(super) const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_IPV4: u8 = 4;
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_GRE: u8 = 47;
const PROTOCOL_MPLS: u8 = 137;

const ETHERTYPE_BRIDGED: u16 = 0x6558;
const ETHERTYPE_MPLS: u16 = 0x8847;
const ETHERTYPE_MPLS_MULTICAST: u16 = 0x8848;
const ETHERTYPE_PPPOE: u16 = 0x8864;
const ETHERTYPE_ERSPAN: u16 = 0x88be;
const ETHERTYPE_ERSPAN_III: u16 = 0x22eb;

/// Ports of tunnels over UDP: IANA's, and the one that Linux used for VXLAN before it had a number.
const PORT_VXLAN: [u16; 2] = [4789, 8472];
const PORT_VXLAN_GPE: u16 = 4790;
const PORT_GENEVE: u16 = 6081;
const PORT_GRE: u16 = 4754;
const PORT_MPLS: u16 = 6635;

/// What is inside of what was read.
pub(super) enum Inside<'a> {
    /// What this Ethernet type names.
    Ethertype([u8; 2], &'a [u8]),
    Ipv4(&'a [u8]),
    Ipv6(&'a [u8]),
    Segment(Segment<'a>),
}

impl<'a> Inside<'a> {
    /// IP of the version that its first bits state.
    pub(super) fn of_version(data: &'a [u8]) -> Option<Self> {
        Some(match data.first()? >> 4 {
            4 => Self::Ipv4(data),
            6 => Self::Ipv6(data),
            _ => Self::Ethertype([0, 0], data),
        })
    }
}

/// What surrounds the bytes that are read next.
pub(super) struct Layers<'p, 'a> {
    pub(super) packet: &'p Packet<'a>,
    pub(super) interface: u32,
    /// Of the innermost frame.
    pub(super) vlans: u32,
    tunnels: usize,
    /// A hash of all tunnels.
    around: u64,
}

/// Mixes a number into a hash (the finalizer of SplitMix64).
const fn mix(hash: u64, number: u64) -> u64 {
    let hash = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^ (hash >> 31)
}

const fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

impl<'p, 'a> Layers<'p, 'a> {
    pub(super) fn new(packet: &'p Packet<'a>) -> Self {
        let vlans = outer_vlan(packet);
        Self { packet, interface: packet.interface, vlans, tunnels: 0, around: 0 }
    }

    pub(super) fn place(&self) -> u64 {
        match self.tunnels {
            0 => place(self.interface, self.vlans),
            _ => mix(self.around, u64::from(self.vlans)) | TUNNELLED,
        }
    }

    /// Enters a tunnel of this kind and number.
    fn enter(&mut self, kind: u8, number: u32) -> Result<(), Skip> {
        if self.tunnels >= MAX_TUNNELS {
            return Err(Skip::TooDeep);
        }
        let outside = if self.tunnels == 0 { place(self.interface, self.vlans) } else { self.place() };
        self.around = mix(mix(self.around, outside), u64::from(kind) << 32 | u64::from(number));
        self.tunnels += 1;
        self.vlans = 0;
        Ok(())
    }

    /// The same, between these addresses.
    fn enter_between(&mut self, kind: u8, number: u32, ends: [&[u8]; 2]) -> Result<(), Skip> {
        self.enter(kind, number)?;
        for end in ends {
            for part in end.chunks(8) {
                let part = part.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
                self.around = mix(self.around, part);
            }
        }
        Ok(())
    }

    /// What is inside a tunnel that an Ethernet type names; `None` if it names none.
    pub(super) fn behind_ethertype(
        &mut self,
        ethertype: u16,
        data: &'a [u8],
    ) -> Result<Option<Inside<'a>>, Skip> {
        match ethertype {
            ETHERTYPE_MPLS | ETHERTYPE_MPLS_MULTICAST => self.mpls(data, &[]).map(Some),
            ETHERTYPE_PPPOE => self.pppoe(data),
            _ => Ok(None),
        }
    }

    /// What is inside a tunnel that an IP protocol names, between these addresses; `None` if it names none.
    pub(super) fn behind_protocol(
        &mut self,
        protocol: u8,
        data: &'a [u8],
        ends: [&[u8]; 2],
    ) -> Result<Option<Inside<'a>>, Skip> {
        match protocol {
            PROTOCOL_IPV4 => {
                self.enter_between(protocol, 0, ends)?;
                Ok(Some(Inside::Ipv4(data)))
            }
            PROTOCOL_IPV6 => {
                self.enter_between(protocol, 0, ends)?;
                Ok(Some(Inside::Ipv6(data)))
            }
            PROTOCOL_GRE => self.gre(data, ends),
            PROTOCOL_MPLS => self.mpls(data, &ends).map(Some),
            PROTOCOL_UDP => self.udp(data, ends),
            _ => Ok(None),
        }
    }

    /// Takes `N` bytes off `data`.
    fn header<const N: usize>(&self, data: &'a [u8]) -> Result<(&'a [u8; N], &'a [u8]), Skip> {
        data.split_first_chunk::<N>().ok_or_else(|| short(self.packet))
    }

    /// Passes over `len` bytes.
    fn skip(&self, data: &'a [u8], len: usize) -> Result<&'a [u8], Skip> {
        data.get(len..).ok_or_else(|| short(self.packet))
    }

    fn ethernet(&self, data: &'a [u8]) -> Result<Inside<'a>, Skip> {
        let (header, rest) = self.header::<14>(data)?;
        Ok(Inside::Ethertype([header[12], header[13]], rest))
    }

    /// What a tunnel says is inside it.
    fn named(&self, ethertype: u16, data: &'a [u8]) -> Result<Inside<'a>, Skip> {
        match ethertype {
            ETHERTYPE_BRIDGED => self.ethernet(data),
            other => Ok(Inside::Ethertype(other.to_be_bytes(), data)),
        }
    }

    fn udp(&mut self, data: &'a [u8], ends: [&[u8]; 2]) -> Result<Option<Inside<'a>>, Skip> {
        // One that was cut before its ports is not known to be a tunnel.
        let Some((udp, data)) = data.split_first_chunk::<8>() else { return Ok(None) };
        match be16(udp, 2) {
            port if PORT_VXLAN.contains(&port) => {
                let (vxlan, rest) = self.header::<8>(data)?;
                // Without this flag the port belongs to something else.
                if vxlan[0] & 0x08 == 0 {
                    return Ok(None);
                }
                self.enter_between(
                    PROTOCOL_UDP,
                    u32::from_be_bytes([0, vxlan[4], vxlan[5], vxlan[6]]),
                    ends,
                )?;
                self.ethernet(rest).map(Some)
            }
            PORT_VXLAN_GPE => {
                let (gpe, rest) = self.header::<8>(data)?;
                let next = if gpe[0] & 0x04 == 0 { 3 } else { gpe[3] };
                self.enter_between(PROTOCOL_UDP, u32::from_be_bytes([1, gpe[4], gpe[5], gpe[6]]), ends)?;
                Ok(match next {
                    1 => Some(Inside::Ipv4(rest)),
                    2 => Some(Inside::Ipv6(rest)),
                    3 => Some(self.ethernet(rest)?),
                    _ => None,
                })
            }
            PORT_GENEVE => {
                let (geneve, rest) = self.header::<8>(data)?;
                if geneve[0] >> 6 != 0 {
                    return Ok(None);
                }
                let rest = self.skip(rest, usize::from(geneve[0] & 0x3f) * 4)?;
                self.enter_between(
                    PROTOCOL_UDP,
                    u32::from_be_bytes([2, geneve[4], geneve[5], geneve[6]]),
                    ends,
                )?;
                self.named(be16(geneve, 2), rest).map(Some)
            }
            PORT_GRE => self.gre(data, ends),
            PORT_MPLS => self.mpls(data, &ends).map(Some),
            _ => Ok(None),
        }
    }

    fn gre(&mut self, data: &'a [u8], ends: [&[u8]; 2]) -> Result<Option<Inside<'a>>, Skip> {
        const CHECKSUM: u16 = 0x8000;
        const KEY: u16 = 0x2000;
        const SEQUENCE: u16 = 0x1000;
        /// Source routing, which RFC 2784 removed, and the version: 1 is PPTP.
        const OTHER: u16 = 0x4007;
        let (gre, rest) = self.header::<4>(data)?;
        let (flags, ethertype) = (be16(gre, 0), be16(gre, 2));
        if flags & OTHER != 0 {
            return Ok(None);
        }
        let rest = self.skip(rest, if flags & CHECKSUM == 0 { 0 } else { 4 })?;
        let (key, rest) = if flags & KEY == 0 {
            (0, rest)
        } else {
            let (key, rest) = self.header::<4>(rest)?;
            (u32::from_be_bytes(*key), rest)
        };
        let rest = self.skip(rest, if flags & SEQUENCE == 0 { 0 } else { 4 })?;
        match ethertype {
            // Type I has no header of its own, and no sequence number.
            ETHERTYPE_ERSPAN if flags & SEQUENCE == 0 => {
                self.enter_between(PROTOCOL_GRE, key, ends)?;
                self.ethernet(rest).map(Some)
            }
            ETHERTYPE_ERSPAN => {
                let (head, rest) = self.header::<8>(rest)?;
                self.enter_between(PROTOCOL_GRE, erspan_session(head), ends)?;
                self.ethernet(rest).map(Some)
            }
            ETHERTYPE_ERSPAN_III => {
                let (head, rest) = self.header::<12>(rest)?;
                self.enter_between(PROTOCOL_GRE, erspan_session(head), ends)?;
                // A subheader of the platform.
                let rest = self.skip(rest, if head[11] & 1 == 0 { 0 } else { 8 })?;
                // The frame type: Ethernet, or IP without it.
                match head[10] >> 2 & 0x1f {
                    2 => Inside::of_version(rest).map(Some).ok_or_else(|| short(self.packet)),
                    _ => self.ethernet(rest).map(Some),
                }
            }
            _ => {
                self.enter_between(PROTOCOL_GRE, key, ends)?;
                self.named(ethertype, rest).map(Some)
            }
        }
    }

    fn mpls(&mut self, mut data: &'a [u8], ends: &[&[u8]]) -> Result<Inside<'a>, Skip> {
        self.enter(PROTOCOL_MPLS, 0)?;
        for end in ends {
            self.around = end.iter().fold(self.around, |hash, byte| mix(hash, u64::from(*byte)));
        }
        for _ in 0..MAX_LABELS {
            let (label, rest) = self.header::<4>(data)?;
            data = rest;
            self.around =
                mix(self.around, u64::from(u32::from_be_bytes([0, label[0], label[1], label[2]]) >> 4));
            if label[2] & 1 != 0 {
                return match data.first().ok_or_else(|| short(self.packet))? >> 4 {
                    4 => Ok(Inside::Ipv4(data)),
                    6 => Ok(Inside::Ipv6(data)),
                    // A control word (RFC 4385), then Ethernet; or Ethernet whose first address begins like one.
                    0 if data.get(16..18).is_some_and(is_usual) => self.ethernet(&data[4..]),
                    _ => self.ethernet(data),
                };
            }
        }
        Err(Skip::HeaderMalformed)
    }

    fn pppoe(&mut self, data: &'a [u8]) -> Result<Option<Inside<'a>>, Skip> {
        let (head, rest) = self.header::<6>(data)?;
        if head[0] != 0x11 || head[1] != 0 {
            return Ok(None);
        }
        self.enter(PROTOCOL_MPLS + 1, u32::from(be16(head, 2)))?;
        let first = *rest.first().ok_or_else(|| short(self.packet))?;
        // The protocol takes one byte if it is odd (RFC 1661, section 6.5).
        let (protocol, rest) = if first & 1 == 0 {
            let (protocol, rest) = self.header::<2>(rest)?;
            (be16(protocol, 0), rest)
        } else {
            (u16::from(first), &rest[1..])
        };
        Ok(match protocol {
            0x0021 => Some(Inside::Ipv4(rest)),
            0x0057 => Some(Inside::Ipv6(rest)),
            0x0281 => Some(Inside::Ethertype(ETHERTYPE_MPLS.to_be_bytes(), rest)),
            _ => None,
        })
    }
}

/// Whether these two bytes are an Ethernet type that can lead to TCP.
fn is_usual(ethertype: &[u8]) -> bool {
    let ethertype = be16(ethertype, 0);
    matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6 | ETHERTYPE_MPLS | ETHERTYPE_PPPOE)
        || is_vlan(ethertype)
}

/// The number of an ERSPAN session.
const fn erspan_session(header: &[u8]) -> u32 {
    (be16(header, 2) & 0x03ff) as u32
}

/// Whether this protocol may be that of a tunnel.
pub(super) const fn may_be_tunnel(protocol: u8) -> bool {
    matches!(protocol, PROTOCOL_UDP | PROTOCOL_IPV4 | PROTOCOL_IPV6 | PROTOCOL_GRE | PROTOCOL_MPLS)
}

/// What a tunnel begins with behind an IPv6 header: its protocol and its bytes. Destination options may stand before it
/// (RFC 2473, section 4.1.1).
pub(super) fn tunnel_behind(protocol: u8, data: &[u8]) -> Option<(u8, &[u8])> {
    const DESTINATION_OPTIONS: u8 = 60;
    if may_be_tunnel(protocol) {
        return Some((protocol, data));
    }
    if protocol != DESTINATION_OPTIONS {
        return None;
    }
    let next = *data.first()?;
    let rest = data.get((usize::from(*data.get(1)?) + 1) * 8..)?;
    may_be_tunnel(next).then_some((next, rest))
}

/// The packet in a record of NFLOG: a family, a version and a number, then attributes, each with its length and type in
/// the byte order of the machine that captured.
pub(super) fn nflog<'a>(packet: &Packet<'a>) -> Result<&'a [u8], Skip> {
    const PAYLOAD: u16 = 9;
    let (head, attributes) = packet.data.split_first_chunk::<4>().ok_or_else(|| short(packet))?;
    if head[1] != 0 {
        return Err(Skip::LinkUnsupported);
    }
    [u16::from_le_bytes, u16::from_be_bytes]
        .into_iter()
        .find_map(|number| attribute(attributes, PAYLOAD, number))
        .ok_or_else(|| if not_captured(packet) > 0 { Skip::HeaderTruncated } else { Skip::NotIp })
}

/// The value of an attribute, as far as it was captured.
fn attribute(mut rest: &[u8], wanted: u16, number: fn([u8; 2]) -> u16) -> Option<&[u8]> {
    loop {
        let (head, _) = rest.split_first_chunk::<4>()?;
        let (len, kind) = (usize::from(number([head[0], head[1]])), number([head[2], head[3]]));
        if len < 4 {
            return None;
        }
        if kind & 0x7fff == wanted {
            return Some(&rest[4..len.min(rest.len())]);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}
