"""MOCK: what the mock of a mongod says about itself: versions, databases and collections, sizes, connections, replica set."""

import datetime
import os
import resource
import socket
import struct
import time

import bson
from documents import Refused, matches, now


class StatusCommands:
    """The commands of a `Mongod` that only read what it is."""

    def connections(self):
        """The entries of `$currentOp` with idle connections, one for each open connection, with the fields of 4.4 and
        later."""
        return [
            {
                "type": "idleSession" if client is None else "op",
                "host": "mock",
                "desc": f"conn{number}",
                "client": f"{host}:{port}",
                **(
                    {"appName": client.get("application", {}).get("name", ""), "clientMetadata": client}
                    if client
                    else {}
                ),
                "active": False,
            }
            for number, ((host, port), client) in enumerate(list(self.clients.items()))
        ]

    def collection_stats(self, db, name):
        """One document for each shard, with the fields that the pipeline of the caller keeps and some that it drops."""
        collection = self.databases.get(db, {}).get(name)
        if collection is None:
            raise Refused(26, "NamespaceNotFound", f"Collection [{db}.{name}] not found.")
        stats = {
            "size": collection.size,
            "count": len(collection.rows),
            "storageSize": 4096,
            "freeStorageSize": 0,
            "indexSizes": {"_id_": 4096},
            **self.sizes.get(f"{db}.{name}", {}),
        }
        shards = ["s0", "s1"] if self.plays == "mongos" else [None]
        rows = [{**({"shard": shard} if shard else {}), "storageStats": stats} for shard in shards]
        return {"cursor": {"firstBatch": rows, "id": bson.Int64(0), "ns": f"{db}.{name}"}}

    def do_currentOp(self, db, command):
        return {"inprog": self.connections()}

    def do_buildInfo(self, db, command):
        extra = {"psmdbVersion": self.version} if self.plays.startswith("percona") else {}
        return {"version": self.version, "versionArray": [*self.numbers, 0], **extra}

    def do_listDatabases(self, db, command):
        return {"databases": [{"name": name} for name in ["admin", "local", *self.databases]]}

    def do_listCollections(self, db, command):
        entries = []
        for name, collection in self.databases.get(db, {}).items():
            options = {"capped": True, "size": collection.capped} if collection.capped else {}
            entry = {
                "name": name,
                "type": "collection",
                "options": options,
                "info": {"uuid": bson.Binary(struct.pack("<QQ", id(collection), 0), 4)},
            }
            if matches(entry, command.get("filter", {})):
                entries.append(entry)
        return {"cursor": {"firstBatch": entries, "id": bson.Int64(0), "ns": f"{db}.$cmd.listCollections"}}

    def do_collStats(self, db, command):
        collection = self.databases.get(db, {}).get(command["collStats"])
        if not collection:
            raise Refused(26, "NamespaceNotFound", f"Collection [{db}.{command['collStats']}] not found.")
        extra = {"maxSize": collection.capped} if collection.capped else {}
        return {
            "ns": f"{db}.{command['collStats']}",
            "size": collection.size,
            "count": len(collection.rows),
            "capped": bool(collection.capped),
            **extra,
        }

    def do_serverStatus(self, db, command):
        # To the microsecond, as a server counts it.
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "version": self.version,
            "process": "mongod",
            "pid": bson.Int64(os.getpid()),
            "host": socket.gethostname(),
            "localTime": now(),
            "uptimeMillis": bson.Int64(int((time.monotonic() - self.begun) * 1000)),
            "connections": {"current": len(self.clients), "available": 800, "totalCreated": len(self.clients)},
            "extra_info": {
                "user_time_us": bson.Int64(int(used.ru_utime * 1e6)),
                "system_time_us": bson.Int64(int(used.ru_stime * 1e6)),
                "output_blocks": bson.Int64(0),
            },
            "locks": {
                "Database": {"acquireWaitCount": {"w": bson.Int64(3)}, "timeAcquiringMicros": {"w": bson.Int64(40)}}
            },
            "globalLock": {"currentQueue": {"total": 0, "readers": 0, "writers": 0}},
            "wiredTiger": {
                "block-manager": {"bytes written": bson.Int64(self.inserted * 200)},
                "log": {"log bytes written": bson.Int64(self.inserted * 100)},
            },
            "opcounters": {"insert": self.inserted},
        }

    def do_replSetGetStatus(self, db, command):
        if not self.members:
            raise Refused(76, "NoReplicationEnabled", "not running with --replSet")
        members = []
        behind = self.still_since or now() - datetime.timedelta(seconds=3)
        for number, name in enumerate(self.members):
            is_self = name == self.me
            is_primary = is_self == self.primary if len(self.members) <= 2 else is_self and self.primary
            state = 1 if is_primary else 2
            members.append(
                {
                    "_id": number,
                    "name": name,
                    "health": 1.0,
                    "state": state,
                    "stateStr": "PRIMARY" if state == 1 else "SECONDARY",
                    "optimeDate": now() if state == 1 else behind,
                    **({"self": True} if is_self else {}),
                }
            )
        return {"set": "rs", "date": now(), "term": bson.Int64(self.term), "members": members}

    def do_getCmdLineOpts(self, db, command):
        return {"argv": ["mongod"], "parsed": {}}
