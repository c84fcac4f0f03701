//! Finds the servers of this host, their logs and their `diagnostic.data`, and opens these files, after the agent has
//! dropped its privileges: a helper process does it. It opens nothing else, whatever it is asked, and nothing that the
//! user of the server may not read (`server_files`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use sonar_sys::Host;
use sonar_sys::host::listeners::{FoundListeners, Listener, ListenerOrigin};
use sonar_sys::host::process::Process;
use sonar_sys::host::regular;
use sonar_sys::privileges::{Duty, capability};
use sonar_sys::questions::HelperAnswer;

use super::helper_channel::{HelperChannel, answer, answer_files, lock};
use super::server_files::{InspectableLog, InspectableSamples, LogLocation, ServerProcess, beside_log};
use super::{helper_channel, options};
use crate::agent::settings::{AgentSettings, ServerTable};
use crate::follow::{FileIdentity, FollowedPlace};
use crate::ftdc::follow::{DiagnosticFile, DiagnosticFolder};
use crate::privileges::{self, HelperTask};
use crate::server_configuration::ServerConfiguration;
use crate::servers;

/// The most servers that are reported.
const MAX_SERVERS: usize = 128;
/// The most files of a folder that are listed: a server keeps some twenty.
const MAX_FILES: usize = 1_000;
/// The folder that a mongod writes its samples into.
const DIAGNOSTIC: &str = "diagnostic.data";

/// A server of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundServer {
    /// The port that it listens on.
    pub port: u16,
    /// Its process.
    pub pid: u32,
    /// When that started, in clock ticks since boot: distinguishes it from a later process of its number.
    pub started: u64,
    /// Its program: `mongod` or `mongos`.
    pub name: String,
    /// Its log; `None` if it writes none into a file, or nothing says which.
    pub log: Option<PathBuf>,
    /// The folder of its data, as it names it itself; `None` on a mongos, or if nothing says which.
    pub dbpath: Option<PathBuf>,
    /// The folder of its samples.
    pub diagnostic: Option<PathBuf>,
    /// It runs, but has closed its port.
    pub is_closed: bool,
    /// Its settings, of its command line and its configuration, without secrets; empty if they are not known.
    pub options: BTreeMap<String, String>,
}

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
    Identity(PathBuf),
    /// Open a log.
    Open(PathBuf),
    /// Open files that may be older versions of a log.
    Copies(PathBuf),
    /// The files of samples in a folder.
    List(PathBuf),
    /// Open a file of samples in a folder, by its name.
    OpenSample(PathBuf, String),
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

/// A file of samples: name, device, number on it, size, and time of the last change in nanoseconds since 1970.
type ListedFile = (String, u64, u64, u64, i64);

/// A server with the files that may be opened for it.
#[derive(Clone)]
struct KnownServer {
    found: FoundServer,
    log: Option<InspectableLog>,
    samples: Option<InspectableSamples>,
}

/// Whether a process listens.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ServerPort {
    /// On this port, and perhaps on others.
    Open(u16),
    Closed,
    /// Its sockets could not be read, or not all of them.
    Unknown,
}

impl ServerPort {
    /// Of this process.
    fn of(pid: u32, found: &FoundListeners) -> Self {
        let is_held = |one: &&Listener| one.pid == pid && one.origin == ListenerOrigin::Socket;
        match found.listeners.iter().find(is_held) {
            Some(one) => Self::Open(one.address.port()),
            None if found.incomplete.iter().any(|one| one.pid == pid) => Self::Unknown,
            None => Self::Closed,
        }
    }
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
}

