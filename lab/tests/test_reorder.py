"""`mongosonar io reorder` against the lab's server: its messages, its actions, and what is left when it is killed.

A MOCK in front of the lab's server (lab/mock/member.py) plays a member of a replica set with change streams, a mongos or
a shard's member. It also lets a test act before and after each command. Documents, indexes and
renames are those of the real server."""

import contextlib
import os
import random
import signal
import subprocess
import sys

import pymongo
import pytest

import labkit

sys.path.insert(0, str(labkit.LAB / "mock"))
import member  # noqa: E402

# Three inserts into the copy.
COUNT = 210
BATCH = ["--batch-documents", "100"]
STAGES = [
    "copying",
    "making indexes",
    "verifying the copy",
    "looking for writes in between",
    "renaming",
    "ruling out writes until then",
    "dropping the original",
]
STUDY = labkit.LAB / "bin/study"
COPY, BEFORE, WRITTEN = (f"orders_mongosonar_{what}" for what in ("copy", "before", "written"))


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with labkit.server("127.0.0.1:0") as address:
        client = pymongo.MongoClient(f"mongodb://{address}")
        client.host, client.uri = address, f"mongodb://{address}"
        yield client


@pytest.fixture
def orders(client):
    client.drop_database("shop")
    orders = client.shop.orders
    ids = list(range(COUNT))
    random.Random(1).shuffle(ids)
    orders.insert_many({"_id": n, "customer": n % 100, "text": "x" * (n % 300)} for n in ids)
    orders.create_index("customer")
    orders.create_index([("text", 1), ("customer", -1)], name="both")
    return orders


@contextlib.contextmanager
def playing(client, plays):
    """The server behind the mock, and a client that writes to it."""
    with (
        member.Front(client.host, plays) as front,
        pymongo.MongoClient(front.uri, directConnection=True, retryWrites=False) as writer,
    ):
        front.writer = writer.shop.orders
        yield front


@pytest.fixture
def replica(client, orders):
    with playing(client, "replica") as front:
        yield front


@pytest.fixture
def standalone(client, orders):
    with playing(client, "standalone") as front:
        yield front


def command(server, *arguments, namespace="shop.orders"):
    return [labkit.MONGOSONAR, "io", "reorder", namespace, "--uri", server.uri, *BATCH, *arguments]


def reorder(server, *arguments, **more):
    done = subprocess.run(command(server, *arguments, **more), capture_output=True, text=True, timeout=120)
    print(done.stdout, done.stderr)  # complete, for a failing test
    return done


def apply(front):
    """The options that --apply needs there."""
    return ["--apply", "--writers-stopped"] if getattr(front, "plays", "standalone") == "standalone" else ["--apply"]


def at(front, when, name, nth, act):
    """Runs an action before or after the nth command with this name that mongosonar sends."""
    seen = []

    def hook(now, called, _):
        if (now, called) == (when, name):
            seen.append(name)
            if len(seen) == nth:
                act()

    front.hook = hook


def content(collection):
    return sorted((document["_id"], document["customer"], document["text"]) for document in collection.find())


def indexes(collection):
    return {name: (index["key"], index.get("unique")) for name, index in collection.index_information().items()}


def in_order(collection):
    ids = [document["_id"] for document in collection.find()]
    return ids == sorted(ids)


def names(client):
    return sorted(client.shop.list_collection_names())


def test_without_apply_nothing_changes(client, orders):
    before = [document["_id"] for document in orders.find()]
    result = reorder(client)
    assert result.returncode == 0, result
    assert (
        f"{COUNT} documents" in result.stdout
        and "2 indexes" in result.stdout
        and "Nothing was changed" in result.stdout
    )
    assert (
        "Free space is unknown; check it first." in result.stdout
        and "a standalone has no change streams" in result.stdout
    )
    assert [document["_id"] for document in orders.find()] == before
    assert names(client) == ["orders"]
    refused = reorder(client, "--apply")
    assert refused.returncode == 1 and "--writers-stopped" in refused.stderr
    assert names(client) == ["orders"]


def test_afterwards_it_is_in_the_order_of_id(client, orders):
    before, keys = content(orders), indexes(orders)
    result = reorder(client, "--apply", "--writers-stopped")
    assert result.returncode == 0, result
    assert result.stderr.splitlines() == STAGES
    assert [document["_id"] for document in orders.find()] == list(range(COUNT)), "the order of the disk"
    assert content(orders) == before and indexes(orders) == keys
    assert names(client) == ["orders"]


