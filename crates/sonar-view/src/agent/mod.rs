//! `mongosonar agent`: what it has stored, and what it does.

mod configuration;
mod status;
mod summary;

pub use configuration::CheckedConfiguration;
pub use status::{AgentStatus, CollectorState, CollectorStatus, HeldBytes, ServedPageStatus, WatchedServer};
pub use summary::{AgentSummary, CollectorSummary};
