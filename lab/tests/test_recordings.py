"""Compares every figure of the recordings, as the binary prints it, with the driver's counts and the servers' profiles and logs.

All differences are listed here, with count and reason.
"""

import collections
import functools
import gzip
import re

import pytest
import test_corpus

import labkit
import recordings

MIXED, SHARDED = "mongod-4.0-mixed", "mongod-4.0-sharded"
captured = functools.cache(recordings.captured)
profile = functools.cache(recordings.profile)


@functools.cache
def log(name, server):
    return recordings.read_log(recordings.FIXTURES / name / f"{server}.log.gz")


def at(port, operations):
    """The operations of one server, over IPv4 and IPv6."""
    return [op for op in operations if op["server"].endswith(f":{port}")]


# --- The driver ---------------------------------------------------------------------------------------------------

DRIVER = {
    MIXED: dict(
        find=2_131, update=1_086, aggregate=245, getMore=231, insert=223, findAndModify=120, distinct=60, count=60, delete=16,
        endSessions=10, commitTransaction=5, noSuchCommand=4, listCollections=3, create=3, killCursors=3, drop=2, profile=2,
        createIndexes=2,
    ),
    SHARDED: dict(getMore=600, find=450, update=210, killCursors=150, insert=67, aggregate=60, delete=30),
}  # fmt: skip
# On the wire but not in the driver's monitoring: handshakes, and hand-made messages (see test_corpus.BY_HAND).
UNTOLD = {MIXED: dict(test_corpus.BY_HAND, ismaster=27), SHARDED: dict(ismaster=5)}


@pytest.mark.parametrize(("name", "port", "ok", "failed"), [(MIXED, 27_117, 4_190, 16), (SHARDED, 27_217, 1_567, 0)])
def test_the_counts_of_the_driver_come_from_the_wire(name, port, ok, failed):
    served = at(port, captured(name))
    counts = collections.Counter(op["command"] for op in served)
    assert counts - collections.Counter(UNTOLD[name]) == collections.Counter(DRIVER[name])
    assert sum(DRIVER[name].values()) == ok + failed
    by_hand = [op for op in served if op["opcode"] != "OP_MSG" or op["command"] == "ismaster"]
    assert len(by_hand) == sum(UNTOLD[name].values())
    server_log = [op for op in served if op not in by_hand]

    def failed_for_the_driver(op):
        # For a driver, write errors are a result; and this one counts dropping a missing collection (26) as success.
        return (
            op["outcome"] == "failed"
            and op["command"] not in ("insert", "update", "delete")
            and "26" not in op["errors"]
        )

    assert sum(map(failed_for_the_driver, server_log)) == failed
    outcomes = collections.Counter(op["outcome"] for op in server_log if not failed_for_the_driver(op))
    write_errors = {MIXED: 8, SHARDED: 6}[name]
    dropped = {MIXED: 2, SHARDED: 0}[name]
    unacknowledged = {MIXED: 30, SHARDED: 0}[name]
    expected = collections.Counter(ok=ok - write_errors - dropped - unacknowledged, failed=write_errors + dropped)
    assert outcomes == expected + collections.Counter(unacknowledged=unacknowledged)


def test_the_summary_equals_the_sum_of_the_operations():
    for name in (MIXED, SHARDED):
        capture = recordings.FIXTURES / name / "wire.pcap.gz"
        logged_lines = labkit.summary(labkit.documents("queries", "--read", capture, "--json", *labkit.EVERYTHING))
        # Operations in flight do not count as calls.
        ops = [op for op in captured(name) if op["outcome"] != "in_flight"]
        # A getMore has the row of the command that opened its cursor, so rows are compared by shape. A server at two
        # addresses of its host is one server there.
        server = lambda one: one["server"].replace("[::1]", "127.0.0.1")
        by_shape = collections.Counter((server(op), op["role"], op["class"], op["shape_id"]) for op in ops)
        rows = collections.Counter()
        for row in logged_lines["rows"]:
            rows[server(row), row["role"], row["class"], row["shape_id"]] += row["calls"]
        assert rows == by_shape
        totals = logged_lines["totals"]
        for field in ("request_bytes", "response_bytes", "statements"):
            assert totals[field] == sum(op[field] for op in ops)
        for field in ("docs_returned", "docs_affected"):
            assert totals[field] == sum(op[field] or 0 for op in ops)
        assert totals["latency_ns"]["sum"] == sum(op["latency_ns"] or 0 for op in ops)
        codes = collections.Counter()
        for op in ops:
            codes.update(op["errors"])
        assert totals["errors"] == dict(codes)


