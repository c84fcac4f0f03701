//! When to search for servers.

use std::time::{Duration, Instant};

use sonar_core::Timestamp;

use super::clock_reading::AgentClock;
use crate::servers;

/// How often to search for servers.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// How often, and for how long, to search for a server that may have been restarted.
const RESTART_EVERY: Duration = Duration::from_secs(1);
const RESTART_WITHIN: Duration = Duration::from_secs(60);

/// When servers were searched for, and when one ended.
#[derive(Debug, Default)]
pub struct SearchPace {
    searched: Option<Instant>,
    /// When the process of a server last ended.
    last_end: Option<Instant>,
}

impl SearchPace {
    /// A search begins; whether it is the first one.
    pub fn searches(&mut self, clock: &dyn AgentClock) -> bool {
        self.searched.replace(clock.instant()).is_none()
    }

    /// The process of a server has ended.
    pub fn ends(&mut self, clock: &dyn AgentClock) {
        self.last_end = Some(clock.instant());
    }

    /// Whether a search is due.
    pub fn is_due(&self, clock: &dyn AgentClock) -> bool {
        let is_restarting = self.last_end.is_some() && !clock.is_due(self.last_end, RESTART_WITHIN);
        clock.is_due(self.searched, if is_restarting { RESTART_EVERY } else { SEARCH_EVERY })
    }
}

/// When a process ended that a search at `now` missed: before another one started at its port, if that was after the search
/// before. `starts` are those of the others.
pub fn ended_at(starts: impl Iterator<Item = Timestamp>, now: Timestamp) -> Timestamp {
    let since = u64::try_from(SEARCH_EVERY.as_nanos()).unwrap_or(u64::MAX);
    servers::silent_before(now, starts.filter(|at| now.since(*at) <= since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::live::fakes::TestClock;

    #[test]
    fn after_an_end_servers_are_searched_for_every_second_for_a_minute() {
        let (clock, mut pace) = (TestClock::at(0), SearchPace::default());
        let mut searches = |seconds: u64, end: Option<u64>| {
            let searched = |second| {
                let is_due = pace.is_due(&clock);
                if is_due {
                    pace.searches(&clock);
                }
                if end == Some(second) {
                    pace.ends(&clock);
                }
                clock.sleep(Duration::from_secs(1));
                is_due.then_some(second)
            };
            (0..seconds).filter_map(searched).collect::<Vec<u64>>()
        };
        assert_eq!(searches(25, None), [0, 10, 20]);
        // The last search was five seconds ago.
        let expected: Vec<u64> = (4..=62).chain([72]).collect();
        assert_eq!(searches(80, Some(3)), expected);
        assert!(!pace.searches(&clock));
        assert!(SearchPace::default().searches(&clock), "it has not searched before");
    }

    #[test]
    fn a_process_has_ended_before_the_next_one_at_its_port_starts() {
        let at = |second| Timestamp::from_unix(second, 0);
        let ended = |starts: &[u64]| ended_at(starts.iter().map(|start| at(*start)), at(1_000));
        assert_eq!(ended(&[]), at(1_000));
        assert_eq!(ended(&[998]), at(998));
        assert_eq!(ended(&[500]), at(1_000), "that one ran beside it");
    }
}
