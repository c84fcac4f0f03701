//! The main thread, with collectors, clocks and a store that the tests make.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;

use sonar_core::Endpoint;
use sonar_core::history::Event;

use super::*;
use crate::agent::live::clock_reading::AgentClock;
use crate::agent::live::fakes::{FAILURES, TestClock, TestStore, at};
use crate::agent::live::followers::Followers;
use crate::agent::live::inspector::tests::of_nobody;
use crate::agent::live::opener::RingOpener;
use crate::agent::live::runner::{Collector, CollectorPlan, NotOpened, Observation};
use crate::agent::settings::{AgentSettings, QueriesTable};
use crate::capture::OperationListener;
use crate::confinement::thread_starter::ThreadStarter;
use crate::locking::lock;

/// A collector that does what a test says.
struct TestCollector<F>(F);

impl<F: FnMut(&mut Observation) -> Result<(), CollectorProblem> + Send + 'static> Collector
    for TestCollector<F>
{
    fn drop_privileges(&self) {}

    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem> {
        (self.0)(into)
    }
}

/// An agent of a host without servers, whose threads may all observe.
struct TestAgent<'a> {
    agent: LiveAgent<'a>,
    store: TestStore,
    clock: Arc<TestClock>,
}

/// It stores into `folder`, and its clock shows this second. Nothing follows files of servers.
fn test_agent(folder: &Path, second: u64) -> TestAgent<'_> {
    following_agent(folder, second, Box::new(|_| None))
}

/// The same with collectors that follow files of servers.
fn following_agent(folder: &Path, second: u64, followers: Followers) -> TestAgent<'_> {
    let (store, settings) = (TestStore::default(), AgentSettings::default());
    let clock = Arc::new(TestClock::at(second));
    let plan = LivePlan {
        settings,
        targets: Vec::new(),
        config: None,
        tunnels: false,
        folder,
        once: None,
        confined: false,
    };
    let proc = folder.join("proc");
    std::fs::create_dir(&proc).unwrap();
    let opened = OpenedAgent {
        starter: ThreadStarter::Here,
        store: Box::new(store.clone()),
        pulse: Arc::default(),
        kernel_log: None,
        followers,
        manager: Arc::default(),
        inspector: Arc::new(of_nobody(&proc)),
        page: AgentPage::Off,
        begun: clock.now(),
        clock: clock.clone(),
    };
    let agent = LiveAgent::new(plan, opened);
    agent.threads.open_gate();
    TestAgent { agent, store, clock }
}

impl TestAgent<'_> {
    fn begin(
        &mut self,
        kind: CollectorKind,
        observe: impl FnMut(&mut Observation) -> Result<(), CollectorProblem> + Send + 'static,
    ) {
        assert!(self.begins(kind, Box::new(TestCollector(observe))));
    }

    /// Begins it; whether it goes on.
    fn begins(&mut self, kind: CollectorKind, plan: Box<dyn CollectorPlan>) -> bool {
        self.agent.threads.begin(kind, plan, &mut self.agent.record).unwrap()
    }

    /// Waits until all collectors have ended.
    fn wait(&self) {
        while !self.agent.threads.all().values().all(|thread| thread.handle.is_finished()) {
            std::thread::yield_now();
        }
    }

    fn step(&mut self) {
        self.agent.step(Duration::ZERO);
    }

    fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds));
    }

    fn state(&self, kind: CollectorKind) -> (CollectorState, Vec<String>) {
        let status = &self.agent.record.board.all()[kind as usize];
        (status.state, status.problems.clone())
    }
}

#[test]
fn windows_of_all_collectors_are_joined_and_stored_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut test = test_agent(folder.path(), 34);
    test.begin(CollectorKind::Machine, |into| {
        into.windows.observe(CollectorKind::Machine, at(0), at(34));
        Ok(())
    });
    test.begin(CollectorKind::Files, |into| {
        // The last one first.
        for second in [20, 10, 0] {
            into.windows.observe(CollectorKind::Files, at(second), at(second + 5));
        }
        Ok(())
    });
    test.wait();
    test.step();
    let kinds = [CollectorKind::Machine, CollectorKind::Files];
    assert_eq!(test.store.windows(&kinds), [(0, vec![10, 5]), (10, vec![10, 5])], "the third may get more");
    test.pass(1);
    test.step();
    assert_eq!(test.store.windows(&kinds)[2..], [(20, vec![10, 5])]);
    test.agent.finish();
    assert_eq!(test.store.windows(&kinds)[3..], [(30, vec![4, 0])]);
}

