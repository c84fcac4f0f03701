"""The agent stores where the time of operations goes, and what-changed says what a slower query now waits for.

The server is the lab's own (lab/threaded), one thread for each connection on the real WiredTiger.
"""

import contextlib
import os
import tempfile

import pytest
import tlskit
from test_agent import agent, free_port, wait_for_a_boundary
from test_split import asked_steadily, stand_still

import labkit

pytestmark = [pytest.mark.root, pytest.mark.servers]


@contextlib.contextmanager
def threaded(directory, port, options=()):
    """The server under the name of the real one, so that the agent finds it."""
    program = labkit.put_as_mongod("threaded", directory / "mongod")
    data = tempfile.mkdtemp(prefix="data-", dir=directory)
    with labkit.threaded(data, port, program, options) as server:
        yield server


def config(port):
    sources = "[collectors]\nfiles = false\nlog = false\nsplit = true\n"
    return f'{sources}[queries]\nport = [{port}]\n[split]\nsample = "1/1"\n'


def asking(port, steps, pause_s, options=""):
    """Asks for these steps again and again until the end of the block."""

    def ask(stop):
        with labkit.client(port, "lab-split", options) as connected:
            while not stop.wait(pause_s):
                labkit.ask_threaded(connected.lab, steps)

    return labkit.in_background(ask)


def all_changes(changes):
    for change in changes:
        yield change
        yield from all_changes(change["effects"])


def what_changed(store):
    report = labkit.document("what-changed", "--from", "-3m", "--json", "--store", store, code=4)
    return list(all_changes(change for moment in report["moments"] for change in moment["changes"]))


@pytest.mark.skipif(not os.environ.get("LONG"), reason="it observes ten windows; LONG=1 lets it run")
def test_a_query_that_now_waits_for_a_lock_is_the_same_query(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    port = free_port()
    with threaded(tmp_path, port), agent(tmp_path, config(port)) as running:
        running.wait_for("split", "working")
        with asking(port, {"lock": 1}, 0.02):
            running.observe(7)
            # One window that is half before the change and half after it makes three windows after it too different from
            # each other to be certain of anything.
            wait_for_a_boundary()
            with asking(port, {"hold": 30}, 0.01):
                running.observe(3)
        split = running.collector("split")
        assert split["lost"] == 0 and split["user_ns"] + split["system_ns"] > 0, split
        assert any("operations divided" in note for note in split["notes"]), split
        assert running.stop() == 0
        changes = what_changed(running.store)
    slower = [change for change in changes if change["kind"] == "shape" and "lock" in change["figures"]["shape"]]
    # Such a change may go on: then the next moment has one too.
    slower = [change for change in slower if "slower" in change["figures"]["ways"]]
    explained = "the same query, but it now waits for a mutex, a ticket or a condition"
    change = next((change for change in slower if explained in change["sentence"]), None)
    assert change, slower or changes
    grown = change["figures"]["split"]["grown"]
    assert grown[0]["part"] == "futex" and grown[0]["after_ns"] > 10 * grown[0]["before_ns"], change
    assert any("mean time inside the server" in line for line in change["evidence"]), change
    # Who held the lock is named, and what waited for it stands below that.
    assert "hold" in (grown[0]["ended_by"] or {}).get("shape", ""), change
    assert "held by find lab.orders {filter: {hold: ?number}}" in change["sentence"], change
    holders = [one for one in changes if change in one["effects"]]
    assert holders and "hold" in holders[0]["figures"]["shape"], changes


def test_an_agent_that_stands_still_as_it_starts_loses_no_operation(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    port = free_port()
    with threaded(tmp_path, port), agent(tmp_path, config(port)) as running:
        labkit.wait_until(lambda: labkit.packet_sockets(running.child.pid), "a packet socket of the agent")
        with asked_steadily(port) as answered:
            stand_still(running.child, answered)
        running.observe(1)
        assert running.collector("queries")["lost"] == 0, running.collector("queries")
        assert running.stop() == 0
    past = labkit.summary(labkit.documents("queries", "--from", "-10m", "--json", "--store", running.store))
    calls = sum(row["calls"] for row in past["rows"] if "{sleep: ?number}" in row["shape"])
    assert calls == answered.operations and past["coverage"]["kernel_drops"] == 0, past["coverage"]


def test_servers_come_and_go_and_what_cannot_work_is_said(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    port = free_port()
    with agent(tmp_path, config(port)) as running:
        # It waits from the start, and says why once it has looked.
        said = lambda: any("no mongod or mongos runs" in why for why in running.collector("split")["problems"])
        running.wait(said, "why the split waits")
        assert running.collector("split")["state"] == "waiting"
        with threaded(tmp_path, port):
            running.wait_for("split", "working")
            notes = lambda: running.collector("split")["notes"]
            divided = lambda: any("divided: " in note and not note.endswith(": 0") for note in notes())
            with asking(port, {"burn": 2}, 0.02):
                labkit.wait_until(divided, "divided operations of a server that started later")
        running.wait_for("split", "waiting")
        assert running.stop() == 0


def test_encrypted_operations_are_stored_with_their_split(tmp_path):
    """The server starts again after the agent has started: its TLS library is the one that was found first."""
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    port = free_port()
    options = ["tls", tlskit.certificate(tmp_path)]
    with contextlib.ExitStack() as first:
        first.enter_context(threaded(tmp_path, port, options))
        with agent(tmp_path, config(port)) as running:
            running.wait_for("split", "working")
            first.close()
            running.wait_for("split", "waiting")
            with threaded(tmp_path, port, options):
                running.wait_for("split", "working")
                labkit.wait_until(lambda: running.errors().count("reading encrypted") == 2, "the probes")
                with asking(port, {"sleep": 5}, 0.05, tlskit.OPTIONS):
                    running.observe(1)
            assert running.stop() == 0, running.errors()
            past = labkit.documents("queries", "--store", running.store, "--from", "-3m", "--json")[-1]
    [row] = [row for row in past["rows"] if "{sleep: ?number}" in row["shape"]]
    split = row["split"]
    assert row["calls"] > 100 and split["operations"] >= 0.8 * row["calls"], row
    # Who wakes late waits for a processor.
    shares = {part["part"]: part["share"] for part in split["parts"]}
    assert shares["sleep"] + shares.get("run_queue", 0) > 0.5, split


def test_encrypted_connections_are_left_alone_if_that_is_asked_for(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    port = free_port()
    with threaded(tmp_path, port, ["tls", tlskit.certificate(tmp_path)]):
        with agent(tmp_path, config(port).replace("[queries]\n", "[queries]\ntls = false\n")) as running:
            running.wait_for("split", "working")
            assert running.stop() == 0
    assert "encrypted connections" not in running.errors(), running.errors()


def test_a_wrong_setting_is_named(tmp_path):
    file = tmp_path / "agent.toml"
    for text, part in [
        ("[split]\nsample = 5\n", "split.sample"),
        ("[collectors]\nsplit = true\nqueries = false\n", "collectors.split: it needs collectors.queries = true"),
    ]:
        file.write_text(text)
        done = labkit.run("agent", "--check-config", "--config", file, code=2)
        assert part in done.stderr, done
