//! Links the unwinder of libgcc into the binary, so that it needs no shared library but those of libc.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of = |name| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_ENV") != "gnu" || of("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    // The standard library asks for libgcc_s by name, whatever -static-libgcc says. The linker finds this
    // script first, which stands for the static library.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
}
