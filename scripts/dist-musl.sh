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
. scripts/musl/environment.sh
profile=${1:-release}
musl_environment "${2:-$(uname -m)}"
cargo "$musl_cargo" --locked --profile "$profile" -p mongosonar
[ "$profile" != dev ] || profile=debug
echo "target/$CARGO_BUILD_TARGET/$profile/mongosonar"
