"""Writes a log like those of servers: make_log.py json|text MEGABYTES SHAPES FILE."""

import datetime
import random
import sys

kind, megabytes, shapes, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
random_numbers = random.Random(7)
base = datetime.datetime(2026, 5, 1)
APPLICATIONS = 20


def stamp(ms):
    time = base + datetime.timedelta(milliseconds=ms)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}"


def json_line(n, ms):
    s = n % shapes
    f = f"field{s}"
    c = f"coll{s % 50}"
    filt = f'"{f}":{random_numbers.randrange(1000000)},"status":{{"$in":["new","paid","sent"]}},"created":{{"$gte":{{"$date":"2026-04-{1 + n % 28:02d}T00:00:00.000Z"}}}}'
    return f'{{"t":{{"$date":"{stamp(ms)}+00:00"}},"s":"I",  "c":"COMMAND",  "id":51803,   "ctx":"conn{n % 500}","msg":"Slow query","attr":{{"type":"command","ns":"shop.{c}","appName":"service-{s % APPLICATIONS}","command":{{"find":"{c}","filter":{{{filt}}},"sort":{{"created":-1}},"limit":20,"lsid":{{"id":{{"$uuid":"987e9484-2a03-4129-b737-7d1c88a35176"}}}},"$clusterTime":{{"clusterTime":{{"$timestamp":{{"t":1795223372,"i":{n % 300}}}}},"signature":{{"hash":{{"$binary":{{"base64":"AAAAAAAAAAAAAAAAAAAAAAAAAAA=","subType":"0"}}}},"keyId":0}}}},"$db":"shop"}},"planSummary":"IXSCAN {{ {f}: 1, created: -1 }}","keysExamined":{random_numbers.randrange(5000)},"docsExamined":{random_numbers.randrange(5000)},"cursorExhausted":true,"numYields":{n % 7},"nreturned":20,"queryHash":"{s:08X}","planCacheKey":"{s * 7:08X}","queryFramework":"classic","reslen":{random_numbers.randrange(90000)},"locks":{{"FeatureCompatibilityVersion":{{"acquireCount":{{"r":5}}}},"Global":{{"acquireCount":{{"r":5}}}},"Mutex":{{"acquireCount":{{"r":1}}}}}},"readConcern":{{"level":"local","provenance":"implicitDefault"}},"storage":{{"data":{{"bytesRead":{random_numbers.randrange(900000)},"timeReadingMicros":{random_numbers.randrange(9000)}}}}},"remote":"10.0.0.{n % 250}:5{n % 1000:04d}","protocol":"op_msg","durationMillis":{100 + random_numbers.randrange(900)}}}}}\n'


def text_line(n, ms):
    s = n % shapes
    f = f"field{s}"
    c = f"coll{s % 50}"
    return f'{stamp(ms)}+0000 I  COMMAND  [conn{n % 500}] command shop.{c} appName: "service-{s % APPLICATIONS}" command: find {{ find: "{c}", filter: {{ {f}: {random_numbers.randrange(1000000)}, status: {{ $in: [ "new", "paid", "sent" ] }}, created: {{ $gte: new Date({1777000000000 + n}) }} }}, sort: {{ created: -1 }}, limit: 20, lsid: {{ id: UUID("987e9484-2a03-4129-b737-7d1c88a35176") }}, $clusterTime: {{ clusterTime: Timestamp(1795223372, {n % 300}), signature: {{ hash: BinData(0, 0000000000000000000000000000000000000000), keyId: 0 }} }}, $db: "shop" }} planSummary: IXSCAN {{ {f}: 1, created: -1 }} keysExamined:{random_numbers.randrange(5000)} docsExamined:{random_numbers.randrange(5000)} cursorExhausted:1 numYields:{n % 7} nreturned:20 queryHash:{s:08X} planCacheKey:{s * 7:08X} reslen:{random_numbers.randrange(90000)} locks:{{ ReplicationStateTransition: {{ acquireCount: {{ w: 8 }} }}, Global: {{ acquireCount: {{ r: 8 }} }}, Database: {{ acquireCount: {{ r: 8 }} }}, Collection: {{ acquireCount: {{ r: 8 }} }}, Mutex: {{ acquireCount: {{ r: 1 }} }} }} storage:{{ data: {{ bytesRead: {random_numbers.randrange(900000)}, timeReadingMicros: {random_numbers.randrange(9000)} }} }} protocol:op_msg {100 + random_numbers.randrange(900)}ms\n'


line = json_line if kind == "json" else text_line
left, n = megabytes * 1_000_000, 0
with open(out, "w", buffering=1 << 20) as file:
    while left > 0:
        written = line(n, n * 3)
        file.write(written)
        left -= len(written)
        n += 1
