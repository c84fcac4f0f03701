"""What happens to the processes of servers is in the history of the agent, whatever their logs say."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import bson
import pytest
from test_agent import agent, described, free_port
from test_agent_split import threaded
from test_incidents import write
from test_live import mock
from test_netns import inside, ip, join_by_veth, namespaces

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]


@contextlib.contextmanager
def server(directory, port):
    """The lab's server under the name of the real one; yields its process."""
    program = labkit.put_as_mongod("server", directory / "mongod")
    command = [program, "--demo", "--listen", f"127.0.0.1:{port}"]
    with labkit.process(command, stdout=subprocess.PIPE) as child:
        labkit.first_line(child)
        yield child


def document(store, command, *words):
    done = labkit.run(command, "--store", store, "--json", *words, code=None)
    return json.loads(done.stdout) if done.stdout else {}


def events(store, processes, *kinds):
    """The sentences of the events of these kinds about these processes: others may run on this machine."""
    found = document(store, "timeline", "--from", "-1h").get("events", [])
    is_own = lambda event: any(f"process {one.pid} (mongod)" in event["sentence"] for one in processes)
    return [event["sentence"] for event in found if event["kind"] in kinds and is_own(event)]


def again(store, process):
    """The sentences that say that this process answers again; they do not name its program."""
    found = document(store, "timeline", "--from", "-1h").get("events", [])
    is_own = lambda event: f"process {process.pid} " in event["sentence"]
    return [event["sentence"] for event in found if event["kind"] == "server_reachable" and is_own(event)]


def changes(store):
    """All sentences of what changed, with those of effects."""

    def sentences(change):
        yield change["sentence"]
        yield from change["evidence"]
        for effect in change["effects"]:
            yield from sentences(effect)

    report = document(store, "what-changed", "--from", "-1h")
    return [text for moment in report.get("moments", []) for one in moment["changes"] for text in sentences(one)]


def is_watched(running, port):
    return any(one["port"] == port for one in running.status()["servers"])


def test_a_killed_server_is_in_every_view_although_it_has_no_log(tmp_path):
    port = free_port()
    config = f"[collectors]\nfiles = false\n[queries]\nport = [{port}]\n"
    with agent(tmp_path, config) as running:
        with server(tmp_path, port) as child:
            labkit.wait_until(lambda: is_watched(running, port), "the server")
            os.kill(child.pid, signal.SIGSTOP)
            stopped = lambda: events(running.store, [child], "server_unreachable")
            labkit.wait_until(stopped, "that it is stopped")
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            ended = lambda: events(running.store, [child], "server_crash", "server_stop")
            labkit.wait_until(ended, "the end of the server")
        assert running.stop() == 0
    assert len(stopped()) == 1 and len(ended()) == 1, (stopped(), ended())
    assert not again(running.store, child), "a process that has ended does not answer again"
    # Before Linux 6.15 the kernel does not say how a process ended.
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    assert release < (6, 15) or "killed by signal 9 (SIGKILL)" in ended()[0], ended()
    listed = changes(running.store)
    for sentence in [*stopped(), *ended()]:
        assert any(sentence in text for text in listed), (sentence, listed)


def test_what_happened_while_no_agent_ran_is_told_by_the_next_one(tmp_path):
    port = free_port()
    log = tmp_path / "mongod.log"
    log.touch()
    config = f"[collectors]\nfiles = false\nqueries = false\n[queries]\nport = [{port}]\n" + described(port, log)
    with server(tmp_path, port) as first:
        with agent(tmp_path, config) as running:
            labkit.wait_until(lambda: is_watched(running, port), "the server")
            assert running.stop() == 0
    with server(tmp_path, port) as second:
        with agent(tmp_path, config) as running:
            labkit.wait_until(lambda: is_watched(running, port), "the server")
            running.wait_for("log", "working")
            second.terminate()
            labkit.wait_until(lambda: not is_watched(running, port), "its end")
            assert running.stop() == 0
    *told, ended = events(running.store, [first, second], "server_start", "server_stop", "server_crash")
    assert len(told) == 2 and all("while no agent ran" in text for text in told), told
    assert f"process {second.pid} " in ended and "while no agent ran" not in ended
    listed = document(running.store, "timeline", "--from", "-1h")["events"]
    # The agent sees the servers of other tests, too.
    listed = [event for event in listed if event["server"] in (port, None)]
    failed = [event for event in listed if event["kind"] == "collector_failed"]
    assert not failed, "an end is no failure of what observed the server"
    assert f"process {first.pid} " in told[0] and f"process {second.pid} " in told[1], told


