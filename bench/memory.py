#!/usr/bin/env python3
"""What a capture keeps in memory: 10,000 open connections, 2,000 query shapes, and of each shape the figures of 16
applications and 32 client hosts; resident memory without the ring, as JSON and in the live view."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time

from lib.kit import (
    MIB,
    MONGOSONAR,
    Memory,
    build,
    capturing,
    figure,
    folder,
    links,
    main,
    note,
    pinned,
    process,
    processors,
    say,
    stop,
    wait_until,
)
from lib.traffic import PORT, Traffic
from lib.wire import Sender

CONNECTIONS, SHAPES, APPLICATIONS, HOSTS = 10_000, 2_000, 16, 32
TRAFFIC = Traffic(CONNECTIONS, SHAPES, APPLICATIONS, HOSTS, operations_each=20)
RATE = 40_000
RING_MIB = 32
LIMIT_MIB = 64


class Watch:
    """Samples the memory of a process four times a second."""

    def __init__(self, pid):
        self.pid, self.seen, self.over = pid, [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(0.25):
            with contextlib.suppress(OSError, KeyError):
                self.seen.append(Memory.of(self.pid))

    def report(self, what):
        self.over.set()
        self.thread.join()
        most = max(self.seen, key=lambda memory: memory.resident - memory.ring)
        peak = max(memory.peak for memory in self.seen)
        say(
            f"  resident {most.resident / MIB:.1f} MiB, of it the ring {most.ring / MIB:.1f} MiB; high-water mark "
            f"{peak / MIB:.1f} MiB"
        )
        if most.ring < RING_MIB * MIB // 2:
            note("The ring does not count as resident memory of the process here.")
        own = max(peak - most.ring, most.resident - most.ring)
        figure(f"memory without the ring, {what}", own / MIB, "MiB", limit=LIMIT_MIB)


ARGUMENTS = ("--interface", "lo", "--port", str(PORT), "--ring-mib", str(RING_MIB))


def as_json(what, work, sender, cpu, *more):
    with capturing(work, *ARGUMENTS, *more, cpu=cpu) as capture:
        watch = Watch(capture.pid)
        sender.begin(RATE, 600, 1)
        sent = sender.end()
        time.sleep(1.5)
        watch.report(what)
        found, intervals = capture.stop()
    coverage = found["coverage"]
    say(
        f"  {sent['frames']:,} frames in {intervals} intervals: {coverage['streams']:,} connections, "
        f"{found['rows_total']:,} shapes, {found['totals']['calls']:,} operations, "
        f"{coverage['kernel_drops']:,} frames dropped"
    )
    if not more:
        check(found)


def check(found):
    """Ends the bench if the summary does not contain what was sent."""
    coverage, rows = found["coverage"], found["rows"]
    applications, hosts = (sum(len(row[what]) for row in rows) / max(len(rows), 1) for what in ("apps", "clients"))
    note(f"Each shape has the figures of {applications:.1f} applications and {hosts:.1f} client hosts.")
    if coverage["streams"] != CONNECTIONS or len(rows) != SHAPES or applications < APPLICATIONS * 0.9:
        sys.exit(f"mongosonar did not see what was sent: {coverage}")


def in_live_view(sender, cpu):
    """The live view on a terminal of 160 columns and 50 lines that nobody reads."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    drawn = []

    def terminal():
        """Reads what is drawn, and reports the position of the cursor, as any terminal does."""
        with contextlib.suppress(OSError):
            while drawing := os.read(ours, 65_536):
                drawn.append(len(drawing))
                if b"\x1b[6n" in drawing:
                    os.write(ours, b"\x1b[1;1R")

    threading.Thread(target=terminal, daemon=True).start()
    command = [MONGOSONAR, "queries", *ARGUMENTS]
    options = {"stdin": theirs, "stdout": theirs, "stderr": subprocess.DEVNULL, **pinned(cpu)}
    with process(command, env={**os.environ, "TERM": "xterm-256color"}, **options) as child:
        wait_until(lambda: sum(drawn) > 1_000, "the live view")
        watch = Watch(child.pid)
        sender.begin(RATE, 600, 1)
        sender.end()
        time.sleep(1.5)
        watch.report("live view")
        os.write(ours, b"q")
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        code = stop(child)
    if code != 0 or sum(drawn) < 10_000:
        sys.exit(f"the live view ended with {code} after drawing {sum(drawn)} bytes")


def bench():
    links("link set lo up")
    sending, measuring = processors()
    with folder() as work, Sender("lo", TRAFFIC.schedule(), cpu=sending) as sender:
        as_json("JSON, all rows each second", work, sender, measuring)
        as_json("JSON, ten rows each second", work, sender, measuring, "--limit", "10")
        in_live_view(sender, measuring)


build("-p", "mongosonar")
main(bench, alone=True)
