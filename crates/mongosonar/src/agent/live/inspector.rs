//! Finds the servers of this host, their logs and their `diagnostic.data`, and opens these files, after the agent has
//! dropped its privileges: a helper process does it. It opens nothing else, whatever it is asked, and nothing that the
//! user of the server may not read (`servers::files`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use sonar_core::observation::FileIdentity;
use sonar_sys::Host;
use sonar_sys::host::placed;
use sonar_sys::host::process::Process;
use sonar_sys::privileges::Duty;
use sonar_sys::questions::{FileCloser, HelperAnswer};
use sonar_view::kit::plural;

pub use super::described_server::FoundServer;
use super::described_server::{KnownServer, describe, fitted};
use crate::agent::settings::{AgentSettings, ServerTable};
use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{self, AnswerPlace, HelperChannel, answer, answer_files};
use crate::confinement::path_bytes;
use crate::confinement::privileges::{self, HelperTask};
use crate::ftdc::follow::{DiagnosticFile, DiagnosticFolder};
use crate::input::follow::{FileThread, FileThreads, FollowedPlace, SentIdentity};
use crate::locking::lock;
use crate::servers::at_port::ServerPort;
use crate::servers::files::{InspectableLog, InspectableSamples, SearchPatience, ServerProcess};
use crate::servers::{self, MAX_SERVERS};

/// What the configuration says of the files of a server. The rest of it is not for the helper to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFiles {
    port: u16,
    log: Option<PathBuf>,
    dbpath: Option<PathBuf>,
}

impl ServerFiles {
    /// Those of all servers of a configuration.
    pub fn all(settings: &AgentSettings) -> Vec<Self> {
        let files = |table: &ServerTable| Self {
            port: table.port.0,
            log: table.log.clone(),
            dbpath: table.dbpath.clone(),
        };
        settings.server.iter().map(files).collect()
    }
}

