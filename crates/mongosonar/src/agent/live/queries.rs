//! Packets on the wire.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use sonar_core::Window;
use sonar_core::history::CollectorKind;
use sonar_core::observation::{WIDTH_NS, WindowPart};
use sonar_core::window::WindowSettings;
use sonar_decode::{EndedClient, EndedServer, Settings, Shared};

use super::backoff::Backoff;
use super::board::CollectorProblem;
use super::client_ends::ClientEnds;
use super::opener::{NetworkState, OpenedRing, RingOpener, RingRequest};
use super::watched::WatchedServers;
use crate::agent::memory::{self, HeldMemory, Holder};
use crate::agent::servers::LocalServers;
use crate::agent::settings::QueriesTable;
use crate::capture::applications::{self, Lookup};
use crate::capture::changes::{CaptureChange, ChangeSenders};
use crate::capture::notice::Notice;
use crate::capture::ports::CapturedPorts;
use crate::capture::running::{RunningAnswers, RunningQuestion};
use crate::capture::threads::{CaptureTask, LiveCapture, RETIRE, RunningCapture};
use crate::capture::tls::{AttachedCapture, TlsAttacher, TlsCapture};
use crate::capture::{Joiner, OperationListener};
use crate::confinement::start_gate::StartGate;
use crate::confinement::thread_starter::ThreadStarter;

/// Captures packets; begins again where a capture fails or an interface was created again.
pub struct QueriesCollector {
    opener: RingOpener,
    table: QueriesTable,
    listened: CapturedPorts,
    /// What decoders know of connections, also after a restart.
    shared: Arc<Shared>,
    /// `None` while the capture fails.
    running: Option<RunningQueries>,
    backoff: Backoff,
    /// Whether any of the interfaces to capture exists and is up.
    has_interface: bool,
    /// Losses of all captures so far.
    lost: u64,
    /// Where the threads report to.
    notices_to: Sender<Notice>,
    notices: Receiver<Notice>,
    /// The last batch of ended connections that was sent to the capture threads; dropped once all of them have taken it.
    told: Weak<Vec<EndedClient>>,
    /// Ends of connections that were left out since the last window.
    ends_left_out: u64,
    /// Also receives the operations.
    each: Option<Arc<Mutex<dyn OperationListener>>>,
    /// Reads encrypted connections; `None` if that is switched off or impossible.
    tls: Option<EncryptedCapture>,
    confined: bool,
    /// Starts the threads of captures.
    threads: ThreadStarter,
}

/// What reads encrypted connections, for each capture that is started.
struct EncryptedCapture {
    capture: TlsCapture,
    /// Ends with the agent.
    attacher: TlsAttacher,
    is_attached: bool,
    /// Tells when it has attached to a server that started later.
    changes: Option<Receiver<CaptureChange>>,
}

/// A capture that runs.
struct RunningQueries {
    capture: RunningCapture,
    joiner: Joiner,
    /// The numbers of the interfaces that were named and are captured.
    interfaces: Vec<u32>,
}

/// A change of the configuration that is possible.
pub struct PreparedChange {
    table: QueriesTable,
    listened: CapturedPorts,
    ring: Option<OpenedRing>,
}

impl QueriesCollector {
    /// Captures what `table` says; `found` are the ports of the servers of this host.
    pub fn new(opener: RingOpener, table: &QueriesTable, found: Vec<u16>) -> Self {
        let (notices_to, notices) = channel();
        Self {
            confined: matches!(opener, RingOpener::There(_)),
            opener,
            listened: listened(table, found),
            table: table.clone(),
            shared: Arc::new(Shared::share(memory::NAMES_SHARE)),
            running: None,
            backoff: Backoff::default(),
            has_interface: true,
            lost: 0,
            notices_to,
            notices,
            told: Weak::new(),
            ends_left_out: 0,
            each: None,
            tls: None,
            threads: ThreadStarter::Here,
        }
    }

    /// Lets these capture threads be started.
    pub fn with_threads(self, threads: ThreadStarter) -> Self {
        Self { threads, ..self }
    }

    /// Reads encrypted connections, too, if `tls` can.
    pub fn with_tls(self, tls: Option<AttachedCapture>) -> Self {
        let tls = tls.map(|AttachedCapture { capture, attacher }| EncryptedCapture {
            capture,
            is_attached: attacher.is_attached(),
            attacher,
            changes: None,
        });
        Self { tls, ..self }
    }

