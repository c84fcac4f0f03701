//! The state of the agent, in the file that `--status` reads.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sonar_core::Timestamp;
use sonar_core::history::CollectorKind;
use sonar_sys::Host;
use sonar_sys::resource::{ResourceUsage, helper_time};
use sonar_view::agent::{AgentStatus, HeldBytes, WatchedServer};

use super::board::{CollectorBoard, SourceId};
use super::clock_reading::AgentClock;
use super::costs::{CostMeter, folder_bytes};
use super::inspector::FoundServer;
use super::record::AgentRecord;
use super::store_folder::StoreFolder;
use super::watched::WatchedServers;
use crate::agent::memory::{HeldMemory, Holder, MemoryPlace};
use crate::agent::status_file;

/// How often the status is written.
const STATUS_EVERY: Duration = Duration::from_secs(2);

/// The servers that are watched, and why a log or `diagnostic.data` of one is not read.
pub fn servers(watched: &WatchedServers, board: &CollectorBoard) -> Vec<WatchedServer> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let problem = |collector: CollectorKind, server: &FoundServer, path: &Option<PathBuf>| {
        let source = SourceId::of_server(collector, server.endpoint());
        let is_awaited = path.is_some() && !board.is_collected(source.clone());
        board.problem(source).or_else(|| is_awaited.then(|| "nothing was read of it yet".to_owned()))
    };
    let server = |server: &FoundServer| WatchedServer {
        name: server.name.clone(),
        version: watched.version(server.endpoint()),
        pid: server.pid,
        port: server.port,
        log: path(&server.log),
        log_problem: server.no_log.clone().or_else(|| problem(CollectorKind::Log, server, &server.log)),
        diagnostic_data: path(&server.diagnostic),
        diagnostic_problem: problem(CollectorKind::Internals, server, &server.diagnostic),
    };
    watched.all().iter().map(server).collect()
}

/// What holds memory, as far as that was counted.
pub fn holders(held: &HeldMemory) -> Vec<HeldBytes> {
    let one = |holder: &Holder| {
        let facts = holder.facts();
        let is_counted =
            facts.place != MemoryPlace::Kernel && !matches!(holder, Holder::Large | Holder::Lookup);
        HeldBytes {
            name: facts.name.to_owned(),
            place: facts.place.name().to_owned(),
            bytes: is_counted.then(|| held.of(*holder) as u64),
            max_bytes: Some(facts.bytes as u64),
        }
    };
    Holder::ALL.iter().map(one).collect()
}

/// Writes the status into the folder of the store.
pub struct StatusWriter {
    folder: StoreFolder,
    /// When the agent began.
    begun: Timestamp,
    costs: CostMeter,
    written: Option<Instant>,
    /// Why it cannot be written, if it cannot.
    problem: Option<String>,
}

impl StatusWriter {
    /// Of an agent that began then.
    pub fn new(folder: &Path, begun: Timestamp) -> Self {
        let (folder, costs) = (StoreFolder::at(folder), CostMeter::default());
        Self { folder, begun, costs, written: None, problem: None }
    }

    /// Whether it was written, or was to be.
    pub fn is_written(&self) -> bool {
        self.written.is_some()
    }

    /// Whether to write it now.
    pub fn is_due(&self, clock: &dyn AgentClock) -> bool {
        clock.is_due(self.written, STATUS_EVERY)
    }

    /// That the folder was deleted, if it was.
    pub fn deletion(&self) -> Option<String> {
        self.folder.is_gone().then(|| format!("the folder {} was deleted", self.folder.path().display()))
    }

