//! One block of a TPACKET_V3 ring: a descriptor and a chain of packets.
//!
//! Layouts are those of `linux/if_packet.h`, integers in the byte order of the machine. Nothing in a block is
//! trusted: an offset or a length that leads out of the block ends it as malformed. This module is safe code over a
//! byte slice, so that tests can try any bytes.

use sonar_core::packet::Direction;
use sonar_core::{LinkType, Packet, Timestamp};

use crate::{hardware, sys};

/// A block whose chain of packets leads out of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct MalformedBlock {
    /// Packets passed on before the damage was noticed.
    pub(crate) packets_before: u64,
}

/// `tpacket_block_desc`: version, offset to private data, then `tpacket_hdr_v1`.
mod descriptor {
    pub(super) const PACKETS: usize = 12;
    pub(super) const FIRST: usize = 16;
}

/// `tpacket3_hdr`, and the `sockaddr_ll` behind it.
mod header {
    pub(super) const NEXT: usize = 0;
    pub(super) const SECONDS: usize = 4;
    pub(super) const NANOSECONDS: usize = 8;
    pub(super) const SNAP_LEN: usize = 12;
    pub(super) const WIRE_LEN: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const LINK_OFFSET: usize = 24;
    pub(super) const NETWORK_OFFSET: usize = 26;
    pub(super) const VLAN_TCI: usize = 32;
    pub(super) const ADDR_PROTOCOL: usize = 50;
    pub(super) const ADDR_INTERFACE: usize = 52;
    pub(super) const ADDR_HARDWARE: usize = 56;
    pub(super) const ADDR_PACKET_TYPE: usize = 58;
    /// Up to the end of `sll_addr`.
    pub(super) const SIZE: usize = 68;
}

/// The link type of frames without IP on a link layer that has no number: the first one that
/// <https://www.tcpdump.org/linktypes.html> leaves to private use.
const LINKTYPE_USER0: u16 = 147;

/// Cache lines of the next packet to fetch while one is decoded: its headers, and the beginning of a message.
const AHEAD_LINES: usize = 16;

