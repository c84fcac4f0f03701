"""`queries --source process`: what passes through the sockets of servers, without capturing packets, against what drivers
recorded."""

import contextlib
import os
import sys

import pymongo
import pytest
import tlskit
from test_netns import PORT, inside, join_by_veth, namespaces

import labkit

pytestmark = pytest.mark.root

# A relay that listens on a Unix socket and on a port, as a mongod does, and passes everything on to a server.
RELAY = """
import os, socket, sys, threading

path, port, server = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
local, plain = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", port))
local.bind(path)
local.listen(64)

def copy(one, other):
    while part := one.recv(65536):
        other.sendall(part)
    other.shutdown(socket.SHUT_WR)

def accept(listener):
    while True:
        client, upstream = listener.accept()[0], socket.create_connection(("127.0.0.1", server))
        threading.Thread(target=copy, args=(client, upstream), daemon=True).start()
        threading.Thread(target=copy, args=(upstream, client), daemon=True).start()

threading.Thread(target=accept, args=(plain,), daemon=True).start()
print(f"ready 127.0.0.1:{port}", flush=True)
accept(local)
"""


def capture(folder, port, *more, prefix=()):
    arguments = ["--source", "process", "--port", str(port), *labkit.EACH, *more]
    return labkit.live_capture(folder, arguments, prefix=prefix)


def check(lines, sent):
    """Every command was captured as it was sent, and nothing else. The client may have the reply before the call that
    sent it has ended, which is its time here."""
    later = [{**command, "us": command["us"] + 10_000} for command in sent]
    tlskit.check(lines, later, encrypted=False)


@pytest.mark.parametrize("language", labkit.DRIVERS)
def test_every_command_of_a_driver_is_read_from_the_sockets(language, served_v4, tmp_path):
    with capture(tmp_path, labkit.port_of(served_v4)) as sonar:
        sent = labkit.run_driver(language, served_v4, tmp_path / "driver.jsonl")
        lines = tlskit.settled(sonar, sent)
    assert len(sent) > 400 and any(command["outcome"] == "failed" for command in sent)
    check(lines, sent)
    assert "reading the sockets of process" in sonar.err.read_text()


