#!/bin/sh
# What listening keeps in memory: 10,000 open connections, 2,000 query shapes, and of each shape the figures of
# 16 applications and 32 client hosts; resident memory with and without the ring, as JSON and in the live view.
. "$(dirname "$0")/lib/common.sh"

need_root
build -p mongosonar
measure --alone memory