/// Lends every packet of the block, in the order of arrival; returns their number.
#[inline]
pub(crate) fn for_each(block: &[u8], mut each: impl FnMut(Packet<'_>)) -> Result<u64, MalformedBlock> {
    let malformed = |packets_before| MalformedBlock { packets_before };
    let count = u64::from(word(block, descriptor::PACKETS).ok_or(malformed(0))?);
    let mut at = word(block, descriptor::FIRST).ok_or(malformed(0))? as usize;
    for index in 0..count {
        let bytes = block.get(at..).ok_or(malformed(index))?;
        let header: &[u8; header::SIZE] = bytes.first_chunk().ok_or(malformed(index))?;
        let next = number(header, header::NEXT) as usize;
        if let Some(ahead) = bytes.get(next..) {
            sys::prefetch(ahead, AHEAD_LINES);
        }
        each(packet(header, bytes).ok_or(malformed(index))?);
        if next == 0 && index + 1 < count {
            return Err(malformed(index + 1));
        }
        at += next;
    }
    Ok(count)
}

#[inline]
fn packet<'a>(header: &[u8; header::SIZE], bytes: &'a [u8]) -> Option<Packet<'a>> {
    let status = number(header, header::STATUS);
    let hardware_type = half(header, header::ADDR_HARDWARE);
    let link_offset = usize::from(half(header, header::LINK_OFFSET));
    let snap_len = number(header, header::SNAP_LEN) as usize;
    let wire_len = number(header, header::WIRE_LEN);
    let frame = bytes.get(link_offset..link_offset + snap_len)?;

    let (link, skipped) = if hardware::ETHERNET.contains(&hardware_type) {
        (LinkType::Ethernet, 0)
    } else {
        // The kernel states where the network header begins, whatever the link layer.
        let protocol = i32::from(u16::from_be(half(header, header::ADDR_PROTOCOL)));
        let skipped = usize::from(half(header, header::NETWORK_OFFSET)).checked_sub(link_offset)?;
        match protocol {
            libc::ETH_P_IP | libc::ETH_P_IPV6 => (LinkType::Raw, skipped),
            _ => (LinkType::Other(LINKTYPE_USER0), 0),
        }
    };
    Some(Packet {
        time: Timestamp::from_unix(
            u64::from(number(header, header::SECONDS)),
            number(header, header::NANOSECONDS),
        ),
        link,
        interface: number(header, header::ADDR_INTERFACE),
        direction: if header[header::ADDR_PACKET_TYPE] == libc::PACKET_OUTGOING {
            Direction::Outgoing
        } else {
            Direction::Incoming
        },
        loopback: hardware_type == libc::ARPHRD_LOOPBACK,
        vlan_tci: (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| number(header, header::VLAN_TCI) as u16),
        wire_len: wire_len.saturating_sub(skipped as u32),
        data: frame.get(skipped..).unwrap_or_default(),
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn number(header: &[u8; header::SIZE], at: usize) -> u32 {
    u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[inline]
fn half(header: &[u8; header::SIZE], at: usize) -> u16 {
    u16::from_ne_bytes([header[at], header[at + 1]])
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    const FIRST: usize = 48;

    struct PacketEntry {
        hardware: u16,
        protocol: u16,
        packet_type: u8,
        vlan: Option<u16>,
        link_offset: u16,
        network_offset: u16,
        wire_len: u32,
        bytes: Vec<u8>,
    }

    fn entry(bytes: &[u8]) -> PacketEntry {
        PacketEntry {
            hardware: libc::ARPHRD_ETHER,
            protocol: 0x0800,
            packet_type: libc::PACKET_HOST,
            vlan: None,
            link_offset: 82,
            network_offset: 96,
            wire_len: bytes.len() as u32,
            bytes: bytes.to_vec(),
        }
    }

    fn block(entries: &[PacketEntry]) -> Vec<u8> {
        let mut block = vec![0; FIRST];
        block[descriptor::PACKETS..][..4].copy_from_slice(&(entries.len() as u32).to_ne_bytes());
        block[descriptor::FIRST..][..4].copy_from_slice(&(FIRST as u32).to_ne_bytes());
        for (index, entry) in entries.iter().enumerate() {
            let size = (usize::from(entry.link_offset) + entry.bytes.len()).next_multiple_of(16);
            let mut bytes = vec![0; size];
            let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
            put(header::NEXT, &(if index + 1 == entries.len() { 0 } else { size as u32 }).to_ne_bytes());
            put(header::SECONDS, &(1_700_000_000 + index as u32).to_ne_bytes());
            put(header::NANOSECONDS, &999_999_999u32.to_ne_bytes());
            put(header::SNAP_LEN, &(entry.bytes.len() as u32).to_ne_bytes());
            put(header::WIRE_LEN, &entry.wire_len.to_ne_bytes());
            let status =
                libc::TP_STATUS_USER | if entry.vlan.is_some() { libc::TP_STATUS_VLAN_VALID } else { 0 };
            put(header::STATUS, &status.to_ne_bytes());
            put(header::LINK_OFFSET, &entry.link_offset.to_ne_bytes());
            put(header::NETWORK_OFFSET, &entry.network_offset.to_ne_bytes());
            put(header::VLAN_TCI, &u32::from(entry.vlan.unwrap_or(0)).to_ne_bytes());
            put(header::ADDR_PROTOCOL, &entry.protocol.to_be_bytes());
            put(header::ADDR_INTERFACE, &3u32.to_ne_bytes());
            put(header::ADDR_HARDWARE, &entry.hardware.to_ne_bytes());
            put(header::ADDR_PACKET_TYPE, &[entry.packet_type]);
            put(usize::from(entry.link_offset), &entry.bytes);
            block.append(&mut bytes);
        }
        block
    }

    #[test]
    fn offsets_match_the_kernel() {
        use libc::{sockaddr_ll, tpacket_block_desc, tpacket_hdr_v1, tpacket_hdr_variant1, tpacket3_hdr};
        let v1 = offset_of!(tpacket_block_desc, hdr);
        assert_eq!(v1 + offset_of!(tpacket_hdr_v1, block_status), sys::BLOCK_STATUS_OFFSET);
        assert_eq!(v1 + offset_of!(tpacket_hdr_v1, num_pkts), descriptor::PACKETS);
        assert_eq!(v1 + offset_of!(tpacket_hdr_v1, offset_to_first_pkt), descriptor::FIRST);
        assert_eq!(offset_of!(tpacket3_hdr, tp_next_offset), header::NEXT);
        assert_eq!(offset_of!(tpacket3_hdr, tp_sec), header::SECONDS);
        assert_eq!(offset_of!(tpacket3_hdr, tp_nsec), header::NANOSECONDS);
        assert_eq!(offset_of!(tpacket3_hdr, tp_snaplen), header::SNAP_LEN);
        assert_eq!(offset_of!(tpacket3_hdr, tp_len), header::WIRE_LEN);
        assert_eq!(offset_of!(tpacket3_hdr, tp_status), header::STATUS);
        assert_eq!(offset_of!(tpacket3_hdr, tp_mac), header::LINK_OFFSET);
        assert_eq!(offset_of!(tpacket3_hdr, tp_net), header::NETWORK_OFFSET);
        let variant = offset_of!(tpacket3_hdr, hv1);
        assert_eq!(variant + offset_of!(tpacket_hdr_variant1, tp_vlan_tci), header::VLAN_TCI);
        let addr = size_of::<tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
        assert_eq!(addr + offset_of!(sockaddr_ll, sll_protocol), header::ADDR_PROTOCOL);
        assert_eq!(addr + offset_of!(sockaddr_ll, sll_ifindex), header::ADDR_INTERFACE);
        assert_eq!(addr + offset_of!(sockaddr_ll, sll_hatype), header::ADDR_HARDWARE);
        assert_eq!(addr + offset_of!(sockaddr_ll, sll_pkttype), header::ADDR_PACKET_TYPE);
        assert_eq!(addr + size_of::<sockaddr_ll>(), header::SIZE);
    }

    #[test]
    fn packets_are_lent_as_the_kernel_describes_them() {
        let block = block(&[
            PacketEntry { vlan: Some(0xe00a), wire_len: 1500, ..entry(&[1; 60]) },
            PacketEntry {
                hardware: libc::ARPHRD_LOOPBACK,
                packet_type: libc::PACKET_OUTGOING,
                ..entry(&[2; 70])
            },
            PacketEntry { hardware: libc::ARPHRD_NONE, link_offset: 96, ..entry(&[3; 40]) },
            // A link-layer header of 24 bytes, of an unknown kind.
            PacketEntry {
                hardware: libc::ARPHRD_INFINIBAND,
                link_offset: 88,
                network_offset: 112,
                ..entry(&[4; 64])
            },
            PacketEntry { hardware: libc::ARPHRD_INFINIBAND, protocol: 0x0806, ..entry(&[5; 64]) },
        ]);
        let mut seen = Vec::new();
        let count = for_each(&block, |p| {
            seen.push((p.link, p.direction, p.loopback, p.vlan_tci, p.wire_len, p.data.to_vec()));
            assert_eq!(p.time, Timestamp::from_unix(1_700_000_000 + seen.len() as u64 - 1, 999_999_999));
            assert_eq!(p.interface, 3);
        });
        assert_eq!(count, Ok(5));
        let (incoming, outgoing) = (Direction::Incoming, Direction::Outgoing);
        let expected = [
            (LinkType::Ethernet, incoming, false, Some(0xe00a), 1500, vec![1; 60]),
            (LinkType::Ethernet, outgoing, true, None, 70, vec![2; 70]),
            (LinkType::Raw, incoming, false, None, 40, vec![3; 40]),
            (LinkType::Raw, incoming, false, None, 40, vec![4; 40]),
            (LinkType::Other(147), incoming, false, None, 64, vec![5; 64]),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_frame_cut_inside_an_unknown_link_layer_header_is_empty() {
        let cut = PacketEntry {
            hardware: libc::ARPHRD_INFINIBAND,
            link_offset: 88,
            network_offset: 112,
            wire_len: 64,
            ..entry(&[4; 10])
        };
        for_each(&block(&[cut]), |p| assert_eq!((p.data.len(), p.wire_len), (0, 40))).unwrap();
    }

    #[test]
    fn no_block_leads_out_of_itself() {
        let good = block(&[entry(&[1; 60]), entry(&[2; 61]), entry(&[3; 62])]);
        // Cut anywhere, and with every 32-bit field set to false values.
        for cut in 0..good.len() {
            let mut handed = 0;
            if let Err(malformed) = for_each(&good[..cut], |_| handed += 1) {
                assert_eq!(malformed.packets_before, handed);
            }
            assert!(handed <= 3);
        }
        for at in (0..good.len() - 4).step_by(2) {
            for lie in [0, 1, 47, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX - 15, u32::MAX] {
                let mut bad = good.clone();
                bad[at..at + 4].copy_from_slice(&lie.to_ne_bytes());
                let mut handed = 0u64;
                let result = for_each(&bad, |p| {
                    handed += 1;
                    assert!(p.data.len() <= good.len());
                });
                assert_eq!(handed, result.unwrap_or_else(|malformed| malformed.packets_before));
            }
        }
    }
}
