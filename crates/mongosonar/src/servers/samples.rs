//! What the servers of this host say of themselves in their `diagnostic.data`, for a capture that has dropped its
//! privileges: a helper process finds the servers and opens these files. It opens nothing else, whatever it is asked, and
//! nothing that the user of the server may not read (`servers::files`). A file system that does not answer holds up only the
//! servers that have their samples there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use sonar_sys::Host;
use sonar_sys::host::placed;
use sonar_sys::host::process::Process;
use sonar_sys::privileges::Duty;
use sonar_sys::questions::HelperAnswer;

use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{self, AnswerPlace, HelperChannel, answer, answer_files};
use crate::confinement::privileges::{self, HelperTask};
use crate::ftdc::follow::{DiagnosticFile, DiagnosticFolder};
use crate::input::follow::{FileThread, FileThreads};
use crate::servers::at_port::ServerPort;
use crate::servers::configuration::ServerSetting;
use crate::servers::files::{
    InspectableSamples, SearchPatience, ServerProcess, data_folder, is_short, samples_folder,
};
use crate::servers::{self, MAX_SERVERS};

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

/// Answers requests, and knows which files may be opened: those of the servers that it found.
struct SampleSearch {
    host: Host,
    known: BTreeMap<u32, InspectableSamples>,
    /// Look at files, by the process whose these are.
    places: BTreeMap<u32, FileThread>,
    /// The threads that do it. They are few, however many servers there are.
    threads: Arc<FileThreads>,
}

impl SampleSearch {
    fn new() -> Self {
        let (known, places, threads) = (BTreeMap::new(), BTreeMap::new(), Arc::default());
        Self { host: Host::live(), known, places, threads }
    }

    /// The servers of this host by port: processes that run the program of one, and hold a socket that listens. What a
    /// process says of itself does not count.
    fn servers(&mut self) -> io::Result<Vec<SampledServer>> {
        let listeners = servers::listeners(&self.host)?;
        let (mut found, mut known, mut running) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let mut patience = SearchPatience::default();
        let mut listening = servers::proven(&self.host);
        let port = |process: &Process| ServerPort::of(process.pid, &listeners);
        listening.retain(|process| matches!(port(process), ServerPort::Open(_)));
        for process in placed(listening, MAX_SERVERS) {
            let ServerPort::Open(port) = port(&process) else { continue };
            let Some(started) = self.host.stat(process.pid).map(|stat| stat.started) else { continue };
            let (pid, program) = (process.pid, process.name.clone());
            running.insert(pid);
            let server = ServerProcess::new(process, started);
            let Some(samples) = self.describe(server, &mut patience) else { continue };
            known.insert(pid, samples);
            found.push(SampledServer { port, pid, started, program });
        }
        self.places.retain(|pid, _| running.contains(pid));
        self.known = known;
        found.sort();
        Ok(found)
    }

    /// The samples of a server; while its file system does not answer, those that were known before.
    fn describe(
        &mut self,
        server: ServerProcess,
        patience: &mut SearchPatience,
    ) -> Option<InspectableSamples> {
        let (pid, started) = (server.process.pid, server.started);
        let described = patience.run(self.place(pid), move || samples_of(server));
        let known = || self.known.get(&pid).filter(|known| known.server.started == started).cloned();
        described.unwrap_or_else(|_| known())
    }

    fn place(&mut self, pid: u32) -> &FileThread {
        let (threads, host) = (&self.threads, &self.host);
        self.places.entry(pid).or_insert_with(|| FileThread::of(threads, host.user(pid)))
    }

    /// Lets a thread look at the samples of a server, and waits for it a while.
    fn with_folder<T: Send + 'static>(
        &mut self,
        pid: u32,
        work: impl FnOnce(InspectableSamples) -> T + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "no server here has this process");
        let folder = self.known.get(&pid).cloned().ok_or_else(gone)?;
        self.place(pid).run(move || work(folder))
    }

    fn list(&mut self, pid: u32) -> io::Result<Vec<DiagnosticFile>> {
        self.with_folder(pid, |mut folder| folder.list())?
    }

    fn open(&mut self, pid: u32, name: &str) -> io::Result<Vec<File>> {
        let name = name.to_owned();
        Ok(vec![self.with_folder(pid, move |mut folder| folder.open(&name))??])
    }

    fn answer(&mut self, request: SampleRequest) -> io::Result<HelperAnswer> {
        match request {
            SampleRequest::Servers => answer(self.servers()),
            SampleRequest::List(pid) => answer(self.list(pid)),
            SampleRequest::Open(pid, name) => answer_files(self.open(pid, &name), self.place(pid).closer()),
        }
    }
}

/// The samples of a server; `None` if nothing says where they are, or their path is too long to be kept.
fn samples_of(mut server: ServerProcess) -> Option<InspectableSamples> {
    let process: &Process = &server.process;
    let configuration = server.configuration().ok().flatten().unwrap_or_default();
    let log = ServerSetting::LOG.of(process, &configuration).map(Path::new);
    let folder = samples_folder(process, data_folder(process, &configuration).as_deref(), log);
    let folder = folder.filter(|folder| is_short(folder))?;
    // They are not needed any more, and there may be many servers.
    server.process.set_arguments(Vec::new());
    Some(InspectableSamples { server, folder })
}

