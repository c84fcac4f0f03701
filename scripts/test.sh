#!/usr/bin/env bash
# Runs every check and test, and ends with their counts. Continues after a failure, so that one run shows everything
# that is wrong.
#
#   scripts/test.sh           the short form of everything
#   LONG=1 scripts/test.sh    the whole program as a release build, five minutes for each fuzz target, a thousand kills
#                             of a replay, a hundred power failures, an hour of the agent, a day replayed
#   FUZZ_SECONDS=N            seconds for each fuzz target
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/tools.sh
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0
fuzz_seconds=${FUZZ_SECONDS:-${LONG:+300}}
fuzz_seconds=${fuzz_seconds:-15}
# The same random cases each time, so that no change fails by chance; another seed gives others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}

# A heading with the minutes and seconds since the beginning.
heading() { printf '== %s [%d:%02d]\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

# step NAME COMMAND…: one check, which passes or fails as a whole.
step() {
    local name=$1
    shift
    heading "$name"
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $name"
        failed=$((failed + 1))
    fi
}

# Builds the programs of the lab at the same time as Rust.
(
    make --no-print-directory -C lab setup >"$logs/lab" 2>&1
    echo $? >"$logs/lab.code"
) &
lab=$!

tools || echo "some tools could not be installed; what needs them is skipped"

step "format" scripts/lint.sh --format
step "lint" scripts/lint.sh --lint
step "web app" make --no-print-directory web
step "clippy" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

if [ -n "${LONG:-}" ]; then
    export REPLAY_KILLS=${REPLAY_KILLS:-1000} STORE_KILLS=${STORE_KILLS:-300} STORE_POWER_FAILURES=${STORE_POWER_FAILURES:-100}
fi
heading "tests of the workspace"
# One more than there are processors, as some wait for the disk.
cargo nextest run --workspace --locked --test-threads $(($(nproc) + 1)) >"$logs/cargo" 2>&1
code=$?
grep -E '^ +(SLOW|FLAKY|TRY [0-9]+ |FAIL|TIMEOUT|Summary)|^error|^ *skipped[:,]' "$logs/cargo" | sort -u
count() { sed -nE "s/^ *Summary .* ([0-9]+) $1.*/\1/p" "$logs/cargo" | awk '{sum += $1} END {print sum + 0}'; }
without=$(grep -cE '^ *skipped[:,]' "$logs/cargo")
passed=$((passed + $(count passed) - without)) skipped=$((skipped + without))
failed=$((failed + $(count failed) + $(count 'timed out')))
if [ $code -ne 0 ]; then
    # Failed tests have their output in the log, between the headings of nextest.
    sed -nE '/^ +(TRY [0-9]+ )?(FAIL|TIMEOUT) .*$/,/^ +(PASS|Summary)/p' "$logs/cargo" | head -300
    [ "$(count failed)" != 0 ] || { failed=$((failed + 1)) && tail -50 "$logs/cargo"; }
fi

# A test of the lab runs this in a virtual machine. Found before the builds below, which would block cargo.
SONAR_SYS_TESTS=$(cargo test --workspace --lib --locked --no-run --message-format=json 2>/dev/null |
    sed -nE 's/.*"executable":"([^"]*\/sonar_sys-[^"]*)".*/\1/p')
export SONAR_SYS_TESTS

# Builds the static binary and the fuzz targets with what the tests of the lab leave of the processors.
spare() { if chrt --idle 0 true 2>/dev/null; then chrt --idle 0 "$@"; else nice -n 19 "$@"; fi; }
(
    spare scripts/dist-musl.sh dev >"$logs/musl" 2>&1
    echo $? >"$logs/musl.code"
    spare fuzz/run.sh --build >"$logs/fuzz" 2>&1
    echo $? >"$logs/fuzz.code"
) &
beside=$!

wait "$lab"
if [ "$(cat "$logs/lab.code")" = 0 ]; then
    heading "tests of the whole program, against real servers and drivers"
    # The tests of the workspace have just built it; `make test-long` tests the release build.
    program=$PWD/target/debug/mongosonar
    if [ -n "${LONG:-}" ]; then
        program=$PWD/target/release/mongosonar
        cargo build --release --locked --quiet -p mongosonar || failed=$((failed + 1))
        # For the packages of the other architecture. Where that is impossible, their test says so.
        case $(uname -m) in x86_64) other=aarch64 ;; *) other=x86_64 ;; esac
        scripts/dist-musl.sh dev "$other" >"$logs/cross" 2>&1 || true
    fi
    # run_lab TARGET: runs tests of it.
    run_lab() {
        make --no-print-directory -C lab "$1" MONGOSONAR="$program" AGAIN="$logs/again" 2>&1 | tee "$logs/pytest-$1"
        return "${PIPESTATUS[0]}"
    }
    # of TARGET WHAT: how many tests of it have `passed`, `failed`, ...
    of() { grep -E ' in [0-9.]+s' "$logs/pytest-$1" | sed -nE "s/.*\b([0-9]+) $2.*/\1/p" | awk '{sum += $1} END {print sum + 0}'; }
    # count_lab TARGET CODE: adds its tests to the counts.
    count_lab() {
        local wrong=$(($(of "$1" failed) + $(of "$1" error)))
        passed=$((passed + $(of "$1" passed))) failed=$((failed + wrong)) skipped=$((skipped + $(of "$1" skipped)))
        [ "$2" = 0 ] || [ "$wrong" != 0 ] || failed=$((failed + 1))
    }
    # lab_stage TARGET: runs tests of it. Those that fail run once more, one after the other, and that decides: what
    # fails only while other programs use the processors is named.
    lab_stage() {
        if run_lab "$1"; then
            count_lab "$1" 0
            return
        fi
        passed=$((passed + $(of "$1" passed))) skipped=$((skipped + $(of "$1" skipped)))
        heading "tests that failed, once more"
        # Without the group that the runner adds to the id.
        sed -nE 's/^(FAILED|ERROR) ([^ ].*)$/\2/p' "$logs/pytest-$1" | sed -E 's/ - .*//; s/@[a-z_0-9]+$//' >"$logs/again"
        if [ -s "$logs/again" ]; then
            run_lab test-again
            count_lab test-again $?
        else
            echo "FAILED: the tests could not be run to their end"
            failed=$((failed + 1))
        fi
    }
    lab_stage test-beside
    wait "$beside"
    heading "tests of the whole program that measure time"
    lab_stage test-alone
    heading "tests of the static binary"
    run_lab test-binary
    count_lab test-binary $?
