//! What this process costs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Add, AddAssign};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::param::page_size;
use rustix::process::{getpriority_process, setpriority_process};

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

/// Gives this thread, and those that it starts from now on, a nice value of -10, so that rings are read in time while
/// all processors are busy.
///
/// # Errors
/// `CAP_SYS_NICE` is missing, and the limit of nice values (`RLIMIT_NICE`) does not allow it.
pub fn prefer_this_thread() -> io::Result<()> {
    set_nice(-10)
}

/// Gives this thread, and those that it starts from now on, this nice value: -20, which comes first, to 19.
///
/// # Errors
/// It is lower than the present one, and neither `CAP_SYS_NICE` nor the limit of nice values allows it.
pub fn set_nice(nice: i32) -> io::Result<()> {
    Ok(setpriority_process(None, nice)?)
}

/// The nice value of this thread.
///
/// # Errors
/// Those of getpriority(2).
pub fn nice() -> io::Result<i32> {
    Ok(getpriority_process(None)?)
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

/// Processor time of threads.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel on their behalf.
    pub system: Duration,
}

impl ProcessorTime {
    /// Both together.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }
}

impl Add for ProcessorTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

impl AddAssign for ProcessorTime {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The processor time that each thread of this process has used so far, by name. Threads of one name are added up.
pub fn thread_times() -> BTreeMap<String, ProcessorTime> {
    let mut times = BTreeMap::new();
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        if let (Ok(name), Some(time)) = (name, time_of(&thread.path())) {
            *times.entry(name.trim().to_owned()).or_default() += time;
        }
    }
    times
}

/// The processor time that the child processes of the main thread have used so far.
pub fn helper_time() -> Duration {
    let own = format!("/proc/self/task/{}/children", std::process::id());
    let children = std::fs::read_to_string(own).unwrap_or_default();
    let of_child = |pid: &str| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads.filter_map(|thread| time_of(&thread.path())).map(|time| time.total()).sum::<Duration>()
    };
    children.split_whitespace().map(of_child).sum()
}

/// The processor time of the thread with this folder in /proc; `None` if it has ended.
fn time_of(thread: &Path) -> Option<ProcessorTime> {
    let text = |name: &str| std::fs::read_to_string(thread.join(name)).ok();
    // The first number is the time on a processor in nanoseconds: Documentation/scheduler/sched-stats.rst. The kernel
    // divides it in ticks only.
    let total = Duration::from_nanos(text("schedstat")?.split_whitespace().next()?.parse().ok()?);
    let stat = text("stat")?;
    // The name before the last parenthesis may have spaces. After it: state, ten numbers, user and system time.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(|field| field.parse::<u32>().unwrap_or(0));
    let (user, system) = (ticks.next()?, ticks.next()?);
    let share = f64::from(system) / f64::from(user.saturating_add(system).max(1));
    let system = total.mul_f64(share).min(total);
    Some(ProcessorTime { user: total - system, system })
}

#[cfg(test)]
mod tests {
    use rustix::time::ClockId;

    use super::*;

    #[test]
    fn the_time_of_a_thread_is_known_by_its_name() {
        let work = std::thread::Builder::new().name("sonar-busy".to_owned());
        let (to, from) = std::sync::mpsc::channel();
        let handle = work.spawn(move || {
            let used = || Duration::try_from(rustix::time::clock_gettime(ClockId::ThreadCPUTime)).unwrap();
            while used() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
            to.send((thread_times(), used())).unwrap();
        });
        let (times, used) = from.recv().unwrap();
        handle.unwrap().join().unwrap();
        let busy = times.get("sonar-busy").copied().unwrap_or_default().total();
        // The time since the last tick may be missing.
        assert!(busy > Duration::from_millis(1) && busy <= used, "{times:?}");
    }

    #[test]
    fn time_in_the_kernel_is_told_apart() {
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let thread = Path::new("/proc").join(thread);
        // The kernel divides processor time by what it finds at its ticks, of which there may be few.
        let mut times = (0..1_000_000).map(|_| {
            for _ in 0..100 {
                std::fs::metadata("/proc/self/maps").unwrap();
            }
            time_of(&thread).unwrap()
        });
        let time = times.find(|time| time.system > Duration::ZERO).expect("time in the kernel");
        assert!(time.total() >= time.system, "{time:?}");
        assert_eq!(time_of(Path::new("/proc/0")), None);
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
