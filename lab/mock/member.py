"""MOCK: stands in front of the lab's server, passes every command on to it, and plays what it is not: a member of a
replica set with change streams, a mongos, or a shard's member. Documents, indexes and renames are the real server's.

Played after MongoDB's manual: `hello` of a replica set, `$changeStream` on a collection (events of inserts, updates, deletes,
renames and drops in the order in which the server did them; a rename or drop ends it with `invalidate`; resuming; codes 40573
and 286), `writeConcernError` without a majority, `shardingState`. A stream begins where it is opened. No transactions.

    front = Front("127.0.0.1:27017", plays="replica")   # or standalone, mongos, shard
    front.hook = lambda when, name, command: …          # before and after each command of application `front.watched`
    front.amend["collStats"] = lambda command, reply: {**reply, "sharded": True}
"""

import socket
import struct
import threading
import time

import bson

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
READS = {"find", "getMore", "listCollections", "listIndexes", "collStats", "dbStats", "aggregate"}
CHANGES = {"insert", "update", "delete", "findAndModify", "create", "createIndexes", "drop", "renameCollection"}
HISTORY_LOST, NO_REPLICA_SET = 286, 40573


class Front:
    def __init__(self, upstream, plays="replica", watched="mongosonar"):
        host, _, port = upstream.rpartition(":")
        self.upstream, self.plays, self.watched = (host, int(port)), plays, watched
        self.hook = lambda when, name, command: None
        self.amend = {}
        self.majority, self.oldest, self.term = True, 0, 1
        self.lock, self.changing = threading.RLock(), threading.Lock()
        self.grown = threading.Condition(self.lock)
        self.events, self.streams, self.next_stream = [], {}, 1 << 40
        self.commands = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.uri = f"mongodb://{self.address}"

    def __enter__(self):
        threading.Thread(target=self.listen, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def listen(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    # -- the protocol

    def serve(self, peer):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        app = ""
        try:
            with (
                peer,
                socket.create_connection(self.upstream) as server,
                peer.makefile("rb") as asked,
                server.makefile("rb") as answered,
            ):
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while len(header := asked.read(16)) == 16:
                    length, request, _, opcode = struct.unpack("<iiii", header)
                    body = asked.read(length - 16)
                    command = read(opcode, body)
                    name = next(iter(command))
                    app = command.get("client", {}).get("application", {}).get("name", app)

                    def hand_on():
                        server.sendall(header + body)
                        head = answered.read(16)
                        size, _, _, answer = struct.unpack("<iiii", head)
                        return read(answer, answered.read(size - 16))

                    if app == self.watched:
                        self.hook("before", name, command)
                    reply = self.answer(name, command, hand_on)
                    if app == self.watched:
                        self.hook("after", name, command)
                    peer.sendall(written(opcode, request, reply))
        except (OSError, struct.error):
            pass

    def answer(self, name, command, hand_on):
        db = command.get("$db", "admin")
        if name in READS and "writeConcern" in command:
            return failed(72, "InvalidOptions", "Command does not support writeConcern")
        if name == "aggregate" and command["pipeline"] and "$changeStream" in command["pipeline"][0]:
            return self.watch(db, command)
        if name == "getMore" and int(command["getMore"]) in self.streams:
            return self.more(db, command)
        if name == "killCursors" and any(int(key) in self.streams for key in command["cursors"]):
            for key in command["cursors"]:
                self.streams.pop(int(key), None)
            return {"cursorsKilled": command["cursors"], "ok": 1.0}
        if name == "shardingState":
            return {"enabled": self.plays == "shard", "ok": 1.0}
        self.commands.append(name)
        if name in CHANGES:
            # One after another: events have the order in which the server acted. Commands that only read, or end a
            # cursor that the server may wait for, do not wait.
            with self.changing:
                reply = hand_on()
                with self.grown:
                    if reply.get("ok"):
                        self.happened(db, name, command, reply)
                        self.grown.notify_all()
        else:
            reply = hand_on()
        if name in ("hello", "isMaster", "ismaster"):
            reply |= self.hello()
        if not self.majority and command.get("writeConcern", {}).get("w") == "majority" and name == "create":
            reply["writeConcernError"] = {
                "code": 64,
                "codeName": "WriteConcernFailed",
                "errmsg": "waiting for replication timed out",
            }
        return self.amend[name](command, reply) if name in self.amend else reply

    def hello(self):
        if self.plays == "mongos":
            return {"msg": "isdbgrid"}
        if self.plays == "standalone":
            return {}
        return {
            "setName": "rs",
            "setVersion": 1,
            "hosts": [self.address],
            "primary": self.address,
            "me": self.address,
            "secondary": False,
            "electionId": bson.ObjectId(f"7fffffff{self.term:016x}"),
        }

    # -- the change stream

    def happened(self, db, name, command, reply):
        def event(operation, collection, **more):
            self.events.append({"operationType": operation, "ns": {"db": db, "coll": collection}, **more})

        if name in ("insert", "update", "delete"):
            count = (
                reply.get("nModified", 0) + len(reply.get("upserted", [])) if name == "update" else reply.get("n", 0)
            )
            for _ in range(count):
                event(name, command[name])
        elif name == "findAndModify" and reply.get("value"):
            event("delete" if command.get("remove") else "update", command[name])
        elif name == "drop":
            event("drop", command["drop"])
        elif name == "renameCollection":
            db, _, collection = command[name].partition(".")
            to_db, _, to = command["to"].partition(".")
            event("rename", collection, to={"db": to_db, "coll": to})

    def watch(self, db, command):
        if self.plays in ("standalone", "mongos"):
            return failed(NO_REPLICA_SET, "Location40573", "The $changeStream stage is only supported on replica sets")
        if command.get("readConcern", {}).get("level", "majority") != "majority":
            return failed(72, "InvalidOptions", "$changeStream cannot run with a readConcern other than 'majority'")
        asked = command["pipeline"][0]["$changeStream"]
        token = asked.get("resumeAfter") or asked.get("startAfter")
        with self.lock:
            position = int(token["_data"], 16) if token else len(self.events)
            if position < self.oldest:
                return failed(
                    HISTORY_LOST,
                    "ChangeStreamHistoryLost",
                    "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
                )
            self.next_stream += 1
            self.streams[self.next_stream] = {"db": db, "collection": command["aggregate"], "at": position}
            return self.batch(self.next_stream, "firstBatch", [], position, f"{db}.{command['aggregate']}")

    def more(self, db, command):
        key = int(command["getMore"])
        until = time.monotonic() + command.get("maxTimeMS", 1000) / 1000
        with self.grown:
            stream = self.streams[key]
            while True:
                if stream["at"] < self.oldest:
                    del self.streams[key]
                    return failed(
                        HISTORY_LOST,
                        "ChangeStreamHistoryLost",
                        "PlanExecutor error: the resume point may no longer be in the oplog.",
                    )
                found, at = [], stream["at"]
                for event in self.events[at:] if self.majority else []:
                    at += 1
                    of = lambda place: place and (place["db"], place["coll"]) == (db, stream["collection"])
                    if of(event["ns"]) or of(event.get("to")):
                        found.append({"_id": {"_data": f"{at:016x}"}, **event})
                        if event["operationType"] in ("rename", "drop"):
                            found.append({"_id": {"_data": f"{at:016x}"}, "operationType": "invalidate"})
                            break
                stream["at"] = at
                left = until - time.monotonic()
                if found or left <= 0:
                    break
                self.grown.wait(left)
            ended = bool(found) and found[-1]["operationType"] == "invalidate"
            if ended:
                del self.streams[key]
            return self.batch(0 if ended else key, "nextBatch", found, at, f"{db}.{stream['collection']}")

    @staticmethod
    def batch(key, name, found, at, namespace):
        return {
            "cursor": {
                "id": bson.Int64(key),
                "ns": namespace,
                name: found,
                "postBatchResumeToken": {"_data": f"{at:016x}"},
            },
            "ok": 1.0,
        }


def failed(code, name, message):
    return {"ok": 0.0, "errmsg": message, "code": code, "codeName": name}


def read(opcode, body):
    """The document of a message: a command with its sequences, or a reply."""
    if opcode == OP_REPLY:
        return bson.decode(body[20:])
    if opcode == OP_QUERY:
        namespace, _, rest = body[4:].partition(b"\0")
        command = bson.decode(rest[8 : 8 + struct.unpack_from("<i", rest, 8)[0]])
        return {**command.get("$query", command), "$db": namespace.decode().partition(".")[0]}
    assert opcode == OP_MSG, opcode
    at, document, sequences = 4, {}, {}
    while at < len(body):
        kind, at = body[at], at + 1
        size = struct.unpack_from("<i", body, at)[0]
        if kind == 0:
            document = bson.decode(body[at : at + size])
        else:
            name, _, _ = body[at + 4 : at + size].partition(b"\0")
            sequences[name.decode()] = []  # the content of documents is the server's business
        at += size
    return {**document, **sequences}


def written(opcode, request, reply):
    if opcode == OP_QUERY:
        payload, answer = struct.pack("<iqii", 8, 0, 0, 1) + bson.encode(reply), OP_REPLY
    else:
        payload, answer = struct.pack("<I", 0) + b"\0" + bson.encode(reply), OP_MSG
    return struct.pack("<iiii", 16 + len(payload), 1, request, answer) + payload