/// Finds the servers of this host that write samples and opens their files, here or in a helper.
#[derive(Clone)]
pub struct ServerSamples(Arc<AnswerPlace<SampleSearch>>);

impl ServerSamples {
    /// Starts the helper if this process gives up its privileges (`confined`). Call it before any thread is started.
    /// `None` if the helper cannot be started.
    pub fn start(confined: bool) -> Option<Self> {
        if !confined {
            return Some(Self(Arc::new(AnswerPlace::Here(Mutex::new(SampleSearch::new())))));
        }
        let what = "reading the diagnostic.data of servers";
        let memory = privileges::HELPER_BYTES;
        let task = HelperTask { name: "sonar-samples", what, memory, keep: INSPECTING, duty: Duty::Reading };
        Some(Self(Arc::new(AnswerPlace::There(HelperChannel::start(task, serve)?))))
    }

    /// Those that whatever is on the other side of this socket finds.
    #[cfg(test)]
    pub fn over(socket: UnixStream) -> Self {
        Self(Arc::new(AnswerPlace::There(HelperChannel::patient(socket))))
    }

    /// The servers of this host, by port.
    ///
    /// # Errors
    /// Processes cannot be listed, or the helper does not answer now. [`HELPER_ENDED`](helper_channel::HELPER_ENDED) if it
    /// has ended, which stays so.
    pub fn servers(&self) -> io::Result<Vec<SampledServer>> {
        self.0.ask(&SampleRequest::Servers, SampleSearch::servers)
    }

    /// The samples of one of them; one of these threads reads their files.
    pub fn folder(&self, pid: u32, threads: &Arc<FileThreads>) -> ServerSampleFolder {
        let thread = Arc::new(FileThread::of(threads, Host::live().user(pid)));
        ServerSampleFolder { pid, samples: self.clone(), thread }
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
    thread: Arc<FileThread>,
}

impl DiagnosticFolder for ServerSampleFolder {
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
        self.samples.0.ask(&SampleRequest::List(self.pid), |search| search.list(self.pid))
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        let request = SampleRequest::Open(self.pid, name.to_owned());
        self.samples.0.open_one(&request, |search| search.open(self.pid, name))
    }

    fn thread(&self) -> Option<Arc<FileThread>> {
        Some(self.thread.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use sonar_sys::host::process::RunningProgram;

    use super::*;
    use crate::servers::files::MAX_PATH;

    /// This process, as if it were a server with these arguments.
    fn own(arguments: &[&str]) -> ServerProcess {
        let (host, pid) = (Host::live(), std::process::id());
        let name = std::fs::read_to_string("/proc/self/comm").unwrap();
        let mut process = host.process(pid, &[name.trim_end()]).unwrap();
        process.name = servers::MONGOD.to_owned();
        process.set_arguments(arguments.iter().map(|word| (*word).to_owned()).collect());
        let RunningProgram { started, program, .. } = RunningProgram::now(pid).unwrap();
        ServerProcess { process, started, program }
    }

    #[test]
    fn the_helper_opens_nothing_of_processes_that_it_has_not_found_to_be_servers() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve(theirs));
        let samples = ServerSamples::over(ours);
        // Servers of other tests may run meanwhile; this process is none.
        let own = std::process::id();
        assert!(samples.servers().unwrap().iter().all(|server| server.pid != own));
        let mut folder = samples.folder(own, &Arc::default());
        for _ in 0..2 {
            assert_eq!(folder.list().unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(folder.open("metrics.interim").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert!(folder.thread().is_some(), "who follows it does not wait for its file system");
    }

    #[test]
    fn a_file_system_that_does_not_answer_holds_up_no_other_server_and_keeps_what_was_known() {
        let folder = tempfile::tempdir().unwrap();
        let server = || own(&["mongod", "--dbpath", folder.path().to_str().unwrap()]);
        let samples = samples_of(server()).unwrap();
        let (pid, other) = (samples.server.process.pid, 0);
        let mut search = SampleSearch::new();
        search.known = BTreeMap::from([(pid, samples.clone()), (other, samples.clone())]);
        let (answer, answered) = channel::<()>();
        let hangs = move || {
            let _ = answered.recv();
        };
        assert!(search.place(pid).run_within(Duration::from_millis(1), hangs).is_err());
        assert_eq!(search.list(pid).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(search.open(pid, "metrics.one").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // There is no such folder yet.
        assert_eq!(search.list(other).unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut patience = SearchPatience::default();
        let described = search.describe(server(), &mut patience);
        assert_eq!(described.map(|found| found.folder), Some(samples.folder));
        let later = ServerProcess { started: server().started + 1, ..server() };
        assert!(search.describe(later, &mut patience).is_none(), "another process of this number");
        drop(answer);
    }

    #[test]
    fn a_path_that_is_too_long_to_be_kept_is_not() {
        let folder = |length: usize| {
            let dbpath = format!("/{}", "a".repeat(length - 1));
            samples_of(own(&["mongod", "--dbpath", &dbpath])).map(|samples| samples.folder.as_os_str().len())
        };
        let suffix = "/diagnostic.data".len();
        assert_eq!(folder(MAX_PATH - suffix), Some(MAX_PATH));
        assert_eq!(folder(MAX_PATH - suffix + 1), None);
        assert_eq!(folder(100_000), None);
    }
}
