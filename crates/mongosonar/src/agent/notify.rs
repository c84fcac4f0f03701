//! Tells the service manager how the agent is, as `sd_notify(3)` describes: if `NOTIFY_SOCKET` is set, and only then.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sonar_sys::clock;

use crate::locking::lock;

/// The socket of the service manager, if there is one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Watchdog>,
}

/// How often systemd wants a sign of life, and when it got the last one. Several threads give it.
#[derive(Debug)]
struct Watchdog {
    every: Duration,
    last: Mutex<Option<Instant>>,
}

impl Watchdog {
    fn every(every: Duration) -> Self {
        Self { every, last: Mutex::default() }
    }

    /// Whether a sign is due; it counts as given then.
    fn is_due(&self) -> bool {
        let mut last = lock(&self.last);
        let is_due = last.is_none_or(|last| last.elapsed() >= self.every);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

impl ServiceManager {
    /// Connects as the environment says. Messages are sent without any privilege later.
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let Some(address) = variable("NOTIFY_SOCKET") else { return Self::default() };
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables may be meant for a parent.
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 0 && is_ours);
        // Half the time leaves room for one that comes late.
        let watchdog = micros.map(|micros| Watchdog::every(Duration::from_micros(micros / 2)));
        Self { socket: connect(address.as_bytes()), watchdog }
    }

    /// The agent collects.
    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=collecting");
    }

    /// It reads its configuration again; `ready` follows.
    pub fn reloading(&self) {
        let micros = clock::monotonic().as_micros();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// It stores what it has, and ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=storing the open window");
    }

    /// It works. Call it often: a message is sent when one is due.
    pub fn works(&self) {
        if self.watchdog.as_ref().is_some_and(Watchdog::is_due) {
            self.send("WATCHDOG=1");
        }
    }

    /// One that wants a sign of life again and again, at the other end of this socket.
    #[cfg(test)]
    pub fn impatient(socket: UnixDatagram) -> Self {
        Self { socket: Some(socket), watchdog: Some(Watchdog::every(Duration::ZERO)) }
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // There is nobody to report a failure to.
            let _ = socket.send(message.as_bytes());
        }
    }
}

/// A path, or with `@` a name in the abstract namespace.
fn connect(address: &[u8]) -> Option<UnixDatagram> {
    let address = match address.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address)),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn messages_reach_a_socket_by_path_and_by_name() {
        let path = std::env::temp_dir().join(format!("mongosonar-notify-{}", std::process::id()));
        let name = format!("mongosonar-notify-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&by_name).unwrap(), format!("@{name}")),
        ] {
            let watchdog = Some(Watchdog::every(Duration::from_secs(3_600)));
            let manager = ServiceManager { socket: connect(address.as_bytes()), watchdog };
            manager.ready();
            manager.reloading();
            manager.works();
            manager.works();
            manager.stopping();
            assert!(received(&socket).starts_with("READY=1\n"));
            assert!(received(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
            assert_eq!(received(&socket), "WATCHDOG=1");
            assert!(received(&socket).starts_with("STOPPING=1"), "the second WATCHDOG=1 was not due");
        }
        std::fs::remove_file(path).unwrap();
        assert!(connect(b"/nonexistent/socket").is_none());
        ServiceManager::default().ready();
    }
}
