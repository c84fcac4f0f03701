#!/bin/sh
# What `io record` and `io live` cost: the kernel's own figures of their programs over a fetch through an index of
# real WiredTiger, and the run time of the fetch with and without them by turns, with a page cache that holds what
# is read and with one that does not; what they lose at a high rate;
# time and memory of a report of ten million accesses; bpftrace and fileslower over the same fetch by turns, where
# they are installed and the kernel lets them; at the functions of the VFS beside bcc's filetop and ext4slower, in
# the lab's virtual machine.
. "$(dirname "$0")/lib/common.sh"

[ "$(id -u)" = 0 ] || skip "needs root: it traces, and drops the page cache"
have python3 || skip "needs python3"
build -p mongosonar
make --no-print-directory -s -C lab bin/study || skip "needs libwiredtiger-dev"
python3 -B bench/lib/io.py
python3 -B bench/lib/io_beside.py
measure io_vm