def test_a_capture_of_packets_has_the_same_operations(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    packets = ["--interface", "lo", "--port", str(port), *labkit.EACH]
    one, other = tmp_path / "packets", tmp_path / "sockets"
    one.mkdir()
    other.mkdir()
    with labkit.live_capture(one, packets) as wire, capture(other, port) as sockets:
        sent = labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        seen = {
            name: {op["request_id"]: op for op in labkit.operations(tlskit.settled(sonar, sent))}
            for name, sonar in [("wire", wire), ("sockets", sockets)]
        }
    assert seen["wire"].keys() == seen["sockets"].keys()
    facts = ("command", "shape_id", "request_bytes", "response_bytes", "outcome", "app", "client", "server")
    for number, op in seen["wire"].items():
        assert {fact: op[fact] for fact in facts} == {fact: seen["sockets"][number][fact] for fact in facts}
    # Both take the same time for the same operation: the middle one differs by less than a millisecond.
    late = sorted(
        abs(op["latency_ns"] - seen["sockets"][number]["latency_ns"])
        for number, op in seen["wire"].items()
        if op["latency_ns"] is not None and seen["sockets"][number]["latency_ns"] is not None
    )
    assert late[len(late) // 2] < 1_000_000, late[len(late) // 2]


def test_connections_over_a_unix_socket_are_read(served_v4, tmp_path):
    script, port = tmp_path / "relay.py", tlskit.free_port()
    script.write_text(RELAY)
    path = f"/tmp/mongodb-{port}.sock"
    command = [sys.executable, script, path, str(port), str(labkit.port_of(served_v4))]
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: os.path.exists(path) and os.remove(path))
        stack.enter_context(labkit.ready(command))
        sonar = stack.enter_context(capture(tmp_path, port))
        options = {"appname": "over-unix", "directConnection": True}
        with pymongo.MongoClient(f"mongodb://{path.replace('/', '%2F')}", **options) as client:
            for number in range(50):
                client.lab_unix.items.insert_one({"_id": number, "pad": "x" * 1_000})
                client.lab_unix.items.find_one({"_id": number})
            client.drop_database("lab_unix")
        ours = lambda: [op for op in labkit.operations(sonar.lines()) if op["database"] == "lab_unix"]
        labkit.wait_until(lambda: len(ours()) >= 101, f"all operations: {len(ours())}")
        sonar.stop()
    found = ours()
    assert [op["command"] for op in found] == ["insert", "find"] * 50 + ["dropDatabase"]
    assert {op["app"] for op in found} == {"over-unix"}
    assert {op["server"] for op in found} == {f"127.0.0.1:{port}"}
    assert all(op["client"].startswith("0.") for op in found), found[0]["client"]


def test_servers_in_other_network_namespaces_are_read_without_entering_them(tmp_path):
    with namespaces("client", "server") as ns, contextlib.ExitStack() as stack:
        join_by_veth((ns["client"], "c0", "10.99.1.1/24"), (ns["server"], "s0", "10.99.1.2/24"))
        address = stack.enter_context(labkit.server(f"10.99.1.2:{PORT}", prefix=inside(ns["server"])))
        sonar = stack.enter_context(capture(tmp_path, PORT))
        sent = labkit.run_driver("go", address, tmp_path / "driver.jsonl", prefix=inside(ns["client"]))
        lines = tlskit.settled(sonar, sent)
    check(lines, sent)
    assert {op["server"] for op in labkit.operations(lines)} == {f"10.99.1.2:{PORT}"}


def test_it_takes_no_right_to_capture_packets(served_v4, tmp_path):
    have = "+bpf,+perfmon,+sys_ptrace,+dac_read_search"
    sets = [f"--{name}=-all,{have}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *sets]
    os.chmod(tmp_path, 0o777)
    with capture(tmp_path, labkit.port_of(served_v4), prefix=prefix) as sonar:
        sent = labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        lines = tlskit.settled(sonar, sent)
    check(lines, sent)


def test_plain_and_encrypted_connections_are_read_side_by_side(served_v4, tmp_path):
    plain = labkit.port_of(served_v4)
    with tlskit.membio(tmp_path, served_v4, "1.3") as address:
        with capture(tmp_path, plain, "--port", str(labkit.port_of(address))) as sonar:
            sent = labkit.run_driver("python", address, tmp_path / "driver.jsonl", tlskit.OPTIONS)
            lines = tlskit.settled(sonar, sent)
    operations = labkit.operations(lines)
    encrypted = [op for op in operations if op["tls"]]
    passed_on = [op for op in operations if not op["tls"]]
    numbers = {command["request_id"] for command in sent}
    assert numbers <= {op["request_id"] for op in encrypted} and numbers <= {op["request_id"] for op in passed_on}
    assert {labkit.port_of(op["server"]) for op in encrypted} == {labkit.port_of(address)}
    assert {labkit.port_of(op["server"]) for op in passed_on} == {plain}
    assert len(encrypted) == len(passed_on)


@pytest.mark.parametrize("option", ["--write=x.pcapng", "--sample=1/10", "--snap-replies=100", "--threads=2"])
def test_options_for_packets_are_refused(option):
    done = labkit.run("queries", "--source", "process", option, code=2)
    assert option.split("=")[0] in done.stderr and "for packets" in done.stderr, done


def test_connections_that_were_open_before_are_joined_late(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with pymongo.MongoClient(f"mongodb://{served_v4}", appname="early", directConnection=True) as client:
        client.lab_early.items.find_one({"before": 1})
        with capture(tmp_path, port) as sonar:
            for number in range(20):
                client.lab_early.items.find_one({"a": number})
            ours = lambda: [op for op in labkit.operations(sonar.lines()) if op["database"] == "lab_early"]
            labkit.wait_until(lambda: len(ours()) == 20, "all of them")
            sonar.stop()
    assert {op["command"] for op in ours()} == {"find"}
