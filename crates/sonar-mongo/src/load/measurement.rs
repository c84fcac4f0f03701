//! What to measure.

use std::time::Duration;

use sonar_core::impact::Variant;

/// Documents of the table; sysbench's `--table-size`.
pub const DOCUMENTS: u32 = 10_000;
/// A measurement of what settings of the profiler cost.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Name of the database to create; it must not exist.
    pub database: String,
    /// Documents in the table.
    pub documents: u32,
    /// Numbers of clients, one after the other.
    pub clients: Vec<u32>,
    /// The settings; the others are compared with the first.
    pub variants: Vec<Variant>,
    /// How often each setting is measured with each number of clients.
    pub rounds: usize,
    /// Length of each slice.
    pub slice: Duration,
    /// Size of `system.profile` in bytes; `None` leaves it to the server.
    pub profile_bytes: Option<u64>,
    /// Confidence of the verdicts, like 0.95.
    pub confidence: f64,
    /// Seed of the pseudo-random numbers.
    pub seed: u64,
}
