#!/usr/bin/env bash
# Builds a static binary with musl, which runs on every distribution: target/ARCH-unknown-linux-musl/PROFILE/mongosonar.
# Installs what is missing. Exits with 77 if the tools cannot be installed, and with 1 on any other failure.
#
#   scripts/dist-musl.sh [PROFILE [ARCH]]
#
#   PROFILE    release (default) or dev
#   ARCH       x86_64 or aarch64; this machine's by default. Another one's is built with the compiler and the libc of
#              Zig, which come from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
profile=${1:-release}
arch=${2:-$(uname -m)}
target=$arch-unknown-linux-musl

unavailable() {
    echo "dist-musl: $*" >&2
    exit 77
}

if ! rustc --print target-libdir --target "$target" 2>/dev/null | xargs -r ls >/dev/null 2>&1; then
    command -v rustup >/dev/null || unavailable "the standard library of Rust for $target is missing, and so is rustup"
    rustup target add "$target" >&2 || unavailable "rustup cannot install the standard library of Rust for $target"
fi
if [ "$arch" = "$(uname -m)" ]; then
    command -v musl-gcc >/dev/null || scripts/install-prerequisites.sh musl || true
    command -v musl-gcc >/dev/null || unavailable "musl-gcc is missing (Debian's package musl-tools)"
    compiler=musl-gcc archiver=ar build=build
else
    zig=$PWD/target/zig-$(sha256sum <scripts/cross.txt | cut -c1-16)
    if [ ! -e "$zig/$arch-ar" ]; then
        {
            python3 -m venv "$zig" >&2 &&
                "$zig/bin/pip" install --quiet --disable-pip-version-check --requirement scripts/cross.txt >&2
        } || unavailable "Zig and cargo-zigbuild cannot be installed from PyPI"
        # Programs that take the place of a compiler for this architecture.
        printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-musl "$@"\n' "$zig/bin/python" "$arch" >"$zig/$arch-cc"
        printf '#!/bin/sh\nexec "%s" -m ziglang ar "$@"\n' "$zig/bin/python" >"$zig/$arch-ar"
        chmod +x "$zig/$arch"-*
    fi
    export PATH="$zig/bin:$PATH"
    compiler=$zig/$arch-cc archiver=$zig/$arch-ar build=zigbuild
fi

# The sources of libelf and zlib that come with the crate libbpf-sys. No distribution packages these libraries for musl.
sources=$(dirname "$(cargo metadata --locked --format-version 1 --filter-platform "$target" |
    python3 -c 'import json, sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "libbpf-sys"))')")
# Another folder for other sources or flags: cargo then links anew.
libraries=$PWD/target/musl-libraries/$arch-$(cat scripts/dist-musl.sh scripts/cross.txt scripts/musl/config.h "$sources/Cargo.toml" | sha256sum | cut -c1-16)
mkdir -p "$libraries/kernel"
headers=
# Zig has the kernel's headers.
if [ $build = build ]; then
    # They are the same for every libc. The rest of /usr/include belongs to glibc and stays out.
    ln -sfn /usr/include/linux "$libraries/kernel/linux"
    ln -sfn /usr/include/asm-generic "$libraries/kernel/asm-generic"
    asm=/usr/include/$arch-linux-gnu/asm
    [ -e "$asm" ] || asm=/usr/include/asm
    ln -sfn "$asm" "$libraries/kernel/asm"
    headers="-idirafter $libraries/kernel"
fi

# archive NAME FLAGS -- SOURCES: compiles the sources into libNAME.a, unless it is there.
archive() {
    local name=$1 flags=() objects file
    shift
    while [ "$1" != -- ]; do
        flags+=("$1")
        shift
    done
    shift
    [ ! -e "$libraries/lib$name.a" ] || return 0
    objects=$(mktemp -d)
    for file in "$@"; do
        # The warnings are about other people's code.
        "$compiler" -O2 -fPIC -w "${flags[@]}" -c "$file" -o "$objects/$(basename "$file" .c).o" || return 1
    done
    "$archiver" rcs "$objects/lib$name.a" "$objects"/*.o
    mv "$objects/lib$name.a" "$libraries/"
    rm -rf "$objects"
}
zlib=$sources/zlib elf=$sources/elfutils
archive z -DHAVE_UNISTD_H -- "$zlib"/*.c
# shellcheck disable=SC2086  # the flag and the folder are two words
archive elf -std=gnu11 -DHAVE_CONFIG_H -Iscripts/musl -I"$elf/libelf" -I"$elf/lib" -I"$zlib" $headers -- "$elf"/libelf/*.c

variable=${target//-/_}
export "LIBBPF_SYS_LIBRARY_PATH_$variable=$libraries"
# cargo-zigbuild sets its own.
[ $build = zigbuild ] || export "CC_$variable=$compiler"
export "CFLAGS_$variable=$headers -I$elf/libelf -I$zlib"
cargo $build --locked --target "$target" --profile "$profile" -p mongosonar
[ "$profile" != dev ] || profile=debug
echo "target/$target/$profile/mongosonar"
