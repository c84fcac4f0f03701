//! The integration tests of sonar-core: one program, since each would link the whole crate again.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

mod bounded;
mod changes;
mod histogram_peers;
mod io_model;
mod significance;
