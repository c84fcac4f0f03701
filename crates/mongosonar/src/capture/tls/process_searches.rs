//! Looks into several processes at once, in threads: one that withholds what it has mapped, or its files, holds up no other
//! one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::input::follow::{FileThread, FileThreads};

/// How often to try again where no thread was left.
const AGAIN: Duration = Duration::from_millis(50);

/// Finds something in processes.
pub struct ProcessSearches<T> {
    find: Arc<dyn Fn(u32) -> T + Send + Sync>,
    running: HashMap<u32, RunningSearch>,
    threads: Arc<FileThreads>,
    give: Sender<FoundInProcess<T>>,
    found: Receiver<FoundInProcess<T>>,
}

/// What was found in a process.
struct FoundInProcess<T> {
    process: u32,
    found: T,
}

/// One process.
struct RunningSearch {
    place: FileThread,
    /// When it was asked for.
    since: Instant,
    /// A thread looks.
    has_begun: bool,
    /// It was said that there is no answer.
    is_told: bool,
}

/// What was found, and the thread that did.
pub struct SearchResult<T> {
    /// The process.
    pub process: u32,
    /// What was found.
    pub found: T,
    /// Works on the files of the process.
    pub place: FileThread,
}

impl<T: Send + 'static> ProcessSearches<T> {
    /// Finds by `find`, which may wait for ever.
    pub fn new(find: impl Fn(u32) -> T + Send + Sync + 'static) -> Self {
        let (give, found) = channel();
        Self { find: Arc::new(find), running: HashMap::new(), threads: Arc::default(), give, found }
    }

    /// Asks for a process of this user, unless it was asked for already and has not answered.
    pub fn seek(&mut self, process: u32, user: Option<u32>) {
        let place = || FileThread::of(&self.threads, user);
        self.running.entry(process).or_insert_with(|| RunningSearch {
            place: place(),
            since: Instant::now(),
            has_begun: false,
            is_told: false,
        });
    }

    /// The processes that have not answered.
    pub fn sought(&self) -> impl Iterator<Item = u32> {
        self.running.keys().copied()
    }

    /// Forgets those that are not in `alive`.
    pub fn keep(&mut self, alive: &[u32]) {
        self.running.retain(|process, _| alive.contains(process));
    }

    /// The next one that answers. Does not wait for those that were asked for `patience` ago, or longer.
    pub fn next(&mut self, patience: Duration) -> Option<SearchResult<T>> {
        loop {
            self.begin();
            let since = self.running.values().map(|search| search.since).max();
            let left = since.map_or(Duration::ZERO, |since| patience.saturating_sub(since.elapsed()));
            let wait =
                if self.running.values().all(|search| search.has_begun) { left } else { left.min(AGAIN) };
            match self.found.recv_timeout(wait) {
                Ok(FoundInProcess { process, found }) => {
                    // Of one that is forgotten nobody wants to know any more.
                    if let Some(search) = self.running.remove(&process) {
                        return Some(SearchResult { process, found, place: search.place });
                    }
                }
                Err(_) if left > wait => {}
                Err(_) => return None,
            }
        }
    }

    /// Those that have not answered within `patience`, each once.
    pub fn silent(&mut self, patience: Duration) -> Vec<u32> {
        let is_new = |search: &mut RunningSearch| {
            search.since.elapsed() >= patience && !std::mem::replace(&mut search.is_told, true)
        };
        let mut silent: Vec<u32> = self
            .running
            .iter_mut()
            .filter_map(|(process, search)| is_new(search).then_some(*process))
            .collect();
        silent.sort_unstable();
        silent
    }

    /// Lets threads look, as far as there are any.
    fn begin(&mut self) {
        for (process, search) in self.running.iter_mut().filter(|(_, search)| !search.has_begun) {
            let (process, find, give) = (*process, self.find.clone(), self.give.clone());
            let work = move || {
                let found = find(process);
                // Nobody may wait for it any more.
                let _ = give.send(FoundInProcess { process, found });
            };
            search.has_begun = search.place.begin(work).is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::locking::lock;

    #[test]
    fn a_process_that_does_not_answer_delays_no_other_one_is_named_once_and_found_when_it_answers() {
        const PATIENCE: Duration = Duration::from_secs(600);
        let (answer, answered) = channel::<()>();
        let answered = Mutex::new(answered);
        let mut searches = ProcessSearches::new(move |process| {
            if process == 1 {
                let _ = lock(&answered).recv();
            }
            process * 10
        });
        (1..=40).for_each(|process| searches.seek(process, Some(process % 4)));
        // All others, though there are not as many threads.
        let mut found: Vec<(u32, u32)> = (2..=40)
            .map_while(|_| searches.next(PATIENCE))
            .map(|result| (result.process, result.found))
            .collect();
        found.sort_unstable();
        assert_eq!(found, (2..=40).map(|process| (process, process * 10)).collect::<Vec<_>>());
        assert!(searches.silent(PATIENCE).is_empty());
        searches.seek(1, Some(1));
        assert_eq!((searches.silent(Duration::ZERO), searches.silent(Duration::ZERO)), (vec![1], vec![]));
        // It is not waited for again.
        assert!(searches.next(Duration::ZERO).is_none());
        drop(answer);
        assert_eq!(searches.next(PATIENCE).map(|result| result.found), Some(10));
        assert!(searches.next(PATIENCE).is_none());
    }

    #[test]
    fn a_process_that_has_ended_is_not_waited_for() {
        let mut searches = ProcessSearches::new(|process| process);
        (1..=2).for_each(|process| searches.seek(process, None));
        searches.keep(&[2]);
        assert_eq!(searches.next(Duration::from_secs(600)).map(|result| result.process), Some(2));
        assert!(searches.next(Duration::from_secs(600)).is_none());
    }
}
