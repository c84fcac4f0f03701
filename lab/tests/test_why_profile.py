"""What `why` takes from the profiler of a server that is named.

The server is the lab's own (lab/threaded). It writes profile documents in the form of MongoDB 4.4; the figures in them
are its own.
"""

import contextlib
import json
import signal
import subprocess
import threading

import pytest

import labkit
from labkit import ask_threaded as ask

PORT = 28073
# No server listens here, so the wire shows nothing.
OTHER_PORT = 28074
# In milliseconds.
SLOW = 20
ROUNDS = 12


@pytest.fixture(scope="module")
def served(traced_server):
    return traced_server(PORT)


def client():
    return labkit.client(PORT, "lab-why")


@contextlib.contextmanager
def level(wanted):
    with client() as connected:
        connected.lab.command("profile", wanted, slowms=SLOW)
        try:
            yield
            # It is only asked for.
            assert connected.lab.command("profile", -1)["was"] == wanted
        finally:
            connected.lab.command("profile", 0)


def run(served, work, *arguments):
    """`why` while `work` runs with a client; its report as JSON or text, and what it said."""
    command = [labkit.MONGOSONAR, "why", "--pid", served.pid, "--duration", "30s", *arguments]
    with labkit.process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as traced:
        labkit.wait_until(lambda: "tracing" in traced.stderr.readline(), "the trace")
        with client() as connected:
            work(connected.lab)
        labkit.wait_until_connections_rest(served.pid)
        traced.send_signal(2)
        output, errors = traced.communicate(timeout=40)
    assert traced.returncode == 0, errors
    return json.loads(output) if "--json" in arguments else output


def operations(database):
    for _ in range(ROUNDS):
        ask(database, {"read": 500, "sleep": SLOW})
        ask(database, {"sleep": 2 * SLOW, "burn": 1})


def row(report, *steps):
    """The row of the filter with these steps."""
    typed = "{filter: {" + ", ".join(f"{step}: ?number" for step in sorted(steps)) + "}}"
    [found] = [one for one in report["shapes"] if one["typed"] == typed]
    return found


URI = ["--uri", f"mongodb://127.0.0.1:{PORT}"]


def test_what_the_profiler_says_belongs_to_the_shapes_of_the_wire(served):
    with level(1):
        report = run(served, operations, "--port", PORT, "--json", *URI)
    server = report["server"]
    assert server["log"] is None
    assert server["profile"] == {"joined": 2 * ROUNDS, "without_partner": 0, "ambiguous": 0, "too_many": 0}
    assert server["profiler"] == {
        "server": f"127.0.0.1:{PORT}",
        "databases": [{"database": "lab", "level": 1, "is_whole": True}],
        "databases_left_out": 0,
        "documents_unread": 0,
        "is_cut": False,
        "problem": None,
    }
    read, slept = row(report, "read", "sleep"), row(report, "sleep", "burn")
    words = f"The server describes {ROUNDS} of {ROUNDS} operations: COLLSCAN ({ROUNDS}); each examines 500 documents"
    assert words in " ".join(read["answer"]), read["answer"]
    assert read["server"]["figures"]["yields"]["total"] == 5 * ROUNDS
    assert slept["server"]["plans"] == [{"plan": "IXSCAN { n: 1 }", "operations": ROUNDS}]
    assert "an index that supports its filter" in read["answer"][-1], read["answer"]


def test_operations_of_one_shape_at_the_same_time_are_described_by_shape(served):
    """The profile has the address of the client without its port: it does not say which of the connections it was."""

    def at_the_same_time(database):
        together = threading.Barrier(4)

        def one():
            for _ in range(ROUNDS):
                together.wait()
                ask(database, {"sleep": SLOW})

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with level(2):
        report = run(served, at_the_same_time, "--port", PORT, "--json", *URI)
    counts = report["server"]["profile"]
    assert counts["joined"] == 4 * ROUNDS, counts
    slept = row(report, "sleep")
    assert (slept["operations"], slept["server"]["operations"]) == (4 * ROUNDS, 4 * ROUNDS)


def test_operations_that_the_wire_does_not_show_have_the_shape_of_the_profile(served):
    with level(1):
        report = run(served, operations, "--port", OTHER_PORT, "--json", *URI)
        text = run(served, operations, "--port", OTHER_PORT, *URI)
    assert report["coverage"]["joined"] == 0
    for steps in [["read", "sleep"], ["sleep", "burn"]]:
        one = row(report, *steps)
        assert (one["origin"], one["operations"], one["apps"]) == ("profile", ROUNDS, ["lab-why"])
    assert " from the profile" in text
    assert f"The profile (lab: level 1) describes {2 * ROUNDS} operations during the trace." in text, text


def test_a_server_that_hangs_does_not_hold_up_the_report(served):
    """It hangs from the beginning of the trace on, and is asked for its profile after the end."""
    command = [labkit.MONGOSONAR, "why", "--pid", served.pid, "--port", PORT, "--duration", "1s", "--json"]
    command += ["--uri", f"{URI[1]}/?{labkit.PATIENT}"]
    with labkit.process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as traced:
        labkit.wait_until(lambda: "tracing" in traced.stderr.readline(), "the trace")
        served.send_signal(signal.SIGSTOP)
        try:
            # The driver has a thread as long as it asks.
            asks = lambda: any(name == "mongosonar-net\n" for (name,) in labkit.of_each_thread(traced.pid, "comm"))
            labkit.wait_until(asks, "the question")
            traced.send_signal(signal.SIGINT)
            output, errors = traced.communicate(timeout=120)
        finally:
            served.send_signal(signal.SIGCONT)
    assert traced.returncode == 0, errors
    assert json.loads(output)["server"]["profiler"]["problem"] == "the server has not answered"


def test_a_profiler_that_is_off_is_told_with_the_command_that_switches_it_on(served):
    with level(0):
        text = run(served, operations, "--port", PORT, *URI)
    assert (
        "The profiler of lab is off. To switch it on for a minute, "
        'run "mongosonar profiler set --db lab --level 1 --slowms 20 --duration 1m" for the same server.'
    ) in text, text
    assert "The server describes" not in text
    # Without a server that is named, nothing is asked.
    assert "profiler of" not in run(served, operations, "--port", PORT)


def test_the_profile_of_a_server_that_is_not_traced_is_not_read(served, tmp_path):
    with labkit.threaded(tmp_path, OTHER_PORT), level(2):
        uri = f"mongodb://127.0.0.1:{OTHER_PORT}"
        report = run(served, operations, "--port", PORT, "--json", "--uri", uri)
    profiler = report["server"]["profiler"]
    assert profiler["problem"] == f"the server at 127.0.0.1:{OTHER_PORT} is not one of those traced"
    assert profiler["databases"] == [] and report["server"]["profile"]["joined"] == 0
