//! What a history says about a span of time: the same answers for the commands that look back and for the web.
//!
//! | question | module |
//! | --- | --- |
//! | what changed | [`what_changed`] |
//! | queries, internals, machine and events over time | [`timeline`] |
//! | everything about an incident | [`PastIncident`] |
//! | which queries, as a whole or by interval | [`queries`] |
//! | one query shape over time | [`shape`] |
//! | what was usual before | [`baseline`] |
//! | what differs between two spans | [`compare`] |
//! | series of devices and files | [`series`] |
//! | every series over time | [`all_series`] |
//! | what happened | [`events`] |
//! | where the time of operations went, over time | [`waits`] |
//! | files, disks and space, over time | [`storage`] |
//! | in what some operations differ from the rest | [`different`] |
//!
//! Each answer is made of a [`HistoryView`], which reads through
//! [`HistoryReader`](sonar_core::HistoryReader): the store, or one in memory. Times are points in time: who asks has read
//! what was written, opened the store and looked at the clock.

pub mod all_series;
pub mod baseline;
mod bounded_sums;
pub mod compare;
mod compared_time;
pub mod different;
mod digest;
mod error;
pub mod events;
mod history_view;
mod incident;
pub mod queries;
mod scanned_parts;
pub mod series;
mod series_sum;
pub mod shape;
mod steps;
pub mod storage;
pub mod timeline;
pub mod waits;
pub mod what_changed;

pub use compared_time::ComparedTime;
pub use digest::{DigestRows, HistoryDigest};
pub use error::PastError;
pub use history_view::{HistoryView, resolution, whole_windows};
pub use incident::PastIncident;
pub use scanned_parts::ScannedParts;
pub use steps::HistoryStep;
