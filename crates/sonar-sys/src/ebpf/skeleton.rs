//! Maps, settings and records as Rust types, generated from `bpf/io.bpf.c` and `bpf/stacks.bpf.c`.
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    unused_qualifications
)]

include!(concat!(env!("OUT_DIR"), "/io.skel.rs"));

/// Those of `bpf/stacks.bpf.c`.
pub mod stacks {
    include!(concat!(env!("OUT_DIR"), "/stacks.skel.rs"));
}
