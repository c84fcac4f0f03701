//! Twins: one conversation seen twice under different addresses, because something between the two
//! sights translates them (docker0 and eth0).
//!
//! Address translation leaves sequence numbers and payload as they are. The first segments of each flow
//! are noted by (sequence number, length, begin of the payload); a flow whose segment was noted by
//! another flow a moment before is its twin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sonar_core::{Endpoint, Timestamp};

use crate::shape::hash::mix;

/// Segments of each direction that are noted.
pub const NOTED: u8 = 8;
/// How long a sighting counts, in nanoseconds.
const FRESH_NS: u64 = 2_000_000_000;
/// The most sightings that are kept; past half of it the older half is forgotten.
const MAX_SIGHTINGS: usize = 16_384;
/// A payload shorter than this is no evidence.
pub const MIN_PAYLOAD: usize = 16;

type Ends = [Endpoint; 2];
type Map = HashMap<u64, (Ends, Timestamp), foldhash::quality::RandomState>;

/// Sightings of the first segments of flows; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Twins(Arc<Mutex<Sightings>>);

#[derive(Debug, Default)]
struct Sightings {
    young: Map,
    old: Map,
}

impl Twins {
    /// Notes a segment of the flow `ends`. Returns the flow that showed the same segment a moment
    /// before, if another one did.
    pub fn see(&self, ends: Ends, seq: u32, payload: &[u8], now: Timestamp) -> Option<Ends> {
        let mut mark = mix(u64::from(seq), payload.len() as u64);
        for chunk in payload[..payload.len().min(64)].chunks(8) {
            mark = mix(mark, crate::bson::word_of(chunk));
        }
        let mut sightings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sightings.young.get(&mark).or_else(|| sightings.old.get(&mark)).copied();
        match known {
            Some((other, seen)) if now.since(seen) < FRESH_NS => return (other != ends).then_some(other),
            _ => {}
        }
        if sightings.young.len() >= MAX_SIGHTINGS / 2 {
            sightings.old = std::mem::take(&mut sightings.young);
        }
        sightings.young.insert(mark, (ends, now));
        None
    }
}
