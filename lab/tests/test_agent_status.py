"""The agent and a server with a connection string: serverStatus, replSetGetStatus, sizes of collections.

Most servers are MOCKS (lab/mock/mongod.py): the lab's real one has no replSetGetStatus, and nobody can set its sizes.
"""

import json
import os
import re
import time

import pymongo
import pytest
from profilers import mongod
from test_agent import agent, free_port
from test_privileges import tasks

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

ONLY_STATUS = "[collectors]\nqueries = false\nlog = false\ninternals = false\nmachine = false\nfiles = false\n"


def with_uri(uri):
    return f'{ONLY_STATUS}[[server]]\nport = 27017\nuri = "{uri}"\n'


def past(command, store):
    """What a command prints about the last ten minutes."""
    done = labkit.run(command, "--from", "-10m", "--json", "--store", store, code=None)
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout)


def figures(store):
    """What is stored, by metric and name."""
    found = {}

    def search(value):
        if isinstance(value, dict):
            if "metric" in value and "subject" in value:
                found[(value["metric"], value.get("name") or "")] = value
            for part in value.values():
                search(part)
        elif isinstance(value, list):
            for part in value:
                search(part)

    search(past("report", store))
    return found


def wait_for_sizes(running):
    """Waits until it has the sizes of collections."""
    notes = lambda: " ".join(running.collector("status")["notes"])
    labkit.wait_until(lambda: re.search(r"sizes of [1-9]", notes()), "sizes of collections")


def events(store, kind):
    return [one for one in past("timeline", store)["events"] if one["kind"] == kind]


def test_status_and_sizes_of_a_server_with_a_login_become_series(tmp_path):
    """The server requires a login. The password is in no output and in no file."""
    with mongod("6.0", user="dba:s3cret") as mock:
        mock.command("size", ns="shop.c", stats={"size": 5_000_000, "count": 700, "indexSizes": {"a_1": 123_456}})
        (tmp_path / "agent.toml").touch(0o600)
        began = time.monotonic()
        with agent(tmp_path, with_uri(f"mongodb://dba:s3cret@{mock.address}")) as running:
            running.wait_for("status", "working")
            pid = running.child.pid
            threads = {name.rsplit(" ", 1)[0]: fields for name, fields in tasks(pid).items()}
            assert int(threads["status"]["CapEff"], 16) == 0 and threads["status"]["Seccomp"].strip() == "2"
            asked = lambda: mock.command("asked")["asked"]
            labkit.wait_until(lambda: asked().get("serverStatus", 0) >= 3, "three looks at it")
            status = running.status()
            collector = running.collector("status")
            assert collector["notes"] == [f"{mock.address}: figures from serverStatus, sizes of 2 collections"]
            assert asked()["aggregate"] == 2, asked()
            # It is looked at every ten seconds; the driver and the test ask nothing of this kind.
            assert asked()["serverStatus"] <= (time.monotonic() - began) / 10 + 2, asked()
            assert running.stop() == 0
        found = figures(running.store)
        assert found[("collection.size_bytes", "shop.c")]["mean"] == 5_000_000
        assert found[("index.size_bytes", "shop.c a_1")]["mean"] == 123_456
        assert any(metric.startswith("connections.") for metric, _ in found), sorted(found)
        everything = json.dumps(status) + running.errors()
        assert "s3cret" not in everything
        for file in running.store.iterdir():
            assert b"s3cret" not in file.read_bytes(), file


def test_sizes_of_the_real_server_are_those_that_it_gives_to_another_client(tmp_path):
    with labkit.server("127.0.0.1:0") as address, pymongo.MongoClient(f"mongodb://{address}") as client:
        client.shop.carts.insert_many([{"n": number, "text": "x" * 500} for number in range(200)])
        client.shop.carts.create_index("n")
        expected = client.shop.command("collStats", "carts")
        with agent(tmp_path, with_uri(f"mongodb://{address}")) as running:
            running.wait_for("status", "working")
            wait_for_sizes(running)
            assert running.collector("status")["problems"] == []
            assert running.stop() == 0
    found = figures(running.store)
    assert found[("collection.documents", "shop.carts")]["mean"] == 200
    assert found[("collection.storage_bytes", "shop.carts")]["mean"] == expected["storageSize"]
    indexes = {
        name.removeprefix("shop.carts "): one["mean"] for (metric, name), one in found.items() if "index" in metric
    }
    assert indexes == expected["indexSizes"]


