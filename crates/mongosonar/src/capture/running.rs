//! Asks capture threads which operations run.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use sonar_core::RunningOperations;

/// A question to all threads of a capture. Each answers when it next looks at what has changed, between packets.
pub struct RunningQuestion {
    most: usize,
    to: SyncSender<RunningOperations>,
}

/// The answers. They are complete once no thread has the question any more.
pub struct RunningAnswers {
    from: Receiver<RunningOperations>,
    most: usize,
    found: RunningOperations,
}

impl RunningQuestion {
    /// For the oldest `most` operations, to so many threads.
    pub fn new(threads: usize, most: usize) -> (Arc<Self>, RunningAnswers) {
        let (to, from) = sync_channel(threads);
        let answers = RunningAnswers { from, most, found: RunningOperations::default() };
        (Arc::new(Self { most, to }), answers)
    }

    /// How many operations each thread lists at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The answer of a thread.
    pub fn answer(&self, running: RunningOperations) {
        // There is room for one of each thread. Nobody may wait for it any longer.
        self.to.try_send(running).ok();
    }
}

impl RunningAnswers {
    /// Takes what has come; whether each thread has answered, or has ended.
    pub fn is_complete(&mut self) -> bool {
        loop {
            match self.from.try_recv() {
                Ok(running) => self.found.join(running, self.most),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// What has come since this was last called.
    pub fn take(&mut self) -> RunningOperations {
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_complete_once_each_thread_has_answered_or_ended() {
        let (question, mut answers) = RunningQuestion::new(2, 10);
        let second = question.clone();
        let waiting = |waiting| RunningOperations { waiting, ..RunningOperations::default() };
        assert!(!answers.is_complete());
        question.answer(waiting(3));
        drop(question);
        assert!(!answers.is_complete(), "one has not answered");
        assert_eq!((answers.take().waiting, answers.take().waiting), (3, 0));
        second.answer(waiting(4));
        second.answer(waiting(5));
        second.answer(waiting(6));
        drop(second);
        assert!(answers.is_complete());
        assert_eq!(answers.take().waiting, 9, "there is room for as many answers as there are threads");
        let (question, mut answers) = RunningQuestion::new(1, 10);
        drop(question);
        assert!(answers.is_complete(), "the thread has ended");
    }
}
