#!/bin/sh
# What listening costs: 10,000 frames a second and 60 Mbit/s of recorded traffic on loopback, in a network
# namespace of its own; processor time of mongosonar, with whole replies and with --snap-replies, beside what
# the host spends in software interrupts.
. "$(dirname "$0")/lib/common.sh"

need_root
build -p mongosonar
measure --alone live
