//! One packet from a capture ring or a capture file.

use crate::Timestamp;

/// Link-layer header type of a packet. Numbers are those of <https://www.tcpdump.org/linktypes.html>.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum LinkType {
    /// Ethernet (1), with any number of VLAN tags.
    Ethernet,
    /// BSD loopback (0): a four-byte address family in the byte order of the capturing machine.
    Null,
    /// OpenBSD loopback (108): the same in network byte order.
    Loop,
    /// Raw IP (101, and the older 12 and 14); the first nibble is the IP version.
    Raw,
    /// Raw IPv4 (228).
    Ipv4,
    /// Raw IPv6 (229).
    Ipv6,
    /// Linux cooked capture v1 (113).
    LinuxCooked,
    /// Linux cooked capture v2 (276).
    LinuxCooked2,
    /// Records of Linux's netfilter log (239), each with an IP packet.
    Nflog,
    /// Any other number: its packets are counted but not decoded.
    Other(u16),
}

impl LinkType {
    /// From the number in a capture file.
    pub const fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::Raw,
            108 => Self::Loop,
            113 => Self::LinuxCooked,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            239 => Self::Nflog,
            276 => Self::LinuxCooked2,
            other => Self::Other(other),
        }
    }

    /// The number for a capture file.
    pub const fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Loop => 108,
            Self::LinuxCooked => 113,
            Self::Ipv4 => 228,
            Self::Ipv6 => 229,
            Self::Nflog => 239,
            Self::LinuxCooked2 => 276,
            Self::Other(number) => number,
        }
    }
}

/// The direction of a packet through the interface, if the source knows it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Unknown, as in most capture files.
    #[default]
    Unknown,
    /// To this host, or passing by.
    Incoming,
    /// From this host.
    Outgoing,
}

/// One captured packet, borrowed from the ring or the file.
#[derive(Copy, Clone, Debug)]
pub struct Packet<'a> {
    /// Time stamp from the kernel or from the capture file.
    pub time: Timestamp,
    /// Type of the link-layer header in `data`.
    pub link: LinkType,
    /// Interface number: the kernel's index on a ring, the section-wide number in pcapng, 0 in pcap.
    pub interface: u32,
    /// Direction through the interface.
    pub direction: Direction,
    /// Whether `interface` is a loopback interface, which shows each packet twice: going out and coming in.
    pub loopback: bool,
    /// The VLAN tag (TCI), if the kernel removed it from the packet.
    pub vlan_tci: Option<u16>,
    /// Length on the wire in bytes; `data` is shorter if a snap length cut it.
    pub wire_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
}
