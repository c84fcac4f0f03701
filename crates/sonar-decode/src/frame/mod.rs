//! One packet to one TCP segment: link, network and transport headers, and the tunnels between them.
//!
//! This runs for every packet that the kernel delivers, so it has a fast path for the usual one: Ethernet, IPv4 or
//! IPv6 without options, TCP. That path reads each header from an array whose length was checked once, and needs a
//! few comparisons. Everything else (other links, extension headers, cut packets, lengths that contradict each other)
//! takes a slow path from the beginning, which gives the same answer for usual packets too.
//!
//! Checksums are ignored: a packet that leaves this host has none yet when it is captured.

mod segment;
mod tunnel;

use sonar_core::{Endpoint, LinkType, Packet};

use self::segment::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, is_vlan, not_captured, outer_vlan, place, short, vlan_id, with_vlan,
};
pub use self::segment::{MAX_TUNNELS, Segment, Skip, TcpFlags};
use self::tunnel::{Inside, Layers, PROTOCOL_UDP, may_be_tunnel, nflog, tunnel_behind};

/// The most VLAN tags that are read in one frame, outermost first.
pub const MAX_VLAN_TAGS: usize = 4;

/// The most extension headers that are read between IP and TCP.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Reads the headers of `packet`.
///
/// # Errors
/// The reason why there is no segment; each is a counter of [`Coverage`](sonar_core::Coverage).
#[inline]
pub fn decode<'a>(packet: &Packet<'a>) -> Result<Segment<'a>, Skip> {
    match at_once(packet) {
        Some(segment) => Ok(segment),
        None => with_care(packet),
    }
}

/// Ethernet with at most two VLAN tags, IPv4 or IPv6 without options, not a fragment, TCP, and captured to the length
/// that IP states. `None` for everything else.
// A segment is larger than a few registers. Inlined, it is built where the caller wants it; returned, it would be
// copied right after it was written, which costs more than all the rest.
#[inline(always)]
pub(crate) fn at_once<'a>(packet: &Packet<'a>) -> Option<Segment<'a>> {
    if packet.link != LinkType::Ethernet {
        return None;
    }
    let (header, mut data) = packet.data.split_first_chunk::<14>()?;
    let mut ethertype = u16::from_be_bytes([header[12], header[13]]);
    let mut vlans = outer_vlan(packet);
    for _ in 0..2 {
        if (ethertype == ETHERTYPE_IPV4) | (ethertype == ETHERTYPE_IPV6) {
            break;
        }
        if !is_vlan(ethertype) {
            return None;
        }
        let (tag, rest) = data.split_first_chunk::<4>()?;
        vlans = with_vlan(vlans, vlan_id(u16::from_be_bytes([tag[0], tag[1]])));
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        data = rest;
    }
    let place = place(packet.interface, vlans);
    match ethertype {
        ETHERTYPE_IPV4 => {
            let (ip, tcp) = data.first_chunk::<40>()?.split_first_chunk::<20>()?;
            let tcp = tcp.first_chunk::<20>()?;
            let start = 20 + tcp_header_len(tcp);
            let end = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let fragment = u16::from_be_bytes([ip[6], ip[7]]) & IPV4_FRAGMENT;
            // One branch for what practically never differs.
            if (ip[0] != 0x45) | (fragment != 0) | (ip[9] != PROTOCOL_TCP) | (start < 40) {
                return None;
            }
            let payload = data.get(start..end)?;
            let part = TcpPart { header: tcp, payload, missing: 0 };
            Some(segment(packet, place, ipv4_endpoints(ip, tcp), part))
        }
        ETHERTYPE_IPV6 => {
            let (ip, tcp) = data.first_chunk::<60>()?.split_first_chunk::<40>()?;
            let tcp = tcp.first_chunk::<20>()?;
            let start = 40 + tcp_header_len(tcp);
            let end = 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            if (ip[0] >> 4 != 6) | (ip[6] != PROTOCOL_TCP) | (start < 60) {
                return None;
            }
            let payload = data.get(start..end)?;
            let part = TcpPart { header: tcp, payload, missing: 0 };
            Some(segment(packet, place, ipv6_endpoints(ip, tcp), part))
        }
        _ => None,
    }
}

