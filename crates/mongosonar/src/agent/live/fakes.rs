//! A clock and a store that tests make, and what records into them.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sonar_core::history::{CollectorKind, Event, EventKind, HistoryError, SourcePositions, StoreNotice};
use sonar_core::testing::MemoryHistory;
use sonar_core::time::NS_PER_S;
use sonar_core::{HistoryWindow, HistoryWriter, Timestamp};
use sonar_store::StoreSettings;

use super::board::CollectorBoard;
use super::clock_reading::{AgentClock, ClockReading};
use super::inspector::tests::of_nobody;
use super::known_servers::ServerKeeper;
use super::record::AgentRecord;
use super::search::HostServers;
use crate::agent::memory;
use crate::agent::store::AgentStore;
use crate::agent::summed_store::SummedStore;
use crate::locking::lock;

/// What is recorded of a collector that fails, and works again.
pub const FAILURES: [EventKind; 2] = [EventKind::CollectorFailed, EventKind::CollectorRecovered];

/// This second of all tests.
pub fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(1_000_000 + second, 0)
}

/// A clock that stands still until somebody waits, which takes no time.
pub struct TestClock(Mutex<ClockReading>);

impl TestClock {
    /// It shows this second.
    pub fn at(second: u64) -> Self {
        Self(Mutex::new(ClockReading { time: at(second), at: Instant::now() }))
    }
}

impl AgentClock for TestClock {
    fn now(&self) -> ClockReading {
        *lock(&self.0)
    }

    fn sleep(&self, pause: Duration) {
        let mut reading = lock(&self.0);
        reading.at += pause;
        reading.time = reading.time.plus_ns(pause.as_nanos() as u64);
    }
}

/// A store that a test looks into.
#[derive(Clone, Default)]
pub struct TestStore {
    /// What is stored.
    pub history: Arc<Mutex<MemoryHistory>>,
    /// What it reports next.
    pub notices: Arc<Mutex<Vec<StoreNotice>>>,
}

impl HistoryWriter for TestStore {
    fn append_with(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), HistoryError> {
        lock(&self.history).append_with(window, events, positions)
    }

    fn positions(&self) -> SourcePositions {
        lock(&self.history).positions()
    }

    fn notices(&mut self) -> Vec<StoreNotice> {
        std::mem::take(&mut *lock(&self.notices))
    }
}

impl AgentStore for TestStore {
    fn configure(&mut self, _: StoreSettings) {}

    fn memory(&self) -> usize {
        0
    }
}

impl TestStore {
    /// Its windows, each with its start and with the seconds that collectors observed.
    pub fn windows(&self, kinds: &[CollectorKind]) -> Vec<(u64, Vec<u64>)> {
        let seconds = |ns: u64| ns / NS_PER_S;
        let observed = |window: &HistoryWindow| {
            let start = seconds(window.window.start.since(at(0)));
            (start, kinds.iter().map(|kind| seconds(window.observed_ns(*kind))).collect())
        };
        lock(&self.history).windows.iter().map(observed).collect()
    }

    /// Its events of these kinds.
    pub fn events(&self, kinds: &[EventKind]) -> Vec<(EventKind, String)> {
        let store = lock(&self.history);
        let of_kinds = store.events.iter().filter(|event| kinds.contains(&event.kind));
        of_kinds.map(|event| (event.kind, event.text.to_string())).collect()
    }
}

/// A record of which all collectors are on.
pub struct TestRecord {
    /// It stores into `store`.
    pub record: AgentRecord,
    /// What was stored.
    pub store: TestStore,
    /// What time it is.
    pub clock: Arc<TestClock>,
}

/// Its store is in `folder`, as far as the status says, and its clock shows this second.
pub fn test_record(folder: &Path, second: u64) -> TestRecord {
    let (store, clock) = (TestStore::default(), Arc::new(TestClock::at(second)));
    let history: Box<dyn AgentStore> = Box::new(store.clone());
    let assembler = SummedStore::assembler(history, folder, memory::ASSEMBLY);
    let board = Arc::new(CollectorBoard::new(|_| true));
    TestRecord { record: AgentRecord::new(assembler, Arc::default(), board, clock.clone()), store, clock }
}

/// A search on a host without processes, which keeps servers in `folder`.
pub fn test_servers(folder: &Path) -> HostServers {
    let inspector = Arc::new(of_nobody(folder));
    HostServers::new(inspector, Arc::default(), None, ServerKeeper::of(folder))
}
