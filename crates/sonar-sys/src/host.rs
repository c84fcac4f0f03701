//! What another process, the processors and the disks of this host have used: counters of `/proc`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::sys;

/// Processor time of a process, all its threads, since it began; user and kernel mode. In steps of a
/// clock tick (10 ms as a rule). `proc_root` is `/proc`.
///
/// # Errors
/// There is no such process, or `/proc` cannot be read.
pub fn cpu_time(proc_root: &Path, pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(proc_root.join(pid.to_string()).join("stat"))?;
    // The name stands in parentheses and may hold anything: fields are counted behind the last one.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).ok_or(io::ErrorKind::InvalidData)?;
    // "state ppid … utime stime": fields 14 and 15 of proc_stat(5), 11 and 12 behind the state.
    let mut fields = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(ticks(user.saturating_add(system))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The name of a process (`comm`), at most 15 bytes.
///
/// # Errors
/// There is no such process, or `/proc` cannot be read.
pub fn name(proc_root: &Path, pid: u32) -> io::Result<String> {
    Ok(fs::read_to_string(proc_root.join(pid.to_string()).join("comm"))?.trim_end().to_owned())
}

/// Time that all processors together were not idle since the host started, and how many there are.
/// `proc_root` is `/proc`.
///
/// # Errors
/// `/proc/stat` cannot be read.
pub fn host_busy(proc_root: &Path) -> io::Result<(Duration, u32)> {
    let stat = fs::read_to_string(proc_root.join("stat"))?;
    let first = stat.lines().find_map(|line| line.strip_prefix("cpu ")).ok_or(io::ErrorKind::InvalidData)?;
    // "user nice system idle iowait irq softirq steal guest guest_nice": guests are in user already.
    let numbers: Vec<u64> = first.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| numbers.get(*at)).sum();
    let processors = stat.lines().filter(|line| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    Ok((ticks(busy), processors.count() as u32))
}

/// Time that the busiest disk was busy with requests since the host started: the largest of the
/// tenth numbers of `/proc/diskstats` (Documentation/admin-guide/iostats.rst), in milliseconds there.
///
/// # Errors
/// It cannot be read.
pub fn busiest_disk(proc_root: &Path) -> io::Result<Duration> {
    let stats = fs::read_to_string(proc_root.join("diskstats"))?;
    let busy = |line: &str| line.split_whitespace().nth(12)?.parse::<u64>().ok();
    Ok(Duration::from_millis(stats.lines().filter_map(busy).max().unwrap_or(0)))
}

fn ticks(ticks: u64) -> Duration {
    let per_second = sys::clock_ticks();
    Duration::new(ticks / per_second, ((ticks % per_second) * 1_000_000_000 / per_second) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_shifts_no_field() {
        let root = std::env::temp_dir().join(format!("sonar-sys-process-{}", std::process::id()));
        fs::create_dir_all(root.join("77")).unwrap();
        let tail = "S 1 77 77 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
        fs::write(root.join("77/stat"), format!("77 (a) b (mongod)) {tail}")).unwrap();
        fs::write(root.join("77/comm"), "mongod\n").unwrap();
        let ns = cpu_time(&root, 77).unwrap().as_nanos();
        assert_eq!(ns, 300 * 1_000_000_000 / u128::from(sys::clock_ticks()));
        assert_eq!(name(&root, 77).unwrap(), "mongod");
        fs::write(root.join("77/stat"), "77 (a").unwrap();
        assert!(cpu_time(&root, 77).is_err() && cpu_time(&root, 78).is_err());
        fs::write(root.join("stat"), "cpu  100 0 50 900 10 0 50 0 20 0\ncpu0 1 1\ncpu1 1 1\ncpufreq 1\n")
            .unwrap();
        let (busy, processors) = host_busy(&root).unwrap();
        assert_eq!((busy, processors), (ticks(200), 2));
        let disks = "   8 0 sda 1 2 3 4 5 6 7 8 9 1500 11\n 254 0 vda 1 2 3 4 5 6 7 8 9 2500 11\nbroken\n";
        fs::write(root.join("diskstats"), disks).unwrap();
        assert_eq!(busiest_disk(&root).unwrap(), Duration::from_millis(2_500));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn this_process_and_this_host_have_used_something() {
        let proc_root = Path::new("/proc");
        assert!(cpu_time(proc_root, std::process::id()).is_ok());
        let (busy, processors) = host_busy(proc_root).unwrap();
        assert!(busy > Duration::ZERO && processors > 0);
    }
}
