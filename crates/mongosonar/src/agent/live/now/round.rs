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
    /// Threads that have not answered yet are not asked again.
    answers: Option<RunningAnswers>,
}

/// What capture threads list.
pub struct ListedWire(pub Option<RunningOperations>);

impl RunningRound {
    /// Begins at this time; `ask` asks the capture threads, if a capture runs.
    pub fn begin(&mut self, now: Instant, ask: impl FnOnce() -> Option<RunningAnswers>) {
        self.asked = Some(now);
        if self.answers.is_none() {
            self.answers = ask();
        }
    }

    /// What has come once all have answered, or after a while; `None` if nothing was asked, or it is not time yet.
    pub fn end(&mut self, now: Instant) -> Option<ListedWire> {
        let asked = self.asked?;
        let is_complete = self.answers.as_mut().is_none_or(RunningAnswers::is_complete);
        if !is_complete && now.saturating_duration_since(asked) < PATIENCE {
            return None;
        }
        self.asked = None;
        let wire = self.answers.as_mut().map(RunningAnswers::take);
        if is_complete {
            self.answers = None;
        }
        Some(ListedWire(wire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::running::RunningQuestion;

    #[test]
    fn a_thread_that_does_not_answer_holds_up_the_list_for_a_moment_and_is_not_asked_twice() {
        let (mut round, begin) = (RunningRound::default(), Instant::now());
        assert!(round.end(begin).is_none(), "nobody has asked");
        let (question, answers) = RunningQuestion::new(2, 10);
        let slow = question.clone();
        round.begin(begin, || Some(answers));
        question.answer(RunningOperations { waiting: 3, ..RunningOperations::default() });
        drop(question);
        assert!(round.end(begin + PATIENCE / 2).is_none());
        let found = round.end(begin + PATIENCE).and_then(|wire| wire.0).map(|wire| wire.waiting);
        assert_eq!(found, Some(3));
        assert!(round.end(begin + PATIENCE).is_none(), "it was listed");
        round.begin(begin + 2 * PATIENCE, || panic!("one has not answered yet"));
        slow.answer(RunningOperations { waiting: 4, ..RunningOperations::default() });
        drop(slow);
        let found = round.end(begin + 2 * PATIENCE).and_then(|wire| wire.0).map(|wire| wire.waiting);
        assert_eq!(found, Some(4));
        // Without a capture there is nothing to wait for.
        round.begin(begin + 3 * PATIENCE, || None);
        assert!(round.end(begin + 3 * PATIENCE).is_some_and(|wire| wire.0.is_none()));
    }
}
