//! What the kernel's log says of processes that it killed for lack of memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// No record is longer, in bytes: `PRINTK_MESSAGE_MAX` in the kernel's `kernel/printk/internal.h`.
const MAX_RECORD: usize = 8_192;
/// The most records that one call reads.
const MAX_RECORDS: usize = 10_000;
/// The most bytes of a line that are kept.
const MAX_LINE: usize = 140;

/// The kernel's log, `/dev/kmsg`, from its oldest record on.
#[derive(Debug)]
pub struct KernelLog(File);

/// The kernel killed a process for lack of memory, of the machine or of a control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelDeath {
    /// When, by [`crate::clock::monotonic`].
    pub at: Duration,
    /// The number of the process.
    pub pid: u32,
    /// The kernel's line.
    pub line: String,
}

impl KernelLog {
    /// Opens it. Where `kernel.dmesg_restrict` is set, this takes `CAP_SYSLOG`; reading takes nothing.
    ///
    /// # Errors
    /// It may not be read, or does not exist, as in many containers.
    pub fn open() -> io::Result<Self> {
        let nonblocking = libc::O_NONBLOCK;
        Ok(Self(OpenOptions::new().read(true).custom_flags(nonblocking).open("/dev/kmsg")?))
    }

    /// The deaths in the records that have come since the last call.
    pub fn deaths(&mut self) -> Vec<KernelDeath> {
        let mut deaths = Vec::new();
        let mut record = [0; MAX_RECORD];
        for _ in 0..MAX_RECORDS {
            match self.0.read(&mut record) {
                Ok(length) if length > 0 => {
                    deaths.extend(record.get(..length).and_then(KernelDeath::of_record));
                }
                // Records were overwritten before they were read: the next call goes on with the oldest.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        deaths
    }
}

impl KernelDeath {
    /// From a record as `/dev/kmsg` gives it (Documentation/ABI/testing/dev-kmsg): `priority,number,microseconds,flags;text`,
    /// and further lines that begin with a space.
    pub fn of_record(record: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(record).ok()?;
        let (prefix, message) = text.split_once(';')?;
        // What programs write into it has another facility than 0, in the upper bits of the priority.
        let mut fields = prefix.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        if priority >> 3 != 0 {
            return None;
        }
        let microseconds: u64 = fields.nth(1)?.parse().ok()?;
        let line = message.lines().next()?;
        let pid = killed(line)?;
        let line = shown(line);
        Some(Self { at: Duration::from_micros(microseconds), pid, line })
    }
}

/// `Out of memory: Killed process 7 (mongod) …` and `Memory cgroup out of memory: Killed process 7 (mongod) …`; before
/// Linux 5.0 `Killed process 7 (mongod) …` in a line of its own.
fn killed(line: &str) -> Option<u32> {
    let (before, after) = line.split_once("Killed process ")?;
    let is_kernels = before.is_empty() || before.to_ascii_lowercase().ends_with("out of memory: ");
    if !is_kernels {
        return None;
    }
    after.split([' ', ',']).next()?.parse().ok()
}

/// A line without what is of no use to a reader, and not too long.
fn shown(line: &str) -> String {
    let line = line.split(", file-rss").next().unwrap_or(line);
    line.chars().filter(|letter| !letter.is_control()).take(MAX_LINE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(u32, String)> {
        let record = format!("{text}\n SUBSYSTEM=cpu\n");
        KernelDeath::of_record(record.as_bytes()).map(|death| (death.pid, death.line))
    }

    /// The format of `__oom_kill_process` in mm/oom_kill.c; before Linux 5.0 of `oom_kill_process`.
    #[test]
    fn kills_are_found() {
        let killed = "Killed process 4711 (mongod) total-vm:5242880kB, anon-rss:4194304kB";
        let tail = ", file-rss:0kB, shmem-rss:0kB, UID:999 pgtables:9000kB oom_score_adj:0";
        for before in ["Out of memory: ", "Memory cgroup out of memory: ", ""] {
            let line = format!("{before}{killed}");
            assert_eq!(of(&format!("3,812,90210,-;{line}{tail}")), Some((4_711, line)));
        }
    }

    #[test]
    fn other_records_and_those_of_programs_say_nothing() {
        for other in [
            "6,1,1,-;eth0: link up",
            "6,1,1,-;mongod invoked oom-killer: gfp_mask=0xcc0, order=0",
            "6,1,1,-;mongod[7]: segfault at 0 ip 000055d0 sp 00007ffd error 4 in mongod",
            "6,1,1,-;",
            "6,1;short",
            "Out of memory: Killed process 7 (mongod)",
            // Facility 3: a daemon wrote it.
            "30,1,1,-;Out of memory: Killed process 7 (mongod)",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(KernelDeath::of_record(&[0xFF, b';', 0xFF]), None);
    }

    #[test]
    fn the_time_of_a_record_is_that_since_the_start() {
        let death = KernelDeath::of_record(b"3,812,90210,-;Out of memory: Killed process 4711 (mongod)\n");
        assert_eq!(death.unwrap().at, Duration::from_micros(90_210));
    }
}
