//! Clocks of the kernel.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, which service managers compare times on.
pub fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before = monotonic();
        std::thread::sleep(Duration::from_millis(2));
        let passed = monotonic() - before;
        assert!(passed >= Duration::from_millis(2) && passed < Duration::from_secs(60), "{passed:?}");
    }
}
