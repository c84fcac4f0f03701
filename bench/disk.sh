#!/bin/sh
# disk bench beside fio by turns: same record, direct I/O and number in flight, on the file that mongosonar made (a
# second name keeps it for fio). Prints for each the operations per second of both, the ratio with its interval of
# 95 % and whether that includes 1 and excludes 0.95, and CPU per operation; then instructions per operation in user
# mode, as valgrind counts them. What is not installed (fio, valgrind) is left out with a message.
#
#   bench/disk.sh [DIR]    PAIRS=7 SECONDS_EACH=3 choose how many pairs and how long
set -eu
cd "$(dirname "$0")/.."
command -v fio >/dev/null || {
    echo "skipped: fio is not installed"
    exit 0
}
cargo build --quiet --release --locked -p mongosonar
exec python3 bench/disk.py "${CARGO_TARGET_DIR:-target}/release/mongosonar" "${1:-target}" \
    --pairs "${PAIRS:-7}" --seconds "${SECONDS_EACH:-3}"
