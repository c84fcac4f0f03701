//! Compiles the eBPF programs, with clang, and generates their skeleton: maps, settings and records as Rust types.

use std::path::PathBuf;

fn main() {
    let source = "../../bpf/io.bpf.c";
    println!("cargo:rerun-if-changed=../../bpf");
    let skeleton = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("io.skel.rs");
    // Version 3 of the instruction set has atomic operations that return the previous value.
    let built = libbpf_cargo::SkeletonBuilder::new()
        .source(source)
        .clang_args(["-mcpu=v3"])
        .reference_obj(true)
        .build_and_generate(&skeleton);
    if let Err(error) = built {
        panic!(
            "cannot compile {source} (is clang installed? scripts/install-prerequisites.sh run): {error:#}"
        );
    }
}
