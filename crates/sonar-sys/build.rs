//! Compiles the eBPF programs, with clang, and generates their skeletons: maps, settings and records as Rust types.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=../../bpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["io", "split", "stacks", "tls"] {
        let source = format!("../../bpf/{name}.bpf.c");
        // Version 3 of the instruction set has atomic operations that return the previous value.
        let built = libbpf_cargo::SkeletonBuilder::new()
            .source(&source)
            .clang_args(["-mcpu=v3"])
            .reference_obj(true)
            .build_and_generate(out.join(format!("{name}.skel.rs")));
        if let Err(error) = built {
            panic!(
                "cannot compile {source} (is clang installed? scripts/install-prerequisites.sh run): {error:#}"
            );
        }
    }
}
