"""Where the time of operations on encrypted connections goes, against the lab's own server, which uses OpenSSL as mongod
does (memory BIOs), one thread for each connection, on the real WiredTiger. It is not MongoDB.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import threading
import time

import pymongo
import pytest
import tlskit
from test_privileges import children
from test_why import (
    ROUNDS,
    adds_up,
    blocked,
    each_step_is_found,
    near,
    of_a_sample_nothing_is_missing,
    part,
    sequences_add_up,
    shape,
    traced,
)

import labkit
from labkit import ask_threaded as ask

PORT = 28023
PLAIN_PORT = 28024


@pytest.fixture(scope="module")
def served(traced_server, tmp_path_factory):
    return traced_server(PORT, options=["tls", tlskit.certificate(tmp_path_factory.mktemp("certificate"))])


def client(most=200):
    """With at most so many connections for operations."""
    return labkit.client(PORT, "lab-why", tlskit.OPTIONS, maxPoolSize=most)


def why(served, work, *arguments):
    """`why` on the server with TLS."""
    return traced((served.pid, PORT), work, *arguments)


def test_each_step_of_encrypted_operations_is_found_where_it_waits(served):
    report, rows, measured = each_step_is_found(served, client, why)
    least, most = blocked(rows, measured, "sleep")
    near(part(rows["sleep"], "sleep"), least, ROUNDS, most - least)
    # What the server executed is all that it took, apart from decrypting, encrypting, receiving and sending.
    for name, row in rows.items():
        wall = sum(one["wall_ns"] for one in measured[name])
        assert row["total_ns"] - part(row, "not_yet_read") >= wall, name
    coverage = report["coverage"]
    # The handshake of the driver's monitor may have been in progress.
    assert coverage["without_wire"] + coverage["without_thread"] <= 2, coverage
    for loss in ["encrypted_unread", "encrypted_lost", "encrypted_unmapped"]:
        assert coverage[loss] == 0, loss


@pytest.mark.parametrize("connections", [1, 8, 64])
def test_sequences_on_many_encrypted_connections_add_up(served, connections):
    sequences_add_up((served.pid, PORT), client, connections)


def test_long_replies_and_long_requests_end_where_their_last_record_does(served):
    """A reply of 3 MB goes in 184 records; a slow reader makes the server wait until it can send them."""

    def work():
        with client() as connected:
            for _ in range(5):
                ask(connected.lab, {"send": 3})
        with tlskit.RawClient(f"127.0.0.1:{PORT}", "slow") as slow:
            slow.ask({"find": "orders", "filter": {"burn": 1}, "$db": "lab", "comment": "x" * 900_000})
            slow.begin({"find": "orders", "filter": {"send": 9, "burn": 2}, "$db": "lab"})
            labkit.wait_until(
                lambda: any(
                    labkit.waits_in(thread, "sendto", "sendmsg", "write") for thread in labkit.connections(served.pid)
                ),
                "a server that waits until it can send",
            )
            # span: how long it waits at least
            time.sleep(0.4)
            slow.end()

    report, _ = why(served, work)
    quick, slow = shape(report, "send"), shape(report, "send", "burn")
    assert (quick["operations"], slow["operations"]) == (5, 1)
    assert shape(report, "burn")["operations"] == 1
    adds_up(quick)
    adds_up(slow)
    # It sends what fits into the buffers of the sockets, and waits for the reader with the rest.
    assert part(slow, "send") > 300_000_000, slow["parts"]


def test_connections_that_were_open_before_are_divided_and_one_that_hangs_is_named(served):
    with client() as connected, concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as held:
        connected.admin.command("hello")
        ask(connected.lab, {"burn": 1})

        def work():
            for _ in range(3):
                ask(connected.lab, {"burn": 2})
            # Until the trace has ended.
            held.enter_context(labkit.held_lock(connected.lab))
            pool.submit(ask, connected.lab, {"lock": 1})
            labkit.wait_until_the_lock_is_awaited(served.pid)
            # span: how long it has waited at least
            time.sleep(1)

        report, _ = why(served, work)
    # The first command of a connection tells which one it is.
    assert shape(report, "burn")["operations"] >= 2
    doing = {one["doing"]: one for one in report["in_progress"] if one["command"] == "find"}
    assert set(doing) == {"sleep", "futex"}, report["in_progress"]
    assert doing["futex"]["elapsed_ns"] >= 1_000_000_000


def test_a_sample_follows_the_same_encrypted_connections_and_skips_the_others(served):
    of_a_sample_nothing_is_missing(served, client, why)


def programs_of_helper(parent):
    """The links to eBPF programs that the helper with the probes holds, by type."""
    for child in children(parent):
        links = []
        for file in pathlib.Path(f"/proc/{child}/fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links += [line.split()[1] for line in file.read_text().splitlines() if "link_type:" in line]
        if "uprobe_multi" in links:
            return links
    pytest.skip("this kernel has no uprobe_multi, by which the test finds the helper")


def test_sockets_are_watched_only_once_a_connection_is_encrypted(served):
    def watches_sockets():
        [command] = [
            child
            for child in children(os.getpid())
            if b"\0why\0" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
        ]
        return set(programs_of_helper(command)) != {"uprobe_multi"}

    def work():
        labkit.wait_until(lambda: not watches_sockets(), "the end of watching")
        with client() as connected:
            ask(connected.lab, {"sleep": 1})
            labkit.wait_until(watches_sockets, "watching again")
        with client() as connected:
            for _ in range(ROUNDS):
                ask(connected.lab, {"sleep": 1, "burn": 1})

    report, _ = why(served, work)
    row = shape(report, "sleep", "burn")
    assert row["operations"] == ROUNDS
    adds_up(row)


def test_what_is_not_read_is_said(served):
    def work():
        with client() as connected:
            for _ in range(5):
                ask(connected.lab, {"burn": 1})

    report, _ = why(served, work, "--no-tls")
    assert report["shapes"] == [] and report["coverage"]["encrypted_unread"] >= 1, report["coverage"]


def test_plain_and_encrypted_servers_are_divided_in_one_trace(served, tmp_path):
    def ask_both(plain):
        with client() as encrypted, pymongo.MongoClient("127.0.0.1", PLAIN_PORT, directConnection=True) as other:
            threads = [
                threading.Thread(target=lambda one=one, step=step: [ask(one.lab, step) for _ in range(ROUNDS)])
                for one, step in [(encrypted, {"sleep": 5}), (other, {"sleep": 5, "burn": 1})]
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        labkit.wait_until_connections_rest(plain.pid)

    with labkit.threaded(tmp_path, PLAIN_PORT) as plain:
        report, _ = why(served, lambda: ask_both(plain), "--pid", plain.pid, "--port", PLAIN_PORT)
    for steps in [["sleep"], ["sleep", "burn"]]:
        assert shape(report, *steps)["operations"] == ROUNDS
        adds_up(shape(report, *steps))


def test_rows_of_queries_tell_where_the_time_of_encrypted_operations_went(served, tmp_path):
    arguments = ["--interface", "lo", "--port", PORT, "--split", "--pid", served.pid, "--json"]
    with client() as connected, labkit.live_capture(tmp_path, arguments) as sonar:

        def is_traced():
            ask(connected.lab, {"burn": 1})
            return any(row["split"] for line in sonar.lines() for row in line["rows"])

        labkit.wait_until(is_traced, "a row with its split")
        for _ in range(ROUNDS):
            ask(connected.lab, {"sleep": 20})
        labkit.wait_until_connections_rest(served.pid)
        summary = labkit.summary(sonar.stop())
    [row] = [row for row in summary["rows"] if "{sleep: ?number}" in row["shape"]]
    assert row["split"]["operations"] == row["calls"] == ROUNDS
    assert sum(part["ns"] for part in row["split"]["parts"]) == row["split"]["total_ns"]
    slept = next(part["share"] for part in row["split"]["parts"] if part["part"] == "sleep")
    assert slept > 0.5, row["split"]


@pytest.mark.servers
def test_a_named_port_or_process_means_its_server_alone(served, tmp_path):
    """Both have the name of the real one, so both are found without either."""
    program = labkit.put_as_mongod("threaded", tmp_path / "mongod")
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    ports = [tlskit.free_port(), tlskit.free_port()]
    with labkit.threaded(folders[0], ports[0], program) as one, labkit.threaded(folders[1], ports[1], program):
        report = labkit.document("why", "--port", ports[0], "--duration", "1s", "--json")
        assert report["processes"] == [one.pid]

        def work():
            for port, name in zip(ports, ["one", "other"], strict=True):
                with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as connected:
                    for _ in range(ROUNDS):
                        ask(connected[name], {"burn": 1})

        report, _ = traced((one.pid, None), work)
        assert report["processes"] == [one.pid]
        found = {row["namespace"]: row["operations"] for row in report["shapes"] if row["command"] == "find"}
        assert found == {"one.orders": ROUNDS}
        # Those of the other server would be there without a thread. A handshake may have been in progress.
        assert report["coverage"]["without_thread"] <= 2, report["coverage"]
        done = labkit.run("why", "--port", tlskit.free_port(), "--duration", "1s", "--json", code=2)
    assert "no mongod or mongos listens on port" in done.stderr
