#!/bin/sh
# What listening takes from a server that is busy: the lab's server under a load that uses the machine to the
# full, with mongosonar listening and without, in turns; the loss of throughput with its 95 % interval.
# ALTERNATIONS (30) and SECONDS_EACH (2) may be given in the environment.
. "$(dirname "$0")/lib/common.sh"

need_root
have go || skip "needs go"
build -p mongosonar
make --quiet --no-print-directory -C lab bin/server >&2
build_go lab/drivers/go load ./load
measure --alone server_cost
