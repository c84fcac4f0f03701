//! What `disk` shows: tests as text and JSON (which the web page draws), alone and side by side.
//!
//! A [`BenchReport`] is the JSON document in memory, and all output is made from it, so that a saved document shows the same
//! as the run itself.

pub mod check;
pub mod compare;
pub mod estimate;
pub mod run;
pub mod stat;
pub mod text;
pub mod words;

pub use run::BenchReport;
