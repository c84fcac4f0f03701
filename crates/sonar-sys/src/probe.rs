//! Tries what works on this host: the checks behind the `doctor` command.

use crate::capabilities::{self, CaptureError};
use crate::host::Host;
use crate::interfaces;
use crate::ring::{Ring, RingConfig, RingError};
use crate::sys::PacketSocket;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeCheck {
    /// Stable name, for example `packet-socket`.
    pub name: &'static str,
    /// Its result.
    pub verdict: ProbeVerdict,
    /// What was found, in one line; for a warning or a problem, what does not work because of it.
    pub found: String,
    /// The command that fixes it, if there is one.
    pub remedy: Option<String>,
}

/// The result of a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeVerdict {
    /// As it should be.
    Ok,
    /// It works, but at a cost or with losses.
    Warning,
    /// Capture does not work.
    Problem,
}

impl ProbeCheck {
    fn new(name: &'static str, verdict: ProbeVerdict, found: impl Into<String>) -> Self {
        Self { name, verdict, found: found.into(), remedy: None }
    }

    fn remedy(self, command: impl Into<String>) -> Self {
        Self { remedy: Some(command.into()), ..self }
    }
}

/// Every check, in the order in which a person would check. Opens sockets and rings of `config` for a moment (without
/// promiscuous mode); changes nothing.
pub fn all(config: &RingConfig, host: &Host) -> Vec<ProbeCheck> {
    let config = RingConfig { promiscuous: false, ..config.clone() };
    let mut checks = vec![kernel()];
    let socket = packet_socket();
    let can_capture = socket.verdict != ProbeVerdict::Problem;
    checks.push(socket);
    if can_capture {
        checks.extend([tpacket_v3(), ring(&config), fanout(&config), ignore_outgoing()]);
    }
    checks.push(interfaces_up(&config));
    checks.extend(filter_compiler(host));
    checks.extend(backlog(host));
    checks.extend(clock(host));
    checks
}

fn kernel() -> ProbeCheck {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    ProbeCheck::new("kernel", ProbeVerdict::Ok, format!("Linux {release}"))
}

fn packet_socket() -> ProbeCheck {
    const NAME: &str = "packet-socket";
    match capabilities::capture() {
        Ok(()) => ProbeCheck::new(NAME, ProbeVerdict::Ok, "packets can be captured (CAP_NET_RAW)"),
        Err(CaptureError::Permission(missing)) => {
            let remedy = missing.remedy();
            ProbeCheck::new(NAME, ProbeVerdict::Problem, format!("{} is missing", missing.capability))
                .remedy(remedy)
        }
        Err(error) => ProbeCheck::new(NAME, ProbeVerdict::Problem, error.to_string()),
    }
}

fn tpacket_v3() -> ProbeCheck {
    let tried = PacketSocket::open().and_then(|socket| {
        socket.set_packet_option(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)
    });
    match tried {
        Ok(()) => ProbeCheck::new("tpacket-v3", ProbeVerdict::Ok, "ring of blocks (TPACKET_V3)"),
        Err(error) => ProbeCheck::new("tpacket-v3", ProbeVerdict::Problem, format!("no TPACKET_V3: {error}")),
    }
}

fn ring(config: &RingConfig) -> ProbeCheck {
    const NAME: &str = "ring-memory";
    let mib = config.size_bytes >> 20;
    match Ring::open(config) {
        Ok(_) => ProbeCheck::new(NAME, ProbeVerdict::Ok, format!("a ring of {mib} MiB is available")),
        Err(error @ RingError::Memory { .. }) => {
            ProbeCheck::new(NAME, ProbeVerdict::Problem, error.to_string())
                .remedy("mongosonar queries --ring-mib 8")
        }
        Err(error) => ProbeCheck::new(NAME, ProbeVerdict::Problem, error.to_string()),
    }
}

