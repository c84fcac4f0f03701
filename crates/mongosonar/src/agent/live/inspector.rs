//! Finds the servers of this host, their logs and their `diagnostic.data`, and opens these files, after the agent has
//! dropped its privileges: a helper process does it. It opens nothing else, whatever it is asked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sonar_sys::Host;
use sonar_sys::helper::{Helper, receive_file, send_file};
use sonar_sys::host::process::Process;
use sonar_sys::host::regular;
use sonar_sys::privileges::{Duty, capability};

use crate::agent::settings::ServerTable;
use crate::disk::{configuration_of, log_of, setting};
use crate::follow::{FileIdentity, FollowedPath, FollowedPlace};
use crate::ftdc::follow::{DiagnosticFile, DiagnosticFolder, DiagnosticPath};
use crate::{privileges, servers};

/// The longest message between the agent and its helper, in bytes.
const MAX_MESSAGE: u32 = 1 << 20;
/// The most servers that are reported.
const MAX_SERVERS: usize = 128;
/// The most files of a folder that are listed: a server keeps some twenty.
const MAX_FILES: usize = 1_000;
/// The folder that a mongod writes its samples into.
const DIAGNOSTIC: &str = "diagnostic.data";

/// A server of this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
}

/// What the helper is asked.
#[derive(Debug, Serialize, Deserialize)]
enum InspectorRequest {
    /// The servers of this host.
    Servers,
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
}

/// A file of samples: name, device, number on it, size, and time of the last change in nanoseconds since 1970.
type ListedFile = (String, u64, u64, u64, i64);

/// Answers requests, and knows which files may be opened: those of the servers that it found.
pub struct Inspection {
    host: Host,
    configured: Vec<ServerTable>,
    found: Vec<FoundServer>,
}

impl Inspection {
    fn servers(&mut self) -> &[FoundServer] {
        let listeners = servers::listeners(&self.host).unwrap_or_default().listeners;
        let ports: BTreeMap<u32, u16> =
            listeners.iter().rev().map(|one| (one.pid, one.address.port())).collect();
        let mut found = Vec::new();
        for process in servers::mongodb(&self.host) {
            if let Some(port) = ports.get(&process.pid)
                && found.len() < MAX_SERVERS
            {
                found.push(self.server(&process, *port));
            }
        }
        found.sort();
        self.found = found;
        &self.found
    }

    fn server(&self, process: &Process, port: u16) -> FoundServer {
        let configured = self.configured.iter().find(|table| table.port.0 == port);
        let text = configuration_of(&self.host, process);
        let root = process.folder().join("root");
        let working = fs::read_link(process.folder().join("cwd")).unwrap_or_else(|_| PathBuf::from("/"));
        // A container has a root folder of its own.
        let outside = |path: &Path| match path.strip_prefix(&root) {
            Ok(_) => path.to_path_buf(),
            Err(_) => root.join(working.join(path).strip_prefix("/").unwrap_or(path)),
        };
        let option = |name: &str| process.option(&[name]).map(PathBuf::from);
        let open = process.open_files();
        let named_log = option("--logpath").or_else(|| log_of(text.as_deref()?).map(PathBuf::from));
        let log = configured.and_then(|table| table.log.clone()).or_else(|| {
            let named = named_log.as_deref().map(outside);
            // Without a log path a server may write to standard output, which may be a file.
            named.or_else(|| {
                let output = process.folder().join("fd/1");
                regular::open(&output).is_ok().then_some(output)
            })
        });
        // A mongod always has this file open.
        let of_open_file = || {
            let is_it = |path: &&PathBuf| path.file_name().is_some_and(|name| name == "WiredTiger.wt");
            Some(open.iter().map(|(_, path)| path).find(is_it)?.parent()?.to_path_buf())
        };
        let dbpath = configured.and_then(|table| table.dbpath.clone()).or_else(|| {
            let of_text = || setting(text.as_deref()?, &["dbPath", "dbpath"]).map(PathBuf::from);
            option("--dbpath").or_else(of_text).or_else(of_open_file).map(|path| working.join(path))
        });
        let is_mongod = process.name == servers::MONGOD;
        let diagnostic = match (is_mongod, &dbpath, &named_log) {
            (true, Some(dbpath), _) => Some(outside(&dbpath.join(DIAGNOSTIC))),
            // mongos: the name of its log up to the first dot.
            (false, _, Some(log)) => beside_log(log).map(|folder| outside(&folder)),
            _ => None,
        };
        let started = self.host.stat(process.pid).map_or(0, |stat| stat.started);
        let dbpath = dbpath.filter(|_| is_mongod);
        FoundServer { port, pid: process.pid, started, name: process.name.clone(), log, dbpath, diagnostic }
    }

