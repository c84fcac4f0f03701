"""MOCK: a scripted mongod with a profiler, since no available server has the `profile` command.

Not a MongoDB: a small part of one in memory, which speaks the real protocol (OP_MSG, and OP_QUERY for handshakes and
for servers before 3.6) and answers `profile` with the fields, refusals and side effects that the version it plays has,
after MongoDB's manual and sources. What profiling costs here is a knob (`--cost-us`), so a measured loss shows that
the measurement works, and says nothing about MongoDB.

    mongod.py --plays 6.0 [--port 0] [--cost-us 0] [--databases shop,blog] [--user NAME:PASSWORD]

prints `ready HOST:PORT` and ends on SIGINT or SIGTERM. Tests control it by the command `{mock: …}`:
`{mock: "down", seconds: 1.0, restart: true}` closes all connections and refuses new ones for so many seconds (with
`until: PATH`: until that file exists); with `restart` the profiler also has the settings that it started with; with
`--members` (a replica set, of which it knows only who belongs to it)
`{mock: "primary", is: true}` makes it the primary or a secondary; `{mock: "still"}`: its secondaries apply nothing more;
`{mock: "log"}` gives the commands received that changed something;
`{mock: "fill", db: …, documents: [...]}` puts documents into system.profile as the server's own profiler does;
`{mock: "size", ns: …, stats: {…}}` sets what `$collStats` says of a collection (of each shard, on a mongos);
`{mock: "forbid", commands: [...]}` is what the user may not do, and `{mock: "asked"}` counts the commands received by name.
"""

import argparse
import os
import signal
import socket
import struct
import threading
import time

import bson
import scram
from documents import Collection, Refused, field, matches, now
from status import StatusCommands

PLAYED = {
    "3.2": ("3.2.22", 4),
    "4.0": ("4.0.28", 7),
    "4.4": ("4.4.29", 9),
    "4.4.1": ("4.4.1", 9),
    "6.0": ("6.0.14", 17),
    "8.0": ("8.0.4", 25),
    "percona": ("7.0.14-8", 21),
    "percona-4.4.6": ("4.4.6-8", 9),
    "mongos": ("7.0.5", 21),
}
DEFAULT_PROFILE_BYTES = 1 << 20
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
OPEN_TO_ALL = {"hello", "isMaster", "ismaster", "ping", "saslStart", "saslContinue"}
CHANGES = {"profile", "create", "drop", "dropDatabase", "setParameter"}


