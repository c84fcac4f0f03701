//! The servers of this host while a capture runs: where they listen, and which of their processes have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sonar_core::Timestamp;
use sonar_decode::EndedServer;
use sonar_sys::Host;
use sonar_sys::host::listeners::Listener;
use sonar_sys::interfaces;
use sonar_sys::privileges::Duty;

use crate::args::when::now;
use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{self, HelperChannel};
use crate::confinement::privileges::{self, HelperTask};
use crate::servers::{self, ListeningPort};

/// How often to look whether processes have ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often to look for new servers, besides when a process of one has started.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// In how many looks a new process that is no server may become one: a shell starts it.
const MAY_BECOME: u8 = 10;
/// In how many looks a new process of a server may begin to listen. A later one is found by the usual search.
const MAY_LISTEN: u8 = 60;
/// The most processes that are remembered.
const MAX_PROCESSES: usize = 1 << 20;
/// The most servers that are followed.
const MAX_SERVERS: usize = 1_024;
/// The most ports, and the most addresses of this host, in one answer of the helper.
const MAX_ANSWER: usize = 2_048;

/// The most addresses of the network of one server.
const MAX_ADDRESSES: usize = 16;

/// A process that listens on a port.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ListeningServer {
    port: u16,
    pid: u32,
    /// In clock ticks since boot.
    started: u64,
}

/// The addresses of a network namespace that is not ours, besides loopback; `None`: it is ours.
type OtherNetwork = Option<BTreeSet<IpAddr>>;

/// A port whose server has ended, and when its connections were silent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SilentPort {
    port: u16,
    #[serde(with = "unix_ns")]
    at: Timestamp,
    /// Where the server was.
    network: OtherNetwork,
    /// Whether it may have been reached at the addresses of this host: in its network, or as its port was published there
    /// and no server of this host has it.
    is_at_host: bool,
}

/// Where a process listens.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListeningAt {
    /// The process.
    pub pid: u32,
    /// The address, or an unspecified one.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
}

/// The addresses of this host, and where its servers listen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ListeningServers {
    /// Besides loopback.
    pub addresses: Vec<IpAddr>,
    /// In no order.
    pub listening: Vec<ListeningAt>,
}

impl ListeningServers {
    /// Those of this host now, as far as they can be read.
    pub fn here() -> Self {
        let found = servers::listeners(&Host::live()).unwrap_or_default().listeners;
        Self { addresses: interfaces::local_addresses().unwrap_or_default(), listening: all(&found) }
    }
}

fn all(found: &[Listener]) -> Vec<ListeningAt> {
    let at = |one: &Listener| ListeningAt { pid: one.pid, ip: one.address.ip(), port: one.address.port() };
    found.iter().map(at).collect()
}

/// What a look has found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerNews {
    /// The ports that servers listen on now.
    pub ports: Vec<u16>,
    /// The ports of servers whose process has ended since the last look.
    pub ended: Vec<SilentPort>,
    /// The addresses of this host, and where servers listen; `None` if this look was no search, or it failed.
    pub found: Option<ListeningServers>,
}

/// The servers that are known.
#[derive(Debug, Default)]
struct KnownProcesses {
    all: BTreeMap<ListeningServer, OtherNetwork>,
    searched: Option<Instant>,
    processes: ProcessLooks,
}

/// The processes of this host, and in how many looks each of them was seen.
#[derive(Debug, Default)]
struct ProcessLooks(Option<BTreeMap<u32, u8>>);

impl ProcessLooks {
    /// Looks at the new ones; whether one of them is that of a server that has just started, and may listen by now.
    fn look(&mut self, host: &Host, known: &BTreeMap<ListeningServer, OtherNetwork>) -> bool {
        let Ok(ids) = host.process_ids() else { return false };
        // Those that were there first are found by a search.
        let first = if self.0.is_some() { 0 } else { MAY_BECOME };
        let before = self.0.take().unwrap_or_default();
        let mut has_started = false;
        let look = |pid: u32| {
            let looks = before.get(&pid).copied().unwrap_or(first);
            let may_start = looks < MAY_LISTEN && !known.keys().any(|one| one.pid == pid);
            let is_server = may_start && servers::is_serving(host, pid);
            has_started |= is_server;
            let is_settled = !is_server && looks >= MAY_BECOME;
            (pid, if is_settled { MAY_LISTEN } else { looks.saturating_add(1) })
        };
        self.0 = Some(ids.into_iter().take(MAX_PROCESSES).map(look).collect());
        has_started
    }
}