def test_a_server_that_goes_and_returns_is_reported_once(tmp_path):
    with mongod("8.0") as mock, agent(tmp_path, with_uri(f"mongodb://{mock.address}")) as running:
        running.wait_for("status", "working")
        mock.down(25.0)
        running.wait_for("status", "waiting")
        problems = running.collector("status")["problems"]
        assert len(problems) == 1 and problems[0].startswith(f"{mock.address}: "), problems
        running.wait_for("status", "working")
        lines = [line for line in running.errors().splitlines() if line.startswith("mongosonar: status")]
        assert len(lines) == 2, lines
        assert running.stop() == 0


def test_what_the_user_may_not_do_is_named_and_the_rest_goes_on(tmp_path):
    with mongod("6.0") as mock:
        mock.command("forbid", commands=["replSetGetStatus", "aggregate"])
        with agent(tmp_path, with_uri(f"mongodb://{mock.address}")) as running:
            running.wait_for("status", "needs_you")
            counts = lambda: mock.command("asked")["asked"]
            labkit.wait_until(lambda: counts().get("serverStatus", 0) >= 3, "the rest goes on")
            problem = " ".join(running.collector("status")["problems"])
            assert "not authorized to read replSetGetStatus; grant the role clusterMonitor" in problem
            assert "not authorized to read the sizes of collections; grant the role clusterMonitor" in problem
            asked = counts()
            assert asked["replSetGetStatus"] == 1 and asked["aggregate"] == 1, (
                "what is refused is not asked all the time"
            )
            assert running.stop() == 0


def test_each_member_is_asked_itself_and_an_election_is_an_event(tmp_path):
    ports = sorted(free_port() for _ in range(2))
    names = [f"127.0.0.1:{port}" for port in ports]
    with (
        mongod("6.0", "--port", ports[0], "--members", ",".join(names)) as first,
        mongod("6.0", "--port", ports[1], "--members", ",".join(names)) as second,
        agent(tmp_path, with_uri(f"mongodb://{','.join(names)}/?replicaSet=rs")) as running,
    ):
        running.wait_for("status", "working")
        labkit.wait_until(lambda: second.command("asked")["asked"].get("serverStatus"), "the secondary is asked")
        first.command("primary", **{"is": False}, term=2)
        second.command("primary", **{"is": True}, term=2)
        asked = lambda: [mock.command("asked")["asked"]["replSetGetStatus"] for mock in (first, second)]
        before = asked()
        has_looked = lambda: all(now >= then + 2 for now, then in zip(asked(), before, strict=True))
        labkit.wait_until(has_looked, "two looks at each member")
        assert running.stop() == 0
    found = figures(running.store)
    assert {name for metric, name in found if metric == "member.state"} == set(names)
    assert any(metric == "member.lag_ms" and one["mean"] >= 2_000 for (metric, _), one in found.items())
    assert any("elected primary in term 2" in one["sentence"] for one in events(running.store, "election"))


def test_a_mongos_gives_the_sizes_of_all_shards(tmp_path):
    with mongod("mongos") as mock:
        mock.command("size", ns="shop.c", stats={"size": 1_000, "count": 5, "indexSizes": {"a_1": 10}})
        with agent(tmp_path, with_uri(f"mongodb://{mock.address}")) as running:
            running.wait_for("status", "working")
            wait_for_sizes(running)
            assert "replSetGetStatus" not in mock.command("asked")["asked"]
            assert running.stop() == 0
    assert figures(running.store)[("collection.size_bytes", "shop.c")]["mean"] == 2_000


def test_a_password_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text(with_uri("mongodb://dba:s3cret@127.0.0.1:1"))
    os.chmod(file, 0o644)
    words = ["agent", "--config", file, "--check-config"]
    done = labkit.run(*words, code=2)
    assert "chmod o=" in done.stderr and "s3cret" not in done.stderr, done
    os.chmod(file, 0o600)
    labkit.run(*words)


def test_the_environment_names_a_server_too(tmp_path):
    with mongod("6.0") as mock:
        # Without privileges names can still be looked up.
        environment = {"MONGOSONAR_URI": f"mongodb://{mock.address.replace('127.0.0.1', 'localhost')}"}
        with agent(tmp_path, ONLY_STATUS, environment) as running:
            running.wait_for("status", "working")
            assert running.stop() == 0
