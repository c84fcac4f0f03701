# shellcheck shell=bash
# Sourced by the benches: the place to stand, what to build, and what to say when something is missing.
set -eu
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin:/usr/local/go/bin"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export MONGOSONAR="$CARGO_TARGET_DIR/release/mongosonar"

# skip WHY: ends the bench, which is no failure.
skip() {
    echo "skipped: $(basename "$0" .sh) $*"
    exit 0
}

have() { command -v "$1" >/dev/null; }

need_root() {
    [ "$(id -u)" = 0 ] || skip "needs root: it listens in a network namespace of its own"
    unshare --net true 2>/dev/null || skip "needs unshare (util-linux) and network namespaces"
    have ip || skip "needs ip (iproute2)"
}

build() { cargo build --quiet --release --locked "$@"; }

# Go programs of the lab, each into lab/bin; what is up to date is not built again.
build_go() {
    have go || return 1
    (cd "$1" && go build -trimpath -o "$OLDPWD/lab/bin/$2" "$3")
}

# measure NAME: runs bench/lib/NAME.py; with --alone in a network namespace that goes when it ends.
measure() {
    if [ "$1" = --alone ]; then
        exec unshare --net python3 -B "bench/lib/$2.py"
    fi
    exec python3 -B "bench/lib/$1.py"
}
