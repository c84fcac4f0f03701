//! Growing pauses between attempts at something that fails.

use std::time::{Duration, Instant};

/// The pause after the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// When the next attempt is due: at once, or after pauses of 1, 2, 4 … 60 seconds while it fails.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    /// The last failure, and the pause after it.
    last: Option<(Instant, Duration)>,
}

impl Backoff {
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
        let pause = self.last.map_or(FIRST, |(_, pause)| (2 * pause).min(LONGEST));
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
        assert!(backoff.is_due(start + FIRST));
    }
}
