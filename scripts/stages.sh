# shellcheck shell=bash
# Sourced by test.sh: runs stages, keeps how long each took, and adds up the counts of tests. The output of a stage is
# in target/test-logs.
logs=$PWD/target/test-logs
rm -rf "$logs"
mkdir -p "$logs"
trap 'kill $(jobs -p) 2>/dev/null' EXIT
: >"$logs/stages"
: >"$logs/counts"
: >"$logs/repeated"
: >"$logs/tests"
lane=main
# How often a failed test is run again. A test that passes only then is named; before a release it counts as failed.
export repeats=1
[ -z "${LONG:-}" ] || repeats=0

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
# log_of STAGE: the file with its output.
log_of() { echo "$logs/$(tr -c 'a-z0-9\n' '-' <<<"$1").log"; }
# code_of STAGE: the exit code of a stage that has ended.
code_of() { awk -F '\t' -v name="$1" '$5 == name {print $4}' "$logs/stages" | tail -1; }
# wait_for STAGE PID: until a stage of another lane has ended, or the lane.
wait_for() { until [ -n "$(code_of "$1")" ] || ! kill -0 "$2" 2>/dev/null; do sleep 1; done; }
# add WHAT COUNT…: passed, failed or skipped.
add() {
    while [ $# -gt 0 ]; do
        echo "$1 $2" >>"$logs/counts"
        shift 2
    done
}
total() { awk -v what="$1" '$1 == what {sum += $2} END {print sum + 0}' "$logs/counts"; }

# processor_seconds PID: what the ended children of a shell, and theirs, have used.
processor_seconds() {
    local stat
    read -r stat <"/proc/$1/stat"
    read -ra stat <<<"${stat##*) }"
    echo $(((stat[13] + stat[14]) / $(getconf CLK_TCK)))
}
# stage NAME COMMAND…: runs it, and keeps its output, its time, its processor time and its exit code.
stage() {
    local name=$1 began=$SECONDS code=0 shell=$BASHPID used
    used=$(processor_seconds "$shell")
    shift
    echo "== $name [$(clock "$began")]"
    "$@" >"$(log_of "$name")" 2>&1 </dev/null || code=$?
    used=$(($(processor_seconds "$shell") - used))
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$lane" "$began" $((SECONDS - began)) $code "$name" $used >>"$logs/stages"
    echo "   $name: exit code $code after $(clock $((SECONDS - began))) [$(clock $SECONDS)]"
    return $code
}
# fail NAME LOG: counts a failure and shows the end of its output.
fail() {
    add failed 1
    printf 'FAILED: %s\n%s\n' "$1" "$(tail -60 "$2")"
}
# check NAME COMMAND…: a stage that passes or fails as a whole; 77 means that it cannot run here.
check() {
    local code=0
    stage "$@" || code=$?
    case $code in
    0) add passed 1 ;;
    77)
        add skipped 1
        echo "skipped: $1: $(tail -1 "$(log_of "$1")")"
        ;;
    *) fail "$1" "$(log_of "$1")" ;;
    esac
}
# yield_processors PID: it and what it starts run only when nothing else wants to.
yield_processors() { chrt --idle --pid 0 "$1" 2>/dev/null || renice -n 19 -p "$1" >/dev/null; }

