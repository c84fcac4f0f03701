"""The log and the profile of a recorded server, for comparison with its captured traffic."""

import collections
import dataclasses
import gzip
import re
import time

import bson

import labkit

FIXTURES = labkit.LAB.parent / "fixtures"
NS_PER_MS = 1_000_000

# A log line of an operation in the text format of MongoDB 4.0: time, connection, verb, namespace, command.
OPERATION = re.compile(
    r'^(?P<time>\S+) I (?:COMMAND|WRITE)\s+\[conn(?P<conn>\d+)\] (?P<verb>\w+) (?P<ns>\S+) (?:appName: "(?P<app>.*?)" )?'
    r"(?:command: (?P<command>\w*).*? )?(?P<figures>(?:\w+:\S+ )*?numYields:\d+ .*) (?P<ms>\d+)ms$"
)
# Figures of a log line that count documents.
COUNTS = ("nreturned", "ninserted", "nMatched", "nModified", "ndeleted", "upsert")
# Lines that a server logs under a client's connection though the client did not send the command.
OF_THE_SERVER = {("command", "config.transactions", "find")}


@dataclasses.dataclass
class Logged:
    """One log line of an operation, with its figures."""

    time: str
    kind: tuple
    app: str
    ms: int
    figures: dict


@dataclasses.dataclass
class Log:
    """A server's log: connections and operations."""

    accepted: dict
    ended: dict
    metadata: dict
    operations: dict

    def between(self, first_ns, last_ns):
        """The addresses of accepted and of ended connections in this span."""
        inside = lambda events: {
            address for time, address in events.values() if moment(first_ns) <= time <= moment(last_ns)
        }
        return inside(self.accepted), inside(self.ended)


def moment(ns):
    """A time in the format of logs: UTC, to the millisecond."""
    seconds, rest = divmod(ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // NS_PER_MS:03d}"


def read_log(path):
    """Reads a log of MongoDB 4.0."""
    log = Log({}, {}, {}, collections.defaultdict(list))
    for line in gzip.open(path, "rt"):
        line, at = line.rstrip("\n"), line[:23]
        if match := re.search(r"\] connection accepted from (\S+) #(\d+) ", line):
            log.accepted[int(match[2])] = (at, match[1])
        elif match := re.search(r"\[conn(\d+)\] end connection (\S+) ", line):
            log.ended[int(match[1])] = (at, match[2])
        elif match := re.search(r"received client metadata from (\S+) conn(\d+): (.*)", line):
            log.metadata[match[1]] = client_of(match[3])
        elif match := OPERATION.match(line):
            kind = (match["verb"], match["ns"], match["command"] if match["verb"] == "command" else None)
            figures = dict(re.findall(r" (\w+):(-?\d+)(?= )", " " + match["figures"] + " "))
            log.operations[int(match["conn"])].append(
                Logged(at, kind, match["app"], int(match["ms"]), {name: int(value) for name, value in figures.items()})
            )
        else:
            # The expression above must match all operations of connections.
            assert not re.search(r"\[conn\d+\] (?!transaction ).* \d+ms$", line), line[:200]
    return log


def client_of(metadata):
    """Application, driver and driver version from a line of client metadata."""
    driver = re.search(r'driver: \{ name: "(.*?)", version: "(.*?)" \}', metadata)
    app = re.search(r'application: \{ name: "(.*?)" \}', metadata)
    return app and app[1], driver[1], driver[2]


def captured(name):
    """All operations of a recording as the binary prints them, with values, in the order of their requests."""
    operations = labkit.read_capture(FIXTURES / name / "wire.pcap.gz", "--show-values")
    return sorted(operations, key=lambda op: (op["start_ns"], op["end_ns"]))


def span(operations):
    """From the first request to the last reply."""
    return min(op["start_ns"] for op in operations), max(op["end_ns"] for op in operations)


def namespace(op):
    """Database and collection as servers write them; a command without a collection is on `$cmd`."""
    return f"{op['database']}.{op['collection'] or '$cmd'}"


def log_lines(op, mongos=False):
    """The log lines that a 4.0 server writes for a command: (verb, namespace, command).

    A mongod writes one for each statement of an update or delete and then one for the command, on `$cmd`.
    """
    command, ns = op["command"], namespace(op)
    verb = {"delete": "remove", "find": "query"}.get(command, command)
    on_database = f"{op['database']}.$cmd"
    if op["opcode"] in ("OP_INSERT", "OP_UPDATE", "OP_DELETE"):
        kinds = [(verb, ns, None)]
        # Its getLastError is not an operation for us, but a log line for the server.
        return kinds if op["outcome"] == "unacknowledged" else [*kinds, ("command", on_database, "getLastError")]
    if op["opcode"] == "OP_QUERY" and command == "find":
        return [(verb, ns, None)]
    if command in ("update", "delete") and not mongos:
        return [(verb, ns, None)] * op["statements"] + [("command", on_database, command)]
    if command in ("drop", "createIndexes") or (command == "aggregate" and op["outcome"] == "failed" and not mongos):
        ns = on_database
    return [("command", ns, {"ismaster": "isMaster"}.get(command, command))]


def profile(name, database):
    """The documents of a `system.profile`, read with PyMongo's decoder."""
    return bson.decode_all(gzip.open(FIXTURES / name / "profile" / f"{database}.bson.gz").read())


def profile_kind(document):
    """The kind of a profile document: (op or command, namespace)."""
    op = document["op"]
    return (next(iter(document["command"])) if op == "command" else op), document["ns"]


def profile_entries(op):
    """The kinds of documents that a 4.0 server writes into `system.profile` for a command."""
    kind = {"delete": "remove", "find": "query", "getMore": "getmore"}.get(op["command"], op["command"])
    count = op["statements"] if op["command"] in ("update", "delete") else 1
    return [(kind, namespace(op))] * count


def is_profiled(op):
    """Whether an operation of a kind that is usually profiled was profiled: see test_recordings.UNPROFILED."""
    return op["outcome"] == "ok" and "$changeStream" not in op["shape"]
