//! Answers that were made a moment ago: when a window has been stored, all viewers ask for the same.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;

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
    body: Bytes,
}

impl RecentAnswers {
    /// The answer to the same question, if there is one of the last seconds.
    pub fn find(&self, asked: &str, now: Instant) -> Option<Bytes> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &&RecentAnswer| one.asked == asked && now.duration_since(one.at) < KEPT_FOR;
        answers.iter().find(is_it).map(|one| one.body.clone())
    }

    /// Keeps an answer, and forgets the oldest ones.
    pub fn keep(&self, asked: String, now: Instant, body: Bytes) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|one| one.asked != asked && now.duration_since(one.at) < KEPT_FOR);
        if asked.len() + body.len() > MAX_BYTES {
            return;
        }
        answers.push_back(RecentAnswer { asked, at: now, body });
        let size = |one: &RecentAnswer| one.asked.len() + one.body.len();
        let bytes = |answers: &VecDeque<RecentAnswer>| answers.iter().map(size).sum::<usize>();
        while answers.len() > MAX_ANSWERS || bytes(&answers) > MAX_BYTES {
            answers.pop_front();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_for_some_seconds_in_bounded_memory() {
        let (recent, now) = (RecentAnswers::default(), Instant::now());
        let kept = |asked: &str, later: Duration| recent.find(asked, now + later).is_some();
        recent.keep("a".to_owned(), now, Bytes::from_static(b"1"));
        assert!(kept("a", Duration::ZERO) && !kept("b", Duration::ZERO));
        assert!(!kept("a", KEPT_FOR));
        for number in 0..2 * MAX_ANSWERS {
            recent.keep(number.to_string(), now, Bytes::from_static(b"1"));
        }
        assert_eq!(recent.0.lock().unwrap().len(), MAX_ANSWERS);
        assert!(!kept("a", Duration::ZERO) && kept("127", Duration::ZERO));
        recent.keep("large".to_owned(), now, vec![0; MAX_BYTES - 9].into());
        assert_eq!(recent.0.lock().unwrap().len(), 2, "the large one, and one of four bytes");
        recent.keep("too large".to_owned(), now, vec![0; MAX_BYTES].into());
        assert!(!kept("too large", Duration::ZERO) && kept("large", Duration::ZERO), "it displaces nothing");
    }
}
