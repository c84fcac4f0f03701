//! Which events are near enough in time to be stages of one thing.

use std::collections::BTreeMap;

use super::events::{REACH_WINDOWS, family, namespace};
use super::sides::RECENT_WINDOWS;
use crate::Endpoint;
use crate::history::{Event, EventKind, Span};
use crate::time::NS_PER_S;

/// The most time between the stages of a restart, or between a limit and what it denies, in nanoseconds.
const MAX_PAUSE_NS: u64 = 60 * NS_PER_S;

/// The most time between two stages of a thing like this one that are one change, in nanoseconds: what takes longer has an
/// end of its own, at its own time.
fn pause_ns(event: &Event, width_ns: u64) -> u64 {
    match family(event) {
        // A server may take as long to start again.
        EventKind::ServerStart => MAX_PAUSE_NS.max(width_ns),
        EventKind::CpuThrottled => width_ns.saturating_mul(REACH_WINDOWS).min(MAX_PAUSE_NS).max(width_ns),
        _ => width_ns,
    }
}

/// Whether two events of a server are stages of one thing.
pub(super) fn are_stages(one: &Event, other: &Event, width_ns: u64) -> bool {
    let thing = |event| (family(event), namespace(event));
    thing(one) == thing(other) && are_near(one, other, width_ns)
}

/// Whether two events of one family are near enough to be one change.
fn are_near(one: &Event, other: &Event, width_ns: u64) -> bool {
    one.at.since(other.at).max(other.at.since(one.at)) <= pause_ns(one, width_ns)
}

/// Events of one family, by time, in groups of those that are near to each other.
pub(super) fn in_stages(events: &[Event], width_ns: u64) -> Vec<Vec<Event>> {
    events.chunk_by(|one, next| are_near(one, next, width_ns)).map(<[Event]>::to_vec).collect()
}

/// The same span with all stages of the restarts that it has a stage of, or that ended right before it: what ended a
/// server and its next start belong to one answer, and so do the windows after that, in which it shows. `events` are those
/// of the span and around it, by time.
pub fn with_whole_restarts(span: Span, events: &[Event], width_ns: u64) -> Span {
    let reach_ns = width_ns.saturating_mul(REACH_WINDOWS).min(MAX_PAUSE_NS);
    let mut of_servers: BTreeMap<Endpoint, Vec<Event>> = BTreeMap::new();
    for event in events.iter().filter(|event| family(event) == EventKind::ServerStart) {
        of_servers.entry(event.server).or_default().push(event.clone());
    }
    let mut whole = span;
    for restart in of_servers.values().flat_map(|events| in_stages(events, width_ns)) {
        let (Some(first), Some(last)) = (restart.first(), restart.last()) else { continue };
        if first.at < span.to && last.at.plus_ns(reach_ns) >= span.from {
            whole.from = whole.from.min(first.at.floor_to(width_ns));
            let shows = last.at.floor_to(width_ns).plus_ns(width_ns.saturating_mul(RECENT_WINDOWS as u64));
            whole.to = whole.to.max(shows);
        }
    }
    whole
}

/// How far around a span [`with_whole_restarts`] needs events, in nanoseconds.
pub const RESTART_REACH_NS: u64 = 2 * MAX_PAUSE_NS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn a_restart_is_one_thing_and_the_end_of_a_long_build_another() {
        const WIDTH_NS: u64 = 10 * NS_PER_S;
        let event = |second, kind| Event::new(Timestamp::from_unix(second, 0), kind, Endpoint::default(), "");
        let counts =
            |events: &[Event]| -> Vec<usize> { in_stages(events, WIDTH_NS).iter().map(Vec::len).collect() };
        let restart =
            |seconds: u64| [event(100, EventKind::ServerStop), event(100 + seconds, EventKind::ServerStart)];
        assert_eq!((counts(&restart(25)), counts(&restart(55))), (vec![2], vec![2]));
        assert_eq!(counts(&restart(300)), [1, 1]);
        let build = |seconds: u64| {
            [event(100, EventKind::IndexBuildBegin), event(100 + seconds, EventKind::IndexBuildEnd)]
        };
        assert_eq!((counts(&build(8)), counts(&build(25))), (vec![2], vec![1, 1]));
        assert_eq!(counts(&[]), [0; 0]);
    }

    #[test]
    fn an_answer_has_all_stages_of_a_restart() {
        const WIDTH_NS: u64 = 10 * NS_PER_S;
        let at = |second| Timestamp::from_unix(second, 0);
        let event = |second, kind| Event::new(at(second), kind, Endpoint::default(), "");
        let events = [
            event(500, EventKind::IndexDrop),
            event(1_004, EventKind::ServerCrash),
            event(1_049, EventKind::ServerStart),
            event(1_400, EventKind::ServerStart),
        ];
        let whole = |from: u64, to: u64| {
            let span = with_whole_restarts(Span { from: at(from), to: at(to) }, &events, WIDTH_NS);
            (span.from.unix_ns() / NS_PER_S, span.to.unix_ns() / NS_PER_S)
        };
        assert_eq!(whole(1_000, 1_030), (1_000, 1_070), "asked for the end of the server");
        assert_eq!(whole(1_040, 1_070), (1_000, 1_070), "asked for its start");
        assert_eq!(whole(1_060, 1_090), (1_000, 1_090), "asked a little later");
        assert_eq!(whole(1_020, 1_030), (1_000, 1_070), "asked for the time between");
        for (from, to) in [(960, 1_000), (1_200, 1_230), (500, 530)] {
            assert_eq!(whole(from, to), (from, to), "other times");
        }
    }
}
