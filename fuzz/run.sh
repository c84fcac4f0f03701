#!/bin/sh
# Runs a fuzz target, or builds all: fuzz/run.sh TARGET SECONDS [libFuzzer options]; fuzz/run.sh --build
#
# Needs neither cargo-fuzz nor a nightly compiler: it asks LLVM directly for the coverage pass. New inputs go to a
# temporary folder; only the seeds in corpus/ are kept. An input that fails is left in artifacts/TARGET/.
set -eu
cd "$(dirname "$0")"

# With --target, build scripts are not instrumented.
host=$(rustc -vV | sed -n 's/^host: //p')
built=${CARGO_TARGET_DIR:-../target}/$host/fuzz
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --quiet --locked -p sonar-fuzz --features libfuzzer --bins --profile fuzz --target "$host"
[ "${1:-}" != --build ] || exit 0

if [ $# -lt 2 ]; then
    echo "usage: fuzz/run.sh TARGET SECONDS [libFuzzer options], or fuzz/run.sh --build" >&2
    exit 2
fi
target=$1 seconds=$2
shift 2
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
mkdir -p "artifacts/$target"
"$built/$target" "$fresh" "corpus/$target" \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -artifact_prefix="artifacts/$target/" "$@"
