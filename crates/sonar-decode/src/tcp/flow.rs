//! Flows: which connection a segment belongs to, and where it was seen.
//!
//! Two problems shape this table. A frame may be seen more than once: on another interface or VLAN (each direction is
//! pinned to the place where it was first seen), or under other addresses (see [`Twins`]). And there may be more
//! flows than fit: flows that have not delivered anything yet (half-open handshakes, scans) have a queue of their
//! own, so that a flood of them drops one another and not the connections that matter.

mod ending;
mod refusal;
mod sides;

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use sonar_core::{Coverage, Endpoint, Timestamp};

use super::entry::{Env, FlowEntry, FlowState, Pin, take};
use super::half::{HalfFlow, Totals};
use super::handler::{Close, Flow, Side, StreamHandler, Verdict};
use super::limits::FlowLimits;
use super::one_sided::OneSided;
use super::recent::{LATE_SYN_BYTES, Recent};
use super::refused::Refusals;
use super::slab::{FlowQueue, NONE, Slab};
use super::twin::{self, Pulse, Twins};
use crate::frame::Segment;

/// How long the twin of a flow must be silent before the flow no longer counts as a twin, in nanoseconds.
const LONELY_NS: u64 = 3_000_000_000;
/// A flow moves to the back of its queue at most once in this many nanoseconds, because a move touches its neighbours
/// in the queue.
const REQUEUE_NS: u64 = 1_000_000_000;
/// A SYN that comes at most this many nanoseconds after the flow's first segment, and fits its bytes, was overtaken
/// by them.
const LATE_SYN_NS: u64 = 1_000_000_000;

/// All flows. `C` is the handler's state for each.
#[derive(Debug)]
pub struct FlowTable<C> {
    limits: FlowLimits,
    flows: Slab<FlowEntry<C>>,
    index: HashTable<u32>,
    hasher: RandomState,
    twins: Twins,
    recent: Recent,
    /// The flow of the last segment; most often also that of the next.
    last: u32,
    /// Flows with a gap.
    waiting: Vec<u32>,
    one_sided: OneSided,
    totals: Totals,
    refusals: Refusals,
}

impl<C> Default for FlowTable<C> {
    fn default() -> Self {
        Self::new(FlowLimits::default(), Twins::default())
    }
}

