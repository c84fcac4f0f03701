"""Recordings of a real MongoDB 4.0: the figures that its driver and its profiler took, from the binary."""

import collections
import gzip
import json
import struct
import subprocess

import pytest

import labkit

FIXTURES = labkit.LAB.parent / "fixtures"


def driver_record(name):
    """The driver's record, in the words of labkit.join; no driver name: this one measured whole microseconds."""
    with gzip.open(FIXTURES / name / "driver.jsonl.gz", "rt") as file:
        for line in file:
            command = json.loads(line)
            command["driver"] = "python"
            if "nModified" in command:
                command["n_modified"] = command["nModified"]
            command["request_id"] &= 0xFFFFFFFF
            yield command


def profiled(name, database):
    """Documents of system.profile as (op, ns), read with nothing of ours."""
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
    ("name", "server", "commands", "failed"),
    [("mongod-4.0-mixed", None, 4_206, 16), ("mongod-4.0-sharded", 27_217, 1_567, None)],
)
def test_every_command_of_the_driver_is_heard(name, server, commands, failed):
    said = list(driver_record(name))
    assert len(said) == commands
    heard = labkit.read_capture(FIXTURES / name / "wire.pcap.gz")
    # On the sharded host the mongos asks the shards in turn, with request ids of its own.
    heard = [op for op in heard if server is None or op["server"].endswith(f":{server}")]
    waiting = collections.defaultdict(list)
    for op in heard:
        waiting[op["request_id"], op["command"]].append(op)
    missing = [command for command in said if not waiting[command["request_id"], command["command"]]]
    assert not missing, missing[:5]
    differing, failures = [], 0
    for command in said:
        op = waiting[command["request_id"], command["command"]].pop(0)
        failures += command["outcome"] == "failed"
        if command["outcome"] == "failed":
            assert op["outcome"] == "failed", (command, op)
            assert str(command["code"]) in op["errors"]
        if command.get("cursor"):
            assert op["cursor_id"] == command["cursor"], (command, op)
        for theirs, ours in (("docs", "docs_returned"), ("n", "docs_matched")):
            if theirs in command and op["outcome"] != "unacknowledged" and command[theirs] != op[ours]:
                differing.append((command, op[ours]))
        if op["latency_ns"] is not None:
            assert op["latency_ns"] <= command["us"] * 1_000 + 1_000, (command, op)
    assert not differing, differing[:5]
    if failed is not None:
        assert failures == failed


def test_the_wire_and_the_profiler_count_the_same_reads():
    name = "mongod-4.0-mixed"
    heard = labkit.read_capture(FIXTURES / name / "wire.pcap.gz")
    # Reads are one entry each for both; the profiler splits bulk writes into their statements.
    wire = collections.Counter()
    for op in heard:
        if op["database"] == "stats" and op["command"] == "find":
            wire[op["collection"]] += 1
    profile = collections.Counter(
        ns.split(".", 1)[1] for kind, ns in profiled(name, "stats") if kind == "query" and ".system." not in ns
    )
    assert profile and {collection: wire[collection] for collection in profile} == dict(profile)


def test_the_summary_balances_and_adds_up():
    command = [labkit.MONGOSONAR, "queries", "--read", FIXTURES / "mongod-4.0-mixed/wire.pcap.gz", "--json", "--class", "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = labkit.summary([json.loads(line) for line in done.stdout.splitlines()])
    coverage = told["coverage"]
    assert told["kind"] == "summary" and told["schema"] == 1
    assert coverage["requests"] == sum(
        coverage[f"requests_{how}"] for how in ("answered", "unanswered", "unacknowledged", "discarded", "refused", "folded")
    )
    assert coverage["replies"] == sum(coverage[f"replies_{how}"] for how in ("paired", "exhaust", "orphan"))
    assert told["totals"]["calls"] == sum(row["calls"] for row in told["rows"])
