//! The older format: a header of 24 bytes, then records.

use sonar_core::packet::Direction;
use sonar_core::{LinkType, Packet, Timestamp};

use super::step::{Error, MAX_PACKET_LEN, Order, Step};

pub(super) const FILE_HEADER_LEN: usize = 24;

/// Little- and big-endian: microseconds, nanoseconds, and the variant of Linux distributions around 2000
/// whose records hold interface and direction.
pub(super) const MAGICS: [[u8; 4]; 6] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x34, 0xcd, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xcd, 0x34],
];

const RECORD_HEADER_LEN: usize = 16;
/// After it, in that variant: interface (4 bytes), protocol (2), packet type (1), padding (1).
const PATCH_LEN: usize = 8;
/// `PACKET_OUTGOING` of `linux/if_packet.h`.
const PACKET_OUTGOING: u8 = 4;

#[derive(Debug)]
pub(super) struct PcapReader {
    order: Order,
    link: LinkType,
    ns_per_unit: u64,
    patched: bool,
}

impl PcapReader {
    pub(super) fn new(header: &[u8; FILE_HEADER_LEN]) -> Result<Self, Error> {
        let order = if header[0] == 0xa1 { Order::Big } else { Order::Little };
        let magic = order.word(header, 0);
        let (major, minor) = (order.u16([header[4], header[5]]), order.u16([header[6], header[7]]));
        if major != 2 {
            return Err(Error::Version { offset: 0, major, minor });
        }
        Ok(Self {
            order,
            // The upper half may describe frame check sequences, which the IP length leaves out anyway.
            link: LinkType::from_number(order.word(header, 5) as u16),
            ns_per_unit: if magic == 0xa1b2_3c4d { 1 } else { 1_000 },
            patched: magic == 0xa1b2_cd34,
        })
    }

    #[inline]
    pub(super) fn next<'a>(&mut self, buf: &'a [u8], offset: u64) -> Result<Step<'a>, Error> {
        let Some((header, rest)) = buf.split_first_chunk::<RECORD_HEADER_LEN>() else {
            return Ok(Step::Need { at_least: RECORD_HEADER_LEN });
        };
        let len = self.order.word(header, 2);
        if len > MAX_PACKET_LEN {
            return Err(Error::PacketTooLong { offset, len });
        }
        let header_len = RECORD_HEADER_LEN + if self.patched { PATCH_LEN } else { 0 };
        let consumed = header_len + len as usize;
        let Some(data) = buf.get(header_len..consumed) else { return Ok(Step::Need { at_least: consumed }) };
        let (interface, direction) = match rest.first_chunk::<PATCH_LEN>() {
            Some(patch) if self.patched => {
                let outgoing = patch[6] == PACKET_OUTGOING;
                (self.order.word(patch, 0), if outgoing { Direction::Outgoing } else { Direction::Incoming })
            }
            _ => (0, Direction::Unknown),
        };
        let packet = Packet {
            time: Timestamp::from_unix(u64::from(self.order.word(header, 0)), 0)
                .plus_ns(u64::from(self.order.word(header, 1)) * self.ns_per_unit),
            link: self.link,
            interface,
            direction,
            loopback: false,
            vlan_tci: None,
            wire_len: self.order.word(header, 3).max(len),
            data,
        };
        Ok(Step::Packet { packet, consumed })
    }
}