/// Any packet.
#[inline(never)]
pub(crate) fn with_care<'a>(packet: &Packet<'a>) -> Result<Segment<'a>, Skip> {
    let data = packet.data;
    let mut outer = Layers::new(packet);
    let ethernet = |header: &[u8], rest, at: usize| Inside::Ethertype([header[at], header[at + 1]], rest);
    let inside = match packet.link {
        LinkType::Ethernet => {
            let (header, rest) = data.split_first_chunk::<14>().ok_or_else(|| short(packet))?;
            ethernet(header, rest, 12)
        }
        LinkType::LinuxCooked => {
            let (header, rest) = data.split_first_chunk::<16>().ok_or_else(|| short(packet))?;
            ethernet(header, rest, 14)
        }
        LinkType::LinuxCooked2 => {
            let (header, rest) = data.split_first_chunk::<20>().ok_or_else(|| short(packet))?;
            // One capture of `any` holds many interfaces, and here the header says which.
            outer.interface = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            ethernet(header, rest, 0)
        }
        LinkType::Null | LinkType::Loop => {
            let (family, rest) = data.split_first_chunk::<4>().ok_or_else(|| short(packet))?;
            // The byte order of BSD null is that of the machine that captured, which the number itself
            // shows: no address family reaches 65,536.
            let family = match u32::from_be_bytes(*family) {
                family @ ..0x1_0000 => family,
                family => family.swap_bytes(),
            };
            match family {
                2 => Inside::Ipv4(rest),
                // Linux; NetBSD and OpenBSD; FreeBSD; macOS.
                10 | 24 | 28 | 30 => Inside::Ipv6(rest),
                _ => return Err(Skip::NotIp),
            }
        }
        LinkType::Raw => Inside::of_version(data).ok_or_else(|| short(packet))?,
        LinkType::Ipv4 => Inside::Ipv4(data),
        LinkType::Ipv6 => Inside::Ipv6(data),
        LinkType::Nflog => Inside::of_version(nflog(packet)?).ok_or_else(|| short(packet))?,
        LinkType::Other(_) => return Err(Skip::LinkUnsupported),
    };
    outer.read(inside)
}

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_HOP_BY_HOP: u8 = 0;
const PROTOCOL_ROUTING: u8 = 43;
const PROTOCOL_FRAGMENT: u8 = 44;
const PROTOCOL_AUTHENTICATION: u8 = 51;
const PROTOCOL_DESTINATION_OPTIONS: u8 = 60;
const PROTOCOL_MOBILITY: u8 = 135;
const PROTOCOL_HIP: u8 = 139;
const PROTOCOL_SHIM6: u8 = 140;

/// More fragments, or an offset; "don't fragment" and the reserved bit do not count.
const IPV4_FRAGMENT: u16 = 0x3fff;

/// The part of a packet that is TCP.
#[derive(Copy, Clone)]
struct TcpPart<'a> {
    /// The fixed header.
    header: &'a [u8; 20],
    /// What was captured of the payload.
    payload: &'a [u8],
    /// How many bytes of it were cut.
    missing: u32,
}

#[inline]
fn tcp_header_len(tcp: &[u8; 20]) -> usize {
    usize::from(tcp[12] >> 4) * 4
}

#[inline]
fn ipv4_endpoints(ip: &[u8; 20], tcp: &[u8; 20]) -> [Endpoint; 2] {
    [
        Endpoint::v4([ip[12], ip[13], ip[14], ip[15]], u16::from_be_bytes([tcp[0], tcp[1]])),
        Endpoint::v4([ip[16], ip[17], ip[18], ip[19]], u16::from_be_bytes([tcp[2], tcp[3]])),
    ]
}

#[inline]
fn ipv6_endpoints(ip: &[u8; 40], tcp: &[u8; 20]) -> [Endpoint; 2] {
    let mut source = [0; 16];
    source.copy_from_slice(&ip[8..24]);
    let mut destination = [0; 16];
    destination.copy_from_slice(&ip[24..40]);
    [
        Endpoint::v6(source, u16::from_be_bytes([tcp[0], tcp[1]])),
        Endpoint::v6(destination, u16::from_be_bytes([tcp[2], tcp[3]])),
    ]
}

#[inline]
fn segment<'a>(
    packet: &Packet<'a>,
    place: u64,
    [source, destination]: [Endpoint; 2],
    part: TcpPart<'a>,
) -> Segment<'a> {
    let TcpPart { header: tcp, payload, missing } = part;
    Segment {
        time: packet.time,
        place,
        source,
        destination,
        seq: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        ack: u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]),
        flags: TcpFlags::from_byte(tcp[13]),
        payload,
        missing,
    }
}

