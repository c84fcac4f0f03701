//! Growing pauses between attempts at something that fails.

use std::time::{Duration, Instant};

/// When the next attempt is due: at once, or after pauses that double while it fails. It does not depend on the clock,
/// which may be set.
#[derive(Clone, Debug)]
pub struct Backoff {
    /// The pause after the first failure.
    first: Duration,
    /// The longest pause.
    longest: Duration,
    /// The last failure, and the pause after it.
    last: Option<(Instant, Duration)>,
}

impl Default for Backoff {
    /// Pauses of 1, 2, 4 … 60 seconds.
    fn default() -> Self {
        Self::between(Duration::from_secs(1), Duration::from_secs(60))
    }
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub const fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, last: None }
    }

    /// Whether an attempt is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|(at, pause)| now.saturating_duration_since(at) >= pause)
    }

    /// Whether the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.last.is_some()
    }

    /// An attempt failed: the pause doubles.
    pub fn failed(&mut self, now: Instant) {
        let pause = self.last.map_or(self.first, |(_, pause)| (2 * pause).min(self.longest));
        self.last = Some((now, pause));
    }

    /// An attempt succeeded: the next one after a failure comes soon again.
    pub fn worked(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew_after_a_success() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let mut tries = Vec::new();
        for second in 0..300 {
            let now = start + Duration::from_secs(second);
            if backoff.is_due(now) {
                tries.push(second);
                backoff.failed(now);
            }
        }
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
        backoff.worked();
        assert!(backoff.is_due(start));
        backoff.failed(start);
        assert!(backoff.is_due(start + Duration::from_secs(1)));
        let mut slow = Backoff::between(Duration::from_secs(10), Duration::from_secs(15));
        for pause in [10, 15, 15] {
            slow.failed(start);
            assert!(!slow.is_due(start + Duration::from_secs(pause - 1)));
            assert!(slow.is_due(start + Duration::from_secs(pause)));
        }
    }
}
