"""`mongosonar profiler tail`: each operation once, through restarts, fail-overs and new collections."""

import contextlib
import os
import re
import tempfile

import pymongo
from profilers import mongod, real_server, recorded, replica_set, run, running, wait_for_output

import labkit


def lines(child):
    return labkit.read_lines(child.out)


def examined(child):
    return [line["docs_examined"] for line in lines(child) if "docs_examined" in line]


def test_tail_shows_the_last_operations_and_then_each_new_one_once(tmp_path):
    with mongod("8.0") as mock:
        mock.write(50)
        with running(tmp_path, "tail", "--db", "shop", "-n", "3", "--json", mock.uri) as child:
            labkit.wait_until(lambda: examined(child) == [47, 48, 49], "the last three")
            mock.write(5, 50)
            labkit.wait_until(lambda: examined(child) == list(range(47, 55)), "the new ones")
        line = lines(child)[-1]
        assert line["database"] == "shop" and line["collection"] == "people" and line["command"] == "find"
        assert line["shape"] == "{filter: {a: ?number}, sort: {b: -1}}"
        assert line["collection_scan"] and line["plan"] == "COLLSCAN" and line["app"] == "api"
        assert len({line["shape_id"] for line in lines(child)}) == 1
        text = run("tail", "--db", "shop", "-n", "1", "--count", "1", mock.uri).stdout
        assert re.search(
            r"Z shop\.people find .*plan=COLLSCAN keys=0 examined=54 returned=1 .*app=api \{filter: \{a: \?number\}",
            text,
        )


def test_tail_reports_missed_operations_and_continues(tmp_path):
    with mongod("6.0") as mock:
        mock.write(30, size=20_000)
        with running(tmp_path, "tail", "--db", "shop", "--json", mock.uri) as child:
            labkit.wait_until(lambda: 29 in examined(child), "the ones before")
            filled = mock.write(1_000, 100)
            labkit.wait_until(lambda: 1_099 in examined(child), "the last of the flood")
            mock.write(3, 5_000)
            labkit.wait_until(lambda: 5_002 in examined(child), "what came after it")
        gap = next(line for line in lines(child) if line.get("missed"))
        seen = [n for n in examined(child) if 100 <= n < 1_100]
        assert seen == list(range(seen[0], 1_100))
        # The mock numbers its records without gaps, as a real capped collection does.
        assert gap["documents"] == 1_000 - len(seen), (filled, gap)
        assert f"{gap['documents']} documents missed" in child.err.read_text()
        assert len(examined(child)) == len(set(examined(child)))


def test_tail_survives_a_restart_without_gaps_or_duplicates(tmp_path):
    with mongod("6.0") as mock:
        mock.client.shop.command("profile", 1)
        mock.write(5)
        with running(tmp_path, "tail", "--db", "shop", "--json", mock.uri) as child:
            labkit.wait_until(lambda: examined(child) == list(range(5)), "the first ones")
            mock.down(1.5, restart=True)
            wait_for_output(child, "connection lost")
            labkit.wait_until(lambda: succeeds(lambda: mock.write(5, 5)), "the mock again")
            labkit.wait_until(lambda: len(examined(child)) >= 10, "what came after")
            wait_for_output(child, "following continues")
            wait_for_output(child, "the profiling level is 0 now, it was 1")
        assert examined(child) == list(range(10))


def succeeds(action):
    with contextlib.suppress(pymongo.errors.PyMongoError):
        action()
        return True
    return False


def test_tail_follows_a_fail_over(tmp_path):
    with replica_set() as ((first, second), uri):
        first.write(5)
        with running(tmp_path, "tail", "--db", "shop", "--json", uri) as child:
            labkit.wait_until(lambda: examined(child) == list(range(5)), "the first primary's")
            second.command("primary", **{"is": True, "term": 2})
            first.command("primary", **{"is": False})
            first.down(60)
            wait_for_output(child, f"following continues at {second.address}, another server")
            second.write(5, 50)
            labkit.wait_until(lambda: examined(child) == [*range(5), *range(50, 55)], "the second primary's")


def test_tail_of_all_databases_finds_new_databases_and_recreated_collections(tmp_path):
    with mongod("6.0") as mock:
        mock.write(2)
        with running(tmp_path, "tail", "--all-dbs", "--json", mock.uri) as child:
            labkit.wait_until(lambda: len(lines(child)) == 2, "the first database")
            mock.write(2, 10, database="fresh")
            labkit.wait_until(lambda: {10, 11} <= set(examined(child)), "the new database")
            run("set", "--db", "shop", "--size", "2m", mock.uri)
            wait_for_output(child, "was recreated")
            mock.write(2, 20)
            labkit.wait_until(lambda: {20, 21} <= set(examined(child)), "the new collection")
        assert {line["database"] for line in lines(child)} == {"shop", "fresh"}


def test_tail_of_a_real_server_live_and_through_its_restart(tmp_path):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        with contextlib.ExitStack() as stack:
            first = contextlib.ExitStack()
            address = first.enter_context(real_server(directory))
            stack.callback(first.close)
            client = pymongo.MongoClient(f"mongodb://{address}")
            stack.callback(client.close)
            client.shop.create_collection("system.profile", capped=True, size=1 << 20)
            profile = client.shop["system.profile"]
            profile.insert_many(recorded(30))
            child = stack.enter_context(
                running(tmp_path, "tail", "--db", "shop", "-n", "1000", "--json", f"mongodb://{address}")
            )
            labkit.wait_until(lambda: examined(child) == list(range(30)), "what was there")
            profile.insert_many(recorded(30, 30))
            labkit.wait_until(lambda: examined(child) == list(range(60)), "what was written meanwhile")
            shapes = {line["shape_id"] for line in lines(child)}
            assert len(shapes) == 1, "the same query in the documents of three versions"
            first.close()
            wait_for_output(child, "connection lost")
            stack.enter_context(real_server(directory, address))
            wait_for_output(child, "following continues")
            labkit.wait_until(lambda: succeeds(lambda: profile.insert_many(recorded(5, 60))), "the server again")
            labkit.wait_until(lambda: 64 in examined(child), "what came after the restart")
            assert examined(child) == list(range(65))
