//! Encrypted connections: reads them inside the processes that serve the captured ports.

mod attacher;
mod library;

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::Coverage;
use sonar_sys::helper::Helper;
use sonar_sys::tls::{TlsLosses, TlsTracer};

use self::attacher::AttacherNews;
pub use self::attacher::AttacherTask;
pub use self::library::TlsLibrary;
use super::changes::CaptureChange;
use super::pipeline::Pipeline;
use crate::privileges;
use crate::queries::notice::Notice;
use crate::when::now;

/// How late a part of a connection may be handed over.
const DELAY: Duration = Duration::from_millis(200);

/// The programs that read encrypted connections. One capture at a time reads what they pass on.
#[derive(Clone)]
pub struct TlsCapture {
    tracer: Arc<Mutex<TlsTracer>>,
}

/// Attaches the programs to servers, also to those that start later, until this is dropped.
pub struct TlsAttacher {
    /// Kept, so that it ends with us.
    _helper: Helper,
    socket: UnixStream,
    is_attached: bool,
}

impl TlsCapture {
    /// Attaches to each process that listens on the ports and has a TLS library, and prints which ones. Call it before
    /// starting any thread. `None`, with a message on standard error, if nothing can be read.
    pub fn open(task: AttacherTask) -> Option<(Self, TlsAttacher)> {
        let impossible =
            |error: anyhow::Error| eprintln!("mongosonar: encrypted connections cannot be read: {error:#}");
        let mut tracer = TlsTracer::load().map_err(|error| impossible(error.into())).ok()?;
        let attacher = TlsAttacher::start(&mut tracer, task).map_err(impossible).ok()?;
        Some((Self { tracer: Arc::new(Mutex::new(tracer)) }, attacher))
    }

    /// Passes on what is read until `stop`.
    ///
    /// # Errors
    /// The kernel's ring cannot be read.
    pub(super) fn run(
        self,
        pipeline: Pipeline,
        changes: &Receiver<CaptureChange>,
        stop: &Arc<AtomicBool>,
        confined: bool,
    ) -> Result<()> {
        let ready = || {
            if confined {
                privileges::confine_decoder();
            }
        };
        let tick = |pipeline: &mut Pipeline, losses: TlsLosses| {
            while let Ok(change) = changes.try_recv() {
                if let CaptureChange::Ports(listened) = change {
                    pipeline.decoder.set_ports(listened.ports());
                }
            }
            pipeline.kernel = coverage_of(losses);
            pipeline.sink.flush();
            pipeline.look_at_clock(now(), DELAY.as_nanos() as u64);
            !stop.load(Ordering::Relaxed) && !pipeline.orphaned
        };
        let tracer = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pipeline = tracer
            .run(pipeline, ready, Pipeline::plaintext, tick)
            .context("cannot read encrypted connections")?;
        pipeline.finish(now());
        Ok(())
    }
}

impl TlsAttacher {
    fn start(tracer: &mut TlsTracer, task: AttacherTask) -> Result<Self> {
        let helper = attacher::start(tracer, task).context("cannot start a helper process")?;
        let mut socket = helper.socket()?;
        let mut is_attached = false;
        loop {
            match attacher::receive(&mut socket).context("the helper process does not answer")? {
                AttacherNews::Note(text) => eprintln!("mongosonar: {text}"),
                AttacherNews::Attached => is_attached = true,
                AttacherNews::Looked => break,
            }
        }
        // From now on it tells something only when a server starts.
        socket.set_read_timeout(None)?;
        Ok(Self { _helper: helper, socket, is_attached })
    }

    /// Whether it has attached to any process so far.
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Starts a thread that passes on to the others what becomes of servers that start later.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn follow(&self, threads: Vec<Sender<CaptureChange>>, say: Sender<Notice>) -> Result<()> {
        let mut socket = self.socket.try_clone()?;
        let pass_on = move || {
            // It ends with the helper.
            while let Ok(news) = attacher::receive(&mut socket) {
                match news {
                    AttacherNews::Note(text) => drop(say.send(Notice::Complaint(text))),
                    AttacherNews::Attached => {
                        for thread in &threads {
                            thread.send(CaptureChange::EncryptedRead).ok();
                        }
                    }
                    AttacherNews::Looked => {}
                }
            }
        };
        std::thread::Builder::new()
            .name("servers".to_owned())
            .spawn(pass_on)
            .context("cannot start a thread")?;
        Ok(())
    }
}

fn coverage_of(losses: TlsLosses) -> Coverage {
    let TlsLosses { ring_full, sessions_full, unreadable, unmapped, unsynced, pipelined } = losses;
    Coverage {
        tls_lost: ring_full + sessions_full + unreadable + pipelined,
        tls_unmapped: unmapped,
        tls_joined_late: unsynced,
        ..Coverage::default()
    }
}
