//! What a page answers, and what it refuses, with a history in memory.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

mod connections;
mod documents;
mod forms;
mod openapi;
mod proxied;
mod refusals;
mod support;
#[path = "../../../sonar-view/examples/synthetic/mod.rs"]
mod synthetic;
mod tls;
