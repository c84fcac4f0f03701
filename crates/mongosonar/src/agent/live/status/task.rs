//! What the threads that ask servers share with the rest of the agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::report::StatusReports;
use crate::agent::live::watched::WatchedServers;
use crate::agent::part_channel::PartSender;

/// How often a thread checks whether to stop.
const NAP: Duration = Duration::from_millis(200);

/// What the threads share with the others.
pub struct StatusTask {
    /// Where their windows go.
    pub to: PartSender,
    /// The servers of this host.
    pub servers: Arc<WatchedServers>,
    /// Where they report their states.
    pub reports: StatusReports,
    /// Whether the agent reads `diagnostic.data`.
    pub follows_internals: bool,
    /// Whether the agent reads logs.
    pub follows_logs: bool,
    /// Ends them.
    pub stop: Arc<AtomicBool>,
}

impl StatusTask {
    /// Sleeps until then; whether to go on.
    pub fn sleep(&self, until: Instant) -> bool {
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(NAP);
        }
        !self.stop.load(Ordering::Relaxed)
    }
}