    /// Begins to notice that servers which start later are read. Call it after privileges were dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn follow_tls(&mut self) -> Result<()> {
        if let Some(tls) = &mut self.tls {
            let mut capture = ChangeSenders::default();
            tls.changes = Some(capture.add());
            tls.attacher.follow(capture, self.notices_to.clone())?;
            tls.attacher.watch_sockets_on_use();
        }
        Ok(())
    }

    /// Passes operations on to `each` too, from the next start of the capture on.
    pub fn with_listener(self, each: Option<Arc<Mutex<dyn OperationListener>>>) -> Self {
        Self { each, ..self }
    }

    /// Passes operations on to nobody else any more: who received them has ended.
    pub fn without_listener(&mut self) {
        if self.each.take().is_some() {
            self.send(|| CaptureChange::ListenerGone);
        }
    }

    /// Looks the applications of open connections up in the logs that `lookup` has opened, for a moment at most.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn look_up(&self, lookup: Lookup) -> Result<()> {
        let lookup = lookup.with_starter(self.threads.clone());
        let known = lookup.start(self.shared.clone(), self.notices_to.clone(), &StartGate::opened())?;
        known.recv_timeout(applications::PATIENCE).ok();
        Ok(())
    }

    /// Starts the capture if it does not run and an attempt is due.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub fn keep_running(&mut self) -> Result<(), CollectorProblem> {
        if self.running.is_some() || !self.backoff.is_due(Instant::now()) {
            return Ok(());
        }
        let started = self.open(&self.table, &self.listened).and_then(|opened| {
            let request = request(&self.table, &self.listened);
            let interfaces = opened.interfaces;
            let capture = LiveCapture::of(vec![opened.ring], &request.filter(), RETIRE);
            self.start(capture, interfaces).map_err(|error| CollectorProblem::temporary(format!("{error:#}")))
        });
        match started {
            Ok(running) => {
                self.running = Some(running);
                self.backoff.worked();
                Ok(())
            }
            Err(problem) => {
                self.backoff.failed(Instant::now());
                Err(problem)
            }
        }
    }

    fn open(&self, table: &QueriesTable, listened: &CapturedPorts) -> Result<OpenedRing, CollectorProblem> {
        self.opener.open(&request(table, listened))
    }

    fn start(&self, capture: LiveCapture, interfaces: Vec<u32>) -> Result<RunningQueries> {
        let task = CaptureTask {
            settings: Settings {
                ports: self.listened.ports(),
                share: memory::DECODER_SHARE,
                ..Settings::default()
            },
            shared: self.shared.clone(),
            interval: Duration::from_nanos(WIDTH_NS),
            window: WindowSettings { max_bytes: memory::WINDOW_BYTES, ..WindowSettings::default() },
            each: self.each.clone(),
            confined: self.confined,
            threads: self.threads.clone(),
            ..CaptureTask::default()
        };
        let capture = match &self.tls {
            None => capture,
            Some(tls) => capture.with_tls(tls.capture.clone(), tls.is_attached),
        };
        let (capture, windows) = capture.start(&task, &self.notices_to)?;
        let joiner = Joiner::new(windows, capture.threads());
        Ok(RunningQueries { capture, joiner, interfaces })
    }

    /// The next window, if one comes in time, and whether it has packets.
    pub fn take(&mut self, wait: Duration, servers: &LocalServers) -> Option<(WindowPart, bool)> {
        self.note_attached();
        let mut window = self.running.as_mut()?.joiner.next(wait)?;
        window.coverage.ends_left_out += std::mem::take(&mut self.ends_left_out);
        self.lost += window.coverage.records_lost();
        let has_packets = window.coverage.frames > 0;
        Some((part(window, servers, self.has_interface), has_packets))
    }

    /// Counts the bytes of the decoders, of what they share, and of windows that are not taken yet; those that are recorded
    /// count as much as the last ones.
    pub fn count_memory(&self, held: &HeldMemory) {
        let joiner = self.running.as_ref().map(|running| &running.joiner);
        held.set(Holder::Decoders, joiner.map_or(0, Joiner::held));
        held.set(Holder::Captured, joiner.map_or(0, Joiner::memory));
        held.set(Holder::Names, self.shared.memory());
    }

    /// Tells the capture when a server that started later is read.
    fn note_attached(&mut self) {
        let Some(EncryptedCapture { changes: Some(changes), is_attached, .. }) = &mut self.tls else {
            return;
        };
        if changes.try_iter().count() > 0 {
            *is_attached = true;
            self.send(|| CaptureChange::EncryptedRead);
        }
    }

    /// Losses so far: packets, pieces of streams, messages, requests and what a full table turned away.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether there is an interface to capture.
    pub fn has_interface(&self) -> bool {
        self.has_interface
    }

    /// What the threads have reported: texts, and whether an interface went down.
    pub fn notices(&self) -> (Vec<String>, bool) {
        let (mut texts, mut is_down) = (Vec::new(), false);
        for notice in self.notices.try_iter() {
            match notice {
                Notice::InterfaceDown => is_down = true,
                Notice::Complaint(what) | Notice::WritingEnded(what) => texts.push(what),
                Notice::Source { news, .. } => texts.push(news),
                // Those of the agent are in its history.
                Notice::Servers(_) => {}
            }
        }
        (texts, is_down)
    }

    /// Why the capture has ended by itself, if it has. The next call of [`Self::keep_running`] after a pause starts it
    /// again.
    pub fn failure(&mut self) -> Option<CollectorProblem> {
        let ended = self.running.take_if(|running| running.joiner.ended)?;
        self.backoff.failed(Instant::now());
        let why = ended.capture.join().err().unwrap_or_else(|| anyhow!("the capture has ended"));
        Some(CollectorProblem::temporary(crate::exit::message(&why)))
    }

    /// Captures these ports too, on which servers listen now.
    pub fn add_ports(&mut self, ports: &[u16]) {
        if self.listened.follows() && self.listened.add(ports).is_some() {
            let listened = Arc::new(self.listened.clone());
            self.send(|| CaptureChange::Ports(listened.clone()));
        }
    }

    /// The process of a server of this host has ended: nothing is in flight on it any more.
    pub fn server_ended(&self, server: &EndedServer) {
        self.send(|| CaptureChange::ServerEnded(server.clone()));
    }

    /// Passes on which connections have ended, as the logs of `servers` say: nothing is in flight on them any more.
    pub fn follow_ends(&mut self, servers: &WatchedServers) {
        // While a thread stands still they wait where there is a bound.
        if self.told.strong_count() > 0 {
            return;
        }
        let ClientEnds { waiting, left_out } = servers.take_clients();
        self.ends_left_out += left_out;
        if !waiting.is_empty() {
            let clients = Arc::new(Vec::from(waiting));
            self.told = Arc::downgrade(&clients);
            self.send(|| CaptureChange::ClientsEnded(clients.clone()));
        }
    }

    /// Asks the capture threads for the oldest `most` operations that run; `None` while no capture does.
    pub fn ask_running(&self, most: usize) -> Option<RunningAnswers> {
        let threads = self.running.as_ref()?.capture.threads();
        let (question, answers) = RunningQuestion::new(threads, most);
        self.send(|| CaptureChange::Running(question.clone()));
        Some(answers)
    }

    /// The bytes of ended connections that capture threads have not taken yet.
    pub fn ends_memory(&self) -> usize {
        self.told.upgrade().map_or(0, |ends| ends.capacity() * size_of::<EndedClient>())
    }

    /// Answers of the helper that opens rings so far that came late.
    pub fn late_answers(&self) -> u64 {
        self.opener.late_answers()
    }

    /// The network of this host now.
    ///
    /// # Errors
    /// It cannot be looked at, in words.
    pub fn network(&self) -> Result<NetworkState, String> {
        self.opener.network()
    }

    /// The network of this host is like this now. Goes on with a new ring if a named interface has come, or was created
    /// again.
    ///
    /// # Errors
    /// The new ring cannot be opened. The old one stays.
    pub fn follow_interfaces(&mut self, network: &NetworkState) -> Result<(), CollectorProblem> {
        let names = &self.table.interface;
        if names.is_empty() {
            return Ok(());
        }
        self.has_interface = names.iter().any(|name| network.problem(name).is_none());
        let numbers = network.numbers(names);
        let is_other = |running: &RunningQueries| running.interfaces != numbers;
        if numbers.is_empty() || !self.running.as_ref().is_some_and(is_other) {
            return Ok(());
        }
        let ring = self.open(&self.table, &self.listened)?;
        self.replace_ring(ring);
        Ok(())
    }

    /// The names of the interfaces to capture; none if all are captured.
    pub fn interfaces(&self) -> &[String] {
        &self.table.interface
    }

    /// Opens what a new configuration needs.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn prepare(&self, table: &QueriesTable, found: Vec<u16>) -> Result<PreparedChange, CollectorProblem> {
        let listened = listened(table, found);
        let ring = match self.running {
            Some(_) => Some(self.open(table, &listened)?),
            None => None,
        };
        Ok(PreparedChange { table: table.clone(), listened, ring })
    }

    /// Uses a new configuration. Nothing is lost: the thread reads the old ring to its end and goes on with the new one.
    pub fn change(&mut self, change: PreparedChange) {
        let PreparedChange { table, listened, ring } = change;
        (self.table, self.listened) = (table, listened);
        self.has_interface = true;
        self.backoff.worked();
        if let Some(ring) = ring {
            self.replace_ring(ring);
        }
    }

    fn replace_ring(&mut self, opened: OpenedRing) {
        let OpenedRing { ring, interfaces } = opened;
        let listened = Arc::new(self.listened.clone());
        let filter = request(&self.table, &self.listened).filter();
        let mut ring = Some(Box::new(ring));
        if let Some(running) = &mut self.running {
            running.interfaces = interfaces;
            // The first thread has the ring; the other one reads encrypted connections.
            running.capture.changes.tell(|| match ring.take() {
                Some(ring) => {
                    CaptureChange::Ring { ring, filter: filter.clone(), listened: listened.clone() }
                }
                None => CaptureChange::Ports(listened.clone()),
            });
        }
    }

    fn send(&self, change: impl Fn() -> CaptureChange) {
        if let Some(running) = &self.running {
            running.capture.changes.tell(change);
        }
    }

    /// Ends the capture; gives the last windows, and why it failed, if it did.
    pub fn finish(&mut self, servers: &LocalServers) -> (Vec<WindowPart>, Result<()>) {
        if let Some(running) = &self.running {
            running.capture.stop();
        }
        let mut last = Vec::new();
        while let Some((part, _)) = self.take(Duration::from_secs(2), servers) {
            last.push(part);
        }
        // A stuck thread must not keep the agent from storing its windows.
        match self.running.take() {
            Some(running) if running.joiner.ended => (last, running.capture.join()),
            Some(_) => (last, Err(anyhow!("the capture thread does not end"))),
            None => (last, Ok(())),
        }
    }
}

