//! Which events are near enough in time to be stages of one thing.

use super::events::{REACH_WINDOWS, family, namespace};
use crate::history::{Event, EventKind};
use crate::time::NS_PER_S;

/// The most time between the stages of a restart, or between a limit and what it denies, in nanoseconds.
const MAX_PAUSE_NS: u64 = 60 * NS_PER_S;

/// The most time between two stages of a thing like this one that are one change, in nanoseconds: what takes longer has an
/// end of its own, at its own time.
fn pause_ns(event: &Event, width_ns: u64) -> u64 {
    match family(event) {
        EventKind::ServerStart | EventKind::CpuThrottled => {
            width_ns.saturating_mul(REACH_WINDOWS).min(MAX_PAUSE_NS).max(width_ns)
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Timestamp};

    #[test]
    fn a_restart_is_one_thing_and_the_end_of_a_long_build_another() {
        const WIDTH_NS: u64 = 10 * NS_PER_S;
        let event =
            |second, kind| Event::new(Timestamp::from_unix(second, 0), kind, Endpoint::default(), ("", ""));
        let counts =
            |events: &[Event]| -> Vec<usize> { in_stages(events, WIDTH_NS).iter().map(Vec::len).collect() };
        let restart =
            |seconds: u64| [event(100, EventKind::ServerStop), event(100 + seconds, EventKind::ServerStart)];
        assert_eq!((counts(&restart(25)), counts(&restart(300))), (vec![2], vec![1, 1]));
        let build = |seconds: u64| {
            [event(100, EventKind::IndexBuildBegin), event(100 + seconds, EventKind::IndexBuildEnd)]
        };
        assert_eq!((counts(&build(8)), counts(&build(25))), (vec![2], vec![1, 1]));
        assert_eq!(counts(&[]), [0; 0]);
    }
}
