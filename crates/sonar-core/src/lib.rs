//! The data types and the arithmetic of mongosonar.
//!
//! This crate has no I/O, no threads, no clock (time is an argument) and no `unsafe`. All other crates of
//! the workspace may import it; it imports none of them.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod changes;
pub mod command_types;
pub mod counter;
pub mod coverage;
pub mod current_op;
pub mod digest;
pub mod disk;
pub mod endpoint;
pub mod execution;
pub mod explain;
pub mod figures;
pub mod files;
pub mod held;
pub mod histogram;
pub mod history;
mod history_digest;
pub mod impact;
pub mod internals;
mod known_drivers;
pub mod log_notices;
pub mod machine;
pub mod observation;
mod observed_parts;
pub mod offsets;
mod oldest_first;
pub mod operation;
pub mod packet;
pub mod plaintext;
pub mod profiler;
pub mod reading;
pub mod row;
mod row_totals;
pub mod sample;
mod server_version;
pub mod shape;
pub mod significance;
pub mod source;
pub mod stacks;
pub mod sum;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod time_split;
pub mod timeline;
mod tls_suite;
pub mod window;
pub mod words;

pub use baseline::Baseline;
pub use command_types::{CommandType, CommandTypes};
pub use coverage::Coverage;
pub use current_op::{CurrentOperation, CurrentOperations, CurrentWait};
pub use digest::{Digest, DigestSettings};
pub use endpoint::Endpoint;
pub use execution::{Execution, Identity, PlanFlags, ServerWait};
pub use figures::{Figures, Record};
pub use files::IoAccess;
pub use histogram::Histogram;
pub use history::{HistoryReader, HistoryWindow, HistoryWriter};
pub use history_digest::HistoryDigester;
pub use log_notices::LogNotices;
pub use observed_parts::ObservedParts;
pub use offsets::UtcOffsets;
pub use oldest_first::OldestFirst;
pub use operation::{Application, Class, InFlightOperations, Operation, Outcome, Role, Statement};
pub use packet::{LinkType, Packet};
pub use plaintext::{Plaintext, PlaintextEvent};
pub use reading::Reading;
pub use row::{Row, Subject};
pub use row_totals::RowTotals;
pub use server_version::ServerVersion;
pub use shape::{ShapeId, ShapeInfo};
pub use source::Source;
pub use sum::Sum;
pub use table::{GroupBy, Table};
pub use time::Timestamp;
pub use timeline::Timeline;
pub use tls_suite::TlsSuite;
pub use window::{Window, WindowClock};