impl<'a> Layers<'_, 'a> {
    /// Reads what an Ethernet type, IP or a tunnel names, down to TCP.
    fn read(&mut self, mut inside: Inside<'a>) -> Result<Segment<'a>, Skip> {
        // Each round removes bytes; those that are no tunnel end it.
        loop {
            inside = match inside {
                Inside::Segment(segment) => return Ok(segment),
                Inside::Ethertype(ethertype, rest) => self.tagged(ethertype, rest)?,
                Inside::Ipv4(data) => self.ipv4(data)?,
                Inside::Ipv6(data) => self.ipv6(data)?,
            };
        }
    }

    /// What follows an Ethernet type: VLAN tags, then IP or a tunnel.
    fn tagged(&mut self, ethertype: [u8; 2], mut rest: &'a [u8]) -> Result<Inside<'a>, Skip> {
        let packet = self.packet;
        let mut ethertype = u16::from_be_bytes(ethertype);
        for _ in 0..MAX_VLAN_TAGS {
            if !is_vlan(ethertype) {
                break;
            }
            let (tag, inner) = rest.split_first_chunk::<4>().ok_or_else(|| short(packet))?;
            self.vlans = with_vlan(self.vlans, vlan_id(u16::from_be_bytes([tag[0], tag[1]])));
            ethertype = u16::from_be_bytes([tag[2], tag[3]]);
            rest = inner;
        }
        match ethertype {
            ETHERTYPE_IPV4 => Ok(Inside::Ipv4(rest)),
            ETHERTYPE_IPV6 => Ok(Inside::Ipv6(rest)),
            _ if is_vlan(ethertype) => Err(Skip::HeaderMalformed),
            _ => self.behind_ethertype(ethertype, rest)?.ok_or(Skip::NotIp),
        }
    }

    fn ipv4(&mut self, data: &'a [u8]) -> Result<Inside<'a>, Skip> {
        let packet = self.packet;
        let (ip, _) = data.split_first_chunk::<20>().ok_or_else(|| short(packet))?;
        let header_len = usize::from(ip[0] & 0x0f) * 4;
        if ip[0] >> 4 != 4 || header_len < 20 {
            return Err(Skip::HeaderMalformed);
        }
        let is_tcp = matches!(ip[9], PROTOCOL_TCP | PROTOCOL_AUTHENTICATION);
        if !is_tcp && !may_be_tunnel(ip[9]) {
            return Err(Skip::NotTcp);
        }
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & IPV4_FRAGMENT;
        if fragment != 0 && ip[9] != PROTOCOL_UDP {
            return Err(Skip::Fragment);
        }
        // Segmentation offload leaves 0 where the length does not fit, or where the card will write it.
        let total_len = match u16::from_be_bytes([ip[2], ip[3]]) {
            0 => data.len() + not_captured(packet),
            len => usize::from(len),
        };
        let len = total_len.checked_sub(header_len).ok_or(Skip::HeaderMalformed)?;
        let rest = data.get(header_len..).ok_or(Skip::HeaderTruncated)?;
        if !is_tcp {
            let ends = [&ip[12..16], &ip[16..20]];
            // Only the first part says what it is.
            let is_first = fragment & 0x1fff == 0;
            let inside = if is_first {
                self.behind_protocol(ip[9], &rest[..rest.len().min(len)], ends)?
            } else {
                None
            };
            return match inside {
                Some(_) if fragment != 0 => Err(Skip::Fragment),
                inside => inside.ok_or(Skip::NotTcp),
            };
        }
        let (tcp, captured, len) = transport(ip[9], false, rest, len)?;
        let part = part(tcp, captured, len)?;
        Ok(Inside::Segment(segment(packet, self.place(), ipv4_endpoints(ip, tcp), part)))
    }

    fn ipv6(&mut self, data: &'a [u8]) -> Result<Inside<'a>, Skip> {
        let packet = self.packet;
        let (ip, rest) = data.split_first_chunk::<40>().ok_or_else(|| short(packet))?;
        if ip[0] >> 4 != 6 {
            return Err(Skip::HeaderMalformed);
        }
        // 0 stands for a jumbo payload (RFC 2675), whose option newer kernels leave out.
        let (len, jumbo) = match u16::from_be_bytes([ip[4], ip[5]]) {
            0 => (rest.len() + not_captured(packet), true),
            len => (usize::from(len), false),
        };
        if let Some((protocol, rest)) = tunnel_behind(ip[6], &rest[..rest.len().min(len)]) {
            return self.behind_protocol(protocol, rest, [&ip[8..24], &ip[24..40]])?.ok_or(Skip::NotTcp);
        }
        let (tcp, captured, len) = transport(ip[6], jumbo, rest, len)?;
        let part = part(tcp, captured, len)?;
        Ok(Inside::Segment(segment(packet, self.place(), ipv6_endpoints(ip, tcp), part)))
    }
}

/// The fixed TCP header, then the captured bytes from it on, then their length on the wire.
type Transport<'a> = (&'a [u8; 20], &'a [u8], usize);

/// Walks the extension headers to TCP: `next` is the protocol at the beginning of `data`, `len` the number of bytes
/// that follow on the wire. `jumbo`: the length may be in a hop-by-hop option.
fn transport(mut next: u8, jumbo: bool, mut data: &[u8], mut len: usize) -> Result<Transport<'_>, Skip> {
    for _ in 0..=MAX_EXTENSION_HEADERS {
        if next == PROTOCOL_TCP {
            if len < 20 {
                return Err(Skip::HeaderMalformed);
            }
            // Ethernet pads short frames to 60 bytes.
            let data = &data[..data.len().min(len)];
            let (tcp, _) = data.split_first_chunk::<20>().ok_or(Skip::HeaderTruncated)?;
            return Ok((tcp, data, len));
        }
        if !is_extension(next) {
            return Err(Skip::NotTcp);
        }
        if len < 8 {
            return Err(Skip::HeaderMalformed);
        }
        let (header, _) = data.split_first_chunk::<8>().ok_or(Skip::HeaderTruncated)?;
        let header_len = match next {
            PROTOCOL_FRAGMENT => {
                // Offset or "more fragments"; neither means an atomic fragment (RFC 6946), a whole packet.
                if u16::from_be_bytes([header[2], header[3]]) & 0xfff9 != 0 {
                    let may_be_tcp = header[0] == PROTOCOL_TCP || is_extension(header[0]);
                    return Err(if may_be_tcp { Skip::Fragment } else { Skip::NotTcp });
                }
                8
            }
            PROTOCOL_AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if jumbo
            && next == PROTOCOL_HOP_BY_HOP
            && let Some(jumbo_len) = data.get(2..header_len).and_then(jumbo_payload)
        {
            len = jumbo_len;
        }
        len = len.checked_sub(header_len).ok_or(Skip::HeaderMalformed)?;
        next = header[0];
        data = data.get(header_len..).ok_or(Skip::HeaderTruncated)?;
    }
    Err(Skip::HeaderMalformed)
}

const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        PROTOCOL_HOP_BY_HOP
            | PROTOCOL_ROUTING
            | PROTOCOL_FRAGMENT
            | PROTOCOL_AUTHENTICATION
            | PROTOCOL_DESTINATION_OPTIONS
            | PROTOCOL_MOBILITY
            | PROTOCOL_HIP
            | PROTOCOL_SHIM6
    )
}

/// The length that a jumbo payload option (RFC 2675) among hop-by-hop options gives.
fn jumbo_payload(mut options: &[u8]) -> Option<usize> {
    loop {
        match options {
            // Pad1 is the one option without a length.
            [0, rest @ ..] => options = rest,
            [0xc2, 4, a, b, c, d, ..] => return Some(u32::from_be_bytes([*a, *b, *c, *d]) as usize),
            [_, len, rest @ ..] => options = rest.get(usize::from(*len)..)?,
            _ => return None,
        }
    }
}

/// TCP options may be cut too: nothing here needs them, and the sequence numbers still show what is missing.
fn part<'a>(header: &'a [u8; 20], captured: &'a [u8], len: usize) -> Result<TcpPart<'a>, Skip> {
    let header_len = tcp_header_len(header);
    if header_len < 20 || header_len > len {
        return Err(Skip::HeaderMalformed);
    }
    let payload = captured.get(header_len..).unwrap_or_default();
    let missing = len - header_len - payload.len();
    Ok(TcpPart { header, payload, missing: u32::try_from(missing).unwrap_or(u32::MAX) })
}
