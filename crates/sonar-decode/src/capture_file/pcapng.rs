//! The newer format: blocks, each with type and length, in sections that have their own byte order and
//! their own interfaces.

use sonar_core::packet::Direction;
use sonar_core::time::NS_PER_S;
use sonar_core::{LinkType, Packet, Timestamp};

use super::step::{Error, MAX_BLOCK_LEN, MAX_INTERFACES, MAX_PACKET_LEN, Order, Step};

/// The type of a section header block reads the same in both byte orders.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

pub(super) mod block {
    pub(in super::super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub(in super::super) const INTERFACE: u32 = 1;
    pub(in super::super) const PACKET: u32 = 2;
    pub(in super::super) const SIMPLE_PACKET: u32 = 3;
    pub(in super::super) const STATISTICS: u32 = 5;
    pub(in super::super) const ENHANCED_PACKET: u32 = 6;
    pub(in super::super) const SECRETS: u32 = 10;
}

pub(super) mod option {
    pub(in super::super) const END: u16 = 0;
    pub(in super::super) const SECTION_HARDWARE: u16 = 2;
    pub(in super::super) const SECTION_OS: u16 = 3;
    pub(in super::super) const SECTION_APPLICATION: u16 = 4;
    pub(in super::super) const INTERFACE_NAME: u16 = 2;
    pub(in super::super) const TIME_RESOLUTION: u16 = 9;
    pub(in super::super) const TIME_OFFSET: u16 = 14;
    pub(in super::super) const PACKET_FLAGS: u16 = 2;
    pub(in super::super) const STATISTICS_RECEIVED: u16 = 4;
    pub(in super::super) const STATISTICS_INTERFACE_DROPS: u16 = 5;
    pub(in super::super) const STATISTICS_OS_DROPS: u16 = 7;
}

pub(super) const BYTE_ORDER_MARK: u32 = 0x1a2b_3c4d;

/// The type of secrets that are a key log of TLS.
const KEY_LOG: u32 = 0x544c_534b;

/// Type, length, and the length again at the end.
const MIN_BLOCK_LEN: u32 = 12;

#[derive(Debug, Default)]
pub(super) struct PcapngReader {
    order: Order,
    /// Of this section.
    interfaces: Vec<PcapngInterface>,
    /// The time of the last packet: simple packet blocks have none of their own.
    last_time: Timestamp,
    passing: Option<Passing>,
    dropped: u64,
}

/// A block of a type that is not read: it is skipped piece by piece, however long it is.
#[derive(Debug)]
struct Passing {
    offset: u64,
    len: u32,
    /// Bytes still to come, with the length at the end.
    left: u32,
}

#[derive(Debug)]
struct PcapngInterface {
    link: LinkType,
    snap_len: u32,
    unit: Unit,
    offset_s: i64,
    loopback: bool,
    dropped: u64,
}

/// The unit of an interface's timestamps.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Unit {
    /// This many nanoseconds each.
    Ns(u64),
    /// This many in a nanosecond.
    PerNs(u128),
    /// 2 to this power in a second.
    PowerOfTwo(u32),
}

impl Unit {
    /// From the `if_tsresol` option.
    fn new(resolution: u8) -> Self {
        let power = u32::from(resolution & 0x7f);
        match resolution {
            0..=9 => Self::Ns(10_u64.pow(9 - power)),
            // Finer than 10^-38 s there is no time that could be distinguished from 0.
            10..=0x7f => Self::PerNs(10_u128.checked_pow(power - 9).unwrap_or(u128::MAX)),
            _ => Self::PowerOfTwo(power),
        }
    }

