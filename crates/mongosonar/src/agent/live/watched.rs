//! The servers that run on this host now, as all threads see them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sonar_core::history::{Event, EventKind};
use sonar_core::{Endpoint, Timestamp};

use super::client_ends::ClientEnds;
use super::inspector::FoundServer;
use super::known_servers::KnownServers;
use super::names::HistoryNames;
use crate::agent::servers::LocalServers;
use crate::locking::lock;
use crate::servers::data_folders;

/// The most lines about ends of servers that wait.
const MAX_LOGGED: usize = 256;

/// The version of a process.
#[derive(Debug)]
struct KnownVersion {
    /// Its number, and when it started.
    process: (u32, u64),
    version: String,
}

/// A process of another version than the one before it with its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundUpgrade {
    /// Its name in the history.
    pub server: Endpoint,
    /// When the process started, in clock ticks since boot.
    pub started: u64,
    /// The versions before and after.
    pub versions: [String; 2],
}

/// What a log says of the end of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoggedEnd {
    /// This server began to shut down at this time.
    Begins(Endpoint, Timestamp),
    /// It has shut down, or had not done so before this start.
    Ends(Event),
}

/// Where connections to a server of this host may be seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerReach {
    /// Its addresses, besides loopback.
    pub addresses: Arc<[IpAddr]>,
    /// Whether connections over the loopback interface of this host may be to it.
    pub has_loopback: bool,
}

impl ServerReach {
    /// Whether a connection may be to either of them.
    pub fn overlaps(&self, other: &Self) -> bool {
        let is_shared = |address| other.addresses.contains(address);
        self.has_loopback && other.has_loopback || self.addresses.iter().any(is_shared)
    }
}

/// The servers of the last search.
#[derive(Debug, Default)]
pub struct WatchedServers {
    found: Mutex<Arc<Vec<FoundServer>>>,
    /// Tells those with the same port apart.
    names: Mutex<HistoryNames>,
    /// Their versions, where they are known.
    versions: Mutex<BTreeMap<Endpoint, KnownVersion>>,
    /// Processes of another version than those before them.
    upgrades: Mutex<Vec<FoundUpgrade>>,
    /// The time of the last sample of `diagnostic.data` by server.
    sampled: Mutex<BTreeMap<Endpoint, Timestamp>>,
    /// The addresses of this host, besides loopback.
    addresses: Mutex<BTreeSet<IpAddr>>,
    /// Ends of servers found in logs. Windows, with the same events, come some seconds later.
    logged: Mutex<Vec<LoggedEnd>>,
    /// Ends of connections found in logs, until the capture takes them.
    clients: Mutex<ClientEnds>,
}

impl WatchedServers {
    /// All of them, by port.
    pub fn all(&self) -> Arc<Vec<FoundServer>> {
        lock(&self.found).clone()
    }

    /// Replaces them. Returns the servers that have started and those that have ended. A process keeps the settings that
    /// it was first seen with, which it was started with: its configuration file may have been changed since. It keeps its
    /// name in the history, too; see [`names`].
    pub fn set(&self, mut found: Vec<FoundServer>) -> (Vec<FoundServer>, Vec<FoundServer>) {
        let mut known = lock(&self.found);
        let key = |server: &FoundServer| (server.pid, server.started, server.port);
        let without = |all: &[FoundServer], others: &[FoundServer]| -> Vec<FoundServer> {
            let is_new = |one: &&FoundServer| !others.iter().any(|other| key(other) == key(one));
            all.iter().filter(is_new).cloned().collect()
        };
        keep_options(&mut found, &known);
        lock(&self.names).give(&mut found, &known);
        let (started, ended) = (without(&found, &known), without(&known, &found));
        *known = Arc::new(found);
        (started, ended)
    }

    /// The last run saw these servers: those that still run have the settings and names that they had then, and those that
    /// have started again find their names again.
    pub fn keep(&self, last: &KnownServers) {
        // After a start of the machine, other processes may have their numbers and times.
        let before: &[FoundServer] = if last.is_other_boot { &[] } else { &last.servers };
        let mut known = lock(&self.found);
        let mut found = known.to_vec();
        keep_options(&mut found, before);
        let mut names = lock(&self.names);
        // The names that were given without that knowledge are none to remember.
        *names = HistoryNames::default();
        names.remember(&last.servers);
        names.give(&mut found, before);
        *known = Arc::new(found);
    }

