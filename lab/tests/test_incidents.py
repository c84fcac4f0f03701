"""Incidents whose cause is known: `what-changed` must name it first, and blame nothing else.

The servers are the lab's own (lab/threaded) on the real WiredTiger, under the name of the real one. The test writes what a
mongod of 4.4 would write into its log. Several servers have each an incident of their own while one agent watches them all;
what strikes the whole machine comes afterwards, one incident after the other, at one server.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import signal
import sys
import threading
import time

import pymongo
import pytest
from profilers import mongod
from test_agent import agent, append, free_port, wait_for_a_boundary
from test_agent_split import threaded
from test_agent_status import with_uri

import labkit

pytestmark = [
    pytest.mark.root,
    pytest.mark.servers,
    pytest.mark.skipif(not os.environ.get("LONG"), reason="it takes four minutes for each load; LONG=1 lets it run"),
]

# Windows of 10 s before an incident, and after it.
BEFORE, AFTER = 7, 4
# For how many seconds writes are locked.
LOCKED_S = 15
# Queries a second at each server.
LOADS = {"light": 10, "steady": 25, "heavy": 60}
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def write(log, component, identity, context, message, attributes):
    """A line as a server of 4.4 writes it."""
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    head = {"t": {"$date": at}, "s": "I", "c": component, "id": identity, "ctx": context, "msg": message}
    append(log, json.dumps(head | {"attr": attributes}, separators=(",", ":")))


def state_itself(log, version, options, context="initandlisten"):
    """The lines with which a server begins a log, also after it was rotated."""
    build = {"buildInfo": {"version": version, "gitVersion": "lab"}}
    write(log, "CONTROL", 23403, context, "Build Info", build)
    write(log, "CONTROL", 21951, context, "Options set by command line", {"options": options})


@dataclasses.dataclass
class Server:
    """A server with its log and the clients that ask it."""

    directory: pathlib.Path
    name: str
    rate: int
    cgroup: pathlib.Path | None = None
    # How many ask it, and whether they write.
    askers: int = 1
    writes: bool = False
    # Arguments of the program.
    options: tuple = ()
    port: int = dataclasses.field(default_factory=free_port)

    def __post_init__(self):
        self.folder = self.directory / self.name
        self.folder.mkdir()
        self.log = self.folder / "mongod.log"
        self.log.touch()
        self.stop_asking = threading.Event()
        # What several servers need together must not make them wait for each other.
        self.steps = {"burn": 1}
        self.running = None
        self.clients = []

    def start(self):
        self.running = contextlib.ExitStack()
        # What it has in memory belongs to the group that it was in when it took it, so it begins there.
        with inside(self.cgroup) if self.cgroup else contextlib.nullcontext():
            self.process = self.running.enter_context(threaded(self.folder, self.port, self.options))
        self.read_until_ready = self.read_from_disk()
        self.asking = [threading.Thread(target=self.ask) for _ in range(self.askers)]
        for asker in self.asking:
            asker.start()

    def ask(self):
        """Asks at a steady rate. A server that has ended is asked again once it is back."""
        uri = f"mongodb://127.0.0.1:{self.port}/?directConnection=true&serverSelectionTimeoutMS=2000&socketTimeoutMS=120000"
        with pymongo.MongoClient(uri, appname=f"shop-{self.name}") as client:
            while not self.stop_asking.wait(self.askers / self.rate):
                with contextlib.suppress(pymongo.errors.PyMongoError):
                    if self.writes:
                        write = {"findAndModify": "orders", "query": self.steps, "update": {"$set": {"a": 1}}}
                        client.lab.command(write)
                    else:
                        labkit.ask_threaded(client.lab, self.steps)

    def read_from_disk(self):
        """The bytes that were read from a disk for it so far (proc(5): io)."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"])

    def end(self):
        self.stop_asking.set()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        for asker in self.asking:
            asker.join()
        self.running.close()


@contextlib.contextmanager
def inside(group):
    """Processes that begin here belong to this control group."""
    mine = group.parent / "cgroup.procs"
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        mine.write_text(str(os.getpid()))