    #[inline]
    fn to_ns(self, count: u64) -> u64 {
        let wide = u128::from(count);
        let ns = match self {
            Self::Ns(ns) => return count.saturating_mul(ns),
            Self::PerNs(count) => wide / count,
            Self::PowerOfTwo(power) => (wide * u128::from(NS_PER_S)) >> power,
        };
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl PcapngInterface {
    #[inline]
    fn time(&self, high: u32, low: u32) -> Timestamp {
        let ns = self.unit.to_ns(u64::from(high) << 32 | u64::from(low));
        Timestamp::from_unix_ns(ns.saturating_add_signed(self.offset_s.saturating_mul(NS_PER_S as i64)))
    }
}

impl PcapngReader {
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Beginning of the block inside which the file must not end.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.passing.as_ref().map(|passing| passing.offset)
    }

    #[inline]
    pub(super) fn next<'a>(&mut self, buf: &'a [u8], offset: u64) -> Result<Step<'a>, Error> {
        if self.passing.is_some() {
            return self.pass(buf);
        }
        let Some((header, _)) = buf.split_first_chunk::<12>() else {
            return Ok(Step::Need { at_least: 12 });
        };
        if header[..4] == SECTION_HEADER {
            self.order = byte_order(header, offset)?;
        }
        let (kind, len) = (self.order.word(header, 0), self.order.word(header, 1));
        if len < MIN_BLOCK_LEN || !len.is_multiple_of(4) {
            return Err(Error::BlockLength { offset, kind, len });
        }
        if !matches!(
            kind,
            block::SECTION_HEADER
                | block::INTERFACE
                | block::PACKET
                | block::SIMPLE_PACKET
                | block::STATISTICS
                | block::ENHANCED_PACKET
                | block::SECRETS
        ) || (kind == block::SECRETS && len > MAX_BLOCK_LEN)
        {
            self.passing = Some(Passing { offset, len, left: len - 8 });
            return Ok(Step::Skip { consumed: 8 });
        }
        if len > MAX_BLOCK_LEN {
            return Err(match kind {
                block::PACKET | block::SIMPLE_PACKET | block::ENHANCED_PACKET => {
                    Error::PacketTooLong { offset, len }
                }
                _ => Error::BlockLength { offset, kind, len },
            });
        }
        let consumed = len as usize;
        let Some(whole) = buf.get(..consumed) else { return Ok(Step::Need { at_least: consumed }) };
        let (whole, trailer) = whole.split_at(consumed - 4);
        check_trailer(offset, len, self.order.word(trailer, 0))?;
        let content =
            PcapngBlock { offset, kind, order: self.order, rest: whole.get(8..).unwrap_or_default() };
        let packet = match kind {
            block::ENHANCED_PACKET => Some(self.enhanced_packet(content)?),
            block::SIMPLE_PACKET => Some(self.simple_packet(content)?),
            block::PACKET => Some(self.packet(content)?),
            block::INTERFACE => self.describe_interface(content).map(|()| None)?,
            block::STATISTICS => self.statistics(content).map(|()| None)?,
            block::SECRETS => {
                // Those that cannot be read cost only what they would decrypt.
                return Ok(match secrets(content) {
                    Ok((KEY_LOG, key_log)) => Step::Secrets { key_log, consumed },
                    _ => Step::Skip { consumed },
                });
            }
            _ => self.begin_section(content).map(|()| None)?,
        };
        Ok(match packet {
            Some(packet) => {
                self.last_time = packet.time;
                Step::Packet { packet, consumed }
            }
            None => Step::Skip { consumed },
        })
    }

    fn pass<'a>(&mut self, buf: &[u8]) -> Result<Step<'a>, Error> {
        let Some(passing) = &mut self.passing else { return Ok(Step::Need { at_least: 1 }) };
        if passing.left > 4 {
            if buf.is_empty() {
                return Ok(Step::Need { at_least: 1 });
            }
            let consumed = buf.len().min(passing.left as usize - 4);
            passing.left -= consumed as u32;
            return Ok(Step::Skip { consumed });
        }
        if buf.len() < 4 {
            return Ok(Step::Need { at_least: 4 });
        }
        check_trailer(passing.offset, passing.len, self.order.word(buf, 0))?;
        self.passing = None;
        Ok(Step::Skip { consumed: 4 })
    }

    fn begin_section(&mut self, mut content: PcapngBlock<'_>) -> Result<(), Error> {
        let _byte_order_mark = content.u32()?;
        let (major, minor) = (content.u16()?, content.u16()?);
        // Minor 2 was written by mistake and is the same as 0.
        if major != 1 {
            return Err(Error::Version { offset: content.offset, major, minor });
        }
        self.interfaces.clear();
        Ok(())
    }

    fn describe_interface(&mut self, mut content: PcapngBlock<'_>) -> Result<(), Error> {
        let (link, _reserved, snap_len) = (content.u16()?, content.u16()?, content.u32()?);
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(Error::TooManyInterfaces { offset: content.offset });
        }
        let mut interface = PcapngInterface {
            link: LinkType::from_number(link),
            snap_len,
            unit: Unit::Ns(1_000),
            offset_s: 0,
            loopback: false,
            dropped: 0,
        };
        for (code, value) in content.options() {
            match (code, value) {
                // Linux' only one; there, and only there, each packet may be seen twice.
                (option::INTERFACE_NAME, b"lo") => interface.loopback = true,
                (option::TIME_RESOLUTION, [resolution]) => interface.unit = Unit::new(*resolution),
                (option::TIME_OFFSET, value) => {
                    if let Some(value) = value.first_chunk() {
                        interface.offset_s = self.order.u64(*value).cast_signed();
                    }
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn statistics(&mut self, mut content: PcapngBlock<'_>) -> Result<(), Error> {
        let number = content.u32()?;
        let _time = (content.u32()?, content.u32()?);
        let dropped = content
            .options()
            .filter(|(code, _)| {
                matches!(*code, option::STATISTICS_INTERFACE_DROPS | option::STATISTICS_OS_DROPS)
            })
            .filter_map(|(_, value)| value.first_chunk().map(|value| self.order.u64(*value)))
            .fold(0_u64, u64::saturating_add);
        // The numbers count from the beginning of the capture; a file may hold many such blocks.
        if let Some(interface) = self.interfaces.get_mut(number as usize) {
            self.dropped = self.dropped.saturating_add(dropped.saturating_sub(interface.dropped));
            interface.dropped = interface.dropped.max(dropped);
        }
        Ok(())
    }

    #[inline]
    fn enhanced_packet<'a>(&self, mut content: PcapngBlock<'a>) -> Result<Packet<'a>, Error> {
        let (number, high, low) = (content.u32()?, content.u32()?, content.u32()?);
        self.with_options(content, number, high, low)
    }

    /// The obsolete packet block: like the enhanced one, with a shorter interface number and a drop count.
    fn packet<'a>(&self, mut content: PcapngBlock<'a>) -> Result<Packet<'a>, Error> {
        let (number, _drops) = (content.u16()?, content.u16()?);
        let (high, low) = (content.u32()?, content.u32()?);
        self.with_options(content, u32::from(number), high, low)
    }

    #[inline]
    fn with_options<'a>(
        &self,
        mut content: PcapngBlock<'a>,
        number: u32,
        high: u32,
        low: u32,
    ) -> Result<Packet<'a>, Error> {
        let (len, wire_len) = (content.u32()?, content.u32()?);
        let interface = self.interface(content.offset, number)?;
        if len > MAX_PACKET_LEN {
            return Err(Error::PacketTooLong { offset: content.offset, len });
        }
        let data = content.padded(len as usize)?;
        let flags = content.options().find(|(code, _)| *code == option::PACKET_FLAGS);
        let flags =
            flags.and_then(|(_, value)| value.first_chunk()).map_or(0, |value| self.order.u32(*value));
        Ok(Packet {
            time: interface.time(high, low),
            link: interface.link,
            interface: number,
            direction: match flags & 0b11 {
                1 => Direction::Incoming,
                2 => Direction::Outgoing,
                _ => Direction::Unknown,
            },
            loopback: interface.loopback,
            vlan_tci: None,
            wire_len: wire_len.max(len),
            data,
        })
    }

    /// It has no time, flags or interface: it belongs to the first interface and has the time of the packet before.
    fn simple_packet<'a>(&self, mut content: PcapngBlock<'a>) -> Result<Packet<'a>, Error> {
        let wire_len = content.u32()?;
        let interface = self.interface(content.offset, 0)?;
        let len = match interface.snap_len {
            0 => wire_len,
            snap_len => wire_len.min(snap_len),
        };
        if len > MAX_PACKET_LEN {
            return Err(Error::PacketTooLong { offset: content.offset, len });
        }
        let data = content.padded(len as usize)?;
        Ok(Packet {
            time: self.last_time,
            link: interface.link,
            interface: 0,
            direction: Direction::Unknown,
            loopback: interface.loopback,
            vlan_tci: None,
            wire_len,
            data,
        })
    }

    #[inline]
    fn interface(&self, offset: u64, number: u32) -> Result<&PcapngInterface, Error> {
        self.interfaces.get(number as usize).ok_or(Error::UnknownInterface { offset, interface: number })
    }
}

