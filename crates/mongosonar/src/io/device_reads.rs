//! Bytes that a server on this host has read from its devices.
//!
//! A helper process reads the kernel's counters: that takes the right to look at processes of other users, which nobody
//! needs who talks to a server.

use std::io;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use sonar_sys::Host;
use sonar_sys::host::listeners::Listener;
use sonar_sys::privileges::Duty;

use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{HelperChannel, answer, serve};
use crate::confinement::privileges::{HELPER_BYTES, HelperTask};
use crate::servers;

/// What the helper is asked. It answers with the bytes that all threads of the process have read so far, if it is known and
/// may be looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ReadsQuestion {
    /// From now on it is about the only mongod that listens on this port.
    At(u16),
    /// The same process again.
    Again,
}

/// The helper, which does not know yet which server it is about.
pub struct ReadsHelper(HelperChannel);

impl ReadsHelper {
    /// Starts the helper. Call it before any thread is started. `None` if that is not possible, which it says.
    pub fn start() -> Option<Self> {
        let task = HelperTask {
            name: "sonar-reads",
            what: "counting what a server reads from its devices",
            memory: HELPER_BYTES,
            keep: INSPECTING,
            duty: Duty::Observing,
        };
        HelperChannel::start(task, answer_all).map(Self)
    }

    /// For the server at this address (`host:port`), if it is a mongod of this host that may be looked at.
    pub fn of(self, address: &str) -> Option<DeviceReads> {
        let port = local_port(address)?;
        bytes(&self.0, ReadsQuestion::At(port)).map(|_| DeviceReads(self.0))
    }
}

/// The process of a server, whose reads the kernel counts.
pub struct DeviceReads(HelperChannel);

impl DeviceReads {
    /// Bytes that all its threads have read so far.
    pub fn bytes(&self) -> Option<u64> {
        bytes(&self.0, ReadsQuestion::Again)
    }
}

fn bytes(helper: &HelperChannel, question: ReadsQuestion) -> Option<u64> {
    helper.ask::<Option<u64>>(&question).ok()?.0
}

/// In the helper: answers until the other side has gone.
fn answer_all(socket: UnixStream) -> io::Result<()> {
    let mut process = None;
    serve(socket, |question: ReadsQuestion| {
        let host = Host::live();
        if let ReadsQuestion::At(port) = question {
            let found = servers::mongod_listeners(&host);
            process = found.ok().and_then(|found| only(&found.listeners, port));
        }
        answer(Ok(process.and_then(|process| host.bytes_of(process)).map(|bytes| bytes.read)))
    })
}

/// The port of an address that names this host.
fn local_port(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    let name = Host::live().name().unwrap_or_default();
    let is_here = ["localhost", "127.0.0.1", "[::1]", "::1", name.as_str()].contains(&host);
    port.parse().ok().filter(|_| is_here)
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
        for address in ["db7.example.net:27017", "localhost", "localhost:x"] {
            assert_eq!(local_port(address), None, "{address}");
        }
        assert_eq!(local_port("[::1]:27018"), Some(27_018));
    }

    #[test]
    fn the_helper_counts_nothing_where_no_mongod_listens() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || answer_all(theirs));
        // The port of a listener that is no mongod.
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap().to_string();
        assert!(ReadsHelper(HelperChannel::patient(ours)).of(&address).is_none());
    }
}
