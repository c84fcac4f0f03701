//! How a process ended that is no child of this one.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::sys_process::pidfd_info;

/// Flags of `linux/pidfd.h`: how it ended (since Linux 6.15), and whether it left a core dump (since 6.16).
const EXIT: u64 = 1 << 3;
const CORE: u64 = 1 << 4;
const CORE_WRITTEN: u32 = 1;

/// A process that is watched. It stays the same process even if its number is used again.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

/// How a process ended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ProcessEnd {
    /// It ended itself, with this exit code.
    Exited(u8),
    /// A signal ended it.
    Killed {
        /// The number of the signal.
        signal: u8,
        /// Whether a core dump was written.
        has_core: bool,
    },
}

impl ProcessHandle {
    /// Begins to watch a process. It takes no privileges.
    ///
    /// # Errors
    /// There is no such process, or the kernel is older than Linux 5.3.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// How it ended; `None` while it runs, while its parent has not asked for its exit code, and before Linux 6.15.
    pub fn end(&self) -> Option<ProcessEnd> {
        let info = pidfd_info(self.0.as_fd(), EXIT | CORE).ok()?;
        if info.mask & EXIT == 0 {
            return None;
        }
        let is_known = info.mask & CORE != 0;
        let end = ProcessEnd::of_status(info.exit_code);
        Some(match end {
            ProcessEnd::Killed { signal, .. } if is_known => {
                ProcessEnd::Killed { signal, has_core: info.core_mask & CORE_WRITTEN != 0 }
            }
            end => end,
        })
    }
}

impl ProcessEnd {
    /// From a status as `waitpid` gives it.
    pub fn of_status(status: i32) -> Self {
        let [low, code, ..] = status.to_le_bytes();
        match low & 0x7F {
            0 => Self::Exited(code),
            signal => Self::Killed { signal, has_core: low & 0x80 != 0 },
        }
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed { signal, has_core } => {
                write!(f, "killed by signal {signal}")?;
                if let Some(name) = name(*signal) {
                    write!(f, " ({name})")?;
                }
                f.write_str(if *has_core { ", with a core dump" } else { "" })
            }
        }
    }
}

/// The names of signals that end servers.
fn name(signal: u8) -> Option<&'static str> {
    Some(match i32::from(signal) {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// How a shell ends that runs `script`. It waits for its input to end, so that it is watched before it ends.
    fn end(script: &str) -> (ProcessEnd, Option<ProcessEnd>) {
        use std::os::unix::process::ExitStatusExt;
        let mut child = Command::new("sh")
            .args(["-c", &format!("read line; {script}")])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap();
        assert_eq!(handle.end(), None, "it still runs");
        drop(child.stdin.take());
        let status = child.wait().unwrap();
        (ProcessEnd::of_status(status.into_raw()), handle.end())
    }

    #[test]
    fn a_watched_process_ends_as_its_parent_is_told() {
        for (script, words) in [
            ("exit 0", "exit code 0"),
            ("exit 62", "exit code 62"),
            ("kill -KILL $$", "killed by signal 9 (SIGKILL)"),
            ("kill -TERM $$", "killed by signal 15 (SIGTERM)"),
        ] {
            let (told, seen) = end(script);
            assert_eq!(told.to_string(), words);
            // A kernel before Linux 6.15 does not say it.
            assert!(seen.is_none_or(|seen| seen == told), "{seen:?}, not {told:?}");
        }
    }

    #[test]
    fn statuses_are_those_of_waitpid() {
        // From bits/waitstatus.h: the exit code is the second byte, the signal the low seven bits, the core the eighth.
        assert_eq!(ProcessEnd::of_status(14 << 8), ProcessEnd::Exited(14));
        assert_eq!(ProcessEnd::of_status(9), ProcessEnd::Killed { signal: 9, has_core: false });
        let crash = ProcessEnd::of_status(0x80 | 11);
        assert_eq!(crash.to_string(), "killed by signal 11 (SIGSEGV), with a core dump");
        assert_eq!(ProcessEnd::of_status(64).to_string(), "killed by signal 64");
    }

    #[test]
    fn a_process_that_does_not_exist_cannot_be_watched() {
        assert!(ProcessHandle::open(0).is_err());
        assert!(ProcessHandle::open(u32::MAX).is_err());
    }
}