# --- The servers' logs: a line an operation ------------------------------------------------------------------------

LOGS = [(MIXED, "mongod", 27_117), (SHARDED, "27217", 27_217), (SHARDED, "27218", 27_218), (SHARDED, "27220", 27_220)]
# Lines that the server wrote for its own commands, on a client's connection: it looks for the transactions of a
# session at the first retryable write in it.
OWN_LINES = {"mongod": 11, "27217": 0, "27218": 2, "27220": 1}
# Commands that a 4.0 does not log because it does not know them.
NOT_LOGGED = {"mongod": {"noSuchCommand": 4}}
# Namespaces that differ in the server's log: a change stream reads the oplog, a heartbeat has no collection.
ELSEWHERE = {("command", "local.oplog.rs", "aggregate"): ("command", "shop.people", "aggregate")}
# The capture of the sharded cluster begins and ends while it runs: the secondary's getMore of the oplog that was
# waiting at its beginning was asked for before it, and the one that was waiting at its end was answered after it.
ASKED_BEFORE = {"27218": [("command", "local.oplog.rs", "getMore")]}
ANSWERED_AFTER = {"27218": [("command", "local.oplog.rs", "getMore")]}


@functools.cache
def logged_and_captured(name, server, port):
    """Each client's operations: as its server logged them, and as captured."""
    # Log lines have the time when the operation ended, in whole milliseconds.
    first, last = map(recordings.moment, recordings.span(captured(name)))
    server_log = log(name, server)
    logged = {}
    for number, lines in server_log.operations.items():
        if lines := [line for line in lines if first <= line.time <= last]:
            logged[server_log.accepted[number][1]] = lines
    by_client = collections.defaultdict(list)
    for op in at(port, captured(name)):
        by_client[op["client"]].append(op)
    return logged, by_client


@functools.cache
def pairs(name, server, port):
    """Every operation with its log lines, joined by connection and order; fails if they do not agree."""
    logged, by_client = logged_and_captured(name, server, port)
    # Every captured operation was logged, and every logged operation was captured.
    assert logged.keys() == by_client.keys()
    own, unlogged, before, after, joined = 0, collections.Counter(), [], [], []
    for client, operations in by_client.items():
        lines = [line for line in logged[client] if line.kind not in recordings.OF_THE_SERVER]
        own += len(logged[client]) - len(lines)
        if operations[-1]["outcome"] == "in_flight":
            after.extend(recordings.log_lines(operations.pop()))
        if lines[0].kind in ASKED_BEFORE.get(server, []) and len(lines) > len(operations):
            before.append(lines.pop(0).kind)
        lines.reverse()
        for op in operations:
            if op["command"] in NOT_LOGGED.get(server, {}):
                unlogged[op["command"]] += 1
                continue
            kinds = recordings.log_lines(op, mongos=server == "27217")
            logged_lines = [lines.pop() for _ in kinds if lines]
            assert [ELSEWHERE.get(line.kind, line.kind) for line in logged_lines] == kinds, f"{client}: {op}"
            joined.append((op, logged_lines))
        assert not lines, f"{client}: {lines[-1]}"
    assert own == OWN_LINES[server]
    assert unlogged == NOT_LOGGED.get(server, {})
    assert before == ASKED_BEFORE.get(server, []) and after == ANSWERED_AFTER.get(server, [])
    return joined


# Lines of operations on connections of clients, in the span of the capture: all of them, less OWN_LINES and ASKED_BEFORE.
LINES = {"mongod": 5_341, "27217": 1_572, "27218": 4_371, "27220": 2_546}
# Each transaction has its own line at its end, in addition to those of its commands.
TRANSACTIONS = {"mongod": 5}


@pytest.mark.parametrize(("name", "server", "port"), LOGS)
def test_the_log_and_the_wire_have_the_same_operations(name, server, port):
    joined = pairs(name, server, port)
    assert sum(len(logged_lines) for _, logged_lines in joined) == LINES[server]
    # From the log alone, independent of how the two were joined.
    first, last = map(recordings.moment, recordings.span(captured(name)))
    text = gzip.open(recordings.FIXTURES / name / f"{server}.log.gz", "rt")
    alone = [
        line for line in text if first <= line[:23] <= last and re.search(r"\[conn\d+\] .*numYields:.* \d+ms$", line)
    ]
    assert len(alone) == LINES[server] + OWN_LINES[server] + len(ASKED_BEFORE.get(server, [])) + TRANSACTIONS.get(
        server, 0
    )


