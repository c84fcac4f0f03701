"""Where the time of an operation goes, against the lab's own server, whose commands take a known time at a known place.

The server (lab/threaded) is no MongoDB, but it serves as mongod does: one thread for each connection, on the real
WiredTiger.
"""

import concurrent.futures
import json
import os
import subprocess
import threading
import time

import pymongo
import pytest

import labkit

PORT = 28017

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    folder = tmp_path_factory.mktemp("threaded")
    with labkit.process([labkit.LAB / "bin/threaded", PORT, folder], stdout=subprocess.PIPE) as server:
        labkit.first_line(server)
        yield server


def client():
    return pymongo.MongoClient(f"mongodb://127.0.0.1:{PORT}/?directConnection=true", appname="lab-why", maxPoolSize=200)


def stolen_ns():
    """Time of all processors that no thread got, although one was on them: interrupts, and what the host took."""
    fields = open("/proc/stat").readline().split()
    return sum(map(int, fields[6:9])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def why(served, work, *arguments, seconds=30):
    """Runs `work` while `why` traces, ends it with SIGINT, and returns its report."""
    command = [labkit.MONGOSONAR, "why", "--pid", served.pid, "--port", PORT, "--duration", f"{seconds}s", "--json"]
    with labkit.process(
        [*command, "--limit", 100, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as traced:
        assert "tracing" in traced.stderr.readline()
        stolen = stolen_ns()
        result = work()
        # What the last packets need to reach the reader.
        time.sleep(0.5)
        traced.send_signal(2)
        output, errors = traced.communicate(timeout=30)
    assert traced.returncode == 0, errors
    report = json.loads(output)
    # In whole ticks.
    report["stolen_ns"] = stolen_ns() - stolen + 20_000_000
    return report, result


def ask(database, steps):
    """Returns what the server measured of itself."""
    return database.command({"find": "orders", "filter": steps})["cursor"]["firstBatch"][0]


def shape(report, *steps):
    """The row of the filter with these steps."""
    text = "".join(f"{step}: ?number" for step in steps[:1])
    found = [row for row in report["shapes"] if all(f"{step}: ?number" in row["typed"] for step in steps)]
    found = [row for row in found if row["typed"].count("?number") == len(steps)]
    assert len(found) == 1, (text, [row["typed"] for row in report["shapes"]])
    return found[0]


def part(row, name):
    return next((part["ns"] for part in row["parts"] if part["part"] == name), 0)


def near(measured, expected, operations, more=0):
    """Within 5 % or 100 µs for each operation; it may be so much `more`."""
    off = max(0.05 * expected, 100_000 * operations)
    assert -off <= measured - expected <= off + more, (measured, expected)


def adds_up(row):
    assert abs(sum(part["ns"] for part in row["parts"]) - row["total_ns"]) <= 1000 * row["operations"]
    assert part(row, "unexplained") == 0


ROUNDS = 20


def test_each_step_is_found_where_it_waits(served):
    steps = [{"burn": 10}, {"sleep": 10}, {"read": 30}, {"fault": 30}, {"send": 1}]

    def work():
        with client() as connected:
            return {next(iter(step)): [ask(connected.lab, step) for _ in range(ROUNDS)] for step in steps}

    report, measured = why(served, work)
    rows = {name: shape(report, name) for name in measured}
    for name, row in rows.items():
        assert row["operations"] == ROUNDS and row["apps"] == ["lab-why"], name
        adds_up(row)
    cpu = {name: sum(one["cpu_ns"] for one in answers) for name, answers in measured.items()}
    wall = {name: sum(one["wall_ns"] for one in answers) for name, answers in measured.items()}
    # What receiving, sending and measuring take is not in what the server measures; a burn is almost all of it.
    near(part(rows["burn"], "cpu"), cpu["burn"], ROUNDS, report["stolen_ns"])
    slept = part(rows["sleep"], "sleep")
    near(slept, wall["sleep"] - part(rows["sleep"], "cpu") - part(rows["sleep"], "run_queue"), ROUNDS)
    assert part(rows["read"], "file_read") > 0.5 * (
        wall["read"] - part(rows["read"], "cpu") - part(rows["read"], "run_queue")
    )
    assert rows["read"]["files"][0]["name"] == "collection-2-1.wt"
    assert rows["read"]["device_bytes"] >= ROUNDS * 10 * 4096
    faults = sum(one["faults"] for one in measured["fault"])
    assert rows["fault"]["faults"] == faults > ROUNDS
    blocked = wall["fault"] - part(rows["fault"], "cpu") - part(rows["fault"], "run_queue")
    near(part(rows["fault"], "page_fault"), blocked, ROUNDS)
    assert report["coverage"]["joined"] >= len(steps) * ROUNDS
    for loss in ["ring_full", "threads_full", "unreadable", "foreign_replies", "packets_dropped"]:
        assert report["coverage"][loss] == 0, loss
    # An interrupt may come while a program handles the same event on that processor.
    assert report["coverage"]["programs_skipped"] < 10


def test_the_holder_of_a_lock_is_named(served):
    def work():
        with client() as connected:
            connected.admin.command("hello")
            for _ in range(5):
                holder = threading.Thread(target=ask, args=(connected.lab, {"hold": 100}))
                holder.start()
                time.sleep(0.03)
                ask(connected.lab, {"lock": 1})
                holder.join()

    report, _ = why(served, work)
    row = shape(report, "lock")
    waited = part(row, "futex")
    assert row["operations"] == 5 and waited > 5 * 30_000_000, row["parts"]
    [blocker] = row["blockers"]
    assert blocker["shape_id"] == shape(report, "hold")["shape_id"]
    assert blocker["command"] == "find lab.orders" and blocker["thread_name"].startswith("conn")
    near(blocker["wait_ns"], waited, 5)
    assert any("find lab.orders" in sentence for sentence in row["answer"]), row["answer"]


@pytest.mark.parametrize("connections", [1, 8, 64])
def test_sequences_on_many_connections_add_up(served, connections):
    steps = {"burn": 1, "sleep": 20, "read": 2}

    def work():
        with client() as connected, concurrent.futures.ThreadPoolExecutor(connections) as pool:
            tasks = [pool.submit(ask, connected.lab, steps) for _ in range(max(connections * 4, 20))]
            return [task.result() for task in tasks]

    report, measured = why(served, work)
    row = shape(report, *steps)
    assert row["operations"] == len(measured)
    adds_up(row)
    near(part(row, "cpu"), sum(one["cpu_ns"] for one in measured), len(measured), report["stolen_ns"])
    # A thread may lose its processor between setting the timer and going to sleep.
    near(part(row, "sleep"), 20_000_000 * len(measured), len(measured))


def test_sums_equal_what_the_kernel_counts_for_each_thread(served):
    def counters():
        """Nanoseconds on a processor and in the run queue of all threads, as `schedstat` has them."""
        sums = [0, 0]
        for task in os.scandir(f"/proc/{served.pid}/task"):
            with open(f"{task.path}/schedstat") as file:
                cpu, queued, _ = map(int, file.read().split())
            sums[0] += cpu
            sums[1] += queued
        return sums

    with client() as connected:
        ask(connected.lab, {"burn": 1})

        def work():
            before = counters()
            for _ in range(50):
                ask(connected.lab, {"burn": 5})
            return before, counters()

        report, (before, after) = why(served, work)
    cpu = sum(part(row, "cpu") for row in report["shapes"]) + sum(role["cpu_ns"] for role in report["threads"])
    # The trace is a little longer than the time between the two readings.
    near(cpu, after[0] - before[0], 50, report["stolen_ns"])
