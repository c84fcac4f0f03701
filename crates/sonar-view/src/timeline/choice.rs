//! Which events are shown where there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sonar_core::history::EventKind;

use crate::kit::{Grouped, plural};

/// The newest events are shown whatever they are: one in so many of those that are shown.
const NEWEST_PART: usize = 4;
/// The most kinds of events that were left out which are named.
const MAX_NAMED: usize = 3;

/// How much an event says about what happened to a server, less is more: whether it ran, what people and other members did
/// to it, how it felt, and what is noise where there is much of it.
const fn rank(kind: EventKind) -> u8 {
    use EventKind as Kind;
    match kind {
        Kind::ServerStart
        | Kind::ServerStop
        | Kind::ServerCrash
        | Kind::ServerUnreachable
        | Kind::ServerReachable
        | Kind::ServerUpgrade
        | Kind::OutOfMemory
        | Kind::LogFatal => 0,
        Kind::StateChange
        | Kind::Election
        | Kind::Reconfiguration
        | Kind::IndexBuildBegin
        | Kind::IndexBuildEnd
        | Kind::IndexDrop
        | Kind::CollectionDrop
        | Kind::WritesLock
        | Kind::SettingChange
        | Kind::ProfilerChange
        | Kind::NewApplication
        | Kind::FileSystemFull
        | Kind::ClockStep => 1,
        Kind::CpuThrottled
        | Kind::ConnectionStorm
        | Kind::Stall
        | Kind::LongCheckpoint
        | Kind::StoreProblem => 2,
        Kind::LogError
        | Kind::LogRotation
        | Kind::Gap
        | Kind::AgentStart
        | Kind::AgentStop
        | Kind::CollectorFailed
        | Kind::CollectorRecovered => 3,
    }
}

/// The places of at most `most` events of these kinds, which are by time: the newest, and of the others the most important,
/// of equally important ones the newest. By time.
pub(super) fn chosen(kinds: &[EventKind], most: usize) -> Vec<usize> {
    let newest = kinds.len().saturating_sub(most / NEWEST_PART);
    let mut places: Vec<usize> = (0..kinds.len()).collect();
    places.sort_by_key(|at| (*at < newest, rank(kinds[*at]), Reverse(*at)));
    places.truncate(most);
    places.sort_unstable();
    places
}

/// How many events were left out, of which kinds, and how to see them; `unnamed` more are of no known kind.
pub(super) fn left_out(kinds: &[EventKind], unnamed: usize) -> Option<String> {
    let count = kinds.len() + unnamed;
    if count == 0 {
        return None;
    }
    let mut by_kind: BTreeMap<&'static str, usize> = BTreeMap::new();
    kinds.iter().for_each(|kind| *by_kind.entry(kind.name()).or_default() += 1);
    let mut named: Vec<(&str, usize)> = by_kind.into_iter().collect();
    named.sort_by_key(|(_, count)| Reverse(*count));
    let others = count - named.iter().take(MAX_NAMED).map(|(_, count)| count).sum::<usize>();
    let mut parts: Vec<String> = named
        .iter()
        .take(MAX_NAMED)
        .map(|(name, count)| format!("{} {}", Grouped(*count as u64), name.replace('_', " ")))
        .collect();
    if others > 0 && !parts.is_empty() {
        parts.push(plural(Grouped(others as u64), "other"));
    }
    let named = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    let count = plural(Grouped(count as u64), "more event");
    Some(format!(
        "… and {count}, less important or older{named}: see --json, or ask for a shorter time with --from and --to"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_and_the_most_important_events_stay() {
        use EventKind as Kind;
        let mut kinds = vec![Kind::ServerCrash, Kind::ServerStart];
        kinds.extend([Kind::CollectorFailed; 50]);
        kinds.push(Kind::IndexDrop);
        kinds.extend([Kind::LogError; 50]);
        let shown = chosen(&kinds, 8);
        assert_eq!(shown, [0, 1, 52, 98, 99, 100, 101, 102]);
        assert_eq!(chosen(&kinds[..5], 8), [0, 1, 2, 3, 4]);
        assert_eq!(chosen(&[], 8), [0; 0]);
        let hidden: Vec<Kind> =
            (0..kinds.len()).filter(|at| !shown.contains(at)).map(|at| kinds[at]).collect();
        let text = left_out(&hidden, 0).unwrap();
        assert!(
            text.starts_with(
                "… and 95 more events, less important or older (50 collector failed, 45 log error)"
            ),
            "{text}"
        );
        let text = left_out(&hidden, 5).unwrap();
        assert!(text.contains("100 more events") && text.contains("5 others)"), "{text}");
        assert_eq!(left_out(&[], 0), None);
    }
}
