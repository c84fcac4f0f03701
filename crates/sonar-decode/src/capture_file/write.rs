//! Packets to pcapng: one section, little-endian, times in nanoseconds.

use sonar_core::packet::Direction;
use sonar_core::words::cut;
use sonar_core::{LinkType, Packet, Timestamp};

use super::pcapng::{BYTE_ORDER_MARK, block, option};
use super::step::{MAX_INTERFACES, MAX_PACKET_LEN};

/// Who captured, for the section header. Empty texts are left out.
#[derive(Copy, Clone, Debug, Default)]
pub struct SectionHeader<'a> {
    /// For example `x86_64`.
    pub hardware: &'a str,
    /// For example `Linux 6.1.0`.
    pub os: &'a str,
    /// For example `mongosonar 0.1.0`.
    pub application: &'a str,
}

/// An interface, as the file describes it.
#[derive(Copy, Clone, Debug)]
pub struct InterfaceDescription<'a> {
    /// For example `eth0`; left out when empty.
    pub name: &'a str,
    /// Link type of all its packets.
    pub link: LinkType,
    /// The most bytes that are kept of a packet; 0 for no limit.
    pub snap_len: u32,
}

/// How many packets an interface received, and how many of these the kernel dropped.
#[derive(Copy, Clone, Debug)]
pub struct PacketCounts {
    /// Packets, the dropped ones included.
    pub received: u64,
    /// Packets that the kernel dropped.
    pub dropped: u64,
}

/// Writes the blocks of one pcapng section into buffers of the caller.
#[derive(Clone, Debug)]
pub struct PcapngWriter {
    interfaces: u32,
}

impl PcapngWriter {
    /// Begins a section: what goes first into a file.
    pub fn begin(section: &SectionHeader<'_>, out: &mut Vec<u8>) -> Self {
        let start = open(out, block::SECTION_HEADER);
        put_u32(out, BYTE_ORDER_MARK);
        put_u16(out, 1);
        put_u16(out, 0);
        // The section's length, which is not known yet.
        put_u64(out, u64::MAX);
        put_text(out, option::SECTION_HARDWARE, section.hardware);
        put_text(out, option::SECTION_OS, section.os);
        put_text(out, option::SECTION_APPLICATION, section.application);
        put_option(out, option::END, &[]);
        close(out, start);
        Self { interfaces: 0 }
    }

    /// Describes an interface and gives its number. `None`, and nothing written, past
    /// [`MAX_INTERFACES`].
    pub fn interface(&mut self, interface: &InterfaceDescription<'_>, out: &mut Vec<u8>) -> Option<u32> {
        let number = self.interfaces;
        if number as usize >= MAX_INTERFACES {
            return None;
        }
        self.interfaces += 1;
        let start = open(out, block::INTERFACE);
        put_u16(out, interface.link.number());
        put_u16(out, 0);
        put_u32(out, interface.snap_len);
        put_text(out, option::INTERFACE_NAME, interface.name);
        put_option(out, option::TIME_RESOLUTION, &[9]);
        put_option(out, option::END, &[]);
        close(out, start);
        Some(number)
    }

    /// Writes a packet of the interface with this number, which must have the packet's link type. A VLAN
    /// tag that the kernel took out is put back. Bytes past [`MAX_PACKET_LEN`] are cut.
    pub fn packet(&self, interface: u32, packet: &Packet<'_>, out: &mut Vec<u8>) {
        let tag = packet.vlan_tci.filter(|_| packet.link == LinkType::Ethernet);
        let (addresses, tag, rest) = match (tag, packet.data.split_at_checked(12)) {
            (Some(tci), Some((addresses, rest))) => {
                let [a, b] = tci.to_be_bytes();
                (addresses, &[0x81, 0x00, a, b][..], rest)
            }
            _ => (&[][..], &[][..], packet.data),
        };
        let most = MAX_PACKET_LEN as usize - addresses.len() - tag.len();
        let rest = &rest[..rest.len().min(most)];
        let len = addresses.len() + tag.len() + rest.len();

        let start = open(out, block::ENHANCED_PACKET);
        put_u32(out, interface);
        put_time(out, packet.time);
        put_u32(out, len as u32);
        put_u32(out, packet.wire_len.saturating_add(tag.len() as u32).max(len as u32));
        out.extend_from_slice(addresses);
        out.extend_from_slice(tag);
        out.extend_from_slice(rest);
        pad(out, len);
        let direction = match packet.direction {
            Direction::Unknown => 0_u32,
            Direction::Incoming => 1,
            Direction::Outgoing => 2,
        };
        if direction != 0 {
            put_option(out, option::PACKET_FLAGS, &direction.to_le_bytes());
            put_option(out, option::END, &[]);
        }
        close(out, start);
    }

    /// Writes how many packets an interface received, and how many of these the kernel dropped, from the
    /// beginning of the capture to `time`.
    pub fn statistics(&self, interface: u32, time: Timestamp, counts: PacketCounts, out: &mut Vec<u8>) {
        let PacketCounts { received, dropped } = counts;
        let start = open(out, block::STATISTICS);
        put_u32(out, interface);
        put_time(out, time);
        put_option(out, option::STATISTICS_RECEIVED, &received.to_le_bytes());
        // The kernel's drops stand under the interface's, where dumpcap puts them and others look.
        put_option(out, option::STATISTICS_INTERFACE_DROPS, &dropped.to_le_bytes());
        put_option(out, option::END, &[]);
        close(out, start);
    }
}

/// Begins a block; its length is filled in by [`close`].
fn open(out: &mut Vec<u8>, kind: u32) -> usize {
    let start = out.len();
    put_u32(out, kind);
    put_u32(out, 0);
    start
}

fn close(out: &mut Vec<u8>, start: usize) {
    let len = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend_from_slice(&len);
    if let Some(first) = out.get_mut(start + 4..start + 8) {
        first.copy_from_slice(&len);
    }
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    let ns = time.unix_ns();
    put_u32(out, (ns >> 32) as u32);
    put_u32(out, ns as u32);
}

fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    put_u16(out, code);
    put_u16(out, value.len() as u16);
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// Writes the first 1,024 bytes of a text, up to the end of a character. Leaves out an empty text.
fn put_text(out: &mut Vec<u8>, code: u16, text: &str) {
    let text = cut(text, 1_024);
    if !text.is_empty() {
        put_option(out, code, text.as_bytes());
    }
}

/// Pads to a multiple of four after `len` bytes.
fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&[0; 3][..len.next_multiple_of(4) - len]);
}
