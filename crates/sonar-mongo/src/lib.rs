//! All that talks to a MongoDB server, through the official driver.
//!
//! The driver is asynchronous and brings its runtime; both stay in this room. What is public here
//! blocks, takes a [`Stop`] where it may take long, and says every failure as an [`Error`] that tells a
//! person what to do.
//!
//! What is *absent* here: signals, files, output, arguments. Nothing here changes a server but what
//! [`control`], [`load`] and [`reorder`] say they change.
#![forbid(unsafe_code)]

pub mod clients;
pub mod control;
mod error;
pub mod files;
pub mod load;
mod reach;
pub mod reorder;
mod server;
mod stop;
pub mod tail;
mod target;

pub use error::{Error, Result};
pub use reach::Unreachable;
pub use server::{Server, ServerInfo};
pub use stop::Stop;
pub use target::{Target, is_connection_string, is_host_and_port};

pub use bson;
