//! What a capture can read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender};

use anyhow::Result;
use sonar_decode::TlsSource;
use sonar_sys::Stopper;

use super::changes::CaptureChange;
use super::pipeline::Pipeline;
use crate::capture::notice::Notice;

/// What a capture reads: packets of a ring, or what processes pass to their TLS library or through their sockets. Each
/// source has a thread of its own.
pub trait CaptureSource: Send {
    /// The name of its thread; `number` counts the threads from 0.
    fn thread_name(&self, number: usize) -> String;

    /// What encrypted connections are for its decoder; `None`: what the others make of them.
    fn tls(&self) -> Option<TlsSource>;

    /// What wakes its thread, if it does not look by itself.
    fn stopper(&self) -> Option<Stopper>;

    /// Reads until it is to stop, and hands over windows.
    ///
    /// # Errors
    /// The kernel refuses.
    fn run(self: Box<Self>, work: CaptureWork) -> Result<()>;
}

/// What the thread of a source works with.
pub struct CaptureWork {
    /// Takes what was read.
    pub pipeline: Pipeline,
    /// What changes while it runs.
    pub changes: Receiver<CaptureChange>,
    /// Where failures to apply changes go.
    pub complaints: Sender<Notice>,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
    /// Whether the thread drops everything that decoding does not need.
    pub confined: bool,
}
