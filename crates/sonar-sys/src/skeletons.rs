//! Maps, settings and records of the eBPF programs as Rust types, which `build.rs` generates from `bpf/`.
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    unused_qualifications
)]

pub mod io {
    include!(concat!(env!("OUT_DIR"), "/io.skel.rs"));
}

pub mod split {
    include!(concat!(env!("OUT_DIR"), "/split.skel.rs"));
}

pub mod stacks {
    include!(concat!(env!("OUT_DIR"), "/stacks.skel.rs"));
}

pub mod tls {
    include!(concat!(env!("OUT_DIR"), "/tls.skel.rs"));
}
