//! The interfaces and addresses of this host.

use std::time::Instant;

use sonar_core::history::Collector;

use super::LiveAgent;
use super::opener::NetworkState;
use crate::queries::live::now;

impl LiveAgent<'_> {
    /// Notes the addresses of this host, or reports once why they are not known.
    pub(super) fn note_network(&mut self, network: &Result<NetworkState, String>) {
        match network {
            Ok(network) => {
                self.network_problem = None;
                self.watched.set_addresses(network.addresses.iter().copied().collect());
                self.watched.add_to(&mut self.servers);
            }
            Err(why) => {
                let text =
                    format!("{why}; connections to its own addresses are stored under these addresses");
                if self.network_problem.replace(text.clone()).as_ref() != Some(&text) {
                    eprintln!("mongosonar: queries: {text}");
                    self.note(text);
                }
            }
        }
    }

    /// Looks at the interfaces and addresses of this host: they come and go.
    pub(super) fn follow_network(&mut self) {
        let Some(queries) = &self.queries else { return };
        self.network_seen = Some(Instant::now());
        let network = queries.network();
        self.note_network(&network);
        let (Ok(network), Some(queries)) = (network, &mut self.queries) else { return };
        let followed = queries.follow_interfaces(&network);
        let (names, has_interface) = (queries.interfaces().to_vec(), queries.has_interface());
        for name in &names {
            let source = (Collector::Queries, name.as_str());
            match network.problem(name).or_else(|| followed.as_ref().err().cloned()) {
                Some(problem) => self.fail(source, &problem),
                None => {
                    let report = self.board.passed(source, now());
                    report.into_iter().for_each(|event| self.event(event));
                }
            }
        }
        if !has_interface {
            self.board.forget(Collector::Queries);
        }
    }
}
