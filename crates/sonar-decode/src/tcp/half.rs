//! One direction of a flow: sequence numbers, order, gaps.
//!
//! A gap in a captured stream has one of two reasons. The network lost a segment: then the sender repeats it, and
//! later segments wait. Or the capture lost it: then it never comes, and the other end acknowledges bytes that were
//! not captured. The acknowledgement may arrive here slightly before the bytes, so it counts only after
//! [`ReorderLimits::acked_ns`] or with three segments waiting.

use std::collections::VecDeque;

use sonar_core::{Coverage, Timestamp};

use super::handler::{Lost, Side, Verdict};
use super::limits::ReorderLimits;

/// A segment further ahead or behind than this is not part of the stream. Larger than the largest receive windows in
/// use.
pub(super) const WINDOW: i32 = 16 << 20;
/// This many segments outside the window, each beginning where the one before ended, show that the window is wrong.
const LOST_AFTER: u8 = 3;
/// This many segments behind a gap that the other end has acknowledged prove that it will not be filled.
const GAP_PROVED_BY: usize = 3;
/// The cost of a held segment in addition to its bytes.
const HELD_OVERHEAD: usize = 96;

/// What all directions of all flows hold back.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Segments that wait for their turn.
    pub segments: u64,
    /// Memory they take, in bytes.
    pub bytes: usize,
}

/// What a direction needs to do its work.
pub(super) struct Context<'a> {
    pub limits: &'a ReorderLimits,
    /// Cap on [`Totals::bytes`].
    pub total_bytes: usize,
    pub totals: &'a mut Totals,
    pub coverage: &'a mut Coverage,
    /// The handler's answer; after [`Verdict::Ignore`] nothing more is delivered.
    pub verdict: Verdict,
    pub out: &'a mut dyn FnMut(Side, StreamPiece<'_>) -> Verdict,
}

impl Context<'_> {
    #[inline]
    fn give(&mut self, side: Side, piece: StreamPiece<'_>) {
        if self.verdict == Verdict::Continue {
            self.verdict = (self.out)(side, piece);
        }
    }
}

/// What is delivered.
pub(super) enum StreamPiece<'a> {
    /// Bytes in order.
    Data(Timestamp, &'a [u8]),
    /// A gap.
    Gap(Timestamp, Lost),
}

/// One segment as a direction sees it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Input<'a> {
    /// Sequence number of the first byte.
    pub seq: u32,
    pub time: Timestamp,
    pub bytes: &'a [u8],
    /// Bytes behind `bytes` that a snap length cut off.
    pub missing: u32,
    /// The stream ends behind it.
    pub fin: bool,
}

impl Input<'_> {
    /// Bytes that it had on the wire.
    fn len(&self) -> u64 {
        self.bytes.len() as u64 + u64::from(self.missing)
    }

    /// Without its first `skip` bytes.
    fn trimmed(self, skip: u32) -> Self {
        let within = (skip as usize).min(self.bytes.len());
        Input {
            seq: self.seq.wrapping_add(skip),
            bytes: &self.bytes[within..],
            missing: self.missing.saturating_sub(skip - within as u32),
            ..self
        }
    }
}

/// A segment that came too early. One without bytes is a FIN, and does not count as held.
#[derive(Debug)]
struct HeldSegment {
    seq: u32,
    missing: u32,
    time: Timestamp,
    bytes: Box<[u8]>,
    fin: bool,
}

impl HeldSegment {
    fn as_input(&self) -> Input<'_> {
        Input { seq: self.seq, time: self.time, bytes: &self.bytes, missing: self.missing, fin: self.fin }
    }
}

#[derive(Debug)]
struct HeldSegments {
    /// Sorted by sequence number; they may overlap.
    segments: VecDeque<HeldSegment>,
    bytes: usize,
    /// Time of the last delivery: what was held back is not delivered with an earlier one.
    delivered: Timestamp,
}

/// One direction of a flow. Allocates only while segments are out of order.
#[derive(Debug)]
pub(super) struct HalfFlow {
    side: Side,
    /// Whether `next` is valid.
    known: bool,
    /// FIN was reached.
    finished: bool,
    /// Whether `acked` may be beyond `next`.
    acked_ahead: bool,
    /// Nothing was seen of this direction, and `acked` is how far it had been acknowledged when the other end sent
    /// something.
    asked: bool,
    /// Segments in a row outside the window, and where the next of them would begin.
    strays: u8,
    stray_next: u32,
    /// The sequence number that is expected next.
    next: u32,
    /// Initial sequence number, where the SYN was seen.
    isn: Option<u32>,
    /// How far the other end has acknowledged, and since when it is beyond `next`.
    acked: u32,
    acked_since: Timestamp,
    held: Option<Box<HeldSegments>>,
}

