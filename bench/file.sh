#!/bin/sh
# The whole way from a capture file in the page cache to final figures: frames a second on one processor,
# instructions a frame, peak memory; beside tshark and beside a Go pipeline on the same mixed file; and what
# each stage adds.
. "$(dirname "$0")/lib/common.sh"

build -p mongosonar
build_go lab/peers pipeline ./pipeline || echo "skipped: the Go pipeline needs go"
python3 -B bench/lib/file.py

echo "== stages (lower bound, estimate, upper bound)"
# A name may stand in the line of its time or in the one before; lines with % compare with an earlier run.
cargo bench --quiet --locked -p sonar-decode --bench stages -- --noplot 2>/dev/null |
    awk '/%/ { next }
        /time: +\[/ { if (/^[^ ]/) { name = $0; sub(/ +time:.*/, "", name) } }
        /^[^ ]/ && !/time:/ { name = $0 }
        /(time|thrpt): +\[/ { line = $0; sub(/.*(time|thrpt): +/, "", line); printf "  %-50s %s\n", name, line }'