#[test]
fn a_collector_that_cannot_be_opened_is_tried_again_after_growing_pauses_and_reported_once() {
    struct Unopened {
        clock: Arc<TestClock>,
        begun: Instant,
        tries: Arc<Mutex<Vec<u64>>>,
    }

    impl CollectorPlan for Unopened {
        fn open(self: Box<Self>) -> Result<Box<dyn Collector>, NotOpened> {
            let mut tries = lock(&self.tries);
            tries.push((self.clock.now().at - self.begun).as_secs());
            if tries.len() < 4 {
                drop(tries);
                let problem = CollectorProblem::temporary("no memory".to_owned());
                return Err(NotOpened { problem, again: Some(self) });
            }
            Ok(Box::new(TestCollector(|into: &mut Observation| {
                let event = into.board().data(CollectorKind::Files, at(8));
                into.report(event);
                Ok(())
            })))
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let mut test = test_agent(folder.path(), 0);
    let (clock, tries) = (test.clock.clone(), Arc::default());
    let begun = clock.now().at;
    let plan = Unopened { clock, begun, tries: Arc::clone(&tries) };
    assert!(test.begins(CollectorKind::Files, Box::new(plan)), "it tries again");
    test.wait();
    assert_eq!(*lock(&tries), [0, 1, 3, 7]);
    assert_eq!(test.state(CollectorKind::Files).0, CollectorState::Working);
    test.agent.finish();
    let failed = (EventKind::CollectorFailed, "no memory".to_owned());
    let recovered = (EventKind::CollectorRecovered, "it works again".to_owned());
    assert_eq!(test.store.events(&FAILURES), [failed, recovered]);
}

#[test]
fn a_collector_that_can_never_be_opened_or_cannot_go_on_says_why() {
    struct Refused;

    impl CollectorPlan for Refused {
        fn open(self: Box<Self>) -> Result<Box<dyn Collector>, NotOpened> {
            let problem = CollectorProblem::permanent("denied".to_owned(), Some("sudo".to_owned()));
            Err(NotOpened { problem, again: None })
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let mut test = test_agent(folder.path(), 0);
    assert!(!test.begins(CollectorKind::Files, Box::new(Refused)));
    test.begin(CollectorKind::Machine, |_| Err(CollectorProblem::temporary("the ring is gone".to_owned())));
    test.wait();
    test.step();
    assert!(test.agent.threads.all().is_empty());
    assert_eq!(
        test.state(CollectorKind::Files),
        (CollectorState::NeedsYou, vec!["denied; fix: sudo".to_owned()])
    );
    assert_eq!(test.state(CollectorKind::Machine).1, ["the ring is gone"]);
    let summary = test.agent.finish();
    assert_eq!(summary.notes, ["machine: the ring is gone", "files: denied; fix: sudo"]);
    assert_eq!(test.store.events(&FAILURES).len(), 2);
}

/// Collectors of logs, whose first threads fail. Counts those that are started.
fn failing_logs(starts: Arc<AtomicUsize>, failures: usize) -> Followers {
    Box::new(move |kind| {
        let starts = starts.clone();
        let observe = move |into: &mut Observation| {
            assert!(starts.fetch_add(1, Ordering::Relaxed) >= failures, "a thread of the test");
            while into.goes_on() {
                std::thread::yield_now();
            }
            Ok(())
        };
        (kind == CollectorKind::Log).then(|| Box::new(TestCollector(observe)) as Box<dyn CollectorPlan>)
    })
}

#[test]
fn a_follower_whose_thread_fails_is_reported_and_started_again_after_a_pause() {
    let folder = tempfile::tempdir().unwrap();
    let starts = Arc::new(AtomicUsize::new(0));
    let mut test = following_agent(folder.path(), 0, failing_logs(starts.clone(), 2));
    assert!(test.agent.threads.follow(CollectorKind::Log).unwrap());
    assert!(!test.agent.threads.follow(CollectorKind::Files).unwrap(), "it needs privileges");
    for (started, pause) in [(1, 1), (2, 2)] {
        test.wait();
        test.step();
        assert_eq!(test.state(CollectorKind::Log).1, ["its thread has failed"]);
        assert!(test.agent.threads.all().is_empty());
        for _ in 0..3 {
            test.step();
        }
        assert_eq!(
            (starts.load(Ordering::Relaxed), test.agent.threads.all().len()),
            (started, 0),
            "not at once"
        );
        test.pass(pause);
        test.step();
        assert_eq!((test.agent.threads.all().len(), test.state(CollectorKind::Log).1.len()), (1, 0));
    }
    test.agent.finish();
    let kinds: Vec<_> = test.store.events(&FAILURES).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, FAILURES, "equal ones are counted");
}

#[test]
fn a_follower_that_is_switched_off_while_it_waits_for_its_next_start_stays_off() {
    let folder = tempfile::tempdir().unwrap();
    let starts = Arc::new(AtomicUsize::new(0));
    let mut test = following_agent(folder.path(), 0, failing_logs(starts.clone(), usize::MAX));
    test.agent.threads.follow(CollectorKind::Log).unwrap();
    test.wait();
    test.step();
    test.agent.end(CollectorKind::Log);
    test.pass(60);
    test.step();
    assert_eq!((starts.load(Ordering::Relaxed), test.agent.threads.all().len()), (1, 0));
    assert_eq!(test.state(CollectorKind::Log), (CollectorState::Off, Vec::new()));
}

#[test]
fn what_a_store_that_fails_has_not_taken_is_counted_and_its_events_come_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut test = test_agent(folder.path(), 0);
    let (go, may) = channel();
    test.begin(CollectorKind::Machine, move |into| {
        for (from, to) in may.iter() {
            into.windows.observe(CollectorKind::Machine, at(from), at(to));
            into.windows.finish();
        }
        Ok(())
    });
    let is_full = |test: &TestAgent<'_>, is_full| lock(&test.store.history).is_full = is_full;
    let reports = |test: &TestAgent<'_>| test.agent.record.status().notices.len();
    // A step takes its window, and stores it.
    let observe = |test: &mut TestAgent<'_>, from: u64| {
        go.send((from, from + 10)).unwrap();
        let stored_or_lost = |test: &TestAgent<'_>| {
            let status = test.agent.record.status();
            status.windows + status.windows_lost
        };
        let before = stored_or_lost(test);
        let event = Event::new(at(from), EventKind::ServerStart, Endpoint::default(), &from.to_string());
        test.agent.record.events([event]);
        test.pass(20);
        test.agent.step(Duration::from_secs(60));
        assert_eq!(stored_or_lost(test), before + 1);
    };
    let before = reports(&test);
    is_full(&test, true);
    for from in [0, 20, 40] {
        observe(&mut test, from);
    }
    assert_eq!(reports(&test) - before, 1, "the reason is reported once");
    is_full(&test, false);
    observe(&mut test, 60);
    assert_eq!(test.store.windows(&[CollectorKind::Machine]), [(60, vec![10])]);
    let starts: Vec<_> =
        test.store.events(&[EventKind::ServerStart]).into_iter().map(|(_, text)| text).collect();
    assert_eq!(starts, ["0", "20", "40", "60"]);
    drop(go);
    let summary = test.agent.finish();
    assert_eq!((summary.windows, summary.windows_lost), (2, 3), "with that of the agent's end");
}

