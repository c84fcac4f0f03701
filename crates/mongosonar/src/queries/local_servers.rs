//! The servers of this host while a capture runs: where they listen, and which of their processes have ended.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sonar_core::Timestamp;
use sonar_decode::EndedServer;
use sonar_sys::Host;
use sonar_sys::helper::Helper;
use sonar_sys::interfaces;
use sonar_sys::privileges::{Duty, capability};

use crate::when::now;
use crate::{privileges, servers};

/// How often to look whether processes have ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often to look for new servers.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// The most servers that are followed.
const MAX_SERVERS: usize = 1_024;
/// The most ports and the most ends in one answer of the helper.
const MAX_ANSWER: u16 = 4_096;

/// A process that listens on a port.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ListeningServer {
    port: u16,
    pid: u32,
    /// In clock ticks since boot.
    started: u64,
}

/// A port whose server has ended, and when its connections were silent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SilentPort {
    port: u16,
    at: Timestamp,
}

/// What a look has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerNews {
    /// The ports that servers listen on now.
    pub ports: Vec<u16>,
    /// The ports of servers whose process has ended since the last look.
    pub ended: Vec<SilentPort>,
}

/// The servers that are known.
#[derive(Debug, Default)]
struct KnownProcesses {
    all: BTreeSet<ListeningServer>,
    searched: Option<Instant>,
}

impl KnownProcesses {
    /// Looks whether processes have ended, and searches for others if that is due. `time` is now.
    fn look(&mut self, host: &Host, time: Timestamp) -> ServerNews {
        let (ended, running): (Vec<_>, BTreeSet<_>) = {
            let has_ended = |one: &ListeningServer| servers::has_ended(host, one.pid, one.started);
            let (ended, running): (BTreeSet<_>, BTreeSet<_>) =
                self.all.iter().partition(|one| has_ended(one));
            (ended.into_iter().collect(), running)
        };
        // One that runs but cannot be found any more is still followed.
        self.all = running;
        if !ended.is_empty() || self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH_EVERY) {
            self.searched = Some(Instant::now());
            self.search(host);
        }
        let mut news = ServerNews::default();
        for one in &ended {
            let others = self.all.iter().filter(|other| other.port == one.port);
            let started = others.map(|other| servers::started_at(other.started, time));
            news.ended.push(SilentPort { port: one.port, at: servers::silent_before(time, started) });
        }
        let ports: BTreeSet<u16> = self.all.iter().map(|one| one.port).collect();
        news.ports = ports.into_iter().collect();
        news
    }

    fn search(&mut self, host: &Host) {
        for found in servers::listeners(host).unwrap_or_default().listeners {
            let Some(stat) = host.stat(found.pid) else { continue };
            if self.all.len() < MAX_SERVERS {
                let port = found.address.port();
                self.all.insert(ListeningServer { port, pid: found.pid, started: stat.started });
            }
        }
    }
}

/// Follows the servers of this host, through a helper where this process may not inspect others any more.
pub struct LocalServerSearch {
    helper: Option<Helper>,
    known: KnownProcesses,
    /// The addresses of this host, besides loopback.
    addresses: Arc<[IpAddr]>,
}

impl LocalServerSearch {
    /// Begins. If this process gives up its privileges (`confined`), call it before any thread runs.
    pub fn start(confined: bool) -> Option<Self> {
        let helper = if confined { Some(helper()?) } else { None };
        let addresses = interfaces::local_addresses().unwrap_or_default().into();
        Some(Self { helper, known: KnownProcesses::default(), addresses })
    }

