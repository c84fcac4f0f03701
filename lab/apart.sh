#!/usr/bin/env bash
# Runs a command that sees only its own processes, and only a loopback interface of its own. Without root it runs beside
# everything else, and the tests that need this are skipped.
#
#   lab/apart.sh COMMAND…
set -euo pipefail
[ "$(id -u)" = 0 ] || exec "$@"
# The shell stays: it is the first process there, which waits for those that have lost their parents.
# shellcheck disable=SC2016
exec unshare --fork --pid --net --mount-proc sh -c 'ip link set lo up && "$@"' sh "$@"