else
    echo "FAILED: the lab could not be built"
    tail -60 "$logs/lab"
    failed=$((failed + 1))
fi

wait "$beside"
heading "a static binary with musl"
case $(cat "$logs/musl.code") in
0) passed=$((passed + 1)) ;;
77)
    echo "skipped: $(grep '^dist-musl:' "$logs/musl" | tail -1)"
    skipped=$((skipped + 1))
    ;;
*)
    echo "FAILED: a static binary with musl"
    tail -40 "$logs/musl"
    failed=$((failed + 1))
    ;;
esac

heading "fuzz targets, $fuzz_seconds s each"
targets=$(sed -nE 's/^name = "(.*)"$/\1/p' fuzz/Cargo.toml | grep -v fuzz)
if [ "$(cat "$logs/fuzz.code")" = 0 ]; then
    passed=$((passed + 1))
    # shellcheck disable=SC2016  # the inner shell expands them
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
else
    echo "FAILED: fuzz targets build"
    tail -40 "$logs/fuzz"
    failed=$((failed + 1))
fi

if command -v cargo-deny >/dev/null; then
    step "licences, bans and sources" cargo deny check licenses bans sources
    heading "security advisories"
    if timeout 120 cargo deny check advisories >"$logs/advisories" 2>&1; then
        passed=$((passed + 1))
    elif grep -q 'failed to fetch advisory database' "$logs/advisories"; then
        echo "skipped: security advisories: the RustSec database cannot be fetched from here"
        skipped=$((skipped + 1))
    else
        cat "$logs/advisories"
        echo "FAILED: security advisories"
        failed=$((failed + 1))
    fi
else
    echo "skipped: licences, bans and sources: cargo-deny could not be installed"
    skipped=$((skipped + 1))
fi

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
