"""`mongosonar profiler status` and `set`: what is shown, changed and restored."""

import json
import re
import signal
import time

import pytest
from profilers import mongod, names, replica_set, run, running, wait_for_output


@pytest.mark.parametrize("plays", ["4.4", "6.0", "8.0", "percona"])
def test_status_of_each_version(plays):
    with mongod(plays) as mock:
        mock.client.shop.command("profile", 1, slowms=33, sampleRate=0.5)
        mock.write(100)
        status = json.loads(run("status", "--json", mock.uri).stdout)
        shop = next(row for row in status["databases"] if row["database"] == "shop")
        assert (shop["level"], shop["slowms"], shop["sample_rate"]) == (1, 33, 0.5)
        assert shop["rate_limit"] == (1 if plays == "percona" else None)
        stats = mock.client.shop.command("collStats", "system.profile")
        assert (shop["documents"], shop["size_bytes"], shop["size_max_bytes"]) == (100, stats["size"], stats["maxSize"])
        assert not shop["full"] and shop["wraps_in_ns"] > 0
        blog = next(row for row in status["databases"] if row["database"] == "blog")
        assert blog["level"] == 0 and blog["documents"] is None and blog["wraps_in_ns"] is None
        table = run("status", "--db", "shop", mock.uri).stdout
        assert ("ratelimit" in table) == (plays == "percona")
        assert re.search(r"^shop .*33ms .* 100 .* in \d", table, re.M), table
        mock.write(4_000)
        assert json.loads(run("status", "--json", "--db", "shop", mock.uri).stdout)["databases"][0]["full"]
        assert "full, turns in" in run("status", "--db", "shop", mock.uri).stdout


def test_a_server_without_a_profiler_gives_that_error(served_v4):
    assert "has no profiler" in run("status", f"mongodb://{served_v4}", code=1).stderr
    with mongod("mongos") as mock:
        assert "is a mongos" in run("status", mock.uri, code=1).stderr
        assert "is a mongos" in run("tail", mock.uri, code=1).stderr


def test_a_resize_happens_in_the_right_order_with_all_messages():
    with mongod("6.0") as mock:
        mock.client.shop.command("profile", 1)
        mock.write(10)
        begun = len(mock.changes())
        done = run(
            "set", "--db", "shop", "--level", "2", "--slowms", "20", "--sample-rate", "0.25", "--size", "4m", mock.uri
        )
        assert names(mock.changes()[begun:]) == [
            ("profile", 0),
            ("drop", "system.profile"),
            ("create", "system.profile"),
            ("profile", 2),
        ]
        assert mock.changes()[-2]["size"] == 4 << 20
        assert mock.profile() == {"was": 2, "slowms": 20, "sampleRate": 0.25}
        assert re.search(
            r"^shop: was level 1, slowms 100, sample rate 1, no filter, system.profile of 1MiB with 10 documents$",
            done.stdout,
            re.M,
        )
        assert re.search(
            r"^shop: now level 2, slowms 20, .*system.profile of 4MiB with \d documents?$", done.stdout, re.M
        )
        assert "every operation is written" in done.stderr and "drops what system.profile holds: 1" in done.stderr
        assert "to the log only what is slower than slowms" in done.stderr, "it is a 6.0"


def test_filters_and_all_databases():
    with mongod("8.0") as mock:
        run("set", "--all-dbs", "--level", "1", "--filter", '{"millis": {"$gt": 20}, "op": "update"}', mock.uri)
        for database in "shop", "blog":
            assert mock.profile(database)["filter"] == {"millis": {"$gt": 20}, "op": "update"}
        assert {change["$db"] for change in mock.changes()} == {"shop", "blog"}, "not admin, config, local"
        assert 'filter {"millis":{"$gt":20},"op":"update"}' in run("status", "--db", "shop", mock.uri).stdout
        run("set", "--db", "shop", "--filter", "unset", mock.uri)
        assert "filter" not in mock.profile() and mock.profile()["was"] == 1
        assert "filter" in mock.profile("blog")
        assert "no find expression" in run("set", "--db", "shop", "--filter", "{", mock.uri, code=2).stderr


@pytest.mark.parametrize(
    ("plays", "option", "word"),
    [("4.4.1", ["--filter", '{"op": "query"}'], "4.4.2"), ("6.0", ["--rate-limit", "10"], "Percona")],
)
def test_an_unsupported_option_is_refused_before_anything_changes(plays, option, word):
    with mongod(plays) as mock:
        assert word in run("set", "--db", "shop", "--level", "2", "--size", "8m", *option, mock.uri, code=1).stderr
        assert mock.changes() == []


def test_the_rate_limit_of_percona():
    with mongod("percona") as mock:
        run("set", "--db", "shop", "--level", "2", "--rate-limit", "100", mock.uri)
        assert mock.profile() == {"was": 2, "slowms": 100, "sampleRate": 1.0, "ratelimit": 100}


