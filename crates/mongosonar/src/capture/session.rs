//! One capture of a command, step by step: helper processes, what takes privileges, then without them the threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Result;
use sonar_decode::{Settings, Shared};
use sonar_mongo::Target;
use sonar_sys::geometry::block_bytes;
use sonar_sys::privileges::Duty;
use sonar_sys::tls::TlsRoom;
use sonar_sys::{Host, PacketFilter, RingConfig};

use super::applications::{self, Lookup};
use super::joiner::ThreadWindow;
use super::notice::Notice;
use super::ports::CapturedPorts;
use super::splitting::{SplitHelpers, SplitTrace};
use super::threads::{CaptureTask, LiveCapture, RunningCapture};
use super::tls::{AttachedCapture, AttacherTask, EncryptedAccess, TlsAttacher, TlsCapture};
use crate::args::values::PortRange;
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;
use crate::confinement::start_order::{self, StartStep};
use crate::servers::file_names::{FileNames, FileNamesQuestion};
use crate::stop::Signals;

/// What a command captures.
pub struct SessionPlan {
    /// It drops its privileges.
    pub confined: bool,
    /// The ports that were named; if none, those of the servers of this host.
    pub ports: Vec<PortRange>,
    /// The only processes in which connections are read; if none, all that listen on the ports, now or later.
    pub processes: Vec<u32>,
    /// At what cost encrypted connections are read there.
    pub encrypted: EncryptedAccess,
    /// The logs that say who is on open connections; if none, those of the servers of this host.
    pub logs: Vec<PathBuf>,
    /// It reads the sockets of processes instead of packets.
    pub reads_sockets: bool,
    /// How to open the rings of packets; ports and the size of blocks are filled in later.
    pub rings: RingConfig,
    /// How many rings share this memory; each has a thread.
    pub threads: usize,
}

/// The helper processes of a capture, and what they work with.
pub struct SessionHelpers {
    plan: SessionPlan,
    split: Option<SplitHelpers>,
    tls: Option<AttachedCapture>,
    sockets: Option<AttachedCapture>,
    lookup: Lookup,
}

impl SessionPlan {
    /// Starts the helper processes that attach to servers, beside those of `split`, and opens logs. Call it before any
    /// thread is started.
    ///
    /// # Errors
    /// The sockets of processes cannot be read, or a named log cannot be opened.
    pub fn start_helpers(self, split: Option<SplitHelpers>) -> Result<SessionHelpers> {
        let task = AttacherTask {
            ports: self.ports.clone(),
            processes: self.processes.clone(),
            any_cost: self.encrypted == EncryptedAccess::AnyCost,
            confined: self.confined,
            follows_later: self.processes.is_empty(),
            room: TlsRoom::COMMAND,
        };
        // Before the rings: the bytes of a connection that opens from then on are seen from the first one on.
        let is_read = self.encrypted != EncryptedAccess::Off;
        let tls = is_read.then(|| TlsCapture::open(task.clone())).flatten();
        let sockets = self.reads_sockets.then(|| TlsCapture::sockets(task)).transpose()?;
        let lookup = Lookup::open(&self.logs, self.confined)?;
        Ok(SessionHelpers { plan: self, split, tls, sockets, lookup })
    }
}

impl SessionHelpers {
    /// Opens what takes privileges. `server` will be asked for the names of its files and for applications.
    ///
    /// # Errors
    /// A permission or an interface is missing, or a thread cannot be started.
    pub fn open(self, server: Option<Target>) -> Result<CaptureSession> {
        let Self { plan, split, tls, sockets, lookup } = self;
        let SessionPlan { confined, ports, rings, threads, .. } = plan;
        let listened = CapturedPorts::choose(&ports, &Host::live());
        // Before the rings, because attaching programs to libraries may take seconds.
        let trace = split.map(SplitHelpers::trace);
        let gate = StartGate::default();
        let names = FileNamesQuestion::to(server.clone().filter(|_| trace.is_some()), confined, &gate)?;
        let config = RingConfig {
            filter: PacketFilter { ports: listened.ranges(), ..rings.filter },
            block_bytes: block_bytes(rings.size_bytes / threads, rings.retire),
            ..rings
        };
        let (capture, sockets) = match sockets {
            None => (LiveCapture::open(&config, threads)?, None),
            Some(AttachedCapture { capture, attacher }) => (LiveCapture::of_source(capture), Some(attacher)),
        };
        let (capture, attacher) = match tls {
            None => (capture, None),
            Some(AttachedCapture { capture: tls, attacher }) => {
                (capture.with_tls(tls, attacher.is_attached()), Some(attacher))
            }
        };
        let (notices_to, notices) = channel();
        Ok(CaptureSession {
            listened,
            shared: Arc::default(),
            trace,
            notices_to,
            notices,
            confined,
            names: Some(names),
            lookup: Some(lookup.with_server(server)),
            looked_up: None,
            gate,
            capture,
            attacher,
            _sockets: sockets,
        })
    }
}

