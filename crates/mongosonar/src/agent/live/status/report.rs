//! How the servers with a URI are, as one collector.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sonar_core::Timestamp;
use sonar_core::history::{Collector, Event};

use crate::agent::live::board::{CollectorBoard, CollectorProblem};

/// The most problems that the status names.
const MAX_PROBLEMS: usize = 4;

/// What is known of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// What it did not answer, and why; empty if all is well.
    pub problems: Vec<CollectorProblem>,
    /// What is collected of it, in a few words.
    pub note: String,
    /// It answered something now.
    pub has_data: bool,
    /// Requests that it did not answer since the last report.
    pub lost: u64,
}

/// Joins the reports of all servers.
#[derive(Debug)]
pub struct StatusReports {
    board: Arc<CollectorBoard>,
    servers: Mutex<(BTreeMap<String, ServerReport>, u64)>,
}

impl StatusReports {
    /// Reports to `board`.
    pub fn new(board: Arc<CollectorBoard>) -> Self {
        Self { board, servers: Mutex::default() }
    }

    /// Notes how a server is at `at`. Returns an event if the collector fails or works again.
    pub fn report(&self, server: &str, at: Timestamp, report: ServerReport) -> Option<Event> {
        let mut all = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let (servers, lost) = &mut *all;
        let has_data = report.has_data;
        *lost += report.lost;
        servers.insert(server.to_owned(), report);
        self.board.lost(Collector::Status, *lost);
        let notes = servers.iter().filter(|(_, one)| !one.note.is_empty());
        self.board
            .notes(Collector::Status, notes.map(|(name, one)| format!("{name}: {}", one.note)).collect());
        if has_data {
            self.board.delivered(Collector::Status, at);
        }
        match joined(servers) {
            Some(problem) => self.board.failed(Collector::Status, at, &problem),
            None if has_data => self.board.data(Collector::Status, at),
            None => None,
        }
    }

    /// Forgets a server that has another name now.
    pub fn forget(&self, server: &str) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).0.remove(server);
    }
}

/// All problems as one.
fn joined(servers: &BTreeMap<String, ServerReport>) -> Option<CollectorProblem> {
    let all = servers.iter().flat_map(|(name, one)| one.problems.iter().map(move |problem| (name, problem)));
    let count = all.clone().count();
    let is_permanent = all.clone().any(|(_, problem)| problem.is_permanent);
    let mut texts: Vec<String> =
        all.take(MAX_PROBLEMS).map(|(name, problem)| format!("{name}: {}", problem.text())).collect();
    if count > MAX_PROBLEMS {
        texts.push(format!("{} more", count - MAX_PROBLEMS));
    }
    (count > 0).then(|| CollectorProblem { what: texts.join("; "), fix: None, is_permanent })
}

#[cfg(test)]
mod tests {
    use sonar_core::history::EventKind;
    use sonar_view::agent::CollectorState;

    use super::*;

    #[test]
    fn the_collector_works_when_all_servers_do() {
        let board = Arc::new(CollectorBoard::new(|_| true));
        let reports = StatusReports::new(board.clone());
        let at = |second: u64| Timestamp::from_unix(1_000 + second, 0);
        let good = || ServerReport { has_data: true, note: "figures".to_owned(), ..ServerReport::default() };
        let bad = |what: &str| ServerReport {
            problems: vec![CollectorProblem::temporary(what.to_owned())],
            lost: 1,
            ..ServerReport::default()
        };
        assert_eq!(reports.report("a:1", at(0), good()), None);
        let failed = reports.report("b:2", at(1), bad("refused")).unwrap();
        assert_eq!((failed.kind, &*failed.text), (EventKind::CollectorFailed, "b:2: refused"));
        assert_eq!(reports.report("a:1", at(10), good()), None, "no word of b:2 has changed");
        assert_eq!(reports.report("b:2", at(11), bad("refused")), None);
        let status = board.all()[Collector::Status as usize].clone();
        assert_eq!((status.state, status.lost), (CollectorState::Waiting, 2));
        assert_eq!(status.last_data_ns, Some(at(10).unix_ns()), "a:1 goes on");
        assert_eq!(status.notes, ["a:1: figures"]);
        let recovered = reports.report("b:2", at(20), good()).unwrap();
        assert_eq!(recovered.kind, EventKind::CollectorRecovered);
        for number in 0..9 {
            reports.report(&format!("c:{number}"), at(30), bad("down"));
        }
        let text = board.all()[Collector::Status as usize].problems.join("");
        assert!(text.starts_with("c:0: down; c:1: down") && text.ends_with("; 5 more"), "{text}");
    }
}
