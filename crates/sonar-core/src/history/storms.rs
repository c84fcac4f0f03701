//! Notices connection storms: many connections within a few seconds, judged by how many are usual.

use super::{Event, EventKind};
use crate::time::NS_PER_S;
use crate::{Endpoint, Timestamp};

/// Seconds over which connections are counted.
const SPAN_S: u64 = 5;
/// Fewer connections within the span are no storm, however rare they are.
const FEWEST: u64 = 50;
/// A storm has at least this multiple of the usual number of connections.
const TIMES_USUAL: f64 = 10.0;
/// A storm that goes on is reported after this many seconds. From then on it counts as usual, too.
const LONGEST_S: u64 = 60;
/// It takes this many seconds to learn what is usual.
const LEARNING_S: f64 = 30.0;
/// The usual rate is a mean that forgets with this time constant, in seconds.
const MEMORY_S: f64 = 600.0;

/// Counts the connections that a server accepts. It takes some bytes, whatever happens.
#[derive(Clone, Debug, Default)]
pub struct ConnectionStorms {
    /// The first second, since the Unix epoch.
    began: u64,
    /// The present second.
    second: u64,
    /// Connections in the last seconds, by the number of the second.
    recent: [u64; SPAN_S as usize],
    /// Connections per second outside of storms.
    usual: f64,
    /// Seconds that the usual rate is based on.
    observed_s: f64,
    storm: Option<ConnectionStorm>,
}

#[derive(Clone, Debug)]
struct ConnectionStorm {
    first_second: u64,
    last_second: u64,
    connections: u64,
}

impl ConnectionStorms {
    /// Time has come to `at`; returns a storm that is over.
    pub fn advance(&mut self, at: Timestamp, server: Endpoint) -> Option<Event> {
        let second = at.unix_ns() / NS_PER_S;
        if self.second == 0 {
            (self.began, self.second) = (second, second);
        }
        if second <= self.second {
            return None;
        }
        let gone = second - self.second;
        for number in 1..=gone.min(SPAN_S) {
            // Seconds that leave the span were usual, unless they belong to a storm.
            let place = ((self.second + number) % SPAN_S) as usize;
            let count = std::mem::take(&mut self.recent[place]);
            if self.storm.is_none() && self.second + number >= self.began + SPAN_S {
                self.learn(count as f64, 1.0);
            }
        }
        if self.storm.is_none() && gone > SPAN_S {
            self.learn(0.0, (gone - SPAN_S) as f64);
        }
        self.second = second;
        let storm = self.storm.as_ref()?;
        let seconds = second.saturating_sub(storm.first_second);
        if self.count() < FEWEST / 2 {
            return self.finish(server);
        }
        if seconds < LONGEST_S {
            return None;
        }
        let per_second = storm.connections as f64 / seconds as f64;
        let event = self.finish(server);
        self.learn(per_second, seconds as f64);
        event
    }

    /// A connection was accepted at `at`; returns a storm that was over before.
    pub fn accept(&mut self, at: Timestamp, server: Endpoint) -> Option<Event> {
        let ended = self.advance(at, server);
        self.recent[(self.second % SPAN_S) as usize] += 1;
        let count = self.count();
        if let Some(storm) = &mut self.storm {
            storm.connections += 1;
            storm.last_second = self.second;
        } else if self.is_storm(count) {
            self.storm = Some(ConnectionStorm {
                first_second: self.first_of_span(),
                last_second: self.second,
                connections: count,
            });
        }
        ended
    }

    /// Returns the storm that is going on: nothing follows.
    pub fn finish(&mut self, server: Endpoint) -> Option<Event> {
        let storm = self.storm.take()?;
        // What is left of it is not usual.
        self.recent = [0; SPAN_S as usize];
        let seconds = storm.last_second.saturating_sub(storm.first_second) + 1;
        let ConnectionStorm { connections, .. } = storm;
        let usual = match self.usual {
            ..0.05 => "usually none".to_owned(),
            usual => format!("usually {usual:.1} per second"),
        };
        let text = format!("{connections} opened within {seconds} s, {usual}");
        let at = Timestamp::from_unix(storm.first_second, 0);
        Some(Event::new(at, EventKind::ConnectionStorm, server, &text))
    }

