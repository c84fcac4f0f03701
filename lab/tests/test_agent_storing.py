"""What a running agent does while it cannot store, and when the clock is set."""

import contextlib
import datetime
import errno
import os
import re
import sqlite3
import subprocess
import tarfile
import time

import pytest
from test_agent import agent, described, free_port, mongod, slow_query
from writing import WINDOW_S, Writer, answering_mongod, iso, stored, window_of

import labkit
import vm

MIB = 1 << 20
NS = 10**9


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """A file system of `mebibytes` MiB in memory, mounted at `folder`."""
    folder.mkdir(mode=0o700)
    options = f"size={mebibytes}m,mode=700"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a file system: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path):
    """Writes until there is not a byte of room."""
    with open(path, "ab", buffering=0) as file:
        for size in (MIB, 4_096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC


def timeline(store, *span):
    return labkit.document("timeline", *(span or ("--from", "-1h")), "--json", "--store", store, timeout=60)


@pytest.mark.root
def test_a_full_disk_is_reported_once_and_counted_and_the_agent_recovers_by_itself(tmp_path):
    store, port, busy, log = tmp_path / "store", free_port(), free_port(), tmp_path / "busy.log"
    (tmp_path / "busy").mkdir()
    log.touch()
    config = f'[collectors]\nfiles = false\n[queries]\ninterface = ["lo"]\nport = [{busy}]\n' + described(busy, log)
    with (
        small_disk(store, 32),
        answering_mongod(tmp_path / "busy", busy),
        agent(tmp_path, config) as running,
        contextlib.ExitStack() as stack,
    ):
        # It begins at the end of the log.
        running.wait_for("log", "working")
        ballast, begun = store / "ballast", time.time()
        writer = stack.enter_context(Writer(log, busy, turns=50))
        labkit.wait_until(lambda: running.status()["windows"] >= 2, "two windows")
        fill(ballast)
        full = time.time()
        labkit.wait_until(lambda: running.status()["windows_lost"] >= 1, "a lost window")
        # The disk stays full, with another number of free bytes; a server starts meanwhile.
        with open(ballast, "ab") as file:
            file.truncate(ballast.stat().st_size - MIB // 2)
        with mongod(tmp_path, port):
            labkit.wait_until(lambda: running.status()["windows_lost"] >= 3, "more lost windows")
            status = running.status()
            text = labkit.run("agent", "--status", "--store", store).stdout
            fill(ballast)
            ballast.unlink()
            free = time.time()
            labkit.wait_until(lambda: running.status()["store_problem"] is None, "windows that are stored again")
            again = running.status()
            labkit.wait_until(lambda: running.status()["windows"] >= again["windows"] + 2, "two more windows")
        writer.close()
        ended = time.time()
        assert running.stop() == 0
        shown = timeline(store)
        lines, commands = stored(store, window_of(begun), window_of(ended) + WINDOW_S, busy)
    # The status was written while there was not a byte of room.
    assert time.time() - status["written_ns"] / NS < 120 and status["written_ns"] / NS > full
    assert "make room there" in status["store_problem"] and status["windows"] < again["windows"] + 2
    assert re.search(r"^NOT STORING: .* make room there$", text, re.M), text
    assert re.search(r"^LOST: [34] windows could not be stored$", text, re.M), text
    err = running.errors()
    lost = int(re.search(r"windows are stored again, (\d+) windows could not be", err)[1])
    assert lost == again["windows_lost"] >= 3
    assert err.count("windows are not stored: ") == 1 and err.count("windows are stored again") == 1, err
    # Of a window there is all or nothing, and nothing twice.
    lacking = [window for window, tally in writer.tallies().items() if lines[window] != tally]
    assert len(lacking) <= lost and not any(lines[window] for window in lacking), (lacking, lines)
    assert all(count <= writer.commands_of(window)[1] for window, count in commands.items()), commands
    assert "a window is lost" not in err and "status cannot be written" not in err, err
    # The gap is marked as not observed, with the reason.
    (gap,) = [
        gap
        for gap in shown["gaps"]
        if gap["what"] == "agent" and gap["observed"] == 0 and gap["start_ns"] / NS > full - 40
    ]
    assert (gap["end_ns"] - gap["start_ns"]) / NS == 10 * lost, (gap, lost)
    assert gap["start_ns"] / NS < full < free < gap["end_ns"] / NS + 40
    problems = [event for event in shown["events"] if event["kind"] == "store_problem"]
    assert len(problems) == 2 and "not stored" in problems[0]["sentence"] and "again" in problems[1]["sentence"], (
        problems
    )
    # What happened meanwhile is not lost.
    assert any(event["kind"] == "server_start" and event["server"] == port for event in shown["events"]), shown[
        "events"
    ]


# Writes one line a second with the time of the clock. Prints each step: the latest time that the clock can have had before
# it, as a busy emulator takes seconds to start `date`, the time that it was set to, and the uptime.
CLOCK_SCRIPT = """
    mkdir -p /data
    touch /data/mongod.log
    /bin/mongod --listen 127.0.0.1:27017 --demo --slower 20 > /tmp/server.out 2>&1 &
    cat > /tmp/agent.toml <<END
[collectors]
files = false
[[server]]
port = 27017
log = "/data/mongod.log"
END
    step() {
        read then rest < /proc/uptime
        before=$(date +%s)
        [ $1 = 0 ] || date -s "@$(($before + $1))" > /dev/null
        read now rest < /proc/uptime
        echo "$(($before + ${now%.*} - ${then%.*} + 1)) $(($before + $1)) ${now%.*}"
    }
    step 0
    mongosonar agent --keep-privileges --store /tmp/store --config /tmp/agent.toml 2> /tmp/agent.err &
    agent=$!
    status() { mongosonar agent --status --store /tmp/store 2> /dev/null; }
    until status | grep -q '^log  *working' && status | grep -q '^queries  *working'; do sleep 1; done
    lines=0
    # For $1 seconds of the uptime, which nobody can set.
    work() {
        read now rest < /proc/uptime
        end=$((${now%.*} + $1))
        while [ ${now%.*} -lt $end ]; do
            sed "s/AT/$(date -u +%Y-%m-%dT%H:%M:%S)/" /line >> /data/mongod.log
            lines=$((lines + 1))
            sleep 1
            read now rest < /proc/uptime
        done
    }
    step 0
    work 25
    step 3600
    work 25
    # Back into a time whose windows are stored: they are added to.
    step -3640
    work 35
    sleep 3
    kill $agent
    wait $agent
    step 0
    echo "$lines"
    cat /tmp/agent.err >&2
    tar -c -f /tmp/store.tar -C /tmp store
"""


@pytest.mark.vm
@pytest.mark.skipif(not os.environ.get("LONG"), reason="it computes for a minute; LONG=1 lets it run")
def test_a_clock_that_is_set_makes_no_duplicates_and_no_unmarked_gap(tmp_path):
    """In a virtual machine, where the clock may be set, with all sources and the kernel's own times of packets."""
    program, line = tmp_path / "mongosonar", tmp_path / "line"
    subprocess.run(["strip", "-g", "-o", program, labkit.MONGOSONAR], check=True)
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    line.write_text(slow_query(at.timestamp()).replace("2026-01-01T00:00:00", "AT") + "\n")
    files = [(program, "/bin/mongosonar"), (labkit.LAB / "bin/server", "/bin/mongod"), (line, "/line")]
    done = vm.run(
        CLOCK_SCRIPT, files=files, memory=1_024, processors=2, take=["/tmp/store.tar"], disks=[64], seconds=900
    )
    assert done.code == 0, done
    *steps, (lines,) = [[int(word) for word in line.split()] for line in done.out.splitlines()]
    (tmp_path / "store.tar").write_bytes(done.taken["/tmp/store.tar"])
    with tarfile.open(tmp_path / "store.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    (_, launched, _), (_, _, began), (ahead_from, ahead_to, jumped), (back_from, back_to, returned), (end, _, ended) = (
        steps
    )
    elapsed = ended - began
    print(f"{lines} lines in {elapsed} s, {steps}\n{done.err}")
    # Each line once, although the same time came twice.
    rows = labkit.documents("queries", "--store", store, "--from", iso(back_to - 600), "--json")[-1]["rows"]
    slow = [row for row in rows if row["collection"] == "carts"]
    assert sum(row["calls"] for row in slow) == lines, rows
    # No window is of a time that the clock skipped, but for the seconds between two readings: what a source observed
    # between the one before the step and the one after it is of the time that the clock shows afterwards.
    starts = []
    for file in sorted(store.glob("*.db")):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
            starts += [start for (start,) in database.execute("SELECT start FROM windows WHERE width = 10")]
    was_there = lambda start: (
        launched < start + 10 and start <= end + 10 or ahead_to <= start + 20 and start <= back_from
    )
    assert len(starts) == len(set(starts)), starts
    strays = [start for start in starts if not was_there(start)]
    assert not strays, (strays, steps)
    # The skipped hour is a gap of all collectors, to the minute; the time around it is not.
    shown = timeline(store, "--from", iso(back_to - 60), "--to", iso(back_from + 60))
    (gap,) = [gap for gap in shown["gaps"] if gap["what"] == "agent" and gap["end_ns"] - gap["start_ns"] > 3_000 * NS]
    assert 0 <= gap["start_ns"] / NS - (end - 60) <= 120 and 0 <= ahead_to - gap["end_ns"] / NS + 60 <= 120, (
        gap,
        steps,
    )
    assert gap["observed"] < 0.02
    texts = [event["sentence"] for event in shown["events"] if event["kind"] == "clock_step"]
    assert sorted(re.sub(r"\d+\.\d", "N", text) for text in texts) == [
        "the clock was set back by N s",
        "the clock was set forward by N s",
    ], texts
    words = ["--from", iso(back_to - 60), "--to", iso(back_from + 60), "--store", store]
    changed = labkit.run("what-changed", *words, code=None)
    assert changed.returncode in (0, 4), changed
    assert all(text in changed.stdout for text in texts), changed.stdout
