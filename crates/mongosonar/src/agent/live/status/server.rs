//! One server with a URI: asks it every ten seconds.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_core::internals::{IncidentKind, SampleSequence, ServerSample};
use sonar_core::observation::WIDTH_NS;
use sonar_core::words::plural;
use sonar_core::{Endpoint, Timestamp};
use sonar_decode::ftdc::StatusReader;
use sonar_mongo::server_status::{ServerStatusReply, sample_document};
use sonar_mongo::{Server, ServerError, Target};

use super::members::MemberWatch;
use super::report::ServerReport;
use super::running::{self, RunningSchedule};
use super::samples::StatusSamples;
use super::sizes::{MAX_COLLECTIONS, SizeSchedule};
use super::task::StatusTask;
use super::{members, sizes};
use crate::agent::figures::SampleCutter;
use crate::agent::live::backoff::Backoff;
use crate::agent::live::board::CollectorProblem;
use crate::agent::live::clock_reading::ClockReading;
use crate::agent::live::inspector::FoundServer;
use crate::agent::live::now::board::MAX_SAID;
use crate::agent::live::runner::Observation;
use crate::agent::servers::local;
use crate::args::when::now;

/// The first wait before a server that does not answer is tried again, and the longest.
const RETRY: Backoff = Backoff::between(Duration::from_secs(10), Duration::from_secs(300));
/// How long measuring collections may take in a window.
const SIZES_TIME: Duration = Duration::from_secs(3);
/// How long a sample waits for one of `diagnostic.data` of the same window, which comes some ten seconds late.
const HOLD_NS: u64 = 12_000_000_000;
/// A server that did not answer for longer was not observed; a `diagnostic.data` without a sample for longer is not
/// written any more.
const MAX_SILENCE_NS: u64 = 30_000_000_000;
/// When to ask again for what the user may not ask for.
const REFUSED: Duration = Duration::from_secs(300);
/// The most samples that wait.
const MAX_HELD: usize = 8;
/// Clocks that differ by more are those of different machines, in milliseconds.
const MAX_SKEW_MS: i64 = 2_000;

/// A request that can fail while others work.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ServerRequest {
    Status,
    ReplicaSet,
    List,
    Sizes,
}

/// A server that is asked.
pub struct PolledServer<'a> {
    task: &'a StatusTask,
    target: &'a Target,
    host: &'a str,
    begun: Timestamp,
    connection: Option<ServerConnection>,
    /// Its name in the history, once that is known.
    name: Option<Endpoint>,
    /// When to connect again.
    retry: Backoff,
    /// When it last answered.
    answered: Option<ClockReading>,
    /// What fails, and when to ask for it again.
    failing: BTreeMap<ServerRequest, (CollectorProblem, Instant)>,
    reader: StatusReader,
    sequence: SampleSequence,
    held: VecDeque<ServerSample>,
    members: MemberWatch,
    sizes: SizeSchedule,
    running: RunningSchedule,
    /// What is observed of it.
    pub into: Observation,
}

/// An open connection.
struct ServerConnection {
    server: Server,
    name: Endpoint,
    /// What to add to its clock, in milliseconds; 0 if it has about the time of this host. `None` until it is known.
    offset_ms: Option<i64>,
}

/// What came of asking a server once.
#[derive(Default)]
struct Answers {
    has_data: bool,
    lost: u64,
}

/// The name of a server in the history.
///
/// # Errors
/// Its host name is unknown; the text is the message.
fn endpoint(host: &str, is_of_host: impl Fn(IpAddr) -> bool) -> Result<Endpoint, String> {
    if host.starts_with('/') {
        // /tmp/mongodb-27017.sock
        let digits = host.trim_end_matches(".sock").rsplit('-').next().unwrap_or_default();
        return Ok(local(digits.parse().unwrap_or(27_017)));
    }
    // The driver writes IPv6 addresses without brackets.
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "27017"));
    let port = port.parse().map_err(|_| format!("{host} has no valid port"))?;
    let found = (name.trim_matches(['[', ']']), port).to_socket_addrs();
    let addresses: Vec<_> = found.map_err(|_| format!("the host name {name} is unknown"))?.collect();
    let is_local = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || is_of_host(ip);
    match addresses.first() {
        _ if addresses.iter().any(|address| is_local(address.ip())) => Ok(local(port)),
        Some(address) => Ok((*address).into()),
        None => Err(format!("the host name {name} is unknown")),
    }
}