impl HalfFlow {
    pub const fn new(side: Side) -> Self {
        Self {
            side,
            known: false,
            finished: false,
            acked_ahead: false,
            asked: false,
            strays: 0,
            stray_next: 0,
            next: 0,
            isn: None,
            acked: 0,
            acked_since: Timestamp::from_unix_ns(0),
            held: None,
        }
    }

    /// The sequence number that is expected next; `None` before anything was seen of this direction.
    #[inline]
    pub const fn next(&self) -> Option<u32> {
        if self.known { Some(self.next) } else { None }
    }

    pub const fn isn(&self) -> Option<u32> {
        self.isn
    }

    /// Whether all was delivered up to the FIN.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether something waits, for bytes or for time to pass.
    #[inline]
    pub const fn is_waiting(&self) -> bool {
        self.held.is_some() || self.acked_ahead
    }

    /// Whether segments wait behind a gap that begins inside of this segment.
    pub fn is_filled_by(&self, segment_seq: u32, len: u32) -> bool {
        self.held.is_some() && self.next.wrapping_sub(segment_seq) < len
    }

    /// Whether a sequence number may belong to this stream.
    #[inline]
    pub fn is_near(&self, seq: u32) -> bool {
        !self.known || (-WINDOW..=WINDOW).contains(&(seq.wrapping_sub(self.next) as i32))
    }

    /// The SYN: the first byte has the number after it.
    pub fn syn(&mut self, isn: u32) {
        self.isn = Some(isn);
        self.expect(isn.wrapping_add(1));
    }

    /// Begins at `next`, unless the position of the stream is known.
    pub fn expect(&mut self, next: u32) {
        if !self.known {
            self.known = true;
            self.next = next;
        }
    }

    /// Nothing was seen of this direction yet, and the other end acknowledges everything before `ack`. `sends`: it
    /// sends something itself. What it acknowledges beyond that answers it, so this direction goes on unseen.
    pub fn acknowledged_unseen(&mut self, ack: u32, sends: bool) {
        if self.known {
            return;
        }
        if !self.asked {
            self.asked = sends;
            self.acked = ack;
        } else if (1..=WINDOW).contains(&(ack.wrapping_sub(self.acked) as i32)) {
            self.expect(self.acked);
        }
    }

    /// A segment with payload or FIN: delivers its new bytes, and counts it.
    #[inline]
    pub fn push(&mut self, input: Input<'_>, cx: &mut Context<'_>) {
        if self.known && self.next == input.seq && self.held.is_none() && !input.fin && !self.finished {
            self.strays = 0;
            cx.coverage.segments_data += 1;
            return self.deliver(input, input.time, cx);
        }
        self.push_other(input, cx);
    }

    #[cold]
    fn push_other(&mut self, input: Input<'_>, cx: &mut Context<'_>) {
        let len = input.len();
        if !self.known {
            self.expect(input.seq);
            if len > 0 {
                cx.give(self.side, StreamPiece::Gap(input.time, Lost::Unknown));
            }
        }
        if self.finished {
            return count_old(len, cx);
        }
        let ahead = input.seq.wrapping_sub(self.next) as i32;
        if len > WINDOW as u64 || !(-WINDOW..=WINDOW).contains(&ahead) {
            return self.stray(input, cx);
        }
        self.strays = 0;
        if ahead > 0 {
            return self.hold(input, cx);
        }
        let end = ahead + len as i32;
        if end > 0 {
            cx.coverage.segments_data += 1;
            self.deliver(input.trimmed(ahead.unsigned_abs()), input.time, cx);
        } else {
            count_old(len, cx);
        }
        if input.fin && end >= 0 {
            self.finish(cx);
        }
        if let Some(held) = &mut self.held {
            held.delivered = held.delivered.max(input.time);
            self.release(true, cx);
        }
    }

