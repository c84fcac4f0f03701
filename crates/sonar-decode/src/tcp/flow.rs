//! Flows: which connection a segment belongs to, and where it was seen.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use sonar_core::{Coverage, Endpoint, Timestamp};

use super::half::{Half, Input, Limits as ReorderLimits, Piece};
use super::twin::{MIN_PAYLOAD, NOTED, Twins};
use super::{Close, Side, StreamHandler, Verdict};
use crate::frame::Segment;

/// Caps of the table.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Flows; when there are more, the one that was silent longest goes.
    pub flows: usize,
    /// A flow without segments for so long is forgotten, in nanoseconds.
    pub idle_ns: u64,
    /// A closed flow is remembered for so long, so that stray segments do not open it again.
    pub linger_ns: u64,
    /// All bytes held back in all flows.
    pub held_bytes: usize,
    /// Caps of each direction.
    pub reorder: ReorderLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 65_536,
            idle_ns: 1_800_000_000_000,
            linger_ns: 2_000_000_000,
            held_bytes: 16 << 20,
            reorder: ReorderLimits::default(),
        }
    }
}

/// How long a place may be silent before a flow follows another one.
const REPIN_NS: u64 = 1_000_000_000;
/// Flows looked at by each tick.
const TICK_FLOWS: usize = 8_192;

/// The ends of a flow, and what is known of how it began.
#[derive(Copy, Clone, Debug)]
pub struct Flow {
    /// The two ends, sorted.
    pub ends: [Endpoint; 2],
    /// Who sent the SYN, where it was seen.
    pub opener: Option<Side>,
    /// Time of the last segment.
    pub last: Timestamp,
}

/// Where one direction of a flow is listened to.
#[derive(Copy, Clone, Debug, Default)]
struct Pin {
    place: Option<u64>,
    last: Timestamp,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Live,
    /// The handler wants no more of it.
    Ignored,
    /// The same conversation as another flow.
    Twin,
    /// Ended; remembered for a while.
    Closed,
}

struct Entry<C> {
    flow: Flow,
    halves: [Half; 2],
    pins: [Pin; 2],
    state: State,
    /// Segments with payload noted for twins, by direction.
    noted: [u8; 2],
    conn: Option<C>,
}

/// All flows. `C` is what the handler keeps for each.
pub struct FlowTable<C> {
    limits: Limits,
    entries: Vec<Option<Entry<C>>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
    twins: Twins,
    /// The flow of the last segment, which mostly is that of the next.
    last: u32,
    /// Where the next tick goes on.
    swept: usize,
    held_bytes: usize,
}

impl<C> Default for FlowTable<C> {
    fn default() -> Self {
        Self::new(Limits::default(), Twins::default())
    }
}

impl<C> FlowTable<C> {
    /// An empty table; tables of several threads share `twins`.
    pub fn new(limits: Limits, twins: Twins) -> Self {
        Self {
            limits,
            entries: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            twins,
            last: u32::MAX,
            swept: 0,
            held_bytes: 0,
        }
    }

    /// Takes one segment and counts it: as a twin, or as decoded and then by what became of it.
    pub fn segment<H: StreamHandler<Connection = C>>(
        &mut self,
        segment: &Segment<'_>,
        coverage: &mut Coverage,
        handler: &mut H,
    ) {
        let (ends, side) = Side::of(segment.source, segment.destination);
        let syn = segment.flags.syn();
        let mut at = self.find(ends);
        if let Some(found) = at
            && syn
            && !segment.flags.ack()
            && self.is_new_connection(found, side, segment)
        {
            self.close(found, segment.time, Close::Reused, coverage, handler);
            self.remove(found);
            at = None;
        }
        let at = match at {
            Some(at) => at,
            None => {
                if segment.payload.is_empty() && segment.missing == 0 && !syn {
                    // Nothing to learn from; a flow opens with its SYN or its first bytes.
                    coverage.frames_decoded += 1;
                    coverage.segments_empty += 1;
                    return;
                }
                if self.len() >= self.limits.flows {
                    self.evict(segment.time, coverage, handler);
                }
                self.open(ends, side, segment, coverage, handler)
            }
        };
        self.last = at as u32;
        let Some(entry) = self.entries[at].as_mut() else { return };
        if !entry.is_pinned(side, segment) {
            coverage.frames_twin_interface += 1;
            return;
        }
        if entry.state == State::Twin {
            coverage.frames_twin_nat += 1;
            entry.flow.last = segment.time;
            return;
        }
        if entry.state == State::Live && segment.payload.len() >= MIN_PAYLOAD && entry.noted[side.index()] < NOTED {
            entry.noted[side.index()] += 1;
            let other = self.twins.see(ends, segment.seq, segment.payload, segment.time);
            if other.is_some_and(|other| self.find(other).is_some_and(|other| self.is_live(other))) {
                coverage.frames_twin_nat += 1;
                self.make_twin(at, segment.time, coverage, handler);
                return;
            }
        }
        coverage.frames_decoded += 1;
        self.feed(at, side, segment, coverage, handler);
    }

