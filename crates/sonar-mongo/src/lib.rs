//! Talks to MongoDB servers through the official driver.
//!
//! The driver is asynchronous and needs a runtime; both stay in this crate. Public functions block, take a
//! [`StopFlag`] if they may take long, and return a [`ServerError`] whose message suggests what to do.
//!
//! *Absent*: signals, files, output, arguments. Only [`profiler`], [`load`] and [`reorder`] change a server, as their
//! documentation says.
#![forbid(unsafe_code)]

pub mod clients;
mod error;
pub mod files;
pub mod load;
pub mod profiler;
mod reach;
pub mod reorder;
mod running;
mod server;
mod server_info;
pub mod server_status;
mod stop;
pub mod tail;
mod target;
mod unreachable;

pub use error::{Result, ServerError};
pub use server::Server;
pub use server_info::ServerInfo;
pub use stop::StopFlag;
pub use target::{Target, is_connection_string, is_host_and_port};
pub use unreachable::{Unreachable, without_number};

pub use bson;
