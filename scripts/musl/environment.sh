# shellcheck shell=bash
# Sourced by the other scripts, from the top of the repository: what a build of static programs with musl needs. Installs
# what is missing, and puts the rest into the environment of cargo.

# musl_unavailable REASON: prints it and returns 77.
musl_unavailable() {
    echo "musl: $*" >&2
    return 77
}

# musl_archive LIBRARY FLAGS -- SOURCES: compiles the sources into a static library, unless it is there.
musl_archive() {
    local library=$1 flags=() objects file
    shift
    while [ "$1" != -- ]; do
        flags+=("$1")
        shift
    done
    shift
    [ ! -e "$library" ] || return 0
    objects=$(mktemp -d)
    for file in "$@"; do
        # The warnings are about other people's code.
        "$musl_compiler" -O2 -fPIC -w "${flags[@]}" -c "$file" -o "$objects/$(basename "$file" .c).o" || return 1
    done
    "$musl_archiver" rcs "$objects/library.a" "$objects"/*.o
    mv "$objects/library.a" "$library"
    rm -rf "$objects"
}

# musl_environment [ARCH]: prepares builds for this architecture (this machine's by default), and sets
#
#   CARGO_BUILD_TARGET    the target, for cargo
#   musl_cargo            the command of cargo that builds: `build`, or `zigbuild` for another architecture than this
#                         machine's, with the compiler and the libc of Zig, which come from PyPI
#
# Returns 77 if the tools cannot be installed.
musl_environment() {
    local arch=${1:-$(uname -m)} target zig sources libraries headers='' asm zlib elf variable linker
    target=$arch-unknown-linux-musl
    if ! rustc --print target-libdir --target "$target" 2>/dev/null | xargs -r ls >/dev/null 2>&1; then
        command -v rustup >/dev/null ||
            musl_unavailable "the standard library of Rust for $target is missing, and so is rustup" || return
        rustup target add "$target" >&2 ||
            musl_unavailable "rustup cannot install the standard library of Rust for $target" || return
    fi
    if [ "$arch" = "$(uname -m)" ]; then
        command -v musl-gcc >/dev/null || scripts/install-prerequisites.sh musl || true
        command -v musl-gcc >/dev/null || musl_unavailable "musl-gcc is missing (Debian's package musl-tools)" || return
        musl_compiler=musl-gcc musl_archiver=ar musl_cargo=build
    else
        zig=$PWD/target/zig-$(sha256sum <scripts/cross.txt | cut -c1-16)
        if [ ! -e "$zig/$arch-ar" ]; then
            {
                python3 -m venv "$zig" >&2 &&
                    "$zig/bin/pip" install --quiet --disable-pip-version-check --requirement scripts/cross.txt >&2
            } || musl_unavailable "Zig and cargo-zigbuild cannot be installed from PyPI" || return
            # Programs that take the place of a compiler for this architecture.
            printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-musl "$@"\n' "$zig/bin/python" "$arch" >"$zig/$arch-cc"
            printf '#!/bin/sh\nexec "%s" -m ziglang ar "$@"\n' "$zig/bin/python" >"$zig/$arch-ar"
            chmod +x "$zig/$arch"-*
        fi
        export PATH="$zig/bin:$PATH"
        musl_compiler=$zig/$arch-cc musl_archiver=$zig/$arch-ar musl_cargo=zigbuild
    fi

    # The sources of libelf and zlib that come with the crate libbpf-sys. No distribution packages these libraries for musl.
    sources=$(dirname "$(cargo metadata --locked --format-version 1 --filter-platform "$target" |
        python3 -c 'import json, sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "libbpf-sys"))')")
    # Another folder for other sources or flags: cargo then links anew.
    libraries=$PWD/target/musl-libraries/$arch-$(cat scripts/musl/* scripts/cross.txt "$sources/Cargo.toml" | sha256sum | cut -c1-16)
    mkdir -p "$libraries/kernel"
    # Zig has the kernel's headers.
    if [ $musl_cargo = build ]; then
        # They are the same for every libc. The rest of /usr/include belongs to glibc and stays out.
        ln -sfn /usr/include/linux "$libraries/kernel/linux"
        ln -sfn /usr/include/asm-generic "$libraries/kernel/asm-generic"
        asm=/usr/include/$arch-linux-gnu/asm
        [ -e "$asm" ] || asm=/usr/include/asm
        ln -sfn "$asm" "$libraries/kernel/asm"
        headers="-idirafter $libraries/kernel"
    fi
    zlib=$sources/zlib elf=$sources/elfutils
    musl_archive "$libraries/libz.a" -DHAVE_UNISTD_H -- "$zlib"/*.c || return
    # shellcheck disable=SC2086  # the flag and the folder are two words
    musl_archive "$libraries/libelf.a" -std=gnu11 -DHAVE_CONFIG_H -Iscripts/musl -I"$elf/libelf" -I"$elf/lib" -I"$zlib" \
        $headers -- "$elf"/libelf/*.c || return

    variable=${target//-/_}
    export "LIBBPF_SYS_LIBRARY_PATH_$variable=$libraries"
    # cargo-zigbuild sets its own.
    if [ $musl_cargo = build ]; then
        export "CC_$variable=$musl_compiler"
        # The linker that comes with Rust, its default for glibc on x86-64, takes a quarter of the time.
        linker=$(rustc --print sysroot)/lib/rustlib/$arch-unknown-linux-gnu/bin/gcc-ld
        if [ -x "$linker/ld.lld" ]; then
            export "CARGO_TARGET_${variable^^}_RUSTFLAGS=-Clink-arg=-fuse-ld=lld -Clink-arg=-B$linker"
        fi
    fi
    export "CFLAGS_$variable=$headers -I$elf/libelf -I$zlib"
    export CARGO_BUILD_TARGET=$target
}