/// A capture that is open.
pub struct CaptureSession {
    /// The ports that are captured.
    pub listened: CapturedPorts,
    /// What its decoders know of connections.
    pub shared: Arc<Shared>,
    /// The threads of servers, if they are traced.
    pub trace: Option<SplitTrace>,
    /// Where its threads report to.
    pub notices_to: Sender<Notice>,
    /// What they report.
    pub notices: Receiver<Notice>,
    /// Opens once its privileges are dropped.
    pub gate: StartGate,
    confined: bool,
    names: Option<FileNamesQuestion>,
    /// What says who is on open connections.
    lookup: Option<Lookup>,
    /// Disconnects once they are known.
    looked_up: Option<Receiver<()>>,
    capture: LiveCapture,
    attacher: Option<TlsAttacher>,
    /// The helper that attaches to sockets ends with it.
    _sockets: Option<TlsAttacher>,
}

impl CaptureSession {
    /// Looks up who is on open connections. The rings are open: a connection that opens from now on is seen from its
    /// beginning. The thread may use the network, and drops the rest by itself.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn look_up(&mut self) -> Result<()> {
        start_order::take(StartStep::Opened);
        let Some(lookup) = self.lookup.take() else { return Ok(()) };
        let looked_up = lookup.start(self.shared.clone(), self.notices_to.clone(), &self.gate)?;
        self.looked_up = Some(looked_up);
        Ok(())
    }

    /// Drops the privileges of this thread, and handles signals from now on; returns what they set.
    ///
    /// # Errors
    /// The thread for signals cannot be started.
    pub fn drop_privileges(&self, signals: Signals) -> Result<Arc<AtomicBool>> {
        let drop = || match &self.trace {
            Some(trace) => trace.drop_privileges(),
            None => privileges::drop_privileges(Duty::Showing, &[], &[]),
        };
        let stop = signals.watch(|| start_order::drop_privileges(self.confined, drop))?;
        self.gate.open();
        Ok(stop.flag().clone())
    }

    /// Asks for the names of the server's files, and waits a moment for the applications of open connections. Call it when
    /// privileges are dropped; `stop` ends it.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn names(&mut self, stop: &AtomicBool) -> Result<FileNames> {
        let names = self.names.take().map(|names| names.ask(stop, None)).transpose()?;
        if let Some(looked_up) = self.looked_up.take() {
            looked_up.recv_timeout(applications::PATIENCE).ok();
        }
        Ok(names.unwrap_or_default())
    }

    /// Starts the threads; `task` says what the session does not know. Gives their windows, too.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(&mut self, task: CaptureTask) -> Result<(RunningCapture, Receiver<ThreadWindow>)> {
        let settings = Settings { ports: self.listened.ports(), ..task.settings };
        let task = CaptureTask { settings, shared: self.shared.clone(), confined: self.confined, ..task };
        let (capture, windows) = std::mem::take(&mut self.capture).start(&task, &self.notices_to)?;
        if let Some(attacher) = &self.attacher {
            attacher.follow(capture.changes.clone(), self.notices_to.clone())?;
        }
        Ok((capture, windows))
    }

    /// See [`TlsAttacher::watch_sockets_on_use`].
    pub fn watch_sockets_on_use(&self) {
        self.attacher.iter().for_each(TlsAttacher::watch_sockets_on_use);
    }
}
