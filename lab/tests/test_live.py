"""Live capture as a person uses it: what it shows, how soon, how it ends, and what it keeps."""

import contextlib
import csv
import datetime
import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import time

import bson
import pymongo
import pytest
from hanging import hanging_files
from test_ending import on_terminal
from writing import answering_mongod

import labkit

sys.path.insert(0, str(labkit.LAB / "mock"))
sys.path.insert(0, str(labkit.LAB.parent / "bench"))
import mock  # noqa: E402

from lib import diagnostic  # noqa: E402

pytestmark = pytest.mark.root


def test_the_queries_of_a_server_are_shown_while_they_run_and_ctrl_c_gives_a_summary(tmp_path):
    with labkit.ready([labkit.LAB / "bin/server", "--demo"]) as address:
        arguments = ["--interface", "lo", "--port", str(labkit.port_of(address)), "--json", "--interval", "1s"]
        with labkit.live_capture(tmp_path, arguments) as sonar:
            shown = lambda: sum(line["totals"]["calls"] for line in sonar.lines())
            labkit.wait_until(lambda: len(sonar.lines()) >= 4 and shown() > 20, "four intervals with queries")
            lines = sonar.stop()
    intervals = [line for line in lines if line["kind"] == "interval"]
    summary = labkit.summary(lines)
    assert summary["kind"] == "summary"
    assert summary["totals"]["calls"] > 20
    assert any(line["rows"] for line in intervals)
    # Windows lie on boundaries of the wall clock.
    assert all(line["end_ns"] % 1_000_000_000 == 0 for line in intervals[:-1])
    # The last one ends with the command, and nothing is in the summary alone.
    for counted in ("calls", "failed", "request_bytes"):
        assert sum(line["totals"][counted] for line in intervals) == summary["totals"][counted], counted
    assert intervals[-1]["end_ns"] == summary["end_ns"]
    for line in intervals:
        length = line["end_ns"] - line["start_ns"]
        assert line["observed_ns"] == length and line["partial"] == (length < 1_000_000_000), line
    names = {app["name"] for row in summary["rows"] for app in row["apps"]}
    assert {"shop-api", "mobile"} & names or any(app["joined_late"] for row in summary["rows"] for app in row["apps"])


STATES_PORT = 28031


@contextlib.contextmanager
def sampled_server(tmp_path):
    """The lab's server, with the samples of a real one, which end a minute and a half from now; yields their file."""
    program = labkit.put_as_mongod("threaded", tmp_path / "mongod")
    folder = tmp_path / "data" / "diagnostic.data"
    folder.mkdir(parents=True)
    with labkit.threaded(tmp_path / "data", STATES_PORT, program):
        yield recorded_samples(folder)


def recorded_samples(folder):
    """Writes the samples of a real server into a folder; gives their file."""
    began = datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)
    next(diagnostic.copies(folder, began - datetime.timedelta(seconds=200)))
    return next(folder.iterdir())


def append_samples(path):
    """Lets that file grow by samples that end some minutes from now."""
    moved = 1000 * round((time.time() + 300) - diagnostic.BEGAN.replace(tzinfo=datetime.UTC).timestamp())
    with open(path, "ab") as file:
        file.write(diagnostic.later(list(diagnostic.documents(diagnostic.RECORDED.read_bytes()))[1], moved))


@pytest.mark.apart
def test_intervals_have_the_state_of_the_servers_of_this_host(tmp_path):
    arguments = ["--interface", "lo", "--port", str(STATES_PORT), "--json", "--interval", "1s"]
    with sampled_server(tmp_path) as samples, labkit.live_capture(tmp_path, arguments) as sonar:
        states = lambda: [line["servers"] for line in sonar.lines() if line["servers"]]
        labkit.wait_until(states, "the state of the server")
        [first] = states()[0]
        assert (first["program"], first["port"], first["lag_ms"]) == ("mongod", STATES_PORT, None), first
        assert first["connections"] > 0 and 0 < first["cache_used_percent"] < 100, first
        assert (first["queued_reads"], first["queued_writes"]) == (0, 0), first
        # The file grows.
        append_samples(samples)
        labkit.wait_until(lambda: states()[-1][0]["sampled_ns"] > first["sampled_ns"], "a later state")
        summary = labkit.summary(sonar.stop())
    assert summary["servers"] == []


