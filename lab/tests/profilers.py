"""Shared code of the tests of `mongosonar profiler`: the MOCK mongod (lab/mock/mongod.py: no real server at hand has the
`profile` command), and the real lab server for what that has: connections, capped collections with tailable cursors."""

import contextlib
import shutil
import socket
import subprocess
import sys
import time

import bson
import pymongo
import pytest

import labkit

MOCK = [sys.executable, labkit.LAB / "mock/mongod.py"]


class Mock:
    """Controls a mock mongod."""

    def __init__(self, address, user=None):
        self.address, self.uri = address, f"mongodb://{user + '@' if user else ''}{address}"
        self.client = pymongo.MongoClient(self.uri, directConnection=True, retryReads=True)

    def command(self, name, **fields):
        return self.client.admin.command({"mock": name, **fields})

    def changes(self):
        """The commands that it received and that change something."""
        return self.command("log")["log"]

    def profile(self, database="shop"):
        reply = self.client[database].command("profile", -1)
        return {key: reply[key] for key in ("was", "slowms", "sampleRate", "filter", "ratelimit") if key in reply}

    def write(self, count, first=0, database="shop", fields=None, **options):
        documents = [
            {
                "op": "query",
                "ns": f"{database}.people",
                "command": {"find": "people", "filter": {"a": n}, "sort": {"b": -1}, "$db": database},
                "keysExamined": 0,
                "docsExamined": n,
                "nreturned": 1,
                "numYield": 0,
                "millis": n % 5,
                "planSummary": "COLLSCAN",
                "responseLength": 200,
                "protocol": "op_msg",
                "client": "10.0.0.1",
                "appName": "api",
                **(fields or {}),
            }
            for n in range(first, first + count)
        ]
        return self.command("fill", db=database, documents=documents, **options)

    def down(self, seconds, restart=False):
        with contextlib.suppress(pymongo.errors.AutoReconnect):
            self.command("down", seconds=seconds, restart=restart)

    def down_until(self, path, restart=False):
        """Until this file exists."""
        with contextlib.suppress(pymongo.errors.AutoReconnect):
            self.command("down", until=str(path), restart=restart)


@contextlib.contextmanager
def mongod(plays, *arguments, user=None):
    arguments = [*arguments, *(("--user", user) if user else ())]
    with labkit.ready([*MOCK, "--plays", plays, *arguments]) as address:
        mock = Mock(address, user)
        yield mock
        mock.client.close()


def run(*arguments, code=0, timeout=120):
    return labkit.run("profiler", *arguments, code=code, timeout=timeout)


@contextlib.contextmanager
def running(directory, *arguments):
    """Runs `mongosonar profiler ARGUMENTS` with its output in files."""
    out, err = directory / "out", directory / "err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        command = [labkit.MONGOSONAR, "profiler", *map(str, arguments)]
        with labkit.process(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL) as child:
            child.out, child.err = out, err
            yield child


def wait_for_output(child, text):
    def found():
        assert child.poll() is None or text in child.err.read_text() + child.out.read_text(), child.err.read_text()
        return text in child.err.read_text() + child.out.read_text()

    labkit.wait_until(found, f"{text!r} in {child.err.read_text()!r}")


@contextlib.contextmanager
def real_server(directory, listen="127.0.0.1:0"):
    with labkit.ready([labkit.LAB / "bin/server", "--listen", listen, "--dir", directory]) as address:
        yield address


def recorded(count, first=0):
    """Profile documents of several versions."""
    now = time.time()
    for n in range(first, first + count):
        head = {"op": "query", "ns": "shop.people"}
        tail = {"millis": n % 9, "ts": bson.datetime_ms.DatetimeMS(int(now * 1000) + n - first), "client": "10.0.0.1"}
        match n % 3:
            case 0:  # 2.6
                yield {**head, "query": {"a": n}, "nscanned": n, "nscannedObjects": n, "nreturned": 1, **tail}
            case 1:  # 3.2
                yield {
                    **head,
                    "query": {"find": "people", "filter": {"a": n}},
                    "keysExamined": 0,
                    "docsExamined": n,
                    "nreturned": 1,
                    **tail,
                }
            case _:  # 8.0, without "$db" in the command: this server takes no such key
                command = {"find": "people", "filter": {"a": n}}
                yield {
                    **head,
                    "command": command,
                    "keysExamined": 0,
                    "docsExamined": n,
                    "nreturned": 1,
                    "planSummary": "COLLSCAN",
                    **tail,
                }


def drawn(page, directory):
    """The DOM of a page in a browser."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        pytest.skip("needs chromium")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        f"--user-data-dir={directory}/browser",
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@contextlib.contextmanager
def replica_set():
    """Two mocks that claim to be a replica set; the first is the primary."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(2):
            probe = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(probe.getsockname()[1])
    members = ",".join(f"127.0.0.1:{port}" for port in ports)
    with contextlib.ExitStack() as stack:
        mocks = [stack.enter_context(mongod("6.0", "--port", str(port), "--members", members)) for port in ports]
        yield mocks, f"mongodb://{members}/?replicaSet=rs&heartbeatFrequencyMS=500&serverSelectionTimeoutMS=3000"


def names(changes):
    return [(next(iter(change)), next(iter(change.values()))) for change in changes]
