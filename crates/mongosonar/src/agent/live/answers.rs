//! Whether the helper that finds servers answers, and how many answers came too late to be used.

use sonar_core::history::CollectorKind;
use sonar_core::words::plural;

use super::board::CollectorProblem;
use super::record::AgentRecord;

/// The answers of helpers so far.
#[derive(Debug, Default)]
pub struct HelperAnswers {
    /// Why the last search for servers was not answered, if it was not.
    problem: Option<CollectorProblem>,
    /// How many late ones were reported.
    late: u64,
}

impl HelperAnswers {
    /// Reports why the last search was not answered, or that it is again, and that so many answers came late and were
    /// discarded since the start.
    pub fn note(&mut self, problem: Option<CollectorProblem>, late: u64, record: &mut AgentRecord) {
        let before = std::mem::replace(&mut self.problem, problem.clone());
        for collector in [CollectorKind::Log, CollectorKind::Internals] {
            if record.board.is_wanted(collector) {
                match &problem {
                    // Once, whatever else is reported meanwhile.
                    Some(problem) if before.as_ref() != Some(problem) => record.fail(collector, problem),
                    None if before.is_some() => record.passes(collector),
                    _ => {}
                }
            }
        }
        if std::mem::replace(&mut self.late, late) < late {
            record.notices.say(format!("helper processes stood still: {} came late", plural(late, "answer")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::live::fakes::{FAILURES, test_record};

    #[test]
    fn a_search_without_an_answer_is_reported_once_for_each_collector_that_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut test = test_record(folder.path(), 0);
        test.record.board.want(CollectorKind::Internals, false);
        let mut answers = HelperAnswers::default();
        let silent = CollectorProblem::temporary("it does not answer".to_owned());
        for (problem, late) in [(Some(&silent), 0), (Some(&silent), 0), (None, 1), (None, 1), (None, 3)] {
            answers.note(problem.cloned(), late, &mut test.record);
        }
        let late =
            ["1 answer", "3 answers"].map(|count| format!("helper processes stood still: {count} came late"));
        assert_eq!(test.record.status().notices, late);
        test.record.store_rest();
        let events = test.store.events(&FAILURES);
        assert_eq!(events.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), FAILURES, "only the log's");
    }
}
