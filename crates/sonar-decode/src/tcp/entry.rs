//! One flow of the table: where each of its directions is captured, and what it passes to the handler.

use sonar_core::{Coverage, Timestamp};

use super::half::{Context, HalfFlow, Input, StreamPiece, Totals};
use super::handler::{Chunk, Flow, Gap, Side, StreamHandler, Verdict};
use super::limits::FlowLimits;
use super::twin::{Pulse, TwinWatch};
use crate::frame::Segment;

/// How long a place may be silent before another one replaces it for a flow, in nanoseconds.
const REPIN_NS: u64 = 1_000_000_000;
/// The place where one direction of a flow is captured.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Pin {
    pub(super) place: Option<u64>,
    pub(super) last: Timestamp,
}

#[derive(Debug)]
pub(super) enum FlowState {
    Live,
    /// The handler wants no more of it.
    Ignored,
    /// It is the same conversation as another flow; and since when that one has been silent while this one was not.
    Twin {
        of: TwinWatch,
        lonely: Option<Timestamp>,
    },
}

#[derive(Debug)]
pub(super) struct FlowEntry<C> {
    pub(super) flow: Flow,
    /// When it last moved to the back of its queue.
    pub(super) queued: Timestamp,
    pub(super) halves: [HalfFlow; 2],
    pub(super) pins: [Pin; 2],
    pub(super) state: FlowState,
    /// It is in the list of flows that wait for time to pass.
    pub(super) waiting: bool,
    /// It is in the list of flows of which one direction has not been seen.
    pub(super) one_sided: bool,
    /// The handler knows that one direction is not captured.
    pub(super) unheard: bool,
    /// The handler has seen it.
    pub(super) opened: bool,
    /// The handler got the FIN; in a flow whose bytes are not followed, a FIN was seen.
    pub(super) fins: [bool; 2],
    /// Segments noted as evidence of twins, by direction.
    pub(super) noted: [u8; 2],
    pub(super) pulse: Option<Pulse>,
    pub(super) conn: Option<C>,
}

/// What a call of the table needs in addition to the flow.
pub(super) struct Env<'a, H> {
    pub(super) coverage: &'a mut Coverage,
    pub(super) handler: &'a mut H,
}

impl<C> FlowEntry<C> {
    /// Whether a segment was seen at the place where this direction of the flow is captured.
    #[inline]
    pub(super) fn is_pinned(&mut self, side: Side, segment: &Segment<'_>) -> bool {
        let pin = &mut self.pins[side.index()];
        if pin.place != Some(segment.place) && pin.place.is_some() {
            return self.is_pinned_now(side, segment);
        }
        pin.place = Some(segment.place);
        pin.last = segment.time;
        true
    }

    /// A segment from another place is a twin, except in two cases: it fills a gap that the first place left,
    /// or the first place is silent and this one has new bytes, so that the flow has moved.
    #[cold]
    pub(super) fn is_pinned_now(&mut self, side: Side, segment: &Segment<'_>) -> bool {
        let half = &self.halves[side.index()];
        let len = segment.payload.len() as u32;
        if half.is_filled_by(segment.seq, len) {
            return true;
        }
        let end = segment.seq.wrapping_add(len);
        let new = half.next().is_none_or(|next| (end.wrapping_sub(next) as i32) > 0);
        let pin = &mut self.pins[side.index()];
        if segment.time.since(pin.last) < REPIN_NS || !new {
            return false;
        }
        *pin = Pin { place: Some(segment.place), last: segment.time };
        true
    }

    pub(super) const fn is_embryonic(&self) -> bool {
        !self.opened && matches!(self.state, FlowState::Live)
    }

    /// Which directions were delivered up to their FIN.
    #[inline]
    pub(super) const fn finished(&self) -> [bool; 2] {
        [self.halves[0].is_finished(), self.halves[1].is_finished()]
    }