impl Inspection {
    /// The servers of this host: processes that run the program of one, and hold a socket that listens. What a process
    /// says of itself does not count.
    fn servers(&mut self, configuration: ConfigurationUse) -> Vec<FoundServer> {
        self.adopt(configuration);
        // Without a list of processes nothing is known that was not known before.
        let Ok(listeners) = servers::listeners(&self.host) else { return self.found() };
        let mut known: Vec<KnownServer> = Vec::new();
        for process in servers::proven(&self.host) {
            if known.len() >= MAX_SERVERS {
                break;
            }
            match ServerPort::of(process.pid, &listeners) {
                ServerPort::Open(port) => known.push(self.server(process, port)),
                ServerPort::Closed => {
                    known.extend(self.known(&process).map(|one| KnownServer {
                        found: FoundServer { is_closed: true, ..one.found },
                        ..one
                    }))
                }
                ServerPort::Unknown => known.extend(self.known(&process)),
            }
        }
        // Another server may have the port now.
        let is_open = |one: &&KnownServer| !one.found.is_closed;
        let open: BTreeSet<u16> = known.iter().filter(is_open).map(|one| one.found.port).collect();
        known.retain(|one| !one.found.is_closed || !open.contains(&one.found.port));
        known.sort_by(|a, b| a.found.cmp(&b.found));
        self.known = known;
        self.found()
    }

    /// The servers of the last search.
    fn found(&self) -> Vec<FoundServer> {
        self.known.iter().map(|known| known.found.clone()).collect()
    }

    /// A server as it was found before. One that has closed its port may write its last data for minutes.
    fn known(&self, process: &Process) -> Option<KnownServer> {
        let started = self.host.stat(process.pid)?.started;
        let is_it = |one: &&KnownServer| (one.found.pid, one.found.started) == (process.pid, started);
        self.known.iter().find(is_it).cloned()
    }

    fn server(&self, process: Process, port: u16) -> KnownServer {
        let configured = self.configured.iter().find(|table| table.port.0 == port);
        let started = self.host.stat(process.pid).map_or(0, |stat| stat.started);
        let server = ServerProcess { process, started };
        let process = &server.process;
        let root = process.folder().join("root");
        let working = fs::read_link(process.folder().join("cwd")).unwrap_or_else(|_| PathBuf::from("/"));
        // As the process sees it: a container has a root folder of its own.
        let inside = |path: &Path| match path.strip_prefix(&root) {
            Ok(rest) => Path::new("/").join(rest),
            Err(_) => working.join(path),
        };
        let outside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let option = |names: &[&str]| process.option(names).map(PathBuf::from);
        let file = option(&["--config", "-f"]);
        let text = file.as_ref().map(|path| server.configuration(&inside(path)));
        // Without the file that its command line names they are not known.
        let knows_options = text.as_ref().is_none_or(Option::is_some);
        let configuration = ServerConfiguration::parse(&text.flatten().unwrap_or_default());
        let open = process.open_files();
        let named_log = option(&["--logpath"]).or_else(|| configuration.log().map(PathBuf::from));
        let place = match (configured.and_then(|table| table.log.clone()), &named_log) {
            (Some(path), _) => LogLocation::Configured(path),
            (None, Some(path)) => LogLocation::Named(inside(path)),
            // Without a log path a server may write to standard output, which may be a file.
            (None, None) => LogLocation::Output,
        };
        let output = process.folder().join("fd/1");
        let log_path = match &place {
            LogLocation::Configured(path) => Some(path.clone()),
            LogLocation::Named(path) => Some(outside(path)),
            LogLocation::Output => regular::open(&output).is_ok().then_some(output),
        };
        // A mongod always has this file open.
        let of_open_file = || {
            let is_it = |path: &&PathBuf| path.file_name().is_some_and(|name| name == "WiredTiger.wt");
            Some(open.iter().map(|(_, path)| path).find(is_it)?.parent()?.to_path_buf())
        };
        let dbpath = configured.and_then(|table| table.dbpath.clone()).or_else(|| {
            let of_text = || configuration.data_folder().map(PathBuf::from);
            option(&["--dbpath"]).or_else(of_text).or_else(of_open_file).map(|path| working.join(path))
        });
        let is_mongod = process.name == servers::MONGOD;
        let folder = match (is_mongod, &dbpath, &named_log) {
            (true, Some(dbpath), _) => Some(inside(&dbpath.join(DIAGNOSTIC))),
            // mongos: the name of its log up to the first dot.
            (false, _, Some(log)) => beside_log(&inside(log), DIAGNOSTIC),
            _ => None,
        };
        let options = match knows_options {
            true => options::of(&process.arguments, &configuration),
            false => BTreeMap::new(),
        };
        let found = FoundServer {
            port,
            pid: process.pid,
            started,
            name: process.name.clone(),
            log: log_path.clone(),
            dbpath: dbpath.filter(|_| is_mongod),
            diagnostic: folder.as_deref().map(outside),
            is_closed: false,
            options,
        };
        let log = log_path.map(|_| InspectableLog { server: server.clone(), place });
        KnownServer { found, log, samples: folder.map(|folder| InspectableSamples { server, folder }) }
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

    fn list(&self, folder: &Path) -> io::Result<Vec<ListedFile>> {
        let files = self.folder(folder)?.list()?;
        let newest = files.len().saturating_sub(MAX_FILES);
        let listed = |file: DiagnosticFile| {
            let DiagnosticFile { name, identity, size, modified_ns } = file;
            (name, identity.device, identity.inode, size, modified_ns)
        };
        Ok(files.into_iter().skip(newest).map(listed).collect())
    }

    fn open_sample(&self, folder: &Path, name: &str) -> io::Result<Vec<File>> {
        Ok(vec![self.folder(folder)?.open(name)?])
    }

    /// Device and number of the file that is at the path of a log.
    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        Ok(self.log(path)?.identity()?.map(|found| (found.device, found.inode)))
    }