    /// Notes what a log says of the end of a server, `began` and `events`.
    pub fn log(&self, server: Endpoint, began: Option<Timestamp>, events: &[Event]) {
        let ends = events.iter().filter(|event| event.kind == EventKind::ServerStop).cloned();
        let begin = began.map(|at| LoggedEnd::Begins(server, at));
        let mut logged = lock(&self.logged);
        logged.extend(begin.into_iter().chain(ends.map(LoggedEnd::Ends)));
        let excess = logged.len().saturating_sub(MAX_LOGGED);
        logged.drain(..excess);
    }

    /// Ends of servers found in logs since the last call.
    pub fn take_logged(&self) -> Vec<LoggedEnd> {
        std::mem::take(&mut lock(&self.logged))
    }

    /// Where connections to a server are seen. One in a network namespace of its own, as in most containers, has the
    /// addresses of that; and those of this host, as its port may be published there, unless a server of this host has
    /// that port.
    pub fn reach(&self, server: &FoundServer) -> ServerReach {
        let is_in_its_way = |one: &FoundServer| one.port == server.port && one.network.is_none();
        let is_at_host = server.network.is_none() || !self.all().iter().any(is_in_its_way);
        let of_host = lock(&self.addresses);
        let mut addresses = if is_at_host { of_host.clone() } else { BTreeSet::new() };
        addresses.extend(server.network.iter().flatten());
        ServerReach { addresses: addresses.into_iter().collect(), has_loopback: is_at_host }
    }

    /// Notes the connections to a server that have ended, as its log says.
    pub fn clients_ended(&self, server: &FoundServer, mut ended: ClientEnds) {
        if ended == ClientEnds::default() {
            return;
        }
        if server.network.is_some() {
            // Within its network, where this host captures nothing; the same port of this host is another client.
            ended.waiting.retain(|ended| !ended.client.ip().is_loopback());
        }
        // Unknown where those of this host cannot be listed.
        let is_known = !lock(&self.addresses).is_empty();
        let host = is_known.then(|| self.reach(server).addresses);
        let mut clients = lock(&self.clients);
        // All ends of a server share one list.
        let before = clients.waiting.iter().rfind(|one| one.server_port == Some(server.port));
        let host = before.map(|one| one.host.clone()).filter(|before| *before == host).unwrap_or(host);
        for client in &mut ended.waiting {
            (client.server_port, client.host) = (Some(server.port), host.clone());
        }
        clients.append(ended);
    }

    /// The bytes of ends of connections that nobody has taken yet.
    pub fn clients_memory(&self) -> usize {
        lock(&self.clients).memory()
    }

    /// Ends of connections found in logs since the last call.
    pub fn take_clients(&self) -> ClientEnds {
        lock(&self.clients).take()
    }

    /// Their ports.
    pub fn ports(&self) -> Vec<u16> {
        self.all().iter().map(|server| server.port).collect()
    }

    /// The path of a file within the data folder of its server; the name of a file elsewhere.
    pub fn in_dbpath(&self, path: &str) -> String {
        let path = Path::new(path);
        let within = data_folders::of_file(path, folders_of(&self.all())).map(|(_, within)| within);
        let named = within.or_else(|| path.file_name().map(Path::new)).unwrap_or(path);
        named.to_string_lossy().into_owned()
    }

    /// The server whose data folder a file is in.
    pub fn of_file(&self, path: &str) -> Option<Endpoint> {
        let all = self.all();
        data_folders::of_file(Path::new(path), folders_of(&all)).map(|(server, _)| server.endpoint())
    }

    /// Notes the version of the process that is `server`. A process never has another version than before, so only
    /// that of another process is an upgrade; the first source that names the version of a process counts.
    pub fn set_version(&self, server: &FoundServer, version: &str) {
        let process = (server.pid, server.started);
        let mut versions = lock(&self.versions);
        if versions.get(&server.endpoint()).is_some_and(|known| known.process == process) {
            return;
        }
        let known = KnownVersion { process, version: version.to_owned() };
        // One that still runs has another name now, because a server of this host has come to its port.
        let all = self.all();
        let runs = |(pid, started)| all.iter().any(|one| (one.pid, one.started) == (pid, started));
        if let Some(before) = versions.insert(server.endpoint(), known)
            && before.version != version
            && !runs(before.process)
        {
            let mut upgrades = lock(&self.upgrades);
            let versions = [before.version, version.to_owned()];
            upgrades.push(FoundUpgrade { server: server.endpoint(), started: server.started, versions });
        }
    }

