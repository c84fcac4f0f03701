//! One direction of a flow: sequence numbers, order, holes.

use std::collections::VecDeque;

use sonar_core::{Coverage, Timestamp};

use super::Lost;

/// Caps on what is held back.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Segments held back in one direction.
    pub segments: usize,
    /// Bytes held back in one direction.
    pub bytes: usize,
    /// How long a hole is waited for, once the other side has acknowledged it, in nanoseconds.
    pub acked_ns: u64,
    /// How long a hole is waited for in any case, in nanoseconds.
    pub hole_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segments: 64, bytes: 256 * 1024, acked_ns: 50_000_000, hole_ns: 2_000_000_000 }
    }
}

/// A segment further ahead or behind than this is none of this stream.
const WINDOW: i32 = 16 << 20;
/// So many segments in a row outside the window mean that it is us who are lost.
const LOST_AFTER: u8 = 3;

/// A segment that came before its turn.
#[derive(Debug)]
struct Held {
    seq: u32,
    time: Timestamp,
    bytes: Box<[u8]>,
    /// Bytes behind `bytes` that a snap length cut off.
    missing: u32,
}

/// What is delivered.
pub enum Piece<'a> {
    /// Bytes in order.
    Data(Timestamp, &'a [u8]),
    /// A hole.
    Gap(Timestamp, Lost),
}

/// One direction of a flow. Holds some 40 bytes while segments come in order.
#[derive(Debug, Default)]
pub struct Half {
    /// The next byte that is expected; `None` before the first segment.
    next: Option<u32>,
    /// Sequence number of the FIN.
    fin: Option<u32>,
    held: Option<Box<Held2>>,
    /// Segments in a row outside the window, and where the next of them would begin.
    outside: u8,
    outside_next: u32,
    last_time: Timestamp,
}

#[derive(Debug, Default)]
struct Held2 {
    segments: VecDeque<Held>,
    bytes: usize,
    since: Timestamp,
}

/// One segment as this room sees it.
#[derive(Copy, Clone, Debug)]
pub struct Input<'a> {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// When it came.
    pub time: Timestamp,
    /// The payload.
    pub bytes: &'a [u8],
    /// Bytes behind it that a snap length cut off.
    pub missing: u32,
}

impl Half {
    /// Sets where the stream begins: after a SYN.
    pub fn begin(&mut self, next: u32) {
        self.next = Some(next);
    }

    /// The next byte that is expected.
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// Remembers a FIN whose sequence number (of the FIN itself) is `seq`.
    pub fn finish(&mut self, seq: u32) {
        self.fin.get_or_insert(seq);
    }

    /// Whether all up to the FIN has come.
    pub fn is_finished(&self) -> bool {
        matches!((self.fin, self.next), (Some(fin), Some(next)) if before_or_at(fin, next))
    }