@contextlib.contextmanager
def control_group(controller, limits):
    """A control group with these limits, of version 1 or 2."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    parent = CGROUPS if unified else CGROUPS / controller
    if not parent.exists() or not os.access(parent, os.W_OK):
        pytest.skip(f"no control groups for {controller} can be made here")
    group = parent / f"mongosonar-lab-{os.getpid()}-{controller}"
    group.mkdir()
    try:
        for names, value in limits.items():
            (group / names[1 if unified else 0]).write_text(value)
        yield group
    finally:

        def is_removed():
            with contextlib.suppress(OSError):
                group.rmdir()
            return not group.exists()

        labkit.wait_until(is_removed, "a control group without processes")


def changes(store, since, port=None):
    """The causes that what-changed names since this time, the largest first."""
    words = ["--from", since, "--json", "--store", store, *(["--port", port] if port else [])]
    done = labkit.run("what-changed", *words, code=None)
    assert done.returncode in (0, 4), done
    return [change for moment in json.loads(done.stdout)["moments"] for change in moment["changes"]], done.stdout


def kill(server):
    server.process.kill()
    server.process.wait()


def exhaust_memory(server):
    """Its control group allows little more than what it has, and then many clients connect."""
    group = server.cgroup
    unified = (group / "memory.max").exists()
    used = int((group / ("memory.current" if unified else "memory.usage_in_bytes")).read_text())
    (group / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(used + (1 << 20)))
    uri = f"mongodb://127.0.0.1:{server.port}/?directConnection=true&maxPoolSize=1&serverSelectionTimeoutMS=500"
    for _ in range(300):
        if server.process.poll() is not None:
            return
        client = pymongo.MongoClient(uri, appname="growing")
        with contextlib.suppress(pymongo.errors.PyMongoError):
            labkit.ask_threaded(client.lab, {"read": 50})
        server.clients.append(client)
    raise AssertionError("it did not run out of memory")


def restart(server, version, options):
    server.running.close()
    with contextlib.ExitStack() as again:
        server.process = again.enter_context(threaded(server.folder, server.port))
        state_itself(server.log, version, {"net": {"port": server.port}} | options)
        server.running = again.pop_all()


def drop_an_index(server):
    uri = f"mongodb://127.0.0.1:{server.port}/?directConnection=true"
    with pymongo.MongoClient(uri, appname="admin-shell") as client:
        client.lab.command({"dropIndexes": "orders", "index": "user_1"})
    dropped = {"namespace": "lab.orders", "uuid": {"uuid": {"$uuid": "0" * 32}}, "indexes": "user_1"}
    write(server.log, "COMMAND", 51806, "conn9", "CMD: dropIndexes", dropped)
    server.steps = {"burn": 12}


def storm(server):
    """300 clients that connect at the same moment and stay."""
    uri = f"mongodb://127.0.0.1:{server.port}/?directConnection=true&maxPoolSize=1"
    server.clients = [pymongo.MongoClient(uri, appname="stormy") for _ in range(300)]
    for client in server.clients:
        labkit.ask_threaded(client.lab, {"sleep": 1})


# Of each server: its incident, and what the first change must say.
INCIDENTS = {
    "killed": (kill, "killed"),
    "memory": (exhaust_memory, "out of memory"),
    "settings": (lambda server: restart(server, "4.4.6", {"storage": {"wiredTiger": 1}}), "setting"),
    "upgrade": (lambda server: restart(server, "5.0.9", {}), "5.0.9"),
    "index": (drop_an_index, "index user_1 was dropped"),
    "storm": (storm, "connections"),
    "throttled": (None, "throttled"),
    "stopped": (lambda server: server.process.send_signal(signal.SIGSTOP), "stopped"),
}


@contextlib.contextmanager
def observed(folder, servers):
    """An agent that has observed these servers for a while, and observes them for a while after the block; and since when
    the block runs: what was before that is only compared with, as other programs run on this machine, too."""
    with contextlib.ExitStack() as stack:
        for server in servers.values():
            server.start()
            stack.callback(server.end)
        described = "".join(f'[[server]]\nport = {one.port}\nlog = "{one.log}"\n' for one in servers.values())
        ports = ", ".join(str(one.port) for one in servers.values())
        config = f"[collectors]\nfiles = false\nsplit = true\n[queries]\nport = [{ports}]\n{described}"
        running = stack.enter_context(agent(folder, config))
        running.wait_for("split", "working")
        running.wait_for("log", "working")
        for server in servers.values():
            state_itself(server.log, "4.4.6", {"net": {"port": server.port}}, "SignalHandler")
        running.wait_until_read()
        running.observe(BEFORE)
        wait_for_a_boundary()
        yield running, datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        running.observe(AFTER)
        assert running.stop() == 0


@pytest.mark.parametrize("load", LOADS)
def test_the_cause_of_each_incident_of_a_server_is_named_and_nothing_else_is_blamed(tmp_path, load):
    with contextlib.ExitStack() as stack:
        groups = {
            "memory": stack.enter_context(control_group("memory", {})),
            "throttled": stack.enter_context(control_group("cpu", {})),
        }
        servers = {name: Server(tmp_path, name, LOADS[load], groups.get(name)) for name in INCIDENTS}
        servers["throttled"].steps = {"burn": 5}
        with observed(tmp_path, servers) as (running, began):
            for name, (strike, _) in INCIDENTS.items():
                if strike:
                    strike(servers[name])
            throttle(servers["throttled"])
        wrong = {}
        for name, (_, words) in INCIDENTS.items():
            found, text = changes(running.store, began, servers[name].port)
            (tmp_path / f"{name}.json").write_text(text)
            sentences = [change["sentence"] for change in found]
            blamed = [change["sentence"] for change in found if change["effects"] and words not in change["sentence"]]
            if not sentences or words not in sentences[0] or blamed:
                wrong[name] = sentences
    assert not wrong, json.dumps(wrong, indent=1)


def lock_writes(server):
    """Whoever unlocks them must have the same connection."""
    uri = f"mongodb://127.0.0.1:{server.port}/?directConnection=true&maxPoolSize=1"
    client = pymongo.MongoClient(uri, appname="admin-shell")
    server.clients = [client]
    client.admin.command({"fsync": 1, "lock": True})
    message = "mongod is locked and no writes are allowed"
    write(server.log, "COMMAND", 20462, "conn9", message, {"lockCount": 1})
    # span: how long they are locked
    time.sleep(LOCKED_S)


def unlock_writes(server):
    server.clients[0].admin.command({"fsyncUnlock": 1})
    write(server.log, "COMMAND", 20466, "conn9", "fsyncUnlock completed", {"lockCount": 0})


def build_an_index(server):
    """The one that was dropped."""
    uri = f"mongodb://127.0.0.1:{server.port}/?directConnection=true"
    index = {"key": {"user": 1}, "name": "user_1"}
    build = {"namespace": "lab.orders", "buildUUID": {"uuid": {"$uuid": "12345678-1234-1234-1234-123456789012"}}}
    with pymongo.MongoClient(uri, appname="admin-shell") as client:
        write(server.log, "INDEX", 20384, "conn9", "Index build: starting", build | {"properties": index})
        client.lab.command({"createIndexes": "orders", "indexes": [index]})
        write(server.log, "INDEX", 20345, "conn9", "Index build: done building", build | {"index": "user_1"})
    server.steps = {"burn": 1}


# Of each server: what begins the incident and what ends it, what the first change must say, and what may be said of its
# end.
UNDONE = {
    "dropped": (drop_an_index, build_an_index, "index user_1 was dropped", "index user_1"),
    "locked": (lock_writes, unlock_writes, "writes were locked by fsyncLock", "writes were unlocked"),
}


@pytest.mark.parametrize("load", LOADS)
def test_the_cause_of_an_incident_that_was_undone_is_named_and_nothing_else_is_blamed(tmp_path, load):
    servers = {name: Server(tmp_path, name, LOADS[load], askers=8) for name in UNDONE}
    # Writes wait for the lock if somebody else has it.
    servers["locked"].steps, servers["locked"].writes = {"burn": 1, "lock": 1}, True
    with observed(tmp_path, servers) as (running, began):
        for which in (0, 1):
            for name, incident in UNDONE.items():
                incident[which](servers[name])
    wrong = {}
    for name, (_, _, cause, end) in UNDONE.items():
        found, text = changes(running.store, began, servers[name].port)
        (tmp_path / f"{name}.json").write_text(text)
        sentences = [change["sentence"] for change in found]
        is_its = lambda change: cause in change["sentence"] or end in change["sentence"]
        blamed = [change["sentence"] for change in found if change["effects"] and not is_its(change)]
        if not sentences or cause not in sentences[0] or blamed:
            wrong[name] = sentences
    assert not wrong, json.dumps(wrong, indent=1)


def throttle(server):
    """It gets one hundredth of a processor, which is a part of what its queries take."""
    group = server.cgroup
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text("1000 100000")
    else:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("1000")


@contextlib.contextmanager
def neighbour(_):
    """Programs that compute, four for each processor, which the server uses as well."""
    with contextlib.ExitStack() as stack:
        for _ in range(4 * os.cpu_count()):
            stack.enter_context(labkit.process([sys.executable, "-c", "while True: pass"]))
        yield


@contextlib.contextmanager
def without_page_cache(server):
    """Somebody drops the page cache again and again: what the server read from there now comes from the disk."""
    before = server.read_from_disk() - server.read_until_ready

    def drop(stop):
        while not stop.wait(0.2):
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")

    with labkit.in_background(drop):
        yield
    during = server.read_from_disk() - server.read_until_ready - before
    assert 10 * before < during, f"{before} bytes came from the disk before, and {during} then"


# What strikes the machine, the server and what it does meanwhile, and what the first change must say.
MACHINE = {
    "neighbour": (neighbour, (), {"burn": 5}, "processors"),
    "page cache": (without_page_cache, ("cached",), {"read": 200}, "files are read from the disk"),
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("incident", MACHINE)
def test_the_cause_of_an_incident_of_the_machine_is_named_and_nothing_else_is_blamed(tmp_path, incident, load):
    strike, options, steps, words = MACHINE[incident]
    server = Server(tmp_path, "only", LOADS[load], options=options)
    server.steps = steps
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(server.end)
        config = f'[collectors]\nsplit = true\n[queries]\nport = [{server.port}]\n[split]\nsample = "1/1"\n'
        with agent(tmp_path, config + f'[[server]]\nport = {server.port}\nlog = "{server.log}"\n') as running:
            running.wait_for("split", "working")
            running.observe(BEFORE)
            wait_for_a_boundary()
            began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            with strike(server):
                running.observe(AFTER)
            assert running.stop() == 0
        found, text = changes(running.store, began, server.port)
        (tmp_path / "changes.json").write_text(text)
    sentences = [change["sentence"] for change in found]
    blamed = [change["sentence"] for change in found if change["effects"] and words not in change["sentence"]]
    assert sentences and words in sentences[0] and not blamed, json.dumps(sentences, indent=1)


def asking(address, rate):
    """A client that asks this server so many times a second."""

    def ask(stop):
        with pymongo.MongoClient(f"mongodb://{address}/?directConnection=true", appname="shop") as client:
            while not stop.wait(1 / rate):
                client.lab.orders.find_one({"user": 1})

    return labkit.in_background(ask)


@pytest.mark.parametrize("load", LOADS)
def test_a_secondary_that_stands_still_is_named_and_nothing_else_is_blamed(tmp_path, load):
    """A primary and a secondary, both MOCKS: the lab's real server is no member of a replica set. A client asks the
    primary at this load, before and after."""
    ports = sorted(free_port() for _ in range(2))
    names = [f"127.0.0.1:{port}" for port in ports]
    members = ["--members", ",".join(names)]
    config = with_uri(f"mongodb://{','.join(names)}/?replicaSet=rs").replace("queries = false\n", "")
    with (
        mongod("6.0", "--port", ports[0], *members) as first,
        mongod("6.0", "--port", ports[1], *members) as second,
        asking(names[0], LOADS[load]),
        agent(tmp_path, f"{config}[queries]\nport = {ports}\n") as running,
    ):
        running.wait_for("status", "working")
        running.wait_for("queries", "working")
        labkit.wait_until(lambda: second.command("asked")["asked"].get("serverStatus"), "the secondary is asked")
        running.observe(BEFORE)
        wait_for_a_boundary()
        began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        for one in (first, second):
            one.command("still")
        running.observe(AFTER)
        assert running.stop() == 0
        found, text = changes(running.store, began)
        (tmp_path / "changes.json").write_text(text)
    sentences = [change["sentence"] for change in found]
    assert sentences and sentences[0].startswith(f"the member {names[1]} stands still"), sentences
    assert not [change["sentence"] for change in found[1:] if change["effects"]], sentences
