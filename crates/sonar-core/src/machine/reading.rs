//! What is read of a machine at one moment.

use super::process::ProcessReading;
use crate::disk::DeviceCounters;
use crate::{Endpoint, Timestamp};

/// The kernel's clocks at one moment, in nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct MachineClocks {
    /// `CLOCK_REALTIME`, which somebody may set.
    pub realtime: Timestamp,
    /// `CLOCK_MONOTONIC`, which stands still while the machine is suspended, as the counters do.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME`, which goes on while the machine is suspended.
    pub boot_ns: u64,
}

/// A process of a server to read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WatchedProcess {
    /// Its number.
    pub pid: u32,
    /// The server that it is, for the keys of its series.
    pub server: Endpoint,
}

/// What all processors have done since the machine started, in clock ticks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuTicks {
    /// User, nice, system, idle, waiting for disks, interrupts, software interrupts, stolen. The time of guests is in
    /// the first two.
    pub ticks: [u64; 8],
    /// How many processors there are.
    pub processors: u32,
}

/// How long threads have waited for one resource since the machine started, in microseconds (`/proc/pressure`).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PressureReading {
    /// Some thread waited.
    pub some_us: Option<u64>,
    /// All threads that were not idle waited. The kernel does not define it for processors.
    pub full_us: Option<u64>,
}

/// Memory of the machine, in bytes (`/proc/meminfo`).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct MemoryReading {
    pub total: Option<u64>,
    pub available: Option<u64>,
    /// Page cache and buffers.
    pub cached: Option<u64>,
    pub dirty: Option<u64>,
    pub writeback: Option<u64>,
    pub huge: Option<u64>,
    pub swap_total: Option<u64>,
    pub swap_free: Option<u64>,
}

/// Counters of the memory manager since the machine started (`/proc/vmstat`), in pages or events.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct VmCounters {
    pub swapped_in: Option<u64>,
    pub swapped_out: Option<u64>,
    pub major_faults: Option<u64>,
    /// Allocations that freed memory first, of all zones.
    pub direct_reclaims: Option<u64>,
    pub huge_faults: Option<u64>,
    pub huge_fallbacks: Option<u64>,
    /// Processes killed for lack of memory, of the machine or of a control group.
    pub out_of_memory_kills: Option<u64>,
}

/// TCP of the machine (`/proc/net/snmp`, `/proc/net/netstat`).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TcpReading {
    /// Connections established now.
    pub connections: Option<u64>,
    /// Segments sent again.
    pub retransmitted: Option<u64>,
    /// Connections refused by a full listen queue.
    pub listen_overflows: Option<u64>,
}

/// Counters of a network interface (`/proc/net/dev`), received and sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct InterfaceReading {
    pub name: Box<str>,
    pub bytes: [u64; 2],
    pub packets: [u64; 2],
    pub errors: [u64; 2],
    pub dropped: [u64; 2],
}

/// A mounted file system (statvfs(3)).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileSystemReading {
    /// Where it is mounted.
    pub point: Box<str>,
    /// Its size in bytes.
    pub size: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes that users other than root can have.
    pub available: u64,
    /// Inodes, all and free; `None` if it makes them as it needs them.
    pub inodes: Option<(u64, u64)>,
}

impl FileSystemReading {
    /// Per cent of the space that is used, of what users other than root can have, as `df` shows it; `None` if there
    /// is none.
    pub fn used_percent(&self) -> Option<f64> {
        let used = self.size.saturating_sub(self.free);
        let all = used.saturating_add(self.available);
        (all > 0).then(|| 100.0 * used as f64 / all as f64)
    }

    /// Per cent of the inodes that are used; `None` if it makes them as it needs them.
    pub fn inodes_used_percent(&self) -> Option<f64> {
        let (all, free) = self.inodes.filter(|(all, _)| *all > 0)?;
        Some(100.0 * all.saturating_sub(free) as f64 / all as f64)
    }
}

/// A machine at one moment. What could not be read is absent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MachineReading {
    /// When.
    pub clocks: MachineClocks,
    /// Its processors.
    pub cpu: Option<CpuTicks>,
    /// Threads that run or wait for a processor, and threads that wait for a disk.
    pub tasks: Option<(u64, u64)>,
    /// Load, mean of a minute.
    pub load: Option<f64>,
    /// Pressure on processors.
    pub pressure_cpu: PressureReading,
    /// Pressure on memory.
    pub pressure_memory: PressureReading,
    /// Pressure on disks.
    pub pressure_io: PressureReading,
    /// Memory.
    pub memory: MemoryReading,
    /// The memory manager.
    pub vm: VmCounters,
    /// TCP.
    pub tcp: TcpReading,
    /// Network interfaces.
    pub interfaces: Vec<InterfaceReading>,
    /// Whole block devices that have done something.
    pub disks: Vec<DeviceCounters>,
    /// Local file systems that can be written.
    pub file_systems: Vec<FileSystemReading>,
    /// The processes of servers that run.
    pub processes: Vec<ProcessReading>,
    /// Devices, interfaces, file systems and threads beyond the caps.
    pub left_out: u64,
}