impl KnownProcesses {
    /// Looks whether processes have ended, and searches for others if that is due. `time` is now.
    fn look(&mut self, host: &Host, time: Timestamp) -> ServerNews {
        let (ended, running): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(|(one, _)| servers::has_ended(host, one.pid, one.started));
        // One that runs but cannot be found any more is still followed.
        self.all = running;
        let has_started = self.processes.look(host, &self.all);
        let mut news = ServerNews::default();
        if has_started
            || !ended.is_empty()
            || self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH_EVERY)
        {
            self.searched = Some(Instant::now());
            news.found = self.search(host);
        }
        for (one, network) in ended {
            let port = one.port;
            let others = || self.all.iter().filter(move |(other, _)| other.port == port);
            let has_host = others().any(|(_, other)| other.is_none());
            let is_at_host = |network: &OtherNetwork| network.is_none() || !has_host;
            // Another one keeps a connection only if that may be to it.
            let may_be_it =
                |other: &OtherNetwork| *other == network || is_at_host(&network) && is_at_host(other);
            let started = others().filter(|(_, other)| may_be_it(other));
            let started = started.map(|(other, _)| servers::started_at(other.started, time));
            let at = servers::silent_before(time, started);
            let is_at_host = is_at_host(&network);
            news.ended.push(SilentPort { port, at, network, is_at_host });
        }
        let ports = self.all.keys().map(|one| ListeningPort { pid: one.pid, port: one.port });
        news.ports = servers::ports_of_servers(host, ports);
        news
    }

    /// `None` if something of it cannot be read: what was found before stays true.
    fn search(&mut self, host: &Host) -> Option<ListeningServers> {
        let listeners = servers::listeners(host).ok()?.listeners;
        for found in &listeners {
            let Some(stat) = host.stat(found.pid) else { continue };
            if self.all.len() < MAX_SERVERS {
                let (port, pid) = (found.address.port(), found.pid);
                let network = host.addresses_of_other_network(pid);
                self.all.insert(ListeningServer { port, pid, started: stat.started }, network);
            }
        }
        let addresses = host.addresses().ok()?.into_iter().collect();
        Some(ListeningServers { addresses, listening: all(&listeners) })
    }
}

/// Follows the servers of this host, through a helper where this process may not inspect others any more.
pub struct LocalServerSearch {
    helper: Option<SearchHelper>,
    known: KnownProcesses,
    /// The addresses that this host had at the start.
    addresses: Vec<IpAddr>,
}

impl LocalServerSearch {
    /// Begins. If this process gives up its privileges (`confined`), call it before any thread runs.
    pub fn start(confined: bool) -> Option<Self> {
        let helper = if confined { Some(helper()?) } else { None };
        let addresses = interfaces::local_addresses().unwrap_or_default();
        Some(Self { helper, known: KnownProcesses::default(), addresses })
    }

