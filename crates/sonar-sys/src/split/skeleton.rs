//! Maps, settings and records as Rust types, generated from `bpf/split.bpf.c`.
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    unused_qualifications
)]

include!(concat!(env!("OUT_DIR"), "/split.skel.rs"));
