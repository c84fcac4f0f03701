"""`mongosonar profiler report` and `impact`."""

import json
import os
import signal

import bson
import pymongo
import pytest
from profilers import drawn, mongod, real_server, run, running, wait_for_output

import labkit


def test_the_report_of_a_server_equals_that_of_its_dump(tmp_path):
    with mongod("8.0") as mock:
        mock.write(300)
        mock.write(20, 1_000, database="blog")
        dump = tmp_path / "system.profile.bson"
        dump.write_bytes(b"".join(bson.encode(document) for document in mock.client.shop["system.profile"].find()))
        fields = lambda report: {
            key: value
            for key, value in json.loads(report.stdout).items()
            if key not in ("coverage", "reading", "source")
        }
        from_dump, from_server = (
            run("report", what, "--json", *db) for what, db in ((dump, []), (mock.uri, ["--db", "shop"]))
        )
        assert fields(from_dump)["rows"] == fields(from_server)["rows"] and fields(from_dump)["rows"]
        everything = run("report", mock.uri).stdout
        assert "320 operations" in everything and "blog.people" in everything and "shop.people" in everything
        assert "instead of a file" in run("report", dump, "--db", "shop", code=2).stderr


@pytest.mark.parametrize(("plays", "weight"), [("percona", 10), ("percona-4.4.6", 1)])
def test_a_rate_limit_counts_only_if_the_server_applies_it(plays, weight, tmp_path):
    """PSMDB-876: 4.4 before 4.4.8-9 writes rateLimit into its documents and profiles every operation."""
    with mongod(plays) as mock:
        mock.write(20, fields={"rateLimit": 10})
        report = json.loads(run("report", "--db", "shop", "--json", mock.uri).stdout)
        assert report["totals"]["calls"] == 20 * weight
        assert any("PSMDB-876" in note for note in report["notes"]) == (weight == 1)
        result = run("tail", "--db", "shop", "-n", "20", "--count", "20", "--json", mock.uri)
        assert {json.loads(line)["weight"] for line in result.stdout.splitlines()} == {weight}
        assert ("PSMDB-876" in result.stderr) == (weight == 1)
        dump = tmp_path / "system.profile.bson"
        dump.write_bytes(b"".join(bson.encode(document) for document in mock.client.shop["system.profile"].find()))
        # A dump has no information about its server.
        report = json.loads(run("report", dump, "--json").stdout)
        assert report["totals"]["calls"] == 200 and any("assumed" in note for note in report["notes"])


def test_impact_does_not_measure_a_rate_limit_that_the_server_does_not_apply():
    with mongod("percona-4.4.6") as mock:
        done = run(
            "impact", "--clients", "1", "--rounds", "3", "--slice", "200ms", "--documents", "300", "--json", mock.uri
        )
        assert [cell["name"] for cell in json.loads(done.stdout)["cells"]] == ["0", "1", "2"]
        assert "PSMDB-876" in done.stderr


def test_no_index_is_suggested_if_one_exists(tmp_path):
    def line(collection, n):
        attributes = {
            "type": "command",
            "ns": f"shop.{collection}",
            "command": {
                "find": collection,
                "filter": {"city": "x", "age": {"$gt": n}},
                "sort": {"seen": -1},
                "$db": "shop",
            },
            "planSummary": "COLLSCAN",
            "keysExamined": 0,
            "docsExamined": 9_000,
            "nreturned": 2,
            "hasSortStage": True,
            "durationMillis": 130,
        }
        head = {
            "t": {"$date": f"2026-05-01T10:00:{n % 60:02}.000+00:00"},
            "s": "I",
            "c": "COMMAND",
            "id": 51803,
            "ctx": "conn7",
        }
        return json.dumps({**head, "msg": "Slow query", "attr": attributes}, separators=(",", ":"))

    log = tmp_path / "mongod.log"
    log.write_text(
        "".join(line(collection, n) + "\n" for n in range(40) for collection in ("served", "partly", "bare", "absent"))
    )

    def hints(*arguments):
        report = labkit.document("logs", "report", log, *arguments, timeout=120)
        return {row["collection"]: row["index_hint"] for row in report["rows"]}

    wanted = "{city: 1, seen: -1, age: 1}"
    assert hints("--json") == dict.fromkeys(("served", "partly", "bare", "absent"), wanted)
    with real_server(tmp_path / "server") as address, pymongo.MongoClient(f"mongodb://{address}") as client:
        # The same index with the opposite sort direction (an index can be read in both) and one more field.
        client.shop.served.create_index([("city", 1), ("seen", 1), ("age", 1), ("more", 1)])
        client.shop.partly.create_index([("city", 1), ("age", 1)])
        client.shop.bare.insert_one({"a": 1})
        uri = f"mongodb://{address}"
        assert hints("--json", "--uri", uri) == {"served": None, "partly": wanted, "bare": wanted, "absent": wanted}
        text = labkit.run("logs", "report", log, "--uri", uri).stdout
        assert (
            "none that exists serves" in text and "shop.partly {city: 1" in text and "shop.served {city: 1" not in text
        )
        page = tmp_path / "report.html"
        labkit.run("logs", "report", log, "--uri", uri, "--html", page)
    dom = drawn(page, tmp_path)
    assert 'data-ready="yes"' in dom and dom.count('data-name="index"') == 3
    assert "Indexes that may help" in dom and "none that exists serves" in dom and "shop.partly" in dom