impl<C> FlowTable<C> {
    /// An empty table; tables of several threads share `twins`.
    pub fn new(limits: FlowLimits, twins: Twins) -> Self {
        Self {
            limits,
            flows: Slab::default(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            twins,
            recent: Recent::default(),
            last: NONE,
            waiting: Vec::new(),
            one_sided: OneSided::default(),
            totals: Totals::default(),
            refusals: Refusals::default(),
        }
    }

    /// Takes one segment and counts it exactly once: as a twin in `frames_twin_interface` or `frames_twin_nat`, or
    /// else in `frames_decoded` and in one of the `segments_` counters (for those that are held back later, see
    /// [`Self::in_progress_segments`]).
    pub fn segment<H: StreamHandler<Connection = C>>(
        &mut self,
        segment: &Segment<'_>,
        coverage: &mut Coverage,
        handler: &mut H,
    ) {
        let (ends, side) = Side::of(segment.source, segment.destination);
        let mut env = Env { coverage, handler };
        let at = match self.find(&ends) {
            Some(at) if segment.flags.syn() && self.is_new_connection(at, side, segment) => {
                self.end_flow(at, segment.time, Close::Reused, &mut env);
                self.open(ends, side, segment, &mut env)
            }
            Some(at) => at,
            None => match self.admit(ends, side, segment, &mut env) {
                Some(at) => at,
                None => return,
            },
        };
        self.last = at;
        let Some(entry) = self.flows.get_mut(at) else { return };
        if !entry.is_pinned(side, segment) {
            env.coverage.frames_twin_interface += 1;
            return;
        }
        entry.flow.last = segment.time;
        if entry.queued.unix_ns().abs_diff(segment.time.unix_ns()) > REQUEUE_NS {
            self.requeue(at, segment.time);
        }
        let Some(entry) = self.flows.get_mut(at) else { return };
        if !matches!(entry.state, FlowState::Live) && !self.take_unfollowed(at, side, segment, &mut env) {
            return;
        }
        let Some(entry) = self.flows.get_mut(at) else { return };
        if entry.noted[side.index()] < twin::NOTED && twin::is_evidence(segment) {
            entry.noted[side.index()] += 1;
            let pulse = entry.pulse.get_or_insert_with(|| {
                let pulse = Pulse::default();
                pulse.beat(segment.time);
                pulse
            });
            if let Some(of) = self.twins.see(segment, pulse) {
                entry.pulse = None;
                env.coverage.frames_twin_nat += 1;
                self.unfollow(at, FlowState::Twin { of, lonely: None }, segment.time, &mut env);
                return;
            }
        }
        env.coverage.frames_decoded += 1;
        self.follow(at, side, segment, &mut env);
    }

    /// A segment of a followed flow.
    #[inline]
    fn follow<H: StreamHandler<Connection = C>>(
        &mut self,
        at: u32,
        side: Side,
        segment: &Segment<'_>,
        env: &mut Env<'_, H>,
    ) {
        let Self { flows, totals, limits, .. } = self;
        let Some(entry) = flows.get_mut(at) else { return };
        let was_open = entry.opened;
        let mut reset = false;
        if segment.flags.syn() || entry.halves[0].next().is_none() || entry.halves[1].next().is_none() {
            entry.learn(side, segment);
        }
        let verdict = entry.drive(limits, totals, env, |halves, cx| {
            let [low, high] = halves;
            let (own, peer) = if side == Side::Low { (low, high) } else { (high, low) };
            reset = take(own, peer, segment, cx);
        });
        let waits = entry.halves[0].is_waiting() || entry.halves[1].is_waiting();
        if entry.fins != entry.finished() {
            entry.tell_ends(segment.time, env);
        }
        let over = reset || entry.fins == [true; 2];
        let refused = if reset { entry.refused(side) } else { None };
        let to_wait = waits && !entry.waiting;
        entry.waiting |= waits;
        let now_open = entry.opened != was_open;
        if to_wait {
            self.wait(at);
        }
        if now_open {
            self.requeue(at, segment.time);
            self.note_sides(at);
        }
        if verdict == Verdict::Ignore {
            self.unfollow(at, FlowState::Ignored, segment.time, env);
        }
        if over {
            let how = if reset { Close::Reset } else { Close::Finished };
            self.end_flow(at, segment.time, how, env);
        }
        if let Some(refused) = refused {
            self.note_refused(refused, segment.time, env);
        }
    }

    /// A segment of a flow that is ignored or a twin: counts it, and ends the flow with its connection. Returns
    /// whether to follow the flow from now on.
    #[cold]
    fn take_unfollowed<H: StreamHandler<Connection = C>>(
        &mut self,
        at: u32,
        side: Side,
        segment: &Segment<'_>,
        env: &mut Env<'_, H>,
    ) -> bool {
        let Some(entry) = self.flows.get_mut(at) else { return false };
        entry.fins[side.index()] |= segment.flags.fin();
        let fins = entry.fins;
        match &mut entry.state {
            FlowState::Live => return true,
            FlowState::Ignored => {
                env.coverage.frames_decoded += 1;
                env.coverage.segments_ignored += 1;
            }
            FlowState::Twin { of, lonely } => {
                let other_is_active = of.last().is_some_and(|last| segment.time.since(last) < LONELY_NS);
                let since = *lonely.get_or_insert(segment.time);
                if other_is_active {
                    *lonely = None;
                } else if segment.time.since(since) >= LONELY_NS
                    && !segment.payload.is_empty()
                    && fins == [false; 2]
                {
                    entry.state = FlowState::Live;
                    entry.halves = [HalfFlow::new(Side::Low), HalfFlow::new(Side::High)];
                    entry.noted = [0; 2];
                    entry.flow.opener = None;
                    return true;
                }
                env.coverage.frames_twin_nat += 1;
            }
        }
        if segment.flags.rst() || fins == [true; 2] {
            self.end_flow(at, segment.time, Close::Ignored, env);
        }
        false
    }

    /// Whether a SYN opens a new connection between ends that are known.
    #[cold]
    fn is_new_connection(&self, at: u32, side: Side, segment: &Segment<'_>) -> bool {
        let Some(entry) = self.flows.get(at) else { return true };
        let half = &entry.halves[side.index()];
        if let Some(isn) = half.isn() {
            return isn != segment.seq;
        }
        match half.next() {
            Some(next) => {
                let behind = next.wrapping_sub(segment.seq.wrapping_add(1));
                behind > LATE_SYN_BYTES || segment.time.since(entry.flow.first) > LATE_SYN_NS
            }
            // The answer to a SYN is the other half of a handshake.
            None => entry.flow.opener.is_none() && segment.time.since(entry.flow.first) > LATE_SYN_NS,
        }
    }

    /// A segment of no flow: opens one, or counts the segment.
    #[cold]
    fn admit<H: StreamHandler<Connection = C>>(
        &mut self,
        ends: [Endpoint; 2],
        side: Side,
        segment: &Segment<'_>,
        env: &mut Env<'_, H>,
    ) -> Option<u32> {
        let empty = segment.payload.is_empty() && segment.missing == 0;
        let stray = self.recent.get(&ends).filter(|ended| {
            let of_it = if segment.flags.syn() {
                ended.has_syn(side.index(), segment.seq)
            } else {
                empty || ended.is_near(side.index(), segment.seq)
            };
            of_it && segment.time.since(ended.time) <= self.limits.linger_ns
        });
        let is_stray = stray.is_some();
        match stray {
            Some(ended) if ended.places[side.index()].is_some_and(|place| place != segment.place) => {
                env.coverage.frames_twin_interface += 1;
                return None;
            }
            Some(ended) if ended.twin => {
                env.coverage.frames_twin_nat += 1;
                return None;
            }
            Some(_) if !empty => {
                env.coverage.frames_decoded += 1;
                env.coverage.segments_duplicate += 1;
                return None;
            }
            _ => {}
        }
        // Shows nothing new: a flow opens with its SYN or with bytes.
        if is_stray || (!segment.flags.syn() && (empty || segment.flags.rst())) {
            env.coverage.frames_decoded += 1;
            *(if empty { &mut env.coverage.segments_empty } else { &mut env.coverage.segments_duplicate }) +=
                1;
            return None;
        }
        Some(self.open(ends, side, segment, env))
    }

    fn open<H: StreamHandler<Connection = C>>(
        &mut self,
        ends: [Endpoint; 2],
        side: Side,
        segment: &Segment<'_>,
        env: &mut Env<'_, H>,
    ) -> u32 {
        if self.len() >= self.limits.flows.max(1) {
            self.evict(segment.time, env);
        }
        let opener = match (segment.flags.syn(), segment.flags.ack()) {
            (true, false) => Some(side),
            (true, true) => Some(side.other()),
            _ => None,
        };
        let at = self.flows.insert(
            FlowEntry {
                flow: Flow {
                    number: self.flows.next(),
                    ends,
                    opener,
                    first: segment.time,
                    last: segment.time,
                    both_seen: false,
                },
                queued: segment.time,
                halves: [HalfFlow::new(Side::Low), HalfFlow::new(Side::High)],
                pins: [Pin::default(); 2],
                state: FlowState::Live,
                waiting: false,
                one_sided: false,
                unheard: false,
                opened: false,
                fins: [false; 2],
                noted: [0; 2],
                pulse: None,
                conn: None,
            },
            FlowQueue::Embryonic,
        );
        let Self { flows, index, hasher, .. } = self;
        index.insert_unique(hash(hasher, &ends), at, |&at| {
            flows.get(at).map_or(0, |entry| hash(hasher, &entry.flow.ends))
        });
        at
    }

    #[inline]
    fn find(&self, ends: &[Endpoint; 2]) -> Option<u32> {
        let is = |at: u32| self.flows.get(at).is_some_and(|entry| entry.flow.ends == *ends);
        if is(self.last) {
            return Some(self.last);
        }
        self.index.find(hash(&self.hasher, ends), |&at| is(at)).copied()
    }

    /// Puts a flow behind all that were active earlier.
    #[cold]
    fn requeue(&mut self, at: u32, now: Timestamp) {
        let Some(entry) = self.flows.get_mut(at) else { return };
        entry.queued = now;
        if let Some(pulse) = &entry.pulse {
            pulse.beat(now);
        }
        let queue = if entry.is_embryonic() { FlowQueue::Embryonic } else { FlowQueue::Open };
        self.flows.requeue(at, queue);
    }

    /// Stops following a flow that goes on, and frees its state.
    #[cold]
    fn unfollow<H: StreamHandler<Connection = C>>(
        &mut self,
        at: u32,
        state: FlowState,
        time: Timestamp,
        env: &mut Env<'_, H>,
    ) {
        let Some(entry) = self.flows.get_mut(at) else { return };
        let counter = match state {
            FlowState::Twin { .. } => &mut env.coverage.segments_duplicate,
            _ => &mut env.coverage.segments_ignored,
        };
        for half in &mut entry.halves {
            half.drop_held(&mut self.totals, counter);
        }
        entry.state = state;
        if let Some(conn) = entry.conn.take() {
            env.handler.close(&entry.flow, conn, time, Close::Ignored);
        }
        self.flows.requeue(at, FlowQueue::Open);
    }

    /// Flows that the handler has seen and that are followed, with its state.
    pub fn iter(&self) -> impl Iterator<Item = (&Flow, &C)> {
        self.flows.iter().filter_map(|entry| Some((&entry.flow, entry.conn.as_ref()?)))
    }

    /// The same, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Flow, &mut C)> {
        self.flows.iter_mut().filter_map(|entry| Some((&entry.flow, entry.conn.as_mut()?)))
    }

