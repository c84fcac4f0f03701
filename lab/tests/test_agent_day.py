"""A day of the agent, replayed: recordings of minutes, moved in time until they fill it. A part of it, and with LONG=1
all of it."""

import datetime
import json
import os
import pathlib
import sqlite3
import subprocess
import sys

import pytest
from test_agent import slow_query

import labkit

BENCH = labkit.LAB.parent / "bench"
sys.path.insert(0, str(BENCH))
from lib import diagnostic  # noqa: E402

FIXTURES = labkit.LAB.parent / "fixtures"
HOURS = 24 if os.environ.get("LONG") else 2
BEGAN = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
# The recorded capture takes seven of these seconds, and 4 MB.
EVERY = 600
MIB = 1 << 20


def log_of(path, seconds, step):
    """A log with a slow operation each `step` seconds; returns their number."""
    times = range(0, seconds, step)
    path.write_text("".join(slow_query(BEGAN.timestamp() + time) + "\n" for time in times))
    return len(times)


# The peak of a process includes what its parent had when it started it, so a small one starts it and asks.
PEAK = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)"""


def replay(store, config, *inputs):
    """The summary of a replay, and its peak of memory in bytes."""
    words = ["agent", "--json", "--store", store, "--config", config, "--port", "27117", "--replay", *inputs]
    done = labkit.run(*words, prefix=[sys.executable, "-I", "-S", "-c", PEAK])
    return json.loads(done.stdout), int(done.stderr.splitlines()[-1]) * 1024


def widths(file):
    """The widths of the windows that a day has, with their numbers."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        return dict(database.execute("SELECT width, COUNT(*) FROM windows GROUP BY width"))


def test_a_day_is_replayed_in_bounded_memory_and_room(tmp_path):
    seconds = HOURS * 3_600
    log, capture, folder, config = (
        tmp_path / name for name in ("mongod.log", "wire.pcap", "diagnostic.data", "a.toml")
    )
    folder.mkdir()
    config.write_text("")
    slow = log_of(log, seconds, 5)
    files = diagnostic.copies(folder, BEGAN.replace(tzinfo=None))
    for _ in range(seconds // diagnostic.STEP):
        next(files)
    words = [sys.executable, BENCH / "lib/multiply.py", FIXTURES / "mongod-4.4-minutes/wire.pcap.gz", capture]
    words += [seconds // EVERY, "--begin", int(BEGAN.timestamp()), "--every", EVERY]
    made = json.loads(subprocess.run([str(word) for word in words], capture_output=True, check=True).stdout)
    store = tmp_path / "store"
    summary, memory = replay(store, config, log, capture, folder)
    size = sum(file.stat().st_size for file in pathlib.Path(store).iterdir())
    collectors = {one["name"]: one for one in summary["collectors"]}
    print(f"{summary['windows']} windows, {size / MIB:.1f} MiB stored, {memory / MIB:.0f} MiB of memory, {made}")
    assert summary["windows"] == seconds // 10 and summary["windows_lost"] == 0
    assert collectors["log"]["operations"] == slow
    assert collectors["queries"]["operations"] > 100 * (seconds // EVERY)
    # A sample each second, and nothing between two of the recordings.
    assert collectors["internals"]["observed_ns"] / 1e9 >= 0.95 * seconds
    # The last minute and the last hour are the sum of their parts until they end.
    stored = widths(store / "2026-11-20.db")
    assert stored[10] == seconds // 10 and stored[60] >= seconds // 60 - 1 and stored[3600] >= HOURS - 1, stored
    assert memory < 200 * MIB, memory
    # A gigabyte for 30 days, two of which have windows of 10 s: those are most of it.
    assert size < HOURS / 24 * 120 * MIB + MIB, size


@pytest.mark.skipif(not os.environ.get("LONG"), reason="it takes a minute; LONG=1 lets it run")
def test_windows_become_coarser_as_they_grow_old(tmp_path):
    log, config, store = tmp_path / "mongod.log", tmp_path / "a.toml", tmp_path / "store"
    config.write_text('[store]\nkeep-10s = "1d"\nkeep-1min = "2d"\nkeep-1h = "3d"\n')
    days, step = 5, 1_800
    log_of(log, days * 86_400, step)
    summary, _ = replay(store, config, log)
    # A log is observed from its first line to its last.
    assert summary["windows"] == (days * 86_400 - step) // 10 + 1 and summary["windows_lost"] == 0
    stored = {file.stem: widths(file) for file in sorted(store.glob("*.db"))}
    newest = list(stored.values())[::-1]
    assert "2026-11-20" not in stored and "2026-11-24" in stored, stored
    assert newest[0][10] == (86_400 - step) // 10 + 1
    assert any(10 not in day and day.get(60) == 1_440 for day in newest), stored
    assert any(10 not in day and 60 not in day and day.get(3600) == 24 for day in newest), stored
    # What is older is never finer.
    finest = [min(day) for day in newest]
    assert finest == sorted(finest), stored
