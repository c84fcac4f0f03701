"""Connections that were open before mongosonar started: whose they are, and that joining late is not a loss."""

import contextlib
import json
import os
import shutil
import sys

import pymongo
import pytest

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

# MOCK: a mongod that answers $currentOp, which the lab's server does not.
MOCK = [sys.executable, labkit.LAB / "mock/mongod.py", "--plays", "6.0"]


@contextlib.contextmanager
def pool(address, name):
    """A client whose one connection stays open."""
    client = pymongo.MongoClient(
        f"mongodb://{address}", appname=name, maxPoolSize=1, minPoolSize=1, directConnection=True
    )
    with client:
        client.shop.orders.find_one({"a": 1})
        yield client


def apps(lines):
    """Calls by application in the summary."""
    return {row["app"]: row["calls"] for row in labkit.summary(lines)["rows"]}


def listen(address, directory, *arguments):
    command = [
        "--interface",
        "lo",
        "--port",
        str(labkit.port_of(address)),
        "--by",
        "app",
        "--json",
        "--interval",
        "500ms",
    ]
    return labkit.live_capture(directory, [*command, *arguments])


def ask(client, times):
    for n in range(times):
        client.shop.orders.find_one({"a": n})


def has_captured(sonar, calls):
    return lambda: sum(line["totals"]["calls"] for line in sonar.lines()) >= calls


def metadata(client, name):
    """The log line of a 4.4 with a client's metadata."""
    port = next(iter(client._topology._servers.values())).pool.conns[0].conn.get_conn.getsockname()[1]
    attributes = {
        "remote": f"127.0.0.1:{port}",
        "client": "conn9",
        "doc": {
            "application": {"name": name},
            "driver": {"name": "PyMongo", "version": pymongo.version},
            "os": {"type": "Linux"},
        },
    }
    line = {
        "t": {"$date": "2024-05-01T10:00:00.000+00:00"},
        "s": "I",
        "c": "NETWORK",
        "id": 51800,
        "ctx": "conn9",
        "msg": "client metadata",
        "attr": attributes,
    }
    return json.dumps(line, separators=(",", ":")) + "\n"


@pytest.mark.parametrize("named", ["--uri mongodb://{address}", "--host {host}"])
def test_the_server_names_connection_pools(named, tmp_path):
    """A host without a port gets the port of the single --port."""
    with labkit.ready(MOCK) as address, pool(address, "shop-api") as shop, pool(address, "reports") as reports:
        server = named.format(address=address, host=address.rsplit(":", 1)[0])
        with listen(address, tmp_path, *server.split()) as sonar:
            ask(shop, 20)
            ask(reports, 10)
            labkit.wait_until(has_captured(sonar, 30), "30 operations")
            lines = sonar.stop()
    found = apps(lines)
    assert found.get("shop-api") == 20 and found.get("reports") == 10 and None not in found, found
    summary = labkit.summary(lines)
    assert summary["coverage"]["replies_orphan"] == 0


def test_a_log_names_connection_pools(tmp_path):
    log = tmp_path / "mongod.log"
    with labkit.ready(MOCK) as address, pool(address, "x") as shop:
        log.write_text(metadata(shop, "from the log"))
        with listen(address, tmp_path, "--log", str(log)) as sonar:
            ask(shop, 20)
            labkit.wait_until(has_captured(sonar, 20), "20 operations")
            assert apps(sonar.stop()) == {"from the log": 20}


def test_the_log_of_a_local_server_is_found(tmp_path):
    """A process whose program file is called mongod, which listens, and whose log is its standard output. It has several
    ports, so it is not known to which one a client of its log has come."""
    log = tmp_path / "mongod.log"
    server = shutil.copy(os.path.realpath(sys.executable), tmp_path / "mongod")
    listens = "several = [socket.create_server(('127.0.0.1', 0)) for _ in range(2)]; print('here', flush=True)"
    listens = f"import socket, time; {listens}; time.sleep(600)"
    with labkit.ready(MOCK) as address, pool(address, "x") as shop:
        log.write_text(metadata(shop, "from its log"))
        with open(log, "ab") as out, labkit.process([server, "-S", "-c", listens], stdout=out):
            labkit.wait_until(lambda: log.read_text().endswith("here\n"), "a server that listens")
            with listen(address, tmp_path) as sonar:
                ask(shop, 20)
                labkit.wait_until(has_captured(sonar, 20), "20 operations")
                assert apps(sonar.stop()) == {"from its log": 20}


def test_without_server_or_log_they_are_joined_late_and_nothing_is_lost(tmp_path):
    with labkit.ready(MOCK) as address, pool(address, "x") as shop:
        with listen(address, tmp_path) as sonar:
            ask(shop, 20)
            labkit.wait_until(has_captured(sonar, 20), "20 operations")
            assert apps(sonar.stop()) == {None: 20}


def test_a_capture_file_takes_applications_from_the_given_log(tmp_path):
    capture, log = tmp_path / "late.pcap", tmp_path / "mongod.log"
    with labkit.ready(MOCK) as address, pool(address, "x") as shop:
        later = metadata(shop, "later").replace("2024-05-01", "2999-05-01")
        log.write_text(metadata(shop, "at the time") + later)
        with labkit.tcpdump(capture, "lo", f"tcp port {labkit.port_of(address)}"):
            ask(shop, 5)
    for arguments, expected in [([], {None: 5}), (["--log", log], {"at the time": 5})]:
        assert apps(labkit.documents("queries", "--read", capture, "--by", "app", "--json", *arguments)) == expected


def test_an_unreachable_server_gives_a_message_and_the_capture_continues(tmp_path):
    with labkit.ready(MOCK) as address, pool(address, "x") as shop:
        uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300"
        with listen(address, tmp_path, "--uri", uri) as sonar:
            ask(shop, 20)
            labkit.wait_until(has_captured(sonar, 20), "20 operations")
            assert apps(sonar.stop()) == {None: 20}
        assert "applications of open connections" in (tmp_path / "mongosonar.err").read_text()


def test_a_port_without_a_server_gives_a_message(tmp_path):
    with labkit.ready(MOCK) as address:
        free = labkit.port_of(address)
    done = labkit.run("queries", "--interface", "lo", "--port", free, "--duration", "1s", timeout=60)
    assert f"Nobody listens on port {free} on this machine." in done.stdout
    assert "LOST" not in done.stdout


def test_each_format_counts_the_operations_left_out(tmp_path):
    capture = tmp_path / "ping.pcap"
    with labkit.ready(MOCK) as address, labkit.tcpdump(capture, "lo", f"tcp port {labkit.port_of(address)}"):
        with pool(address, "x") as client:
            for _ in range(3):
                client.admin.command("ping")
    run = lambda *arguments: labkit.run("queries", "--read", capture, *arguments)
    table = " ".join(run("--filter", "nothing like this").stdout.split())
    assert "that the filter leaves out (without --filter)" in table, table
    assert "(--class all)" in table
    for arguments in (["--csv"], ["--each"], ["--digest"]):
        done = run(*arguments)
        # The text of a digest contains it itself.
        output = done.stdout if arguments == ["--digest"] else done.stderr
        assert "monitoring 5" in output and "(--class all)" in output, (arguments, output)
    last = json.loads(run("--each", "--json").stdout.splitlines()[-1])
    assert last["kind"] == "summary" and last["hidden"][0]["show_with"] == "--class all", last
