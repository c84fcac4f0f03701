//! How servers are named in the history: two with the same port get different names.
//!
//! A server of this host's network has the name of its port alone, because it listens on several addresses. So has one
//! in a network namespace of its own, as in most containers, while no other server has that name: the address of a
//! container changes when it starts again. The others with that port have the addresses of their networks in their
//! names. A process keeps its name as long as it runs, unless a server of this host's network takes it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use sonar_core::Endpoint;

use super::described_server::FoundServer;
use crate::agent::servers::local;

/// The most names with addresses that are remembered; further ones may be others when their servers start again.
const MAX_REMEMBERED: usize = 1_024;

/// The names with addresses that servers have had.
#[derive(Debug, Default)]
pub struct HistoryNames {
    /// A server that starts again with such an address has such a name again, also if its port alone is no name now: that
    /// one may only be starting again, too.
    remembered: BTreeSet<Endpoint>,
}

impl HistoryNames {
    /// Remembers the names of servers that an earlier run of the agent knew.
    pub fn remember(&mut self, servers: &[FoundServer]) {
        for server in servers.iter().filter(|server| server.address.is_some()) {
            if self.remembered.len() < MAX_REMEMBERED {
                self.remembered.insert(server.endpoint());
            }
        }
    }

    /// Names `found`, of which those in `before` keep their names. A server has the name of another one only if its own
    /// network has no address, or those of others.
    pub fn give(&mut self, found: &mut [FoundServer], before: &[FoundServer]) {
        let earlier = |server: &FoundServer| {
            let is_it = |one: &&FoundServer| one.is_process_of(server) && one.port == server.port;
            before.iter().find(is_it).map(|one| one.address)
        };
        let mut order: Vec<(bool, bool, u64, usize)> = found
            .iter()
            .enumerate()
            .map(|(at, one)| (one.network.is_some(), earlier(one).is_none(), one.started, at))
            .collect();
        order.sort_unstable();
        let mut taken = BTreeSet::new();
        for (is_elsewhere, _, _, at) in order {
            let server = &mut found[at];
            let name = |ip: Option<IpAddr>| {
                ip.map_or(local(server.port), |ip| SocketAddr::new(ip, server.port).into())
            };
            let own = server.network.iter().flatten().copied().map(Some);
            let remembered = own.clone().filter(|ip| self.remembered.contains(&name(*ip)));
            let mut wanted = earlier(&*server).into_iter().chain(remembered).chain([None]).chain(own);
            server.address = match is_elsewhere {
                true => wanted.find(|ip| taken.insert(name(*ip))).flatten(),
                false => {
                    taken.insert(name(None));
                    None
                }
            };
        }
        self.remember(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with port 5, in a network of its own with these addresses, if it has one.
    fn server(pid: u32, network: Option<&[&str]>) -> FoundServer {
        let network = network.map(|all| all.iter().map(|ip| ip.parse().unwrap()).collect());
        FoundServer { port: 5, pid, started: u64::from(pid), network, ..FoundServer::default() }
    }

    /// The names that these servers get one search after the other, with those of the search before.
    fn names(searches: &[&[FoundServer]]) -> Vec<Vec<String>> {
        let (mut names, mut before) = (HistoryNames::default(), Vec::new());
        let mut search = |found: &&[FoundServer]| {
            let mut found = found.to_vec();
            names.give(&mut found, &before);
            before.clone_from(&found);
            found.iter().map(|one| one.endpoint().to_string()).collect()
        };
        searches.iter().map(&mut search).collect()
    }

    #[test]
    fn a_server_of_this_host_and_those_of_containers_with_its_port_are_told_apart() {
        let (host, other) = (server(9, None), server(8, None));
        let (first, second) = (server(1, Some(&["10.0.0.1", "fd00::1"])), server(2, Some(&["10.0.0.2"])));
        let all = [host, first, second, other];
        assert_eq!(names(&[&all]), [["0.0.0.0:5", "10.0.0.1:5", "10.0.0.2:5", "0.0.0.0:5"]]);
        let elsewhere = |port| FoundServer { port, ..server(3, Some(&["10.0.0.3"])) };
        assert_eq!(
            names(&[&[elsewhere(6), elsewhere(7)]]),
            [["0.0.0.0:6", "0.0.0.0:7"]],
            "nobody has their ports"
        );
    }

    #[test]
    fn a_server_keeps_its_name_while_it_runs_and_finds_it_again() {
        let own = |pid, address: &str| server(pid, Some(&[address]));
        let (first, second) = (own(7, "10.0.0.1"), own(1, "10.0.0.2"));
        let alone: &[FoundServer] = std::slice::from_ref(&first);
        let both = [first.clone(), second.clone()];
        let (old, new) = ("0.0.0.0:5", "10.0.0.2:5");
        assert_eq!(names(&[alone, &both]), [vec![old], vec![old, new]], "whichever is older");
        // Both start again, one after the other.
        let again = [own(21, "10.0.0.1"), own(20, "10.0.0.2")];
        let found = names(&[alone, &both, &[], &again[1..], &again]);
        assert_eq!(found[3..], [vec![new], vec![old, new]]);
        // The address of one that is alone does not matter.
        assert_eq!(names(&[alone, &[own(22, "10.0.0.3")]])[1], [old]);
        // A server of this host has a right to its port.
        let host = server(30, None);
        assert_eq!(
            names(&[alone, &[first.clone(), host.clone()], &[host]])[1..],
            [vec!["10.0.0.1:5", old], vec![old]]
        );
    }

    #[test]
    fn servers_without_an_address_of_their_own_share_a_name() {
        let (unknown, other) = (server(1, Some(&[])), server(2, Some(&[])));
        assert_eq!(names(&[&[unknown, other]]), [["0.0.0.0:5", "0.0.0.0:5"]]);
        // As in networks that programs make for one container each.
        let same = |pid| server(pid, Some(&["10.0.2.100"]));
        assert_eq!(names(&[&[same(1), same(2), same(3)]]), [["0.0.0.0:5", "10.0.2.100:5", "0.0.0.0:5"]]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut names = HistoryNames::default();
        let mut found: Vec<FoundServer> = (0..2_000_u32)
            .map(|n| server(n, Some(&[&format!("10.0.{}.{}", n / 250, n % 250 + 1)])))
            .collect();
        names.give(&mut found, &[]);
        assert_eq!(names.remembered.len(), MAX_REMEMBERED);
        assert_eq!(found.iter().map(FoundServer::endpoint).collect::<BTreeSet<_>>().len(), found.len());
    }
}
