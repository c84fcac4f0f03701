//! Operations that run as a document of the page.

use std::sync::Arc;

use serde::Serialize;
use sonar_core::Timestamp;
use sonar_core::history::CollectorKind;
use ts_rs::TS;

use super::listing::NowSnapshot;
use crate::agent::{AgentStatus, CollectorState};
use crate::page::SCHEMA;

/// What the agent of a page has listed.
#[derive(Clone, Debug, Default)]
pub enum ListedOperations {
    /// The page is of no running agent.
    #[default]
    NoAgent,
    /// It has not answered yet.
    NotYet,
    /// What ran a moment ago.
    Listed(Arc<NowSnapshot>),
}

/// Operations that run now.
#[derive(Clone, Debug, Serialize, TS)]
pub struct NowReport<'a> {
    /// Version of the schema.
    pub schema: u32,
    /// `now`.
    #[ts(type = "\"now\"")]
    pub kind: &'static str,
    /// The version of mongosonar.
    pub version: &'static str,
    /// The time of the answer, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Why nothing can be listed, and what helps; null if something can.
    pub problem: Option<String>,
    /// What the sources of the agent show of operations that run, and what they lack.
    pub sources: Vec<NowSourceJson>,
    /// What ran when the agent last looked; null if it has not answered yet.
    pub listed: Option<&'a NowSnapshot>,
}

/// A source of operations that run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct NowSourceJson {
    /// Its name: `queries`, `split` or `status`.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// Whether it works.
    pub is_working: bool,
    /// What it lacks and how to get it; null if nothing.
    pub lacks: Option<String>,
}

const NO_AGENT: &str = "the operations that run now are known to a running agent only, and this page reads a stored \
     history: `sudo mongosonar open` opens the page of the agent of this host";

/// What a source shows, and how to switch it on.
const fn texts(source: CollectorKind) -> Option<[&'static str; 2]> {
    match source {
        CollectorKind::Queries => Some([
            "requests without a reply yet, with their clients",
            "it is off: `queries = true` below `[collectors]` of the agent's configuration",
        ]),
        CollectorKind::Split => Some([
            "what threads of the servers do and wait for, and who ended their waits",
            "it is off: `split = true` below `[collectors]` of the agent's configuration",
        ]),
        CollectorKind::Status => Some([
            "what servers say of themselves (currentOp): locks, plans, numbers for killOp, index builds",
            "no server has a login: `[[server]]` with a `uri` in the agent's configuration",
        ]),
        _ => None,
    }
}

impl<'a> NowReport<'a> {
    /// At this time; `agent` is what the agent says of itself, if that is known.
    pub fn new(listed: &'a ListedOperations, agent: Option<&AgentStatus>, now: Timestamp) -> Self {
        let (problem, listed) = match listed {
            ListedOperations::NoAgent => (Some(NO_AGENT.to_owned()), None),
            ListedOperations::NotYet => (None, None),
            ListedOperations::Listed(snapshot) => (None, Some(&**snapshot)),
        };
        let source = |kind: &CollectorKind| {
            let [shows, off] = texts(*kind)?;
            let collector = agent?.collectors.iter().find(|one| one.name == kind.name());
            let state = collector.map_or(CollectorState::Off, |one| one.state);
            let is_working = state == CollectorState::Working;
            let problems = collector.map(|one| one.problems.join("; ")).filter(|text| !text.is_empty());
            let lacks = match state {
                CollectorState::Off => Some(off.to_owned()),
                CollectorState::Waiting | CollectorState::NeedsYou => {
                    Some(problems.unwrap_or_else(|| "it has nothing to show yet".to_owned()))
                }
                CollectorState::Working => problems,
            };
            Some(NowSourceJson { name: kind.name(), shows, is_working, lacks })
        };
        let sources = match problem {
            Some(_) => Vec::new(),
            None => CollectorKind::ALL.iter().filter_map(source).collect(),
        };
        Self {
            schema: SCHEMA,
            kind: "now",
            version: env!("CARGO_PKG_VERSION"),
            now_ns: now.unix_ns(),
            problem,
            sources,
            listed,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::agent::CollectorStatus;

    use super::*;

    fn report(listed: &ListedOperations, collectors: Vec<CollectorStatus>) -> Vec<NowSourceJson> {
        let agent = AgentStatus { collectors, ..AgentStatus::default() };
        NowReport::new(listed, Some(&agent), Timestamp::from_unix(1_000, 0)).sources
    }

    #[test]
    fn each_source_says_what_it_lacks_and_how_to_get_it() {
        let collector = |kind, state, problems: &[&str]| CollectorStatus {
            state,
            problems: problems.iter().map(|text| (*text).to_owned()).collect(),
            ..CollectorStatus::new(kind)
        };
        let sources = report(
            &ListedOperations::NotYet,
            vec![
                collector(CollectorKind::Queries, CollectorState::Working, &[]),
                collector(CollectorKind::Split, CollectorState::NeedsYou, &["CAP_BPF is missing"]),
            ],
        );
        let found: Vec<_> =
            sources.iter().map(|one| (one.name, one.is_working, one.lacks.as_deref())).collect();
        assert_eq!(found[0], ("queries", true, None));
        assert!(
            found[1].0 == "status" && found[1].2.is_some_and(|text| text.contains("`[[server]]`")),
            "{found:?}"
        );
        assert_eq!(found[2], ("split", false, Some("CAP_BPF is missing")));
    }

    #[test]
    fn without_an_agent_the_page_says_what_now_needs() {
        let report = NowReport::new(&ListedOperations::NoAgent, None, Timestamp::from_unix(1_000, 0));
        assert!(report.problem.is_some_and(|text| text.contains("mongosonar open")));
        assert!(report.sources.is_empty() && report.listed.is_none());
        let listed = ListedOperations::Listed(Arc::new(NowSnapshot { at_ns: 5, ..NowSnapshot::default() }));
        let report = NowReport::new(&listed, None, Timestamp::from_unix(1_000, 0));
        assert_eq!((report.listed.map(|one| one.at_ns), report.problem), (Some(5), None));
    }
}
