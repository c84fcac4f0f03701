//! What `timeline` shows: queries, the server's internals, the machine and events on one axis of time.
//!
//! A [`TimelineReport`] is the JSON document in memory; text and the web page are made from it.

mod axis;
mod choice;
mod lanes;
mod report;
mod text;

pub use axis::TimeAxis;
pub use lanes::TimelineBuilder;
pub use report::{EventJson, LaneJson, TimelineReport};
pub use text::chart_columns;