    fn is_live(&self, at: usize) -> bool {
        self.entries[at].as_ref().is_some_and(|entry| matches!(entry.state, State::Live | State::Ignored))
    }

    fn feed<H: StreamHandler<Connection = C>>(&mut self, at: usize, side: Side, segment: &Segment<'_>, coverage: &mut Coverage, handler: &mut H) {
        let limits = self.limits.reorder;
        let Some(Entry { flow, halves, state, conn, .. }) = self.entries[at].as_mut() else { return };
        flow.last = segment.time;
        match state {
            State::Closed => {
                *(if segment.payload.is_empty() { &mut coverage.segments_empty } else { &mut coverage.segments_duplicate }) += 1;
                return;
            }
            State::Ignored => coverage.segments_ignored += 1,
            _ => {}
        }
        let Some(conn) = conn.as_mut() else {
            return self.end_if_over(at, segment, side, coverage, handler);
        };
        let mut verdict = Verdict::Continue;
        let before = halves[0].held_bytes() + halves[1].held_bytes();
        let [low, high] = halves;
        let (own, peer) = if side == Side::Low { (low, high) } else { (high, low) };
        let mut deliver = |piece: Piece<'_>, side: Side, handler: &mut H| match piece {
            Piece::Data(time, bytes) if verdict == Verdict::Continue => {
                verdict = handler.data(flow, conn, side, time, bytes);
            }
            Piece::Gap(time, lost) if verdict == Verdict::Continue => handler.gap(flow, conn, side, time, lost),
            _ => {}
        };
        if segment.flags.ack() {
            peer.acknowledged(segment.ack, segment.time, &limits, coverage, &mut |piece| deliver(piece, side.other(), handler));
        }
        let seq = segment.seq.wrapping_add(u32::from(segment.flags.syn()));
        if segment.flags.syn() && own.next().is_none() {
            own.begin(seq);
        }
        if segment.payload.is_empty() && segment.missing == 0 {
            coverage.segments_empty += 1;
        } else if self.held_bytes > self.limits.held_bytes && own.next().is_some_and(|next| next != seq) {
            coverage.segments_refused += 1;
        } else {
            let input = Input { seq, time: segment.time, bytes: segment.payload, missing: segment.missing };
            own.push(input, &limits, coverage, &mut |piece| deliver(piece, side, handler));
        }
        if segment.flags.fin() {
            own.finish(seq.wrapping_add(segment.payload.len() as u32 + segment.missing));
        }
        let after = halves[0].held_bytes() + halves[1].held_bytes();
        self.held_bytes = (self.held_bytes + after).saturating_sub(before);
        if verdict == Verdict::Ignore {
            self.ignore(at, State::Ignored, segment.time, coverage, handler);
        }
        self.end_if_over(at, segment, side, coverage, handler);
    }

    /// Closes a flow after RST, or FIN from both sides.
    fn end_if_over<H: StreamHandler<Connection = C>>(&mut self, at: usize, segment: &Segment<'_>, _side: Side, coverage: &mut Coverage, handler: &mut H) {
        let Some(entry) = self.entries[at].as_ref() else { return };
        if segment.flags.rst() {
            self.close(at, segment.time, Close::Reset, coverage, handler);
        } else if entry.halves[0].is_finished() && entry.halves[1].is_finished() {
            self.close(at, segment.time, Close::Finished, coverage, handler);
        }
    }

    /// Whether a SYN opens a new connection between ends that are known.
    fn is_new_connection(&self, at: usize, side: Side, segment: &Segment<'_>) -> bool {
        let Some(entry) = self.entries[at].as_ref() else { return true };
        let next = entry.halves[side.index()].next();
        entry.state == State::Closed || next.is_some_and(|next| {
            // The same SYN again is just behind what is expected.
            let distance = next.wrapping_sub(segment.seq.wrapping_add(1));
            distance > 16 << 20 || (distance > 0 && entry.flow.opener.is_none())
        })
    }

    fn open<H: StreamHandler<Connection = C>>(&mut self, ends: [Endpoint; 2], side: Side, segment: &Segment<'_>, coverage: &mut Coverage, handler: &mut H) -> usize {
        let opener = match (segment.flags.syn(), segment.flags.ack()) {
            (true, false) => Some(side),
            (true, true) => Some(side.other()),
            _ => None,
        };
        let flow = Flow { ends, opener, last: segment.time };
        coverage.streams += 1;
        coverage.streams_joined_late += u64::from(opener.is_none());
        let conn = Some(handler.open(&flow));
        let entry = Entry { flow, halves: Default::default(), pins: [Pin::default(); 2], state: State::Live, noted: [0; 2], conn };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = Some(entry);
                at as usize
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        };
        let hash = self.hasher.hash_one(ends);
        let Self { entries, index, hasher, .. } = self;
        index.insert_unique(hash, at as u32, |&at| entries[at as usize].as_ref().map_or(0, |e| hasher.hash_one(e.flow.ends)));
        at
    }

    #[inline]
    fn find(&self, ends: [Endpoint; 2]) -> Option<usize> {
        let is = |at: usize| self.entries.get(at).and_then(|e| e.as_ref()).is_some_and(|entry| entry.flow.ends == ends);
        if is(self.last as usize) {
            return Some(self.last as usize);
        }
        let hash = self.hasher.hash_one(ends);
        self.index.find(hash, |&at| is(at as usize)).map(|&at| at as usize)
    }

    fn remove(&mut self, at: usize) {
        let Some(entry) = self.entries[at].take() else { return };
        let hash = self.hasher.hash_one(entry.flow.ends);
        if let Ok(found) = self.index.find_entry(hash, |&other| other as usize == at) {
            found.remove();
        }
        self.free.push(at as u32);
    }

    /// Drops what is kept for a flow that is not to be followed.
    fn ignore<H: StreamHandler<Connection = C>>(&mut self, at: usize, state: State, time: Timestamp, coverage: &mut Coverage, handler: &mut H) {
        let Some(entry) = self.entries[at].as_mut() else { return };
        for half in &mut entry.halves {
            self.held_bytes = self.held_bytes.saturating_sub(half.held_bytes());
            half.drop_held(coverage);
        }
        entry.state = state;
        if let Some(conn) = entry.conn.take() {
            handler.close(&entry.flow, conn, time, Close::Ignored);
        }
    }

    fn make_twin<H: StreamHandler<Connection = C>>(&mut self, at: usize, time: Timestamp, coverage: &mut Coverage, handler: &mut H) {
        self.ignore(at, State::Twin, time, coverage, handler);
    }

    /// Ends a flow, but remembers it.
    fn close<H: StreamHandler<Connection = C>>(&mut self, at: usize, time: Timestamp, how: Close, coverage: &mut Coverage, handler: &mut H) {
        let Some(Entry { flow, halves, conn, state, .. }) = self.entries[at].as_mut() else { return };
        for side in [Side::Low, Side::High] {
            let half = &mut halves[side.index()];
            self.held_bytes = self.held_bytes.saturating_sub(half.held_bytes());
            match conn.as_mut() {
                Some(conn) => half.end(coverage, &mut |piece| match piece {
                    Piece::Data(time, bytes) => {
                        handler.data(flow, conn, side, time, bytes);
                    }
                    Piece::Gap(time, lost) => handler.gap(flow, conn, side, time, lost),
                }),
                None => half.drop_held(coverage),
            }
        }
        *state = State::Closed;
        if let Some(conn) = conn.take() {
            handler.close(flow, conn, time, how);
        }
    }

    /// Makes room: of a few flows, the one that was silent longest goes.
    fn evict<H: StreamHandler<Connection = C>>(&mut self, now: Timestamp, coverage: &mut Coverage, handler: &mut H) {
        let total = self.entries.len();
        let sample = (0..32.min(total)).map(|i| (self.swept + i * 7) % total);
        let oldest = sample
            .filter_map(|at| self.entries[at].as_ref().map(|entry| (entry.state != State::Closed, entry.flow.last, at)))
            .min();
        self.swept = (self.swept + 31) % total.max(1);
        let Some((live, _, at)) = oldest else { return };
        coverage.streams_evicted += u64::from(live);
        self.close(at, now, Close::Evicted, coverage, handler);
        self.remove(at);
    }

    /// Gives up holes and flows that have waited too long. Looks at a bounded number of flows and goes
    /// on where it stopped.
    pub fn tick<H: StreamHandler<Connection = C>>(&mut self, now: Timestamp, coverage: &mut Coverage, handler: &mut H) {
        for _ in 0..self.entries.len().min(TICK_FLOWS) {
            self.swept = (self.swept + 1) % self.entries.len();
            let at = self.swept;
            let Some(Entry { flow, halves, conn, state, .. }) = self.entries[at].as_mut() else { continue };
            let silent = now.since(flow.last);
            if *state == State::Closed && silent > self.limits.linger_ns {
                self.remove(at);
            } else if silent > self.limits.idle_ns {
                coverage.streams_idle += 1;
                self.close(at, now, Close::Idle, coverage, handler);
                self.remove(at);
            } else if let Some(conn) = conn {
                for side in [Side::Low, Side::High] {
                    let half = &mut halves[side.index()];
                    if half.held() > 0 {
                        let before = half.held_bytes();
                        half.tick(now, &self.limits.reorder, coverage, &mut |piece| match piece {
                            Piece::Data(time, bytes) => {
                                handler.data(flow, conn, side, time, bytes);
                            }
                            Piece::Gap(time, lost) => handler.gap(flow, conn, side, time, lost),
                        });
                        self.held_bytes = (self.held_bytes + half.held_bytes()).saturating_sub(before);
                    }
                }
            }
        }
    }

    /// Ends all flows.
    pub fn finish<H: StreamHandler<Connection = C>>(&mut self, now: Timestamp, coverage: &mut Coverage, handler: &mut H) {
        for at in 0..self.entries.len() {
            self.close(at, now, Close::EndOfCapture, coverage, handler);
        }
        self.entries.clear();
        self.free.clear();
        self.index.clear();
        self.last = u32::MAX;
    }

    /// Flows that are followed, with what the handler keeps for them.
    pub fn iter(&self) -> impl Iterator<Item = (&Flow, &C)> {
        self.entries.iter().flatten().filter_map(|entry| Some((&entry.flow, entry.conn.as_ref()?)))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Flow, &mut C)> {
        self.entries.iter_mut().flatten().filter_map(|entry| Some((&entry.flow, entry.conn.as_mut()?)))
    }

    /// Flows in the table, those included that are remembered only.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Segments held back.
    pub fn in_progress_segments(&self) -> u64 {
        self.entries.iter().flatten().map(|entry| (entry.halves[0].held() + entry.halves[1].held()) as u64).sum()
    }
}

impl<C> Entry<C> {
    /// Whether a segment was seen where this direction of the flow is listened to.
    fn is_pinned(&mut self, side: Side, segment: &Segment<'_>) -> bool {
        let next = self.halves[side.index()].next();
        let pin = &mut self.pins[side.index()];
        let place = *pin.place.get_or_insert(segment.place);
        if place != segment.place {
            // The flow has moved when the old place is silent and the new one brings new bytes.
            let end = segment.seq.wrapping_add(segment.payload.len() as u32);
            let new = next.is_none_or(|next| (end.wrapping_sub(next) as i32) > 0);
            if segment.time.since(pin.last) < REPIN_NS || !new {
                return false;
            }
            pin.place = Some(segment.place);
        }
        pin.last = segment.time;
        true
    }
}

