//! What `ftdc` shows: what is wrong, the figures of a server, and the same of two times side by side.
//!
//! An [`FtdcReport`] is the JSON document in memory; text, CSV and the web page are made from it.

mod compare;
mod report;
mod text;
pub(crate) mod units;

pub use compare::FtdcComparison;
pub use report::{FtdcReading, FtdcReport, incident_words};
