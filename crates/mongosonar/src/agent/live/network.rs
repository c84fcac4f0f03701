//! The interfaces and addresses of this host.

use sonar_core::history::CollectorKind;
use sonar_sys::Host;

use super::LiveAgent;
use super::board::SourceId;
use super::opener::NetworkState;
use super::queries::QueriesCollector;

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

impl LiveAgent<'_> {
    /// Notes the addresses of this host, or reports once why they are not known.
    pub(super) fn note_network(&mut self, network: &Result<NetworkState, String>) {
        match network {
            Ok(network) => {
                self.network_problem = None;
                self.context.servers.set_addresses(network.addresses.iter().copied().collect());
                self.context.servers.add_to(&mut self.servers);
            }
            Err(why) => {
                let text =
                    format!("{why}; connections to its own addresses are stored under these addresses");
                if self.network_problem.replace(text.clone()).as_ref() != Some(&text) {
                    eprintln!("mongosonar: {text}");
                    self.note(text);
                }
            }
        }
    }

    /// Looks at the interfaces and addresses of this host: they come and go.
    pub(super) fn follow_network(&mut self) {
        self.network_seen = Some(self.instant());
        let network = network(self.queries.as_ref(), &Host::live());
        self.note_network(&network);
        let (Ok(network), Some(queries)) = (network, &mut self.queries) else { return };
        let followed = queries.follow_interfaces(&network);
        let (names, has_interface) = (queries.interfaces().to_vec(), queries.has_interface());
        for name in &names {
            let source = SourceId::of_interface(CollectorKind::Queries, name);
            match network.problem(name).or_else(|| followed.as_ref().err().cloned()) {
                Some(problem) => self.fail(source, &problem),
                None => self.passes(source),
            }
        }
        if !has_interface {
            self.context.board.forget(CollectorKind::Queries);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
}
