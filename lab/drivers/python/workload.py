"""The lab's workload through PyMongo. Usage: workload.py URI OUTPUT [SUFFIX]; see ../README.md."""

import json
import sys
import threading
import time

import bson
import pymongo
from pymongo import (
    CursorType,
    DeleteMany,
    DeleteOne,
    InsertOne,
    MongoClient,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
    WriteConcern,
    monitoring,
)
from pymongo.errors import PyMongoError


class Recorder(monitoring.CommandListener):
    """Writes one line for each command as it ends."""

    lock = threading.Lock()

    def __init__(self, client, output):
        self.client, self.output, self.started_events = client, output, {}

    def started(self, event):
        command = event.command
        collection = command.get("collection") if event.command_name == "getMore" else command.get(event.command_name)
        namespace = f"{event.database_name}.{collection}" if isinstance(collection, str) else event.database_name
        write_concern = command.get("writeConcern") or {}
        self.started_events[event.request_id] = namespace, write_concern.get("w") == 0

    def succeeded(self, event):
        reply, facts = event.reply, {}
        if "cursor" in reply:
            cursor = reply["cursor"]
            batch = cursor.get("firstBatch", cursor.get("nextBatch"))
            facts = {"cursor": int(cursor["id"]), "docs": len(batch)}
        if event.command_name in ("insert", "update", "delete") and "n" in reply:
            facts["n"] = reply["n"]
            if "nModified" in reply:
                facts["n_modified"] = reply["nModified"]
        if reply.get("upserted"):
            facts["n_upserted"] = len(reply["upserted"])
        if reply.get("writeErrors"):
            facts["write_errors"] = [error["code"] for error in reply["writeErrors"]]
        self.write(event, "ok", facts)

    def failed(self, event):
        code = event.failure.get("code")
        self.write(event, "failed", {} if code is None else {"code": code})

    def write(self, event, outcome, facts):
        namespace, unacknowledged = self.started_events.pop(event.request_id)
        host, port = event.connection_id
        line = {
            "driver": "python",
            "client": self.client,
            "request_id": event.request_id & 0xFFFFFFFF,
            "command": event.command_name,
            "ns": namespace,
            "us": event.duration_micros,
            "outcome": outcome,
            **facts,
            **({"unacknowledged": True} if unacknowledged else {}),
            "server": f"{host}:{port}",
        }
        with self.lock:
            self.output.write(json.dumps(line) + "\n")


def expect_error(call, *args, **options):
    """Runs a command that should fail; the record shows whether the server refused it."""
    try:
        call(*args, **options)
    except PyMongoError:
        pass