#[test]
fn a_stop_ends_all_collectors_and_stores_their_last_windows() {
    let folder = tempfile::tempdir().unwrap();
    let mut test = test_agent(folder.path(), 5);
    let ended = Arc::new(AtomicUsize::new(0));
    for kind in [CollectorKind::Machine, CollectorKind::Files] {
        let ended = ended.clone();
        test.begin(kind, move |into| {
            while into.goes_on() {
                std::thread::yield_now();
            }
            into.windows.observe(kind, at(0), at(5));
            ended.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
    }
    test.agent.collect(&AtomicBool::new(true), &AtomicBool::new(false));
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    let summary = test.agent.finish();
    assert_eq!((ended.load(Ordering::Relaxed), summary.windows), (2, 1));
    assert_eq!(test.store.windows(&[CollectorKind::Machine, CollectorKind::Files]), [(0, vec![5, 5])]);
    let (start, stop) = (EventKind::AgentStart, EventKind::AgentStop);
    let events: Vec<_> = test.store.events(&[start, stop]).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(events, [start, stop]);
}

#[test]
fn a_configuration_that_is_refused_changes_nothing_and_another_one_ends_what_is_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("agent.toml");
    let mut test = following_agent(folder.path(), 0, failing_logs(Arc::default(), 0));
    test.agent.configuration.plan.config = Some(&config);
    test.agent.threads.follow(CollectorKind::Log).unwrap();
    let before = test.agent.configuration.plan.settings.clone();
    for (text, why) in [
        (
            "[store]\npath = \"/elsewhere\"\n[collectors]\nlog = false\n",
            "only a restart can change: store.path",
        ),
        ("[collectors]\nlog = 5\n", "collectors.log: invalid type"),
    ] {
        std::fs::write(&config, text).unwrap();
        test.agent.reload();
        let refused = test.agent.configuration.refused().unwrap().to_owned();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(test.agent.configuration.plan.settings, before);
        assert_eq!(test.state(CollectorKind::Log).0, CollectorState::Waiting);
        assert!(!test.agent.threads.all()[&CollectorKind::Log].handle.is_finished());
    }
    std::fs::write(&config, "[collectors]\nlog = false\n").unwrap();
    test.agent.reload();
    assert_eq!((test.agent.configuration.refused(), test.agent.threads.all().len()), (None, 0));
    assert_eq!(test.state(CollectorKind::Log).0, CollectorState::Off);
}

#[test]
fn nothing_is_passed_on_to_a_split_that_has_ended() {
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

    for ends_by_itself in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut test = test_agent(folder.path(), 0);
        let listener: Arc<Mutex<dyn OperationListener>> = Arc::new(Mutex::new(Deaf));
        let queries = QueriesCollector::new(RingOpener::Here, &QueriesTable::default(), Vec::new());
        test.agent.queries = Some(queries.with_listener(Some(listener.clone())));
        test.begin(CollectorKind::Split, |_| Ok(()));
        test.wait();
        match ends_by_itself {
            true => test.agent.restart_collectors(),
            false => test.agent.end(CollectorKind::Split),
        }
        assert_eq!(Arc::strong_count(&listener), 1, "{ends_by_itself}");
    }
}
