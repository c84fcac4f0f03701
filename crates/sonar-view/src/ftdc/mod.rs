//! What `ftdc` shows: what is wrong, the figures of a server, the same of two times side by side, and every sample.
//!
//! An [`FtdcReport`] is the JSON document in memory; text, CSV and the web page are made from it.

mod compare;
pub mod export;
mod report;
mod text;
pub(crate) mod units;

pub use compare::FtdcComparison;
pub use report::{FtdcReading, FtdcReport, incident_words};
