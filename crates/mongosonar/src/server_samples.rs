//! What the servers of this host say of themselves in their `diagnostic.data`, for a capture that has dropped its
//! privileges: a helper process finds the servers and opens these files. It opens nothing else, whatever it is asked, and
//! nothing that the user of the server may not read (`server_files`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use sonar_sys::Host;
use sonar_sys::host::listeners::{FoundListeners, ListenerOrigin};
use sonar_sys::host::process::Process;
use sonar_sys::privileges::{Duty, capability};
use sonar_sys::questions::HelperAnswer;

use crate::follow::FileIdentity;
use crate::ftdc::follow::{DiagnosticFile, DiagnosticFolder};
use crate::helper_channel::{self, HelperChannel, answer, answer_files, lock};
use crate::privileges::{self, HelperTask};
use crate::server_configuration::ServerConfiguration;
use crate::server_files::{InspectableSamples, ServerProcess, data_folder, samples_folder, seen_by};
use crate::servers;

/// The most servers that are reported.
const MAX_SERVERS: usize = 128;
/// The most files of a folder that are listed: a server keeps some twenty.
const MAX_FILES: usize = 1_000;

/// A server of this host that writes samples.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampledServer {
    /// The port that it listens on.
    pub port: u16,
    /// Its process.
    pub pid: u32,
    /// When that started, in clock ticks since boot: distinguishes it from a later process of its number.
    pub started: u64,
    /// Its program: `mongod` or `mongos`.
    pub program: String,
}

/// What the helper is asked.
#[derive(Debug, Serialize, Deserialize)]
enum SampleRequest {
    /// The servers of this host.
    Servers,
    /// The files of samples of the server with this process.
    List(u32),
    /// Open one of them, by its name.
    Open(u32, String),
}

/// A file of samples: name, device, number on it, size, and time of the last change in nanoseconds since 1970.
type SampleFile = (String, u64, u64, u64, i64);

/// Answers requests, and knows which files may be opened: those of the servers that it found.
struct SampleSearch {
    host: Host,
    known: BTreeMap<u32, InspectableSamples>,
}

impl SampleSearch {
    fn new() -> Self {
        Self { host: Host::live(), known: BTreeMap::new() }
    }

    /// The servers of this host by port: processes that run the program of one, and hold a socket that listens. What a
    /// process says of itself does not count.
    fn servers(&mut self) -> io::Result<Vec<SampledServer>> {
        let listeners = servers::listeners(&self.host)?;
        let (mut found, mut known) = (Vec::new(), BTreeMap::new());
        for process in servers::proven(&self.host) {
            if found.len() >= MAX_SERVERS {
                break;
            }
            let Some(port) = port_of(process.pid, &listeners) else { continue };
            let Some(started) = self.host.stat(process.pid).map(|stat| stat.started) else { continue };
            let (pid, program) = (process.pid, process.name.clone());
            let server = ServerProcess { program: process.program(), process, started };
            let Some(samples) = samples_of(server) else { continue };
            known.insert(pid, samples);
            found.push(SampledServer { port, pid, started, program });
        }
        self.known = known;
        found.sort();
        Ok(found)
    }

    fn folder(&mut self, pid: u32) -> io::Result<&mut InspectableSamples> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "no server here has this process");
        self.known.get_mut(&pid).ok_or_else(gone)
    }

    fn list(&mut self, pid: u32) -> io::Result<Vec<SampleFile>> {
        let files = self.folder(pid)?.list()?;
        let older = files.len().saturating_sub(MAX_FILES);
        let listed = |file: DiagnosticFile| {
            let DiagnosticFile { name, identity, size, modified_ns } = file;
            (name, identity.device, identity.inode, size, modified_ns)
        };
        Ok(files.into_iter().skip(older).map(listed).collect())
    }

    fn open(&mut self, pid: u32, name: &str) -> io::Result<File> {
        self.folder(pid)?.open(name)
    }

    fn answer(&mut self, request: SampleRequest) -> io::Result<HelperAnswer> {
        match request {
            SampleRequest::Servers => answer(self.servers()),
            SampleRequest::List(pid) => answer(self.list(pid)),
            SampleRequest::Open(pid, name) => answer_files(self.open(pid, &name).map(|file| vec![file])),
        }
    }
}

