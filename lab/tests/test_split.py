"""Where the time of each row of `queries` went, against the lab's own server, whose commands take a known time at a
known place. The server (lab/threaded) is not MongoDB, but it serves as mongod does: one thread for each connection, on
the real WiredTiger.
"""

import concurrent.futures
import contextlib
import csv
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pymongo
import pymongo.monitoring
import pytest

import labkit
from labkit import ask_threaded as ask

PORT = 28019
RESTARTED_PORT = 28020
OTHER_PORT = 28021
LATER_PORT = 28022


@pytest.fixture(scope="module")
def served(traced_server):
    return traced_server(PORT)


def client(port=PORT):
    return labkit.client(port, "lab-split")


def arguments(served, *more):
    return ["--interface", "lo", "--port", PORT, "--split", "--pid", served.pid, *more]


def until_traced(database, sonar, since=0):
    """The trace begins a moment after the capture. `since`: lines before do not count."""

    def is_traced():
        ask(database, {"burn": 1})
        return any(row["split"] for line in sonar.lines()[since:] for row in line["rows"])

    labkit.wait_until(is_traced, "a row with its split")


def row_of(summary, step):
    [row] = [row for row in summary["rows"] if f"{{{step}: ?number}}" in row["shape"]]
    return row


def share(row, part):
    return next((one["share"] for one in row["split"]["parts"] if one["part"] == part), 0)


def mean_ns(row):
    return row["split"]["total_ns"] / row["split"]["operations"]


ROUNDS = 10


def test_rows_tell_where_the_time_of_their_operations_went(served, tmp_path):
    with client() as connected, labkit.live_capture(tmp_path, arguments(served, "--json", "--by", "wait")) as sonar:
        until_traced(connected.lab, sonar)
        for _ in range(ROUNDS):
            ask(connected.lab, {"burn": 20})
            ask(connected.lab, {"sleep": 20})
            labkit.wait_for_a_lock(served.pid, connected.lab, 100)
        labkit.wait_until_connections_rest(served.pid)
        lines = sonar.stop()
    summary = labkit.summary(lines)
    for row in summary["rows"]:
        split = row["split"]
        assert sum(part["ns"] for part in split["parts"]) == split["total_ns"], row["shape"]
        assert split["operations"] <= row["calls"]
    assert row_of(summary, "lock")["split"]["operations"] == ROUNDS
    # What burns waits for a processor on a busy machine.
    dominant = {"burn": ["cpu", "run_queue"], "sleep": ["sleep"], "hold": ["sleep"], "lock": ["futex"]}
    for step, parts in dominant.items():
        row = row_of(summary, step)
        assert sum(share(row, part) for part in parts) > 0.5, (step, row["split"])
    waited = [row["calls"] * (1 - share(row, "cpu")) * mean_ns(row) for row in summary["rows"]]
    assert waited == sorted(waited, reverse=True), waited
    waits = {wait["part"] for wait in row_of(summary, "hold")["split"]["waits"]}
    assert "sleep" in waits
    coverage = summary["coverage"]
    assert coverage["splits_lost"] < 10
    executed = sum(row["split"]["operations"] for row in summary["rows"])
    assert executed > 4 * ROUNDS and coverage["splits_undivided"] == 0, coverage
    # What ended before the trace began counts on no side; the driver's own connections may end with the trace.
    assert coverage["splits_without_wire"] <= 3 and coverage["splits_without_thread"] <= 3, coverage
    for line in lines[:-1]:
        for row in line["rows"]:
            assert row["calls"] or row["in_flight"], "a split alone makes no row"


# Commands a second: with their replies and acknowledgements, 240 frames.
STEADY = 60
# For how long a reader stands still.
STILL_S = 2


class Answered(pymongo.monitoring.CommandListener):
    """What the driver itself has counted: operations that were answered."""

    def __init__(self):
        self.operations = 0

    def started(self, event):
        pass

    def succeeded(self, event):
        self.operations += event.command_name == "find"

    def failed(self, event):
        raise AssertionError(event)


@contextlib.contextmanager
def asked_steadily(port):
    """A client that connects now and asks until the end of the block."""
    answered = Answered()

    def run(stop):
        with labkit.client(port, "lab-steady", event_listeners=[answered]) as connected:
            while not stop.wait(1 / STEADY):
                ask(connected.lab, {"sleep": 1})

    with labkit.in_background(run):
        yield answered


