//! Notices that the main thread waits for the file system of the store, which may never answer.
//!
//! It says so, as nobody else could: the status is in the same folder. If the agent is asked to stop meanwhile, this thread
//! ends it, because the main thread cannot.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::exit;
use crate::thread_starter::ThreadStarter;

/// How long storing may take. After that the log says so, and an agent that is asked to stop ends without storing.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often to look.
const LOOK: Duration = Duration::from_millis(200);

/// How the main thread uses the folder of the store.
#[derive(Debug, Default)]
pub struct StorePulse(Mutex<PulseState>);

#[derive(Debug, Default)]
struct PulseState {
    /// When it began, if it uses it now.
    begun: Option<Instant>,
    /// The longest time without an answer since the last `take_longest`.
    longest: Option<Duration>,
}

/// The main thread uses the folder of the store, until this is dropped.
pub struct StoreUse {
    pulse: Arc<StorePulse>,
    begun: Instant,
}

impl StorePulse {
    /// Watched by a thread, for as long as the process runs. `stop` is set once the agent is asked to stop.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watched(starter: &ThreadStarter, stop: Arc<AtomicBool>, folder: &Path) -> Result<Arc<Self>> {
        let pulse = Arc::new(Self::default());
        let (watched, folder) = (pulse.clone(), folder.to_path_buf());
        let started = starter.spawn("watch".to_owned(), move || watch(&watched, &stop, &folder));
        started.context("cannot start a thread")?;
        Ok(pulse)
    }

    /// The main thread uses the folder from now on.
    pub fn begin(self: &Arc<Self>) -> StoreUse {
        let begun = Instant::now();
        self.state().begun = Some(begun);
        StoreUse { pulse: self.clone(), begun }
    }

    /// Drops what then uses the folder for the last time.
    pub fn close<T>(self: &Arc<Self>, user: T) {
        let waits = self.begin();
        drop(user);
        drop(waits);
    }

    /// For how long the folder did not answer, since the last call; `None` if that was not long.
    pub fn take_longest(&self) -> Option<Duration> {
        self.state().longest.take()
    }

    /// Since when it has been used without an answer; `None` if that is not long.
    fn stuck_since(&self) -> Option<Instant> {
        self.state().begun.filter(|begun| begun.elapsed() >= PATIENCE)
    }

    fn state(&self) -> MutexGuard<'_, PulseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StoreUse {
    fn drop(&mut self) {
        let waited = self.begun.elapsed();
        let mut state = self.pulse.state();
        state.begun = None;
        if waited >= PATIENCE {
            state.longest = state.longest.max(Some(waited));
        }
    }
}

fn watch(pulse: &StorePulse, stop: &AtomicBool, folder: &Path) {
    let mut said = None;
    loop {
        std::thread::sleep(LOOK);
        let stuck = pulse.stuck_since();
        let folder = folder.display();
        if let Some(begun) = stuck
            && said != stuck
        {
            let seconds = begun.elapsed().as_secs();
            eprintln!(
                "mongosonar: the file system of {folder} has not answered for {seconds} s: nothing is stored, what is \
                 observed meanwhile waits"
            );
            said = stuck;
        }
        if stuck.is_some() && stop.load(Ordering::Relaxed) {
            eprintln!(
                "mongosonar: the file system of {folder} does not answer: the agent ends, and what waits is lost"
            );
            std::process::exit(i32::from(exit::FAILED));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says whether it was dropped while the folder was used.
    struct LastUser(Arc<StorePulse>, Arc<AtomicBool>);

    impl Drop for LastUser {
        fn drop(&mut self) {
            self.1.store(self.0.state().begun.is_some(), Ordering::Relaxed);
        }
    }

    #[test]
    fn the_folder_is_used_until_the_store_is_closed() {
        let (pulse, is_used) = (Arc::new(StorePulse::default()), Arc::new(AtomicBool::new(false)));
        pulse.close(LastUser(pulse.clone(), is_used.clone()));
        assert!(is_used.load(Ordering::Relaxed));
        assert!(pulse.state().begun.is_none());
    }

    #[test]
    fn only_a_long_use_is_stuck_and_it_is_told_once() {
        let pulse = Arc::new(StorePulse::default());
        let mut used = pulse.begin();
        assert_eq!(pulse.stuck_since(), None);
        used.begun = used.begun.checked_sub(PATIENCE).unwrap();
        pulse.state().begun = Some(used.begun);
        assert_eq!(pulse.stuck_since(), Some(used.begun));
        drop(used);
        assert_eq!(pulse.stuck_since(), None);
        drop(pulse.begin());
        assert!(pulse.take_longest().is_some_and(|waited| waited >= PATIENCE));
        assert_eq!(pulse.take_longest(), None);
    }
}
