//! The integration tests of sonar-view: one program, since each would link the whole crate again.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

mod baseline;
mod compare;
mod documentation;
mod hints;
mod known;
mod live;
mod output;
mod past;
mod past_different;
mod past_storage;
mod past_waits;
#[path = "../../examples/picture/mod.rs"]
mod picture;
mod rates;
#[path = "../../examples/recorded/mod.rs"]
mod recorded;
mod recorded_capture;
mod scanned_parts;
#[path = "../../examples/synthetic/mod.rs"]
mod synthetic;
mod view_rates;