    fn open(&self, path: &Path) -> io::Result<Vec<File>> {
        Ok(vec![self.log(path)?.open()?])
    }

    fn copies(&self, path: &Path) -> io::Result<Vec<File>> {
        Ok(self.log(path)?.copies())
    }

    fn serve(&mut self, socket: UnixStream) -> io::Result<()> {
        helper_channel::serve(socket, |request| self.answer(request))
    }

    fn answer(&mut self, request: InspectorRequest) -> io::Result<HelperAnswer> {
        match request {
            InspectorRequest::Servers(configuration) => answer(Ok(self.servers(configuration))),
            InspectorRequest::Reload(configuration) => answer(self.reload(configuration)),
            InspectorRequest::Identity(path) => answer(self.identity(&path)),
            InspectorRequest::Open(path) => answer_files(self.open(&path)),
            InspectorRequest::Copies(path) => answer_files(self.copies(&path)),
            InspectorRequest::List(folder) => answer(self.list(&folder)),
            InspectorRequest::OpenSample(folder, name) => answer_files(self.open_sample(&folder, &name)),
            InspectorRequest::HasEnded(pid, started) => {
                answer(Ok(servers::has_ended(&self.host, pid, started)))
            }
        }
    }
}

/// The path is none of a server: it has ended since the path was reported.
fn of_no_server() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no server here has this file any more")
}

/// Where inspections are made.
enum InspectionPlace {
    /// In this process, which keeps its privileges.
    Here(Mutex<Box<Inspection>>),
    /// In the helper.
    There(HelperChannel),
}

/// Finds servers and opens their files, here or in the helper.
pub struct Inspector {
    place: InspectionPlace,
    configuration: Mutex<ConfigurationUse>,
}

