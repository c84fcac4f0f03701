//! Compiles the eBPF programs, with clang.

use std::path::PathBuf;

fn main() {
    let source = "../../bpf/io.bpf.c";
    println!("cargo:rerun-if-changed={source}");
    // The third version of the instructions has atomic ones that give what was there before.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("io.bpf.o");
    if let Err(error) =
        libbpf_cargo::SkeletonBuilder::new().source(source).clang_args(["-mcpu=v3"]).obj(&out).build()
    {
        panic!(
            "cannot compile {source} (is clang installed? scripts/install-prerequisites.sh run): {error:#}"
        );
    }
}
