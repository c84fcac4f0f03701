"""What `why` takes from the log of the server.

The server is the lab's own (lab/threaded). It writes lines in the form of MongoDB 4.4; the figures in them are its own.
"""

import json
import subprocess

import pytest

import labkit
from labkit import ask_threaded as ask

PORT = 28071
# In milliseconds.
SLOW = 20
# No server listens here, so the wire shows nothing.
OTHER_PORT = 28072


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "mongod.log"


@pytest.fixture(scope="module")
def served(traced_server, log):
    return traced_server(PORT, options=["log", log, SLOW])


ROUNDS = 12


def run(served, log, *arguments):
    """`why` while a client asks; its report, and what the server wrote into its log meanwhile."""
    command = [labkit.MONGOSONAR, "why", "--pid", served.pid, "--duration", "30s", "--json", *arguments]
    with labkit.process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as traced:
        labkit.wait_until(lambda: "tracing" in traced.stderr.readline(), "the trace")
        before = log.stat().st_size
        with labkit.client(PORT, "lab-why") as connected:
            for _ in range(ROUNDS):
                ask(connected.lab, {"read": 500, "sleep": SLOW})
                ask(connected.lab, {"sleep": 2 * SLOW, "burn": 1})
                # Not slow, unless the machine is.
                ask(connected.lab, {"burn": 1})
        labkit.wait_until_connections_rest(served.pid)
        traced.send_signal(2)
        output, errors = traced.communicate(timeout=30)
    assert traced.returncode == 0, errors
    lines = [json.loads(line)["attr"] for line in log.read_bytes()[before:].splitlines()]
    return json.loads(output), lines


def typed(steps):
    return "{filter: {" + ", ".join(f"{step}: ?number" for step in sorted(steps)) + "}}"


def row(report, *steps):
    """The row of the filter with these steps."""
    [found] = [one for one in report["shapes"] if one["typed"] == typed(steps)]
    return found


def all_joined(report, lines):
    expected = {"joined": len(lines), "without_partner": 0, "ambiguous": 0, "too_many": 0}
    assert report["server"]["log"] == expected and report["server"]["log_lines_unread"] == 0


def test_what_the_log_says_belongs_to_the_shapes_of_the_wire(served, log):
    """The log is found by itself: the process has it open."""
    report, lines = run(served, log, "--port", PORT)
    assert report["server"]["logs"] == [str(log)] and len(lines) >= 2 * ROUNDS
    all_joined(report, lines)
    for steps in [["read", "sleep"], ["sleep", "burn"], ["burn"]]:
        one = row(report, *steps)
        own = [line for line in lines if set(line["command"]["filter"]) == set(steps)]
        said = one["server"] or {"operations": 0}
        assert (one["origin"], one["operations"], said["operations"]) == ("wire", ROUNDS, len(own)), steps
        for name, field in [("docs_examined", "docsExamined"), ("yields", "numYields"), ("selected", "nreturned")]:
            total = sum(line[field] for line in own)
            assert not own or said["figures"][name] == {
                "total": total,
                "operations": len(own),
                "mean": total / len(own),
            }
    read, slept = row(report, "read", "sleep"), row(report, "sleep", "burn")
    assert read["server"]["plans"] == [{"plan": "COLLSCAN", "operations": ROUNDS}]
    assert read["server"]["collection_scans"] == ROUNDS and slept["server"]["collection_scans"] == 0
    assert slept["server"]["plans"] == [{"plan": "IXSCAN { n: 1 }", "operations": ROUNDS}]
    words = f"The server describes {ROUNDS} of {ROUNDS} operations: COLLSCAN ({ROUNDS}); each examines 500 documents"
    assert words in " ".join(read["answer"]), read["answer"]
    assert not any("What would help" in sentence for sentence in slept["answer"]), slept["answer"]


def test_an_index_is_proposed_with_the_figures_of_the_log_and_not_without(served, log):
    proposed = (
        "What would help: an index that supports its filter, because it scans the whole collection: "
        "each operation examines 500 documents and selects 1."
    )
    report, _ = run(served, log, "--port", PORT, "--log", log)
    assert row(report, "read", "sleep")["answer"][-1] == proposed
    report, _ = run(served, log, "--port", PORT, "--no-log")
    assert report["server"]["log"] is None and report["server"]["logs"] == []
    answer = row(report, "read", "sleep")["answer"]
    assert not any("an index that" in sentence or "describes" in sentence for sentence in answer), answer


def test_operations_that_the_wire_does_not_show_have_the_shape_of_the_log(served, log):
    report, lines = run(served, log, "--port", OTHER_PORT)
    assert report["coverage"]["joined"] == 0
    all_joined(report, lines)
    assert report["operations"] == len(lines) >= 2 * ROUNDS
    read, slept = row(report, "read", "sleep"), row(report, "sleep", "burn")
    for one in (read, slept):
        assert (one["origin"], one["operations"], one["apps"]) == ("log", ROUNDS, ["lab-why"])
        assert abs(sum(part["ns"] for part in one["parts"]) - one["total_ns"]) <= 1000 * ROUNDS
    slept_ns = next(part["ns"] for part in slept["parts"] if part["part"] == "sleep")
    assert slept_ns >= ROUNDS * 2 * SLOW * 1_000_000
    # The others, and what the driver sends, have only the name of their threads.
    [unseen] = report["unseen"]
    assert (unseen["command"], unseen["origin"], unseen["shape_id"]) == ("conn threads", "thread_name", "")
    assert unseen["operations"] == report["coverage"]["without_wire"] - len(lines) > 0
    # The shapes have the ids that they have on the wire.
    on_wire, _ = run(served, log, "--port", PORT)
    assert read["shape_id"] == row(on_wire, "read", "sleep")["shape_id"]


def test_only_what_is_asked_for_counts_without_the_wire(served, log):
    report, lines = run(served, log, "--port", OTHER_PORT, "--namespace", "lab.other")
    assert report["shapes"] == report["unseen"] == [] and report["operations"] == 0
    all_joined(report, lines)
    report, _ = run(served, log, "--port", OTHER_PORT, "--app", "lab-why", "--no-log")
    assert report["shapes"] == report["unseen"] == []


def test_a_log_that_is_not_there_is_an_error(served, tmp_path):
    done = labkit.run("why", "--pid", served.pid, "--log", tmp_path / "none.log", code=None)
    assert done.returncode != 0 and "cannot open the log" in done.stderr and "none.log" in done.stderr
