//! What a packet gives, and what the readers of links and of tunnels share.

use sonar_core::{Coverage, Endpoint, Packet, Timestamp};

/// The most tunnels that are read, one inside the other.
pub const MAX_TUNNELS: usize = 8;
/// Marks a place inside a tunnel. The VLAN ids take 24 bits.
pub(super) const TUNNELLED: u64 = 1 << 31;

/// A TCP segment and where it was seen.
#[derive(Copy, Clone, Debug)]
pub struct Segment<'a> {
    /// When the packet was captured.
    pub time: Timestamp,
    /// Where it was captured: interface, the two outer VLAN ids, and the tunnels that it was inside of, packed. Compare
    /// it for equality only.
    pub place: u64,
    /// Who sent it.
    pub source: Endpoint,
    /// Who receives it.
    pub destination: Endpoint,
    /// Sequence number of the first payload byte (of the SYN, where that flag is set).
    pub seq: u32,
    /// The next sequence number that the sender expects; only with [`TcpFlags::ack`].
    pub ack: u32,
    /// The control bits.
    pub flags: TcpFlags,
    /// What was captured of the payload; link padding is not in it.
    pub payload: &'a [u8],
    /// Payload bytes that were on the wire after `payload` and were cut by the snap length.
    pub missing: u32,
}

impl Segment<'_> {
    /// Whether it was inside a tunnel, as mirrored and overlay traffic is.
    pub const fn is_tunnelled(&self) -> bool {
        self.place & TUNNELLED != 0
    }
}

/// The control bits of a TCP header (RFC 9293 §3.1).
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub struct TcpFlags(u8);

impl TcpFlags {
    /// From byte 13 of the TCP header.
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// The sender has nothing more to send.
    pub const fn fin(self) -> bool {
        self.0 & 0x01 != 0
    }

    /// The sender opens the connection.
    pub const fn syn(self) -> bool {
        self.0 & 0x02 != 0
    }

    /// The sender resets the connection.
    pub const fn rst(self) -> bool {
        self.0 & 0x04 != 0
    }

    /// The sender asks to deliver the bytes so far to the receiving program.
    pub const fn psh(self) -> bool {
        self.0 & 0x08 != 0
    }

    /// The acknowledgement number counts.
    pub const fn ack(self) -> bool {
        self.0 & 0x10 != 0
    }
}

/// The set bits as tcpdump writes them, for example `[S.]`.
impl std::fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write as _;
        f.write_char('[')?;
        for (set, letter) in
            [(self.syn(), 'S'), (self.fin(), 'F'), (self.rst(), 'R'), (self.psh(), 'P'), (self.ack(), '.')]
        {
            if set {
                f.write_char(letter)?;
            }
        }
        f.write_char(']')
    }
}

/// Why a packet gave no segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Skip {
    /// The link type is not decoded.
    LinkUnsupported,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// IP that carries no TCP.
    NotTcp,
    /// A part of an IP packet that may carry TCP.
    Fragment,
    /// The capture cut it inside its headers.
    HeaderTruncated,
    /// Its headers contradict themselves.
    HeaderMalformed,
    /// It is inside more than [`MAX_TUNNELS`] tunnels.
    TooDeep,
}

impl Skip {
    /// Adds one to the counter of this reason.
    pub fn count(self, coverage: &mut Coverage) {
        *match self {
            Self::LinkUnsupported => &mut coverage.frames_link_unsupported,
            Self::NotIp => &mut coverage.frames_not_ip,
            Self::NotTcp => &mut coverage.frames_not_tcp,
            Self::Fragment => &mut coverage.frames_ip_fragment,
            Self::HeaderTruncated => &mut coverage.frames_header_truncated,
            Self::HeaderMalformed => &mut coverage.frames_header_malformed,
            Self::TooDeep => &mut coverage.frames_tunnels_too_deep,
        } += 1;
    }
}

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;

/// IEEE 802.1Q, 802.1ad, and the 0x9100 that switches used before 802.1ad.
#[inline]
pub(super) const fn is_vlan(ethertype: u16) -> bool {
    (ethertype == 0x8100) | (ethertype == 0x88a8) | (ethertype == 0x9100)
}

/// The VLAN id of a tag without its priority bits, which may differ within one flow.
pub(super) const fn vlan_id(tci: u16) -> u32 {
    (tci & 0x0fff) as u32
}

/// The id of the tag that the kernel took out of the packet, 0 for none.
#[inline]
pub(super) fn outer_vlan(packet: &Packet<'_>) -> u32 {
    packet.vlan_tci.map_or(0, vlan_id)
}

/// Adds the next inner tag to `vlans`. Id 0 means "priority only, no VLAN" and adds nothing.
pub(super) const fn with_vlan(vlans: u32, id: u32) -> u32 {
    if id == 0 || vlans >> 12 != 0 { vlans } else { vlans << 12 | id }
}

#[inline]
pub(super) const fn place(interface: u32, vlans: u32) -> u64 {
    (interface as u64) << 32 | vlans as u64
}

/// Why headers that end after the captured bytes cannot be read.
pub(super) fn short(packet: &Packet<'_>) -> Skip {
    if not_captured(packet) > 0 { Skip::HeaderTruncated } else { Skip::HeaderMalformed }
}

/// Bytes that were on the wire after the captured ones.
pub(super) fn not_captured(packet: &Packet<'_>) -> usize {
    (packet.wire_len as usize).saturating_sub(packet.data.len())
}