    /// Segments held back.
    pub fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.segments.len())
    }

    /// Bytes held back.
    pub fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Takes one segment with payload; counts it, once.
    pub fn push(&mut self, input: Input<'_>, limits: &Limits, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        let Some(next) = self.next else {
            coverage.segments_data += 1;
            out(Piece::Gap(input.time, Lost::Unknown));
            self.next = Some(input.seq);
            return self.deliver(input, coverage, out);
        };
        let ahead = input.seq.wrapping_sub(next) as i32;
        if ahead == 0 && self.held.is_none() {
            coverage.segments_data += 1;
            self.outside = 0;
            return self.deliver(input, coverage, out);
        }
        let length = input.bytes.len() as u32 + input.missing;
        if !(-WINDOW..=WINDOW).contains(&ahead) {
            return self.push_outside(input, length, coverage, out);
        }
        self.outside = 0;
        let end_ahead = ahead.wrapping_add(length as i32);
        if end_ahead <= 0 {
            coverage.segments_duplicate += 1;
            return;
        }
        if ahead <= 0 {
            coverage.segments_data += 1;
            self.deliver(trim(input, (-ahead) as u32), coverage, out);
            self.release(coverage, out);
            return;
        }
        self.hold(input, limits, coverage, out);
    }

    fn push_outside(&mut self, input: Input<'_>, length: u32, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        self.outside = if self.outside_next == input.seq { self.outside + 1 } else { 1 };
        self.outside_next = input.seq.wrapping_add(length);
        if self.outside < LOST_AFTER {
            coverage.segments_out_of_window += 1;
            return;
        }
        self.outside = 0;
        self.drop_held(coverage);
        coverage.segments_data += 1;
        coverage.gaps += 1;
        out(Piece::Gap(input.time, Lost::Unknown));
        self.next = Some(input.seq);
        self.deliver(input, coverage, out);
    }

    /// Delivers a segment that begins where it should.
    fn deliver(&mut self, input: Input<'_>, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        // A piece that was held back bears the time of its own frame, but time does not run back.
        self.last_time = self.last_time.max(input.time);
        if !input.bytes.is_empty() {
            out(Piece::Data(self.last_time, input.bytes));
        }
        if input.missing > 0 {
            coverage.segments_snapped += 1;
            out(Piece::Gap(self.last_time, Lost::Bytes(u64::from(input.missing))));
        }
        let length = input.bytes.len() as u32 + input.missing;
        self.next = self.next.map(|next| next.wrapping_add(length));
    }

    /// Keeps a segment until the ones before it come.
    fn hold(&mut self, input: Input<'_>, limits: &Limits, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        let held = self.held.get_or_insert_default();
        if held.segments.is_empty() {
            held.since = input.time;
        }
        let at = held.segments.iter().position(|other| before(input.seq, other.seq)).unwrap_or(held.segments.len());
        let end = input.seq.wrapping_add(input.bytes.len() as u32 + input.missing);
        let covered = |other: &Held| {
            let other_end = other.seq.wrapping_add(other.bytes.len() as u32 + other.missing);
            before_or_at(other.seq, input.seq) && before_or_at(end, other_end)
        };
        if at > 0 && covered(&held.segments[at - 1]) {
            coverage.segments_duplicate += 1;
            return;
        }
        held.bytes += input.bytes.len();
        let segment = Held { seq: input.seq, time: input.time, bytes: input.bytes.into(), missing: input.missing };
        held.segments.insert(at, segment);
        if held.segments.len() > limits.segments || held.bytes > limits.bytes {
            self.give_up(coverage, out);
        }
    }

    /// Delivers what is held and now has its turn.
    fn release(&mut self, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        while let (Some(held), Some(next)) = (&mut self.held, self.next) {
            let Some(first) = held.segments.front() else {
                self.held = None;
                return;
            };
            let behind = next.wrapping_sub(first.seq) as i32;
            if behind < 0 {
                held.since = first.time;
                return;
            }
            let Some(first) = held.segments.pop_front() else { return };
            held.bytes -= first.bytes.len();
            let length = first.bytes.len() as u32 + first.missing;
            if behind as u32 >= length {
                coverage.segments_duplicate += 1;
                continue;
            }
            coverage.segments_data += 1;
            coverage.segments_reordered += 1;
            let input = Input { seq: first.seq, time: first.time, bytes: &first.bytes, missing: first.missing };
            self.deliver(trim(input, behind as u32), coverage, out);
        }
    }

    /// Takes the first hole as lost.
    fn give_up(&mut self, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        let (Some(held), Some(next)) = (&self.held, self.next) else { return };
        let Some(first) = held.segments.front() else { return };
        let missing = first.seq.wrapping_sub(next);
        coverage.gaps += 1;
        coverage.gap_bytes += u64::from(missing);
        out(Piece::Gap(first.time, Lost::Bytes(u64::from(missing))));
        self.next = Some(first.seq);
        self.release(coverage, out);
    }

    /// The other side has acknowledged up to `ack` at `now`: what is missing before it was received there
    /// and will not be sent again.
    pub fn acknowledged(&mut self, ack: u32, now: Timestamp, limits: &Limits, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        let (Some(held), Some(next)) = (&self.held, self.next) else { return };
        let waited = now.since(held.since) > limits.acked_ns;
        if before(next, ack) && (held.segments.len() >= 3 || waited) {
            self.give_up(coverage, out);
        }
    }

    /// Gives up a hole that has been waited for too long.
    pub fn tick(&mut self, now: Timestamp, limits: &Limits, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        while self.held.as_ref().is_some_and(|held| now.since(held.since) > limits.hole_ns) {
            self.give_up(coverage, out);
        }
    }

    /// Gives up all holes: the stream has ended.
    pub fn end(&mut self, coverage: &mut Coverage, out: &mut impl FnMut(Piece<'_>)) {
        while self.held.is_some() {
            self.give_up(coverage, out);
        }
    }

    /// Forgets what is held.
    pub fn drop_held(&mut self, coverage: &mut Coverage) {
        if let Some(held) = self.held.take() {
            coverage.segments_ignored += held.segments.len() as u64;
        }
    }
}

/// The segment without its first `skip` bytes.
fn trim(input: Input<'_>, skip: u32) -> Input<'_> {
    let within = (skip as usize).min(input.bytes.len());
    Input {
        seq: input.seq.wrapping_add(skip),
        bytes: &input.bytes[within..],
        missing: input.missing - (skip - within as u32).min(input.missing),
        ..input
    }
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

fn before_or_at(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) <= 0
}
