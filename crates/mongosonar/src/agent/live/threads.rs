//! The threads of the collectors: those that fail are started again, and those that end hand over their last windows.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;

use super::backoff::Backoff;
use super::board::{CollectorProblem, RESTART};
use super::{CollectorThread, LiveAgent, PATIENCE, WAITING};
use crate::agent::part_channel::TAKEN_AT_ONCE;

impl LiveAgent<'_> {
    /// Starts threads again that have failed, where they need no privileges.
    pub(super) fn keep_threads(&mut self) {
        let has_ended = |thread: &CollectorThread| thread.handle.is_finished();
        let ended: Vec<CollectorKind> =
            self.threads.iter().filter(|(_, one)| has_ended(one)).map(|(collector, _)| *collector).collect();
        for collector in ended {
            self.detach(collector);
            let failed = self.threads.remove(&collector).is_some_and(|thread| thread.handle.join().is_err());
            let is_follower = matches!(collector, CollectorKind::Log | CollectorKind::Internals);
            let what = "its thread has failed".to_owned();
            if is_follower {
                self.try_again(collector, what);
            } else if failed {
                // One that ends in order has reported why.
                self.fail(collector, &CollectorProblem::permanent(what, Some(RESTART.to_owned())));
            }
        }
        let is_due = |(_, backoff): &(&CollectorKind, &Backoff)| backoff.is_due(Instant::now());
        let due: Vec<CollectorKind> =
            self.restarts.iter().filter(is_due).map(|(collector, _)| *collector).collect();
        for collector in due.into_iter().filter(|one| !self.threads.contains_key(one)).collect::<Vec<_>>() {
            if self.follow(collector).is_ok() {
                self.passes(collector);
            }
        }
    }

    /// The thread of a collector has ended: nothing is passed on to it any more.
    fn detach(&mut self, collector: CollectorKind) {
        if collector == CollectorKind::Split
            && let Some(queries) = &mut self.queries
        {
            queries.without_listener();
        }
    }

    /// The thread of a collector that needs no privileges has failed: it is started again after a pause.
    pub(super) fn try_again(&mut self, collector: CollectorKind, what: String) {
        self.restarts.entry(collector).or_default().failed(Instant::now());
        self.fail(collector, &CollectorProblem::temporary(what));
    }

    /// Ends a collector, and takes its last windows.
    pub(super) fn end(&mut self, collector: CollectorKind) {
        if collector == CollectorKind::Queries
            && let Some(mut queries) = self.queries.take()
        {
            let (parts, _) = queries.finish(&self.servers);
            parts.into_iter().for_each(|part| self.add(part));
        }
        if let Some(thread) = self.threads.remove(&collector) {
            thread.stop.store(true, Ordering::Relaxed);
            self.wait_for(&[thread]);
            self.detach(collector);
        }
        self.restarts.remove(&collector);
        self.board.want(collector, false);
    }

    /// Takes windows until these threads have ended.
    pub(super) fn wait_for(&mut self, threads: &[CollectorThread]) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !threads.iter().all(|thread| thread.handle.is_finished()) {
            self.take(Duration::from_millis(20));
        }
        // All that is waiting now, also if a thread that does not end sends more.
        (0..WAITING.div_ceil(TAKEN_AT_ONCE)).for_each(|_| self.take(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::super::board::CollectorBoard;
    use super::super::inspector::Inspector;
    use super::super::opener::RingOpener;
    use super::super::plan::LivePlan;
    use super::super::queries::QueriesCollector;
    use super::super::{OpenedAgent, StorePulse};
    use super::*;
    use crate::agent::notify::ServiceManager;
    use crate::agent::settings::{AgentSettings, QueriesTable};
    use crate::agent::store;
    use crate::capture::OperationListener;
    use crate::confinement::thread_starter::ThreadStarter;

    /// Listens to nothing.
    struct Deaf;

    impl OperationListener for Deaf {
        fn operation(&mut self, _: &sonar_core::Operation<'_>) -> std::io::Result<()> {
            Ok(())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn agent(folder: &Path) -> LiveAgent<'_> {
        let settings = AgentSettings::default();
        let store = store::open(folder, &settings.store, true).unwrap();
        let plan = LivePlan {
            settings,
            targets: Vec::new(),
            config: None,
            tunnels: false,
            folder,
            once: None,
            confined: false,
        };
        let opened = OpenedAgent {
            starter: ThreadStarter::Here,
            pulse: Arc::new(StorePulse::default()),
            store,
            kernel_log: None,
            applications: Arc::default(),
            manager: Arc::new(ServiceManager::from_environment()),
            board: Arc::new(CollectorBoard::new(|collector| plan.runs(collector))),
            inspector: Arc::new(Inspector::start(&[], None, false)),
        };
        LiveAgent::new(plan, opened)
    }

    #[test]
    fn nothing_is_passed_on_to_a_split_that_has_ended() {
        for ends_by_itself in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut agent = agent(folder.path());
            let listener: Arc<Mutex<dyn OperationListener>> = Arc::new(Mutex::new(Deaf));
            let queries = QueriesCollector::new(RingOpener::Here, &QueriesTable::default(), Vec::new());
            agent.queries = Some(queries.with_listener(Some(listener.clone())));
            let handle = std::thread::spawn(|| {});
            while !handle.is_finished() {
                std::thread::yield_now();
            }
            agent.threads.insert(CollectorKind::Split, CollectorThread { handle, stop: Arc::default() });
            match ends_by_itself {
                true => agent.keep_threads(),
                false => agent.end(CollectorKind::Split),
            }
            assert_eq!(Arc::strong_count(&listener), 1, "{ends_by_itself}");
        }
    }
}