    /// A segment far from the position of the stream. One is an accident; several that fit each other mean that the
    /// stream is there.
    fn stray(&mut self, input: Input<'_>, cx: &mut Context<'_>) {
        let len = input.len();
        if len == 0 {
            cx.coverage.segments_empty += 1;
            return;
        }
        if len > WINDOW as u64 {
            cx.coverage.segments_out_of_window += 1;
            return;
        }
        self.strays = if self.strays > 0 && self.stray_next == input.seq { self.strays + 1 } else { 1 };
        self.stray_next = input.seq.wrapping_add(len as u32);
        if self.strays < LOST_AFTER {
            cx.coverage.segments_out_of_window += 1;
            return;
        }
        self.strays = 0;
        self.acked_ahead = false;
        self.end(cx);
        self.next = input.seq;
        cx.coverage.gaps += 1;
        cx.coverage.segments_data += 1;
        cx.give(self.side, StreamPiece::Gap(input.time, Lost::Unknown));
        self.deliver(input, input.time, cx);
        if input.fin {
            self.finish(cx);
        }
    }

    /// Delivers a segment that begins where it should.
    #[inline]
    fn deliver(&mut self, input: Input<'_>, time: Timestamp, cx: &mut Context<'_>) {
        if !input.bytes.is_empty() {
            cx.give(self.side, StreamPiece::Data(time, input.bytes));
        }
        if input.missing > 0 {
            cx.coverage.segments_snapped += 1;
            cx.give(self.side, StreamPiece::Gap(time, Lost::Cut(u64::from(input.missing))));
        }
        self.next = self.next.wrapping_add(input.len() as u32);
    }

    /// FIN has its own sequence number.
    fn finish(&mut self, cx: &mut Context<'_>) {
        self.finished = true;
        self.next = self.next.wrapping_add(1);
        self.drop_held(cx.totals, &mut cx.coverage.segments_duplicate);
    }

    /// Keeps a segment until those before it come. Gives up the first gap if there is no room.
    fn hold(&mut self, input: Input<'_>, cx: &mut Context<'_>) {
        let len = input.len();
        let end = input.seq.wrapping_add(len as u32);
        let cost = input.bytes.len() + HELD_OVERHEAD;
        let held = self.held.get_or_insert_with(|| {
            Box::new(HeldSegments { segments: VecDeque::new(), bytes: 0, delivered: Timestamp::default() })
        });
        let covered = held.segments.iter().any(|other| {
            let (other_end, other_fin) = (other.seq.wrapping_add(other.as_input().len() as u32), other.fin);
            !is_before(input.seq, other.seq) && !is_before(other_end, end) && (!input.fin || other_fin)
        });
        if covered {
            return count_old(len, cx);
        }
        let full = held.segments.len() >= cx.limits.segments
            || held.bytes + cost > cx.limits.bytes
            || cx.totals.bytes + cost > cx.total_bytes;
        if full {
            if held.segments.is_empty() {
                self.held = None;
                self.skip_to(input.seq, input.time, cx);
            } else {
                self.give_up(cx);
            }
            return if cx.verdict == Verdict::Ignore {
                *(if len > 0 {
                    &mut cx.coverage.segments_ignored
                } else {
                    &mut cx.coverage.segments_empty
                }) += 1;
            } else {
                // Each round removes a gap, so this ends.
                self.push(input, cx)
            };
        }
        if len > 0 {
            cx.totals.segments += 1;
        } else {
            cx.coverage.segments_empty += 1;
        }
        cx.totals.bytes += cost;
        held.bytes += cost;
        let after = held.segments.iter().rposition(|other| !is_before(input.seq, other.seq));
        held.segments.insert(
            after.map_or(0, |at| at + 1),
            HeldSegment {
                seq: input.seq,
                missing: input.missing,
                time: input.time,
                bytes: input.bytes.into(),
                fin: input.fin,
            },
        );
    }

    /// Delivers held segments whose turn has come.
    fn release(&mut self, reordered: bool, cx: &mut Context<'_>) {
        while let Some(held) = &mut self.held {
            let Some(first) = held.segments.front() else {
                self.held = None;
                return;
            };
            let behind = self.next.wrapping_sub(first.seq) as i32;
            if behind < 0 || cx.verdict == Verdict::Ignore {
                return;
            }
            let Some(first) = held.segments.pop_front() else { return };
            let cost = first.bytes.len() + HELD_OVERHEAD;
            held.bytes -= cost;
            cx.totals.bytes -= cost;
            held.delivered = held.delivered.max(first.time);
            let time = held.delivered;
            let input = first.as_input();
            let len = input.len() as i32;
            cx.totals.segments -= u64::from(len > 0);
            if behind < len {
                cx.coverage.segments_data += 1;
                cx.coverage.segments_reordered += u64::from(reordered);
                self.deliver(input.trimmed(behind as u32), time, cx);
            } else if len > 0 {
                cx.coverage.segments_duplicate += 1;
            }
            if first.fin && behind <= len {
                self.finish(cx);
            }
        }
    }