    /// Looks once a second and tells what it has found, until `stop` has no sender any more.
    pub fn follow(mut self, stop: &Receiver<()>, mut tell: impl FnMut(ServerNews, Vec<EndedServer>)) {
        loop {
            if let Some(news) = self.look() {
                let ended = self.ended(&news);
                tell(news, ended);
            }
            if stop.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// The servers that have ended, at the addresses of the start and of now: connections to both were captured.
    fn ended(&self, news: &ServerNews) -> Vec<EndedServer> {
        let now = news.found.iter().flat_map(|found| &found.addresses);
        let of_host: BTreeSet<IpAddr> = self.addresses.iter().chain(now).copied().collect();
        let server = |one: &SilentPort| {
            let mut addresses = if one.is_at_host { of_host.clone() } else { BTreeSet::new() };
            addresses.extend(one.network.iter().flatten());
            let addresses = addresses.into_iter().collect();
            EndedServer { port: one.port, addresses, has_loopback: one.is_at_host, at: one.at }
        };
        news.ended.iter().map(server).collect()
    }

    fn look(&mut self) -> Option<ServerNews> {
        match &mut self.helper {
            None => Some(self.known.look(&Host::live(), now())),
            Some(helper) => helper.look(),
        }
    }
}

/// Asks the helper for what it finds now.
#[derive(Debug, Serialize, Deserialize)]
struct SearchRequest {
    /// The answer before did not arrive in time.
    missed: bool,
}

/// The helper that looks for servers.
struct SearchHelper {
    channel: HelperChannel,
    /// Whether the last answer did not come in time: what it says is asked for again.
    missed: bool,
}

impl SearchHelper {
    /// What it finds now; `None` if it does not answer now.
    fn look(&mut self) -> Option<ServerNews> {
        let answer = self.channel.ask(&SearchRequest { missed: self.missed });
        self.missed = answer.is_err();
        answer.ok().map(|(news, _): (ServerNews, _)| news.bounded())
    }
}

/// In the helper: answers with what `look` finds, together with the answer before if that was missed.
fn serve(socket: UnixStream, mut look: impl FnMut() -> ServerNews) -> io::Result<()> {
    let mut told = ServerNews::default();
    helper_channel::serve(socket, |request: SearchRequest| {
        let before = std::mem::take(&mut told);
        told = if request.missed { before.followed_by(look()) } else { look() }.bounded();
        helper_channel::answer(Ok(&told))
    })
}

/// Starts the helper that looks for servers.
fn helper() -> Option<SearchHelper> {
    let what = "following the servers of this host";
    let memory = privileges::HELPER_BYTES;
    let task = HelperTask { name: "sonar-servers", what, memory, keep: INSPECTING, duty: Duty::Reading };
    let channel = HelperChannel::start(task, |socket| {
        let mut known = KnownProcesses::default();
        serve(socket, || known.look(&Host::live(), now()))
    })?;
    Some(SearchHelper { channel, missed: false })
}

impl ServerNews {
    /// What this look and the next one have found.
    fn followed_by(mut self, next: Self) -> Self {
        self.ended.extend(next.ended);
        self.ended.truncate(MAX_SERVERS);
        Self { ports: next.ports, ended: self.ended, found: next.found.or(self.found) }
    }

    /// With no more than an answer may have, for the helper that writes it and for whoever reads it.
    fn bounded(mut self) -> Self {
        self.ports.truncate(MAX_ANSWER);
        self.ended.truncate(MAX_SERVERS);
        // An answer that is too long would be refused, and asked for again.
        for network in self.ended.iter_mut().filter_map(|one| one.network.as_mut()) {
            while network.len() > MAX_ADDRESSES {
                network.pop_last();
            }
        }
        if let Some(found) = &mut self.found {
            found.addresses.truncate(MAX_ANSWER);
            found.listening.truncate(MAX_ANSWER);
        }
        self
    }
}

/// Times, as nanoseconds since 1970.
mod unix_ns {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use sonar_core::Timestamp;

    pub fn serialize<S: Serializer>(at: &Timestamp, writer: S) -> Result<S::Ok, S::Error> {
        at.unix_ns().serialize(writer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<Timestamp, D::Error> {
        Ok(Timestamp::from_unix_ns(u64::deserialize(reader)?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_helper_answers_with_what_it_has_found() {
        let at = Timestamp::from_unix(1_700_000_000, 5);
        let network = ["172.17.0.2", "fd00::3"].map(|text| text.parse().unwrap()).into();
        let ended = vec![
            SilentPort { port: 27_018, at, network: None, is_at_host: true },
            SilentPort { port: 9, at, network: Some(network), is_at_host: false },
            SilentPort { port: 9, at, network: Some(BTreeSet::new()), is_at_host: true },
        ];
        let addresses = ["192.0.2.2", "fd00::2"].map(|text| text.parse().unwrap()).to_vec();
        for news in [
            ServerNews::default(),
            ServerNews { ports: vec![27_017, 27_018], ..ServerNews::default() },
            ServerNews {
                ports: vec![27_017],
                ended,
                found: Some(ListeningServers {
                    addresses,
                    listening: vec![ListeningAt { pid: 7, ip: "::".parse().unwrap(), port: 27_017 }],
                }),
            },
        ] {
            let text = serde_json::to_string(&news).unwrap();
            assert_eq!(serde_json::from_str::<ServerNews>(&text).unwrap(), news);
        }
        let address = IpAddr::from([u16::MAX; 8]);
        let network: BTreeSet<IpAddr> = (0..100).map(|last| IpAddr::from([u16::MAX - last; 8])).collect();
        let at = Timestamp::from_unix_ns(u64::MAX);
        let end = SilentPort { port: u16::MAX, at, network: Some(network), is_at_host: false };
        let all = ServerNews {
            ports: vec![u16::MAX; 9_999],
            ended: vec![end; 9_999],
            found: Some(ListeningServers {
                addresses: vec![address; 9_999],
                listening: vec![ListeningAt { pid: u32::MAX, ip: address, port: u16::MAX }; 9_999],
            }),
        };
        let answer = helper_channel::answer(Ok(all.bounded())).unwrap();
        let sent: Result<ServerNews, serde_json::Value> = serde_json::from_slice(&answer.bytes).unwrap();
        assert_eq!(sent.unwrap().ended.len(), MAX_SERVERS, "the longest answer is not refused");
        for wrong in ["", "{", "[1]", r#"{"ports":[70000],"ended":[],"found":null}"#] {
            assert!(serde_json::from_str::<ServerNews>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_said_too_late_is_said_again_and_nothing_twice() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let channel = HelperChannel::impatient(ours, Duration::from_millis(20));
        let mut helper = SearchHelper { channel, missed: false };
        // Nobody answers yet.
        assert_eq!(helper.look(), None);
        let mut looks = 0..;
        std::thread::spawn(move || {
            serve(theirs, || {
                let port = looks.next().unwrap();
                let found = (port == 0).then(ListeningServers::default);
                let ended = vec![SilentPort { port, at: now(), network: None, is_at_host: true }];
                ServerNews { ports: vec![port], ended, found }
            })
        });
        let (mut ended, mut found) = (Vec::new(), 0);
        // Any of them may be late.
        for _ in 0..10_000 {
            if ended.len() >= 3 {
                break;
            }
            let Some(news) = helper.look() else { continue };
            assert_eq!(news.ports.last(), news.ended.last().map(|one| &one.port));
            ended.extend(news.ended.iter().map(|one| one.port));
            found += usize::from(news.found.is_some());
        }
        assert_eq!((&ended[..3], found), (&[0, 1, 2][..], 1));
    }

    /// A process that listens on port 5, or on none yet.
    fn process(proc: &Path, pid: u32, (name, listens): (&str, bool)) {
        let folder = proc.join(pid.to_string());
        for part in ["fd", "net", "ns"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        fs::write(folder.join("cmdline"), format!("{name}\0")).unwrap();
        let rest = "1 77 77 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 0 0 0";
        fs::write(folder.join("stat"), format!("{pid} (x) S {rest}")).unwrap();
        let row =
            "   0: 0100007F:0005 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 7 1";
        fs::write(folder.join("net/tcp"), format!("heading\n{row}\n")).unwrap();
        if listens {
            symlink("socket:[7]", folder.join("fd/3")).unwrap();
        }
    }

    #[test]
    fn a_server_that_is_killed_soon_after_its_start_is_noticed() {
        let proc = tempfile::tempdir().unwrap();
        let (host, time) = (Host::of_proc(proc.path()), now());
        fs::write(proc.path().join("uptime"), "1 1\n").unwrap();
        fs::create_dir(proc.path().join("net")).unwrap();
        fs::write(proc.path().join("net/fib_trie"), "Local:\n").unwrap();
        process(proc.path(), 6, ("bash", false));
        let mut known = KnownProcesses::default();
        assert_eq!(
            known.look(&host, time),
            ServerNews { found: Some(Default::default()), ..Default::default() }
        );
        // The next search by the clock is not due in any of these looks.
        let look = |known: &mut KnownProcesses| {
            known.searched = Some(Instant::now());
            known.look(&host, time)
        };
        process(proc.path(), 7, ("bash", false));
        assert_eq!(look(&mut known).ports, [0; 0]);
        process(proc.path(), 7, ("mongod", false));
        assert_eq!(look(&mut known).ports, [0; 0], "it does not listen yet");
        process(proc.path(), 7, ("mongod", true));
        let news = look(&mut known);
        let at = ListeningAt { pid: 7, ip: "127.0.0.1".parse().unwrap(), port: 5 };
        assert_eq!((news.ports, news.found.unwrap().listening), (vec![5], vec![at]));
        assert_eq!(look(&mut known).found, None);
        let routes = "Local:\n  |-- 192.0.2.2\n     /32 host LOCAL\n";
        fs::write(proc.path().join("net/fib_trie"), routes).unwrap();
        fs::remove_dir_all(proc.path().join("7")).unwrap();
        let news = look(&mut known);
        assert_eq!((news.ended.len(), news.ended[0].port, news.ports.len()), (1, 5, 0));
        // The address is newer than the capture.
        let [old, new] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let search = LocalServerSearch { helper: None, known, addresses: vec![old] };
        assert_eq!(*search.ended(&news)[0].addresses, [old, new]);
    }

    #[test]
    fn the_end_of_a_server_in_a_container_is_at_its_own_addresses() {
        let proc = tempfile::tempdir().unwrap();
        let (host, time) = (Host::of_proc(proc.path()), now());
        fs::write(proc.path().join("uptime"), "1 1\n").unwrap();
        fs::create_dir(proc.path().join("net")).unwrap();
        fs::write(proc.path().join("net/fib_trie"), "Local:\n  |-- 192.0.2.2\n     /32 host LOCAL\n")
            .unwrap();
        for (pid, network) in [("self", "1"), ("7", "2"), ("8", "1")] {
            if pid != "self" {
                process(proc.path(), pid.parse().unwrap(), ("mongod", true));
            }
            fs::create_dir_all(proc.path().join(pid).join("ns")).unwrap();
            symlink(format!("net:[{network}]"), proc.path().join(pid).join("ns/net")).unwrap();
            symlink("user:[1]", proc.path().join(pid).join("ns/user")).unwrap();
        }
        fs::write(proc.path().join("7/net/fib_trie"), "|-- 172.17.0.2\n/32 host LOCAL\n").unwrap();
        let mut known = KnownProcesses::default();
        assert_eq!(known.look(&host, time).ports, [5]);
        let [of_host, own] = ["192.0.2.2", "172.17.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let search =
            LocalServerSearch { helper: None, known: KnownProcesses::default(), addresses: vec![of_host] };
        let ended = |known: &mut KnownProcesses, pid: &str| {
            fs::remove_dir_all(proc.path().join(pid)).unwrap();
            let [ended] = &search.ended(&known.look(&host, time))[..] else { panic!("one end") };
            assert_eq!(ended.at, time, "the other one, which is older, keeps nothing of it");
            (ended.addresses.to_vec(), ended.has_loopback)
        };
        let mut alone = KnownProcesses { all: known.all.clone(), ..KnownProcesses::default() };
        assert_eq!(
            ended(&mut known, "7"),
            (vec![own], false),
            "the port of this host is that of the other one"
        );
        assert_eq!(ended(&mut known, "8"), (vec![of_host], true));
        // Its port may be published at this host.
        alone.all.retain(|one, _| one.pid == 7);
        let news = alone.look(&host, time);
        let [server] = &search.ended(&news)[..] else { panic!("one end") };
        assert_eq!((server.addresses.to_vec(), server.has_loopback), (vec![own, of_host], true));
    }

    #[test]
    fn a_search_that_fails_has_found_nothing_new() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, table) = (folder.path().join("proc"), folder.path().join("proc/net/fib_trie"));
        fs::create_dir_all(proc.join("net")).unwrap();
        fs::write(&table, "Local:\n  |-- 192.0.2.1\n     /32 host LOCAL\n").unwrap();
        process(&proc, 7, ("mongod", true));
        let (host, mut known) = (Host::of_proc(&proc), KnownProcesses::default());
        let mut search = || {
            known.searched = None;
            known.look(&host, now())
        };
        let found = search().found.unwrap();
        assert_eq!((found.addresses.len(), found.listening.len()), (1, 1));
        fs::remove_file(&table).unwrap();
        assert_eq!(search(), ServerNews { ports: vec![5], ..ServerNews::default() });
        fs::write(&table, "Local:\n").unwrap();
        assert!(search().found.is_some());
    }

    #[test]
    fn an_end_is_told_once_and_before_the_next_process_at_its_port() {
        let host = Host::live();
        let own = host.stat(std::process::id()).expect("this process").started;
        let this = ListeningServer { port: 5, pid: std::process::id(), started: own };
        let gone = ListeningServer { port: 5, pid: u32::MAX, started: 1 };
        let other = ListeningServer { port: 6, ..gone };
        let mut known = KnownProcesses {
            all: [this, gone, other].map(|one| (one, None)).into(),
            searched: Some(Instant::now()),
            ..KnownProcesses::default()
        };
        let time = now();
        let news = known.look(&host, time);
        assert!(!news.ports.contains(&5), "this process runs no program of a server");
        assert!(!known.all.contains_key(&gone) && !known.all.contains_key(&other));
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