def stand_still(child, answered):
    """Stops this process while operations go on, and lets it go on."""
    child.send_signal(signal.SIGSTOP)
    before = answered.operations
    # span: in which nothing reads the ring
    time.sleep(STILL_S)
    meanwhile = answered.operations - before
    child.send_signal(signal.SIGCONT)
    assert meanwhile > 0, "nothing was asked meanwhile"
    labkit.wait_until(lambda: answered.operations > before + 2 * meanwhile, "operations afterwards")


def test_a_reader_that_stands_still_as_it_starts_loses_no_operation(served, tmp_path):
    """As on a host whose processors are all busy: the ring holds what comes meanwhile."""
    with labkit.live_capture(tmp_path, arguments(served, "--json")) as sonar:
        with asked_steadily(PORT) as answered:
            stand_still(sonar.child, answered)
        labkit.wait_until_connections_rest(served.pid)
        summary = labkit.summary(sonar.stop())
    assert row_of(summary, "sleep")["calls"] == answered.operations, summary["coverage"]
    assert summary["coverage"]["kernel_drops"] == 0, summary["coverage"]


def test_an_operation_in_flight_shows_what_it_waits_for(served, tmp_path):
    with client() as connected, labkit.live_capture(tmp_path, arguments(served, "--json")) as sonar:
        until_traced(connected.lab, sonar)
        with concurrent.futures.ThreadPoolExecutor(1) as pool, labkit.held_lock(connected.lab):
            pool.submit(ask, connected.lab, {"lock": 1})

            def waits():
                rows = [row for line in sonar.lines() for row in line["rows"] if "lock" in row["shape"]]
                return [one for row in rows for one in row["in_progress"] if one["class"]]

            labkit.wait_until(waits, "what an operation in flight waits for")
        labkit.wait_until_connections_rest(served.pid)
        lines = sonar.stop()
    first, *later = waits()
    assert first["doing"] == "futex" and first["doing_ns"] > 10**8, first
    assert first["thread_name"] and first["client"].startswith("127.0.0.1:") and first["file"] is None, first
    # It is one wait, which began once.
    assert {one["doing_since_ns"] // 10**7 for one in later} <= {first["doing_since_ns"] // 10**7}, later
    holder = [one for line in lines for row in line["rows"] if "hold" in row["shape"] for one in row["in_progress"]]
    assert holder and {one["doing"] for one in holder} == {"sleep"}, holder
    assert row_of(labkit.summary(lines), "lock")["in_progress"] == [], "it has ended"


def test_csv_has_the_parts(served, tmp_path):
    with client() as connected, labkit.live_capture(tmp_path, arguments(served, "--csv")) as sonar:

        def rows():
            ask(connected.lab, {"burn": 5})
            return [row for row in csv.DictReader(io.StringIO(sonar.out.read_text())) if row["split_operations"]]

        labkit.wait_until(rows, "a row with its split")
        row = rows()[0]
        labkit.stop(sonar.child)
    assert int(row["split_operations"]) > 0 and int(row["split_cpu_ns"]) > 0
    assert row["split_futex_ns"] != "" and row["split_not_yet_read_ns"] != ""


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--read", "x.pcap"], "cannot be used with"),
        (["--at", "-1h"], "cannot be used with"),
        (["--each"], "cannot be used with"),
    ],
)
def test_it_is_refused_where_no_server_can_be_traced(more, reason):
    assert reason in labkit.run("queries", "--split", *more, code=2, timeout=60).stderr
    asked = labkit.run("queries", "--by", "wait", code=2, timeout=60, stdin=subprocess.DEVNULL)
    assert "--split" in asked.stderr


def classes_of_lock_waits(lines):
    rows = [row for line in lines for row in line["rows"] if "lock" in row["shape"] and row["split"]]
    return {wait["class"] for row in rows for wait in row["split"]["waits"] if wait["part"] == "futex"}


