//! What this process may do, and how to get permission for the rest.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use sonar_core::words::shell_quoted;

use crate::sys::PacketSocket;

/// The capabilities that all commands together need, as `setcap` takes them: packets (`NET_RAW`); eBPF programs
/// (`BPF`, `PERFMON`); which files and ports the processes of other users have open (`SYS_PTRACE`), and the folders
/// of those files (`DAC_READ_SEARCH`). One set, because `setcap` replaces what was granted before.
pub const GRANTED: &str = "cap_bpf,cap_dac_read_search,cap_net_raw,cap_perfmon,cap_sys_ptrace+ep";

/// The program of a package, which its service runs too, as a user and a group of its own.
const PACKAGED: &str = "/usr/bin/mongosonar";

/// The command that grants this program everything it needs, and lets only one group run it: whoever may run it sees
/// packets, plaintext, and files that only root may read.
pub fn grant_line() -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("mongosonar"));
    grant_line_for(&program)
}

fn grant_line_for(program: &Path) -> String {
    let group = if program == Path::new(PACKAGED) { "mongosonar" } else { "$(id -g)" };
    let program = shell_quoted(&program.to_string_lossy());
    // The kernel takes capabilities from a file whose group changes.
    format!("sudo chgrp {group} {program} && sudo chmod 750 {program} && sudo setcap {GRANTED} {program}")
}

/// What lets this process load eBPF programs: a command, or the options of a container. For before it has dropped its
/// privileges.
pub fn tracing_remedy() -> String {
    remedy_here(&[("BPF", CAP_BPF), ("PERFMON", CAP_PERFMON)])
}

/// The same for the open files and ports of other users' processes.
pub fn inspection_remedy() -> String {
    remedy_here(&[("SYS_PTRACE", CAP_SYS_PTRACE), ("DAC_READ_SEARCH", CAP_DAC_READ_SEARCH)])
}

fn remedy_here(needed: &[(&str, u32)]) -> String {
    remedy(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), needed)
        .unwrap_or_else(grant_line)
}

/// The options of a container that has all of `needed`, for the process with this `/proc/PID/status`; `None` if it is
/// not a container that is in the way.
fn remedy(status: &str, needed: &[(&str, u32)]) -> Option<String> {
    let bounded: Vec<String> = needed
        .iter()
        .filter(|(_, capability)| obstacle(status, *capability) == CapabilityObstacle::Bounded)
        .map(|(name, _)| format!(" --cap-add {name}"))
        .collect();
    if !bounded.is_empty() {
        return Some(format!("docker run{} …", bounded.concat()));
    }
    let held =
        needed.iter().all(|(_, number)| obstacle(status, *number) == CapabilityObstacle::ForeignNetwork);
    let filtered = status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    // Profiles of older engines allow bpf only to those that may do everything (CAP_SYS_ADMIN).
    (held && filtered).then(|| "docker run --security-opt seccomp=unconfined …".to_owned())
}

/// Why nothing can be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The process lacks `CAP_NET_RAW`.
    #[error("no permission to capture packets: {0}")]
    Permission(MissingCapability),
    /// The kernel has no packet sockets (`CONFIG_PACKET`), or a sandbox hides them.
    #[error("this kernel offers no packet sockets (AF_PACKET): {0}")]
    Unsupported(#[source] io::Error),
    /// Anything else, for example too many open files.
    #[error("cannot open a packet socket: {0}")]
    System(#[source] io::Error),
}

/// A missing capability, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCapability {
    /// As `capabilities(7)` writes it, for example `CAP_NET_RAW`.
    pub capability: &'static str,
    /// Why it is missing.
    pub obstacle: CapabilityObstacle,
    /// The program to grant it to.
    pub program: PathBuf,
}

/// Why a capability is missing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CapabilityObstacle {
    /// Nobody granted it to the program or the user.
    NotGranted,
    /// It is not in the bounding set: a container was started without it.
    Bounded,
    /// The process has it, but in a user namespace that does not own this network.
    ForeignNetwork,
}

impl MissingCapability {
    /// The command, or for a container the option, that grants it.
    pub fn remedy(&self) -> String {
        let name = self.capability.trim_start_matches("CAP_");
        match self.obstacle {
            CapabilityObstacle::NotGranted => grant_line_for(&self.program),
            CapabilityObstacle::Bounded => format!("docker run --cap-add {name} …"),
            CapabilityObstacle::ForeignNetwork => {
                format!("sudo {}", shell_quoted(&self.program.to_string_lossy()))
            }
        }
    }
}

impl fmt::Display for MissingCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capability, .. } = self;
        match self.obstacle {
            CapabilityObstacle::NotGranted => {
                write!(f, "{capability} is missing; run as root, or grant it once: {}", self.remedy())
            }
            CapabilityObstacle::Bounded => {
                write!(
                    f,
                    "{capability} is not allowed in this container; start it with it: {}",
                    self.remedy()
                )
            }
            CapabilityObstacle::ForeignNetwork => write!(
                f,
                "{capability} is held in a user namespace that does not own this network; run as root outside: {}",
                self.remedy()
            ),
        }
    }
}

/// Whether this process can open a packet socket; opens one to find out.
pub fn capture() -> Result<(), CaptureError> {
    PacketSocket::open().map(drop).map_err(|error| classify(error, Path::new("/proc")))
}