@pytest.mark.apart
def test_a_file_system_that_hangs_holds_up_the_state_of_no_other_server(tmp_path):
    # The first one is looked at first.
    hung, healthy = STATES_PORT, STATES_PORT + 1
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(hanging_files(tmp_path / "hung", tmp_path / "below"))
        (files.folder / "diagnostic.data").mkdir()
        (tmp_path / "healthy" / "diagnostic.data").mkdir(parents=True)
        recorded_samples(files.folder / "diagnostic.data")
        samples = recorded_samples(tmp_path / "healthy" / "diagnostic.data")
        stack.enter_context(answering_mongod(tmp_path, hung, "--dbpath", files.point))
        stack.enter_context(answering_mongod(tmp_path, healthy, "--dbpath", tmp_path / "healthy"))
        arguments = ["--interface", "lo", "--port", f"{hung}-{healthy}", "--json", "--interval", "1s"]
        sonar = stack.enter_context(labkit.live_capture(tmp_path, arguments))
        states = lambda: {one["port"]: one["sampled_ns"] for line in sonar.lines() for one in line["servers"]}
        labkit.wait_until(lambda: len(states()) == 2, "the states of both")
        before = states()
        files.stop()
        append_samples(samples)
        labkit.wait_until(lambda: states()[healthy] > before[healthy], "a later state of the other one")
        assert states()[hung] == before[hung]
        files.go_on()
        append_samples(next((files.folder / "diagnostic.data").iterdir()))
        labkit.wait_until(lambda: states()[hung] > before[hung], "a later state of the one that hung")
        labkit.summary(sonar.stop())


@pytest.mark.apart
def test_the_live_view_has_a_line_with_the_state_of_a_server(tmp_path):
    with (
        sampled_server(tmp_path),
        on_terminal("queries", "--interface", "lo", "--port", str(STATES_PORT), columns=80) as terminal,
    ):
        terminal.wait_for(f" {STATES_PORT} ".encode())
        # The short words, as all parts fit into 80 columns with them only.
        terminal.wait_for(b"qrw ")
        terminal.type(b"q")
        assert terminal.end() == 0


def test_a_table_is_printed_where_there_is_no_terminal(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with labkit.live_capture(tmp_path, ["--interface", "lo", "--port", str(port), "--interval", "500ms"]) as sonar:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: "lab_go" in sonar.out.read_text(), "a row of the table")
        assert labkit.stop(sonar.child) == 0
    text = sonar.out.read_text()
    assert "\x1b" not in text, "no colours where there is no terminal"
    assert "find" in text and "p99" in text.lower()


def test_a_duration_ends_it(tmp_path):
    words = ["--interface", "lo", "--port", "1", "--duration", "300ms", "--json"]
    assert labkit.summary(labkit.documents("queries", *words, timeout=60))["totals"]["calls"] == 0


# A server that reads and never answers. The kernel does not close its connections when it ends (TCP_REPAIR), as if the
# end of the connection had been lost on the way or by the capture.
SILENT_SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(f"ready 127.0.0.1:{listener.getsockname()[1]}", flush=True)
kept = []
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, 19, 1)
    kept.append(connection)
    print("accepted", flush=True)
