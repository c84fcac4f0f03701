//! Finds processes that are servers; the only place that names MongoDB's programs.

use std::io;

use sonar_sys::Host;
use sonar_sys::host::listeners::{FoundListeners, ListenerSearch};
use sonar_sys::host::process::Process;

/// The program that stores data.
pub const MONGOD: &str = "mongod";
/// The programs of MongoDB that serve clients, and write its log.
const MONGODB: [&str; 2] = [MONGOD, "mongos"];
/// Programs that serve MongoDB's protocol.
const SERVING: [&str; 3] = [MONGOD, "mongos", "ferretdb"];
/// Options that name a port.
const PORT_OPTIONS: [&str; 1] = ["--port"];

/// Every running mongod.
pub fn mongods(host: &Host) -> Vec<Process> {
    host.processes(&[MONGOD])
}

/// The process with this number, if it is a running mongod.
pub fn mongod(host: &Host, pid: u32) -> Option<Process> {
    host.process(pid, &[MONGOD])
}

/// Every running mongod and mongos.
pub fn mongodb(host: &Host) -> Vec<Process> {
    host.processes(&MONGODB)
}

/// Every running mongod and mongos, by its program file: what a process calls itself does not count.
pub fn proven(host: &Host) -> Vec<Process> {
    host.processes_running(&MONGODB)
}

/// Whether the process with this number is a running mongod or mongos, by its program file.
pub fn is_proven(host: &Host, pid: u32) -> bool {
    host.process_running(pid, &MONGODB)
}

/// The ports of all programs that serve MongoDB's protocol.
///
/// # Errors
/// Processes cannot be listed.
pub fn listeners(host: &Host) -> io::Result<FoundListeners> {
    host.listeners(ListenerSearch { names: &SERVING, port_options: &PORT_OPTIONS })
}

/// The ports of every mongod.
///
/// # Errors
/// Processes cannot be listed.
pub fn mongod_listeners(host: &Host) -> io::Result<FoundListeners> {
    host.listeners(ListenerSearch { names: &[MONGOD], port_options: &PORT_OPTIONS })
}
