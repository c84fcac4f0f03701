//! Answers that were made a moment ago: when a window has been stored, all viewers ask for the same.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::answer::MadeAnswer;

/// How long an answer is kept: as long as a window is.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The most bytes of all answers that are kept.
const MAX_BYTES: usize = 8 << 20;
/// The most answers.
const MAX_ANSWERS: usize = 64;

/// Answers by what was asked for, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentAnswers(Mutex<VecDeque<RecentAnswer>>);

#[derive(Debug)]
struct RecentAnswer {
    asked: String,
    at: Instant,
    answer: MadeAnswer,
}

impl RecentAnswers {
    /// The answer to the same question, if there is one of the last seconds.
    pub fn find(&self, asked: &str, now: Instant) -> Option<MadeAnswer> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &&RecentAnswer| one.asked == asked && now.duration_since(one.at) < KEPT_FOR;
        answers.iter().find(is_it).map(|one| one.answer.clone())
    }

    /// Keeps an answer, and forgets the oldest ones.
    pub fn keep(&self, asked: String, now: Instant, answer: MadeAnswer) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|one| one.asked != asked && now.duration_since(one.at) < KEPT_FOR);
        if asked.len() + answer.length() > MAX_BYTES {
            return;
        }
        answers.push_back(RecentAnswer { asked, at: now, answer });
        let size = |one: &RecentAnswer| one.asked.len() + one.answer.length();
        let bytes = |answers: &VecDeque<RecentAnswer>| answers.iter().map(size).sum::<usize>();
        while answers.len() > MAX_ANSWERS || bytes(&answers) > MAX_BYTES {
            answers.pop_front();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::answer::{AnswerBytes, AnswerForm};

    fn answer(length: usize) -> MadeAnswer {
        let mut bytes = AnswerBytes::new(usize::MAX, AnswerForm::default());
        bytes.write_all(&vec![0; length]).unwrap();
        bytes.finish().unwrap()
    }

    #[test]
    fn answers_are_kept_for_some_seconds_in_bounded_memory() {
        let (recent, now) = (RecentAnswers::default(), Instant::now());
        let kept = |asked: &str, later: Duration| recent.find(asked, now + later).is_some();
        recent.keep("a".to_owned(), now, answer(1));
        assert!(kept("a", Duration::ZERO) && !kept("b", Duration::ZERO));
        assert!(!kept("a", KEPT_FOR));
        for number in 0..2 * MAX_ANSWERS {
            recent.keep(number.to_string(), now, answer(1));
        }
        assert_eq!(recent.0.lock().unwrap().len(), MAX_ANSWERS);
        assert!(!kept("a", Duration::ZERO) && kept("127", Duration::ZERO));
        recent.keep("large".to_owned(), now, answer(MAX_BYTES - 9));
        assert_eq!(recent.0.lock().unwrap().len(), 2, "the large one, and one of four bytes");
        recent.keep("too large".to_owned(), now, answer(MAX_BYTES));
        assert!(!kept("too large", Duration::ZERO) && kept("large", Duration::ZERO), "it displaces nothing");
    }
}
