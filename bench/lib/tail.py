"""Capacity of `profiler tail --json`: documents a second of processor time, over documents that a mock mongod holds."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lab/tests"))
import test_profiler  # noqa: E402

import labkit  # noqa: E402

COUNT, TARGET = 40_000, 20_000


def main():
    with test_profiler.mongod("8.0") as mock:
        for first in range(0, COUNT, 5_000):
            mock.write(5_000, first, size=1 << 30)
        begun = os.times()
        command = [
            labkit.MONGOSONAR,
            "profiler",
            "tail",
            "--db",
            "shop",
            "--json",
            "-n",
            str(COUNT),
            "--count",
            str(COUNT),
            mock.uri,
        ]
        with open("/dev/shm/mongosonar-tail.jsonl", "w+") as out:
            os.unlink(out.name)
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            out.seek(0)
            lines = sum(1 for line in out if json.loads(line)["shape_id"])
    assert status == 0 and lines == COUNT, f"status {status}, {lines} of {COUNT} documents: no figure"
    rate = COUNT / (usage.ru_utime + usage.ru_stime)
    wall = COUNT / (os.times().elapsed - begun.elapsed)
    print(
        f"{rate:,.0f} documents a second of processor time ({wall:,.0f} a second as the mock gave them), target {TARGET:,}: "
        f"{'met' if rate >= TARGET else 'MISSED'}"
    )


main()
