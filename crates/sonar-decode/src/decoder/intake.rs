//! Which packets are followed? Those of the ports and of the sample that were asked for, each once.

use std::num::NonZeroU32;

use sonar_core::packet::Direction;
use sonar_core::{Coverage, Packet, Plaintext, PlaintextEvent, sample};

use super::settings::{Ports, Settings};
use crate::frame::{self, Segment, Skip, TcpFlags};

/// The segment in a packet that is not a plain one. Counts why there is none, and what is special about it. `snaps`:
/// packets are cut on purpose.
#[inline(never)]
fn with_care<'a>(packet: &Packet<'a>, snaps: bool, coverage: &mut Coverage) -> Option<Segment<'a>> {
    let found = frame::with_care(packet);
    let is_cut =
        found.as_ref().map_or_else(|skip| *skip == Skip::HeaderTruncated, |segment| segment.missing > 0);
    if is_cut && !snaps {
        coverage.frames_snapped += 1;
        coverage.frames_snapped_bytes += packet.data.len() as u64;
    }
    match found {
        Ok(segment) => {
            coverage.frames_tunnelled += u64::from(segment.is_tunnelled());
            Some(segment)
        }
        Err(skip) => {
            skip.count(coverage);
            None
        }
    }
}

/// Takes packets and finds their segments.
pub struct PacketIntake {
    /// Counters of packets and segments.
    pub coverage: Coverage,
    /// Keeps one connection in this many; `None`: all.
    sample: Option<NonZeroU32>,
    /// Packets are cut on purpose.
    snaps: bool,
}

impl PacketIntake {
    pub fn new(settings: &Settings) -> Self {
        let sample = NonZeroU32::new(settings.sample).filter(|every| every.get() > 1);
        Self { coverage: Coverage::default(), sample, snaps: settings.snap_replies.is_some() }
    }

    /// A part of a connection as a segment, from the process to the other end unless `received`. Its place in the stream
    /// is its sequence number, and what had passed of the other direction is acknowledged, so that what is missing is
    /// known at once.
    pub fn plaintext<'a>(
        &mut self,
        plaintext: &Plaintext<'a>,
        received: bool,
        ports: &Ports,
    ) -> Option<Segment<'a>> {
        let &Plaintext { session, time, offset, other, bytes, skipped, begins, event, .. } = plaintext;
        let [own, peer] = plaintext.ends?;
        let (source, destination) = if received { (peer, own) } else { (own, peer) };
        self.coverage.frames += 1;
        if let Ports::Ranges(_) = ports
            && !ports.names(source.port)
            && !ports.names(destination.port)
        {
            self.coverage.frames_other_port += 1;
            return None;
        }
        // Far from those of another session of the same connection.
        let first = (session as u32).wrapping_mul(0x9e37_79b9);
        let seq = first.wrapping_add(offset as u32);
        Some(Segment {
            time,
            place: 0,
            source,
            destination,
            seq: if begins { seq.wrapping_sub(1) } else { seq },
            ack: first.wrapping_add(other as u32),
            flags: TcpFlags::from_byte(match (begins, event) {
                (true, _) => 0x02,
                (false, PlaintextEvent::Ended) => 0x11,
                (false, _) => 0x10,
            }),
            payload: bytes,
            missing: skipped,
        })
    }

    /// The segment in a packet, if it is to be followed.
    #[inline]
    pub fn segment<'a>(&mut self, packet: &Packet<'a>, ports: &Ports) -> Option<Segment<'a>> {
        let Self { coverage, sample, snaps } = self;
        coverage.frames += 1;
        if packet.loopback && packet.direction == Direction::Outgoing {
            coverage.frames_twin_loopback += 1;
            return None;
        }
        let segment = match frame::at_once(packet) {
            Some(segment) => segment,
            None => with_care(packet, *snaps, coverage)?,
        };
        let (source, destination) = (segment.source, segment.destination);
        if let Ports::Ranges(_) = ports
            && !ports.names(source.port)
            && !ports.names(destination.port)
        {
            coverage.frames_other_port += 1;
            return None;
        }
        if let Some(every) = *sample
            && !sample::contains(every, &source, &destination, |port| ports.names(port))
        {
            coverage.frames_sampled_out += 1;
            return None;
        }
        Some(segment)
    }
}
