//! Reads what the processes that serve the captured ports pass on: to their TLS library (encrypted connections), or
//! through their sockets (`--source process`).

mod attacher;
mod library;
mod process_searches;
mod withheld_memory;

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::Coverage;
use sonar_decode::TlsSource;
use sonar_sys::Stopper;
use sonar_sys::helper::{Helper, OpenDescriptors};
use sonar_sys::tls::{PlaintextSource, TlsLosses, TlsTracer};

use self::attacher::AttacherNews;
pub use self::attacher::AttacherTask;
pub use self::library::TlsLibrary;
pub use self::withheld_memory::{WithholdingProcess, look_apart, may_attach, watched};
use super::changes::{CaptureChange, ChangeSenders};
use super::pipeline::Pipeline;
use super::source::{CaptureSource, CaptureWork};
use crate::args::when::now;
use crate::capture::notice::Notice;
use crate::confinement::privileges;
use crate::confinement::start_order::{StartStep, start_thread};
use crate::servers::tracing::warn_of_process_namespace;

/// How late a part of a connection may be handed over.
const DELAY: Duration = Duration::from_millis(200);

/// At what cost encrypted connections are read inside the processes of servers, and the time of their operations is
/// divided.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EncryptedAccess {
    /// They are not.
    Off,
    /// Where probes in the TLS library are cheap.
    Cheap,
    /// Also where a probe costs ten times as much.
    AnyCost,
}

impl EncryptedAccess {
    /// What the options `--no-tls` and `--tls-any-cost` ask for.
    pub fn of(no_tls: bool, any_cost: bool) -> Self {
        match (no_tls, any_cost) {
            (true, _) => Self::Off,
            (false, false) => Self::Cheap,
            (false, true) => Self::AnyCost,
        }
    }
}

/// The programs that read inside processes. One capture at a time reads what they pass on.
#[derive(Clone)]
pub struct TlsCapture {
    source: PlaintextSource,
    tracer: Arc<Mutex<TlsTracer>>,
}

/// Attaches the programs to servers until this is dropped; if its task says so, also to servers that start later.
pub struct TlsAttacher {
    /// Kept, so that it ends with us.
    _helper: Helper,
    socket: UnixStream,
    is_attached: bool,
}

/// A capture, and what attaches it to servers.
pub struct AttachedCapture {
    pub capture: TlsCapture,
    pub attacher: TlsAttacher,
}

impl TlsCapture {
    /// Attaches to the TLS library of each process that listens on the ports, and prints which ones. Call it before
    /// starting any thread. `None`, with a message on standard error, if nothing can be read.
    pub fn open(task: AttacherTask) -> Option<AttachedCapture> {
        let impossible =
            |error: anyhow::Error| eprintln!("mongosonar: encrypted connections cannot be read: {error:#}");
        Self::start(PlaintextSource::Library, task).map_err(impossible).ok()
    }

    /// Reads the sockets of each process that listens on the ports, and prints which ones. Call it before starting any
    /// thread.
    ///
    /// # Errors
    /// The kernel, or a missing privilege.
    pub fn sockets(task: AttacherTask) -> Result<AttachedCapture> {
        warn_of_process_namespace();
        Self::start(PlaintextSource::Sockets, task)
    }

    fn start(source: PlaintextSource, task: AttacherTask) -> Result<AttachedCapture> {
        let before = OpenDescriptors::now()?;
        let mut tracer = TlsTracer::load(source, task.room)?;
        let attacher = TlsAttacher::start(&mut tracer, before, source, task)?;
        // From now on only the helper decides which processes are read.
        tracer.give_up_control().context("cannot give up the control of what is read")?;
        let capture = Self { source, tracer: Arc::new(Mutex::new(tracer)) };
        Ok(AttachedCapture { capture, attacher })
    }
}

impl CaptureSource for TlsCapture {
    fn thread_name(&self, _number: usize) -> String {
        match self.source {
            PlaintextSource::Library => "tls".to_owned(),
            PlaintextSource::Sockets => "sockets".to_owned(),
        }
    }

    fn tls(&self) -> Option<TlsSource> {
        Some(match self.source {
            PlaintextSource::Library => TlsSource::This,
            PlaintextSource::Sockets => TlsSource::Sockets,
        })
    }

