//! The states of the servers with a URI, as one collector.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sonar_core::Timestamp;
use sonar_core::history::{CollectorKind, Event};

use crate::agent::live::board::{CollectorBoard, CollectorProblem, SourceId};
use crate::locking::lock;

/// What is known of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// The requests that failed, and why; empty if none did.
    pub problems: Vec<CollectorProblem>,
    /// What is collected of it, in a few words.
    pub note: String,
    /// It answered something now.
    pub has_data: bool,
    /// Unanswered requests since the last report.
    pub lost: u64,
}

/// Collects the reports of all servers.
#[derive(Debug)]
pub struct StatusReports {
    board: Arc<CollectorBoard>,
    /// What is collected of each server, and requests that were not answered, of all.
    servers: Mutex<(BTreeMap<String, String>, u64)>,
}

impl StatusReports {
    /// Reports to `board`.
    pub fn new(board: Arc<CollectorBoard>) -> Self {
        Self { board, servers: Mutex::default() }
    }

    /// Reports the state of a server at `at`. Returns an event if it fails or works again.
    pub fn report(&self, server: &str, at: Timestamp, report: ServerReport) -> Option<Event> {
        let mut all = lock(&self.servers);
        let (notes, lost) = &mut *all;
        let ServerReport { problems, note, has_data, lost: more } = report;
        *lost += more;
        self.board.lost(CollectorKind::Status, *lost);
        notes.insert(server.to_owned(), note);
        let shown = notes.iter().filter(|(_, note)| !note.is_empty());
        self.board
            .notes(CollectorKind::Status, shown.map(|(name, note)| format!("{name}: {note}")).collect());
        if has_data {
            self.board.delivered(CollectorKind::Status, at);
        }
        let source = SourceId::of_host(CollectorKind::Status, server);
        match joined(&problems) {
            Some(problem) => self.board.failed(source, at, &problem),
            None if has_data => self.board.data(source, at),
            None => None,
        }
    }

    /// Forgets a server that has another name now.
    pub fn forget(&self, server: &str) {
        lock(&self.servers).0.remove(server);
        self.board.forget(SourceId::of_host(CollectorKind::Status, server));
    }
}

/// The problems of a server as one.
fn joined(problems: &[CollectorProblem]) -> Option<CollectorProblem> {
    let texts: Vec<String> = problems.iter().map(CollectorProblem::text).collect();
    let is_permanent = problems.iter().any(|problem| problem.is_permanent);
    (!texts.is_empty()).then(|| CollectorProblem { what: texts.join("; "), fix: None, is_permanent })
}

#[cfg(test)]
mod tests {
    use sonar_core::history::EventKind;
    use sonar_view::agent::CollectorState;

    use super::*;

    #[test]
    fn each_server_fails_and_recovers_by_itself() {
        let board = Arc::new(CollectorBoard::new(|_| true));
        let reports = StatusReports::new(board.clone());
        let at = |second: u64| Timestamp::from_unix(1_000 + second, 0);
        let good = || ServerReport { has_data: true, note: "figures".to_owned(), ..ServerReport::default() };
        let bad = |what: &[&str]| ServerReport {
            problems: what.iter().map(|what| CollectorProblem::temporary((*what).to_owned())).collect(),
            lost: 1,
            ..ServerReport::default()
        };
        let status = || board.all()[CollectorKind::Status as usize].clone();
        assert_eq!(reports.report("a:1", at(0), good()), None);
        let failed = reports.report("b:2", at(1), bad(&["refused", "no sizes"])).unwrap();
        assert_eq!((failed.kind, &*failed.text), (EventKind::CollectorFailed, "b:2: refused; no sizes"));
        assert_eq!(reports.report("a:1", at(10), good()), None, "b:2 has not changed");
        assert_eq!(reports.report("b:2", at(11), bad(&["refused", "no sizes"])), None);
        assert_eq!((status().state, status().lost), (CollectorState::Working, 2), "a:1 goes on");
        assert_eq!(status().last_data_ns, Some(at(10).unix_ns()));
        assert_eq!(
            (status().notes, status().problems),
            (vec!["a:1: figures".to_owned()], vec!["b:2: refused; no sizes".to_owned()])
        );
        let failed = reports.report("a:1", at(20), bad(&["down"])).unwrap();
        assert_eq!(&*failed.text, "a:1: down", "no word of b:2");
        assert_eq!((status().state, status().problems.len()), (CollectorState::Waiting, 2));
        let recovered = reports.report("b:2", at(21), good()).unwrap();
        assert_eq!(
            (recovered.kind, &*recovered.text),
            (EventKind::CollectorRecovered, "b:2: it works again")
        );
        assert_eq!(
            (status().state, status().problems),
            (CollectorState::Working, vec!["a:1: down".to_owned()])
        );
        reports.forget("a:1");
        assert_eq!(status().problems.len(), 0);
    }
}
