//! Clocks of the kernel.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys;

/// `CLOCK_MONOTONIC`, which service managers compare times on.
pub fn monotonic() -> Duration {
    read(ClockId::Monotonic)
}

/// `CLOCK_BOOTTIME`: since the machine started, the time in which it was suspended included.
pub fn since_boot() -> Duration {
    read(ClockId::Boottime)
}

/// The processor time of all threads of a process since it started, ended ones included, to the nanosecond. `/proc` counts
/// it in ticks of 10 ms.
///
/// # Errors
/// There is no such process.
pub fn processor_time_of(pid: u32) -> io::Result<Duration> {
    sys::processor_time_of(pid)
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
    fn processor_time_is_known_between_ticks() {
        let own = std::process::id();
        let before = processor_time_of(own).unwrap();
        // Asking takes time, too.
        let after = processor_time_of(own).unwrap();
        assert!(after > before, "{before:?} {after:?}");
        assert!(processor_time_of(u32::MAX).is_err());
        assert!(processor_time_of(1 << 22).is_err(), "no process has this id");
    }

    #[test]
    fn this_process_started_after_the_machine_and_before_now() {
        let stat = crate::Host::live().stat(std::process::id()).unwrap();
        let started = ticks(stat.started);
        assert!(started > Duration::ZERO && started <= since_boot(), "{started:?}");
    }
}
