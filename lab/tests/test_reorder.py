"""`mongosonar io reorder` against the lab's server: what it says, what it does, and what is left when it is killed."""

import random
import signal
import subprocess

import labkit
import pymongo
import pytest

COUNT = 12_000
STAGES = ["copying", "making indexes", "verifying the copy", "looking for writes in between", "renaming"]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with labkit.server("127.0.0.1:0") as address:
        client = pymongo.MongoClient(f"mongodb://{address}")
        client.uri = f"mongodb://{address}"
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


def reorder(client, *arguments):
    return subprocess.run([labkit.MONGOSONAR, "io", "reorder", "shop.orders", "--uri", client.uri, *arguments], capture_output=True, text=True)


def content(collection):
    return sorted((document["_id"], document["customer"], document["text"]) for document in collection.find())


def indexes(collection):
    return {name: (index["key"], index.get("unique")) for name, index in collection.index_information().items()}


def test_without_apply_nothing_changes(client, orders):
    before = [document["_id"] for document in orders.find()]
    said = reorder(client)
    assert said.returncode == 0, said
    assert f"{COUNT} documents" in said.stdout and "2 indexes" in said.stdout and "Nothing was changed" in said.stdout
    assert [document["_id"] for document in orders.find()] == before
    assert client.shop.list_collection_names() == ["orders"]
    refused = reorder(client, "--apply")
    assert refused.returncode == 1 and "--writers-stopped" in refused.stderr


def test_it_lies_in_the_order_of_id_afterwards(client, orders):
    before, keys = content(orders), indexes(orders)
    said = reorder(client, "--apply", "--writers-stopped")
    assert said.returncode == 0, said
    assert said.stderr.splitlines() == STAGES
    assert [document["_id"] for document in orders.find()] == list(range(COUNT)), "the order of the disk"
    assert content(orders) == before and indexes(orders) == keys
    assert client.shop.list_collection_names() == ["orders"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_at_every_step_the_documents_are_there(client, orders, stage, how):
    before, keys = content(orders), indexes(orders)
    child = subprocess.Popen(
        [labkit.MONGOSONAR, "io", "reorder", "shop.orders", "--uri", client.uri, "--apply", "--writers-stopped"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    for line in child.stderr:
        if line.strip() == stage:
            break
    child.send_signal(how)
    child.communicate()
    names = set(client.shop.list_collection_names())
    if names != {"orders"}:
        assert how == signal.SIGKILL, names
        # What is left is said, nothing goes on over it, and it goes when it is asked to.
        again = reorder(client, "--apply", "--writers-stopped")
        assert again.returncode == 1 and "an interrupted run has left" in again.stdout + again.stderr, again
        cleaned = reorder(client, "--clean")
        assert cleaned.returncode == 0, cleaned
    assert client.shop.list_collection_names() == ["orders"]
    assert content(orders) == before and indexes(orders) == keys


def test_a_write_in_between_that_keeps_count_and_size_stops_it(client, orders):
    child = subprocess.Popen(
        [labkit.MONGOSONAR, "io", "reorder", "shop.orders", "--uri", client.uri, "--apply", "--writers-stopped"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    for line in child.stderr:
        if line.strip() == "making indexes":
            break
    orders.update_one({"_id": 7}, {"$set": {"text": "y" * 7}})
    _, said = child.communicate()
    assert child.returncode == 1 and "written to meanwhile" in said, said
    assert client.shop.list_collection_names() == ["orders"]
    assert orders.find_one({"_id": 7})["text"] == "y" * 7


def test_what_cannot_be_rewritten_is_refused(client, orders):
    def refused(namespace, *arguments):
        command = [labkit.MONGOSONAR, "io", "reorder", namespace, "--uri", client.uri, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1, done
        return done.stderr

    assert "no collection shop.none" in refused("shop.none")
    assert "no namespace" in refused("shop")
    assert "belongs to the server" in refused("admin.users")
    assert "no index called other" in refused("shop.orders", "--index", "other")
    client.shop.create_collection("ring", capped=True, size=1 << 20)
    assert "no plain collection" in refused("shop.ring")
