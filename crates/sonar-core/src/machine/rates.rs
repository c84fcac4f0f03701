//! The values of the machine from two readings.

use super::process_rates;
use super::reading::{CpuTicks, InterfaceReading, MachineReading};
use super::values::Values;
use crate::Endpoint;
use crate::counter::rate;
use crate::disk::{DeviceCounters, DiskRates};
use crate::history::{SeriesMetric, metrics};
use crate::internals::over;
use crate::time::NS_PER_S;

/// Adds the gauges of a reading, and the rates since the one before.
pub(super) fn add_values(before: &MachineReading, now: &MachineReading, values: &mut Values) {
    if let (Some(before), Some(now)) = (&before.cpu, &now.cpu) {
        add_processors(before, now, values);
    }
    let count = |count: Option<u64>| count.map(|count| count as f64);
    values.machine(metrics::LOAD, now.load);
    values.machine(metrics::TASKS_RUNNING, count(now.tasks.map(|tasks| tasks.0)));
    values.machine(metrics::TASKS_BLOCKED, count(now.tasks.map(|tasks| tasks.1)));
    add_pressure(before, now, values);
    add_memory(before, now, values);
    let seconds = values.seconds();
    values.machine(metrics::TCP_CONNECTIONS, count(now.tcp.connections));
    let retransmitted = rate(now.tcp.retransmitted, before.tcp.retransmitted, seconds);
    values.machine(metrics::TCP_RETRANSMITS, retransmitted);
    let overflows = rate(now.tcp.listen_overflows, before.tcp.listen_overflows, seconds);
    values.machine(metrics::TCP_LISTEN_OVERFLOWS, overflows);
    for interface in &now.interfaces {
        let earlier = before.interfaces.iter().find(|earlier| earlier.name == interface.name);
        if let Some(earlier) = earlier {
            add_interface(earlier, interface, values);
        }
    }
    for disk in &now.disks {
        let earlier = before.disks.iter().find(|earlier| disk.continues(earlier));
        if let Some(earlier) = earlier {
            add_disk(earlier, disk, values);
        }
    }
    for found in &now.file_systems {
        let mut add = |metric, value| values.add(metric, Endpoint::default(), &found.point, value);
        add(metrics::FILE_SYSTEM_USED, found.used_percent());
        add(metrics::FILE_SYSTEM_USED_BYTES, Some(found.size.saturating_sub(found.free) as f64));
        add(metrics::FILE_SYSTEM_FREE_BYTES, Some(found.available as f64));
        add(metrics::FILE_SYSTEM_INODES_USED, found.inodes_used_percent());
    }
    let processors = now.cpu.map(|cpu| cpu.processors);
    for process in &now.processes {
        process_rates::add_values(&before.processes, process, processors, values);
    }
}

/// Shares of the time of all processors. Idle times may fall by a little (proc_stat(5)); that counts as none.
fn add_processors(before: &CpuTicks, now: &CpuTicks, values: &mut Values) {
    values.machine(metrics::CPU_COUNT, (now.processors > 0).then(|| f64::from(now.processors)));
    let mut grown = [0; 8];
    for (at, grown) in grown.iter_mut().enumerate() {
        *grown = now.ticks[at].saturating_sub(before.ticks[at]);
    }
    let [user, nice, system, idle, iowait, interrupts, softirq, steal] = grown.map(|ticks| ticks as f64);
    let busy = user + nice + system + interrupts + softirq + steal;
    let mut share = |metric, ticks| values.machine(metric, over(100.0 * ticks, busy + idle + iowait));
    share(metrics::CPU_BUSY, busy);
    share(metrics::CPU_USER, user + nice);
    share(metrics::CPU_SYSTEM, system + interrupts);
    share(metrics::CPU_SOFTIRQ, softirq);
    share(metrics::CPU_IOWAIT, iowait);
    share(metrics::CPU_STEAL, steal);
}

fn add_pressure(before: &MachineReading, now: &MachineReading, values: &mut Values) {
    type Of = fn(&MachineReading) -> Option<u64>;
    let all: [(SeriesMetric, Of); 5] = [
        (metrics::PRESSURE_CPU, |reading| reading.pressure_cpu.some_us),
        (metrics::PRESSURE_MEMORY, |reading| reading.pressure_memory.some_us),
        (metrics::PRESSURE_MEMORY_FULL, |reading| reading.pressure_memory.full_us),
        (metrics::PRESSURE_IO, |reading| reading.pressure_io.some_us),
        (metrics::PRESSURE_IO_FULL, |reading| reading.pressure_io.full_us),
    ];
    for (metric, of) in all {
        let share = rate(of(now), of(before), values.seconds()).map(|us| (us / 1e4).min(100.0));
        values.machine(metric, share);
    }
}

