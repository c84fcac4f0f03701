//! Notices that the main thread waits for the file system of the store, which may never answer.
//!
//! It says so, as nobody else could: the status is in the same folder. It also tells the service manager that the agent
//! works: a new start would wait for the same file system, and what was observed meanwhile would be lost. That takes a
//! bounded amount of memory, however long it waits. If the agent is asked to stop meanwhile, this thread ends it, because
//! the main thread cannot.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::agent::notify::ServiceManager;
use crate::confinement::thread_starter::ThreadStarter;
use crate::exit;
use crate::locking::lock;

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

/// What the thread needs that watches.
pub struct WatchTask {
    /// Set once the agent is asked to stop.
    pub stop: Arc<AtomicBool>,
    /// The folder of the store.
    pub folder: PathBuf,
    /// Who wants signs of life.
    pub manager: Arc<ServiceManager>,
}

/// The main thread uses the folder of the store, until this is dropped.
pub struct StoreUse {
    pulse: Arc<StorePulse>,
    begun: Instant,
}

impl StorePulse {
    /// Watched by a thread, for as long as the process runs.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watched(starter: &ThreadStarter, task: WatchTask) -> Result<Arc<Self>> {
        let pulse = Arc::new(Self::default());
        let watched = pulse.clone();
        let started = starter.spawn("watch".to_owned(), move || task.run(&watched));
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

    /// Whether it is used now.
    fn is_used(&self) -> bool {
        self.state().begun.is_some()
    }

    fn state(&self) -> MutexGuard<'_, PulseState> {
        lock(&self.0)
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

impl WatchTask {
    fn run(&self, pulse: &StorePulse) {
        let mut reported = None;
        loop {
            std::thread::sleep(LOOK);
            self.look(pulse, &mut reported);
        }
    }

    /// Looks once. `reported` is the last standstill that was reported.
    fn look(&self, pulse: &StorePulse, reported: &mut Option<Instant>) {
        if pulse.is_used() {
            // The main thread does it itself between two uses, and if it stands still elsewhere, nobody does.
            self.manager.works();
        }
        let stuck = pulse.stuck_since();
        let folder = self.folder.display();
        if let Some(begun) = stuck
            && *reported != stuck
        {
            let seconds = begun.elapsed().as_secs();
            eprintln!(
                "mongosonar: the file system of {folder} has not answered for {seconds} s: nothing is stored, what is \
                 observed meanwhile waits"
            );
            *reported = stuck;
        }
        if stuck.is_some() && self.stop.load(Ordering::Relaxed) {
            eprintln!(
                "mongosonar: the file system of {folder} does not answer: the agent ends, and what waits is lost"
            );
            std::process::exit(i32::from(exit::FAILED));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

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
    fn while_the_store_hangs_the_service_manager_has_signs_of_life() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let manager = Arc::new(ServiceManager::impatient(theirs));
        let task = WatchTask { stop: Arc::default(), folder: PathBuf::from("/store"), manager };
        let pulse = Arc::new(StorePulse::default());
        let received = || {
            let mut bytes = [0; 64];
            ours.recv(&mut bytes).map(|length| String::from_utf8(bytes[..length].to_vec()).unwrap()).ok()
        };
        let mut reported = None;
        task.look(&pulse, &mut reported);
        assert_eq!(received(), None, "the main thread does not use it: it speaks for itself");
        let used = pulse.begin();
        let long_ago = used.begun.checked_sub(Duration::from_secs(3_600)).unwrap();
        for begun in [used.begun, long_ago] {
            pulse.state().begun = Some(begun);
            task.look(&pulse, &mut reported);
            assert_eq!(received().as_deref(), Some("WATCHDOG=1"));
        }
        assert_eq!(reported, Some(long_ago));
        drop(used);
        task.look(&pulse, &mut reported);
        assert_eq!(received(), None);
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
