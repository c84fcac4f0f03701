//! What changes for capture threads while they run.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use sonar_decode::{EndedClient, EndedServer};
use sonar_sys::{PacketFilter, Ring};

use crate::capture::ports::CapturedPorts;
use crate::capture::running::RunningQuestion;

/// A change for a capture thread.
pub enum CaptureChange {
    /// Captures these ports.
    Ports(Arc<CapturedPorts>),
    /// Captures these ports from another ring. Packets that are in both rings count once, as any packet that comes
    /// twice on its connection.
    Ring {
        /// The ring.
        ring: Box<Ring>,
        /// What it keeps.
        filter: PacketFilter,
        /// Its ports.
        listened: Arc<CapturedPorts>,
    },
    /// Encrypted connections of some servers are read inside their processes now.
    EncryptedRead,
    /// Nobody receives single operations any more.
    ListenerGone,
    /// The process of a server has ended, and with it what is in flight on it.
    ServerEnded(EndedServer),
    /// Connections have ended, as logs of servers say, and with them what is in flight on them.
    ClientsEnded(Arc<Vec<EndedClient>>),
    /// Somebody asks which operations run.
    Running(Arc<RunningQuestion>),
}

/// Passes changes on to all threads of a capture.
#[derive(Clone, Debug, Default)]
pub struct ChangeSenders(Vec<Sender<CaptureChange>>);

impl ChangeSenders {
    /// One more thread receives them.
    pub fn add(&mut self) -> Receiver<CaptureChange> {
        let (change, changes) = channel();
        self.0.push(change);
        changes
    }

    /// Tells each thread that still runs.
    pub fn tell(&self, mut change: impl FnMut() -> CaptureChange) {
        for thread in &self.0 {
            thread.send(change()).ok();
        }
    }
}