    /// Processes of another version than those before them, found since the last call.
    pub fn take_upgrades(&self) -> Vec<FoundUpgrade> {
        std::mem::take(&mut lock(&self.upgrades))
    }

    /// The version of a server, if it is known.
    pub fn version(&self, server: Endpoint) -> Option<String> {
        lock(&self.versions).get(&server).map(|known| known.version.clone())
    }

    /// Notes the time of the last sample of a server's `diagnostic.data`.
    pub fn set_sampled(&self, server: Endpoint, last: Timestamp) {
        lock(&self.sampled).insert(server, last);
    }

    /// The time of the last sample of a server's `diagnostic.data`; `None` if it has had none.
    pub fn sampled_until(&self, server: Endpoint) -> Option<Timestamp> {
        lock(&self.sampled).get(&server).copied()
    }

    /// This host has these addresses now, besides loopback.
    pub fn set_addresses(&self, addresses: BTreeSet<IpAddr>) {
        *lock(&self.addresses) = addresses;
    }

    /// Whether this is an address of this host, besides loopback.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        lock(&self.addresses).contains(&ip)
    }

    /// The name in the history of the server that listens there in a network of its own; the address itself if none does.
    pub fn name_of(&self, at: Endpoint) -> Endpoint {
        let is_there = |one: &&FoundServer| {
            one.port == at.port && one.network.as_ref().is_some_and(|all| all.contains(&at.ip()))
        };
        self.all().iter().find(is_there).map_or(at, FoundServer::endpoint)
    }

    /// Adds them to the servers that ran before: a connection to one that has ended is still named as before. The
    /// addresses are those of now.
    pub fn add_to(&self, servers: &mut LocalServers) {
        let all = self.all();
        servers.ports.extend(all.iter().map(|server| server.port));
        servers.addresses.clone_from(&lock(&self.addresses));
        for server in all.iter() {
            let of = |ip: &IpAddr| SocketAddr::new(*ip, server.port).into();
            servers.add_elsewhere(server.network.iter().flatten().map(of), server.endpoint());
        }
    }
}

/// Servers with their data folders.
fn folders_of(servers: &[FoundServer]) -> impl Iterator<Item = (&FoundServer, &Path)> {
    servers.iter().filter_map(|server| Some((server, server.dbpath.as_deref()?)))
}

/// Gives processes that were known `before` the settings that they had then.
fn keep_options(found: &mut [FoundServer], before: &[FoundServer]) {
    for server in found {
        let is_it = |one: &&FoundServer| {
            (one.pid, one.started) == (server.pid, server.started) && !one.options.is_empty()
        };
        if let Some(known) = before.iter().find(is_it) {
            server.options.clone_from(&known.options);
        }
    }
}

#[cfg(test)]
mod tests {
    use sonar_decode::EndedClient;

    use super::*;
    use crate::agent::servers::local;

    fn server(pid: u32, port: u16, dbpath: &str) -> FoundServer {
        FoundServer {
            port,
            pid,
            started: u64::from(pid),
            name: "mongod".to_owned(),
            dbpath: Some(dbpath.into()),
            ..FoundServer::default()
        }
    }

    #[test]
    fn a_restart_is_an_end_and_a_start() {
        let watched = WatchedServers::default();
        assert_eq!(watched.set(vec![server(1, 5, "/a"), server(2, 6, "/a/b")]).0.len(), 2);
        let (started, ended) = watched.set(vec![server(3, 5, "/a"), server(2, 6, "/a/b")]);
        let pids = |servers: Vec<FoundServer>| servers.iter().map(|server| server.pid).collect::<Vec<_>>();
        assert_eq!((pids(started), pids(ended)), (vec![3], vec![1]));
        assert_eq!(watched.of_file("/a/collection-1.wt"), Some(local(5)));
        assert_eq!(watched.of_file("/a/b/index-1.wt"), Some(local(6)));
        assert_eq!(watched.of_file("/ab/index-1.wt"), None);
    }

