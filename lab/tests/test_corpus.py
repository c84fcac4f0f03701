"""Recordings of a real MongoDB 4.0: the binary gives the same figures as its driver and its profiler."""

import collections
import gzip
import json
import struct

import pytest

import labkit

FIXTURES = labkit.LAB.parent / "fixtures"


# The hand-made legacy messages of the mixed recording, which no driver records.
BY_HAND = {"find": 3, "insert": 1, "update": 1, "delete": 1}


def driver_record(name):
    """The driver's record, in the format of labkit.join."""
    with gzip.open(FIXTURES / name / "driver.jsonl.gz", "rt") as file:
        for line in file:
            command = json.loads(line)
            command["driver"] = "python"
            command["request_id"] &= 0xFFFFFFFF
            # PyMongo's own name for it; a first value that is not a string does not name a collection.
            database, _, collection = command["ns"].partition(".")
            if collection.isdigit() or collection.startswith("["):
                command["ns"] = database
            if command["command"] not in ("insert", "update", "delete"):
                command.pop("n", None)
            elif command["outcome"] == "ok" and "n" not in command:
                command["unacknowledged"] = True
            if "nModified" in command:
                command["n_modified"] = command["nModified"]
                # The record does not contain how many of n were inserted.
                command["upserts_unknown"] = command["n_modified"] != command.get("n")
            command["write_errors"] = command.get("writeErrors", [])
            yield command


def profiled(name, database):
    """Documents of system.profile as (op, ns), read without code of mongosonar."""
    data = gzip.open(FIXTURES / name / "profile" / f"{database}.bson.gz").read()
    at = 0
    while at < len(data):
        length = struct.unpack_from("<i", data, at)[0]
        document = data[at : at + length]
        at += length

        def text(key):
            start = document.index(b"\x02" + key + b"\0") + len(key) + 2
            size = struct.unpack_from("<i", document, start)[0]
            return document[start + 4 : start + 3 + size].decode()

        yield text(b"op"), text(b"ns")


@pytest.mark.parametrize(
    ("name", "server", "commands", "failed", "extra"),
    [("mongod-4.0-mixed", None, 4_206, 16, BY_HAND), ("mongod-4.0-sharded", 27_217, 1_567, None, {})],
)
def test_every_command_of_the_driver_is_captured(name, server, commands, failed, extra):
    sent = list(driver_record(name))
    assert len(sent) == commands
    assert failed is None or sum(command["outcome"] == "failed" for command in sent) == failed
    captured = labkit.read_capture(FIXTURES / name / "wire.pcap.gz")
    # On the sharded host the mongos sends its own requests to the shards, with its own request ids.
    captured = [op for op in captured if server is None or op["server"].endswith(f":{server}")]
    difference = labkit.join(captured, sent)
    # Dropping a missing collection fails with NamespaceNotFound, which this driver counts as success.
    differing = [line for line in difference.differing if not line.startswith("drop ")]
    assert not difference.missing and not differing, str(difference)
    assert collections.Counter(op["command"] for op in difference.extra) == extra


def test_the_wire_and_the_profiler_count_the_same_reads():
    name = "mongod-4.0-mixed"
    captured = labkit.read_capture(FIXTURES / name / "wire.pcap.gz")
    # A read is one entry for both; the profiler splits bulk writes into statements.
    wire = collections.Counter()
    for op in captured:
        if op["database"] == "stats" and op["command"] == "find":
            wire[op["collection"]] += 1
    profile = collections.Counter(
        ns.split(".", 1)[1] for kind, ns in profiled(name, "stats") if kind == "query" and ".system." not in ns
    )
    assert profile and {collection: wire[collection] for collection in profile} == dict(profile)


def test_the_summary_balances_and_adds_up():
    capture = FIXTURES / "mongod-4.0-mixed/wire.pcap.gz"
    summary = labkit.summary(labkit.documents("queries", "--read", capture, "--json", "--class", "all"))
    coverage = summary["coverage"]
    assert summary["kind"] == "summary" and summary["schema"] == 1
    assert coverage["requests"] == sum(
        coverage[f"requests_{how}"]
        for how in (
            "answered",
            "unanswered",
            "reply_lost",
            "in_flight",
            "unacknowledged",
            "discarded",
            "evicted",
            "folded",
        )
    )
    assert coverage["replies"] == sum(coverage[f"replies_{how}"] for how in ("paired", "exhaust", "orphan"))
    assert summary["totals"]["calls"] == sum(row["calls"] for row in summary["rows"])