/// What the helper is asked.
#[derive(Debug, Serialize, Deserialize)]
enum InspectorRequest {
    /// The servers of this host, with the configuration that is in use.
    Servers(ConfigurationUse),
    /// Read the configuration file again. The request has no path, so that it cannot name another file.
    Reload(ConfigurationUse),
    /// Which file is at the path of a log.
    Identity(#[serde(with = "path_bytes")] PathBuf),
    /// Open a log.
    Open(#[serde(with = "path_bytes")] PathBuf),
    /// Open files that may be older versions of a log.
    Copies(#[serde(with = "path_bytes")] PathBuf),
    /// The files of samples in a folder.
    List(#[serde(with = "path_bytes")] PathBuf),
    /// Open a file of samples in a folder, by its name.
    OpenSample(#[serde(with = "path_bytes")] PathBuf, String),
    /// Whether the process of this number that started then has ended.
    HasEnded(u32, u64),
}

/// Which configuration the agent uses. Every request that depends on it says so: whatever answers come late or never, the
/// helper uses the one that the agent uses.
#[derive(Copy, Clone, Debug, Default, Serialize, Deserialize)]
struct ConfigurationUse {
    /// The number of the one that is in use; 0 at the start.
    accepted: u64,
    /// The number of the last one that was read.
    read: u64,
}

/// What is looked at of a server. A file system that does not answer holds up only this.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InspectedPart {
    /// Its log, and what the search wants to know: its configuration, and whether its output is a file.
    Log,
    Samples,
}

/// Answers requests, and knows which files may be opened: those of the servers that it found.
pub struct Inspection {
    host: Host,
    /// The configuration file that was named.
    config: Option<PathBuf>,
    configured: Vec<ServerTable>,
    /// What was read when the configuration file was last read again, with its number.
    next: Option<(u64, Vec<ServerTable>)>,
    known: Vec<KnownServer>,
    /// It was said that there are too many servers, and that ports may be missing.
    has_left_out: bool,
    has_missed_ports: bool,
    /// Look at files, by the process whose these are.
    places: BTreeMap<(u32, InspectedPart), FileThread>,
    /// The threads that do it. They are few, however many servers there are.
    threads: Arc<FileThreads>,
}

impl Inspection {
    /// With these servers in the configuration file that was named.
    fn new(config: Option<PathBuf>, configured: Vec<ServerTable>) -> Self {
        let (next, known, places, threads) = (None, Vec::new(), BTreeMap::new(), Arc::default());
        let (host, has_left_out, has_missed_ports) = (Host::live(), false, false);
        Self { host, config, configured, next, known, has_left_out, has_missed_ports, places, threads }
    }

    /// The servers of this host: processes that run the program of one, and hold a socket that listens. What a process
    /// says of itself does not count.
    fn servers(&mut self, configuration: ConfigurationUse) -> Vec<FoundServer> {
        self.adopt(configuration);
        // Without a list of processes nothing is known that was not known before.
        let Ok(listeners) = servers::listeners(&self.host) else { return self.found() };
        let mut known: Vec<KnownServer> = Vec::new();
        let mut patience = SearchPatience::default();
        let mut servers = servers::proven(&self.host);
        servers.retain(|process| {
            ServerPort::of(process.pid, &listeners) != ServerPort::Closed || self.known(process).is_some()
        });
        let left_out = servers.len().saturating_sub(MAX_SERVERS);
        for process in placed(servers, MAX_SERVERS) {
            match ServerPort::of(process.pid, &listeners) {
                ServerPort::Open(port) => {
                    let network = self.host.addresses_of_other_network(process.pid);
                    let one = self.describe(process, port, &mut patience);
                    known.push(KnownServer { found: FoundServer { network, ..one.found }, ..one });
                }
                ServerPort::Closed => {
                    known.extend(self.known(&process).map(|one| KnownServer {
                        found: FoundServer { is_closed: true, ..one.found },
                        ..one
                    }))
                }
                ServerPort::Unknown => known.extend(self.known(&process)),
            }
        }
        if let Some(said) = self.leave_out(left_out) {
            eprintln!("mongosonar: {said}");
        }
        if let Some(said) = servers::ports_missing(&listeners)
            && !std::mem::replace(&mut self.has_missed_ports, true)
        {
            eprintln!("mongosonar: {said}");
        }
        // Another server may have the port now.
        let is_open = |one: &&KnownServer| !one.found.is_closed;
        let place = |one: &KnownServer| (one.found.port, one.found.network.clone());
        let open: BTreeSet<_> = known.iter().filter(is_open).map(place).collect();
        known.retain(|one| !one.found.is_closed || !open.contains(&place(one)));
        known.sort_by(|a, b| a.found.cmp(&b.found));
        self.places.retain(|(pid, _), _| known.iter().any(|one| one.found.pid == *pid));
        self.known = known;
        self.found()
    }

    /// That so many servers are left out; `None` if that was said before.
    fn leave_out(&mut self, servers: usize) -> Option<String> {
        if servers == 0 || std::mem::replace(&mut self.has_left_out, true) {
            return None;
        }
        Some(format!(
            "more than {MAX_SERVERS} servers run here: the logs and diagnostic.data of {} are not read",
            plural(servers as u64, "other")
        ))
    }

    /// The servers of the last search.
    fn found(&self) -> Vec<FoundServer> {
        fitted(self.known.iter().map(|known| known.found.clone()).collect())
    }

    /// A server as it was found before. One that has closed its port may write its last data for minutes.
    fn known(&self, process: &Process) -> Option<KnownServer> {
        let started = self.host.stat(process.pid)?.started;
        let is_it = |one: &&KnownServer| (one.found.pid, one.found.started) == (process.pid, started);
        self.known.iter().find(is_it).cloned()
    }

    /// A server with its files. If a file system does not answer, they are those that were known before.
    fn describe(&mut self, process: Process, port: u16, patience: &mut SearchPatience) -> KnownServer {
        let configured = self.configured.iter().find(|table| table.port.0 == port).cloned();
        let started = self.host.stat(process.pid).map_or(0, |stat| stat.started);
        let server = ServerProcess::new(process.clone(), started);
        let place = self.place(process.pid, InspectedPart::Log);
        let described = patience.run(place, move || describe(server, port, configured));
        described.unwrap_or_else(|error| match self.known(&process) {
            Some(one) => KnownServer { found: FoundServer { port, ..one.found }, ..one },
            None => {
                let (pid, name) = (process.pid, process.name);
                let no_log = Some(format!("its log is not known: {error}"));
                let found = FoundServer { port, pid, started, name, no_log, ..FoundServer::default() };
                KnownServer { found, log: None, samples: None }
            }
        })
    }

    /// Lets a thread look at files of a process, and waits for it a while.
    fn wait<T: Send + 'static>(
        &mut self,
        pid: u32,
        part: InspectedPart,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.place(pid, part).run(work)
    }

    fn place(&mut self, pid: u32, part: InspectedPart) -> &FileThread {
        let (threads, host) = (&self.threads, &self.host);
        self.places.entry((pid, part)).or_insert_with(|| FileThread::of(threads, host.user(pid)))
    }

    fn reload(&mut self, configuration: ConfigurationUse) -> io::Result<Vec<ServerFiles>> {
        // What was accepted is not replaced by what may be refused.
        self.adopt(configuration);
        let (settings, _) = AgentSettings::load(self.config.as_deref()).map_err(io::Error::other)?;
        let files = ServerFiles::all(&settings);
        self.next = Some((configuration.read, settings.server));
        Ok(files)
    }

    /// Uses what was read last, if the agent does.
    fn adopt(&mut self, configuration: ConfigurationUse) {
        if let Some((_, tables)) = self.next.take_if(|(number, _)| *number == configuration.accepted) {
            self.configured = tables;
        }
    }

    /// A log, if it is that of a server.
    fn log(&self, path: &Path) -> io::Result<InspectableLog> {
        let is_it = |known: &&KnownServer| known.found.log.as_deref() == Some(path);
        self.known.iter().find(is_it).and_then(|known| known.log.clone()).ok_or_else(of_no_server)
    }

    /// A folder of samples, if it is that of a server.
    fn folder(&self, path: &Path) -> io::Result<InspectableSamples> {
        let is_it = |known: &&KnownServer| known.found.diagnostic.as_deref() == Some(path);
        self.known.iter().find(is_it).and_then(|known| known.samples.clone()).ok_or_else(of_no_server)
    }

    /// Lets a thread look at the log at this path.
    fn with_log<T: Send + 'static>(
        &mut self,
        path: &Path,
        work: impl FnOnce(InspectableLog) -> T + Send + 'static,
    ) -> io::Result<T> {
        let log = self.log(path)?;
        self.wait(log.server.process.pid, InspectedPart::Log, move || work(log))
    }

    /// Closes files of the log at this path.
    fn closer_of_log(&mut self, path: &Path) -> FileCloser {
        let log = self.log(path).map(|log| log.server.process.pid);
        log.map(|pid| self.place(pid, InspectedPart::Log).closer()).unwrap_or_default()
    }

    /// Closes files of this folder of samples.
    fn closer_of_folder(&mut self, path: &Path) -> FileCloser {
        let folder = self.folder(path).map(|folder| folder.server.process.pid);
        folder.map(|pid| self.place(pid, InspectedPart::Samples).closer()).unwrap_or_default()
    }

    /// Lets a thread look at this folder of samples.
    fn with_folder<T: Send + 'static>(
        &mut self,
        path: &Path,
        work: impl FnOnce(InspectableSamples) -> T + Send + 'static,
    ) -> io::Result<T> {
        let folder = self.folder(path)?;
        self.wait(folder.server.process.pid, InspectedPart::Samples, move || work(folder))
    }

    fn list(&mut self, folder: &Path) -> io::Result<Vec<DiagnosticFile>> {
        self.with_folder(folder, |mut folder| folder.list())?
    }

    fn open_sample(&mut self, folder: &Path, name: &str) -> io::Result<Vec<File>> {
        let name = name.to_owned();
        Ok(vec![self.with_folder(folder, move |mut folder| folder.open(&name))??])
    }

    /// Which file is at the path of a log.
    fn identity(&mut self, path: &Path) -> io::Result<Option<SentIdentity>> {
        let found = self.with_log(path, |mut log| log.identity())??;
        Ok(found.map(SentIdentity))
    }

    fn open(&mut self, path: &Path) -> io::Result<Vec<File>> {
        Ok(vec![self.with_log(path, |mut log| log.open())??])
    }

    fn copies(&mut self, path: &Path) -> io::Result<Vec<File>> {
        self.with_log(path, |mut log| log.copies())
    }

    fn serve(&mut self, socket: UnixStream) -> io::Result<()> {
        helper_channel::serve(socket, |request| self.answer(request))
    }

    fn answer(&mut self, request: InspectorRequest) -> io::Result<HelperAnswer> {
        match request {
            InspectorRequest::Servers(configuration) => answer(Ok(self.servers(configuration))),
            InspectorRequest::Reload(configuration) => answer(self.reload(configuration)),
            InspectorRequest::Identity(path) => answer(self.identity(&path)),
            InspectorRequest::Open(path) => answer_files(self.open(&path), self.closer_of_log(&path)),
            InspectorRequest::Copies(path) => answer_files(self.copies(&path), self.closer_of_log(&path)),
            InspectorRequest::List(folder) => answer(self.list(&folder)),
            InspectorRequest::OpenSample(folder, name) => {
                answer_files(self.open_sample(&folder, &name), self.closer_of_folder(&folder))
            }
            InspectorRequest::HasEnded(pid, started) => {
                answer(Ok(servers::is_ending(&self.host, pid, started)))
            }
        }
    }
}

/// The path is none of a server: it has ended since the path was reported.
fn of_no_server() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no server here has this file any more")
}

