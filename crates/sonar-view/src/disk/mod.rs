//! Tests of disks: what is printed of them, as text and JSON (which the web page draws), alone and side by side.
//!
//! A [`Run`] is the JSON document, in memory. Whatever is shown is made of one, so that a document that was
//! kept shows the same as the run itself did.

pub mod check;
pub mod compare;
pub mod estimate;
pub mod run;
pub mod stat;
pub mod text;
pub mod words;

pub use run::Run;
