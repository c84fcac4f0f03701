#!/bin/sh
# What `profiler tail --json` does with one processor: documents of system.profile a second of processor time.
. "$(dirname "$0")/lib/common.sh"

[ -x lab/.venv/bin/python ] || skip "needs the lab's Python: make -C lab .venv/ready"
build -p mongosonar
exec lab/.venv/bin/python -B bench/lib/tail.py
