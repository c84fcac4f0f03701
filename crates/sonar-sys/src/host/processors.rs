//! What the processors of a host have done.

use std::time::Duration;

use sonar_core::machine::CpuTicks;

use crate::clock::ticks;

/// What all processors of a host have done since it started, from `/proc/stat` (proc_stat(5)). In steps of a clock
/// tick (usually 10 ms).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Ticks: user, nice, system, idle, waiting for disks, interrupts, software interrupts, stolen. The time of guests
    /// is in the first two.
    ticks: [u64; 8],
    /// How many there are.
    pub count: u32,
}

impl Processors {
    pub(super) fn parse(stat: &str) -> Option<Self> {
        let first = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let numbers: Vec<u64> = first.split_whitespace().map_while(|number| number.parse().ok()).collect();
        // Older kernels have fewer; the first five are always there.
        numbers.get(4)?;
        let mut ticks = [0; 8];
        ticks.iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
        let is_one = |line: &&str| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        Some(Self { ticks, count: stat.lines().filter(is_one).count() as u32 })
    }

    /// The ticks by kind.
    pub fn ticks(&self) -> CpuTicks {
        CpuTicks { ticks: self.ticks, processors: self.count }
    }

    /// Busy time of all of them together.
    pub fn busy(&self) -> Duration {
        let [user, nice, system, _, _, interrupts, softirq, stolen] = self.ticks;
        let busy = [user, nice, system, interrupts, softirq, stolen];
        ticks(busy.into_iter().fold(0, u64::saturating_add))
    }

    /// Time of all of them in software interrupts, where received packets are handled and copied into rings.
    pub fn softirq(&self) -> Duration {
        ticks(self.ticks[6])
    }

    /// All ticks, and the idle ones.
    pub fn all_and_idle_ticks(&self) -> (u64, u64) {
        let all = self.ticks.into_iter().fold(0, u64::saturating_add);
        (all, self.ticks[3].saturating_add(self.ticks[4]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_and_guests_are_not_added_twice() {
        let found =
            Processors::parse("cpu  100 0 50 900 10 3 50 4 20 9\ncpu0 1 1\ncpu1 1 1\ncpufreq 1\n").unwrap();
        assert_eq!((found.busy(), found.softirq(), found.count), (ticks(207), ticks(50), 2));
        assert_eq!(found.all_and_idle_ticks(), (1_117, 910));
        assert!(Processors::parse("cpu 1 2\n").is_none() && Processors::parse("intr 1\n").is_none());
        assert!(Processors::parse(&format!("cpu {0} {0} {0} {0} {0}\n", u64::MAX)).is_some());
    }
}
