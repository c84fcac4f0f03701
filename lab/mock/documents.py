"""MOCK: what the mock of a mongod stores, and how it refuses.

Documents in memory, found by the few conditions that tests send.
"""

import datetime

import bson


def now():
    """The time as in BSON: whole milliseconds, UTC, without a zone, as the decoder returns it."""
    time_now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    return time_now.replace(microsecond=time_now.microsecond // 1000 * 1000)


class Refused(Exception):
    def __init__(self, code, name, message):
        super().__init__(message)
        self.reply = {"ok": 0.0, "errmsg": message, "code": code, "codeName": name}


def field(document, path):
    for part in path.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


def matches(document, query):
    for key, wanted in query.items():
        if key == "$and":
            if not all(matches(document, part) for part in wanted):
                return False
            continue
        value = field(document, key)
        tests = wanted if isinstance(wanted, dict) and next(iter(wanted), "").startswith("$") else {"$eq": wanted}
        for operator, operand in tests.items():
            if operator == "$eq":
                good = value == operand
            elif operator == "$ne":
                good = value != operand
            elif operator == "$in":
                good = value in operand
            elif value is None:
                good = False
            else:
                good = {
                    "$gt": lambda: value > operand,
                    "$gte": lambda: value >= operand,
                    "$lt": lambda: value < operand,
                    "$lte": lambda: value <= operand,
                }[operator]()
            if not good:
                return False
    return True


class Collection:
    """Documents under increasing record ids; a capped one forgets the oldest."""

    def __init__(self, capped=None):
        self.capped, self.size, self.next_id = capped, 0, 1
        self.rows = {}  # record id -> (document, bytes), in order of insertion
        self.by_id = {}

    def insert(self, document):
        size = len(bson.encode(document))
        self.rows[self.next_id] = (document, size)
        if "_id" in document:
            self.by_id[document["_id"]] = self.next_id
        self.next_id += 1
        self.size += size
        while self.capped and self.size > self.capped and len(self.rows) > 1:
            self.remove(next(iter(self.rows)))

    def remove(self, record):
        document, size = self.rows.pop(record)
        self.by_id.pop(document.get("_id"), None)
        self.size -= size

    def scan(self, query):
        wanted = query.get("_id")
        if isinstance(wanted, (int, str, bson.ObjectId)):
            record = self.by_id.get(wanted)
            return [(record, self.rows[record][0])] if record and matches(self.rows[record][0], query) else []
        if isinstance(wanted, dict) and isinstance(wanted.get("$gte"), int) and isinstance(wanted.get("$lt"), int):
            records = (self.by_id.get(key) for key in range(wanted["$gte"], wanted["$lt"]))
            return [(record, self.rows[record][0]) for record in records if record]
        return [(record, document) for record, (document, _) in self.rows.items() if matches(document, query)]
