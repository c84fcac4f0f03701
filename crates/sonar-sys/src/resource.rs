//! What this process, and the kernel's network code, cost.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::sys;

/// What this process has used since it began, and holds now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode, all threads.
    pub user: Duration,
    /// Processor time in the kernel on its behalf, all threads.
    pub system: Duration,
    /// Memory that is in RAM, in bytes; a mapped ring counts as far as it was read. 0 when not known.
    pub resident_bytes: u64,
}

impl Usage {
    /// Now. The first call opens a file, which the later ones read again: a process that gives up opening files
    /// calls it once before.
    pub fn now() -> io::Result<Self> {
        let (user, system) = sys::process_time()?;
        Ok(Self { user, system, resident_bytes: resident_bytes().unwrap_or(0) })
    }

    /// Processor time of both kinds.
    pub fn processor(&self) -> Duration {
        self.user + self.system
    }
}

/// From `/proc/self/statm`: pages in RAM are the second number.
fn resident_bytes() -> Option<u64> {
    static STATM: OnceLock<Option<File>> = OnceLock::new();
    let mut text = [0; 256];
    let file = STATM.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()?;
    let length = file.read_at(&mut text, 0).ok()?;
    let pages: u64 =
        std::str::from_utf8(text.get(..length)?).ok()?.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(sys::page_size())
}

/// Time that all processors of the host have spent in software interrupts since it started: where
/// received packets are handled, copied into rings too. In steps of a clock tick (10 ms as a rule).
/// `proc_root` is `/proc`.
pub fn softirq(proc_root: &Path) -> io::Result<Duration> {
    let stat = fs::read_to_string(proc_root.join("stat"))?;
    // "cpu  user nice system idle iowait irq softirq …": proc_stat(5).
    let ticks = stat
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .and_then(|line| line.split_whitespace().nth(6))
        .and_then(|number| number.parse::<u64>().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    let per_second = sys::clock_ticks();
    Ok(Duration::new(ticks / per_second, ((ticks % per_second) * 1_000_000_000 / per_second) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something() {
        let before = Usage::now().unwrap();
        let mut memory = vec![1u8; 32 << 20];
        for round in 1..10u8 {
            memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(round));
        }
        let after = Usage::now().unwrap();
        assert!(memory.contains(&memory[0]));
        assert!(after.processor() > before.processor());
        assert!(after.resident_bytes >= 32 << 20, "{after:?}");
    }

    #[test]
    fn softirq_time_is_the_seventh_number() {
        let root = std::env::temp_dir().join(format!("sonar-sys-stat-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("stat"), "cpu  1 2 3 4 5 6 250 8 9 10\ncpu0 1 1 1 1 1 1 99 1 1 1\n").unwrap();
        let time = softirq(&root).unwrap();
        assert_eq!(time.as_nanos(), 250 * 1_000_000_000 / u128::from(sys::clock_ticks()));
        fs::write(root.join("stat"), "cpu 1 2\n").unwrap();
        assert_eq!(softirq(&root).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_dir_all(&root).unwrap();
    }
}