/// The first port that a process listens on.
fn port_of(pid: u32, found: &FoundListeners) -> Option<u16> {
    let mut held =
        found.listeners.iter().filter(|one| one.pid == pid && one.origin == ListenerOrigin::Socket);
    held.next().map(|one| one.address.port())
}

/// The samples of a server; `None` if nothing says where they are.
fn samples_of(mut server: ServerProcess) -> Option<InspectableSamples> {
    let process: &Process = &server.process;
    let file = process.option(&["--config", "-f"]).map(Path::new);
    let text = file.and_then(|file| server.configuration(&seen_by(process, file)));
    let configuration = text.map(|text| ServerConfiguration::parse(&text)).unwrap_or_default();
    let log = process.option(&["--logpath"]).or_else(|| configuration.log()).map(Path::new);
    let folder = samples_folder(process, data_folder(process, &configuration).as_deref(), log)?;
    // They are not needed any more, and there may be many servers.
    server.process.arguments = Vec::new();
    Some(InspectableSamples { server, folder })
}

/// Where servers are searched and files are opened.
enum SamplePlace {
    /// In this process, which keeps its privileges.
    Here(Mutex<SampleSearch>),
    /// In the helper.
    There(HelperChannel),
}

/// Finds the servers of this host that write samples and opens their files, here or in a helper.
#[derive(Clone)]
pub struct ServerSamples(Arc<SamplePlace>);

impl ServerSamples {
    /// Starts the helper if this process gives up its privileges (`confined`). Call it before any thread is started.
    /// `None` if the helper cannot be started.
    pub fn start(confined: bool) -> Option<Self> {
        if !confined {
            return Some(Self(Arc::new(SamplePlace::Here(Mutex::new(SampleSearch::new())))));
        }
        const KEPT: &[u32] = &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH];
        let what = "reading the diagnostic.data of servers";
        let memory = privileges::HELPER_BYTES;
        let task = HelperTask { name: "sonar-samples", what, memory, keep: KEPT, duty: Duty::Reading };
        let helper = privileges::helper(task, serve)?;
        Some(Self(Arc::new(SamplePlace::There(HelperChannel::new(helper)?))))
    }

    /// The servers of this host, by port.
    ///
    /// # Errors
    /// Processes cannot be listed, or the helper has gone, or does not answer now.
    pub fn servers(&self) -> io::Result<Vec<SampledServer>> {
        match &*self.0 {
            SamplePlace::Here(search) => lock(search).servers(),
            SamplePlace::There(channel) => channel.ask(&SampleRequest::Servers).map(|(found, _)| found),
        }
    }

    /// The samples of one of them.
    pub fn folder(&self, pid: u32) -> ServerSampleFolder {
        ServerSampleFolder { pid, samples: self.clone() }
    }
}

/// In the helper.
fn serve(socket: UnixStream) -> io::Result<()> {
    let mut search = SampleSearch::new();
    helper_channel::serve(socket, |request| search.answer(request))
}

/// The samples of a server.
pub struct ServerSampleFolder {
    pid: u32,
    samples: ServerSamples,
}

impl DiagnosticFolder for ServerSampleFolder {
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
        let listed: Vec<SampleFile> = match &*self.samples.0 {
            SamplePlace::Here(search) => lock(search).list(self.pid)?,
            SamplePlace::There(channel) => channel.ask(&SampleRequest::List(self.pid))?.0,
        };
        let file = |(name, device, inode, size, modified_ns)| DiagnosticFile {
            name,
            identity: FileIdentity { device, inode },
            size,
            modified_ns,
        };
        Ok(listed.into_iter().map(file).collect())
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        let channel = match &*self.samples.0 {
            SamplePlace::Here(search) => return lock(search).open(self.pid, name),
            SamplePlace::There(channel) => channel,
        };
        let ((), mut files) = channel.ask(&SampleRequest::Open(self.pid, name.to_owned()))?;
        files.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_opens_nothing_of_processes_that_it_has_not_found_to_be_servers() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve(theirs));
        let samples = ServerSamples(Arc::new(SamplePlace::There(HelperChannel::over(ours))));
        // Servers of other tests may run meanwhile; this process is none.
        let own = std::process::id();
        assert!(samples.servers().unwrap().iter().all(|server| server.pid != own));
        let mut folder = samples.folder(own);
        for _ in 0..2 {
            assert_eq!(folder.list().unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(folder.open("metrics.interim").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }
}