fn fanout(config: &RingConfig) -> ProbeCheck {
    const NAME: &str = "fanout";
    let small = RingConfig { size_bytes: 4 * config.block_bytes, ..config.clone() };
    match Ring::open_group(&small, 2) {
        Ok(_) => {
            ProbeCheck::new(NAME, ProbeVerdict::Ok, "several threads can share the packets by connection")
        }
        Err(error) => {
            ProbeCheck::new(NAME, ProbeVerdict::Warning, format!("only one thread can capture ({error})"))
        }
    }
}

fn ignore_outgoing() -> ProbeCheck {
    const NAME: &str = "ignore-outgoing";
    let tried =
        PacketSocket::open().and_then(|socket| socket.set_packet_option(libc::PACKET_IGNORE_OUTGOING, 1));
    match tried {
        Ok(()) => ProbeCheck::new(NAME, ProbeVerdict::Ok, "packets on loopback are taken once, at no cost"),
        Err(error) => ProbeCheck::new(
            NAME,
            ProbeVerdict::Warning,
            format!("the twins of packets on loopback are copied and then filtered out ({error})"),
        ),
    }
}

fn interfaces_up(config: &RingConfig) -> ProbeCheck {
    const NAME: &str = "interfaces";
    let all = match interfaces::list() {
        Ok(all) => all,
        Err(error) => {
            return ProbeCheck::new(NAME, ProbeVerdict::Warning, format!("cannot be listed: {error}"));
        }
    };
    let wanted = match interfaces::select(&all, &config.interfaces) {
        Ok(named) if named.is_empty() => all,
        Ok(named) => named,
        Err(error) => return ProbeCheck::new(NAME, ProbeVerdict::Problem, error.to_string()),
    };
    let names = |up: bool| {
        let names: Vec<&str> = wanted.iter().filter(|i| i.up == up).map(|i| i.name.as_str()).collect();
        names.join(", ")
    };
    let (up, down) = (names(true), names(false));
    if up.is_empty() {
        let first = wanted.first().map_or("lo", |interface| interface.name.as_str());
        return ProbeCheck::new(NAME, ProbeVerdict::Problem, format!("none is up: {down}"))
            .remedy(format!("sudo ip link set {first} up"));
    }
    if !config.interfaces.is_empty() && !down.is_empty() {
        let first = wanted.iter().find(|i| !i.up).map_or("", |interface| interface.name.as_str());
        return ProbeCheck::new(
            NAME,
            ProbeVerdict::Warning,
            format!("an interface that is down captures nothing: {down}; up: {up}"),
        )
        .remedy(format!("sudo ip link set {first} up"));
    }
    ProbeCheck::new(NAME, ProbeVerdict::Ok, format!("up: {up}"))
}

/// Whether the kernel compiles filters. `None` if it does not state it.
fn filter_compiler(host: &Host) -> Option<ProbeCheck> {
    Some(match host.text("proc/sys/net/core/bpf_jit_enable")?.as_str() {
        "0" => ProbeCheck::new(
            "filter-compiler",
            ProbeVerdict::Warning,
            "filters are interpreted, several times slower",
        )
        .remedy("sudo sysctl net.core.bpf_jit_enable=1"),
        _ => ProbeCheck::new("filter-compiler", ProbeVerdict::Ok, "filters are compiled to machine code"),
    })
}

/// Packets that the kernel dropped before it looked at them: `/proc/net/softnet_stat`, one line for each processor,
/// hexadecimal, the second number.
fn backlog(host: &Host) -> Option<ProbeCheck> {
    let stat = host.text("proc/net/softnet_stat")?;
    let dropped: u64 =
        stat.lines().filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()).sum();
    let limit = host.number("proc/sys/net/core/netdev_max_backlog");
    let queue = limit.map_or_else(String::new, |limit| format!(" (queue of {limit})"));
    let check = if dropped == 0 {
        ProbeCheck::new(
            "backlog",
            ProbeVerdict::Ok,
            format!("no packet was dropped before it was seen{queue}"),
        )
    } else {
        let larger = limit.unwrap_or(1000).max(1000).saturating_mul(4);
        let found = format!("packets dropped since the start, before anybody saw them: {dropped}{queue}");
        ProbeCheck::new("backlog", ProbeVerdict::Warning, found)
            .remedy(format!("sudo sysctl net.core.netdev_max_backlog={larger}"))
    };
    Some(check)
}