    /// A log, if it is that of a server.
    fn log(&self, path: &Path) -> io::Result<FollowedPath> {
        match self.found.iter().any(|server| server.log.as_deref() == Some(path)) {
            true => Ok(FollowedPath(path.to_path_buf())),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// A folder of samples, if it is that of a server.
    fn folder(&self, path: &Path) -> io::Result<DiagnosticPath> {
        match self.found.iter().any(|server| server.diagnostic.as_deref() == Some(path)) {
            true => Ok(DiagnosticPath(path.to_path_buf())),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
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

    /// Opens a file of samples. A name with a folder in it leads to another one.
    fn open_sample(&self, folder: &Path, name: &str) -> io::Result<File> {
        let mut folder = self.folder(folder)?;
        if !name.starts_with("metrics.") || name.contains('/') {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        folder.open(name)
    }

    fn serve(&mut self, mut socket: UnixStream) -> io::Result<()> {
        loop {
            match read_message(&mut socket)? {
                InspectorRequest::Servers => {
                    let servers = self.servers();
                    write_message(&mut socket, &servers)?;
                }
                InspectorRequest::Identity(path) => {
                    let identity = self.log(&path).and_then(|mut place| place.identity());
                    let identity = identity.map(|found| found.map(|found| (found.device, found.inode)));
                    write_message(&mut socket, &identity.map_err(|error| Refusal::of(&error)))?;
                }
                InspectorRequest::Open(path) => {
                    send_opened(&mut socket, self.log(&path).and_then(|mut place| place.open()))?;
                }
                InspectorRequest::Copies(path) => {
                    let copies = self.log(&path).map(|mut place| place.copies()).unwrap_or_default();
                    write_message(&mut socket, &copies.len())?;
                    copies.iter().try_for_each(|file| send_file(&socket, file))?;
                }
                InspectorRequest::List(folder) => {
                    let listed = self.list(&folder).map_err(|error| Refusal::of(&error));
                    write_message(&mut socket, &listed)?;
                }
                InspectorRequest::OpenSample(folder, name) => {
                    send_opened(&mut socket, self.open_sample(&folder, &name))?;
                }
            }
        }
    }
}

/// Sends an open file, or why it cannot be opened.
fn send_opened(socket: &mut UnixStream, opened: io::Result<File>) -> io::Result<()> {
    match opened {
        Ok(file) => send_file(socket, &file),
        Err(error) => {
            socket.write_all(&[0])?;
            write_message(socket, &Refusal::of(&error))
        }
    }
}

/// Receives what [`send_opened`] sends.
fn receive_opened(socket: &mut UnixStream) -> io::Result<File> {
    match receive_file(socket)? {
        Some(file) => Ok(file),
        None => Err(read_message::<Refusal>(socket)?.into_error()),
    }
}

/// Why a file cannot be opened.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    is_missing: bool,
    why: String,
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        Self { is_missing: error.kind() == io::ErrorKind::NotFound, why: error.to_string() }
    }

    fn into_error(self) -> io::Error {
        let kind = if self.is_missing { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
        io::Error::new(kind, self.why)
    }
}

/// The folder of samples of a mongos with this log: `mongos.log` becomes `mongos.diagnostic.data`.
fn beside_log(log: &Path) -> Option<PathBuf> {
    let name = log.file_name()?.to_str()?;
    let base = name.split('.').next().unwrap_or(name);
    Some(log.with_file_name(format!("{base}.{DIAGNOSTIC}")))
}

fn write_message(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MAX_MESSAGE);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    socket.write_all(&length.to_le_bytes())?;
    socket.write_all(&bytes)
}

fn read_message<T: for<'de> Deserialize<'de>>(socket: &mut UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    socket.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Finds servers and opens their files, here or in the helper.
pub enum Inspector {
    /// In this process, which keeps its privileges.
    Here(Mutex<Box<Inspection>>),
    /// In the helper.
    There {
        /// Kept, so that it ends with us.
        _helper: Helper,
        /// Used by one thread at a time, from a request to its answer.
        socket: Mutex<UnixStream>,
    },
}

impl Inspector {
    /// Starts the helper if this process gives up its privileges (`confined`). Call it before any thread is started.
    pub fn start(configured: &[ServerTable], confined: bool) -> Self {
        const KEPT: &[u32] = &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH];
        let inspection =
            || Inspection { host: Host::live(), configured: configured.to_vec(), found: Vec::new() };
        let what = "following servers, their logs and their diagnostic.data";
        let helper = confined
            .then(|| privileges::helper(what, KEPT, Duty::Reading, |socket| inspection().serve(socket)));
        match helper.flatten().and_then(|helper| Some((helper.socket().ok()?, helper))) {
            Some((socket, helper)) => Self::There { _helper: helper, socket: Mutex::new(socket) },
            None => Self::Here(Mutex::new(Box::new(inspection()))),
        }
    }

    /// The servers of this host, by port.
    ///
    /// # Errors
    /// The helper has gone.
    pub fn servers(&self) -> io::Result<Vec<FoundServer>> {
        match self {
            Self::Here(inspection) => Ok(lock(inspection).servers().to_vec()),
            Self::There { socket, .. } => {
                let mut socket = lock(socket);
                write_message(&mut socket, &InspectorRequest::Servers)?;
                read_message(&mut socket)
            }
        }
    }

    /// Asks the helper, or this process; `ask` gets the answer of the helper.
    fn ask<T>(
        &self,
        request: InspectorRequest,
        here: impl FnOnce(&Inspection) -> io::Result<T>,
        answer: impl FnOnce(&mut UnixStream) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Here(inspection) => here(&lock(inspection)),
            Self::There { socket, .. } => {
                let mut socket = lock(socket);
                write_message(&mut socket, &request)?;
                answer(&mut socket)
            }
        }
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
        self.inspector.ask(
            InspectorRequest::Identity(self.path.clone()),
            |inspection| inspection.log(&self.path)?.identity(),
            |socket| {
                let found: Result<Option<(u64, u64)>, Refusal> = read_message(socket)?;
                let found = found.map_err(Refusal::into_error)?;
                Ok(found.map(|(device, inode)| FileIdentity { device, inode }))
            },
        )
    }

    fn open(&mut self) -> io::Result<File> {
        self.inspector.ask(
            InspectorRequest::Open(self.path.clone()),
            |inspection| inspection.log(&self.path)?.open(),
            receive_opened,
        )
    }

    fn copies(&mut self) -> Vec<File> {
        let copies = self.inspector.ask(
            InspectorRequest::Copies(self.path.clone()),
            |inspection| Ok(inspection.log(&self.path)?.copies()),
            |socket| {
                let count: usize = read_message(socket)?;
                (0..count.min(MAX_FILES)).map(|_| receive_opened(socket)).collect()
            },
        );
        copies.unwrap_or_default()
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
        let listed = self.inspector.ask(
            InspectorRequest::List(self.path.clone()),
            |inspection| inspection.list(&self.path),
            |socket| read_message::<Result<Vec<ListedFile>, Refusal>>(socket)?.map_err(Refusal::into_error),
        )?;
        let file = |(name, device, inode, size, modified_ns)| DiagnosticFile {
            name,
            identity: FileIdentity { device, inode },
            size,
            modified_ns,
        };
        Ok(listed.into_iter().map(file).collect())
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        self.inspector.ask(
            InspectorRequest::OpenSample(self.path.clone(), name.to_owned()),
            |inspection| inspection.open_sample(&self.path, name),
            receive_opened,
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