def test_a_report_of_operations_from_now_on(tmp_path):
    with mongod("6.0") as mock:
        mock.write(50)
        with running(tmp_path, "report", mock.uri, "--duration", "600s") as child:
            asked = lambda: mock.command("asked")["asked"].get("getMore", 0)
            labkit.wait_until(asked, "a cursor that waits for documents")
            mock.write(7, 100)
            before = asked()
            labkit.wait_until(lambda: asked() >= before + 2, "the next question")
            child.send_signal(signal.SIGINT)
            assert child.wait(60) == 0
        assert "7 operations" in child.out.read_text()


@pytest.mark.alone
def test_impact_finds_a_real_cost_and_cleans_up(tmp_path):
    with mongod("6.0", "--cost-us", "20000") as mock:
        arguments = ["--clients", "1,2", "--rounds", "4", "--slice", "200ms", "--documents", "300"]
        html = tmp_path / "a.html"
        done = run("impact", *arguments, "--level", "0,2", "--json", "--html", html, mock.uri)
        report = json.loads(done.stdout)
        # The mock sleeps 20 ms for each operation at level 2 and none at level 0: far more than a busy machine adds.
        cells = {(cell["clients"], cell["level"]): cell for cell in report["cells"]}
        for clients in 1, 2:
            cell = cells[clients, 2]
            assert cell["differs"] and cell["loss_low"] <= cell["loss"] <= cell["loss_high"] and cell["loss"] > 0.1
            assert cell["p50_ns"] > cells[clients, 0]["p50_ns"] + 15_000_000
            assert cell["load_cpu_ns"] and cell["server_cpu_ns"] and cell["lock_waits"] == 0
        assert "less throughput" in report["verdicts"][0]
        order = [(piece["clients"], piece["round"], piece["variant"]) for piece in report["slices"]]
        assert len(order) == 16
        for clients in 1, 2:
            rounds = [[v for c, r, v in order if c == clients and r == n] for n in range(4)]
            assert all(sorted(of) == [0, 1] for of in rounds) and rounds[0] == rounds[1][::-1]
        # A browser draws the page: a chart, a row for each cell in both tables, and the verdict.
        dom = drawn(html, tmp_path)
        assert 'data-ready="yes"' in dom and dom.count('class="chart"') == 1, dom[:2_000]
        assert report["verdicts"][0].split(":")[0].split(",")[0] in dom and dom.count('data-name="clients"') == 2 * len(
            cells
        )
        assert "mongosonar_impact" not in mock.client.list_database_names()
        assert mock.profile("mongosonar_impact")["was"] == 0


def test_impact_with_percona_measures_the_rate_limit_too():
    with mongod("percona") as mock:
        mock.client.admin.command("profile", 0, ratelimit=7)
        done = run(
            "impact", "--clients", "1", "--rounds", "3", "--slice", "200ms", "--documents", "300", "--json", mock.uri
        )
        names = [cell["name"] for cell in json.loads(done.stdout)["cells"]]
        assert names == ["0", "1", "2 1/1", "2 1/100"]
        assert mock.profile()["ratelimit"] == 7, "as it was"


def test_impact_refuses_a_database_that_exists():
    with mongod("6.0") as mock:
        result = run("impact", "--db", "shop", mock.uri, code=1).stderr
        assert "exists" in result and mock.changes() == [] and "shop" in mock.client.list_database_names()


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "lost"])
def test_impact_cleans_up_however_it_ends(end, tmp_path):
    with mongod("6.0") as mock:
        arguments = ["--clients", "2", "--rounds", "100", "--slice", "1s", "--documents", "300", "--level", "2,1"]
        with running(tmp_path, "impact", *arguments, f"{mock.uri}/?serverSelectionTimeoutMS=1000") as child:
            labkit.wait_until(lambda: mock.profile("mongosonar_impact")["was"] == 2, "profiling")
            if end == "lost":
                mock.down(1)
                wait_for_output(child, "measuring it again")
                child.send_signal(signal.SIGINT)
            else:
                child.send_signal(getattr(signal, end))
            assert child.wait(60) == 1
        assert "stopped; everything created on the server was removed" in child.err.read_text()
        assert "mongosonar_impact" not in mock.client.list_database_names()
        assert mock.profile("mongosonar_impact")["was"] == 0


def test_a_long_run_marks_the_wrap():
    with mongod("6.0") as mock:
        arguments = ["--level", "2", "--clients", "1", "--duration", "16s", "--size", "1m", "--documents", "300"]
        long = json.loads(run("impact", *arguments, "--json", mock.uri).stdout)
        assert len(long["seconds"]) >= 15 and long["profile_bytes"] == 1 << 20
        assert 0 < long["wrapped_ns"] < 16e9, "at least some hundred operations a second, 300 bytes each"
        assert "began to wrap after" in long["verdict"]
        assert "mongosonar_impact" not in mock.client.list_database_names()


@pytest.mark.alone
@pytest.mark.skipif(not os.environ.get("LONG"), reason="chance and other programs decide; LONG=1 lets it run")
def test_equal_settings_show_no_difference_on_a_real_server(served_v4):
    # With this confidence, chance alone fails the test once in ten thousand runs.
    arguments = [
        "--level",
        "0,0",
        "--clients",
        "1,4",
        "--rounds",
        "5",
        "--slice",
        "300ms",
        "--documents",
        "300",
        "--confidence",
        "99.99",
    ]
    done = run("impact", *arguments, f"mongodb://{served_v4}")
    assert "Level 0 again against 0: no difference" in done.stdout and "less throughput" not in done.stdout
    with pymongo.MongoClient(f"mongodb://{served_v4}") as client:
        assert "mongosonar_impact" not in client.list_database_names()
    assert "has no profiler" in run("impact", f"mongodb://{served_v4}", code=1).stderr
