#!/usr/bin/env python3
"""The page of a history of 30 days of 200 shapes, 50 of them active in each window: how long an answer takes on loopback, one
after the other, from a warm page cache, and how long when it is asked for again; its memory; what viewers cost who wait for
the next window."""

import gzip
import http.client
import math
import re
import subprocess
import time

from lib.kit import (
    EXAMPLES,
    MIB,
    MONGOSONAR,
    Memory,
    build,
    figure,
    folder,
    main,
    median,
    note,
    output,
    process,
    processor_time,
    rounds,
)

HOUR_NS = 3_600 * 10**9
MINUTE_NS = 60 * 10**9
# A question is not asked any more when its answers have taken so long.
ENOUGH_MS = 30_000
# What is asked: its name, the path, hours before the end of the history, the limit of the 95th percentile in milliseconds.
QUESTIONS = (
    ("queries, 1 hour", "queries", 1, 100),
    ("queries, 24 hours", "queries", 24, 100),
    ("timeline, 24 hours", "timeline", 24, 100),
    ("overview, 24 hours", "incident", 24, 100),
    ("what changed, 24 hours", "what-changed", 24, 100),
    ("queries, 30 days", "queries", 24 * 30, 300),
    ("timeline, 30 days", "timeline", 24 * 30, 300),
)
VIEWERS, SECONDS = 20, 20


class Page:
    """A page that is served, and one connection to it."""

    def __init__(self, store, child):
        said = ""
        while not (address := re.search(r"at http://([^/]+)/", said)):
            said += child.stderr.readline()
        self.address = address[1]
        self.headers = {"Authorization": f"Bearer {(store / 'page-token').read_text().strip()}"}
        self.connection = http.client.HTTPConnection(self.address)

    def ask(self, path):
        self.connection.request("GET", path, headers=self.headers)
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:200])
        return body

    def follow(self):
        """A connection on which new windows are announced."""
        connection = http.client.HTTPConnection(self.address)
        connection.request("GET", "/api/v1/live", headers=self.headers)
        answer = connection.getresponse()
        assert answer.status == 200 and b"window" in answer.readline()
        return connection, answer


def moment(ns):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ns // 10**9))


def bench():
    with folder() as work:
        store = work / "store"
        output([EXAMPLES / "store_bench", "fill", store])
        store.chmod(0o700)
        command = [MONGOSONAR, "serve", "--store", store, "--listen", "127.0.0.1:0"]
        with process(command, stderr=subprocess.PIPE, text=True) as child:
            page = Page(store, child)
            app = page.ask("/")
            small = len(gzip.compress(app)) / 1000
            figure("the app, compressed", small, "kB", limit=250, note=f"(of {len(app) / 1000:.0f} kB)")
            end = int(re.search(rb'"end_ns":(\d+)', page.ask("/api/v1/status"))[1])
            for what, kind, hours, limit in QUESTIONS:
                took = []
                # Each request is of another span: the page keeps answers for some seconds.
                for number in range(rounds(20, 100)):
                    to = end - number * MINUTE_NS
                    path = f"/api/v1/{kind}?from={moment(to - hours * HOUR_NS)}&to={moment(to)}"
                    begun = time.perf_counter()
                    size = len(page.ask(path))
                    took.append((time.perf_counter() - begun) * 1e3)
                    if sum(took) > ENOUGH_MS:
                        break
                begun = time.perf_counter()
                page.ask(path)
                again = (time.perf_counter() - begun) * 1e3
                took.sort()
                late = took[math.ceil(0.95 * len(took)) - 1]
                about = f"(p95; median {median(took):.3g} ms; asked again {again:.2g} ms; {size / 1000:.0f} kB)"
                figure(what, late, "ms", limit=limit, note=about)
            figure("memory at most", Memory.of(child.pid).peak / MIB, "MiB", limit=192)
            before = processor_time(child.pid)
            viewers = [page.follow() for _ in range(VIEWERS)]
            time.sleep(SECONDS)
            used = processor_time(child.pid) - before
            figure(f"{VIEWERS} viewers who wait", 100 * used / SECONDS, "% of a processor", limit=2)
            for connection, _ in viewers:
                connection.close()
    note("192 MiB is what the agent gives to the process that serves its page.")


build("-p", "mongosonar")
build("-p", "sonar-store", "--example", "store_bench")
main(bench)
