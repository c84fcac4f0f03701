//! All of mongosonar that touches the Linux kernel: capture, and what `/proc` tells.
//!
//! Knows nothing of MongoDB: names of processes and ports are arguments. Imports nothing of ours but
//! `sonar-core`. This is the one crate with `unsafe`, and all of it is in `sys`, which wraps the system
//! calls; the rest is safe code. Nothing here starts a thread or prints.

mod block;
mod bpf;
pub mod capabilities;
pub mod filter;
mod hardware;
pub mod interfaces;
pub mod io;
pub mod listeners;
pub mod probe;
pub mod resource;
pub mod ring;
mod sys;

pub use filter::Filter;
pub use interfaces::Interface;
pub use ring::{Ring, RingConfig, RingError, Statistics, Stopper, Wake};