"""


@pytest.mark.apart
@pytest.mark.parametrize("named", [False, True], ids=["found", "named"])
def test_what_is_in_flight_on_a_server_ends_with_its_process(named, tmp_path):
    program = shutil.copy(os.path.realpath(sys.executable), tmp_path / "mongod")
    with labkit.process([program, "-S", "-c", SILENT_SERVER], stdout=subprocess.PIPE) as server:
        port = labkit.port_of(labkit.first_line(server))
        arguments = ["--interface", "lo", "--json", "--interval", "200ms"]
        if named:
            arguments += ["--port", str(port)]
        with (
            labkit.live_capture(tmp_path, arguments) as sonar,
            socket.create_connection(("127.0.0.1", port)) as client,
        ):
            assert server.stdout.readline() == b"accepted\n"
            find = bson.encode({"find": "slow", "filter": {"a": 1}, "$db": "shop"})
            client.sendall(mock.msg([mock.kind_0(find)], 1))

            def rows():
                lines = [line for line in sonar.lines() if line["kind"] == "interval"]
                return [[row for row in line["rows"] if row["collection"] == "slow"] for line in lines]

            labkit.wait_until(lambda: any(row["in_flight"] == 1 for row in sum(rows(), [])), "the query in flight")
            server.kill()
            server.wait()
            labkit.wait_until(lambda: any(row["unanswered"] for row in sum(rows(), [])), "the end of the query")
            # Whatever the socket does from here on, nothing is in flight.
            seen = len(rows())
            labkit.wait_until(lambda: len(rows()) > seen + 2, "more intervals")
            assert not any(row["in_flight"] for row in sum(rows()[seen:], []))
            summary = labkit.summary(sonar.stop())
    row = next(row for row in summary["rows"] if row["collection"] == "slow")
    assert (row["calls"], row["unanswered"], row["in_flight"]) == (1, 1, 0), row


@pytest.mark.apart
def test_a_server_that_starts_later_is_captured_and_announced_once(tmp_path):
    server = labkit.put_as_mongod("server", tmp_path / "mongod")
    with (
        labkit.live_capture(tmp_path, ["--json", "--interval", "1s"]) as sonar,
        labkit.ready([server, "--demo"]) as address,
    ):
        port = labkit.port_of(address)
        assert f"port {port}" not in sonar.err.read_text()

        def rows():
            return [row for line in sonar.lines() for row in line["rows"] if row["server"].endswith(f":{port}")]

        labkit.wait_until(rows, "the queries of the new server")
        # Wait until it has looked for servers more than once again.
        begun = len(sonar.lines())
        labkit.wait_until(lambda: len(sonar.lines()) > begun + 12, "twelve more intervals")
        messages = [line for line in sonar.err.read_text().splitlines() if str(port) in line]
    assert len(messages) == 1 and "too: a mongod or mongos here listens on it now" in messages[0]


def test_a_written_capture_is_private_and_reads_as_it_was_captured(tshark, served_v4, tmp_path):
    port, kept = labkit.port_of(served_v4), tmp_path / "kept.pcapng"
    arguments = ["--interface", "lo", "--port", str(port), *labkit.EACH, "--write", str(kept)]
    with labkit.live_capture(tmp_path, arguments) as sonar:
        sent = labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: not labkit.join(labkit.operations(sonar.lines()), sent).missing, "all commands")
        live = labkit.operations(sonar.stop())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "values" in sonar.err.read_text()
    facts = ("request_id", "command", "shape_id", "request_bytes", "response_bytes", "docs_returned", "outcome")
    again = labkit.read_capture(kept)
    assert sorted(str([op[fact] for fact in facts]) for op in again) == sorted(
        str([op[fact] for fact in facts]) for op in live
    )
    frames = subprocess.run([tshark, "-n", "-r", kept], capture_output=True, text=True)
    assert frames.returncode == 0 and len(frames.stdout.splitlines()) > 1_000, frames.stderr


def test_snapped_replies_give_null_and_are_counted(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    arguments = ["--interface", "lo", "--port", str(port), "--json", "--interval", "500ms", "--snap-replies", "96"]
    with labkit.live_capture(tmp_path, arguments) as sonar:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(
            lambda: any(row["command"] == "update" and row["calls"] for line in sonar.lines() for row in line["rows"]),
            "rows",
        )
        summary = labkit.summary(sonar.stop())
    coverage = summary["coverage"]
    assert coverage["messages_snapped"] > 0 and coverage["segments_snapped"] > 0
    finds = [row for row in summary["rows"] if row["command"] == "find"]
    large = max(finds, key=lambda row: row["response_bytes"] / row["calls"])
    assert large["docs_returned"] is None
    # Latency and bytes come from the headers.
    assert large["latency_ns"]["count"] == large["calls"] and large["response_bytes"] > 1_000_000


def test_a_sample_is_marked_and_scaled(served_v4, tmp_path):
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
    with labkit.live_capture(tmp_path, arguments) as sonar:
        for _ in range(2):
            labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: any(line["totals"]["calls"] for line in sonar.lines()), "figures")
        summary = labkit.summary(sonar.stop())
    assert summary["sample"] == 2
    assert summary["totals"]["calls"] % 2 == 0


def test_each_prints_one_line_per_operation(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with labkit.live_capture(tmp_path, ["--interface", "lo", "--port", str(port), "--each"]) as sonar:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: "lab_go_go.pool" in sonar.out.read_text(), "lines")
        assert labkit.stop(sonar.child) == 0
    line = next(line for line in sonar.out.read_text().splitlines() if "lab_go_go.items" in line and "find" in line)
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
        with labkit.live_capture(tmp_path, arguments) as running:
            labkit.wait_until(lambda: labkit.packet_sockets(running.child.pid) == 2, "both sockets")
            for n in range(100):
                client.shop.orders.find_one({"a": n})
                # span: between two of them, so that they are in several intervals
                time.sleep(0.02)
            shown = lambda: sum(line["totals"]["calls"] for line in running.lines())
            labkit.wait_until(lambda: shown() >= 100, "the intervals up to the last call")
            assert labkit.stop(running.child) == 0, running.err.read_text()
            lines = running.lines()
    total = labkit.summary(lines)["totals"]["calls"]
    intervals = [line for line in lines if line is not labkit.summary(lines)]
    late = total - sum(line["totals"]["calls"] for line in intervals)
    # The driver's monitors continue until the end.
    assert late <= 3, (late, total)


def test_csv_has_one_header(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with labkit.live_capture(
        tmp_path, ["--interface", "lo", "--port", str(port), "--csv", "--interval", "500ms"]
    ) as sonar:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: "lab_go" in sonar.out.read_text(), "lines")
        assert labkit.stop(sonar.child) == 0
    text = sonar.out.read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows and sum(line.startswith(text.splitlines()[0]) for line in text.splitlines()) == 1
    assert {"shape_id", "calls"} <= rows[0].keys()