    #[test]
    fn a_process_keeps_the_settings_that_it_was_started_with() {
        let with = |pid, cache: &str| FoundServer {
            options: [("cacheSizeGB".to_owned(), cache.to_owned())].into(),
            ..server(pid, 5, "/a")
        };
        let watched = WatchedServers::default();
        let cache = |watched: &WatchedServers| watched.all()[0].options.get("cacheSizeGB").cloned();
        watched.set(vec![server(1, 5, "/a")]);
        watched.set(vec![with(1, "2")]);
        assert_eq!(cache(&watched).as_deref(), Some("2"), "it could not be read before");
        // The file was edited, and the process runs on.
        let (started, ended) = watched.set(vec![with(1, "4")]);
        assert_eq!((started, ended, cache(&watched).as_deref()), (vec![], vec![], Some("2")));
        assert_eq!(watched.set(vec![with(2, "4")]).0, [with(2, "4")]);
        // What an earlier run of the agent saw.
        let servers = vec![with(1, "1"), with(2, "3"), server(2, 6, "/b")];
        watched.keep(&KnownServers { servers, ..KnownServers::default() });
        assert_eq!(cache(&watched).as_deref(), Some("3"));
    }

    #[test]
    fn a_host_has_the_addresses_of_now() {
        let (watched, mut servers) = (WatchedServers::default(), LocalServers::default());
        watched.set(vec![server(1, 5, "/a")]);
        let [old, new] = ["10.0.0.5", "10.0.0.6"].map(|text| text.parse::<IpAddr>().unwrap());
        for address in [old, new] {
            watched.set_addresses([address].into());
            watched.add_to(&mut servers);
        }
        assert!(watched.has_address(new) && !watched.has_address(old));
        assert_eq!(
            servers,
            LocalServers { ports: [5].into(), addresses: [new].into(), ..LocalServers::default() }
        );
        watched.set(Vec::new());
        watched.add_to(&mut servers);
        assert_eq!(servers.ports, [5].into(), "a connection to it may still be named");
    }