    /// Runs `work` on the two directions and passes on what they deliver. The first of it opens the flow at the
    /// handler.
    #[inline]
    pub(super) fn drive<H: StreamHandler<Connection = C>>(
        &mut self,
        limits: &FlowLimits,
        totals: &mut Totals,
        env: &mut Env<'_, H>,
        work: impl FnOnce(&mut [HalfFlow; 2], &mut Context<'_>),
    ) -> Verdict {
        let Self { flow, halves, pins, conn, opened, .. } = self;
        let handler = &mut *env.handler;
        let was_open = *opened;
        let mut out = |side: Side, piece: StreamPiece<'_>| {
            let conn = conn.get_or_insert_with(|| {
                *opened = true;
                flow.both_seen = pins.iter().all(|pin| pin.place.is_some());
                handler.open(flow)
            });
            match piece {
                StreamPiece::Data(time, bytes) => handler.data(flow, conn, Chunk { side, time, bytes }),
                StreamPiece::Gap(time, lost) => {
                    handler.gap(flow, conn, Gap { side, time, lost });
                    Verdict::Continue
                }
            }
        };
        let mut context = Context {
            limits: &limits.reorder,
            total_bytes: limits.held_bytes,
            totals,
            coverage: env.coverage,
            verdict: Verdict::Continue,
            out: &mut out,
        };
        work(halves, &mut context);
        let verdict = context.verdict;
        if *opened && !was_open {
            env.coverage.streams += 1;
            env.coverage.streams_joined_late += u64::from(flow.opener.is_none());
        }
        verdict
    }

    /// Learns from a segment who opened the connection and where its streams begin.
    #[cold]
    pub(super) fn learn(&mut self, side: Side, segment: &Segment<'_>) {
        let [low, high] = &mut self.halves;
        let (own, peer) = if side == Side::Low { (low, high) } else { (high, low) };
        if segment.flags.syn() {
            if own.isn().is_none() {
                own.syn(segment.seq);
            }
            let opener = if segment.flags.ack() { side.other() } else { side };
            self.flow.opener.get_or_insert(opener);
            if segment.flags.ack() {
                peer.expect(segment.ack);
            }
        } else if segment.flags.ack() && own.isn().is_some_and(|isn| isn.wrapping_add(1) == segment.seq) {
            // The SYN-ACK was not seen: this acknowledges it.
            peer.expect(segment.ack);
        } else if segment.flags.ack() && !segment.flags.rst() {
            let sends = !segment.payload.is_empty() || segment.missing > 0;
            peer.acknowledged_unseen(segment.ack, sends);
        }
    }

    /// Tells the handler of the directions that have ended.
    #[cold]
    pub(super) fn tell_ends<H: StreamHandler<Connection = C>>(
        &mut self,
        time: Timestamp,
        env: &mut Env<'_, H>,
    ) {
        for side in [Side::Low, Side::High] {
            let at = side.index();
            if self.halves[at].is_finished() && !self.fins[at] {
                self.fins[at] = true;
                if let Some(conn) = &mut self.conn {
                    env.handler.fin(&self.flow, conn, side, time);
                }
            }
        }
    }
}

/// Passes the payload of a segment to its direction and the acknowledgement to the other one. Returns whether the
/// segment resets the connection.
#[inline]
pub(super) fn take(
    own: &mut HalfFlow,
    peer: &mut HalfFlow,
    segment: &Segment<'_>,
    cx: &mut Context<'_>,
) -> bool {
    let seq = segment.seq.wrapping_add(u32::from(segment.flags.syn()));
    let empty = segment.payload.is_empty() && segment.missing == 0;
    if segment.flags.rst() {
        // The payload of a RST is an explanation for people, not part of the stream.
        *(if empty { &mut cx.coverage.segments_empty } else { &mut cx.coverage.segments_duplicate }) += 1;
        return own.is_near(seq);
    }
    if segment.flags.ack() && own.is_near(seq) {
        peer.acknowledged(segment.ack, segment.time);
        if peer.is_waiting() {
            peer.settle(segment.time, cx);
        }
    }
    let fin = segment.flags.fin();
    if empty && !fin {
        cx.coverage.segments_empty += 1;
    } else if cx.verdict == Verdict::Ignore {
        *(if empty { &mut cx.coverage.segments_empty } else { &mut cx.coverage.segments_ignored }) += 1;
    } else {
        own.push(
            Input { seq, time: segment.time, bytes: segment.payload, missing: segment.missing, fin },
            cx,
        );
        if own.is_waiting() {
            own.settle(segment.time, cx);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow without gaps has nothing else on the heap.
    #[test]
    fn a_flow_is_small() {
        assert!(size_of::<HalfFlow>() <= 56, "{}", size_of::<HalfFlow>());
        assert!(size_of::<FlowEntry<()>>() <= 320, "{}", size_of::<FlowEntry<()>>());
    }
}
