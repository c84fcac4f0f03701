//! Bytes in, events out: packets, TCP streams, MongoDB messages, query shapes.
//!
//! What is *absent* here: no I/O, no clock, no threads, no `unsafe`; and no input, however broken or
//! hostile, makes it panic or grow beyond its caps.
#![forbid(unsafe_code)]

pub mod bson;
pub mod frame;
pub mod shape;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