/// Finds servers and opens their files, here or in the helper.
pub struct Inspector {
    place: AnswerPlace<Inspection>,
    configuration: Mutex<ConfigurationUse>,
}

impl Inspector {
    /// Starts the helper if this process gives up its privileges (`confined`). Call it before any thread is started.
    /// `config` is the configuration file that was named.
    pub fn start(configured: &[ServerTable], config: Option<&Path>, confined: bool) -> Self {
        let inspection = || Inspection::new(config.map(Path::to_path_buf), configured.to_vec());
        let what = "following servers, their logs and their diagnostic.data";
        let memory = privileges::HELPER_BYTES;
        let task = HelperTask { name: "sonar-logs", what, memory, keep: INSPECTING, duty: Duty::Reading };
        let channel = confined.then(|| HelperChannel::start(task, |socket| inspection().serve(socket)));
        Self::at(match channel.flatten() {
            Some(channel) => AnswerPlace::There(channel),
            None => AnswerPlace::Here(Mutex::new(inspection())),
        })
    }

    fn at(place: AnswerPlace<Inspection>) -> Self {
        Self { place, configuration: Mutex::default() }
    }

    /// The servers of this host, by port.
    ///
    /// # Errors
    /// The helper has gone, or does not answer now.
    pub fn servers(&self) -> io::Result<Vec<FoundServer>> {
        let configuration = *lock(&self.configuration);
        let request = InspectorRequest::Servers(configuration);
        self.place.ask(&request, |inspection| Ok(inspection.servers(configuration)))
    }

