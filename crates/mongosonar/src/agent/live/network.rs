//! The interfaces and addresses of this host.

use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_sys::Host;

use super::board::SourceId;
use super::clock_reading::AgentClock;
use super::opener::NetworkState;
use super::queries::QueriesCollector;
use super::record::AgentRecord;
use super::search::HostServers;

/// How often to look at interfaces that are named in the configuration: they come and go.
const INTERFACES_EVERY: Duration = Duration::from_secs(2);

/// The network of now. Without a capture no helper looks at it, and this process may open no sockets any more: then it is
/// what files say, which is the addresses.
fn network(queries: Option<&QueriesCollector>, host: &Host) -> Result<NetworkState, String> {
    match queries {
        Some(queries) => queries.network(),
        None => {
            let addresses = host
                .addresses()
                .map_err(|error| format!("cannot list the addresses of this host: {error}"))?;
            Ok(NetworkState { interfaces: Vec::new(), addresses: addresses.into_iter().collect() })
        }
    }
}

/// What was last seen of the network of this host.
#[derive(Debug, Default)]
pub struct NetworkWatch {
    /// Why it is not known, if it is not.
    problem: Option<String>,
    /// When it was looked at.
    seen: Option<Instant>,
}

impl NetworkWatch {
    /// Notes the addresses of this host, or reports once why they are not known.
    pub fn note(
        &mut self,
        network: &Result<NetworkState, String>,
        servers: &mut HostServers,
        record: &mut AgentRecord,
    ) {
        match network {
            Ok(network) => {
                self.problem = None;
                servers.set_network(network);
            }
            Err(why) => {
                let text =
                    format!("{why}; connections to its own addresses are stored under these addresses");
                record.notices.say_once(&mut self.problem, text);
            }
        }
    }

    /// Whether to look at interfaces again, because they are named.
    pub fn is_due(&self, queries: Option<&QueriesCollector>, clock: &dyn AgentClock) -> bool {
        queries.is_some_and(|queries| !queries.interfaces().is_empty())
            && clock.is_due(self.seen, INTERFACES_EVERY)
    }

    /// Looks at the interfaces and addresses of this host: they come and go.
    pub fn follow(
        &mut self,
        queries: Option<&mut QueriesCollector>,
        servers: &mut HostServers,
        record: &mut AgentRecord,
    ) {
        self.seen = Some(record.clock.instant());
        let network = network(queries.as_deref(), &Host::live());
        self.note(&network, servers, record);
        let (Ok(network), Some(queries)) = (network, queries) else { return };
        let followed = queries.follow_interfaces(&network);
        for name in queries.interfaces() {
            let source = SourceId::of_interface(CollectorKind::Queries, name);
            match network.problem(name).or_else(|| followed.as_ref().err().cloned()) {
                Some(problem) => record.fail(source, &problem),
                None => record.passes(source),
            }
        }
        if !queries.has_interface() {
            record.board.forget(CollectorKind::Queries);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::agent::live::fakes::{TestRecord, test_record, test_servers};

    #[test]
    fn without_a_capture_the_addresses_are_those_of_now() {
        let proc = tempfile::tempdir().unwrap();
        let host = Host::of_proc(proc.path());
        assert!(network(None, &host).unwrap_err().starts_with("cannot list the addresses of this host: "));
        fs::create_dir(proc.path().join("net")).unwrap();
        for address in ["192.0.2.2", "192.0.2.3"] {
            let routes = format!("Local:\n  |-- {address}\n     /32 host LOCAL\n");
            fs::write(proc.path().join("net/fib_trie"), routes).unwrap();
            assert_eq!(
                network(None, &host).unwrap().addresses,
                [address.parse::<std::net::IpAddr>().unwrap()]
            );
        }
    }

    #[test]
    fn why_the_network_is_not_known_is_said_once_and_its_addresses_are_those_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let TestRecord { mut record, .. } = test_record(folder.path(), 0);
        let mut servers = test_servers(folder.path());
        let mut watch = NetworkWatch::default();
        let address = "192.0.2.2".parse().unwrap();
        let known = NetworkState { interfaces: Vec::new(), addresses: vec![address] };
        let unknown = || Err("denied".to_owned());
        for network in [unknown(), unknown(), Ok(known), unknown()] {
            watch.note(&network, &mut servers, &mut record);
        }
        assert!(servers.watched().has_address(address) && servers.local().addresses.contains(&address));
        let said = "denied; connections to its own addresses are stored under these addresses";
        assert_eq!(record.status().notices, [said, said]);
        assert!(!watch.is_due(None, &*record.clock), "no interface is named");
    }
}
