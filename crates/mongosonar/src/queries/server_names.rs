//! One name for a server that is reached by several addresses of its host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use sonar_core::{Endpoint, Window};
use sonar_sys::Host;
use sonar_sys::interfaces;

use crate::servers;

/// The most ports that are remembered; servers on others keep the name of each address.
const MAX_PORTS: usize = 1_024;

/// Names servers by the address at which they were seen first. A process that listens on a port usually does so on all
/// addresses of its host: `127.0.0.1`, `::1` and those of the interfaces lead to the same server.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// The addresses of the host, besides loopback.
    addresses: BTreeSet<IpAddr>,
    /// Ports on which several processes listen, each on an address of its own.
    apart: BTreeSet<u16>,
    first: HashMap<u16, Endpoint>,
}

impl ServerNames {
    /// For packets of this host.
    pub fn here() -> Self {
        let mut processes: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        for one in servers::listeners(&Host::live()).unwrap_or_default().listeners {
            processes.entry(one.address.port()).or_default().insert(one.pid);
        }
        let several = processes.into_iter().filter(|(_, processes)| processes.len() > 1);
        Self {
            addresses: interfaces::local_addresses().unwrap_or_default().into_iter().collect(),
            apart: several.map(|(port, _)| port).collect(),
            first: HashMap::new(),
        }
    }

    fn name(&mut self, server: Endpoint) -> Endpoint {
        let ip = server.ip();
        let is_of_host = ip.is_loopback() || self.addresses.contains(&ip);
        let is_known = self.first.contains_key(&server.port) || self.first.len() < MAX_PORTS;
        if !is_of_host || !is_known || self.apart.contains(&server.port) {
            return server;
        }
        *self.first.entry(server.port).or_insert(server)
    }

    /// Names the servers of a window.
    pub fn apply(&mut self, window: &mut Window) {
        window.rename_servers(&mut |server| self.name(server));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn server(text: &str) -> Endpoint {
        Endpoint::from(text.parse::<SocketAddr>().unwrap())
    }

    fn named(names: &mut ServerNames, servers: &[&str]) -> Vec<Endpoint> {
        servers.iter().map(|one| names.name(server(one))).collect()
    }

    #[test]
    fn a_server_has_the_name_of_its_first_address_whichever_of_the_host_leads_to_it() {
        let mut names =
            ServerNames { addresses: ["10.0.0.5".parse().unwrap()].into(), ..ServerNames::default() };
        let seen = ["[::1]:27017", "127.0.0.1:27017", "10.0.0.5:27017", "10.0.0.6:27017", "127.0.0.1:27018"];
        let expected = ["[::1]:27017", "[::1]:27017", "[::1]:27017", "10.0.0.6:27017", "127.0.0.1:27018"];
        assert_eq!(named(&mut names, &seen), expected.map(server));
        // In a file, whose host is unknown, only loopback addresses are sure to be of one host.
        let mut of_file = ServerNames::default();
        let expected = ["[::1]:27017", "[::1]:27017", "10.0.0.5:27017", "10.0.0.6:27017", "127.0.0.1:27018"];
        assert_eq!(named(&mut of_file, &seen), expected.map(server));
    }

    #[test]
    fn servers_that_share_a_port_on_addresses_of_their_own_stay_apart() {
        let mut names = ServerNames { apart: [27_017].into(), ..ServerNames::default() };
        let two = ["127.0.0.1:27017", "127.0.0.2:27017"];
        assert_eq!(named(&mut names, &two), two.map(server));
    }
}