    #[test]
    fn a_server_in_a_network_of_its_own_has_its_addresses_and_those_where_it_is_published() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let (host, inner) = (address("10.0.0.5"), address("172.17.0.2"));
        let watched = WatchedServers::default();
        watched.set_addresses([host].into());
        let own = server(1, 5, "/a");
        let contained = FoundServer { network: Some([inner].into()), ..server(2, 5, "/b") };
        let reach = |one: &FoundServer| {
            let ServerReach { addresses, has_loopback } = watched.reach(one);
            (addresses.to_vec(), has_loopback)
        };
        watched.set(vec![contained.clone()]);
        assert_eq!(reach(&contained), (vec![host, inner], true));
        watched.set(vec![own.clone(), contained.clone()]);
        assert_eq!(
            reach(&contained),
            (vec![inner], false),
            "the port of this host is that of another server"
        );
        assert_eq!(reach(&own), (vec![host], true));
        let overlap =
            |one: &FoundServer, other: &FoundServer| watched.reach(one).overlaps(&watched.reach(other));
        assert!(overlap(&own, &server(3, 5, "/c")));
        assert!(!overlap(&own, &contained), "an older server of this host keeps nothing in flight on it");
        // What their logs say of their clients.
        let ends = |one: &FoundServer| {
            let mut ended = ClientEnds::default();
            for client in ["10.0.0.9", "127.0.0.1"] {
                let client = std::net::SocketAddr::new(address(client), 40_000).into();
                ended.add(EndedClient { client, server_port: None, host: None, at: Timestamp::default() });
            }
            watched.clients_ended(one, ended);
            let waiting = watched.take_clients().waiting;
            waiting
                .iter()
                .map(|one| (one.client.ip(), one.host.as_deref().map(<[_]>::to_vec)))
                .collect::<Vec<_>>()
        };
        let (far, loopback) = (address("10.0.0.9"), address("127.0.0.1"));
        assert_eq!(ends(&own), [(far, Some(vec![host])), (loopback, Some(vec![host]))]);
        assert_eq!(ends(&contained), [(far, Some(vec![inner]))]);
        watched.set_addresses(BTreeSet::new());
        assert_eq!(ends(&contained), [(far, None)], "what is published is not known");
    }

    #[test]
    fn two_servers_with_one_port_have_a_name_each_on_all_of_their_addresses() {
        let contained = |pid, ips: [&str; 2]| FoundServer {
            network: Some(ips.map(|ip| ip.parse().unwrap()).into()),
            ..server(pid, 5, "/data/db")
        };
        let (watched, mut servers) = (WatchedServers::default(), LocalServers::default());
        let (first, second) =
            (contained(1, ["172.17.0.2", "fd00::2"]), contained(2, ["172.17.0.3", "fd00::3"]));
        let at = |text: &str| Endpoint::from(text.parse::<SocketAddr>().unwrap());
        watched.set(vec![first.clone()]);
        watched.set(vec![first.clone(), second.clone()]);
        watched.add_to(&mut servers);
        let addresses =
            ["172.17.0.2:5", "[fd00::2]:5", "172.17.0.3:5", "[fd00::3]:5", "172.17.0.3:6"].map(at);
        let expected = [local(5), local(5), addresses[2], addresses[2], addresses[4]];
        assert_eq!(addresses.map(|address| servers.name(address)), expected);
        assert_eq!(addresses.map(|address| watched.name_of(address)), expected);
        // What is known of one is not of the other.
        for (server, version) in watched.all().iter().zip(["7.0.5", "8.0.1"]) {
            watched.set_version(server, version);
            watched.set_sampled(server.endpoint(), Timestamp::from_unix(u64::from(server.pid), 0));
        }
        assert_eq!(watched.take_upgrades(), []);
        assert_eq!(watched.version(addresses[2]).as_deref(), Some("8.0.1"));
        assert_eq!(watched.sampled_until(local(5)), Some(Timestamp::from_unix(1, 0)));
        // The next run of the agent finds them in another order.
        let before = watched.all();
        let next = WatchedServers::default();
        next.set(vec![second]);
        next.set(vec![contained(1, ["172.17.0.2", "fd00::2"]), before[1].clone()]);
        let mut last = KnownServers { servers: before.to_vec(), ..KnownServers::default() };
        next.keep(&last);
        assert_eq!(next.all(), before);
        // After a start of the machine, other processes are at their addresses, and the second one was first.
        last.is_other_boot = true;
        let again = WatchedServers::default();
        let second = contained(1, ["172.17.0.3", "fd00::3"]);
        again.set(vec![second, contained(2, ["172.17.0.2", "fd00::2"])]);
        assert_eq!(again.all()[0].endpoint(), local(5));
        again.keep(&last);
        let names: Vec<Endpoint> = again.all().iter().map(FoundServer::endpoint).collect();
        assert_eq!(names, [addresses[2], local(5)]);
    }

    #[test]
    fn what_logs_say_of_ends_waits_until_it_is_taken() {
        let watched = WatchedServers::default();
        let event = |kind| Event::new(Timestamp::from_unix(5, 0), kind, sonar_core::Endpoint::default(), "");
        let (stop, start) = (event(EventKind::ServerStop), event(EventKind::ServerStart));
        let began = Timestamp::from_unix(4, 0);
        watched.log(local(5), Some(began), &[start, stop.clone()]);
        assert_eq!(
            watched.take_logged(),
            [LoggedEnd::Begins(local(5), began), LoggedEnd::Ends(stop.clone())]
        );
        (0..1_000).for_each(|_| watched.log(local(5), None, std::slice::from_ref(&stop)));
        assert_eq!(watched.take_logged().len(), MAX_LOGGED);
    }

    #[test]
    fn an_upgrade_is_another_version_of_another_process() {
        let watched = WatchedServers::default();
        let (first, second, third) = (server(1, 5, "/a"), server(2, 5, "/a"), server(3, 5, "/a"));
        watched.set_version(&first, "7.0.5");
        // What one of two sources still knows of an earlier process.
        for (process, version) in [(&first, "7.0.4"), (&first, "7.0.5"), (&second, "7.0.5")] {
            watched.set_version(process, version);
        }
        assert_eq!(watched.take_upgrades(), []);
        for (process, version) in [(&third, "8.0.1"), (&third, "7.0.5"), (&third, "8.0.1")] {
            watched.set_version(process, version);
        }
        assert_eq!(watched.version(local(5)).as_deref(), Some("8.0.1"));
        let versions = ["7.0.5", "8.0.1"].map(str::to_owned);
        assert_eq!(watched.take_upgrades(), [FoundUpgrade { server: local(5), started: 3, versions }]);
        assert_eq!(watched.take_upgrades(), []);
        // A server of this host takes the name of one in a container, which runs on.
        let contained = FoundServer { network: Some(["10.0.0.2".parse().unwrap()].into()), ..third.clone() };
        watched.set(vec![contained, first]);
        watched.set_version(&server(4, 5, "/a"), "7.0.5");
        assert_eq!(watched.take_upgrades(), []);
    }
}
