"""Clients of the lab's threaded server, and how many replies they get."""

import os
import struct
import subprocess
import threading
import time

from lib.kit import ROOT

LOAD = ROOT / "lab/bin/threaded-load"
CONNECTIONS = 16


def document(*fields):
    body = b"".join(fields) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def text(name, value):
    return b"\x02" + name.encode() + b"\0" + struct.pack("<i", len(value) + 1) + value.encode() + b"\0"


def find(milliseconds):
    """A request that takes `milliseconds` of processor time."""
    burn = b"\x01burn\0" + struct.pack("<d", milliseconds)
    command = document(text("find", "orders"), text("$db", "lab"), b"\x03filter\0" + document(burn))
    return struct.pack("<iiiiiB", 21 + len(command), 1, 0, 2013, 0, 0) + command


def at_ordinary_priority():
    """For a child process: a bench runs at high priority, but its server and clients do not."""
    os.setpriority(os.PRIO_PROCESS, 0, 0)


class Load:
    """The clients, and the number of their replies over time."""

    def __init__(self, port, milliseconds, rate, connections=CONNECTIONS, tls=False):
        """`milliseconds` of each request, requests a second of all connections; 0: as fast as possible."""
        command = [LOAD, port, connections, rate, 3_600, *(["tls"] if tls else [])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.child = subprocess.Popen(list(map(str, command)), preexec_fn=at_ordinary_priority, **pipes)
        self.child.stdin.write(find(milliseconds))
        self.child.stdin.close()
        self.counts = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            at, replies = map(int, line.split())
            self.counts.append((at / 1e9, replies))

    def replies(self):
        """Replies until the last tenth of a second."""
        return self.counts[-1][1]

    def rate(self, begun, ended):
        """Replies a second between two times of the monotonic clock."""
        inside = [count for count in self.counts if begun <= count[0] <= ended]
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) / (last - first)

    def __enter__(self):
        time.sleep(1)
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
