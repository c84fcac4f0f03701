//! The integration tests of sonar-decode: one program, since each would link the whole crate again.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

mod capture_file;
mod commands;
mod compress;
mod current_op;
mod decryption;
mod explain;
mod frame;
mod ftdc;
mod golden_ids;
mod io_file;
mod log_attributes;
mod log_envelopes;
mod log_events;
mod log_lines;
mod logs;
mod mangled;
mod old_commands;
mod profiles;
mod recordings;
mod routers;
mod shapes;
mod support;
mod tcp;
mod text_and_bson;
mod tunnels;
mod values;