@pytest.mark.servers
def test_waits_of_a_server_that_was_restarted_have_the_same_classes(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    # The name of the real one, by which it is found.
    program = labkit.put_as_mongod("threaded", tmp_path / "mongod")

    def serving(data):
        folder = tmp_path / data
        folder.mkdir()
        return labkit.threaded(folder, RESTARTED_PORT, program)

    def classes_now(sonar, server):
        first = len(sonar.lines())
        with client(RESTARTED_PORT) as connected:
            until_traced(connected.lab, sonar, first)
            labkit.wait_for_a_lock(server.pid, connected.lab, 100)
            classes = lambda: classes_of_lock_waits(sonar.lines()[first:])
            return labkit.wait_until(classes, "the class of a wait for a lock")

    options = ["--interface", "lo", "--port", RESTARTED_PORT, "--split", "--json"]
    with contextlib.ExitStack() as running:
        with serving("before") as server:
            sonar = running.enter_context(labkit.live_capture(tmp_path, options))
            before = classes_now(sonar, server)
        with serving("after") as server:
            assert classes_now(sonar, server) == before
        sonar.stop()
    assert "functions" not in sonar.err.read_text(), sonar.err.read_text()


@pytest.mark.servers
def test_only_the_server_at_the_port_is_traced(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    program = labkit.put_as_mongod("threaded", tmp_path / "mongod")
    options = ["--interface", "lo", "--port", RESTARTED_PORT, "--split", "--json"]
    with contextlib.ExitStack() as running:

        def serving(port, data):
            folder = tmp_path / data
            folder.mkdir()
            running.enter_context(labkit.threaded(folder, port, program))
            return running.enter_context(client(port)).lab

        own, other = serving(RESTARTED_PORT, "own"), serving(OTHER_PORT, "other")
        sonar = running.enter_context(labkit.live_capture(tmp_path, options))
        until_traced(own, sonar)
        # It looks for servers that start later every two seconds.
        later = serving(LATER_PORT, "later")
        for database in (other, later):
            first = len(sonar.lines())
            for _ in range(4 * ROUNDS):
                ask(database, {"burn": 1})
            labkit.wait_until(lambda first=first: len(sonar.lines()) >= first + 4, "four intervals")
            for _ in range(4 * ROUNDS):
                ask(database, {"burn": 1})
        summary = labkit.summary(sonar.stop())
    assert summary["coverage"]["splits_without_wire"] < ROUNDS, summary["coverage"]


def test_stacks_that_cannot_be_read_are_told_once_and_counted(served, tmp_path):
    with client() as connected, labkit.live_capture(tmp_path, arguments(served, "--json")) as sonar:
        until_traced(connected.lab, sonar)
        children = pathlib.Path(f"/proc/{sonar.child.pid}/task/{sonar.child.pid}/children").read_text().split()
        for helper in children:
            os.kill(int(helper), signal.SIGKILL)
        first = len(sonar.lines())

        def intervals():
            rows = [row for line in sonar.lines()[first:] for row in line["rows"] if "hold" in row["shape"]]
            return sum(bool(row["in_progress"]) for row in rows)

        # They are looked at each second.
        with labkit.held_lock(connected.lab):
            labkit.wait_until(lambda: intervals() >= 4, "four looks at an operation that waits")
        sonar.stop()
    said = sonar.err.read_text()
    assert said.count("wait for is unknown") == 1, said
    assert re.search(r"mongosonar: functions or stacks could not be read \d+ more times?$", said, re.M), said


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_live_view_shows_a_bar_and_the_opened_row_shows_the_parts(served, tmp_path, columns):
    def tmux(*more):
        command = ["tmux", "-S", tmp_path / "socket", *map(str, more)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    command = " ".join(map(str, [labkit.MONGOSONAR, "queries", *arguments(served)]))
    tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", 40, command)
    try:
        with client() as connected:

            def shows(*texts):
                ask(connected.lab, {"burn": 5})
                screen = tmux("capture-pane", "-p")
                return all(re.search(text, screen) for text in texts)

            # What burns waits for a processor on a busy machine.
            labkit.wait_until(lambda: shows("split", r" C*Q*[CQ]{7}[DLO]* "), "a bar")
            tmux("send-keys", "w")
            labkit.wait_until(lambda: shows("sorted by wait"), "the other order")
            tmux("send-keys", "Enter")
            labkit.wait_until(lambda: shows("Where the time went", "on a processor"), "the parts")
    finally:
        tmux("kill-server")
