//! What `why` shows: where the time of each query shape went inside the server.
//!
//! A [`WhyReport`] is the JSON document in memory; text is made from it.

mod activity;
mod answer;
mod disks;
mod document;
mod files;
mod in_progress;
mod limits;
mod parts;
mod report;
mod server;
mod text;

pub use activity::{ActivityJson, PartActivityJson};
pub use disks::DiskLoadJson;
pub use document::{BlockerJson, ShapeTimeJson, SplitCoverageJson, ThreadRoleJson, WhyReport};
pub use files::{FileJson, FileShapeJson, FileWaitsJson};
pub use in_progress::{InProgressJson, UnfinishedOperation};
pub use limits::ProcessLimitJson;
pub use parts::{PartJson, WaitClassJson};
pub use report::{WhyTrace, role_of};
pub use server::{
    PlanCountJson, ProfiledDatabaseJson, ServerEvidenceJson, ServerFigureJson, ServerJoinJson,
    ServerProfileJson, ServerSourcesJson,
};
