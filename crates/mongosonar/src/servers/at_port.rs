//! Which server of this host listens on a port, and on which port a server listens.

use anyhow::{Result, bail};
use sonar_sys::host::listeners::{FoundListeners, Listener, ListenerOrigin};

use crate::exit::usage;

/// Whether a process listens.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ServerPort {
    /// On this port, and perhaps on others.
    Open(u16),
    /// It does not.
    Closed,
    /// Its sockets could not be read, or not all of them.
    Unknown,
}

impl ServerPort {
    /// Of this process, by the sockets that it holds.
    pub fn of(pid: u32, found: &FoundListeners) -> Self {
        let is_held = |one: &&Listener| one.pid == pid && one.origin == ListenerOrigin::Socket;
        match found.listeners.iter().find(is_held) {
            Some(one) => Self::Open(one.address.port()),
            None if found.incomplete.iter().any(|one| one.pid == pid) => Self::Unknown,
            None => Self::Closed,
        }
    }
}

/// The process that listens on a port.
///
/// # Errors
/// There is none, or several.
pub fn process_at_port(found: &FoundListeners, port: u16) -> Result<u32> {
    let list = |listeners: &[&Listener]| {
        let each = listeners.iter().map(|one| format!("{} {} on {}", one.name, one.pid, one.address));
        each.collect::<Vec<_>>().join(", ")
    };
    let mut there: Vec<&Listener> = found.listeners.iter().filter(|one| one.address.port() == port).collect();
    // A process may listen on several addresses.
    there.sort_by_key(|one| one.pid);
    there.dedup_by_key(|one| one.pid);
    let all: Vec<&Listener> = found.listeners.iter().collect();
    match (there.as_slice(), all.as_slice(), found.incomplete.first()) {
        ([one], ..) => Ok(one.pid),
        // Each network namespace has its own ports.
        ([_, ..], ..) => {
            Err(usage!("several servers listen on port {port}, so --pid is needed: {}", list(&there)))
        }
        (_, _, Some(incomplete)) => bail!("no server is known to listen on port {port}: {incomplete}"),
        (_, [], _) => bail!("no server listens on port {port}: no mongod or mongos runs here"),
        (_, all, _) => Err(usage!("no server listens on port {port}; found: {}", list(all))),
    }
}

#[cfg(test)]
mod tests {
    use sonar_sys::host::listeners::Incomplete;

    use super::*;

    fn listener(pid: u32, address: &str) -> Listener {
        let address = address.parse().unwrap();
        Listener { pid, name: "mongod".into(), address, origin: ListenerOrigin::Socket }
    }

    fn incomplete(pid: u32) -> Incomplete {
        let reason = "permission denied".to_owned();
        Incomplete { pid, name: "mongod".into(), reason, is_cut: false }
    }

    #[test]
    fn a_socket_table_that_could_not_be_read_is_no_closed_port() {
        let found = FoundListeners {
            listeners: vec![
                listener(1, "127.0.0.1:27017"),
                listener(1, "127.0.0.1:28017"),
                Listener { origin: ListenerOrigin::CommandLine, ..listener(2, "127.0.0.1:27018") },
                // Of two tables one was read.
                listener(3, "127.0.0.1:27019"),
            ],
            incomplete: vec![incomplete(2), incomplete(3), incomplete(4)],
        };
        let expected = [
            (1, ServerPort::Open(27_017)),
            (2, ServerPort::Unknown),
            (3, ServerPort::Open(27_019)),
            (4, ServerPort::Unknown),
            (5, ServerPort::Closed),
        ];
        for (pid, port) in expected {
            assert_eq!(ServerPort::of(pid, &found), port, "process {pid}");
        }
    }

    #[test]
    fn the_process_at_a_port_is_found() {
        let found = FoundListeners {
            listeners: vec![
                listener(712, "127.0.0.1:27017"),
                listener(713, "127.0.0.1:27018"),
                listener(714, "0.0.0.0:27018"),
                listener(712, "[::1]:27017"),
            ],
            incomplete: Vec::new(),
        };
        assert_eq!(process_at_port(&found, 27_017).unwrap(), 712);
        let several = process_at_port(&found, 27_018).unwrap_err().to_string();
        assert!(several.contains("mongod 713 on 127.0.0.1:27018, mongod 714 on 0.0.0.0:27018"), "{several}");
        let none = process_at_port(&found, 27_019).unwrap_err().to_string();
        assert!(none.contains("no server listens on port 27019; found: mongod 712"), "{none}");
    }

    #[test]
    fn a_port_that_cannot_be_seen_is_not_said_to_be_closed() {
        let found = FoundListeners { listeners: Vec::new(), incomplete: vec![incomplete(5)] };
        let error = process_at_port(&found, 27_017).unwrap_err().to_string();
        assert!(error.contains("is known to listen") && error.contains("process 5"), "{error}");
        let none = process_at_port(&FoundListeners::default(), 27_017).unwrap_err().to_string();
        assert!(none.contains("no mongod or mongos runs here"), "{none}");
    }
}