impl<'a> PolledServer<'a> {
    /// The server `host` of `target`, which is not connected yet.
    pub fn new(task: &'a StatusTask, target: &'a Target, host: &'a str) -> Self {
        Self {
            task,
            target,
            host,
            begun: now(),
            connection: None,
            name: None,
            retry: RETRY,
            answered: None,
            failing: BTreeMap::new(),
            reader: StatusReader::default(),
            sequence: SampleSequence::default(),
            held: VecDeque::new(),
            members: MemberWatch::default(),
            sizes: SizeSchedule::default(),
            running: RunningSchedule::default(),
            into: task.collector.observation(),
        }
    }

    /// Asks it once.
    pub fn ask(&mut self) {
        let reading = ClockReading::now();
        let at = reading.time;
        if self.connection.is_some() || self.retry.is_due(Instant::now()) {
            let report = self.report(reading);
            self.into.report(self.task.reports.report(self.host, at, report));
        }
        self.settle(now(), HOLD_NS);
        self.into.windows.finish();
    }

    /// Waits until then; whether to go on. Meanwhile it asks for the operations that run, if somebody looks.
    pub fn sleep(&mut self, until: Instant) -> bool {
        while Instant::now() < until && self.into.nap() {
            if let Some(ServerConnection { server, name, .. }) = &self.connection {
                let most = MAX_SAID / self.task.servers.load(Ordering::Relaxed).max(1);
                let board = &self.into.board().running;
                self.running.ask(board, *name, || running::list(server, *name, most.max(1)));
            }
        }
        self.into.goes_on()
    }

    /// Hands over what waits.
    pub fn finish(&mut self) {
        self.settle(now(), 0);
        self.into.windows.finish();
    }

    /// Asks for everything that is due.
    fn report(&mut self, reading: ClockReading) -> ServerReport {
        let at = reading.time;
        let answers = match self.connection.take().map_or_else(|| self.connect(), Ok) {
            Ok(mut connection) => {
                let answers = self.collect(&mut connection, at);
                self.connection = answers.is_ok().then_some(connection);
                answers.map_err(|error| error.to_string())
            }
            Err(what) => Err(what),
        };
        match answers {
            Ok(Answers { has_data, lost }) => {
                self.retry.worked();
                // A longer time without an answer was not observed.
                let before = self.answered.replace(reading);
                let observed = before.map(|before| reading.since(&before));
                if let Some(observed) =
                    observed.filter(|one| one.elapsed.as_nanos() <= u128::from(MAX_SILENCE_NS))
                {
                    self.into.windows.observe(CollectorKind::Status, observed.from, at);
                }
                let problems = self.failing.values().map(|(problem, _)| problem.clone()).collect();
                ServerReport { problems, note: self.note(), has_data, lost }
            }
            Err(what) => {
                self.retry.failed(Instant::now());
                self.answered = None;
                let problems = vec![CollectorProblem::temporary(what)];
                ServerReport { problems, lost: 1, ..ServerReport::default() }
            }
        }
    }

    fn connect(&mut self) -> Result<ServerConnection, String> {
        let name = endpoint(self.host, |ip| self.into.servers().has_address(ip))?;
        let name = self.into.servers().name_of(name);
        self.name = Some(name);
        let server = Server::connect_alone(self.target, self.host, CollectorKind::Status.name());
        let server = server.map_err(|error| error.to_string())?;
        if let Some(found) = self.found() {
            self.into.servers().set_version(&found, &server.info().version);
        }
        self.failing.clear();
        Ok(ServerConnection { server, name, offset_ms: None })
    }

    /// The process of the server, if it runs on this host.
    fn found(&self) -> Option<FoundServer> {
        let all = self.into.servers().all();
        all.iter().find(|server| self.name == Some(server.endpoint())).cloned()
    }

