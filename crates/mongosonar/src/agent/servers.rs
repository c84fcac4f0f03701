//! Which servers run on this host: the history names them by their port alone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sonar_core::{Endpoint, InFlightOperations, Operation};

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
}

impl LocalServers {
    /// The name of a server in the history: one of this host has no address, because a process listens on several.
    pub fn name(&self, server: Endpoint) -> Endpoint {
        let is_of_host = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || self.addresses.contains(&ip);
        if self.ports.contains(&server.port) && is_of_host(server.ip()) { local(server.port) } else { server }
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
        let servers =
            LocalServers { ports: [27_017].into(), addresses: ["10.0.0.5".parse().unwrap()].into() };
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
