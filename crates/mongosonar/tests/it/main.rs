//! The integration tests of mongosonar: one program, since each would link the whole crate again.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

mod agent;
mod answers;
mod archives;
mod by_flow;
mod docs;
mod exit_codes;
mod explain;
mod files;
mod foreign;
mod ftdc;
mod history;
mod history_events;
mod inputs;
mod io_life;
mod io_names;
mod io_record;
mod io_report;
mod kept_logs;
mod key_log;
mod kills;
mod logged_ends;
mod lookalikes;
mod loopback;
mod not_read;
mod pages;
mod process_namespace;
mod report;
mod reports;
mod restarts;
mod served;
mod support;
mod wire;
