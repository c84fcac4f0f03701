//! On which host a capture was made: the address that nearly all of its segments have in common.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::{Packet, Timestamp};
use sonar_decode::frame;

use crate::capture_reading::capture_file::{self, PacketSink};

/// The packets at the beginning of a capture that show on which host it was made.
const PACKETS: u64 = 20_000;

/// The beginning of a capture.
#[derive(Default)]
pub(super) struct CaptureHead {
    /// The time of the first packet.
    pub time: Timestamp,
    packets: u64,
    /// Segments between two hosts.
    segments: u64,
    /// Segments that each address sent or received, at most [`CaptureHead::MAX_ADDRESSES`].
    addresses: BTreeMap<IpAddr, u64>,
}

impl CaptureHead {
    /// The most addresses that are counted: the host of the capture is among the first.
    const MAX_ADDRESSES: usize = 256;

    /// Reads the beginning of a capture.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let mut head = Self::default();
        capture_file::read(path, stop, &mut head)?;
        Ok(head)
    }

    /// The address of the host on which the capture was made: nearly all segments come from it or go to it. `None`
    /// where no address is like that, as on the mirror port of a switch, and on loopback.
    pub fn host(&self) -> Option<IpAddr> {
        let (address, segments) = self.addresses.iter().max_by_key(|(_, segments)| **segments)?;
        // Between two hosts alone, either could be it.
        let is_only_one = self.addresses.values().filter(|count| *count == segments).count() == 1;
        (is_only_one && segments.saturating_mul(100) >= self.segments.saturating_mul(99)).then_some(*address)
    }
}

impl PacketSink for CaptureHead {
    const PROGRESS: bool = false;

    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>> {
        if self.packets == 0 {
            self.time = packet.time;
        }
        self.packets += 1;
        if let Ok(segment) = frame::decode(packet) {
            let ends = [segment.source.ip(), segment.destination.ip()];
            if !ends.iter().any(IpAddr::is_loopback) {
                self.segments += 1;
                for end in ends {
                    if self.addresses.len() < Self::MAX_ADDRESSES || self.addresses.contains_key(&end) {
                        *self.addresses.entry(end).or_default() += 1;
                    }
                }
            }
        }
        Ok(if self.packets < PACKETS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_capture_is_the_one_that_all_segments_have_in_common() {
        let head = |pairs: &[([u8; 4], [u8; 4], u64)]| {
            let mut head = CaptureHead::default();
            for (one, other, count) in pairs {
                head.segments += count;
                for end in [one, other] {
                    *head.addresses.entry(IpAddr::from(*end)).or_default() += count;
                }
            }
            head.host()
        };
        let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
        assert_eq!(head(&[(a, b, 50), (c, a, 50)]), Some(a.into()));
        assert_eq!(head(&[(a, b, 50), (c, a, 50), (b, c, 20)]), None, "a switch");
        assert_eq!(head(&[(a, b, 50)]), None, "either");
        assert_eq!(head(&[]), None);
    }
}
