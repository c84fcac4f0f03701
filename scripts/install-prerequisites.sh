#!/usr/bin/env bash
# Installs what a Debian machine lacks to build, run or test mongosonar. Prints what it does, and does nothing if
# everything is there.
#
#   scripts/install-prerequisites.sh build   compiler, Rust, Node.js (for the web page)
#   scripts/install-prerequisites.sh run     the same, and Go (for the lab's server)
#   scripts/install-prerequisites.sh check   the same, and Python (for the tools that check)
#   scripts/install-prerequisites.sh test    the same, and what the tests use
#   scripts/install-prerequisites.sh bench   the same, and other tools that the benches compare with
#   scripts/install-prerequisites.sh musl    compiler, Rust, Node.js, musl-gcc (for a static binary)
#   scripts/install-prerequisites.sh package the same, and Go and Python (for packages)
set -euo pipefail

what=${1:-build}
rust_version=$(sed -nE 's/^channel = "(.*)"$/\1/p' "$(dirname "$0")/../rust-toolchain.toml")
go_version=1.24.5
node_version=20.19.6
# clang compiles the eBPF programs; libbpf, which comes with its crate, needs libelf and zlib.
packages=(build-essential ca-certificates clang curl git libelf-dev pkg-config xz-utils zlib1g-dev)
case $what in
musl) packages+=(musl-tools python3) ;;
package) packages+=(musl-tools python3 python3-venv) ;;
check) packages+=(python3 python3-venv) ;;
esac
if [[ $what = test || $what = bench ]]; then
    # Node.js is installed below: Debian's may be too old, and its npm does not go beside another.
    have='^(#|$|nodejs$|npm$)'
    mapfile -t lab < <(grep -vE "$have" "$(dirname "$0")/../lab/apt-packages.txt")
    packages+=("${lab[@]}")
fi
[ "$what" != bench ] || packages+=(bpftrace)

say() { echo "prerequisites: $*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        say "this needs root, and there is no sudo: $*"
        exit 1
    fi
}

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    # Packages start their services, unless a policy refuses that. The tests run these programs by themselves.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin $policy
        trap 'as_root rm -f $policy' EXIT
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    for service in haproxy nginx stunnel4; do
        if [[ -d /run/systemd/system && " ${missing[*]} " = *" $service "* ]]; then
            as_root systemctl disable -q "$service" || true
        fi
    done
fi

if ! PATH="$HOME/.cargo/bin:$PATH" command -v cargo >/dev/null; then
    say "installing Rust by rustup"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --profile minimal -c rustfmt -c clippy --default-toolchain "$rust_version"
fi
# The version that rust-toolchain.toml names, where there is another one.
export PATH="$HOME/.cargo/bin:$PATH"
if command -v rustup >/dev/null && ! rustup run "$rust_version" rustc --version >/dev/null 2>&1; then
    say "installing Rust $rust_version by rustup"
    rustup toolchain install "$rust_version" --profile minimal -c rustfmt -c clippy
fi

# The web page is built with Vite, which needs Node.js 20.19 or later.
have_node() {
    local version
    command -v npm >/dev/null && version=$(node --version 2>/dev/null | sed 's/^v//') || return 1
    [ "$(printf '%s\n20.19\n' "$version" | sort -V | head -1)" = 20.19 ]
}
if ! have_node; then
    case $(uname -m) in
    x86_64) arch=x64 ;;
    aarch64) arch=arm64 ;;
    *)
        say "no Node.js for $(uname -m)"
        exit 1
        ;;
    esac
    say "installing Node.js $node_version into /usr/local"
    archive=$(mktemp)
    if curl -sSfL "https://nodejs.org/dist/v$node_version/node-v$node_version-linux-$arch.tar.xz" -o "$archive"; then
        as_root tar -C /usr/local --strip-components=1 --exclude='*.md' --exclude=LICENSE -xJf "$archive"
    else
        # Debian 13 and later have one that is new enough.
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
    fi
    rm -f "$archive"
fi

have_go() {
    local version
    version=$(PATH="/usr/local/go/bin:$PATH" go env GOVERSION 2>/dev/null | sed 's/^go//') || return 1
    [ -n "$version" ] && [ "$(printf '%s\n1.22\n' "$version" | sort -V | head -1)" = 1.22 ]
}
if [[ $what != build && $what != musl ]] && ! have_go; then
    case $(uname -m) in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *)
        say "no Go for $(uname -m)"
        exit 1
        ;;
    esac
    say "installing Go $go_version into /usr/local/go"
    archive=$(mktemp)
    curl -sSfL "https://go.dev/dl/go$go_version.linux-$arch.tar.gz" -o "$archive"
    as_root rm -rf /usr/local/go
    as_root tar -C /usr/local -xzf "$archive"
    rm -f "$archive"
fi

# mloginfo of mtools.
root=$(dirname "$0")/..
if [ "$what" = bench ] && [ "$root/bench/requirements.txt" -nt "$root/bench/.venv/ready" ]; then
    say "installing mtools into bench/.venv"
    python3 -m venv "$root/bench/.venv"
    "$root/bench/.venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$root/bench/requirements.txt"
    touch "$root/bench/.venv/ready"
fi