    /// Looks once a second and tells what it has found, until `stop` has no sender any more.
    pub fn follow(mut self, stop: &Receiver<()>, mut tell: impl FnMut(Vec<u16>, Vec<EndedServer>)) {
        loop {
            if let Some(news) = self.look() {
                let ended = news.ended.iter().map(|one| EndedServer {
                    port: one.port,
                    addresses: self.addresses.clone(),
                    at: one.at,
                });
                tell(news.ports, ended.collect());
            }
            if stop.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn look(&mut self) -> Option<ServerNews> {
        match &self.helper {
            None => Some(self.known.look(&Host::live(), now())),
            Some(helper) => {
                let mut socket = helper.socket().ok()?;
                socket.write_all(&[0]).ok()?;
                ServerNews::read(&mut socket).ok()
            }
        }
    }
}

/// Starts the helper that looks for servers.
fn helper() -> Option<Helper> {
    const KEPT: &[u32] = &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH];
    privileges::helper("following the servers of this host", KEPT, Duty::Reading, |mut socket| {
        let mut known = KnownProcesses::default();
        loop {
            socket.read_exact(&mut [0])?;
            socket.write_all(&known.look(&Host::live(), now()).to_bytes())?;
        }
    })
}

impl ServerNews {
    /// For the socket of the helper: the ports and the ends, each behind their number.
    fn to_bytes(&self) -> Vec<u8> {
        let count = |all: usize| u16::try_from(all).unwrap_or(MAX_ANSWER).min(MAX_ANSWER);
        let (ports, ended) = (count(self.ports.len()), count(self.ended.len()));
        let mut bytes = ports.to_le_bytes().to_vec();
        bytes.extend(self.ports.iter().take(usize::from(ports)).flat_map(|port| port.to_le_bytes()));
        bytes.extend(ended.to_le_bytes());
        for one in self.ended.iter().take(usize::from(ended)) {
            bytes.extend(one.port.to_le_bytes());
            bytes.extend(one.at.unix_ns().to_le_bytes());
        }
        bytes
    }

    fn read(from: &mut impl Read) -> io::Result<Self> {
        let ports = (0..read_u16(from)?).map(|_| read_u16(from)).collect::<io::Result<_>>()?;
        let ended = (0..read_u16(from)?).map(|_| {
            let port = read_u16(from)?;
            let mut time = [0; 8];
            from.read_exact(&mut time)?;
            Ok(SilentPort { port, at: Timestamp::from_unix_ns(u64::from_le_bytes(time)) })
        });
        Ok(Self { ports, ended: ended.collect::<io::Result<_>>()? })
    }
}

fn read_u16(from: &mut impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    from.read_exact(&mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_answers_with_what_it_has_found() {
        let at = Timestamp::from_unix(1_700_000_000, 5);
        let ended = vec![SilentPort { port: 27_018, at }, SilentPort { port: 9, at }];
        for news in [
            ServerNews::default(),
            ServerNews { ports: vec![27_017, 27_018], ended: Vec::new() },
            ServerNews { ports: vec![27_017], ended },
        ] {
            let bytes = news.to_bytes();
            assert_eq!(ServerNews::read(&mut bytes.as_slice()).unwrap(), news);
            for cut in 0..bytes.len() {
                assert!(ServerNews::read(&mut &bytes[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn an_end_is_told_once_and_before_the_next_process_at_its_port() {
        let host = Host::live();
        let own = host.stat(std::process::id()).expect("this process").started;
        let this = ListeningServer { port: 5, pid: std::process::id(), started: own };
        let gone = ListeningServer { port: 5, pid: u32::MAX, started: 1 };
        let other = ListeningServer { port: 6, ..gone };
        let mut known = KnownProcesses { all: [this, gone, other].into(), searched: Some(Instant::now()) };
        let time = now();
        let news = known.look(&host, time);
        assert!(news.ports.contains(&5) && !known.all.contains(&gone) && !known.all.contains(&other));
        let mut ended = news.ended;
        ended.sort_by_key(|one| one.port);
        assert_eq!(ended.iter().map(|one| one.port).collect::<Vec<_>>(), [5, 6]);
        assert!(ended[0].at < time, "the process that runs had started then");
        assert_eq!(ended[1].at, time);
        // Servers of other tests may end meanwhile.
        let again = known.look(&host, time).ended;
        assert!(again.iter().all(|one| !matches!(one.port, 5 | 6)), "{again:?}");
    }
}