# Figures that only the server knows: unacknowledged writes, and an OP_INSERT.
UNKNOWN = {"mongod": {("OP_MSG", "update"): 30, ("OP_INSERT", "insert"): 1, ("OP_UPDATE", "update"): 1}}
# The number of figures that both have, by server; all of them must be equal.
COMPARED = {
    "mongod": dict(latency=4_203, documents=2_598, inserted=223, deleted=17, matched=1_056, modified=1_176, error=14, reply=4_039, application=4_235),
    "27217": dict(latency=1_572, documents=1_110, inserted=67, deleted=30, matched=210, modified=210, reply=1_572, application=1_572),
    "27218": dict(latency=3_842, documents=1_639, inserted=790, deleted=43, matched=265, modified=265, error=4, reply=19),
    "27220": dict(latency=1_995, documents=769, inserted=748, deleted=47, matched=268, modified=268, error=2, reply=11),
}  # fmt: skip


@pytest.mark.parametrize(("name", "server", "port"), LOGS)
def test_the_log_and_the_wire_have_the_same_figures(name, server, port):
    wrong, compared, unknown = [], collections.Counter(), collections.Counter()
    for op, lines in pairs(name, server, port):

        def expect(what, ours, theirs, same=None):
            compared[what] += 1
            if not (ours == theirs if same is None else same):
                wrong.append(f"{op['command']} {op['request_id']} {what}: {ours} here, {theirs} in the log")

        sums = collections.Counter()
        for line in lines:
            sums.update({figure: line.figures[figure] for figure in recordings.COUNTS if figure in line.figures})
        last = lines[-1]
        if op["role"] == "served":
            expect("application", op["app"], last.app)
        if op["opcode"] == "OP_INSERT" or op["outcome"] == "unacknowledged":
            # The client does not know how many: there is no reply, or its getLastError returns 0 after an insert.
            assert op["docs_affected"] is None and op["docs_matched"] is None
            unknown[op["opcode"], op["command"]] += 1
            continue
        # The time from the last byte of the request to the first byte of the reply is at least the server's.
        ms = last.ms
        expect("latency", op["latency_ns"], ms, op["latency_ns"] >= ms * recordings.NS_PER_MS)
        if "nreturned" in sums:
            expect("documents", op["docs_returned"], sums["nreturned"])
        if "ninserted" in sums:
            expect("inserted", op["docs_affected"], sums["ninserted"])
        if "ndeleted" in sums:
            expect("deleted", op["docs_affected"], sums["ndeleted"])
        if "nMatched" in sums:
            # The reply of a findAndModify does not contain the number of matches.
            if op["command"] != "findAndModify":
                expect("matched", op["docs_matched"], sums["nMatched"] + sums["upsert"])
            expect("modified", op["docs_affected"], sums["nModified"] + sums["upsert"])
        if "errCode" in last.figures:
            expect("error", op["errors"], {str(last.figures["errCode"]): 1})
        if "reslen" in last.figures and op["compressor"] is None:
            expect("reply", op["response_bytes"], last.figures["reslen"])
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])
    assert unknown == UNKNOWN.get(server, {})
    assert compared == COMPARED[server]


# --- The servers' profiles: an entry a read, and a statement of a write ---------------------------------------------