def rows(store):
    """The rows of the last hour by collection."""
    lines = labkit.documents("queries", "--store", store, "--from", "-1h", "--json", code=None)
    return {row["collection"]: row for row in lines[-1]["rows"]} if lines else {}


def test_what_is_in_flight_on_a_connection_ends_with_it_although_only_the_log_says_so(tmp_path):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    with threaded(tmp_path, port), contextlib.ExitStack() as stack:
        config = f"[collectors]\nfiles = false\n[queries]\nport = [{port}]\n" + described(port, log)
        running = stack.enter_context(agent(tmp_path, config))
        running.wait_for("log", "working")
        running.wait_for("queries", "working")
        clients = {}
        for name in ("closed", "open"):
            clients[name] = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            find = bson.encode({"find": name, "filter": {"sleep": 3_600_000}, "$db": "lab"})
            clients[name].sendall(mock.msg([mock.kind_0(find)], 1))
        in_flight = lambda: [rows(running.store).get(name, {}).get("in_flight") for name in clients]
        running.wait(lambda: in_flight() == [1, 1], "both queries in flight")
        address = "{}:{}".format(*clients["closed"].getsockname())
        # The kernel sends nothing then (TCP_REPAIR), as if the capture had lost the end of the connection.
        clients["closed"].setsockopt(socket.IPPROTO_TCP, 19, 1)
        clients["closed"].close()
        write(log, "NETWORK", 22944, "conn1", "Connection ended", {"remote": address, "connectionCount": 1})
        running.wait(lambda: in_flight() == [0, 1], "the end of the one")
        found = rows(running.store)
        assert running.stop() == 0
    outcomes = {name: (found[name]["calls"], found[name]["unanswered"]) for name in clients}
    assert outcomes == {"closed": (1, 1), "open": (0, 0)}, found


# Takes connections and never answers.
SILENT = """
import socket, sys
listener, kept = socket.create_server(("0.0.0.0", int(sys.argv[2]))), []
print("ready", sys.argv[2], flush=True)
while True:
    kept.append(listener.accept())
"""
CLONE_NEWNET = 0x40000000


def connect_in(namespace, address):
    """A connection from a network namespace."""
    made = []

    def connect():
        with open(f"/run/netns/{namespace}") as place:
            if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) == 0:
                made.append(socket.create_connection(address))

    # Only this thread goes there.
    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    return made[0]


def test_what_is_in_flight_on_a_server_in_a_container_ends_with_its_log_and_its_process(tmp_path):
    """A server of the host has the same port: what is in flight on that one stays."""
    port, log, program = free_port(), tmp_path / "mongod.log", tmp_path / "mongod"
    write(log, "CONTROL", 20698, "main", "***** SERVER RESTARTED *****", {})
    shutil.copy(os.path.realpath(sys.executable), program)
    silent = lambda *options: [program, "-S", "-c", SILENT, "--port", port, *options]
    with namespaces("host", "container") as ns, contextlib.ExitStack() as stack:
        join_by_veth((ns["host"], "h0", "10.96.1.1/24"), (ns["container"], "c0", "10.96.1.2/24"))

        def started(namespace, *options):
            command = [*inside(ns[namespace]), *silent(*options)]
            child = stack.enter_context(labkit.process(command, stdout=subprocess.PIPE))
            labkit.first_line(child)
            return child

        contained = started("container", "--logpath", log)
        started("host")
        config = f"[collectors]\nfiles = false\n[queries]\nport = [{port}]\n"
        running = stack.enter_context(agent(tmp_path, config, prefix=inside(ns["host"])))
        running.wait_for("log", "working")
        running.wait_for("queries", "working")
        clients = {}
        for name, address in (("closed", "10.96.1.2"), ("open", "10.96.1.2"), ("other", "127.0.0.1")):
            clients[name] = stack.enter_context(connect_in(ns["host"], (address, port)))
            find = bson.encode({"find": name, "$db": "lab"})
            clients[name].sendall(mock.msg([mock.kind_0(find)], 1))
        in_flight = lambda: [rows(running.store).get(name, {}).get("in_flight") for name in clients]
        running.wait(lambda: in_flight() == [1, 1, 1], "the queries in flight")
        address = "{}:{}".format(*clients["closed"].getsockname())
        # The kernel sends nothing then (TCP_REPAIR), as if the capture had lost the end of the connection.
        clients["closed"].setsockopt(socket.IPPROTO_TCP, 19, 1)
        clients["closed"].close()
        write(log, "NETWORK", 22944, "conn1", "Connection ended", {"remote": address, "connectionCount": 1})
        running.wait(lambda: in_flight() == [0, 1, 1], "the end of the one")
        # Nor is the end of its process to be seen on the wire.
        ip("-n", ns["host"], "link", "set", "h0", "down")
        contained.kill()
        running.wait(lambda: in_flight() == [0, 0, 1], "the end of the other one")
        assert running.stop() == 0


