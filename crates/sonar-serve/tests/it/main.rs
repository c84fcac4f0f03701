//! What a page answers, and what it refuses, with a history in memory.

mod connections;
mod documents;
mod refusals;
mod support;
#[path = "../../../sonar-view/examples/synthetic/mod.rs"]
mod synthetic;
