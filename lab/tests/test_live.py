"""Listening as a person would: what is shown, how soon, how it ends, and what is kept."""

import csv
import io
import json
import stat
import subprocess
import time

import pymongo
import pytest

import labkit

pytestmark = pytest.mark.root


def test_the_queries_of_a_server_are_shown_within_two_seconds_and_ctrl_c_gives_a_summary(tmp_path):
    with labkit.ready([labkit.LAB / "bin/server", "--demo"]) as address:
        arguments = ["--interface", "lo", "--port", str(labkit.port_of(address)), "--json", "--interval", "1s"]
        with labkit.listening(tmp_path, arguments) as ear:
            labkit.wait_until(lambda: any(line["rows"] for line in ear.lines()), "a row", seconds=2.5)
            labkit.wait_until(lambda: len(ear.lines()) >= 4, "four intervals")
            lines = ear.stop()
    intervals = [line for line in lines if line["kind"] == "interval"]
    told = labkit.summary(lines)
    assert told["kind"] == "summary"
    assert told["totals"]["calls"] >= sum(line["totals"]["calls"] for line in intervals) > 20
    # Windows lie on boundaries of the wall clock.
    assert all(line["end_ns"] % 1_000_000_000 == 0 for line in intervals[:-1])
    names = {app["name"] for row in told["rows"] for app in row["apps"]}
    assert {"shop-api", "mobile"} & names or any(app["joined_late"] for row in told["rows"] for app in row["apps"])


def test_a_table_is_printed_where_there_is_no_terminal(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with labkit.listening(tmp_path, ["--interface", "lo", "--port", str(port), "--interval", "500ms"]) as ear:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: "lab_go" in ear.out.read_text(), "a row of the table")
        assert labkit.stop(ear.child) == 0
    text = ear.out.read_text()
    assert "\x1b" not in text, "no colours where there is no terminal"
    assert "find" in text and "p99" in text.lower()


def test_a_duration_ends_it(tmp_path):
    command = [labkit.MONGOSONAR, "queries", "--interface", "lo", "--port", "1", "--duration", "300ms", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert labkit.summary([json.loads(line) for line in done.stdout.splitlines()])["totals"]["calls"] == 0


@pytest.mark.alone
def test_a_server_that_starts_later_is_listened_to_and_that_is_said_once(tmp_path):
    server = tmp_path / "mongod"
    server.symlink_to(labkit.LAB / "bin/server")
    with labkit.listening(tmp_path, ["--json", "--interval", "1s"]) as ear, labkit.ready([server, "--demo"]) as address:
        port = labkit.port_of(address)
        assert f"port {port}" not in ear.err.read_text()

        def rows():
            return [row for line in ear.lines() for row in line["rows"] if row["server"].endswith(f":{port}")]

        labkit.wait_until(rows, "the queries of the new server", seconds=30)
        # More than one further look.
        begun = len(ear.lines())
        labkit.wait_until(lambda: len(ear.lines()) > begun + 12, "twelve more intervals", seconds=30)
        said = [line for line in ear.err.read_text().splitlines() if str(port) in line]
    assert len(said) == 1 and "too: a mongod or mongos here listens on it now" in said[0]


def test_what_is_kept_is_private_and_reads_as_it_was_heard(tshark, served_v4, tmp_path):
    port, kept = labkit.port_of(served_v4), tmp_path / "kept.pcapng"
    arguments = [
        "--interface",
        "lo",
        "--port",
        str(port),
        "--each",
        "--json",
        "--class",
        "all",
        "--role",
        "all",
        "--write",
        str(kept),
    ]
    with labkit.listening(tmp_path, arguments) as ear:
        said = labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: not labkit.join(labkit.operations(ear.lines()), said).missing, "all commands")
        live = labkit.operations(ear.stop())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "values" in ear.err.read_text()
    facts = ("request_id", "command", "shape_id", "request_bytes", "response_bytes", "docs_returned", "outcome")
    again = labkit.read_capture(kept)
    assert sorted(str([op[fact] for fact in facts]) for op in again) == sorted(
        str([op[fact] for fact in facts]) for op in live
    )
    frames = subprocess.run([tshark, "-n", "-r", kept], capture_output=True, text=True)
    assert frames.returncode == 0 and len(frames.stdout.splitlines()) > 1_000, frames.stderr


