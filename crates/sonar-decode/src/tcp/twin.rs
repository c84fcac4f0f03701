//! Twins: one conversation seen twice under different addresses, because something between the two places translates
//! them (eth0 and docker0).
//!
//! Address translation keeps sequence numbers, acknowledgement numbers and payload. So the first significant segments
//! of each flow are noted by all three: a SYN-ACK, which contains both initial sequence numbers, and segments with
//! payload. A flow that shows a segment which another, living flow showed a moment before is that flow's twin. Two
//! 32-bit numbers that the ends drew at random would have to agree for this to happen by chance.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use foldhash::quality::RandomState;
use sonar_core::Timestamp;

use crate::frame::Segment;

/// Segments of each direction that are noted.
pub(super) const NOTED: u8 = 8;
/// How long a sighting counts, in nanoseconds.
const FRESH_NS: u64 = 2_000_000_000;
/// The most sightings that are kept; past half of it, or of the time, the older half is forgotten.
const MAX_SIGHTINGS: usize = 32_768;
/// A payload shorter than this proves nothing.
const MIN_PAYLOAD: usize = 16;
/// Bytes of the payload that are compared.
const MAX_PAYLOAD: usize = 64;

/// Sightings of the first segments of flows; clones share them, so that the tables of several threads find each
/// other's twins.
#[derive(Clone, Debug, Default)]
pub struct Twins(Arc<SharedTwin>);

#[derive(Debug, Default)]
struct SharedTwin {
    hasher: RandomState,
    sightings: Mutex<Sightings>,
}

#[derive(Debug, Default)]
struct Sightings {
    young: HashMap<u64, Sighting, RandomState>,
    old: HashMap<u64, Sighting, RandomState>,
    /// When `young` was begun.
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct Sighting {
    time: Timestamp,
    flow: Weak<AtomicU64>,
}

/// Sign of life of a flow: it lives as long as this does, and had a segment at about this time.
#[derive(Debug, Default)]
pub(super) struct Pulse(Arc<AtomicU64>);

/// Looks at the sign of life of another flow.
#[derive(Clone, Debug)]
pub(super) struct TwinWatch(Weak<AtomicU64>);

impl Pulse {
    pub fn beat(&self, now: Timestamp) {
        self.0.store(now.unix_ns(), Ordering::Relaxed);
    }
}

impl TwinWatch {
    /// When the other flow last gave a sign of life; `None` if it has ended.
    pub fn last(&self) -> Option<Timestamp> {
        self.0.upgrade().map(|at| Timestamp::from_unix_ns(at.load(Ordering::Relaxed)))
    }
}

/// Whether a segment contains enough to be unique.
pub(super) fn is_evidence(segment: &Segment<'_>) -> bool {
    segment.flags.ack() && (segment.flags.syn() || segment.payload.len() >= MIN_PAYLOAD)
}

impl Twins {
    /// Notes a segment of the flow of `pulse`. Returns the living flow that showed the same segment a moment before,
    /// if another one did.
    pub(super) fn see(&self, segment: &Segment<'_>, pulse: &Pulse) -> Option<TwinWatch> {
        let payload = &segment.payload[..segment.payload.len().min(MAX_PAYLOAD)];
        let mark = self.0.hasher.hash_one((segment.seq, segment.ack, segment.flags.syn(), payload));
        let now = segment.time;
        let mut sightings = self.0.sightings.lock().unwrap_or_else(PoisonError::into_inner);
        let Sightings { young, old, since } = &mut *sightings;
        if young.len() >= MAX_SIGHTINGS / 2 || distance(now, *since) > FRESH_NS {
            *old = std::mem::take(young);
            *since = now;
        }
        if let Some(known) = young.get(&mark).or_else(|| old.get(&mark))
            && distance(now, known.time) <= FRESH_NS
            && known.flow.strong_count() > 0
        {
            let same = std::ptr::eq(known.flow.as_ptr(), Arc::as_ptr(&pulse.0));
            return (!same).then(|| TwinWatch(known.flow.clone()));
        }
        young.insert(mark, Sighting { time: now, flow: Arc::downgrade(&pulse.0) });
        None
    }
}

/// Whichever of two times is earlier is the beginning: threads see frames in different orders.
fn distance(a: Timestamp, b: Timestamp) -> u64 {
    a.unix_ns().abs_diff(b.unix_ns())
}
