//! What `why` shows: where the time of each query shape went inside the server.
//!
//! A [`WhyReport`] is the JSON document in memory; text is made from it.

mod answer;
mod document;
mod report;
mod text;

pub use document::{
    BlockerJson, FileJson, PartJson, ShapeTimeJson, SplitCoverageJson, ThreadRoleJson, WhyReport,
};
pub use report::WhyTrace;
