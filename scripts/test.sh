#!/usr/bin/env bash
# Runs every check and test, and ends with a table of the stages, the slowest tests and the counts. Continues after a
# failure, so that one run shows everything that is wrong.
#
#   scripts/test.sh           the short form of everything
#   LONG=1 scripts/test.sh    the whole program as a release build, five minutes for each fuzz target, a thousand kills
#                             of a replay, a hundred power failures, an hour of the agent, a day replayed; a test that
#                             passes only when it is repeated fails the run
#   FUZZ_SECONDS=N            with LONG=1, seconds for each fuzz target, instead of 300
#   CI=true                   fails without root, where tests would be skipped
#
# Everything but the release build is a static program with musl, as users install it (with glibc where musl cannot be
# installed), and checked by Clippy and rustdoc while it is built; `make check` is for glibc.
# Three lanes run beside each other: the foreground builds the workspace and runs its tests and those of the lab; `lab`
# builds what the lab needs; `spare` does everything else, at the same priority: with a lower one it would end long after
# the others, on one processor.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
if [ "${CI:-}" = true ] && [ "$(id -u)" != 0 ]; then
    echo "CI=true: run this as root, or the tests of captures and of privileges would be skipped" >&2
    exit 1
fi
. scripts/tools.sh
. scripts/stages.sh
. scripts/musl/environment.sh
# The same random cases each time, so that no change fails by chance; another seed gives others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}

lane=lab
lab_lane() { stage "build the lab" make --no-print-directory -C lab setup-without-rust; }
lab_lane &
lab=$!

lane=main
stage "tools" tools
check "web app" make --no-print-directory web

# The list of programs lets the tests run while cargo builds something else, which locks the folder.
list_tests() {
    local code=0
    musl_environment || code=$?
    if [ $code = 77 ]; then
        add skipped 1
        echo "skipped: musl cannot be installed, so the program with glibc is tested"
    elif [ $code != 0 ]; then
        return 1
    fi
    cargo metadata --locked --format-version 1 >"$logs/metadata.json" &&
        RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc.sh cargo nextest list --workspace --locked \
            --list-type binaries-only --message-format json >"$logs/binaries.json"
}
check "build the workspace and its tests" list_tests
build_log=$(log_of "build the workspace and its tests")
grep '^skipped: ' "$build_log"
# Fails if the compiler, Clippy or rustdoc found something; Cargo and build scripts may warn.
no_findings() { ! sed -E '/^warning: ([a-z-]+@|.* generated [0-9]+ warning)/d' "$build_log" | grep -A12 '^warning'; }
check "clippy and documentation" no_findings
if [ ! -s "$logs/binaries.json" ]; then
    wait "$lab"
    summary
    exit 1
