//! One list after the other: asks the capture threads, and waits for their answers without standing still.

use std::time::{Duration, Instant};

use sonar_core::RunningOperations;

use crate::capture::running::RunningAnswers;

/// How long the list waits for capture threads. One without packets looks at what has changed once a second.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// The list that was asked for.
#[derive(Default)]
pub struct RunningRound {
    asked: Option<Instant>,
    /// What was asked last. Threads that have not answered yet are not asked again.
    answers: Option<RunningAnswers>,
    /// Whether these answers belong to an earlier list.
    is_late: bool,
}

/// What capture threads list.
pub struct ListedWire {
    /// Their operations; `None` if no capture runs.
    pub operations: Option<RunningOperations>,
    /// Whether a thread has not answered in time: its operations are missing.
    pub is_partial: bool,
}

impl RunningRound {
    /// Begins at this time; `ask` asks the capture threads, if a capture runs.
    pub fn begin(&mut self, now: Instant, ask: impl FnOnce() -> Option<RunningAnswers>) {
        self.asked = Some(now);
        // What came too late for the list before says nothing about this one.
        if self.answers.as_mut().is_none_or(RunningAnswers::is_complete) {
            self.answers = ask();
            self.is_late = false;
        }
    }

    /// What has come once all have answered, or after a while; `None` if nothing was asked, or it is not time yet.
    pub fn end(&mut self, now: Instant) -> Option<ListedWire> {
        let asked = self.asked?;
        if self.is_late {
            self.asked = None;
            return Some(ListedWire { operations: None, is_partial: true });
        }
        let is_complete = self.answers.as_mut().is_none_or(RunningAnswers::is_complete);
        if !is_complete && now.saturating_duration_since(asked) < PATIENCE {
            return None;
        }
        self.asked = None;
        self.is_late = !is_complete;
        let operations = self.answers.as_mut().map(RunningAnswers::take);
        Some(ListedWire { operations, is_partial: !is_complete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::running::RunningQuestion;

    #[test]
    fn without_the_answer_of_a_thread_a_list_is_partial_and_the_thread_is_not_asked_twice() {
        let (mut round, begin) = (RunningRound::default(), Instant::now());
        assert!(round.end(begin).is_none(), "nobody has asked");
        let (question, answers) = RunningQuestion::new(2, 10);
        let slow = question.clone();
        round.begin(begin, || Some(answers));
        question.answer(RunningOperations { waiting: 3, ..RunningOperations::default() });
        drop(question);
        assert!(round.end(begin + PATIENCE / 2).is_none());
        let listed = |round: &mut RunningRound, now| {
            round.end(now).map(|wire| (wire.operations.map(|found| found.waiting), wire.is_partial))
        };
        assert_eq!(listed(&mut round, begin + PATIENCE), Some((Some(3), true)));
        assert!(round.end(begin + PATIENCE).is_none(), "it was listed");
        round.begin(begin + 2 * PATIENCE, || panic!("one has not answered yet"));
        assert_eq!(listed(&mut round, begin + 2 * PATIENCE), Some((None, true)));
        slow.answer(RunningOperations { waiting: 4, ..RunningOperations::default() });
        drop(slow);
        // The late answer is of an earlier moment: all are asked again.
        let (question, answers) = RunningQuestion::new(1, 10);
        round.begin(begin + 3 * PATIENCE, || Some(answers));
        question.answer(RunningOperations { waiting: 5, ..RunningOperations::default() });
        drop(question);
        assert_eq!(listed(&mut round, begin + 3 * PATIENCE), Some((Some(5), false)));
        // Without a capture there is nothing to wait for.
        round.begin(begin + 4 * PATIENCE, || None);
        assert_eq!(listed(&mut round, begin + 4 * PATIENCE), Some((None, false)));
    }
}