CHANGE = ["--level", "2", "--slowms", "5", "--sample-rate", "0.1", "--filter", '{"op": "insert"}', "--size", "4m"]


WAS = {"was": 1, "slowms": 70, "sampleRate": 0.75, "filter": {"op": "query"}}


@pytest.mark.parametrize("end", ["time", "SIGINT", "SIGTERM", "SIGHUP", "lost", "restart"])
def test_everything_is_restored_however_it_ends(end, tmp_path):
    with mongod("6.0") as mock:
        for database in "shop", "blog":
            mock.client[database].command("profile", 1, slowms=70, sampleRate=0.75, filter=WAS["filter"])
        length = "1s" if end == "time" else "600s"
        with running(tmp_path, "set", "--db", "shop", "--db", "blog", *CHANGE, "--duration", length, mock.uri) as child:
            wait_for_output(child, "for ")
            assert mock.profile() == {"was": 2, "slowms": 5, "sampleRate": 0.1, "filter": {"op": "insert"}}
            if end in ("lost", "restart"):
                # The server is down when it is to be restored, and up again later.
                mock.down_until(tmp_path / "up", restart=end == "restart")
                child.send_signal(signal.SIGINT)
                wait_for_output(child, "trying again")
                (tmp_path / "up").touch()
            elif end != "time":
                child.send_signal(getattr(signal, end))
            assert child.wait(60) == 0, child.err.read_text()
        assert "again level 1" in child.out.read_text()
        if end in ("lost", "restart"):
            assert "trying again" in child.err.read_text()
        for database in "shop", "blog":
            assert mock.profile(database) == WAS
            assert mock.client[database].command("collStats", "system.profile")["maxSize"] == 1 << 20


def test_a_second_signal_gives_up_and_prints_what_to_do(tmp_path):
    with mongod("6.0") as mock:
        with running(
            tmp_path,
            "set",
            "--db",
            "shop",
            "--level",
            "2",
            "--duration",
            "600s",
            f"{mock.uri}/?serverSelectionTimeoutMS=300",
        ) as child:
            wait_for_output(child, "for ")
            mock.down(60)
            child.send_signal(signal.SIGINT)
            wait_for_output(child, "trying again")
            # span: signals within 50 ms are one request
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 1
        assert 'db.getSiblingDB("shop").runCommand({"profile":0' in child.err.read_text().split("NOT restored")[1]


def test_the_collection_is_kept_on_request(tmp_path):
    with mongod("6.0") as mock:
        run("set", "--db", "shop", "--level", "2", "--size", "4m", "--duration", "300ms", "--keep-size", mock.uri)
        assert mock.profile()["was"] == 0
        stats = mock.client.shop.command("collStats", "system.profile")
        assert stats["maxSize"] == 4 << 20 and stats["count"] > 0


def test_the_last_line_is_the_state_that_the_server_has(tmp_path):
    """A collection that was created in the meantime stays without --size, and the last line must show it."""
    with mongod("4.4") as mock:
        done = run("set", "--db", "shop", "--level", "2", "--duration", "300ms", mock.uri)
        assert re.search("^shop: was level 0, .*, no system.profile$", done.stdout, re.M), done.stdout
        last = done.stdout.splitlines()[-1]
        count = mock.client.shop.command("collStats", "system.profile")["count"]
        assert re.fullmatch(rf"shop: again level 0, .*, system.profile of 1MiB with {count} documents?", last), last
        # At level 0 nothing more is written, so it never wraps.
        status = json.loads(run("status", "--json", "--db", "shop", mock.uri).stdout)["databases"][0]
        assert status["documents"] == count and status["wraps_in_ns"] is None and status["turn_ns"] is None, status
        assert " in " not in run("status", "--db", "shop", mock.uri).stdout.splitlines()[-1]
        # The same without --duration: the last line is read after the last change, which may be another client's.
        done = run("set", "--db", "shop", "--level", "1", "--slowms", "5", mock.uri)
        assert done.stdout.splitlines()[-1].startswith("shop: now level 1, slowms 5, "), done.stdout


def test_settings_are_restored_on_the_member_that_was_changed(tmp_path):
    with replica_set() as ((first, second), uri):
        with running(
            tmp_path, "set", "--db", "shop", "--level", "1", "--slowms", "7", "--duration", "4s", uri
        ) as child:
            wait_for_output(child, "for ")
            assert first.profile() == {"was": 1, "slowms": 7, "sampleRate": 1.0}
            second.command("primary", **{"is": True, "term": 2})
            first.command("primary", **{"is": False})
            assert child.wait(60) == 0, child.err.read_text()
        assert first.profile() == {"was": 0, "slowms": 100, "sampleRate": 1.0}
        assert second.changes() == []