# count_nextest LOG CODE: adds its tests to the counts, and names those that failed or passed only when repeated.
count_nextest() {
    local log=$1 without
    of() { sed -nE "s/^ *Summary .* ([0-9]+) $1.*/\1/p" "$log" | awk '{sum += $1} END {print sum + 0}'; }
    grep -E '^ +(FAIL|TIMEOUT|SLOW|Summary)|^error|^ *skipped[:,]' "$log" | sort -u
    # What a test prints when it cannot run here.
    without=$(grep -cE '^ *skipped[:,]' "$log")
    add passed $(($(of passed) - without)) skipped "$without" failed $(($(of failed) + $(of 'timed out')))
    sed -nE 's/^ +(FLAKY) [0-9/]+ \[[^]]*\] *(\([^)]*\))? *(.*)/\3/p' "$log" | sort -u >>"$logs/repeated"
    sed -nE 's/^ +PASS \[ *([0-9.]+)s\] *(\([^)]*\))? *(.*)/\1 \3/p' "$log" >>"$logs/tests"
    if [ "$2" != 0 ]; then
        # Failed tests have their output in the log, between the headings of nextest.
        sed -nE '/^ +(TRY [0-9]+ )?(FAIL|TIMEOUT) .*$/,/^ +(PASS|Summary)/p' "$log" | head -300
        [ "$(of failed)$(of 'timed out')" != 00 ] || fail "tests of the workspace" "$log"
    fi
}
# pytest_count LOG WHAT: how many tests have `passed`, `failed`, ...
pytest_count() { grep -E ' in [0-9.]+s' "$1" | sed -nE "s/.*\b([0-9]+) $2.*/\1/p" | awk '{sum += $1} END {print sum + 0}'; }
# failed_tests LOG: the ids of tests that failed, without the group that the runner adds.
failed_tests() { sed -nE 's/^(FAILED|ERROR) ([^ ].*)$/\2/p' "$1" | sed -E 's/ - .*//; s/@[a-z_0-9]+$//' | sort -u; }
# note_durations LOG: keeps how long the tests of the lab took that are in it.
note_durations() {
    sed -nE 's/^([0-9.]+)s (call|setup|teardown) +(.*)/\1 lab: \3 (\2)/p' "$1" | sed -E 's/@[a-z_0-9]+ / /' >>"$logs/tests"
}
# count_pytest LOG CODE: adds its tests to the counts, and shows those that failed or were skipped.
count_pytest() {
    local wrong
    wrong=$(($(pytest_count "$1" failed) + $(pytest_count "$1" error)))
    add passed "$(pytest_count "$1" passed)" skipped "$(pytest_count "$1" skipped)" failed $wrong
    grep -E '^(SKIPPED|[0-9]+ (passed|failed).* in )' "$1"
    [ "$2" = 0 ] || sed -nE '/^=+ (FAILURES|ERRORS)/,$p' "$1" | head -400
    [ "$2" = 0 ] || [ $wrong != 0 ] || fail "the tests could not be run to their end" "$1"
}

# Prints the table of stages, the slowest tests, the tests that were repeated, and the counts; fails if a test failed.
summary() {
    printf '\n%-6s %7s %7s %9s  %s\n' lane began took processor stage
    sort -t "$(printf '\t')" -k2,2n "$logs/stages" | while IFS=$'\t' read -r in began took code name used; do
        case $name in "fuzz "*) continue ;; esac
        printf '%-6s %7s %7s %9s  %s%s\n' "$in" "$(clock "$began")" "$(clock "$took")" "$(clock "$used")" "$name" \
            "$([ "$code" = 0 ] || echo " (exit code $code)")"
    done
    sort -t "$(printf '\t')" -k2,2n "$logs/stages" | awk -F '\t' '$5 ~ /^fuzz / {
        if (!n++) began = $2
        if ($2 + $3 > ended) ended = $2 + $3
        used += $6
    } END {
        took = ended - began
        if (n) printf "%-6s %4d:%02d %4d:%02d %6d:%02d  %d fuzz targets\n", "spare", began / 60, began % 60, took / 60, took % 60, used / 60, used % 60, n
    }'
    printf '\nThe slowest tests, in seconds:\n'
    sort -u "$logs/tests" | sort -rn | head -25
    if [ -s "$logs/repeated" ]; then
        printf '\nPassed only when repeated, each a fault in the test or in the program:\n'
        cat "$logs/repeated"
    fi
    printf '\nThe whole run took %s.\n' "$(clock $SECONDS)"
    echo "$(total passed) passed, $(total failed) failed, $(total skipped) skipped"
    [ "$(total failed)" = 0 ]
}
