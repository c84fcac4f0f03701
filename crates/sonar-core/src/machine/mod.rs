//! What a machine and the processes of its servers do, as the kernel counts it.
//!
//! A [`MachineReading`] holds the kernel's counters and gauges of one moment. Two of them make values of series
//! ([`MachineMonitor::step`]). What is not known is absent, never zero.

mod group_watch;
mod monitor;
mod process;
mod process_rates;
mod rates;
mod reading;
mod space;
#[cfg(test)]
mod tests;
mod values;

pub use monitor::{MachineMonitor, MachineStep};
pub use process::{ControlGroup, ProcessReading, ThreadReading};
pub use reading::{
    CpuTicks, FileSystemReading, InterfaceReading, MachineClocks, MachineReading, MemoryReading,
    PressureReading, TcpReading, VmCounters, WatchedProcess,
};