/// The reason of a failure to open a packet socket.
pub(crate) fn classify(error: io::Error, proc_root: &Path) -> CaptureError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            let status = std::fs::read_to_string(proc_root.join("self/status")).unwrap_or_default();
            CaptureError::Permission(MissingCapability {
                capability: "CAP_NET_RAW",
                obstacle: obstacle(&status, CAP_NET_RAW),
                program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("mongosonar")),
            })
        }
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT) => {
            CaptureError::Unsupported(error)
        }
        _ => CaptureError::System(error),
    }
}

// From `linux/capability.h`.
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Why a capability is missing, from the capability sets of a `/proc/PID/status`.
fn obstacle(status: &str, capability: u32) -> CapabilityObstacle {
    let holds = |set: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(set));
        let mask = line.and_then(|value| u64::from_str_radix(value.trim(), 16).ok());
        mask.map(|mask| mask >> capability & 1 == 1)
    };
    match (holds("CapEff:"), holds("CapBnd:")) {
        (Some(true), _) => CapabilityObstacle::ForeignNetwork,
        (_, Some(false)) => CapabilityObstacle::Bounded,
        _ => CapabilityObstacle::NotGranted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(effective: u64, bounding: u64) -> String {
        format!(
            "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t{effective:016x}\nCapBnd:\t{bounding:016x}\n"
        )
    }

    #[test]
    fn the_obstacle_is_read_from_the_capability_sets() {
        let all = 0x1ff_ffff_ffff;
        let without = all & !(1 << 13);
        assert_eq!(obstacle(&status(0, all), CAP_NET_RAW), CapabilityObstacle::NotGranted);
        assert_eq!(obstacle(&status(without, without), CAP_NET_RAW), CapabilityObstacle::Bounded);
        assert_eq!(obstacle(&status(all, all), CAP_NET_RAW), CapabilityObstacle::ForeignNetwork);
        assert_eq!(obstacle("", CAP_NET_RAW), CapabilityObstacle::NotGranted);
    }

    #[test]
    fn in_a_container_the_remedy_names_its_options() {
        let needed = [("BPF", CAP_BPF), ("PERFMON", CAP_PERFMON)];
        let all = 0x1ff_ffff_ffff;
        let (perfmon, both) = (1 << CAP_PERFMON, 1 << CAP_PERFMON | 1 << CAP_BPF);
        let of = |effective, bounding, seccomp: &str| {
            remedy(&format!("{}Seccomp:\t{seccomp}\n", status(effective, bounding)), &needed)
        };
        assert_eq!(of(0, 0, "2").unwrap(), "docker run --cap-add BPF --cap-add PERFMON …");
        assert_eq!(of(perfmon, perfmon, "2").unwrap(), "docker run --cap-add BPF …");
        assert_eq!(of(both, both, "2").unwrap(), "docker run --security-opt seccomp=unconfined …");
        // No container: another user, or a kernel that forbids it to everybody.
        assert_eq!(of(0, all, "0"), None);
        assert_eq!(of(all, all, "0"), None);
        assert_eq!(remedy("", &needed), None);
    }

    #[test]
    fn each_obstacle_is_reported_with_its_remedy() {
        let missing = |obstacle, program: &str| MissingCapability {
            capability: "CAP_NET_RAW",
            obstacle,
            program: program.into(),
        };
        let plain = missing(CapabilityObstacle::NotGranted, "/usr/local/bin/mongosonar");
        let line = format!(
            "sudo chgrp $(id -g) /usr/local/bin/mongosonar && sudo chmod 750 /usr/local/bin/mongosonar && \
             sudo setcap {GRANTED} /usr/local/bin/mongosonar"
        );
        assert_eq!(plain.remedy(), line, "not everybody may run it then");
        assert_eq!(
            CaptureError::Permission(plain).to_string(),
            format!(
                "no permission to capture packets: CAP_NET_RAW is missing; run as root, or grant it once: {line}"
            )
        );
        let packaged = missing(CapabilityObstacle::NotGranted, PACKAGED).remedy();
        assert!(packaged.starts_with("sudo chgrp mongosonar /usr/bin/mongosonar && "), "{packaged}");
        let spaced = missing(CapabilityObstacle::NotGranted, "/home/o'brien/my tools/mongosonar");
        let quoted = r"'/home/o'\''brien/my tools/mongosonar'";
        assert!(spaced.remedy().ends_with(&format!(" && sudo setcap {GRANTED} {quoted}")));
        assert!(missing(CapabilityObstacle::Bounded, "/x").remedy().contains("--cap-add NET_RAW"));
        assert_eq!(missing(CapabilityObstacle::ForeignNetwork, "/x").remedy(), "sudo /x");
    }

    #[test]
    fn other_failures_are_not_called_a_lack_of_permission() {
        let of = |code| classify(io::Error::from_raw_os_error(code), Path::new("/nonexistent"));
        assert!(matches!(of(libc::EPERM), CaptureError::Permission(_)));
        assert!(matches!(of(libc::EAFNOSUPPORT), CaptureError::Unsupported(_)));
        assert!(matches!(of(libc::EMFILE), CaptureError::System(_)));
    }
}