fn listened(table: &QueriesTable, found: Vec<u16>) -> CapturedPorts {
    CapturedPorts::of(&table.ports(), found)
}

fn request(table: &QueriesTable, listened: &CapturedPorts) -> RingRequest {
    RingRequest {
        interfaces: table.interface.clone(),
        ports: listened.ranges().into_iter().map(|range| range.into_inner()).collect(),
        size_bytes: (table.ring_mib.0 as usize) << 20,
        tunnels: table.tunnels,
    }
}

/// A window with the names of servers in the history.
fn part(mut window: Window, servers: &LocalServers, is_observed: bool) -> WindowPart {
    let mut part = WindowPart::new(window.start);
    window.in_flight = servers.named_in_flight(window.in_flight);
    window.shapes.rename_servers(&mut |server| servers.name(server));
    if is_observed {
        part.window.observe(CollectorKind::Queries, window.length_ns());
    }
    // The part is as long as the windows of the history.
    (window.start, window.end) = (part.window.window.start, part.window.window.end);
    part.window.window = window;
    part
}

#[cfg(test)]
mod tests {
    use sonar_core::{Endpoint, Timestamp};

    use super::*;
    use crate::agent::live::client_ends::MAX_WAITING;
    use crate::agent::live::inspector::FoundServer;
    use crate::capture::ThreadWindow;

