#!/bin/sh
# disk bench beside fio: same file size, record, direct I/O and number in flight, by turns. Prints for each
# the operations per second of both, the ratio with its interval of 95 %, and CPU and instructions per
# operation. What is not installed (fio, perf counters) is left out with a message.
#
#   bench/disk.sh [DIR]    PAIRS=7 SECONDS_EACH=3 choose how many pairs and how long
set -eu
cd "$(dirname "$0")/.."
command -v fio >/dev/null || { echo "skipped: fio is not installed"; exit 0; }
cargo build --quiet --release --locked -p mongosonar
exec python3 bench/disk.py "${CARGO_TARGET_DIR:-target}/release/mongosonar" "${1:-target}" \
    --pairs "${PAIRS:-7}" --seconds "${SECONDS_EACH:-3}"