    fn count(&self) -> u64 {
        self.recent.iter().sum()
    }

    /// Whether `count` connections within the span are a storm.
    fn is_storm(&self, count: u64) -> bool {
        let usual = self.usual * SPAN_S as f64;
        self.observed_s >= LEARNING_S && count >= FEWEST && count as f64 >= TIMES_USUAL * usual
    }

    /// The first second of the span with a good part of its connections.
    fn first_of_span(&self) -> u64 {
        let count = self.count();
        let mut span = self.second.saturating_sub(SPAN_S - 1)..=self.second;
        let has_many = |second: &u64| self.recent[(second % SPAN_S) as usize].saturating_mul(10) >= count;
        span.find(has_many).unwrap_or(self.second)
    }

    /// Adds `seconds` with `per_second` connections per second to the usual rate.
    fn learn(&mut self, per_second: f64, seconds: f64) {
        self.observed_s += seconds;
        let share = (seconds / self.observed_s.min(MEMORY_S)).min(1.0);
        self.usual += (per_second - self.usual) * share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Endpoint = Endpoint::v4([0; 4], 27_017);
    /// 2026-11-21T21:20:00Z.
    const START: u64 = 1_795_296_000;

    /// The events of connections: seconds since the start, and how many in each.
    fn events(connections: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, String)> {
        let mut storms = ConnectionStorms::default();
        let mut found = Vec::new();
        for (second, count) in connections {
            for n in 0..count {
                let at = Timestamp::from_unix(START + second, (n * 1_000) as u32);
                found.extend(storms.accept(at, SERVER));
            }
            found.extend(storms.advance(Timestamp::from_unix(START + second, 999_999_999), SERVER));
        }
        found.extend(storms.finish(SERVER));
        found.into_iter().map(|event| (event.at.unix_ns() / NS_PER_S - START, event.text.into())).collect()
    }

    #[test]
    fn a_burst_in_a_quiet_log_is_a_storm() {
        let quiet = (0..200).map(|second| (second, u64::from(second % 10 == 0)));
        let storm = [(200, 80), (201, 70), (202, 0), (210, 1)];
        let found = events(quiet.chain(storm));
        assert_eq!(found, [(200, "150 opened within 2 s, usually 0.1 per second".to_owned())]);
    }

    #[test]
    fn a_rate_that_is_usual_is_no_storm() {
        // Without persistent connections 40 in a second are everyday, 60 too.
        assert_eq!(events((0..600).map(|second| (second, 40 + second % 3 * 10))), []);
        // Ten times as many are not.
        let found = events((0..300).map(|second| (second, if second == 200 { 2_600 } else { 50 })));
        assert_eq!(found.len(), 1);
        assert!(found[0].1.ends_with("usually 50.0 per second"), "{found:?}");
    }

    #[test]
    fn a_storm_that_goes_on_is_reported_after_a_minute_and_becomes_usual() {
        let found = events((0..2_000).map(|second| (second, if second < 100 { 1 } else { 100 })));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, 100);
        let connections: u64 = found[0].1.split(' ').next().unwrap().parse().unwrap();
        assert!((6_000..6_100).contains(&connections), "sixty seconds of a hundred: {found:?}");
    }

    #[test]
    fn the_first_connections_of_a_log_have_no_usual_rate() {
        assert_eq!(events([(0, 1_200), (1, 0), (20, 1)]), []);
        let found = events([(0, 1), (60, 50), (70, 0)]);
        assert_eq!(found, [(60, "50 opened within 1 s, usually none".to_owned())]);
        assert_eq!(events([(0, 1), (60, 49), (70, 49)]), [], "49 are too few");
    }

    proptest::proptest! {
        #[test]
        fn no_order_of_times_panics(times in proptest::collection::vec((0u64..u64::MAX, 0u8..3), 0..300)) {
            let mut storms = ConnectionStorms::default();
            for (ns, what) in times {
                let at = Timestamp::from_unix_ns(ns);
                let _ = if what == 0 { storms.advance(at, SERVER) } else { storms.accept(at, SERVER) };
            }
            let _ = storms.finish(SERVER);
        }
    }
}