def test_replies_cut_on_purpose_leave_null_and_are_counted(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    arguments = ["--interface", "lo", "--port", str(port), "--json", "--interval", "500ms", "--snap-replies", "96"]
    with labkit.listening(tmp_path, arguments) as ear:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(
            lambda: any(row["command"] == "update" and row["calls"] for line in ear.lines() for row in line["rows"]),
            "rows",
        )
        told = labkit.summary(ear.stop())
    coverage = told["coverage"]
    assert coverage["messages_snapped"] > 0 and coverage["segments_snapped"] > 0
    finds = [row for row in told["rows"] if row["command"] == "find"]
    large = max(finds, key=lambda row: row["response_bytes"] / row["calls"])
    assert large["docs_returned"] is None
    # Latency and bytes need only the headers.
    assert large["latency_ns"]["count"] == large["calls"] and large["response_bytes"] > 1_000_000


def test_a_sample_says_so_and_is_scaled(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    arguments = [
        "--interface",
        "lo",
        "--port",
        str(port),
        "--json",
        "--class",
        "all",
        "--interval",
        "500ms",
        "--sample",
        "1/2",
    ]
    with labkit.listening(tmp_path, arguments) as ear:
        for _ in range(2):
            labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: any(line["totals"]["calls"] for line in ear.lines()), "figures")
        told = labkit.summary(ear.stop())
    assert told["sample"] == 2
    assert told["totals"]["calls"] % 2 == 0


def test_every_operation_on_a_line_for_people(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with labkit.listening(tmp_path, ["--interface", "lo", "--port", str(port), "--each"]) as ear:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: "lab_go_go.pool" in ear.out.read_text(), "lines")
        assert labkit.stop(ear.child) == 0
    line = next(line for line in ear.out.read_text().splitlines() if "lab_go_go.items" in line and "find" in line)
    assert "?number" in line or "?string" in line


def test_an_idle_capture_thread_holds_back_no_interval(served_v4, tmp_path):
    """One connection keeps one thread busy; the other wakes later than several intervals end."""
    arguments = [
        "--interface",
        "lo",
        "--port",
        str(labkit.port_of(served_v4)),
        "--threads",
        "2",
        "--interval",
        "100ms",
        "--json",
    ]
    with pymongo.MongoClient(f"mongodb://{served_v4}", maxPoolSize=1, directConnection=True) as client:
        client.shop.orders.find_one({"a": 0})
        with labkit.listening(tmp_path, arguments) as running:
            for n in range(100):
                client.shop.orders.find_one({"a": n})
                time.sleep(0.02)
            # Every interval is over for both threads, as is that of the last call.
            time.sleep(2.5)
            assert labkit.stop(running.child) == 0, running.err.read_text()
            lines = running.lines()
    total = labkit.summary(lines)["totals"]["calls"]
    intervals = [line for line in lines if line is not labkit.summary(lines)]
    # The first ones may come before the rings are open.
    assert total >= 50
    late = total - sum(line["totals"]["calls"] for line in intervals)
    # The driver's monitors go on until the end.
    assert late <= 3, (late, total)


def test_csv_has_one_header(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with labkit.listening(tmp_path, ["--interface", "lo", "--port", str(port), "--csv", "--interval", "500ms"]) as ear:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: "lab_go" in ear.out.read_text(), "lines")
        assert labkit.stop(ear.child) == 0
    text = ear.out.read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows and sum(line.startswith(text.splitlines()[0]) for line in text.splitlines()) == 1
    assert {"shape_id", "calls"} <= rows[0].keys()
