//! Parses the tables of `/proc` (proc(5), Documentation/filesystems/proc.rst, Documentation/accounting/psi.rst).

use sonar_core::machine::{InterfaceReading, MemoryReading, PressureReading, VmCounters};

/// The number at the beginning of a text, behind blanks.
fn number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Threads that run or wait for a processor, and threads that wait for a disk.
pub(super) fn tasks(stat: &str) -> Option<(u64, u64)> {
    let of = |name: &str| stat.lines().find_map(|line| number(line.strip_prefix(name)?));
    Some((of("procs_running ")?, of("procs_blocked ")?))
}

/// The totals of `/proc/pressure/…`.
pub(super) fn pressure(text: &str) -> PressureReading {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        number(line.split_once("total=")?.1)
    };
    PressureReading { some_us: of("some "), full_us: of("full ") }
}

/// `/proc/meminfo`, in bytes.
pub(super) fn memory(text: &str) -> MemoryReading {
    let mut found = MemoryReading::default();
    let mut cached = [None; 2];
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let bytes = || number(rest)?.checked_mul(1_024);
        match name {
            "MemTotal" => found.total = bytes(),
            "MemAvailable" => found.available = bytes(),
            "Buffers" => cached[0] = bytes(),
            "Cached" => cached[1] = bytes(),
            "SwapTotal" => found.swap_total = bytes(),
            "SwapFree" => found.swap_free = bytes(),
            "Dirty" => found.dirty = bytes(),
            "Writeback" => found.writeback = bytes(),
            "AnonHugePages" => found.huge = bytes(),
            _ => {}
        }
    }
    found.cached = cached[1].map(|bytes| bytes.saturating_add(cached[0].unwrap_or(0)));
    found
}

/// `/proc/vmstat`.
pub(super) fn vm(text: &str) -> VmCounters {
    let mut found = VmCounters::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        match name {
            "pswpin" => found.swapped_in = number(rest),
            "pswpout" => found.swapped_out = number(rest),
            "pgmajfault" => found.major_faults = number(rest),
            "thp_fault_alloc" => found.huge_faults = number(rest),
            "thp_fault_fallback" => found.huge_fallbacks = number(rest),
            "oom_kill" => found.out_of_memory_kills = number(rest),
            // One for each zone; kernels before 4.10 had one for all.
            _ if name.starts_with("allocstall") => {
                let sum = found.direct_reclaims.unwrap_or(0);
                found.direct_reclaims = number(rest).map(|count| sum.saturating_add(count));
            }
            _ => {}
        }
    }
    found
}

/// One line of `/proc/net/dev`.
pub(super) fn interface(line: &str) -> Option<InterfaceReading> {
    let (name, rest) = line.split_once(':')?;
    let mut numbers = [0; 16];
    let mut words = rest.split_ascii_whitespace();
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    // Received: bytes packets errs drop fifo frame compressed multicast; sent: bytes packets errs drop ...
    let both = |at: usize| [numbers[at], numbers[at + 8]];
    Some(InterfaceReading {
        name: name.trim().into(),
        bytes: both(0),
        packets: both(1),
        errors: both(2),
        dropped: both(3),
    })
}

/// Whether an interface has its own figures: not if nothing has passed it, and not those that come and go with each
/// container or virtual machine.
pub(super) fn is_kept(interface: &InterfaceReading) -> bool {
    const COME_AND_GO: [&str; 6] = ["veth", "cali", "lxc", "vnet", "tap", "cilium"];
    interface.packets != [0, 0] && !COME_AND_GO.iter().any(|name| interface.name.starts_with(name))
}

/// A number of `/proc/net/snmp` or `/proc/net/netstat`: a line of names, then a line of numbers.
pub(super) fn protocol(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|known| known == name)?;
    numbers.split_ascii_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_documents_it() {
        let text = "some avg10=0.06 avg60=0.15 avg300=0.27 total=91793867\n\
                    full avg10=0.06 avg60=0.14 avg300=0.24 total=6803878\n";
        assert_eq!(pressure(text), PressureReading { some_us: Some(91_793_867), full_us: Some(6_803_878) });
        // Kernels before 5.13 have no line for all threads.
        assert_eq!(pressure("some avg10=0.00 total=7\n").full_us, None);
        assert_eq!(pressure("some avg10=0.00 total=x\n"), PressureReading::default());
    }

    #[test]
    fn memory_is_in_bytes_and_what_is_not_there_is_unknown() {
        let found =
            memory("MemTotal:  24731708 kB\nBuffers: 7560 kB\nCached:  828392 kB\nDirty: 0 kB\nbad\n");
        assert_eq!(found.total, Some(24_731_708 << 10));
        assert_eq!(found.cached, Some((828_392 + 7_560) << 10));
        assert_eq!((found.dirty, found.available, found.swap_total), (Some(0), None, None));
    }

    #[test]
    fn direct_reclaims_are_those_of_all_zones() {
        let text = "allocstall_dma 1\nallocstall_normal 20\nallocstall_movable 300\npswpin 4\noom_kill 2\n";
        let found = vm(text);
        assert_eq!(
            (found.direct_reclaims, found.swapped_in, found.out_of_memory_kills),
            (Some(321), Some(4), Some(2))
        );
        assert_eq!((vm("allocstall 9\n").direct_reclaims, vm("").direct_reclaims), (Some(9), None));
    }

    #[test]
    fn an_interface_is_a_name_and_sixteen_numbers() {
        let line = "  eth0: 627180610   30108    3    5    0     0          0         0  2149547   24237    4    6    0     0       0          0";
        let found = interface(line).unwrap();
        assert_eq!(
            (&*found.name, found.bytes, found.packets),
            ("eth0", [627_180_610, 2_149_547], [30_108, 24_237])
        );
        assert_eq!((found.errors, found.dropped), ([3, 4], [5, 6]));
        assert!(is_kept(&found) && !is_kept(&InterfaceReading { name: "veth12".into(), ..found.clone() }));
        assert!(!is_kept(&InterfaceReading { packets: [0, 0], ..found }));
        assert_eq!(interface(" face |bytes    packets"), None);
        assert_eq!(interface("eth0: 1 2 3"), None);
    }

    #[test]
    fn a_protocol_has_its_names_and_its_numbers_in_two_lines() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin CurrEstab RetransSegs\nTcp: 200 12 -1\n";
        assert_eq!(protocol(text, "Tcp", "CurrEstab"), Some(12));
        assert_eq!((protocol(text, "Tcp", "RetransSegs"), protocol(text, "Tcp", "Other")), (None, None));
        assert_eq!(protocol("TcpExt: A\n", "TcpExt", "A"), None);
    }

    #[test]
    fn tasks_are_read_from_stat() {
        assert_eq!(tasks("cpu 1\nprocs_running 6\nprocs_blocked 1\n"), Some((6, 1)));
        assert_eq!(tasks("procs_running 6\n"), None);
    }
}