    /// Asks for one thing, unless that failed a short time ago: what the user may not ask for is noted, and the rest
    /// goes on.
    ///
    /// # Errors
    /// The server does not answer: the connection is not to be used again.
    fn request<T>(
        &mut self,
        request: ServerRequest,
        answers: &mut Answers,
        ask: impl FnOnce() -> Result<T, ServerError>,
    ) -> Result<Option<T>, ServerError> {
        if self.failing.get(&request).is_some_and(|(_, again)| Instant::now() < *again) {
            return Ok(None);
        }
        match ask() {
            Ok(answer) => {
                self.failing.remove(&request);
                answers.has_data = true;
                Ok(Some(answer))
            }
            Err(error) if is_of_request(request, &error) => {
                answers.lost += 1;
                // What else fails is tried again in the next window.
                let is_refused = matches!(error, ServerError::Unauthorized { .. });
                let problem =
                    CollectorProblem { what: error.to_string(), fix: None, is_permanent: is_refused };
                let wait = if is_refused { REFUSED } else { Duration::ZERO };
                self.failing.insert(request, (problem, Instant::now() + wait));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn collect(
        &mut self,
        ServerConnection { server, name, offset_ms }: &mut ServerConnection,
        at: Timestamp,
    ) -> Result<Answers, ServerError> {
        let (name, mut answers) = (*name, Answers::default());
        let set = self.request(ServerRequest::ReplicaSet, &mut answers, || server.replica_set_status())?;
        let status = self.request(ServerRequest::Status, &mut answers, || server.status())?;
        let set = set.flatten();
        if let Some(set) = &set {
            let window = &mut self.into.windows.at(at).window;
            members::add(&mut StatusSamples { window, server: name, at }, set);
            let events = self.members.changes(name, at, set);
            if !self.is_logged() {
                events.into_iter().for_each(|event| self.into.windows.event(event));
            }
        }
        if let Some(status) = status {
            let offset_ms = *offset_ms.get_or_insert_with(|| skew_ms(at, &status));
            let document = sample_document(status.time_ms.saturating_add(offset_ms), &status, set.as_ref());
            answers.lost += hold(&mut self.held, self.reader.read(&document).ok().cloned());
        }
        if self.sizes.wants_list(at) {
            self.sizes.asked_for_list(at);
            let list = || server.collections(MAX_COLLECTIONS);
            if let Some(list) = self.request(ServerRequest::List, &mut answers, list)? {
                if list.refused > 0 {
                    let refused = plural(list.refused, "database");
                    let what = format!("the user may not list the collections of {refused}");
                    let problem =
                        CollectorProblem::permanent(what, Some("grant the role readAnyDatabase".to_owned()));
                    self.failing.insert(ServerRequest::List, (problem, Instant::now() + REFUSED));
                }
                self.sizes.set(list);
            }
        }
        self.measure(server, name, at, &mut answers)?;
        Ok(answers)
    }

    /// Measures the collections that are due.
    fn measure(
        &mut self,
        server: &Server,
        name: Endpoint,
        at: Timestamp,
        answers: &mut Answers,
    ) -> Result<(), ServerError> {
        let begun = std::time::Instant::now();
        for (database, collection) in self.sizes.due(at) {
            if begun.elapsed() > SIZES_TIME {
                // It is due again in five minutes.
                answers.lost += 1;
                continue;
            }
            let size = || server.collection_size(&database, &collection);
            if let Some(Some(size)) = self.request(ServerRequest::Sizes, answers, size)? {
                let window = &mut self.into.windows.at(at).window;
                let mut samples = StatusSamples { window, server: name, at };
                sizes::add(&mut samples, &format!("{database}.{collection}"), &size);
            }
        }
        Ok(())
    }

    /// Whether the log of the server has its events.
    fn is_logged(&self) -> bool {
        self.task.follows_logs && self.found().is_some_and(|server| server.log.is_some())
    }

    /// When `diagnostic.data` of the server had its last sample, if the agent reads it.
    fn sampled_until(&self) -> Option<Timestamp> {
        let has_folder = self.found().is_some_and(|server| server.diagnostic.is_some());
        if !self.task.follows_internals || !has_folder {
            return None;
        }
        // It takes a while until the first sample comes.
        let is_young = || (now().since(self.begun) < MAX_SILENCE_NS).then_some(self.begun);
        self.into.servers().sampled_until(self.name?).or_else(is_young)
    }

    /// Decides on samples; one of a time before the clock was set back waits no longer. Each window has the figures of one source: those of `diagnostic.data`, where the server
    /// writes it, because they come each second. A sample waits for them for `hold_ns`.
    fn settle(&mut self, at: Timestamp, hold_ns: u64) {
        let (Some(name), false) = (self.name, self.held.is_empty()) else { return };
        let (sampled_until, is_logged) = (self.sampled_until(), self.is_logged());
        let comes = sampled_until.is_some_and(|last| at.since(last) <= MAX_SILENCE_NS);
        while let Some(sample) = self.held.front() {
            let time = Timestamp::from_unix_ms(sample.time_ms());
            let is_sampled = sampled_until >= Some(time.floor_to(WIDTH_NS));
            if comes && !is_sampled && time <= at && at.since(time) < hold_ns {
                break;
            }
            let Some(sample) = self.held.pop_front() else { break };
            let mut cutter = SampleCutter::new(&mut self.into.windows, name, None);
            cutter.keep_events(if is_logged || is_sampled { |_| false } else { is_event });
            cutter.keep_figures(!is_sampled);
            cutter.add(&mut self.sequence, &sample);
        }
    }

    /// What is collected of it.
    fn note(&self) -> String {
        let recently = now().minus_ns(MAX_SILENCE_NS);
        let is_sampled = self.sampled_until() >= Some(recently);
        let figures = if is_sampled { "diagnostic.data" } else { "serverStatus" };
        let left_out = match self.sizes.left_out {
            0 => String::new(),
            more => format!(", {more} more left out"),
        };
        format!("figures from {figures}, sizes of {}{left_out}", plural(self.sizes.len(), "collection"))
    }
}

/// Lets a sample wait, if it could be read and there is room; how many are lost.
fn hold(held: &mut VecDeque<ServerSample>, sample: Option<ServerSample>) -> u64 {
    match sample {
        Some(sample) if held.len() < MAX_HELD => {
            held.push_back(sample);
            0
        }
        _ => 1,
    }
}

/// Whether only this request fails. A member that recovers has a status, but shows no collections.
const fn is_of_request(request: ServerRequest, error: &ServerError) -> bool {
    match error {
        ServerError::Unauthorized { .. } | ServerError::Command { .. } | ServerError::Reply(_) => true,
        ServerError::Lost { .. } => matches!(request, ServerRequest::List | ServerRequest::Sizes),
        _ => false,
    }
}

/// What happened between samples that no other source has: what is missing is a gap of this collector, not of the
/// server.
const fn is_event(kind: IncidentKind) -> bool {
    matches!(kind, IncidentKind::Restart(_) | IncidentKind::State { .. })
}

/// What to add to the clock of a server; 0 if it is about right.
fn skew_ms(at: Timestamp, status: &ServerStatusReply) -> i64 {
    let skew = at.unix_ms().saturating_sub(status.time_ms);
    if skew.abs() > MAX_SKEW_MS { skew } else { 0 }
}

#[cfg(test)]
mod tests {
    use sonar_mongo::bson::Document;

    use super::*;

    #[test]
    fn a_server_of_this_host_has_only_a_port() {
        let own: IpAddr = "10.0.0.5".parse().unwrap();
        let name = |host: &str| endpoint(host, |ip| ip == own);
        for host in
            ["127.0.0.1:27018", "::1:27018", "localhost:27018", "10.0.0.5:27018", "/tmp/mongodb-27018.sock"]
        {
            assert_eq!(name(host), Ok(local(27_018)), "{host}");
        }
        assert_eq!(name("10.0.0.6:5"), Ok(Endpoint::v4([10, 0, 0, 6], 5)));
        assert_eq!(name("2001:db8::1:5").unwrap().to_string(), "[2001:db8::1]:5");
        assert_eq!(
            name("no-such-host.invalid:5"),
            Err("the host name no-such-host.invalid is unknown".to_owned())
        );
        assert!(name("db1:99999").is_err());
    }

    #[test]
    fn a_sample_that_cannot_wait_is_counted() {
        let mut held = VecDeque::new();
        let sample = ServerSample::default;
        let lost: u64 = (0..MAX_HELD + 3).map(|_| hold(&mut held, Some(sample()))).sum();
        assert_eq!((held.len(), lost), (MAX_HELD, 3));
        held.clear();
        assert_eq!((hold(&mut held, None), held.len()), (1, 0), "it could not be read");
    }

    #[test]
    fn only_a_clock_of_another_machine_is_corrected() {
        let at = Timestamp::from_unix(1_000, 0);
        let skew = |time_ms| skew_ms(at, &ServerStatusReply { time_ms, document: Document::new() });
        assert_eq!([skew(999_100), skew(1_002_000), skew(940_000), skew(1_060_000)], [0, 0, 60_000, -60_000]);
    }
}