    /// Takes operations, and does nothing with them.
    struct Deaf;

    impl OperationListener for Deaf {
        fn operation(&mut self, _: &sonar_core::Operation<'_>) -> std::io::Result<()> {
            Ok(())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_is_on_open_connections_has_room_in_its_holder() {
        let (most, room) = (Lookup::max_memory(memory::NAMES_SHARE), memory::Holder::Lookup.facts().bytes);
        assert!(most <= room, "{most} of {room}");
    }

    #[test]
    fn who_no_longer_listens_is_told_nothing_more() {
        let listener: Arc<Mutex<dyn OperationListener>> = Arc::new(Mutex::new(Deaf));
        let queries = QueriesCollector::new(RingOpener::Here, &QueriesTable::default(), Vec::new());
        let mut queries = queries.with_listener(Some(listener.clone()));
        // A running capture drops the listener; one that starts later never has it.
        let (_, windows) = channel();
        let mut capture = RunningCapture::default();
        let told = capture.changes.add();
        let joiner = Joiner::new(windows, 1);
        queries.running = Some(RunningQueries { capture, joiner, interfaces: Vec::new() });
        for _ in 0..2 {
            queries.without_listener();
        }
        assert_eq!(Arc::strong_count(&listener), 1);
        let told: Vec<_> = told.try_iter().collect();
        assert!(matches!(&told[..], [CaptureChange::ListenerGone]));
    }

    #[test]
    fn ends_of_connections_wait_while_a_capture_thread_stands_still() {
        let watched = WatchedServers::default();
        watched.set_addresses(["10.0.0.1".parse().expect("an address")].into());
        let log = |count: usize| {
            let mut ended = ClientEnds::default();
            let client = |port: usize| EndedClient {
                client: Endpoint::v4([10, 0, 0, 9], port as u16),
                server_port: None,
                host: None,
                at: Timestamp::from_unix(5, 0),
            };
            (1..=count).for_each(|port| ended.add(client(port)));
            let server = FoundServer { port: 27_017, ..FoundServer::default() };
            watched.clients_ended(&server, ended);
        };
        let mut queries = QueriesCollector::new(RingOpener::Here, &QueriesTable::default(), Vec::new());
        let mut capture = RunningCapture::default();
        let told = [capture.changes.add(), capture.changes.add()];
        let (hand_over, windows) = channel();
        let joiner = Joiner::new(windows, 1);
        queries.running = Some(RunningQueries { capture, joiner, interfaces: Vec::new() });
        let told = |thread: usize| -> Vec<Arc<Vec<EndedClient>>> {
            let clients = |change| match change {
                CaptureChange::ClientsEnded(clients) => Some(clients),
                _ => None,
            };
            told[thread].try_iter().filter_map(clients).collect()
        };
        log(2);
        queries.follow_ends(&watched);
        let first = told(0);
        let [ends] = &first[..] else { panic!("{first:?}") };
        let host: Option<Arc<[_]>> = Some(["10.0.0.1".parse().expect("an address")].into());
        assert!(ends.iter().all(|one| (one.server_port, &one.host) == (Some(27_017), &host)), "{ends:?}");
        drop(first);
        // The other thread has not taken them yet.
        (0..3).for_each(|_| log(MAX_WAITING));
        queries.follow_ends(&watched);
        assert_eq!(told(0).len(), 0);
        assert_eq!(told(1).len(), 1);
        queries.follow_ends(&watched);
        let count = |thread: usize| told(thread).iter().map(|ends| ends.len()).sum::<usize>();
        assert_eq!([count(0), count(1)], [MAX_WAITING; 2]);
        let start = Timestamp::from_unix(1_000, 0);
        let mut window = Window::new(start, WindowSettings::default());
        window.end = Timestamp::from_unix(1_010, 0);
        hand_over
            .send(ThreadWindow { thread: 0, window, interval: start, next: None, held: 0 })
            .expect("it is taken");
        let (part, _) = queries.take(Duration::ZERO, &LocalServers::default()).expect("a window");
        assert_eq!(part.window.window.coverage.ends_left_out, 2 * MAX_WAITING as u64);
        assert_eq!(queries.lost(), 2 * MAX_WAITING as u64);
    }

    #[test]
    fn a_window_that_begins_within_ten_seconds_belongs_to_them() {
        let start = Timestamp::from_unix(1_003, 0);
        let mut window = Window::new(start, WindowSettings::default());
        window.end = Timestamp::from_unix(1_010, 0);
        window.coverage.frames = 5;
        let whole = part(window.clone(), &LocalServers::default(), true);
        assert_eq!(whole.window.window.start, Timestamp::from_unix(1_000, 0));
        assert_eq!(whole.window.window.end, Timestamp::from_unix(1_010, 0));
        assert_eq!(whole.window.observed_ns(CollectorKind::Queries), 7_000_000_000);
        assert_eq!(whole.window.window.coverage.frames, 5);
        let unseen = part(window, &LocalServers::default(), false);
        assert_eq!(unseen.window.observed_ns(CollectorKind::Queries), 0, "no interface was up");
    }
}
