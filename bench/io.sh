#!/bin/sh
# What `io record` and `io live` cost: the kernel's own figures of their programs over a fetch through an index of
# real WiredTiger, and the run time of the fetch with and without them by turns; what they lose at a high rate;
# time and memory of a report of ten million accesses; bpftrace and fileslower doing the like, where they are installed
# and the kernel lets them. PARTS="cost losses report beside" chooses among these.
. "$(dirname "$0")/lib/common.sh"

[ "$(id -u)" = 0 ] || skip "needs root: it traces, and drops the page cache"
have python3 || skip "needs python3"
build -p mongosonar
make --no-print-directory -s -C lab bin/study || skip "needs libwiredtiger-dev"
measure io
