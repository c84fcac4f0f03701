//! What this process costs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::param::page_size;

use crate::sys;

/// What this process has used since it began, and what it holds now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Processor time in user mode, all threads.
    pub user: Duration,
    /// Processor time in the kernel on its behalf, all threads.
    pub system: Duration,
    /// Memory that is in RAM, in bytes; a mapped ring counts as far as it was read. 0 if unknown.
    pub resident_bytes: u64,
}

impl ResourceUsage {
    /// The present values. The first call opens a file, which later ones read again: a process that will not be able
    /// to open files must call it once before.
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
    pages.checked_mul(page_size() as u64)
}

/// The processor time that each thread of this process has used so far, by name. Threads of one name are added up.
pub fn thread_times() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let text = |name: &str| std::fs::read_to_string(thread.path().join(name)).ok();
        // The first number is the time on a processor in nanoseconds: Documentation/scheduler/sched-stats.rst.
        let ns = text("schedstat").and_then(|text| text.split_whitespace().next()?.parse().ok());
        if let (Some(name), Some(ns)) = (text("comm"), ns) {
            *times.entry(name.trim().to_owned()).or_default() += Duration::from_nanos(ns);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_is_known_by_its_name() {
        let work = std::thread::Builder::new().name("sonar-busy".to_owned());
        let (to, from) = std::sync::mpsc::channel();
        let handle = work.spawn(move || {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
            to.send(thread_times()).unwrap();
        });
        let times = from.recv().unwrap();
        handle.unwrap().join().unwrap();
        let busy = times.get("sonar-busy").copied().unwrap_or_default();
        assert!(busy > Duration::from_millis(1) && busy < Duration::from_secs(5), "{times:?}");
    }

    #[test]
    fn a_process_has_used_something() {
        let before = ResourceUsage::now().unwrap();
        let mut memory = vec![1u8; 32 << 20];
        for round in 1..10u8 {
            memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(round));
        }
        let after = ResourceUsage::now().unwrap();
        assert!(memory.contains(&memory[0]));
        assert!(after.processor() > before.processor());
        assert!(after.resident_bytes >= 32 << 20, "{after:?}");
    }
}