class Mongod(StatusCommands):
    def __init__(self, plays, cost_us=0, databases=(), members=(), me="", primary=True, user=None):
        self.user, self.peer, self.clients = user, threading.local(), {}
        self.members, self.me, self.primary, self.term = members, me, primary, 1
        self.still_since = None
        self.plays = plays
        self.version, self.wire = PLAYED[plays]
        self.numbers = tuple(int(part) for part in self.version.split("-")[0].split("."))
        self.cost = cost_us / 1e6
        self.lock = threading.RLock()
        self.grown = threading.Condition(self.lock)
        self.databases = {name: {"c": Collection()} for name in databases}
        self.cursors, self.next_cursor = {}, 1000
        self.log, self.log_bytes, self.inserted = [], 0, 0
        self.start_settings()
        self.down_until, self.down_until_exists = 0.0, None
        self.sockets = set()
        self.begun = time.monotonic()
        self.sizes, self.forbidden, self.asked = {}, set(), {}

    def start_settings(self):
        self.levels, self.filters = {}, {}
        self.slowms, self.sample_rate, self.rate_limit = 100, 1.0, 1

    # -- who asks: each connection has its thread

    def do_saslStart(self, db, command):
        if not self.user or command["mechanism"] != "SCRAM-SHA-256" or db != "admin":
            raise Refused(18, "AuthenticationFailed", "Authentication failed.")
        self.peer.conversation = scram.Conversation(
            *self.user, command.get("options", {}).get("skipEmptyExchange", False)
        )
        return self.said(self.peer.conversation.start(command["payload"]))

    def do_saslContinue(self, db, command):
        try:
            return self.said(self.peer.conversation.go_on(command["payload"]))
        except scram.Failed:
            raise Refused(18, "AuthenticationFailed", "Authentication failed.") from None

    def said(self, payload):
        done = self.peer.conversation.done
        return {"conversationId": 1, "done": done, "payload": payload}

    def is_known(self):
        conversation = getattr(self.peer, "conversation", None)
        return not self.user or (conversation is not None and conversation.done)

    # -- the profiler

    def do_profile(self, db, command):
        if self.plays == "mongos":
            raise Refused(59, "CommandNotFound", "no such command: 'profile'")
        was = {"was": self.levels.get(db, 0), "slowms": self.slowms}
        if self.numbers >= (3, 6):
            was["sampleRate"] = self.sample_rate
        if self.numbers >= (4, 4, 2) and db in self.filters:
            was["filter"] = self.filters[db]
            was["note"] = (
                "When a filter expression is set, slowMs and sampleRate are not used for profiling and slow-query log lines."
            )
        if self.plays.startswith("percona"):
            was["ratelimit"] = self.rate_limit
        level = command["profile"]
        if not -1 <= level <= 2:
            raise Refused(2, "BadValue", f"Profiling level must be between -1 and 2, got {level}")
        known = {"profile", "slowms", "lsid", "$db", "$clusterTime", "$readPreference", "txnNumber"}
        known |= {"sampleRate"} if self.numbers >= (3, 6) else set()
        known |= {"filter"} if self.numbers >= (4, 4, 2) else set()
        known |= {"ratelimit"} if self.plays.startswith("percona") else set()
        unknown = set(command) - known
        if unknown and self.numbers >= (4, 4):
            raise Refused(40415, "Location40415", f"BSON field 'profile.{unknown.pop()}' is an unknown field.")
        if not 0 <= command.get("sampleRate", 0) <= 1:
            raise Refused(2, "BadValue", "'sampleRate' must be between 0.0 and 1.0 inclusive")
        if command.get("filter") == "unset":
            self.filters.pop(db, None)
        elif "filter" in command:
            self.filters[db] = command["filter"]
        self.slowms = command.get("slowms", self.slowms)
        self.sample_rate = command.get("sampleRate", self.sample_rate)
        self.rate_limit = command.get("ratelimit", self.rate_limit)
        if level >= 0:
            self.levels[db] = level
            if level > 0 and "system.profile" not in self.databases.setdefault(db, {}):
                self.databases[db]["system.profile"] = Collection(DEFAULT_PROFILE_BYTES)
        return was

    def profiled(self, db, name, command, millis):
        """Writes the profile document of an operation, according to the level of its database."""
        level = self.levels.get(db, 0)
        if name in ("profile", "hello", "isMaster", "ismaster", "mock", "dropDatabase"):
            return
        operation = {
            "find": "query",
            "insert": "insert",
            "update": "update",
            "delete": "remove",
            "getMore": "getmore",
        }.get(name, "command")
        target = command.get("collection") if name == "getMore" else command.get(name)
        namespace = f"{db}.{target if isinstance(target, str) else '$cmd'}"
        document = {
            "op": operation,
            "ns": namespace,
            "command": {key: value for key, value in command.items() if not key.startswith("$") and key != "lsid"},
            "keysExamined": 1,
            "docsExamined": 1,
            "numYield": 0,
            "nreturned": 1,
            "responseLength": 100,
            "protocol": "op_msg",
            "millis": int(millis),
            "planSummary": "IDHACK",
            "ts": now(),
            "client": "127.0.0.1",
            "appName": "mock",
            "allUsers": [],
            "user": "",
        }
        if level == 0 or (
            level == 1 and millis < self.slowms and not (db in self.filters and matches(document, self.filters[db]))
        ):
            return
        with self.grown:
            # Servers from 4.4 on log slow operations whatever the level.
            if (level == 2 and self.numbers < (4, 4)) or millis >= self.slowms:
                self.log_bytes += 300
            collections = self.databases.setdefault(db, {})
            collections.setdefault("system.profile", Collection(DEFAULT_PROFILE_BYTES)).insert(document)
            self.grown.notify_all()
        if self.cost and level == 2:
            time.sleep(self.cost)

    # -- cursors

    def first_batch(self, db, name, command):
        collection = self.databases.get(db, {}).get(name)
        limit, size = abs(command.get("limit", 0)), command.get("batchSize", 101)
        rows = collection.scan(command.get("filter", {})) if collection else []
        for key, direction in reversed(list(command.get("sort", {}).items())):
            if key == "$natural":
                rows = rows[::direction]
            else:
                rows.sort(key=lambda row: field(row[1], key), reverse=direction < 0)
        rows = rows[command.get("skip", 0) :]
        if limit:
            rows = rows[:limit]
        if command.get("tailable"):
            if not collection:
                return [], 0, None  # as mongod: a cursor that is dead at once
            if not collection.capped:
                raise Refused(
                    2,
                    "BadValue",
                    f"error processing query: ns={db}.{name} tailable cursor requested on non capped collection",
                )
        batch, rest = rows[:size], rows[size:]
        cursor = 0
        if rest or command.get("tailable"):
            self.next_cursor += 1
            cursor = self.next_cursor
            last = batch[-1][0] if batch else 0
            self.cursors[cursor] = {
                "db": db,
                "name": name,
                "collection": collection,
                "rest": rest,
                "tail": bool(command.get("tailable")),
                "await": bool(command.get("awaitData")),
                "last": last,
                "show": command.get("showRecordId"),
                "filter": command.get("filter", {}),
                "seen": max(collection.rows, default=0) if not rest else last,
            }
        return batch, cursor, command.get("showRecordId")

    @staticmethod
    def shown(batch, show):
        return (
            [{**document, "$recordId": bson.Int64(record)} for record, document in batch]
            if show
            else [document for _, document in batch]
        )

    def do_find(self, db, command):
        batch, cursor, show = self.first_batch(db, command["find"], command)
        return {
            "cursor": {"firstBatch": self.shown(batch, show), "id": bson.Int64(cursor), "ns": f"{db}.{command['find']}"}
        }

    def do_getMore(self, db, command):
        key = int(command["getMore"])
        cursor = self.cursors.get(key)
        if not cursor:
            raise Refused(43, "CursorNotFound", f"cursor id {key} not found")
        size = command.get("batchSize") or 1000
        if not cursor["tail"]:
            batch, cursor["rest"] = cursor["rest"][:size], cursor["rest"][size:]
            if not cursor["rest"]:
                del self.cursors[key]
                key = 0
        else:
            until = time.monotonic() + command.get("maxTimeMS", 1000) / 1000
            while True:
                collection = self.databases.get(db, {}).get(cursor["name"])
                if collection is not cursor["collection"] or key not in self.cursors:
                    self.cursors.pop(key, None)
                    raise Refused(175, "QueryPlanKilled", "collection dropped while the cursor was open")
                oldest = next(iter(collection.rows), cursor["seen"])
                if cursor["seen"] and cursor["seen"] < oldest:
                    del self.cursors[key]
                    raise Refused(
                        136,
                        "CappedPositionLost",
                        "CollectionScan died due to position in capped collection being deleted. "
                        f"Last seen record id: RecordId({cursor['seen']})",
                    )
                newer = [
                    (record, document) for record, (document, _) in collection.rows.items() if record > cursor["seen"]
                ]
                taken = newer[: size * 4]
                if taken:
                    cursor["seen"] = taken[-1][0]
                batch = [row for row in taken if matches(row[1], cursor["filter"])]
                left = until - time.monotonic()
                if batch or left <= 0 or not cursor["await"]:
                    break
                self.grown.wait(min(left, 0.2))
        return {
            "cursor": {
                "nextBatch": self.shown(batch, cursor["show"]),
                "id": bson.Int64(key),
                "ns": f"{db}.{cursor['name']}",
            }
        }

    def do_killCursors(self, db, command):
        killed = [key for key in command["cursors"] if self.cursors.pop(int(key), None)]
        return {"cursorsKilled": killed}

    # -- collections

    def do_create(self, db, command):
        collections = self.databases.setdefault(db, {})
        if command["create"] in collections:
            raise Refused(48, "NamespaceExists", f"Collection {db}.{command['create']} already exists.")
        collections[command["create"]] = Collection(int(command["size"]) if command.get("capped") else None)
        return {}

    def do_drop(self, db, command):
        if command["drop"] == "system.profile" and self.levels.get(db, 0):
            raise Refused(20, "IllegalOperation", "turn off profiling before dropping system.profile collection")
        if not self.databases.get(db, {}).pop(command["drop"], None):
            raise Refused(26, "NamespaceNotFound", "ns not found")
        if not self.databases[db]:
            del self.databases[db]
        return {}

    def do_dropDatabase(self, db, command):
        # The level of a database outlives it.
        self.databases.pop(db, None)
        return {"dropped": db}

    def do_createIndexes(self, db, command):
        self.databases.setdefault(db, {}).setdefault(command["createIndexes"], Collection())
        return {"numIndexesBefore": 1, "numIndexesAfter": 2}

    def do_insert(self, db, command):
        collection = self.databases.setdefault(db, {}).setdefault(command["insert"], Collection())
        errors = []
        for at, document in enumerate(command["documents"]):
            if document.get("_id") in collection.by_id:
                errors.append({"index": at, "code": 11000, "errmsg": "E11000 duplicate key error"})
                continue
            collection.insert(document)
        self.inserted += len(command["documents"])
        self.grown.notify_all()
        return {"n": len(command["documents"]) - len(errors), **({"writeErrors": errors} if errors else {})}

    def do_update(self, db, command):
        n = 0
        collection = self.databases.get(db, {}).get(command["update"])
        for statement in command["updates"]:
            for _, document in (collection.scan(statement["q"]) if collection else [])[
                : None if statement.get("multi") else 1
            ]:
                for key, by in statement["u"].get("$inc", {}).items():
                    document[key] = document.get(key, 0) + by
                document.update(statement["u"].get("$set", {}))
                n += 1
        return {"n": n, "nModified": n}

    def do_delete(self, db, command):
        n = 0
        collection = self.databases.get(db, {}).get(command["delete"])
        for statement in command["deletes"]:
            found = collection.scan(statement["q"]) if collection else []
            for record, _ in found[: statement.get("limit") or None]:
                collection.remove(record)
                n += 1
        return {"n": n}

    def do_aggregate(self, db, command):
        if command["pipeline"] and "$collStats" in command["pipeline"][0]:
            return self.collection_stats(db, command["aggregate"])
        stage = command["pipeline"][0].get("$currentOp") if command["pipeline"] else None
        if stage is not None:
            if self.plays == "6.0" and not (
                db == "admin" and command["aggregate"] == 1 and stage.get("allUsers") and stage.get("idleConnections")
            ):
                raise Refused(
                    73, "InvalidNamespace", "$currentOp must be run against the 'admin' database with {aggregate: 1}"
                )
            if self.plays == "4.0":
                raise Refused(40324, "Location40324", "Unrecognized pipeline stage name: '$currentOp'")
            rows, size = self.connections(), command["cursor"].get("batchSize", 101)
            if len(rows) <= size:
                return {"cursor": {"firstBatch": rows, "id": bson.Int64(0), "ns": "admin.$cmd.aggregate"}}
            self.next_cursor += 1
            rest = list(enumerate(rows[size:]))
            self.cursors[self.next_cursor] = {
                "db": db,
                "name": "",
                "collection": None,
                "rest": rest,
                "tail": False,
                "show": None,
            }
            return {
                "cursor": {"firstBatch": rows[:size], "id": bson.Int64(self.next_cursor), "ns": "admin.$cmd.aggregate"}
            }
        collection = self.databases.get(db, {}).get(command["aggregate"])
        query = next((stage["$match"] for stage in command["pipeline"] if "$match" in stage), {})
        rows = collection.scan(query) if collection else []
        total = sum(document.get("k", 0) for _, document in rows)
        return {
            "cursor": {
                "firstBatch": [{"_id": None, "n": len(rows), "total": total}],
                "id": bson.Int64(0),
                "ns": f"{db}.c",
            }
        }

    def do_distinct(self, db, command):
        collection = self.databases.get(db, {}).get(command["distinct"])
        rows = collection.scan(command.get("query", {})) if collection else []
        return {"values": sorted({document.get(command["key"]) for _, document in rows})}

    # -- the server

    def do_hello(self, db, command):
        if "client" in command:
            self.clients[self.peer.address] = command["client"]
        reply = {
            "ismaster": True,
            "isWritablePrimary": True,
            "helloOk": True,
            "maxBsonObjectSize": 16777216,
            "maxMessageSizeBytes": 48000000,
            "maxWriteBatchSize": 100000,
            "localTime": now(),
            "minWireVersion": 0,
            "maxWireVersion": self.wire,
            "readOnly": False,
            "connectionId": 1,
        }
        if self.wire >= 6:
            reply["logicalSessionTimeoutMinutes"] = 30
        if self.plays == "mongos":
            reply["msg"] = "isdbgrid"
        if self.user and "saslSupportedMechs" in command:
            reply["saslSupportedMechs"] = (
                ["SCRAM-SHA-256"] if command["saslSupportedMechs"] == f"admin.{self.user[0]}" else []
            )
        if self.members:
            reply |= {
                "setName": "rs",
                "setVersion": 1,
                "hosts": self.members,
                "me": self.me,
                "ismaster": self.primary,
                "isWritablePrimary": self.primary,
                "secondary": not self.primary,
            }
            if self.primary:
                reply["electionId"] = bson.ObjectId(f"{self.term:024x}")
        return reply

    do_isMaster = do_ismaster = do_hello

    def do_ping(self, db, command):
        return {}

    do_endSessions = do_ping

    def do_setParameter(self, db, command):
        if self.plays.startswith("percona") and "profilingRateLimit" in command:
            was, self.rate_limit = self.rate_limit, command["profilingRateLimit"]
            return {"was": was}
        raise Refused(72, "InvalidOptions", "no option found to set")

    def do_mock(self, db, command):
        if command["mock"] == "log":
            return {"log": self.log}
        if command["mock"] == "asked":
            return {"asked": self.asked}
        if command["mock"] == "size":
            self.sizes[command["ns"]] = command["stats"]
            return {}
        if command["mock"] == "forbid":
            self.forbidden = set(command["commands"])
            return {}
        if command["mock"] == "fill":
            collections = self.databases.setdefault(command["db"], {})
            collection = collections.setdefault(
                "system.profile", Collection(command.get("size", DEFAULT_PROFILE_BYTES))
            )
            for document in command["documents"]:
                collection.insert({**document, "ts": document.get("ts") or now()})
            self.grown.notify_all()
            return {"count": len(collection.rows), "next": collection.next_id}
        if command["mock"] == "primary":
            self.primary, self.term = command["is"], command.get("term", self.term)
            return {}
        if command["mock"] == "still":
            self.still_since = now()
            return {}
        assert command["mock"] == "down"
        self.down_until = time.monotonic() + command.get("seconds", 0)
        self.down_until_exists = command.get("until")
        if command.get("restart"):
            self.start_settings()
            self.cursors.clear()
        for peer in list(self.sockets):
            try:
                peer.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        return {}

    def is_down(self):
        path = self.down_until_exists
        return time.monotonic() < self.down_until or (path is not None and not os.path.exists(path))

    # -- the protocol

    def answer(self, command):
        db = command.get("$db", "admin")
        name = next(iter(command))
        handler = getattr(self, f"do_{name}", None)
        begun = time.monotonic()
        with self.lock:
            self.asked[name] = self.asked.get(name, 0) + 1
            if name in CHANGES and self.is_known() and command.get(name) != -1:
                self.log.append(
                    {
                        key: value
                        for key, value in command.items()
                        if key not in ("lsid", "$readPreference", "$clusterTime")
                    }
                )
            try:
                if name not in OPEN_TO_ALL and not self.is_known():
                    raise Refused(13, "Unauthorized", f"Command {name} requires authentication")
                if name in self.forbidden:
                    raise Refused(13, "Unauthorized", f"not authorized on {db} to execute command {{ {name}: 1 }}")
                if not handler:
                    raise Refused(59, "CommandNotFound", f"no such command: '{name}'")
                reply = {**handler(db, command), "ok": 1.0}
            except Refused as refused:
                reply = refused.reply
        self.profiled(db, name, command, (time.monotonic() - begun) * 1000)
        return reply

    def serve(self, peer):
        self.sockets.add(peer)
        self.peer.address = peer.getpeername()
        self.clients[self.peer.address] = None
        try:
            with peer, peer.makefile("rb") as incoming:
                while len(header := incoming.read(16)) == 16:
                    if header[:2] == b"\x16\x03":
                        # A mongod without TLS recognises the handshake and closes the connection.
                        break
                    length, request, _, opcode = struct.unpack("<iIIi", header)
                    body = incoming.read(length - 16)
                    peer.sendall(self.respond(request, opcode, body))
        except OSError:
            pass
        finally:
            self.sockets.discard(peer)
            self.clients.pop(self.peer.address, None)

    def respond(self, request, opcode, body):
        if opcode == OP_QUERY:
            namespace, _, rest = body[4:].partition(b"\0")
            command = bson.decode(rest[8 : 8 + struct.unpack_from("<i", rest, 8)[0]])
            command = command.get("$query", command)
            reply = bson.encode(self.answer({**command, "$db": namespace.decode().partition(".")[0]}))
            payload = struct.pack("<iqii", 8, 0, 0, 1) + reply
            return struct.pack("<iIIi", 16 + len(payload), 1, request, OP_REPLY) + payload
        assert opcode == OP_MSG and self.wire >= 6, f"opcode {opcode} to a {self.version}"
        at, command, sequences = 4, {}, {}
        while at < len(body):
            kind, at = body[at], at + 1
            size = struct.unpack_from("<i", body, at)[0]
            if kind == 0:
                command = bson.decode(body[at : at + size])
            else:
                name, _, documents = body[at + 4 : at + size].partition(b"\0")
                sequences[name.decode()] = bson.decode_all(documents)
            at += size
        payload = struct.pack("<I", 0) + b"\0" + bson.encode(self.answer({**command, **sequences}))
        return struct.pack("<iIIi", 16 + len(payload), 1, request, OP_MSG) + payload

    def run(self, port):
        with socket.create_server(("127.0.0.1", port), backlog=256) as listener:
            print(f"ready 127.0.0.1:{listener.getsockname()[1]}", flush=True)
            while True:
                peer, _ = listener.accept()
                if self.is_down():
                    peer.close()
                    continue
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.serve, args=(peer,), daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plays", choices=PLAYED, default="6.0")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cost-us", type=float, default=0)
    parser.add_argument("--databases", default="shop,blog")
    parser.add_argument("--members", help="HOST:PORT of all members of a replica set; the first is the primary")
    parser.add_argument("--user", help="NAME:PASSWORD of the one user, without whom nothing is answered")
    arguments = parser.parse_args()
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *_: os._exit(0))
    members, me = (arguments.members or "").split(",") if arguments.members else [], f"127.0.0.1:{arguments.port}"
    primary = not members or members[0] == me
    mongod = Mongod(
        arguments.plays,
        arguments.cost_us,
        arguments.databases.split(","),
        members,
        me,
        primary,
        arguments.user and arguments.user.split(":", 1),
    )
    mongod.run(arguments.port)


if __name__ == "__main__":
    main()