    /// Gives up what is missing before `seq`.
    fn skip_to(&mut self, seq: u32, time: Timestamp, cx: &mut Context<'_>) {
        let bytes = u64::from(seq.wrapping_sub(self.next));
        cx.coverage.gaps += 1;
        cx.coverage.gap_bytes += bytes;
        cx.give(self.side, StreamPiece::Gap(time, Lost::Bytes(bytes)));
        self.next = seq;
    }

    /// Gives up the first gap.
    fn give_up(&mut self, cx: &mut Context<'_>) {
        let Some(held) = &self.held else { return };
        let Some(first) = held.segments.front() else {
            self.held = None;
            return;
        };
        let (seq, mut time) = (first.seq, first.time.max(held.delivered));
        if self.acked_ahead && is_before(self.next, self.acked) {
            time = time.min(self.acked_since);
        }
        self.skip_to(seq, time, cx);
        self.release(false, cx);
    }

    /// The other end has acknowledged everything before `ack`.
    #[inline]
    pub fn acknowledged(&mut self, ack: u32, now: Timestamp) {
        if ack.wrapping_sub(self.next) as i32 > 0 && self.known {
            self.acknowledged_ahead(ack, now);
        }
    }

    #[cold]
    fn acknowledged_ahead(&mut self, ack: u32, now: Timestamp) {
        if ack.wrapping_sub(self.next) as i32 > WINDOW {
            return;
        }
        if !self.acked_ahead || !is_before(self.next, self.acked) {
            self.acked_ahead = true;
            self.acked_since = now;
            self.acked = ack;
        } else if is_before(self.acked, ack) {
            self.acked = ack;
        }
    }

    /// Gives up the gaps that will not be filled.
    pub fn settle(&mut self, now: Timestamp, cx: &mut Context<'_>) {
        while cx.verdict == Verdict::Continue {
            self.acked_ahead = self.acked_ahead && is_before(self.next, self.acked);
            let acked = if self.acked_ahead { self.acked.wrapping_sub(self.next) } else { 0 };
            let acked_long = now.since(self.acked_since) >= cx.limits.acked_ns;
            match self.held.as_ref().and_then(|held| Some((held.segments.front()?, held.segments.len()))) {
                Some((first, waiting)) => {
                    let proved = acked >= first.seq.wrapping_sub(self.next)
                        && (acked_long || waiting >= GAP_PROVED_BY);
                    if !proved && now.since(first.time) < cx.limits.gap_ns {
                        return;
                    }
                    self.give_up(cx);
                }
                // One byte may be a FIN that was lost.
                None if acked > 1 && acked_long => self.skip_to(self.acked, self.acked_since, cx),
                None => return,
            }
        }
    }

    /// Gives up all gaps: the stream has ended.
    pub fn end(&mut self, cx: &mut Context<'_>) {
        while self.held.is_some() && cx.verdict == Verdict::Continue {
            self.give_up(cx);
        }
        self.drop_held(cx.totals, &mut cx.coverage.segments_ignored);
    }

    /// At the end of a connection: gives up all gaps, the one at the end too.
    pub fn close(&mut self, now: Timestamp, cx: &mut Context<'_>) {
        self.end(cx);
        let acked = self.acked.wrapping_sub(self.next) as i32;
        if self.acked_ahead && acked > 1 && cx.verdict == Verdict::Continue {
            self.skip_to(self.acked, now, cx);
        }
    }

    /// Forgets what is held, and counts it.
    pub fn drop_held(&mut self, totals: &mut Totals, counter: &mut u64) {
        if let Some(held) = self.held.take() {
            let segments = held.segments.iter().filter(|segment| segment.as_input().len() > 0).count() as u64;
            *counter += segments;
            totals.segments -= segments;
            totals.bytes -= held.bytes;
        }
    }
}

/// Counts a segment without new bytes.
fn count_old(len: u64, cx: &mut Context<'_>) {
    *(if len > 0 { &mut cx.coverage.segments_duplicate } else { &mut cx.coverage.segments_empty }) += 1;
}

/// Whether `a` comes before `b`, across the wrap-around.
#[inline]
const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