fi
built=$PWD/target/${CARGO_BUILD_TARGET:-}/debug
install -D "$built/examples/lab-driver" lab/bin/driver-rust
program=$built/mongosonar
# A test of the lab runs this in a virtual machine.
SONAR_SYS_TESTS=$(python3 -c 'import json, sys
print(json.load(sys.stdin)["rust-binaries"]["sonar-sys"]["binary-path"])' <"$logs/binaries.json")
export SONAR_SYS_TESTS

fuzz_targets() { sed -nE 's/^name = "(.*)"$/\1/p' fuzz/Cargo.toml | grep -v fuzz; }
# fuzz TARGET…: one after the other.
fuzz() {
    local target
    for target in "$@"; do
        check "fuzz $target" fuzz/run.sh "$target" "${FUZZ_SECONDS:-300}"
    done
}
advisories() {
    local code=0
    timeout 120 cargo deny check advisories >"$logs/advisories" 2>&1 || code=$?
    if grep -q 'failed to fetch advisory database' "$logs/advisories"; then
        echo "the RustSec database cannot be fetched from here"
        return 77
    fi
    cat "$logs/advisories"
    return $code
}
spare_lane() {
    lane=spare
    check "format" scripts/lint.sh --format
    # The benches are built only here.
    [ -z "${LONG:-}" ] ||
        check "clippy" cargo clippy --workspace --all-targets --features sonar-decode/bench --locked --quiet -- -D warnings
    if command -v cargo-deny >/dev/null; then
        check "licences, bans and sources" cargo deny check licenses bans sources
        check "security advisories" advisories
    else
        check "licences, bans and sources" sh -c 'echo "cargo-deny could not be installed"; exit 77'
    fi
    # The Go programs of the lab are checked once they are built, from the same cache.
    wait_for "build the lab" "$lab"
    check "lint" scripts/lint.sh --lint
    # The short form runs the targets as tests of the workspace.
    [ -n "${LONG:-}" ] || return 0
    yield_processors $BASHPID
    unset CARGO_BUILD_TARGET
    check "build the fuzz targets" fuzz/run.sh --build
    # Two at a time: each uses one processor.
    local targets half other
    mapfile -t targets < <(fuzz_targets)
    half=$((${#targets[@]} / 2))
    fuzz "${targets[@]:0:half}" &
    other=$!
    fuzz "${targets[@]:half}"
    wait "$other"
}
if [ -n "${LONG:-}" ]; then
    export REPLAY_KILLS=${REPLAY_KILLS:-1000} STORE_KILLS=${STORE_KILLS:-300} STORE_POWER_FAILURES=${STORE_POWER_FAILURES:-100}
    export HOSTILE_ROUNDS=${HOSTILE_ROUNDS:-1000000}
fi
spare_lane &
spare=$!

# run_lab STAGE TARGET [VARIABLE=VALUE…]: runs tests of the lab.
run_lab() {
    stage "lab: $1" make --no-print-directory -C lab "${@:2}" MONGOSONAR="$program"
}
# lab_tests TARGET [COMMAND]: runs tests of the lab and counts them. Those that fail run once more, one after the other,
# with the command in front.
lab_tests() {
    local log code=0 again=$logs/again-$1
    log=$(log_of "lab: $1")
    run_lab "$1" "$1" || code=$?
    note_durations "$log"
    failed_tests "$log" >"$again"
    # Where pytest did not run to its end, the other tests have not run.
    if [ $code != 0 ] && [ -s "$again" ] && [ "$repeats" != 0 ] && ! grep -qE 'Interrupted:|INTERNALERROR' "$log"; then
        grep -E '^(FAILED|ERROR) ' "$log"
        add passed "$(pytest_count "$log" passed)" skipped "$(pytest_count "$log" skipped)"
        code=0
        run_lab "$1 again" test-again AGAIN="$again" WITHIN="${2:-}" || code=$?
        log=$(log_of "lab: $1 again")
        if [ $code = 0 ]; then sed 's/^/lab: /' "$again" >>"$logs/repeated"; fi
    fi
    count_pytest "$log" $code
}
# Their namespaces keep them from the servers of others. They wait more than they compute, so they run beside the tests of the
# workspace; an agent that one of those starts may see their servers, which none counts.
apart_lane() {
    lane=apart
    wait_for "build the lab" "$lab"
    [ "$(code_of "build the lab")" != 0 ] || lab_tests test-apart ./apart.sh
}
apart=''
if [ -z "${LONG:-}" ]; then
    apart_lane &
    apart=$!
fi

workspace_tests() {
    # One more than there are processors, as some wait for the disk.
    cargo nextest run --binaries-metadata "$logs/binaries.json" --cargo-metadata "$logs/metadata.json" \
        --test-threads $(($(nproc) + 1)) --retries "$repeats" --status-level all
}
code=0
stage "tests of the workspace" workspace_tests || code=$?
count_nextest "$(log_of "tests of the workspace")" "$code"

wait "$lab"
if [ "$(code_of "build the lab")" = 0 ]; then
    if [ -n "${LONG:-}" ]; then
        program=$PWD/target/release/mongosonar
        check "release build" env -u CARGO_BUILD_TARGET cargo build --release --locked --quiet -p mongosonar
        # For the packages of the other architecture. Where that is impossible, their test says so.
        case $(uname -m) in x86_64) other=aarch64 ;; *) other=x86_64 ;; esac
        stage "static binary for $other" scripts/dist-musl.sh dev "$other"
    fi
    if [ -n "$apart" ]; then wait "$apart"; else lab_tests test-apart ./apart.sh; fi
    lab_tests test-beside
    # Clippy keeps the processors busy, which tests that measure would report.
    wait "$spare"
    lab_tests test-alone
else
    fail "the lab could not be built" "$(log_of "build the lab")"
fi
wait "$spare"

summary