fn add_memory(before: &MachineReading, now: &MachineReading, values: &mut Values) {
    let memory = &now.memory;
    let gauges = [
        (metrics::MEMORY_TOTAL, memory.total),
        (metrics::MEMORY_AVAILABLE, memory.available),
        (metrics::MEMORY_CACHED, memory.cached),
        (metrics::MEMORY_DIRTY, memory.dirty),
        (metrics::MEMORY_WRITEBACK, memory.writeback),
        (metrics::MEMORY_HUGE, memory.huge),
        (
            metrics::MEMORY_SWAP_USED,
            memory.swap_total.zip(memory.swap_free).map(|(all, free)| all.saturating_sub(free)),
        ),
    ];
    for (metric, value) in gauges {
        values.machine(metric, value.map(|bytes| bytes as f64));
    }
    let (before, now) = (&before.vm, &now.vm);
    let counters = [
        (metrics::MEMORY_SWAP_IN, now.swapped_in, before.swapped_in),
        (metrics::MEMORY_SWAP_OUT, now.swapped_out, before.swapped_out),
        (metrics::MEMORY_MAJOR_FAULTS, now.major_faults, before.major_faults),
        (metrics::MEMORY_DIRECT_RECLAIM, now.direct_reclaims, before.direct_reclaims),
        (metrics::MEMORY_HUGE_FAULTS, now.huge_faults, before.huge_faults),
        (metrics::MEMORY_HUGE_FALLBACKS, now.huge_fallbacks, before.huge_fallbacks),
    ];
    for (metric, now, before) in counters {
        values.machine(metric, rate(now, before, values.seconds()));
    }
}

fn add_interface(before: &InterfaceReading, now: &InterfaceReading, values: &mut Values) {
    let seconds = values.seconds();
    let one = |now: [u64; 2], before: [u64; 2], at: usize| rate(Some(now[at]), Some(before[at]), seconds);
    let both = |now, before| Some(one(now, before, 0)? + one(now, before, 1)?);
    let mut add = |metric, value| values.add(metric, Endpoint::default(), &now.name, value);
    add(metrics::NETWORK_RECEIVED, one(now.bytes, before.bytes, 0));
    add(metrics::NETWORK_SENT, one(now.bytes, before.bytes, 1));
    add(metrics::NETWORK_PACKETS_RECEIVED, one(now.packets, before.packets, 0));
    add(metrics::NETWORK_PACKETS_SENT, one(now.packets, before.packets, 1));
    add(metrics::NETWORK_DROPPED, both(now.dropped, before.dropped));
    add(metrics::NETWORK_ERRORS, both(now.errors, before.errors));
}

fn add_disk(before: &DeviceCounters, now: &DeviceCounters, values: &mut Values) {
    let elapsed_ns = (values.seconds() * NS_PER_S as f64) as u64;
    let Some(rates) = DiskRates::between(&before.counters, &now.counters, elapsed_ns) else { return };
    let mut add = |metric, value| values.add(metric, Endpoint::default(), &now.name, value);
    // A mean time of no requests is unknown.
    let wait = |count: f64, ms: f64| (count > 0.0).then_some(ms);
    add(metrics::DISK_READS, Some(rates.reads.per_second));
    add(metrics::DISK_READ_BYTES, Some(rates.reads.kib_per_second * 1_024.0));
    add(metrics::DISK_READ_WAIT, wait(rates.reads.per_second, rates.reads.await_ms));
    add(metrics::DISK_WRITES, Some(rates.writes.per_second));
    add(metrics::DISK_WRITTEN_BYTES, Some(rates.writes.kib_per_second * 1_024.0));
    add(metrics::DISK_WRITE_WAIT, wait(rates.writes.per_second, rates.writes.await_ms));
    add(metrics::DISK_FLUSHES, rates.flushes.map(|(count, _)| count));
    add(metrics::DISK_FLUSH_WAIT, rates.flushes.and_then(|(count, ms)| wait(count, ms)));
    add(metrics::DISK_QUEUE, Some(rates.queue));
    add(metrics::DISK_BUSY, Some(rates.util_percent));
}
