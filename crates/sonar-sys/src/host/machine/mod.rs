//! Reads what a machine and the processes of its servers do.
//!
//! Made to be called every few seconds for years: buffers are kept, and what hardly ever changes (mounts, names of
//! threads, limits) is read again only now and then.

mod file_systems;
mod process;
mod tables;
#[cfg(test)]
mod tests;
pub(super) mod text;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::ClockId;
use sonar_core::Timestamp;
use sonar_core::disk::{DeviceCounters, DiskCounters};
use sonar_core::machine::{MachineClocks, MachineReading, WatchedProcess};

use self::file_systems::FileSystems;
use self::process::ProcessReader;
use self::text::TextBuffer;
use super::{Host, Processors};
use crate::sys::nanoseconds;

/// The most block devices and the most network interfaces of a reading.
const MAX_DEVICES: usize = 64;
/// The most processes of a reading: as many as the agent knows servers.
const MAX_PROCESSES: usize = 128;
/// The most device names that are remembered.
const MAX_NAMES: usize = 4_096;

/// Reads a machine again and again.
#[derive(Debug)]
pub struct MachineReader {
    host: Host,
    buffer: TextBuffer,
    /// Whether the device of a name is a whole one, not a partition.
    whole: BTreeMap<Box<str>, bool>,
    file_systems: FileSystems,
    processes: Vec<ProcessReader>,
}

/// The clocks now.
fn clocks() -> MachineClocks {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    MachineClocks {
        realtime: Timestamp::from_unix_ns(since_1970.as_nanos() as u64),
        monotonic_ns: nanoseconds(ClockId::Monotonic),
        boot_ns: nanoseconds(ClockId::Boottime),
    }
}

impl MachineReader {
    /// Ready to read this host, or a copy of one.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            buffer: TextBuffer::default(),
            whole: BTreeMap::new(),
            file_systems: FileSystems::default(),
            processes: Vec::new(),
        }
    }

    /// Reads the machine and these processes. What cannot be read is absent; a process that has ended too. What processes
    /// read and write ([`ProcessReading::io`](sonar_core::machine::ProcessReading::io)) is absent as well: whoever reads it
    /// may have to wait, see [`Host::bytes_of`].
    pub fn read(&mut self, servers: &[WatchedProcess]) -> MachineReading {
        let mut reading = MachineReading { clocks: clocks(), ..MachineReading::default() };
        self.read_processors(&mut reading);
        self.read_memory(&mut reading);
        self.read_network(&mut reading);
        self.read_disks(&mut reading);
        self.file_systems.read(&self.host, &mut reading);
        self.read_processes(servers, &mut reading);
        reading
    }

    fn read_processors(&mut self, reading: &mut MachineReading) {
        let Self { host, buffer, .. } = self;
        if let Some(text) = buffer.read(&host.path("proc/stat")) {
            reading.cpu = Processors::parse(text).map(|found| found.ticks());
            reading.tasks = tables::tasks(text);
        }
        if let Some(text) = buffer.read(&host.path("proc/loadavg")) {
            reading.load = text.split(' ').next().and_then(|load| load.parse().ok());
        }
        for (name, pressure) in [
            ("cpu", &mut reading.pressure_cpu),
            ("memory", &mut reading.pressure_memory),
            ("io", &mut reading.pressure_io),
        ] {
            if let Some(text) = buffer.read(&host.path(&format!("proc/pressure/{name}"))) {
                *pressure = tables::pressure(text);
            }
        }
        // The kernel writes zeros: all threads that are not idle cannot wait for all processors.
        reading.pressure_cpu.full_us = None;
    }

    fn read_memory(&mut self, reading: &mut MachineReading) {
        let Self { host, buffer, .. } = self;
        if let Some(text) = buffer.read(&host.path("proc/meminfo")) {
            reading.memory = tables::memory(text);
        }
        if let Some(text) = buffer.read(&host.path("proc/vmstat")) {
            reading.vm = tables::vm(text);
        }
    }

    fn read_network(&mut self, reading: &mut MachineReading) {
        let Self { host, buffer, .. } = self;
        if let Some(text) = buffer.read(&host.path("proc/net/dev")) {
            let mut interfaces = text.lines().filter_map(tables::interface).filter(tables::is_kept);
            reading.interfaces = interfaces.by_ref().take(MAX_DEVICES).collect();
            reading.left_out += interfaces.count() as u64;
        }
        if let Some(text) = buffer.read(&host.path("proc/net/snmp")) {
            reading.tcp.connections = tables::protocol(text, "Tcp", "CurrEstab");
            reading.tcp.retransmitted = tables::protocol(text, "Tcp", "RetransSegs");
        }
        if let Some(text) = buffer.read(&host.path("proc/net/netstat")) {
            reading.tcp.listen_overflows = tables::protocol(text, "TcpExt", "ListenOverflows");
        }
    }

    fn read_disks(&mut self, reading: &mut MachineReading) {
        let Self { host, buffer, whole, .. } = self;
        let Some(text) = buffer.read(&host.path("proc/diskstats")) else { return };
        for (number, name, counters) in text.lines().filter_map(DiskCounters::parse) {
            if counters.reads + counters.writes == 0 || !is_whole(host, whole, name) {
                continue;
            }
            if reading.disks.len() >= MAX_DEVICES {
                reading.left_out += 1;
                continue;
            }
            reading.disks.push(DeviceCounters { number, name: name.to_owned(), counters });
        }
    }

    fn read_processes(&mut self, servers: &[WatchedProcess], reading: &mut MachineReading) {
        let Self { host, buffer, processes, .. } = self;
        processes.retain(|known| servers.iter().any(|server| server.pid == known.pid()));
        for server in servers {
            let at = match processes.iter().position(|known| known.pid() == server.pid) {
                Some(at) => at,
                None if processes.len() >= MAX_PROCESSES => {
                    reading.left_out += 1;
                    continue;
                }
                None => {
                    processes.push(ProcessReader::new(server.pid));
                    processes.len() - 1
                }
            };
            if let Some(mut process) = processes[at].read(host, buffer) {
                process.server = server.server;
                reading.left_out += u64::from(process.threads_left_out);
                reading.processes.push(process);
            }
        }
    }
}

/// Whether a device is a whole one; the answer is kept. Names of devices that come and go are few.
fn is_whole(host: &Host, known: &mut BTreeMap<Box<str>, bool>, name: &str) -> bool {
    if let Some(is_whole) = known.get(name) {
        return *is_whole;
    }
    if known.len() >= MAX_NAMES {
        known.clear();
    }
    let is_whole = !name.contains('/') && host.path(&format!("sys/block/{name}")).exists();
    known.insert(name.into(), is_whole);
    is_whole
}
