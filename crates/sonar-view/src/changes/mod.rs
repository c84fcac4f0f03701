//! What `what-changed` shows: each change as a sentence with its evidence.
//!
//! A [`ChangesReport`] is the JSON document in memory; text and the web page are made from it.

mod events;
mod figures;
mod gaps;
mod level;
mod machine;
mod report;
mod seen;
mod sentence;
mod servers;
mod split;
mod text;

/// Words and times that other views share.
pub(crate) mod words {
    pub(crate) use super::events::event;
    pub(crate) use super::gaps::gaps_text;
    pub(crate) use super::level::metric;
    pub(crate) use super::sentence::clock;
}

pub use gaps::{GapJson, gaps_summary};
pub use report::{ChangesReport, ComparedSpans};
pub use seen::SeenSpan;
