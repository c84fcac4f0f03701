//! Bytes that a server on this host has read from its devices.

use sonar_sys::Host;
use sonar_sys::host::listeners::Listener;

use crate::servers;

/// The process of a server, whose reads the kernel counts.
pub struct DeviceReads {
    process: u32,
}

impl DeviceReads {
    /// For the server at this address (`host:port`), if it is a mongod of this host that we may inspect.
    pub fn of(address: &str) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let here = Host::live();
        let name = here.name().unwrap_or_default();
        if !["localhost", "127.0.0.1", "[::1]", "::1", name.as_str()].contains(&host) {
            return None;
        }
        let found = servers::mongod_listeners(&here).ok()?;
        let process = only(&found.listeners, port)?;
        let reads = Self { process };
        reads.bytes().map(|_| reads)
    }

    /// Bytes that all its threads have read so far.
    pub fn bytes(&self) -> Option<u64> {
        Host::live().bytes_read(self.process)
    }
}

/// The process that listens on this port, if there is only one: another network namespace may have one, too.
fn only(listeners: &[Listener], port: u16) -> Option<u32> {
    let mut processes: Vec<u32> =
        listeners.iter().filter(|found| found.address.port() == port).map(|found| found.pid).collect();
    processes.dedup();
    match processes.as_slice() {
        [process] => Some(*process),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonar_sys::host::listeners::ListenerOrigin;

    #[test]
    fn a_port_of_two_processes_says_nothing() {
        let listener = |pid, port| Listener {
            pid,
            name: "mongod".into(),
            address: ([127, 0, 0, 1], port).into(),
            origin: ListenerOrigin::Socket,
        };
        let all = [listener(1, 27_017), listener(2, 27_018), listener(3, 27_018)];
        assert_eq!(only(&all, 27_017), Some(1));
        assert_eq!(only(&all, 27_018), None);
        assert_eq!(only(&all, 27_019), None);
    }

    #[test]
    fn a_server_elsewhere_is_not_measured() {
        assert!(DeviceReads::of("db7.example.net:27017").is_none());
        assert!(DeviceReads::of("localhost").is_none());
    }
}