def test_two_servers_that_have_one_port_in_containers_are_told_apart(tmp_path):
    port, program = free_port(), tmp_path / "mongod"
    shutil.copy(os.path.realpath(sys.executable), program)
    logs = {name: tmp_path / f"{name}.log" for name in ("first", "second")}
    with namespaces("host", *logs) as ns, contextlib.ExitStack() as stack:
        addresses, processes = {}, {}
        for number, (name, log) in enumerate(logs.items()):
            host, addresses[name] = (f"10.9{number}.1.{last}" for last in (1, 2))
            join_by_veth((ns["host"], f"h{number}", host + "/24"), (ns[name], "c0", addresses[name] + "/24"))
            write(log, "CONTROL", 20698, "main", "***** SERVER RESTARTED *****", {})
            command = [*inside(ns[name]), program, "-S", "-c", SILENT, "--port", port, "--logpath", log]
            processes[name] = stack.enter_context(labkit.process(command, stdout=subprocess.PIPE))
            labkit.first_line(processes[name])
        config = f"[collectors]\nfiles = false\n[queries]\nport = [{port}]\n"
        running = stack.enter_context(agent(tmp_path, config, prefix=inside(ns["host"])))
        running.wait_for("log", "working")
        running.wait_for("queries", "working")
        for name in logs:
            client = stack.enter_context(connect_in(ns["host"], (addresses[name], port)))
            client.sendall(mock.msg([mock.kind_0(bson.encode({"find": name, "$db": "lab"}))], 1))
        running.wait(lambda: set(rows(running.store)) >= set(logs), "the queries")
        for name, log in logs.items():
            dropped = {"namespace": f"lab.{name}", "uuid": {"uuid": {"$uuid": "0" * 32}}, "indexes": "user_1"}
            write(log, "COMMAND", 51806, "conn9", "CMD: dropIndexes", dropped)
        told = lambda: document(running.store, "timeline", "--from", "-1h").get("events", [])
        words = {name: (f"lab.{name}", f"process {processes[name].pid} ") for name in logs}
        is_of = lambda name, event: any(word in event["sentence"] for word in words[name])
        named = lambda event: event.get("address") or f"0.0.0.0:{event['server']}"
        of = lambda name, kind: [named(event) for event in told() if event["kind"] == kind and is_of(name, event)]
        running.wait(lambda: all(of(name, "index_drop") for name in logs), "what both logs say")
        processes["second"].kill()
        running.wait(lambda: of("second", "server_crash"), "the end of one")
        running.observe(1)
        assert running.stop() == 0
        found = {name: {rows(running.store)[name]["server"], *of(name, "index_drop")} for name in logs}
        # The one that was there first has only its port in its name.
        assert found == {"first": {f"0.0.0.0:{port}"}, "second": {f"{addresses['second']}:{port}"}}, found
        assert of("second", "server_crash") == [f"{addresses['second']}:{port}"] and not of("first", "server_crash")
