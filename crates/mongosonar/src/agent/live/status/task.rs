//! What the threads that ask servers share.

use std::sync::atomic::AtomicUsize;

use super::report::StatusReports;
use crate::agent::live::runner::CollectorTask;

/// What the threads share.
pub struct StatusTask {
    /// What they share with the rest of the agent.
    pub collector: CollectorTask,
    /// Where they report their states.
    pub reports: StatusReports,
    /// Whether the agent reads `diagnostic.data`.
    pub follows_internals: bool,
    /// Whether the agent reads logs.
    pub follows_logs: bool,
    /// How many servers are asked.
    pub servers: AtomicUsize,
}
