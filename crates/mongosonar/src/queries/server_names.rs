//! One name for a server that is reached by several addresses of its host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonar_core::{Endpoint, Window};
use sonar_sys::Host;
use sonar_sys::host::listeners::Listener;
use sonar_sys::interfaces;

use crate::servers;

/// The most servers that are remembered; others keep the name of each address.
const MAX_SERVERS: usize = 1_024;

/// Names servers by the address at which they were seen first. A process that listens on a port may do so on several
/// addresses of its host: `127.0.0.1`, `::1` and those of the interfaces lead to the same server.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
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

impl ServerNames {
    /// For packets of this host. Of a server that starts later, only `127.0.0.1` and `::1` have one name.
    pub fn here() -> Self {
        let addresses = interfaces::local_addresses().unwrap_or_default();
        Self::of(addresses, servers::listeners(&Host::live()).unwrap_or_default().listeners)
    }

    fn of(addresses: Vec<IpAddr>, listeners: Vec<Listener>) -> Self {
        let mut listening: BTreeMap<u16, Vec<(u32, IpAddr)>> = BTreeMap::new();
        for Listener { pid, address, .. } in listeners {
            listening.entry(address.port()).or_default().push((pid, address.ip()));
        }
        Self { addresses: addresses.into_iter().collect(), listening, first: HashMap::new() }
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
        *self.first.entry(key).or_insert(server)
    }

    /// Names the servers of a window.
    pub fn apply(&mut self, window: &mut Window) {
        window.rename_servers(&mut |server| self.name(server));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sonar_sys::host::listeners::ListenerOrigin;

    use super::*;

    fn server(text: &str) -> Endpoint {
        Endpoint::from(text.parse::<SocketAddr>().unwrap())
    }

    fn named(names: &mut ServerNames, servers: &[&str]) -> Vec<Endpoint> {
        servers.iter().map(|one| names.name(server(one))).collect()
    }

    /// Names on a host with these addresses, where processes with these numbers listen.
    fn names(listeners: &[(u32, &str)]) -> ServerNames {
        let listener = |(pid, address): &(u32, &str)| Listener {
            pid: *pid,
            name: "mongod".to_owned(),
            address: address.parse().unwrap(),
            origin: ListenerOrigin::Socket,
        };
        ServerNames::of(vec!["10.0.0.5".parse().unwrap()], listeners.iter().map(listener).collect())
    }

    #[test]
    fn a_server_has_the_name_of_its_first_address_whichever_of_the_host_leads_to_it() {
        let mut all = names(&[(7, "0.0.0.0:27017"), (7, "[::]:27017")]);
        let seen = ["[::1]:27017", "127.0.0.1:27017", "10.0.0.5:27017", "10.0.0.6:27017", "127.0.0.1:27018"];
        let expected = ["[::1]:27017", "[::1]:27017", "[::1]:27017", "10.0.0.6:27017", "127.0.0.1:27018"];
        assert_eq!(named(&mut all, &seen), expected.map(server));
        let mut two = names(&[(7, "127.0.0.1:27017"), (7, "10.0.0.5:27017")]);
        let seen = ["10.0.0.5:27017", "127.0.0.1:27017", "127.0.0.2:27017"];
        let expected = ["10.0.0.5:27017", "10.0.0.5:27017", "127.0.0.2:27017"];
        assert_eq!(named(&mut two, &seen), expected.map(server));
    }

    #[test]
    fn in_a_file_only_the_addresses_of_localhost_are_those_of_one_server() {
        let mut of_file = ServerNames::default();
        let seen = ["[::1]:27017", "127.0.0.1:27017", "127.0.0.2:27017", "10.0.0.5:27017", "127.0.0.1:27018"];
        let expected = ["[::1]:27017", "[::1]:27017", "127.0.0.2:27017", "10.0.0.5:27017", "127.0.0.1:27018"];
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
