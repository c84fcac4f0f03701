//! Bytes in, events out: packets, TCP streams, MongoDB messages, query shapes.
//!
//! No I/O, no clock, no threads, no `unsafe`. No input, however broken or hostile, makes it panic or grow beyond its
//! caps.
#![forbid(unsafe_code)]

pub mod bson;
pub mod capture_file;
mod class;
mod commands;
pub mod compress;
pub mod current_op;
pub mod decoder;
mod elf;
pub mod entry;
pub mod explain;
pub mod frame;
pub mod ftdc;
pub mod identity;
pub mod io_file;
pub mod keylog;
pub mod log;
pub mod message;
mod names;
pub mod profile;
pub mod shape;
pub mod stacks;
pub mod syntax;
pub mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
pub mod top_level;

pub use decoder::{Decoder, EndedClient, EndedServer, MIN_SNAP_REPLIES, Ports, Settings, Sink, TlsSource};
pub use decoder::{FlowBatch, FlowMerger, FlowSplitter, FlowWorker, FlowWorkers};
pub use identity::Shared;
pub use keylog::{KeyLog, KeyLogReader, KeyLogSource};
