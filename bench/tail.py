#!/usr/bin/env python3
"""`profiler tail --json` over documents of system.profile that a mock mongod holds: documents a second of its processor
time."""

import json
import os
import sys

from lib.kit import MONGOSONAR, ROOT, build, figure, folder, main, median, rounds, run, skip

COUNT = 40_000
ROUNDS = rounds(3, 7)


def bench():
    from profilers import mongod

    with mongod("8.0") as mock, folder() as work:
        for first in range(0, COUNT, 5_000):
            mock.write(5_000, first, size=1 << 30)
        out = work / "tail.json"
        options = ["--db", "shop", "--json", "-n", COUNT, "--count", COUNT, mock.uri]
        each = []
        for _ in range(ROUNDS):
            each.append(run([MONGOSONAR, "profiler", "tail", *options], into=out))
            with open(out, encoding="utf-8") as file:
                lines = sum(1 for line in file if json.loads(line)["shape_id"])
            if lines != COUNT:
                sys.exit(f"it printed {lines} of {COUNT} documents")
    figure("speed", COUNT / median([one.cpu for one in each]), "documents/s", least=20_000)
    figure("speed by the clock, as the mock gives them", COUNT / median([one.wall for one in each]), "documents/s")


# The mock belongs to the tests of the lab, which need the packages of the lab's own Python.
venv = ROOT / "lab/.venv"
if not (venv / "ready").exists():
    skip("it needs the lab's Python: make -C lab .venv/ready")
if sys.prefix != str(venv):
    os.execv(venv / "bin/python", [venv / "bin/python", "-B", *sys.argv])
sys.path.insert(0, str(ROOT / "lab/tests"))
build("-p", "mongosonar")
main(bench)