/// The type and the bytes of secrets.
fn secrets(mut content: PcapngBlock<'_>) -> Result<(u32, &[u8]), Error> {
    let (kind, len) = (content.u32()?, content.u32()?);
    Ok((kind, content.padded(len as usize)?))
}

fn byte_order(header: &[u8; 12], offset: u64) -> Result<Order, Error> {
    let found = [header[8], header[9], header[10], header[11]];
    if Order::Little.u32(found) == BYTE_ORDER_MARK {
        Ok(Order::Little)
    } else if Order::Big.u32(found) == BYTE_ORDER_MARK {
        Ok(Order::Big)
    } else {
        Err(Error::ByteOrder { offset, found })
    }
}

#[inline]
fn check_trailer(offset: u64, len: u32, found: u32) -> Result<(), Error> {
    if found == len { Ok(()) } else { Err(Error::BlockTrailer { offset, len, found }) }
}

/// The content of a block, field by field.
struct PcapngBlock<'a> {
    offset: u64,
    kind: u32,
    order: Order,
    rest: &'a [u8],
}

impl<'a> PcapngBlock<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (field, rest) = self.rest.split_first_chunk().ok_or_else(|| self.too_short())?;
        self.rest = rest;
        Ok(*field)
    }

    #[inline]
    fn u16(&mut self) -> Result<u16, Error> {
        self.take().map(|field| self.order.u16(field))
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(|field| self.order.u32(field))
    }

    /// Takes `len` bytes, and the padding to a multiple of four after them.
    #[inline]
    fn padded(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (data, _) = self.rest.split_at_checked(len).ok_or_else(|| self.too_short())?;
        self.rest = self.rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Ok(data)
    }

    fn too_short(&self) -> Error {
        Error::BlockContent { offset: self.offset, kind: self.kind }
    }

    /// The options that follow, up to the end mark or the first one that does not fit.
    #[inline]
    fn options(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let (mut rest, order) = (self.rest, self.order);
        std::iter::from_fn(move || {
            let ([a, b, c, d], after) = rest.split_first_chunk()?;
            let (code, len) = (order.u16([*a, *b]), usize::from(order.u16([*c, *d])));
            if code == option::END {
                return None;
            }
            let value = after.get(..len)?;
            rest = after.get(len.next_multiple_of(4)..).unwrap_or_default();
            Some((code, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_unit_is_brought_to_nanoseconds() {
        for (resolution, count, ns) in [
            (0, 3, 3_000_000_000),
            (3, 1_500, 1_500_000_000),
            (6, 1, 1_000),
            (9, 7, 7),
            (12, 7_999, 7),
            (127, u64::MAX, 0),
            (0x80, 2, 2_000_000_000),
            (0x80 | 1, 3, 1_500_000_000),
            (0x80 | 30, 1 << 29, 500_000_000),
            (0xff, u64::MAX, 0),
            (0, u64::MAX, u64::MAX),
        ] {
            assert_eq!(Unit::new(resolution).to_ns(count), ns, "{resolution} {count}");
        }
    }
}
