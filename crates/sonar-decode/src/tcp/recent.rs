//! Connections that have just ended: late segments of them open no new connection.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use sonar_core::{Endpoint, Timestamp};

use super::half::WINDOW;

/// The most connections that are remembered.
const MAX_RECENT: usize = 8_192;

/// The most bytes that can have overtaken a connection's SYN.
pub(super) const LATE_SYN_BYTES: u32 = 1 << 20;

/// What is remembered of a connection.
#[derive(Copy, Clone, Debug)]
pub(super) struct EndedFlow {
    pub time: Timestamp,
    /// Where each direction was captured.
    pub places: [Option<u64>; 2],
    /// The last sequence number of each direction.
    pub next: [Option<u32>; 2],
    /// The first sequence number of each direction, if its SYN was seen.
    pub isn: [Option<u32>; 2],
    /// It was the twin of another one.
    pub twin: bool,
}

impl EndedFlow {
    /// Whether bytes at `seq` may belong to the connection that has ended.
    pub fn is_near(&self, side: usize, seq: u32) -> bool {
        self.next[side].is_none_or(|next| (-WINDOW..=WINDOW).contains(&(seq.wrapping_sub(next) as i32)))
    }

    /// Whether a SYN with the number `seq` is the one that opened the connection that has ended: a repetition, or so
    /// late that it is seen for the first time. The next connection between the same ends begins beyond the numbers
    /// of this one (RFC 6191).
    pub fn has_syn(&self, side: usize, seq: u32) -> bool {
        match (self.isn[side], self.next[side]) {
            (Some(isn), _) => isn == seq,
            (None, Some(next)) => next.wrapping_sub(seq.wrapping_add(1)) <= LATE_SYN_BYTES,
            (None, None) => false,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Recent {
    known: HashMap<[Endpoint; 2], EndedFlow, RandomState>,
    /// By time of the end; an entry with another time than in `known` was replaced or removed.
    order: VecDeque<([Endpoint; 2], Timestamp)>,
}

impl Recent {
    pub fn insert(&mut self, ends: [Endpoint; 2], ended: EndedFlow) {
        if self.order.len() >= MAX_RECENT {
            self.forget_oldest();
        }
        self.known.insert(ends, ended);
        self.order.push_back((ends, ended.time));
    }

    pub fn get(&self, ends: &[Endpoint; 2]) -> Option<&EndedFlow> {
        if self.known.is_empty() { None } else { self.known.get(ends) }
    }

    /// The ends of all but twins.
    pub fn ends(&self) -> impl Iterator<Item = &[Endpoint; 2]> {
        self.known.iter().filter(|(_, ended)| !ended.twin).map(|(ends, _)| ends)
    }

    /// Forgets what ended more than `linger_ns` before `now`.
    pub fn expire(&mut self, now: Timestamp, linger_ns: u64) {
        while self.order.front().is_some_and(|(_, time)| now.since(*time) > linger_ns) {
            self.forget_oldest();
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn heap_bytes(&self) -> usize {
        self.known.capacity() * size_of::<([Endpoint; 2], EndedFlow)>()
            + self.order.capacity() * size_of::<([Endpoint; 2], Timestamp)>()
    }

    fn forget_oldest(&mut self) {
        if let Some((ends, time)) = self.order.pop_front()
            && self.known.get(&ends).is_some_and(|ended| ended.time == time)
        {
            self.known.remove(&ends);
        }
    }
}
