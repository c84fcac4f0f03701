//! Clocks of the kernel.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, which service managers compare times on.
pub fn monotonic() -> Duration {
    read(ClockId::Monotonic)
}

/// `CLOCK_BOOTTIME`: since the machine started, the time in which it was suspended included.
pub fn since_boot() -> Duration {
    read(ClockId::Boottime)
}

/// This many clock ticks, in which `/proc` counts.
pub fn ticks(number: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let nanoseconds = number % per_second * 1_000_000_000 / per_second;
    Duration::from_secs(number / per_second) + Duration::from_nanos(nanoseconds)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before = monotonic();
        // span: which it measures, at least
        std::thread::sleep(Duration::from_millis(2));
        let passed = monotonic() - before;
        assert!(passed >= Duration::from_millis(2), "{passed:?}");
    }

    #[test]
    fn this_process_started_after_the_machine_and_before_now() {
        let stat = crate::Host::live().stat(std::process::id()).unwrap();
        let started = ticks(stat.started);
        assert!(started > Duration::ZERO && started <= since_boot(), "{started:?}");
    }
}
