//! Captures what servers are asked: a thread for each source decodes it and makes windows.

pub mod applications;
pub mod args;
pub mod changes;
mod joiner;
pub mod notice;
mod pipeline;
pub mod ports;
pub mod rotate;
pub mod running;
pub mod session;
mod source;
pub mod splitting;
pub mod threads;
pub mod tls;
pub mod write;

pub use self::joiner::{Joiner, ThreadWindow};
pub use self::pipeline::{OperationListener, Pipeline, WindowLayout};