impl Inspector {
    /// Starts the helper if this process gives up its privileges (`confined`). Call it before any thread is started.
    /// `config` is the configuration file that was named.
    pub fn start(configured: &[ServerTable], config: Option<&Path>, confined: bool) -> Self {
        const KEPT: &[u32] = &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH];
        let inspection = || Inspection {
            host: Host::live(),
            config: config.map(Path::to_path_buf),
            configured: configured.to_vec(),
            next: None,
            known: Vec::new(),
        };
        let what = "following servers, their logs and their diagnostic.data";
        let task = HelperTask { name: "sonar-logs", what, keep: KEPT, duty: Duty::Reading };
        let helper = confined.then(|| privileges::helper(task, |socket| inspection().serve(socket)));
        Self::at(match helper.flatten().and_then(HelperChannel::new) {
            Some(channel) => InspectionPlace::There(channel),
            None => InspectionPlace::Here(Mutex::new(Box::new(inspection()))),
        })
    }

    fn at(place: InspectionPlace) -> Self {
        Self { place, configuration: Mutex::default() }
    }

    /// The servers of this host, by port.
    ///
    /// # Errors
    /// The helper has gone, or does not answer now.
    pub fn servers(&self) -> io::Result<Vec<FoundServer>> {
        let configuration = *lock(&self.configuration);
        let request = InspectorRequest::Servers(configuration);
        self.ask(request, |inspection| Ok(inspection.servers(configuration)))
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
        self.ask(request, |inspection| inspection.reload(configuration))
    }

    /// Uses the settings that the last [`reload`](Self::reload) has returned, from the next search on. Nothing is asked,
    /// so it cannot fail.
    pub fn accept(&self) {
        let mut configuration = lock(&self.configuration);
        configuration.accepted = configuration.read;
    }

    /// Whether the process of a server has ended, as far as is known: its files can no longer be read then, which is no
    /// failure.
    pub fn has_ended(&self, server: &FoundServer) -> bool {
        let FoundServer { pid, started, .. } = *server;
        let request = InspectorRequest::HasEnded(pid, started);
        self.ask(request, |inspection| Ok(servers::has_ended(&inspection.host, pid, started)))
            .unwrap_or(false)
    }

    /// Answers of the helper so far that came late.
    pub fn late_answers(&self) -> u64 {
        match &self.place {
            InspectionPlace::Here(_) => 0,
            InspectionPlace::There(channel) => channel.late(),
        }
    }

    /// Asks the helper, or this process.
    fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        request: InspectorRequest,
        here: impl FnOnce(&mut Inspection) -> io::Result<T>,
    ) -> io::Result<T> {
        match &self.place {
            InspectionPlace::Here(inspection) => here(&mut lock(inspection)),
            InspectionPlace::There(channel) => channel.ask(&request).map(|(answer, _)| answer),
        }
    }

    /// Lets the helper, or this process, open files.
    fn open(
        &self,
        request: InspectorRequest,
        here: impl FnOnce(&mut Inspection) -> io::Result<Vec<File>>,
    ) -> io::Result<Vec<File>> {
        match &self.place {
            InspectionPlace::Here(inspection) => here(&mut lock(inspection)),
            InspectionPlace::There(channel) => channel.ask::<()>(&request).map(|((), files)| files),
        }
    }

    /// The same for one file.
    fn open_one(
        &self,
        request: InspectorRequest,
        here: impl FnOnce(&mut Inspection) -> io::Result<Vec<File>>,
    ) -> io::Result<File> {
        self.open(request, here)?.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The log of a server, opened by an inspector.
pub struct InspectedLog {
    path: PathBuf,
    inspector: Arc<Inspector>,
}

impl InspectedLog {
    /// The log at a path that the inspector has reported.
    pub fn new(path: PathBuf, inspector: Arc<Inspector>) -> Self {
        Self { path, inspector }
    }
}

impl FollowedPlace for InspectedLog {
    fn identity(&mut self) -> io::Result<Option<FileIdentity>> {
        let request = InspectorRequest::Identity(self.path.clone());
        let found = self.inspector.ask(request, |inspection| inspection.identity(&self.path))?;
        Ok(found.map(|(device, inode)| FileIdentity { device, inode }))
    }

    fn open(&mut self) -> io::Result<File> {
        let request = InspectorRequest::Open(self.path.clone());
        self.inspector.open_one(request, |inspection| inspection.open(&self.path))
    }

    fn copies(&mut self) -> Vec<File> {
        let request = InspectorRequest::Copies(self.path.clone());
        self.inspector.open(request, |inspection| inspection.copies(&self.path)).unwrap_or_default()
    }
}

/// The samples of a server, opened by an inspector.
pub struct InspectedFolder {
    path: PathBuf,
    inspector: Arc<Inspector>,
}

impl InspectedFolder {
    /// The folder at a path that the inspector has reported.
    pub fn new(path: PathBuf, inspector: Arc<Inspector>) -> Self {
        Self { path, inspector }
    }
}

impl DiagnosticFolder for InspectedFolder {
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
        let request = InspectorRequest::List(self.path.clone());
        let listed = self.inspector.ask(request, |inspection| inspection.list(&self.path))?;
        let file = |(name, device, inode, size, modified_ns)| DiagnosticFile {
            name,
            identity: FileIdentity { device, inode },
            size,
            modified_ns,
        };
        Ok(listed.into_iter().map(file).collect())
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        let request = InspectorRequest::OpenSample(self.path.clone(), name.to_owned());
        self.inspector.open_one(request, |inspection| inspection.open_sample(&self.path, name))
    }
}

#[cfg(test)]
pub mod tests;
