//! The state of the servers of this host, beside their queries.

use serde_json::{Value, json};
use sonar_core::internals::ServerGlance;

/// The state of a server of this host.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// Its program: `mongod` or `mongos`.
    pub program: String,
    /// The port that it listens on.
    pub port: u16,
    /// Its figures.
    pub glance: ServerGlance,
}

impl ServerState {
    /// As an object with stable names; what is not known is `null`.
    pub(crate) fn json(&self) -> Value {
        let Self { program, port, glance } = self;
        json!({
            "program": program,
            "port": port,
            "sampled_ns": glance.at.unix_ns(),
            "connections": glance.connections,
            "queued_reads": glance.queued_reads,
            "queued_writes": glance.queued_writes,
            "cache_used_percent": glance.cache_used_percent,
            "cache_dirty_percent": glance.cache_dirty_percent,
            "resident_bytes": glance.resident_bytes,
            "lag_ms": glance.lag_ms,
        })
    }
}
