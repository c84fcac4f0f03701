"""Scenes with a MOCK peer (lab/mock) for behaviour that no available real server shows."""

import contextlib
import sys
import zlib

import bson
import pytest
import snappy
import zstandard

import labkit

sys.path.insert(0, str(labkit.LAB / "mock"))
import mock  # noqa: E402

pytestmark = pytest.mark.root


def command(**fields):
    return bson.encode({**fields, "$db": "mock"})


def find(collection="c", **fields):
    return mock.kind_0(command(find=collection, filter={"a": 1}, **fields))


def batch(count, cursor=0, which="firstBatch", collection="c"):
    documents = [{"_id": i} for i in range(count)]
    return mock.kind_0(
        bson.encode({"cursor": {which: documents, "id": bson.Int64(cursor), "ns": f"mock.{collection}"}, "ok": 1.0})
    )


OK = mock.kind_0(bson.encode({"ok": 1.0, "n": 1}))


@contextlib.contextmanager
def recorded(directory, host="127.0.0.1"):
    """A scripted peer that tcpdump records; `captured` returns the operations that mongosonar reads from the recording."""
    peer, pcap = mock.Peer(host), directory / "mock.pcap"
    peer.captured = lambda *arguments: labkit.read_capture(pcap, *arguments)
    peer.coverage = lambda: coverage(pcap)
    with labkit.tcpdump(pcap, "lo", f"tcp port {peer.port}"), peer:
        yield peer


def coverage(pcap):
    return labkit.summary(labkit.documents("queries", "--read", pcap, "--json"))["coverage"]


def test_an_exhaust_chain_is_one_query_and_waits_without_latency(tmp_path):
    with recorded(tmp_path) as peer:
        peer.ask(mock.msg([find()], 1))
        peer.answer(mock.msg([batch(2, cursor=77)], 100, 1))
        more = command(getMore=bson.Int64(77), collection="c")
        peer.ask(mock.msg([mock.kind_0(more)], 2, flags=mock.EXHAUST_ALLOWED))
        peer.answer(mock.msg([batch(3, 77, "nextBatch")], 101, 2, mock.MORE_TO_COME))
        peer.answer(mock.msg([batch(3, 77, "nextBatch")], 102, 101, mock.MORE_TO_COME))
        peer.answer(mock.msg([batch(1, 0, "nextBatch")], 103, 102))
        peer.ask(mock.msg([find("after")], 3))
        peer.answer(mock.msg([batch(0)], 104, 3))
    captured = peer.captured()
    opened = next(op for op in captured if op["command"] == "find" and op["collection"] == "c")
    chain = [op for op in captured if op["command"] == "getMore"]
    assert {op["shape_id"] for op in chain} == {opened["shape_id"]}
    assert sum(op["docs_returned"] for op in chain) == 7
    assert [op["class"] for op in chain].count("user") <= 1
    assert peer.coverage()["replies_exhaust"] == 2
    assert next(op for op in captured if op["collection"] == "after")["outcome"] == "ok"


def test_a_streaming_hello_is_monitoring_or_waiting_never_a_query(tmp_path):
    with recorded(tmp_path) as peer:
        hello = bson.encode(
            {"hello": 1, "topologyVersion": {"counter": bson.Int64(1)}, "maxAwaitTimeMS": 10_000, "$db": "admin"}
        )
        answer = mock.kind_0(bson.encode({"isWritablePrimary": True, "ok": 1.0}))
        peer.ask(mock.msg([mock.kind_0(hello)], 1, flags=mock.EXHAUST_ALLOWED))
        for turn in range(3):
            peer.answer(mock.msg([answer], 100 + turn, 1 if turn == 0 else 99 + turn, mock.MORE_TO_COME))
    captured = peer.captured()
    assert captured and {op["class"] for op in captured} <= {"monitoring", "waiting"}
    assert peer.coverage()["replies_orphan"] == 0


@pytest.mark.parametrize(
    ("name", "number", "compress"),
    [
        ("noop", mock.NOOP, bytes),
        ("snappy", mock.SNAPPY, snappy.compress),
        ("zlib", mock.ZLIB, zlib.compress),
        ("zstd", mock.ZSTD, zstandard.ZstdCompressor().compress),
    ],
)
def test_each_compressor_and_an_uncompressed_reply(name, number, compress, tmp_path):
    with recorded(tmp_path) as peer:
        peer.ask(mock.compressed(mock.msg([find()], 1), number, compress))
        peer.answer(mock.msg([batch(2)], 100, 1))
        peer.ask(mock.msg([find()], 2))
        peer.answer(mock.compressed(mock.msg([batch(3)], 101, 2), number, compress))
    captured = peer.captured()
    assert [(op["request_id"], op["compressor"], op["docs_returned"], op["opcode"]) for op in captured] == [
        (1, name, 2, "OP_MSG"),
        (2, name, 3, "OP_MSG"),
    ]
    assert len({op["shape_id"] for op in captured}) == 1


