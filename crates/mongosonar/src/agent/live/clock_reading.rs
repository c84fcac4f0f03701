//! How long a collector has observed, whatever happens to the clock.

use std::time::{Duration, Instant};

use sonar_core::Timestamp;

use crate::args::when::now;

/// A clock that goes wrong by less is adjusted, not set; nor are the two clocks read at exactly the same moment.
const MIN_STEP: Duration = Duration::from_millis(500);

/// The clock of this host, and a clock that nobody sets, at one moment.
#[derive(Copy, Clone, Debug)]
pub struct ClockReading {
    /// What the clock of this host shows.
    pub time: Timestamp,
    /// What the other one shows.
    pub at: Instant,
}

/// Tells the time, and waits.
pub trait AgentClock: Send + Sync {
    /// Both clocks.
    fn now(&self) -> ClockReading;

    /// Waits for so long.
    fn sleep(&self, pause: Duration);

    /// What time it is.
    fn time(&self) -> Timestamp {
        self.now().time
    }

    /// The present moment, by a clock that nobody sets.
    fn instant(&self) -> Instant {
        self.now().at
    }

    /// Whether something is due again that was last done then, if ever.
    fn is_due(&self, last: Option<Instant>, every: Duration) -> bool {
        last.is_none_or(|last| self.instant().saturating_duration_since(last) >= every)
    }
}

/// The clocks of this host.
pub struct HostClock;

impl AgentClock for HostClock {
    fn now(&self) -> ClockReading {
        ClockReading::now()
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// What was observed between two readings. If the clock was set in between, that is only as much time as really passed: a
/// clock that is set forward by an hour makes no hour observed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ObservedTime {
    /// When it began, by the clock as it was at the end.
    pub from: Timestamp,
    /// When it ended, by the clock as it was at the beginning.
    pub to: Timestamp,
    /// How long it took.
    pub elapsed: Duration,
}

impl ClockReading {
    /// Now.
    pub fn now() -> Self {
        Self::of(now())
    }

    /// Now; the clock of this host has just been read.
    pub fn of(time: Timestamp) -> Self {
        Self { time, at: Instant::now() }
    }

    /// The time since an earlier reading.
    pub fn since(&self, before: &Self) -> ObservedTime {
        let elapsed = self.at.saturating_duration_since(before.at);
        let shown = Duration::from_nanos(self.time.since(before.time));
        if self.time >= before.time && shown.abs_diff(elapsed) < MIN_STEP {
            return ObservedTime { from: before.time, to: self.time, elapsed };
        }
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let from = self.time.minus_ns(elapsed_ns);
        ObservedTime { from, to: before.time.plus_ns(elapsed_ns), elapsed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(second: u64) -> Timestamp {
        Timestamp::from_unix(10_000 + second, 0)
    }

    #[test]
    fn a_clock_that_is_set_observes_nothing_in_between() {
        let began = Instant::now();
        let reading = |second, tenths: u64| ClockReading {
            time: clock(second),
            at: began + Duration::from_millis(100 * tenths),
        };
        // A busy machine takes a moment between the two readings.
        let observed = reading(2, 21).since(&reading(0, 0));
        assert_eq!((observed.from, observed.to), (clock(0), clock(2)));
        let forward = reading(3_603, 31).since(&reading(2, 21));
        assert_eq!((forward.from, forward.to), (clock(3_602), clock(3)));
        let back = reading(10, 51).since(&reading(3_603, 31));
        assert_eq!((back.from, back.to, back.elapsed.as_secs()), (clock(8), clock(3_605), 2));
    }

    #[test]
    fn a_process_that_was_stopped_has_observed_what_others_wrote_meanwhile() {
        let began = ClockReading::of(clock(0));
        let after = ClockReading { time: clock(600), at: began.at + Duration::from_secs(600) };
        assert_eq!((after.since(&began).from, after.since(&began).to), (clock(0), clock(600)));
    }
}
