//! Which servers run on this host: the history names them by their port alone, as far as that tells them apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sonar_core::{Endpoint, InFlightOperations, Operation};

/// The most addresses in networks of containers whose servers are known. 128 servers have half as many at most.
const MAX_ELSEWHERE: usize = 16_384;

/// A server of this host in the history.
pub const fn local(port: u16) -> Endpoint {
    Endpoint::v4([0; 4], port)
}

/// The servers of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalServers {
    /// Their ports.
    pub ports: BTreeSet<u16>,
    /// The addresses of the host, besides loopback.
    pub addresses: BTreeSet<IpAddr>,
    /// The names of servers in networks of their own, by where they listen there.
    pub elsewhere: BTreeMap<Endpoint, Endpoint>,
}

impl LocalServers {
    /// Notes that the server with this name listens in a network of its own, at these addresses. Servers that have ended
    /// are forgotten if there are too many.
    pub fn add_elsewhere(&mut self, addresses: impl Iterator<Item = Endpoint>, name: Endpoint) {
        if self.elsewhere.len() >= MAX_ELSEWHERE {
            self.elsewhere.clear();
        }
        self.elsewhere.extend(addresses.map(|address| (address, name)));
    }

    /// The name of a server in the history: one of this host has no address, because a process listens on several. One in a
    /// network of its own has the same name on all of its addresses.
    pub fn name(&self, server: Endpoint) -> Endpoint {
        let is_of_host = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || self.addresses.contains(&ip);
        if !self.ports.contains(&server.port) {
            server
        } else if is_of_host(server.ip()) {
            local(server.port)
        } else {
            self.elsewhere.get(&server).copied().unwrap_or(server)
        }
    }

    /// An operation with the name of its server.
    pub fn named<'a>(&self, op: &Operation<'a>) -> Operation<'a> {
        Operation { server: self.name(op.server), ..*op }
    }

    /// Operations in flight with the names of their servers; those that have the same then are added up.
    pub fn named_in_flight(&self, in_flight: Vec<InFlightOperations>) -> Vec<InFlightOperations> {
        let mut named: Vec<InFlightOperations> = Vec::with_capacity(in_flight.len());
        for mut one in in_flight {
            one.server = self.name(one.server);
            let is_same = |known: &&mut InFlightOperations| {
                (known.server, known.role, known.class, known.shape.id)
                    == (one.server, one.role, one.class, one.shape.id)
            };
            match named.iter_mut().find(is_same) {
                Some(known) => known.add(one),
                None => named.push(one),
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::{Class, Role};

    use super::*;

    #[test]
    fn a_server_of_this_host_is_one_whatever_its_address() {
        let servers = LocalServers {
            ports: [27_017].into(),
            addresses: ["10.0.0.5".parse().unwrap()].into(),
            ..LocalServers::default()
        };
        for (address, is_local) in [
            ("127.0.0.1:27017", true),
            ("[::1]:27017", true),
            ("10.0.0.5:27017", true),
            ("10.0.0.6:27017", false),
            ("127.0.0.1:27018", false),
        ] {
            let server = Endpoint::from(address.parse::<std::net::SocketAddr>().unwrap());
            let expected = if is_local { local(27_017) } else { server };
            assert_eq!(servers.name(server), expected, "{address}");
        }
    }

    #[test]
    fn a_server_in_a_network_of_its_own_is_one_whatever_its_address() {
        let mut servers = LocalServers {
            ports: [5].into(),
            addresses: ["10.0.0.5".parse().unwrap()].into(),
            ..LocalServers::default()
        };
        let of_host = Endpoint::v4([10, 0, 0, 5], 5);
        let [first, second, third] = [1, 2, 3].map(|last| Endpoint::v4([172, 17, 0, last], 5));
        servers.add_elsewhere([first, Endpoint::v6([7; 16], 5)].into_iter(), local(5));
        // Its network may have an address that is one of this host, too.
        servers.add_elsewhere([second, of_host].into_iter(), second);
        let named = [first, Endpoint::v6([7; 16], 5), second, of_host, third].map(|one| servers.name(one));
        assert_eq!(named, [local(5), local(5), second, local(5), third]);
        for number in 0..MAX_ELSEWHERE as u32 + 5 {
            servers.add_elsewhere([Endpoint::v4(number.to_be_bytes(), 5)].into_iter(), second);
        }
        assert!(servers.elsewhere.len() <= MAX_ELSEWHERE);
        assert_eq!(servers.name(first), first, "it has ended, and is forgotten");
    }

    #[test]
    fn operations_in_flight_of_two_addresses_are_added_up() {
        let servers = LocalServers { ports: [5].into(), ..LocalServers::default() };
        let one = |address: [u8; 4], count, oldest_ns| InFlightOperations {
            server: Endpoint::v4(address, 5),
            role: Role::Served,
            class: Class::User,
            shape: Default::default(),
            count,
            oldest_ns,
            oldest: Vec::new(),
        };
        let all = vec![one([127, 0, 0, 1], 2, 30), one([10, 0, 0, 1], 5, 7), one([127, 0, 0, 2], 1, 40)];
        let named: Vec<_> =
            servers.named_in_flight(all).iter().map(|one| (one.server, one.count, one.oldest_ns)).collect();
        assert_eq!(named, [(local(5), 3, 40), (Endpoint::v4([10, 0, 0, 1], 5), 5, 7)]);
    }
}