def test_a_checksum_is_not_a_section(tmp_path):
    assert mock.crc32c(b"123456789") == 0xE3069283
    with recorded(tmp_path, "::1") as peer:
        peer.ask(mock.msg([find()], 1, checksum=True))
        peer.answer(mock.msg([batch(4)], 100, 1, checksum=True))
    assert [(op["outcome"], op["docs_returned"]) for op in peer.captured()] == [("ok", 4)]
    assert peer.coverage()["messages_malformed"] == 0


def test_a_document_sequence_before_the_body(tmp_path):
    documents = [bson.encode({"_id": i, "pad": "x" * 1_000}) for i in range(300)]
    with recorded(tmp_path) as peer:
        for number, sections in enumerate(
            [
                [mock.kind_1("documents", documents), mock.kind_0(command(insert="c"))],
                [mock.kind_0(command(insert="c")), mock.kind_1("documents", documents)],
            ]
        ):
            peer.ask(mock.msg(sections, 1 + number))
            peer.answer(mock.msg([mock.kind_0(bson.encode({"n": 300, "ok": 1.0}))], 100 + number, 1 + number))
    before, after = peer.captured()
    assert before["collection"] == after["collection"] == "c"
    assert before["shape_id"] == after["shape_id"]
    assert before["docs_affected"] == after["docs_affected"] == 300


def test_legacy_exhaust_and_a_cursor_that_is_not_found(tmp_path):
    documents = [bson.encode({"_id": i}) for i in range(3)]
    with recorded(tmp_path) as peer:
        wrapped = bson.encode({"$query": {"a": 1}, "$orderby": {"b": -1}})
        peer.ask(mock.query("mock.c", wrapped, 1, flags=1 << 6))
        peer.answer(mock.reply(documents, 100, 1, cursor=5))
        peer.answer(mock.reply(documents, 101, 100, cursor=5))
        peer.answer(mock.reply(documents[:1], 102, 101))
        peer.ask(mock.get_more("mock.c", 999, 2))
        peer.answer(mock.reply([], 103, 2, flags=1))
    captured = peer.captured()
    opened = next(op for op in captured if op["request_id"] == 1)
    assert opened["opcode"] == "OP_QUERY" and opened["command"] == "find" and "b: -1" in opened["shape"]
    lost = next(op for op in captured if op["request_id"] == 2)
    assert lost["opcode"] == "OP_GET_MORE" and lost["outcome"] == "failed"


def test_request_ids_of_zero_and_beyond_the_sign(tmp_path):
    with recorded(tmp_path) as peer:
        for request_id in 0, 0, 0x80000001, 0xFFFFFFFF:
            peer.ask(mock.msg([find()], request_id))
            peer.answer(mock.msg([batch(1)], 100, request_id))
    assert [(op["request_id"], op["outcome"]) for op in peer.captured()] == [
        (0, "ok"),
        (0, "ok"),
        (0x80000001, "ok"),
        (0xFFFFFFFF, "ok"),
    ]


def test_pipelined_requests_answered_in_another_order(tmp_path):
    with recorded(tmp_path) as peer:
        peer.ask(b"".join(mock.msg([find(f"c{i}")], i) for i in range(1, 6)))
        peer.answer(b"".join(mock.msg([batch(i)], 100 + i, i) for i in (3, 1, 5, 2, 4)))
    captured = {op["request_id"]: op for op in peer.captured()}
    assert {i: (op["collection"], op["docs_returned"]) for i, op in captured.items()} == {
        i: (f"c{i}", i) for i in range(1, 6)
    }


def test_unanswered_and_unacknowledged_requests(tmp_path):
    with recorded(tmp_path) as peer:
        insert = command(insert="c", documents=[{"a": 1}], writeConcern={"w": 0})
        peer.ask(mock.msg([mock.kind_0(insert)], 1, flags=mock.MORE_TO_COME))
        peer.ask(mock.msg([find()], 2))
        peer.ask(mock.msg([mock.kind_0(command(ping=1))], 3))
        peer.answer(mock.msg([OK], 100, 3))
    assert {op["request_id"]: op["outcome"] for op in peer.captured()} == {1: "unacknowledged", 2: "unknown", 3: "ok"}


def test_a_hanging_query_is_shown_in_flight(tmp_path):
    peer = mock.Peer()
    arguments = ["--interface", "lo", "--port", str(peer.port), "--json", "--interval", "200ms"]
    with labkit.live_capture(tmp_path, arguments) as sonar, peer:
        peer.ask(mock.msg([find("slow")], 1))

        def in_flight():
            rows = [row for line in sonar.lines() for row in line["rows"] if row["collection"] == "slow"]
            return [row for row in rows if row["in_flight"] == 1 and row["oldest_in_flight_ns"] > 400_000_000]

        labkit.wait_until(in_flight, "the query in flight")
        peer.answer(mock.msg([batch(1)], 100, 1))
        labkit.wait_until(
            lambda: any(
                row["calls"] == 1 for line in sonar.lines() for row in line["rows"] if row["collection"] == "slow"
            ),
            "the query's end",
        )
        summary = labkit.summary(sonar.stop())
    row = next(row for row in summary["rows"] if row["collection"] == "slow")
    assert row["calls"] == 1 and not row["in_flight"] and row["latency_ns"]["max"] > 400_000_000
