//! One name for a server that is reached by several addresses of its host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use sonar_core::{Endpoint, Window};

use super::local_servers::ListeningServers;

/// The most servers that are remembered; others keep the name of each address.
const MAX_SERVERS: usize = 1_024;

/// Names servers by the address at which they were seen first, but by `127.0.0.1` instead of `::1` where both lead to the
/// same server. A process that listens on a port may do so on several addresses of its host: `127.0.0.1`, `::1` and those
/// of the interfaces lead to the same server. A name stays when its process is started again, or when the host gets other
/// addresses.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// What has been found since, by whoever searches.
    news: Arc<Mutex<Option<ListeningServers>>>,
    /// The addresses of the host, besides loopback.
    addresses: BTreeSet<IpAddr>,
    /// Where processes listen, by port.
    listening: BTreeMap<u16, Vec<(u32, IpAddr)>>,
    first: HashMap<(u16, AddressOwner), Endpoint>,
}

/// Whom an address of the host leads to.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum AddressOwner {
    /// This process.
    Known(u32),
    /// An unknown one, which listens on `localhost`.
    OfLocalhost,
}

/// Takes what is found about the servers of this host while a capture runs.
#[derive(Clone, Debug)]
pub struct ServerNamesUpdate(Arc<Mutex<Option<ListeningServers>>>);

impl ServerNamesUpdate {
    /// The next window is named by this.
    pub fn tell(&self, found: ListeningServers) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
}

impl ServerNames {
    /// For packets of this host, where servers listen like this.
    pub fn of(found: ListeningServers) -> Self {
        let mut names = Self::default();
        names.refresh(found);
        names
    }

    /// Tells it what is found later.
    pub fn update(&self) -> ServerNamesUpdate {
        ServerNamesUpdate(self.news.clone())
    }

    fn refresh(&mut self, found: ListeningServers) {
        let mut listening: BTreeMap<u16, Vec<(u32, IpAddr)>> = BTreeMap::new();
        for one in found.listening {
            listening.entry(one.port).or_default().push((one.pid, one.ip));
        }
        for (port, now) in &listening {
            let is_there = |pid: u32| now.iter().any(|(other, _)| *other == pid);
            let mut processes = now.iter().map(|(pid, _)| *pid);
            let Some(one) = processes.next().filter(|one| processes.all(|other| other == *one)) else {
                continue;
            };
            // A new process at the port of one that has ended, or of one that nobody knew, is the same server.
            let mut ended = self.first.iter().filter(|((of, owner), _)| {
                of == port && matches!(owner, AddressOwner::Known(pid) if !is_there(*pid))
            });
            let name = match (ended.next(), ended.next()) {
                (Some((_, name)), None) => Some(name),
                // Nobody knows which of them.
                (Some(_), Some(_)) => None,
                (None, _) => self.first.get(&(*port, AddressOwner::OfLocalhost)),
            };
            if let Some(name) = name.copied() {
                self.first.retain(|(of, owner), _| {
                    of != port || !matches!(owner, AddressOwner::Known(pid) if !is_there(*pid))
                });
                self.first.entry((*port, AddressOwner::Known(one))).or_insert(name);
            }
        }
        (self.addresses, self.listening) = (found.addresses.into_iter().collect(), listening);
    }

    /// Whom an address leads to, as far as that is sure.
    fn owner(&self, server: Endpoint) -> Option<AddressOwner> {
        let ip = server.ip();
        if ip.is_loopback() || self.addresses.contains(&ip) {
            let of_port = self.listening.get(&server.port).map_or(&[][..], Vec::as_slice);
            let mut processes =
                of_port.iter().filter(|(_, at)| *at == ip || at.is_unspecified()).map(|(pid, _)| *pid);
            if let Some(one) = processes.next() {
                // Those of containers may listen on the same address, each in a network of its own.
                return processes.all(|other| other == one).then_some(AddressOwner::Known(one));
            }
        }
        let is_localhost = ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST;
        is_localhost.then_some(AddressOwner::OfLocalhost)
    }

    fn name(&mut self, server: Endpoint) -> Endpoint {
        let Some(process) = self.owner(server) else { return server };
        let key = (server.port, process);
        if self.first.len() >= MAX_SERVERS && !self.first.contains_key(&key) {
            return server;
        }
        let usual = Endpoint::v4(Ipv4Addr::LOCALHOST.octets(), server.port);
        // Which of the two a client took first is chance: the same server would have two names in two files.
        let is_localhost = server.ip() == Ipv6Addr::LOCALHOST && self.owner(usual) == Some(process);
        *self.first.entry(key).or_insert(if is_localhost { usual } else { server })
    }

    fn take_news(&mut self) {
        let found = self.news.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(found) = found {
            self.refresh(found);
        }
    }

