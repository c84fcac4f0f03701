//! `mongosonar agent`: what it has stored, and what it does.

mod status;
mod summary;

pub use status::{AgentStatus, CollectorState, CollectorStatus, HeldBytes, ServedPageStatus, WatchedServer};
pub use summary::{AgentSummary, CollectorSummary};
