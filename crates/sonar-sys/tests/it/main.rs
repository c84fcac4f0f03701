//! The integration tests of sonar-sys: one program, since each would link the whole crate again.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

mod disk;
mod ring;
mod split;
mod support;