    fn stopper(&self) -> Option<Stopper> {
        None
    }

    fn run(self: Box<Self>, work: CaptureWork) -> Result<()> {
        let CaptureWork { pipeline, changes, stop, confined, .. } = work;
        let ready = || {
            if confined {
                privileges::confine_decoder();
            }
        };
        let tick = |pipeline: &mut Pipeline, losses: TlsLosses| {
            changes.try_iter().for_each(|change| pipeline.follow(change));
            pipeline.kernel = coverage_of(losses);
            pipeline.sink.flush();
            pipeline.look_at_clock(now(), DELAY.as_nanos() as u64);
            !stop.load(Ordering::Relaxed) && !pipeline.orphaned
        };
        let tracer = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pipeline = tracer
            .run(pipeline, ready, Pipeline::plaintext, tick)
            .context("cannot read what processes pass on")?;
        pipeline.finish(now());
        Ok(())
    }
}

impl TlsAttacher {
    fn start(
        tracer: &mut TlsTracer,
        before: OpenDescriptors,
        source: PlaintextSource,
        task: AttacherTask,
    ) -> Result<Self> {
        let helper =
            attacher::start(tracer, before, source, task).context("cannot start a helper process")?;
        let mut socket = helper.socket()?;
        let is_attached = first_look(&mut socket).context("the helper process has ended")?;
        // From now on it tells something only when a server starts, or when it cannot watch sockets.
        socket.set_read_timeout(None)?;
        Ok(Self { _helper: helper, socket, is_attached })
    }

    /// Whether it has attached to any process so far.
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// See [`attacher::watch_sockets_on_use`].
    pub fn watch_sockets_on_use(&self) {
        // If the helper has ended, nothing is attached any more.
        attacher::watch_sockets_on_use(&self.socket).ok();
    }

    /// Starts a thread that passes on to the others what becomes of servers that start later.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn follow(&self, threads: ChangeSenders, notices: Sender<Notice>) -> Result<()> {
        let mut socket = self.socket.try_clone()?;
        let pass_on = move || {
            // It ends with the helper.
            while let Ok(news) = attacher::receive(&mut socket) {
                match news {
                    AttacherNews::Note(text) => drop(notices.send(Notice::Complaint(text))),
                    AttacherNews::Attached => threads.tell(|| CaptureChange::EncryptedRead),
                    AttacherNews::Looked => {}
                }
            }
        };
        start_thread(StartStep::Thread, "servers", pass_on)?;
        Ok(())
    }
}

/// Waits until the helper has looked at all processes once, and prints its notes; returns whether it has attached to any.
/// If it stands still, what it tells later goes to those that [`TlsAttacher::follow`] it.
fn first_look(socket: &mut UnixStream) -> io::Result<bool> {
    let mut is_attached = false;
    loop {
        match attacher::receive(socket) {
            Ok(AttacherNews::Note(text)) => eprintln!("mongosonar: {text}"),
            Ok(AttacherNews::Attached) => is_attached = true,
            Ok(AttacherNews::Looked) => return Ok(is_attached),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                eprintln!("mongosonar: the helper process for encrypted connections does not answer yet");
                return Ok(is_attached);
            }
            Err(error) => return Err(error),
        }
    }
}

fn coverage_of(losses: TlsLosses) -> Coverage {
    let TlsLosses { ring_full, sessions_full, unreadable, unmapped, unsynced, pipelined, programs_skipped } =
        losses;
    Coverage {
        tls_lost: ring_full + sessions_full + unreadable + pipelined + programs_skipped,
        tls_unmapped: unmapped,
        tls_joined_late: unsynced,
        ..Coverage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_is_late_to_look_is_followed_all_the_same() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        assert!(!first_look(&mut ours).unwrap());
        attacher::send(&mut theirs, &AttacherNews::Attached).unwrap();
        assert!(first_look(&mut ours).unwrap(), "it stands still after the first process");
        for news in [AttacherNews::Note("reads".into()), AttacherNews::Attached, AttacherNews::Looked] {
            attacher::send(&mut theirs, &news).unwrap();
        }
        assert!(first_look(&mut ours).unwrap());
        drop(theirs);
        assert_eq!(first_look(&mut ours).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