    /// Reads the configuration file again. Returns its settings of servers, which [`accept`](Self::accept) puts in the
    /// place of the old ones.
    ///
    /// # Errors
    /// The file is wrong, or the helper has gone, or does not answer now. The old settings stay then, even if the helper
    /// reads the file later.
    pub fn reload(&self) -> io::Result<Vec<ServerFiles>> {
        let configuration = {
            let mut configuration = lock(&self.configuration);
            configuration.read += 1;
            *configuration
        };
        let request = InspectorRequest::Reload(configuration);
        self.place.ask(&request, |inspection| inspection.reload(configuration))
    }

    /// Uses the settings that the last [`reload`](Self::reload) has returned, from the next search on. Nothing is asked,
    /// so it cannot fail.
    pub fn accept(&self) {
        let mut configuration = lock(&self.configuration);
        configuration.accepted = configuration.read;
    }

    /// Whether the process of a server has ended or is ending, as far as is known: its files can no longer be read then,
    /// which is no failure.
    pub fn has_ended(&self, server: &FoundServer) -> bool {
        let FoundServer { pid, started, .. } = *server;
        let request = InspectorRequest::HasEnded(pid, started);
        let is_ending = |inspection: &mut Inspection| Ok(servers::is_ending(&inspection.host, pid, started));
        self.place.ask(&request, is_ending).unwrap_or(false)
    }

