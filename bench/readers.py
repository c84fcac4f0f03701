#!/usr/bin/env python3
"""JSON readers that visit every element of recorded log lines: ours beside serde_json, sonic-rs and simd-json."""

import re

from lib.kit import MONGOSONAR, ROOT, build, figure, main, output

LOG = ROOT / "fixtures/mongod-4.4-minutes/mongod.log.gz"


def bench():
    found = re.findall(r"([\d.]+) MB/s, [\d.]+ times our time: (.*)", output([MONGOSONAR.parent / "json", LOG]))
    ours = float(found[0][0])
    for speed, name in found[1:]:
        figure(f"JSON lines, beside {name}", ours, "MB/s", peer=name, peer_value=float(speed))


build("--manifest-path", "bench/readers/Cargo.toml", "--target-dir", str(MONGOSONAR.parent.parent))
main(bench)
