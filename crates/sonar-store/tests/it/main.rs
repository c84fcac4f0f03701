//! The integration tests of sonar-store: one program, since each would link the whole crate again.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

mod commits;
mod common;
mod faults;
mod format;
mod retention;
mod store;