def basics(db):
    items = db.items
    items.insert_one({"_id": 0, "kind": "single"})
    items.insert_many(
        [{"_id": i, "n": i % 7, "tag": f"t{i % 5}", "sub": {"x": i, "y": [i, i + 1]}} for i in range(1, 151)]
    )
    # In a collection of their own: the server reads whole collections, so they would slow down everything else.
    db.large.insert_many([{"_id": 1000 + i, "pad": "x" * 400_000} for i in range(8)])
    list(items.find({"n": 3}))
    list(items.find({"n": 3}, {"tag": 1}).sort("_id", -1).skip(2).limit(5))
    list(items.find({"n": {"$gte": 2}, "tag": "t1"}))
    list(items.find({"tag": "t1", "n": {"$gte": 2}}))
    list(items.find({"_id": {"$lt": 100}}).batch_size(30))
    for width in (1, 5, 40):
        list(items.find({"_id": {"$in": list(range(width))}}))
    list(items.find({"$or": [{"n": 1}, {"tag": "t2"}]}))
    list(items.find({"tag": {"$regex": "^t[12]"}}))
    list(db.large.find({"_id": {"$gte": 1000}}))
    items.find_one({"_id": 7})
    items.find_one({"_id": "absent"})
    items.count_documents({"n": 2})
    items.estimated_document_count()
    items.distinct("tag", {"n": {"$lt": 5}})
    list(
        items.aggregate(
            [{"$match": {"n": {"$gt": 1}}}, {"$group": {"_id": "$tag", "c": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}]
        )
    )
    items.create_index([("n", 1), ("tag", -1)])
    list(items.list_indexes())
    db.list_collection_names()


def writes(db):
    items = db.items
    items.update_one({"_id": 5}, {"$set": {"n": 99}, "$inc": {"hits": 1}})
    items.update_one({"_id": 5}, {"$set": {"n": 99}})
    items.update_many({"tag": "t3"}, {"$set": {"seen": True}})
    items.replace_one({"_id": "new"}, {"kind": "replaced"}, upsert=True)
    items.update_one({"_id": "absent"}, {"$set": {"n": 1}})
    items.find_one_and_update({"_id": 6}, {"$inc": {"n": 1}})
    items.find_one_and_delete({"_id": 8})
    items.delete_one({"_id": 9})
    items.delete_many({"n": 4})
    requests = [
        InsertOne({"_id": "b1"}),
        InsertOne({"_id": "b2"}),
        UpdateOne({"_id": "b1"}, {"$set": {"a": 1}}),
        UpdateMany({"n": 1}, {"$inc": {"k": 1}}),
        ReplaceOne({"_id": "b2"}, {"a": 2}),
        DeleteOne({"_id": "b1"}),
        DeleteMany({"_id": "b2"}),
        InsertOne({"_id": "b3"}),
    ]
    items.bulk_write(requests)
    expect_error(
        items.bulk_write, [InsertOne({"_id": "b4"}), InsertOne({"_id": 1}), InsertOne({"_id": 2})], ordered=False
    )
    # The server reads the whole collection for each.
    items.bulk_write([UpdateOne({"_id": i}, {"$set": {"bulk": i}}) for i in range(15)], ordered=False)


def errors(db):
    expect_error(db.items.insert_one, {"_id": 1})
    expect_error(db.items.insert_one, {"_id": 1})
    expect_error(db.command, "noSuchCommand")
    expect_error(db.items.update_one, {"_id": 2}, {"$noSuchOperator": {"a": 1}})
    expect_error(lambda: list(db.items.find({"a": {"$noSuchOperator": 1}})))
    expect_error(lambda: list(db.items.aggregate([{"$noSuchStage": {}}])))


def cursors(db):
    cursor = db.items.find({}, batch_size=10)
    for _ in range(15):
        next(cursor)
    cursor.close()
    list(db.items.find({"_id": {"$lt": 120}}, batch_size=25, cursor_type=CursorType.EXHAUST))


def unacknowledged(db, witness):
    # FerretDB answers these although it should not, so nothing may be read on this connection afterwards. A client that
    # closes with unread answers resets the connection, so another one sees first that all of them have arrived.
    silent = db.silent.with_options(write_concern=WriteConcern(w=0))
    silent.insert_one({"_id": 1})
    silent.update_one({"_id": 1}, {"$set": {"a": 1}})
    silent.delete_one({"_id": 1})
    silent.insert_one({"_id": "last"})
    while witness.silent.find_one({"_id": "last"}) is None:
        time.sleep(0.01)


def worker(db, number):
    for turn in range(18):
        db.pool.insert_one({"w": number, "t": turn})
        list(db.pool.find({"w": number, "t": {"$lte": turn}}, batch_size=10))
        db.pool.update_one({"w": number, "t": turn}, {"$set": {"done": True}})


def main():
    uri, path, suffix = sys.argv[1], sys.argv[2], (sys.argv[3:] or [""])[0]
    with open(path, "w", encoding="utf-8") as output:

        def client(name, **options):
            return MongoClient(
                uri, appname=name, event_listeners=[Recorder(name, output)], retryWrites=False, **options
            )

        name = "lab_python" + suffix
        with client("py-main") as main_client:
            main_client.drop_database(name)
            for part in basics, writes, errors, cursors:
                part(main_client[name])
        with client("py-silent", maxPoolSize=1) as silent_client, client("py-witness") as witness:
            unacknowledged(silent_client[name], witness[name])
        with client("py-pool", maxPoolSize=4) as pool_client:
            threads = [threading.Thread(target=worker, args=(pool_client[name], number)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    print(f"pymongo {pymongo.version}, bson {'C' if bson.has_c() else 'Python'}", file=sys.stderr)


if __name__ == "__main__":
    main()