    /// Answers of the helper so far that came late.
    pub fn late_answers(&self) -> u64 {
        match &self.place {
            AnswerPlace::Here(_) => 0,
            AnswerPlace::There(channel) => channel.late(),
        }
    }
}

/// The log of a server, opened by an inspector.
pub struct InspectedLog {
    path: PathBuf,
    inspector: Arc<Inspector>,
    /// Reads it, if whoever follows it must not wait.
    thread: Option<Arc<FileThread>>,
}

impl InspectedLog {
    /// The log at a path that the inspector has reported.
    pub fn new(path: PathBuf, inspector: Arc<Inspector>) -> Self {
        Self { path, inspector, thread: None }
    }

    /// This thread reads it.
    pub fn read_by(self, thread: Arc<FileThread>) -> Self {
        Self { thread: Some(thread), ..self }
    }
}

impl FollowedPlace for InspectedLog {
    fn identity(&mut self) -> io::Result<Option<FileIdentity>> {
        let request = InspectorRequest::Identity(self.path.clone());
        let found = self.inspector.place.ask(&request, |inspection| inspection.identity(&self.path))?;
        Ok(found.map(|SentIdentity(identity)| identity))
    }

    fn open(&mut self) -> io::Result<File> {
        let request = InspectorRequest::Open(self.path.clone());
        self.inspector.place.open_one(&request, |inspection| inspection.open(&self.path))
    }

    fn copies(&mut self) -> Vec<File> {
        let request = InspectorRequest::Copies(self.path.clone());
        self.inspector.place.open(&request, |inspection| inspection.copies(&self.path)).unwrap_or_default()
    }

    fn thread(&self) -> Option<Arc<FileThread>> {
        self.thread.clone()
    }
}

/// The samples of a server, opened by an inspector.
pub struct InspectedFolder {
    path: PathBuf,
    inspector: Arc<Inspector>,
    thread: Arc<FileThread>,
}

impl InspectedFolder {
    /// The folder at a path that the inspector has reported; `thread` reads its files.
    pub fn new(path: PathBuf, inspector: Arc<Inspector>, thread: Arc<FileThread>) -> Self {
        Self { path, inspector, thread }
    }
}

impl DiagnosticFolder for InspectedFolder {
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
        let request = InspectorRequest::List(self.path.clone());
        self.inspector.place.ask(&request, |inspection| inspection.list(&self.path))
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        let request = InspectorRequest::OpenSample(self.path.clone(), name.to_owned());
        self.inspector.place.open_one(&request, |inspection| inspection.open_sample(&self.path, name))
    }

    fn thread(&self) -> Option<Arc<FileThread>> {
        Some(self.thread.clone())
    }
}

#[cfg(test)]
pub mod tests;