/// The clock of time stamps: some cost a microsecond per packet.
fn clock(host: &Host) -> Option<ProbeCheck> {
    let of = |name: &str| host.text(&format!("sys/devices/system/clocksource/clocksource0/{name}"));
    let current = of("current_clocksource")?;
    if !matches!(current.as_str(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit") {
        return Some(ProbeCheck::new("clock", ProbeVerdict::Ok, format!("clock source {current}")));
    }
    let found = format!("clock source {current} is slow: each time stamp costs about a microsecond");
    let check = ProbeCheck::new("clock", ProbeVerdict::Warning, found);
    let others = of("available_clocksource").unwrap_or_default();
    let fast =
        others.split_whitespace().find(|name| matches!(*name, "tsc" | "kvm-clock" | "arch_sys_counter"));
    Some(match fast {
        Some(name) => check.remedy(format!(
            "echo {name} | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
        )),
        None => check,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::TempTree;

    #[test]
    fn slow_capture_is_reported_with_its_remedy() {
        let tree = TempTree::new(
            "slow",
            &[
                ("proc/sys/net/core/bpf_jit_enable", "0\n"),
                ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
                ("proc/net/softnet_stat", "0000ffff 00000010 0 0\n00000001 0000000f 0 0\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm\n"),
                ("sys/devices/system/clocksource/clocksource0/available_clocksource", "hpet tsc acpi_pm \n"),
            ],
        );
        let host = Host::at(&tree.0);
        let compiler = filter_compiler(&host).unwrap();
        assert_eq!(compiler.verdict, ProbeVerdict::Warning);
        assert_eq!(compiler.remedy.as_deref(), Some("sudo sysctl net.core.bpf_jit_enable=1"));
        let backlog = backlog(&host).unwrap();
        assert!(backlog.found.ends_with(": 31 (queue of 1000)"), "{}", backlog.found);
        assert_eq!(backlog.remedy.as_deref(), Some("sudo sysctl net.core.netdev_max_backlog=4000"));
        let clock = clock(&host).unwrap();
        assert_eq!(clock.verdict, ProbeVerdict::Warning);
        assert!(clock.remedy.unwrap().starts_with("echo tsc | sudo tee /sys/"));
    }

    #[test]
    fn a_good_result_has_no_remedy() {
        let tree = TempTree::new(
            "well",
            &[
                ("proc/sys/net/core/bpf_jit_enable", "1\n"),
                ("proc/net/softnet_stat", "0000ffff 00000000\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ],
        );
        let host = Host::at(&tree.0);
        for check in [filter_compiler(&host), backlog(&host), clock(&host)] {
            let check = check.unwrap();
            assert_eq!((check.verdict, check.remedy), (ProbeVerdict::Ok, None), "{}", check.name);
        }
        let nowhere = &Host::at("/nonexistent");
        assert_eq!((filter_compiler(nowhere), backlog(nowhere), clock(nowhere)), (None, None, None));
    }

    #[test]
    fn a_host_gives_every_check_once() {
        let checks = all(&RingConfig::default(), &Host::live());
        let names: Vec<_> = checks.iter().map(|check| check.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        for name in ["kernel", "packet-socket", "interfaces"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let unknown = RingConfig { interfaces: vec!["nowhere0".into()], ..RingConfig::default() };
        let check = interfaces_up(&unknown);
        assert_eq!(check.verdict, ProbeVerdict::Problem);
        assert!(check.found.contains("no such interface: nowhere0"), "{}", check.found);
    }
}