    /// Completes the status with what the agent is and costs, and writes it.
    pub fn write(&mut self, status: AgentStatus, record: &mut AgentRecord) {
        self.written = Some(record.clock.instant());
        let usage = ResourceUsage::now().unwrap_or_default();
        let mut collectors = record.board.all();
        self.costs.measure(&mut collectors);
        let (pid, folder) = (std::process::id(), self.folder.path());
        let status = AgentStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid,
            started_ticks: Host::live().stat(pid).map_or(0, |stat| stat.started),
            started_ns: self.begun.unix_ns(),
            written_ns: record.clock.time().unix_ns(),
            store: folder.display().to_string(),
            store_bytes: folder_bytes(folder),
            cpu_ns: usage.processor().as_nanos() as u64,
            helpers_cpu_ns: helper_time().as_nanos() as u64,
            memory_bytes: usage.resident_bytes,
            collectors,
            ..status
        };
        match status_file::write(folder, &status) {
            Ok(()) => self.problem = None,
            Err(error) => {
                record.notices.say_once(&mut self.problem, format!("the status cannot be written: {error}"));
            }
        }
    }

    /// Removes it: the agent ends.
    pub fn remove(&self) {
        status_file::remove(self.folder.path());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::agent::live::board::CollectorProblem;
    use crate::agent::live::fakes::{TestRecord, at, test_record};

    #[test]
    fn the_status_is_written_every_two_seconds_and_says_once_if_that_is_impossible() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("store");
        fs::create_dir(&folder).unwrap();
        let TestRecord { mut record, clock, .. } = test_record(&folder, 7);
        let mut writer = StatusWriter::new(&folder, at(5));
        assert!(writer.is_due(&*record.clock) && !writer.is_written());
        record.notices.note("a notice".to_owned());
        let status = AgentStatus { notices: vec!["a notice".to_owned()], ..AgentStatus::default() };
        writer.write(status, &mut record);
        let read = status_file::read(&folder).unwrap().unwrap();
        assert_eq!((read.started_ns, read.written_ns), (at(5).unix_ns(), at(7).unix_ns()));
        assert_eq!(
            (read.notices, read.collectors.len()),
            (vec!["a notice".to_owned()], CollectorKind::ALL.len())
        );
        assert!(writer.is_written() && !writer.is_due(&*record.clock));
        clock.sleep(STATUS_EVERY);
        assert!(writer.is_due(&*record.clock));
        assert_eq!(writer.deletion(), None);
        fs::remove_dir_all(&folder).unwrap();
        for _ in 0..2 {
            writer.write(AgentStatus::default(), &mut record);
        }
        assert_eq!(writer.deletion(), Some(format!("the folder {} was deleted", folder.display())));
        let notices = record.status().notices;
        assert!(
            notices.len() == 2 && notices[1].starts_with("the status cannot be written: "),
            "{notices:?}"
        );
    }

    #[test]
    fn what_is_not_read_of_a_server_says_why() {
        let (watched, board) = (WatchedServers::default(), CollectorBoard::new(|_| true));
        let server = |port| FoundServer {
            port,
            pid: u32::from(port),
            log: Some("/a.log".into()),
            diagnostic: Some("/diagnostic.data".into()),
            ..FoundServer::default()
        };
        let elsewhere = FoundServer { log: None, no_log: Some("it goes to syslog".to_owned()), ..server(6) };
        watched.set(vec![server(5), elsewhere]);
        let log = |port| SourceId::of_server(CollectorKind::Log, crate::agent::servers::local(port));
        let problems = || {
            let of =
                |one: WatchedServer| [one.log_problem, one.diagnostic_problem].map(Option::unwrap_or_default);
            servers(&watched, &board).into_iter().map(of).collect::<Vec<_>>()
        };
        let awaited = "nothing was read of it yet";
        assert_eq!(problems(), [[awaited, awaited], ["it goes to syslog", awaited]]);
        board.data(log(5), at(0));
        assert_eq!(problems()[0], ["", awaited]);
        board.failed(log(5), at(1), &CollectorProblem::temporary("it is gone".to_owned()));
        board.want(CollectorKind::Internals, false);
        assert_eq!(problems()[0], ["it is gone", "internals is switched off"]);
    }

    #[test]
    fn what_is_not_counted_says_no_bytes() {
        let held = HeldMemory::default();
        held.set(Holder::Open, 5);
        let holders = holders(&held);
        let bytes = |holder: Holder| holders[holder as usize].bytes;
        assert_eq!([Holder::Open, Holder::Logs].map(bytes), [Some(5), Some(0)]);
        assert_eq!([Holder::Large, Holder::Lookup, Holder::FileMaps].map(bytes), [None; 3]);
    }
}
