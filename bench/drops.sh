#!/bin/sh
# How many frames a second can be followed: 500,000 small frames a second on a veth pair between two network
# namespaces, all of them decoded, none dropped by the kernel; and how many come through as fast as they are
# sent.
. "$(dirname "$0")/lib/common.sh"

need_root
build -p mongosonar
measure --alone drops