    /// Names the servers of a window.
    pub fn apply(&mut self, window: &mut Window) {
        self.take_news();
        window.rename_servers(&mut |server| self.name(server));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::local_servers::ListeningAt;
    use super::*;

    fn server(text: &str) -> Endpoint {
        Endpoint::from(text.parse::<SocketAddr>().unwrap())
    }

    fn named(names: &mut ServerNames, servers: &[&str]) -> Vec<Endpoint> {
        servers.iter().map(|one| names.name(server(one))).collect()
    }

    /// A host with these addresses, where processes with these numbers listen.
    fn host(addresses: &[&str], listeners: &[(u32, &str)]) -> ListeningServers {
        let listening = |(pid, address): &(u32, &str)| {
            let address: SocketAddr = address.parse().unwrap();
            ListeningAt { pid: *pid, ip: address.ip(), port: address.port() }
        };
        ListeningServers {
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            listening: listeners.iter().map(listening).collect(),
        }
    }

    fn names(listeners: &[(u32, &str)]) -> ServerNames {
        ServerNames::of(host(&["10.0.0.5"], listeners))
    }

    #[test]
    fn what_changes_on_the_host_changes_what_leads_to_a_server_but_not_its_name() {
        let mut all = names(&[(7, "0.0.0.0:27017")]);
        let later = all.update();
        let mut named = |seen: &[&str]| {
            all.take_news();
            seen.iter().map(|one| all.name(server(one))).collect::<Vec<_>>()
        };
        let both = ["10.0.0.5:27017", "10.0.0.6:27017"];
        assert_eq!(named(&both), both.map(server));
        // The host gets another address, and then has only that.
        later.tell(host(&["10.0.0.5", "10.0.0.6"], &[(7, "0.0.0.0:27017")]));
        assert_eq!(named(&both), [both[0]; 2].map(server));
        later.tell(host(&["10.0.0.6"], &[(7, "0.0.0.0:27017")]));
        assert_eq!(named(&[both[1], "127.0.0.1:27017"]), [both[0]; 2].map(server));
        // The server is started again.
        later.tell(host(&["10.0.0.6"], &[]));
        assert_eq!(named(&["10.0.0.7:27017"]), ["10.0.0.7:27017"].map(server));
        later.tell(host(&["10.0.0.6"], &[(9, "0.0.0.0:27017")]));
        assert_eq!(named(&[both[1], "127.0.0.1:27017"]), [both[0]; 2].map(server));
        // Another one starts, which was seen at `localhost` before anybody had found it.
        assert_eq!(named(&["127.0.0.1:27018"]), ["127.0.0.1:27018"].map(server));
        later.tell(host(&["10.0.0.6"], &[(9, "0.0.0.0:27017"), (10, "0.0.0.0:27018")]));
        assert_eq!(named(&["10.0.0.6:27018", "127.0.0.1:27018"]), ["127.0.0.1:27018"; 2].map(server));
    }

    #[test]
    fn a_server_has_the_name_of_its_first_address_whichever_of_the_host_leads_to_it() {
        let mut all = names(&[(7, "0.0.0.0:27017"), (7, "[::]:27017")]);
        let seen = ["[::1]:27017", "127.0.0.1:27017", "10.0.0.5:27017", "10.0.0.6:27017", "127.0.0.1:27018"];
        let usual = "127.0.0.1:27017";
        let expected = [usual, usual, usual, "10.0.0.6:27017", "127.0.0.1:27018"];
        assert_eq!(named(&mut all, &seen), expected.map(server));
        let mut only_v6 = names(&[(7, "[::1]:27017"), (8, "127.0.0.1:27017")]);
        assert_eq!(named(&mut only_v6, &seen[..2]), [seen[0], seen[1]].map(server), "two servers");
        let mut two = names(&[(7, "127.0.0.1:27017"), (7, "10.0.0.5:27017")]);
        let seen = ["10.0.0.5:27017", "127.0.0.1:27017", "127.0.0.2:27017"];
        let expected = ["10.0.0.5:27017", "10.0.0.5:27017", "127.0.0.2:27017"];
        assert_eq!(named(&mut two, &seen), expected.map(server));
    }

    #[test]
    fn in_a_file_only_the_addresses_of_localhost_are_those_of_one_server() {
        let mut of_file = ServerNames::default();
        let seen = ["[::1]:27017", "127.0.0.1:27017", "127.0.0.2:27017", "10.0.0.5:27017", "127.0.0.1:27018"];
        let expected =
            ["127.0.0.1:27017", "127.0.0.1:27017", "127.0.0.2:27017", "10.0.0.5:27017", "127.0.0.1:27018"];
        assert_eq!(named(&mut of_file, &seen), expected.map(server));
    }

    #[test]
    fn servers_that_share_a_port_on_addresses_of_their_own_stay_apart() {
        let two = ["127.0.0.1:27017", "127.0.0.2:27017"];
        assert_eq!(named(&mut names(&[(7, two[0]), (8, two[1])]), &two), two.map(server));
        // The second one starts later.
        assert_eq!(named(&mut names(&[(7, two[0])]), &two), two.map(server));
        // One of them is in a container.
        let seen = ["127.0.0.1:27017", "10.0.0.5:27017"];
        assert_eq!(named(&mut names(&[(7, "0.0.0.0:27017"), (8, "0.0.0.0:27017")]), &seen), seen.map(server));
    }
}