# Recording, profile, its database, its server; entries; those with `millis: 0`; and how many of these are of an
# operation that took 1 ms or more on the wire, which includes the time until it is read and its reply is sent. A bulk
# write is one operation on the wire and one entry per statement in the profile.
PROFILES = [
    (MIXED, "shop", "shop", "mongod", 27_117, 3_917, 3_759, 99),
    (MIXED, "stats", "stats", "mongod", 27_117, 262, 209, 7),
    (SHARDED, "27218-shop", "shop", "27218", 27_218, 2_272, 2_232, 97),
    (SHARDED, "27220-shop", "shop", "27220", 27_220, 2_220, 2_185, 86),
]
# Captured but not in the profile: commands before profiling was on (a drop, a listCollections, a create, the profile
# command itself); commands that 4.0 does not know or does not profile (createIndexes, a pipeline that cannot be parsed); a
# change stream, whose aggregate the server runs on local.oplog.rs, so that it is not in this database's profile.
UNPROFILED = {
    "shop": {
        ("drop", "shop.system.profile"): 1, ("listCollections", "shop.$cmd"): 1, ("create", "shop.system.profile"): 1,
        ("profile", "shop.$cmd"): 1, ("noSuchCommand", "shop.$cmd"): 4, ("createIndexes", "shop.people"): 2,
        ("aggregate", "shop.people"): 5,
    },
    "stats": {
        ("drop", "stats.system.profile"): 1, ("listCollections", "stats.$cmd"): 2, ("create", "stats.system.profile"): 1,
        ("profile", "stats.$cmd"): 1,
    },
    "27218-shop": {("insert", "shop.plain"): 1, ("listCollections", "shop.$cmd"): 1},
    "27220-shop": {},
}  # fmt: skip


@pytest.mark.parametrize(("name", "which", "database", "server", "port", "entries", "at_once", "slower"), PROFILES)
def test_the_profile_and_the_wire_count_the_same_operations(
    name, which, database, server, port, entries, at_once, slower
):
    logged_lines = collections.Counter(map(recordings.profile_kind, profile(name, which)))
    assert logged_lines.total() == entries
    wire = collections.Counter()
    for op in at(port, captured(name)):
        if op["database"] == database:
            wire.update(recordings.profile_entries(op))
    # Every operation in the profile was captured.
    assert wire - logged_lines == UNPROFILED[which] and not logged_lines - wire


@pytest.mark.parametrize(("name", "which", "database", "server", "port", "entries", "at_once", "slower"), PROFILES)
def test_the_wire_is_never_faster_than_the_profile(name, which, database, server, port, entries, at_once, slower):
    # The log has the same figures as the profile and also the connections, so each entry can be joined to its operation.
    unprofiled = collections.Counter(UNPROFILED[which])
    captured_entries, zeros, over = collections.Counter(), 0, 0
    for op, lines in pairs(name, server, port):
        kinds = [kind for kind in recordings.profile_entries(op) if op["database"] == database]
        for kind, line in zip(kinds, lines):
            if unprofiled[kind] and (kind[0] not in ("aggregate", "insert") or not recordings.is_profiled(op)):
                unprofiled[kind] -= 1
                continue
            # The profile has 0 where the log has no value.
            reply = line.figures.get("reslen", 0 if op["opcode"] == "OP_INSERT" else None)
            captured_entries[kind, line.ms, line.figures.get("nreturned"), reply] += 1
            assert op["latency_ns"] is None or op["latency_ns"] >= line.ms * recordings.NS_PER_MS
            zeros += line.ms == 0
            over += line.ms == 0 and (op["latency_ns"] or 0) >= recordings.NS_PER_MS
    logged_lines = collections.Counter()
    for document in profile(name, which):
        kind = recordings.profile_kind(document)
        logged_lines[kind, document["millis"], document.get("nreturned"), document.get("responseLength")] += 1
    assert captured_entries == logged_lines
    assert zeros == at_once == sum(document["millis"] == 0 for document in profile(name, which))
    assert over == slower


# --- Roles ---------------------------------------------------------------------------------------------------------


def test_clients_of_a_mongos_are_clients_and_those_of_its_shards_are_servers():
    operations = captured(SHARDED)
    counts = collections.Counter((int(op["server"].rpartition(":")[2]), op["role"]) for op in operations)
    # 27219 is the config server, 27221 the secondary of the first shard.
    expected = {
        (27_217, "served"): 1_572,
        (27_218, "issued"): 3_843,
        (27_219, "issued"): 3,
        (27_220, "issued"): 1_995,
        (27_221, "issued"): 2,
    }
    assert counts == expected
    # Each server logs who its clients are.
    for server, port in (("27217", 27_217), ("27218", 27_218), ("27220", 27_220)):
        clients = log(SHARDED, server).metadata
        for op in at(port, operations):
            name, driver, _ = clients[op["client"]]
            internal = driver.startswith("NetworkInterface") or driver == "MongoDB Internal Client"
            is_server = internal and name not in ("MongoDB Shell", "mongodump", "mongorestore")
            assert op["role"] == ("issued" if is_server else "served"), op
