//! Times in which a server let no writes pass. The events say so: what waited then needs no other evidence, however slow
//! operations were before.

use std::collections::BTreeMap;

use super::commands;
use super::sides::Sides;
use crate::history::{Event, EventKind, HistoryWindow, Span};
use crate::operation::InFlightOperations;
use crate::time::NS_PER_S;
use crate::{Endpoint, Role, ShapeId, Timestamp};

/// How long operations that were held may take once they are released, in nanoseconds.
const RELEASE_NS: u64 = 3 * NS_PER_S;
/// Operations that took less were not held, in nanoseconds.
const MIN_HELD_NS: u64 = NS_PER_S / 10;
/// Nor were those that took less than so many times as long as nine of ten did before.
const MIN_FACTOR: u64 = 4;
/// In a window that is longer than this many times the hold, operations also took this part of it.
const WIDE: u64 = 4;

/// A time in which a server let no writes pass.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Hold {
    pub server: Endpoint,
    pub lasts: Span,
}

/// Operations of a shape that waited.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct Waited {
    pub count: u64,
    /// How long they took, in nanoseconds.
    pub ns: f64,
}

impl Waited {
    pub fn add(&mut self, count: u64, each_ns: u64) {
        self.count += count;
        self.ns += count as f64 * each_ns as f64;
    }

    pub fn add_all(&mut self, other: Self) {
        self.count += other.count;
        self.ns += other.ns;
    }
}

/// Whether nothing is locked any more.
const fn is_end_or_start(kind: EventKind) -> bool {
    use EventKind::{ServerCrash, ServerStart, ServerStop};
    matches!(kind, ServerCrash | ServerStart | ServerStop)
}

/// The holds that reach into the span, or ended right before it.
pub(super) fn holds(sides: &Sides<'_>) -> Vec<Hold> {
    let commands = commands::events(sides);
    let mut events: Vec<&Event> = sides.events().iter().chain(&commands).collect();
    events.sort_by_key(|event| event.at);
    let mut open: BTreeMap<Endpoint, Timestamp> = BTreeMap::new();
    let mut holds = Vec::new();
    for event in events {
        let is_lock = event.kind == EventKind::WritesLock && !event.unlocks_writes();
        if is_lock {
            open.entry(event.server).or_insert(event.at);
        } else if (event.kind == EventKind::WritesLock || is_end_or_start(event.kind))
            && let Some(from) = open.remove(&event.server)
        {
            holds.push(Hold { server: event.server, lasts: Span { from, to: event.at } });
        }
    }
    let end = Timestamp::from_unix_ns(u64::MAX);
    holds.extend(open.into_iter().map(|(server, from)| Hold { server, lasts: Span { from, to: end } }));
    let span = sides.span();
    holds.retain(|hold| hold.lasts.from < span.to && hold.released() >= span.from);
    holds
}

impl Hold {
    /// When the last operations that it held end.
    pub const fn released(&self) -> Timestamp {
        self.lasts.to.plus_ns(RELEASE_NS)
    }

    /// Whether an event is its beginning.
    pub fn began_with(&self, event: &Event) -> bool {
        event.kind == EventKind::WritesLock && event.server == self.server && event.at == self.lasts.from
    }

    /// Whether operations that ended in a window may have been held: no write ends before the release, but those that were
    /// interrupted.
    fn ends_operations_of(&self, window: Span) -> bool {
        let has_end = window.from <= self.lasts.to && self.lasts.to < window.to;
        let is_within = window.from >= self.lasts.from && window.from <= self.released();
        has_end || is_within
    }

    /// How long the operations took that ended in a window and that it held, in nanoseconds, above and up to; nine of ten
    /// took `usual_ns` before. `None` if it held none of them.
    pub fn range_ns(&self, window: Span, usual_ns: u64) -> Option<(u64, u64)> {
        if !self.ends_operations_of(window) {
            return None;
        }
        let length = self.lasts.length_ns();
        let wide = if window.length_ns() > length.saturating_mul(WIDE) { length / WIDE } else { 0 };
        let least = MIN_HELD_NS.max(usual_ns.saturating_mul(MIN_FACTOR)).max(wide);
        Some((least, length.saturating_add(RELEASE_NS)))
    }

    /// Operations of a shape that it holds at the end of a window.
    pub fn holds_at_end(&self, window: &HistoryWindow, shape: ShapeId) -> Waited {
        let mut waited = Waited::default();
        let end = window.window.end;
        if end <= self.lasts.from || end >= self.lasts.to {
            return waited;
        }
        let is_its = |one: &&InFlightOperations| {
            one.server == self.server && one.role == Role::Served && one.shape.id == shape
        };
        for one in window.window.in_flight.iter().filter(is_its) {
            let most = end.since(self.lasts.from);
            let oldest = one.oldest_ns.min(most);
            waited.add(1, oldest);
            // The others came later, the last ones just now.
            waited.add(one.count.saturating_sub(1), oldest / 2);
        }
        waited
    }
}

/// Whether a command writes. MongoDB writes its commands in either case.
pub(super) fn is_write(command: &str) -> bool {
    const WRITES: [&str; 7] =
        ["insert", "update", "delete", "findandmodify", "bulkwrite", "committransaction", "mapreduce"];
    WRITES.contains(&command.to_ascii_lowercase().as_str())
}
