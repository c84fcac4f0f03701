#!/bin/sh
# Logs from the page cache to the final digest, on one processor: JSON beside a plain serde_json reading, text
# beside mtools' mloginfo; and peak memory over a large file with 5,000 shapes (LOG_GB, default 2).
. "$(dirname "$0")/lib/common.sh"

build -p mongosonar
build -p sonar-decode --example log_rate
measure logs