    /// The ends of all flows but twins: of those that are not followed, too, and of those that have just ended.
    pub fn ends(&self) -> impl Iterator<Item = &[Endpoint; 2]> {
        let flows = self.flows.iter().filter(|entry| !matches!(entry.state, FlowState::Twin { .. }));
        flows.map(|entry| &entry.flow.ends).chain(self.recent.ends())
    }

    /// Flows in the table, including those that are ignored or have only begun.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Segments held back.
    pub fn in_progress_segments(&self) -> u64 {
        self.totals.segments
    }

    /// Memory of the table, in bytes: an estimate, without what the handler's `C` refers to.
    pub fn heap_bytes(&self) -> usize {
        self.flows.heap_bytes()
            + self.index.capacity() * (size_of::<u32>() + 1)
            + self.waiting.capacity() * size_of::<u32>()
            + self.one_sided.heap_bytes()
            + self.recent.heap_bytes()
            + self.totals.bytes
    }
}

/// Hash of the two ends. Keyed at random, since senders choose the ends.
#[inline]
fn hash(hasher: &RandomState, ends: &[Endpoint; 2]) -> u64 {
    let mut state = hasher.build_hasher();
    for end in ends {
        let [high, low] = end.addr_bits();
        state.write_u64(high);
        state.write_u64(low);
    }
    state.write_u32(u32::from(ends[0].port) << 16 | u32::from(ends[1].port));
    state.finish()
}