def test_with_change_streams_writers_need_not_be_stopped(client, orders, replica):
    before, keys = content(orders), indexes(orders)
    result = reorder(replica)
    assert (
        result.returncode == 0
        and "A change stream watches for writes" in result.stdout
        and "--apply does it" in result.stdout
    ), result
    assert not {"create", "insert", "drop", "renameCollection", "createIndexes"} & set(replica.commands)
    result = reorder(replica, "--apply")
    assert result.returncode == 0, result
    assert result.stderr.splitlines() == STAGES
    assert in_order(orders) and content(orders) == before and indexes(orders) == keys
    assert names(client) == ["orders"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_at_every_stage_the_documents_are_there(client, orders, stage, how):
    before, keys = content(orders), indexes(orders)
    child = subprocess.Popen(
        command(client, "--apply", "--writers-stopped"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in child.stderr:
        if line.strip() == stage:
            break
    child.send_signal(how)
    child.communicate()
    if names(client) != ["orders"]:
        assert how == signal.SIGKILL, names(client)
        # It names what is left, refuses to continue over it, and removes it on request.
        again = reorder(client, "--apply", "--writers-stopped")
        assert again.returncode == 1 and "an interrupted run has left" in again.stdout + again.stderr, again
        cleaned = reorder(client, "--clean")
        assert cleaned.returncode == 0, cleaned
    assert names(client) == ["orders"]
    assert content(orders) == before and indexes(orders) == keys


# Each command that changes something, with the collections before and after it.
CHANGES = [
    ("create", 1, ["orders"], ["orders", COPY]),
    ("insert", 1, ["orders", COPY], ["orders", COPY]),
    ("insert", 3, ["orders", COPY], ["orders", COPY]),
    ("createIndexes", 1, ["orders", COPY], ["orders", COPY]),
    ("renameCollection", 1, ["orders", COPY], [BEFORE, COPY]),
    ("renameCollection", 2, [BEFORE, COPY], ["orders", BEFORE]),
    ("drop", 1, ["orders", BEFORE], ["orders"]),
]


@pytest.mark.parametrize("plays", ["standalone", "replica"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]}{change[1]}")
def test_killed_at_every_command_it_is_restored(client, orders, plays, when, change):
    name, nth, undone, done = change
    before, keys = content(orders), indexes(orders)
    with playing(client, plays) as front:
        child = subprocess.Popen(
            command(front, *apply(front)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

        def kill():
            child.kill()
            child.wait()
            raise ConnectionError("killed: what was sent goes no further")

        at(front, when, name, nth, kill)
        child.communicate(timeout=120)
        assert child.returncode == -signal.SIGKILL
        left = names(client)
        assert left == sorted(done if when == "after" else undone)
        if left != ["orders"]:
            again = reorder(front, *apply(front))
            assert again.returncode == 1 and "an interrupted run has left" in again.stdout + again.stderr, again
            cleaned = reorder(front, "--clean")
            assert cleaned.returncode == 0, cleaned
        assert names(client) == ["orders"] and content(orders) == before and indexes(orders) == keys
        # Then it succeeds.
        result = reorder(front, *apply(front))
        assert (
            result.returncode == 0 and in_order(orders) and content(orders) == before and names(client) == ["orders"]
        ), result


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("command_of_it", [("renameCollection", 1), ("renameCollection", 2), ("drop", 1)], ids=str)
def test_a_restore_that_is_killed_is_finished(client, orders, replica, when, command_of_it):
    before, keys = content(orders), indexes(orders)
    # The state between the second rename and the drop: the copy has the name.
    client.shop[COPY].insert_many(sorted(orders.find(), key=lambda document: document["_id"]))
    orders.rename(BEFORE)
    client.shop[COPY].rename("orders")
    child = subprocess.Popen(command(replica, "--clean"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def kill():
        child.kill()
        child.wait()
        raise ConnectionError("killed: what was sent goes no further")

    at(replica, when, *command_of_it, kill)
    child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL
    replica.hook = lambda *_: None
    cleaned = reorder(replica, "--clean")
    assert cleaned.returncode == 0, cleaned
    assert (
        names(client) == ["orders"] and content(orders) == before and indexes(orders) == keys and not in_order(orders)
    )


WRITES = {
    "an update that keeps count and size": lambda orders: orders.update_one({"_id": 7}, {"$set": {"text": "y" * 7}}),
    "an insert": lambda orders: orders.insert_one({"_id": -1, "customer": 0, "text": ""}),
    "a delete": lambda orders: orders.delete_one({"_id": 8}),
    "one of each": lambda orders: (
        orders.delete_one({"_id": 8}),
        orders.insert_one({"_id": 8, "customer": 8, "text": "z" * 8}),
        orders.replace_one({"_id": 9}, {"customer": 1, "text": ""}),
    ),
    "an index": lambda orders: orders.create_index("other"),
}
# Every point until the original has been renamed.
UNTIL_ASIDE = [
    ("after", "create", 1),
    ("before", "insert", 1),
    ("after", "insert", 1),
    ("before", "insert", 3),
    ("before", "createIndexes", 1),
    ("after", "createIndexes", 1),
    ("before", "renameCollection", 1),
]


@pytest.mark.parametrize("plays", ["standalone", "replica"])
@pytest.mark.parametrize("point", UNTIL_ASIDE, ids=str)
def test_a_write_at_any_point_stops_it(client, orders, plays, point):
    with playing(client, plays) as front:
        at(front, *point, lambda: WRITES["an update that keeps count and size"](front.writer))
        result = reorder(front, *apply(front))
        written = orders.find_one({"_id": 7})["text"] == "y" * 7
        if result.returncode == 0:
            # Without a change stream, a write that the copy has read does not count.
            assert plays == "standalone" and point[:2] != ("before", "renameCollection") and in_order(orders), result
        else:
            assert "written to meanwhile" in result.stderr, result
            assert not in_order(orders)
    assert written and orders.count_documents({}) == COUNT and len(indexes(orders)) == 3 and names(client) == ["orders"]


@pytest.mark.parametrize("plays", ["standalone", "replica"])
@pytest.mark.parametrize("write", WRITES)
def test_any_kind_of_write_stops_it(client, orders, plays, write):
    """Just before the original is renamed, when nothing watches until that is done."""
    with playing(client, plays) as front:
        expected = []

        def act():
            WRITES[write](front.writer)
            expected.extend([content(orders), indexes(orders)])

        at(front, "before", "renameCollection", 1, act)
        result = reorder(front, *apply(front))
    assert result.returncode == 1 and "written to meanwhile" in result.stderr and "keeps its name" in result.stderr, (
        result
    )
    assert [content(orders), indexes(orders)] == expected and names(client) == ["orders"] and not in_order(orders)


def test_a_write_under_the_name_while_it_is_free_is_not_lost(client, orders, replica):
    before, keys = content(orders), indexes(orders)
    at(
        replica,
        "after",
        "renameCollection",
        1,
        lambda: replica.writer.insert_one({"_id": -1, "customer": 0, "text": "new"}),
    )
    result = reorder(replica, "--apply")
    assert (
        result.returncode == 1
        and "its name was taken" in result.stderr
        and f"shop.{WRITTEN} had the name" in result.stderr
    ), result
    assert content(orders) == before and indexes(orders) == keys
    assert names(client) == ["orders", WRITTEN] and content(client.shop[WRITTEN]) == [(-1, 0, "new")]
    # It stays until a person has looked at it.
    cleaned = reorder(replica, "--clean")
    assert cleaned.returncode == 0 and "Look at it" in cleaned.stdout and names(client) == ["orders", WRITTEN], cleaned
    assert reorder(replica, "--apply").returncode == 1
    client.shop[WRITTEN].drop()
    assert reorder(replica, "--apply").returncode == 0 and in_order(orders)


@pytest.mark.parametrize("plays", ["standalone", "replica"])
def test_a_write_after_the_last_rename_is_fine(client, orders, plays):
    with playing(client, plays) as front:
        at(front, "after", "renameCollection", 2, lambda: WRITES["one of each"](front.writer))
        result = reorder(front, *apply(front))
    assert result.returncode == 0 and names(client) == ["orders"], result
    assert orders.find_one({"_id": 8})["text"] == "z" * 8 and orders.find_one({"_id": 9})["text"] == ""
    assert orders.count_documents({}) == COUNT and len(indexes(orders)) == 3


@pytest.mark.parametrize("plays", ["standalone", "replica"])
def test_writes_on_both_sides_of_the_renames_are_both_kept(client, orders, plays):
    with playing(client, plays) as front:

        def hook(when, name, command):
            if (when, name) == ("before", "renameCollection") and command["to"].endswith("_before"):
                WRITES["an update that keeps count and size"](front.writer)
            if (
                (when, name) == ("after", "renameCollection")
                and command["to"] == "shop.orders"
                and command[name].endswith("_copy")
            ):
                WRITES["an insert"](front.writer)

        front.hook = hook
        result = reorder(front, *apply(front))
    assert (
        result.returncode == 1
        and "written to meanwhile" in result.stderr
        and f"{COUNT + 1} documents) is not the original" in result.stderr
    ), result
    assert names(client) == ["orders", WRITTEN]
    assert orders.find_one({"_id": 7})["text"] == "y" * 7 and orders.count_documents({}) == COUNT
    assert client.shop[WRITTEN].find_one({"_id": -1})


def test_a_write_to_another_collection_does_not_stop_it(client, orders, replica):
    other = replica.writer.database.other
    replica.hook = lambda when, name, command: name == "createIndexes" and other.insert_one({"when": when})
    result = reorder(replica, "--apply")
    assert result.returncode == 0 and in_order(orders), result
    assert names(client) == ["orders", "other"] and other.count_documents({}) == 2


def test_a_resumed_change_stream_misses_nothing(client, orders, replica):
    at(replica, "before", "createIndexes", 1, replica.streams.clear)
    result = reorder(replica, "--apply")
    assert result.returncode == 0 and in_order(orders), result

    def forget_and_write():
        replica.streams.clear()
        WRITES["a delete"](replica.writer)

    at(replica, "before", "createIndexes", 1, forget_and_write)
    result = reorder(replica, "--apply")
    assert result.returncode == 1 and "written to meanwhile (delete)" in result.stderr, result
    assert names(client) == ["orders"] and orders.count_documents({}) == COUNT - 1


def test_an_interrupted_change_stream_stops_it(client, orders, replica):
    before = content(orders)

    def stopped(word, *point, act):
        at(replica, *point, act)
        result = reorder(replica, "--apply")
        assert result.returncode == 1 and word in result.stderr, result
        assert names(client) == ["orders"] and content(orders) == before and not in_order(orders)
        replica.hook = lambda *_: None

    # The oplog no longer contains the position of the stream.
    for point in ("createIndexes", 1), ("renameCollection", 1):
        stopped("cannot be known", "before", *point, act=lambda: setattr(replica, "oldest", 1 << 40))
        replica.oldest = 0
    stopped(
        "has elected a primary", "before", "createIndexes", 1, act=lambda: setattr(replica, "term", replica.term + 1)
    )
    replica.majority = False
    stopped("no majority", "after", "create", 1, act=lambda: None)
    replica.majority = True
    # No majority has the rename yet, so the stream does not report it, and nobody waits for it.
    child = subprocess.Popen(command(replica, "--apply"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    at(replica, "before", "renameCollection", 1, lambda: setattr(replica, "majority", False))
    for line in child.stderr:
        if line.strip() == "ruling out writes until then":
            break
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 1 and names(client) == ["orders"] and content(orders) == before and not in_order(orders)


def test_when_the_server_disappears_it_names_what_is_left(client, orders, replica):
    before = content(orders)

    def gone(when, name, command):
        if replica.commands.count("renameCollection"):
            raise ConnectionError("the server is gone")

    replica.hook, replica.uri = gone, f"{replica.uri}/?serverSelectionTimeoutMS=500"
    result = reorder(replica, "--apply")
    assert (
        result.returncode == 1
        and f"or shop.{BEFORE} if there is such a collection" in result.stderr
        and "--clean" in result.stderr
    ), result
    assert names(client) == [BEFORE, COPY]
    replica.hook = lambda *_: None
    cleaned = reorder(replica, "--clean")
    assert cleaned.returncode == 0 and names(client) == ["orders"] and content(orders) == before, cleaned


def test_without_the_privilege_for_change_streams_it_works_as_on_a_standalone(client, orders, replica):
    refused = member.failed(13, "Unauthorized", "not authorized on shop to execute command { aggregate: ... }")
    replica.watch = lambda *_: refused
    result = reorder(replica, "--apply")
    assert (
        result.returncode == 1
        and "--writers-stopped" in result.stderr
        and "may not open a change stream" in result.stderr
    ), result
    at(replica, "before", "renameCollection", 1, lambda: WRITES["an update that keeps count and size"](replica.writer))
    result = reorder(replica, "--apply", "--writers-stopped")
    assert result.returncode == 1 and "written to meanwhile" in result.stderr and names(client) == ["orders"], result
    replica.hook = lambda *_: None
    assert reorder(replica, "--apply", "--writers-stopped").returncode == 0 and in_order(orders)


def test_clean_restores_the_name_of_the_original(client, orders):
    before = content(orders)
    orders.rename(BEFORE)
    # Nothing has the name.
    cleaned = reorder(client, "--clean")
    assert cleaned.returncode == 0 and "gave the original its name" in cleaned.stdout and names(client) == ["orders"]
    # An empty collection has it, and one that was set aside earlier is there too.
    orders.rename(BEFORE)
    orders.create_index("other")
    client.shop[WRITTEN].insert_one({"_id": 1, "customer": 1, "text": ""})
    cleaned = reorder(client, "--clean")
    assert cleaned.returncode == 0 and names(client) == ["orders", WRITTEN] and content(orders) == before, cleaned
    assert client.shop[WRITTEN].count_documents({}) == 1
    assert reorder(client, "--clean").returncode == 0 and names(client) == ["orders", WRITTEN]
    client.shop[WRITTEN].drop()
    assert reorder(client, "--clean").stdout == "nothing was left\n"


def test_a_collection_that_does_not_fit_is_not_started(client, orders, replica):
    needs = client.shop.command("collStats", "orders")
    needed = needs["storageSize"] + needs["totalIndexSize"]

    def free(space):
        replica.amend["dbStats"] = lambda command, reply: {**reply, "fsTotalSize": 1e12, "fsUsedSize": 1e12 - space}

    free(needed)
    result = reorder(replica)
    assert result.returncode == 0 and "does not fit" in result.stdout, result
    refused = reorder(replica, "--apply")
    assert refused.returncode == 1 and "not enough space" in refused.stderr and names(client) == ["orders"], refused
    assert "create" not in replica.commands
    free(needed + 4096)
    result = reorder(replica, "--apply")
    assert result.returncode == 0 and "does not fit" not in result.stdout and in_order(orders), result


def test_a_recording_shows_whether_it_is_worth_it(client, orders, replica, tmp_path):
    """Reads of real WiredTiger; the mock claims that the server keeps the collection in that file."""
    if os.geteuid() != 0 or not STUDY.exists():
        pytest.skip("tracing needs root, and the study libwiredtiger-dev")
    details = {
        "wiredTiger": {"uri": "statistics:table:collection-2-1"},
        "indexDetails": {"_id_": {"uri": "statistics:table:index-3-1"}},
    }
    # A sample of fewer than a thousand says nothing.
    orders.insert_many({"_id": n, "customer": n % 100, "text": ""} for n in range(COUNT, 1_100))
    # As many and as large as the documents of the study: a small collection gets no advice.
    size = {"count": 30_000, "storageSize": 100 << 20}
    sized = lambda command, reply: {**reply, **size} if command["collStats"] == "orders" else reply
    kept = lambda command, reply: {**sized(command, reply), **details} if command["collStats"] == "orders" else reply
    folder = tmp_path / "db"
    subprocess.run([STUDY, "make", folder, "hashed", "30000"], check=True)

    def recorded(walk, *arguments):
        file = tmp_path / f"{walk}{len(arguments)}.msio"
        program = subprocess.Popen(
            [STUDY, walk, folder, "3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "WAIT": "1"},
        )
        try:
            assert program.stdout.readline() == "ready\n"
            for path in folder.glob("*.wt"):
                with open(path, "rb") as cached:
                    os.posix_fadvise(cached.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            tracer = subprocess.Popen(
                [labkit.MONGOSONAR, "io", "record", "--pid", str(program.pid), "--dbpath", folder, *arguments, file],
                stderr=subprocess.PIPE,
                text=True,
            )
            result = tracer.stderr.readline()
            if "Ctrl-C ends it" not in result:
                tracer.wait()
                assert any(word in result for word in ("permission", "BTF", "cannot load")), result
                pytest.skip(f"nothing can be traced here: {result}")
            program.communicate("go\n")
            assert tracer.wait() == 0
        finally:
            program.kill()
            program.wait()
        return file, labkit.document("io", "report", "--json", file)["verdict"]

    replica.amend["collStats"] = kept
    named, _ = recorded("fetch", "--uri", replica.uri)
    fetch, verdict = recorded("fetch")
    straight, _ = recorded("pass")
    assert verdict["finding"] == "index_fetch"
    result = reorder(replica, "--recording", fetch)
    assert result.returncode == 0, result
    assert f"{verdict['reads']} reads of shop.orders for {verdict['blocks']} different blocks" in result.stdout
    assert (
        "It was fetched through index-3-1.wt in an order that is not the disk's" in result.stdout
        and "worth it" in result.stdout
    )
    assert "Nothing was changed" in result.stdout
    result = reorder(replica, "--recording", straight)
    assert "rewriting it does not help" in result.stdout or "another order does not" in result.stdout, result
    # By the names in the recording, if the server does not name the file.
    replica.amend["collStats"] = sized
    result = reorder(replica, "--recording", named)
    assert (
        "It was fetched through shop.orders index {_id: 1} in an order" in result.stdout
        and "The order asked for" not in result.stdout
    ), result
    result = reorder(replica, "--recording", named, "--index", "customer_1")
    assert (
        "The order asked for is that of shop.orders index {customer: 1}; what was walked is shop.orders index {_id: 1}"
        in result.stdout
    ), result
    result = reorder(replica, "--recording", fetch)
    assert (
        result.returncode == 0 and "says nothing of it: neither does the recording name collections" in result.stdout
    ), result
    assert (
        "Cannot tell whether rewriting it is worth it: it is unknown how much of the sample came from the device"
        in result.stdout
    ), result
    replica.amend.clear()
    result = reorder(replica, "--recording", named)
    assert (
        "It is so small" in result.stdout
        and "worth it" not in result.stdout
        and "reads of shop.orders" not in result.stdout
    ), result


@pytest.mark.parametrize("role", ["mongos", "sharded", "shard", "marked", "config"])
def test_in_a_sharded_cluster_it_is_refused_with_advice(client, orders, role):
    before = [document["_id"] for document in orders.find()]
    with playing(client, {"mongos": "mongos", "sharded": "mongos", "shard": "shard"}.get(role, "replica")) as front:
        if role == "sharded":
            front.amend["collStats"] = lambda command, reply: {**reply, "sharded": True}
        if role == "marked":
            # The user may not run the command; replies of shards contain it anyway (fixtures/mongod-4.0-sharded).
            front.amend["hello"] = lambda command, reply: {**reply, "$gleStats": {"lastOpTime": 0}}
        if role == "config":
            front.amend["hello"] = lambda command, reply: {**reply, "configsvr": 2}
        for arguments in [], ["--apply"], ["--apply", "--writers-stopped"]:
            result = reorder(front, *arguments)
            assert (
                result.returncode == 1
                and "fill it in order" in result.stderr
                and "renameCollection with dropTarget" in result.stderr
            ), result
        words = {"mongos": "is behind a mongos", "sharded": "is sharded"}.get(role, "is a member of a sharded cluster")
        assert words in result.stderr
        assert not {"create", "insert", "drop", "renameCollection", "createIndexes"} & set(front.commands)
    assert names(client) == ["orders"] and [document["_id"] for document in orders.find()] == before


def test_a_secondary_is_refused(client, orders, replica):
    replica.amend["hello"] = lambda command, reply: {**reply, "isWritablePrimary": False, "secondary": True}
    replica.amend["isMaster"] = replica.amend["ismaster"] = lambda command, reply: {
        **reply,
        "ismaster": False,
        "secondary": True,
    }
    replica.uri += "/?directConnection=true"
    result = reorder(replica, "--apply")
    assert result.returncode == 1 and "is a secondary" in result.stderr, result


def test_unsupported_collections_are_refused(client, orders):
    def refused(namespace, *arguments, code=1):
        done = reorder(client, *arguments, namespace=namespace)
        assert done.returncode == code, done
        return done.stderr

    assert "no collection shop.none" in refused("shop.none")
    assert "write it as database.collection" in refused("shop", code=2)
    assert "belongs to the server" in refused("admin.users")
    assert "no index called other" in refused("shop.orders", "--index", "other")
    client.shop.create_collection("ring", capped=True, size=1 << 20)
    assert "no plain collection" in refused("shop.ring")
